//! Transactions: decisions, checks, and the recall of timer messages.

use std::borrow::Cow;

use crate::header;

header! {
    /// END_TRANSACTION (`EndTransactionRequestHeader`).
    pub struct EndTransactionRequest<'a> {
        /// The real topic; 5.x clients say it.
        topic: Option<Cow<'a, str>> = "topic", optional;
        /// The producer's group.
        producer_group: Cow<'a, str> = "producerGroup", required;
        /// Queue offset of the half message.
        tran_state_table_offset: i64 = "tranStateTableOffset", required;
        /// Physical offset of the half message.
        commit_log_offset: i64 = "commitLogOffset", required;
        /// 0 not known yet, 8 commit, 12 roll back.
        commit_or_rollback: i32 = "commitOrRollback", required;
        /// Whether it answers a check.
        from_transaction_check: bool = "fromTransactionCheck", default(false);
        /// Message id.
        msg_id: Cow<'a, str> = "msgId", required;
        /// Unique key of the message.
        transaction_id: Option<Cow<'a, str>> = "transactionId", optional;
    }
}

header! {
    /// CHECK_TRANSACTION_STATE, from the broker to a producer
    /// (`CheckTransactionStateRequestHeader`).
    pub struct CheckTransactionStateRequest<'a> {
        /// The half topic.
        topic: Option<Cow<'a, str>> = "topic", optional;
        /// Queue offset of the half message.
        tran_state_table_offset: i64 = "tranStateTableOffset", required;
        /// Physical offset of the half message.
        commit_log_offset: i64 = "commitLogOffset", required;
        /// Unique key of the message.
        msg_id: Option<Cow<'a, str>> = "msgId", optional;
        /// The same.
        transaction_id: Option<Cow<'a, str>> = "transactionId", optional;
        /// Offset message id.
        offset_msg_id: Option<Cow<'a, str>> = "offsetMsgId", optional;
    }
}

header! {
    /// RECALL_MESSAGE (`RecallMessageRequestHeader`).
    pub struct RecallMessageRequest<'a> {
        /// The producer's group.
        producer_group: Option<Cow<'a, str>> = "producerGroup", optional;
        /// The topic.
        topic: Cow<'a, str> = "topic", required;
        /// Handle from the SEND's answer.
        recall_handle: Cow<'a, str> = "recallHandle", required;
    }
}

header! {
    /// Answer to RECALL_MESSAGE (`RecallMessageResponseHeader`).
    pub struct RecallMessageResponse<'a> {
        /// Unique key of the recalled message.
        msg_id: Cow<'a, str> = "msgId", required;
        /// Region of the broker.
        msg_region: Option<Cow<'a, str>> = "MSG_REGION", optional;
    }
}
