//! Filters by tag, decided from the ConsumeQueue entry.
//!
//! The broker compares hashes, as RocketMQ's `ExpressionMessageFilter` does, and the
//! client compares the texts again, since different tags may have one hash.

use rocketmq_protocol::subscription::{SUB_ALL, SubscriptionData};
use rocketmq_store::QueueFilter;

/// The filter of one subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TagFilter {
    /// Every message.
    All,
    /// Messages whose tag has one of these hashes, which are sorted.
    Codes(Vec<i32>),
}

impl TagFilter {
    /// The filter of a subscription by tags.
    pub fn new(subscription: &SubscriptionData) -> TagFilter {
        if subscription.sub_string == SUB_ALL || subscription.code_set.is_empty() {
            return TagFilter::All;
        }
        let mut codes: Vec<i32> = subscription.code_set.iter().copied().collect();
        codes.sort_unstable();
        codes.dedup();
        TagFilter::Codes(codes)
    }

    /// Whether a message with this tag code passes. Entries keep the 32-bit hash in 64 bits.
    pub fn matches_code(&self, tags_code: i64) -> bool {
        match self {
            TagFilter::All => true,
            TagFilter::Codes(codes) => codes.binary_search(&(tags_code as i32)).is_ok(),
        }
    }
}

impl QueueFilter for TagFilter {
    fn matches_tags_code(&self, tags_code: i64) -> bool {
        self.matches_code(tags_code)
    }
}

#[cfg(test)]
mod tests {
    use rocketmq_protocol::hash::tags_code;

    use super::*;

    #[test]
    fn codes_match_by_hash_and_nothing_else() {
        let filter = TagFilter::Codes(vec![tags_code("A") as i32, tags_code("B") as i32]);
        assert!(filter.matches_code(tags_code("A")));
        assert!(!filter.matches_code(tags_code("C")));
        assert!(!filter.matches_code(0), "a message without a tag has code 0");
        assert!(TagFilter::All.matches_code(0));
    }

    #[test]
    fn negative_hashes_match_across_the_sign_extension() {
        let code = tags_code("ZZZZZZZZ");
        let filter = TagFilter::Codes(vec![code as i32]);
        assert!(filter.matches_code(code));
    }
}
