//! Delayed messages: the 18 levels of `messageDelayLevel` (RocketMQ's `ScheduleMessageService`).
//!
//! A message with a delay level is stored under SCHEDULE_TOPIC_XXXX, queue level - 1, and remembers
//! where it was sent to. Its ConsumeQueue entry holds the time at which it is due; since all messages
//! of one queue wait equally long, they fall due in the queue's order. `delivery` moves what is due to
//! where it was sent, `progress` remembers how far each level has come.

mod delivery;
mod progress;

use rocketmq_protocol::message::properties::{self, name};

pub use delivery::Delivery;
pub use progress::{DelayOffsetTable, DelayProgress};

/// Where a message with a delay level is stored until it is due.
#[derive(Debug, PartialEq, Eq)]
pub struct Diversion {
    /// Queue of SCHEDULE_TOPIC_XXXX.
    pub queue_id: i32,
    /// Properties that say where it was sent to and the level, to be appended to its own: of a name
    /// that occurs twice the last counts.
    pub properties: Vec<u8>,
}

/// What a delay level means for a message to this queue; nothing when the level asks for no delay.
/// Levels beyond the last count as the last of `levels`.
pub fn divert(level: i32, levels: usize, topic: &str, queue_id: i32) -> Option<Diversion> {
    let last = i32::try_from(levels).unwrap_or(i32::MAX);
    let level = level.min(last);
    if level <= 0 {
        return None;
    }
    let mut block = Vec::with_capacity(64 + topic.len());
    properties::append(&mut block, name::DELAY, &level.to_string());
    properties::append(&mut block, name::REAL_TOPIC, topic);
    properties::append(&mut block, name::REAL_QID, &queue_id.to_string());
    Some(Diversion { queue_id: level - 1, properties: block })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_clamped_and_none_asks_for_nothing() {
        assert_eq!(divert(0, 18, "T", 3), None);
        assert_eq!(divert(-1, 18, "T", 3), None);
        assert_eq!(divert(5, 0, "T", 3), None, "no levels are configured");
        let diverted = divert(99, 18, "T", 3).unwrap();
        assert_eq!(diverted.queue_id, 17);
        assert_eq!(diverted.properties, b"DELAY\x0118\x02REAL_TOPIC\x01T\x02REAL_QID\x013\x02");
    }
}
