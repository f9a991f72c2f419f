//! Topics: at brokers, which keep them, and at name servers, which route to them.

use std::collections::BTreeMap;

use rocketmq_protocol::body::group::GroupList;
use rocketmq_protocol::body::route::{TopicList, TopicRouteData};
use rocketmq_protocol::body::topic::{TopicConfig, TopicConfigSerializeWrapper, TopicStatsTable};
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::header::route::{DeleteTopicInNamesrvRequest, GetTopicsByClusterRequest};
use rocketmq_protocol::header::topic::{
    DeleteTopicRequest, GetTopicConfigRequest, GetTopicStatsInfoRequest,
    QueryTopicConsumeByWhoRequest, UpdateAndCreateTopicRequest,
};
use rocketmq_protocol::names;
use rocketmq_remoting::Request;

use super::Admin;
use crate::error::ClientError;
use crate::namesrv::{read_route, route_request};

/// The request that creates or changes a topic. Attributes are sent as RocketMQ wants changes of them,
/// `+key=value`; none at all keep what is there.
pub fn topic_request(config: &TopicConfig) -> Request {
    let attributes =
        config.attributes.iter().map(|(k, v)| format!("+{k}={v}")).collect::<Vec<_>>().join(",");
    Request::new(RequestCode::UPDATE_AND_CREATE_TOPIC).with_header(&UpdateAndCreateTopicRequest {
        topic: config.topic_name.as_str().into(),
        default_topic: Some(names::AUTO_CREATE_TOPIC.into()),
        read_queue_nums: config.read_queue_nums,
        write_queue_nums: config.write_queue_nums,
        perm: config.perm,
        topic_filter_type: config.topic_filter_type.as_str().into(),
        topic_sys_flag: Some(config.topic_sys_flag),
        order: config.order,
        attributes: (!attributes.is_empty()).then(|| attributes.into()),
        force: None,
    })
}

impl Admin {
    /// Where a topic is.
    ///
    /// # Errors
    /// [`ClientError::TopicNotFound`] when the name server does not know it.
    pub async fn topic_route(&self, topic: &str) -> Result<TopicRouteData, ClientError> {
        self.name_servers.topic_route(&self.client, topic, self.timeout).await
    }

    /// Where a topic is, as the name server at `addr` knows it.
    ///
    /// # Errors
    /// [`ClientError::TopicNotFound`] when it does not know it.
    pub async fn topic_route_at(
        &self,
        addr: &str,
        topic: &str,
    ) -> Result<TopicRouteData, ClientError> {
        read_route(topic, self.call(addr, route_request(topic)).await?)
    }

    /// All topics that a name server knows, sorted.
    ///
    /// # Errors
    /// When no name server answers, or it does not allow the list.
    pub async fn topic_list(&self) -> Result<Vec<String>, ClientError> {
        let request = Request::new(RequestCode::GET_ALL_TOPIC_LIST_FROM_NAMESERVER);
        Ok(sorted(self.namesrv_json::<TopicList>(request).await?))
    }

    /// All topics of a cluster, sorted; none for an unknown cluster.
    ///
    /// # Errors
    /// When no name server answers, or it does not allow the list.
    pub async fn topics_of_cluster(&self, cluster: &str) -> Result<Vec<String>, ClientError> {
        let request = Request::new(RequestCode::GET_TOPICS_BY_CLUSTER)
            .with_header(&GetTopicsByClusterRequest { cluster: cluster.into() });
        Ok(sorted(self.namesrv_json::<TopicList>(request).await?))
    }

    /// Topics that a broker reserves for itself, sorted.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub async fn system_topics(&self, addr: &str) -> Result<Vec<String>, ClientError> {
        let request = Request::new(RequestCode::GET_SYSTEM_TOPIC_LIST_FROM_BROKER);
        Ok(sorted(self.json::<TopicList>(addr, request).await?))
    }

    /// Creates a topic at a broker, or changes it.
    ///
    /// # Errors
    /// When the broker refuses the name or a value.
    pub async fn create_topic(&self, addr: &str, config: &TopicConfig) -> Result<(), ClientError> {
        names::validate_topic(&config.topic_name)?;
        self.ok(addr, topic_request(config)).await.map(drop)
    }

    /// Every topic of a broker, by name.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub async fn all_topic_config(
        &self,
        addr: &str,
    ) -> Result<BTreeMap<String, TopicConfig>, ClientError> {
        let request = Request::new(RequestCode::GET_ALL_TOPIC_CONFIG);
        Ok(self.json::<TopicConfigSerializeWrapper>(addr, request).await?.topic_config_table)
    }

    /// One topic of a broker; `None` when the broker does not have it.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub async fn topic_config(
        &self,
        addr: &str,
        topic: &str,
    ) -> Result<Option<TopicConfig>, ClientError> {
        let request = Request::new(RequestCode::GET_TOPIC_CONFIG)
            .with_header(&GetTopicConfigRequest { topic: topic.into() });
        let answer = self.call(addr, request).await?;
        if answer.code == ResponseCode::REQUEST_CODE_NOT_SUPPORTED {
            // A 4.9 broker.
            return Ok(self.all_topic_config(addr).await?.remove(topic));
        }
        if answer.code == ResponseCode::TOPIC_NOT_EXIST {
            return Ok(None);
        }
        Ok(Some(answer.into_ok()?.json()?))
    }

    /// Bounds of a topic's queues at a broker; `None` when the broker does not have the topic.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub async fn topic_stats(
        &self,
        addr: &str,
        topic: &str,
    ) -> Result<Option<TopicStatsTable>, ClientError> {
        let request = Request::new(RequestCode::GET_TOPIC_STATS_INFO)
            .with_header(&GetTopicStatsInfoRequest { topic: topic.into() });
        let answer = self.call(addr, request).await?;
        if answer.code == ResponseCode::TOPIC_NOT_EXIST {
            return Ok(None);
        }
        Ok(Some(answer.into_ok()?.json()?))
    }

    /// Deletes a topic at a broker, with its queues and offsets. Not an error when it is not there.
    ///
    /// # Errors
    /// When the broker does not answer, or the topic is a system topic.
    pub async fn delete_topic_in_broker(&self, addr: &str, topic: &str) -> Result<(), ClientError> {
        let request = Request::new(RequestCode::DELETE_TOPIC_IN_BROKER)
            .with_header(&DeleteTopicRequest { topic: topic.into() });
        self.ok(addr, request).await.map(drop)
    }

    /// Deletes a topic's route in every name server, or only what `cluster` has of it.
    ///
    /// # Errors
    /// When one of them does not answer; the others have deleted it all the same.
    pub async fn delete_topic_in_namesrv(
        &self,
        topic: &str,
        cluster: Option<&str>,
    ) -> Result<(), ClientError> {
        self.every_namesrv(delete_route_request(topic, cluster)).await.map(drop)
    }

    /// Deletes a topic's route in the name server at `addr`.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn delete_topic_at_namesrv(
        &self,
        addr: &str,
        topic: &str,
        cluster: Option<&str>,
    ) -> Result<(), ClientError> {
        self.ok(addr, delete_route_request(topic, cluster)).await.map(drop)
    }

    /// Groups that consume a topic at a broker, or have offsets for it; sorted.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub async fn groups_of_topic(
        &self,
        addr: &str,
        topic: &str,
    ) -> Result<Vec<String>, ClientError> {
        let request = Request::new(RequestCode::QUERY_TOPIC_CONSUME_BY_WHO)
            .with_header(&QueryTopicConsumeByWhoRequest { topic: topic.into() });
        let mut groups = self.json::<GroupList>(addr, request).await?.group_list;
        groups.sort_unstable();
        Ok(groups)
    }
}

fn delete_route_request(topic: &str, cluster: Option<&str>) -> Request {
    Request::new(RequestCode::DELETE_TOPIC_IN_NAMESRV).with_header(&DeleteTopicInNamesrvRequest {
        topic: topic.into(),
        cluster_name: cluster.map(Into::into),
    })
}

fn sorted(list: TopicList) -> Vec<String> {
    let mut topics = list.topic_list;
    topics.sort_unstable();
    topics
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_sent_as_changes() {
        let attributes = [("message.type", "FIFO"), ("queue.type", "SimpleCQ")];
        let config = TopicConfig {
            topic_name: "T".to_owned(),
            attributes: attributes.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            ..TopicConfig::default()
        };
        let field = |request: &Request, name: &str| {
            request.ext.iter().find(|(k, _)| k == name).map(|(_, v)| v.clone())
        };
        let request = topic_request(&config);
        let expected = "+message.type=FIFO,+queue.type=SimpleCQ";
        assert_eq!(field(&request, "attributes").as_deref(), Some(expected));
        assert_eq!(field(&request, "readQueueNums").as_deref(), Some("16"));
        assert_eq!(field(&topic_request(&TopicConfig::default()), "attributes"), None);
    }
}
