//! From an appointment to the first message.

use super::*;

#[test]
fn messages_come_after_the_lease_and_the_epoch_file() {
    let mut lab = Lab::new(settings(2), table(&[(1, 0)]), 500);
    assert_eq!(lab.wait(0), [Output::Read]);
    let mut appointed = appointment(2, 2, &[1, 2]);
    appointed.reign = Epoch(1);
    assert_eq!(lab.record(appointed), [Output::Seal]);
    assert_eq!(lab.replica.role(), Role::TakingOver(Epoch(2)));
    lab.tell(Input::Truncated { end: 480 });
    let (_, record) = lab.write().expect("takes the lease");
    assert_eq!(record.in_sync, set(&[2]));
    assert_eq!(record.reign, Epoch(1), "nobody has the new epoch in its file yet");
    assert_eq!(record.holder.expect("held").incarnation, "pod-2:1");
    lab.land();
    assert_eq!(lab.out, [Output::RecordEpochs(table(&[(1, 0), (2, 480)]))]);
    assert_eq!(lab.may(), Err(FencedBy::Role));
    lab.tell(Input::EpochRecorded(Epoch(2)));
    assert_eq!(lab.out[..2], [Output::Serve(Epoch(2)), Output::Confirm(480)]);
    assert_eq!(lab.may(), Ok(()));
    assert_eq!(lab.write().expect("says so").1.reign, Epoch(2));
}

#[test]
fn an_unknown_outcome_is_looked_up() {
    let mut lab = Lab::new(settings(1), EpochTable::default(), 0);
    lab.record(appointment(1, 1, &[1]));
    lab.tell(Input::Truncated { end: 0 });
    let (attempt, record) = lab.write().expect("takes the lease");
    assert_eq!(lab.tell(Input::Unknown(attempt)), [Output::Read]);
    lab.read_again();
    assert_eq!(lab.write(), None, "not at once");
    lab.wait(RETRY);
    assert!(lab.write().is_some(), "the version is the same: it is tried again");
    lab.record(record);
    assert_eq!(lab.out, [Output::RecordEpochs(table(&[(1, 0)]))]);
}

#[test]
fn a_conflict_is_read_before_anything_else_is_written() {
    let mut lab = Lab::new(settings(1), EpochTable::default(), 0);
    lab.record(appointment(1, 1, &[1]));
    lab.tell(Input::Truncated { end: 0 });
    let (attempt, _) = lab.write().expect("takes the lease");
    assert_eq!(lab.tell(Input::Conflict(attempt)), [Output::Read]);
    assert_eq!(lab.wait(RETRY), [Output::Read], "the read failed; no write on an old version");
    lab.record(appointment(2, 2, &[1]));
    assert_eq!(lab.replica.role(), Role::Waiting);
}

#[test]
fn an_epoch_is_not_taken_twice() {
    let mut lab = Lab::new(settings(1), table(&[(1, 0)]), 100);
    lab.record(appointment(1, 1, &[1]));
    assert_eq!(lab.replica.role(), Role::Waiting, "an earlier process reigned in it");
    let mut held = reign(1, 1, &[1]);
    held.holder = Some(Holder { incarnation: "pod-1:0".to_owned(), renewals: 3 });
    lab.record(held);
    assert_eq!(lab.replica.role(), Role::Waiting, "and may still");
    let mut next = reign(2, 1, &[1]);
    next.holder = Some(Holder { incarnation: "pod-1:0".to_owned(), renewals: 3 });
    assert_eq!(lab.record(next), [], "nor in one that an earlier process holds");
    lab.record(appointment(3, 1, &[1]));
    assert_eq!(lab.replica.role(), Role::TakingOver(Epoch(3)));
}

#[test]
fn who_lost_its_disk_or_is_fenced_or_no_member_does_not_take_over() {
    let refuses = |record: GroupRecord| {
        let mut lab = Lab::new(settings(2), table(&[(3, 0)]), 100);
        lab.record(record);
        assert_eq!(lab.replica.role(), Role::Waiting);
    };
    refuses(GroupRecord { reign: Epoch(4), ..appointment(5, 2, &[2]) });
    refuses(GroupRecord { fenced: set(&[2]), ..appointment(5, 2, &[2]) });
    refuses(appointment(5, 2, &[1, 3]));
    refuses(appointment(5, 1, &[1, 2]));
}

#[test]
fn promises_of_the_process_before_are_kept() {
    let expired = GroupRecord { vacated: false, ..appointment(2, 2, &[1, 2]) };
    let mut lab = Lab::new(settings(2), table(&[(1, 0)]), 100);
    lab.record(expired.clone());
    assert_eq!(lab.replica.role(), Role::Waiting);
    lab.wait(PROMISE - 1);
    assert_eq!(lab.replica.role(), Role::Waiting);
    assert_eq!(lab.replica.next_deadline(), Some(Millis(lab.now + 1)));
    lab.wait(1);
    assert_eq!(lab.replica.role(), Role::TakingOver(Epoch(2)));

    let own = GroupRecord { in_sync: set(&[2]), ..expired };
    let mut lab = Lab::new(settings(2), table(&[(1, 0)]), 100);
    lab.record(own);
    assert_eq!(lab.replica.role(), Role::TakingOver(Epoch(2)), "nobody else's lease rests on it");
}

#[test]
fn epochs_behind_the_end_of_the_log_are_forgotten() {
    let lab = Lab::new(settings(1), table(&[(1, 0), (2, 100), (3, 120)]), 100);
    assert_eq!(*lab.replica.epochs(), table(&[(1, 0), (2, 100)]));
}

#[test]
fn a_log_without_epochs_becomes_the_first_masters() {
    let mut lab = Lab::new(settings(1), EpochTable::default(), 700);
    lab.record(appointment(1, 1, &[1]));
    lab.tell(Input::Truncated { end: 700 });
    lab.land();
    assert_eq!(lab.out, [Output::RecordEpochs(table(&[(1, 0)]))]);
}
