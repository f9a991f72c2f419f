//! Each rule of the ledger is broken once and must be noticed.

use serde_json::json;

use super::{GroupRules, Ledger, SendRules};
use crate::line::Line;

const TOPIC: &str = "T";
const ALL: GroupRules<'static> = GroupRules {
    topic: TOPIC,
    tags: &[],
    in_order: false,
    disturbances: 0,
    one_way_arrives: false,
};

fn line(value: serde_json::Value) -> Line {
    serde_json::from_value(value).expect("a line")
}

fn sent(key: &str, queue: i32, offset: i64) -> Line {
    line(
        json!({"op": "send", "key": key, "topic": TOPIC, "tags": "A", "thread": 0, "bodyLength": 3,
        "bodySha256": "abc", "status": "SEND_OK", "msgId": key, "offsetMsgId": null,
        "queueId": queue, "queueOffset": offset, "brokerName": "b"}),
    )
}

fn failed(key: &str) -> Line {
    line(
        json!({"op": "error", "key": key, "topic": TOPIC, "tags": "A", "thread": 0, "bodyLength": 3,
        "bodySha256": "abc", "code": -1, "error": "timeout"}),
    )
}

fn received(key: &str, queue: i32, offset: i64, change: serde_json::Value) -> Line {
    let mut value = json!({"op": "recv", "topic": TOPIC, "brokerName": "b", "queueId": queue,
        "queueOffset": offset, "msgId": key, "keys": key, "tags": "A", "body": "abc", "bodyLength": 3,
        "bodySha256": "abc", "flag": 0, "sysFlag": 0, "bodyCRC": 1, "size": 100, "physicalOffset": 0,
        "reconsumeTimes": 0, "preparedTransactionOffset": 0, "bornTimestamp": 1, "bornHost": "h:1",
        "storeTimestamp": 1, "storeHost": "h:1", "properties": {}});
    for (name, changed) in change.as_object().expect("an object") {
        value[name] = changed.clone();
    }
    line(value)
}

fn arrival(key: &str, queue: i32, offset: i64) -> Line {
    received(key, queue, offset, json!({}))
}

fn ledger(sends: &[Line], arrivals: &[Line]) -> Ledger {
    let mut ledger = Ledger::new();
    ledger.sent(sends, SendRules::SEQUENTIAL);
    ledger.arrived("g", arrivals);
    ledger
}

fn broken(ledger: &Ledger, rules: &GroupRules<'_>, reason: &str) {
    let error = ledger.check("g", rules).expect_err(reason).to_string();
    assert!(error.contains(reason), "{error}");
}

#[test]
fn a_clean_run_passes_and_is_counted() {
    let ledger = ledger(
        &[sent("p-0-0", 0, 0), sent("p-0-1", 0, 1), failed("p-0-2"), failed("p-0-3")],
        &[arrival("p-0-0", 0, 0), arrival("p-0-1", 0, 1), arrival("p-0-2", 0, 2)],
    );
    let summary = ledger.check("g", &GroupRules { in_order: true, ..ALL }).expect("a clean ledger");
    assert_eq!((summary.acknowledged, summary.unknown, summary.unknown_arrived), (2, 2, 1));
    assert_eq!(ledger.missing(&ALL, &[]), 2);
}

#[test]
fn loss_is_noticed() {
    broken(&ledger(&[sent("p-0-0", 0, 0)], &[]), &ALL, "acknowledged at");
}

#[test]
fn a_message_elsewhere_than_acknowledged_is_noticed() {
    broken(&ledger(&[sent("p-0-0", 0, 0)], &[arrival("p-0-0", 0, 7)]), &ALL, "but arrived from");
}

#[test]
fn a_second_copy_needs_a_second_attempt() {
    let sends = [sent("p-0-0", 0, 1)];
    let arrivals = [arrival("p-0-0", 0, 0), arrival("p-0-0", 0, 1)];
    broken(&ledger(&sends, &arrivals), &ALL, "stored 2 times by 1 attempts");
    let mut retried = Ledger::new();
    retried.sent(&sends, SendRules { attempts: 2, ..SendRules::SEQUENTIAL });
    retried.arrived("g", &arrivals);
    assert_eq!(retried.check("g", &ALL).expect("allowed").stored_again, 1);
}

#[test]
fn a_second_delivery_needs_a_disturbance() {
    let ledger = ledger(&[sent("p-0-0", 0, 0)], &[arrival("p-0-0", 0, 0), arrival("p-0-0", 0, 0)]);
    broken(&ledger, &ALL, "delivered 2 times with 0 disturbances");
    let disturbed = GroupRules { disturbances: 1, ..ALL };
    assert_eq!(ledger.check("g", &disturbed).expect("allowed").delivered_again, 1);
}

#[test]
fn a_place_that_changes_its_message_is_noticed() {
    let ledger = ledger(
        &[failed("p-0-0"), sent("p-0-1", 0, 0)],
        &[arrival("p-0-0", 0, 0), arrival("p-0-1", 0, 0)],
    );
    broken(&ledger, &GroupRules { disturbances: 9, ..ALL }, "when it was first seen");
}

#[test]
fn order_of_arrival_is_judged_per_queue() {
    let sends = [sent("p-0-0", 0, 0), sent("p-0-1", 0, 1), sent("p-0-2", 1, 0)];
    let arrivals = [arrival("p-0-1", 0, 1), arrival("p-0-2", 1, 0), arrival("p-0-0", 0, 0)];
    let ledger = ledger(&sends, &arrivals);
    ledger.check("g", &ALL).expect("order was not asked for");
    broken(&ledger, &GroupRules { in_order: true, ..ALL }, "first seen after offset 1");
}

#[test]
fn order_of_sending_is_judged_per_thread_and_queue() {
    let ledger = ledger(
        &[sent("p-0-0", 0, 1), sent("p-0-1", 0, 0)],
        &[arrival("p-0-1", 0, 0), arrival("p-0-0", 0, 1)],
    );
    broken(&ledger, &ALL, "the later p-0-1 at 0");
}

#[test]
fn what_was_never_sent_or_is_filtered_is_noticed() {
    broken(&ledger(&[], &[arrival("x-0-0", 0, 0)]), &ALL, "never sent");
    let ledger = ledger(&[sent("p-0-0", 0, 0)], &[arrival("p-0-0", 0, 0)]);
    broken(&ledger, &GroupRules { tags: &["B"], ..ALL }, "is not of");
    broken(&ledger, &GroupRules { topic: "U", ..ALL }, "arrived from topic T");
}

#[test]
fn a_changed_message_is_noticed() {
    for (change, reason) in [
        (json!({"bodySha256": "def"}), "digest def"),
        (json!({"tags": "B"}), "arrived with Some(\"B\")"),
        (json!({"msgId": "other"}), "arrived as other"),
        (json!({"reconsumeTimes": 1}), "as a retry"),
    ] {
        let ledger = ledger(&[sent("p-0-0", 0, 0)], &[received("p-0-0", 0, 0, change)]);
        broken(&ledger, &ALL, reason);
    }
}

#[test]
fn a_key_acknowledged_twice_is_noticed() {
    let arrivals = [arrival("p-0-0", 0, 0)];
    let ledger_of = |sends: &[Line]| ledger(sends, &arrivals);
    broken(&ledger_of(&[sent("p-0-0", 0, 0), sent("p-0-0", 0, 0)]), &ALL, "reported it twice");
    // A success counts, whatever failure is reported beside it.
    for sends in [[sent("p-0-0", 0, 0), failed("p-0-0")], [failed("p-0-0"), sent("p-0-0", 0, 0)]] {
        assert_eq!(ledger_of(&sends).check("g", &ALL).expect("clean").acknowledged, 1);
        broken(&ledger(&sends, &[]), &ALL, "lost");
    }
    ledger(&[failed("p-0-0"), failed("p-0-0")], &[]).check("g", &ALL).expect("clean");
}

#[test]
fn one_way_sends_are_demanded_only_of_a_healthy_broker() {
    let one_way =
        line(json!({"op": "send", "key": "p-0-0", "topic": TOPIC, "tags": "A", "thread": 0,
        "bodyLength": 3, "bodySha256": "abc", "status": "ONEWAY"}));
    let ledger = ledger(&[one_way], &[]);
    ledger.check("g", &ALL).expect("a one-way send may vanish");
    broken(&ledger, &GroupRules { one_way_arrives: true, ..ALL }, "found 0 times");
}

#[test]
fn a_hole_in_a_queue_is_noticed() {
    let bounds = line(json!({"op": "queue", "topic": TOPIC, "brokerName": "b", "queueId": 0,
        "minOffset": 0, "maxOffset": 3}));
    let whole = [bounds.clone(), arrival("a", 0, 0), arrival("b", 0, 1), arrival("c", 0, 2)];
    ledger(&[], &whole).check_no_holes("g").expect("whole");
    let holed = [bounds, arrival("a", 0, 0), arrival("c", 0, 2)];
    let error = ledger(&[], &holed).check_no_holes("g").expect_err("a hole").to_string();
    assert!(error.contains("first difference at Some((1, Some(2)))"), "{error}");
    ledger(&[], &[]).check_no_holes("g").expect_err("nothing pulled");
}
