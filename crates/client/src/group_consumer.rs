//! A member of a consumer group in cluster mode: each message goes to one of the members.
//!
//! Owns membership: heart-beats with the subscription, the division of queues among the members every 20 s
//! and whenever the broker says that members came or went, and committing progress every 5 s. Pulling and the
//! order within a queue are in `pulling.rs`.
//!
//! A message may be received twice: after a member ended without committing, or when a queue moved to another
//! member before its batch was acknowledged.

mod rebalance;
mod requests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rocketmq_protocol::body::{ConsumerData, HeartbeatData, MessageQueue};
use rocketmq_protocol::code::RequestCode;
use rocketmq_protocol::header::send::ConsumerSendMsgBackRequest;
use rocketmq_protocol::names;
use rocketmq_protocol::subscription::{
    ConsumeFromWhere, ConsumeType, MessageModel, SUB_ALL, SubscriptionData,
};
use rocketmq_remoting::Request;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tracing::{debug, warn};

use crate::allocate::{AllocateStrategy, Average};
use crate::client_id::now_ms;
use crate::error::ClientError;
use crate::member::{Member, StopOnDrop};
use crate::message::ReceivedMessage;
use crate::namesrv::NameServers;
use crate::pulling::{Batch, PullSettings, Pulling, StartFrom};
use crate::route::MASTER_ID;
use requests::GroupRequests;

/// Period of committing progress (persistConsumerOffsetInterval).
const COMMIT_PERIOD: Duration = Duration::from_secs(5);

/// How a group consumer works; see [`GroupConsumer::builder`].
#[derive(Debug, Clone)]
pub struct GroupConsumerBuilder {
    name_servers: Vec<String>,
    group: String,
    subscriptions: Vec<(String, String)>,
    from: StartFrom,
    strategy: Arc<dyn AllocateStrategy>,
    batch_messages_max: i32,
    long_pull: Duration,
}

impl GroupConsumerBuilder {
    /// Subscribes to a topic: `*` for all messages, or tags joined by `||`. All members of a group must
    /// subscribe to the same.
    #[must_use]
    pub fn subscribe(mut self, topic: impl Into<String>, expression: impl Into<String>) -> Self {
        self.subscriptions.push((topic.into(), expression.into()));
        self
    }

    /// Where the group begins in a queue of which it has no offset yet (consumeFromWhere).
    /// [`StartFrom::Last`] unless set, as in Java.
    #[must_use]
    pub fn start_from(mut self, from: StartFrom) -> Self {
        self.from = from;
        self
    }

    /// How queues are divided; the same for all members. [`Average`] unless set.
    #[must_use]
    pub fn strategy(mut self, strategy: impl AllocateStrategy + 'static) -> Self {
        self.strategy = Arc::new(strategy);
        self
    }

    /// Messages of one batch (pullBatchSize). 32 unless set.
    #[must_use]
    pub fn batch_messages_max(mut self, messages: i32) -> Self {
        self.batch_messages_max = messages;
        self
    }

    /// How long a broker may hold a pull that finds nothing. 15 s unless set, as in Java.
    #[must_use]
    pub fn long_pull(mut self, suspend: Duration) -> Self {
        self.long_pull = suspend;
        self
    }

    /// Joins the group. Topics that do not exist yet are looked for again and again.
    ///
    /// # Errors
    /// When a name server address, a name or an expression is wrong, or nothing is subscribed.
    pub async fn start(self) -> Result<GroupConsumer, ClientError> {
        names::validate_group(&self.group)?;
        let subscriptions = self.subscription_data()?;
        let name_servers = NameServers::new(&self.name_servers)?;
        let rebalance_wanted = Arc::new(Notify::new());
        let handler = Arc::new(GroupRequests::new(self.group.clone(), rebalance_wanted.clone()));
        let member = Arc::new(Member::new(name_servers, Some(handler.clone()), false).await);
        member.set_heartbeat(HeartbeatData {
            consumer_data_set: vec![ConsumerData {
                consume_from_where: match self.from {
                    StartFrom::First | StartFrom::Offset(_) => {
                        ConsumeFromWhere::ConsumeFromFirstOffset
                    }
                    StartFrom::Last => ConsumeFromWhere::ConsumeFromLastOffset,
                    StartFrom::StoreTimeMs(_) => ConsumeFromWhere::ConsumeFromTimestamp,
                },
                consume_type: ConsumeType::ConsumePassively,
                group_name: self.group.clone(),
                message_model: MessageModel::Clustering,
                subscription_data_set: subscriptions.values().map(|s| (**s).clone()).collect(),
                unit_mode: false,
            }],
            ..HeartbeatData::default()
        });
        let settings = PullSettings {
            batch_messages_max: self.batch_messages_max,
            suspend: self.long_pull,
            commit_with_pull: true,
        };
        let guard = StopOnDrop(member.clone());
        let pulling = Arc::new(Pulling::new(member.clone(), self.group.clone(), settings));
        let group = Arc::new(Group {
            name: self.group,
            member: member.clone(),
            pulling,
            subscriptions,
            strategy: self.strategy,
            from: self.from,
            rebalance_wanted,
            started_ms: now_ms(),
        });
        handler.serve(&group);
        for topic in group.subscriptions.keys() {
            if let Err(error) = member.fetch_route(topic).await {
                debug!(topic, %error, "no route yet");
            }
        }
        member.heartbeat().await;
        member.start();
        let rebalancing = member.tasks.spawn(group.clone().rebalance_until_stopped());
        member.tasks.spawn(group.clone().commit_until_stopped());
        Ok(GroupConsumer { group, rebalancing, _guard: guard })
    }

    /// One entry per topic, with the group's retry topic, which every member subscribes to.
    fn subscription_data(&self) -> Result<BTreeMap<String, Arc<SubscriptionData>>, ClientError> {
        if self.subscriptions.is_empty() {
            return Err(ClientError::Setting {
                setting: "subscriptions",
                value: "empty".to_owned(),
                expected: "at least one topic",
            });
        }
        let retry = (names::retry_topic(&self.group), SUB_ALL.to_owned());
        let mut subscriptions = BTreeMap::new();
        for (topic, expression) in self.subscriptions.iter().chain([&retry]) {
            names::validate_topic(topic)?;
            let data = SubscriptionData::from_tags(topic, expression, now_ms())?;
            subscriptions.insert(topic.clone(), Arc::new(data));
        }
        Ok(subscriptions)
    }
}

/// A member of a consumer group. Dropping it stops it without committing;
/// [`GroupConsumer::shutdown`] leaves the group in order.
#[derive(Debug)]
pub struct GroupConsumer {
    group: Arc<Group>,
    rebalancing: JoinHandle<()>,
    _guard: StopOnDrop,
}

/// What the member's tasks share.
#[derive(Debug)]
struct Group {
    name: String,
    member: Arc<Member>,
    pulling: Arc<Pulling>,
    subscriptions: BTreeMap<String, Arc<SubscriptionData>>,
    strategy: Arc<dyn AllocateStrategy>,
    from: StartFrom,
    rebalance_wanted: Arc<Notify>,
    started_ms: i64,
}

impl GroupConsumer {
    /// Describes a consumer; `name_servers` as in [`NameServers::new`].
    pub fn builder<S: Into<String>>(
        name_servers: impl IntoIterator<Item = S>,
        group: impl Into<String>,
    ) -> GroupConsumerBuilder {
        GroupConsumerBuilder {
            name_servers: name_servers.into_iter().map(Into::into).collect(),
            group: group.into(),
            subscriptions: Vec::new(),
            from: StartFrom::Last,
            strategy: Arc::new(Average),
            batch_messages_max: 32,
            long_pull: Duration::from_secs(15),
        }
    }

    /// Waits for the next batch of any of this member's queues. Several tasks may wait at once; batches of
    /// different queues are then consumed side by side. `None` after [`GroupConsumer::shutdown`] has begun.
    pub async fn receive(&self) -> Option<Batch> {
        self.group.pulling.receive().await
    }

    /// Hands a message back to the broker, to be received again later, or never when it failed too often
    /// (CONSUMER_SEND_MSG_BACK). `delay_level` 0 lets the broker choose the delay, below 0 means the
    /// dead-letter queue. Acknowledge the batch afterwards.
    ///
    /// # Errors
    /// When the broker does not take it; do not acknowledge the batch then.
    pub async fn send_back(
        &self,
        message: &ReceivedMessage,
        delay_level: i32,
    ) -> Result<(), ClientError> {
        let addr = self.group.pulling.broker_addr(&message.queue, MASTER_ID).await?;
        let header = ConsumerSendMsgBackRequest {
            offset: message.physical_offset,
            group: self.group.name.as_str().into(),
            delay_level,
            origin_msg_id: Some(message.message_id().into()),
            origin_topic: Some(message.topic.as_str().into()),
            unit_mode: false,
            max_reconsume_times: None,
        };
        let request = Request::new(RequestCode::CONSUMER_SEND_MSG_BACK)
            .with_header(&header)
            .with_field("bname", &message.queue.broker_name);
        self.group.member.call(&addr, request).await?.into_ok()?;
        Ok(())
    }

    /// The queues that this member has now, sorted; the retry topic's among them.
    pub fn assigned(&self) -> Vec<MessageQueue> {
        self.group.pulling.assigned()
    }

    /// Offset of the next message to be acknowledged, by queue.
    pub fn positions(&self) -> BTreeMap<MessageQueue, i64> {
        self.group.pulling.positions().into_iter().collect()
    }

    /// The id under which brokers and members know this one.
    pub fn client_id(&self) -> &str {
        &self.group.member.id.text
    }

    /// Commits the progress of all queues now, rather than within 5 s.
    ///
    /// # Errors
    /// When a broker does not confirm; the others are committed all the same.
    pub async fn commit(&self) -> Result<(), ClientError> {
        self.group.pulling.commit(true).await
    }

    /// Leaves the group: stops pulling, waits a second for batches that are not acknowledged, commits,
    /// unregisters and closes all connections.
    pub async fn shutdown(self) {
        let Group { name, member, pulling, .. } = &*self.group;
        member.stop.cancel();
        if self.rebalancing.await.is_err() {
            warn!(group = name, "the rebalance task ended by a panic");
        }
        pulling.revoke(&pulling.assigned()).await;
        member.unregister(None, Some(name)).await;
        member.shutdown().await;
    }
}

impl Group {
    async fn commit_until_stopped(self: Arc<Self>) {
        let work = async {
            loop {
                tokio::time::sleep(COMMIT_PERIOD).await;
                if let Err(error) = self.pulling.commit(false).await {
                    debug!(group = self.name, %error, "progress not committed, it is tried again");
                }
            }
        };
        tokio::select! {
            () = self.member.stop.cancelled() => {}
            () = work => {}
        }
    }
}
