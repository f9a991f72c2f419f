//! Consumers against brokers in memory: membership, order, progress, filters.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::{Cluster, TOPIC, cluster, eventually};
use rocketmq_client::{GroupConsumer, Message, Producer, PullConsumer, StartFrom};
use rocketmq_protocol::body::offset::ResetOffsetBody;
use rocketmq_protocol::code::RequestCode;
use rocketmq_protocol::fastjson;
use rocketmq_protocol::header::client::GetConsumerRunningInfoRequest;
use rocketmq_protocol::header::offset::InvokeBrokerToResetOffsetRequest;

const LONG: Duration = Duration::from_secs(20);

async fn send(cluster: &Cluster, bodies: impl IntoIterator<Item = String>, tag: &str) {
    let producer = Producer::builder([cluster.name_server_addr()], "pg").start().await;
    let producer = producer.expect("started");
    for body in bodies {
        producer.send(Message::new(TOPIC, body).tag(tag)).await.expect("sent");
    }
    producer.shutdown().await;
}

async fn member(cluster: &Cluster, expression: &str) -> GroupConsumer {
    GroupConsumer::builder([cluster.name_server_addr()], "cg")
        .subscribe(TOPIC, expression)
        .start_from(StartFrom::First)
        .long_pull(Duration::from_secs(2))
        .start()
        .await
        .expect("started")
}

fn own_queues(member: &GroupConsumer) -> usize {
    member.assigned().iter().filter(|queue| queue.topic == TOPIC).count()
}

/// Receives and acknowledges until `count` messages came.
async fn drain(member: &GroupConsumer, count: usize) -> Vec<String> {
    let mut bodies = Vec::new();
    while bodies.len() < count {
        let batch = tokio::time::timeout(LONG, member.receive()).await.expect("in time");
        let batch = batch.expect("not shut down");
        let texts = batch.messages().iter().map(|m| String::from_utf8_lossy(&m.body).into_owned());
        bodies.extend(texts);
        batch.ack();
    }
    bodies
}

#[tokio::test]
async fn everything_sent_is_received_once_and_progress_is_committed() {
    let cluster = cluster(2, 3);
    send(&cluster, (0..100).map(|n| n.to_string()), "a").await;
    let consumer = member(&cluster, "*").await;
    let received = drain(&consumer, 100).await;
    let distinct = received.iter().collect::<BTreeSet<_>>();
    assert_eq!((received.len(), distinct.len()), (100, 100));
    // What comes later is received at once, from a pull that was held.
    send(&cluster, ["later".to_owned()], "a").await;
    assert_eq!(drain(&consumer, 1).await, ["later"]);
    consumer.shutdown().await;
    assert_eq!(cluster.committed("cg", TOPIC), 101);
    assert_eq!(cluster.brokers[0].broker.members(), 0);
    // The next member goes on behind it.
    send(&cluster, ["next".to_owned()], "a").await;
    let consumer = member(&cluster, "*").await;
    assert_eq!(drain(&consumer, 1).await, ["next"]);
    consumer.shutdown().await;
}

#[tokio::test]
async fn members_share_the_queues_and_take_over_those_of_one_that_leaves() {
    let cluster = cluster(2, 4);
    let first = member(&cluster, "*").await;
    eventually("the first has all", || own_queues(&first) == 8).await;
    let second = member(&cluster, "*").await;
    eventually("they share", || own_queues(&first) == 4 && own_queues(&second) == 4).await;
    let (one, two) = (first.assigned(), second.assigned());
    assert!(one.iter().all(|queue| queue.topic != TOPIC || !two.contains(queue)));
    second.shutdown().await;
    eventually("the first has all again", || own_queues(&first) == 8).await;
    // One that dies without a word is noticed by its connection.
    let third = member(&cluster, "*").await;
    eventually("they share again", || own_queues(&first) == 4).await;
    drop(third);
    eventually("the first has all once more", || own_queues(&first) == 8).await;
    first.shutdown().await;
}

#[tokio::test]
async fn a_batch_that_is_not_acknowledged_comes_again_and_blocks_its_queue() {
    let cluster = cluster(1, 1);
    send(&cluster, (0..3).map(|n| n.to_string()), "a").await;
    let consumer = member(&cluster, "*").await;
    let batch = consumer.receive().await.expect("a batch");
    assert_eq!(batch.messages().len(), 3);
    drop(batch);
    let again = tokio::time::timeout(LONG, consumer.receive()).await.expect("in time");
    let again = again.expect("a batch");
    assert_eq!(again.messages()[0].queue_offset, 0);
    again.ack();
    consumer.shutdown().await;
    assert_eq!(cluster.committed("cg", TOPIC), 3);
}

#[tokio::test]
async fn progress_never_passes_what_is_not_acknowledged() {
    let cluster = cluster(1, 1);
    send(&cluster, (0..3).map(|n| n.to_string()), "a").await;
    let consumer = member(&cluster, "*").await;
    let batch = consumer.receive().await.expect("a batch");
    consumer.shutdown().await;
    assert_eq!(cluster.committed("cg", TOPIC), 0);
    batch.ack();
}

#[tokio::test]
async fn tags_filter_and_what_is_filtered_is_passed_over() {
    let cluster = cluster(1, 2);
    send(&cluster, (0..70).map(|n| format!("a{n}")), "TagA").await;
    // The same Java hash as "Aa": brokers let it through, the text decides here.
    send(&cluster, (0..4).map(|n| format!("c{n}")), "BB").await;
    send(&cluster, (0..6).map(|n| format!("b{n}")), "Aa").await;
    let consumer = member(&cluster, "Aa || other").await;
    let received = drain(&consumer, 6).await;
    assert!(received.iter().all(|body| body.starts_with('b')), "{received:?}");
    consumer.shutdown().await;
    assert_eq!(cluster.committed("cg", TOPIC), 80);
}

#[tokio::test]
async fn a_queue_is_received_in_order() {
    let cluster = cluster(1, 2);
    send(&cluster, (0..200).map(|n| n.to_string()), "a").await;
    let consumer = Arc::new(member(&cluster, "*").await);
    let mut last = BTreeMap::new();
    let mut count = 0;
    while count < 200 {
        let batch = tokio::time::timeout(LONG, consumer.receive()).await.expect("in time");
        let batch = batch.expect("a batch");
        for message in batch.messages() {
            let before = last.insert(batch.queue().clone(), message.queue_offset);
            assert_eq!(before.map_or(0, |offset| offset + 1), message.queue_offset);
            count += 1;
        }
        batch.ack();
    }
}

#[tokio::test]
async fn sending_back_tells_the_brokers_error() {
    let cluster = cluster(1, 1);
    send(&cluster, ["x".to_owned()], "a").await;
    let consumer = member(&cluster, "*").await;
    let batch = consumer.receive().await.expect("a batch");
    let error = consumer.send_back(&batch.messages()[0], 0).await.expect_err("not there yet");
    assert!(error.to_string().contains("retry is not there yet"), "{error}");
    batch.ack();
}

#[tokio::test]
async fn a_topic_that_comes_later_is_found() {
    let cluster = cluster(1, 1);
    let consumer = GroupConsumer::builder([cluster.name_server_addr()], "cg")
        .subscribe("Later", "*")
        .start_from(StartFrom::First)
        .start()
        .await
        .expect("started");
    cluster.set_topic("Later", Some(2));
    eventually("its queues are taken", || consumer.assigned().len() == 2).await;
    consumer.shutdown().await;
}

#[tokio::test]
async fn brokers_reset_offsets_and_ask_for_the_state() {
    let cluster = cluster(1, 1);
    send(&cluster, (0..10).map(|n| n.to_string()), "a").await;
    let consumer = member(&cluster, "*").await;
    assert_eq!(drain(&consumer, 10).await.len(), 10);
    let queue = consumer.assigned().into_iter().find(|q| q.topic == TOPIC).expect("assigned");
    let conn = cluster.brokers[0].broker.member_connection();
    let header = GetConsumerRunningInfoRequest {
        consumer_group: "cg".into(),
        client_id: consumer.client_id().into(),
        jstack_enable: false,
    };
    let code = RequestCode::GET_CONSUMER_RUNNING_INFO;
    let answer = conn.request(code, &header, Bytes::new(), LONG).await.expect("answer");
    let text = String::from_utf8_lossy(&answer.body);
    assert!(text.contains("\"subscriptionSet\"") && text.contains("\"commitOffset\":10"), "{text}");
    let header = InvokeBrokerToResetOffsetRequest {
        topic: TOPIC.into(),
        group: "cg".into(),
        is_force: true,
        ..InvokeBrokerToResetOffsetRequest::default()
    };
    let body = ResetOffsetBody { offset_table: BTreeMap::from([(queue, 7)]) };
    let code = RequestCode::RESET_CONSUMER_CLIENT_OFFSET;
    conn.oneway(code, &header, fastjson::to_vec(&body).into()).expect("sent");
    assert_eq!(drain(&consumer, 3).await, ["7", "8", "9"]);
    consumer.shutdown().await;
}

#[tokio::test]
async fn a_pull_consumer_reads_where_it_is_told() {
    let cluster = cluster(1, 1);
    send(&cluster, (0..50).map(|n| n.to_string()), "a").await;
    let consumer = PullConsumer::builder([cluster.name_server_addr()], "tail").start().await;
    let consumer = consumer.expect("started");
    let queues = consumer.queues(TOPIC).await.expect("route");
    let queue = queues[0].clone();
    consumer.assign(queues.clone(), StartFrom::Offset(40)).await.expect("assigned");
    let read = consumer.poll(LONG).await;
    assert_eq!((read.len(), read[0].queue_offset), (10, 40));
    assert_eq!(consumer.position(&queue), Some(50));
    assert_eq!(consumer.committed(&queue).await.expect("asked"), None);
    consumer.commit().await.expect("committed");
    assert_eq!(consumer.committed(&queue).await.expect("asked"), Some(50));
    consumer.seek(&queue, StartFrom::First).await.expect("sought");
    assert_eq!(consumer.poll(LONG).await[0].queue_offset, 0);
    // Beyond the end: the broker says where the end is.
    consumer.seek(&queue, StartFrom::Offset(1000)).await.expect("sought");
    assert!(consumer.poll(Duration::from_millis(100)).await.is_empty());
    eventually("corrected", || consumer.position(&queue) == Some(50)).await;
    consumer.shutdown().await;
    // It was never a member.
    assert_eq!(cluster.brokers[0].broker.members(), 0);
    let resumed = PullConsumer::builder([cluster.name_server_addr()], "tail").start().await;
    let resumed = resumed.expect("started");
    resumed.resume(queues, StartFrom::First).await.expect("assigned");
    send(&cluster, ["new".to_owned()], "a").await;
    assert_eq!(resumed.poll(LONG).await[0].queue_offset, 50);
}

#[tokio::test]
async fn a_broker_that_is_gone_for_a_while_does_not_end_the_consumer() {
    let cluster = cluster(1, 1);
    let consumer = member(&cluster, "*").await;
    eventually("assigned", || own_queues(&consumer) == 1).await;
    for conn in cluster.brokers[0].server.connections() {
        conn.close();
    }
    send(&cluster, ["after".to_owned()], "a").await;
    assert_eq!(drain(&consumer, 1).await, ["after"]);
}
