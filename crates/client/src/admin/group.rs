//! Consumer groups: settings, members, progress.

use std::collections::BTreeMap;

use rocketmq_protocol::body::consume::{
    ConsumeStats, ConsumerConnection, ConsumerIdList, ProducerConnection,
};
use rocketmq_protocol::body::group::{SubscriptionGroupConfig, SubscriptionGroupTable};
use rocketmq_protocol::body::route::TopicList;
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::header::client::{
    GetConsumerConnectionListRequest, GetConsumerListByGroupRequest,
    GetProducerConnectionListRequest,
};
use rocketmq_protocol::header::group::{
    DeleteSubscriptionGroupRequest, QueryTopicsByConsumerRequest,
};
use rocketmq_protocol::header::stats::GetConsumeStatsRequest;
use rocketmq_protocol::names;
use rocketmq_remoting::Request;

use super::Admin;
use crate::error::ClientError;

impl Admin {
    /// Creates a consumer group at a broker, or changes it.
    ///
    /// # Errors
    /// When the name breaks a rule or the broker refuses.
    pub async fn update_group(
        &self,
        addr: &str,
        config: &SubscriptionGroupConfig,
    ) -> Result<(), ClientError> {
        // The broker does not check the name, and a group with a wrong one cannot be used.
        names::validate_group(&config.group_name)?;
        let request =
            Request::new(RequestCode::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP).with_json(config);
        self.ok(addr, request).await.map(drop)
    }

    /// Every consumer group of a broker, by name.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub async fn all_groups(
        &self,
        addr: &str,
    ) -> Result<BTreeMap<String, SubscriptionGroupConfig>, ClientError> {
        let request = Request::new(RequestCode::GET_ALL_SUBSCRIPTIONGROUP_CONFIG);
        Ok(self.json::<SubscriptionGroupTable>(addr, request).await?.subscription_group_table)
    }

    /// One consumer group of a broker; `None` when the broker does not have it. Reads the whole table:
    /// brokers create a group that is asked for by name.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub async fn group_config(
        &self,
        addr: &str,
        group: &str,
    ) -> Result<Option<SubscriptionGroupConfig>, ClientError> {
        Ok(self.all_groups(addr).await?.remove(group))
    }

    /// Deletes a consumer group at a broker, with its offsets when `clean_offsets`.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub async fn delete_group(
        &self,
        addr: &str,
        group: &str,
        clean_offsets: bool,
    ) -> Result<(), ClientError> {
        let header = DeleteSubscriptionGroupRequest {
            group_name: group.into(),
            clean_offset: clean_offsets,
        };
        let request = Request::new(RequestCode::DELETE_SUBSCRIPTIONGROUP)
            .with_header(&header)
            // The name in 4.9.
            .with_field("removeOffset", clean_offsets);
        self.ok(addr, request).await.map(drop)
    }

    /// How far a group is at a broker, in one topic or in all of its topics. Empty for an unknown group or
    /// topic.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub async fn consume_stats(
        &self,
        addr: &str,
        group: &str,
        topic: Option<&str>,
    ) -> Result<ConsumeStats, ClientError> {
        let header = GetConsumeStatsRequest {
            consumer_group: group.into(),
            topic: topic.map(Into::into),
            topic_list: None,
        };
        self.json(addr, Request::new(RequestCode::GET_CONSUME_STATS).with_header(&header)).await
    }

    /// Members of a group that are connected to a broker, and their subscriptions; `None` when there is
    /// none.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub async fn consumer_connection(
        &self,
        addr: &str,
        group: &str,
    ) -> Result<Option<ConsumerConnection>, ClientError> {
        let request = Request::new(RequestCode::GET_CONSUMER_CONNECTION_LIST)
            .with_header(&GetConsumerConnectionListRequest { consumer_group: group.into() });
        let answer = self.call(addr, request).await?;
        if answer.code == ResponseCode::CONSUMER_NOT_ONLINE {
            return Ok(None);
        }
        Ok(Some(answer.into_ok()?.json()?))
    }

    /// Members of a producer group that are connected to a broker.
    ///
    /// # Errors
    /// When the broker does not answer, or knows no such group.
    pub async fn producer_connection(
        &self,
        addr: &str,
        group: &str,
    ) -> Result<ProducerConnection, ClientError> {
        let request = Request::new(RequestCode::GET_PRODUCER_CONNECTION_LIST)
            .with_header(&GetProducerConnectionListRequest { producer_group: group.into() });
        self.json(addr, request).await
    }

    /// Ids of a group's members that are connected to a broker, as members ask for them to divide queues.
    ///
    /// # Errors
    /// When the broker does not answer, or (code SYSTEM_ERROR) the group has no member there.
    pub async fn consumer_ids(&self, addr: &str, group: &str) -> Result<Vec<String>, ClientError> {
        let request = Request::new(RequestCode::GET_CONSUMER_LIST_BY_GROUP)
            .with_header(&GetConsumerListByGroupRequest { consumer_group: group.into() });
        Ok(self.json::<ConsumerIdList>(addr, request).await?.consumer_id_list)
    }

    /// Topics for which a group has offsets at a broker; sorted.
    ///
    /// # Errors
    /// When the broker does not answer or is older than 5.0.
    pub async fn topics_of_group(
        &self,
        addr: &str,
        group: &str,
    ) -> Result<Vec<String>, ClientError> {
        let request = Request::new(RequestCode::QUERY_TOPICS_BY_CONSUMER)
            .with_header(&QueryTopicsByConsumerRequest { group: group.into() });
        let mut topics = self.json::<TopicList>(addr, request).await?.topic_list;
        topics.sort_unstable();
        Ok(topics)
    }
}
