use super::*;
use crate::cluster;
use crate::conditions::{find, is_true};
use crate::failover::memory::Groups;
use crate::testing::{
    ApiServer, Brokers, Replicas, cluster_manifest, context_with, labelled_master,
};
use futures::{FutureExt as _, StreamExt as _};
use proptest::prelude::*;
use rocketmq_replication::Epoch;
use std::collections::BTreeSet;

pub(super) const GROUP: &str = "demo-broker-0";

/// The operator as one process, with the world around it.
#[derive(Clone)]
pub(super) struct Play {
    pub(super) server: ApiServer,
    pub(super) brokers: Brokers,
    pub(super) groups: Arc<Groups>,
    pub(super) replicas: Replicas,
}

impl Play {
    /// A cluster of one group with so many slaves, that nobody has looked at.
    pub(super) fn new(slaves: i32) -> Self {
        let (server, brokers) = (ApiServer::default(), Brokers::default());
        let mut manifest = cluster_manifest();
        manifest["spec"]["brokers"]["groups"] = json!(1);
        manifest["spec"]["brokers"]["replicasPerGroup"] = json!(slaves);
        server.put(manifest);
        let replicas = Replicas::of(&server, &brokers, 0);
        brokers.register(1);
        Self { server, brokers, groups: Arc::default(), replicas }
    }

    /// One that is Ready, and everything forgotten that was written on the way.
    pub(super) async fn ready(slaves: i32) -> Self {
        let play = Self::new(slaves);
        play.settle().await;
        assert!(is_true(&play.status().conditions, "Ready"), "{:?}", play.status().conditions);
        play.server.take_writes();
        play.server.take_events();
        play
    }

    /// One pass over the group, with what the caches hold now. Returns the topics that it pokes.
    pub(super) async fn look(&self) -> Action {
        self.look_as(&self.groups).await
    }

    /// The same by the process that remembers `groups`.
    pub(super) async fn look_as(&self, groups: &Arc<Groups>) -> Action {
        let (ctx, _poked) = context_with(&self.server, &self.brokers, Arc::clone(groups));
        let set = self.server.get::<StatefulSet>(GROUP).expect("the group");
        reconcile(Arc::new(set), ctx).await.expect("a pass")
    }

    /// One pass over the cluster.
    pub(super) async fn look_at_cluster(&self) {
        let (ctx, _poked) = context_with(&self.server, &self.brokers, Arc::clone(&self.groups));
        let cluster = self.server.get::<RocketMQCluster>("demo").expect("the cluster");
        match cluster::reconcile(Arc::new(cluster), ctx).await {
            Ok(_) => {}
            Err(error) => assert!(["not_yet", "conflict"].contains(&error.class()), "{error}"),
        }
    }

    /// Everybody does what they do, until nothing more is to be done.
    pub(super) async fn settle(&self) {
        let mut quiet = 0;
        for _ in 0..40 {
            self.server.take_writes();
            self.step().await;
            quiet = if self.server.take_writes().is_empty() { quiet + 1 } else { 0 };
            if quiet > 2 {
                return;
            }
        }
    }

    pub(super) async fn step(&self) {
        self.look_at_cluster().await;
        self.server.run_workloads();
        if self.server.get::<StatefulSet>(GROUP).is_some() {
            self.look().await;
            self.replicas.act();
            self.look().await;
        }
    }

    pub(super) fn status(&self) -> crate::crd::cluster::RocketMQClusterStatus {
        let cluster = self.server.get::<RocketMQCluster>("demo").expect("the cluster");
        cluster.status.expect("a status")
    }

    pub(super) fn ask(&self, annotation: &str, value: serde_json::Value) {
        self.server.edit("rocketmqclusters", "demo", |cluster| {
            if value.is_null() {
                let annotations = cluster["metadata"]["annotations"].as_object_mut();
                annotations.expect("annotations").remove(annotation);
            } else {
                cluster["metadata"]["annotations"][annotation] = value;
            }
        });
    }

    pub(super) fn annotation(&self, annotation: &str) -> Option<String> {
        let cluster = self.server.get::<RocketMQCluster>("demo").expect("the cluster");
        cluster.annotations().get(annotation).cloned()
    }

    pub(super) fn spec(&self, change: impl FnOnce(&mut serde_json::Value)) {
        self.server.edit("rocketmqclusters", "demo", |cluster| change(&mut cluster["spec"]));
    }
}

pub(super) async fn later(ms: u64) {
    tokio::time::advance(Duration::from_millis(ms)).await;
}

pub(super) fn ids(ids: &[i64]) -> BTreeSet<ReplicaId> {
    ids.iter().copied().map(ReplicaId).collect()
}

#[tokio::test(start_paused = true)]
async fn a_new_group_has_its_record_before_its_brokers_and_then_a_master() {
    let play = Play::new(1);
    for _ in 0..4 {
        play.look_at_cluster().await;
        if play.server.get::<StatefulSet>(GROUP).is_some() {
            break;
        }
        play.server.run_workloads();
    }
    let writes = play.server.take_writes();
    let at = |what: &str| {
        writes.iter().position(|w| w == what).unwrap_or_else(|| panic!("{what}: {writes:?}"))
    };
    assert!(at("POST leases/demo-broker-0") < at("PATCH statefulsets/demo-broker-0"));
    assert!(at("PATCH rolebindings/demo-broker-0") < at("PATCH statefulsets/demo-broker-0"));
    let record = play.replicas.record();
    assert_eq!((record.epoch, record.master), (Epoch(1), Some(ReplicaId(1))));
    assert_eq!((record.holder, record.in_sync), (None, ids(&[1])));

    play.settle().await;
    let status = play.status();
    assert!(is_true(&status.conditions, "Ready"), "{:?}", status.conditions);
    assert!(is_true(&status.conditions, "ReplicationHealthy"));
    assert!(!is_true(&status.conditions, "Warning"), "{:?}", find(&status.conditions, "Warning"));
    let group = &status.groups[0];
    assert_eq!((group.state.as_str(), group.master.as_deref()), ("Ready", Some("demo-broker-0-0")));
    assert_eq!((group.master_epoch, group.writable), (Some(1), true));
    let shown: Vec<_> =
        group.replicas.iter().map(|r| (r.pod.as_str(), r.role.as_str(), r.in_sync)).collect();
    assert_eq!(shown, [("demo-broker-0-0", "Master", true), ("demo-broker-0-1", "Slave", true)]);
    assert_eq!(group.replicas[0].epoch, Some(1));
    assert_eq!(group.replicas[0].version.as_deref(), Some("0.1.0"));
    assert_eq!(labelled_master(&play.server, GROUP), ["demo-broker-0-0"]);
    assert!(!play.server.take_events().iter().any(|event| event.contains("over")));
}

#[tokio::test(start_paused = true)]
async fn a_steady_state_writes_nothing_and_renewals_change_that_not() {
    let play = Play::ready(2).await;
    for _ in 0..3 {
        later(2_000).await;
        play.replicas.renew();
        play.look().await;
        play.look_at_cluster().await;
    }
    assert_eq!(play.server.take_writes(), Vec::<String>::new());
    assert_eq!(play.server.take_events(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_killed_master_is_replaced_at_once_by_a_slave_in_sync() {
    let play = Play::ready(1).await;
    play.server.put(topic());
    play.replicas.crash(1);
    play.look().await;
    assert_eq!(play.replicas.record().epoch, Epoch(1), "the dead one may come back and have more");
    later(2_000).await;
    play.look().await;
    let record = play.replicas.record();
    assert_eq!((record.epoch, record.master), (Epoch(2), Some(ReplicaId(2))));
    assert_eq!((record.holder.clone(), record.in_sync.clone()), (None, ids(&[1, 2])));
    assert_eq!(play.server.take_events(), ["FailoverStarted"]);
    assert_eq!(labelled_master(&play.server, GROUP), ["demo-broker-0-0"], "nobody else serves yet");

    later(300).await;
    play.replicas.take_over();
    let (ctx, mut poked) = context_with(&play.server, &play.brokers, Arc::clone(&play.groups));
    let set = play.server.get::<StatefulSet>(GROUP).expect("the group");
    play.server.take_writes();
    reconcile(Arc::new(set), ctx).await.expect("a pass");
    assert_eq!(
        play.server.take_writes(),
        ["PATCH pods/demo-broker-0-0", "PATCH pods/demo-broker-0-1"],
        "the label leaves the old one first"
    );
    assert_eq!(labelled_master(&play.server, GROUP), ["demo-broker-0-1"]);
    assert_eq!(play.server.take_events(), ["FailoverCompleted"]);
    let topics = poked.topics.next().now_or_never().flatten().expect("topics are looked at again");
    assert_eq!(topics.name, "orders");

    play.look_at_cluster().await;
    let status = play.status();
    let last = status.last_failover.expect("a failover");
    assert_eq!(
        (last.from.as_deref(), last.to.as_str()),
        (Some("demo-broker-0-0"), "demo-broker-0-1")
    );
    assert_eq!((last.epoch, last.reason.as_str(), last.duration_ms), (2, "MasterEnded", 2_300));
    assert_eq!(status.groups[0].state, "Degraded");
    assert!(status.groups[0].writable);
    let replication = find(&status.conditions, "ReplicationHealthy").expect("a condition");
    assert_eq!(replication.reason, "ReplicasNotInSync");
    assert!(replication.message.contains("without demo-broker-0-0"), "{}", replication.message);
}

fn topic() -> serde_json::Value {
    json!({
        "apiVersion": "rocketmq.rs/v1alpha1", "kind": "Topic",
        "metadata": {"name": "orders", "namespace": "ns"},
        "spec": {"clusterRef": {"name": "demo"}, "queuesPerGroup": 4},
    })
}

#[tokio::test(start_paused = true)]
async fn a_silent_master_keeps_its_lease_for_the_whole_duration() {
    let play = Play::ready(1).await;
    later(7_000).await;
    play.replicas.renew();
    play.look().await;
    // Cut off: its pod looks as ever, it does not renew.
    play.replicas.falls_silent(1);
    later(14_900).await;
    play.look().await;
    assert_eq!(play.replicas.record().epoch, Epoch(1));
    later(200).await;
    play.look().await;
    later(2_000).await;
    play.look().await;
    let record = play.replicas.record();
    assert_eq!((record.epoch, record.master), (Epoch(2), Some(ReplicaId(2))));
    assert!(!record.vacated, "it may be alive");
}

/// Its pod was removed by force, so nobody saw the container stop; another one has taken up its volume.
#[tokio::test(start_paused = true)]
async fn a_younger_process_on_the_masters_volume_proves_its_end() {
    let play = Play::ready(1).await;
    play.server.delete("pods", "demo-broker-0-0");
    play.replicas.falls_silent(1);
    play.look().await;
    assert_eq!(play.replicas.record().epoch, Epoch(1));
    play.server.run_workloads();
    play.look().await;
    assert_eq!(play.replicas.record().epoch, Epoch(1), "it runs perhaps, and says nothing yet");
    play.replicas.says(1, 1, 100);
    play.look().await;
    let record = play.replicas.record();
    assert_eq!((record.epoch, record.master), (Epoch(2), Some(ReplicaId(2))));
    assert!(record.vacated);
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_starts_counts_a_lease_from_its_own_first_look() {
    let play = Play::ready(1).await;
    play.replicas.falls_silent(1);
    later(60_000).await;
    let fresh = Arc::<Groups>::default();
    play.look_as(&fresh).await;
    later(14_900).await;
    play.look_as(&fresh).await;
    assert_eq!(play.replicas.record().epoch, Epoch(1));
    later(200).await;
    play.look_as(&fresh).await;
    later(2_000).await;
    play.look_as(&fresh).await;
    assert_eq!(play.replicas.record().epoch, Epoch(2));
}

#[tokio::test(start_paused = true)]
async fn of_two_operators_one_appoints() {
    let play = Play::ready(2).await;
    play.replicas.crash(1);
    let other = Arc::<Groups>::default();
    for groups in [&play.groups, &other] {
        play.look_as(groups).await;
    }
    later(2_000).await;
    // The other one's cache is of before.
    let (ctx, _poked) = context_with(&play.server, &play.brokers, Arc::clone(&other));
    let set = Arc::new(play.server.get::<StatefulSet>(GROUP).expect("the group"));
    play.look().await;
    let appointed = play.replicas.record();
    assert_eq!(appointed.epoch, Epoch(2));
    reconcile(set, ctx).await.expect("a conflict is no error");
    assert_eq!(play.replicas.record(), appointed);
    assert_eq!(play.server.take_events(), ["FailoverStarted"]);
}

#[tokio::test(start_paused = true)]
async fn a_slave_that_is_not_in_sync_is_not_promoted_unless_that_is_wanted() {
    let play = Play::ready(1).await;
    play.replicas.change(|record| record.in_sync = ids(&[1]));
    play.look().await;
    play.replicas.crash(1);
    play.look().await;
    later(2_000).await;
    for _ in 0..3 {
        play.look().await;
        later(1_000).await;
    }
    assert_eq!(play.replicas.record().epoch, Epoch(1));
    assert_eq!(play.server.take_events(), ["FailoverBlocked"]);
    play.look_at_cluster().await;
    let status = play.status();
    let replication = find(&status.conditions, "ReplicationHealthy").expect("a condition");
    assert_eq!(replication.reason, "FailoverBlocked");
    assert_eq!(find(&status.conditions, "Ready").expect("Ready").status, "False");
    play.server.take_events();

    play.ask(crate::crd::ALLOW_UNCLEAN_ANNOTATION, json!(GROUP));
    for _ in 0..3 {
        play.look().await;
        later(1_000).await;
    }
    let record = play.replicas.record();
    assert_eq!((record.master, record.in_sync), (Some(ReplicaId(2)), ids(&[2])));
    assert_eq!(play.server.take_events(), ["FailoverStarted", "UncleanElection"]);
    assert_eq!(play.annotation(crate::crd::ALLOW_UNCLEAN_ANNOTATION), None, "once");
}

#[tokio::test(start_paused = true)]
async fn without_proof_of_the_masters_end_nothing_is_lost_even_if_that_is_wanted() {
    let play = Play::ready(1).await;
    play.spec(|spec| spec["failover"] = json!({"allowUnclean": true}));
    play.replicas.change(|record| record.in_sync = ids(&[1]));
    play.look().await;
    // Its pod is gone with its node.
    play.replicas.falls_silent(1);
    play.server.delete("pods", "demo-broker-0-0");
    for _ in 0..10 {
        later(5_000).await;
        play.look().await;
    }
    assert_eq!(play.replicas.record().epoch, Epoch(1));
    assert!(play.server.take_events().contains(&"FailoverBlocked".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_lost_record_is_made_anew_above_every_epoch_with_the_best_log() {
    let play = Play::ready(1).await;
    play.replicas.change(|record| record.epoch = Epoch(7));
    play.look().await;
    play.look_at_cluster().await;
    assert_eq!(play.status().groups[0].master_epoch, Some(7));
    play.server.delete("leases", GROUP);
    play.replicas.says(1, 7, 500);
    play.replicas.falls_silent(2);
    for _ in 0..10 {
        later(3_000).await;
        play.look().await;
        play.look_at_cluster().await;
    }
    assert_eq!(play.server.names("leases"), Vec::<String>::new(), "the silent one may have more");
    assert!(play.server.take_events().contains(&"FailoverBlocked".to_owned()));

    play.replicas.says(2, 7, 600);
    for _ in 0..10 {
        play.look().await;
        if !play.server.names("leases").is_empty() {
            break;
        }
        later(3_000).await;
    }
    let record = play.replicas.record();
    assert_eq!((record.epoch, record.master), (Epoch(8), Some(ReplicaId(2))));
    assert_eq!(record.in_sync, ids(&[2]));
}

#[tokio::test(start_paused = true)]
async fn a_damaged_record_is_left_alone_and_told() {
    let play = Play::ready(1).await;
    play.server.edit("leases", GROUP, |lease| {
        lease["metadata"]["annotations"]["rocketmq.rs/epoch"] = json!("many");
    });
    play.replicas.crash(1);
    for _ in 0..3 {
        later(20_000).await;
        play.look().await;
    }
    assert_eq!(play.server.take_writes(), Vec::<String>::new());
    assert_eq!(play.server.take_events(), ["FailoverBlocked"]);
}

#[tokio::test(start_paused = true)]
async fn a_paused_cluster_keeps_its_lost_master() {
    let play = Play::ready(1).await;
    play.spec(|spec| spec["paused"] = json!(true));
    play.replicas.crash(1);
    for _ in 0..5 {
        later(20_000).await;
        play.look().await;
    }
    assert_eq!(play.server.take_writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn failover_can_be_put_off_and_turned_off() {
    let play = Play::ready(1).await;
    play.spec(|spec| spec["failover"] = json!({"delaySeconds": 30}));
    play.replicas.crash(1);
    play.look().await;
    later(29_000).await;
    play.look().await;
    assert_eq!(play.replicas.record().epoch, Epoch(1));
    play.spec(|spec| spec["failover"] = json!({"enabled": false}));
    later(60_000).await;
    play.look().await;
    assert_eq!(play.replicas.record().epoch, Epoch(1));
    assert_eq!(play.server.take_events(), ["FailoverBlocked"]);
    play.spec(|spec| spec["failover"] = json!({"delaySeconds": 30}));
    play.look().await;
    assert_eq!(play.replicas.record().master, Some(ReplicaId(2)));
}

/// Each step of a roll leaves a master that took over and slaves in sync before the next one, and no
/// master's pod is removed.
async fn roll(play: &Play, mut done: impl FnMut() -> bool) -> Vec<String> {
    let mut replaced = Vec::new();
    for _ in 0..60 {
        let record = play.replicas.record();
        play.look_at_cluster().await;
        let gone: Vec<String> = play
            .server
            .take_writes()
            .into_iter()
            .filter_map(|write| Some(write.strip_prefix("DELETE pods/")?.to_owned()))
            .filter(|pod| pod.starts_with(GROUP))
            .collect();
        assert!(gone.len() <= 1, "{gone:?} at once");
        if let [pod] = gone.as_slice() {
            let id = names::replica_of(GROUP, pod).expect("a replica");
            assert!(record.master != Some(id) || record.in_sync.len() == 1, "{pod} of {record:?}");
        }
        replaced.extend(gone);
        play.server.run_workloads();
        play.look().await;
        play.replicas.act();
        play.look().await;
        if done() {
            break;
        }
    }
    replaced
}

#[tokio::test(start_paused = true)]
async fn a_roll_takes_slaves_first_and_the_master_when_it_is_none_any_more() {
    let play = Play::ready(2).await;
    play.spec(|spec| spec["brokers"]["config"] = json!({"fileReservedTime": "48"}));
    let server = play.server.clone();
    let mut quiet = 0;
    let replaced = roll(&play, || {
        let status =
            server.get::<RocketMQCluster>("demo").and_then(|c| c.status).expect("a status");
        quiet = if is_true(&status.conditions, "Ready") { quiet + 1 } else { 0 };
        quiet > 2
    })
    .await;
    assert_eq!(replaced, ["demo-broker-0-1", "demo-broker-0-2", "demo-broker-0-0"]);
    let record = play.replicas.record();
    assert_eq!((record.master, record.in_sync), (Some(ReplicaId(2)), ids(&[1, 2, 3])));
    let events = play.server.take_events();
    assert_eq!(events.iter().filter(|e| *e == "SwitchoverCompleted").count(), 1, "{events:?}");
    assert!(!events.iter().any(|event| event.starts_with("Failover")), "{events:?}");
    assert!(is_true(&play.status().conditions, "Ready"), "{:?}", play.status().conditions);
}

#[tokio::test(start_paused = true)]
async fn a_group_gets_slaves_and_its_messages_stay_where_they_are() {
    let play = Play::ready(0).await;
    assert_eq!(
        find(&play.status().conditions, "Warning").expect("Warning").reason,
        "SingleReplica"
    );
    play.spec(|spec| spec["brokers"]["replicasPerGroup"] = json!(1));
    play.look_at_cluster().await;
    let selector = || {
        let service = play.server.value("services", GROUP).expect("the service");
        service["spec"]["selector"].as_object().expect("a selector").clone()
    };
    assert!(!selector().contains_key(names::ROLE_LABEL), "nobody is labelled yet");
    play.settle().await;
    let record = play.replicas.record();
    assert_eq!((record.master, record.in_sync), (Some(ReplicaId(1)), ids(&[1, 2])));
    assert_eq!(selector()[names::ROLE_LABEL], "master");
    assert_eq!(labelled_master(&play.server, GROUP), ["demo-broker-0-0"]);
    assert!(is_true(&play.status().conditions, "Ready"), "{:?}", play.status().conditions);
}

#[tokio::test(start_paused = true)]
async fn slaves_go_one_at_a_time_and_a_master_among_them_hands_over_first() {
    let play = Play::ready(2).await;
    play.ask(crate::crd::SWITCHOVER_ANNOTATION, json!("demo-broker-0-2"));
    play.settle().await;
    assert_eq!(play.replicas.record().master, Some(ReplicaId(3)));
    play.spec(|spec| spec["brokers"]["replicasPerGroup"] = json!(0));
    let mut sizes = BTreeSet::new();
    for _ in 0..60 {
        let set = play.server.value("statefulsets", GROUP).expect("the group");
        let size = set["spec"]["replicas"].as_i64().expect("replicas");
        let record = play.replicas.record();
        assert!(record.master.is_none_or(|master| master.0 <= size), "{record:?} of {size}");
        sizes.insert(size);
        play.step().await;
    }
    assert_eq!(sizes, BTreeSet::from([1, 2, 3]));
    let record = play.replicas.record();
    assert_eq!((record.master, record.in_sync), (Some(ReplicaId(1)), ids(&[1])));
    let status = play.status();
    assert!(is_true(&status.conditions, "Ready"), "{:?}", status.conditions);
    assert_eq!(play.server.names("pods").iter().filter(|p| p.starts_with(GROUP)).count(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Whoever answers and whatever they say: an epoch grows, and who becomes its master was in sync.
    #[test]
    fn only_members_of_the_set_are_appointed(
        in_sync in prop::collection::btree_set(1..=3_i64, 1..=3),
        logs in prop::collection::vec(prop::option::of((0..4_i32, 0..1000_i64)), 3),
        fenced in prop::collection::btree_set(1..=3_i64, 0..2),
        crashed in any::<bool>(),
        reign in 0..4_i32,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all().start_paused(true).build().expect("a runtime");
        runtime.block_on(async {
            let play = Play::ready(2).await;
            let listed: Vec<String> = fenced.iter().map(|id| play.replicas.pod(*id)).collect();
            play.ask(crate::crd::FENCE_ANNOTATION, json!(listed.join(",")));
            play.replicas.change(|record| {
                record.epoch = Epoch(3);
                record.reign = Epoch(reign);
                record.in_sync = in_sync.iter().copied().map(ReplicaId).collect();
            });
            play.look().await;
            play.look().await;
            if crashed {
                play.replicas.crash(1);
            }
            for (id, log) in (1..).zip(&logs) {
                match log {
                    Some((epoch, end)) => play.replicas.says(id, *epoch, *end),
                    None => play.replicas.falls_silent(id),
                }
            }
            let before = play.replicas.record();
            for _ in 0..12 {
                later(2_500).await;
                play.look().await;
                let after = play.replicas.record();
                if after == before {
                    continue;
                }
                let master = after.master.expect("a master");
                prop_assert!(after.epoch > before.epoch);
                prop_assert!(before.in_sync.contains(&master), "{before:?} {after:?}");
                prop_assert!(!before.fenced.contains(&master));
                prop_assert_eq!(after.holder, None);
                break;
            }
            Ok(())
        })?;
    }
}
