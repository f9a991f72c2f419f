//! Single messages: by offset, by key.

use std::borrow::Cow;

use crate::header;

header! {
    /// VIEW_MESSAGE_BY_ID (`ViewMessageRequestHeader`).
    pub struct ViewMessageByIdRequest<'a> {
        /// The topic; not compared with the message's.
        topic: Option<Cow<'a, str>> = "topic", optional;
        /// Physical offset.
        offset: i64 = "offset", required;
    }
}

header! {
    /// QUERY_MESSAGE (`QueryMessageRequestHeader`).
    pub struct QueryMessageRequest<'a> {
        /// The topic.
        topic: Cow<'a, str> = "topic", required;
        /// The key.
        key: Cow<'a, str> = "key", required;
        /// How many messages at most.
        max_num: i32 = "maxNum", required;
        /// Earliest store time, in ms.
        begin_timestamp: i64 = "beginTimestamp", required;
        /// Latest store time, in ms.
        end_timestamp: i64 = "endTimestamp", required;
        /// Whether the key is a unique key.
        unique_key_query: bool = "_UNIQUE_KEY_QUERY", default(false);
        /// Kind of key (later 5.x).
        index_type: Option<Cow<'a, str>> = "indexType", optional;
        /// Where to go on (later 5.x).
        last_key: Option<Cow<'a, str>> = "lastKey", optional;
    }
}

header! {
    /// Answer to QUERY_MESSAGE (`QueryMessageResponseHeader`).
    pub struct QueryMessageResponse {
        /// Store time of the last message in the index, in ms.
        index_last_update_timestamp: i64 = "indexLastUpdateTimestamp", required;
        /// Its physical offset.
        index_last_update_phyoffset: i64 = "indexLastUpdatePhyoffset", required;
    }
}

header! {
    /// RESUME_CHECK_HALF_MESSAGE (`ResumeCheckHalfMessageRequestHeader`).
    pub struct ResumeCheckHalfMessageRequest<'a> {
        /// The topic.
        topic: Option<Cow<'a, str>> = "topic", optional;
        /// Offset message id of the half message.
        msg_id: Cow<'a, str> = "msgId", required;
    }
}
