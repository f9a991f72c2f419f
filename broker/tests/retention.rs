//! Removing by request what is old or belongs to nobody.

mod common;

use common::{Peer, eventually, start_with, topic_header};
use rocketmq_protocol::code::RequestCode;

fn create(peer: &mut Peer, topic: &str) {
    peer.call(RequestCode::UPDATE_AND_CREATE_TOPIC, &topic_header(topic, "1"), b"").ok();
}

#[test]
fn queues_of_unknown_topics_go_and_others_stay() {
    let broker = start_with(|_| ());
    let mut peer = broker.connect();
    create(&mut peer, "kept");
    peer.produce("kept", 0, b"body");
    let store = &broker.state().store;
    // As a topics.json leaves it that was restored from an older day.
    let mut batch = store.new_batch();
    for topic in ["forgotten", "%LMQ%one", "RMQ_SYS_TRACE_TOPIC"] {
        batch.push(&message(topic)).expect("a message");
    }
    store.append(&mut batch).expect("appended");
    broker.state().offsets.commit("group", "forgotten", 0, 1);

    // Their messages are still in the log.
    peer.call(RequestCode::CLEAN_EXPIRED_CONSUMEQUEUE, &[], b"").ok();
    assert_eq!(store.max_queue_offset("forgotten", 0), 1);

    peer.call(RequestCode::CLEAN_UNUSED_TOPIC, &[], b"").ok();
    assert_eq!(store.max_queue_offset("forgotten", 0), 0);
    for topic in ["kept", "%LMQ%one", "RMQ_SYS_TRACE_TOPIC"] {
        assert_eq!(store.max_queue_offset(topic, 0), 1, "{topic}");
    }
    assert_eq!(broker.state().offsets.query("group", "forgotten", 0), None);
}

fn message(topic: &str) -> rocketmq_protocol::message::record::NewMessage<'_> {
    rocketmq_protocol::message::record::NewMessage {
        topic,
        queue_id: 0,
        flag: 0,
        sys_flag: 0,
        born_timestamp_ms: 1,
        born_host: "127.0.0.1:1".parse().expect("an address"),
        store_host: "127.0.0.1:2".parse().expect("an address"),
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: b"body",
        properties: &[],
    }
}

#[test]
fn expired_files_go_on_request_and_queues_keep_their_offsets() {
    let broker = start_with(|config| {
        config.mapped_file_size_commit_log = 4_096;
        config.max_message_size = 2_048;
        config.clean_resource_interval = 100;
        config.file_reserved_time = 0;
        // An hour that is not now, whenever this runs: nothing goes by itself.
        config.delete_when = String::new();
        config.disk_max_used_space_ratio = 95;
        config.clean_file_forcibly_enable = false;
    });
    let mut peer = broker.connect();
    create(&mut peer, "old");
    create(&mut peer, "young");
    peer.produce("old", 0, &[0; 1000]);
    for _ in 0..10 {
        peer.produce("young", 0, &[0; 1000]);
    }
    let store = &broker.state().store;
    assert_eq!(store.min_physical_offset(), 0);
    peer.call(RequestCode::DELETE_EXPIRED_COMMITLOG, &[], b"").ok();
    eventually("expired files are removed", || store.min_queue_offset("old", 0) == 1);
    peer.call(RequestCode::CLEAN_EXPIRED_CONSUMEQUEUE, &[], b"").ok();
    assert_eq!(store.max_queue_offset("old", 0), 1, "the topic exists");
    assert_eq!(peer.produce("old", 0, b"new").0, 1);
}
