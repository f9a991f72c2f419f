use super::*;
use crate::crd::cluster::RocketMQClusterSpec;
use kube::ResourceExt;
use serde_json::json;

/// A small cluster with everything left to its default.
pub(crate) fn cluster() -> RocketMQCluster {
    let spec: RocketMQClusterSpec = serde_json::from_value(json!({
        "nameServers": {"replicas": 2},
        "brokers": {"groups": 2, "storage": {"size": "1Gi"}},
    }))
    .expect("a spec");
    let mut cluster = RocketMQCluster::new("demo", spec);
    cluster.metadata.namespace = Some("ns".to_owned());
    cluster.metadata.uid = Some("uid-1".to_owned());
    cluster.metadata.generation = Some(1);
    cluster
}

pub(crate) fn defaults() -> Defaults {
    Defaults {
        broker_image: "rocketmq-rs/broker:0.1.0".to_owned(),
        name_server_image: "rocketmq-rs/namesrv:0.1.0".to_owned(),
    }
}

pub(crate) fn scale_of(cluster: &RocketMQCluster) -> Scale {
    Scale {
        name_servers_listed: cluster.spec.name_servers.replicas,
        name_server_pods: cluster.spec.name_servers.replicas,
        groups: cluster.spec.brokers.groups,
    }
}

fn built(cluster: &RocketMQCluster) -> Children {
    children(cluster, scale_of(cluster), &defaults())
}

fn documents(tier: &Tier) -> String {
    let mut documents = vec![serde_saphyr::to_string(&tier.config).expect("yaml")];
    for service in &tier.services {
        documents.push(serde_saphyr::to_string(service).expect("yaml"));
    }
    documents.push(serde_saphyr::to_string(&tier.workload).expect("yaml"));
    if let Some(budget) = &tier.budget {
        documents.push(serde_saphyr::to_string(budget).expect("yaml"));
    }
    documents.join("---\n")
}

/// Compares with a file under golden/; `UPDATE_GOLDEN=1 cargo test -p rocketmq-operator` writes it.
fn golden(name: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/build/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("folder");
        std::fs::write(&path, text).expect("golden file");
    }
    let wanted = std::fs::read_to_string(&path)
        .unwrap_or_else(|e| panic!("{}: {e}; set UPDATE_GOLDEN=1", path.display()));
    assert!(
        wanted == text,
        "what is built differs from {}; if that is meant, set UPDATE_GOLDEN=1 and look at the diff",
        path.display()
    );
}

#[test]
fn a_minimal_cluster_is_built_as_in_the_golden_files() {
    let built = built(&cluster());
    golden("minimal-name-servers.yaml", &documents(&built.name_servers));
    golden("minimal-broker-1.yaml", &documents(&built.brokers[1]));
}

#[test]
fn every_option_shows_in_the_golden_file() {
    let mut cluster = cluster();
    cluster.spec = serde_json::from_value(json!({
        "version": "2.0",
        "image": {"registry": "r.example/mq/", "pullPolicy": "Always", "pullSecrets": [{"name": "s"}]},
        "nameServers": {"replicas": 1},
        "brokers": {
            "groups": 1,
            "config": {"fileReservedTime": "48", "flushDiskType": "SYNC_FLUSH"},
            "storage": {
                "size": "2Gi", "storageClassName": "fast", "retention": {"whenDeleted": "Delete"},
            },
            "resources": {"limits": {"memory": "1Gi"}, "requests": {"cpu": "1"}},
            "terminationGracePeriodSeconds": 60,
            "podTemplate": {
                "labels": {"team": "a", "rocketmq.rs/cluster": "not mine"},
                "annotations": {"note": "x"},
                "nodeSelector": {"disk": "ssd"},
                "tolerations": [{"key": "mq", "operator": "Exists"}],
                "topologySpreadConstraints": [{
                    "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
                }],
                "priorityClassName": "high",
                "env": [{"name": "RUST_LOG", "value": "debug"}, {"name": "POD_IP", "value": "1.2.3.4"}],
            },
        },
        "podDisruptionBudget": {"enabled": true, "protectSingleReplicaGroups": true},
    }))
    .expect("a spec");
    golden("full-broker-0.yaml", &documents(&built(&cluster).brokers[0]));
}

#[test]
fn selectors_of_tiers_and_groups_do_not_overlap() {
    let built = built(&cluster());
    let selectors: Vec<_> = std::iter::once(&built.name_servers)
        .chain(&built.brokers)
        .map(|tier| tier.workload.spec.selector.match_labels.clone().expect("labels"))
        .collect();
    let pods: Vec<_> = std::iter::once(&built.name_servers)
        .chain(&built.brokers)
        .map(|tier| {
            tier.workload.spec.template.metadata.clone().and_then(|m| m.labels).expect("labels")
        })
        .collect();
    for (i, selector) in selectors.iter().enumerate() {
        for (j, labels) in pods.iter().enumerate() {
            let selects = selector.iter().all(|(k, v)| labels.get(k) == Some(v));
            assert_eq!(selects, i == j, "selector {i}, pod {j}");
        }
    }
}

#[test]
fn children_are_owned_and_claims_are_not() {
    let built = built(&cluster());
    for tier in std::iter::once(&built.name_servers).chain(&built.brokers) {
        assert_eq!(tier.workload.owner_references()[0].uid, "uid-1");
        assert_eq!(tier.config.owner_references()[0].uid, "uid-1");
        assert!(tier.services.iter().all(|s| s.owner_references()[0].uid == "uid-1"));
    }
    let claims = built.brokers[0].workload.spec.volume_claim_templates.clone().expect("claims");
    assert!(claims[0].owner_references().is_empty());
}

#[test]
fn another_configuration_is_another_checksum_and_nothing_else_is() {
    let annotation = |cluster: &RocketMQCluster| {
        let tier = &built(cluster).brokers[0];
        let meta = tier.workload.spec.template.metadata.clone().expect("metadata");
        meta.annotations.expect("annotations")[names::CONFIG_ANNOTATION].clone()
    };
    let mut changed = cluster();
    let before = annotation(&changed);
    changed.spec.version = Some("2.0".to_owned());
    assert_eq!(annotation(&changed), before);
    changed.spec.brokers.config.insert("fileReservedTime".to_owned(), "1".to_owned());
    assert_ne!(annotation(&changed), before);
}

#[test]
fn no_budget_holds_a_single_replica_group_unless_asked() {
    let mut cluster = cluster();
    assert!(built(&cluster).brokers[0].budget.is_none());
    assert!(built(&cluster).name_servers.budget.is_some());
    cluster.spec.pod_disruption_budget.protect_single_replica_groups = true;
    assert!(built(&cluster).brokers[0].budget.is_some());
    cluster.spec.pod_disruption_budget.enabled = false;
    assert!(built(&cluster).brokers[0].budget.is_none());
    assert!(built(&cluster).name_servers.budget.is_none());
}
