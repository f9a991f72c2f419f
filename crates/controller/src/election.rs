//! Who becomes master of a group (`DefaultElectPolicy`).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// What a live replica last said of its log. A field that it never sent is -1 (the priority
/// `i32::MAX`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// The newest epoch in its epoch file.
    pub epoch: i32,
    /// End of its log, in bytes.
    pub max_offset: i64,
    /// Lower is preferred (`brokerElectionPriority`).
    pub priority: i32,
}

/// The replicas of one group that live, by broker id, as the leader saw it when it asked.
pub type Alive = BTreeMap<i64, Standing>;

/// Chooses among the live replicas of `set`, or, if there is none and `unclean` is given, of that.
///
/// The old master stays if it lives and nobody else is `preferred`; a `preferred` replica is taken or
/// nobody. Otherwise: the highest epoch, then the longest log, then the lowest priority. Equal ones
/// are told apart by the lower id, so that every controller comes to the same result.
pub fn elect(
    set: &BTreeSet<i64>,
    unclean: Option<&BTreeSet<i64>>,
    alive: &Alive,
    old_master: Option<i64>,
    preferred: Option<i64>,
) -> Option<i64> {
    let among = |candidates: &BTreeSet<i64>| {
        let lives = |id: &i64| candidates.contains(id) && alive.contains_key(id);
        if let Some(preferred) = preferred {
            return Some(preferred).filter(lives);
        }
        old_master.filter(lives).or_else(|| best(candidates, alive))
    };
    among(set).or_else(|| unclean.and_then(among))
}

fn best(candidates: &BTreeSet<i64>, alive: &Alive) -> Option<i64> {
    let standings = alive.iter().filter(|(id, _)| candidates.contains(id));
    let best = standings.min_by_key(|(id, standing)| {
        let most = std::cmp::Reverse((standing.epoch, standing.max_offset));
        (most, standing.priority, **id)
    });
    best.map(|(id, _)| *id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(epoch: i32, max_offset: i64, priority: i32) -> Standing {
        Standing { epoch, max_offset, priority }
    }

    fn alive() -> Alive {
        BTreeMap::from([
            (1, standing(3, 100, 5)),
            (2, standing(3, 200, 5)),
            (3, standing(3, 200, 1)),
            (4, standing(9, 999, 0)),
        ])
    }

    fn set(ids: &[i64]) -> BTreeSet<i64> {
        ids.iter().copied().collect()
    }

    #[test]
    fn the_old_master_stays_while_it_lives_and_is_in_the_set() {
        assert_eq!(elect(&set(&[1, 2, 3]), None, &alive(), Some(1), None), Some(1));
        assert_eq!(elect(&set(&[2, 3]), None, &alive(), Some(1), None), Some(3));
    }

    #[test]
    fn epoch_then_log_then_priority_then_id_decide() {
        assert_eq!(elect(&set(&[1, 2, 3, 4]), None, &alive(), None, None), Some(4));
        assert_eq!(elect(&set(&[1, 2, 3]), None, &alive(), Some(7), None), Some(3));
        assert_eq!(elect(&set(&[1, 2]), None, &alive(), None, None), Some(2));
        let equal = BTreeMap::from([(5, standing(1, 1, 1)), (6, standing(1, 1, 1))]);
        assert_eq!(elect(&set(&[5, 6]), None, &equal, None, None), Some(5));
    }

    #[test]
    fn only_a_live_member_of_the_set_is_chosen_unless_unclean_is_allowed() {
        assert_eq!(elect(&set(&[7, 8]), None, &alive(), Some(7), None), None);
        let all = set(&[1, 2, 7, 8]);
        assert_eq!(elect(&set(&[7, 8]), Some(&all), &alive(), Some(7), None), Some(2));
    }

    #[test]
    fn who_is_asked_for_is_taken_or_nobody() {
        assert_eq!(elect(&set(&[1, 2]), None, &alive(), Some(2), Some(1)), Some(1));
        assert_eq!(elect(&set(&[1, 2]), None, &alive(), Some(2), Some(2)), Some(2));
        assert_eq!(elect(&set(&[1, 2]), None, &alive(), Some(2), Some(4)), None);
        let all = set(&[1, 2, 4]);
        assert_eq!(elect(&set(&[1, 2]), Some(&all), &alive(), Some(2), Some(4)), Some(4));
    }

    /// Differences of offsets do not overflow (the Java comparator casts them to 32 bits).
    #[test]
    fn far_apart_offsets_compare_as_they_are() {
        let alive = BTreeMap::from([(1, standing(1, 0, 0)), (2, standing(1, 1 << 33, 0))]);
        assert_eq!(elect(&set(&[1, 2]), None, &alive, None, None), Some(2));
    }
}
