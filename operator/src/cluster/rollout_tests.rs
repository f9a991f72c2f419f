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
