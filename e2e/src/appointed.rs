//! A broker group whose master is appointed, as processes: brokers that find their Lease by a
//! kubeconfig, and a supervisor that decides as the operator does, with the same code.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rocketmq_replication::{
    Decision, Epoch, GroupRecord, Millis, Policy, ReplicaId, Report, Seen, Supervisor,
};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::lease_server::{LeaseServer, NAMESPACE, Road};
use crate::peer::{Broker, Peer};
use crate::raw::{Raw, code};
use crate::wait;

/// How long a Lease lasts, in seconds: less than half of what it is on Kubernetes, and enough for a
/// machine that is busy with other tests.
pub const LEASE_SECONDS: u64 = 6;
/// How often the supervisor looks.
const LOOK: Duration = Duration::from_millis(100);
/// How long a replica may take to answer it.
const ANSWER_LIMIT: Duration = Duration::from_millis(500);
const LIMIT: Duration = Duration::from_secs(60);

/// The group.
pub struct Group {
    name: String,
    leases: Arc<LeaseServer>,
    replicas: Vec<Replica>,
    seen: Arc<Mutex<Vec<View>>>,
    is_supervised: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    supervisor: Option<JoinHandle<()>>,
}

/// One of its brokers, and its way to the Lease.
struct Replica {
    broker: Broker,
    road: Road,
}

/// What the supervisor may know of a replica besides what it says of itself.
#[derive(Clone)]
struct View {
    address: String,
    /// The process was seen to end.
    is_gone: bool,
}

impl Group {
    /// A group of `replicas` brokers under `directory`, which run when this returns, with a master.
    pub fn start(
        directory: &Path,
        namesrv: &str,
        name: &str,
        replicas: usize,
        settings: &[(&str, &str)],
    ) -> Result<Group> {
        let leases = Arc::new(LeaseServer::start()?);
        let total = replicas.to_string();
        let lease = LEASE_SECONDS.to_string();
        let mut all = vec![
            ("coordinator", "kubernetes"),
            ("totalReplicas", total.as_str()),
            ("leaseDurationSeconds", lease.as_str()),
            ("leaseRenewDeadlineSeconds", "4"),
            ("leaseRetryPeriodSeconds", "1"),
            ("brokerRole", "SYNC_MASTER"),
            ("haMaxTimeSlaveNotCatchup", "3000"),
            ("haSendHeartbeatInterval", "1000"),
            ("replicaHost", "127.0.0.1"),
        ];
        all.extend(settings);
        let mut group = Group {
            name: name.to_owned(),
            leases: Arc::clone(&leases),
            replicas: Vec::new(),
            seen: Arc::default(),
            is_supervised: Arc::new(AtomicBool::new(true)),
            stop: Arc::default(),
            supervisor: None,
        };
        for number in 0..replicas {
            let place = directory.join(format!("{name}-{number}"));
            let mut broker = Broker::new(Peer::Ours, &place, namesrv, name, &all)?;
            let road = leases.road(&place)?;
            broker.set_variable("KUBECONFIG", &road.kubeconfig().display().to_string());
            broker.set_variable("POD_NAME", &format!("{name}-{number}"));
            broker.set_variable("POD_NAMESPACE", NAMESPACE);
            broker.set_variable("POD_UID", &format!("uid-{number}"));
            group.lock().push(View { address: broker.address(), is_gone: true });
            group.replicas.push(Replica { broker, road });
        }
        group.supervisor = Some(group.supervise());
        for number in 0..replicas {
            group.run(number)?;
        }
        group.master()?;
        Ok(group)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<View>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn supervise(&self) -> JoinHandle<()> {
        let leases = Arc::clone(&self.leases);
        let (seen, stop) = (Arc::clone(&self.seen), Arc::clone(&self.stop));
        let is_supervised = Arc::clone(&self.is_supervised);
        let name = self.name.clone();
        let mut supervisor = Supervisor::new(Policy {
            replicas: self.lock().len().max(1),
            lease_ms: LEASE_SECONDS * 1_000,
            patience_ms: 1_000,
            allow_unclean: false,
            known_epoch: Epoch(0),
        });
        let replicas = self.replicas.len();
        std::thread::spawn(move || {
            let began = Instant::now();
            while !stop.load(Ordering::Acquire) {
                let views = seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
                if is_supervised.load(Ordering::Acquire) && views.len() >= replicas {
                    look(&leases, &name, &views, &mut supervisor, began);
                }
                sleep(LOOK);
            }
        })
    }

    /// The number of the replica that is master, once there is one that serves.
    pub fn master(&self) -> Result<usize> {
        let record = self.record_when("there is a master", |record| record.holder.is_some())?;
        let master = record.master.context("a holder without a master")?;
        Ok(usize::try_from(master.0 - 1)?)
    }

    /// The record.
    pub fn record(&self) -> Result<GroupRecord> {
        Ok(self.leases.record(&self.name)?.context("the group has no record")?.record)
    }

    /// Waits until the record is as `wanted`.
    pub fn record_when(
        &self,
        what: &str,
        wanted: impl Fn(&GroupRecord) -> bool,
    ) -> Result<GroupRecord> {
        wait::until(what, LIMIT, || {
            let record = self.record()?;
            ensure!(wanted(&record), "the record is {record:?}");
            Ok(record)
        })
    }

    /// Waits until every replica that runs is in sync: what happens next is a single fault.
    pub fn wait_in_sync(&self) -> Result<GroupRecord> {
        let running: Vec<i64> = (1..)
            .zip(&self.replicas)
            .filter(|(_, replica)| replica.broker.is_started())
            .map(|(id, _)| id)
            .collect();
        self.record_when("all replicas in sync", |record| {
            record.holder.is_some()
                && running.iter().all(|id| record.in_sync.contains(&ReplicaId(*id)))
        })
    }

    /// Waits until another replica than `number` is master and takes messages in; gives its number.
    pub fn master_other_than(&self, number: usize) -> Result<usize> {
        let gone = ReplicaId(i64::try_from(number)? + 1);
        let record = self.record_when("another master", |record| {
            serves(record) && record.master != Some(gone)
        })?;
        Ok(usize::try_from(record.master.context("no master")?.0 - 1)?)
    }

    /// Asks the master to hand over to a replica, again if it gave up, and waits until that one is
    /// master.
    pub fn hand_over(&self, number: usize) -> Result<()> {
        let target = Some(ReplicaId(i64::try_from(number)? + 1));
        wait::until("the switchover", LIMIT, || {
            let read = self.leases.record(&self.name)?.context("the group has no record")?;
            let record = read.record;
            if record.master == target && serves(&record) {
                return Ok(());
            }
            if record.master != target && record.holder.is_some() && record.handover.is_none() {
                let wish = GroupRecord { handover: target, ..record.clone() };
                // If it changed meanwhile, the next look decides anew.
                self.leases.write(&self.name, Some(&read.version), &wish);
            }
            bail!("the record is {record:?}")
        })
    }

    /// A replica's broker.
    pub fn broker(&self, number: usize) -> &Broker {
        &self.replicas[number].broker
    }

    /// The processes of those that run.
    pub fn processes(&mut self) -> Result<Vec<u32>> {
        let running = self.replicas.iter_mut().filter(|replica| replica.broker.is_started());
        running.map(|replica| Ok(replica.broker.running()?.id())).collect()
    }

    /// Starts a replica that does not run.
    pub fn run(&mut self, number: usize) -> Result<()> {
        self.lock()[number].is_gone = false;
        self.replicas[number].broker.start()
    }

    /// kill -9 of a replica.
    pub fn kill(&mut self, number: usize) -> Result<()> {
        self.replicas[number].broker.kill()?;
        self.lock()[number].is_gone = true;
        Ok(())
    }

    /// SIGTERM of a replica.
    pub fn terminate(&mut self, number: usize) -> Result<()> {
        let status = self.replicas[number].broker.terminate()?;
        self.lock()[number].is_gone = true;
        ensure!(status.success(), "replica {number} ended with {status}");
        Ok(())
    }

    /// Freezes a replica, or lets it go on.
    pub fn freeze(&mut self, number: usize, is_frozen: bool) -> Result<()> {
        let signal = if is_frozen { Signal::STOP } else { Signal::CONT };
        self.replicas[number].broker.running()?.signal(signal)
    }

    /// Cuts a replica off from the Lease, or mends that.
    pub fn cut(&self, number: usize, is_cut: bool) {
        self.replicas[number].road.cut(is_cut);
    }

    /// Stops the supervisor's work, or lets it go on.
    pub fn supervised(&self, is_supervised: bool) {
        self.is_supervised.store(is_supervised, Ordering::Release);
    }

    /// The end of every replica's log, for whoever has to explain a failure.
    pub fn logs(&self) -> String {
        let tail = |replica: &Replica| {
            let text = std::fs::read_to_string(replica.broker.log()).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(40)..].join("\n")
        };
        let tails = self.replicas.iter().map(tail).enumerate();
        tails.map(|(number, tail)| format!("--- replica {number} ---\n{tail}\n")).collect()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(supervisor) = self.supervisor.take() {
            // It ends at its next look; if it panicked, its message was printed.
            let _ = supervisor.join();
        }
        if std::thread::panicking() {
            eprintln!("{}", self.logs());
        }
    }
}

/// Whether the master of the newest epoch takes messages in.
fn serves(record: &GroupRecord) -> bool {
    record.holder.is_some() && record.reign == record.epoch
}

/// One look at the group, and what follows from it.
fn look(
    leases: &LeaseServer,
    name: &str,
    views: &[View],
    supervisor: &mut Supervisor,
    began: Instant,
) {
    let Ok(read) = leases.record(name) else { return };
    let record = read.as_ref().map(|read| &read.record);
    let holder = record.and_then(|record| record.holder.as_ref());
    let seen: Vec<Seen> = (1..)
        .zip(views)
        .map(|(id, view)| {
            let report = report(&view.address, name).ok();
            let is_holder = record.is_some_and(|record| record.master == Some(ReplicaId(id)));
            // Another process of it runs, so the one before has ended.
            let is_another = report
                .as_ref()
                .zip(holder)
                .is_some_and(|(report, holder)| report.incarnation != holder.incarnation);
            Seen {
                id: ReplicaId(id),
                is_ready: report.is_some(),
                has_ended: is_holder && (view.is_gone || is_another),
                report,
            }
        })
        .collect();
    let now = Millis(u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX));
    if let Decision::Write { record, reason } = supervisor.decide(now, read.as_ref(), &seen) {
        println!("supervisor: epoch {}, master {:?}: {reason}", record.epoch, record.master);
        // If it changed meanwhile, the next look decides anew.
        leases.write(name, read.as_ref().map(|read| read.version.as_str()), &record);
    }
}

/// What a replica says of itself.
fn report(address: &str, name: &str) -> Result<Report> {
    let fields = json!({"brokerName": name});
    let answer =
        Raw::connect(address, ANSWER_LIMIT)?.call(code::GET_BROKER_EPOCH_CACHE, &fields, &[])?;
    ensure!(answer.code == 0, "{}: {}", answer.code, answer.remark);
    let body: Value = serde_json::from_slice(&answer.body)?;
    let last_epoch = body["epochList"]
        .as_array()
        .and_then(|epochs| epochs.last()?["epoch"].as_i64())
        .unwrap_or(0);
    Ok(Report {
        incarnation: answer.field("incarnation").context("no incarnation")?.to_owned(),
        last_epoch: Epoch(i32::try_from(last_epoch)?),
        log_end: body["maxOffset"].as_i64().context("no maxOffset")?,
    })
}
