//! broker.conf and namesrv.conf. Keys of the operator win; the text is sorted, so that equal
//! settings are equal bytes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::names;
use crate::crd::cluster::{ReplicationMode, RocketMQClusterSpec};

/// File name of the broker's configuration in its ConfigMap.
pub const BROKER_FILE: &str = "broker.conf";
/// File name of the name server's configuration in its ConfigMap.
pub const NAME_SERVER_FILE: &str = "namesrv.conf";

/// What a broker needs to know besides its cluster's spec.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    /// metadata.name of the cluster.
    pub cluster: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// Number of the group.
    pub number: i32,
    /// Name servers that it is told of.
    pub name_servers: i32,
    /// Brokers of the group where its master is appointed, `None` where the only broker is master.
    pub replicas: Option<i32>,
}

/// broker.conf of one group.
pub fn broker(group: Group<'_>, spec: &RocketMQClusterSpec) -> String {
    let Group { cluster, namespace, number, name_servers, replicas } = group;
    let host = names::broker_host(cluster, namespace, number);
    let name_server_list = (0..name_servers)
        .map(|ordinal| names::name_server_address(cluster, namespace, ordinal))
        .collect::<Vec<_>>()
        .join(";");
    // Clients that create topics and groups by use would bring back what a resource deleted.
    let mut keys =
        from_pairs(&[("autoCreateTopicEnable", "false"), ("autoCreateSubscriptionGroup", "false")]);
    keys.extend(spec.brokers.config.clone());
    keys.extend(match replicas {
        None => from_pairs(&[
            ("brokerId", "0"),
            ("brokerRole", "ASYNC_MASTER"),
            ("brokerIP1", &host),
            ("brokerIP2", &host),
        ]),
        Some(replicas) => appointed(group, spec, replicas),
    });
    keys.extend(from_pairs(&[
        ("brokerClusterName", cluster),
        ("brokerName", &names::broker(cluster, number)),
        ("listenPort", &names::BROKER_PORT.to_string()),
        ("namesrvAddr", &name_server_list),
        ("storePathRootDir", "/data/store"),
    ]));
    keys.extend(http());
    render(&keys)
}

/// Keys of a group whose master is appointed.
fn appointed(
    Group { cluster, namespace, number, .. }: Group<'_>,
    spec: &RocketMQClusterSpec,
    replicas: i32,
) -> BTreeMap<String, String> {
    let replication = &spec.brokers.replication;
    let failover = &spec.failover;
    from_pairs(&[
        ("coordinator", "kubernetes"),
        ("coordinatorLease", &names::broker(cluster, number)),
        ("totalReplicas", &replicas.to_string()),
        ("leaseDurationSeconds", &failover.lease_duration_seconds.to_string()),
        ("leaseRenewDeadlineSeconds", &failover.renew_deadline_seconds.to_string()),
        ("leaseRetryPeriodSeconds", &failover.retry_period_seconds.to_string()),
        (
            "brokerRole",
            match replication.mode {
                ReplicationMode::Sync => "SYNC_MASTER",
                ReplicationMode::Async => "ASYNC_MASTER",
            },
        ),
        ("minInSyncReplicas", &replication.min_in_sync_replicas.to_string()),
        // What clients are told by whoever is master.
        ("brokerIP1", &names::broker_host(cluster, namespace, number)),
        ("replicaHost", &names::replica_host(namespace)),
        ("haListenPort", &names::HA_PORT.to_string()),
    ])
}

/// namesrv.conf.
pub fn name_server(extra: &BTreeMap<String, String>) -> String {
    let mut keys = extra.clone();
    keys.extend(from_pairs(&[
        ("listenPort", &names::NAME_SERVER_PORT.to_string()),
        ("kvConfigPath", "/data/namesrv/kvConfig.json"),
    ]));
    keys.extend(http());
    render(&keys)
}

fn http() -> BTreeMap<String, String> {
    from_pairs(&[
        ("metricsExporterType", "PROM"),
        ("metricsPromExporterHost", "0.0.0.0"),
        ("metricsPromExporterPort", &names::HTTP_PORT.to_string()),
    ])
}

fn from_pairs(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

/// Java's `.properties` text. Keys are letters and digits by the schema; in a value only the
/// backslash and leading blanks mean something to the reader, and non-ASCII needs `\uXXXX`.
fn render(keys: &BTreeMap<String, String>) -> String {
    let mut text = String::new();
    for (key, value) in keys {
        text.push_str(key);
        text.push('=');
        let mut leading = true;
        for c in value.chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                ' ' if leading => text.push_str("\\ "),
                c if c.is_ascii() => text.push(c),
                c => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        // Writing to a String cannot fail.
                        let _ = write!(text, "\\u{unit:04x}");
                    }
                }
            }
            leading = leading && c == ' ';
        }
        text.push('\n');
    }
    text
}

/// Keys by which a broker that runs does nothing: a start compares them with others, and nothing else
/// looks at them.
const LOOKED_AT_BY_A_START: [&str; 1] = ["totalReplicas"];

/// Differs between configuration files that pods have to be restarted for.
pub fn restart_checksum(text: &str) -> String {
    let matters = |line: &&str| {
        line.split_once('=').is_none_or(|(key, _)| !LOOKED_AT_BY_A_START.contains(&key))
    };
    checksum(&text.split_inclusive('\n').filter(matters).collect::<String>())
}

/// FNV-1a, 64 bits: tells configurations apart; no protection against intent is needed.
pub fn checksum(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crd::cluster::{OWNED_BROKER_KEYS, OWNED_NAME_SERVER_KEYS};

    const GROUP: Group<'_> =
        Group { cluster: "demo", namespace: "ns", number: 0, name_servers: 1, replicas: None };

    fn spec(config: &BTreeMap<String, String>) -> RocketMQClusterSpec {
        serde_json::from_value(serde_json::json!({
            "brokers": {"groups": 2, "storage": {"size": "1Gi"}, "config": config},
        }))
        .expect("a spec")
    }

    #[test]
    fn groups_with_slaves_are_told_who_appoints_and_when_sends_wait() {
        let mut spec = spec(&BTreeMap::new());
        spec.brokers.replicas_per_group = 2;
        spec.brokers.replication.min_in_sync_replicas = 2;
        let three = Group { replicas: Some(3), ..GROUP };
        let text = broker(three, &spec);
        for line in [
            "coordinator=kubernetes",
            "coordinatorLease=demo-broker-0",
            "totalReplicas=3",
            "brokerRole=SYNC_MASTER",
            "minInSyncReplicas=2",
            "leaseDurationSeconds=15",
            "leaseRenewDeadlineSeconds=10",
            "leaseRetryPeriodSeconds=2",
            "brokerIP1=demo-broker-0.ns.svc",
            "replicaHost=$(POD_NAME).ns.svc",
            "haListenPort=10912",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("brokerId"), "{text}");
        spec.brokers.replication.mode = ReplicationMode::Async;
        let text = broker(three, &spec);
        assert!(text.contains("brokerRole=ASYNC_MASTER\n"));
    }

    #[test]
    fn pods_are_restarted_for_what_a_running_broker_goes_by() {
        let mut spec = spec(&BTreeMap::new());
        spec.brokers.replicas_per_group = 2;
        let three = |spec: &RocketMQClusterSpec| broker(Group { replicas: Some(3), ..GROUP }, spec);
        let (text, before) = (three(&spec), restart_checksum(&three(&spec)));
        // How many copies there should be, and how many brokers, is for the operator to see.
        let more = broker(Group { replicas: Some(4), ..GROUP }, &spec);
        assert_ne!(more, text, "the next start has to know it");
        assert_eq!(restart_checksum(&more), before);
        spec.brokers.replication.in_sync_replicas = Some(2);
        assert_eq!(restart_checksum(&three(&spec)), before);
        spec.brokers.replication.min_in_sync_replicas = 2;
        assert_ne!(restart_checksum(&three(&spec)), before);
        spec.brokers.replication.min_in_sync_replicas = 1;
        spec.brokers.replication.mode = ReplicationMode::Async;
        assert_ne!(restart_checksum(&three(&spec)), before);
        spec.brokers.replication.mode = ReplicationMode::Sync;
        spec.failover.lease_duration_seconds = 20;
        assert_ne!(restart_checksum(&three(&spec)), before);
    }

    #[test]
    fn keys_of_the_operator_win_over_the_users() {
        let extra = from_pairs(&[("brokerId", "7"), ("fileReservedTime", "48")]);
        let text = broker(Group { number: 1, name_servers: 2, ..GROUP }, &spec(&extra));
        assert!(text.contains("brokerId=0\n"), "{text}");
        assert!(text.contains("fileReservedTime=48\n"), "{text}");
        assert!(text.contains(
            "namesrvAddr=demo-namesrv-0.demo-namesrv-pods.ns.svc:9876;demo-namesrv-1.demo-namesrv-pods.ns.svc:9876\n"
        ));
    }

    #[test]
    fn users_may_turn_auto_creation_on() {
        let extra = from_pairs(&[("autoCreateTopicEnable", "true")]);
        assert!(broker(GROUP, &spec(&extra)).contains("autoCreateTopicEnable=true\n"));
    }

    #[test]
    fn every_key_that_is_set_is_refused_in_the_schema_except_the_defaults() {
        let defaults = &["autoCreateTopicEnable", "autoCreateSubscriptionGroup"][..];
        let spec = spec(&BTreeMap::new());
        for (text, owned, defaults) in [
            (broker(GROUP, &spec), OWNED_BROKER_KEYS, defaults),
            (broker(Group { replicas: Some(3), ..GROUP }, &spec), OWNED_BROKER_KEYS, defaults),
            (name_server(&BTreeMap::new()), OWNED_NAME_SERVER_KEYS, &[]),
        ] {
            for line in text.lines() {
                let key = line.split('=').next().expect("a key");
                assert!(
                    owned.iter().any(|(k, _)| *k == key) || defaults.contains(&key),
                    "{key} has two owners"
                );
            }
        }
    }

    #[test]
    fn values_are_escaped_for_the_properties_reader() {
        let keys = from_pairs(&[("a", "  x\\y"), ("b", "é")]);
        assert_eq!(render(&keys), "a=\\ \\ x\\\\y\nb=\\u00e9\n");
    }
}
