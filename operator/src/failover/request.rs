//! What people ask for by annotations of the cluster: pure. They live outside of Git, and the operator
//! takes away those that are requests once they are answered.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use rocketmq_replication::ReplicaId;
use serde_json::{Value, json};

use crate::build::{Scale, names};
use crate::crd::{
    ALLOW_UNCLEAN_ANNOTATION, FENCE_ANNOTATION, RocketMQCluster, SWITCHOVER_ANNOTATION,
};

/// Whom a switchover goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Whoever suits.
    Any,
    /// This one.
    Replica(ReplicaId),
}

/// Members of `broker` that must neither serve nor be appointed: those that the annotation lists, of
/// `all`; `*` stands for every pod of the cluster.
pub fn fenced(
    annotations: &BTreeMap<String, String>,
    broker: &str,
    all: impl Iterator<Item = ReplicaId>,
) -> BTreeSet<ReplicaId> {
    let listed: BTreeSet<&str> = entries(annotations, FENCE_ANNOTATION).collect();
    all.filter(|id| {
        listed.contains("*") || listed.contains(names::replica_pod(broker, *id).as_str())
    })
    .collect()
}

/// The switchover that is asked for, with its entry in the annotation: a pod or a group.
pub fn switchover(
    annotations: &BTreeMap<String, String>,
    broker: &str,
) -> Option<(String, Target)> {
    entries(annotations, SWITCHOVER_ANNOTATION).find_map(|entry| {
        let target = if entry == broker {
            Target::Any
        } else {
            Target::Replica(names::replica_of(broker, entry)?)
        };
        Some((entry.to_owned(), target))
    })
}

/// Whether a group may get a master that lacks acknowledged messages, this once.
pub fn unclean(annotations: &BTreeMap<String, String>, broker: &str) -> bool {
    entries(annotations, ALLOW_UNCLEAN_ANNOTATION).any(|entry| entry == broker)
}

/// What the entries of an annotation may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// Groups whose master is appointed.
    Groups,
    /// Their pods; `*` for all.
    Pods,
    /// Either.
    GroupsAndPods,
}

/// Entries of an annotation that name nobody who could do what it asks for, each with the reason.
pub fn strangers(
    cluster: &RocketMQCluster,
    scale: &Scale,
    annotation: &str,
    named: Named,
) -> Vec<(String, String)> {
    let name = cluster.name_any();
    entries(cluster.annotations(), annotation)
        .filter(|entry| !(named == Named::Pods && *entry == "*"))
        .filter_map(|entry| Some((entry.to_owned(), stranger(&name, scale, entry, named)?)))
        .collect()
}

/// Why an entry names nobody, if so.
fn stranger(cluster: &str, scale: &Scale, entry: &str, named: Named) -> Option<String> {
    let exists = |number: &i32| *number < scale.groups;
    let group = names::broker_number(cluster, entry).filter(exists);
    let pod = (0..scale.groups).find_map(|number| {
        Some((number, names::replica_of(&names::broker(cluster, number), entry)?))
    });
    let (number, replica) = match (group, pod) {
        (Some(number), _) if named != Named::Pods => (number, None),
        (_, Some((number, replica))) if named != Named::Groups => (number, Some(replica)),
        (Some(_), _) => return Some("that is a group, name its pods".to_owned()),
        (None, Some(_)) => return Some("that is a pod, name its group".to_owned()),
        (None, None) => return Some("the cluster has nothing of that name".to_owned()),
    };
    let broker = names::broker(cluster, number);
    match scale.appointed.get(&number) {
        None => Some(format!("{broker} has no slaves, and its only broker no record")),
        Some(appointed) if replica.is_some_and(|id| id.0 > i64::from(appointed.pods)) => {
            Some(format!("{broker} has no such pod, it has {}", appointed.pods))
        }
        Some(_) => None,
    }
}

/// A patch that takes `entry` out of an annotation, or puts `instead` in its place. It holds the
/// resource version, so that what people change meanwhile is not lost. `None` when it is not there.
pub fn answered(
    cluster: &RocketMQCluster,
    annotation: &str,
    entry: &str,
    instead: Option<&str>,
) -> Option<Value> {
    let annotations = cluster.annotations();
    if !entries(annotations, annotation).any(|found| found == entry) {
        return None;
    }
    let left: Vec<&str> = entries(annotations, annotation)
        .filter_map(|found| if found == entry { instead } else { Some(found) })
        .collect();
    let value = if left.is_empty() { Value::Null } else { json!(left.join(",")) };
    Some(json!({"metadata": {
        "annotations": {annotation: value},
        "resourceVersion": cluster.metadata.resource_version,
    }}))
}

fn entries<'a>(
    annotations: &'a BTreeMap<String, String>,
    annotation: &str,
) -> impl Iterator<Item = &'a str> {
    let text = annotations.get(annotation).map(String::as_str).unwrap_or_default();
    text.split(',').map(str::trim).filter(|entry| !entry.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::Appointed;

    fn annotations(annotation: &str, value: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(annotation.to_owned(), value.to_owned())])
    }

    fn fenced_of(value: &str) -> Vec<i64> {
        let all = (1..=3).map(ReplicaId);
        fenced(&annotations(FENCE_ANNOTATION, value), "b-broker-0", all)
            .iter()
            .map(|r| r.0)
            .collect()
    }

    #[test]
    fn pods_are_fenced_by_name_or_all() {
        assert_eq!(fenced_of("b-broker-0-1, b-broker-1-0"), [2]);
        assert_eq!(fenced_of("*"), [1, 2, 3]);
        assert!(fenced_of("").is_empty());
        assert!(fenced_of("b-broker-0").is_empty(), "a group is no pod");
    }

    #[test]
    fn a_switchover_names_a_group_or_a_pod() {
        let asked =
            |value: &str| switchover(&annotations(SWITCHOVER_ANNOTATION, value), "b-broker-0");
        assert_eq!(asked("b-broker-1,b-broker-0"), Some(("b-broker-0".to_owned(), Target::Any)));
        assert_eq!(
            asked("b-broker-0-2"),
            Some(("b-broker-0-2".to_owned(), Target::Replica(ReplicaId(3))))
        );
        assert_eq!(asked("b-broker-1-0"), None);
        assert!(unclean(&annotations(ALLOW_UNCLEAN_ANNOTATION, "x,b-broker-0"), "b-broker-0"));
        assert!(!unclean(&BTreeMap::new(), "b-broker-0"));
    }

    #[test]
    fn names_that_are_nobodys_are_told_apart() {
        let cluster = crate::build::tests::cluster();
        let with_slaves = Appointed { pods: 2, by_role: true };
        let scale = Scale {
            name_servers_listed: 1,
            name_server_pods: 1,
            groups: 2,
            appointed: BTreeMap::from([(0, with_slaves)]),
        };
        let why = |entry: &str, named| stranger(&cluster.name_any(), &scale, entry, named);
        for (entry, named, wanted) in [
            ("demo-broker-0", Named::GroupsAndPods, None),
            ("demo-broker-0-1", Named::GroupsAndPods, None),
            ("demo-broker-0-1", Named::Pods, None),
            ("demo-broker-0", Named::Groups, None),
            ("demo-broker-0-2", Named::GroupsAndPods, Some("no such pod, it has 2")),
            ("demo-broker-1", Named::GroupsAndPods, Some("demo-broker-1 has no slaves")),
            ("demo-broker-1-0", Named::Pods, Some("demo-broker-1 has no slaves")),
            ("demo-broker-2", Named::GroupsAndPods, Some("nothing of that name")),
            ("other-broker-0", Named::Groups, Some("nothing of that name")),
            ("demo-broker-0-0", Named::Groups, Some("that is a pod")),
            ("demo-broker-0", Named::Pods, Some("that is a group")),
        ] {
            let found = why(entry, named);
            match wanted {
                None => assert_eq!(found, None, "{entry} {named:?}"),
                Some(part) => {
                    let found = found.unwrap_or_else(|| panic!("{entry} {named:?}"));
                    assert!(found.contains(part), "{entry} {named:?}: {found}");
                }
            }
        }
    }

    #[test]
    fn an_answer_takes_its_own_entry_away() {
        let mut cluster = crate::build::tests::cluster();
        cluster.metadata.resource_version = Some("5".to_owned());
        cluster.metadata.annotations = Some(annotations(SWITCHOVER_ANNOTATION, "a, b"));
        let patch = |entry, instead| {
            let patch = answered(&cluster, SWITCHOVER_ANNOTATION, entry, instead)?;
            assert_eq!(patch["metadata"]["resourceVersion"], "5");
            Some(patch["metadata"]["annotations"][SWITCHOVER_ANNOTATION].clone())
        };
        assert_eq!(patch("a", None), Some(json!("b")));
        assert_eq!(patch("a", Some("a-0")), Some(json!("a-0,b")));
        assert_eq!(patch("c", None), None);
        cluster.metadata.annotations = Some(annotations(SWITCHOVER_ANNOTATION, "a"));
        let patch = answered(&cluster, SWITCHOVER_ANNOTATION, "a", None).expect("a patch");
        assert!(patch["metadata"]["annotations"][SWITCHOVER_ANNOTATION].is_null());
    }
}
