//! Sending messages, and a consumer's message back to the broker.

use std::borrow::Cow;

use crate::ext::{ExtSource, ExtWriter};
use crate::header;

header! {
    /// SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE, SEND_REPLY_MESSAGE and its V2
    /// (`SendMessageRequestHeader`, `SendMessageRequestHeaderV2`).
    ///
    /// Reads the long names of the first and the letters of the others; writes the letters.
    /// [`LongNames`] writes the long names. What may be missing is what the Java broker can do
    /// without.
    pub struct SendMessageRequest<'a> {
        /// The producer's group; RocketMQ calls it mandatory but goes on without it.
        producer_group: Cow<'a, str> = "a" | "producerGroup", default(Cow::Borrowed(""));
        /// The topic.
        topic: Cow<'a, str> = "b" | "topic", required;
        /// Topic whose settings a topic that does not exist yet is created with.
        default_topic: Cow<'a, str> = "c" | "defaultTopic",
            default(Cow::Borrowed(crate::names::AUTO_CREATE_TOPIC));
        /// How many queues such a topic should get; 4 is what clients ask for by default.
        default_topic_queue_nums: i32 = "d" | "defaultTopicQueueNums", default(4);
        /// The queue; below 0 the broker picks one.
        queue_id: i32 = "e" | "queueId", required;
        /// Bits of the message record: compressed, transaction kind, ...
        sys_flag: i32 = "f" | "sysFlag", required;
        /// When the message was made, in ms of the Unix epoch.
        born_timestamp: i64 = "g" | "bornTimestamp", required;
        /// The application's own bits.
        flag: i32 = "h" | "flag", required;
        /// The properties, in the form of a message record; of a batch, those of every message in
        /// it.
        properties: Option<Cow<'a, str>> = "i" | "properties", optional;
        /// How often consuming the message has failed.
        reconsume_times: Option<i32> = "j" | "reconsumeTimes", optional;
        /// Whether the producer is in unit mode.
        unit_mode: Option<bool> = "k" | "unitMode", optional;
        /// After how many failures it goes to the dead letters.
        max_reconsume_times: Option<i32> = "l" | "maxReconsumeTimes", optional;
        /// Whether the body is a batch: this says so, not the request code.
        batch: Option<bool> = "m" | "batch", optional;
        /// The broker group it is meant for.
        broker_name: Option<Cow<'a, str>> = "n" | "bname", optional;
    }
}

header! {
    /// Answer to every kind of SEND (`SendMessageResponseHeader`).
    pub struct SendMessageResponse<'a> {
        /// Offset message id; of a batch, one for each message, joined by commas.
        msg_id: Cow<'a, str> = "msgId", required;
        /// The queue.
        queue_id: i32 = "queueId", required;
        /// Place in the queue; of a batch, that of the first message.
        queue_offset: i64 = "queueOffset", required;
        /// Unique key of the message or of the batch.
        transaction_id: Option<Cow<'a, str>> = "transactionId", optional;
        /// Unique id of a batch stored as one record.
        batch_uniq_id: Option<Cow<'a, str>> = "batchUniqId", optional;
        /// Handle by which a timer message can be recalled.
        recall_handle: Option<Cow<'a, str>> = "recallHandle", optional;
        /// Region of the broker.
        msg_region: Option<Cow<'a, str>> = "MSG_REGION", optional;
        /// Whether the client should record message traces.
        trace_on: Option<bool> = "TRACE_ON", optional;
    }
}

header! {
    /// CONSUMER_SEND_MSG_BACK (`ConsumerSendMsgBackRequestHeader`).
    pub struct ConsumerSendMsgBackRequest<'a> {
        /// Physical offset of the message.
        offset: i64 = "offset", required;
        /// The consumer group.
        group: Cow<'a, str> = "group", required;
        /// Delay level; 0 lets the broker choose, below 0 is straight to the dead letters.
        delay_level: i32 = "delayLevel", required;
        /// Message id as the consumer saw it.
        origin_msg_id: Option<Cow<'a, str>> = "originMsgId", optional;
        /// Topic as the consumer saw it.
        origin_topic: Option<Cow<'a, str>> = "originTopic", optional;
        /// Whether the consumer is in unit mode.
        unit_mode: bool = "unitMode", default(false);
        /// After how many failures it goes to the dead letters.
        max_reconsume_times: Option<i32> = "maxReconsumeTimes", optional;
    }
}

header! {
    /// PUSH_REPLY_MESSAGE_TO_CLIENT, from the broker to a producer (`ReplyMessageRequestHeader`).
    pub struct PushReplyMessageRequest<'a> {
        /// The producer's group.
        producer_group: Cow<'a, str> = "producerGroup", required;
        /// The reply topic.
        topic: Cow<'a, str> = "topic", required;
        /// As in the SEND of the reply.
        default_topic: Cow<'a, str> = "defaultTopic", required;
        /// As in the SEND of the reply.
        default_topic_queue_nums: i32 = "defaultTopicQueueNums", required;
        /// The queue.
        queue_id: i32 = "queueId", required;
        /// Bits of the message record.
        sys_flag: i32 = "sysFlag", required;
        /// When the reply was made, in ms.
        born_timestamp: i64 = "bornTimestamp", required;
        /// The application's own bits.
        flag: i32 = "flag", required;
        /// The properties.
        properties: Option<Cow<'a, str>> = "properties", optional;
        /// How often consuming has failed.
        reconsume_times: Option<i32> = "reconsumeTimes", optional;
        /// Whether the producer is in unit mode.
        unit_mode: bool = "unitMode", default(false);
        /// Who sent the reply, as `ip:port`.
        born_host: Cow<'a, str> = "bornHost", required;
        /// The broker, as `ip:port`.
        store_host: Cow<'a, str> = "storeHost", required;
        /// When the broker took it, in ms.
        store_timestamp: i64 = "storeTimestamp", required;
    }
}

/// A SEND header under its long names, as request codes SEND_MESSAGE and SEND_REPLY_MESSAGE want.
#[derive(Clone, Copy, Debug)]
pub struct LongNames<'h, 'a>(pub &'h SendMessageRequest<'a>);

impl ExtSource for LongNames<'_, '_> {
    fn write_ext(&self, writer: &mut dyn ExtWriter) {
        self.0.write_ext(&mut LongNameWriter(writer));
    }
}

struct LongNameWriter<'w>(&'w mut dyn ExtWriter);

impl ExtWriter for LongNameWriter<'_> {
    fn str(&mut self, name: &str, value: &str) {
        self.0.str(long_name(name), value);
    }

    fn int(&mut self, name: &str, value: i64) {
        self.0.int(long_name(name), value);
    }
}

fn long_name(letter: &str) -> &str {
    match letter {
        "a" => "producerGroup",
        "b" => "topic",
        "c" => "defaultTopic",
        "d" => "defaultTopicQueueNums",
        "e" => "queueId",
        "f" => "sysFlag",
        "g" => "bornTimestamp",
        "h" => "flag",
        "i" => "properties",
        "j" => "reconsumeTimes",
        "k" => "unitMode",
        "l" => "maxReconsumeTimes",
        "m" => "batch",
        "n" => "bname",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ext::{ExtFields, to_pairs};
    use crate::header::{Header, HeaderError};

    #[test]
    fn long_names_and_letters_are_the_same_header() {
        let request = SendMessageRequest {
            producer_group: "pg".into(),
            topic: "T".into(),
            default_topic: "TBW102".into(),
            default_topic_queue_nums: 8,
            queue_id: -1,
            sys_flag: 1,
            born_timestamp: 1_700_000_000_000,
            flag: 7,
            properties: Some("k\u{1}v\u{2}".into()),
            reconsume_times: Some(2),
            unit_mode: Some(false),
            max_reconsume_times: Some(16),
            batch: Some(true),
            broker_name: Some("b".into()),
        };
        let letters = to_pairs(&request);
        let long = to_pairs(&LongNames(&request));
        assert_eq!(letters[0], ("a".into(), "pg".to_owned()));
        assert_eq!(long[13], ("bname".into(), "b".to_owned()));
        for pairs in [letters, long] {
            let decoded = SendMessageRequest::decode(&ExtFields::from_pairs(&pairs)).unwrap();
            assert_eq!(decoded, request);
        }
    }

    #[test]
    fn a_missing_queue_count_is_not_zero() {
        let pairs = [("b", "T"), ("e", "0"), ("f", "0"), ("g", "1"), ("h", "0")];
        let decoded = SendMessageRequest::decode(&ExtFields::from_pairs(&pairs)).unwrap();
        assert_eq!(decoded.default_topic_queue_nums, 4);
        assert_eq!(decoded.default_topic, "TBW102");
        let missing = SendMessageRequest::decode(&ExtFields::from_pairs(&pairs[..4])).unwrap_err();
        assert_eq!(missing, HeaderError::Missing { field: "h or flag" });
    }
}
