//! Whose heart-beats arrive (`DefaultBrokerHeartbeatManager`). Each controller has its own table, fed
//! by the brokers, which send to all controllers; so a new leader knows at once who lives.

use std::collections::HashMap;

use crate::election::{Alive, Standing};

/// After how long a broker that names no time of its own is gone, in ms
/// (`DEFAULT_BROKER_CHANNEL_EXPIRED_TIME`).
pub const TIMEOUT_DEFAULT_MS: i64 = 10_000;
/// Longest time that is believed, in ms.
const TIMEOUT_MAX_MS: i64 = 3_600_000;
/// Brokers that may be known at one time; more are not heard.
const BROKERS_MAX: usize = 100_000;

/// A broker, as heart-beats name it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    /// The cluster.
    pub cluster: String,
    /// The broker group.
    pub broker_name: String,
    /// The id that a controller gave it.
    pub broker_id: i64,
}

/// One heart-beat.
#[derive(Clone, Copy, Debug, Default)]
pub struct Beat {
    /// After how long without another one it is gone, in ms.
    pub timeout_ms: Option<i64>,
    /// The newest epoch in its epoch file.
    pub epoch: Option<i32>,
    /// End of its log, in bytes.
    pub max_offset: Option<i64>,
    /// Lower is preferred.
    pub priority: Option<i32>,
}

#[derive(Debug)]
struct Life {
    last_ms: i64,
    timeout_ms: i64,
    connection: u64,
    standing: Standing,
}

impl Life {
    fn lives(&self, now_ms: i64) -> bool {
        now_ms - self.last_ms <= self.timeout_ms
    }
}

/// The table. Its clock is the caller's: milliseconds that never jump.
#[derive(Debug, Default)]
pub struct Liveness {
    brokers: HashMap<Identity, Life>,
}

impl Liveness {
    /// Takes a heart-beat that came on `connection`. False if there is no room for another broker.
    pub fn beat(&mut self, who: Identity, beat: Beat, connection: u64, now_ms: i64) -> bool {
        let said = Standing {
            epoch: beat.epoch.unwrap_or(-1),
            max_offset: beat.max_offset.unwrap_or(-1),
            priority: beat.priority.unwrap_or(i32::MAX),
        };
        let timeout_ms = beat.timeout_ms.unwrap_or(TIMEOUT_DEFAULT_MS).clamp(1, TIMEOUT_MAX_MS);
        let full = self.brokers.len() >= BROKERS_MAX;
        if let Some(life) = self.brokers.get_mut(&who) {
            // A beat that was overtaken must not make the log shorter than it is known to be. What a
            // broker says on another connection is a new process's word: it may have been cut.
            let newer = (said.epoch, said.max_offset)
                > (life.standing.epoch, life.standing.max_offset)
                || connection != life.connection;
            if newer {
                life.standing = said;
            }
            life.standing.priority = said.priority;
            (life.last_ms, life.timeout_ms, life.connection) = (now_ms, timeout_ms, connection);
            return true;
        }
        if full {
            return false;
        }
        let life = Life { last_ms: now_ms, timeout_ms, connection, standing: said };
        self.brokers.insert(who, life);
        true
    }

    /// Takes out the brokers that were last heard on a connection which ended.
    pub fn connection_closed(&mut self, connection: u64) -> Vec<Identity> {
        self.take_out(|life| life.connection == connection)
    }

    /// Takes out the silent ones, each with the connection it was last heard on.
    pub fn expire(&mut self, now_ms: i64) -> Vec<Identity> {
        self.take_out(|life| !life.lives(now_ms))
    }

    fn take_out(&mut self, is_gone: impl Fn(&Life) -> bool) -> Vec<Identity> {
        let mut gone: Vec<_> =
            self.brokers.extract_if(|_, life| is_gone(life)).map(|(who, _)| who).collect();
        gone.sort();
        gone
    }

    /// Those of `ids` in a group that live.
    pub fn alive(
        &self,
        cluster: &str,
        broker_name: &str,
        ids: impl IntoIterator<Item = i64>,
        now_ms: i64,
    ) -> Alive {
        let mut who = Identity {
            cluster: cluster.to_owned(),
            broker_name: broker_name.to_owned(),
            broker_id: 0,
        };
        let mut alive = Alive::new();
        for id in ids {
            who.broker_id = id;
            if let Some(life) = self.brokers.get(&who).filter(|life| life.lives(now_ms)) {
                alive.insert(id, life.standing);
            }
        }
        alive
    }

    /// How many brokers are known.
    pub fn len(&self) -> usize {
        self.brokers.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.brokers.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(id: i64) -> Identity {
        Identity { cluster: "c".to_owned(), broker_name: "b".to_owned(), broker_id: id }
    }

    fn ids(liveness: &Liveness, now_ms: i64) -> Vec<i64> {
        liveness.alive("c", "b", [1, 2, 3], now_ms).into_keys().collect()
    }

    #[test]
    fn a_broker_lives_for_its_own_time_or_ten_seconds() {
        let mut liveness = Liveness::default();
        liveness.beat(who(1), Beat { timeout_ms: Some(500), ..Beat::default() }, 7, 1_000);
        liveness.beat(who(2), Beat::default(), 8, 1_000);
        assert_eq!(ids(&liveness, 1_500), [1, 2]);
        assert_eq!(ids(&liveness, 1_501), [2]);
        assert_eq!(liveness.expire(1_501), [who(1)]);
        assert_eq!(liveness.expire(11_000), []);
        assert_eq!(liveness.expire(11_001), [who(2)]);
        assert!(liveness.is_empty());
    }

    #[test]
    fn another_cluster_with_a_group_of_that_name_is_another_broker() {
        let mut liveness = Liveness::default();
        liveness.beat(who(1), Beat::default(), 7, 0);
        assert!(liveness.alive("d", "b", [1], 0).is_empty());
    }

    #[test]
    fn the_end_of_the_newest_connection_is_the_end_of_the_broker() {
        let mut liveness = Liveness::default();
        liveness.beat(who(1), Beat::default(), 7, 0);
        liveness.beat(who(1), Beat::default(), 8, 10);
        assert_eq!(liveness.connection_closed(7), [], "it was heard on a newer one since");
        assert_eq!(liveness.connection_closed(8), [who(1)]);
    }

    #[test]
    fn an_overtaken_beat_does_not_shorten_the_log_but_a_new_process_may() {
        let mut liveness = Liveness::default();
        let beat = |epoch, max_offset, priority| Beat {
            timeout_ms: None,
            epoch: Some(epoch),
            max_offset: Some(max_offset),
            priority: Some(priority),
        };
        let seen = |liveness: &Liveness| liveness.alive("c", "b", [1], 0)[&1];
        liveness.beat(who(1), beat(2, 100, 5), 7, 0);
        liveness.beat(who(1), beat(1, 900, 4), 7, 0);
        assert_eq!(seen(&liveness), Standing { epoch: 2, max_offset: 100, priority: 4 });
        liveness.beat(who(1), beat(3, 50, 4), 7, 0);
        assert_eq!(seen(&liveness), Standing { epoch: 3, max_offset: 50, priority: 4 });
        liveness.beat(who(1), beat(2, 20, 4), 9, 0);
        assert_eq!(seen(&liveness), Standing { epoch: 2, max_offset: 20, priority: 4 });
    }

    #[test]
    fn fields_that_were_not_sent_are_the_least() {
        let mut liveness = Liveness::default();
        liveness.beat(who(1), Beat::default(), 7, 0);
        let standing = liveness.alive("c", "b", [1], 0)[&1];
        assert_eq!(standing, Standing { epoch: -1, max_offset: -1, priority: i32::MAX });
    }
}
