//! Names, labels and addresses. One place, so that what is built is found again.

use std::collections::BTreeMap;

use rocketmq_replication::ReplicaId;

/// Label with the cluster's name, on every child.
pub const CLUSTER_LABEL: &str = "rocketmq.rs/cluster";
/// Label with the tier, on every child.
pub const TIER_LABEL: &str = "rocketmq.rs/tier";
/// Label with the brokerName, on the children of a broker group.
pub const GROUP_LABEL: &str = "rocketmq.rs/group";
/// Label with the role of a broker of a group with slaves. The operator moves it; the address that
/// clients use leads to the pod that has [`MASTER_ROLE`].
pub const ROLE_LABEL: &str = "rocketmq.rs/role";
/// Value of [`ROLE_LABEL`] on the master.
pub const MASTER_ROLE: &str = "master";
/// Value of [`ROLE_LABEL`] on all others.
pub const SLAVE_ROLE: &str = "slave";
/// Label with the pod's name, set by Kubernetes on the pods of a StatefulSet.
pub const POD_NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
/// Pod annotation that changes with the configuration file.
pub const CONFIG_ANNOTATION: &str = "rocketmq.rs/config-checksum";
/// Annotation on each child with the hash of what was last applied.
pub const APPLIED_ANNOTATION: &str = "rocketmq.rs/applied";
/// Value of `app.kubernetes.io/managed-by`.
pub const MANAGED_BY: &str = "rocketmq-operator";
/// Label key of `MANAGED_BY`.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// Value of the tier label of name servers.
pub const NAME_SERVER_TIER: &str = "name-server";
/// Value of the tier label of brokers.
pub const BROKER_TIER: &str = "broker";

/// Container of the broker in its pod.
pub const BROKER_CONTAINER: &str = "broker";

/// Port of the name server.
pub const NAME_SERVER_PORT: i32 = 9876;
/// Main port of the broker.
pub const BROKER_PORT: i32 = 10911;
/// The broker's second port for sends, always main port - 2 in RocketMQ.
pub const BROKER_VIP_PORT: i32 = BROKER_PORT - 2;
/// The broker's port for its slaves.
pub const HA_PORT: i32 = 10912;
/// Health and metrics port of both.
pub const HTTP_PORT: i32 = 5557;

/// StatefulSet, ConfigMap and client Service of the name servers.
pub fn name_servers(cluster: &str) -> String {
    format!("{cluster}-namesrv")
}

/// Headless Service of the name servers.
pub fn name_server_pods(cluster: &str) -> String {
    format!("{cluster}-namesrv-pods")
}

/// brokerName of a group, also its StatefulSet, ConfigMap and client Service.
pub fn broker(cluster: &str, number: i32) -> String {
    format!("{cluster}-broker-{number}")
}

/// Headless Service of a broker group.
pub fn broker_pods(cluster: &str, number: i32) -> String {
    format!("{cluster}-broker-{number}-pods")
}

/// The number in a brokerName made by [`broker`].
pub fn broker_number(cluster: &str, broker: &str) -> Option<i32> {
    let digits = broker.strip_prefix(cluster)?.strip_prefix("-broker-")?;
    digits.parse().ok().filter(|number: &i32| *number >= 0 && digits == number.to_string())
}

/// Pod of a replica, whose id is its ordinal plus one; also the Service with that pod's own address.
pub fn replica_pod(broker: &str, replica: ReplicaId) -> String {
    format!("{broker}-{}", replica.0 - 1)
}

/// The replica that a pod of a group is, `None` for pods of others.
pub fn replica_of(broker: &str, pod: &str) -> Option<ReplicaId> {
    let digits = pod.strip_prefix(broker)?.strip_prefix('-')?;
    let ordinal: i64 = digits.parse().ok()?;
    (ordinal >= 0 && digits == ordinal.to_string()).then_some(ReplicaId(ordinal + 1))
}

/// Host under which each broker of a group with slaves is found by the others, as it stands in their
/// common configuration file: a broker puts its own name in.
pub fn replica_host(namespace: &str) -> String {
    format!("$(POD_NAME).{namespace}.svc")
}

/// Address of one name server, stable over restarts of its pod.
pub fn name_server_address(cluster: &str, namespace: &str, ordinal: i32) -> String {
    format!(
        "{}-{ordinal}.{}.{namespace}.svc:{NAME_SERVER_PORT}",
        name_servers(cluster),
        name_server_pods(cluster)
    )
}

/// Address that clients use to find a name server.
pub fn bootstrap_address(cluster: &str, namespace: &str) -> String {
    format!("{}.{namespace}.svc:{NAME_SERVER_PORT}", name_servers(cluster))
}

/// Host that a group advertises. It is the name of a Service with an address of its own: the
/// address outlives the pod, so a client that caches the look-up (a JVM does for 30 s) reaches the
/// next pod at once.
pub fn broker_host(cluster: &str, namespace: &str, number: i32) -> String {
    format!("{}.{namespace}.svc", broker(cluster, number))
}

/// `host:port` that a group advertises.
pub fn broker_address(cluster: &str, namespace: &str, number: i32) -> String {
    format!("{}:{BROKER_PORT}", broker_host(cluster, namespace, number))
}

/// Selector labels of the name servers.
pub fn name_server_selector(cluster: &str) -> BTreeMap<String, String> {
    pairs([(CLUSTER_LABEL, cluster), (TIER_LABEL, NAME_SERVER_TIER)])
}

/// Selector labels of one broker group.
pub fn broker_selector(cluster: &str, number: i32) -> BTreeMap<String, String> {
    pairs([
        (CLUSTER_LABEL, cluster),
        (TIER_LABEL, BROKER_TIER),
        (GROUP_LABEL, &broker(cluster, number)),
    ])
}

/// Selector as text, for lists and the scale subresource.
pub fn selector_text(cluster: &str, tier: Option<&str>) -> String {
    match tier {
        Some(tier) => format!("{CLUSTER_LABEL}={cluster},{TIER_LABEL}={tier}"),
        None => format!("{CLUSTER_LABEL}={cluster}"),
    }
}

/// `selector` with the recommended labels added.
pub fn with_recommended(
    selector: BTreeMap<String, String>,
    cluster: &str,
    tier: &str,
) -> BTreeMap<String, String> {
    let mut labels = selector;
    labels.extend(pairs([
        ("app.kubernetes.io/name", "rocketmq"),
        ("app.kubernetes.io/instance", cluster),
        ("app.kubernetes.io/component", tier),
        (MANAGED_BY_LABEL, MANAGED_BY),
    ]));
    labels
}

fn pairs<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broker_number_is_the_inverse_of_broker() {
        assert_eq!(broker_number("demo", &broker("demo", 12)), Some(12));
        assert_eq!(broker_number("demo", "demo-broker-01"), None);
        assert_eq!(broker_number("demo", "demo-broker--1"), None);
        assert_eq!(broker_number("demo", "demo2-broker-1"), None);
        assert_eq!(broker_number("demo", "demo-broker-x"), None);
    }

    #[test]
    fn replica_of_is_the_inverse_of_replica_pod() {
        let pod = replica_pod("demo-broker-1", ReplicaId(3));
        assert_eq!(pod, "demo-broker-1-2");
        assert_eq!(replica_of("demo-broker-1", &pod), Some(ReplicaId(3)));
        for other in ["demo-broker-1-02", "demo-broker-1--1", "demo-broker-1", "demo-broker-11-0"] {
            assert_eq!(replica_of("demo-broker-1", other), None, "{other}");
        }
    }

    /// A pod's controller-revision-hash label is the StatefulSet's name, a dash and ten characters.
    #[test]
    fn longest_names_fit_in_a_label() {
        let cluster = "c".repeat(40);
        assert!(broker(&cluster, 255).len() + 11 <= 63);
        assert!(broker_pods(&cluster, 255).len() <= 63);
        assert!(replica_pod(&broker(&cluster, 255), ReplicaId(9)).len() <= 63);
        assert!(name_server_pods(&cluster).len() <= 63);
    }
}
