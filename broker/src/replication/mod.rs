//! Copies of the log on other brokers of the group.
//!
//! A master hands the bytes of its log to whoever connects to its HA port, and learns from each slave
//! how much of them it has; sends that wait for copies are answered by that. A slave follows its
//! master, and copies topics, groups and offsets from it.
//!
//! With roles that the configuration fixes it is RocketMQ's classic pair of master and slaves
//! (`DefaultHAService`), in this directory. Where the master is appointed it is the stream of its
//! controller mode, in [`appointed`].

mod accept;
pub mod appointed;
mod flow;
mod frame;
mod master;
mod metadata;
mod pull;
mod slave;
mod thread;
mod throttle;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rocketmq_protocol::body::replication::{
    HaClientRuntimeInfo, HaConnectionRuntimeInfo, HaRuntimeInfo,
};
use rocketmq_replication::ReplicaId;
use tokio::sync::{Notify, watch};

use crate::clock::now_ms;
use crate::flush_waits::{Wait, WaitEnd};
use flow::Flow;

pub(crate) use metadata::follow as follow_metadata;
pub use pull::{Redirected, redirect};
pub use thread::{ReplicationThread, bind};

/// A slave's master.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Master {
    /// Differs from that of any other that was followed; 0 if there was none yet.
    pub number: u64,
    /// `host:port` for requests; empty if there is no master.
    pub broker: String,
    /// `host:port` of its log; empty if there is no master.
    pub ha: String,
}

/// What a broker knows of the copies of its log, and of the log that it copies.
pub struct Replication {
    slaves: Mutex<Vec<Arc<SlaveLink>>>,
    /// How many, so that an append need not lock.
    slave_count: AtomicUsize,
    /// Wakes those who send when the log has grown.
    grew: Notify,
    waits: Mutex<Waits>,
    master: watch::Sender<Master>,
    following: Following,
}

/// A slave that is connected.
#[derive(Debug)]
pub struct SlaveLink {
    remote: String,
    /// Its number in the group, where the stream says it.
    replica: Option<ReplicaId>,
    /// Behind the last byte that it has; −1 before it said so.
    acked: AtomicI64,
    /// Where the next bytes for it begin.
    next: AtomicI64,
    /// Bytes of the log that were sent to it.
    sent: Flow,
}

/// The state of following a master.
#[derive(Debug, Default)]
struct Following {
    /// Number of the master whose log is being copied right now; 0 if none is.
    master: AtomicU64,
    last_read_ms: AtomicI64,
    last_write_ms: AtomicI64,
    /// Bytes of the log that came.
    received: Flow,
}

/// Sends that wait for copies, by the end of what they wait for.
#[derive(Default)]
struct Waits {
    by_end: BTreeMap<(i64, u64), (usize, Wait)>,
    next_number: u64,
}

impl Default for Replication {
    fn default() -> Self {
        Self {
            slaves: Mutex::default(),
            slave_count: AtomicUsize::new(0),
            grew: Notify::new(),
            waits: Mutex::default(),
            master: watch::Sender::new(Master::default()),
            following: Following::default(),
        }
    }
}

impl Replication {
    /// The log has grown: wakes those who send it. Cheap without slaves.
    pub fn log_grew(&self) {
        if self.slave_count.load(Ordering::Acquire) > 0 {
            self.grew.notify_waiters();
        }
    }

    /// Ends `wait` once `slaves` slaves have everything in front of `end`: at once if they have.
    pub fn on_copied(&self, end: i64, slaves: usize, wait: Wait) {
        {
            let mut waits = self.waits.lock();
            // Those that timed out meanwhile stay no longer than the ones in front of them.
            while waits.by_end.first_entry().is_some_and(|entry| entry.get().1.has_ended()) {
                waits.by_end.pop_first();
            }
            waits.next_number += 1;
            let number = waits.next_number;
            waits.by_end.insert((end, number), (slaves, wait));
        }
        // An acknowledgement between the caller's look and the insertion ended nothing.
        self.end_waits();
    }

    /// How many slaves have everything in front of `end`.
    pub fn copies(&self, end: i64) -> usize {
        let slaves = self.slaves.lock();
        slaves.iter().filter(|slave| slave.acked.load(Ordering::Acquire) >= end).count()
    }

    fn end_waits(&self) {
        let mut acked: Vec<i64> = {
            let slaves = self.slaves.lock();
            slaves.iter().map(|slave| slave.acked.load(Ordering::Acquire)).collect()
        };
        acked.sort_unstable_by(|a, b| b.cmp(a));
        let mut ended = Vec::new();
        {
            let mut waits = self.waits.lock();
            let Some(most) = acked.first().copied() else { return };
            let is_copied = |end: i64, slaves: usize| {
                slaves == 0 || acked.get(slaves - 1).is_some_and(|to| *to >= end)
            };
            let done: Vec<_> = waits
                .by_end
                .range(..=(most, u64::MAX))
                .filter(|((end, _), (slaves, _))| is_copied(*end, *slaves))
                .map(|(key, _)| *key)
                .collect();
            for key in done {
                ended.extend(waits.by_end.remove(&key));
            }
        }
        for (_, wait) in ended {
            wait.end(WaitEnd::Copied);
        }
    }

    fn slave_came(&self, link: &Arc<SlaveLink>) {
        let mut slaves = self.slaves.lock();
        slaves.push(Arc::clone(link));
        self.slave_count.store(slaves.len(), Ordering::Release);
    }

    fn slave_left(&self, link: &Arc<SlaveLink>) {
        let mut slaves = self.slaves.lock();
        slaves.retain(|slave| !Arc::ptr_eq(slave, link));
        self.slave_count.store(slaves.len(), Ordering::Release);
    }

    fn slave_acked(&self, link: &SlaveLink, end: i64) {
        link.acked.store(end, Ordering::Release);
        self.end_waits();
    }

    /// What the name server, or the configuration, says of the master. An empty address says nothing:
    /// the name server may have been restarted, and the master not yet registered again.
    pub fn master_found(&self, broker: &str, ha: &str) {
        self.master.send_if_modified(|known| {
            let or_known = |said: &str, known: &String| match said {
                "" => known.clone(),
                said => said.to_owned(),
            };
            let found = Master {
                number: known.number + 1,
                broker: or_known(broker, &known.broker),
                ha: or_known(ha, &known.ha),
            };
            let differs = (&known.broker, &known.ha) != (&found.broker, &found.ha);
            if differs {
                tracing::info!(broker = found.broker, ha = found.ha, "master found");
                *known = found;
            }
            differs
        });
    }

    /// The master is the one that the group's record names.
    fn set_master(&self, master: Master) {
        self.master.send_replace(master);
    }

    /// The master that this broker follows, as far as it is known.
    pub fn master(&self) -> Master {
        self.master.borrow().clone()
    }

    /// Whether the log of a master is being copied right now.
    pub fn is_following(&self) -> bool {
        self.following.master.load(Ordering::Acquire) != 0
    }

    /// Whether it is the log of this one.
    pub(crate) fn is_copying_from(&self, master: &Master) -> bool {
        master.number != 0 && self.following.master.load(Ordering::Acquire) == master.number
    }

    /// The log of the master with this number is being copied from now on.
    fn copying_began(&self, number: u64) {
        self.following.master.store(number, Ordering::Release);
    }

    fn copying_ended(&self) {
        self.following.master.store(0, Ordering::Release);
    }

    /// The body of GET_BROKER_HA_STATUS. `in_sync` says who counts as in sync.
    pub fn runtime_info(&self, is_master: bool, log_end: i64, in_sync: &InSync) -> HaRuntimeInfo {
        let now_ms = now_ms();
        let slaves = self.slaves.lock();
        let connections: Vec<_> = slaves
            .iter()
            .map(|slave| {
                let acked = slave.acked.load(Ordering::Acquire);
                let behind = log_end - acked;
                HaConnectionRuntimeInfo {
                    addr: slave.remote.clone(),
                    diff: behind,
                    in_sync: match in_sync {
                        InSync::Within(gap_bytes) => behind < *gap_bytes,
                        InSync::Members(members) => {
                            slave.replica.is_some_and(|replica| members.contains(&replica))
                        }
                    },
                    slave_ack_offset: acked,
                    transfer_from_where: slave.next.load(Ordering::Acquire),
                    transferred_byte_in_second: slave.sent.per_second(now_ms),
                }
            })
            .collect();
        let in_sync = connections.iter().filter(|slave| slave.in_sync).count();
        let following = &self.following;
        HaRuntimeInfo {
            in_sync_slave_nums: i32::try_from(in_sync).unwrap_or(i32::MAX),
            ha_connection_info: connections,
            master: is_master,
            master_commit_log_max_offset: if is_master { log_end } else { 0 },
            ha_client_runtime_info: Some(HaClientRuntimeInfo {
                master_addr: Some(self.master.borrow().ha.clone()).filter(|ha| !ha.is_empty()),
                last_read_timestamp: following.last_read_ms.load(Ordering::Acquire),
                last_write_timestamp: following.last_write_ms.load(Ordering::Acquire),
                max_offset: if is_master { 0 } else { log_end },
                transferred_byte_in_second: following.received.per_second(now_ms),
                // A master of this protocol does not say how far it is durable.
                master_flush_offset: 0,
            }),
        }
    }

    /// How many slaves are connected, and how far the last of them is behind `log_end`, in bytes.
    pub fn lag(&self, log_end: i64) -> (usize, i64) {
        let slaves = self.slaves.lock();
        let behind = slaves.iter().map(|slave| log_end - slave.acked.load(Ordering::Acquire));
        (slaves.len(), behind.max().unwrap_or(0).max(0))
    }
}

/// Which slaves count as in sync.
#[derive(Clone, Debug)]
pub enum InSync {
    /// Those that are fewer bytes than this behind.
    Within(i64),
    /// Those of the group's set.
    Members(Vec<ReplicaId>),
}

/// Settings of a link, in the form that both sides use.
#[derive(Clone, Copy, Debug)]
struct LinkSettings {
    /// Time without a word after which something is sent all the same.
    heartbeat: Duration,
    /// Time without a word from the other side after which the connection is given up.
    idle: Duration,
    /// Most bytes of the log in one frame.
    batch_bytes: usize,
}

impl LinkSettings {
    fn of(config: &crate::config::BrokerConfig) -> LinkSettings {
        let ms = |value: i64| Duration::from_millis(u64::try_from(value).unwrap_or(1));
        LinkSettings {
            heartbeat: ms(config.ha_send_heartbeat_interval),
            idle: ms(config.ha_housekeeping_interval),
            batch_bytes: usize::try_from(config.ha_transfer_batch_size).unwrap_or(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flush_waits::FlushWaits;

    fn link(acked: i64) -> Arc<SlaveLink> {
        Arc::new(SlaveLink {
            remote: "slave".to_owned(),
            replica: None,
            acked: AtomicI64::new(acked),
            next: AtomicI64::new(0),
            sent: Flow::default(),
        })
    }

    #[test]
    fn a_wait_ends_when_enough_slaves_have_all_of_it() {
        let replication = Replication::default();
        let waits = FlushWaits::new(Duration::from_secs(5));
        let ended: Arc<Mutex<Vec<(i64, usize)>>> = Arc::default();
        let wait = |end: i64, slaves: usize| {
            let ended = Arc::clone(&ended);
            let on_end = move |how| {
                assert!(matches!(how, WaitEnd::Copied));
                ended.lock().push((end, slaves));
            };
            replication.on_copied(end, slaves, waits.add(Box::new(on_end)));
        };
        wait(10, 1);
        assert!(ended.lock().is_empty(), "there is no slave");
        let (first, second) = (link(-1), link(-1));
        replication.slave_came(&first);
        replication.slave_came(&second);
        wait(20, 2);
        wait(20, 1);
        replication.slave_acked(&first, 15);
        assert_eq!(*ended.lock(), [(10, 1)]);
        replication.slave_acked(&first, 20);
        assert_eq!(*ended.lock(), [(10, 1), (20, 1)]);
        replication.slave_acked(&second, 25);
        assert_eq!(*ended.lock(), [(10, 1), (20, 1), (20, 2)]);
        wait(20, 2);
        assert_eq!(ended.lock().len(), 4, "they have it already");
        assert_eq!((replication.copies(20), replication.copies(21)), (2, 1));
        replication.slave_left(&second);
        assert_eq!(replication.copies(20), 1);
        wait(20, 2);
        assert_eq!(ended.lock().len(), 4, "one that left has nothing");
    }

    #[test]
    fn a_name_server_that_knows_no_master_changes_nothing() {
        let replication = Replication::default();
        assert_eq!(replication.master(), Master::default());
        replication.master_found("", "m:2");
        replication.master_found("m:1", "");
        replication.master_found("", "");
        let master = replication.master();
        assert_eq!((&*master.broker, &*master.ha), ("m:1", "m:2"));
        replication.copying_began(master.number);
        assert!(replication.is_following() && replication.is_copying_from(&master));
        replication.master_found("n:1", "");
        assert!(!replication.is_copying_from(&replication.master()), "that is another one");
        replication.copying_ended();
        assert!(!replication.is_following() && !replication.is_copying_from(&master));
    }
}
