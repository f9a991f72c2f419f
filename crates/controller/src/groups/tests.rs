use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::election::Standing;

fn alive(ids: &[i64]) -> Alive {
    let standing = |id: &i64| (*id, Standing { epoch: 1, max_offset: 10 * id, priority: 0 });
    ids.iter().map(standing).collect()
}

fn set(ids: &[i64]) -> BTreeSet<i64> {
    ids.iter().copied().collect()
}

fn take(groups: &mut Groups, id: i64) -> Applied {
    groups.apply(&Command::ApplyBrokerId {
        cluster: "c".to_owned(),
        broker_name: "b".to_owned(),
        broker_id: id,
        register_check_code: format!("10.0.0.{id}:10911;mark{id}"),
    })
}

fn elect(groups: &mut Groups, id: Option<i64>, designate: bool, living: &[i64]) -> Applied {
    groups.apply(&Command::ElectMaster {
        broker_name: "b".to_owned(),
        broker_id: id,
        designate,
        alive: alive(living),
        unclean: false,
    })
}

fn alter(groups: &mut Groups, by: (i64, i32), to: &[i64], epoch: i32, living: &[i64]) -> Applied {
    groups.apply(&Command::AlterSyncStateSet {
        broker_name: "b".to_owned(),
        master: by.0,
        master_epoch: by.1,
        set: set(to),
        set_epoch: epoch,
        alive: alive(living),
    })
}

fn clean(groups: &mut Groups, ids: &str, living_too: bool, living: &[i64]) -> Applied {
    groups.apply(&Command::CleanBrokerData {
        broker_name: "b".to_owned(),
        ids: ids.to_owned(),
        living_too,
        alive: alive(living),
    })
}

fn code(applied: &Applied) -> i32 {
    match applied {
        Applied::Refused(refusal) => refusal.code,
        _ => 0,
    }
}

/// A group of three with 1 as its master and all in the set.
fn group_of_three() -> Groups {
    let mut groups = Groups::default();
    for id in 1..=3 {
        assert_eq!(groups.next_broker_id("b"), id);
        assert_eq!(take(&mut groups, id), Applied::IdTaken);
    }
    assert!(matches!(elect(&mut groups, Some(1), false, &[]), Applied::Elected { .. }));
    let altered = alter(&mut groups, (1, 1), &[1, 2, 3], 1, &[1, 2, 3]);
    assert_eq!(altered, Applied::SetAltered { set: set(&[1, 2, 3]), epoch: 2 });
    groups
}

#[test]
fn ids_are_given_once_and_again_to_whom_they_belong() {
    let mut groups = Groups::default();
    assert_eq!(code(&take(&mut groups, 2)), 2014, "the first of a group takes 1");
    assert!(groups.get("b").is_none(), "a refused request leaves nothing");
    assert_eq!(take(&mut groups, 1), Applied::IdTaken);
    assert_eq!(take(&mut groups, 1), Applied::IdTaken, "the answer was lost, it asks again");
    let stranger = Command::ApplyBrokerId {
        cluster: "c".to_owned(),
        broker_name: "b".to_owned(),
        broker_id: 1,
        register_check_code: "10.0.0.9:10911;other".to_owned(),
    };
    assert_eq!(code(&groups.apply(&stranger)), 2014);
    assert_eq!(groups.get("b").unwrap().address(1), Some("10.0.0.1:10911"));
    assert_eq!(take(&mut groups, 7), Applied::IdTaken);
    assert_eq!(groups.next_broker_id("b"), 8, "an id that was skipped to is not given again");
    assert_eq!(code(&take(&mut groups, -1)), 2014);
}

#[test]
fn a_registration_says_who_is_master_if_it_lives_and_keeps_the_new_address() {
    let mut groups = group_of_three();
    let register = |groups: &mut Groups, id, living: &[i64]| {
        groups.apply(&Command::RegisterBroker {
            broker_name: "b".to_owned(),
            broker_id: id,
            address: "10.0.0.22:10911".to_owned(),
            alive: alive(living),
        })
    };
    let Applied::Registered { now } = register(&mut groups, 2, &[1]) else { panic!() };
    assert_eq!((now.master, now.master_address.as_deref()), (Some(1), Some("10.0.0.1:10911")));
    assert_eq!((now.master_epoch, now.sync_state_set_epoch), (1, 2));
    let Applied::Registered { now } = register(&mut groups, 2, &[2, 3]) else { panic!() };
    assert_eq!((now.master, now.master_address), (None, None));
    assert_eq!(groups.get("b").unwrap().address(2), Some("10.0.0.22:10911"));
    assert_eq!(code(&register(&mut groups, 9, &[1])), 2010);
    assert_eq!(code(&register(&mut Groups::default(), 1, &[1])), 2010);
}

#[test]
fn a_dead_master_is_followed_by_a_live_member_of_the_set() {
    let mut groups = group_of_three();
    let stays = elect(&mut groups, Some(2), false, &[1, 2, 3]);
    assert!(matches!(&stays, Applied::MasterStays { now, .. } if now.master == Some(1)));
    let Applied::Elected { now, members } = elect(&mut groups, None, false, &[2, 3]) else {
        panic!()
    };
    assert_eq!((now.master, now.master_epoch), (Some(3), 2), "3 has the longest log");
    assert_eq!((now.sync_state_set, now.sync_state_set_epoch), (set(&[3]), 3));
    assert_eq!(members.len(), 3);
    // Nobody in the set lives: 2 is alive, but lacks what 3 acknowledged.
    assert_eq!(code(&elect(&mut groups, Some(2), false, &[1, 2])), 2012);
    assert_eq!(groups.get("b").unwrap().master, Some(3), "a broker's request changes nothing");
    assert_eq!(code(&elect(&mut groups, None, false, &[1, 2])), 2004);
    let group = groups.get("b").unwrap();
    assert_eq!((group.master, group.master_epoch), (None, 3));
    assert_eq!(group.sync_state_set, set(&[3]));
    assert_eq!(code(&elect(&mut groups, None, false, &[1, 2])), 2004);
    assert_eq!(groups.get("b").unwrap().master_epoch, 3, "asking again is no new epoch");
    assert!(matches!(elect(&mut groups, Some(3), false, &[1, 3]), Applied::Elected { .. }));
}

#[test]
fn unclean_elections_are_only_for_those_who_allow_them() {
    let mut groups = group_of_three();
    alter(&mut groups, (1, 1), &[1], 2, &[1]);
    let unclean = Command::ElectMaster {
        broker_name: "b".to_owned(),
        broker_id: None,
        designate: false,
        alive: alive(&[2]),
        unclean: true,
    };
    let Applied::Elected { now, .. } = groups.apply(&unclean) else { panic!() };
    assert_eq!((now.master, now.sync_state_set), (Some(2), set(&[2])));
}

#[test]
fn an_administrator_may_name_the_master() {
    let mut groups = group_of_three();
    let Applied::Elected { now, .. } = elect(&mut groups, Some(2), true, &[1, 2, 3]) else {
        panic!()
    };
    assert_eq!(now.master, Some(2));
    let again = elect(&mut groups, Some(2), true, &[1, 2, 3]);
    assert!(matches!(again, Applied::MasterStays { .. }));
    assert_eq!(code(&elect(&mut groups, Some(1), true, &[1, 2, 3])), 2012, "1 left the set");
    assert_eq!(code(&elect(&mut groups, Some(8), true, &[1, 2, 3])), 2010);
}

#[test]
fn a_set_is_altered_only_by_its_master_in_its_epoch() {
    let mut groups = group_of_three();
    for (by, to, epoch, living, expected) in [
        ((1, 1), &[1, 2, 3][..], 2, &[1, 2, 3][..], 2013),
        ((2, 1), &[1, 2], 2, &[1, 2], 2002),
        ((1, 7), &[1, 2], 2, &[1, 2], 2000),
        ((1, 1), &[1, 2], 1, &[1, 2], 2001),
        ((1, 1), &[1, 9], 2, &[1, 9], 2003),
        ((1, 1), &[1, 2], 2, &[1], 2006),
        ((1, 1), &[2, 3], 2, &[1, 2, 3], 2013),
        ((1, 1), &[1, 2], 2, &[1, 2], 0),
    ] {
        let applied = alter(&mut groups, by, to, epoch, living);
        assert_eq!(code(&applied), expected, "{by:?} {to:?} {applied:?}");
    }
    assert_eq!(code(&alter(&mut Groups::default(), (1, 1), &[1], 0, &[1])), 2013);
}

#[test]
fn only_dead_brokers_are_forgotten_unless_told_otherwise() {
    let mut groups = group_of_three();
    assert_eq!(code(&clean(&mut groups, "", false, &[])), 2009, "it has a master");
    assert_eq!(code(&clean(&mut groups, "2;x", false, &[])), 2009);
    assert_eq!(code(&clean(&mut groups, "2;3", false, &[3])), 2009);
    assert_eq!(clean(&mut groups, "2", false, &[1, 3]), Applied::Cleaned);
    let group = groups.get("b").unwrap();
    assert_eq!((group.sync_state_set.clone(), group.sync_state_set_epoch), (set(&[1, 3]), 3));
    assert_eq!(groups.next_broker_id("b"), 4, "the id of a forgotten broker is not given again");

    // Whoever is left after the last member of the set was forgotten lacks messages.
    assert_eq!(clean(&mut groups, "1", true, &[1, 3]), Applied::Cleaned);
    alter(&mut groups, (1, 1), &[1], 3, &[1]);
    assert_eq!(groups.get("b").unwrap().master, None);
    assert_eq!(clean(&mut groups, "3", true, &[]), Applied::Cleaned);
    assert!(groups.get("b").is_none(), "a group without replicas is gone");
    assert_eq!(code(&clean(&mut groups, "", true, &[])), 2009);

    let mut groups = group_of_three();
    alter(&mut groups, (1, 1), &[1], 2, &[1]);
    assert_eq!(clean(&mut groups, "1", true, &[]), Applied::Cleaned);
    assert_eq!(code(&elect(&mut groups, Some(2), false, &[2, 3])), 2012);
    assert_eq!(clean(&mut groups, "", true, &[2]), Applied::Cleaned);
    assert!(groups.get("b").is_none());
}

#[test]
fn texts_and_tables_have_bounds() {
    let mut groups = Groups::default();
    let apply = |groups: &mut Groups, name: &str, id, check: &str| {
        code(&groups.apply(&Command::ApplyBrokerId {
            cluster: "c".to_owned(),
            broker_name: name.to_owned(),
            broker_id: id,
            register_check_code: check.to_owned(),
        }))
    };
    assert_eq!(apply(&mut groups, "", 1, "a"), 2005);
    assert_eq!(apply(&mut groups, "b", 1, ""), 2005);
    for id in 1..=REPLICAS_MAX as i64 {
        assert_eq!(apply(&mut groups, "b", id, "a"), 0);
    }
    assert_eq!(apply(&mut groups, "b", REPLICAS_MAX as i64 + 1, "a"), 2014);
    for n in 1..GROUPS_MAX {
        assert_eq!(apply(&mut groups, &format!("g{n}"), 1, "a"), 0);
    }
    assert_eq!(apply(&mut groups, "one more", 1, "a"), 2014);
}

#[test]
fn what_is_too_long_for_the_log_is_refused_by_field() {
    let (fits, long) = ("x".repeat(TEXT_BYTES_MAX), "x".repeat(TEXT_BYTES_MAX + 1));
    let register = |name: &str, address: &str| Command::RegisterBroker {
        broker_name: name.to_owned(),
        broker_id: 1,
        address: address.to_owned(),
        alive: Alive::new(),
    };
    let clean = |ids: &str| Command::CleanBrokerData {
        broker_name: "b".to_owned(),
        ids: ids.to_owned(),
        living_too: false,
        alive: Alive::new(),
    };
    let take = |cluster: &str, check_code: &str| Command::ApplyBrokerId {
        cluster: cluster.to_owned(),
        broker_name: "b".to_owned(),
        broker_id: 1,
        register_check_code: check_code.to_owned(),
    };
    let alter = |count: usize| Command::AlterSyncStateSet {
        broker_name: "b".to_owned(),
        master: 1,
        master_epoch: 1,
        set: (0..count as i64).collect(),
        set_epoch: 1,
        alive: Alive::new(),
    };
    register(&fits, &fits).check().unwrap();
    alter(REPLICAS_MAX).check().unwrap();
    for (command, field) in [
        (register(&long, "a"), "brokerName"),
        (register("b", &long), "brokerAddress"),
        (clean(&long), "brokerControllerIdsToClean"),
        (take(&long, "a"), "clusterName"),
        (take("c", &long), "registerCheckCode"),
        (alter(REPLICAS_MAX + 1), "syncStateSet"),
    ] {
        let refusal = command.check().unwrap_err();
        assert!(refusal.code == 2005 && refusal.remark.contains(field), "{refusal:?}");
    }
}

fn commands() -> impl Strategy<Value = Command> {
    let id = -1..5_i64;
    let living = || proptest::collection::btree_map(1..5_i64, standings(), 0..5);
    prop_oneof![
        3 => (id.clone(), 0..6_i32, proptest::collection::btree_set(1..5_i64, 0..5), 0..8_i32, living())
            .prop_map(|(master, master_epoch, set, set_epoch, alive)| {
                let broker_name = "b".to_owned();
                Command::AlterSyncStateSet { broker_name, master, master_epoch, set, set_epoch, alive }
            }),
        3 => (proptest::option::of(id.clone()), any::<bool>(), living()).prop_map(
            |(broker_id, designate, alive)| Command::ElectMaster {
                broker_name: "b".to_owned(),
                broker_id,
                designate,
                alive,
                unclean: false,
            }
        ),
        3 => (id.clone(), 0..3_i32).prop_map(|(broker_id, mark)| Command::ApplyBrokerId {
            cluster: "c".to_owned(),
            broker_name: "b".to_owned(),
            broker_id,
            register_check_code: format!("h:1;{mark}"),
        }),
        1 => (id, living()).prop_map(|(broker_id, alive)| Command::RegisterBroker {
            broker_name: "b".to_owned(),
            broker_id,
            address: format!("h:{broker_id}"),
            alive,
        }),
        1 => ("[1-4]", any::<bool>(), living()).prop_map(|(ids, living_too, alive)| {
            Command::CleanBrokerData { broker_name: "b".to_owned(), ids, living_too, alive }
        }),
    ]
}

fn standings() -> impl Strategy<Value = Standing> {
    (0..3_i32, 0..3_i64, 0..3_i32).prop_map(|(epoch, max_offset, priority)| Standing {
        epoch,
        max_offset,
        priority,
    })
}

proptest! {
    /// Whatever is asked, in whatever order: epochs never fall, an epoch has one master, a master is in
    /// the set, the set is of known replicas, and who becomes master was in the set before and lives.
    #[test]
    fn no_sequence_of_commands_breaks_a_group(list in proptest::collection::vec(commands(), 1..60)) {
        let mut groups = Groups::default();
        for command in &list {
            let before = groups.get("b").cloned();
            let mut twin = groups.clone();
            let applied = groups.apply(command);
            prop_assert_eq!(twin.apply(command), applied.clone());
            prop_assert_eq!(&twin, &groups);
            let kept = serde_json::to_vec(&groups).unwrap();
            prop_assert_eq!(&serde_json::from_slice::<Groups>(&kept).unwrap(), &groups);
            let kept = serde_json::to_vec(command).unwrap();
            prop_assert_eq!(&serde_json::from_slice::<Command>(&kept).unwrap(), command);

            let (Some(before), Some(now)) = (before, groups.get("b")) else { continue };
            prop_assert!(now.master_epoch >= before.master_epoch);
            prop_assert!(now.sync_state_set_epoch >= before.sync_state_set_epoch);
            prop_assert!(now.next_broker_id >= before.next_broker_id);
            if now.master != before.master {
                prop_assert!(now.master_epoch > before.master_epoch);
            }
            if now.sync_state_set != before.sync_state_set {
                prop_assert!(now.sync_state_set_epoch > before.sync_state_set_epoch);
            }
            prop_assert!(now.sync_state_set.iter().all(|id| now.replicas.contains_key(id)));
            prop_assert!(now.master.is_none_or(|id| now.sync_state_set.contains(&id)));
            if let (Applied::Elected { now: new, .. }, Command::ElectMaster { alive, .. }) =
                (&applied, command)
            {
                let id = new.master.unwrap();
                let first = before.master_epoch == 0;
                prop_assert!(first || before.sync_state_set.contains(&id) && alive.contains_key(&id));
            }
        }
    }
}
