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
        appointed: if cluster.spec.brokers.replicas_per_group > 0 {
            let appointed =
                Appointed { pods: cluster.spec.brokers.pods_per_group(), by_role: true };
            (0..cluster.spec.brokers.groups).map(|number| (number, appointed)).collect()
        } else {
            BTreeMap::new()
        },
    }
}

fn built(cluster: &RocketMQCluster) -> Children {
    children(cluster, &scale_of(cluster), &defaults())
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
    if let Some(access) = &tier.access {
        documents.push(serde_saphyr::to_string(&access.account).expect("yaml"));
        documents.push(serde_saphyr::to_string(&access.role).expect("yaml"));
        documents.push(serde_saphyr::to_string(&access.binding).expect("yaml"));
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
fn a_group_with_slaves_is_built_as_in_the_golden_file() {
    let mut cluster = cluster();
    cluster.spec.brokers.replicas_per_group = 1;
    golden("replicated-broker-1.yaml", &documents(&built(&cluster).brokers[1]));
}

/// A StatefulSet's selector cannot change.
#[test]
fn a_group_that_gets_slaves_keeps_its_selector_claims_and_services() {
    let before = built(&cluster());
    let mut grown = cluster();
    grown.spec.brokers.replicas_per_group = 2;
    let after = built(&grown);
    for (before, after) in before.brokers.iter().zip(&after.brokers) {
        let (old, new) = (&before.workload.spec, &after.workload.spec);
        assert_eq!(old.selector, new.selector);
        assert_eq!(old.service_name, new.service_name);
        assert_eq!(old.volume_claim_templates, new.volume_claim_templates);
        assert_eq!(new.replicas, Some(3));
        let names: Vec<_> = after.services.iter().map(|s| s.name_any()).collect();
        assert!(before.services.iter().all(|s| names.contains(&s.name_any())), "{names:?}");
    }
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

#[test]
fn of_a_group_with_slaves_one_broker_may_be_evicted() {
    let mut cluster = cluster();
    cluster.spec.brokers.replicas_per_group = 1;
    for protect in [false, true] {
        cluster.spec.pod_disruption_budget.protect_single_replica_groups = protect;
        let budget = built(&cluster).brokers[0].budget.clone().expect("a budget");
        let max = budget.spec.and_then(|spec| spec.max_unavailable);
        assert_eq!(max, Some(k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::Int(1)));
    }
}
