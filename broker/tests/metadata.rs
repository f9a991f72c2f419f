//! Topics, groups, offsets and settings over raw sockets, across a restart too.

mod common;

use std::fs;

use common::{send_header, start, start_in, start_with, topic_header};
use rocketmq_protocol::body::consume::{ConsumeStats, QueryConsumeTimeSpanBody};
use rocketmq_protocol::body::group::{GroupList, SubscriptionGroupTable};
use rocketmq_protocol::body::offset::ResetOffsetBody;
use rocketmq_protocol::body::route::TopicList;
use rocketmq_protocol::body::topic::TopicStatsTable;
use rocketmq_protocol::body::{
    KVTable, SubscriptionGroupConfig, TopicConfig, TopicConfigSerializeWrapper,
};
use rocketmq_protocol::code::{RequestCode, ResponseCode};

const QUEUE: [(&str, &str); 2] = [("topic", "orders"), ("queueId", "0")];

fn group_queue<'a>(extra: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut header = vec![("consumerGroup", "g"), ("topic", "orders"), ("queueId", "0")];
    header.extend_from_slice(extra);
    header
}

#[test]
fn a_topic_is_made_shown_changed_and_deleted() {
    let broker = start();
    let mut peer = broker.connect();
    let code = RequestCode::UPDATE_AND_CREATE_TOPIC;
    peer.call(code, &topic_header("orders", "4"), b"").ok();
    let get = RequestCode::GET_TOPIC_CONFIG;
    let topic: TopicConfig = peer.call(get, &[("topic", "orders")], b"").ok().json();
    assert_eq!((topic.read_queue_nums, topic.perm), (4, 6));
    peer.produce("orders", 0, b"one");
    let mut more = topic_header("orders", "6");
    more.push(("attributes", "+message.type=FIFO"));
    peer.call(code, &more, b"").ok();
    let all: TopicConfigSerializeWrapper =
        peer.call(RequestCode::GET_ALL_TOPIC_CONFIG, &[], b"").ok().json();
    let topic = &all.topic_config_table["orders"];
    assert_eq!(topic.write_queue_nums, 6);
    assert_eq!(topic.attributes["message.type"], "FIFO");
    assert!(all.data_version.counter > 0);
    peer.call(RequestCode::UPDATE_CONSUMER_OFFSET, &group_queue(&[("commitOffset", "1")]), b"")
        .ok();
    peer.call(RequestCode::DELETE_TOPIC_IN_BROKER, &[("topic", "orders")], b"").ok();
    peer.call(get, &[("topic", "orders")], b"")
        .refused(ResponseCode::TOPIC_NOT_EXIST, "No topic in this broker. topic: orders");
    peer.call(RequestCode::DELETE_TOPIC_IN_BROKER, &[("topic", "orders")], b"").ok();
    let max = peer.call(RequestCode::GET_MAX_OFFSET, &QUEUE, b"").ok();
    assert_eq!(max.field("offset"), "0", "the queue is gone");
    assert_eq!(broker.state().offsets.query("g", "orders", 0), None);
}

#[test]
fn what_topics_may_not_be_is_refused_with_rocketmqs_codes() {
    let broker = start();
    let mut peer = broker.connect();
    let code = RequestCode::UPDATE_AND_CREATE_TOPIC;
    let invalid = ResponseCode::INVALID_PARAMETER;
    peer.call(code, &topic_header("a/b", "4"), b"").refused(invalid, "a/b");
    peer.call(code, &topic_header("", "4"), b"");
    peer.call(code, &topic_header(&"x".repeat(128), "4"), b"").refused(invalid, "128");
    peer.call(code, &topic_header("TBW102", "4"), b"")
        .refused(invalid, "The topic[TBW102] is conflict with system topic.");
    peer.call(code, &topic_header("orders", "-1"), b"").refused(invalid, "readQueueNums is -1");
    let error = ResponseCode::SYSTEM_ERROR;
    peer.call(code, &topic_header("orders", "many"), b"").refused(error, "readQueueNums");
    let mut odd = topic_header("orders", "4");
    odd.push(("attributes", "+colour=red"));
    peer.call(code, &odd, b"").refused(error, "unsupported key: colour");
    peer.call(code, &[("topic", "orders")], b"").refused(error, "missing");
    let delete = RequestCode::DELETE_TOPIC_IN_BROKER;
    peer.call(delete, &[("topic", " ")], b"").refused(invalid, "blank");
    peer.call(delete, &[("topic", "broker-a")], b"").refused(invalid, "conflict with system topic");
    assert!(!broker.state().topics.contains("orders"));
    let list = br#"{"topicConfigList":[{"topicName":"one"},{"topicName":"t/wo"}]}"#;
    peer.call(RequestCode::UPDATE_AND_CREATE_TOPIC_LIST, &[], list).refused(invalid, "t/wo");
    assert!(!broker.state().topics.contains("one"), "all or none");
    let list = br#"{"topicConfigList":[{"topicName":"one"},{"topicName":"two"}]}"#;
    peer.call(RequestCode::UPDATE_AND_CREATE_TOPIC_LIST, &[], list).ok();
    assert!(broker.state().topics.contains("two"));
    let names: TopicList =
        peer.call(RequestCode::GET_SYSTEM_TOPIC_LIST_FROM_BROKER, &[], b"").ok().json();
    for name in ["TBW102", "broker-a", "DefaultCluster", "rmq_sys_wheel_timer"] {
        assert!(names.topic_list.iter().any(|known| known == name), "{name}");
    }
}

#[test]
fn a_group_is_made_shown_and_deleted_with_its_offsets_if_asked() {
    let broker = start();
    let mut peer = broker.connect();
    let body = br#"{"groupName":"g","retryMaxTimes":3,"consumeBroadcastEnable":false}"#;
    peer.call(RequestCode::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, &[], body).ok();
    let get = RequestCode::GET_SUBSCRIPTIONGROUP_CONFIG;
    let group: SubscriptionGroupConfig = peer.call(get, &[("group", "g")], b"").ok().json();
    assert_eq!((group.retry_max_times, group.consume_broadcast_enable), (3, false));
    let all: SubscriptionGroupTable =
        peer.call(RequestCode::GET_ALL_SUBSCRIPTIONGROUP_CONFIG, &[], b"").ok().json();
    assert!(all.subscription_group_table.contains_key("TOOLS_CONSUMER"));
    peer.call(RequestCode::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, &[], b"{}")
        .refused(ResponseCode::SYSTEM_ERROR, "group name");
    peer.call(RequestCode::UPDATE_AND_CREATE_TOPIC, &topic_header("orders", "4"), b"").ok();
    let commit = RequestCode::UPDATE_CONSUMER_OFFSET;
    peer.call(commit, &group_queue(&[("commitOffset", "7")]), b"").ok();
    let delete = RequestCode::DELETE_SUBSCRIPTIONGROUP;
    peer.call(delete, &[("groupName", "g")], b"").ok();
    assert_eq!(broker.state().offsets.query("g", "orders", 0), Some(7), "not asked for");
    peer.call(delete, &[("groupName", "g"), ("cleanOffset", "true")], b"").ok();
    assert_eq!(broker.state().offsets.query("g", "orders", 0), None);
    let list = br#"{"groupConfigList":[{"groupName":"a"},{"groupName":"b"}]}"#;
    peer.call(RequestCode::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, &[], list).ok();
    assert!(broker.state().groups.get("b").is_some());
}

#[test]
fn without_automatic_creation_nothing_appears_by_itself() {
    let broker = start_with(|config| {
        config.auto_create_subscription_group = false;
        config.auto_create_topic_enable = false;
    });
    let mut peer = broker.connect();
    let get = RequestCode::GET_SUBSCRIPTIONGROUP_CONFIG;
    peer.call(get, &[("group", "g")], b"")
        .refused(ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST, "group: g");
    let commit = RequestCode::UPDATE_CONSUMER_OFFSET;
    peer.call(commit, &group_queue(&[("commitOffset", "1")]), b"")
        .refused(ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST, "g");
    let send = RequestCode::SEND_MESSAGE_V2;
    assert_eq!(
        peer.call(send, &send_header("orders", "0"), b"x").code,
        ResponseCode::TOPIC_NOT_EXIST.0
    );
    assert!(!broker.state().topics.contains("orders"));
}

#[test]
fn offsets_are_committed_queried_and_refused() {
    let broker = start();
    let mut peer = broker.connect();
    let (query, commit) = (RequestCode::QUERY_CONSUMER_OFFSET, RequestCode::UPDATE_CONSUMER_OFFSET);
    peer.call(commit, &group_queue(&[("commitOffset", "1")]), b"")
        .refused(ResponseCode::TOPIC_NOT_EXIST, "orders");
    peer.call(RequestCode::UPDATE_AND_CREATE_TOPIC, &topic_header("orders", "4"), b"").ok();
    peer.call(query, &group_queue(&[]), b"").refused(ResponseCode::QUERY_NOT_FOUND, "Not found");
    peer.produce("orders", 0, b"one");
    let from_zero = peer.call(query, &group_queue(&[]), b"").ok();
    assert_eq!(from_zero.field("offset"), "0", "the first message is still in memory");
    peer.call(query, &group_queue(&[("setZeroIfNotFound", "false")]), b"")
        .refused(ResponseCode::QUERY_NOT_FOUND, "Not found");
    peer.call(commit, &group_queue(&[("commitOffset", "1")]), b"").ok();
    assert_eq!(peer.call(query, &group_queue(&[]), b"").ok().field("offset"), "1");
    let invalid = ResponseCode::INVALID_PARAMETER;
    peer.call(commit, &group_queue(&[]), b"").refused(invalid, "commitOffset");
    let header = [("consumerGroup", "g"), ("topic", "orders"), ("commitOffset", "1")];
    peer.call(commit, &header, b"").refused(invalid, "queueId");
    let header = [&header[..], &[("queueId", "70000")]].concat();
    peer.call(commit, &header, b"").refused(invalid, "70000");
    let table = peer.call(RequestCode::GET_ALL_CONSUMER_OFFSET, &[], b"").ok().text();
    assert!(table.contains(r#""orders@g":{"0":1}"#), "{table}");
}

#[test]
fn queues_tell_their_bounds_and_times() {
    let broker = start();
    let mut peer = broker.connect();
    let earliest = RequestCode::GET_EARLIEST_MSG_STORETIME;
    assert_eq!(peer.call(earliest, &QUEUE, b"").ok().field("timestamp"), "-1");
    for _ in 0..3 {
        peer.produce("orders", 0, b"body");
    }
    let offset = |peer: &mut common::Peer, code, extra: &[(&str, &str)]| -> i64 {
        let header = [&QUEUE[..], extra].concat();
        peer.call(code, &header, b"").ok().field("offset").parse().unwrap()
    };
    assert_eq!(offset(&mut peer, RequestCode::GET_MAX_OFFSET, &[]), 3);
    assert_eq!(offset(&mut peer, RequestCode::GET_MIN_OFFSET, &[]), 0);
    let stored: i64 = peer.call(earliest, &QUEUE, b"").ok().field("timestamp").parse().unwrap();
    assert!(stored > 1_700_000_000_000);
    let search = RequestCode::SEARCH_OFFSET_BY_TIMESTAMP;
    assert_eq!(offset(&mut peer, search, &[("timestamp", "1")]), 0);
    let future = (stored + 3_600_000).to_string();
    assert_eq!(offset(&mut peer, search, &[("timestamp", &future)]), 3);
    let upper = [("timestamp", future.as_str()), ("boundaryType", "UPPER")];
    assert_eq!(offset(&mut peer, search, &upper), 2);
    peer.call(RequestCode::GET_MAX_OFFSET, &[("topic", "orders")], b"")
        .refused(ResponseCode::SYSTEM_ERROR, "queueId");
}

#[test]
fn figures_of_topics_and_groups() {
    let broker = start();
    let mut peer = broker.connect();
    for _ in 0..3 {
        peer.produce("orders", 0, b"body");
    }
    let commit = RequestCode::UPDATE_CONSUMER_OFFSET;
    peer.call(commit, &group_queue(&[("commitOffset", "2")]), b"").ok();
    let stats: TopicStatsTable =
        peer.call(RequestCode::GET_TOPIC_STATS_INFO, &[("topic", "orders")], b"").ok().json();
    assert_eq!(stats.offset_table.len(), 4);
    assert_eq!(stats.offset_table.values().map(|queue| queue.max_offset).max(), Some(3));
    peer.call(RequestCode::GET_TOPIC_STATS_INFO, &[("topic", "none")], b"")
        .refused(ResponseCode::TOPIC_NOT_EXIST, "topic[none] not exist");
    let code = RequestCode::GET_CONSUME_STATS;
    let stats: ConsumeStats = peer.call(code, &[("consumerGroup", "g")], b"").ok().json();
    let (_, progress) =
        stats.offset_table.iter().find(|(queue, _)| queue.queue_id == 0).expect("queue 0");
    assert_eq!((progress.broker_offset, progress.consumer_offset), (3, 2));
    assert!(progress.last_timestamp > 0);
    let none: ConsumeStats = peer.call(code, &[("consumerGroup", "nobody")], b"").ok().json();
    assert!(none.offset_table.is_empty());
    let who = RequestCode::QUERY_TOPIC_CONSUME_BY_WHO;
    peer.heartbeat("c1", "online", "orders");
    let groups: GroupList = peer.call(who, &[("topic", "orders")], b"").ok().json();
    assert_eq!(groups.group_list, ["g", "online"]);
    let topics: TopicList =
        peer.call(RequestCode::QUERY_TOPICS_BY_CONSUMER, &[("group", "g")], b"").ok().json();
    assert_eq!(topics.topic_list, ["orders"]);
    let header = [("topic", "orders"), ("group", "g")];
    let spans: QueryConsumeTimeSpanBody =
        peer.call(RequestCode::QUERY_CONSUME_TIME_SPAN, &header, b"").ok().json();
    assert_eq!(spans.consume_time_span_set.len(), 4);
    assert!(spans.consume_time_span_set[0].max_time_stamp > 0);
    let text = spans.consume_time_span_set[0].max_time_stamp_str.as_deref().unwrap_or_default();
    assert_eq!((text.len(), text.find('#')), ("2024-01-31#01:02:03:004".len(), Some(10)), "{text}");
    peer.call(RequestCode::QUERY_CONSUME_TIME_SPAN, &[("topic", "none"), ("group", "g")], b"")
        .refused(ResponseCode::TOPIC_NOT_EXIST, "none");
}

#[test]
fn a_message_is_viewed_by_its_place() {
    let broker = start();
    let mut peer = broker.connect();
    let (_, id) = peer.produce("orders", 0, b"find me");
    let offset = i64::from_str_radix(&id[id.len() - 16..], 16).unwrap().to_string();
    let view = RequestCode::VIEW_MESSAGE_BY_ID;
    let record = peer.call(view, &[("offset", &offset)], b"").ok().body;
    assert!(record.windows(7).any(|bytes| bytes == b"find me"));
    for wrong in ["1", "-1", "9223372036854775807", "99999999"] {
        peer.call(view, &[("offset", wrong)], b"")
            .refused(ResponseCode::SYSTEM_ERROR, "can not find message by the offset");
    }
}

#[test]
fn an_administrator_resets_offsets_whether_the_group_is_online_or_not() {
    let broker = start();
    let mut peer = broker.connect();
    for _ in 0..5 {
        peer.produce("orders", 0, b"body");
    }
    let reset = RequestCode::INVOKE_BROKER_TO_RESET_OFFSET;
    let header = |timestamp| {
        vec![("topic", "orders"), ("group", "g"), ("timestamp", timestamp), ("isForce", "true")]
    };
    peer.call(reset, &header("-1"), b"").refused(ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST, "g");
    let commit = RequestCode::UPDATE_CONSUMER_OFFSET;
    peer.call(commit, &group_queue(&[("commitOffset", "2")]), b"").ok();
    let done: ResetOffsetBody = peer.call(reset, &header("-1"), b"").ok().json();
    assert_eq!(done.offset_table.values().max(), Some(&5));
    let late = peer.call(commit, &group_queue(&[("commitOffset", "3")]), b"").ok();
    assert_eq!(late.remark.as_deref(), Some("Offset has been previously reset"));
    assert_eq!(broker.state().offsets.query("g", "orders", 0), Some(5));
    let mut one = header("0");
    one.extend([("queueId", "0"), ("offset", "4")]);
    peer.call(reset, &one, b"").ok();
    assert_eq!(broker.state().offsets.take_reset("g", "orders", 0), Some(4));
    one.pop();
    one.push(("offset", "9"));
    peer.call(reset, &one, b"").refused(ResponseCode::SYSTEM_ERROR, "offset 9");
}

#[test]
fn runtime_information_has_every_key_that_the_tools_look_up() {
    let broker = start();
    let mut peer = broker.connect();
    peer.produce("orders", 0, b"body");
    let table: KVTable = peer.call(RequestCode::GET_BROKER_RUNTIME_INFO, &[], b"").ok().json();
    for key in [
        "brokerVersionDesc",
        "putTps",
        "getTransferredTps",
        "sendThreadPoolQueueSize",
        "pullThreadPoolQueueSize",
        "sendThreadPoolQueueHeadWaitTimeMills",
        "pullThreadPoolQueueHeadWaitTimeMills",
        "pageCacheLockTimeMills",
        "earliestMessageTimeStamp",
        "commitLogDiskRatio",
        "timerReadBehind",
        "timerOffsetBehind",
        "timerCongestNum",
        "timerEnqueueTps",
        "timerDequeueTps",
        "brokerActive",
        "msgPutTotalYesterdayMorning",
        "msgPutTotalTodayMorning",
        "msgPutTotalTodayNow",
        "msgGetTotalYesterdayMorning",
        "msgGetTotalTodayMorning",
        "msgGetTotalTodayNow",
        "bootTimestamp",
        "runtime",
        "commitLogMaxOffset",
        "dispatchBehindBytes",
        "remainHowManyDataToFlush",
        "commitLogDirCapacity",
    ] {
        assert!(table.table.contains_key(key), "{key}");
    }
    assert_eq!(table.table["msgPutTotalTodayNow"], "1");
    assert!(table.table["putTps"].split(' ').next().unwrap().parse::<f64>().is_ok());
    assert_eq!(table.table["brokerVersionDesc"], "V5_3_3");
}

#[test]
fn settings_are_read_and_changed_at_run_time() {
    let broker = start();
    let mut peer = broker.connect();
    let (get, update) = (RequestCode::GET_BROKER_CONFIG, RequestCode::UPDATE_BROKER_CONFIG);
    let text = peer.call(get, &[], b"").ok().text();
    assert!(text.contains("brokerName=broker-a\n") && text.contains("autoCreateTopicEnable=true"));
    let change = b"autoCreateTopicEnable=false\nwaitTimeMillsInSendQueue=300\nnoSuchKey=1\n";
    let answer = peer.call(update, &[], change).ok();
    assert!(answer.remark.is_some_and(|remark| remark.contains("until the next start")));
    let answer = peer.call(get, &[], b"").ok();
    assert!(answer.field("version").contains(r#""counter":1"#));
    let text = answer.text();
    assert!(text.contains("autoCreateTopicEnable=false\n"));
    assert!(text.contains("waitTimeMillsInSendQueue=300\n"));
    assert!(!text.contains("noSuchKey"));
    let send = RequestCode::SEND_MESSAGE_V2;
    let refused = peer.call(send, &send_header("orders", "0"), b"x");
    assert_eq!(refused.code, ResponseCode::TOPIC_NOT_EXIST.0, "it took effect");
    peer.call(update, &[], b"traceOn=false\nbrokerConfigPath=/etc/passwd\n")
        .refused(ResponseCode::NO_PERMISSION, "black list");
    assert!(broker.state().config.load().trace_on, "all or none");
    let invalid = ResponseCode::INVALID_PARAMETER;
    peer.call(update, &[], b"brokerPermission=9\n").refused(invalid, "brokerPermission");
    peer.call(update, &[], b"brokerRole=SLAVE\n").refused(invalid, "brokerRole cannot become");
    let fixed = b"traceOn=false\nbrokerName=broker-b\n";
    peer.call(update, &[], fixed).refused(invalid, "brokerName cannot become `broker-b`");
    assert!(broker.state().config.load().trace_on, "all or none");
    peer.call(update, &[], b"brokerName=broker-a\n").ok();
    peer.call(update, &[], b"").refused(invalid, "key=value");
}

#[test]
fn a_changed_setting_goes_to_the_configuration_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("broker.conf");
    fs::write(&path, "# ours\nbrokerName=broker-a\ntraceOn=true\nfutureKey=x\n").unwrap();
    let broker = start_with(|config| config.broker_config_path = path.display().to_string());
    let answer = broker.connect().call(RequestCode::UPDATE_BROKER_CONFIG, &[], b"traceOn=false\n");
    assert_eq!(answer.ok().remark, None);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("traceOn=false") && text.contains("futureKey=x"), "{text}");
    assert!(!text.contains("traceOn=true"), "{text}");
}

#[test]
fn everything_is_there_again_after_a_restart() {
    let broker = start();
    let mut peer = broker.connect();
    peer.call(RequestCode::UPDATE_AND_CREATE_TOPIC, &topic_header("orders", "4"), b"").ok();
    peer.produce("by-send", 1, b"body");
    peer.heartbeat("c1", "g", "orders");
    peer.oneway(RequestCode::UPDATE_CONSUMER_OFFSET, &group_queue(&[("commitOffset", "9")]), b"");
    // One connection is served in order, so this answer comes after the one-way took effect.
    peer.call(RequestCode::GET_MAX_OFFSET, &QUEUE, b"").ok();
    let dir = broker.stop();
    assert!(!dir.path().join("store/abort").exists(), "a clean stop");
    let broker = start_in(dir, |_| ());
    let state = broker.state();
    assert_eq!(state.topics.get("orders").unwrap().read_queue_nums, 4);
    assert!(state.topics.contains("by-send") && state.topics.contains("%RETRY%g"));
    assert!(state.groups.get("g").is_some());
    assert_eq!(state.offsets.query("g", "orders", 0), Some(9));
    assert_eq!(state.store.max_queue_offset("by-send", 1), 1);
}

#[test]
fn damaged_metadata_stops_the_start_and_is_named() {
    let dir = start().stop();
    let config_dir = dir.path().join("store/config");
    for file in ["topics.json", "topics.json.bak"] {
        fs::write(config_dir.join(file), "{\"topicConfigTable\":{\"T\":").unwrap();
    }
    let error = rocketmq_broker::Broker::start(common::config(&dir)).err().expect("no start");
    assert!(error.to_string().contains("topics.json"), "{error}");
    assert!(!dir.path().join("store/abort").exists(), "nothing was taken in");
    fs::remove_file(config_dir.join("topics.json")).unwrap();
    fs::remove_file(config_dir.join("topics.json.bak")).unwrap();
    start_in(dir, |_| ());
}

#[test]
fn two_brokers_do_not_share_a_directory() {
    let broker = start();
    let error =
        rocketmq_broker::Broker::start(common::config(&broker.dir)).err().expect("no start");
    assert!(error.to_string().contains("lock"), "{error}");
}
