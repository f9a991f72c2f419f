use std::sync::atomic::{AtomicBool, Ordering};

use rocketmq_protocol::body::ProducerData;

use super::*;

#[derive(Debug)]
struct Fake {
    id: u64,
    closed: AtomicBool,
}

impl ClientConnection for Fake {
    fn id(&self) -> u64 {
        self.id
    }

    fn remote(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 1))
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }
}

struct Client(Arc<Fake>);

impl Client {
    fn new(id: u64) -> Self {
        Self(Arc::new(Fake { id, closed: AtomicBool::new(false) }))
    }

    fn beat(&self, table: &ClientTable<Fake>, heartbeat: HeartbeatData, at_ms: u64) -> Changes {
        let sender = Sender {
            connection: &self.0,
            language: LanguageCode::Java,
            version: 479,
            timestamp_ms: 0,
            monotonic_ms: at_ms,
        };
        table.heartbeat(&sender, heartbeat, |consumer| consumer.group_name != "forbidden")
    }
}

fn subscription(topic: &str, expression: &str, version: i64) -> SubscriptionData {
    SubscriptionData::from_tags(topic, expression, version).unwrap()
}

fn consumer(client: u64, group: &str, subscriptions: Vec<SubscriptionData>) -> HeartbeatData {
    HeartbeatData {
        client_id: format!("client-{client}"),
        consumer_data_set: vec![ConsumerData {
            group_name: group.into(),
            consume_type: ConsumeType::ConsumePassively,
            subscription_data_set: subscriptions,
            ..ConsumerData::default()
        }],
        ..HeartbeatData::default()
    }
}

fn groups(changes: &Changes) -> Vec<&str> {
    changes.groups.iter().map(String::as_str).collect()
}

#[test]
fn joining_and_changing_topics_is_news_an_expression_is_not() {
    let table = ClientTable::default();
    let (first, second) = (Client::new(1), Client::new(2));
    let beat = |client: &Client, id, topics: Vec<SubscriptionData>| {
        client.beat(&table, consumer(id, "g", topics), 0)
    };
    assert_eq!(groups(&beat(&first, 1, vec![subscription("T", "*", 1)])), ["g"]);
    assert!(beat(&first, 1, vec![subscription("T", "*", 1)]).groups.is_empty());
    assert!(beat(&first, 1, vec![subscription("T", "A", 2)]).groups.is_empty());
    let known = table.subscription("g", "T").unwrap().subscription.unwrap();
    assert_eq!((known.sub_string.as_str(), known.sub_version), ("A", 2));
    assert_eq!(*known.filter, TagFilter::new(&subscription("T", "A", 2)));
    // An older member's expression does not win over a newer one.
    assert_eq!(groups(&beat(&second, 2, vec![subscription("T", "*", 1)])), ["g"]);
    let known = table.subscription("g", "T").unwrap().subscription.unwrap();
    assert_eq!(known.sub_version, 2);
    assert_eq!(table.consumer_ids("g"), ["client-1", "client-2"]);
    let two = vec![subscription("T", "A", 2), subscription("U", "*", 1)];
    assert_eq!(groups(&beat(&first, 1, two)), ["g"]);
    assert_eq!(groups(&beat(&first, 1, vec![subscription("T", "A", 2)])), ["g"]);
    assert!(table.subscription("g", "U").unwrap().subscription.is_none());
    assert_eq!(table.groups_of_topic("T"), ["g"]);
}

#[test]
fn a_group_that_may_not_exist_is_skipped() {
    let table = ClientTable::default();
    let changes = Client::new(1).beat(&table, consumer(1, "forbidden", Vec::new()), 0);
    assert!(changes.groups.is_empty());
    assert!(!table.is_online("forbidden"));
    assert!(table.subscription("forbidden", "T").is_none());
}

#[test]
fn leaving_is_told_to_the_others_and_the_last_one_takes_the_group_along() {
    let table = ClientTable::default();
    let (first, second) = (Client::new(1), Client::new(2));
    first.beat(&table, consumer(1, "g", vec![subscription("T", "*", 1)]), 0);
    second.beat(&table, consumer(2, "g", vec![subscription("T", "*", 1)]), 0);
    assert_eq!(groups(&table.unregister(1, None, Some("g"))), ["g"]);
    assert!(table.unregister(1, None, Some("g")).groups.is_empty());
    assert_eq!(table.consumer_connections("g").len(), 1);
    assert_eq!(groups(&table.connection_closed(2)), ["g"]);
    assert!(!table.is_online("g"));
    assert!(table.groups_of_topic("T").is_empty());
}

#[test]
fn silent_clients_are_closed_and_removed() {
    let table = ClientTable::default();
    let (silent, alive) = (Client::new(1), Client::new(2));
    silent.beat(&table, consumer(1, "g", Vec::new()), 0);
    alive.beat(&table, consumer(2, "g", Vec::new()), 0);
    alive.beat(&table, consumer(2, "g", Vec::new()), 100);
    assert!(table.expire(120, 120).groups.is_empty(), "exactly the limit is not over it");
    assert_eq!(groups(&table.expire(121, 120)), ["g"]);
    assert!(silent.0.closed.load(Ordering::Relaxed));
    assert!(!alive.0.closed.load(Ordering::Relaxed));
    assert_eq!(table.consumer_ids("g"), ["client-2"]);
}

#[test]
fn one_client_over_two_connections_counts_once() {
    let table = ClientTable::default();
    Client::new(1).beat(&table, consumer(7, "g", Vec::new()), 0);
    Client::new(2).beat(&table, consumer(7, "g", Vec::new()), 0);
    assert_eq!(table.consumer_ids("g"), ["client-7"]);
    assert_eq!(table.consumer_connections("g").len(), 2);
    assert!(table.consumer("g", "client-7").is_some());
    assert!(table.consumer("g", "client-8").is_none());
}

#[test]
fn a_beat_without_subscriptions_keeps_them() {
    let table = ClientTable::default();
    let client = Client::new(1);
    let mut full = consumer(1, "g", vec![subscription("T", "*", 1)]);
    full.heartbeat_fingerprint = 5;
    let changes = client.beat(&table, full.clone(), 0);
    assert!(!changes.subscription_changed, "nothing was known before");
    let mut short = consumer(1, "g", Vec::new());
    short.heartbeat_fingerprint = 5;
    short.without_sub = true;
    let changes = client.beat(&table, short.clone(), 0);
    assert!(!changes.subscription_changed && changes.groups.is_empty());
    assert!(table.subscription("g", "T").unwrap().subscription.is_some());
    short.heartbeat_fingerprint = 6;
    assert!(client.beat(&table, short, 0).subscription_changed);
}

#[test]
fn producers_come_and_go() {
    let table = ClientTable::default();
    let client = Client::new(1);
    let heartbeat = HeartbeatData {
        client_id: "c".into(),
        producer_data_set: vec![ProducerData { group_name: "p".into() }],
        ..HeartbeatData::default()
    };
    client.beat(&table, heartbeat.clone(), 0);
    assert_eq!(table.producers("p").len(), 1);
    assert_eq!(table.count_producers().into_values().sum::<i64>(), 1);
    table.unregister(1, Some("p"), None);
    assert!(table.producers("p").is_empty());
    client.beat(&table, heartbeat, 0);
    table.connection_closed(1);
    assert!(table.all_producers().is_empty());
}

fn producer(client_id: &str, groups: &[&str]) -> HeartbeatData {
    let producer_data_set =
        groups.iter().map(|group| ProducerData { group_name: (*group).to_owned() }).collect();
    HeartbeatData { client_id: client_id.to_owned(), producer_data_set, ..HeartbeatData::default() }
}

#[test]
fn a_producer_is_found_by_its_id_until_it_left_its_last_group() {
    let table = ClientTable::default();
    let (old, new) = (Client::new(1), Client::new(2));
    old.beat(&table, producer("c", &["a", "b"]), 0);
    let found = |id: &str| table.producer_connection(id).map(|connection| connection.id);
    assert_eq!((found("c"), found("d")), (Some(1), None));
    table.unregister(1, Some("a"), None);
    assert_eq!(found("c"), Some(1), "it is still in b");
    // It came back over another connection, and then the first one ends.
    new.beat(&table, producer("c", &["a", "b"]), 5);
    table.connection_closed(1);
    assert_eq!(found("c"), Some(2));
    table.unregister(2, Some("a"), None);
    table.unregister(2, Some("b"), None);
    assert_eq!(found("c"), None);
    new.beat(&table, producer("c", &["a"]), 10);
    table.expire(1_000, 100);
    assert_eq!(found("c"), None);
    assert!(table.inner.read().producer_clients.is_empty());
}
