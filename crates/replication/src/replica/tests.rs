//! One replica, told what happens one thing at a time.

mod follow;
mod leave;
mod rule;
mod take_over;

use super::*;
use crate::{Attempt, EpochEntry, GroupRecord, Holder, MasterAddresses, Refusal};

const RETRY: u64 = 2000;
const DEADLINE: u64 = 10_000;
const PROMISE: u64 = 10_000;
const CATCH_UP: u64 = 15_000;

fn settings(id: i64) -> Settings {
    Settings {
        id: ReplicaId(id),
        incarnation: format!("pod-{id}:1"),
        addresses: addresses(id),
        min_in_sync: 1,
        renew_deadline_ms: DEADLINE,
        retry_ms: RETRY,
        catch_up_ms: CATCH_UP,
        promise_ms: PROMISE,
    }
}

fn addresses(id: i64) -> MasterAddresses {
    MasterAddresses { broker: format!("pod-{id}:10911"), ha: format!("pod-{id}:10912") }
}

fn set(ids: &[i64]) -> BTreeSet<ReplicaId> {
    ids.iter().copied().map(ReplicaId).collect()
}

fn table(entries: &[(i32, i64)]) -> EpochTable {
    let entries =
        entries.iter().map(|(epoch, start)| EpochEntry { epoch: Epoch(*epoch), start: *start });
    EpochTable::new(entries.collect()).expect("in order")
}

/// Replica `master` is appointed to `epoch`, by a supervisor that knows that nobody else acknowledges.
fn appointment(epoch: i32, master: i64, in_sync: &[i64]) -> GroupRecord {
    GroupRecord {
        epoch: Epoch(epoch),
        master: Some(ReplicaId(master)),
        in_sync: set(in_sync),
        vacated: true,
        ..GroupRecord::default()
    }
}

/// Replica `master` is master of `epoch`.
fn reign(epoch: i32, master: i64, in_sync: &[i64]) -> GroupRecord {
    GroupRecord {
        holder: Some(Holder { incarnation: format!("pod-{master}:1"), renewals: 7 }),
        addresses: addresses(master),
        reign: Epoch(epoch),
        vacated: false,
        ..appointment(epoch, master, in_sync)
    }
}

/// A replica and what it asked for.
struct Lab {
    replica: Replica,
    now: u64,
    out: Vec<Output>,
    versions: u64,
    /// The proof that was asked for and not given.
    probe: Option<u64>,
}

impl Lab {
    fn new(settings: Settings, epochs: EpochTable, log_end: i64) -> Lab {
        Lab {
            replica: Replica::new(settings, epochs, log_end),
            now: 100_000,
            out: vec![],
            versions: 0,
            probe: None,
        }
    }

    /// Replica 1, master of epoch 1, with an empty log, alone in the set.
    fn master(settings: Settings) -> Lab {
        let mut lab = Lab::new(settings, EpochTable::default(), 0);
        lab.record(appointment(1, 1, &[1]));
        lab.tell(Input::Truncated { end: 0 });
        lab.land();
        lab.tell(Input::EpochRecorded(Epoch(1)));
        assert_eq!(lab.replica.role(), Role::Master(Epoch(1)));
        // The epoch is written into the record.
        lab.land();
        lab
    }

    /// A master with these slaves in the set, connected by links of their numbers.
    fn master_with(settings: Settings, slaves: &[i64]) -> Lab {
        let mut lab = Lab::master(settings);
        for slave in slaves {
            lab.join(*slave, 0);
            lab.has(*slave, 0);
            lab.prove();
            lab.land();
        }
        let all: Vec<i64> = [1].iter().chain(slaves).copied().collect();
        assert_eq!(*lab.replica.in_sync(), set(&all));
        lab
    }

    fn tell(&mut self, input: Input) -> &[Output] {
        self.out.clear();
        self.replica.handle(Millis(self.now), input, &mut self.out);
        let probe = self.out.iter().find_map(|output| match output {
            Output::Probe(number) => Some(*number),
            _ => None,
        });
        self.probe = probe.or(self.probe);
        &self.out
    }

    fn wait(&mut self, ms: u64) -> &[Output] {
        self.now += ms;
        self.tell(Input::Tick)
    }

    fn record(&mut self, record: GroupRecord) -> &[Output] {
        self.versions += 1;
        let version = format!("v{}", self.versions);
        self.tell(Input::Record(Some(Versioned { version, record })))
    }

    fn read_again(&mut self) -> &[Output] {
        let known = self.replica.record.clone();
        self.tell(Input::Record(known))
    }

    /// The write that was asked for last.
    fn write(&self) -> Option<(Attempt, GroupRecord)> {
        self.out.iter().rev().find_map(|output| match output {
            Output::Write { attempt, record, .. } => Some((*attempt, record.clone())),
            _ => None,
        })
    }

    /// The write that was asked for last takes place.
    fn land(&mut self) -> GroupRecord {
        let (attempt, record) = self.write().expect("a write was asked for");
        self.versions += 1;
        self.tell(Input::Written(attempt, format!("v{}", self.versions)));
        record
    }

    /// Proves the append path, as was asked.
    fn prove(&mut self) -> &[Output] {
        let probe = self.probe.take().expect("a proof was asked for");
        self.tell(Input::Proven(probe))
    }

    fn join(&mut self, replica: i64, end: i64) -> &[Output] {
        let link = LinkId(u64::try_from(replica).expect("positive"));
        let replica = ReplicaId(replica);
        self.tell(Input::SlaveJoined { link, replica, end, is_learner: false })
    }

    fn has(&mut self, replica: i64, end: i64) -> &[Output] {
        let link = LinkId(u64::try_from(replica).expect("positive"));
        self.tell(Input::SlaveHas { link, end })
    }

    fn takes_in(&self) -> Result<(), FencedBy> {
        self.replica.may_take_in(Millis(self.now))
    }

    fn may(&self) -> Result<(), FencedBy> {
        self.replica.may_acknowledge(Millis(self.now))
    }
}
