//! A consumer of queues and offsets of one's own choice, in no group's rebalance.
//!
//! It names a group, since brokers keep offsets and permissions by group, but does not become a member: it
//! takes no queue from the group's members and does not appear among them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rocketmq_protocol::body::MessageQueue;
use rocketmq_protocol::names;
use rocketmq_protocol::subscription::{SUB_ALL, SubscriptionData};

use crate::client_id::now_ms;
use crate::error::ClientError;
use crate::member::{Member, StopOnDrop};
use crate::message::ReceivedMessage;
use crate::namesrv::NameServers;
use crate::pulling::{PullSettings, Pulling, StartFrom};
use crate::route::MASTER_ID;

/// How a pull consumer works; see [`PullConsumer::builder`].
#[derive(Debug, Clone)]
pub struct PullConsumerBuilder {
    name_servers: Vec<String>,
    group: String,
    expression: String,
    batch_messages_max: i32,
    suspend: Duration,
}

impl PullConsumerBuilder {
    /// Takes only messages with one of these tags, joined by `||`. All unless set.
    #[must_use]
    pub fn filter(mut self, expression: impl Into<String>) -> Self {
        self.expression = expression.into();
        self
    }

    /// Messages of one pull (pullBatchSize). 32 unless set.
    #[must_use]
    pub fn batch_messages_max(mut self, messages: i32) -> Self {
        self.batch_messages_max = messages;
        self
    }

    /// How long a broker may hold a pull that finds nothing. 20 s unless set.
    #[must_use]
    pub fn long_pull(mut self, suspend: Duration) -> Self {
        self.suspend = suspend;
        self
    }

    /// Starts the consumer, without any queue.
    ///
    /// # Errors
    /// When a name server address, the group's name or the filter is wrong.
    pub async fn start(self) -> Result<PullConsumer, ClientError> {
        names::validate_group(&self.group)?;
        SubscriptionData::from_tags("", &self.expression, 0)?;
        let name_servers = NameServers::new(&self.name_servers)?;
        let member = Arc::new(Member::new(name_servers, None, false).await);
        member.start_refreshing();
        let settings = PullSettings {
            batch_messages_max: self.batch_messages_max,
            suspend: self.suspend,
            commit_with_pull: false,
        };
        let guard = StopOnDrop(member.clone());
        let pulling = Arc::new(Pulling::new(member, self.group, settings));
        Ok(PullConsumer { pulling, expression: self.expression, _guard: guard })
    }
}

/// Reads queues. Dropping it stops it without committing.
#[derive(Debug)]
pub struct PullConsumer {
    pulling: Arc<Pulling>,
    expression: String,
    _guard: StopOnDrop,
}

impl PullConsumer {
    /// Describes a consumer; `name_servers` as in [`NameServers::new`].
    pub fn builder<S: Into<String>>(
        name_servers: impl IntoIterator<Item = S>,
        group: impl Into<String>,
    ) -> PullConsumerBuilder {
        PullConsumerBuilder {
            name_servers: name_servers.into_iter().map(Into::into).collect(),
            group: group.into(),
            expression: SUB_ALL.to_owned(),
            batch_messages_max: 32,
            suspend: Duration::from_secs(20),
        }
    }

    /// The queues of a topic that may be read, in RocketMQ's order, asked of a name server now.
    ///
    /// # Errors
    /// [`ClientError::TopicNotFound`], or when no name server answers.
    pub async fn queues(&self, topic: &str) -> Result<Vec<MessageQueue>, ClientError> {
        Ok(self.pulling.member.fetch_route(topic).await?.read_queues.clone())
    }

    /// Reads exactly these queues from now on. Those that are new begin at `from`; those that were read
    /// before go on where they are.
    ///
    /// # Errors
    /// When the filter is wrong.
    pub async fn assign(
        &self,
        queues: impl IntoIterator<Item = MessageQueue>,
        from: StartFrom,
    ) -> Result<(), ClientError> {
        self.assign_from(queues, from, false).await
    }

    /// Like [`PullConsumer::assign`], but new queues begin where the group's committed offset is, and at
    /// `otherwise` only where there is none.
    ///
    /// # Errors
    /// When the filter is wrong.
    pub async fn resume(
        &self,
        queues: impl IntoIterator<Item = MessageQueue>,
        otherwise: StartFrom,
    ) -> Result<(), ClientError> {
        self.assign_from(queues, otherwise, true).await
    }

    async fn assign_from(
        &self,
        queues: impl IntoIterator<Item = MessageQueue>,
        from: StartFrom,
        stored_first: bool,
    ) -> Result<(), ClientError> {
        let wanted = queues.into_iter().collect::<BTreeSet<_>>();
        let mut gone = self.pulling.assigned();
        gone.retain(|queue| !wanted.contains(queue));
        self.pulling.stop(&gone).await;
        for queue in wanted {
            let subscription =
                SubscriptionData::from_tags(&queue.topic, &self.expression, now_ms())?;
            self.pulling.assign(queue, Arc::new(subscription), from, stored_first);
        }
        Ok(())
    }

    /// Reads an assigned queue from another place. Messages polled before are not affected.
    ///
    /// # Errors
    /// When the filter is wrong.
    pub async fn seek(&self, queue: &MessageQueue, to: StartFrom) -> Result<(), ClientError> {
        let subscription = SubscriptionData::from_tags(&queue.topic, &self.expression, now_ms())?;
        self.pulling.stop(std::slice::from_ref(queue)).await;
        self.pulling.assign(queue.clone(), Arc::new(subscription), to, false);
        Ok(())
    }

    /// Waits for messages of any assigned queue, in order within it; none when the time is over. Failing
    /// pulls are logged and tried again meanwhile.
    pub async fn poll(&self, timeout: Duration) -> Vec<ReceivedMessage> {
        match tokio::time::timeout(timeout, self.pulling.receive()).await {
            Ok(Some(batch)) => batch.into_messages(),
            _ => Vec::new(),
        }
    }

    /// Offset of the next message that [`PullConsumer::poll`] will return of a queue; `None` when it is not
    /// assigned or its beginning is not known yet.
    pub fn position(&self, queue: &MessageQueue) -> Option<i64> {
        let positions = self.pulling.positions();
        positions.into_iter().find(|(own, _)| own == queue).map(|(_, position)| position)
    }

    /// The group's committed offset of a queue.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub async fn committed(&self, queue: &MessageQueue) -> Result<Option<i64>, ClientError> {
        let addr = self.pulling.broker_addr(queue, MASTER_ID).await?;
        self.pulling.stored_offset(queue, &addr).await
    }

    /// Makes the positions of all assigned queues the group's committed offsets.
    ///
    /// # Errors
    /// When a broker does not confirm; the others are committed all the same.
    pub async fn commit(&self) -> Result<(), ClientError> {
        self.pulling.commit(true).await
    }

    /// Stops reading and closes all connections, without committing.
    pub async fn shutdown(self) {
        self.pulling.member.shutdown().await;
    }
}
