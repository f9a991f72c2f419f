//! Who is where: broker groups, their addresses, and the queues each has of each topic.
//!
//! Pure state. No socket, no lock, no clock: the time and the connection's number come in by
//! argument, and what must happen outside (a connection to close, brokers to notify) goes out as a
//! value. The rules are those of RocketMQ's RouteInfoManager; where a rule is stricter here, the
//! comment at it says so.
//!
//! Invariants, checked by `check_invariants` in the tests:
//! - a broker is live exactly when its address stands in its group;
//! - no group is without an address, no cluster without a group, no topic without a queue entry;
//! - each queue entry and each mapping names a group that exists.

mod query;
mod removal;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use rocketmq_protocol::body::data_version::DataVersion;
use rocketmq_protocol::body::route::{QueueData, TopicQueueMappingInfo};
use rocketmq_protocol::body::topic::TopicConfig;

pub use query::UnitTopics;

/// The id of a group's master.
pub const MASTER_ID: i64 = 0;
/// How long a broker may stay silent when it names no time of its own.
pub const BROKER_EXPIRY_DEFAULT_MS: i64 = 120_000;

/// Permission bit: queues can be read (RocketMQ's PermName).
pub const PERM_READ: i32 = 4;
/// Permission bit: queues can be written.
pub const PERM_WRITE: i32 = 2;

/// What one REGISTER_BROKER says, header and body together.
#[derive(Clone, Debug, Default)]
pub struct Registration {
    /// Cluster the broker says it belongs to.
    pub cluster: String,
    /// Name of the broker group.
    pub broker_name: String,
    /// `host:port` that clients use.
    pub broker_addr: String,
    /// Id within the group; 0 is the master.
    pub broker_id: i64,
    /// `host:port` of the replication listener.
    pub ha_server_addr: String,
    /// Zone the broker runs in.
    pub zone_name: Option<String>,
    /// Silence after which the broker counts as gone; absent or not positive means 120 s.
    pub heartbeat_timeout_ms: Option<i64>,
    /// Absent for brokers before 5.0, which know no acting master.
    pub enable_acting_master: Option<bool>,
    /// Version of the broker's topic table.
    pub data_version: DataVersion,
    /// The broker's topics by name: the whole table, or one topic that just changed.
    pub topics: BTreeMap<String, TopicConfig>,
    /// Static topics: this group's part of the logic queues.
    pub mappings: BTreeMap<String, TopicQueueMappingInfo>,
    /// Filter servers of 4.x brokers.
    pub filter_servers: Vec<String>,
}

/// What came of a registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Registered {
    /// Recorded. For a slave with a live master: where that master is.
    Accepted {
        /// Whether the address was not registered before.
        is_new: bool,
        /// The master's client address.
        master_addr: Option<String>,
        /// The master's replication address.
        ha_server_addr: Option<String>,
        /// Whom to tell that the group's lowest id changed.
        min_id_change: Option<MinIdChange>,
    },
    /// The id belongs to another address with a higher state version; answered as a success without
    /// content, as RouteInfoManager does.
    Stale,
    /// One topic of a broker that has not shown its whole table. Taking it would hide the others:
    /// the recorded data version would look current.
    Partial,
}

/// The lowest live id of a group changed (RocketMQ's NOTIFY_MIN_BROKER_ID_CHANGE).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MinIdChange {
    /// The group.
    pub broker_name: String,
    /// Its lowest id now.
    pub min_broker_id: i64,
    /// The address of that id.
    pub min_broker_addr: String,
    /// The address that went, if one went.
    pub offline_broker_addr: Option<String>,
    /// Replication address of the lowest id.
    pub ha_broker_addr: Option<String>,
    /// Client addresses of the brokers to tell.
    pub tell: Vec<String>,
}

/// A broker that was taken out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// Its cluster.
    pub cluster: String,
    /// Its group.
    pub broker_name: String,
    /// Its client address.
    pub broker_addr: String,
    /// The connection it last registered on.
    pub connection: u64,
    /// Whom to tell that the group's lowest id changed.
    pub min_id_change: Option<MinIdChange>,
}

/// Switches that change how registrations are taken.
#[derive(Clone, Copy, Debug, Default)]
pub struct RegisterRules {
    /// `deleteTopicWithBrokerRegistration`: a whole table drops the topics it no longer lists.
    pub delete_missing_topics: bool,
}

/// A registered broker, known by its client address. (RocketMQ's key is cluster and address; a
/// broker restarted under another cluster name would then be taken out when its former self
/// expires.)
#[derive(Clone, Debug)]
struct Live {
    cluster: String,
    broker_name: String,
    last_update_ms: i64,
    timeout_ms: i64,
    data_version: DataVersion,
    ha_server_addr: String,
    connection: u64,
}

#[derive(Clone, Debug, Default)]
struct Group {
    cluster: String,
    zone_name: Option<String>,
    enable_acting_master: bool,
    addrs: BTreeMap<i64, String>,
}

impl Group {
    fn min_id(&self) -> Option<i64> {
        self.addrs.keys().next().copied()
    }
}

/// The name server's knowledge. See the module's text.
#[derive(Debug, Default)]
pub struct RouteTable {
    clusters: BTreeMap<String, BTreeSet<String>>,
    groups: BTreeMap<String, Group>,
    live: HashMap<String, Live>,
    topics: HashMap<String, BTreeMap<String, QueueData>>,
    mappings: HashMap<String, BTreeMap<String, TopicQueueMappingInfo>>,
    filter_servers: HashMap<String, Vec<String>>,
}

impl RouteTable {
    /// Records a broker and, when it may speak for its group, the group's topics.
    ///
    /// `connection` is the number of the connection it came on; numbers grow in the order of
    /// acceptance.
    pub fn register(
        &mut self,
        registration: &Registration,
        rules: RegisterRules,
        now_ms: i64,
        connection: u64,
    ) -> Registered {
        let r = registration;
        let occupant =
            self.groups.get(&r.broker_name).and_then(|g| g.addrs.get(&r.broker_id)).cloned();
        let taken_by_other = occupant.as_ref().is_some_and(|addr| *addr != r.broker_addr);

        if taken_by_other && self.occupant_is_newer(occupant.as_deref(), r) {
            // Whatever the loser held before (a slave's place, say) goes with the attempt.
            self.take_out(&r.broker_addr);
            return Registered::Stale;
        }
        // RocketMQ refuses this only when the id is free. An id whose holder had another address is
        // the same case: the newcomer's other topics were never seen.
        if r.topics.len() == 1 && (occupant.is_none() || taken_by_other) {
            return Registered::Partial;
        }

        // An address holds one id, in one group: the process that listened there before is gone.
        if self.live.get(&r.broker_addr).is_some_and(|live| live.broker_name != r.broker_name) {
            self.take_out(&r.broker_addr);
        }
        if taken_by_other && let Some(addr) = occupant.as_deref() {
            // Its place in the group is overwritten below.
            self.live.remove(addr);
            self.filter_servers.remove(addr);
        }

        let known = self.live.get(&r.broker_addr);
        let known_connection = known.map_or(0, |live| live.connection);
        let is_new = known.is_none();
        let known_version = known.map(|live| live.data_version);
        let whole_table_is_new = known_version.as_ref() != Some(&r.data_version);

        let group = self.groups.entry(r.broker_name.clone()).or_default();
        let min_before = group.min_id();
        let left_cluster = std::mem::replace(&mut group.cluster, r.cluster.clone());
        group.enable_acting_master = r.enable_acting_master.unwrap_or(false);
        group.zone_name.clone_from(&r.zone_name);
        group.addrs.retain(|id, addr| *addr != r.broker_addr || *id == r.broker_id);
        group.addrs.insert(r.broker_id, r.broker_addr.clone());
        let is_lowest = group.min_id() == Some(r.broker_id);
        let acting_master = group.enable_acting_master;
        if left_cluster != r.cluster {
            self.leave_cluster(&left_cluster, &r.broker_name);
        }
        self.clusters.entry(r.cluster.clone()).or_default().insert(r.broker_name.clone());

        let is_prime_slave =
            r.broker_id != MASTER_ID && r.enable_acting_master.is_some() && is_lowest;
        if r.broker_id == MASTER_ID || is_prime_slave {
            let strip_write = is_prime_slave && acting_master;
            self.take_topics(r, rules, whole_table_is_new, strip_write);
        }

        self.live.insert(
            r.broker_addr.clone(),
            Live {
                cluster: r.cluster.clone(),
                broker_name: r.broker_name.clone(),
                last_update_ms: now_ms,
                timeout_ms: match r.heartbeat_timeout_ms {
                    Some(timeout) if timeout > 0 => timeout,
                    _ => BROKER_EXPIRY_DEFAULT_MS,
                },
                data_version: recorded_version(known_version, r),
                ha_server_addr: r.ha_server_addr.clone(),
                // A registration that was overtaken by one of a newer process must not tie the
                // broker to the old connection, whose close would then take it out.
                connection: connection.max(known_connection),
            },
        );
        if r.filter_servers.is_empty() {
            self.filter_servers.remove(&r.broker_addr);
        } else {
            self.filter_servers.insert(r.broker_addr.clone(), r.filter_servers.clone());
        }

        let (master_addr, ha_server_addr) = match r.broker_id {
            MASTER_ID => (None, None),
            _ => self.live_master(&r.broker_name),
        };
        let new_minimum = min_before.is_none_or(|before| r.broker_id < before);
        let min_id_change =
            if new_minimum { self.min_id_change(&r.broker_name, None) } else { None };
        Registered::Accepted { is_new, master_addr, ha_server_addr, min_id_change }
    }

    fn occupant_is_newer(&self, occupant: Option<&str>, r: &Registration) -> bool {
        occupant
            .and_then(|addr| self.live.get(addr))
            .is_some_and(|live| live.data_version.state_version > r.data_version.state_version)
    }

    /// Takes the topics a registration lists. A topic the table lacks is always taken; one it has
    /// is replaced only when the broker's table changed, so that a wiped write permission survives
    /// the next periodic registration.
    fn take_topics(
        &mut self,
        r: &Registration,
        rules: RegisterRules,
        changed: bool,
        strip_write: bool,
    ) {
        if rules.delete_missing_topics && r.topics.len() > 1 && r.mappings.is_empty() {
            self.topics.retain(|topic, queues| {
                if !r.topics.contains_key(topic) {
                    queues.remove(&r.broker_name);
                }
                !queues.is_empty()
            });
            self.drop_mappings_without_topic();
        }
        for (topic, config) in &r.topics {
            let queues = self.topics.entry(topic.clone()).or_default();
            if changed || !queues.contains_key(&r.broker_name) {
                queues
                    .insert(r.broker_name.clone(), queue_data(&r.broker_name, config, strip_write));
            }
        }
        if changed {
            for (topic, mapping) in &r.mappings {
                if self.topics.contains_key(topic) {
                    let by_broker = self.mappings.entry(topic.clone()).or_default();
                    by_broker.insert(r.broker_name.clone(), mapping.clone());
                }
            }
        }
    }

    /// Marks a broker as alive (BROKER_HEARTBEAT and QUERY_DATA_VERSION). False when it is not
    /// registered.
    pub fn refresh(&mut self, cluster: &str, broker_addr: &str, now_ms: i64) -> bool {
        match self.live.get_mut(broker_addr) {
            Some(live) if live.cluster == cluster => {
                live.last_update_ms = now_ms;
                true
            }
            _ => false,
        }
    }

    /// Clears the write bit of every queue entry of a group; returns how many topics the group has.
    pub fn wipe_write_perm(&mut self, broker_name: &str) -> i32 {
        self.change_perm(broker_name, |perm| perm & !PERM_WRITE)
    }

    /// Makes every queue entry of a group readable and writable; returns how many topics the group
    /// has.
    pub fn add_write_perm(&mut self, broker_name: &str) -> i32 {
        self.change_perm(broker_name, |_| PERM_READ | PERM_WRITE)
    }

    fn change_perm(&mut self, broker_name: &str, change: impl Fn(i32) -> i32) -> i32 {
        let mut topics = 0;
        for queues in self.topics.values_mut() {
            if let Some(queue) = queues.get_mut(broker_name) {
                queue.perm = change(queue.perm);
                topics += 1;
            }
        }
        topics
    }

    /// Forgets a topic, in one cluster or everywhere.
    pub fn delete_topic(&mut self, topic: &str, cluster: Option<&str>) {
        match cluster {
            None => {
                self.topics.remove(topic);
            }
            Some(cluster) => {
                let Some(names) = self.clusters.get(cluster) else { return };
                if let Some(queues) = self.topics.get_mut(topic) {
                    queues.retain(|broker_name, _| !names.contains(broker_name));
                    if queues.is_empty() {
                        self.topics.remove(topic);
                    }
                }
            }
        }
        match self.topics.get(topic) {
            None => {
                self.mappings.remove(topic);
            }
            Some(queues) => {
                if let Some(by_broker) = self.mappings.get_mut(topic) {
                    by_broker.retain(|broker_name, _| queues.contains_key(broker_name));
                    if by_broker.is_empty() {
                        self.mappings.remove(topic);
                    }
                }
            }
        }
    }

    /// Adds queue entries of a topic without a registration (REGISTER_TOPIC_IN_NAMESRV). All or
    /// nothing.
    ///
    /// # Errors
    /// The name of the first group that is not registered.
    pub fn register_topic(&mut self, topic: &str, queues: Vec<QueueData>) -> Result<(), String> {
        if let Some(unknown) =
            queues.iter().find(|queue| !self.groups.contains_key(&queue.broker_name))
        {
            return Err(unknown.broker_name.clone());
        }
        if !queues.is_empty() {
            let entry = self.topics.entry(topic.to_owned()).or_default();
            entry.extend(queues.into_iter().map(|queue| (queue.broker_name.clone(), queue)));
        }
        Ok(())
    }

    fn drop_mappings_without_topic(&mut self) {
        let topics = &self.topics;
        self.mappings.retain(|topic, by_broker| {
            by_broker.retain(|name, _| {
                topics.get(topic).is_some_and(|queues| queues.contains_key(name))
            });
            !by_broker.is_empty()
        });
    }

    /// Client and replication address of a group's master, when it is alive.
    fn live_master(&self, broker_name: &str) -> (Option<String>, Option<String>) {
        let master = self.groups.get(broker_name).and_then(|group| {
            let addr = group.addrs.get(&MASTER_ID)?;
            let live = self.live.get(addr)?;
            Some((addr.clone(), live.ha_server_addr.clone()))
        });
        match master {
            Some((addr, ha)) => (Some(addr), Some(ha)),
            None => (None, None),
        }
    }

    /// Whom to tell about a new lowest id: after a loss all that are left, after an arrival all but
    /// the newcomer. Only groups with acting masters care.
    fn min_id_change(&self, broker_name: &str, offline: Option<&str>) -> Option<MinIdChange> {
        let group = self.groups.get(broker_name)?;
        if !group.enable_acting_master {
            return None;
        }
        let (min_broker_id, min_broker_addr) = group.addrs.iter().next()?;
        let ha_broker_addr = self.live.get(min_broker_addr).map(|live| live.ha_server_addr.clone());
        let tell: Vec<String> = group
            .addrs
            .iter()
            .filter(|(id, _)| offline.is_some() || *id != min_broker_id)
            .map(|(_, addr)| addr.clone())
            .collect();
        if tell.is_empty() {
            return None;
        }
        Some(MinIdChange {
            broker_name: broker_name.to_owned(),
            min_broker_id: *min_broker_id,
            min_broker_addr: min_broker_addr.clone(),
            offline_broker_addr: offline.map(str::to_owned),
            ha_broker_addr,
            tell,
        })
    }
}

/// The version to remember. A single topic that skips a version means that an earlier change never
/// arrived here; then the old version stays, so that the broker's next question is answered
/// "changed" and it shows its whole table. (RocketMQ records the newest and keeps the missed topic
/// hidden.)
fn recorded_version(known: Option<DataVersion>, r: &Registration) -> DataVersion {
    match known {
        Some(known) if r.topics.len() == 1 && !follows(&known, &r.data_version) => known,
        _ => r.data_version,
    }
}

fn follows(known: &DataVersion, new: &DataVersion) -> bool {
    new == known
        || (new.state_version == known.state_version
            && new.counter == known.counter.wrapping_add(1))
}

fn queue_data(broker_name: &str, config: &TopicConfig, strip_write: bool) -> QueueData {
    QueueData {
        broker_name: broker_name.to_owned(),
        read_queue_nums: config.read_queue_nums,
        write_queue_nums: config.write_queue_nums,
        perm: if strip_write { config.perm & !PERM_WRITE } else { config.perm },
        topic_sys_flag: config.topic_sys_flag,
    }
}
