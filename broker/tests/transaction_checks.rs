//! What becomes of half messages that nobody decides, over plain sockets: checks, and a restart between
//! each step.

mod common;

use common::transaction::*;
use common::{eventually, start, start_in, start_with};
use rocketmq_broker::BrokerConfig;
use rocketmq_broker::clock::now_ms;
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::message::id::OffsetMessageId;
use rocketmq_protocol::message::record::MessageRecord;

#[test]
fn an_undecided_half_is_asked_about_until_it_is_decided() {
    let broker = start_with(eager);
    let mut peer = broker.connect();
    create(&mut peer, "T", "2");
    join(&mut peer, "p1", "payers");
    let half = prepare(&mut peer, "T", "KEYS\u{1}k\u{2}");
    let check = next_check(&mut peer);
    assert_ne!(check.place, half, "it names the copy");
    assert_eq!(check.times, "1");
    let frame = &check.frame;
    assert_eq!((frame.field("topic"), frame.field("bname")), (HALF, "broker-a"));
    assert_eq!((frame.field("msgId"), frame.field("transactionId")), ("key-1", "key-1"));
    let id = frame.field("offsetMsgId");
    let physical_offset = i64::from_str_radix(&id[16..], 16).expect("an id").to_string();
    assert_eq!(physical_offset, check.place.physical_offset);
    let record = MessageRecord::decode(&frame.body).expect("a record");
    assert_eq!((record.topic, record.queue_id, record.body), ("T", 1, &b"body"[..]));
    assert_eq!(record.queue_offset.to_string(), check.place.queue_offset);
    assert_eq!(
        (record.property("PGROUP"), record.property("WAIT")),
        (Some("payers"), Some("false"))
    );
    answer_check(&mut peer, &check.place, "0");
    let again = next_check(&mut peer);
    assert_eq!(again.times, "2");
    answer_check(&mut peer, &again.place, COMMIT);
    eventually("it is delivered", || count(&broker, "T", 1) >= 1);
    // What is asked about meanwhile is answered too; then nobody is asked any more.
    settle(&broker, &mut peer);
    assert_eq!(count(&broker, GIVEN_UP, 0), 0);
    let found = records(&broker, "T", 1, |record| record.property("KEYS").map(str::to_owned));
    assert!(found.iter().all(|key| key.as_deref() == Some("k")));
}

#[test]
fn producers_of_the_group_take_turns_and_others_are_not_asked() {
    let broker = start_with(eager);
    let mut peers = [broker.connect(), broker.connect(), broker.connect()];
    create(&mut peers[0], "T", "2");
    for (peer, (client, group)) in
        peers.iter_mut().zip([("p1", "payers"), ("p2", "payers"), ("p3", "others")])
    {
        join(peer, client, group);
    }
    prepare(&mut peers[0], "T", "");
    let [first, second, other] = &mut peers;
    next_check(first);
    next_check(second);
    assert!(!other.got_request(RequestCode::CHECK_TRANSACTION_STATE));
}

#[test]
fn after_the_last_check_it_is_given_up_and_shown_where_people_look() {
    let broker = start_with(|config| {
        eager(config);
        config.transaction_check_max = 2;
    });
    let mut peer = broker.connect();
    create(&mut peer, "T", "2");
    join(&mut peer, "p1", "payers");
    prepare(&mut peer, "T", "KEYS\u{1}k\u{2}");
    assert_eq!(next_check(&mut peer).times, "1");
    let last = next_check(&mut peer);
    assert_eq!(last.times, "2");
    eventually("it is given up", || count(&broker, GIVEN_UP, 0) == 1);
    let found = records(&broker, GIVEN_UP, 0, |record| {
        assert_eq!(record.property("REAL_TOPIC"), Some("T"));
        record.property("KEYS").map(str::to_owned)
    });
    assert_eq!(found, [Some("k".to_owned())]);
    settle(&broker, &mut peer);
    assert!(!peer.got_request(RequestCode::CHECK_TRANSACTION_STATE));
    assert_eq!(count(&broker, HALF, 0), 3);
    // A late answer is carried out all the same.
    answer_check(&mut peer, &last.place, COMMIT);
    eventually("it is delivered", || count(&broker, "T", 1) == 1);
}

#[test]
fn what_was_given_up_can_be_asked_about_anew() {
    const CODE: RequestCode = RequestCode::RESUME_CHECK_HALF_MESSAGE;
    const ERROR: ResponseCode = ResponseCode::SYSTEM_ERROR;
    let broker = start_with(|config| {
        eager(config);
        config.transaction_check_max = 1;
    });
    let mut peer = broker.connect();
    create(&mut peer, "T", "2");
    join(&mut peer, "p1", "payers");
    prepare(&mut peer, "T", "");
    assert_eq!(next_check(&mut peer).times, "1");
    eventually("it is given up", || count(&broker, GIVEN_UP, 0) == 1);
    let id = |physical_offset: i64| {
        let store_host = broker.state().identity.store_host;
        OffsetMessageId { store_host, physical_offset }.to_string()
    };
    let given_up = broker.state().store.physical_offset_of(GIVEN_UP, 0, 0).expect("a queue");
    let given_up = id(given_up.expect("a message"));
    let (_, other) = peer.produce("T", 0, b"no half message");
    let nowhere = id(1 << 40);
    for (wrong, why) in
        [("x", "message id has 1 characters"), (&other, "no half message"), (&nowhere, "no half")]
    {
        peer.call(CODE, &[("topic", "T"), ("msgId", wrong)], b"").refused(ERROR, why);
    }
    peer.call(CODE, &[("topic", "T")], b"").refused(ERROR, "msgId");
    peer.call(CODE, &[("topic", "T"), ("msgId", &given_up)], b"").ok();
    let check = next_check(&mut peer);
    assert_eq!(check.times, "1", "counted from the beginning");
    answer_check(&mut peer, &check.place, COMMIT);
    eventually("it is delivered", || count(&broker, "T", 1) == 1);
}

#[test]
fn a_half_that_says_not_where_it_belongs_or_is_too_old_holds_up_nobody() {
    let broker = start_with(eager);
    let mut peer = broker.connect();
    create(&mut peer, "T", "2");
    join(&mut peer, "p1", "payers");
    let old = (now_ms() - 73 * 3_600_000).to_string();
    send_with(&mut peer, "T", &half_properties(""), &[("g", &old)]).ok();
    append(&broker, HALF, b"x", b"PGROUP\x01payers\x02");
    prepare(&mut peer, "T", "KEYS\u{1}k\u{2}");
    let check = next_check(&mut peer);
    let record = MessageRecord::decode(&check.frame.body).expect("a record");
    assert_eq!(record.property("KEYS"), Some("k"));
    assert_eq!(count(&broker, GIVEN_UP, 0), 2);
}

/// Op messages of both Java versions decide; what is no op message decides nothing and stops nothing.
#[test]
fn the_decisions_of_a_java_broker_hold() {
    let broker = start_with(lazy);
    let mut peer = broker.connect();
    create(&mut peer, "T", "2");
    for number in 0..5 {
        prepare(&mut peer, "T", &format!("KEYS\u{1}k{number}\u{2}"));
    }
    append(&broker, OP, b"1", b"TAGS\x01d\x02");
    append(&broker, OP, b"nonsense", b"TAGS\x01d\x02");
    append(&broker, OP, b"0,", b"");
    append(&broker, OP, b"2,4,", b"TAGS\x01d\x02WAIT\x01true\x02");
    drop(peer);
    let broker = start_in(broker.stop(), eager);
    let mut peer = broker.connect();
    join(&mut peer, "p1", "payers");
    for _ in 0..2 {
        let check = next_check(&mut peer);
        let record = MessageRecord::decode(&check.frame.body).expect("a record");
        let key = record.property("KEYS").expect("a key");
        assert!(key == "k0" || key == "k3", "{key} is decided");
        answer_check(&mut peer, &check.place, ROLL_BACK);
    }
    settle(&broker, &mut peer);
    assert_eq!(count(&broker, "T", 1), 0);
}

/// With a restart after every step, the broker and its offsets always know what is left to do.
#[test]
fn nothing_is_forgotten_over_restarts() {
    let broker = start_with(lazy);
    let mut peer = broker.connect();
    create(&mut peer, "T", "2");
    let [committed, rolled_back, open] =
        ["c", "r", "o"].map(|key| prepare(&mut peer, "T", &format!("KEYS\u{1}{key}\u{2}")));
    drop(peer);

    let broker = start_in(broker.stop(), lazy);
    let mut peer = broker.connect();
    end(&mut peer, &committed, COMMIT).ok();
    drop(peer);
    let broker = start_in(broker.stop(), lazy);
    let mut peer = broker.connect();
    end(&mut peer, &rolled_back, ROLL_BACK).ok();
    drop(peer);
    assert_eq!(count(&broker, HALF, 0), 3);

    let broker = start_in(broker.stop(), eager);
    let mut peer = broker.connect();
    join(&mut peer, "p1", "payers");
    let check = next_check(&mut peer);
    assert_ne!(check.place, open);
    let record = MessageRecord::decode(&check.frame.body).expect("a record");
    assert_eq!(record.property("KEYS"), Some("o"), "the others are decided");
    drop(peer);

    // The answer comes to the next start.
    let broker = start_in(broker.stop(), lazy);
    assert!(offsets(&broker).0 >= Some(3), "the copies stand for it: {:?}", offsets(&broker));
    let mut peer = broker.connect();
    answer_check(&mut peer, &check.place, COMMIT);
    eventually("it is delivered", || count(&broker, "T", 1) == 2);
    drop(peer);

    let broker = start_in(broker.stop(), eager);
    let mut peer = broker.connect();
    join(&mut peer, "p1", "payers");
    settle(&broker, &mut peer);
    drop(peer);
    let broker = start_in(broker.stop(), eager);
    let done = offsets(&broker);
    assert_eq!(done, (Some(count(&broker, HALF, 0)), Some(count(&broker, OP, 0))));
    let keys = records(&broker, "T", 1, |record| record.property("KEYS").map(str::to_owned));
    assert_eq!(keys, [Some("c".to_owned()), Some("o".to_owned())]);
    let counts = broker.state().transactions.counts.all();
    assert!(counts.iter().all(|(_, count)| *count <= 0), "{counts:?}");
}

#[test]
fn a_half_may_ask_to_be_left_alone_for_a_time() {
    let broker = start_with(eager);
    let mut peer = broker.connect();
    create(&mut peer, "T", "2");
    join(&mut peer, "p1", "payers");
    let immune = "CHECK_IMMUNITY_TIME_IN_SECONDS\u{1}3600\u{2}KEYS\u{1}immune\u{2}";
    let half = prepare(&mut peer, "T", immune);
    prepare(&mut peer, "T", "KEYS\u{1}other\u{2}");
    let check = next_check(&mut peer);
    let record = MessageRecord::decode(&check.frame.body).expect("a record");
    assert_eq!(record.property("KEYS"), Some("other"), "it is not held up");
    answer_check(&mut peer, &check.place, ROLL_BACK);
    // Its copies remember its first place and burn no checks. A decision that names it decides them.
    eventually("it was put back several times", || {
        let copies = records(&broker, HALF, 0, |record| {
            let first = record.property("TRAN_PREPARED_QUEUE_OFFSET");
            assert!(first.is_none() || record.property("TRANSACTION_CHECK_TIMES").is_none());
            first == Some("0")
        });
        copies.into_iter().filter(|is_copy| *is_copy).count() >= 3
    });
    end(&mut peer, &half, COMMIT).ok();
    settle(&broker, &mut peer);
    assert_eq!(count(&broker, "T", 1), 1);
    // The next round that goes through all of the topic puts nothing back but what is new.
    let halves = count(&broker, HALF, 0);
    prepare(&mut peer, "T", "");
    let check = next_check(&mut peer);
    assert_eq!(check.place.queue_offset, (halves + 1).to_string());
    answer_check(&mut peer, &check.place, ROLL_BACK);
    settle(&broker, &mut peer);
    // A decision after that time is refused, unless it answers a check.
    let late = (now_ms() - 10_000).to_string();
    let block = half_properties("CHECK_IMMUNITY_TIME_IN_SECONDS\u{1}5\u{2}");
    let answer = send_with(&mut peer, "T", &block, &[("g", &late)]).ok();
    let place = place_of(&answer);
    end(&mut peer, &place, COMMIT).refused(ResponseCode::ILLEGAL_OPERATION, "wait for the check");
}

#[test]
fn a_log_whose_front_is_gone_is_gone_on_with() {
    let small = |config: &mut BrokerConfig| {
        config.mapped_file_size_commit_log = 4_096;
        config.max_message_size = 2_048;
        config.clean_resource_interval = 100;
        config.disk_max_used_space_ratio = 95;
        config.clean_file_forcibly_enable = false;
        config.delete_when = String::new();
    };
    let broker = start_with(|config| {
        lazy(config);
        small(config);
        config.file_reserved_time = 0;
    });
    let mut peer = broker.connect();
    create(&mut peer, "T", "2");
    let lost = prepare(&mut peer, "T", "KEYS\u{1}lost\u{2}");
    end(&mut peer, &lost, ROLL_BACK).ok();
    eventually("an op message", || count(&broker, OP, 0) == 1);
    broker.state().offsets.commit(GROUP, HALF, 0, 0);
    broker.state().offsets.commit(GROUP, OP, 0, 0);
    for _ in 0..8 {
        peer.produce("T", 0, &[0; 1000]);
    }
    peer.call(RequestCode::DELETE_EXPIRED_COMMITLOG, &[], b"").ok();
    let store = &broker.state().store;
    eventually("it is removed", || store.min_queue_offset(HALF, 0) == 1);
    end(&mut peer, &lost, COMMIT).refused(ResponseCode::SYSTEM_ERROR, "no half message");
    drop(peer);
    let broker = start_in(broker.stop(), |config| {
        eager(config);
        small(config);
    });
    let mut peer = broker.connect();
    join(&mut peer, "p1", "payers");
    prepare(&mut peer, "T", "KEYS\u{1}kept\u{2}");
    let check = next_check(&mut peer);
    let record = MessageRecord::decode(&check.frame.body).expect("a record");
    assert_eq!(record.property("KEYS"), Some("kept"));
    answer_check(&mut peer, &check.place, ROLL_BACK);
    settle(&broker, &mut peer);
}

#[test]
fn an_administrator_may_set_the_offsets_back() {
    let broker = start_with(eager);
    let mut peer = broker.connect();
    create(&mut peer, "T", "2");
    join(&mut peer, "p1", "payers");
    prepare(&mut peer, "T", "");
    let check = next_check(&mut peer);
    answer_check(&mut peer, &check.place, ROLL_BACK);
    settle(&broker, &mut peer);
    // The first half message has no op message of its own: it is asked about again.
    broker.state().offsets.commit(GROUP, HALF, 0, 0);
    next_check(&mut peer);
}

#[test]
fn producers_that_are_gone_are_passed_over() {
    let broker = start();
    let mut peer = broker.connect();
    create(&mut peer, "T", "2");
    drop(peer);
    let broker = start_in(broker.stop(), |config| {
        eager(config);
        config.transaction_check_max = 1_000;
    });
    let mut peer = broker.connect();
    let mut gone = broker.connect();
    join(&mut gone, "p1", "payers");
    prepare(&mut peer, "T", "");
    drop(gone);
    eventually("it is put back without anybody to ask", || count(&broker, HALF, 0) > 3);
    join(&mut peer, "p2", "payers");
    next_check(&mut peer);
}
