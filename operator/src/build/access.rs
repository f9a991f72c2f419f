//! What lets the brokers of a group at their Lease, and at nothing else.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};

use super::meta;
use crate::crd::RocketMQCluster;

/// An account and what it may do.
#[derive(Clone, Debug)]
pub struct Access {
    /// Account of the pods.
    pub account: ServiceAccount,
    /// The Lease by its name.
    pub role: Role,
    /// Gives the role to the account.
    pub binding: RoleBinding,
}

/// Access of the pods of the group `broker` to the Lease of that name.
pub(crate) fn of(
    cluster: &RocketMQCluster,
    broker: &str,
    labels: &BTreeMap<String, String>,
) -> Access {
    let meta = || meta(cluster, broker.to_owned(), labels.clone());
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    Access {
        account: ServiceAccount {
            metadata: meta(),
            // Pods say for themselves whether they want the token.
            automount_service_account_token: Some(false),
            ..ServiceAccount::default()
        },
        role: Role {
            metadata: meta(),
            rules: Some(vec![PolicyRule {
                api_groups: Some(texts(&["coordination.k8s.io"])),
                resources: Some(texts(&["leases"])),
                resource_names: Some(texts(&[broker])),
                verbs: texts(&["get", "list", "watch", "update"]),
                ..PolicyRule::default()
            }]),
        },
        binding: RoleBinding {
            metadata: meta(),
            role_ref: RoleRef {
                api_group: Some("rbac.authorization.k8s.io".to_owned()),
                kind: "Role".to_owned(),
                name: broker.to_owned(),
            },
            subjects: Some(vec![Subject {
                kind: "ServiceAccount".to_owned(),
                name: broker.to_owned(),
                namespace: cluster.metadata.namespace.clone(),
                ..Subject::default()
            }]),
        },
    }
}

impl Access {
    pub(crate) fn in_namespace(&mut self, namespace: Option<String>) {
        self.account.metadata.namespace.clone_from(&namespace);
        self.role.metadata.namespace.clone_from(&namespace);
        for subject in self.binding.subjects.iter_mut().flatten() {
            subject.namespace.clone_from(&namespace);
        }
        self.binding.metadata.namespace = namespace;
    }
}
