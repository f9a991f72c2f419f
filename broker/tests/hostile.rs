//! Requests of every kind with fields and bodies that make no sense: each is answered, and the broker
//! goes on.

mod common;

use common::{start, topic_header};
use rocketmq_protocol::code::RequestCode;
use rocketmq_protocol::message::id::OffsetMessageId;

/// Names of 64-bit numbers in headers, that of a send by its letter too.
const LONGS: &[&str] = &[
    "offset",
    "index",
    "commitOffset",
    "queueOffset",
    "subVersion",
    "timestamp",
    "beginTimestamp",
    "endTimestamp",
    "tranStateTableOffset",
    "commitLogOffset",
    "bornTimestamp",
    "g",
];

/// Names of 32-bit numbers, those of a send by their letters too.
const INTEGERS: &[&str] = &[
    "queueId",
    "count",
    "maxMsgNums",
    "sysFlag",
    "maxNum",
    "delayLevel",
    "maxReconsumeTimes",
    "readQueueNums",
    "writeQueueNums",
    "perm",
    "topicSysFlag",
    "commitOrRollback",
    "defaultTopicQueueNums",
    "flag",
    "reconsumeTimes",
    "d",
    "e",
    "f",
    "h",
    "j",
    "l",
];

/// Names of texts in headers.
const TEXTS: &[&str] = &[
    "topic",
    "b",
    "consumerGroup",
    "group",
    "producerGroup",
    "a",
    "groupName",
    "clientId",
    "clientID",
    "clientAddr",
    "msgId",
    "key",
    "subscription",
    "expressionType",
    "properties",
    "i",
    "defaultTopic",
    "c",
    "topicFilterType",
    "attributes",
    "statsName",
    "statsKey",
    "srcGroup",
    "destGroup",
    "filterGroups",
    "compareGroup",
    "originTopic",
    "topicList",
];

/// Names of switches in headers.
const SWITCHES: &[&str] =
    &["isForce", "isOrder", "order", "offline", "readable", "jstackEnable", "m"];

fn fields<'a>(number: &'a str, text: &'a str, switch: &'a str) -> Vec<(&'a str, &'a str)> {
    let numbers = LONGS.iter().chain(INTEGERS).map(|name| (*name, number));
    let texts = TEXTS.iter().map(|name| (*name, text));
    let switches = SWITCHES.iter().map(|name| (*name, switch));
    // A pull that may wait would wait for as long.
    numbers.chain(texts).chain(switches).chain([("suspendTimeoutMillis", "0")]).collect()
}

#[test]
fn every_request_is_answered_whatever_it_says() {
    let broker = start();
    let mut peer = broker.connect();
    let create = RequestCode::UPDATE_AND_CREATE_TOPIC;
    let store_host = broker.state().identity.store_host;
    let id = |physical_offset| OffsetMessageId { store_host, physical_offset }.to_string();
    let (first, last) = (id(0), id(i64::MAX));
    let queue = r#"{"brokerName":"b","queueId":-2147483648,"topic":"T"}"#;
    let object = format!(
        r#"{{"clientId":"c","clientID":"c","consumerGroup":"g","groupName":"g","mode":"PULL",
        "mqSet":[{queue}],"offsetTable":{{{queue}:-9223372036854775808}},"strategyName":"AVG",
        "topic":"T","retryQueueNums":2147483647,"topicConfigList":[{{}}],"groupConfigList":[{{}}]}}"#
    );
    // A queue that exists, with these numbers else. Of a name that occurs twice the last counts.
    let of_a_queue = |long, integer| {
        let mut header = fields(integer, "T", "true");
        header.extend(LONGS.iter().map(|name| (*name, long)));
        header.extend([("queueId", "0"), ("e", "0"), ("group", "h"), ("consumerGroup", "h")]);
        header
    };
    let headers = [
        Vec::new(),
        fields("", "", ""),
        fields("x", "x", "x"),
        fields("-1", "T", "true"),
        fields("0", "T", "false"),
        fields("1", &first, "true"),
        fields("2147483647", "T", "true"),
        fields("-2147483648", "T", "false"),
        fields("9223372036854775807", "T", "true"),
        fields("-9223372036854775808", &last, "true"),
        fields("99999999999999999999", "%RETRY%g", "true"),
        of_a_queue("-1", "-1"),
        of_a_queue("1", "2147483647"),
        of_a_queue("0", "-2147483648"),
        of_a_queue("9223372036854775807", "1"),
        of_a_queue("-9223372036854775808", "1"),
    ];
    let bodies = [&b""[..], b"{}", b"[]", b"null", b"\xff\xfe", object.as_bytes()];
    for code in RequestCode::ALL {
        // Some of them remove what others need.
        peer.call(create, &topic_header("T", "2"), b"").ok();
        peer.produce("T", 0, b"body");
        peer.heartbeat("c", "h", "T");
        for header in &headers {
            let undecided = header.contains(&("commitOrRollback", "0"));
            if *code == RequestCode::END_TRANSACTION && undecided {
                // Java answers nothing either.
                continue;
            }
            for body in bodies {
                let answer = peer.call(*code, header, body);
                assert!(answer.is_response, "{code}");
            }
        }
    }
    peer.produce("T", 1, b"it goes on");
}
