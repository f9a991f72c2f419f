use rocketmq_protocol::message::properties;
use rocketmq_protocol::subscription::SQL92;

use super::*;

const GROUP: &str = "g";

fn filters(dir: &Path) -> ConsumerFilters {
    ConsumerFilters::new(dir, BloomFilter::new(20, 32))
}

fn reloaded(dir: &Path, was_clean: bool) -> ConsumerFilters {
    let filters = filters(dir);
    filters.load(was_clean).unwrap();
    filters
}

fn sql(topic: &str, expression: &str, sub_version: i64) -> SubscriptionData {
    SubscriptionData {
        topic: topic.to_owned(),
        sub_string: expression.to_owned(),
        expression_type: SQL92.to_owned(),
        sub_version,
        ..SubscriptionData::default()
    }
}

fn expression_of(filters: &ConsumerFilters, topic: &str) -> Option<String> {
    filters.get(topic, GROUP).map(|filter| filter.data.expression.clone())
}

fn is_dead(filters: &ConsumerFilters, topic: &str) -> bool {
    filters.get(topic, GROUP).unwrap().is_dead()
}

#[test]
fn a_higher_version_replaces_a_lower_one() {
    let dir = tempfile::tempdir().unwrap();
    let filters = filters(dir.path());
    let register = |subscription| filters.register(GROUP, &[subscription], || 0);
    register(sql("T", "a = 1", 5));
    let first = filters.get("T", GROUP).unwrap();
    register(sql("T", "a = 2", 5));
    register(sql("T", "a = 2", 4));
    assert!(Arc::ptr_eq(&first, &filters.get("T", GROUP).unwrap()), "not newer");
    register(sql("T", "a = 1", 6));
    let second = filters.get("T", GROUP).unwrap();
    assert_eq!(second.client_version(), 6);
    assert_eq!(second.to_data().born_time, first.to_data().born_time, "the same filter");
    register(sql("T", "a = 2", 7));
    assert_eq!(expression_of(&filters, "T").unwrap(), "a = 2");
    register(sql("T", "", 8));
    assert_eq!(expression_of(&filters, "T").unwrap(), "a = 2");
    register(sql("T", "a >", 9));
    assert_eq!(expression_of(&filters, "T"), None, "pulls are told");
    register(SubscriptionData { expression_type: "XPATH".into(), ..sql("T", "a", 9) });
    assert_eq!(expression_of(&filters, "T"), None);
    register(SubscriptionData { topic: "T".into(), ..SubscriptionData::default() });
    assert_eq!(expression_of(&filters, "T"), None, "tags are nothing to register");
}

#[test]
fn a_filter_outlives_its_group_for_a_while() {
    let dir = tempfile::tempdir().unwrap();
    let filters = filters(dir.path());
    filters.register(GROUP, &[sql("T", "a = 1", 5), sql("U", "a = 2", 5)], || 0);
    filters.register("h", &[sql("T", "a = 3", 5)], || 0);
    filters.register(GROUP, &[sql("T", "a = 1", 5)], || 0);
    assert_eq!((is_dead(&filters, "T"), is_dead(&filters, "U")), (false, true));
    filters.leave(GROUP);
    assert!(is_dead(&filters, "T"));
    filters.register(GROUP, &[sql("T", "a = 1", 5)], || 0);
    assert!(!is_dead(&filters, "T"), "back");
    filters.remove_dead(1_000_000);
    assert!(expression_of(&filters, "U").is_some());
    filters.remove_dead(0);
    assert!(expression_of(&filters, "U").is_none());
    assert!(expression_of(&filters, "T").is_some() && filters.get("T", "h").is_some());
    filters.remove_group(GROUP);
    assert!(expression_of(&filters, "T").is_none());
    filters.remove_topic("T");
    assert!(filters.get("T", "h").is_none());
    assert!(filters.table.load().is_empty());
}

#[test]
fn registrations_survive_a_reload_as_those_of_groups_that_left() {
    let dir = tempfile::tempdir().unwrap();
    let filters = filters(dir.path());
    filters.register(GROUP, &[sql("T", "a = 'x' AND n > 5", 5)], || 0);
    let before = filters.get("T", GROUP).unwrap().to_data();
    assert!(!before.dead && before.dead_time == 0);
    filters.persist().unwrap();
    let again = reloaded(dir.path(), true);
    let after = again.get("T", GROUP).unwrap().to_data();
    assert!(after.dead && after.dead_time >= after.born_time);
    assert_eq!(FilterData { dead: false, dead_time: 0, ..after }, before);
    again.register(GROUP, &[sql("T", "a = 'x' AND n > 5", 5)], || 0);
    assert_eq!(again.get("T", GROUP).unwrap().to_data(), before);
    let after_crash = reloaded(dir.path(), false);
    let born_time = after_crash.get("T", GROUP).unwrap().to_data().born_time;
    assert!(born_time >= before.born_time);
}

/// `consumerFilter.json` as RocketMQ 5.3.3 wrote it.
const JAVA_FILE: &str = "{\n\t\"filterDataByTopic\":{\n\t\t\"GoldenNormal\":{\n\t\t\t\
    \"groupFilterData\":{\n\t\t\t\t\"GoldenSqlGroup\":{\n\t\t\t\t\t\"bloomFilterData\":{\n\t\t\t\
    \t\t\t\"bitNum\":112,\n\t\t\t\t\t\t\"bitPos\":[58,96,27]\n\t\t\t\t\t},\n\t\t\t\t\t\
    \"bornTime\":1796076152547,\n\t\t\t\t\t\"clientVersion\":1796076153450,\n\t\t\t\t\t\
    \"consumerGroup\":\"GoldenSqlGroup\",\n\t\t\t\t\t\"dead\":true,\n\t\t\t\t\t\
    \"deadTime\":1796076155512,\n\t\t\t\t\t\"expression\":\"n >= 10 AND n < 20\",\n\t\t\t\t\t\
    \"expressionType\":\"SQL92\",\n\t\t\t\t\t\"topic\":\"GoldenNormal\"\n\t\t\t\t}\n\t\t\t},\n\t\t\t\
    \"topic\":\"GoldenNormal\"\n\t\t}\n\t}\n}";

#[test]
fn the_java_brokers_file_comes_back_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join(FILE_NAME), JAVA_FILE).unwrap();
    let filters = reloaded(dir.path(), true);
    let filter = filters.get("GoldenNormal", "GoldenSqlGroup").unwrap();
    assert_eq!(filter.client_version(), 1_796_076_153_450);
    assert!(filter.expression().matches(b"n\x0112\x02"));
    assert!(!filter.expression().matches(b"n\x0120\x02"));
    filters.dirty.store(true, Ordering::Release);
    filters.persist().unwrap();
    let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    let written = std::fs::read_to_string(dir.path().join(FILE_NAME)).unwrap();
    assert_eq!(read(&written), read(JAVA_FILE));
}

#[test]
fn what_a_file_says_is_not_believed_blindly() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE_NAME);
    std::fs::write(&path, JAVA_FILE.replace("n < 20", "n <")).unwrap();
    assert!(reloaded(dir.path(), true).get("GoldenNormal", "GoldenSqlGroup").is_none());
    for bits in ["[58,96]", "[58,96,112]", "[-1,96,27]", "[1,2,3,4]"] {
        std::fs::write(&path, JAVA_FILE.replace("[58,96,27]", bits)).unwrap();
        let filter = reloaded(dir.path(), true).get("GoldenNormal", "GoldenSqlGroup").unwrap();
        let data = filter.to_data();
        assert_eq!(data.bloom_filter_data.unwrap().bit_pos, [58, 96, 27], "{bits}");
        assert!(data.born_time > 1_796_076_152_547, "older bit maps say nothing");
    }
    std::fs::write(&path, b"{\"filterDataByTopic\":{\"T\":").unwrap();
    assert!(matches!(filters(dir.path()).load(true), Err(MetadataError::Damaged { .. })));
}

fn bit_map(filters: &ConsumerFilters, topic: &str, n: &str) -> Vec<u8> {
    let mut block = Vec::new();
    properties::append(&mut block, "n", n);
    let mut out = Vec::new();
    filters.bit_map(topic, &block, &mut out);
    out
}

#[test]
fn bit_maps_tell_whose_filters_a_message_does_not_pass() {
    let dir = tempfile::tempdir().unwrap();
    let filters = filters(dir.path());
    filters.register(GROUP, &[sql("T", "n > 5", 1)], || 0);
    filters.register("h", &[sql("T", "n > 7", 1)], || 0);
    assert!(bit_map(&filters, "T", "6").is_empty(), "enableCalcFilterBitMap is off");
    filters.make_bit_maps(true);
    assert!(bit_map(&filters, "U", "6").is_empty(), "no filter of that topic");
    let (own, other) = (filters.get("T", GROUP).unwrap(), filters.get("T", "h").unwrap());
    let later = own.to_data().born_time.max(other.to_data().born_time) + 1;
    for (n, passes_own, passes_other) in
        [("4", false, false), ("6", true, false), ("8", true, true)]
    {
        let made = bit_map(&filters, "T", n);
        assert_eq!(made.len(), 14);
        assert_eq!(!own.is_excluded_by(&made, later), passes_own, "{n}");
        assert_eq!(!other.is_excluded_by(&made, later), passes_other, "{n}");
    }
    let none = bit_map(&filters, "T", "x");
    assert!(own.is_excluded_by(&none, later), "an error does not pass");
    assert!(!own.is_excluded_by(&none, own.to_data().born_time), "not stored later than it");
    assert!(!own.is_excluded_by(&none[..13], later), "a map of another length");
    assert!(!own.is_excluded_by(&[], later), "no map");
    // Gone groups keep their bits, so that they need not look at everything when they return.
    filters.leave(GROUP);
    let made = bit_map(&filters, "T", "6");
    let left = filters.get("T", GROUP).unwrap();
    assert!(!left.is_excluded_by(&made, later));
}

/// The store's clock may be ahead of the wall clock; what it stored before has no bits.
#[test]
fn bit_maps_count_from_the_newest_message_on() {
    let dir = tempfile::tempdir().unwrap();
    let filters = filters(dir.path());
    filters.make_bit_maps(true);
    let ahead = now_ms() + 1_000_000;
    let without_bits = vec![0; 14];
    filters.register(GROUP, &[sql("T", "n > 5", 1)], || {
        let filter = filters.get("T", GROUP).unwrap();
        assert!(!filter.is_excluded_by(&without_bits, i64::MAX), "not yet");
        assert_ne!(bit_map(&filters, "T", "6"), without_bits, "but its bits are set");
        ahead
    });
    let filter = filters.get("T", GROUP).unwrap();
    assert!(!filter.is_excluded_by(&without_bits, ahead));
    assert!(filter.is_excluded_by(&without_bits, ahead + 1));
    filters.leave(GROUP);
    assert!(is_dead(&filters, "T"));
}
