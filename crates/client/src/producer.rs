//! The producer: chooses a queue, sends, and tries other brokers when one fails.
//!
//! A send is tried up to three times within its timeout, each time at another broker if the topic has one,
//! when the broker cannot be reached, does not answer, or answers a code that another broker may not answer
//! (RocketMQ's default set). A message may then be stored twice; its [`SendReceipt::message_id`] stays.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rocketmq_protocol::body::{HeartbeatData, MessageQueue, ProducerData};
use rocketmq_protocol::code::ResponseCode;
use rocketmq_protocol::names;

use crate::error::ClientError;
use crate::member::{Member, StopOnDrop};
use crate::message::Message;
use crate::namesrv::NameServers;
use crate::route::Route;
use crate::send::Outgoing;

/// How a producer works; see [`Producer::builder`].
#[derive(Debug, Clone)]
pub struct ProducerBuilder {
    name_servers: Vec<String>,
    pub(crate) group: String,
    pub(crate) send_timeout: Duration,
    pub(crate) retries: usize,
    pub(crate) compress_over_bytes: usize,
    pub(crate) new_topic_queues: i32,
}

impl ProducerBuilder {
    /// How long one send may take, all tries together (sendMsgTimeout). 3 s unless set.
    #[must_use]
    pub fn send_timeout(mut self, timeout: Duration) -> Self {
        self.send_timeout = timeout;
        self
    }

    /// Further tries after a failed one (retryTimesWhenSendFailed). 2 unless set.
    #[must_use]
    pub fn retries(mut self, retries: usize) -> Self {
        self.retries = retries;
        self
    }

    /// Bodies larger than this are compressed (compressMsgBodyOverHowmuch). 4096 unless set.
    #[must_use]
    pub fn compress_over_bytes(mut self, bytes: usize) -> Self {
        self.compress_over_bytes = bytes;
        self
    }

    /// Queues that a topic gets when sending creates it (defaultTopicQueueNums). 4 unless set.
    #[must_use]
    pub fn new_topic_queues(mut self, queues: i32) -> Self {
        self.new_topic_queues = queues;
        self
    }

    /// Starts the producer. Connects on the first send.
    ///
    /// # Errors
    /// When a name server address or the group's name is wrong.
    pub async fn start(self) -> Result<Producer, ClientError> {
        names::validate_group(&self.group)?;
        let name_servers = NameServers::new(&self.name_servers)?;
        let member = Arc::new(Member::new(name_servers, None, true).await);
        member.set_heartbeat(HeartbeatData {
            producer_data_set: vec![ProducerData { group_name: self.group.clone() }],
            ..HeartbeatData::default()
        });
        member.start();
        let next_queue = AtomicUsize::new(rand::random_range(0..1024));
        let guard = StopOnDrop(member.clone());
        let inner = Inner { settings: self, member, next_queue, _guard: guard };
        Ok(Producer { inner: Arc::new(inner) })
    }
}

/// Sends messages. A clone is the same producer.
#[derive(Debug, Clone)]
pub struct Producer {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    settings: ProducerBuilder,
    member: Arc<Member>,
    next_queue: AtomicUsize,
    _guard: StopOnDrop,
}

/// How far the broker got with a message that it has stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendStatus {
    /// Stored as the broker's flush and replication settings demand.
    SendOk,
    /// Stored, but not flushed to disk in time.
    FlushDiskTimeout,
    /// Stored, but not replicated in time.
    FlushSlaveTimeout,
    /// Stored, but there was no replica to replicate to.
    SlaveNotAvailable,
}

impl SendStatus {
    /// The status of a response code that means "stored"; `None` for every other.
    pub(crate) fn from_code(code: ResponseCode) -> Option<Self> {
        match code {
            ResponseCode::SUCCESS => Some(Self::SendOk),
            ResponseCode::FLUSH_DISK_TIMEOUT => Some(Self::FlushDiskTimeout),
            ResponseCode::FLUSH_SLAVE_TIMEOUT => Some(Self::FlushSlaveTimeout),
            ResponseCode::SLAVE_NOT_AVAILABLE => Some(Self::SlaveNotAvailable),
            _ => None,
        }
    }
}

/// What became of a sent message or batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendReceipt {
    /// How far the broker got.
    pub status: SendStatus,
    /// The id that this client gave the message (UNIQ_KEY); of a batch, all ids joined by commas.
    pub message_id: String,
    /// The id that the broker gave; of a batch, all ids joined by commas.
    pub offset_message_id: String,
    /// Where it was stored.
    pub queue: MessageQueue,
    /// Its place in the queue; of a batch, that of the first message.
    pub queue_offset: i64,
}

impl Producer {
    /// Describes a producer; `name_servers` as in [`NameServers::new`].
    pub fn builder<S: Into<String>>(
        name_servers: impl IntoIterator<Item = S>,
        group: impl Into<String>,
    ) -> ProducerBuilder {
        ProducerBuilder {
            name_servers: name_servers.into_iter().map(Into::into).collect(),
            group: group.into(),
            send_timeout: Duration::from_secs(3),
            retries: 2,
            compress_over_bytes: 4096,
            new_topic_queues: 4,
        }
    }

    /// Sends a message to one of its topic's queues in turn, and waits until the broker has stored it.
    ///
    /// # Errors
    /// When the message breaks a rule, the topic does not exist and cannot be created, or every try failed;
    /// then the last failure. After a timeout the message may be stored nevertheless.
    pub async fn send(&self, message: Message) -> Result<SendReceipt, ClientError> {
        let outgoing = Outgoing::single(&self.inner.settings, &self.inner.member.id, &message)?;
        self.send_with_retries(outgoing).await
    }

    /// Sends messages of one topic as one batch, to one queue: stored all or none, with neighbouring
    /// offsets.
    ///
    /// # Errors
    /// As [`Producer::send`]; also when topics or `wait_store_ok` differ, a message is delayed, or all
    /// together exceed the largest message.
    pub async fn send_batch(&self, messages: &[Message]) -> Result<SendReceipt, ClientError> {
        let outgoing = Outgoing::batch(&self.inner.settings, &self.inner.member.id, messages)?;
        self.send_with_retries(outgoing).await
    }

    /// Sends a message to a queue of the caller's choice, with one try. Messages to one queue, each sent
    /// after the one before was stored, are received in that order.
    ///
    /// # Errors
    /// As [`Producer::send`].
    pub async fn send_to(
        &self,
        queue: &MessageQueue,
        message: Message,
    ) -> Result<SendReceipt, ClientError> {
        let Inner { settings, member, .. } = &*self.inner;
        let outgoing = Outgoing::single(settings, &member.id, &message)?;
        let route = self.publish_route(&message.topic).await?;
        let addr = route.master_addr(&queue.broker_name).ok_or_else(|| ClientError::NoBroker {
            broker_name: queue.broker_name.clone(),
            topic: message.topic.clone(),
        })?;
        outgoing.send(&member.client, addr, queue, settings.send_timeout).await
    }

    /// Sends a message without waiting for, or learning of, the outcome.
    ///
    /// # Errors
    /// When the message breaks a rule or cannot even be handed to a connection.
    pub async fn send_oneway(&self, message: Message) -> Result<(), ClientError> {
        let Inner { settings, member, .. } = &*self.inner;
        let outgoing = Outgoing::single(settings, &member.id, &message)?;
        let route = self.publish_route(&message.topic).await?;
        let (queue, addr) = self.choose_queue(&message.topic, &route, None)?;
        outgoing.send_oneway(&member.client, addr, queue).await
    }

    /// The queues of a topic that may be written, in RocketMQ's order; for [`Producer::send_to`].
    ///
    /// # Errors
    /// When the topic does not exist.
    pub async fn queues(&self, topic: &str) -> Result<Vec<MessageQueue>, ClientError> {
        Ok(self.publish_route(topic).await?.write_queues.clone())
    }

    /// The id under which brokers know this producer.
    pub fn client_id(&self) -> &str {
        &self.inner.member.id.text
    }

    /// Leaves the group and closes all connections. Sends in progress fail.
    pub async fn shutdown(&self) {
        let Inner { settings, member, .. } = &*self.inner;
        member.unregister(Some(&settings.group), None).await;
        member.shutdown().await;
    }

    async fn send_with_retries(&self, outgoing: Outgoing) -> Result<SendReceipt, ClientError> {
        let Inner { settings, member, .. } = &*self.inner;
        let until = Instant::now() + settings.send_timeout;
        let topic = outgoing.topic();
        let mut failed_broker = None;
        let mut tries_left = settings.retries;
        loop {
            let route = self.publish_route(topic).await?;
            let (queue, addr) = self.choose_queue(topic, &route, failed_broker.as_deref())?;
            let left = until.saturating_duration_since(Instant::now());
            let error = match outgoing.send(&member.client, addr, queue, left).await {
                Ok(receipt) => return Ok(receipt),
                Err(error) => error,
            };
            let time_is_left = until > Instant::now();
            if tries_left == 0 || !time_is_left || !worth_another_try(&error) {
                return Err(error);
            }
            tries_left -= 1;
            failed_broker = Some(queue.broker_name.clone());
            // The broker may have gone; a stale route would lead there again.
            if error.response_code().is_none() {
                let _ = member.fetch_route(topic).await;
            }
        }
    }

    /// The topic's route; for a topic that does not exist, the route of the topic by which brokers create
    /// others (RocketMQ's MQClientInstance.updateTopicRouteInfoFromNameServer).
    async fn publish_route(&self, topic: &str) -> Result<Arc<Route>, ClientError> {
        let Inner { settings, member, .. } = &*self.inner;
        if let Some(route) = member.routes.known(topic)
            && !route.write_queues.is_empty()
        {
            return Ok(route);
        }
        match member.fetch_route(topic).await {
            Err(unknown @ ClientError::TopicNotFound { .. }) => {
                let Ok(creating) = member
                    .name_servers
                    .topic_route(&member.client, names::AUTO_CREATE_TOPIC, settings.send_timeout)
                    .await
                else {
                    return Err(unknown);
                };
                let mut creating = creating;
                for queues in &mut creating.queue_datas {
                    let count = settings.new_topic_queues.min(queues.read_queue_nums);
                    (queues.read_queue_nums, queues.write_queue_nums) = (count, count);
                }
                Ok(member.routes.insert(topic, Route::from_data(topic, &creating)))
            }
            fetched => fetched,
        }
    }

    /// The next queue in turn, at another broker than the failed one where possible, and its address.
    fn choose_queue<'r>(
        &self,
        topic: &str,
        route: &'r Route,
        failed_broker: Option<&str>,
    ) -> Result<(&'r MessageQueue, &'r str), ClientError> {
        let turn = self.inner.next_queue.fetch_add(1, Relaxed);
        let count = route.write_queues.len();
        let in_turn = (0..count).map(|step| &route.write_queues[turn.wrapping_add(step) % count]);
        let other = |queue: &&MessageQueue| Some(queue.broker_name.as_str()) != failed_broker;
        let queue = in_turn.clone().find(other).or_else(|| in_turn.clone().next());
        let queue = queue
            .ok_or_else(|| ClientError::NoQueue { topic: topic.to_owned(), wanted: "writable" })?;
        let addr = route.master_addr(&queue.broker_name).ok_or_else(|| ClientError::NoBroker {
            broker_name: queue.broker_name.clone(),
            topic: topic.to_owned(),
        })?;
        Ok((queue, addr))
    }
}

/// Codes that another broker may not answer (retryResponseCodes of RocketMQ's DefaultMQProducer).
const RETRY_CODES: [ResponseCode; 8] = [
    ResponseCode::TOPIC_NOT_EXIST,
    ResponseCode::SERVICE_NOT_AVAILABLE,
    ResponseCode::SYSTEM_ERROR,
    ResponseCode::SYSTEM_BUSY,
    ResponseCode::NO_PERMISSION,
    ResponseCode::NO_BUYER_ID,
    ResponseCode::NOT_IN_CURRENT_UNIT,
    ResponseCode::GO_AWAY,
];

fn worth_another_try(error: &ClientError) -> bool {
    use rocketmq_remoting::CallError;
    match error {
        ClientError::Call(CallError::Refused { code, .. }) => RETRY_CODES.contains(code),
        ClientError::Call(CallError::ShutDown { .. }) => false,
        ClientError::Call(_) => true,
        _ => false,
    }
}
