//! Sends messages to a topic and receives them as a member of a group:
//! `cargo run -p rocketmq-client --example roundtrip -- 127.0.0.1:9876 Orders 1000`

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rocketmq_client::{Admin, ClientError, GroupConsumer, Message, Producer, StartFrom};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), ClientError> {
    let mut args = std::env::args().skip(1);
    let name_server = args.next().unwrap_or_else(|| "127.0.0.1:9876".to_owned());
    let topic = args.next().unwrap_or_else(|| "Roundtrip".to_owned());
    let count = args.next().and_then(|n| n.parse().ok()).unwrap_or(1000);

    let producer = Producer::builder([&name_server], "roundtrip-producer").start().await?;
    let begun = Instant::now();
    let mut sent = BTreeSet::new();
    for n in 0..count {
        let message = Message::new(&topic, format!("message {n}")).tag("even-or-odd");
        sent.insert(producer.send(message).await?.message_id);
    }
    println!("sent {count} messages to {topic} in {} ms", begun.elapsed().as_millis());

    let begun = Instant::now();
    let consumer = GroupConsumer::builder([&name_server], "roundtrip-consumer")
        .subscribe(&topic, "even-or-odd")
        .start_from(StartFrom::First)
        .start()
        .await?;
    while !sent.is_empty() {
        let received = tokio::time::timeout(Duration::from_secs(60), consumer.receive()).await;
        let Ok(Some(batch)) = received else {
            println!("{} messages did not come within a minute", sent.len());
            std::process::exit(1);
        };
        for message in batch.messages() {
            sent.remove(&message.message_id());
        }
        batch.ack();
    }
    println!("received all of them in {} ms", begun.elapsed().as_millis());

    let admin = Admin::new([&name_server])?;
    for (broker, addr) in admin.masters(None).await? {
        if let Some(members) = admin.consumer_connection(&addr, "roundtrip-consumer").await? {
            println!("{broker} knows {} member(s)", members.connection_set.len());
        }
    }
    consumer.shutdown().await;
    producer.shutdown().await;
    Ok(())
}
