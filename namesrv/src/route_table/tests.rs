//! The rules one by one; sequences against a model are in `model`.

mod model;

use std::collections::BTreeMap;

use super::*;

const CLUSTER: &str = "DefaultCluster";

fn version(counter: i64) -> DataVersion {
    DataVersion { counter, ..DataVersion::default() }
}

fn topic(name: &str, queues: i32, perm: i32) -> (String, TopicConfig) {
    let config = TopicConfig {
        topic_name: name.to_owned(),
        read_queue_nums: queues,
        write_queue_nums: queues,
        perm,
        ..TopicConfig::default()
    };
    (name.to_owned(), config)
}

/// A whole table: the named topics, and two that every broker has.
fn topics(names: &[&str]) -> BTreeMap<String, TopicConfig> {
    let mut all = BTreeMap::from([topic("SELF_TEST_TOPIC", 1, 6), topic("TBW102", 8, 7)]);
    all.extend(names.iter().map(|name| topic(name, 4, 6)));
    all
}

fn broker(name: &str, id: i64, addr: &str) -> Registration {
    Registration {
        cluster: CLUSTER.to_owned(),
        broker_name: name.to_owned(),
        broker_addr: addr.to_owned(),
        broker_id: id,
        ha_server_addr: format!("{addr}-ha"),
        data_version: version(1),
        topics: topics(&["T"]),
        enable_acting_master: Some(false),
        ..Registration::default()
    }
}

impl RouteTable {
    fn put(&mut self, registration: &Registration, connection: u64) -> Registered {
        let registered = self.register(registration, RegisterRules::default(), 0, connection);
        self.check_invariants();
        registered
    }

    fn perm(&self, topic: &str, broker_name: &str) -> i32 {
        self.topics[topic][broker_name].perm
    }

    pub(super) fn check_invariants(&self) {
        for (addr, live) in &self.live {
            let group = &self.groups[&live.broker_name];
            assert_eq!(group.addrs.values().filter(|other| *other == addr).count(), 1, "{self:#?}");
        }
        for (name, group) in &self.groups {
            assert!(!group.addrs.is_empty(), "{self:#?}");
            for addr in group.addrs.values() {
                assert_eq!(&self.live[addr].broker_name, name, "{self:#?}");
            }
            let clusters = self.clusters.iter().filter(|(_, names)| names.contains(name));
            let clusters: Vec<&String> = clusters.map(|(cluster, _)| cluster).collect();
            assert_eq!(clusters, [&group.cluster], "{self:#?}");
        }
        for names in self.clusters.values() {
            assert!(!names.is_empty());
            assert!(names.iter().all(|name| self.groups.contains_key(name)), "{self:#?}");
        }
        for queues in self.topics.values() {
            assert!(!queues.is_empty());
            assert!(queues.keys().all(|name| self.groups.contains_key(name)), "{self:#?}");
        }
        for (topic, by_broker) in &self.mappings {
            assert!(!by_broker.is_empty());
            assert!(
                by_broker.keys().all(|name| self.topics[topic].contains_key(name)),
                "{self:#?}"
            );
        }
        assert!(self.filter_servers.keys().all(|addr| self.live.contains_key(addr)), "{self:#?}");
    }
}

fn accepted(is_new: bool) -> Registered {
    Registered::Accepted { is_new, master_addr: None, ha_server_addr: None, min_id_change: None }
}

#[test]
fn a_registered_broker_is_in_route_and_cluster() {
    let mut table = RouteTable::default();
    assert_eq!(table.put(&broker("a", 0, "h:1"), 1), accepted(true));
    let route = table.route("T", false).unwrap();
    assert_eq!(route.queue_datas.len(), 1);
    assert_eq!(route.queue_datas[0].read_queue_nums, 4);
    assert_eq!(route.broker_datas[0].broker_addrs, BTreeMap::from([(0, "h:1".to_owned())]));
    assert!(table.route("unknown", false).is_none());
    let info = table.cluster_info();
    assert_eq!(info.cluster_addr_table[CLUSTER], ["a"]);
    assert_eq!(info.broker_addr_table["a"].cluster, CLUSTER);
    assert_eq!(table.topic_list().topic_list, ["SELF_TEST_TOPIC", "T", "TBW102"]);
}

#[test]
fn a_slave_learns_its_master_and_adds_no_topics() {
    let mut table = RouteTable::default();
    table.put(&broker("a", 0, "h:1"), 1);
    let mut slave = broker("a", 1, "h:2");
    slave.topics = topics(&["OnlyOnSlave"]);
    let expected = Registered::Accepted {
        is_new: true,
        master_addr: Some("h:1".to_owned()),
        ha_server_addr: Some("h:1-ha".to_owned()),
        min_id_change: None,
    };
    assert_eq!(table.put(&slave, 2), expected);
    assert!(table.route("OnlyOnSlave", false).is_none());
    assert_eq!(table.route("T", false).unwrap().broker_datas[0].broker_addrs.len(), 2);
}

/// Creating a topic right after a name-server restart registers that topic alone. Were it taken,
/// the recorded version would look current and the broker's other topics would stay hidden until
/// its next change.
#[test]
fn a_single_topic_of_a_broker_not_seen_whole_is_refused() {
    let mut table = RouteTable::default();
    let mut single = broker("a", 0, "h:1");
    single.topics = BTreeMap::from([topic("New", 4, 6)]);
    assert_eq!(table.put(&single, 1), Registered::Partial);
    assert!(table.route("New", false).is_none());
    assert_eq!(table.data_version(CLUSTER, "h:1"), None, "so the broker is told to register whole");

    let mut whole = broker("a", 0, "h:1");
    whole.topics = topics(&["New", "Old"]);
    table.put(&whole, 1);
    assert!(table.route("New", false).is_some() && table.route("Old", false).is_some());
    single.topics = BTreeMap::from([topic("Newer", 4, 6)]);
    single.data_version = version(2);
    assert_eq!(table.put(&single, 1), accepted(false));
    assert!(table.route("Newer", false).is_some() && table.route("Old", false).is_some());
}

#[test]
fn a_single_topic_from_a_new_address_under_a_taken_id_is_refused_too() {
    let mut table = RouteTable::default();
    table.put(&broker("a", 0, "h:1"), 1);
    let mut single = broker("a", 0, "h:9");
    single.topics = BTreeMap::from([topic("New", 4, 6)]);
    assert_eq!(table.put(&single, 2), Registered::Partial);
    assert_eq!(table.data_version(CLUSTER, "h:9"), None);
    assert!(table.data_version(CLUSTER, "h:1").is_some(), "the holder stays");
}

/// The registration of one new topic was lost here; the next single topic must not make the version
/// look current.
#[test]
fn a_single_topic_that_skips_a_version_leaves_the_old_version() {
    let mut table = RouteTable::default();
    table.put(&broker("a", 0, "h:1"), 1);
    let mut single = broker("a", 0, "h:1");
    single.topics = BTreeMap::from([topic("Third", 4, 6)]);
    single.data_version = version(3);
    assert_eq!(table.put(&single, 1), accepted(false));
    assert!(table.route("Third", false).is_some());
    assert_eq!(table.data_version(CLUSTER, "h:1"), Some(version(1)));
    single.data_version = version(2);
    table.put(&single, 1);
    assert_eq!(
        table.data_version(CLUSTER, "h:1"),
        Some(version(2)),
        "the next one in line is taken"
    );
}

#[test]
fn a_changed_version_replaces_queue_data_and_an_equal_one_does_not() {
    let mut table = RouteTable::default();
    let mut registration = broker("a", 0, "h:1");
    table.put(&registration, 1);
    assert_eq!(table.wipe_write_perm("a"), 3);
    table.put(&registration, 1);
    assert_eq!(
        table.perm("T", "a"),
        PERM_READ,
        "the periodic registration keeps the wiped permission"
    );
    registration.topics.extend([topic("Later", 2, 6)]);
    table.put(&registration, 1);
    assert_eq!(
        table.perm("Later", "a"),
        6,
        "a topic that is missing here is added whatever the version"
    );
    registration.data_version = version(2);
    table.put(&registration, 1);
    assert_eq!(table.perm("T", "a"), 6);
    assert_eq!(table.wipe_write_perm("unknown"), 0);
    table.wipe_write_perm("a");
    assert_eq!(table.add_write_perm("a"), 4);
    assert_eq!(table.perm("TBW102", "a"), PERM_READ | PERM_WRITE);
}

#[test]
fn an_unregistered_broker_leaves_nothing() {
    let mut table = RouteTable::default();
    table.put(&broker("a", 0, "h:1"), 1);
    table.put(&broker("b", 0, "h:2"), 2);
    assert_eq!(table.unregister("b", "h:1", 1), None, "another group's broker");
    let removed = table.unregister("a", "h:1", 1).unwrap();
    assert_eq!((removed.broker_name.as_str(), removed.connection), ("a", 1));
    table.check_invariants();
    assert_eq!(table.route("T", false).unwrap().queue_datas.len(), 1);
    assert!(table.unregister("a", "h:1", 1).is_none());
    table.unregister("b", "h:2", 2);
    table.check_invariants();
    assert_eq!((table.topic_count(), table.broker_count(), table.group_count()), (0, 0, 0));
    assert!(table.cluster_info().cluster_addr_table.is_empty());
}

/// A pod was replaced under the same address; the old process' farewell and the close of its
/// connection come late.
#[test]
fn late_words_of_a_former_process_do_not_wipe_its_successor() {
    let mut table = RouteTable::default();
    table.put(&broker("a", 0, "h:1"), 1);
    table.put(&broker("a", 0, "h:1"), 2);
    assert_eq!(table.unregister("a", "h:1", 1), None);
    assert_eq!(table.connection_closed(1), []);
    table.put(&broker("a", 0, "h:1"), 1);
    assert_eq!(table.connection_closed(1), [], "not even after a late registration");
    assert!(table.route("T", false).is_some());
    assert_eq!(table.connection_closed(2).len(), 1);
    table.check_invariants();
    assert!(table.route("T", false).is_none());

    table.put(&broker("a", 0, "h:1"), 3);
    assert!(table.unregister("a", "h:1", 4).is_some(), "the same process on a newer connection");
}

#[test]
fn a_new_address_takes_over_an_id_and_the_old_one_cannot_hurt_it() {
    let mut table = RouteTable::default();
    table.put(&broker("a", 0, "old:1"), 1);
    table.put(&broker("a", 0, "new:1"), 2);
    assert_eq!(table.unregister("a", "old:1", 1), None);
    assert_eq!(table.connection_closed(1), []);
    assert_eq!(table.expire(0), []);
    let route = table.route("T", false).unwrap();
    assert_eq!(route.broker_datas[0].broker_addrs[&0], "new:1");
}

#[test]
fn an_id_is_not_given_to_a_lower_state_version() {
    let mut table = RouteTable::default();
    let mut promoted = broker("a", 0, "h:2");
    promoted.data_version.state_version = 5;
    table.put(&promoted, 1);
    let returning = broker("a", 0, "h:1");
    assert_eq!(table.put(&returning, 2), Registered::Stale);
    assert_eq!(table.data_version(CLUSTER, "h:1"), None);
    assert_eq!(table.cluster_info().broker_addr_table["a"].broker_addrs[&0], "h:2");
    let mut newest = broker("a", 0, "h:3");
    newest.data_version.state_version = 6;
    assert_eq!(table.put(&newest, 3), accepted(true));
    assert_eq!(table.cluster_info().broker_addr_table["a"].broker_addrs[&0], "h:3");
}

#[test]
fn an_address_stands_under_one_id_and_in_one_group() {
    let mut table = RouteTable::default();
    table.put(&broker("a", 1, "h:1"), 1);
    table.put(&broker("a", 0, "h:1"), 1);
    let addrs = table.cluster_info().broker_addr_table["a"].broker_addrs.clone();
    assert_eq!(addrs, BTreeMap::from([(0, "h:1".to_owned())]), "a promoted slave");
    table.put(&broker("renamed", 0, "h:1"), 2);
    assert_eq!(table.cluster_info().broker_addr_table.into_keys().collect::<Vec<_>>(), ["renamed"]);
    let mut moved = broker("renamed", 0, "h:1");
    moved.cluster = "Other".to_owned();
    table.put(&moved, 3);
    let clusters = table.cluster_info().cluster_addr_table;
    assert_eq!(
        clusters.into_iter().collect::<Vec<_>>(),
        [("Other".to_owned(), vec!["renamed".to_owned()])]
    );
}

#[test]
fn silent_brokers_expire_after_their_own_time() {
    let mut table = RouteTable::default();
    let mut quick = broker("q", 0, "h:2");
    quick.heartbeat_timeout_ms = Some(1_000);
    let mut odd = broker("o", 0, "h:3");
    odd.heartbeat_timeout_ms = Some(-1);
    table.put(&broker("a", 0, "h:1"), 1);
    table.put(&quick, 2);
    table.put(&odd, 3);
    assert_eq!(table.expire(1_000), [], "exactly at its time it is still alive");
    let expired = table.expire(1_001);
    assert_eq!(expired.iter().map(|b| b.broker_addr.as_str()).collect::<Vec<_>>(), ["h:2"]);
    assert!(table.refresh(CLUSTER, "h:1", 60_000));
    assert!(!table.refresh("Other", "h:1", 200_000), "a heart-beat of another cluster");
    assert!(!table.refresh(CLUSTER, "h:2", 60_000), "a heart-beat does not register");
    assert_eq!(table.expire(BROKER_EXPIRY_DEFAULT_MS + 1).len(), 1, "the one without a heart-beat");
    assert_eq!(table.expire(BROKER_EXPIRY_DEFAULT_MS + 60_001).len(), 1);
    table.check_invariants();
    assert_eq!(table.broker_count(), 0);
}

#[test]
fn topics_that_left_a_whole_table_go_only_when_asked() {
    let mut table = RouteTable::default();
    let rules = RegisterRules { delete_missing_topics: true };
    let mut registration = broker("a", 0, "h:1");
    table.put(&registration, 1);
    registration.topics.remove("T");
    registration.data_version = version(2);
    table.put(&registration, 1);
    assert!(table.route("T", false).is_some(), "the default keeps it");
    registration.topics = BTreeMap::from([topic("Single", 1, 6)]);
    registration.data_version = version(3);
    table.register(&registration, rules, 0, 1);
    assert!(table.route("T", false).is_some(), "one topic is not the whole table");
    registration.topics = topics(&[]);
    registration.data_version = version(4);
    table.register(&registration, rules, 0, 1);
    table.check_invariants();
    assert!(table.route("T", false).is_none());
    assert_eq!(table.topic_count(), 2);
}

#[test]
fn topics_are_deleted_in_one_cluster_or_everywhere() {
    let mut table = RouteTable::default();
    let mut other = broker("b", 0, "h:2");
    other.cluster = "Other".to_owned();
    table.put(&broker("a", 0, "h:1"), 1);
    table.put(&other, 2);
    table.delete_topic("T", Some("nowhere"));
    assert_eq!(table.route("T", false).unwrap().queue_datas.len(), 2);
    table.delete_topic("T", Some("Other"));
    assert_eq!(table.route("T", false).unwrap().queue_datas[0].broker_name, "a");
    assert_eq!(table.topics_of_cluster("Other").topic_list, ["SELF_TEST_TOPIC", "TBW102"]);
    assert!(table.topics_of_cluster("nowhere").topic_list.is_empty());
    table.delete_topic("T", None);
    assert!(table.route("T", false).is_none());
    table.check_invariants();
}

#[test]
fn a_topic_registered_without_a_broker_names_known_groups_only() {
    let mut table = RouteTable::default();
    table.put(&broker("a", 0, "h:1"), 1);
    let queue = |name: &str| QueueData {
        broker_name: name.to_owned(),
        read_queue_nums: 2,
        write_queue_nums: 2,
        perm: 6,
        ..QueueData::default()
    };
    assert_eq!(
        table.register_topic("X", vec![queue("a"), queue("ghost")]),
        Err("ghost".to_owned())
    );
    assert!(table.route("X", false).is_none());
    table.register_topic("X", vec![queue("a")]).unwrap();
    assert_eq!(table.route("X", false).unwrap().queue_datas[0].read_queue_nums, 2);
    table.register_topic("Empty", vec![]).unwrap();
    table.check_invariants();
}

#[test]
fn topic_lists_by_unit_flag_and_of_the_system() {
    let mut table = RouteTable::default();
    let mut registration = broker("a", 0, "h:1");
    for (name, flags) in [("unit", 1), ("sub", 2), ("both", 3)] {
        let (name, mut config) = topic(name, 1, 6);
        config.topic_sys_flag = flags;
        registration.topics.insert(name, config);
    }
    table.put(&registration, 1);
    let list = |which| table.unit_topic_list(which).topic_list;
    assert_eq!(list(UnitTopics::Unit), ["both", "unit"]);
    assert_eq!(list(UnitTopics::HasUnitSub), ["both", "sub"]);
    assert_eq!(list(UnitTopics::HasUnitSubUnunit), ["sub"]);
    let system = table.system_topic_list();
    assert_eq!(system.topic_list, [CLUSTER, "a"]);
    assert_eq!(system.broker_addr.as_deref(), Some("h:1"));
}

fn acting(name: &str, id: i64, addr: &str) -> Registration {
    Registration { enable_acting_master: Some(true), ..broker(name, id, addr) }
}

#[test]
fn without_its_master_a_group_with_acting_master_is_read_only() {
    let mut table = RouteTable::default();
    table.put(&acting("a", 0, "h:0"), 1);
    table.put(&acting("a", 1, "h:1"), 2);
    let removed = table.connection_closed(1);
    let change = removed[0].min_id_change.clone().unwrap();
    assert_eq!((change.min_broker_id, change.min_broker_addr.as_str()), (1, "h:1"));
    assert_eq!(change.offline_broker_addr.as_deref(), Some("h:0"));
    assert_eq!(change.ha_broker_addr.as_deref(), Some("h:1-ha"));
    assert_eq!(change.tell, ["h:1"]);
    assert_eq!(table.perm("T", "a"), PERM_READ);
    let addrs = |acting| table.route("T", acting).unwrap().broker_datas[0].broker_addrs.clone();
    assert_eq!(addrs(true), BTreeMap::from([(0, "h:1".to_owned())]));
    assert_eq!(addrs(false), BTreeMap::from([(1, "h:1".to_owned())]));
    let Registered::Accepted { min_id_change: Some(change), .. } =
        table.put(&acting("a", 0, "h:0"), 3)
    else {
        panic!("the master's return is a change")
    };
    assert_eq!((change.min_broker_id, change.tell), (0, vec!["h:1".to_owned()]));
    assert_eq!(table.perm("T", "a"), 6);
}

#[test]
fn the_lowest_slave_speaks_for_a_group_without_master() {
    let mut table = RouteTable::default();
    let old = Registration { enable_acting_master: None, ..broker("old", 1, "h:1") };
    table.put(&old, 1);
    assert!(table.route("T", false).is_none(), "a 4.x slave never speaks");
    table.put(&broker("new", 1, "h:2"), 2);
    assert_eq!(table.perm("T", "new"), 6);
    table.put(&acting("acting", 1, "h:3"), 3);
    assert_eq!(table.perm("T", "acting"), PERM_READ, "an acting master takes no writes");
}

#[test]
fn static_topics_are_mapped_by_group_and_go_with_it() {
    let mut table = RouteTable::default();
    let mut registration = broker("a", 0, "h:1");
    let mapping = TopicQueueMappingInfo::default();
    registration.mappings.insert("T".to_owned(), mapping.clone());
    registration.mappings.insert("without-topic".to_owned(), mapping.clone());
    table.put(&registration, 1);
    let route = table.route("T", false).unwrap();
    assert_eq!(
        route.topic_queue_mapping_by_broker,
        Some(BTreeMap::from([("a".to_owned(), mapping)]))
    );
    table.delete_topic("T", None);
    table.check_invariants();
    table.unregister("a", "h:1", 1);
    table.check_invariants();
}

#[test]
fn filter_servers_are_shown_by_address() {
    let mut table = RouteTable::default();
    let mut registration = broker("a", 0, "h:1");
    registration.filter_servers = vec!["h:9".to_owned()];
    table.put(&registration, 1);
    let servers = table.route("T", false).unwrap().filter_server_table;
    assert_eq!(
        servers.into_iter().collect::<Vec<_>>(),
        [("h:1".to_owned(), vec!["h:9".to_owned()])]
    );
    registration.filter_servers.clear();
    table.put(&registration, 1);
    assert!(table.route("T", false).unwrap().filter_server_table.is_empty());
}
