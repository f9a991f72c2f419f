//! QUERY_CONSUME_QUEUE: entries of a queue as they are on disk, and whether a group's filter takes
//! them (`AdminBrokerProcessor.queryConsumeQueue`).

use std::sync::Arc;

use rocketmq_protocol::body::consume::{ConsumeQueueData, QueryConsumeQueueResponseBody};
use rocketmq_protocol::code::ResponseCode;
use rocketmq_protocol::frame::Frame;
use rocketmq_protocol::header::stats::QueryConsumeQueueRequest;
use rocketmq_protocol::response::Response;
use rocketmq_remoting::Connection;
use rocketmq_store::consume_queue::is_address;
use rocketmq_store::{OwnedExtUnit, QueueEntry, QueueFilter};
use serde::Serialize;

use crate::filter::{ExpressionFilter, PullFilter};
use crate::request::header;
use crate::state::BrokerState;

/// Entries of one answer: as JSON they stay far below what a frame may hold.
const ENTRIES_MAX: usize = 50_000;

/// QUERY_CONSUME_QUEUE.
pub fn query_consume_queue(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Response {
    let request: QueryConsumeQueueRequest<'_> = header!(frame);
    let (topic, queue_id, index) = (&*request.topic, request.queue_id, request.index);
    let count = usize::try_from(request.count).unwrap_or(0).min(ENTRIES_MAX);
    // One at least, to know whether there is anything at the index.
    let entries = match state.store.queue_entries(topic, queue_id, index, count.max(1)) {
        Ok(Some(entries)) => entries,
        Ok(None) => {
            let remark = format!("{queue_id}@{topic} is not exist!");
            return Response::error(ResponseCode::SYSTEM_ERROR, remark);
        }
        Err(error) => return Response::error(ResponseCode::SYSTEM_ERROR, error.to_string()),
    };
    if entries.is_empty() {
        let mut response = Response::ok();
        response.remark = Some(format!("Index {index} of {queue_id}@{topic} is not exist!"));
        return response;
    }
    let mut body = QueryConsumeQueueResponseBody {
        max_queue_index: state.store.max_queue_offset(topic, queue_id),
        min_queue_index: state.store.min_queue_offset(topic, queue_id),
        ..QueryConsumeQueueResponseBody::default()
    };
    let mut filter = None;
    if let Some(group) = request.consumer_group.as_deref() {
        let found = state.clients.subscription(group, topic).and_then(|found| found.subscription);
        let Some(subscription) = found else {
            body.filter_data = Some(format!("{group}@{topic} is not online!"));
            body.queue_data = Some(entries.iter().take(count).map(|e| shown(e, None)).collect());
            return Response::ok().with_json(&body);
        };
        // There is filter data of expressions alone.
        let registered = state.filters.get(topic, group);
        let data = registered.as_ref().map_or_else(|| "null".to_owned(), |data| data.to_json());
        body.filter_data = Some(data);
        filter = match registered {
            _ if subscription.is_tag_type() => {
                Some(PullFilter::Tags(Arc::clone(&subscription.filter)))
            }
            Some(registered) => {
                Some(PullFilter::Expression(ExpressionFilter::of_group(registered)))
            }
            None => None,
        };
        body.subscription_data = Some(subscription.data.clone());
    }
    let filter = filter.as_ref().map(PullFilter::as_queue_filter);
    body.queue_data = Some(entries.iter().take(count).map(|e| shown(e, filter)).collect());
    Response::ok().with_json(&body)
}

fn shown(entry: &QueueEntry, filter: Option<&dyn QueueFilter>) -> ConsumeQueueData {
    let unit = entry.unit;
    let mut data = ConsumeQueueData {
        physic_offset: unit.physical_offset,
        physic_size: unit.size,
        tags_code: unit.tags_code,
        ..ConsumeQueueData::default()
    };
    match &entry.ext {
        Some(ext) => {
            data.extend_data_json = Some(ext_json(ext));
            data.bit_map = (!ext.filter_bit_map.is_empty()).then(|| bits_text(&ext.filter_bit_map));
            // Java tries the filter on entries with an extension alone.
            data.eval = filter.is_some_and(|filter| filter.matches_ext(&ext.borrowed()));
        }
        None if is_address(unit.tags_code) => {
            data.msg = Some(format!("Cq extend not exist!addr: {}", unit.tags_code));
        }
        None => {}
    }
    data
}

/// An extension as fastjson shows it; its bit map is shown by itself.
fn ext_json(ext: &OwnedExtUnit) -> String {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Shown {
        bit_map_size: usize,
        msg_store_time: i64,
        size: usize,
        tags_code: i64,
    }
    let bit_map_size = ext.filter_bit_map.len();
    let shown = Shown {
        bit_map_size,
        msg_store_time: ext.msg_store_time_ms,
        size: rocketmq_store::consume_queue::EXT_UNIT_BYTES_MIN + bit_map_size,
        tags_code: ext.tags_code,
    };
    String::from_utf8_lossy(&rocketmq_protocol::fastjson::to_vec(&shown)).into_owned()
}

/// Bits as RocketMQ's `BitsArray` shows them: the last one first, eight bytes a line.
fn bits_text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 9);
    for (index, byte) in bytes.iter().enumerate().rev() {
        text.push_str(&format!("{byte:08b}"));
        if index % 8 == 0 {
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use rocketmq_protocol::subscription::SubscriptionData;

    use super::*;
    use crate::filter::TagFilter;

    #[test]
    fn bits_are_shown_from_the_last() {
        assert_eq!(bits_text(&[1]), "00000001\n");
        assert_eq!(bits_text(&[1, 0x80]), "1000000000000001\n");
        assert_eq!(bits_text(&[0; 9]).matches('\n').count(), 2);
    }

    #[test]
    fn an_entry_whose_extension_is_gone_says_so() {
        let unit = rocketmq_store::consume_queue::Unit {
            physical_offset: 7,
            size: 100,
            tags_code: i64::MIN,
        };
        let entry = QueueEntry { queue_offset: 0, unit, ext: None };
        let shown = shown(&entry, None);
        assert_eq!((shown.physic_offset, shown.physic_size), (7, 100));
        assert!(shown.msg.is_some_and(|text| text.contains("-9223372036854775808")));
        let ext = OwnedExtUnit { tags_code: 65, msg_store_time_ms: 9, filter_bit_map: vec![1] };
        let entry = QueueEntry { ext: Some(ext), ..entry };
        let wanted = TagFilter::new(&SubscriptionData::from_tags("T", "A", 1).unwrap());
        let shown = super::shown(&entry, Some(&wanted));
        let json = r#"{"bitMapSize":1,"msgStoreTime":9,"size":21,"tagsCode":65}"#;
        assert_eq!(shown.extend_data_json.as_deref(), Some(json));
        assert_eq!((shown.bit_map.as_deref(), shown.eval), (Some("00000001\n"), true));
    }
}
