//! Why a pod that should run does not, from what the kubelet and the scheduler say of it: pure.
//!
//! Texts hold no counters and no times, which would make every pass a write while a pod crashes.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod};
use kube::ResourceExt;

use super::observe::is_ready;
use crate::conditions::Reason;

/// A new pod is unschedulable for a moment while its volume is made.
const SCHEDULED_WITHIN: SignedDuration = SignedDuration::from_secs(30);
/// Longest part of a program's last words, in characters.
const LAST_WORDS_MAX: usize = 300;

/// What is wrong with a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Name of the pod.
    pub pod: String,
    /// Its kind.
    pub reason: Reason,
    /// What is wrong and where to look, without the pod's name.
    pub text: String,
}

impl Trouble {
    /// The sentence that goes into conditions and events.
    pub fn sentence(&self) -> String {
        format!("{} {}", self.pod, self.text)
    }
}

/// What keeps `pod` from being ready; `None` also for one that only takes its time.
pub fn of(pod: &Pod, now: Timestamp) -> Option<Trouble> {
    if is_ready(pod) || pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let name = pod.name_any();
    let (reason, text) = unschedulable(pod, now).or_else(|| {
        let status = pod.status.as_ref()?;
        let containers = status.container_statuses.as_ref()?;
        containers.iter().find_map(|container| of_container(&name, container))
    })?;
    Some(Trouble { pod: name, reason, text })
}

fn unschedulable(pod: &Pod, now: Timestamp) -> Option<(Reason, String)> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let scheduled = conditions.iter().find(|condition| condition.type_ == "PodScheduled")?;
    let since = scheduled.last_transition_time.as_ref();
    let long = since.is_none_or(|since| now.duration_since(since.0) > SCHEDULED_WITHIN);
    (scheduled.status == "False" && long).then(|| {
        let why = scheduled.message.as_deref().unwrap_or("the scheduler gives no cause");
        (Reason::PodUnschedulable, format!("is on no node: {}", shortened(why)))
    })
}

fn of_container(pod: &str, container: &ContainerStatus) -> Option<(Reason, String)> {
    let state = container.state.as_ref()?;
    let waiting = state.waiting.as_ref();
    let waits_for = waiting.and_then(|waiting| waiting.reason.as_deref()).unwrap_or_default();
    match waits_for {
        "ErrImagePull"
        | "ImagePullBackOff"
        | "InvalidImageName"
        | "ErrImageNeverPull"
        | "ImageInspectError"
        | "RegistryUnavailable" => {
            let text = format!(
                "cannot run: image {} cannot be pulled; `kubectl describe pod {pod}` says why",
                container.image
            );
            return Some((Reason::ImageNotPulled, text));
        }
        "CreateContainerConfigError"
        | "CreateContainerError"
        | "RunContainerError"
        | "PreCreateHookError"
        | "PostStartHookError" => {
            let why = waiting.and_then(|waiting| waiting.message.as_deref()).unwrap_or(waits_for);
            return Some((Reason::PodNotStarted, format!("cannot start: {}", shortened(why))));
        }
        _ => {}
    }
    // A container that runs again is in trouble until it is ready: it may well crash once more.
    let ended = [&container.state, &container.last_state]
        .into_iter()
        .filter_map(|state| state.as_ref()?.terminated.as_ref())
        .find(|ended| ended.exit_code != 0)?;
    Some((Reason::PodCrashing, crash(pod, &container.name, ended)))
}

fn crash(pod: &str, container: &str, ended: &ContainerStateTerminated) -> String {
    let how = match ended.reason.as_deref() {
        Some("OOMKilled") => "was killed at its memory limit".to_owned(),
        _ => format!("ended with exit code {}", ended.exit_code),
    };
    match ended.message.as_deref().and_then(last_words) {
        Some(words) => format!("crashes: {container} {how}: {words}"),
        None => format!(
            "crashes: {container} {how} and said nothing; `kubectl logs {pod} --previous` may say more"
        ),
    }
}

/// The last line that is no frame of a backtrace.
fn last_words(message: &str) -> Option<String> {
    let lines = message.split("Stack backtrace:").next()?.lines();
    lines.map(str::trim).rfind(|line| !line.is_empty()).map(shortened)
}

fn shortened(text: &str) -> String {
    text.trim().chars().take(LAST_WORDS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(status: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p-0"}, "status": status}))
            .expect("a pod")
    }

    fn container(state: Value, last_state: Value) -> Pod {
        pod(json!({
            "conditions": [{"type": "Ready", "status": "False"}],
            "containerStatuses": [{
                "name": "broker", "image": "r/broker:1", "imageID": "", "ready": false,
                "restartCount": 3, "state": state, "lastState": last_state,
            }],
        }))
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    fn found(pod: &Pod) -> Option<(Reason, String)> {
        of(pod, at(1_000)).map(|trouble| (trouble.reason, trouble.sentence()))
    }

    fn failed() -> Value {
        json!({"terminated": {
            "exitCode": 1, "reason": "Error",
            "message": "starting\nError: configuration file /etc/rocketmq/broker.conf\n\nCaused by:\n    flushDiskType is BAD\n\n",
        }})
    }

    #[test]
    fn a_crash_is_told_by_its_last_line_in_every_phase_of_the_loop() {
        let wanted = Some((
            Reason::PodCrashing,
            "p-0 crashes: broker ended with exit code 1: flushDiskType is BAD".to_owned(),
        ));
        let back_off =
            json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}});
        for pod in [
            container(failed(), json!({})),
            container(back_off, failed()),
            container(json!({"running": {}}), failed()),
        ] {
            assert_eq!(found(&pod), wanted);
        }
    }

    #[test]
    fn a_silent_crash_says_where_to_look() {
        let killed = json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}});
        let (reason, text) = found(&container(killed, json!({}))).expect("trouble");
        assert_eq!(reason, Reason::PodCrashing);
        assert!(text.contains("killed at its memory limit"), "{text}");
        assert!(text.contains("kubectl logs p-0 --previous"), "{text}");
    }

    #[test]
    fn an_image_that_cannot_be_pulled_is_named() {
        for waits_for in ["ErrImagePull", "ImagePullBackOff"] {
            let pod = container(json!({"waiting": {"reason": waits_for}}), json!({}));
            let (reason, text) = found(&pod).expect("trouble");
            assert_eq!(reason, Reason::ImageNotPulled);
            assert!(text.contains("image r/broker:1 cannot be pulled"), "{text}");
        }
    }

    #[test]
    fn a_container_that_cannot_be_made_has_the_kubelets_message() {
        let waiting =
            json!({"waiting": {"reason": "CreateContainerConfigError", "message": "no secret s"}});
        assert_eq!(
            found(&container(waiting, json!({}))),
            Some((Reason::PodNotStarted, "p-0 cannot start: no secret s".to_owned()))
        );
    }

    #[test]
    fn a_pod_without_a_node_is_trouble_after_a_while() {
        let pod = pod(json!({"conditions": [{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": "0/1 nodes are available", "lastTransitionTime": at(1_000).to_string(),
        }]}));
        assert_eq!(of(&pod, at(1_020)), None);
        let trouble = of(&pod, at(1_031)).expect("trouble");
        assert_eq!(trouble.reason, Reason::PodUnschedulable);
        assert_eq!(trouble.sentence(), "p-0 is on no node: 0/1 nodes are available");
    }

    #[test]
    fn starting_stopping_and_recovered_pods_are_no_trouble() {
        let starting = container(json!({"waiting": {"reason": "ContainerCreating"}}), json!({}));
        assert_eq!(found(&starting), None);
        assert_eq!(found(&container(json!({"running": {}}), json!({}))), None);
        let mut recovered = container(json!({"running": {}}), failed());
        let status = recovered.status.as_mut().expect("a status");
        status.conditions.as_mut().expect("conditions")[0].status = "True".to_owned();
        assert_eq!(found(&recovered), None);
        let mut stopping = container(failed(), json!({}));
        stopping.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(0)));
        assert_eq!(found(&stopping), None);
    }
}
