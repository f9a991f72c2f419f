//! Consumer group settings (`SubscriptionGroupConfig`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::DataVersion;
use crate::subscription::SubscriptionData;

/// Settings of a consumer group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubscriptionGroupConfig {
    /// Attributes (5.x).
    pub attributes: BTreeMap<String, String>,
    /// Broker to read from while consumers keep up; 0 is the master.
    pub broker_id: i64,
    /// Whether broadcast consumers may pull.
    pub consume_broadcast_enable: bool,
    /// Whether consumers may pull.
    pub consume_enable: bool,
    /// Whether a new group may begin at the oldest message.
    pub consume_from_min_enable: bool,
    /// Whether pop keeps order (5.x).
    pub consume_message_orderly: bool,
    /// How long a client may take for a message, in minutes (5.x).
    pub consume_timeout_minute: i32,
    /// The group.
    pub group_name: String,
    /// How long to wait before another try, for pop (5.x).
    pub group_retry_policy: GroupRetryPolicy,
    /// Unit flags (5.x).
    pub group_sys_flag: i32,
    /// Whether members are told that others came or went.
    pub notify_consumer_ids_changed_enable: bool,
    /// How many tries before a message goes to the dead letters.
    pub retry_max_times: i32,
    /// Queues of the retry topic.
    pub retry_queue_nums: i32,
    /// What the group subscribes to, fixed by an administrator (5.x).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscription_data_set: Option<Vec<SimpleSubscriptionData>>,
    /// Broker to read from while consumers lag.
    pub which_broker_when_consume_slowly: i64,
}

impl Default for SubscriptionGroupConfig {
    fn default() -> Self {
        SubscriptionGroupConfig {
            attributes: BTreeMap::new(),
            broker_id: 0,
            consume_broadcast_enable: true,
            consume_enable: true,
            consume_from_min_enable: true,
            consume_message_orderly: false,
            consume_timeout_minute: 15,
            group_name: String::new(),
            group_retry_policy: GroupRetryPolicy::default(),
            group_sys_flag: 0,
            notify_consumer_ids_changed_enable: true,
            retry_max_times: 16,
            retry_queue_nums: 1,
            subscription_data_set: None,
            which_broker_when_consume_slowly: 1,
        }
    }
}

/// How long to wait before another try.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupRetryPolicy {
    /// For type `CUSTOMIZED`; absent means RocketMQ's steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub customized_retry_policy: Option<CustomizedRetryPolicy>,
    /// For type `EXPONENTIAL`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exponential_retry_policy: Option<ExponentialRetryPolicy>,
    /// `CUSTOMIZED` or `EXPONENTIAL`.
    #[serde(rename = "type")]
    pub policy_type: String,
}

impl Default for GroupRetryPolicy {
    fn default() -> Self {
        GroupRetryPolicy {
            customized_retry_policy: None,
            exponential_retry_policy: None,
            policy_type: "CUSTOMIZED".to_owned(),
        }
    }
}

/// Waits given one by one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CustomizedRetryPolicy {
    /// Waits in ms; the last one stays.
    pub next: Vec<i64>,
}

/// Waits that grow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExponentialRetryPolicy {
    /// First wait in ms.
    pub initial: i64,
    /// Longest wait in ms.
    pub max: i64,
    /// Growth by step.
    pub multiplier: i64,
}

impl Default for ExponentialRetryPolicy {
    fn default() -> Self {
        ExponentialRetryPolicy { initial: 5_000, max: 7_200_000, multiplier: 2 }
    }
}

/// A subscription fixed by an administrator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SimpleSubscriptionData {
    /// The expression.
    pub expression: String,
    /// `TAG` or `SQL92`.
    pub expression_type: String,
    /// The topic.
    pub topic: String,
    /// When it was made, in ms.
    pub version: i64,
}

/// Answer to GET_ALL_SUBSCRIPTIONGROUP_CONFIG (`SubscriptionGroupWrapper`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubscriptionGroupTable {
    /// Its version.
    pub data_version: DataVersion,
    /// Bits of what is forbidden, by group and topic (5.x).
    pub forbidden_table: BTreeMap<String, BTreeMap<String, i32>>,
    /// Settings by group.
    pub subscription_group_table: BTreeMap<String, SubscriptionGroupConfig>,
}

/// Body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubscriptionGroupList {
    /// The groups.
    pub group_config_list: Vec<SubscriptionGroupConfig>,
}

/// Answer to QUERY_TOPIC_CONSUME_BY_WHO.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupList {
    /// The groups.
    pub group_list: Vec<String>,
}

/// Answer to UPDATE_AND_GET_GROUP_FORBIDDEN.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupForbidden {
    /// The group.
    pub group: String,
    /// Whether it may read the topic.
    pub readable: bool,
    /// The topic.
    pub topic: String,
}

/// Answer to QUERY_SUBSCRIPTION_BY_CONSUMER.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QuerySubscriptionResponseBody {
    /// The group.
    pub group: String,
    /// Its subscription; absent when it is offline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscription_data: Option<SubscriptionData>,
    /// The topic.
    pub topic: String,
}
