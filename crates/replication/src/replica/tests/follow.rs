//! A slave.

use super::*;

const LINK: LinkId = LinkId(40);

fn hello(epoch: i32, epochs: EpochTable, log_end: i64) -> Input {
    Input::MasterHello { link: LINK, epoch: Epoch(epoch), epochs, log_end }
}

fn sent(epoch: i32, entry: (i32, i64), confirmed: i64) -> Input {
    let entry = EpochEntry { epoch: Epoch(entry.0), start: entry.1 };
    Input::MasterSent { link: LINK, epoch: Epoch(epoch), entry, confirmed }
}

/// Replica 2 copies the log of replica 1, master of epoch 2 from 100 on; both end at 150.
fn slave() -> Lab {
    let mut lab = Lab::new(settings(2), table(&[(1, 0)]), 100);
    lab.record(reign(2, 1, &[1]));
    assert_eq!(
        lab.out[0],
        Output::Follow {
            epoch: Epoch(2),
            ha_address: "pod-1:10912".to_owned(),
            broker_address: "pod-1:10911".to_owned()
        }
    );
    let epochs = table(&[(1, 0)]);
    lab.tell(hello(2, table(&[(1, 0), (2, 100)]), 150));
    assert_eq!(lab.out, [Output::Truncate { to: 100, surplus: 0, epochs }]);
    assert_eq!(lab.replica.role(), Role::Waiting);
    assert_eq!(lab.tell(Input::Truncated { end: 100 }), [Output::Copy { link: LINK }]);
    assert_eq!(lab.replica.role(), Role::Slave(Epoch(2)));
    lab.tell(sent(2, (2, 100), 80));
    assert_eq!(lab.out, [Output::RecordEpochs(table(&[(1, 0), (2, 100)])), Output::Confirm(80)]);
    lab.tell(sent(2, (2, 100), 140));
    assert_eq!(lab.out, [Output::Confirm(100)], "no more than it has");
    assert_eq!(lab.tell(Input::LogEnd(150)), [Output::Confirm(140)]);
    lab
}

#[test]
fn a_log_is_cut_where_the_epochs_part() {
    let mut lab = Lab::new(settings(1), table(&[(1, 0), (2, 100), (3, 150)]), 190);
    lab.record(reign(5, 2, &[2]));
    lab.tell(hello(5, table(&[(1, 0), (2, 100), (4, 170)]), 300));
    let epochs = table(&[(1, 0), (2, 100)]);
    assert_eq!(lab.out, [Output::Truncate { to: 150, surplus: 40, epochs }]);
    assert_eq!(lab.replica.epochs().last().expect("two left").epoch, Epoch(2));
}

#[test]
fn an_epoch_that_the_master_has_as_well_stays_though_it_is_empty() {
    let mut lab = Lab::new(settings(1), table(&[(1, 0), (2, 100)]), 100);
    lab.record(reign(2, 2, &[2]));
    lab.tell(hello(2, table(&[(1, 0), (2, 100)]), 100));
    let epochs = table(&[(1, 0), (2, 100)]);
    assert_eq!(lab.out, [Output::Truncate { to: 100, surplus: 0, epochs }]);
}

#[test]
fn a_master_that_cannot_be_followed_is_refused_by_name() {
    let refused = |epochs: &[(i32, i64)], end: i64, hello: Input| {
        let mut lab = Lab::new(settings(1), table(epochs), end);
        lab.record(reign(5, 2, &[2]));
        lab.tell(hello);
        lab.out.iter().find_map(|output| match output {
            Output::Refuse { link: LINK, reason } => Some(reason.clone()),
            _ => None,
        })
    };
    let (ours, older, newer) = (Epoch(5), Epoch(4), Epoch(6));
    let theirs = || table(&[(4, 0)]);
    assert_eq!(
        refused(&[], 0, hello(4, theirs(), 9)),
        Some(Refusal::OldEpoch { theirs: older, ours })
    );
    assert_eq!(
        refused(&[], 0, hello(6, theirs(), 9)),
        Some(Refusal::UnknownEpoch { theirs: newer, ours })
    );
    assert_eq!(refused(&[(3, 0)], 9, hello(5, theirs(), 9)), Some(Refusal::NothingInCommon));
    assert_eq!(refused(&[], 0, hello(5, theirs(), 9)), None, "an empty log fits everywhere");
}

#[test]
fn nothing_is_cut_that_was_shown() {
    let mut lab = slave();
    lab.record(reign(3, 3, &[3]));
    assert_eq!(lab.out[0], Output::Unfollow);
    lab.tell(hello(3, table(&[(1, 0), (3, 120)]), 200));
    let reason = Refusal::BelowConfirmed { to: 100, confirmed: 140 };
    assert_eq!(lab.out, [Output::Refuse { link: LINK, reason }]);
    assert_eq!(lab.replica.role(), Role::Waiting);
}

#[test]
fn an_older_masters_frames_are_refused() {
    let mut lab = slave();
    lab.tell(sent(1, (1, 0), 150));
    let reason = Refusal::OldEpoch { theirs: Epoch(1), ours: Epoch(2) };
    assert_eq!(lab.out, [Output::Refuse { link: LINK, reason }]);
    assert_eq!(lab.replica.confirmed(), 140);
    let other = Input::MasterSent {
        link: LinkId(41),
        epoch: Epoch(2),
        entry: EpochEntry { epoch: Epoch(2), start: 100 },
        confirmed: 150,
    };
    assert_eq!(lab.tell(other), [], "of a connection that is none any more");
}

#[test]
fn a_promise_holds_off_a_take_over_unless_the_master_ends_it() {
    let expired = || GroupRecord { vacated: false, reign: Epoch(2), ..appointment(3, 2, &[1, 2]) };
    for closed_by_master in [false, true] {
        let mut lab = slave();
        lab.wait(2 * PROMISE);
        assert_eq!(
            lab.tell(Input::Ping { link: LINK, number: 4 }),
            [Output::Pong { link: LINK, number: 4 }]
        );
        lab.now += 100;
        if closed_by_master {
            lab.tell(Input::MasterLost { link: LINK, closed_by_master });
        }
        lab.record(expired());
        assert!(lab.out.contains(&Output::Unfollow));
        assert_eq!(lab.tell(Input::Ping { link: LINK, number: 5 }), [], "no more promises");
        assert_eq!(lab.replica.role() == Role::TakingOver(Epoch(3)), closed_by_master);
        lab.wait(PROMISE - 101);
        assert_eq!(lab.replica.role() == Role::TakingOver(Epoch(3)), closed_by_master);
        lab.wait(1);
        assert_eq!(lab.replica.role(), Role::TakingOver(Epoch(3)));
    }
}

#[test]
fn a_released_master_is_followed_no_more() {
    let mut lab = slave();
    lab.record(GroupRecord { reign: Epoch(2), ..appointment(2, 1, &[1, 2]) });
    assert_eq!(lab.out, [Output::Unfollow]);
}

#[test]
fn epochs_of_removed_files_are_forgotten() {
    let mut lab = slave();
    assert_eq!(lab.tell(Input::LogStart(100)), [Output::RecordEpochs(table(&[(2, 100)]))]);
    assert_eq!(lab.tell(Input::LogStart(120)), []);
}
