//! Brokers and name servers as tables.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::FutureExt as _;
use parking_lot::Mutex;
use rocketmq_replication::Report;

use crate::build::names;
use crate::rocketmq::{
    AdminError, Answer, BrokerAdmin, GroupSettings, Progress, QueueOffsets, TopicSettings,
};

#[derive(Default)]
struct State {
    topics: BTreeMap<(String, String), TopicSettings>,
    groups: BTreeMap<(String, String), GroupSettings>,
    offsets: BTreeMap<(String, String), BTreeMap<i32, QueueOffsets>>,
    progress: BTreeMap<(String, String), Vec<Progress>>,
    members: BTreeSet<(String, String)>,
    registered: BTreeMap<String, String>,
    replicas: BTreeMap<String, Report>,
    down: BTreeSet<String>,
    writes: Vec<String>,
}

/// All brokers and name servers; clones are the same ones.
#[derive(Clone, Default)]
pub(crate) struct Brokers {
    state: Arc<Mutex<State>>,
}

/// Address of a group of cluster `demo` in namespace `ns`.
pub(crate) fn address(number: i32) -> String {
    names::broker_address("demo", "ns", number)
}

impl Brokers {
    /// Registers the groups of cluster `demo` with every name server.
    pub(crate) fn register(&self, groups: i32) {
        self.state.lock().registered =
            (0..groups).map(|n| (names::broker("demo", n), address(n))).collect();
    }

    /// Whether a group answers.
    pub(crate) fn set_down(&self, number: i32, down: bool) {
        let mut state = self.state.lock();
        if down {
            state.down.insert(address(number));
        } else {
            state.down.remove(&address(number));
        }
    }

    /// What the broker at an address says of its log; `None`: it does not answer.
    pub(crate) fn set_replica(&self, address: &str, report: Option<Report>) {
        let mut state = self.state.lock();
        match report {
            Some(report) => state.replicas.insert(address.to_owned(), report),
            None => state.replicas.remove(address),
        };
    }

    pub(crate) fn set_topic(&self, number: i32, topic: &str, settings: Option<TopicSettings>) {
        let key = (address(number), topic.to_owned());
        let mut state = self.state.lock();
        match settings {
            Some(settings) => state.topics.insert(key, settings),
            None => state.topics.remove(&key),
        };
    }

    pub(crate) fn topic_of(&self, number: i32, topic: &str) -> Option<TopicSettings> {
        self.state.lock().topics.get(&(address(number), topic.to_owned())).cloned()
    }

    pub(crate) fn set_group(&self, number: i32, group: &str, settings: Option<GroupSettings>) {
        let key = (address(number), group.to_owned());
        let mut state = self.state.lock();
        match settings {
            Some(settings) => state.groups.insert(key, settings),
            None => state.groups.remove(&key),
        };
    }

    pub(crate) fn group_of(&self, number: i32, group: &str) -> Option<GroupSettings> {
        self.state.lock().groups.get(&(address(number), group.to_owned())).cloned()
    }

    /// Sets a queue's bounds.
    pub(crate) fn set_offsets(&self, number: i32, topic: &str, queue: i32, offsets: QueueOffsets) {
        let key = (address(number), topic.to_owned());
        self.state.lock().offsets.entry(key).or_default().insert(queue, offsets);
    }

    /// Sets how far consumer groups are.
    pub(crate) fn set_progress(&self, number: i32, topic: &str, progress: Vec<Progress>) {
        self.state.lock().progress.insert((address(number), topic.to_owned()), progress);
    }

    /// Connects a member of a consumer group.
    pub(crate) fn connect(&self, number: i32, group: &str) {
        self.state.lock().members.insert((address(number), group.to_owned()));
    }

    /// Writes since the last call.
    pub(crate) fn take_writes(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().writes)
    }

    fn ask<'a, T: Send + 'a>(
        &'a self,
        operation: &'static str,
        address: &'a str,
        answer: impl FnOnce(&mut State) -> T + Send + 'a,
    ) -> Answer<'a, T> {
        async move {
            let mut state = self.state.lock();
            if state.down.contains(address) {
                return Err(AdminError {
                    operation,
                    address: address.to_owned(),
                    message: "connection refused".to_owned(),
                    refused: None,
                });
            }
            Ok(answer(&mut state))
        }
        .boxed()
    }
}

fn key(address: &str, name: &str) -> (String, String) {
    (address.to_owned(), name.to_owned())
}

impl BrokerAdmin for Brokers {
    fn masters<'a>(
        &'a self,
        name_server: &'a str,
        _cluster: &'a str,
    ) -> Answer<'a, BTreeMap<String, String>> {
        self.ask("cluster_info", name_server, |state| state.registered.clone())
    }

    fn replica<'a>(&'a self, broker: &'a str) -> Answer<'a, Report> {
        async move {
            self.state.lock().replicas.get(broker).cloned().ok_or_else(|| AdminError {
                operation: "epoch_cache",
                address: broker.to_owned(),
                message: "connection refused".to_owned(),
                refused: None,
            })
        }
        .boxed()
    }

    fn forget<'a>(&'a self, _broker: &'a str) {}

    fn topic<'a>(&'a self, broker: &'a str, topic: &'a str) -> Answer<'a, Option<TopicSettings>> {
        self.ask("get_topic", broker, move |state| state.topics.get(&key(broker, topic)).cloned())
    }

    fn put_topic<'a>(
        &'a self,
        broker: &'a str,
        topic: &'a str,
        settings: &'a TopicSettings,
    ) -> Answer<'a, ()> {
        self.ask("put_topic", broker, move |state| {
            assert!(settings.read_queues >= settings.write_queues, "{settings:?}");
            state.writes.push(format!("put {topic} on {broker}"));
            state.topics.insert(key(broker, topic), settings.clone());
        })
    }

    fn delete_topic<'a>(&'a self, broker: &'a str, topic: &'a str) -> Answer<'a, ()> {
        self.ask("delete_topic", broker, move |state| {
            state.writes.push(format!("delete {topic} on {broker}"));
            state.topics.remove(&key(broker, topic));
        })
    }

    fn forget_topic<'a>(&'a self, name_server: &'a str, topic: &'a str) -> Answer<'a, ()> {
        self.ask("forget_topic", name_server, move |state| {
            state.writes.push(format!("forget {topic} on {name_server}"));
        })
    }

    fn queue_offsets<'a>(
        &'a self,
        broker: &'a str,
        topic: &'a str,
    ) -> Answer<'a, BTreeMap<i32, QueueOffsets>> {
        self.ask("topic_stats", broker, move |state| {
            state.offsets.get(&key(broker, topic)).cloned().unwrap_or_default()
        })
    }

    fn progress<'a>(&'a self, broker: &'a str, topic: &'a str) -> Answer<'a, Vec<Progress>> {
        self.ask("progress", broker, move |state| {
            state.progress.get(&key(broker, topic)).cloned().unwrap_or_default()
        })
    }

    fn group<'a>(&'a self, broker: &'a str, group: &'a str) -> Answer<'a, Option<GroupSettings>> {
        self.ask("get_group", broker, move |state| state.groups.get(&key(broker, group)).cloned())
    }

    fn put_group<'a>(
        &'a self,
        broker: &'a str,
        group: &'a str,
        settings: &'a GroupSettings,
    ) -> Answer<'a, ()> {
        self.ask("put_group", broker, move |state| {
            state.writes.push(format!("put {group} on {broker}"));
            state.groups.insert(key(broker, group), settings.clone());
        })
    }

    fn delete_group<'a>(
        &'a self,
        broker: &'a str,
        group: &'a str,
        clean_offsets: bool,
    ) -> Answer<'a, ()> {
        self.ask("delete_group", broker, move |state| {
            state.writes.push(format!("delete {group} on {broker} clean={clean_offsets}"));
            state.groups.remove(&key(broker, group));
        })
    }

    fn has_members<'a>(&'a self, broker: &'a str, group: &'a str) -> Answer<'a, bool> {
        self.ask("has_members", broker, move |state| state.members.contains(&key(broker, group)))
    }
}
