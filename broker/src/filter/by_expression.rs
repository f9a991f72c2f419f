//! The filter of a pull by expression (`ExpressionMessageFilter`, `ExpressionForRetryMessageFilter`).

use std::sync::Arc;

use rocketmq_protocol::message::properties::{self, name};
use rocketmq_protocol::message::record::MessageRecord;
use rocketmq_protocol::names;
use rocketmq_store::{ExtUnit, QueueFilter};

use super::sql::Expression;
use crate::metadata::consumer_filter::{ConsumerFilter, ConsumerFilters};

/// Parts of an expression up to which a whole pull's worth of messages takes a few milliseconds.
const QUICK_NODES_MAX: usize = 200;

/// Wants messages whose properties fulfil an expression.
#[derive(Clone, Debug)]
pub struct ExpressionFilter {
    expression: Arc<Expression>,
    /// Where the expression was registered: its bits tell which messages need not be looked at.
    registered: Option<Arc<ConsumerFilter>>,
    retry: Option<RetryFilter>,
}

/// For a retry topic: the expression is that of the topic a message came from (`filterSupportRetry`).
#[derive(Clone, Debug)]
struct RetryFilter {
    group: Arc<str>,
    filters: Arc<ConsumerFilters>,
}

impl ExpressionFilter {
    /// A filter by an expression that the pull itself brings.
    pub fn of_pull(expression: Arc<Expression>) -> ExpressionFilter {
        ExpressionFilter { expression, registered: None, retry: None }
    }

    /// A filter by an expression that the group registered.
    pub fn of_group(registered: Arc<ConsumerFilter>) -> ExpressionFilter {
        let expression = Arc::clone(registered.expression());
        ExpressionFilter { expression, registered: Some(registered), retry: None }
    }

    /// The same filter, but on a retry topic each message is tried with what the topic's group
    /// registered for the topic that the message came from, and passes if that is nothing.
    #[must_use]
    pub fn for_retries(mut self, topic: &str, filters: &Arc<ConsumerFilters>) -> ExpressionFilter {
        self.retry = names::group_of_retry_topic(topic)
            .map(|group| RetryFilter { group: group.into(), filters: Arc::clone(filters) });
        self
    }

    pub(super) fn is_costly(&self) -> bool {
        self.expression.node_count() > QUICK_NODES_MAX
    }

    fn matches_properties(&self, block: &[u8]) -> bool {
        let Some(retry) = &self.retry else { return self.expression.matches(block) };
        let origin = properties::find(block, name::RETRY_TOPIC);
        let registered = origin.and_then(|origin| retry.filters.get(origin, &retry.group));
        registered.is_none_or(|registered| registered.expression().matches(block))
    }
}

impl QueueFilter for ExpressionFilter {
    fn matches_ext(&self, ext: &ExtUnit<'_>) -> bool {
        !self.registered.as_ref().is_some_and(|registered| {
            registered.is_excluded_by(ext.filter_bit_map, ext.msg_store_time_ms)
        })
    }

    fn matches_record(&self, record: &[u8]) -> bool {
        // What cannot be read has no properties.
        let block = MessageRecord::decode(record).map_or(&[][..], |record| record.properties);
        self.matches_properties(block)
    }
}
