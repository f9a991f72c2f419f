//! What pods show of a group's replicas: pure.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ContainerState, Pod};
use rocketmq_replication::Holder;

use crate::build::names;

/// Where a pod's broker is asked: the pod's own address, which needs no name and leads to no other.
pub fn address(pod: &Pod) -> Option<String> {
    let ip = pod.status.as_ref()?.pod_ip.as_deref().filter(|ip| !ip.is_empty())?;
    let host = if ip.contains(':') { format!("[{ip}]") } else { ip.to_owned() };
    Some(format!("{host}:{}", names::BROKER_PORT))
}

/// Whether the pod of the replica that holds the lease shows that the process which took it has
/// ended: its container stopped after that, or the one that runs started after that. Times of one
/// node are compared. A pod that is gone shows nothing: its node may be cut off.
pub fn has_ended(holder: &Holder, lease: &Lease, pod: &Pod) -> bool {
    let uid = holder.incarnation.split(':').next();
    let taken = lease.spec.as_ref().and_then(|spec| spec.acquire_time.as_ref());
    let (true, Some(taken)) = (uid == pod.metadata.uid.as_deref(), taken) else { return false };
    let Some(status) = pod.status.as_ref().and_then(|status| {
        status
            .container_statuses
            .as_ref()?
            .iter()
            .find(|status| status.name == names::BROKER_CONTAINER)
    }) else {
        return false;
    };
    let stopped = |state: &Option<ContainerState>| {
        let terminated = state.as_ref().and_then(|state| state.terminated.as_ref());
        terminated.and_then(|ended| ended.finished_at.as_ref()).is_some_and(|at| at.0 >= taken.0)
    };
    let running = status.state.as_ref().and_then(|state| state.running.as_ref());
    let started: Option<Timestamp> =
        running.and_then(|running| running.started_at.as_ref()).map(|at| at.0);
    stopped(&status.state)
        || stopped(&status.last_state)
        || started.is_some_and(|started| started > taken.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn holder() -> Holder {
        Holder { incarnation: "uid-a:17".to_owned(), renewals: 1 }
    }

    fn lease() -> Lease {
        serde_json::from_value(json!({"spec": {"acquireTime": "2026-01-01T00:00:10.500000Z"}}))
            .expect("a lease")
    }

    fn pod(uid: &str, state: &Value, last: &Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "demo-broker-0-0", "uid": uid},
            "status": {"podIP": "10.0.0.7", "containerStatuses": [
                {"name": "mesh", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                 "state": {"terminated": {"exitCode": 0, "finishedAt": "2026-01-01T01:00:00Z"}}},
                {"name": "broker", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                 "state": state, "lastState": last},
            ]},
        }))
        .expect("a pod")
    }

    fn stopped_at(second: u32) -> Value {
        json!({"terminated": {"exitCode": 137, "finishedAt": format!("2026-01-01T00:00:{second}Z")}})
    }

    fn started_at(second: u32) -> Value {
        json!({"running": {"startedAt": format!("2026-01-01T00:00:{second}Z")}})
    }

    #[test]
    fn a_container_that_stopped_after_it_took_the_lease_has_ended() {
        let none = json!({});
        let waiting = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        for (state, last) in [
            (stopped_at(11), none.clone()),
            (waiting.clone(), stopped_at(11)),
            (started_at(12), stopped_at(11)),
            (started_at(11), none.clone()),
        ] {
            assert!(has_ended(&holder(), &lease(), &pod("uid-a", &state, &last)), "{state} {last}");
        }
    }

    #[test]
    fn everything_else_proves_nothing() {
        let none = json!({});
        for (uid, state, last) in [
            // It runs since before.
            ("uid-a", started_at(10), none.clone()),
            // An earlier one ended, and it runs.
            ("uid-a", started_at(10), stopped_at(10)),
            // What is seen is older than the lease.
            ("uid-a", stopped_at(10), none.clone()),
            // Another pod of that name: the old one was removed by force, perhaps.
            ("uid-b", stopped_at(30), none.clone()),
            ("uid-b", started_at(30), none.clone()),
            ("uid-a", none.clone(), none.clone()),
        ] {
            let pod = pod(uid, &state, &last);
            assert!(!has_ended(&holder(), &lease(), &pod), "{uid} {state} {last}");
        }
        let ended = pod("uid-a", &stopped_at(11), &none);
        assert!(!has_ended(&holder(), &Lease::default(), &ended), "it says no time");
    }

    #[test]
    fn brokers_are_asked_at_their_pods() {
        let mut pod = pod("uid-a", &json!({}), &json!({}));
        assert_eq!(address(&pod).as_deref(), Some("10.0.0.7:10911"));
        let status = pod.status.as_mut().expect("a status");
        status.pod_ip = Some("fd00::7".to_owned());
        assert_eq!(address(&pod).as_deref(), Some("[fd00::7]:10911"));
        pod.status = None;
        assert_eq!(address(&pod), None);
    }
}
