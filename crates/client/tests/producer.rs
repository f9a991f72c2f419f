//! The producer against brokers in memory: routing, retries, batches.

mod common;

use std::time::Duration;

use common::{TOPIC, cluster, eventually};
use rocketmq_client::{ClientError, Message, Producer, PullConsumer, SendStatus, StartFrom};
use rocketmq_protocol::code::{RequestCode, ResponseCode};

async fn producer(cluster: &common::Cluster) -> Producer {
    let builder = Producer::builder([cluster.name_server_addr()], "pg");
    builder.start().await.expect("started")
}

#[tokio::test]
async fn sends_go_to_all_queues_in_turn() {
    let cluster = cluster(2, 2);
    let producer = producer(&cluster).await;
    let mut queues = std::collections::BTreeMap::<_, usize>::new();
    for n in 0..40 {
        let receipt = producer.send(Message::new(TOPIC, format!("{n}"))).await.expect("sent");
        assert_eq!(receipt.status, SendStatus::SendOk);
        *queues.entry(receipt.queue).or_default() += 1;
    }
    assert_eq!(queues.len(), 4);
    assert!(queues.values().all(|count| *count == 10), "{queues:?}");
    producer.shutdown().await;
}

#[tokio::test]
async fn a_refusal_that_another_broker_may_not_give_is_tried_there() {
    let cluster = cluster(2, 1);
    let producer = producer(&cluster).await;
    for broker in &cluster.brokers {
        broker.broker.refuse_next_send(ResponseCode::SYSTEM_BUSY);
    }
    // The first two tries are refused, the third is taken.
    producer.send(Message::new(TOPIC, "x")).await.expect("sent");
    let asked = |n: usize| cluster.brokers[n].broker.asked(RequestCode::SEND_MESSAGE_V2);
    assert_eq!(asked(0) + asked(1), 3);
    assert!(asked(0) > 0 && asked(1) > 0);
    assert_eq!(cluster.stored(TOPIC), 1);
}

#[tokio::test]
async fn a_refusal_that_is_final_is_not_tried_again() {
    let cluster = cluster(2, 1);
    let producer = producer(&cluster).await;
    for broker in &cluster.brokers {
        broker.broker.refuse_next_send(ResponseCode::MESSAGE_ILLEGAL);
    }
    let error = producer.send(Message::new(TOPIC, "x")).await.expect_err("refused");
    assert!(error.is_refused_with(ResponseCode::MESSAGE_ILLEGAL), "{error}");
    assert!(error.to_string().contains("as the test says"), "{error}");
}

#[tokio::test]
async fn a_dead_broker_is_gone_round() {
    let cluster = cluster(2, 1);
    let producer = producer(&cluster).await;
    producer.send(Message::new(TOPIC, "x")).await.expect("sent");
    cluster.brokers[0].server.shutdown(Duration::ZERO);
    for _ in 0..6 {
        let receipt = producer.send(Message::new(TOPIC, "x")).await.expect("sent");
        assert_eq!(receipt.queue.broker_name, "b");
    }
    cluster.brokers[1].server.shutdown(Duration::ZERO);
    let error = producer.send(Message::new(TOPIC, "x")).await.expect_err("nobody left");
    assert!(matches!(error, ClientError::Call(_)), "{error}");
}

#[tokio::test]
async fn an_unknown_topic_is_sent_by_the_route_that_creates() {
    let cluster = cluster(1, 1);
    let producer = producer(&cluster).await;
    let unknown = producer.send(Message::new("New", "x")).await.expect_err("no route");
    assert!(matches!(unknown, ClientError::TopicNotFound { .. }), "{unknown}");
    cluster.set_topic("TBW102", Some(8));
    producer.send(Message::new("New", "x")).await.expect("sent");
    assert_eq!(producer.queues("New").await.expect("route").len(), 4);
    assert_eq!(cluster.stored("New"), 1);
}

#[tokio::test]
async fn a_batch_is_stored_together_and_read_message_by_message() {
    let cluster = cluster(1, 1);
    let producer = producer(&cluster).await;
    let messages = ["one", "two", "three"].map(|body| Message::new(TOPIC, body).tag(body));
    let receipt = producer.send_batch(&messages).await.expect("sent");
    assert_eq!(receipt.message_id.split(',').count(), 3);
    let consumer = PullConsumer::builder([cluster.name_server_addr()], "cg").start().await;
    let consumer = consumer.expect("started");
    let queues = consumer.queues(TOPIC).await.expect("route");
    consumer.assign(queues, StartFrom::First).await.expect("assigned");
    let read = consumer.poll(Duration::from_secs(10)).await;
    let bodies = read.iter().map(|m| String::from_utf8_lossy(&m.body)).collect::<Vec<_>>();
    assert_eq!(bodies, ["one", "two", "three"]);
    let ids = read.iter().map(|m| m.message_id()).collect::<Vec<_>>().join(",");
    assert_eq!(ids, receipt.message_id);
}

#[tokio::test]
async fn a_large_body_travels_compressed_and_arrives_as_it_was() {
    let cluster = cluster(1, 1);
    let producer = producer(&cluster).await;
    let body = "lamp ".repeat(100_000);
    producer.send(Message::new(TOPIC, body.clone())).await.expect("sent");
    let consumer = PullConsumer::builder([cluster.name_server_addr()], "cg").start().await;
    let consumer = consumer.expect("started");
    let queues = consumer.queues(TOPIC).await.expect("route");
    consumer.assign(queues, StartFrom::First).await.expect("assigned");
    let before = producer_bytes(&cluster);
    assert!(before < 100_000, "{before} bytes were sent");
    let read = consumer.poll(Duration::from_secs(10)).await;
    assert_eq!(read.len(), 1);
    assert_eq!(read[0].body, body.as_bytes());
}

fn producer_bytes(cluster: &common::Cluster) -> u64 {
    cluster.brokers[0].server.counters().snapshot().bytes_in
}

#[tokio::test]
async fn one_way_sends_arrive_and_queues_of_choice_keep_order() {
    let cluster = cluster(2, 2);
    let producer = producer(&cluster).await;
    producer.send_oneway(Message::new(TOPIC, "x")).await.expect("sent");
    eventually("stored", || cluster.stored(TOPIC) == 1).await;
    let queues = producer.queues(TOPIC).await.expect("route");
    for n in 0..5 {
        let receipt = producer.send_to(&queues[3], Message::new(TOPIC, format!("{n}"))).await;
        assert_eq!(receipt.expect("sent").queue, queues[3]);
    }
}

#[tokio::test]
async fn the_next_name_server_is_asked_when_one_is_gone() {
    let cluster = cluster(1, 1);
    // Nothing listens on the discard port.
    let names = ["127.0.0.1:9".to_owned(), cluster.name_server_addr(), "127.0.0.1:9".to_owned()];
    for _ in 0..4 {
        let producer = Producer::builder(names.clone(), "pg").start().await.expect("started");
        producer.send(Message::new(TOPIC, "x")).await.expect("sent");
        producer.shutdown().await;
    }
    let nobody = Producer::builder(["127.0.0.1:9"], "pg").start().await.expect("started");
    let error = nobody.send(Message::new(TOPIC, "x")).await.expect_err("no name server");
    assert!(error.to_string().contains("127.0.0.1:9"), "{error}");
}
