//! Live clients (ProducerManager, ConsumerManager): who is connected, in which groups, with which
//! subscriptions.
//!
//! Filled by heart-beats, emptied when a connection ends, a client says good-bye or its
//! heart-beats stop. Every change of a group's members is returned to the caller, which tells the
//! members to share out the queues again; this table sends nothing itself.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;

use parking_lot::RwLock;
use rocketmq_protocol::body::{ConsumerData, HeartbeatData};
use rocketmq_protocol::language::LanguageCode;
use rocketmq_protocol::subscription::{
    ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData,
};
use rocketmq_remoting::Connection;

use crate::filter::TagFilter;

/// What the table needs of a client's connection.
pub trait ClientConnection: Send + Sync {
    /// Number of the connection, unique in this process.
    fn id(&self) -> u64;
    /// The client's address.
    fn remote(&self) -> SocketAddr;
    /// Ends the connection.
    fn close(&self);
}

impl ClientConnection for Connection {
    fn id(&self) -> u64 {
        Connection::id(self)
    }

    fn remote(&self) -> SocketAddr {
        Connection::remote(self)
    }

    fn close(&self) {
        Connection::close(self);
    }
}

/// One client in one group.
#[derive(Debug)]
pub struct ClientChannel<C> {
    /// Its connection.
    pub connection: Arc<C>,
    /// What it calls itself: `ip@instance`.
    pub client_id: Arc<str>,
    /// Its programming language.
    pub language: LanguageCode,
    /// Its RocketMQ version.
    pub version: i32,
    /// Wall-clock time of its last heart-beat, for people.
    pub heartbeat_timestamp_ms: i64,
    /// Monotonic time of its last heart-beat, for expiry.
    heartbeat_ms: u64,
}

impl<C> Clone for ClientChannel<C> {
    fn clone(&self) -> Self {
        Self {
            connection: self.connection.clone(),
            client_id: self.client_id.clone(),
            language: self.language,
            version: self.version,
            heartbeat_timestamp_ms: self.heartbeat_timestamp_ms,
            heartbeat_ms: self.heartbeat_ms,
        }
    }
}

/// A subscription as pulls use it.
#[derive(Debug)]
pub struct RegisteredSubscription {
    /// What the client registered.
    pub data: SubscriptionData,
    /// What the broker filters by.
    pub filter: Arc<TagFilter>,
}

impl Deref for RegisteredSubscription {
    type Target = SubscriptionData;

    fn deref(&self) -> &SubscriptionData {
        &self.data
    }
}

/// What a live group says about a topic.
#[derive(Clone, Debug)]
pub struct GroupSubscription {
    /// Clustering or broadcasting.
    pub message_model: MessageModel,
    /// `None` if the group does not subscribe to the topic.
    pub subscription: Option<Arc<RegisteredSubscription>>,
}

/// The live consumers of one group.
#[derive(Debug)]
pub struct ConsumerGroup<C> {
    /// Push or pull.
    pub consume_type: ConsumeType,
    /// Clustering or broadcasting.
    pub message_model: MessageModel,
    /// Where a queue without a committed offset begins.
    pub consume_from_where: ConsumeFromWhere,
    /// By topic.
    pub subscriptions: BTreeMap<String, Arc<RegisteredSubscription>>,
    channels: HashMap<u64, ClientChannel<C>>,
    fingerprint: i32,
}

impl<C> ConsumerGroup<C> {
    /// The members, in no order.
    pub fn channels(&self) -> impl Iterator<Item = &ClientChannel<C>> {
        self.channels.values()
    }
}

/// What a heart-beat or a departure changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Groups whose members or subscribed topics changed.
    pub groups: BTreeSet<String>,
    /// Heart-beat V2: the subscriptions differ from those of the last fingerprint.
    pub subscription_changed: bool,
}

/// Who sends a heart-beat.
pub struct Sender<'a, C> {
    /// The connection it came over.
    pub connection: &'a Arc<C>,
    /// From the frame.
    pub language: LanguageCode,
    /// From the frame.
    pub version: i32,
    /// Wall clock now.
    pub timestamp_ms: i64,
    /// Monotonic clock now.
    pub monotonic_ms: u64,
}

/// All live clients of this broker.
#[derive(Debug)]
pub struct ClientTable<C = Connection> {
    inner: RwLock<Inner<C>>,
}

#[derive(Debug)]
struct Inner<C> {
    producers: HashMap<String, HashMap<u64, ClientChannel<C>>>,
    /// Connections of all producers by client id, of one with two connections the newest. A reply
    /// names the client that waits for it.
    producer_clients: HashMap<Arc<str>, Arc<C>>,
    consumers: HashMap<String, ConsumerGroup<C>>,
}

impl<C> Default for ClientTable<C> {
    fn default() -> Self {
        let inner = Inner {
            producers: HashMap::new(),
            producer_clients: HashMap::new(),
            consumers: HashMap::new(),
        };
        Self { inner: RwLock::new(inner) }
    }
}

impl<C: ClientConnection> ClientTable<C> {
    /// Takes in a heart-beat. Consumer groups for which `admit` says no are skipped, as the Java
    /// broker does with groups that may not be created.
    pub fn heartbeat(
        &self,
        sender: &Sender<'_, C>,
        heartbeat: HeartbeatData,
        admit: impl Fn(&ConsumerData) -> bool,
    ) -> Changes {
        let mut changes = Changes::default();
        let client_id: Arc<str> = heartbeat.client_id.as_str().into();
        let consumers: Vec<ConsumerData> =
            heartbeat.consumer_data_set.into_iter().filter(admit).collect();
        let mut inner = self.inner.write();
        if !heartbeat.producer_data_set.is_empty() {
            inner.producer_clients.insert(client_id.clone(), sender.connection.clone());
        }
        for producer in heartbeat.producer_data_set {
            let channels = inner.producers.entry(producer.group_name).or_default();
            channels.insert(sender.connection.id(), sender.channel(&client_id));
        }
        for consumer in consumers {
            let group = consumer.group_name.clone();
            let fingerprint = heartbeat.heartbeat_fingerprint;
            let entry = inner.consumers.entry(group.clone()).or_insert_with(|| ConsumerGroup {
                consume_type: consumer.consume_type,
                message_model: consumer.message_model,
                consume_from_where: consumer.consume_from_where,
                subscriptions: BTreeMap::new(),
                channels: HashMap::new(),
                fingerprint: 0,
            });
            if fingerprint != 0 {
                changes.subscription_changed |=
                    entry.fingerprint != 0 && entry.fingerprint != fingerprint;
                entry.fingerprint = fingerprint;
            }
            let channel = sender.channel(&client_id);
            let joined = entry.channels.insert(sender.connection.id(), channel).is_none();
            // A heart-beat "without subscriptions" says that they are as before, not that there
            // are none.
            let subscribed = !heartbeat.without_sub && entry.subscribe(consumer);
            if joined || subscribed {
                changes.groups.insert(group);
            }
        }
        changes
    }

    /// The client leaves these groups (UNREGISTER_CLIENT); others it stays in.
    pub fn unregister(
        &self,
        connection_id: u64,
        producer_group: Option<&str>,
        consumer_group: Option<&str>,
    ) -> Changes {
        let mut changes = Changes::default();
        let mut inner = self.inner.write();
        if let Some(group) = producer_group
            && let Some(channels) = inner.producers.get_mut(group)
        {
            channels.remove(&connection_id);
            if channels.is_empty() {
                inner.producers.remove(group);
            }
            // Clients are members of a group of their own besides those of the application.
            if !inner.producers.values().any(|channels| channels.contains_key(&connection_id)) {
                inner.producer_clients.retain(|_, connection| connection.id() != connection_id);
            }
        }
        if let Some(group) = consumer_group
            && let Some(members) = inner.consumers.get_mut(group)
            && members.channels.remove(&connection_id).is_some()
        {
            changes.groups.insert(group.to_owned());
            if members.channels.is_empty() {
                inner.consumers.remove(group);
            }
        }
        changes
    }

    /// The connection ended: its client leaves every group.
    pub fn connection_closed(&self, connection_id: u64) -> Changes {
        self.remove(|channel| channel.connection.id() == connection_id)
    }

    /// Removes clients without a heart-beat for `expiry_ms` and closes their connections.
    pub fn expire(&self, now_monotonic_ms: u64, expiry_ms: u64) -> Changes {
        self.remove(|channel| {
            let expired = now_monotonic_ms.saturating_sub(channel.heartbeat_ms) > expiry_ms;
            if expired {
                channel.connection.close();
            }
            expired
        })
    }

    fn remove(&self, gone: impl Fn(&ClientChannel<C>) -> bool) -> Changes {
        let mut changes = Changes::default();
        let mut inner = self.inner.write();
        let mut left = BTreeSet::new();
        inner.producers.retain(|_, channels| {
            channels.retain(|id, channel| {
                let gone = gone(channel);
                if gone {
                    left.insert(*id);
                }
                !gone
            });
            !channels.is_empty()
        });
        if !left.is_empty() {
            inner.producer_clients.retain(|_, connection| !left.contains(&connection.id()));
        }
        inner.consumers.retain(|group, members| {
            let before = members.channels.len();
            members.channels.retain(|_, channel| !gone(channel));
            if members.channels.len() < before {
                changes.groups.insert(group.clone());
            }
            !members.channels.is_empty()
        });
        changes
    }

    /// The group's subscription to the topic, from its members' last heart-beats; `None` if the
    /// group has no live consumer.
    pub fn subscription(&self, group: &str, topic: &str) -> Option<GroupSubscription> {
        self.with_consumers(group, |members| GroupSubscription {
            message_model: members.message_model,
            subscription: members.subscriptions.get(topic).cloned(),
        })
    }

    /// Looks at a group's live consumers; `None` if there are none.
    pub fn with_consumers<R>(
        &self,
        group: &str,
        look: impl FnOnce(&ConsumerGroup<C>) -> R,
    ) -> Option<R> {
        self.inner.read().consumers.get(group).map(look)
    }

    /// Whether the group has live consumers.
    pub fn is_online(&self, group: &str) -> bool {
        self.inner.read().consumers.contains_key(group)
    }

    /// Whether the group is online and no longer subscribes to the topic: offsets that it has there
    /// are left over and no lag.
    pub fn has_left(&self, group: &str, topic: &str) -> bool {
        let left = self.with_consumers(group, |members| {
            !members.subscriptions.is_empty() && !members.subscriptions.contains_key(topic)
        });
        left == Some(true)
    }

    /// Ids of the group's live consumers, each once, sorted.
    pub fn consumer_ids(&self, group: &str) -> Vec<String> {
        let ids: BTreeSet<String> = self
            .with_consumers(group, |members| {
                members.channels().map(|channel| channel.client_id.to_string()).collect()
            })
            .unwrap_or_default();
        ids.into_iter().collect()
    }

    /// Connections of the group's live consumers.
    pub fn consumer_connections(&self, group: &str) -> Vec<Arc<C>> {
        self.with_consumers(group, |members| {
            members.channels().map(|channel| channel.connection.clone()).collect()
        })
        .unwrap_or_default()
    }

    /// The live consumer of that id in the group.
    pub fn consumer(&self, group: &str, client_id: &str) -> Option<ClientChannel<C>> {
        self.inner
            .read()
            .consumers
            .get(group)?
            .channels()
            .find(|channel| &*channel.client_id == client_id)
            .cloned()
    }

    /// The group's live producers.
    pub fn producers(&self, group: &str) -> Vec<ClientChannel<C>> {
        self.inner
            .read()
            .producers
            .get(group)
            .map(|channels| channels.values().cloned().collect())
            .unwrap_or_default()
    }

    /// The connection of the live producer of that id, whatever its groups.
    pub fn producer_connection(&self, client_id: &str) -> Option<Arc<C>> {
        self.inner.read().producer_clients.get(client_id).cloned()
    }

    /// The connections of all live producers and consumers.
    pub fn connections(&self) -> Vec<Arc<C>> {
        let inner = self.inner.read();
        let consumers = inner.consumers.values().flat_map(ConsumerGroup::channels);
        let producers = inner.producers.values().flat_map(HashMap::values);
        consumers.chain(producers).map(|channel| channel.connection.clone()).collect()
    }

    /// All live producers, by group.
    pub fn all_producers(&self) -> BTreeMap<String, Vec<ClientChannel<C>>> {
        let inner = self.inner.read();
        inner
            .producers
            .iter()
            .map(|(group, channels)| (group.clone(), channels.values().cloned().collect()))
            .collect()
    }

    /// Groups with a live consumer that subscribes to the topic, sorted.
    pub fn groups_of_topic(&self, topic: &str) -> Vec<String> {
        let inner = self.inner.read();
        let mut groups: Vec<String> = inner
            .consumers
            .iter()
            .filter(|(_, members)| members.subscriptions.contains_key(topic))
            .map(|(group, _)| group.clone())
            .collect();
        groups.sort_unstable();
        groups
    }

    /// Counts producers by language and version, for metrics.
    pub fn count_producers(&self) -> BTreeMap<(LanguageCode, i32), i64> {
        let mut counts = BTreeMap::new();
        for channel in self.inner.read().producers.values().flat_map(HashMap::values) {
            *counts.entry((channel.language, channel.version)).or_default() += 1;
        }
        counts
    }

    /// Visits each group with live consumers, for metrics.
    pub fn for_each_consumer_group(&self, mut visit: impl FnMut(&str, &ConsumerGroup<C>)) {
        for (group, members) in &self.inner.read().consumers {
            visit(group, members);
        }
    }
}

impl<C: ClientConnection> Sender<'_, C> {
    fn channel(&self, client_id: &Arc<str>) -> ClientChannel<C> {
        ClientChannel {
            connection: self.connection.clone(),
            client_id: client_id.clone(),
            language: self.language,
            version: self.version,
            heartbeat_timestamp_ms: self.timestamp_ms,
            heartbeat_ms: self.monotonic_ms,
        }
    }
}

impl<C> ConsumerGroup<C> {
    /// Takes over a member's subscriptions; says whether topics came or went. A newer expression
    /// for a known topic replaces the older one without being news to the members.
    fn subscribe(&mut self, consumer: ConsumerData) -> bool {
        self.consume_type = consumer.consume_type;
        self.message_model = consumer.message_model;
        self.consume_from_where = consumer.consume_from_where;
        let mut changed = false;
        let mut topics = BTreeSet::new();
        for subscription in consumer.subscription_data_set {
            topics.insert(subscription.topic.clone());
            match self.subscriptions.get(&subscription.topic) {
                Some(known) if known.sub_version >= subscription.sub_version => {}
                known => {
                    changed |= known.is_none();
                    let filter = Arc::new(TagFilter::new(&subscription));
                    let topic = subscription.topic.clone();
                    let registered = RegisteredSubscription { data: subscription, filter };
                    self.subscriptions.insert(topic, Arc::new(registered));
                }
            }
        }
        let before = self.subscriptions.len();
        self.subscriptions.retain(|topic, _| topics.contains(topic));
        changed || self.subscriptions.len() < before
    }
}

#[cfg(test)]
mod tests;
