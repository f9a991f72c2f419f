//! What a master acknowledges, and how it keeps its lease and its set.

use super::*;

#[test]
fn a_message_is_confirmed_when_every_member_has_it() {
    let mut lab = Lab::master_with(settings(1), &[2, 3]);
    assert_eq!(lab.tell(Input::LogEnd(100)), []);
    assert_eq!(lab.has(2, 100), []);
    assert_eq!(lab.has(3, 60), [Output::Confirm(60)]);
    lab.tell(Input::SlaveLeft(LinkId(3)));
    lab.tell(Input::LogEnd(120));
    assert_eq!(lab.has(2, 120), [], "who left the connection has not left the set");
    assert_eq!(lab.replica.confirmed(), 60);
}

#[test]
fn a_set_shrinks_when_that_is_recorded_and_not_before() {
    let mut lab = Lab::master_with(settings(1), &[2]);
    lab.tell(Input::LogEnd(100));
    lab.tell(Input::SlaveLeft(LinkId(2)));
    lab.wait(RETRY);
    lab.prove();
    let (attempt, record) = lab.write().expect("shrinks");
    assert_eq!(record.in_sync, set(&[1]));
    assert_eq!(lab.replica.confirmed(), 0);
    lab.tell(Input::Unknown(attempt));
    lab.read_again();
    assert_eq!(lab.replica.confirmed(), 0, "it may not have landed");
    lab.record(record);
    assert_eq!(lab.replica.confirmed(), 100);
    assert_eq!(lab.out[0], Output::Confirm(100));
}

#[test]
fn a_set_grows_from_when_it_may_be_recorded() {
    let mut lab = Lab::master(settings(1));
    lab.join(2, 0);
    assert_eq!(lab.write(), None);
    lab.has(2, 0);
    lab.prove();
    let (first, record) = lab.write().expect("grows");
    assert_eq!(record.in_sync, set(&[1, 2]));
    lab.tell(Input::Unknown(first));
    lab.tell(Input::SlaveLeft(LinkId(2)));
    lab.tell(Input::LogEnd(50));
    assert_eq!(lab.replica.confirmed(), 0, "it may be a member");
    lab.wait(RETRY);
    lab.prove();
    let (second, record) = lab.write().expect("renews");
    assert_eq!(record.in_sync, set(&[1]));
    lab.tell(Input::Conflict(second));
    assert_eq!(lab.replica.confirmed(), 0, "the first may be why");
    lab.read_again();
    assert_eq!(lab.replica.confirmed(), 0);
    lab.wait(RETRY);
    lab.prove();
    lab.land();
    assert_eq!(lab.replica.confirmed(), 50, "this one landed on the version of the first");
}

#[test]
fn a_slave_that_is_behind_is_no_member_and_holds_nothing_up() {
    let mut lab = Lab::master(settings(1));
    lab.tell(Input::LogEnd(1000));
    assert_eq!(lab.replica.confirmed(), 1000);
    lab.join(2, 10);
    lab.has(2, 400);
    lab.tell(Input::LogEnd(1100));
    assert_eq!(lab.replica.confirmed(), 1100);
    lab.has(2, 1000);
    lab.tell(Input::LogEnd(1200));
    assert_eq!(lab.replica.confirmed(), 1100, "it is close: it is waited for");
    assert_eq!(lab.probe, None, "it lacks something that is confirmed: nothing is to be written");
    lab.has(2, 1100);
    lab.prove();
    assert_eq!(lab.write().expect("grows").1.in_sync, set(&[1, 2]));
    // A learner never joins.
    let (link, replica) = (LinkId(9), ReplicaId(3));
    lab.tell(Input::SlaveJoined { link, replica, end: 1200, is_learner: true });
    lab.tell(Input::SlaveHas { link, end: 1200 });
    assert!(!lab.replica.effective().contains(&replica));
}

#[test]
fn whoever_came_and_is_no_member_is_forgotten_when_it_goes() {
    let mut lab = Lab::master_with(settings(1), &[2]);
    for stranger in 10..20 {
        lab.join(stranger, 0);
        lab.tell(Input::SlaveLeft(LinkId(stranger.unsigned_abs())));
    }
    lab.tell(Input::SlaveLeft(LinkId(2)));
    let State::Reigning(reign) = &lab.replica.state else { panic!("it reigns") };
    let known: Vec<bool> = [2, 10, 19].map(|id| reign.slaves.has(ReplicaId(id)).is_some()).into();
    assert_eq!(known, [true, false, false], "a member may come back");
}

#[test]
fn a_record_that_cannot_be_written_is_not_tried_without_pause() {
    let mut lab = Lab::master_with(settings(1), &[2]);
    lab.tell(Input::SlaveLeft(LinkId(2)));
    lab.wait(RETRY);
    lab.prove();
    let (attempt, _) = lab.write().expect("the set is to shrink");
    assert!(lab.tell(Input::Conflict(attempt)).contains(&Output::Read));
    lab.read_again();
    assert_eq!((lab.write(), lab.probe), (None, None), "nobody has changed it");
    lab.wait(RETRY - 1);
    assert_eq!((lab.write(), lab.probe), (None, None));
    lab.wait(1);
    lab.prove();
    let (attempt, _) = lab.write().expect("tries again");
    // Here somebody has, and the write was to be refused.
    lab.tell(Input::Conflict(attempt));
    lab.record(reign(1, 1, &[1, 2]));
    lab.wait(RETRY);
    lab.prove();
    assert!(lab.write().is_some());
}

#[test]
fn a_member_that_does_not_keep_up_leaves() {
    let mut lab = Lab::master_with(settings(1), &[2]);
    lab.tell(Input::LogEnd(100));
    lab.has(2, 50);
    let mut waited = 0;
    while lab.write().is_none_or(|(_, record)| record.in_sync != set(&[1])) {
        lab.has(2, 50);
        assert!(waited <= CATCH_UP, "in time");
        waited += 500;
        lab.wait(500);
        if lab.probe.is_some() {
            lab.prove();
            let shrinks = lab.write().is_some_and(|(_, record)| record.in_sync == set(&[1]));
            if !shrinks {
                lab.land();
            }
        }
    }
    assert!(waited >= CATCH_UP, "not before");
}

#[test]
fn a_member_that_lost_what_it_had_gets_nothing_until_it_is_none() {
    let mut lab = Lab::master_with(settings(1), &[2]);
    lab.tell(Input::LogEnd(100));
    lab.has(2, 100);
    lab.tell(Input::SlaveLeft(LinkId(2)));
    let link = LinkId(5);
    let joins = Input::SlaveJoined { link, replica: ReplicaId(2), end: 0, is_learner: false };
    let reason = Refusal::Lost { replica: ReplicaId(2), said: 0, confirmed: 100 };
    assert_eq!(lab.tell(joins.clone())[0], Output::Refuse { link, reason });
    lab.prove();
    assert_eq!(lab.write().expect("shrinks at once").1.in_sync, set(&[1]));
    lab.land();
    assert!(!lab.tell(joins).iter().any(|output| matches!(output, Output::Refuse { .. })));
}

#[test]
fn a_renewal_needs_a_proof_and_counts_from_when_it_was_sent() {
    let mut lab = Lab::master_with(settings(1), &[2]);
    lab.wait(RETRY);
    assert_eq!(lab.write(), None);
    lab.prove();
    let (attempt, _) = lab.write().expect("renews");
    lab.now += 5000;
    lab.tell(Input::Written(attempt, "later".to_owned()));
    lab.now += DEADLINE - 5001;
    assert_eq!(lab.may(), Ok(()));
    lab.now += 1;
    assert_eq!(lab.may(), Err(FencedBy::Lease));
    assert!(lab.tell(Input::Tick).contains(&Output::Fenced(Some(FencedBy::Lease))));
    lab.tell(Input::LogEnd(10));
    lab.has(2, 10);
    assert_eq!(lab.replica.confirmed(), 0, "somebody else may be master");
    // One that shows in the record counts as well, from when it was first sent.
    lab.prove();
    let (attempt, record) = lab.write().expect("tries");
    lab.tell(Input::Unknown(attempt));
    lab.now += 3000;
    lab.record(record);
    assert_eq!(lab.may(), Ok(()));
    assert_eq!(lab.replica.confirmed(), 10);
    assert_eq!(lab.replica.next_deadline().map(|at| at > Millis(lab.now)), Some(true));
    lab.now += DEADLINE - 3000;
    assert_eq!(lab.may(), Err(FencedBy::Lease));
}

#[test]
fn a_set_of_one_needs_no_lease_unless_another_may_have_joined() {
    let mut lab = Lab::master(settings(1));
    lab.wait(10 * DEADLINE);
    assert_eq!(lab.may(), Ok(()));
    lab.prove();
    lab.land();
    lab.join(2, 0);
    lab.has(2, 0);
    lab.prove();
    let (attempt, _) = lab.write().expect("grows");
    lab.tell(Input::Unknown(attempt));
    lab.wait(2 * DEADLINE);
    assert_eq!(lab.may(), Err(FencedBy::Lease));
}

#[test]
fn a_proof_that_fails_is_asked_for_again() {
    let mut lab = Lab::master(settings(1));
    lab.wait(RETRY);
    let first = lab.probe.take().expect("asked for");
    lab.wait(RETRY);
    let second = lab.probe.take().expect("asked for again");
    lab.tell(Input::Proven(first));
    assert_eq!(lab.write(), None, "that one was given up");
    lab.tell(Input::Proven(second));
    assert!(lab.write().is_some());
}

fn pings(out: &[Output]) -> Vec<(LinkId, u64)> {
    let ping = |output: &Output| match output {
        Output::Ping { link, number } => Some((*link, *number)),
        _ => None,
    };
    out.iter().filter_map(ping).collect()
}

#[test]
fn promises_of_all_members_stand_in_for_the_lease() {
    let mut lab = Lab::master_with(settings(1), &[2, 3]);
    lab.now += 2 * DEADLINE;
    let asked = pings(lab.tell(Input::Tick));
    assert_eq!(asked.len(), 2);
    assert_eq!(lab.may(), Err(FencedBy::Lease));
    lab.now += 1000;
    lab.tell(Input::Pong { link: asked[0].0, number: asked[0].1 });
    assert_eq!(lab.may(), Err(FencedBy::Lease), "one of them has not");
    let (link, number) = asked[1];
    assert_eq!(lab.tell(Input::Pong { link, number }), [Output::Fenced(None)]);
    lab.now += PROMISE / 10 * 9 - 1001;
    assert_eq!(lab.may(), Ok(()));
    lab.now += 1;
    assert_eq!(lab.may(), Err(FencedBy::Lease), "counted from when it was asked for");
    let asked = pings(lab.tell(Input::Tick));
    for (link, number) in asked {
        lab.tell(Input::Pong { link, number });
    }
    assert_eq!(lab.may(), Ok(()));
    lab.tell(Input::SlaveLeft(LinkId(3)));
    assert_eq!(lab.may(), Err(FencedBy::Lease), "its next process has promised nothing");
}

#[test]
fn a_newer_epoch_ends_a_reign_at_once() {
    let mut lab = Lab::master_with(settings(1), &[2]);
    lab.record(GroupRecord { vacated: false, ..appointment(2, 2, &[1, 2]) });
    assert_eq!(lab.out[0], Output::StepDown(FencedBy::Role));
    assert_eq!(lab.may(), Err(FencedBy::Role));
    let link = LinkId(7);
    let (replica, is_learner) = (ReplicaId(3), false);
    let reason = Refusal::NoMaster(Epoch(2));
    lab.tell(Input::SlaveJoined { link, replica, end: 0, is_learner });
    assert_eq!(lab.out, [Output::Refuse { link, reason }]);
}

#[test]
fn too_small_a_set_takes_nothing_in() {
    let mut lab = Lab::master(Settings { min_in_sync: 2, ..settings(1) });
    assert_eq!(lab.may(), Err(FencedBy::InSyncSet));
    lab.join(2, 0);
    lab.has(2, 0);
    lab.prove();
    assert_eq!(lab.may(), Ok(()), "from now on it is waited for");
}

#[test]
fn one_connection_a_replica() {
    let mut lab = Lab::master_with(settings(1), &[2]);
    let (replica, is_learner) = (ReplicaId(2), false);
    lab.tell(Input::SlaveJoined { link: LinkId(8), replica, end: 0, is_learner });
    let reason = Refusal::Replaced(replica);
    assert_eq!(lab.out[0], Output::Refuse { link: LinkId(2), reason });
    let replica = ReplicaId(1);
    lab.tell(Input::SlaveJoined { link: LinkId(9), replica, end: 0, is_learner });
    let reason = Refusal::OwnId(replica);
    assert_eq!(lab.out[0], Output::Refuse { link: LinkId(9), reason });
}
