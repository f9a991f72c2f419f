use super::*;
use crate::conditions::{find, is_true};
use crate::testing::{ApiServer, Brokers, cluster_manifest, context};
use k8s_openapi::api::core::v1::Service;
use serde_json::json;

/// One pass over cluster `demo`, with what the caches hold now.
async fn look(server: &ApiServer, brokers: &Brokers) -> Result<Action, Error> {
    let ctx = context(server, brokers);
    let cluster = server.get::<RocketMQCluster>("demo").expect("the cluster");
    reconcile(Arc::new(cluster), ctx).await
}

fn conditions(
    server: &ApiServer,
) -> Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition> {
    server
        .get::<RocketMQCluster>("demo")
        .and_then(|cluster| cluster.status)
        .expect("a status")
        .conditions
}

/// A cluster that is Ready, and everything forgotten that was written on the way.
async fn ready() -> (ApiServer, Brokers) {
    let (server, brokers) = (ApiServer::default(), Brokers::default());
    server.put(cluster_manifest());
    settle(&server, &brokers, 2).await;
    assert!(is_true(&conditions(&server), "Ready"), "{:?}", conditions(&server));
    server.take_writes();
    server.take_events();
    (server, brokers)
}

async fn settle(server: &ApiServer, brokers: &Brokers, groups: i32) {
    brokers.register(groups);
    for _ in 0..12 {
        look(server, brokers).await.expect("a pass");
        server.run_workloads();
    }
}

#[tokio::test]
async fn name_servers_come_before_brokers() {
    let (server, brokers) = (ApiServer::default(), Brokers::default());
    server.put(cluster_manifest());
    look(&server, &brokers).await.expect("a pass");
    assert_eq!(server.names("statefulsets"), ["demo-namesrv"]);
    assert_eq!(server.take_events(), ["ClusterCreated"]);
    let first = conditions(&server);
    for kind in [
        "Ready",
        "Available",
        "NameServersReady",
        "BrokersReady",
        "ReplicationHealthy",
        "Progressing",
        "ConfigApplied",
        "StorageReady",
        "Degraded",
        "ScaleInBlocked",
        "Warning",
        "Fenced",
        "ReconciliationPaused",
    ] {
        assert!(find(&first, kind).is_some(), "{kind} is missing from the first visit");
    }
    assert_eq!(find(&first, "Ready").expect("Ready").reason, "NameServersNotReady");

    // Pods exist but are not ready: still no broker.
    server.run_workloads();
    server.edit("pods", "demo-namesrv-1", |pod| pod["status"] = json!({}));
    look(&server, &brokers).await.expect("a pass");
    assert_eq!(server.names("statefulsets"), ["demo-namesrv"]);

    server.edit("pods", "demo-namesrv-1", |pod| {
        pod["status"] = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    });
    look(&server, &brokers).await.expect("a pass");
    assert_eq!(server.names("statefulsets"), ["demo-broker-0", "demo-broker-1", "demo-namesrv"]);
    assert_eq!(server.take_events(), ["GroupCreated", "GroupCreated"]);
}

#[tokio::test]
async fn ready_means_registered_with_every_name_server() {
    let (server, brokers) = (ApiServer::default(), Brokers::default());
    server.put(cluster_manifest());
    for _ in 0..6 {
        look(&server, &brokers).await.expect("a pass");
        server.run_workloads();
    }
    let found = conditions(&server);
    assert!(is_true(&found, "BrokersReady"));
    assert_eq!(find(&found, "Ready").expect("Ready").reason, "MastersNotRegistered");
    brokers.register(1);
    look(&server, &brokers).await.expect("a pass");
    assert_eq!(find(&conditions(&server), "Ready").expect("Ready").reason, "MastersNotRegistered");
    brokers.register(2);
    look(&server, &brokers).await.expect("a pass");
    assert!(is_true(&conditions(&server), "Ready"));
    let status = server.get::<RocketMQCluster>("demo").and_then(|c| c.status).expect("a status");
    assert_eq!((status.ready.as_str(), status.masters_writable), ("2/2", 2));
    assert_eq!(status.version.as_deref(), Some("0.1.0"));
    assert_eq!(status.observed_generation, Some(1));
    assert_eq!(status.endpoints[0].address, "demo-namesrv.ns.svc:9876");
}

#[tokio::test]
async fn a_steady_state_writes_nothing() {
    let (server, brokers) = ready().await;
    for _ in 0..3 {
        look(&server, &brokers).await.expect("a pass");
    }
    assert_eq!(server.take_writes(), Vec::<String>::new());
    assert_eq!(server.take_events(), Vec::<String>::new());
    assert_eq!(brokers.take_writes(), Vec::<String>::new());
}

#[tokio::test]
async fn changes_by_others_are_undone_and_additions_left() {
    let (server, brokers) = ready().await;
    server.edit("services", "demo-namesrv", |service| {
        service["metadata"]["annotations"]["mesh"] = json!("on");
        service["spec"]["selector"]["rocketmq.rs/tier"] = json!("broker");
    });
    look(&server, &brokers).await.expect("a pass");
    assert_eq!(server.take_writes(), ["PATCH services/demo-namesrv"]);
    let service = server.value("services", "demo-namesrv").expect("the service");
    assert_eq!(service["spec"]["selector"]["rocketmq.rs/tier"], "name-server");
    assert_eq!(service["metadata"]["annotations"]["mesh"], "on");
}

#[tokio::test]
async fn a_changed_configuration_replaces_brokers_one_at_a_time() {
    let (server, brokers) = ready().await;
    server.edit("rocketmqclusters", "demo", |cluster| {
        cluster["spec"]["brokers"]["config"] = json!({"fileReservedTime": "48"});
    });
    let deleted = |writes: Vec<String>| -> Vec<String> {
        writes.into_iter().filter(|w| w.starts_with("DELETE")).collect()
    };
    // The template changes; its controller has not seen it yet, so nothing is replaced.
    look(&server, &brokers).await.expect("a pass");
    assert!(deleted(server.take_writes()).is_empty());
    let keep: Vec<_> = server.names("pods");
    server.run_workloads();
    assert_eq!(server.names("pods"), keep);

    look(&server, &brokers).await.expect("a pass");
    assert_eq!(deleted(server.take_writes()), ["DELETE pods/demo-broker-0-0"]);
    assert!(server.take_events().contains(&"BrokerRestarted".to_owned()));
    // Its successor is awaited.
    look(&server, &brokers).await.expect("a pass");
    assert!(deleted(server.take_writes()).is_empty());
    server.run_workloads();
    // Ready but not registered: still awaited.
    brokers.register(0);
    look(&server, &brokers).await.expect("a pass");
    assert!(deleted(server.take_writes()).is_empty());
    brokers.register(2);
    look(&server, &brokers).await.expect("a pass");
    assert_eq!(deleted(server.take_writes()), ["DELETE pods/demo-broker-1-0"]);
    server.run_workloads();
    look(&server, &brokers).await.expect("a pass");
    assert!(is_true(&conditions(&server), "Ready"));
    assert!(server.take_events().contains(&"RolloutCompleted".to_owned()));
    let status = server.get::<RocketMQCluster>("demo").and_then(|c| c.status).expect("a status");
    assert_eq!(status.rollout, None);
}

#[tokio::test]
async fn groups_can_be_added() {
    let (server, brokers) = ready().await;
    server.edit("rocketmqclusters", "demo", |c| c["spec"]["brokers"]["groups"] = json!(3));
    settle(&server, &brokers, 3).await;
    assert!(server.names("statefulsets").contains(&"demo-broker-2".to_owned()));
    assert!(is_true(&conditions(&server), "Ready"));
    // Those that were there kept their pods.
    assert!(!server.take_writes().iter().any(|write| write.starts_with("DELETE")));
}

#[tokio::test]
async fn fewer_groups_than_exist_remove_nothing() {
    let (server, brokers) = ready().await;
    server.edit("rocketmqclusters", "demo", |c| c["spec"]["brokers"]["groups"] = json!(1));
    settle(&server, &brokers, 2).await;
    assert!(server.names("statefulsets").contains(&"demo-broker-1".to_owned()));
    let found = conditions(&server);
    assert!(is_true(&found, "ScaleInBlocked"));
    assert_eq!(find(&found, "Ready").expect("Ready").reason, "ScaleInNotSupported");
    assert!(!server.take_writes().iter().any(|write| write.starts_with("DELETE")));
}

#[tokio::test]
async fn a_name_server_goes_only_after_brokers_were_told() {
    let (server, brokers) = ready().await;
    server.edit("rocketmqclusters", "demo", |c| c["spec"]["nameServers"]["replicas"] = json!(1));
    look(&server, &brokers).await.expect("a pass");
    let replicas = || {
        server.value("statefulsets", "demo-namesrv").expect("name servers")["spec"]["replicas"]
            .clone()
    };
    assert_eq!(replicas(), 2, "the brokers still list both");
    settle(&server, &brokers, 2).await;
    assert_eq!(replicas(), 1);
    assert_eq!(server.names("pods"), ["demo-broker-0-0", "demo-broker-1-0", "demo-namesrv-0"]);
    assert!(is_true(&conditions(&server), "Ready"), "{:?}", conditions(&server));
}

#[tokio::test]
async fn a_paused_cluster_is_only_looked_at() {
    let (server, brokers) = ready().await;
    server.edit("rocketmqclusters", "demo", |cluster| {
        cluster["spec"]["paused"] = json!(true);
        cluster["spec"]["brokers"]["groups"] = json!(3);
    });
    look(&server, &brokers).await.expect("a pass");
    look(&server, &brokers).await.expect("a pass");
    assert_eq!(server.take_writes(), ["PATCH rocketmqclusters/demo/status"]);
    assert!(is_true(&conditions(&server), "ReconciliationPaused"));
    assert_eq!(server.take_events(), ["Paused"]);
}

#[tokio::test]
async fn a_cluster_that_goes_is_left_to_its_owner_references() {
    let (server, brokers) = ready().await;
    server.edit("rocketmqclusters", "demo", |cluster| {
        cluster["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        cluster["spec"]["brokers"]["groups"] = json!(3);
    });
    look(&server, &brokers).await.expect("a pass");
    assert_eq!(server.take_writes(), Vec::<String>::new());
}

#[tokio::test]
async fn children_of_an_earlier_cluster_of_this_name_are_waited_for() {
    let (server, brokers) = ready().await;
    server.edit("rocketmqclusters", "demo", |c| c["metadata"]["uid"] = json!("another"));
    let error = look(&server, &brokers).await.expect_err("a wait");
    assert_eq!(error.class(), "not_yet");
    assert_eq!(server.take_writes(), Vec::<String>::new());
}

#[tokio::test]
async fn what_is_no_longer_wanted_is_removed_if_it_is_ours() {
    let (server, brokers) = ready().await;
    server.edit("services", "demo-namesrv", |_| {});
    let mut stray = server.value("services", "demo-namesrv").expect("the service");
    stray["metadata"]["name"] = json!("demo-old");
    stray["metadata"]["uid"] = json!("stray");
    server.put(stray.clone());
    stray["metadata"]["name"] = json!("theirs");
    stray["metadata"]["ownerReferences"] = json!([]);
    server.put(stray);
    look(&server, &brokers).await.expect("a pass");
    assert_eq!(server.take_writes(), ["DELETE services/demo-old"]);
    assert!(server.get::<Service>("theirs").is_some());
}

#[tokio::test]
async fn volumes_grow_without_touching_pods() {
    let (server, brokers) = ready().await;
    server.edit("rocketmqclusters", "demo", |cluster| {
        cluster["spec"]["brokers"]["storage"]["size"] = json!("2Gi");
    });
    for _ in 0..6 {
        // A replaced StatefulSet ends the pass; the next one goes on.
        match look(&server, &brokers).await {
            Ok(_) => {}
            Err(error) => assert_eq!(error.class(), "not_yet", "{error}"),
        }
        server.run_workloads();
    }
    let writes = server.take_writes();
    for number in 0..2 {
        let claim = server
            .value("persistentvolumeclaims", &format!("data-demo-broker-{number}-0"))
            .expect("a claim");
        assert_eq!(claim["spec"]["resources"]["requests"]["storage"], "2Gi");
        assert!(writes.contains(&format!("DELETE statefulsets/demo-broker-{number}")));
    }
    assert!(!writes.iter().any(|write| write.starts_with("DELETE pods")), "{writes:?}");
    assert!(is_true(&conditions(&server), "Ready"), "{:?}", conditions(&server));
}

#[tokio::test]
async fn auto_creation_is_warned_of() {
    let (server, brokers) = ready().await;
    server.edit("rocketmqclusters", "demo", |cluster| {
        cluster["spec"]["brokers"]["config"] = json!({"autoCreateTopicEnable": "true"});
    });
    settle(&server, &brokers, 2).await;
    let found = conditions(&server);
    assert_eq!(find(&found, "Warning").expect("Warning").reason, "AutoCreateEnabled");
    assert!(is_true(&found, "Ready"));
}

#[tokio::test]
async fn an_api_server_that_fails_is_an_error_and_nothing_is_lost() {
    let (server, brokers) = (ApiServer::default(), Brokers::default());
    server.put(cluster_manifest());
    server.refuse_writes_to(Some("statefulsets"));
    let error = look(&server, &brokers).await.expect_err("an error");
    assert_eq!(error.class(), "kubernetes");
    server.refuse_writes_to(None);
    settle(&server, &brokers, 2).await;
    assert!(is_true(&conditions(&server), "Ready"));
}

/// What the kubelet says of a container that ended with an error.
fn crashed(words: &str) -> serde_json::Value {
    json!({
        "conditions": [{"type": "Ready", "status": "False"}],
        "containerStatuses": [{
            "name": "broker", "image": "b", "imageID": "", "ready": false, "restartCount": 2,
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 20s"}},
            "lastState": {"terminated": {"exitCode": 1, "reason": "Error", "message": words}},
        }],
    })
}

#[tokio::test]
async fn a_crashing_pod_is_told_with_its_last_words_once() {
    let (server, brokers) = ready().await;
    server.edit("pods", "demo-broker-0-0", |pod| {
        pod["status"] = crashed("start\nno space left on device\n");
    });
    brokers.register(1);
    for _ in 0..3 {
        look(&server, &brokers).await.expect("a pass");
    }
    let found = conditions(&server);
    let wanted = "demo-broker-0-0 crashes: broker ended with exit code 1: no space left on device";
    let degraded = find(&found, "Degraded").expect("Degraded");
    assert_eq!((degraded.status.as_str(), degraded.reason.as_str()), ("True", "PodCrashing"));
    assert_eq!(degraded.message, wanted);
    assert_eq!(
        find(&found, "Ready").expect("Ready").message,
        format!("not ready: demo-broker-0; {wanted}")
    );
    assert_eq!(server.take_events(), ["PodFailing"]);
    assert_eq!(server.take_writes(), ["PATCH rocketmqclusters/demo/status"]);

    server.edit("pods", "demo-broker-0-0", |pod| {
        pod["status"] = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    });
    brokers.register(2);
    look(&server, &brokers).await.expect("a pass");
    assert!(is_true(&conditions(&server), "Ready"));
    assert!(!is_true(&conditions(&server), "Degraded"));
}

#[tokio::test]
async fn a_setting_that_no_broker_knows_touches_no_pod() {
    let (server, brokers) = ready().await;
    // Past the rules of the schema, as with definitions that are older than the operator.
    let config = json!({"flushDiskTyp": "SYNC_FLUSH", "fileReservedTime": "soon"});
    server.edit("rocketmqclusters", "demo", |cluster| {
        cluster["spec"]["brokers"]["config"] = config;
        cluster["spec"]["brokers"]["groups"] = json!(3);
    });
    for _ in 0..4 {
        look(&server, &brokers).await.expect("a pass");
        server.run_workloads();
    }
    assert_eq!(server.take_writes(), ["PATCH rocketmqclusters/demo/status"]);
    assert_eq!(server.take_events(), ["ConfigRefused"]);
    let found = conditions(&server);
    let ready = find(&found, "Ready").expect("Ready");
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "InvalidSpec"));
    for wanted in [
        "brokers.config.fileReservedTime: \"soon\" is not allowed, only 0 to 876000",
        "brokers.config.flushDiskTyp: broker.conf has no such key: write flushDiskType",
        "no pod is changed before this is corrected",
    ] {
        assert!(ready.message.contains(wanted), "{}", ready.message);
    }

    server.edit("rocketmqclusters", "demo", |c| c["spec"]["brokers"]["config"] = json!({}));
    settle(&server, &brokers, 3).await;
    assert!(is_true(&conditions(&server), "Ready"), "{:?}", conditions(&server));
    assert!(!server.take_writes().iter().any(|write| write.starts_with("DELETE")));
}

#[tokio::test]
async fn a_refused_name_server_setting_leaves_brokers_to_their_own_changes() {
    let (server, brokers) = ready().await;
    server.edit("rocketmqclusters", "demo", |cluster| {
        cluster["spec"]["nameServers"]["config"] = json!({"listenBacklog": "1"});
        cluster["spec"]["brokers"]["groups"] = json!(3);
    });
    settle(&server, &brokers, 3).await;
    assert!(server.names("statefulsets").contains(&"demo-broker-2".to_owned()));
    assert!(!server.take_writes().iter().any(|write| write.contains("demo-namesrv")));
    let ready = find(&conditions(&server), "Ready").expect("Ready").clone();
    assert!(ready.message.contains("namesrv.conf has no such key"), "{}", ready.message);
}

#[tokio::test]
async fn a_pod_that_is_still_to_be_replaced_counts_as_serving() {
    let (server, brokers) = ready().await;
    server.edit("rocketmqclusters", "demo", |cluster| {
        cluster["spec"]["brokers"]["config"] = json!({"fileReservedTime": "48"});
    });
    look(&server, &brokers).await.expect("a pass");
    server.run_workloads();
    look(&server, &brokers).await.expect("a pass");
    look(&server, &brokers).await.expect("a pass");
    let status = server.get::<RocketMQCluster>("demo").and_then(|c| c.status).expect("a status");
    // Group 0 is away to be replaced, group 1 waits for its turn.
    assert_eq!(
        (status.ready.as_str(), status.groups_ready, status.masters_writable),
        ("1/2", 1, 1)
    );
}

#[tokio::test]
async fn every_condition_says_something() {
    let (server, _) = ready().await;
    for condition in conditions(&server) {
        assert!(!condition.message.is_empty(), "{} has no message", condition.type_);
    }
}
