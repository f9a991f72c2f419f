use super::*;

fn table(dir: &Path, config: &BrokerConfig) -> TopicTable {
    TopicTable::load(dir, config, Arc::new(ChangeSignal::default())).unwrap()
}

fn config() -> BrokerConfig {
    BrokerConfig { broker_name: "b".into(), broker_cluster_name: "c".into(), ..Default::default() }
}

fn wanted(name: &str, queues: i32) -> TopicConfig {
    internal(name, queues, perm::READ | perm::WRITE)
}

#[test]
fn system_topics_are_there_from_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let topics = table(dir.path(), &config());
    for (name, queues, perm) in [
        ("TBW102", 8, 7),
        ("c", 16, 7),
        ("b", 1, 7),
        ("BenchmarkTest", 1024, 6),
        ("SCHEDULE_TOPIC_XXXX", 18, 6),
        ("c_REPLY_TOPIC", 1, 6),
        ("rmq_sys_REVIVE_LOG_c", 8, 6),
        ("rmq_sys_SYNC_BROKER_MEMBER_b", 1, 1),
    ] {
        let topic = topics.get(name).unwrap();
        assert_eq!((topic.write_queue_nums, topic.perm), (queues, perm), "{name}");
        assert!(topics.is_system(name));
    }
    assert!(topics.get("RMQ_SYS_TRACE_TOPIC").is_none());
    assert!(topics.is_system("RMQ_SYS_TRACE_TOPIC"));
    assert!(topics.is_system("rmq_sys_anything"));
    assert!(!topics.is_system("orders"));
}

#[test]
fn a_send_creates_a_topic_after_the_default_one() {
    let dir = tempfile::tempdir().unwrap();
    let config = config();
    let topics = table(dir.path(), &config);
    let created = topics.create_on_send("orders", "TBW102", 4, 0, &config).unwrap().unwrap();
    assert_eq!((created.read_queue_nums, created.write_queue_nums, created.perm), (4, 4, 6));
    let many = topics.create_on_send("more", "TBW102", 100, 0, &config).unwrap().unwrap();
    assert_eq!(many.write_queue_nums, 8, "not more than the default topic has");
    assert!(topics.create_on_send("none", "TBW102", 0, 0, &config).unwrap().is_none());
    assert!(topics.create_on_send("a/b", "TBW102", 4, 0, &config).unwrap().is_none());
    assert!(topics.create_on_send("x", "unknown", 4, 0, &config).unwrap().is_none());
    assert!(topics.create_on_send("x", "orders", 4, 0, &config).unwrap().is_none());
    assert_eq!(*table(dir.path(), &config).get("orders").unwrap(), *created, "it is on disk");
}

#[test]
fn auto_creation_can_be_switched_off_later() {
    let dir = tempfile::tempdir().unwrap();
    drop(table(dir.path(), &config()));
    let config = BrokerConfig { auto_create_topic_enable: false, ..config() };
    let topics = table(dir.path(), &config);
    assert!(topics.contains("TBW102"), "the file still has it");
    assert!(topics.create_on_send("orders", "TBW102", 4, 0, &config).unwrap().is_none());
}

#[test]
fn administrators_create_change_and_delete() {
    let dir = tempfile::tempdir().unwrap();
    let config = config();
    let topics = table(dir.path(), &config);
    let first = topics.versioned_snapshot().0;
    assert!(topics.update(vec![wanted("orders", 4)], &config).unwrap());
    assert!(!topics.update(vec![wanted("orders", 4)], &config).unwrap(), "no change, no version");
    assert!(topics.update(vec![wanted("orders", 6)], &config).unwrap());
    let version = topics.versioned_snapshot().0;
    assert_eq!(version.counter, first.counter + 2);
    let mut removed = false;
    let deleted = topics.delete("orders", || {
        assert!(!topics.contains("orders"), "hidden before its data goes");
        removed = true;
        Ok::<_, MetadataError>(())
    });
    assert!(deleted.unwrap() && removed);
    assert!(!table(dir.path(), &config).contains("orders"));
}

#[test]
fn a_failed_deletion_leaves_the_topic() {
    let dir = tempfile::tempdir().unwrap();
    let config = config();
    let topics = table(dir.path(), &config);
    topics.update(vec![wanted("orders", 4)], &config).unwrap();
    let failed: Result<bool, TopicError> =
        topics.delete("orders", || Err(TopicError::System("no".into())));
    assert!(failed.is_err());
    assert!(topics.contains("orders"));
    assert!(table(dir.path(), &config).contains("orders"));
}

#[test]
fn what_is_not_allowed_names_the_topic_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let config = config();
    let topics = table(dir.path(), &config);
    let before = topics.versioned_snapshot().0;
    let mut mixed = wanted("mixed", 4);
    mixed.attributes.insert("+message.type".into(), "MIXED".into());
    let mut odd = wanted("odd", 4);
    odd.attributes.insert("+colour".into(), "red".into());
    for (topic, code) in [
        (wanted("", 4), ResponseCode::INVALID_PARAMETER),
        (wanted("a/b", 4), ResponseCode::INVALID_PARAMETER),
        (wanted(&"x".repeat(128), 4), ResponseCode::INVALID_PARAMETER),
        (wanted("TBW102", 4), ResponseCode::INVALID_PARAMETER),
        (wanted("rmq_sys_x", 4), ResponseCode::INVALID_PARAMETER),
        (wanted("orders", -1), ResponseCode::INVALID_PARAMETER),
        (wanted("orders", QUEUES_MAX + 1), ResponseCode::INVALID_PARAMETER),
        (internal("orders", 4, 16), ResponseCode::INVALID_PARAMETER),
        (mixed, ResponseCode::INVALID_PARAMETER),
        (odd, ResponseCode::SYSTEM_ERROR),
    ] {
        let name = topic.topic_name.clone();
        let error = topics.update(vec![wanted("good", 1), topic], &config).unwrap_err();
        assert_eq!(error.response_code(), code, "{name}: {error}");
    }
    assert!(!topics.contains("good"), "all or none");
    assert_eq!(topics.versioned_snapshot().0, before);
}

#[test]
fn unknown_keys_of_a_newer_broker_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let text = r#"{"dataVersion":{"counter":5,"timestamp":1},"future":{"a":1},
        "topicConfigTable":{"T":{"topicName":"T","readQueueNums":3,"writeQueueNums":2,"perm":4,
        "topicFilterType":"SINGLE_TAG","topicSysFlag":0,"order":true}}}"#;
    std::fs::write(dir.path().join(FILE_NAME), text).unwrap();
    let topics = table(dir.path(), &config());
    let topic = topics.get("T").unwrap();
    assert_eq!((topic.read_queue_nums, topic.write_queue_nums, topic.perm), (3, 2, 4));
    assert!(topic.order);
    let written = std::fs::read_to_string(dir.path().join(FILE_NAME)).unwrap();
    assert!(written.contains("\"future\""), "{written}");
    assert_eq!(topics.versioned_snapshot().0.counter, 6, "system topics were added");
}

#[test]
fn a_change_wakes_the_registration() {
    let dir = tempfile::tempdir().unwrap();
    let changes = Arc::new(ChangeSignal::default());
    let topics = TopicTable::load(dir.path(), &config(), changes.clone()).unwrap();
    let before = changes.generation();
    topics.create_internal("%RETRY%g", 1, perm::READ | perm::WRITE).unwrap();
    assert_eq!(changes.generation(), before + 1);
    topics.create_internal("%RETRY%g", 1, perm::READ | perm::WRITE).unwrap();
    assert_eq!(changes.generation(), before + 1, "it was there already");
}
