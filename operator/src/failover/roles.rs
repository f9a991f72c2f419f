//! Which pod is labelled as master: the address that clients use leads there. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use rocketmq_replication::{GroupRecord, ReplicaId};

use crate::build::names;

/// The labels to change. The master is who has taken over; while nobody has, the label stays where it
/// is, and where it is nowhere it goes to who was appointed.
pub fn changes(
    record: &GroupRecord,
    pods: &BTreeMap<ReplicaId, &Pod>,
) -> Vec<(String, &'static str)> {
    let role = |pod: &Pod| pod.labels().get(names::ROLE_LABEL).cloned();
    let labelled = pods
        .iter()
        .find(|(_, pod)| role(pod).as_deref() == Some(names::MASTER_ROLE))
        .map(|(id, _)| *id);
    let master = match (&record.holder, labelled) {
        (None, Some(labelled)) => Some(labelled),
        _ => record.master,
    };
    let mut changes: Vec<_> = pods
        .iter()
        .filter_map(|(id, pod)| {
            let wanted = if Some(*id) == master { names::MASTER_ROLE } else { names::SLAVE_ROLE };
            (role(pod).as_deref() != Some(wanted)).then(|| (pod.name_any(), wanted))
        })
        .collect();
    // New connections must not go to the old one.
    changes.sort_by_key(|(_, role)| *role == names::MASTER_ROLE);
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use rocketmq_replication::Holder;

    fn pod(id: i64, role: Option<&str>) -> (ReplicaId, Pod) {
        let mut pod = Pod::default();
        pod.metadata.name = Some(names::replica_pod("b", ReplicaId(id)));
        if let Some(role) = role {
            pod.labels_mut().insert(names::ROLE_LABEL.to_owned(), role.to_owned());
        }
        (ReplicaId(id), pod)
    }

    fn changed(master: i64, held: bool, pods: &[(ReplicaId, Pod)]) -> Vec<(String, &'static str)> {
        let record = GroupRecord {
            master: Some(ReplicaId(master)),
            holder: held.then(|| Holder { incarnation: "i".to_owned(), renewals: 0 }),
            ..GroupRecord::default()
        };
        changes(&record, &pods.iter().map(|(id, pod)| (*id, pod)).collect())
    }

    fn to(pod: &str, role: &'static str) -> (String, &'static str) {
        (pod.to_owned(), role)
    }

    #[test]
    fn the_label_follows_who_has_taken_over() {
        let pods = [pod(1, Some("master")), pod(2, Some("slave"))];
        assert_eq!(changed(1, true, &pods), []);
        assert_eq!(changed(2, true, &pods), [to("b-0", "slave"), to("b-1", "master")]);
        assert_eq!(changed(2, false, &pods), [], "appointed, but it has not taken over");
    }

    #[test]
    fn pods_without_a_role_get_one() {
        let pods = [pod(1, None), pod(2, None)];
        let wanted = [to("b-1", "slave"), to("b-0", "master")];
        assert_eq!(changed(1, false, &pods), wanted, "clients find the one that will be master");
        assert_eq!(changed(1, true, &pods), wanted);
        let remade = [pod(1, None), pod(2, Some("master"))];
        assert_eq!(changed(1, false, &remade), [to("b-0", "slave")]);
    }
}
