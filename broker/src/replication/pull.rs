//! What a slave answers to pulls (`PullMessageProcessor.composeResponseHeader`).

use rocketmq_protocol::code::ResponseCode;

use crate::config::BrokerConfig;
use crate::state::BrokerState;

/// What a slave changes of a pull's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redirected {
    /// The code to answer.
    pub code: ResponseCode,
    /// The broker to ask next; none leaves what the group's settings say.
    pub which_broker: Option<i64>,
    /// Whether the pull goes on where it asked for, whatever was found.
    pub keeps_offset: bool,
}

/// The broker id of a master.
const MASTER_ID: i64 = 0;

/// How a slave answers a pull for which a master would answer `code`. None on a master.
///
/// While its master is there a slave serves what it has and sends the consumer back; it never tells it
/// to wait, nor that its offset is wrong, since it may be behind itself. Without the master it serves
/// as one, except that a consumer that is ahead of it waits where it is.
pub fn redirect(
    state: &BrokerState,
    config: &BrokerConfig,
    code: ResponseCode,
) -> Option<Redirected> {
    state
        .role
        .is_slave()
        .then(|| decide(code, state.replication.is_following(), config.offset_check_in_slave))
}

fn decide(code: ResponseCode, has_master: bool, checks_offsets: bool) -> Redirected {
    let keeps_offset = code == ResponseCode::PULL_OFFSET_MOVED && !checks_offsets;
    match (code, has_master) {
        (ResponseCode::SUCCESS, true) => {
            Redirected { code, which_broker: Some(MASTER_ID), keeps_offset: false }
        }
        (ResponseCode::SUCCESS, false) => {
            Redirected { code, which_broker: None, keeps_offset: false }
        }
        (_, true) => Redirected {
            code: ResponseCode::PULL_RETRY_IMMEDIATELY,
            which_broker: Some(MASTER_ID),
            keeps_offset,
        },
        (ResponseCode::PULL_OFFSET_MOVED, false) if keeps_offset => {
            Redirected { code: ResponseCode::PULL_NOT_FOUND, which_broker: None, keeps_offset }
        }
        (_, false) => Redirected { code, which_broker: None, keeps_offset },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slave_never_moves_a_consumer_that_is_ahead_of_it() {
        let moved = ResponseCode::PULL_OFFSET_MOVED;
        assert_eq!(
            decide(moved, true, false),
            Redirected {
                code: ResponseCode::PULL_RETRY_IMMEDIATELY,
                which_broker: Some(MASTER_ID),
                keeps_offset: true
            }
        );
        let alone = decide(moved, false, false);
        assert_eq!((alone.code, alone.keeps_offset), (ResponseCode::PULL_NOT_FOUND, true));
        let checked = decide(moved, false, true);
        assert_eq!((checked.code, checked.keeps_offset), (moved, false));
    }

    #[test]
    fn with_its_master_it_sends_consumers_back_and_without_it_serves() {
        let found = decide(ResponseCode::SUCCESS, true, false);
        assert_eq!((found.code, found.which_broker), (ResponseCode::SUCCESS, Some(MASTER_ID)));
        let empty = decide(ResponseCode::PULL_NOT_FOUND, true, false);
        assert_eq!(empty.code, ResponseCode::PULL_RETRY_IMMEDIATELY);
        let alone = decide(ResponseCode::PULL_NOT_FOUND, false, false);
        assert_eq!((alone.code, alone.which_broker), (ResponseCode::PULL_NOT_FOUND, None));
    }
}
