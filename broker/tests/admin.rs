//! Administrators' requests about figures, offsets and filters, over raw sockets.

mod common;

use common::{Peer, eventually, pull_header, start, start_with, topic_header, with_field};
use rocketmq_protocol::body::assignment::QueryAssignmentResponseBody;
use rocketmq_protocol::body::consume::{
    BrokerStatsData, ConsumeStatsList, QueryConsumeQueueResponseBody,
};
use rocketmq_protocol::body::group::{GroupForbidden, QuerySubscriptionResponseBody};
use rocketmq_protocol::body::offset::QueryCorrectionOffsetBody;
use rocketmq_protocol::body::replication::HaRuntimeInfo;
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::hash::tags_code;

const ERROR: ResponseCode = ResponseCode::SYSTEM_ERROR;

#[test]
fn figures_have_rocketmqs_names() {
    const CODE: RequestCode = RequestCode::VIEW_BROKER_STATS_DATA;
    let broker = start();
    let mut peer = broker.connect();
    let view = |peer: &mut Peer, name: &str, key: &str| {
        peer.call(CODE, &[("statsName", name), ("statsKey", key)], b"")
    };
    view(&mut peer, "TOPIC_PUT_NUMS", "T")
        .refused(ERROR, "The stats <TOPIC_PUT_NUMS> <T> not exist");
    for _ in 0..3 {
        peer.produce("T", 0, b"body");
    }
    peer.call(RequestCode::PULL_MESSAGE, &pull_header("g", "T", "0"), b"").ok();
    // The broker samples every 10 s; tests need not wait for it.
    broker.state().metrics.sample_rates(u64::MAX / 2, |_| false);
    for (name, key, sum) in [
        ("TOPIC_PUT_NUMS", "T", 3),
        ("GROUP_GET_NUMS", "T@g", 3),
        ("BROKER_PUT_NUMS", "DefaultCluster", 3),
        ("BROKER_GET_NUMS", "DefaultCluster", 3),
    ] {
        let data: BrokerStatsData = view(&mut peer, name, key).ok().json();
        assert_eq!(data.stats_minute.sum, sum, "{name}");
    }
    let size: BrokerStatsData = view(&mut peer, "TOPIC_PUT_SIZE", "T").ok().json();
    assert!(size.stats_day.sum > 300 && size.stats_minute.avgpt > 100.0, "{size:?}");
    let latency: BrokerStatsData = view(&mut peer, "GROUP_GET_LATENCY", "T@g").ok().json();
    assert!(latency.stats_minute.avgpt < 10_000.0);
    peer.call(CODE, &[("statsName", "TOPIC_PUT_NUMS")], b"").refused(ERROR, "statsKey");
    let delete = RequestCode::DELETE_TOPIC_IN_BROKER;
    peer.call(delete, &[("topic", "T")], b"").ok();
    view(&mut peer, "TOPIC_PUT_NUMS", "T").refused(ERROR, "not exist");
    view(&mut peer, "GROUP_GET_NUMS", "T@g").refused(ERROR, "not exist");
}

#[test]
fn progress_of_all_groups_comes_in_one_answer() {
    const CODE: RequestCode = RequestCode::GET_BROKER_CONSUME_STATS;
    let broker = start();
    let mut peer = broker.connect();
    let mut ordered = topic_header("ordered", "1");
    ordered = with_field(ordered, "order", "true");
    peer.call(RequestCode::UPDATE_AND_CREATE_TOPIC, &ordered, b"").ok();
    peer.call(RequestCode::UPDATE_AND_CREATE_TOPIC, &topic_header("plain", "1"), b"").ok();
    for topic in ["ordered", "plain"] {
        for _ in 0..5 {
            peer.produce(topic, 0, b"body");
        }
    }
    for group in ["g", "h"] {
        broker.state().groups.get_or_create(group).expect("a group");
        broker.state().offsets.commit(group, "plain", 0, 2);
    }
    broker.state().offsets.commit("g", "ordered", 0, 4);
    broker.state().offsets.pulled("h", "plain", 0, 5);
    let ask = |peer: &mut Peer, is_order: &str| -> ConsumeStatsList {
        peer.call(CODE, &[("isOrder", is_order)], b"").ok().json()
    };
    let all = ask(&mut peer, "false");
    assert_eq!((all.total_diff, all.total_inflight_diff), (3 + 3 + 1, 3));
    assert_eq!(all.broker_addr.as_deref(), Some(&*broker.state().identity.broker_addr));
    let of = |list: &ConsumeStatsList, group: &str| {
        list.consume_stats_list.iter().find_map(|groups| groups.get(group)).map(Vec::len)
    };
    assert_eq!(
        (of(&all, "g"), of(&all, "h"), of(&all, "TOOLS_CONSUMER")),
        (Some(2), Some(1), Some(0))
    );
    let ordered = ask(&mut peer, "true");
    assert_eq!((ordered.total_diff, of(&ordered, "g"), of(&ordered, "h")), (1, Some(1), Some(0)));
    // What an online group no longer subscribes to is no lag.
    peer.heartbeat("c1", "h", "ordered");
    assert_eq!(of(&ask(&mut peer, "false"), "h"), Some(0));
    peer.call(CODE, &[("isOrder", "perhaps")], b"").refused(ERROR, "isOrder");
}

#[test]
fn offsets_are_cloned_and_corrected() {
    const CLONE: RequestCode = RequestCode::CLONE_GROUP_OFFSET;
    let broker = start();
    let mut peer = broker.connect();
    for topic in ["T", "U"] {
        peer.call(RequestCode::UPDATE_AND_CREATE_TOPIC, &topic_header(topic, "2"), b"").ok();
    }
    let offsets = &broker.state().offsets;
    offsets.commit("g", "T", 0, 5);
    offsets.commit("g", "T", 1, 6);
    offsets.commit("g", "U", 0, 7);
    offsets.commit("g", "gone", 0, 8);
    let groups = [("srcGroup", "g"), ("destGroup", "h")];
    peer.call(CLONE, &[groups[0], groups[1], ("topic", "T"), ("offline", "true")], b"").ok();
    assert_eq!((offsets.query("h", "T", 1), offsets.query("h", "U", 0)), (Some(6), None));
    // What an online group left behind is not cloned unless it is said to be offline.
    peer.heartbeat("c1", "g", "T");
    peer.call(CLONE, &groups, b"").ok();
    assert_eq!(offsets.query("h", "U", 0), None);
    peer.call(CLONE, &[groups[0], groups[1], ("offline", "true")], b"").ok();
    assert_eq!(offsets.query("h", "U", 0), Some(7), "no topic means all");
    assert_eq!(offsets.query("h", "gone", 0), None, "but not one that does not exist");
    peer.call(CLONE, &groups[..1], b"").refused(ERROR, "destGroup");

    offsets.commit("h", "T", 0, 3);
    offsets.commit("slow", "T", 0, 1);
    offsets.commit("slow", "T", 1, -4);
    let ask = |peer: &mut Peer, left_out: &str, compared: &str| {
        let fields = [("filterGroups", left_out), ("compareGroup", compared), ("topic", "T")];
        let answer = peer.call(RequestCode::QUERY_CORRECTION_OFFSET, &fields, b"").ok();
        answer
            .json::<QueryCorrectionOffsetBody>()
            .correction_offsets
            .into_iter()
            .collect::<Vec<_>>()
    };
    assert_eq!(ask(&mut peer, "", "g"), [(0, 1), (1, 6)]);
    assert_eq!(ask(&mut peer, "slow", "g"), [(0, 3), (1, 6)]);
    assert_eq!(ask(&mut peer, "slow,h", "slow"), [(0, i64::MAX), (1, i64::MAX)]);
    assert_eq!(offsets.query("slow", "T", 0), Some(1), "left out is not deleted");
    assert!(ask(&mut peer, "slow,h,g", "g").is_empty());
}

#[test]
fn a_group_can_be_kept_from_a_topic() {
    const CODE: RequestCode = RequestCode::UPDATE_AND_GET_GROUP_FORBIDDEN;
    let broker = start();
    let mut peer = broker.connect();
    peer.produce("T", 0, b"body");
    peer.heartbeat("c1", "g", "T");
    let pull = with_field(pull_header("g", "T", "0"), "sysFlag", "0");
    peer.call(RequestCode::PULL_MESSAGE, &pull, b"").ok();
    let object = [("group", "g"), ("topic", "T")];
    let readable = |answer: common::Answer| answer.ok().json::<GroupForbidden>().readable;
    assert!(readable(peer.call(CODE, &object, b"")), "asking changes nothing");
    let [group, topic] = object;
    assert!(!readable(peer.call(CODE, &[group, topic, ("readable", "false")], b"")));
    let answer = peer.call(RequestCode::PULL_MESSAGE, &pull, b"");
    assert_eq!(answer.field("forbiddenType"), "5");
    answer.refused(ResponseCode::NO_PERMISSION, "group[g] is forbidden for topic[T]");
    assert!(readable(peer.call(CODE, &[group, topic, ("readable", "true")], b"")));
    peer.call(RequestCode::PULL_MESSAGE, &pull, b"").ok();
    peer.call(CODE, &[group], b"").refused(ERROR, "topic");
}

#[test]
fn entries_of_a_queue_are_shown() {
    const CODE: RequestCode = RequestCode::QUERY_CONSUME_QUEUE;
    let broker = start();
    let mut peer = broker.connect();
    for tag in ["A", "B"] {
        let properties = format!("TAGS\u{1}{tag}\u{2}");
        let mut fields = common::send_header("T", "0");
        fields = with_field(fields, "i", &properties);
        peer.call(RequestCode::SEND_MESSAGE_V2, &fields, b"body").ok();
    }
    let fields = |index: &'static str, count: &'static str| {
        vec![("topic", "T"), ("queueId", "0"), ("index", index), ("count", count)]
    };
    let body: QueryConsumeQueueResponseBody = peer.call(CODE, &fields("0", "10"), b"").ok().json();
    let entries = body.queue_data.expect("entries");
    let codes: Vec<i64> = entries.iter().map(|entry| entry.tags_code).collect();
    assert_eq!(codes, [tags_code("A"), tags_code("B")]);
    assert_eq!(
        entries[0].physic_offset + i64::from(entries[0].physic_size),
        entries[1].physic_offset
    );
    assert_eq!((body.min_queue_index, body.max_queue_index), (0, 2));
    assert_eq!((body.filter_data, body.subscription_data), (None, None));
    let mut of_group = fields("1", "1");
    of_group.push(("consumerGroup", "g"));
    let body: QueryConsumeQueueResponseBody = peer.call(CODE, &of_group, b"").ok().json();
    assert_eq!(body.filter_data.as_deref(), Some("g@T is not online!"));
    peer.heartbeat("c1", "g", "T");
    let body: QueryConsumeQueueResponseBody = peer.call(CODE, &of_group, b"").ok().json();
    assert_eq!(body.filter_data.as_deref(), Some("null"));
    assert_eq!(body.subscription_data.expect("a subscription").sub_string, "*");
    assert_eq!(body.queue_data.expect("entries").len(), 1);
    for outside in ["2", "-1", "9223372036854775807"] {
        let answer = peer.call(CODE, &fields(outside, "1"), b"").ok();
        assert!(answer.body.is_empty());
        assert!(answer.remark.is_some_and(|remark| remark.contains("is not exist")));
    }
    let none: QueryConsumeQueueResponseBody = peer.call(CODE, &fields("0", "-3"), b"").ok().json();
    assert_eq!(none.queue_data, Some(Vec::new()));
    for (name, value) in [("topic", "nowhere"), ("queueId", "7")] {
        let mut unknown = fields("0", "1");
        unknown.retain(|(known, _)| *known != name);
        unknown.push((name, value));
        peer.call(CODE, &unknown, b"").refused(ERROR, "is not exist!");
    }
    let mut invalid = fields("0", "1");
    invalid.retain(|(known, _)| *known != "index");
    peer.call(CODE, &invalid, b"").refused(ERROR, "index");
}

#[test]
fn a_filter_by_expression_is_tried_on_bit_maps() {
    let broker = start_with(|config| {
        config.enable_property_filter = true;
        config.enable_consume_queue_ext = true;
        config.enable_calc_filter_bit_map = true;
    });
    let mut peer = broker.connect();
    peer.produce("T", 0, b"before the registration");
    let heartbeat = common::heartbeat("c1", "g", "T").replace(
        r#""expressionType":"TAG","subString":"*""#,
        r#""expressionType":"SQL92","subString":"a > 1""#,
    );
    peer.call(RequestCode::HEART_BEAT, &[], heartbeat.as_bytes()).ok();
    let registered = || broker.state().filters.get("T", "g").is_some();
    eventually("the expression is registered", registered);
    // A message stored in the millisecond of the registration counts as an earlier one.
    let fields =
        [("topic", "T"), ("queueId", "0"), ("index", "0"), ("count", "9"), ("consumerGroup", "g")];
    let shown = |peer: &mut Peer| -> QueryConsumeQueueResponseBody {
        peer.call(RequestCode::QUERY_CONSUME_QUEUE, &fields, b"").ok().json()
    };
    eventually("a message is seen not to match", || {
        peer.produce("T", 0, b"without the property");
        let entries = shown(&mut peer).queue_data.expect("entries");
        !entries.last().expect("an entry").eval
    });
    let body = shown(&mut peer);
    assert!(body.filter_data.is_some_and(|data| data.contains(r#""expression":"a > 1""#)));
    let entries = body.queue_data.expect("entries");
    assert!(entries[0].eval, "what was there before has to be looked at");
    assert!(entries[0].extend_data_json.as_ref().is_some_and(|text| text.contains("msgStoreTime")));
    assert!(entries.last().is_some_and(|entry| entry.bit_map.is_some()));
}

#[test]
fn a_groups_subscription_is_shown_while_it_is_online() {
    const CODE: RequestCode = RequestCode::QUERY_SUBSCRIPTION_BY_CONSUMER;
    let broker = start();
    let mut peer = broker.connect();
    let fields = [("group", "g"), ("topic", "T")];
    let offline: QuerySubscriptionResponseBody = peer.call(CODE, &fields, b"").ok().json();
    assert_eq!(offline.subscription_data, None);
    peer.heartbeat("c1", "g", "T");
    let online: QuerySubscriptionResponseBody = peer.call(CODE, &fields, b"").ok().json();
    assert_eq!((online.group.as_str(), online.topic.as_str()), ("g", "T"));
    assert_eq!(online.subscription_data.expect("a subscription").sub_string, "*");
    let none: QuerySubscriptionResponseBody = peer.call(CODE, &fields[..1], b"").ok().json();
    assert_eq!(none.subscription_data, None);
}

fn assignment(
    peer: &mut Peer,
    client: &str,
    strategy: &str,
    model: &str,
) -> Option<Vec<(i32, String)>> {
    let body = format!(
        r#"{{"clientId":"{client}","consumerGroup":"g","messageModel":"{model}",
        "strategyName":"{strategy}","topic":"T"}}"#
    );
    let answer = peer.call(RequestCode::QUERY_ASSIGNMENT, &[], body.as_bytes()).ok();
    let body: QueryAssignmentResponseBody = answer.json();
    body.message_queue_assignments.map(|queues| {
        queues.into_iter().map(|queue| (queue.message_queue.queue_id, queue.mode)).collect()
    })
}

const CLUSTERING: &str = "CLUSTERING";

fn ids(assigned: Option<Vec<(i32, String)>>) -> Option<Vec<i32>> {
    assigned.map(|queues| queues.into_iter().map(|(id, _)| id).collect())
}

#[test]
fn the_broker_shares_queues_out_if_asked() {
    let broker = start();
    let (mut first, mut second) = (broker.connect(), broker.connect());
    assert_eq!(assignment(&mut first, "c1", "AVG", CLUSTERING), None, "no such topic");
    first.call(RequestCode::UPDATE_AND_CREATE_TOPIC, &topic_header("T", "4"), b"").ok();
    assert_eq!(assignment(&mut first, "c1", "AVG", CLUSTERING), None, "no such group");
    first.heartbeat("c1", "g", "T");
    second.heartbeat("c2", "g", "T");
    let pull = |id| (id, "PULL".to_owned());
    assert_eq!(assignment(&mut first, "c1", "AVG", CLUSTERING), Some(vec![pull(0), pull(1)]));
    assert_eq!(ids(assignment(&mut second, "c2", "AVG_BY_CIRCLE", CLUSTERING)), Some(vec![1, 3]));
    assert_eq!(assignment(&mut first, "c1", "MACHINE_ROOM", CLUSTERING), None);
    assert_eq!(ids(assignment(&mut first, "stranger", "AVG", CLUSTERING)), Some(Vec::new()));
    assert_eq!(ids(assignment(&mut first, "c1", "AVG", "BROADCASTING")), Some(vec![0, 1, 2, 3]));
    first.call(RequestCode::QUERY_ASSIGNMENT, &[], b"{").refused(ERROR, "cannot be read");
    let broker = start_with(|config| config.server_load_balancer_enable = false);
    let mut peer = broker.connect();
    peer.call(RequestCode::UPDATE_AND_CREATE_TOPIC, &topic_header("T", "2"), b"").ok();
    assert_eq!(ids(assignment(&mut peer, "c1", "AVG", CLUSTERING)), Some(vec![0, 1]));
}

#[test]
fn a_group_may_be_told_to_pull_and_not_to_pop() {
    const CODE: RequestCode = RequestCode::SET_MESSAGE_REQUEST_MODE;
    let broker = start_with(|config| config.auto_create_subscription_group = false);
    let mut peer = broker.connect();
    peer.call(RequestCode::UPDATE_AND_CREATE_TOPIC, &topic_header("T", "1"), b"").ok();
    peer.call(RequestCode::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, &[], br#"{"groupName":"g"}"#).ok();
    let body = |topic: &str, group: &str, mode: &str| {
        format!(
            r#"{{"consumerGroup":"{group}","mode":"{mode}","popShareQueueNum":0,"topic":"{topic}"}}"#
        )
    };
    let mut set = |topic: &str, group: &str, mode: &str| {
        peer.call(CODE, &[], body(topic, group, mode).as_bytes())
    };
    set("T", "g", "PULL").ok();
    set("%RETRY%g", "g", "PULL").refused(ResponseCode::NO_PERMISSION, "retry topic");
    set("U", "g", "PULL").refused(ResponseCode::TOPIC_NOT_EXIST, "topic[U]");
    set("T", "h", "PULL").refused(ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST, "does not exist");
    set("T", "g", "POP").refused(ResponseCode::REQUEST_CODE_NOT_SUPPORTED, "POP");
    let all = peer.call(RequestCode::GET_ALL_MESSAGE_REQUEST_MODE, &[], b"").ok().text();
    assert!(all.contains(r#"{"T":{"g":{"#) && !all.contains("POP"), "{all}");
}

#[test]
fn what_is_refused_says_why() {
    let broker = start();
    let mut peer = broker.connect();
    let unsupported = ResponseCode::REQUEST_CODE_NOT_SUPPORTED;
    for (code, answer, why) in [
        (RequestCode::UPDATE_AND_CREATE_STATIC_TOPIC, unsupported, "static topics"),
        (RequestCode::POP_MESSAGE, unsupported, "POP"),
        (RequestCode::EXPORT_ROCKSDB_CONFIG_TO_JSON, unsupported, "RocksDB"),
        (RequestCode::GET_BROKER_EPOCH_CACHE, ERROR, "its log has no epochs"),
        (RequestCode::GET_TIMER_METRICS, ERROR, "timed messages"),
        (RequestCode::AUTH_LIST_USER, ERROR, "access control"),
        (RequestCode::GET_BROKER_CLUSTER_ACL_INFO, unsupported, " request type 52 not supported"),
    ] {
        peer.call(code, &[], b"").refused(answer, why);
    }
    let status: HaRuntimeInfo = peer.call(RequestCode::GET_BROKER_HA_STATUS, &[], b"").ok().json();
    assert!(status.master && status.ha_connection_info.is_empty());
}

#[test]
fn a_message_that_comes_back_is_counted_under_its_own_topic() {
    let broker = start();
    let mut peer = broker.connect();
    peer.produce("T", 0, b"body");
    let offset = broker.state().store.min_physical_offset().to_string();
    let fields = [("offset", &*offset), ("group", "g"), ("delayLevel", "0"), ("originTopic", "T")];
    peer.call(RequestCode::CONSUMER_SEND_MSG_BACK, &fields, b"").ok();
    broker.state().metrics.sample_rates(u64::MAX / 2, |_| false);
    let figure = || broker.state().metrics.stats("SNDBCK_PUT_NUMS", "T@g", "DefaultCluster");
    eventually("it is counted", || figure().is_some_and(|figures| figures[0].sum == 1));
}
