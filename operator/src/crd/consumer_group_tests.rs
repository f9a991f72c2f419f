use super::*;
use serde_json::{Value, json};

fn manifest(spec: Value) -> Value {
    json!({
        "apiVersion": "rocketmq.rs/v1alpha1",
        "kind": "ConsumerGroup",
        "metadata": {"name": "billing"},
        "spec": spec,
    })
}

fn minimal() -> Value {
    json!({"clusterRef": {"name": "demo"}})
}

fn typed(manifest: &Value) -> ConsumerGroup {
    serde_json::from_value(manifest.clone()).expect("a consumer group")
}

fn refused(manifest: &Value) -> String {
    let errors = typed(manifest).validate_cel().expect_err("refused");
    errors.iter().map(|e| e.message.clone()).collect::<Vec<_>>().join(" | ")
}

fn refused_update(old: &Value, new: &Value) -> String {
    let errors = typed(new).validate_cel_update(&typed(old)).expect_err("refused");
    errors.iter().map(|e| e.message.clone()).collect::<Vec<_>>().join(" | ")
}

#[test]
fn a_minimal_manifest_has_rocketmqs_defaults() {
    let group = typed(&manifest(minimal()));
    group.validate_cel().expect("accepted");
    assert_eq!(group.group_name(), "billing");
    assert!(group.spec.consume_enabled && group.spec.broadcast_enabled);
    assert!(group.spec.consume_from_min && group.spec.notify_on_membership_change);
    assert_eq!((group.spec.retry_queues, group.spec.max_retries), (1, 16));
}

#[test]
fn numbers_have_bounds() {
    for (field, value) in
        [("retryQueues", -1), ("retryQueues", 65), ("maxRetries", -2), ("maxRetries", 1025)]
    {
        let mut manifest = manifest(minimal());
        manifest["spec"][field] = json!(value);
        let message = refused(&manifest);
        assert!(message.starts_with(&format!("{field}: {value} is outside")), "{message}");
    }
}

#[test]
fn group_names_follow_rocketmqs_rules() {
    for name in ["a/b", "", "x".repeat(121).as_str(), "CID_RMQ_SYS_TRANS", "TOOLS_CONSUMER"] {
        let mut manifest = manifest(minimal());
        manifest["spec"]["groupName"] = json!(name);
        let message = refused(&manifest);
        assert!(message.contains("groupName: \"") && message.contains(name), "{message}");
    }
}

#[test]
fn a_resource_name_that_is_no_group_name_needs_one() {
    let mut manifest = manifest(minimal());
    manifest["metadata"]["name"] = json!("billing.v1");
    assert!(refused(&manifest).contains("set spec.groupName"));
}

#[test]
fn cluster_and_name_stay() {
    let old = manifest(minimal());
    let mut moved = manifest(minimal());
    moved["spec"]["clusterRef"]["name"] = json!("other");
    assert!(refused_update(&old, &moved).contains("\"other\" differs from \"demo\""));
    let mut named = manifest(minimal());
    named["spec"]["groupName"] = json!("a");
    assert!(refused_update(&old, &named).contains("cannot be added or removed"));
    let mut renamed = manifest(minimal());
    renamed["spec"]["groupName"] = json!("b");
    assert!(refused_update(&named, &renamed).contains("groupName: \"b\" differs from \"a\""));
}
