//! Random sequences of registrations, farewells, closes and time against a plain list of brokers.
//!
//! The model knows neither tables nor keys: a broker is a line of a list, a topic is a line of
//! another. What it and the table answer must agree after every step.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Register {
        cluster: usize,
        name: usize,
        id: i64,
        addr: usize,
        connection: u64,
        acting: Option<bool>,
        state_version: i64,
        counter: i64,
        topics: Vec<usize>,
        queues: i32,
        timeout_ms: Option<i64>,
    },
    Unregister {
        name: usize,
        addr: usize,
        connection: u64,
    },
    Close {
        connection: u64,
    },
    Heartbeat {
        cluster: usize,
        addr: usize,
    },
    Pass {
        ms: i64,
    },
    Wipe {
        name: usize,
    },
    DeleteTopic {
        topic: usize,
        cluster: Option<usize>,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let acting = prop_oneof![Just(None), Just(Some(false)), Just(Some(true))];
    let timeout_ms = prop_oneof![Just(None), Just(Some(5_000)), Just(Some(0))];
    let register = (
        (0..2_usize, 0..3_usize, 0..3_i64, 0..4_usize, 1..6_u64, acting),
        (0..2_i64, 0..3_i64, prop::collection::btree_set(0..4_usize, 0..4), 1..4_i32, timeout_ms),
    )
        .prop_map(|((cluster, name, id, addr, connection, acting), rest)| {
            let (state_version, counter, topics, queues, timeout_ms) = rest;
            Step::Register {
                cluster,
                name,
                id,
                addr,
                connection,
                acting,
                state_version,
                counter,
                topics: topics.into_iter().collect(),
                queues,
                timeout_ms,
            }
        });
    prop_oneof![
        8 => register,
        2 => (0..3_usize, 0..4_usize, 1..6_u64)
            .prop_map(|(name, addr, connection)| Step::Unregister { name, addr, connection }),
        1 => (1..6_u64).prop_map(|connection| Step::Close { connection }),
        1 => (0..2_usize, 0..4_usize).prop_map(|(cluster, addr)| Step::Heartbeat { cluster, addr }),
        2 => (0..70_000_i64).prop_map(|ms| Step::Pass { ms }),
        1 => (0..3_usize).prop_map(|name| Step::Wipe { name }),
        1 => (0..4_usize, prop::option::of(0..2_usize))
            .prop_map(|(topic, cluster)| Step::DeleteTopic { topic, cluster }),
    ]
}

#[derive(Clone, Debug)]
struct Line {
    cluster: usize,
    name: usize,
    id: i64,
    addr: usize,
    connection: u64,
    silent_since_ms: i64,
    timeout_ms: i64,
    version: (i64, i64),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Queue {
    topic: usize,
    name: usize,
    queues: i32,
    perm: i32,
}

#[derive(Default)]
struct Model {
    brokers: Vec<Line>,
    queues: Vec<Queue>,
    /// Cluster and acting-master switch as last said by any broker of the group.
    groups: Vec<(usize, usize, bool)>,
    now_ms: i64,
}

impl Model {
    fn lowest(&self, name: usize) -> Option<i64> {
        self.brokers.iter().filter(|line| line.name == name).map(|line| line.id).min()
    }

    fn remove(&mut self, gone: impl Fn(&Line) -> bool) {
        let names: Vec<usize> =
            self.brokers.iter().filter(|line| gone(line)).map(|line| line.name).collect();
        self.brokers.retain(|line| !gone(line));
        for name in names {
            let lowest = self.lowest(name);
            if lowest.is_none() {
                self.queues.retain(|queue| queue.name != name);
                self.groups.retain(|group| group.0 != name);
            }
            let acting = self.groups.iter().any(|group| group.0 == name && group.2);
            if acting && lowest != Some(0) {
                for queue in self.queues.iter_mut().filter(|queue| queue.name == name) {
                    queue.perm &= !PERM_WRITE;
                }
            }
        }
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Register { .. } => self.register(step),
            Step::Unregister { name, addr, connection } => self.remove(|line| {
                line.addr == *addr && line.name == *name && line.connection <= *connection
            }),
            Step::Close { connection } => self.remove(|line| line.connection == *connection),
            Step::Heartbeat { cluster, addr } => {
                for line in self.brokers.iter_mut().filter(|line| line.addr == *addr) {
                    if line.cluster == *cluster {
                        line.silent_since_ms = self.now_ms;
                    }
                }
            }
            Step::Pass { ms } => {
                self.now_ms += ms;
                let now_ms = self.now_ms;
                self.remove(|line| now_ms > line.silent_since_ms + line.timeout_ms);
            }
            Step::Wipe { name } => {
                for queue in self.queues.iter_mut().filter(|queue| queue.name == *name) {
                    queue.perm &= !PERM_WRITE;
                }
            }
            Step::DeleteTopic { topic, cluster } => {
                let groups = &self.groups;
                self.queues.retain(|queue| {
                    let here = cluster.is_none()
                        || groups.iter().any(|g| g.0 == queue.name && Some(g.1) == *cluster);
                    queue.topic != *topic || !here
                });
            }
        }
    }

    fn register(&mut self, step: &Step) {
        let Step::Register {
            cluster,
            name,
            id,
            addr,
            connection,
            acting,
            state_version,
            counter,
            topics,
            queues,
            timeout_ms,
        } = step
        else {
            unreachable!("called for registrations only")
        };
        let version = (*state_version, *counter);
        let holder = self.brokers.iter().find(|line| line.name == *name && line.id == *id).cloned();
        let same_holder = holder.as_ref().is_some_and(|line| line.addr == *addr);
        if let Some(holder) = &holder
            && !same_holder
            && holder.version.0 > *state_version
        {
            return self.remove(|line| line.addr == *addr);
        }
        if topics.len() == 1 && !same_holder {
            return;
        }
        self.remove(|line| line.addr == *addr && line.name != *name);
        let old = self.brokers.iter().find(|line| line.addr == *addr).cloned();
        self.brokers.retain(|line| line.addr != *addr && (line.name != *name || line.id != *id));
        let changed = old.as_ref().is_none_or(|old| old.version != version);
        let skipped = topics.len() == 1
            && old.as_ref().is_some_and(|old| {
                old.version != version && version != (old.version.0, old.version.1 + 1)
            });
        self.brokers.push(Line {
            cluster: *cluster,
            name: *name,
            id: *id,
            addr: *addr,
            connection: old.as_ref().map_or(0, |old| old.connection).max(*connection),
            silent_since_ms: self.now_ms,
            timeout_ms: timeout_ms.filter(|ms| *ms > 0).unwrap_or(120_000),
            version: match old {
                Some(old) if skipped => old.version,
                _ => version,
            },
        });
        self.groups.retain(|group| group.0 != *name);
        self.groups.push((*name, *cluster, acting.unwrap_or(false)));
        let speaks = *id == 0 || (acting.is_some() && self.lowest(*name) == Some(*id));
        if !speaks {
            return;
        }
        let perm = if *id != 0 && *acting == Some(true) { 4 } else { 6 };
        for topic in topics {
            let known = self.queues.iter().any(|q| q.topic == *topic && q.name == *name);
            if changed || !known {
                self.queues.retain(|q| q.topic != *topic || q.name != *name);
                self.queues.push(Queue { topic: *topic, name: *name, queues: *queues, perm });
            }
        }
    }

    fn sorted_queues(&self) -> Vec<Queue> {
        let mut queues = self.queues.clone();
        queues.sort();
        queues
    }
}

fn apply(table: &mut RouteTable, now_ms: &mut i64, step: &Step) {
    match step {
        Step::Register {
            cluster,
            name,
            id,
            addr,
            connection,
            acting,
            state_version,
            counter,
            topics,
            queues,
            timeout_ms,
        } => {
            let registration = Registration {
                cluster: cluster.to_string(),
                broker_name: name.to_string(),
                broker_addr: addr.to_string(),
                broker_id: *id,
                heartbeat_timeout_ms: *timeout_ms,
                enable_acting_master: *acting,
                data_version: DataVersion {
                    state_version: *state_version,
                    counter: *counter,
                    ..DataVersion::default()
                },
                topics: topics.iter().map(|t| topic(&t.to_string(), *queues, 6)).collect(),
                ..Registration::default()
            };
            table.register(&registration, RegisterRules::default(), *now_ms, *connection);
        }
        Step::Unregister { name, addr, connection } => {
            table.unregister(&name.to_string(), &addr.to_string(), *connection);
        }
        Step::Close { connection } => {
            table.connection_closed(*connection);
        }
        Step::Heartbeat { cluster, addr } => {
            table.refresh(&cluster.to_string(), &addr.to_string(), *now_ms);
        }
        Step::Pass { ms } => {
            *now_ms += ms;
            table.expire(*now_ms);
        }
        Step::Wipe { name } => {
            table.wipe_write_perm(&name.to_string());
        }
        Step::DeleteTopic { topic, cluster } => {
            table.delete_topic(&topic.to_string(), cluster.map(|c| c.to_string()).as_deref());
        }
    }
}

/// What a client can learn of the table, in the model's terms.
fn shown_queues(table: &RouteTable) -> Vec<Queue> {
    let number = |text: &str| text.parse().expect("names are numbers here");
    let mut queues: Vec<Queue> = table
        .topic_list()
        .topic_list
        .iter()
        .flat_map(|topic| {
            let route = table.route(topic, false).expect("listed, so routed");
            route.queue_datas.into_iter().map(|queue| Queue {
                topic: number(topic),
                name: number(&queue.broker_name),
                queues: queue.read_queue_nums,
                perm: queue.perm,
            })
        })
        .collect();
    queues.sort();
    queues
}

fn shown_brokers(table: &RouteTable) -> Vec<(usize, usize, i64, usize)> {
    let number = |text: &str| text.parse().expect("names are numbers here");
    let mut brokers = Vec::new();
    for (name, data) in table.cluster_info().broker_addr_table {
        for (id, addr) in &data.broker_addrs {
            brokers.push((number(&name), number(&data.cluster), *id, number(addr)));
        }
    }
    brokers.sort_unstable();
    brokers
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_table_and_the_model_agree(steps in prop::collection::vec(step(), 1..40)) {
        let (mut table, mut now_ms, mut model) = (RouteTable::default(), 0, Model::default());
        for step in &steps {
            apply(&mut table, &mut now_ms, step);
            model.apply(step);
            table.check_invariants();
            let mut brokers: Vec<_> = model
                .brokers
                .iter()
                .map(|line| {
                    let group = model.groups.iter().find(|group| group.0 == line.name);
                    (line.name, group.expect("a broker has its group").1, line.id, line.addr)
                })
                .collect();
            brokers.sort_unstable();
            prop_assert_eq!(shown_brokers(&table), brokers, "after {:?}", step);
            prop_assert_eq!(shown_queues(&table), model.sorted_queues(), "after {:?}", step);
            for line in &model.brokers {
                let version =
                    table.data_version(&line.cluster.to_string(), &line.addr.to_string());
                let version = version.map(|v| (v.state_version, v.counter));
                prop_assert_eq!(version, Some(line.version), "after {:?}", step);
            }
        }
    }
}
