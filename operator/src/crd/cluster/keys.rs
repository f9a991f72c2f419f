//! Keys of the configuration files: which the operator sets itself, and the rules of the others.

use schemars::Schema;
use serde_json::json;

use crate::crd::settings::{self, Settings};

/// Keys of broker.conf that follow from the rest of the resource, with what to do instead: one owner
/// per key.
pub const OWNED_BROKER_KEYS: &[(&str, &str)] = &[
    ("allAckInSyncStateSet", "use brokers.replication.mode"),
    ("asyncLearner", "every slave may become master"),
    ("bindAddress", "brokers listen on every address of their pod"),
    ("brokerClusterName", "it is metadata.name"),
    ("brokerConfigPath", "the file is made by the operator"),
    ("brokerIP1", "brokers advertise the name of their Service"),
    ("brokerIP2", "brokers advertise the name of their Service"),
    ("brokerId", "it is 0 for whoever is master"),
    ("brokerName", "it is metadata.name, -broker- and the group's number"),
    ("brokerPermission", "use a Topic's permission"),
    ("brokerRole", "use brokers.replication.mode"),
    ("coordinator", "it follows from brokers.replicasPerGroup"),
    ("coordinatorLease", "it is the group's name"),
    ("enableControllerMode", "masters are appointed by the operator"),
    ("enableDLegerCommitLog", "masters are appointed by the operator"),
    ("fetchNameSrvAddrByDnsLookup", "brokers know every name server by name"),
    ("fetchNamesrvAddrByAddressServer", "brokers know every name server by name"),
    ("haListenPort", "it is 10912"),
    ("haMasterAddress", "slaves find their master by the group's Lease"),
    ("inSyncReplicas", "use brokers.replication.inSyncReplicas"),
    ("leaseDurationSeconds", "use failover.leaseDurationSeconds"),
    ("leaseRenewDeadlineSeconds", "use failover.renewDeadlineSeconds"),
    ("leaseRetryPeriodSeconds", "use failover.retryPeriodSeconds"),
    ("listenPort", "it is 10911"),
    ("metricsExporterType", "metrics are served for Prometheus"),
    ("metricsPromExporterHost", "metrics are served on every address of the pod"),
    ("metricsPromExporterPort", "it is 5557"),
    ("minInSyncReplicas", "use brokers.replication.minInSyncReplicas"),
    ("namesrvAddr", "it follows from nameServers.replicas"),
    ("readOnlyCommitLogStorePaths", "the store is on the broker's volume"),
    ("replicaHost", "it is the name of the pod's Service"),
    ("rocketmqHome", "the store is on the broker's volume"),
    ("storePathCommitLog", "the store is on the broker's volume"),
    ("storePathEpochFile", "the store is on the broker's volume"),
    ("storePathRootDir", "the store is on the broker's volume"),
    ("totalReplicas", "use brokers.replicasPerGroup"),
];

/// Keys of namesrv.conf that the operator sets, with what to do instead.
pub const OWNED_NAME_SERVER_KEYS: &[(&str, &str)] = &[
    ("bindAddress", "name servers listen on every address of their pod"),
    ("configStorePath", "the file is made by the operator"),
    ("enableControllerInNamesrv", "masters are appointed by the operator"),
    ("kvConfigPath", "it is in the pod's scratch directory"),
    ("listenPort", "it is 9876"),
    ("metricsExporterType", "metrics are served for Prometheus"),
    ("metricsPromExporterHost", "metrics are served on every address of the pod"),
    ("metricsPromExporterPort", "it is 5557"),
    ("rocketmqHome", "it is the pod's scratch directory"),
];

pub(super) fn broker_keys(schema: &mut Schema) {
    let rules = vec![settings::buffered_sync_rule()];
    configuration(schema, settings::BROKER, 128, OWNED_BROKER_KEYS, rules);
}

pub(super) fn name_server_keys(schema: &mut Schema) {
    configuration(schema, settings::NAME_SERVER, 64, OWNED_NAME_SERVER_KEYS, Vec::new());
}

/// The schema of a configuration file's entries. A rule per key, since a message that names the key
/// by an expression costs more than the API server allows.
fn configuration(
    schema: &mut Schema,
    settings: Settings,
    entries_max: u32,
    owned: &[(&str, &str)],
    more: Vec<serde_json::Value>,
) {
    let field = settings.field;
    let mut rules = vec![json!({
        "rule": "self.all(k, k.matches('^[A-Za-z][A-Za-z0-9]*$'))",
        "message": format!("{field}: a key is letters and digits, as RocketMQ names it"),
    })];
    rules.extend(settings.rules(owned));
    rules.extend(more);
    rules.extend(owned.iter().map(|(key, instead)| {
        json!({
            "rule": format!("!('{key}' in self)"),
            "message": format!("{field}.{key} is set by the operator ({instead}): remove it"),
        })
    }));
    schema.insert("maxProperties".to_owned(), json!(entries_max));
    schema.insert(
        "additionalProperties".to_owned(),
        // One line: a line break would be another entry.
        json!({"type": "string", "maxLength": 1024, "pattern": "^[^\\n\\r]*$"}),
    );
    schema.insert("x-kubernetes-validations".to_owned(), json!(rules));
}
