//! The reconcilers' questions to brokers and name servers, asked by the client's administrative
//! calls. Owns the translation, the deadline and the count; decides nothing.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use parking_lot::Mutex;
use rocketmq_client::admin::BrokerEpochs;
use rocketmq_client::{Admin, ClientError};
use rocketmq_protocol::body::group::SubscriptionGroupConfig;
use rocketmq_protocol::body::topic::TopicConfig;
use rocketmq_protocol::code::ResponseCode;
use rocketmq_protocol::subscription::MessageModel;
use rocketmq_replication::{Epoch, Report};

use crate::metrics::Metrics;
use crate::rocketmq::{
    AdminError, Answer, BrokerAdmin, GroupSettings, Progress, QueueOffsets, TopicSettings,
};

/// How long a broker may take to say what it has. A master is awaited meanwhile, so silence must not
/// take as long as other requests may.
const REPORT_TIMEOUT: Duration = Duration::from_secs(1);
/// Id of a group's master in a route.
const MASTER_ID: i64 = 0;
/// How long a broker's table of consumer groups is used again. It can only be read whole, and many
/// ConsumerGroups are looked at together.
const GROUP_TABLE_AGE: Duration = Duration::from_secs(1);

type GroupTable = Arc<BTreeMap<String, SubscriptionGroupConfig>>;

/// Administrative calls over the client's connections, which all passes share.
pub struct ClientAdmin {
    admin: Admin,
    /// The same connections, for answers that are wanted soon.
    quick: Admin,
    metrics: Metrics,
    group_tables: Mutex<HashMap<String, (Instant, GroupTable)>>,
}

impl ClientAdmin {
    /// Calls that may take `timeout` each.
    ///
    /// # Errors
    /// None that can happen: the client wants a list of name servers, and the one given here is well
    /// formed. It is never asked, since every call below names its peer.
    pub fn new(timeout: Duration, metrics: Metrics) -> Result<Self, ClientError> {
        let admin = Admin::new(["localhost:9876"])?.with_timeout(timeout);
        let quick = admin.clone().with_timeout(timeout.min(REPORT_TIMEOUT));
        Ok(Self { admin, quick, metrics, group_tables: Mutex::default() })
    }

    async fn ask<T>(
        &self,
        operation: &'static str,
        address: &str,
        call: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, AdminError> {
        let started = Instant::now();
        let result = call.await;
        self.metrics.asked(operation, started.elapsed().as_secs_f64(), result.is_err());
        result.map_err(|error| AdminError {
            operation,
            address: address.to_owned(),
            refused: error.response_code().map(|code| code.0),
            message: error.to_string(),
        })
    }

    async fn group_table(&self, broker: &str) -> Result<GroupTable, AdminError> {
        let known = self.group_tables.lock().get(broker).cloned();
        if let Some((read, table)) = known
            && read.elapsed() < GROUP_TABLE_AGE
        {
            return Ok(table);
        }
        let read = Instant::now();
        let table = Arc::new(self.ask("list_groups", broker, self.admin.all_groups(broker)).await?);
        self.group_tables.lock().insert(broker.to_owned(), (read, Arc::clone(&table)));
        Ok(table)
    }

    fn forget_group_table(&self, broker: &str) {
        self.group_tables.lock().remove(broker);
    }

    /// Consumer offsets of one group in one topic, `None` for a broadcast group.
    async fn progress_of(
        &self,
        broker: &str,
        topic: &str,
        group: &str,
    ) -> Result<Option<Progress>, AdminError> {
        let members =
            self.ask("list_members", broker, self.admin.consumer_connection(broker, group)).await?;
        if members.is_some_and(|members| members.message_model == MessageModel::Broadcasting) {
            return Ok(None);
        }
        let stats = self
            .ask("consume_stats", broker, self.admin.consume_stats(broker, group, Some(topic)))
            .await?;
        let offsets = stats
            .offset_table
            .into_iter()
            .filter(|(queue, _)| queue.topic == topic)
            .map(|(queue, offsets)| (queue.queue_id, offsets.consumer_offset))
            .collect();
        Ok(Some(Progress { group: group.to_owned(), offsets }))
    }
}

impl BrokerAdmin for ClientAdmin {
    fn masters<'a>(
        &'a self,
        name_server: &'a str,
        cluster: &'a str,
    ) -> Answer<'a, BTreeMap<String, String>> {
        async move {
            let call = self.admin.cluster_info_at(name_server);
            let info = self.ask("cluster_info", name_server, call).await?;
            Ok(info
                .broker_addr_table
                .into_iter()
                .filter(|(_, broker)| broker.cluster == cluster)
                .filter_map(|(name, mut broker)| {
                    Some((name, broker.broker_addrs.remove(&MASTER_ID)?))
                })
                .collect())
        }
        .boxed()
    }

    fn replica<'a>(&'a self, broker: &'a str) -> Answer<'a, Report> {
        async move {
            let call = self.quick.broker_epochs(broker);
            let BrokerEpochs { incarnation, epochs } =
                self.ask("epoch_cache", broker, call).await?;
            let newest = epochs.epoch_list.iter().map(|entry| entry.epoch).max().unwrap_or(0);
            Ok(Report { incarnation, last_epoch: Epoch(newest), log_end: epochs.max_offset })
        }
        .boxed()
    }

    fn topic<'a>(&'a self, broker: &'a str, topic: &'a str) -> Answer<'a, Option<TopicSettings>> {
        async move {
            let call = self.admin.topic_config(broker, topic);
            Ok(self.ask("get_topic", broker, call).await?.map(|config| TopicSettings {
                read_queues: config.read_queue_nums,
                write_queues: config.write_queue_nums,
                permission: config.perm,
                order: config.order,
                filter_type: config.topic_filter_type,
                sys_flag: config.topic_sys_flag,
            }))
        }
        .boxed()
    }

    fn put_topic<'a>(
        &'a self,
        broker: &'a str,
        topic: &'a str,
        settings: &'a TopicSettings,
    ) -> Answer<'a, ()> {
        async move {
            let config = TopicConfig {
                // None sent means that those on the broker stay.
                attributes: BTreeMap::new(),
                order: settings.order,
                perm: settings.permission,
                read_queue_nums: settings.read_queues,
                topic_filter_type: settings.filter_type.clone(),
                topic_name: topic.to_owned(),
                topic_sys_flag: settings.sys_flag,
                write_queue_nums: settings.write_queues,
            };
            self.ask("put_topic", broker, self.admin.create_topic(broker, &config)).await
        }
        .boxed()
    }

    fn delete_topic<'a>(&'a self, broker: &'a str, topic: &'a str) -> Answer<'a, ()> {
        async move {
            let call = self.admin.delete_topic_in_broker(broker, topic);
            self.ask("delete_topic", broker, call).await
        }
        .boxed()
    }

    fn forget_topic<'a>(&'a self, name_server: &'a str, topic: &'a str) -> Answer<'a, ()> {
        async move {
            let call = self.admin.delete_topic_at_namesrv(name_server, topic, None);
            self.ask("forget_topic", name_server, call).await
        }
        .boxed()
    }

    fn queue_offsets<'a>(
        &'a self,
        broker: &'a str,
        topic: &'a str,
    ) -> Answer<'a, BTreeMap<i32, QueueOffsets>> {
        async move {
            let call = self.admin.topic_stats(broker, topic);
            let stats = self.ask("topic_stats", broker, call).await?.unwrap_or_default();
            Ok(stats
                .offset_table
                .into_iter()
                .map(|(queue, offsets)| {
                    let offsets = QueueOffsets {
                        min_queue_offset: offsets.min_offset,
                        max_queue_offset: offsets.max_offset,
                        last_update_ms: offsets.last_update_timestamp,
                    };
                    (queue.queue_id, offsets)
                })
                .collect())
        }
        .boxed()
    }

    fn progress<'a>(&'a self, broker: &'a str, topic: &'a str) -> Answer<'a, Vec<Progress>> {
        async move {
            let call = self.admin.groups_of_topic(broker, topic);
            let mut all = Vec::new();
            for group in self.ask("groups_of_topic", broker, call).await? {
                all.extend(self.progress_of(broker, topic, &group).await?);
            }
            Ok(all)
        }
        .boxed()
    }

    fn group<'a>(&'a self, broker: &'a str, group: &'a str) -> Answer<'a, Option<GroupSettings>> {
        async move { Ok(self.group_table(broker).await?.get(group).map(settings)) }.boxed()
    }

    fn put_group<'a>(
        &'a self,
        broker: &'a str,
        group: &'a str,
        settings: &'a GroupSettings,
    ) -> Answer<'a, ()> {
        async move {
            // The request replaces the whole entry: what is not managed has to be sent back as read.
            self.forget_group_table(broker);
            let before = self.group_table(broker).await?.get(group).cloned();
            let config = SubscriptionGroupConfig {
                group_name: group.to_owned(),
                consume_enable: settings.consume_enabled,
                consume_broadcast_enable: settings.broadcast_enabled,
                consume_from_min_enable: settings.consume_from_min,
                notify_consumer_ids_changed_enable: settings.notify_on_membership_change,
                retry_queue_nums: settings.retry_queues,
                retry_max_times: settings.max_retries,
                ..before.unwrap_or_default()
            };
            let written =
                self.ask("put_group", broker, self.admin.update_group(broker, &config)).await;
            self.forget_group_table(broker);
            written
        }
        .boxed()
    }

    fn delete_group<'a>(
        &'a self,
        broker: &'a str,
        group: &'a str,
        clean_offsets: bool,
    ) -> Answer<'a, ()> {
        async move {
            let call = self.admin.delete_group(broker, group, clean_offsets);
            let deleted = self.ask("delete_group", broker, call).await;
            self.forget_group_table(broker);
            match deleted {
                // RocketMQ's answer when there is no such group.
                Err(error)
                    if error.refused == Some(ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST.0) =>
                {
                    Ok(())
                }
                other => other,
            }
        }
        .boxed()
    }

    fn has_members<'a>(&'a self, broker: &'a str, group: &'a str) -> Answer<'a, bool> {
        async move {
            let call = self.admin.consumer_connection(broker, group);
            let members = self.ask("list_members", broker, call).await?;
            Ok(members.is_some_and(|members| !members.connection_set.is_empty()))
        }
        .boxed()
    }

    fn forget<'a>(&'a self, broker: &'a str) {
        self.forget_group_table(broker);
    }
}

fn settings(config: &SubscriptionGroupConfig) -> GroupSettings {
    GroupSettings {
        consume_enabled: config.consume_enable,
        broadcast_enabled: config.consume_broadcast_enable,
        consume_from_min: config.consume_from_min_enable,
        notify_on_membership_change: config.notify_consumer_ids_changed_enable,
        retry_queues: config.retry_queue_nums,
        max_retries: config.retry_max_times,
    }
}
