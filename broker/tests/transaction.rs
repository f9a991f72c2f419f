//! Half messages and the decisions of their producers, over plain sockets.

mod common;

use std::time::Instant;

use common::transaction::*;
use common::{eventually, start_in, start_with};
use rocketmq_broker::config::{BrokerRole, FlushDiskType};
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::message::record::{MessageRecord, NewMessage, sys_flag};

#[test]
fn a_half_message_waits_where_nobody_consumes() {
    let broker = start_with(lazy);
    let mut peer = broker.connect();
    create(&mut peer, "T", "4");
    let more = "TAGS\u{1}A\u{2}__transactionId__\u{1}old\u{2}REAL_TOPIC\u{1}other\u{2}";
    let answer = send_with(&mut peer, "T", &half_properties(more), &[("f", "5")]).ok();
    assert_eq!((answer.field("queueId"), answer.field("queueOffset")), ("1", "0"));
    assert_eq!(answer.field("transactionId"), "key-1");
    assert_eq!((0..4).map(|queue| count(&broker, "T", queue)).sum::<i64>(), 0);
    let found = records(&broker, HALF, 0, |record| {
        let property = |name| record.property(name).map(str::to_owned);
        assert_eq!(property("REAL_TOPIC").as_deref(), Some("T"));
        assert_eq!(property("REAL_QID").as_deref(), Some("1"));
        assert_eq!(property("__transactionId__").as_deref(), Some("key-1"));
        assert_eq!(property("TRAN_MSG").as_deref(), Some("true"));
        assert_eq!(property("TAGS").as_deref(), Some("A"));
        assert_eq!(property("CLUSTER").as_deref(), Some("DefaultCluster"));
        record.sys_flag
    });
    assert_eq!(found, [1], "compressed still, and not of a transaction");
    // The property decides, not the flag.
    send_with(&mut peer, "T", &half_properties(""), &[("f", "0")]).ok();
    assert_eq!(count(&broker, HALF, 0), 2);
    let answer = send_with(&mut peer, "T", "TRAN_MSG\u{1}no\u{2}", &[("f", "4")]).ok();
    assert_eq!(answer.field("queueOffset"), "0");
    assert_eq!((count(&broker, HALF, 0), count(&broker, "T", 1)), (2, 0), "in no queue");
    // Without a key the broker makes one.
    let answer = send_with(&mut peer, "T", "TRAN_MSG\u{1}TRUE\u{2}", &[]).ok();
    assert_eq!(answer.field("transactionId").len(), 32);
    assert_eq!(count(&broker, HALF, 0), 3);
}

#[test]
fn sends_that_cannot_be_half_messages_are_refused_or_are_none() {
    let broker = start_with(lazy);
    let mut peer = broker.connect();
    create(&mut peer, "T", "2");
    // A message that an old client's consumer hands back, whatever it once was.
    let back = half_properties("DELAY\u{1}3\u{2}");
    send_with(&mut peer, "T", &back, &[("j", "1")]).ok();
    assert_eq!((count(&broker, HALF, 0), count(&broker, "SCHEDULE_TOPIC_XXXX", 2)), (0, 1));
    send_with(&mut peer, "%RETRY%g", &half_properties(""), &[("e", "0"), ("j", "1")]).ok();
    assert_eq!((count(&broker, HALF, 0), count(&broker, "%RETRY%g", 0)), (0, 1));
    let answer = send_with(&mut peer, "T", &back, &[]);
    answer.refused(ResponseCode::MESSAGE_ILLEGAL, "property DELAY is 3");
    // There must be room for what a check adds.
    let long = "k\u{1}".to_owned() + &"v".repeat(32_600);
    let answer = send_with(&mut peer, "T", &half_properties(&long), &[]);
    answer.refused(ResponseCode::MESSAGE_ILLEGAL, "properties of a transactional message");
    for (more, flag) in [("TRAN_MSG\u{1}true\u{2}", "0"), ("", "4")] {
        let answer = send_with(&mut peer, "T", more, &[("m", "true"), ("f", flag)]);
        let code =
            if flag == "4" { ResponseCode::MESSAGE_ILLEGAL } else { ResponseCode::SYSTEM_ERROR };
        assert_eq!(answer.code, code.0, "{answer:?}");
    }
    let fields = common::send_header("T", "0");
    let mut fields: Vec<_> =
        fields.into_iter().filter(|(name, _)| *name != "i" && *name != "m").collect();
    fields.extend([("i", "TRAN_MSG\u{1}true\u{2}"), ("m", "true")]);
    let message =
        [&[0, 0, 0, 23, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1][..], b"x\0\0"].concat();
    let answer = peer.call(RequestCode::SEND_BATCH_MESSAGE, &fields, &message);
    answer.refused(ResponseCode::MESSAGE_ILLEGAL, "transactional");
    assert_eq!(count(&broker, HALF, 0), 0);

    let broker = start_with(|config| config.reject_transaction_message = true);
    let answer = send_with(&mut broker.connect(), "TBW102", &half_properties(""), &[]);
    answer.refused(ResponseCode::NO_PERMISSION, "sending transaction message is forbidden");
    assert_eq!(count(&broker, HALF, 0), 0);
}

#[test]
fn a_commit_delivers_and_a_rollback_does_not() {
    let broker = start_with(lazy);
    let mut peer = broker.connect();
    create(&mut peer, "T", "2");
    let first = prepare(&mut peer, "T", "KEYS\u{1}k\u{2}TAGS\u{1}A\u{2}");
    let second = prepare(&mut peer, "T", "");
    end(&mut peer, &second, ROLL_BACK).ok();
    end(&mut peer, &first, COMMIT).ok();
    let found = records(&broker, "T", 1, |record| {
        assert_eq!(record.sys_flag & sys_flag::TRANSACTION_MASK, sys_flag::TRANSACTION_COMMIT);
        assert_eq!(record.property("TRAN_MSG"), Some("true"), "as the Java broker leaves it");
        assert_eq!(record.property("REAL_TOPIC"), Some("T"));
        (record.queue_offset, record.prepared_transaction_offset.to_string())
    });
    assert_eq!(found, [(0, first.physical_offset.clone())]);
    eventually("op messages", || decided(&broker).len() == 2);
    assert_eq!(decided(&broker), ["1", "0"]);
    let tags = records(&broker, OP, 0, |record| record.property("TAGS").map(str::to_owned));
    assert!(tags.iter().all(|tag| tag.as_deref() == Some("d")));
    // The committed message is found by its key as any other one.
    let query = [("topic", "T"), ("key", "k"), ("maxNum", "9"), ("beginTimestamp", "0")];
    let query = [&query[..], &[("endTimestamp", "9999999999999")]].concat();
    assert!(!peer.call(RequestCode::QUERY_MESSAGE, &query, b"").ok().body.is_empty());
    // Nothing remembers a decision.
    end(&mut peer, &first, COMMIT).ok();
    assert_eq!(count(&broker, "T", 1), 2);
    let (_, text) = common::http(broker.broker.metrics_addr().expect("metrics"), "/metrics");
    for line in [
        "rocketmq_commit_messages_total{",
        "rocketmq_rollback_messages_total{",
        "rocketmq_half_messages{",
        "rocketmq_finish_message_latency_milliseconds_count{",
        "message_type=\"transaction\"",
    ] {
        assert!(text.contains(line), "{line} is missing in {text}");
    }
}

#[test]
fn bad_decisions_are_refused_by_name_and_change_nothing() {
    let broker = start_with(lazy);
    let mut peer = broker.connect();
    create(&mut peer, "T", "2");
    let half = prepare(&mut peer, "T", "");
    let (_, ordinary) = peer.produce("T", 0, b"TRAN_MSG");
    let ordinary = i64::from_str_radix(&ordinary[16..], 16).expect("an id").to_string();
    let wrong = |name: &'static str, value: &'static str| {
        let mut fields: Vec<(String, String)> = end_fields(&half, COMMIT)
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        fields.retain(|(field, _)| field != name);
        if !value.is_empty() {
            fields.push((name.to_owned(), value.to_owned()));
        }
        fields
    };
    let ordinary: &'static str = ordinary.leak();
    let cases = [
        (wrong("producerGroup", "thieves"), "The producer group wrong: thieves"),
        (wrong("tranStateTableOffset", "7"), "state table offset wrong: 7"),
        (wrong("commitLogOffset", "1"), "no half message at offset 1"),
        (wrong("commitLogOffset", "-5"), "offset -5"),
        (wrong("commitLogOffset", "9223372036854775807"), "offset 9223372036854775807"),
        (wrong("commitLogOffset", "-9223372036854775808"), "offset -9223372036854775808"),
        (wrong("commitLogOffset", ordinary), "no half message at offset"),
        (wrong("commitOrRollback", "4"), "commitOrRollback field wrong: 4"),
        (wrong("commitOrRollback", "commit"), "commitOrRollback"),
        (wrong("commitOrRollback", ""), "commitOrRollback"),
        (wrong("producerGroup", ""), "producerGroup"),
        (wrong("msgId", ""), "msgId"),
        (wrong("commitLogOffset", ""), "commitLogOffset"),
    ];
    for (fields, remark) in cases {
        let fields: Vec<(&str, &str)> =
            fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let answer = peer.call(RequestCode::END_TRANSACTION, &fields, b"");
        answer.refused(ResponseCode::SYSTEM_ERROR, remark);
    }
    // Undecided is no news, and not answered.
    let opaque = peer.send(RequestCode::END_TRANSACTION, &end_fields(&half, "0"), b"", false);
    assert!(!peer.was_answered(opaque));
    assert_eq!((count(&broker, "T", 1), count(&broker, OP, 0)), (0, 0));
    assert_eq!(broker.state().transactions.decisions.waiting(), 0);
    // A half message of a producer without a group belongs to nobody.
    let answer = send_with(&mut peer, "T", "TRAN_MSG\u{1}true\u{2}", &[]).ok();
    let place = place_of(&answer);
    end(&mut peer, &place, COMMIT).refused(ResponseCode::SYSTEM_ERROR, "none (property PGROUP)");
    end(&mut peer, &half, COMMIT).ok();
}

#[test]
fn a_body_that_looks_like_a_half_message_is_none() {
    let broker = start_with(lazy);
    let mut peer = broker.connect();
    create(&mut peer, "T", "2");
    let host = "127.0.0.1:1".parse().expect("an address");
    let block = half_properties("REAL_TOPIC\u{1}T\u{2}REAL_QID\u{1}0\u{2}");
    let forged = NewMessage {
        topic: HALF,
        queue_id: 0,
        flag: 0,
        sys_flag: 0,
        born_timestamp_ms: 1,
        born_host: host,
        store_host: host,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: b"forged",
        properties: &[block.as_bytes()],
    };
    // Where the body of the next message is going to lie.
    let at = broker.state().store.max_physical_offset() + 88;
    let placement = rocketmq_protocol::message::record::Placement {
        queue_offset: 0,
        physical_offset: at,
        store_timestamp_ms: 1,
    };
    let mut body = Vec::new();
    rocketmq_protocol::message::record::encode_record(&mut body, &forged, placement)
        .expect("record");
    peer.produce("T", 0, &body);
    let found = broker.state().store.message_at(at).expect("it looks like a message");
    assert_eq!(MessageRecord::decode(&found).expect("a record").body, b"forged");
    let place = Place { queue_offset: "0".into(), physical_offset: at.to_string() };
    end(&mut peer, &place, COMMIT).refused(ResponseCode::SYSTEM_ERROR, "no half message");
    assert_eq!(count(&broker, "T", 0), 1);
}

#[test]
fn decisions_share_op_messages_of_a_bounded_length() {
    let broker = start_with(|config| {
        lazy(config);
        config.transaction_op_msg_max_size = 7;
        config.transaction_op_batch_interval = 3_600_000;
    });
    let mut peer = broker.connect();
    create(&mut peer, "T", "2");
    let places: Vec<Place> = (0..5).map(|_| prepare(&mut peer, "T", "")).collect();
    for place in &places[..3] {
        end(&mut peer, place, ROLL_BACK).ok();
    }
    assert_eq!(broker.state().transactions.decisions.waiting(), 3);
    end(&mut peer, &places[3], ROLL_BACK).ok();
    eventually("as many as are allowed", || !ops(&broker).is_empty());
    // Three fill one, and the one that is left needs no comma: RocketMQ 4.9 reads that.
    eventually("the rest", || decided(&broker).len() == 4);
    assert_eq!(ops(&broker), ["0,1,2,", "3"]);
    end(&mut peer, &places[4], ROLL_BACK).ok();
    drop(peer);
    // A stop writes what waits.
    let broker = start_in(broker.stop(), lazy);
    assert_eq!(decided(&broker), ["0", "1", "2", "3", "4"]);
}

#[test]
fn an_answer_waits_for_the_disk_where_sends_do() {
    let broker = start_with(|config| {
        lazy(config);
        config.flush_disk_type = FlushDiskType::SyncFlush;
    });
    let mut peer = broker.connect();
    create(&mut peer, "T", "2");
    let half = prepare(&mut peer, "T", "WAIT\u{1}true\u{2}");
    end(&mut peer, &half, COMMIT).ok();
    let store = &broker.state().store;
    let at = store.physical_offset_of("T", 1, 0).expect("read").expect("it is there");
    assert!(store.durable().0 > at, "durable to {}, the message is at {at}", store.durable().0);
}

#[test]
fn an_answer_waits_for_slaves_where_sends_do() {
    let broker = start_with(|config| {
        lazy(config);
        config.broker_role = BrokerRole::SyncMaster;
        config.in_sync_replicas = 2;
        config.slave_timeout = 300;
    });
    let mut peer = broker.connect();
    create(&mut peer, "T", "2");
    let answer = send_with(&mut peer, "T", &half_properties("WAIT\u{1}true\u{2}"), &[]);
    assert_eq!(answer.code, ResponseCode::FLUSH_SLAVE_TIMEOUT.0, "no slave is there");
    let place = place_of(&answer);
    let began = Instant::now();
    // As in Java, what is stored here alone counts as committed.
    end(&mut peer, &place, COMMIT).ok();
    assert!(began.elapsed().as_millis() >= 300, "{:?}", began.elapsed());
    assert_eq!(count(&broker, "T", 1), 1);
}

#[test]
fn a_slave_decides_nothing_and_asks_nobody() {
    let broker = start_with(|config| {
        eager(config);
        config.broker_role = BrokerRole::Slave;
        config.broker_id = 1;
        // Nobody listens there.
        config.ha_master_address = "127.0.0.1:1".into();
    });
    let mut peer = broker.connect();
    join(&mut peer, "p1", "payers");
    let place = Place { queue_offset: "0".into(), physical_offset: "0".into() };
    for what in [COMMIT, ROLL_BACK] {
        end(&mut peer, &place, what).refused(ResponseCode::SLAVE_NOT_AVAILABLE, "slave");
    }
    let answer = send_with(&mut peer, "TBW102", &half_properties(""), &[]);
    answer.refused(ResponseCode::SERVICE_NOT_AVAILABLE, "slave");
}

#[test]
fn a_decision_finds_its_half_in_the_write_buffer() {
    let broker = start_with(|config| {
        lazy(config);
        config.transient_store_pool_enable = true;
        config.commit_interval_commit_log = 3_600_000;
        config.commit_commit_log_thorough_interval = 3_600_000;
        config.commit_commit_log_least_pages = 1_000;
        config.wake_commit_when_put_message = false;
    });
    let mut peer = broker.connect();
    create(&mut peer, "T", "2");
    let half = prepare(&mut peer, "T", "");
    assert_eq!(count(&broker, HALF, 0), 0, "it waits in the buffer");
    end(&mut peer, &half, COMMIT).ok();
    broker.state().store.commit().expect("committed");
    assert_eq!(count(&broker, "T", 1), 1);
}
