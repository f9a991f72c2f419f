//! Handing over and giving back.

use super::*;

/// Replica 1 with replica 2, which lacks a part, asked to hand over to it.
fn asked() -> Lab {
    let mut lab = Lab::master_with(settings(1), &[2]);
    lab.tell(Input::LogEnd(100));
    lab.has(2, 70);
    let record = GroupRecord {
        handover: Some(ReplicaId(2)),
        holder: Some(Holder { incarnation: "pod-1:1".to_owned(), renewals: 50 }),
        ..reign(1, 1, &[1, 2])
    };
    lab.record(record);
    assert!(lab.out.contains(&Output::Fenced(Some(FencedBy::Handover))));
    assert_eq!(lab.probe, None, "it lacks a part: nothing is to be written");
    lab
}

#[test]
fn a_master_hands_over_to_one_that_has_everything() {
    let mut lab = asked();
    lab.has(2, 100);
    lab.prove();
    let (_, record) = lab.write().expect("hands over");
    let expected = GroupRecord { reign: Epoch(1), ..appointment(2, 2, &[1, 2]) };
    assert_eq!(
        GroupRecord { in_sync_epoch: 0, addresses: MasterAddresses::default(), ..record },
        expected
    );
    assert_eq!(lab.replica.role(), Role::Master(Epoch(1)));
    lab.land();
    assert_eq!(lab.out[0], Output::StepDown(FencedBy::Handover));
    assert_eq!(lab.replica.role(), Role::Waiting);
}

#[test]
fn a_handover_that_may_land_later_keeps_it_fenced() {
    let mut lab = asked();
    lab.has(2, 100);
    lab.prove();
    let (attempt, _) = lab.write().expect("hands over");
    lab.tell(Input::Unknown(attempt));
    for _ in 0..10 {
        lab.wait(1000);
        lab.read_again();
        assert!(lab.may().is_err());
    }
    lab.wait(RETRY);
    lab.prove();
    let record = lab.land();
    assert_eq!((record.handover, record.epoch), (None, Epoch(1)), "it was given up");
    assert_eq!(lab.may(), Ok(()), "and cannot land any more");
}

#[test]
fn a_handover_that_takes_too_long_is_given_up() {
    let mut lab = asked();
    lab.wait(4999);
    assert_eq!(lab.takes_in(), Err(FencedBy::Handover));
    assert_eq!(lab.may(), Ok(()), "what was taken in counts still");
    lab.wait(1);
    assert_eq!(lab.takes_in(), Ok(()));
    assert!(lab.out.contains(&Output::Fenced(None)));
    lab.wait(RETRY);
    lab.prove();
    assert_eq!(lab.land().handover, None);
    lab.wait(RETRY);
    assert_eq!(lab.may(), Ok(()));
}

#[test]
fn a_handover_to_somebody_outside_the_set_is_not_begun() {
    let mut lab = Lab::master_with(settings(1), &[2]);
    lab.record(GroupRecord { handover: Some(ReplicaId(3)), ..reign(1, 1, &[1, 2]) });
    assert_eq!(lab.may(), Ok(()));
    lab.prove();
    assert_eq!(lab.write().expect("says so").1.handover, None);
}

#[test]
fn a_master_that_stops_hands_over_or_gives_back() {
    let mut lab = Lab::master_with(settings(1), &[2, 3]);
    lab.tell(Input::LogEnd(100));
    lab.has(2, 90);
    lab.has(3, 100);
    lab.tell(Input::Release);
    assert_eq!((lab.takes_in(), lab.may()), (Err(FencedBy::Handover), Ok(())));
    lab.wait(5000);
    lab.prove();
    assert_eq!(lab.may(), Err(FencedBy::Handover), "the lease may be gone already");
    let record = lab.land();
    assert_eq!((record.holder, record.epoch), (None, Epoch(1)), "replica 2 held it up");
    assert_eq!(lab.out[0], Output::StepDown(FencedBy::Handover));
    assert_eq!(lab.replica.role(), Role::Waiting);

    let mut lab = Lab::master_with(settings(1), &[2, 3]);
    lab.tell(Input::LogEnd(100));
    lab.has(2, 90);
    lab.has(3, 100);
    lab.tell(Input::Release);
    lab.has(2, 100);
    lab.prove();
    let record = lab.land();
    assert_eq!((record.master, record.epoch), (Some(ReplicaId(3)), Epoch(2)));
}

#[test]
fn who_is_taking_over_and_has_to_stop_does_not() {
    let mut lab = Lab::new(settings(1), EpochTable::default(), 0);
    lab.record(appointment(1, 1, &[1]));
    lab.tell(Input::Release);
    assert_eq!(lab.replica.role(), Role::Waiting);
    lab.tell(Input::Truncated { end: 0 });
    assert_eq!(lab.write(), None);
    lab.record(appointment(2, 1, &[1]));
    assert_eq!(lab.replica.role(), Role::TakingOver(Epoch(2)));
}
