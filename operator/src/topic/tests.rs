use super::*;
use crate::conditions::find;
use crate::rocketmq::{Progress, QueueOffsets, TopicSettings};
use crate::testing::{ApiServer, Brokers, address, cluster_manifest, context};
use serde_json::{Value, json};

fn manifest(spec: &Value) -> Value {
    let mut full = json!({"clusterRef": {"name": "demo"}, "queuesPerGroup": 4});
    for (key, value) in spec.as_object().expect("an object") {
        full[key] = value.clone();
    }
    json!({
        "apiVersion": "rocketmq.rs/v1alpha1",
        "kind": "Topic",
        "metadata": {"name": "orders", "namespace": "ns"},
        "spec": full,
    })
}

fn setup(spec: &Value) -> (ApiServer, Brokers) {
    let (server, brokers) = (ApiServer::default(), Brokers::default());
    server.put(cluster_manifest());
    server.put(manifest(spec));
    (server, brokers)
}

async fn look_at(server: &ApiServer, brokers: &Brokers, name: &str) -> Action {
    let ctx = context(server, brokers);
    let topic = server.get::<Topic>(name).expect("the topic");
    reconcile(Arc::new(topic), ctx).await.expect("a pass")
}

async fn look(server: &ApiServer, brokers: &Brokers) {
    look_at(server, brokers, "orders").await;
}

async fn settle(server: &ApiServer, brokers: &Brokers) {
    for _ in 0..4 {
        look(server, brokers).await;
    }
}

fn status(server: &ApiServer) -> TopicStatus {
    server.get::<Topic>("orders").and_then(|t| t.status).unwrap_or_default()
}

fn reason(server: &ApiServer) -> String {
    find(&status(server).conditions, "Ready").expect("Ready").reason.clone()
}

fn settings(read: i32, write: i32) -> TopicSettings {
    TopicSettings {
        read_queues: read,
        write_queues: write,
        ..plan::created(Wanted { queues: read, permission: 6 })
    }
}

fn edit_spec(server: &ApiServer, key: &str, value: Value) {
    server.edit("topics", "orders", |topic| topic["spec"][key] = value);
}

#[tokio::test]
async fn a_topic_is_created_on_every_group_and_then_left_alone() {
    let (server, brokers) = setup(&json!({}));
    settle(&server, &brokers).await;
    for number in 0..2 {
        assert_eq!(brokers.topic_of(number, "orders"), Some(settings(4, 4)));
    }
    let now = status(&server);
    assert!(conditions::is_true(&now.conditions, "Ready"));
    for kind in ["Synced", "Drifted", "Conflict", "ResizeInProgress", "ReconciliationPaused"] {
        assert!(find(&now.conditions, kind).is_some(), "{kind}");
    }
    assert_eq!((now.origin, now.groups.len()), (Some(Origin::Created), 2));
    assert_eq!(server.take_events(), ["TopicCreated"]);
    server.take_writes();
    brokers.take_writes();
    settle(&server, &brokers).await;
    assert_eq!(server.take_writes(), Vec::<String>::new());
    assert_eq!(server.take_events(), Vec::<String>::new());
    assert_eq!(brokers.take_writes(), Vec::<String>::new());
}

#[tokio::test]
async fn the_intent_is_recorded_before_the_first_broker_is_asked_to_change() {
    let (server, brokers) = setup(&json!({}));
    look(&server, &brokers).await;
    assert_eq!(status(&server).origin, Some(Origin::Created));
    assert_eq!(brokers.take_writes(), Vec::<String>::new());
}

#[tokio::test]
async fn a_topic_without_a_cluster_waits() {
    let (server, brokers) = setup(&json!({}));
    server.delete("rocketmqclusters", "demo");
    settle(&server, &brokers).await;
    assert_eq!(reason(&server), "ClusterNotFound");
    assert_eq!(server.take_events(), ["ClusterNotFound"]);
    server.put(cluster_manifest());
    settle(&server, &brokers).await;
    assert_eq!(reason(&server), "Synced");
}

#[tokio::test]
async fn a_group_that_does_not_answer_holds_up_only_itself() {
    let (server, brokers) = setup(&json!({}));
    settle(&server, &brokers).await;
    brokers.set_down(1, true);
    edit_spec(&server, "permission", json!("ReadOnly"));
    settle(&server, &brokers).await;
    assert_eq!(brokers.topic_of(0, "orders").expect("the topic").permission, 4);
    assert_eq!(reason(&server), "ClusterNotReady");
    assert!(!status(&server).groups[1].synced);
    brokers.set_down(1, false);
    settle(&server, &brokers).await;
    assert_eq!(brokers.topic_of(1, "orders").expect("the topic").permission, 4);
    assert_eq!(reason(&server), "Synced");
}

#[tokio::test]
async fn an_equal_topic_is_adopted_silently_and_another_as_told() {
    for (adopt, found, then) in [
        ("IfIdentical", settings(4, 4), "Synced"),
        ("IfIdentical", settings(6, 6), "AdoptionRefused"),
        ("Never", settings(4, 4), "AdoptionRefused"),
        ("Update", settings(4, 2), "Synced"),
    ] {
        let (server, brokers) = setup(&json!({"adopt": adopt}));
        brokers.set_topic(0, "orders", Some(found.clone()));
        brokers.set_topic(1, "orders", Some(found.clone()));
        settle(&server, &brokers).await;
        assert_eq!(reason(&server), then, "{adopt} {found:?}");
        if then == "AdoptionRefused" {
            assert_eq!(brokers.take_writes(), Vec::<String>::new());
        } else {
            assert_eq!(status(&server).origin, Some(Origin::Adopted));
            assert_eq!(server.take_events().first().map(String::as_str), Some("TopicAdopted"));
        }
    }
}

#[tokio::test]
async fn of_two_resources_for_one_topic_the_older_wins_until_it_goes() {
    let (server, brokers) = setup(&json!({"topicName": "shared", "queuesPerGroup": 4}));
    let mut younger = manifest(&json!({"topicName": "shared", "queuesPerGroup": 9}));
    younger["metadata"]["name"] = json!("younger");
    server.put(younger);
    for _ in 0..3 {
        look_at(&server, &brokers, "younger").await;
        look(&server, &brokers).await;
    }
    assert_eq!(brokers.topic_of(0, "shared"), Some(settings(4, 4)));
    let lost = server.get::<Topic>("younger").and_then(|t| t.status).expect("a status");
    assert_eq!(find(&lost.conditions, "Ready").expect("Ready").reason, "Conflict");
    assert!(conditions::is_true(&lost.conditions, "Conflict"));
    server.delete("topics", "orders");
    for _ in 0..6 {
        look_at(&server, &brokers, "younger").await;
    }
    assert_eq!(brokers.topic_of(0, "shared"), Some(settings(9, 9)));
}

#[tokio::test]
async fn drift_is_corrected_once_and_told_once() {
    let (server, brokers) = setup(&json!({}));
    settle(&server, &brokers).await;
    server.take_events();
    let other = TopicSettings { permission: 4, ..settings(4, 4) };
    brokers.set_topic(1, "orders", Some(other));
    settle(&server, &brokers).await;
    assert_eq!(brokers.topic_of(1, "orders"), Some(settings(4, 4)));
    assert_eq!(server.take_events(), ["DriftCorrected"]);
    brokers.set_topic(0, "orders", None);
    settle(&server, &brokers).await;
    assert_eq!(brokers.topic_of(0, "orders"), Some(settings(4, 4)));
}

#[tokio::test]
async fn a_manual_increase_is_undone_by_the_safe_shrink() {
    let (server, brokers) = setup(&json!({}));
    settle(&server, &brokers).await;
    brokers.set_topic(0, "orders", Some(settings(8, 8)));
    brokers.set_offsets(
        0,
        "orders",
        7,
        QueueOffsets { max_queue_offset: 3, ..QueueOffsets::default() },
    );
    settle(&server, &brokers).await;
    assert_eq!(brokers.topic_of(0, "orders"), Some(settings(8, 4)));
    assert_eq!(reason(&server), "Resizing");
}

#[tokio::test]
async fn drift_is_left_where_the_policy_says_so() {
    for (policy, ready, event) in [("Warn", "False", true), ("Ignore", "True", false)] {
        let (server, brokers) = setup(&json!({"driftPolicy": policy}));
        settle(&server, &brokers).await;
        server.take_events();
        brokers.take_writes();
        brokers.set_topic(1, "orders", Some(settings(8, 8)));
        settle(&server, &brokers).await;
        assert_eq!(brokers.take_writes(), Vec::<String>::new(), "{policy}");
        assert_eq!(find(&status(&server).conditions, "Ready").expect("Ready").status, ready);
        assert_eq!(server.take_events() == ["DriftDetected"], event, "{policy}");
        // A change of the spec is no drift.
        edit_spec(&server, "queuesPerGroup", json!(8));
        settle(&server, &brokers).await;
        assert_eq!(brokers.topic_of(0, "orders"), Some(settings(8, 8)));
    }
}

#[tokio::test]
async fn queues_grow_read_first() {
    let (server, brokers) = setup(&json!({}));
    settle(&server, &brokers).await;
    server.take_events();
    edit_spec(&server, "queuesPerGroup", json!(8));
    look(&server, &brokers).await;
    assert_eq!(brokers.topic_of(0, "orders"), Some(settings(8, 4)));
    let resize = status(&server).resize.expect("under way");
    assert_eq!((resize.from, resize.to, resize.step), (4, 8, ResizeStep::WaitForConsumers));
    settle(&server, &brokers).await;
    assert_eq!(brokers.topic_of(1, "orders"), Some(settings(8, 8)));
    assert_eq!(status(&server).resize, None);
    assert_eq!(server.take_events(), ["QueuesResizing", "QueuesResized"]);
}

#[tokio::test]
async fn queues_shrink_only_after_everyone_has_consumed_them() {
    let (server, brokers) = setup(&json!({"queuesPerGroup": 8}));
    settle(&server, &brokers).await;
    let full = QueueOffsets { max_queue_offset: 10, ..QueueOffsets::default() };
    brokers.set_offsets(1, "orders", 6, full);
    let behind = |offset| {
        vec![Progress { group: "billing".to_owned(), offsets: [(6, offset)].into_iter().collect() }]
    };
    brokers.set_progress(1, "orders", behind(9));
    edit_spec(&server, "queuesPerGroup", json!(4));
    settle(&server, &brokers).await;
    assert_eq!(brokers.topic_of(1, "orders"), Some(settings(8, 4)));
    let now = status(&server);
    let resize = now.resize.clone().expect("under way");
    assert_eq!(resize.step, ResizeStep::WaitForDrain);
    assert_eq!(resize.blocked_by, ["billing on demo-broker-1"]);
    assert_eq!(find(&now.conditions, "ResizeInProgress").expect("it").reason, "WaitingForDrain");
    brokers.set_progress(1, "orders", behind(10));
    settle(&server, &brokers).await;
    assert_eq!(brokers.topic_of(0, "orders"), Some(settings(4, 4)));
    assert_eq!(brokers.topic_of(1, "orders"), Some(settings(4, 4)));
    assert_eq!(reason(&server), "Synced");
}

#[tokio::test]
async fn a_shrink_can_leave_a_consumer_group_behind_when_told() {
    let (server, brokers) = setup(&json!({"queuesPerGroup": 8}));
    settle(&server, &brokers).await;
    let full = QueueOffsets { max_queue_offset: 10, ..QueueOffsets::default() };
    brokers.set_offsets(0, "orders", 6, full);
    brokers.set_progress(
        0,
        "orders",
        vec![Progress { group: "gone".to_owned(), ..Progress::default() }],
    );
    edit_spec(&server, "queuesPerGroup", json!(4));
    settle(&server, &brokers).await;
    assert_eq!(brokers.topic_of(0, "orders"), Some(settings(8, 4)));
    server.edit("topics", "orders", |topic| {
        topic["metadata"]["annotations"] = json!({"rocketmq.rs/skip-drain": "gone"});
    });
    settle(&server, &brokers).await;
    assert_eq!(brokers.topic_of(0, "orders"), Some(settings(4, 4)));
}

#[tokio::test]
async fn an_ordered_topic_keeps_its_queues() {
    let (server, brokers) = setup(&json!({"queuesPerGroup": 8}));
    let ordered = TopicSettings { order: true, ..settings(4, 4) };
    brokers.set_topic(0, "orders", Some(ordered.clone()));
    brokers.set_topic(1, "orders", Some(ordered.clone()));
    settle(&server, &brokers).await;
    assert_eq!(reason(&server), "OrderedResizeRefused");
    assert_eq!(brokers.topic_of(0, "orders"), Some(ordered));
}

#[tokio::test]
async fn on_a_new_group_consumer_groups_come_first() {
    let (server, brokers) = setup(&json!({}));
    settle(&server, &brokers).await;
    server.put(json!({
        "apiVersion": "rocketmq.rs/v1alpha1",
        "kind": "ConsumerGroup",
        "metadata": {"name": "billing", "namespace": "ns"},
        "spec": {"clusterRef": {"name": "demo"}},
        "status": {"groups": [
            {"name": "demo-broker-0", "synced": true}, {"name": "demo-broker-1", "synced": true},
        ]},
    }));
    server.edit("rocketmqclusters", "demo", |c| c["spec"]["brokers"]["groups"] = json!(3));
    settle(&server, &brokers).await;
    assert_eq!(brokers.topic_of(2, "orders"), None);
    assert_eq!(reason(&server), "WaitingForConsumerGroups");
    server.edit("consumergroups", "billing", |group| {
        group["status"]["groups"]
            .as_array_mut()
            .expect("the groups")
            .push(json!({"name": "demo-broker-2", "synced": true}));
    });
    settle(&server, &brokers).await;
    assert_eq!(brokers.topic_of(2, "orders"), Some(settings(4, 4)));
}

#[tokio::test]
async fn the_finalizer_is_there_only_while_it_has_work() {
    let (server, brokers) = setup(&json!({}));
    settle(&server, &brokers).await;
    let finalizers = || server.get::<Topic>("orders").expect("the topic").finalizers().to_vec();
    assert!(finalizers().is_empty());
    edit_spec(&server, "deletionPolicy", json!("Delete"));
    settle(&server, &brokers).await;
    assert_eq!(finalizers(), [FINALIZER]);
    edit_spec(&server, "deletionPolicy", json!("Retain"));
    settle(&server, &brokers).await;
    assert!(finalizers().is_empty());
    server.delete("topics", "orders");
    assert!(server.get::<Topic>("orders").is_none());
    assert!(brokers.topic_of(0, "orders").is_some());
}

#[tokio::test]
async fn a_deleted_topic_goes_from_brokers_and_then_from_name_servers() {
    let (server, brokers) = setup(&json!({"deletionPolicy": "Delete"}));
    settle(&server, &brokers).await;
    brokers.take_writes();
    server.take_events();
    server.delete("topics", "orders");
    look(&server, &brokers).await;
    assert!(server.get::<Topic>("orders").is_none());
    assert_eq!(
        brokers.take_writes(),
        [
            format!("delete orders on {}", address(0)),
            format!("delete orders on {}", address(1)),
            "forget orders on demo-namesrv-0.demo-namesrv-pods.ns.svc:9876".to_owned(),
            "forget orders on demo-namesrv-1.demo-namesrv-pods.ns.svc:9876".to_owned(),
        ]
    );
    assert_eq!(server.take_events(), ["TopicDeleted"]);
}

#[tokio::test]
async fn a_deletion_waits_for_consumers_unless_forced() {
    let (server, brokers) = setup(&json!({"deletionPolicy": "Delete"}));
    settle(&server, &brokers).await;
    let full = QueueOffsets { max_queue_offset: 10, ..QueueOffsets::default() };
    brokers.set_offsets(0, "orders", 0, full);
    brokers.set_progress(
        0,
        "orders",
        vec![Progress { group: "g".to_owned(), ..Progress::default() }],
    );
    server.take_events();
    server.delete("topics", "orders");
    for _ in 0..3 {
        look(&server, &brokers).await;
    }
    assert_eq!(reason(&server), "InUse");
    assert_eq!(server.take_events(), ["InUse"], "repeats are not sent");
    assert!(brokers.topic_of(0, "orders").is_some());
    server.edit("topics", "orders", |topic| {
        topic["metadata"]["annotations"] = json!({"rocketmq.rs/force-delete": "true"});
    });
    look(&server, &brokers).await;
    assert!(server.get::<Topic>("orders").is_none());
    assert!(brokers.topic_of(0, "orders").is_none());
}

#[tokio::test]
async fn a_deletion_that_a_broker_refuses_is_tried_again() {
    let (server, brokers) = setup(&json!({"deletionPolicy": "Delete"}));
    settle(&server, &brokers).await;
    brokers.set_down(1, true);
    server.delete("topics", "orders");
    look(&server, &brokers).await;
    assert_eq!(reason(&server), "DeletionFailed");
    let message = find(&status(&server).conditions, "Ready").expect("Ready").message.clone();
    assert!(message.contains(&address(1)), "{message}");
    brokers.set_down(1, false);
    look(&server, &brokers).await;
    assert!(server.get::<Topic>("orders").is_none());
}

#[tokio::test]
async fn a_finalizer_does_not_outlive_the_cluster() {
    let (server, brokers) = setup(&json!({"deletionPolicy": "Delete"}));
    settle(&server, &brokers).await;
    brokers.take_writes();
    server.take_events();
    server.delete("rocketmqclusters", "demo");
    server.delete("topics", "orders");
    look(&server, &brokers).await;
    assert!(server.get::<Topic>("orders").is_none());
    assert_eq!(brokers.take_writes(), Vec::<String>::new());
    assert_eq!(server.take_events(), ["DeletionSkipped"]);
}

#[tokio::test]
async fn an_heir_keeps_the_topic() {
    let (server, brokers) = setup(&json!({"topicName": "shared", "deletionPolicy": "Delete"}));
    settle(&server, &brokers).await;
    let mut heir = manifest(&json!({"topicName": "shared"}));
    heir["metadata"]["name"] = json!("heir");
    server.put(heir);
    brokers.take_writes();
    server.delete("topics", "orders");
    look(&server, &brokers).await;
    assert!(server.get::<Topic>("orders").is_none());
    assert_eq!(brokers.take_writes(), Vec::<String>::new());
}

#[tokio::test]
async fn an_unmanaged_topic_is_left_even_when_deleted() {
    let (server, brokers) = setup(&json!({"deletionPolicy": "Delete"}));
    settle(&server, &brokers).await;
    server.edit("topics", "orders", |topic| {
        topic["metadata"]["annotations"] = json!({"rocketmq.rs/managed": "false"});
    });
    brokers.take_writes();
    brokers.set_topic(0, "orders", Some(settings(9, 9)));
    settle(&server, &brokers).await;
    assert_eq!(reason(&server), "Unmanaged");
    server.delete("topics", "orders");
    assert!(server.get::<Topic>("orders").is_none(), "no finalizer holds it");
    assert_eq!(brokers.take_writes(), Vec::<String>::new());
}

#[tokio::test]
async fn a_paused_cluster_pauses_its_topics() {
    let (server, brokers) = setup(&json!({}));
    server.edit("rocketmqclusters", "demo", |c| c["spec"]["paused"] = json!(true));
    settle(&server, &brokers).await;
    assert_eq!(reason(&server), "Paused");
    assert_eq!(brokers.take_writes(), Vec::<String>::new());
}
