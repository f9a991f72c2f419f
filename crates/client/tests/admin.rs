//! Administrative calls against brokers in memory: what is read, and what a refusal becomes.

mod common;

use common::{TOPIC, cluster};
use rocketmq_client::{Admin, ClientError};
use rocketmq_protocol::body::TopicConfig;
use rocketmq_protocol::code::ResponseCode;

#[tokio::test]
async fn routes_clusters_and_configuration_are_read() {
    let cluster = cluster(2, 3);
    let admin = Admin::new([cluster.name_server_addr()]).expect("valid");
    let route = admin.topic_route(TOPIC).await.expect("route");
    assert_eq!(route.queue_datas.len(), 2);
    let unknown = admin.topic_route("Unknown").await;
    assert!(matches!(unknown, Err(ClientError::TopicNotFound { topic }) if topic == "Unknown"));
    let masters = admin.masters(Some("C")).await.expect("masters");
    assert_eq!(masters["a"], cluster.brokers[0].addr.to_string());
    assert!(admin.masters(Some("other")).await.expect("masters").is_empty());
    let config = admin.broker_config(&masters["a"]).await.expect("config");
    assert_eq!(config[1], ("listenPort".to_owned(), "10911".to_owned()));
}

#[tokio::test]
async fn offsets_are_read_and_written() {
    let cluster = cluster(1, 1);
    let admin = Admin::new([cluster.name_server_addr()]).expect("valid");
    let addr = cluster.brokers[0].addr.to_string();
    assert_eq!(admin.consumer_offset(&addr, "g", TOPIC, 0).await.expect("asked"), None);
    admin.update_consumer_offset(&addr, "g", TOPIC, 0, 9).await.expect("set");
    assert_eq!(admin.consumer_offset(&addr, "g", TOPIC, 0).await.expect("asked"), Some(9));
    assert_eq!(admin.max_offset(&addr, TOPIC, 0).await.expect("asked"), 0);
}

#[tokio::test]
async fn epochs_come_with_the_process_that_has_them() {
    let cluster = cluster(1, 1);
    let admin = Admin::new([cluster.name_server_addr()]).expect("valid");
    let addr = cluster.brokers[0].addr.to_string();
    let found = admin.broker_epochs(&addr).await.expect("epochs");
    assert_eq!((found.incarnation.as_str(), found.epochs.max_offset), ("uid:7", 150));
    let epochs: Vec<i32> = found.epochs.epoch_list.iter().map(|entry| entry.epoch).collect();
    assert_eq!(epochs, [1, 3]);
}

#[tokio::test]
async fn a_refusal_and_a_wrong_name_are_errors() {
    let cluster = cluster(1, 1);
    let admin = Admin::new([cluster.name_server_addr()]).expect("valid");
    let addr = cluster.brokers[0].addr.to_string();
    let config = TopicConfig { topic_name: "New".to_owned(), ..TopicConfig::default() };
    let refused = admin.create_topic(&addr, &config).await.expect_err("not in this broker");
    assert!(refused.is_refused_with(ResponseCode::REQUEST_CODE_NOT_SUPPORTED), "{refused}");
    assert!(refused.to_string().contains(&addr), "{refused}");
    let config = TopicConfig { topic_name: "a/b".to_owned(), ..TopicConfig::default() };
    let wrong = admin.create_topic(&addr, &config).await.expect_err("a slash");
    assert!(matches!(wrong, ClientError::Name(_)), "{wrong}");
}
