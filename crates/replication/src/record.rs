//! The record of truth of a broker group: one small object that changes only by compare-and-swap.
//!
//! On Kubernetes it is a Lease whose annotations are [`GroupRecord::to_annotations`].

use std::collections::{BTreeMap, BTreeSet};

use crate::{Epoch, ReplicaId};

const EPOCH: &str = "rocketmq.rs/epoch";
const MASTER: &str = "rocketmq.rs/master";
const HOLDER: &str = "rocketmq.rs/holder";
const RENEWALS: &str = "rocketmq.rs/renewals";
const IN_SYNC: &str = "rocketmq.rs/in-sync";
const IN_SYNC_EPOCH: &str = "rocketmq.rs/in-sync-epoch";
const BROKER_ADDRESS: &str = "rocketmq.rs/broker-address";
const HA_ADDRESS: &str = "rocketmq.rs/ha-address";
const HANDOVER: &str = "rocketmq.rs/handover-to";
const FENCED: &str = "rocketmq.rs/fenced";
const REIGN: &str = "rocketmq.rs/reign";
const VACATED: &str = "rocketmq.rs/vacated";

/// What a group has agreed on.
///
/// Who writes what: the master of the epoch writes `holder`, `in_sync`, `reign`, `addresses`, and
/// appoints its successor when it hands over; whoever supervises the group (the operator) writes
/// `epoch`, `master`, `vacated`, `handover`, `fenced`. Each writes the whole record, on the condition
/// that it has not changed since it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupRecord {
    /// Grows by at least one with every appointment of a master; 0 before the first.
    pub epoch: Epoch,
    /// Who is, or is to become, master of `epoch`.
    pub master: Option<ReplicaId>,
    /// The lease: the process of `master` that has taken over `epoch`. None between an appointment
    /// and the take-over, and after a release.
    pub holder: Option<Holder>,
    /// Replicas that have every acknowledged message. Only they may be appointed. It keeps the
    /// previous master's set until the new one takes over.
    pub in_sync: BTreeSet<ReplicaId>,
    /// Grows by one with every change of `in_sync` (RocketMQ's `syncStateSetEpoch`).
    pub in_sync_epoch: i32,
    /// The last epoch whose master opened for writes. Every member of `in_sync` has it in its epoch
    /// file; one that has not lost its disk since it became a member, and must not be appointed.
    pub reign: Epoch,
    /// Nobody acknowledges in an older epoch any more: the process that did gave the lease back, or is
    /// proven to have ended. False if its lease merely ran out; then the appointed one keeps the
    /// promises that it gave.
    pub vacated: bool,
    /// Where the holder is found.
    pub addresses: MasterAddresses,
    /// A planned switchover: the master is asked to hand over to this replica.
    pub handover: Option<ReplicaId>,
    /// Replicas that must neither serve nor be appointed, by the word of an administrator.
    pub fenced: BTreeSet<ReplicaId>,
}

/// A process that holds the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Which start of which process it is: differs between any two starts. At most 128 characters out
    /// of letters, digits, `-`, `_`, `.` and `:`.
    pub incarnation: String,
    /// Grows with every renewal, so that others see that it lives without comparing clocks.
    pub renewals: u64,
}

/// `host:port` pairs of a master.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MasterAddresses {
    /// For requests.
    pub broker: String,
    /// For its log.
    pub ha: String,
}

/// A record as read, with what a write of its successor must be conditional on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned {
    /// Opaque; two reads with equal versions are equal reads.
    pub version: String,
    /// What was read.
    pub record: GroupRecord,
}

/// Why annotations are no record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// A value cannot be read.
    #[error("annotation {key}: {value:?} is not {expected}")]
    Value {
        /// The annotation.
        key: &'static str,
        /// What it says.
        value: String,
        /// What would be right.
        expected: &'static str,
    },
    /// One that must be there is not.
    #[error("annotation {0} is missing")]
    Missing(&'static str),
}

impl GroupRecord {
    /// The record as annotations. What is not there is absent, so a writer must remove those keys of
    /// [`GroupRecord::annotation_keys`] that are not in the result.
    pub fn to_annotations(&self) -> BTreeMap<String, String> {
        let mut out = BTreeMap::new();
        let mut put = |key: &str, value: String| {
            out.insert(key.to_owned(), value);
        };
        put(EPOCH, self.epoch.0.to_string());
        put(IN_SYNC, join(&self.in_sync));
        put(IN_SYNC_EPOCH, self.in_sync_epoch.to_string());
        if let Some(master) = self.master {
            put(MASTER, master.to_string());
        }
        if let Some(holder) = &self.holder {
            put(HOLDER, holder.incarnation.clone());
            put(RENEWALS, holder.renewals.to_string());
        }
        for (key, value) in
            [(BROKER_ADDRESS, &self.addresses.broker), (HA_ADDRESS, &self.addresses.ha)]
        {
            if !value.is_empty() {
                put(key, value.clone());
            }
        }
        if let Some(target) = self.handover {
            put(HANDOVER, target.to_string());
        }
        if !self.fenced.is_empty() {
            put(FENCED, join(&self.fenced));
        }
        if self.reign > Epoch(0) {
            put(REIGN, self.reign.to_string());
        }
        if self.vacated {
            put(VACATED, "true".to_owned());
        }
        out
    }

    /// Every key that [`GroupRecord::to_annotations`] may set.
    pub fn annotation_keys() -> [&'static str; 12] {
        [
            EPOCH,
            MASTER,
            HOLDER,
            RENEWALS,
            IN_SYNC,
            IN_SYNC_EPOCH,
            BROKER_ADDRESS,
            HA_ADDRESS,
            HANDOVER,
            FENCED,
            REIGN,
            VACATED,
        ]
    }

    /// Reads what [`GroupRecord::to_annotations`] wrote. Other keys mean nothing.
    ///
    /// # Errors
    /// When a value is wrong, or the epoch or the in-sync set is missing: a record that was damaged
    /// must not pass for an empty one.
    pub fn from_annotations(
        annotations: &BTreeMap<String, String>,
    ) -> Result<GroupRecord, RecordError> {
        let text = |key: &'static str| annotations.get(key).map(String::as_str);
        let need = |key: &'static str| text(key).ok_or(RecordError::Missing(key));
        let holder = match text(HOLDER) {
            None => None,
            Some(incarnation) => Some(Holder {
                incarnation: incarnation.to_owned(),
                renewals: number(RENEWALS, need(RENEWALS)?, "a count")?,
            }),
        };
        Ok(GroupRecord {
            epoch: Epoch(number(EPOCH, need(EPOCH)?, "an epoch, 0 or more")?),
            master: text(MASTER).map(|text| replica(MASTER, text)).transpose()?,
            holder,
            in_sync: replicas(IN_SYNC, need(IN_SYNC)?)?,
            in_sync_epoch: match text(IN_SYNC_EPOCH) {
                None => 0,
                Some(text) => number(IN_SYNC_EPOCH, text, "a count")?,
            },
            addresses: MasterAddresses {
                broker: text(BROKER_ADDRESS).unwrap_or_default().to_owned(),
                ha: text(HA_ADDRESS).unwrap_or_default().to_owned(),
            },
            handover: text(HANDOVER).map(|text| replica(HANDOVER, text)).transpose()?,
            fenced: text(FENCED)
                .map(|text| replicas(FENCED, text))
                .transpose()?
                .unwrap_or_default(),
            reign: Epoch(match text(REIGN) {
                None => 0,
                Some(text) => number(REIGN, text, "an epoch, 0 or more")?,
            }),
            vacated: match text(VACATED) {
                None => false,
                Some("true") => true,
                Some(value) => {
                    let value = value.to_owned();
                    return Err(RecordError::Value { key: VACATED, value, expected: "true" });
                }
            },
        })
    }
}

fn join(replicas: &BTreeSet<ReplicaId>) -> String {
    replicas.iter().map(ReplicaId::to_string).collect::<Vec<_>>().join(",")
}

/// A number without a sign.
fn number<T: std::str::FromStr>(
    key: &'static str,
    text: &str,
    expected: &'static str,
) -> Result<T, RecordError> {
    let wrong = || RecordError::Value { key, value: text.to_owned(), expected };
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    text.parse().map_err(|_| wrong())
}

fn replica(key: &'static str, text: &str) -> Result<ReplicaId, RecordError> {
    const EXPECTED: &str = "a replica's id, 1 or more";
    match number(key, text, EXPECTED)? {
        0 => Err(RecordError::Value { key, value: text.to_owned(), expected: EXPECTED }),
        id => Ok(ReplicaId(id)),
    }
}

fn replicas(key: &'static str, text: &str) -> Result<BTreeSet<ReplicaId>, RecordError> {
    if text.is_empty() {
        return Ok(BTreeSet::new());
    }
    text.split(',').map(|one| replica(key, one)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> GroupRecord {
        GroupRecord {
            epoch: Epoch(7),
            master: Some(ReplicaId(2)),
            holder: Some(Holder { incarnation: "pod-uid:3".to_owned(), renewals: 41 }),
            in_sync: [ReplicaId(1), ReplicaId(2)].into(),
            in_sync_epoch: 5,
            addresses: MasterAddresses { broker: "a:1".to_owned(), ha: "a:2".to_owned() },
            handover: Some(ReplicaId(1)),
            fenced: [ReplicaId(3)].into(),
            reign: Epoch(6),
            vacated: true,
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for record in [full(), GroupRecord::default()] {
            let annotations = record.to_annotations();
            assert!(
                annotations
                    .keys()
                    .all(|key| GroupRecord::annotation_keys().contains(&key.as_str()))
            );
            assert_eq!(GroupRecord::from_annotations(&annotations), Ok(record));
        }
        assert_eq!(full().to_annotations().len(), GroupRecord::annotation_keys().len());
    }

    #[test]
    fn a_damaged_record_is_named_and_never_taken_as_empty() {
        let damaged = |key: &str, value: Option<&str>| {
            let mut annotations = full().to_annotations();
            match value {
                Some(value) => annotations.insert(key.to_owned(), value.to_owned()),
                None => annotations.remove(key),
            };
            GroupRecord::from_annotations(&annotations).expect_err("damaged").to_string()
        };
        assert_eq!(damaged(EPOCH, None), "annotation rocketmq.rs/epoch is missing");
        assert_eq!(
            damaged(EPOCH, Some("-1")),
            "annotation rocketmq.rs/epoch: \"-1\" is not an epoch, 0 or more"
        );
        assert_eq!(damaged(IN_SYNC, None), "annotation rocketmq.rs/in-sync is missing");
        assert_eq!(
            damaged(IN_SYNC, Some("1,,2")),
            "annotation rocketmq.rs/in-sync: \"\" is not a replica's id, 1 or more"
        );
        assert_eq!(
            damaged(MASTER, Some("0")),
            "annotation rocketmq.rs/master: \"0\" is not a replica's id, 1 or more"
        );
        assert_eq!(damaged(RENEWALS, None), "annotation rocketmq.rs/renewals is missing");
        assert!(damaged(EPOCH, Some("99999999999")).contains("not an epoch"));
        assert!(damaged(VACATED, Some("yes")).ends_with("\"yes\" is not true"));
    }
}
