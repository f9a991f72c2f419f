//! The example manifests are valid against the custom resource definitions: types, required and
//! unknown fields, enums, and the CEL rules.

use std::fs;
use std::path::{Path, PathBuf};

use kube::core::cel::Validator;
use rocketmq_operator::crd::definitions;
use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("workspace root").to_owned()
}

fn documents(folder: &str) -> Vec<(String, Value)> {
    let mut documents = Vec::new();
    let mut paths: Vec<PathBuf> = fs::read_dir(root().join(folder))
        .expect("the folder of manifests")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    for path in paths {
        let text = fs::read_to_string(&path).expect("a text file");
        for document in text.split("\n---\n") {
            let value: Value = serde_saphyr::from_str(document)
                .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            documents.push((path.display().to_string(), value));
        }
    }
    documents
}

fn schema_of(kind: &str) -> Option<Value> {
    let crd = definitions().into_iter().find(|crd| crd.spec.names.kind == kind)?;
    let schema = crd.spec.versions[0].schema.clone()?.open_api_v3_schema?;
    Some(serde_json::to_value(schema).expect("a schema as JSON"))
}

/// What a structural schema says against `value`, each line with its path.
fn faults(schema: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
    let right_type = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        _ => true,
    };
    if !right_type {
        found.push(format!("{path}: {value} is no {}", schema["type"]));
        return;
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        found.push(format!("{path}: {value} is not one of {allowed:?}"));
    }
    for required in schema["required"].as_array().into_iter().flatten() {
        let field = required.as_str().expect("a field name");
        if value.get(field).is_none() {
            found.push(format!("{path}.{field} is missing"));
        }
    }
    if let Some(object) = value.as_object() {
        for (key, inner) in object {
            let path = format!("{path}.{key}");
            match (schema["properties"].get(key), schema.get("additionalProperties")) {
                (Some(schema), _) | (None, Some(schema)) if schema.is_object() => {
                    faults(schema, inner, &path, found);
                }
                _ if schema["properties"].is_object() => found.push(format!("{path} is unknown")),
                _ => {}
            }
        }
    }
    for (i, inner) in value.as_array().into_iter().flatten().enumerate() {
        faults(&schema["items"], inner, &format!("{path}[{i}]"), found);
    }
}

fn validate(name: &str, document: &Value) -> Vec<String> {
    let kind = document["kind"].as_str().expect("a kind");
    let schema = schema_of(kind).unwrap_or_else(|| panic!("{name}: kind {kind} is not defined"));
    let mut found = Vec::new();
    let spec = &schema["properties"]["spec"];
    faults(spec, &document["spec"], "spec", &mut found);
    if let Err(errors) = Validator::new().validate(&schema, document, None) {
        found.extend(errors.iter().map(|error| error.message.clone()));
    }
    found
}

#[test]
fn examples_are_valid() {
    let mut kinds = Vec::new();
    let examples = ["e2e/manifests", "deploy/examples"].into_iter().flat_map(documents);
    for (name, document) in examples {
        if document["apiVersion"] == "rocketmq.rs/v1alpha1" {
            assert_eq!(validate(&name, &document), Vec::<String>::new(), "{name}");
            kinds.push(document["kind"].as_str().expect("a kind").to_owned());
        }
    }
    for kind in ["RocketMQCluster", "Topic", "ConsumerGroup"] {
        assert!(kinds.iter().any(|k| k == kind), "there is no example of a {kind}");
    }
}

/// The check above finds what it is meant to find.
#[test]
fn faults_are_found() {
    let broken: Value = serde_json::json!({
        "apiVersion": "rocketmq.rs/v1alpha1",
        "kind": "RocketMQCluster",
        "metadata": {"name": "demo"},
        "spec": {
            "replicas": 3,
            "nameServers": {"replicas": "two"},
            "brokers": {"groups": 0, "storage": {}},
            "image": {"pullPolicy": "Sometimes"},
        },
    });
    let found = validate("broken", &broken).join("\n");
    for fault in [
        "spec.replicas is unknown",
        "spec.nameServers.replicas: \"two\" is no \"integer\"",
        "spec.brokers.storage.size is missing",
        "spec.image.pullPolicy: \"Sometimes\" is not one of",
        "brokers.groups: 0 is outside 1..256",
    ] {
        assert!(found.contains(fault), "{fault:?} is not in\n{found}");
    }
}
