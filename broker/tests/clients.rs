//! Heart-beats and what follows from them, over raw sockets.

mod common;

use std::time::Duration;

use common::{eventually, http, start, start_with, topic_header};
use rocketmq_protocol::body::consume::{
    ConsumerConnection, ConsumerIdList, ProducerConnection, ProducerTableInfo,
};
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::subscription::MessageModel;

#[test]
fn a_heartbeat_makes_group_and_retry_topic_and_says_what_the_broker_can() {
    let broker = start();
    let mut peer = broker.connect();
    let answer = peer.heartbeat("c1", "orders", "T");
    assert_eq!(answer.field("IS_SUPPORT_HEART_BEAT_V2"), "true");
    assert_eq!(answer.field("IS_SUB_CHANGE"), "true");
    assert_eq!(answer.version, 479, "clients decide by it what they may ask for");
    assert!(broker.state().groups.get("orders").is_some());
    assert_eq!(broker.state().topics.get("%RETRY%orders").unwrap().write_queue_nums, 1);
    let ids: ConsumerIdList = peer
        .call(RequestCode::GET_CONSUMER_LIST_BY_GROUP, &[("consumerGroup", "orders")], b"")
        .ok()
        .json();
    assert_eq!(ids.consumer_id_list, ["c1"]);
}

#[test]
fn members_are_told_when_others_come_and_go() {
    let broker = start();
    let (mut first, mut second) = (broker.connect(), broker.connect());
    first.heartbeat("c1", "g", "T");
    let notice = first.request(RequestCode::NOTIFY_CONSUMER_IDS_CHANGED);
    assert_eq!(notice.field("consumerGroup"), "g");
    second.heartbeat("c2", "g", "T");
    first.request(RequestCode::NOTIFY_CONSUMER_IDS_CHANGED);
    second.request(RequestCode::NOTIFY_CONSUMER_IDS_CHANGED);
    // A repeated heart-beat is no news.
    second.heartbeat("c2", "g", "T");
    assert!(!first.got_request(RequestCode::NOTIFY_CONSUMER_IDS_CHANGED));
    second
        .call(RequestCode::UNREGISTER_CLIENT, &[("clientID", "c2"), ("consumerGroup", "g")], b"")
        .ok();
    first.request(RequestCode::NOTIFY_CONSUMER_IDS_CHANGED);
    second.heartbeat("c2", "g", "T");
    first.request(RequestCode::NOTIFY_CONSUMER_IDS_CHANGED);
    drop(second);
    first.request(RequestCode::NOTIFY_CONSUMER_IDS_CHANGED);
    assert_eq!(broker.state().clients.consumer_ids("g"), ["c1"]);
}

#[test]
fn notices_can_be_switched_off_for_broker_and_group() {
    let broker = start_with(|config| config.notify_consumer_ids_changed_enable = false);
    let mut peer = broker.connect();
    peer.heartbeat("c1", "g", "T");
    assert!(!peer.got_request(RequestCode::NOTIFY_CONSUMER_IDS_CHANGED));
    let broker = start();
    let mut peer = broker.connect();
    let group = br#"{"groupName":"g","notifyConsumerIdsChangedEnable":false}"#;
    peer.call(RequestCode::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, &[], group).ok();
    peer.heartbeat("c1", "g", "T");
    assert!(!peer.got_request(RequestCode::NOTIFY_CONSUMER_IDS_CHANGED));
}

#[test]
fn a_broadcast_group_is_left_in_peace() {
    let broker = start();
    let mut peer = broker.connect();
    let body = common::heartbeat("c1", "g", "T").replace("CLUSTERING", "BROADCASTING");
    peer.call(RequestCode::HEART_BEAT, &[], body.as_bytes()).ok();
    assert!(!peer.got_request(RequestCode::NOTIFY_CONSUMER_IDS_CHANGED));
    let found: ConsumerConnection = peer
        .call(RequestCode::GET_CONSUMER_CONNECTION_LIST, &[("consumerGroup", "g")], b"")
        .ok()
        .json();
    assert_eq!(found.message_model, MessageModel::Broadcasting);
}

#[test]
fn a_group_that_may_not_be_created_is_skipped_without_an_error() {
    let broker = start_with(|config| config.auto_create_subscription_group = false);
    let mut peer = broker.connect();
    peer.heartbeat("c1", "g", "T");
    peer.call(RequestCode::GET_CONSUMER_LIST_BY_GROUP, &[("consumerGroup", "g")], b"")
        .refused(ResponseCode::SYSTEM_ERROR, "no consumer for this group, g");
    assert!(!broker.state().topics.contains("%RETRY%g"));
}

#[test]
fn a_silent_client_is_removed_and_its_connection_closed() {
    let broker = start_with(|config| config.channel_expired_timeout = 1_000);
    let mut peer = broker.connect();
    peer.heartbeat("c1", "g", "T");
    // The scan runs every 10 s; its effect is tried here without the wait.
    let changes = broker.state().clients.expire(u64::MAX, 1_000);
    assert!(changes.groups.contains("g"));
    eventually("the connection is closed", || broker.state().clients.consumer_ids("g").is_empty());
}

#[test]
fn connections_are_listed_with_language_version_and_subscription() {
    let broker = start();
    let mut peer = broker.connect();
    peer.heartbeat("c1", "g", "T");
    let found: ConsumerConnection = peer
        .call(RequestCode::GET_CONSUMER_CONNECTION_LIST, &[("consumerGroup", "g")], b"")
        .ok()
        .json();
    let connection = &found.connection_set[0];
    assert_eq!((connection.client_id.as_str(), connection.language.as_str()), ("c1", "JAVA"));
    assert!(connection.client_addr.starts_with("127.0.0.1:"));
    assert_eq!(found.subscription_table["T"].sub_string, "*");
    peer.call(RequestCode::GET_CONSUMER_CONNECTION_LIST, &[("consumerGroup", "h")], b"")
        .refused(ResponseCode::CONSUMER_NOT_ONLINE, "the consumer group[h] not online");
    let group = [("producerGroup", "CLIENT_INNER_PRODUCER")];
    let producers: ProducerConnection =
        peer.call(RequestCode::GET_PRODUCER_CONNECTION_LIST, &group, b"").ok().json();
    assert_eq!(producers.connection_set.len(), 1);
    peer.call(RequestCode::GET_PRODUCER_CONNECTION_LIST, &[("producerGroup", "nobody")], b"")
        .refused(ResponseCode::SYSTEM_ERROR, "the producer group[nobody] not exist");
    let all: ProducerTableInfo =
        peer.call(RequestCode::GET_ALL_PRODUCER_INFO, &[], b"").ok().json();
    assert_eq!(all.data["CLIENT_INNER_PRODUCER"].len(), 1);
}

#[test]
fn filters_are_checked_before_a_consumer_starts() {
    let broker = start();
    let mut peer = broker.connect();
    for (kind, code) in [
        ("TAG", ResponseCode::SUCCESS),
        ("SQL92", ResponseCode::SYSTEM_ERROR),
        ("XPATH", ResponseCode::SYSTEM_ERROR),
    ] {
        let body = format!(
            r#"{{"clientId":"c","group":"g","subscriptionData":{{"expressionType":"{kind}",
            "subString":"a > 1","topic":"T"}}}}"#
        );
        let answer = peer.call(RequestCode::CHECK_CLIENT_CONFIG, &[], body.as_bytes());
        assert_eq!(answer.code, code.0, "{kind}: {answer:?}");
    }
}

#[test]
fn bodies_that_cannot_be_read_are_named_and_harm_nobody() {
    let broker = start();
    let mut peer = broker.connect();
    for (code, body) in [
        (RequestCode::HEART_BEAT, &b"{"[..]),
        (RequestCode::HEART_BEAT, b""),
        (RequestCode::LOCK_BATCH_MQ, b"[1,2"),
        (RequestCode::UNLOCK_BATCH_MQ, b"\xff\xfe"),
        (RequestCode::CHECK_CLIENT_CONFIG, b"7"),
        (RequestCode::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, b"null}"),
        (RequestCode::UPDATE_AND_CREATE_TOPIC_LIST, b"{{{"),
    ] {
        let answer = peer.call(code, &[], body);
        assert_eq!(answer.code, ResponseCode::SYSTEM_ERROR.0, "{code}: {answer:?}");
        assert!(answer.remark.is_some_and(|remark| !remark.is_empty()));
    }
    peer.heartbeat("c1", "g", "T");
}

#[test]
fn locks_are_exclusive_over_the_wire() {
    let broker = start();
    let mut peer = broker.connect();
    let body = |client: &str, queues: &str| {
        format!(r#"{{"clientId":"{client}","consumerGroup":"g","mqSet":[{queues}]}}"#)
    };
    let queue = |id: i32| format!(r#"{{"brokerName":"broker-a","queueId":{id},"topic":"T"}}"#);
    let both = format!("{},{}", queue(0), queue(1));
    let mut lock = |client: &str, queues: &str| {
        let answer = peer.call(RequestCode::LOCK_BATCH_MQ, &[], body(client, queues).as_bytes());
        answer.ok().text().matches("queueId").count()
    };
    assert_eq!(lock("c1", &both), 2);
    assert_eq!(lock("c2", &queue(1)), 0);
    assert_eq!(lock("c1", &queue(1)), 1, "the holder renews");
    peer.call(RequestCode::UNLOCK_BATCH_MQ, &[], body("c1", &queue(1)).as_bytes()).ok();
    let answer = peer.call(RequestCode::LOCK_BATCH_MQ, &[], body("c2", &both).as_bytes()).ok();
    assert_eq!(answer.text().matches("queueId").count(), 1);
}

#[test]
fn a_stop_does_not_wait_for_pulls_that_wait_for_messages() {
    let broker = start();
    let mut peer = broker.connect();
    peer.produce("orders", 0, b"body");
    let pull = [
        ("consumerGroup", "g"),
        ("topic", "orders"),
        ("queueId", "0"),
        ("queueOffset", "1"),
        ("maxMsgNums", "32"),
        ("sysFlag", "6"),
        ("commitOffset", "0"),
        ("suspendTimeoutMillis", "30000"),
        ("subscription", "*"),
        ("subVersion", "0"),
    ];
    peer.send(RequestCode::PULL_MESSAGE, &pull, b"", false);
    eventually("the pull waits", || broker.state().long_polls.len() == 1);
    let began = std::time::Instant::now();
    let dir = broker.stop();
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert!(!dir.path().join("store/abort").exists());
}

/// Large answers that nobody reads are not made ahead, and others are served meanwhile.
#[test]
fn a_peer_that_reads_nothing_costs_one_answer_beyond_the_bound() {
    let broker = start();
    let http_addr = broker.broker.metrics_addr().expect("metrics");
    let made = || -> u64 {
        let text = http(http_addr, "/metrics").1;
        let line = text.lines().find(|line| {
            line.starts_with("rocketmq_rpc_latency_milliseconds_count")
                && line.contains(r#"request_code="get_topic_stats_info""#)
        });
        line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
    };
    let mut greedy = broker.connect();
    greedy.call(RequestCode::UPDATE_AND_CREATE_TOPIC, &topic_header("Wide", "20000"), b"").ok();
    let requests: Vec<i32> = (0..40)
        .map(|_| greedy.send(RequestCode::GET_TOPIC_STATS_INFO, &[("topic", "Wide")], b"", false))
        .collect();
    eventually("the first answers", || made() > 0);
    let mut other = broker.connect();
    for _ in 0..10 {
        other.heartbeat("c1", "g", "Wide");
    }
    // An answer is about 2 MB, and the sockets between take a few.
    assert!(made() < 20, "{} answers were made that nobody reads", made());
    for opaque in requests {
        greedy.answer_of(opaque).ok();
    }
    assert_eq!(made(), 40);
}
