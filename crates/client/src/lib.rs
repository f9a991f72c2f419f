//! RocketMQ client: producer, consumers, administrative calls.
//!
//! ```no_run
//! # async fn example() -> Result<(), rocketmq_client::ClientError> {
//! use rocketmq_client::{GroupConsumer, Message, Producer};
//!
//! let producer = Producer::builder(["127.0.0.1:9876"], "orders-producer").start().await?;
//! let receipt = producer.send(Message::new("Orders", "one lamp").tag("new")).await?;
//! println!("stored as {} in {}", receipt.message_id, receipt.queue);
//! producer.shutdown().await;
//!
//! let consumer = GroupConsumer::builder(["127.0.0.1:9876"], "orders-shipping")
//!     .subscribe("Orders", "new || changed")
//!     .start()
//!     .await?;
//! while let Some(batch) = consumer.receive().await {
//!     for message in batch.messages() {
//!         println!("{:?}", message.body);
//!     }
//!     batch.ack();
//! }
//! # Ok(())
//! # }
//! ```
//!
//! - [`admin`]: typed administrative calls to name servers and brokers.
//! - [`producer`]: sends, with retries on other brokers.
//! - [`group_consumer`]: a member of a consumer group: queues are shared among the members.
//! - [`pull_consumer`]: reads queues of one's own choice from offsets of one's own choice.
//! - [`allocate`]: how a group's members divide queues.
//! - [`message`]: messages as sent and as received; [`compression`] of their bodies.
//! - [`namesrv`] and [`route`]: where topics are.
//!
//! Every call has a deadline; nothing is retried behind the caller's back except a producer's send and a
//! consumer's pulls, as their pages say.

#![forbid(unsafe_code)]

pub mod admin;
pub mod allocate;
mod client_id;
pub mod compression;
pub mod error;
pub mod group_consumer;

mod member;
pub mod message;
pub mod namesrv;
pub mod producer;
pub mod pull_consumer;
mod pulling;
pub mod route;
mod send;

pub use admin::Admin;
pub use error::ClientError;
pub use group_consumer::GroupConsumer;
pub use message::{Message, ReceivedMessage};
pub use namesrv::NameServers;
pub use producer::{Producer, SendReceipt, SendStatus};
pub use pull_consumer::PullConsumer;
pub use pulling::{Batch, StartFrom};
