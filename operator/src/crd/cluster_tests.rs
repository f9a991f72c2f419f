use super::*;
use crate::crd::{RocketMQCluster, definitions};
use serde_json::{Value, json};

fn manifest(spec: Value) -> Value {
    json!({
        "apiVersion": "rocketmq.rs/v1alpha1",
        "kind": "RocketMQCluster",
        "metadata": {"name": "demo"},
        "spec": spec,
    })
}

fn minimal() -> Value {
    json!({"brokers": {"groups": 2, "storage": {"size": "1Gi"}}})
}

fn typed(manifest: &Value) -> RocketMQCluster {
    serde_json::from_value(manifest.clone()).expect("a cluster")
}

/// The one message of a refused creation.
fn refused(manifest: &Value) -> String {
    let errors = typed(manifest).validate_cel().expect_err("refused");
    errors.iter().map(|e| e.message.clone()).collect::<Vec<_>>().join(" | ")
}

fn refused_update(old: &Value, new: &Value) -> String {
    let errors = typed(new).validate_cel_update(&typed(old)).expect_err("refused");
    errors.iter().map(|e| e.message.clone()).collect::<Vec<_>>().join(" | ")
}

#[test]
fn a_minimal_manifest_is_accepted_with_defaults() {
    let cluster = typed(&manifest(minimal()));
    cluster.validate_cel().expect("accepted");
    assert_eq!(cluster.spec.name_servers.replicas, 3);
    assert_eq!(cluster.spec.brokers.termination_grace_period_seconds, 300);
    assert!(cluster.spec.pod_disruption_budget.enabled);
}

#[test]
fn names_that_cannot_be_services_are_refused() {
    for name in ["Demo", "1demo", "demo-", "a".repeat(41).as_str()] {
        let mut manifest = manifest(minimal());
        manifest["metadata"]["name"] = json!(name);
        let message = refused(&manifest);
        assert!(message.contains(name) && message.contains("at most 40"), "{message}");
    }
}

#[test]
fn counts_have_bounds() {
    for (path, value, message) in [
        ("/spec/brokers/groups", 0, "brokers.groups: 0 is outside 1..256"),
        ("/spec/brokers/groups", 257, "brokers.groups: 257 is outside 1..256"),
        ("/spec/nameServers/replicas", 0, "nameServers.replicas: 0 is outside 1..9"),
        (
            "/spec/brokers/terminationGracePeriodSeconds",
            5,
            "brokers.terminationGracePeriodSeconds: 5 is outside 10..3600",
        ),
    ] {
        let mut spec = minimal();
        spec["nameServers"] = json!({"replicas": 1});
        spec["brokers"]["terminationGracePeriodSeconds"] = json!(300);
        let mut manifest = manifest(spec);
        *manifest.pointer_mut(path).expect("a field") = json!(value);
        let found = refused(&manifest);
        assert!(found.contains(message), "{found}");
    }
}

#[test]
fn groups_grow_and_do_not_shrink() {
    let (old, mut new) = (manifest(minimal()), manifest(minimal()));
    new["spec"]["brokers"]["groups"] = json!(3);
    typed(&new).validate_cel_update(&typed(&old)).expect("growing is accepted");
    let message = refused_update(&new, &old);
    assert!(message.contains("brokers.groups: 2 is less than 3"), "{message}");
    assert!(message.contains("keep at least 3"), "{message}");
}

#[test]
fn volumes_grow_and_do_not_shrink() {
    let (old, mut new) = (manifest(minimal()), manifest(minimal()));
    new["spec"]["brokers"]["storage"]["size"] = json!("2048Mi");
    typed(&new).validate_cel_update(&typed(&old)).expect("growing is accepted");
    let message = refused_update(&new, &old);
    assert!(message.contains("brokers.storage.size: 1Gi is less than 2048Mi"), "{message}");
}

#[test]
fn sizes_are_quantities_of_some_size() {
    for size in ["20GB", "many", "-1Gi", "1Mi"] {
        let mut manifest = manifest(minimal());
        manifest["spec"]["brokers"]["storage"]["size"] = json!(size);
        let message = refused(&manifest);
        assert!(message.contains(size) && message.contains("20Gi"), "{message}");
    }
}

#[test]
fn the_storage_class_stays() {
    let (old, mut new) = (manifest(minimal()), manifest(minimal()));
    new["spec"]["brokers"]["storage"]["storageClassName"] = json!("fast");
    for (old, new) in [(&old, &new), (&new, &old)] {
        let message = refused_update(old, new);
        assert!(message.contains("storageClassName") && message.contains("fast"), "{message}");
    }
}

#[test]
fn keys_of_the_operator_are_refused_by_name() {
    for (tier, owned) in [("brokers", OWNED_BROKER_KEYS), ("nameServers", OWNED_NAME_SERVER_KEYS)] {
        let mut manifest = manifest(minimal());
        manifest["spec"][tier]["config"] = json!({"fileReservedTime": "48"});
        for (key, _) in owned {
            manifest["spec"][tier]["config"][*key] = json!("1");
        }
        let found = refused(&manifest);
        assert_eq!(found.matches(" | ").count() + 1, owned.len(), "{found}");
        for (key, instead) in owned {
            let wanted =
                format!("{tier}.config.{key} is set by the operator ({instead}): remove it");
            assert!(found.contains(&wanted), "{wanted:?} is not in {found}");
        }
    }
}

#[test]
fn configuration_keys_are_letters_and_digits() {
    for key in ["a.b", "", "a\nbrokerId"] {
        for tier in ["brokers", "nameServers"] {
            let mut manifest = manifest(minimal());
            manifest["spec"][tier]["config"] = json!({key: "1"});
            let message = refused(&manifest);
            assert!(message.contains("letters and digits"), "{tier} {key:?}: {message}");
        }
    }
}

#[test]
fn settings_that_stop_a_program_are_refused_by_name() {
    for (tier, key, value, allowed) in [
        ("brokers", "flushDiskType", "BAD", "ASYNC_FLUSH or SYNC_FLUSH"),
        ("brokers", "fileReservedTime", "-1", "0 to 876000"),
        ("brokers", "fileReservedTime", "two", "0 to 876000"),
        ("brokers", "fileReservedTime", "99999999999999999999", "0 to 876000"),
        ("brokers", "longPollingEnable", "yes", "true or false"),
        ("brokers", "deleteWhen", "04;24", "hours 0 to 23, separated by `;`"),
        ("brokers", "messageDelayLevel", "1x", "numbers with a unit"),
        ("brokers", "aclEnable", "true", "false: this broker has no access control yet"),
        ("nameServers", "waitSecondsForService", "-1", "0 to 86400"),
    ] {
        let mut manifest = manifest(minimal());
        manifest["spec"][tier]["config"] = json!({key: value});
        let found = refused(&manifest);
        let wanted = format!("{tier}.config.{key}: \"{value}\" is not allowed, only {allowed}");
        assert!(found.starts_with(&wanted), "{found}");
    }
    let mut manifest = manifest(minimal());
    manifest["spec"]["brokers"]["config"] =
        json!({"transientStorePoolEnable": "true", "flushDiskType": "SYNC_FLUSH"});
    assert!(refused(&manifest).contains("what waits in a buffer cannot be on disk"));
}

#[test]
fn settings_that_a_program_takes_are_accepted() {
    let mut manifest = manifest(minimal());
    manifest["spec"]["brokers"]["config"] = json!({
        "flushDiskType": "SYNC_FLUSH",
        "fileReservedTime": "48",
        "longPollingEnable": "False",
        "deleteWhen": "04; 16;",
        "messageDelayLevel": "1s 5m  2h",
        "aclEnable": "false",
        "regionId": "eu",
        "sendMessageThreadPoolNums": "16",
    });
    manifest["spec"]["nameServers"] = json!({"config": {"orderMessageEnable": "true"}});
    typed(&manifest).validate_cel().expect("accepted");
}

#[test]
fn configuration_values_are_one_line() {
    let schema = serde_json::to_value(&definitions()[0].spec.versions[0].schema).expect("json");
    for tier in ["brokers", "nameServers"] {
        let path = format!("/openAPIV3Schema/properties/spec/properties/{tier}/properties/config");
        let config = schema.pointer(&path).expect("the field");
        assert_eq!(config["additionalProperties"]["pattern"], "^[^\\n\\r]*$", "{config}");
        assert_eq!(config["additionalProperties"]["maxLength"], 1024);
    }
}

#[test]
fn versions_are_image_tags() {
    let mut manifest = manifest(minimal());
    manifest["spec"]["version"] = json!("1.0 beta");
    let message = refused(&manifest);
    assert!(message.contains("version: \"1.0 beta\" is no image tag"), "{message}");
}

fn replicated(brokers: Value, failover: Option<Value>) -> Value {
    let mut manifest = manifest(minimal());
    for (key, value) in brokers.as_object().expect("fields") {
        manifest["spec"]["brokers"][key] = value.clone();
    }
    if let Some(failover) = failover {
        manifest["spec"]["failover"] = failover;
    }
    manifest
}

#[test]
fn clusters_from_before_slaves_stay_without() {
    let cluster = typed(&manifest(minimal()));
    assert_eq!(cluster.spec.brokers.replicas_per_group, 0);
    assert_eq!(cluster.spec.brokers.replication, Replication::default());
    assert_eq!(cluster.spec.failover, Failover::default());
    cluster.validate_cel().expect("accepted");
}

#[test]
fn slaves_and_copies_that_fit_are_accepted() {
    for (brokers, failover) in [
        (json!({"replicasPerGroup": 1}), None),
        (json!({"replicasPerGroup": 2, "replication": {"minInSyncReplicas": 3}}), None),
        (
            json!({"replicasPerGroup": 2, "replication": {"inSyncReplicas": 2, "minInSyncReplicas": 2}}),
            Some(json!({"delaySeconds": 5})),
        ),
        (
            json!({"replicasPerGroup": 1, "replication": {"mode": "Async"}}),
            Some(json!({"policy": "Availability"})),
        ),
        (
            json!({"replicasPerGroup": 1, "replication": {"mode": "Async"}}),
            Some(json!({"enabled": false})),
        ),
    ] {
        typed(&replicated(brokers.clone(), failover)).validate_cel().unwrap_or_else(|errors| {
            panic!("{brokers}: {errors:?}");
        });
    }
}

#[test]
fn copies_that_cannot_be_are_refused() {
    for (brokers, message) in [
        (json!({"replicasPerGroup": 9}), "brokers.replicasPerGroup: 9 is outside 0..8"),
        (
            json!({"replicasPerGroup": 1, "replication": {"inSyncReplicas": 3}}),
            "brokers.replication.inSyncReplicas: 3 is more than the 2 brokers of a group",
        ),
        (
            json!({"replicasPerGroup": 1, "replication": {"minInSyncReplicas": 3}}),
            "brokers.replication.minInSyncReplicas: 3 is more than 2 copies",
        ),
        (
            json!({"replicasPerGroup": 2, "replication": {"inSyncReplicas": 2, "minInSyncReplicas": 3}}),
            "brokers.replication.minInSyncReplicas: 3 is more than 2 copies",
        ),
        (
            json!({"replicasPerGroup": 2, "replication": {"minInSyncReplicas": 0}}),
            "brokers.replication.minInSyncReplicas: 0 is less than 1",
        ),
        (
            json!({"replicasPerGroup": 1, "replication": {"mode": "Async"}}),
            "Async asks for failover.policy: Availability",
        ),
    ] {
        let found = refused(&replicated(brokers, None));
        assert!(found.contains(message), "{message:?} is not in {found}");
    }
}

#[test]
fn lease_times_that_would_yield_two_masters_are_refused() {
    for (failover, message) in [
        (
            json!({"leaseDurationSeconds": 10}),
            "failover.leaseDurationSeconds: 10 is not more than renewDeadlineSeconds, 10",
        ),
        (
            json!({"renewDeadlineSeconds": 6, "retryPeriodSeconds": 5}),
            "failover.renewDeadlineSeconds: 6 is not more than 1.2 times retryPeriodSeconds, 5",
        ),
        (json!({"delaySeconds": -1}), "failover.delaySeconds: -1 is outside 0..3600"),
        (
            json!({"leaseDurationSeconds": 301}),
            "failover.leaseDurationSeconds: 301 is outside 2..300",
        ),
    ] {
        let found = refused(&replicated(json!({"replicasPerGroup": 1}), Some(failover)));
        assert!(found.contains(message), "{message:?} is not in {found}");
    }
}
