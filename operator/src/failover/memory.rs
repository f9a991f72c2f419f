//! What this process remembers of groups between two looks: since when something is as it is, and
//! what it is waiting for. None of it is needed to go on: a process that begins anew looks again, and
//! counts a lease from its own first look.

use std::collections::HashMap;
use std::sync::Arc;

use kube::ResourceExt;
use parking_lot::Mutex;
use rocketmq_replication::{
    Epoch, GroupRecord, Holder, Millis, Policy, Reason, ReplicaId, Supervisor,
};

use tokio::time::Instant;

use crate::build::names;
use crate::context::namespace_of;
use crate::crd::RocketMQCluster;
use crate::crd::cluster::FailoverStatus;

/// After a switchover that was aborted, the operator asks for none of its own for this long: each holds
/// up sends for seconds.
const ASK_AGAIN_MS: u64 = 60_000;

/// Namespace and brokerName.
type Key = (String, String);

/// UID of the cluster, and what is remembered of its group.
type Entry = (String, Arc<Mutex<Remembered>>);

/// Everything remembered.
pub struct Groups {
    groups: Mutex<HashMap<Key, Entry>>,
    started: Instant,
}

impl Default for Groups {
    fn default() -> Self {
        Self { groups: Mutex::default(), started: Instant::now() }
    }
}

impl Groups {
    /// Time of this process's monotonic clock, which compares with no other. It stands still while the
    /// machine sleeps: a lease then seems younger than it is, which is the safe side.
    pub fn now(&self) -> Millis {
        let ms = self.started.elapsed().as_millis();
        Millis(u64::try_from(ms).unwrap_or(u64::MAX))
    }

    /// What is remembered of a group of this very cluster: nothing of a namesake that was deleted.
    pub fn of(&self, cluster: &RocketMQCluster, broker: &str) -> Arc<Mutex<Remembered>> {
        let key = (namespace_of(cluster), broker.to_owned());
        let uid = cluster.uid().unwrap_or_default();
        let mut groups = self.groups.lock();
        let (known, remembered) = groups.entry(key).or_default();
        if *known != uid {
            *known = uid;
            *remembered = Arc::default();
        }
        Arc::clone(remembered)
    }

    /// Forgets a group that is gone.
    pub fn forget(&self, namespace: &str, broker: &str) {
        self.groups.lock().remove(&(namespace.to_owned(), broker.to_owned()));
    }

    /// Forgets every group of a cluster that is gone; returns their names.
    pub fn forget_all(&self, namespace: &str, cluster: &str) -> Vec<String> {
        let mut forgotten = Vec::new();
        self.groups.lock().retain(|(of, broker), _| {
            let goes = of == namespace && names::broker_number(cluster, broker).is_some();
            if goes {
                forgotten.push(broker.clone());
            }
            !goes
        });
        forgotten
    }
}

/// A switchover under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handover {
    /// To whom.
    pub to: ReplicaId,
    /// Epoch of the master that hands over.
    pub epoch: Epoch,
    /// When it was asked for.
    pub since: Millis,
}

/// What the roll-out wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Who shall be master.
    pub to: ReplicaId,
    /// Why, for the event.
    pub reason: String,
}

/// A loss of a master that is not made good yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// When it was noticed.
    pub since: Millis,
    /// When a new master was appointed, and why, once one was.
    pub appointed: Option<(Millis, Reason)>,
}

/// What is remembered of a group.
#[derive(Default)]
pub struct Remembered {
    supervisor: Option<Supervisor>,
    /// As last seen, without the renewals.
    record: Option<GroupRecord>,
    /// When the record, or its renewals, last changed.
    pub renewed: Millis,
    renewals: u64,
    /// Version that this process replaced: a look that still shows it is an old one.
    pub superseded: Option<String>,
    /// The holder that is proven to have ended.
    pub ended: Option<String>,
    /// A loss that is not made good yet.
    pub loss: Option<Loss>,
    /// The switchover under way.
    pub handover: Option<Handover>,
    /// A switchover that the roll-out wants.
    pub asked: Option<Asked>,
    aborted: Option<Millis>,
    served: Option<(Epoch, ReplicaId)>,
    /// Why no master can be appointed.
    pub blocked: Option<String>,
    /// The last promotion that this process saw.
    pub last_failover: Option<FailoverStatus>,
}

/// What a look at the record found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// Something other than a renewal.
    Changed,
    /// A replica has taken over.
    TookOver(TookOver),
    /// The master goes on: it did not hand over.
    Aborted(ReplicaId),
}

/// A replica that has taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TookOver {
    /// Who was master, as far as this process saw.
    pub from: Option<ReplicaId>,
    /// Who is.
    pub to: ReplicaId,
    /// Since which epoch.
    pub epoch: Epoch,
    /// The loss that it makes good; `None` where the master handed over.
    pub loss: Option<Loss>,
}

impl Remembered {
    /// The supervisor under `policy`.
    pub fn supervisor(&mut self, policy: Policy) -> &mut Supervisor {
        let supervisor = self.supervisor.get_or_insert_with(|| Supervisor::new(policy.clone()));
        supervisor.set_policy(policy);
        supervisor
    }

    /// Forgets what was observed: nobody looked for a while.
    pub fn look_anew(&mut self) {
        self.supervisor = None;
        self.loss = None;
        self.blocked = None;
    }

    /// Takes a record in and says what is new.
    pub fn notice(&mut self, now: Millis, record: &GroupRecord) -> Vec<News> {
        let mut news = Vec::new();
        let renewals = record.holder.as_ref().map_or(0, |holder| holder.renewals);
        let plain = GroupRecord {
            holder: record.holder.as_ref().map(|h| Holder { renewals: 0, ..h.clone() }),
            ..record.clone()
        };
        let changed = self.record.as_ref() != Some(&plain);
        if changed || self.renewals != renewals {
            self.renewed = now;
            self.renewals = renewals;
        }
        if changed {
            news.push(News::Changed);
            self.record = Some(plain);
        }
        match (&self.handover, record.handover) {
            (None, Some(to)) => {
                // Of another process of the operator.
                self.handover = Some(Handover { to, epoch: record.epoch, since: now });
            }
            (Some(handover), None) => {
                let to = handover.to;
                if record.epoch == handover.epoch || record.master != Some(to) {
                    news.push(News::Aborted(to));
                    self.aborted = Some(now);
                }
                self.handover = None;
                self.asked = None;
            }
            _ => {}
        }
        if let (Some(_), Some(to)) = (&record.holder, record.master)
            && self.served != Some((record.epoch, to))
        {
            let before = self.served.replace((record.epoch, to));
            let loss = self.loss.take();
            self.blocked = None;
            // What was there when this process began is no news.
            if before.is_some() || loss.as_ref().is_some_and(|loss| loss.appointed.is_some()) {
                let from = before.map(|(_, from)| from);
                news.push(News::TookOver(TookOver { from, to, epoch: record.epoch, loss }));
            }
        }
        news
    }

    /// Notes that there is no master, and since when.
    pub fn lost(&mut self, now: Millis) -> &mut Loss {
        self.loss.get_or_insert(Loss { since: now, appointed: None })
    }

    /// Whether the operator may ask for a switchover of its own.
    pub fn may_ask(&self, now: Millis) -> bool {
        self.aborted.is_none_or(|at| now.0.saturating_sub(at.0) >= ASK_AGAIN_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(epoch: i32, master: i64, renewals: Option<u64>) -> GroupRecord {
        GroupRecord {
            epoch: Epoch(epoch),
            master: Some(ReplicaId(master)),
            holder: renewals
                .map(|renewals| Holder { incarnation: format!("{master}:1"), renewals }),
            in_sync: [ReplicaId(1), ReplicaId(2)].into(),
            ..GroupRecord::default()
        }
    }

    #[test]
    fn a_cluster_that_is_made_anew_has_no_past() {
        let groups = Groups::default();
        let mut cluster = crate::build::tests::cluster();
        let broker = names::broker("demo", 0);
        groups.of(&cluster, &broker).lock().blocked = Some("why".to_owned());
        assert!(groups.of(&cluster, &broker).lock().blocked.is_some());
        cluster.metadata.uid = Some("another".to_owned());
        assert_eq!(groups.of(&cluster, &broker).lock().blocked, None);

        groups.of(&cluster, &broker).lock().blocked = Some("why".to_owned());
        assert_eq!(groups.forget_all("ns", "other"), Vec::<String>::new());
        assert_eq!(groups.forget_all("ns", "demo"), [broker]);
        assert!(groups.groups.lock().is_empty());
    }

    #[test]
    fn renewals_are_no_news_but_move_the_time() {
        let mut seen = Remembered::default();
        assert_eq!(seen.notice(Millis(10), &record(1, 1, Some(1))), [News::Changed]);
        assert_eq!(seen.notice(Millis(20), &record(1, 1, Some(2))), []);
        assert_eq!(seen.renewed, Millis(20));
        assert_eq!(seen.notice(Millis(30), &record(1, 1, Some(2))), []);
        assert_eq!(seen.renewed, Millis(20));
    }

    #[test]
    fn a_take_over_is_told_with_the_loss_before_it() {
        let mut seen = Remembered::default();
        seen.notice(Millis(10), &record(1, 1, Some(1)));
        seen.lost(Millis(30)).appointed = Some((Millis(40), Reason::Expired));
        assert_eq!(seen.notice(Millis(50), &record(2, 2, None)), [News::Changed]);
        let news = seen.notice(Millis(60), &record(2, 2, Some(0)));
        let [News::Changed, News::TookOver(over)] = news.as_slice() else { panic!("{news:?}") };
        assert_eq!((over.from, over.to, over.epoch), (Some(ReplicaId(1)), ReplicaId(2), Epoch(2)));
        assert_eq!(over.loss.as_ref().map(|loss| loss.since), Some(Millis(30)));
        assert_eq!(seen.loss, None);
    }

    #[test]
    fn the_first_look_of_a_process_is_no_take_over() {
        let mut seen = Remembered::default();
        assert_eq!(seen.notice(Millis(0), &record(7, 2, Some(9))), [News::Changed]);
    }

    #[test]
    fn a_switchover_ends_with_another_master_or_is_aborted() {
        let asked = GroupRecord { handover: Some(ReplicaId(2)), ..record(1, 1, Some(3)) };
        for (after, aborted) in
            [(record(2, 2, None), false), (record(1, 1, Some(4)), true), (record(2, 1, None), true)]
        {
            let mut seen = Remembered::default();
            seen.notice(Millis(0), &record(1, 1, Some(3)));
            seen.notice(Millis(1), &asked);
            assert_eq!(seen.handover.as_ref().map(|h| h.to), Some(ReplicaId(2)));
            let news = seen.notice(Millis(2), &after);
            assert_eq!(news.contains(&News::Aborted(ReplicaId(2))), aborted, "{after:?}");
            assert_eq!(seen.handover, None);
            assert_eq!(seen.may_ask(Millis(3)), !aborted);
            assert!(seen.may_ask(Millis(60_002)));
        }
    }
}
