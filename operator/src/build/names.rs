//! Names, labels and addresses. One place, so that what is built is found again.

use std::collections::BTreeMap;

/// Label with the cluster's name, on every child.
pub const CLUSTER_LABEL: &str = "rocketmq.rs/cluster";
/// Label with the tier, on every child.
pub const TIER_LABEL: &str = "rocketmq.rs/tier";
/// Label with the brokerName, on the children of a broker group.
pub const GROUP_LABEL: &str = "rocketmq.rs/group";
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

/// Port of the name server.
pub const NAME_SERVER_PORT: i32 = 9876;
/// Main port of the broker.
pub const BROKER_PORT: i32 = 10911;
/// The broker's second port for sends, always main port - 2 in RocketMQ.
pub const BROKER_VIP_PORT: i32 = BROKER_PORT - 2;
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

    /// A pod's controller-revision-hash label is the StatefulSet's name, a dash and ten characters.
    #[test]
    fn longest_names_fit_in_a_label() {
        let cluster = "c".repeat(40);
        assert!(broker(&cluster, 255).len() + 11 <= 63);
        assert!(broker_pods(&cluster, 255).len() <= 63);
        assert!(name_server_pods(&cluster).len() <= 63);
    }
}
