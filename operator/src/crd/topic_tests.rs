use super::*;
use serde_json::{Value, json};

fn manifest(spec: Value) -> Value {
    json!({
        "apiVersion": "rocketmq.rs/v1alpha1",
        "kind": "Topic",
        "metadata": {"name": "orders"},
        "spec": spec,
    })
}

fn minimal() -> Value {
    json!({"clusterRef": {"name": "demo"}, "queuesPerGroup": 4})
}

fn typed(manifest: &Value) -> Topic {
    serde_json::from_value(manifest.clone()).expect("a topic")
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
fn a_minimal_manifest_is_accepted_with_defaults() {
    let topic = typed(&manifest(minimal()));
    topic.validate_cel().expect("accepted");
    assert_eq!(topic.topic_name(), "orders");
    assert_eq!(topic.spec.permission.bits(), 6);
    assert_eq!(topic.spec.deletion_policy, DeletionPolicy::Retain);
}

#[test]
fn queue_counts_have_bounds() {
    for count in [0, 1025] {
        let mut manifest = manifest(minimal());
        manifest["spec"]["queuesPerGroup"] = json!(count);
        assert_eq!(refused(&manifest), format!("queuesPerGroup: {count} is outside 1..1024"));
    }
}

#[test]
fn topic_names_follow_rocketmqs_rules() {
    for name in
        ["a/b", "", "a b", "x".repeat(128).as_str(), "TBW102", "%RETRY%g", "%DLQ%g", "rmq_sys_x"]
    {
        let mut manifest = manifest(minimal());
        manifest["spec"]["topicName"] = json!(name);
        let message = refused(&manifest);
        assert!(message.contains("topicName: \"") && message.contains(name), "{message}");
    }
    let mut manifest = manifest(minimal());
    manifest["spec"]["topicName"] = json!("A_b-1%|");
    typed(&manifest).validate_cel().expect("accepted");
}

#[test]
fn a_resource_name_that_is_no_topic_name_needs_one() {
    let mut manifest = manifest(minimal());
    manifest["metadata"]["name"] = json!("orders.v1");
    assert!(refused(&manifest).contains("set spec.topicName"));
    manifest["spec"]["topicName"] = json!("orders_v1");
    typed(&manifest).validate_cel().expect("accepted");
}

#[test]
fn cluster_and_name_stay() {
    let old = manifest(minimal());
    let mut moved = manifest(minimal());
    moved["spec"]["clusterRef"]["name"] = json!("other");
    assert!(refused_update(&old, &moved).contains("\"other\" differs from \"demo\""));
    let mut named = manifest(minimal());
    named["spec"]["topicName"] = json!("a");
    assert!(refused_update(&old, &named).contains("cannot be added or removed"));
    assert!(refused_update(&named, &old).contains("cannot be added or removed"));
    let mut renamed = manifest(minimal());
    renamed["spec"]["topicName"] = json!("b");
    assert!(refused_update(&named, &renamed).contains("topicName: \"b\" differs from \"a\""));
}
