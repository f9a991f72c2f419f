//! The brokers of groups with slaves, as far as the operator sees them: what they do to their group's
//! Lease and what they say of themselves. Each act is one compare-and-swap, as theirs is.

use std::collections::BTreeSet;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use rocketmq_replication::{Epoch, GroupRecord, Holder, ReplicaId, Report};
use serde_json::json;

use super::{ApiServer, Brokers};
use crate::build::names;
use crate::failover::lease;

/// The brokers of one group.
#[derive(Clone)]
pub(crate) struct Replicas {
    server: ApiServer,
    brokers: Brokers,
    broker: String,
}

impl Replicas {
    /// The brokers of group `number` of cluster `demo`.
    pub(crate) fn of(server: &ApiServer, brokers: &Brokers, number: i32) -> Self {
        let broker = names::broker("demo", number);
        Self { server: server.clone(), brokers: brokers.clone(), broker }
    }

    pub(crate) fn pod(&self, id: i64) -> String {
        names::replica_pod(&self.broker, ReplicaId(id))
    }

    /// The record as it is now.
    pub(crate) fn record(&self) -> GroupRecord {
        let lease = self.server.get::<Lease>(&self.broker).expect("a lease");
        lease::read(&lease).expect("a record").record
    }

    /// Changes the record as whoever it is.
    pub(crate) fn change(&self, change: impl FnOnce(&mut GroupRecord)) {
        let lease = self.server.get::<Lease>(&self.broker).expect("a lease");
        let mut record = self.record();
        let holder = record.holder.clone();
        change(&mut record);
        let mut next = lease::replaced(&lease, &record);
        if record.holder.as_ref().map(|h| &h.incarnation) != holder.as_ref().map(|h| &h.incarnation)
            && record.holder.is_some()
        {
            let spec = next.spec.as_mut().expect("a spec");
            spec.acquire_time = serde_json::from_value(json!(TAKEN_AT)).expect("a time");
        }
        let mut next = serde_json::to_value(next).expect("json");
        next["kind"] = json!("Lease");
        self.server.put(next);
    }

    /// Which process runs in a pod: the pod's UID and how often it has started.
    pub(crate) fn incarnation(&self, id: i64) -> String {
        let pod = self.server.get::<Pod>(&self.pod(id)).expect("a pod");
        let starts = pod
            .status
            .and_then(|status| status.container_statuses)
            .and_then(|statuses| Some(statuses.first()?.restart_count))
            .unwrap_or(0);
        format!("{}:{starts}", pod.metadata.uid.expect("a uid"))
    }

    /// What a broker says from now on.
    pub(crate) fn says(&self, id: i64, last_epoch: i32, log_end: i64) {
        let incarnation = self.incarnation(id);
        let report = Report { incarnation, last_epoch: Epoch(last_epoch), log_end };
        self.brokers.set_replica(&format!("{}:10911", self.pod(id)), Some(report));
    }

    /// A broker answers no more.
    pub(crate) fn falls_silent(&self, id: i64) {
        self.brokers.set_replica(&format!("{}:10911", self.pod(id)), None);
    }

    /// Who was appointed takes over.
    pub(crate) fn take_over(&self) {
        let record = self.record();
        let id = record.master.expect("an appointed one");
        let incarnation = self.incarnation(id.0);
        self.change(|record| {
            record.holder = Some(Holder { incarnation, renewals: 0 });
            record.in_sync = [id].into();
            record.in_sync_epoch += 1;
        });
        self.says(id.0, record.epoch.0, 100);
    }

    /// The master renews its lease.
    pub(crate) fn renew(&self) {
        self.change(|record| {
            record.holder.as_mut().expect("a holder").renewals += 1;
        });
    }

    /// The container of a broker ends and is started again, or not yet.
    pub(crate) fn crash(&self, id: i64) {
        self.falls_silent(id);
        self.server.edit("pods", &self.pod(id), |pod| {
            pod["status"]["conditions"] = json!([{"type": "Ready", "status": "False"}]);
            pod["status"]["containerStatuses"] = json!([{
                "name": "broker", "image": "b", "imageID": "", "ready": false, "restartCount": 1,
                "state": {"terminated": {"exitCode": 137, "finishedAt": CRASHED_AT}},
            }]);
        });
    }

    /// What brokers do between two looks of the operator: a master whose pod went gives its lease
    /// back, one that is asked to hands over, who is appointed takes over, and ready slaves catch up.
    pub(crate) fn act(&self) {
        let Some(found) = self.server.get::<Lease>(&self.broker) else { return };
        let record = lease::read(&found).expect("a record").record;
        let pods: BTreeSet<i64> = (1..=9)
            .filter(|id| {
                self.server.get::<Pod>(&self.pod(*id)).is_some_and(|pod| {
                    // One from before it had slaves knows nothing of a Lease.
                    pod.spec.is_some_and(|spec| spec.service_account_name.is_some())
                })
            })
            .collect();
        for id in &pods {
            self.says(*id, record.epoch.0, 100);
        }
        let Some(master) = record.master else { return };
        let runs = pods.contains(&master.0).then(|| self.incarnation(master.0));
        match (&record.holder, record.handover) {
            (Some(holder), _) if runs.as_ref() != Some(&holder.incarnation) => {
                self.change(|record| {
                    record.holder = None;
                    record.reign = record.epoch;
                });
            }
            (Some(_), Some(to)) => {
                assert!(record.in_sync.contains(&to), "{record:?}");
                self.change(|record| {
                    record.epoch.0 += 1;
                    record.master = Some(to);
                    record.holder = None;
                    record.handover = None;
                });
            }
            (None, _) if runs.is_some() => self.take_over(),
            (Some(_), None) => {
                let there: BTreeSet<ReplicaId> = pods.iter().copied().map(ReplicaId).collect();
                if there != record.in_sync {
                    self.change(|record| {
                        record.in_sync = there;
                        record.in_sync_epoch += 1;
                    });
                }
            }
            (None, _) => {}
        }
    }
}

/// When holders took their leases.
const TAKEN_AT: &str = "2026-01-01T00:00:00.000000Z";
/// When they crashed.
const CRASHED_AT: &str = "2026-01-01T00:10:00Z";

/// The pod that is labelled as master of a group.
pub(crate) fn labelled_master(server: &ApiServer, broker: &str) -> Vec<String> {
    server
        .all::<Pod>()
        .into_iter()
        .filter(|pod| pod.labels().get(names::GROUP_LABEL).is_some_and(|group| group == broker))
        .filter(|pod| {
            pod.labels().get(names::ROLE_LABEL).is_some_and(|role| role == names::MASTER_ROLE)
        })
        .map(|pod| pod.name_any())
        .collect()
}
