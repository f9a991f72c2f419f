use super::*;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("in range")
}

#[derive(Clone, Copy, Debug)]
struct PodState {
    ready: bool,
    terminating: bool,
    updated: bool,
}

const GOOD: PodState = PodState { ready: true, terminating: false, updated: true };
const OLD: PodState = PodState { ready: true, terminating: false, updated: false };
const BROKEN: PodState = PodState { ready: false, terminating: false, updated: false };
const STARTING: PodState = PodState { ready: false, terminating: false, updated: true };

fn pod() -> Pod {
    let mut pod = Pod::default();
    pod.metadata.creation_timestamp = Some(Time(at(0)));
    pod.metadata.deletion_timestamp = Some(Time(at(0)));
    pod
}

fn tiers<'a>(states: &[Vec<PodState>], pod: &'a Pod) -> Vec<TierView<'a>> {
    states
        .iter()
        .enumerate()
        .map(|(tier, pods)| TierView {
            name: format!("t{tier}"),
            name_servers: tier == 0,
            replicas: i32::try_from(pods.len()).expect("few"),
            exists: true,
            observed: true,
            pods: pods
                .iter()
                .enumerate()
                .map(|(ordinal, state)| PodView {
                    name: format!("t{tier}-{ordinal}"),
                    name_server: tier == 0,
                    pod,
                    ready: state.ready,
                    terminating: state.terminating,
                    updated: state.updated,
                    reason: RestartReason::TemplateChanged,
                })
                .collect(),
            members: None,
        })
        .collect()
}

fn replaced(roll: &Roll<'_>) -> Option<String> {
    match roll {
        Roll::Replace { pod, .. } => Some(pod.name.clone()),
        _ => None,
    }
}

#[test]
fn name_servers_go_first_then_groups_by_number() {
    let pod = pod();
    let all_old = tiers(&[vec![OLD, OLD], vec![OLD], vec![OLD]], &pod);
    assert_eq!(replaced(&plan(&all_old, true, at(0))).as_deref(), Some("t0-0"));
    let half = tiers(&[vec![GOOD, GOOD], vec![OLD], vec![OLD]], &pod);
    assert_eq!(replaced(&plan(&half, true, at(0))).as_deref(), Some("t1-0"));
    let done = tiers(&[vec![GOOD, GOOD], vec![GOOD], vec![GOOD]], &pod);
    assert!(matches!(plan(&done, true, at(0)), Roll::Done));
}

#[test]
fn a_broken_pod_goes_before_all_others() {
    let pod = pod();
    let tiers = tiers(&[vec![OLD, OLD], vec![OLD], vec![BROKEN]], &pod);
    assert_eq!(replaced(&plan(&tiers, false, at(0))).as_deref(), Some("t2-0"));
}

#[test]
fn nothing_is_replaced_before_the_template_is_observed() {
    let pod = pod();
    let mut tiers = tiers(&[vec![OLD], vec![OLD]], &pod);
    tiers[1].observed = false;
    assert!(matches!(plan(&tiers, true, at(0)), Roll::Wait { .. }));
}

/// A name server that cannot start keeps brokers from being made; it has to be replaceable.
#[test]
fn a_broken_name_server_is_replaced_before_brokers_exist() {
    let pod = pod();
    let mut tiers = tiers(&[vec![BROKEN], vec![]], &pod);
    tiers[1].exists = false;
    tiers[1].observed = false;
    tiers[1].replicas = 1;
    assert_eq!(replaced(&plan(&tiers, false, at(0))).as_deref(), Some("t0-0"));
}

#[test]
fn a_pod_that_does_not_start_is_stuck_after_a_while() {
    let pod = pod();
    let tiers = tiers(&[vec![GOOD], vec![STARTING]], &pod);
    assert!(matches!(plan(&tiers, true, at(599)), Roll::Wait { stuck: false, .. }));
    assert!(matches!(plan(&tiers, true, at(601)), Roll::Wait { stuck: true, .. }));
}

#[test]
fn a_slave_that_copies_a_long_log_is_not_stuck() {
    let running = |started: bool| {
        let mut pod = pod();
        pod.status = serde_json::from_value(serde_json::json!({"containerStatuses": [{
            "name": "broker", "image": "b", "imageID": "", "ready": false, "restartCount": 0,
            "started": started,
        }]}))
        .expect("a status");
        pod
    };
    for (started, is_behind, is_stuck) in
        [(true, true, false), (false, true, true), (true, false, true)]
    {
        let pod = running(started);
        let views = with_members(&[GOOD, STARTING], &pod, |members| {
            if is_behind {
                members.in_sync.remove("t1-1");
            }
        });
        let Roll::Wait { step, stuck } = plan(&views, true, at(1000)) else { panic!("a wait") };
        assert_eq!(stuck, is_stuck, "started {started}, behind {is_behind}: {step}");
        assert_eq!(step.contains("in sync"), !is_stuck, "{step}");
    }
}

#[test]
fn a_missing_pod_is_waited_for() {
    let pod = pod();
    let mut tiers = tiers(&[vec![OLD], vec![GOOD]], &pod);
    tiers[1].replicas = 2;
    assert!(matches!(plan(&tiers, true, at(0)), Roll::Wait { .. }));
}

proptest! {
    /// A healthy pod is replaced only while every other one is healthy and registered.
    #[test]
    fn at_most_one_pod_is_away(
        states in prop::collection::vec(
            prop::collection::vec((any::<bool>(), any::<bool>(), any::<bool>()), 1..4), 1..4),
        registered in any::<bool>(),
    ) {
        let pod = pod();
        let states: Vec<Vec<PodState>> = states
            .iter()
            .map(|tier| tier
                .iter()
                .map(|(ready, terminating, updated)| PodState {
                    ready: *ready && !terminating,
                    terminating: *terminating,
                    updated: *updated,
                })
                .collect())
            .collect();
        let views = tiers(&states, &pod);
        if let Roll::Replace { pod, .. } = plan(&views, registered, at(0)) {
            prop_assert!(!pod.updated && !pod.terminating);
            prop_assert!(views.iter().flat_map(|t| &t.pods).all(|p| !p.terminating));
            if pod.ready {
                prop_assert!(registered);
                prop_assert!(views.iter().flat_map(|t| &t.pods).all(|p| p.ready));
            }
        }
    }
}

/// A group with slaves whose record says this.
fn with_members<'a>(
    states: &[PodState],
    pod: &'a Pod,
    edit: impl FnOnce(&mut Members),
) -> Vec<TierView<'a>> {
    let names = || (0..states.len()).map(|ordinal| format!("t1-{ordinal}"));
    let mut views = tiers(&[vec![GOOD], states.to_vec()], pod);
    let mut members = Members {
        epoch: rocketmq_replication::Epoch(1),
        master: Some("t1-0".to_owned()),
        is_held: true,
        in_sync: names().collect(),
        wanted: names().collect(),
        min_in_sync: 1,
        may_ask: true,
        ..Members::default()
    };
    edit(&mut members);
    views[1].members = Some(members);
    views
}

fn switched(roll: &Roll<'_>) -> Option<String> {
    match roll {
        Roll::Switchover { to, .. } => Some(to.clone()),
        _ => None,
    }
}

#[test]
fn slaves_go_before_the_master_and_the_master_hands_over() {
    let pod = pod();
    let slave_first = with_members(&[OLD, OLD, OLD], &pod, |_| {});
    assert_eq!(replaced(&plan(&slave_first, true, at(0))).as_deref(), Some("t1-1"));
    let last = with_members(&[OLD, GOOD, GOOD], &pod, |_| {});
    assert_eq!(switched(&plan(&last, true, at(0))).as_deref(), Some("t1-1"));
    let fenced = with_members(&[OLD, GOOD, GOOD], &pod, |m| {
        m.fenced.insert("t1-1".to_owned());
    });
    assert_eq!(switched(&plan(&fenced, true, at(0))).as_deref(), Some("t1-2"));
    let aborted = with_members(&[OLD, GOOD, GOOD], &pod, |m| m.may_ask = false);
    assert!(matches!(plan(&aborted, true, at(0)), Roll::Wait { .. }));
    let under_way = with_members(&[OLD, GOOD], &pod, |m| m.handover = Some("t1-1".to_owned()));
    assert!(matches!(plan(&under_way, true, at(0)), Roll::Wait { .. }));
    let was_master = with_members(&[OLD, GOOD, GOOD], &pod, |m| m.master = Some("t1-2".to_owned()));
    assert_eq!(replaced(&plan(&was_master, true, at(0))).as_deref(), Some("t1-0"));
}

#[test]
fn nothing_goes_while_a_copy_is_behind_unless_that_mends_it() {
    let pod = pod();
    let behind = |id: usize| {
        move |members: &mut Members| {
            members.in_sync.remove(&format!("t1-{id}"));
        }
    };
    let wait = with_members(&[OLD, GOOD, OLD], &pod, behind(1));
    assert!(matches!(plan(&wait, true, at(0)), Roll::Wait { .. }));
    let mend = with_members(&[OLD, GOOD, OLD], &pod, behind(2));
    assert_eq!(replaced(&plan(&mend, true, at(0))).as_deref(), Some("t1-2"));
}

#[test]
fn a_broker_without_slaves_yet_is_restarted_to_learn_of_its_record() {
    let pod = pod();
    let alone = |members: &mut Members| {
        members.is_held = false;
        members.in_sync = ["t1-0".to_owned()].into();
    };
    let first = with_members(&[OLD, GOOD], &pod, alone);
    assert_eq!(replaced(&plan(&first, true, at(0))).as_deref(), Some("t1-0"));
    let done = with_members(&[GOOD, GOOD], &pod, alone);
    assert!(matches!(plan(&done, true, at(0)), Roll::Wait { .. }), "it takes over by itself");
    let lost = with_members(&[OLD, GOOD], &pod, |members| members.is_held = false);
    assert!(matches!(plan(&lost, true, at(0)), Roll::Wait { .. }), "a slave may be promoted");
}

#[test]
fn a_master_whose_pod_is_to_be_removed_hands_over_to_one_that_stays() {
    let pod = pod();
    let views = with_members(&[GOOD, GOOD, GOOD], &pod, |members| {
        members.master = Some("t1-2".to_owned());
        members.wanted.remove("t1-2");
        members.wanted.remove("t1-1");
    });
    assert_eq!(switched(&plan(&views, true, at(0))).as_deref(), Some("t1-0"));
}

#[test]
fn a_copy_that_is_needed_is_spared_where_there_are_others_to_go_first() {
    let mut members = Members {
        in_sync: ["a", "b", "c"].map(str::to_owned).into(),
        wanted: ["a", "b", "c"].map(str::to_owned).into(),
        min_in_sync: 2,
        ..Members::default()
    };
    assert!(members.can_spare("a"));
    members.in_sync.remove("c");
    assert!(!members.can_spare("a"));
    assert!(members.can_spare("c"), "it does not count");
    members.min_in_sync = 3;
    members.in_sync.insert("c".to_owned());
    assert!(members.can_spare("a"), "else nothing could ever be changed");
}

proptest! {
    /// A healthy pod of a group with slaves goes only when it is no master, the master is at work, and
    /// the copies that are required stay.
    #[test]
    fn a_healthy_pod_goes_only_if_the_group_goes_on(
        states in prop::collection::vec((any::<bool>(), any::<bool>()), 2..4),
        in_sync in prop::collection::vec(any::<bool>(), 3),
        (master, is_held, min_in_sync) in (0..4_usize, any::<bool>(), 1..4_usize),
        (handover, may_ask, registered) in (any::<bool>(), any::<bool>(), any::<bool>()),
    ) {
        let pod = pod();
        let states: Vec<PodState> = states
            .into_iter()
            .map(|(ready, updated)| PodState { ready, terminating: false, updated })
            .collect();
        let views = with_members(&states, &pod, |members| {
            members.master = Some(format!("t1-{master}"));
            members.is_held = is_held;
            members.min_in_sync = min_in_sync;
            members.may_ask = may_ask;
            members.handover = handover.then(|| "t1-1".to_owned());
            let behind: Vec<String> = (0..3)
                .filter(|id| !in_sync[*id])
                .map(|id| format!("t1-{id}"))
                .collect();
            members.in_sync.retain(|name| !behind.contains(name));
        });
        let members = views[1].members.clone().expect("members");
        match plan(&views, registered, at(0)) {
            Roll::Replace { pod, .. } if pod.ready => {
                prop_assert!(!pod.updated && !handover);
                let alone = members.in_sync.iter().eq([&pod.name]);
                if Some(&pod.name) == members.master.as_ref() {
                    prop_assert!(!is_held && alone);
                } else {
                    prop_assert!(is_held && members.can_spare(&pod.name) || !members.in_sync.contains(&pod.name));
                }
                prop_assert!(states.iter().all(|state| state.ready));
            }
            Roll::Switchover { to, .. } => {
                prop_assert!(is_held && may_ask && !handover);
                prop_assert!(members.in_sync.contains(&to) && Some(&to) != members.master.as_ref());
                prop_assert!(states.iter().all(|state| state.ready));
            }
            _ => {}
        }
    }
}
