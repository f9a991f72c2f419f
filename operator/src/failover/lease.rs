//! A group's record as a Lease: the annotations are the record, the fields say the same to people.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::ResourceExt;
use rocketmq_replication::{Epoch, GroupRecord, RecordError, ReplicaId, Versioned};

use crate::apply::Objects;
use crate::build::{meta, names};
use crate::crd::RocketMQCluster;
use crate::error::{Error, is_conflict};

/// How soon a name that somebody else's Lease has is tried again. Watches do not show that Lease.
pub const FOREIGN_RETRY: Duration = Duration::from_secs(15);

/// The record in a Lease, with what its successor must be conditional on.
///
/// # Errors
/// When an annotation is missing or wrong: a damaged record must not pass for an empty one.
pub fn read(lease: &Lease) -> Result<Versioned, RecordError> {
    Ok(Versioned {
        // Of an object without one nothing could be replaced; the API server sets it on all.
        version: lease.resource_version().unwrap_or_default(),
        record: GroupRecord::from_annotations(lease.annotations())?,
    })
}

/// The record of a group that has never had a slave: the first replica has all there is.
pub fn record_of_new_group() -> GroupRecord {
    GroupRecord {
        epoch: Epoch(1),
        master: Some(ReplicaId(1)),
        in_sync: [ReplicaId(1)].into(),
        ..GroupRecord::default()
    }
}

/// The Lease of a group that has none.
pub fn first(cluster: &RocketMQCluster, number: i32, record: &GroupRecord) -> Lease {
    let name = cluster.name_any();
    let selector = names::broker_selector(&name, number);
    let labels = names::with_recommended(selector, &name, names::BROKER_TIER);
    let mut lease = Lease {
        metadata: meta(cluster, names::broker(&name, number), labels),
        spec: Some(LeaseSpec {
            lease_duration_seconds: Some(cluster.spec.failover.lease_duration_seconds),
            ..LeaseSpec::default()
        }),
    };
    set(&mut lease, record);
    lease
}

/// Whether a Lease has the labels by which watches and lists find the record of `broker`.
pub fn is_record(lease: &Lease, cluster: &str, broker: &str) -> bool {
    let has = |(key, value): (&str, &str)| lease.labels().get(key).is_some_and(|v| v == value);
    found_by(cluster, broker).into_iter().all(has)
}

fn found_by<'a>(cluster: &'a str, broker: &'a str) -> [(&'static str, &'a str); 3] {
    [
        (names::MANAGED_BY_LABEL, names::MANAGED_BY),
        (names::CLUSTER_LABEL, cluster),
        (names::GROUP_LABEL, broker),
    ]
}

/// What is said of a Lease that has the name of a group and is not its record.
pub fn foreign(cluster: &str, broker: &str) -> String {
    let labels = found_by(cluster, broker).map(|(key, value)| format!("{key}={value}"));
    format!(
        "Lease {broker} is not the group's record, it lacks one of the labels {}: delete it if it is somebody else's; if it was the record, give it its labels back",
        labels.join(", ")
    )
}

/// What became of a record that was to be made.
pub enum Created {
    /// It is there now.
    Made(Box<Lease>),
    /// It was there already, and a cache does not know yet.
    Known,
    /// A Lease of that name is something else.
    Foreign,
}

/// Makes the record of a group that has none.
///
/// # Errors
/// Fails when the API server does.
pub async fn create(
    objects: &Objects,
    cluster: &RocketMQCluster,
    number: i32,
    record: &GroupRecord,
) -> Result<Created, Error> {
    let lease = first(cluster, number, record);
    match objects.create(&lease).await {
        Ok(made) => Ok(Created::Made(Box::new(made))),
        Err(Error::Kubernetes { source, .. }) if is_conflict(&source) => {
            let (name, broker) = (cluster.name_any(), lease.name_any());
            let there = objects.get::<Lease>(&broker).await?;
            let is_foreign = there.is_some_and(|lease| !is_record(&lease, &name, &broker));
            Ok(if is_foreign { Created::Foreign } else { Created::Known })
        }
        Err(error) => Err(error),
    }
}

/// `lease` with another record, at the version that was read.
pub fn replaced(lease: &Lease, record: &GroupRecord) -> Lease {
    let mut lease = lease.clone();
    set(&mut lease, record);
    lease
}

fn set(lease: &mut Lease, record: &GroupRecord) {
    let annotations = lease.metadata.annotations.get_or_insert_with(BTreeMap::new);
    annotations.retain(|key, _| !GroupRecord::annotation_keys().contains(&key.as_str()));
    annotations.extend(record.to_annotations());
    if record.holder.is_none() {
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        spec.holder_identity = None;
        spec.acquire_time = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rocketmq_replication::Holder;

    fn record() -> GroupRecord {
        GroupRecord {
            epoch: Epoch(3),
            master: Some(ReplicaId(2)),
            holder: Some(Holder { incarnation: "uid:1".to_owned(), renewals: 7 }),
            in_sync: [ReplicaId(1), ReplicaId(2)].into(),
            ..GroupRecord::default()
        }
    }

    #[test]
    fn what_is_written_is_read_and_what_others_added_stays() {
        let cluster = crate::build::tests::cluster();
        let mut lease = first(&cluster, 1, &record());
        assert_eq!(lease.name_any(), "demo-broker-1");
        assert_eq!(lease.owner_references()[0].uid, "uid-1");
        assert_eq!(lease.labels()[names::GROUP_LABEL], "demo-broker-1");
        assert_eq!(read(&lease).expect("a record").record, record());

        lease.metadata.resource_version = Some("9".to_owned());
        lease.annotations_mut().insert("theirs".to_owned(), "x".to_owned());
        lease.spec.as_mut().expect("a spec").holder_identity = Some("demo-broker-1-1".to_owned());
        let next = GroupRecord { epoch: Epoch(4), holder: None, ..record() };
        let after = replaced(&lease, &next);
        assert_eq!(read(&after), Ok(Versioned { version: "9".to_owned(), record: next }));
        assert_eq!(after.annotations()["theirs"], "x");
        assert_eq!(after.spec.expect("a spec").holder_identity, None);
    }

    #[test]
    fn a_lease_that_lacks_a_label_is_not_the_record() {
        let mut lease = first(&crate::build::tests::cluster(), 1, &record());
        assert!(is_record(&lease, "demo", "demo-broker-1"));
        assert!(!is_record(&lease, "demo", "demo-broker-0"));
        lease.labels_mut().remove(names::MANAGED_BY_LABEL);
        assert!(!is_record(&lease, "demo", "demo-broker-1"));
        let text = foreign("demo", "demo-broker-1");
        assert!(text.contains("app.kubernetes.io/managed-by=rocketmq-operator"), "{text}");
    }

    #[test]
    fn a_lease_without_a_record_is_an_error() {
        let mut lease = first(&crate::build::tests::cluster(), 1, &record());
        lease.annotations_mut().remove("rocketmq.rs/epoch");
        assert!(read(&lease).is_err());
    }
}
