use super::*;
use crate::conditions::find;
use crate::crd::consumer_group::ConsumerGroupStatus;
use crate::testing::{ApiServer, Brokers, address, cluster_manifest, context};
use serde_json::{Value, json};

fn setup(spec: &Value) -> (ApiServer, Brokers) {
    let mut full = json!({"clusterRef": {"name": "demo"}});
    for (key, value) in spec.as_object().expect("an object") {
        full[key] = value.clone();
    }
    let (server, brokers) = (ApiServer::default(), Brokers::default());
    server.put(cluster_manifest());
    server.put(json!({
        "apiVersion": "rocketmq.rs/v1alpha1",
        "kind": "ConsumerGroup",
        "metadata": {"name": "billing", "namespace": "ns"},
        "spec": full,
    }));
    (server, brokers)
}

async fn look(server: &ApiServer, brokers: &Brokers) {
    let ctx = context(server, brokers);
    let group = server.get::<ConsumerGroup>("billing").expect("the group");
    reconcile(Arc::new(group), ctx).await.expect("a pass");
}

async fn settle(server: &ApiServer, brokers: &Brokers) {
    for _ in 0..3 {
        look(server, brokers).await;
    }
}

fn status(server: &ApiServer) -> ConsumerGroupStatus {
    server.get::<ConsumerGroup>("billing").and_then(|g| g.status).unwrap_or_default()
}

fn reason(server: &ApiServer) -> String {
    find(&status(server).conditions, "Ready").expect("Ready").reason.clone()
}

fn defaults() -> GroupSettings {
    GroupSettings {
        consume_enabled: true,
        broadcast_enabled: true,
        consume_from_min: true,
        notify_on_membership_change: true,
        retry_queues: 1,
        max_retries: 16,
    }
}

#[tokio::test]
async fn a_group_is_created_everywhere_and_then_left_alone() {
    let (server, brokers) = setup(&json!({}));
    settle(&server, &brokers).await;
    for number in 0..2 {
        assert_eq!(brokers.group_of(number, "billing"), Some(defaults()));
    }
    assert_eq!(reason(&server), "Synced");
    assert_eq!(server.take_events(), ["ConsumerGroupCreated"]);
    server.take_writes();
    brokers.take_writes();
    settle(&server, &brokers).await;
    assert_eq!(server.take_writes(), Vec::<String>::new());
    assert_eq!(brokers.take_writes(), Vec::<String>::new());
}

#[tokio::test]
async fn a_new_broker_group_gets_the_consumer_group() {
    let (server, brokers) = setup(&json!({}));
    settle(&server, &brokers).await;
    server.edit("rocketmqclusters", "demo", |c| c["spec"]["brokers"]["groups"] = json!(3));
    settle(&server, &brokers).await;
    assert_eq!(brokers.group_of(2, "billing"), Some(defaults()));
    assert_eq!(status(&server).groups.len(), 3);
}

#[tokio::test]
async fn a_changed_spec_is_written_everywhere() {
    let (server, brokers) = setup(&json!({}));
    settle(&server, &brokers).await;
    server.edit("consumergroups", "billing", |g| {
        g["spec"]["consumeEnabled"] = json!(false);
        g["spec"]["maxRetries"] = json!(3);
    });
    settle(&server, &brokers).await;
    let wanted = GroupSettings { consume_enabled: false, max_retries: 3, ..defaults() };
    assert_eq!(brokers.group_of(0, "billing"), Some(wanted.clone()));
    assert_eq!(brokers.group_of(1, "billing"), Some(wanted));
}

#[tokio::test]
async fn drift_is_handled_as_the_policy_says() {
    let drifted = GroupSettings { max_retries: 99, ..defaults() };
    for (policy, after, events) in [
        ("Correct", defaults(), vec!["DriftCorrected"]),
        ("Warn", drifted.clone(), vec!["DriftDetected"]),
        ("Ignore", drifted.clone(), vec![]),
    ] {
        let (server, brokers) = setup(&json!({"driftPolicy": policy}));
        settle(&server, &brokers).await;
        server.take_events();
        brokers.set_group(1, "billing", Some(drifted.clone()));
        settle(&server, &brokers).await;
        assert_eq!(brokers.group_of(1, "billing"), Some(after), "{policy}");
        assert_eq!(server.take_events(), events, "{policy}");
    }
}

#[tokio::test]
async fn adoption_is_as_told() {
    let other = GroupSettings { max_retries: 99, ..defaults() };
    for (adopt, found, then) in [
        ("IfIdentical", defaults(), "Synced"),
        ("IfIdentical", other.clone(), "AdoptionRefused"),
        ("Never", defaults(), "AdoptionRefused"),
        ("Update", other, "Synced"),
    ] {
        let (server, brokers) = setup(&json!({"adopt": adopt}));
        brokers.set_group(0, "billing", Some(found));
        settle(&server, &brokers).await;
        assert_eq!(reason(&server), then, "{adopt}");
    }
}

#[tokio::test]
async fn a_broker_that_is_down_shows_in_the_status() {
    let (server, brokers) = setup(&json!({}));
    settle(&server, &brokers).await;
    brokers.set_down(1, true);
    settle(&server, &brokers).await;
    assert_eq!(reason(&server), "ClusterNotReady");
    let groups = status(&server).groups;
    assert_eq!((groups[0].synced, groups[1].synced), (true, false));
}

#[tokio::test]
async fn under_retain_a_deletion_is_instant() {
    let (server, brokers) = setup(&json!({}));
    settle(&server, &brokers).await;
    server.delete("consumergroups", "billing");
    assert!(server.get::<ConsumerGroup>("billing").is_none());
    assert!(brokers.group_of(0, "billing").is_some());
}

#[tokio::test]
async fn under_delete_it_waits_for_members_and_then_goes() {
    let (server, brokers) =
        setup(&json!({"deletionPolicy": "Delete", "cleanOffsetsOnDelete": true}));
    settle(&server, &brokers).await;
    brokers.connect(1, "billing");
    brokers.take_writes();
    server.delete("consumergroups", "billing");
    look(&server, &brokers).await;
    assert_eq!(reason(&server), "InUse");
    assert_eq!(brokers.take_writes(), Vec::<String>::new());
    server.edit("consumergroups", "billing", |group| {
        group["metadata"]["annotations"] = json!({"rocketmq.rs/force-delete": "true"});
    });
    look(&server, &brokers).await;
    assert!(server.get::<ConsumerGroup>("billing").is_none());
    assert_eq!(
        brokers.take_writes(),
        [
            format!("delete billing on {} clean=true", address(0)),
            format!("delete billing on {} clean=true", address(1)),
        ]
    );
}
