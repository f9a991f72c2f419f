//! Decisions about groups, one situation a test.

use super::*;
use crate::Holder;

const LEASE: u64 = 15_000;
const PATIENCE: u64 = 3000;

fn supervisor() -> Supervisor {
    Supervisor::new(policy())
}

fn policy() -> Policy {
    Policy {
        replicas: 3,
        lease_ms: LEASE,
        patience_ms: PATIENCE,
        allow_unclean: false,
        known_epoch: Epoch(0),
    }
}

fn ids(ids: &[i64]) -> BTreeSet<ReplicaId> {
    ids.iter().copied().map(ReplicaId).collect()
}

fn held(renewals: u64) -> GroupRecord {
    GroupRecord {
        epoch: Epoch(4),
        master: Some(ReplicaId(1)),
        holder: Some(Holder { incarnation: "pod-1:1".to_owned(), renewals }),
        in_sync: ids(&[1, 2]),
        reign: Epoch(4),
        ..GroupRecord::default()
    }
}

fn sees(id: i64, last_epoch: i32, log_end: i64) -> Seen {
    let report =
        Report { incarnation: format!("pod-{id}:1"), last_epoch: Epoch(last_epoch), log_end };
    Seen { id: ReplicaId(id), report: Some(report), has_ended: false, is_ready: true }
}

fn silent(id: i64) -> Seen {
    Seen { id: ReplicaId(id), report: None, has_ended: false, is_ready: false }
}

fn decide(supervisor: &mut Supervisor, now: u64, record: &GroupRecord, seen: &[Seen]) -> Decision {
    let version = format!("{record:?}");
    let record = Versioned { version, record: record.clone() };
    supervisor.decide(Millis(now), Some(&record), seen)
}

fn written(decision: Decision) -> (GroupRecord, Reason) {
    match decision {
        Decision::Write { record, reason } => (record, reason),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_lease_ends_when_it_was_seen_unchanged_for_all_its_time() {
    let mut supervisor = supervisor();
    let seen = [silent(1), sees(2, 4, 100), sees(3, 4, 100)];
    for (now, renewals) in [(0, 1), (LEASE - 1, 1), (LEASE, 2), (2 * LEASE - 1, 2)] {
        assert_eq!(decide(&mut supervisor, now, &held(renewals), &seen), Decision::Keep);
    }
    let now = 2 * LEASE;
    let reason = Reason::MemberSilent(ReplicaId(1));
    let until = Some(Millis(now + PATIENCE));
    let waits = Decision::Wait { reason, until };
    assert_eq!(decide(&mut supervisor, now, &held(2), &seen), waits, "it might come back");
    let (record, reason) = written(decide(&mut supervisor, now + PATIENCE, &held(2), &seen));
    assert_eq!(reason, Reason::Expired);
    let expected = GroupRecord {
        epoch: Epoch(5),
        master: Some(ReplicaId(2)),
        holder: None,
        vacated: false,
        ..held(2)
    };
    assert_eq!(record, expected, "the set stays until the next master has it");
}

#[test]
fn the_end_of_the_process_ends_the_lease() {
    let mut supervisor = supervisor();
    let mut seen = [sees(1, 4, 100), sees(2, 4, 100), sees(3, 4, 100)];
    seen[0].has_ended = true;
    let (record, reason) = written(decide(&mut supervisor, 0, &held(1), &seen));
    assert_eq!((record.master, record.vacated), (Some(ReplicaId(2)), true), "not the same again");
    assert_eq!(reason, Reason::Ended);
    // That of a slave means nothing.
    seen[0].has_ended = false;
    seen[1].has_ended = true;
    assert_eq!(decide(&mut supervisor, 0, &held(1), &seen), Decision::Keep);
}

#[test]
fn the_best_member_is_elected() {
    let record = held(1);
    let best = |seen: &[Seen]| elect(&record, seen).map(|id| id.0);
    assert_eq!(best(&[sees(1, 4, 100), sees(2, 4, 99)]), Some(1));
    assert_eq!(best(&[sees(1, 4, 100), sees(2, 5, 99)]), Some(2), "the newer epoch");
    assert_eq!(best(&[sees(1, 4, 100), sees(2, 4, 100)]), Some(2), "a tie: another than was");
    assert_eq!(best(&[sees(3, 9, 900), sees(2, 4, 100)]), Some(2), "only members");
    assert_eq!(best(&[sees(1, 3, 900), silent(2)]), None, "that one lost its disk");
    let fenced = GroupRecord { fenced: ids(&[2]), ..held(1) };
    assert_eq!(elect(&fenced, &[sees(1, 4, 1), sees(2, 4, 100)]), Some(ReplicaId(1)));
    let all = GroupRecord { in_sync: ids(&[1, 2, 3]), ..held(1) };
    assert_eq!(elect(&all, &[sees(3, 4, 9), sees(2, 4, 9)]), Some(ReplicaId(2)), "the lowest id");
    let mut seen = [sees(3, 4, 9), sees(2, 4, 9)];
    seen[1].is_ready = false;
    assert_eq!(elect(&all, &seen), Some(ReplicaId(3)), "a ready one");
}

#[test]
fn a_released_lease_is_given_on_at_once_and_an_appointment_gets_time() {
    let mut supervisor = supervisor();
    let seen = [sees(1, 4, 100), sees(2, 4, 100), silent(3)];
    let released = GroupRecord { holder: None, vacated: true, ..held(1) };
    let (record, reason) = written(decide(&mut supervisor, 0, &released, &seen));
    assert_eq!((record.master, reason), (Some(ReplicaId(2)), Reason::Released));
    assert!(record.vacated);
    let until = Some(Millis(LEASE));
    let waits = Decision::Wait { reason: Reason::TakingOver, until };
    assert_eq!(decide(&mut supervisor, 0, &record, &seen), waits);
    let (other, reason) = written(decide(&mut supervisor, LEASE, &record, &seen));
    assert_eq!((other.master, other.epoch), (Some(ReplicaId(1)), Epoch(6)));
    assert_eq!(reason, Reason::NotTaken);
    // It does not report: no need to wait that long, though a little for its report.
    let seen = [sees(1, 4, 100), silent(2), silent(3)];
    let mut supervisor = self::supervisor();
    decide(&mut supervisor, 0, &record, &seen);
    let decision = decide(&mut supervisor, PATIENCE, &record, &seen);
    assert!(matches!(decision, Decision::Wait { reason: Reason::MemberSilent(_), .. }));
    written(decide(&mut supervisor, 2 * PATIENCE, &record, &seen));
}

#[test]
fn nobody_outside_the_set_is_appointed_unless_it_is_allowed_and_safe() {
    let lone = GroupRecord { in_sync: ids(&[1]), ..held(1) };
    let mut seen = [silent(1), sees(2, 4, 90), sees(3, 4, 80)];
    let late = LEASE + PATIENCE;
    let blocked = Decision::Blocked(Reason::MemberSilent(ReplicaId(1)));
    for allow_unclean in [false, true] {
        let mut supervisor = Supervisor::new(Policy { allow_unclean, ..policy() });
        for now in [0, LEASE] {
            decide(&mut supervisor, now, &lone, &seen);
        }
        assert_eq!(decide(&mut supervisor, late, &lone, &seen), blocked, "no proof of its end");
        seen[0].has_ended = true;
        let decision = decide(&mut supervisor, late, &lone, &seen);
        seen[0].has_ended = false;
        if allow_unclean {
            let (record, reason) = written(decision);
            assert_eq!(reason, Reason::Unclean);
            assert_eq!((record.master, record.in_sync), (Some(ReplicaId(2)), ids(&[2])));
            let mut empty = [silent(1), sees(2, 0, 0), silent(3)];
            empty[0].has_ended = true;
            assert_eq!(
                decide(&mut supervisor, late, &lone, &empty),
                blocked,
                "others may have more"
            );
        } else {
            assert_eq!(decision, blocked);
        }
    }
}

#[test]
fn if_all_lost_something_the_one_that_has_most_goes_on() {
    let mut supervisor = supervisor();
    let mut seen = [sees(1, 3, 100), sees(2, 3, 90), sees(3, 3, 80)];
    seen[0].has_ended = true;
    decide(&mut supervisor, 0, &held(1), &seen);
    let (record, reason) = written(decide(&mut supervisor, PATIENCE, &held(1), &seen));
    assert_eq!((record.master, record.reign), (Some(ReplicaId(1)), Epoch(3)));
    assert_eq!(reason, Reason::Unclean);
    // The one that has most is fenced.
    let fenced = GroupRecord { fenced: ids(&[1]), handover: Some(ReplicaId(2)), ..held(1) };
    let decision = decide(&mut supervisor, PATIENCE, &fenced, &seen);
    assert_eq!(decision, Decision::Blocked(Reason::NoSafeCandidate));
    // One that is no member has more.
    seen[2] = sees(3, 4, 70);
    let decision = decide(&mut supervisor, PATIENCE, &held(1), &seen);
    assert_eq!(decision, Decision::Blocked(Reason::NoSafeCandidate));
}

#[test]
fn a_fenced_master_stays_unless_somebody_asks() {
    let mut supervisor = supervisor();
    let mut seen = [silent(1), sees(2, 4, 100), sees(3, 4, 100)];
    seen[0].has_ended = true;
    let fenced = GroupRecord { fenced: ids(&[1]), ..held(1) };
    let decision = decide(&mut supervisor, 0, &fenced, &seen);
    assert_eq!(decision, Decision::Blocked(Reason::MasterFenced));
    let asked = GroupRecord { handover: Some(ReplicaId(2)), ..fenced };
    decide(&mut supervisor, 0, &asked, &seen);
    let (record, _) = written(decide(&mut supervisor, PATIENCE, &asked, &seen));
    assert_eq!((record.master, record.handover), (Some(ReplicaId(2)), None));
}

#[test]
fn a_new_group_begins_with_its_first_replica() {
    let mut supervisor = supervisor();
    let blocked = Decision::Blocked(Reason::ReplicaSilent(ReplicaId(1)));
    let seen = [silent(1), sees(2, 0, 0), silent(3)];
    assert_eq!(supervisor.decide(Millis(0), None, &seen), blocked);
    let seen = [sees(1, 0, 0), sees(2, 0, 0), silent(3)];
    let decision = supervisor.decide(Millis(0), None, &seen);
    assert!(matches!(decision, Decision::Wait { .. }), "replica 3 might have messages");
    let (record, reason) = written(supervisor.decide(Millis(PATIENCE), None, &seen));
    assert_eq!((record.master, record.epoch), (Some(ReplicaId(1)), Epoch(1)));
    assert_eq!((record.in_sync, record.vacated), (ids(&[1]), true));
    assert_eq!(reason, Reason::Created);
}

#[test]
fn a_lost_record_is_made_anew_from_what_all_replicas_say() {
    let mut supervisor = Supervisor::new(Policy { known_epoch: Epoch(9), ..policy() });
    let mut seen = [sees(1, 4, 100), sees(2, 5, 90), silent(3)];
    let blocked = Decision::Blocked(Reason::ReplicaSilent(ReplicaId(3)));
    assert_eq!(supervisor.decide(Millis(LEASE), None, &seen), blocked);
    seen[2] = sees(3, 5, 80);
    let (record, reason) = written(supervisor.decide(Millis(2 * LEASE), None, &seen));
    assert_eq!((record.master, record.epoch), (Some(ReplicaId(2)), Epoch(10)));
    assert_eq!((record.reign, record.vacated), (Epoch(5), false));
    assert_eq!(reason, Reason::RecordLost);
}
