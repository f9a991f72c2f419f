//! Replicas of one broker group among each other.

use std::borrow::Cow;

use crate::header;

header! {
    /// EXCHANGE_BROKER_HA_INFO, and its answer (`ExchangeHAInfoRequestHeader`,
    /// `ExchangeHAInfoResponseHeader`).
    pub struct ExchangeBrokerHaInfoRequest<'a> {
        /// Where the master hands out its log.
        master_ha_address: Option<Cow<'a, str>> = "masterHaAddress", optional;
        /// Up to where the master's log is durable.
        master_flush_offset: Option<i64> = "masterFlushOffset", optional;
        /// The master's address.
        master_address: Option<Cow<'a, str>> = "masterAddress", optional;
    }
}

header! {
    /// RESET_MASTER_FLUSH_OFFSET (`ResetMasterFlushOffsetHeader`).
    pub struct ResetMasterFlushOffsetRequest {
        /// Up to where the master's log is durable.
        master_flush_offset: Option<i64> = "masterFlushOffset", optional;
    }
}
