//! Dividing queues among the group's members.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rocketmq_protocol::body::MessageQueue;
use rocketmq_protocol::body::consume::ConsumerIdList;
use rocketmq_protocol::code::RequestCode;
use rocketmq_protocol::header::client::GetConsumerListByGroupRequest;
use rocketmq_protocol::names;
use rocketmq_remoting::Request;
use tracing::{debug, info};

use super::Group;
use crate::error::ClientError;
use crate::route::Route;

/// Period of the division (rocketmq.client.rebalance.waitInterval).
const PERIOD: Duration = Duration::from_secs(20);
/// Least time between two divisions, and the period while one is incomplete.
const PERIOD_MIN: Duration = Duration::from_secs(1);

impl Group {
    /// A division that has begun is finished even when the member stops, so that no queue is given up
    /// without its progress committed.
    pub(super) async fn rebalance_until_stopped(self: Arc<Self>) {
        while !self.member.stop.is_cancelled() {
            let is_complete = self.rebalance().await;
            let wait = if is_complete { PERIOD } else { PERIOD_MIN };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.rebalance_wanted.notified() => {}
                () = self.member.stop.cancelled() => {}
            }
        }
    }

    /// Takes and gives up queues until this member has its share of each topic. False when a topic's route
    /// or members are not known yet.
    async fn rebalance(&self) -> bool {
        let mut is_complete = true;
        for topic in self.subscriptions.keys() {
            if let Err(error) = self.rebalance_topic(topic).await {
                debug!(group = self.name, topic, %error, "queues not divided");
                // The retry topic is made when it is first needed.
                is_complete &= names::is_retry_topic(topic);
            }
        }
        is_complete
    }

    async fn rebalance_topic(&self, topic: &str) -> Result<(), ClientError> {
        let Some(subscription) = self.subscriptions.get(topic) else { return Ok(()) };
        let known = self.member.routes.known(topic);
        let route = match known {
            Some(route) => route,
            None => {
                let route = self.member.fetch_route(topic).await?;
                // Its brokers may not know this member yet.
                self.member.heartbeat().await;
                route
            }
        };
        let ids = self.member_ids(topic, &route).await?;
        let own_id = &self.member.id.text;
        if !ids.contains(own_id) {
            self.member.heartbeat().await;
            return Err(ClientError::NoQueue { topic: topic.to_owned(), wanted: "own" });
        }
        let share = self.strategy.allocate(own_id, &route.read_queues, &ids);
        let share = share.into_iter().collect::<BTreeSet<_>>();
        let mut held = self.pulling.assigned();
        held.retain(|queue| queue.topic == topic);
        let gone = held.iter().filter(|queue| !share.contains(queue)).cloned().collect::<Vec<_>>();
        let new = share.into_iter().filter(|queue| !held.contains(queue)).collect::<Vec<_>>();
        if !gone.is_empty() || !new.is_empty() {
            info!(
                group = self.name,
                topic,
                members = ids.len(),
                taken = texts(&new),
                given_up = texts(&gone),
                "queues divided"
            );
        }
        self.pulling.revoke(&gone).await;
        for queue in new {
            self.pulling.assign(queue, subscription.clone(), self.from, true);
        }
        Ok(())
    }

    /// Ids of the members, from the first broker of the topic that tells them.
    async fn member_ids(&self, topic: &str, route: &Route) -> Result<Vec<String>, ClientError> {
        let request = Request::new(RequestCode::GET_CONSUMER_LIST_BY_GROUP).with_header(
            &GetConsumerListByGroupRequest { consumer_group: self.name.as_str().into() },
        );
        let mut failure = ClientError::NoQueue { topic: topic.to_owned(), wanted: "readable" };
        for name in route.brokers.keys() {
            let Some(addr) = route.broker_addr(name, crate::route::MASTER_ID) else { continue };
            let answer = self.member.call(addr, request.clone()).await;
            match answer.and_then(|answer| Ok(answer.into_ok()?.json::<ConsumerIdList>()?)) {
                Ok(list) => return Ok(list.consumer_id_list),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }
}

fn texts(queues: &[MessageQueue]) -> String {
    let texts = queues.iter().map(|q| format!("{}:{}", q.broker_name, q.queue_id));
    texts.collect::<Vec<_>>().join(" ")
}
