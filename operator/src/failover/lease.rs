//! A group's record as a Lease: the annotations are the record, the fields say the same to people.

use std::collections::BTreeMap;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::ResourceExt;
use rocketmq_replication::{Epoch, GroupRecord, RecordError, ReplicaId, Versioned};

use crate::build::{meta, names};
use crate::crd::RocketMQCluster;

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
    fn a_lease_without_a_record_is_an_error() {
        let mut lease = first(&crate::build::tests::cluster(), 1, &record());
        lease.annotations_mut().remove("rocketmq.rs/epoch");
        assert!(read(&lease).is_err());
    }
}
