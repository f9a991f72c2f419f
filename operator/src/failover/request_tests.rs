//! What people ask for, what cannot be of it, and what stands in the way of a record.

use super::tests::*;
use super::*;
use crate::cluster;
use crate::conditions::{find, is_true};
use crate::testing::{context_with, labelled_master};
use rocketmq_replication::Epoch;

#[tokio::test(start_paused = true)]
async fn a_switchover_is_asked_for_made_and_answered() {
    for (asked, wanted) in [(GROUP, 2), ("demo-broker-0-2", 3)] {
        let play = Play::ready(2).await;
        play.ask(crate::crd::SWITCHOVER_ANNOTATION, json!(asked));
        play.look().await;
        let record = play.replicas.record();
        assert_eq!((record.handover, record.epoch), (Some(ReplicaId(wanted)), Epoch(1)));
        play.look_at_cluster().await;
        assert_eq!(play.status().groups[0].state, "SwitchingOver");
        assert_eq!(play.status().groups[0].target_master, Some(play.replicas.pod(wanted)));
        for _ in 0..2 {
            play.replicas.act();
            play.look().await;
        }
        assert_eq!(play.replicas.record().master, Some(ReplicaId(wanted)));
        assert_eq!(labelled_master(&play.server, GROUP), [play.replicas.pod(wanted)]);
        assert_eq!(play.server.take_events(), ["SwitchoverStarted", "SwitchoverCompleted"]);
        assert_eq!(play.annotation(crate::crd::SWITCHOVER_ANNOTATION), None);
        play.settle().await;
        assert_eq!(play.replicas.record().master, Some(ReplicaId(wanted)), "once");
    }
}

#[tokio::test(start_paused = true)]
async fn a_switchover_that_the_master_declines_is_not_repeated() {
    let play = Play::ready(1).await;
    play.ask(crate::crd::SWITCHOVER_ANNOTATION, json!(GROUP));
    play.look().await;
    play.replicas.change(|record| record.handover = None);
    for _ in 0..3 {
        play.look().await;
    }
    assert_eq!(play.replicas.record().handover, None);
    assert_eq!(play.server.take_events(), ["SwitchoverStarted", "SwitchoverAborted"]);
    assert_eq!(play.annotation(crate::crd::SWITCHOVER_ANNOTATION), None);
}

#[tokio::test(start_paused = true)]
async fn a_switchover_that_the_master_does_not_answer_is_taken_back() {
    let play = Play::ready(1).await;
    play.ask(crate::crd::SWITCHOVER_ANNOTATION, json!(GROUP));
    for _ in 0..7 {
        play.look().await;
        later(5_000).await;
        play.replicas.renew();
    }
    play.look().await;
    assert_eq!(play.replicas.record().handover, None);
    play.look().await;
    assert_eq!(play.server.take_events(), ["SwitchoverStarted", "SwitchoverAborted"]);
}

#[tokio::test(start_paused = true)]
async fn a_switchover_to_one_that_lacks_messages_is_refused() {
    let play = Play::ready(2).await;
    play.replicas.change(|record| record.in_sync = ids(&[1, 2]));
    play.ask(crate::crd::SWITCHOVER_ANNOTATION, json!("demo-broker-0-2"));
    play.look().await;
    assert_eq!(play.replicas.record().handover, None);
    assert_eq!(play.server.take_events(), ["SwitchoverAborted"]);
    assert_eq!(play.annotation(crate::crd::SWITCHOVER_ANNOTATION), None);
}

#[tokio::test(start_paused = true)]
async fn a_fence_holds_while_it_is_there_and_is_no_failover() {
    let play = Play::ready(1).await;
    play.ask(crate::crd::FENCE_ANNOTATION, json!("demo-broker-0-0"));
    play.look().await;
    assert_eq!(play.replicas.record().fenced, ids(&[1]));
    assert_eq!(play.server.take_events(), ["MasterFenced"]);
    play.look_at_cluster().await;
    let status = play.status();
    assert!(is_true(&status.conditions, "Fenced"));
    assert_eq!((status.groups[0].state.as_str(), status.groups[0].writable), ("Fenced", false));
    // It gives its lease back, and nobody takes its place.
    play.replicas.change(|record| {
        record.holder = None;
        record.reign = record.epoch;
    });
    for _ in 0..5 {
        later(20_000).await;
        play.look().await;
    }
    assert_eq!(play.replicas.record().epoch, Epoch(1));

    play.ask(crate::crd::FENCE_ANNOTATION, serde_json::Value::Null);
    play.settle().await;
    assert!(play.replicas.record().fenced.is_empty());
    assert!(play.replicas.record().holder.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_somebody_else_is_named_and_not_hammered() {
    let play = Play::new(1);
    play.server.put(json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": GROUP, "namespace": "ns"},
        "spec": {"holderIdentity": "somebody"},
    }));
    for _ in 0..6 {
        play.look_at_cluster().await;
        play.server.run_workloads();
    }
    assert!(play.server.get::<StatefulSet>(GROUP).is_none(), "its brokers could not start");
    let conditions = play.status().conditions;
    for kind in ["ReplicationHealthy", "Ready"] {
        let found = find(&conditions, kind).expect("a condition");
        assert_eq!(found.status, "False", "{found:?}");
    }
    let replication = find(&conditions, "ReplicationHealthy").expect("a condition");
    assert_eq!(replication.reason, "ForeignLease");
    let message = &replication.message;
    assert!(message.contains("Lease demo-broker-0 is not the group's record"), "{message}");
    let (ctx, _poked) = context_with(&play.server, &play.brokers, Arc::clone(&play.groups));
    let cluster = play.server.get::<RocketMQCluster>("demo").expect("the cluster");
    let next = cluster::reconcile(Arc::new(cluster), ctx).await.expect("a pass");
    assert!(wait_of(&next) > Duration::from_secs(10), "{next:?}");

    play.server.delete("leases", GROUP);
    play.settle().await;
    assert!(is_true(&play.status().conditions, "Ready"), "{:?}", play.status().conditions);
}

/// How long until the next look, unless an event comes. Only its text tells.
fn wait_of(action: &Action) -> Duration {
    let text = format!("{action:?}");
    let wait = text.split("Some(").nth(1).and_then(|rest| rest.split(')').next()).expect("a wait");
    let (number, unit) = match wait.strip_suffix("ms") {
        Some(ms) => (ms, 1e-3),
        None => (wait.strip_suffix('s').expect("seconds"), 1.0),
    };
    Duration::from_secs_f64(number.parse::<f64>().expect("a number") * unit)
}

#[tokio::test(start_paused = true)]
async fn a_record_that_lost_its_labels_is_told_and_tried_again_slowly() {
    let play = Play::ready(1).await;
    play.server.edit("leases", GROUP, |lease| {
        lease["metadata"]["labels"]
            .as_object_mut()
            .expect("labels")
            .remove(names::MANAGED_BY_LABEL);
    });
    let mut longest = Duration::ZERO;
    for _ in 0..12 {
        later(3_000).await;
        longest = longest.max(wait_of(&play.look().await));
    }
    assert_eq!(longest, Duration::from_secs(15));
    let writes = play.server.take_writes();
    assert!(writes.iter().all(|write| write == "POST leases/demo-broker-0"), "{writes:?}");
    assert_eq!(play.server.take_events(), ["FailoverBlocked"]);
    play.look_at_cluster().await;
    let conditions = play.status().conditions;
    let replication = find(&conditions, "ReplicationHealthy").expect("a condition");
    assert_eq!(replication.reason, "ForeignLease");
    assert_eq!(play.replicas.record().epoch, Epoch(1), "nobody was appointed");
}

#[tokio::test(start_paused = true)]
async fn a_master_that_takes_over_again_is_not_told_to_replace_itself() {
    let play = Play::ready(1).await;
    play.replicas.change(|record| record.in_sync = ids(&[1]));
    play.look().await;
    play.replicas.crash(1);
    play.look().await;
    later(2_000).await;
    // It is back, the only one that has everything.
    play.replicas.says(1, 1, 100);
    play.look().await;
    assert_eq!(play.replicas.record().master, Some(ReplicaId(1)));
    play.replicas.take_over();
    play.server.take_notes();
    play.look().await;
    let notes = play.server.take_notes();
    let wanted = "demo-broker-0: demo-broker-0-0 is master again, epoch 2,";
    assert!(notes.iter().any(|note| note.starts_with(wanted)), "{notes:?}");
    assert!(!notes.iter().any(|note| note.contains("instead of")), "{notes:?}");
}

#[tokio::test(start_paused = true)]
async fn switchovers_that_cannot_be_are_answered() {
    for (slaves, entry, why) in [
        (1, "demo-broker-0-0", "demo-broker-0: demo-broker-0-0 is the master already"),
        (1, "demo-broker-0-7", "demo-broker-0 has no such pod, it has 2"),
        (1, "demo-broker-9", "the cluster has nothing of that name"),
        (1, "other", "the cluster has nothing of that name"),
        (0, "demo-broker-0", "demo-broker-0 has no slaves"),
    ] {
        let play = Play::ready(slaves).await;
        play.ask(crate::crd::SWITCHOVER_ANNOTATION, json!(entry));
        play.look_at_cluster().await;
        play.look().await;
        let notes = play.server.take_notes();
        let [note] = notes.as_slice() else { panic!("{entry}: {notes:?}") };
        assert!(note.contains(why), "{entry}: {note}");
        assert_eq!(play.annotation(crate::crd::SWITCHOVER_ANNOTATION), None, "{entry}");
        play.server.take_writes();
        play.look_at_cluster().await;
        play.look().await;
        assert_eq!(play.server.take_events(), Vec::<String>::new(), "{entry}: once");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_of_nobody_leaves_what_is_asked_of_others() {
    let play = Play::ready(1).await;
    play.ask(crate::crd::SWITCHOVER_ANNOTATION, json!("nobody,demo-broker-0"));
    play.ask(crate::crd::ALLOW_UNCLEAN_ANNOTATION, json!("demo-broker-0-1"));
    for _ in 0..2 {
        play.look_at_cluster().await;
    }
    assert_eq!(
        play.annotation(crate::crd::SWITCHOVER_ANNOTATION).as_deref(),
        Some("demo-broker-0")
    );
    assert_eq!(play.annotation(crate::crd::ALLOW_UNCLEAN_ANNOTATION), None);
    assert_eq!(play.server.take_events(), ["RequestRefused", "RequestRefused"]);
    play.spec(|spec| spec["paused"] = json!(true));
    play.ask(crate::crd::SWITCHOVER_ANNOTATION, json!("nobody"));
    play.look_at_cluster().await;
    assert_eq!(play.annotation(crate::crd::SWITCHOVER_ANNOTATION).as_deref(), Some("nobody"));
}

#[tokio::test(start_paused = true)]
async fn a_switchover_of_a_group_that_can_have_no_master_is_answered() {
    let play = Play::ready(1).await;
    play.replicas.change(|record| {
        record.in_sync = ids(&[1, 2]);
        record.reign = Epoch(1);
        record.holder = None;
    });
    play.spec(|spec| spec["failover"] = json!({"enabled": false}));
    play.replicas.falls_silent(1);
    for _ in 0..3 {
        play.look().await;
        later(2_000).await;
    }
    assert_eq!(play.server.take_events(), ["FailoverBlocked"]);
    play.ask(crate::crd::SWITCHOVER_ANNOTATION, json!("demo-broker-0-1"));
    play.look().await;
    let notes = play.server.take_notes();
    assert!(notes[0].contains("no master can hand over: "), "{notes:?}");
    assert_eq!(play.annotation(crate::crd::SWITCHOVER_ANNOTATION), None);
}

#[tokio::test(start_paused = true)]
async fn a_fence_of_nobody_shows_in_its_condition() {
    let play = Play::ready(1).await;
    play.ask(crate::crd::FENCE_ANNOTATION, json!("demo-broker-0,demo-broker-0-5"));
    for _ in 0..2 {
        play.look().await;
        play.look_at_cluster().await;
    }
    let conditions = play.status().conditions;
    let fenced = find(&conditions, "Fenced").expect("a condition");
    assert_eq!((fenced.status.as_str(), fenced.reason.as_str()), ("False", "FenceRefused"));
    for part in ["demo-broker-0 (that is a group, name its pods)", "no such pod, it has 2"] {
        assert!(fenced.message.contains(part), "{}", fenced.message);
    }
    assert_eq!(play.server.take_events(), ["RequestRefused"]);
    assert!(play.annotation(crate::crd::FENCE_ANNOTATION).is_some(), "it is people's to take back");
    play.ask(crate::crd::FENCE_ANNOTATION, json!("*"));
    for _ in 0..2 {
        play.look().await;
        play.look_at_cluster().await;
    }
    let conditions = play.status().conditions;
    assert_eq!(
        find(&conditions, "Fenced").expect("a condition").message,
        "neither serve nor become master: demo-broker-0-0, demo-broker-0-1"
    );
}

/// A switchover is the way to another master while one is fenced, also after that one gave its lease back.
#[tokio::test(start_paused = true)]
async fn a_switchover_lets_another_be_appointed_in_place_of_a_fenced_master() {
    let play = Play::ready(1).await;
    play.spec(|spec| spec["failover"] = json!({"enabled": false}));
    play.ask(crate::crd::FENCE_ANNOTATION, json!("demo-broker-0-0"));
    play.look().await;
    play.replicas.change(|record| {
        record.holder = None;
        record.reign = record.epoch;
    });
    for _ in 0..3 {
        later(5_000).await;
        play.look().await;
    }
    assert_eq!(play.replicas.record().epoch, Epoch(1));
    play.ask(crate::crd::SWITCHOVER_ANNOTATION, json!(GROUP));
    for _ in 0..4 {
        play.look().await;
        later(1_000).await;
    }
    let record = play.replicas.record();
    assert_eq!((record.epoch, record.master), (Epoch(2), Some(ReplicaId(2))));
    play.replicas.take_over();
    play.look().await;
    assert_eq!(play.annotation(crate::crd::SWITCHOVER_ANNOTATION), None);
    assert_eq!(labelled_master(&play.server, GROUP), ["demo-broker-0-1"]);
}

#[tokio::test(start_paused = true)]
async fn a_buffer_in_front_of_slaves_touches_no_pod() {
    let play = Play::ready(1).await;
    play.spec(|spec| {
        spec["brokers"]["config"] = json!({"transientStorePoolEnable": "true"});
    });
    for _ in 0..3 {
        play.step().await;
    }
    assert!(!play.server.take_writes().iter().any(|write| write.starts_with("DELETE")));
    let conditions = play.status().conditions;
    let ready = find(&conditions, "Ready").expect("Ready");
    assert_eq!(ready.reason, "InvalidSpec");
    assert!(ready.message.contains("what waits in a buffer is on no slave"), "{}", ready.message);
}

#[tokio::test(start_paused = true)]
async fn more_slaves_and_other_copies_restart_nobody() {
    let play = Play::ready(1).await;
    play.spec(|spec| {
        spec["brokers"]["replicasPerGroup"] = json!(2);
        spec["brokers"]["replication"] = json!({"inSyncReplicas": 2});
    });
    let mut writes = Vec::new();
    for _ in 0..12 {
        play.step().await;
        writes.extend(play.server.take_writes());
    }
    assert_eq!(play.replicas.record().in_sync, ids(&[1, 2, 3]));
    assert!(is_true(&play.status().conditions, "Ready"), "{:?}", play.status().conditions);
    assert!(!writes.iter().any(|write| write.starts_with("DELETE")), "{writes:?}");
}
