//! The record of a group, kept in this process: what an API server does for brokers on Kubernetes. The
//! test is whoever appoints.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use rocketmq_broker::coordinator::{Coordinator, CoordinatorError, Replaced, Timing};
use rocketmq_replication::{Epoch, GroupRecord, ReplicaId, Versioned};
use tokio::sync::watch;

/// Quick enough for a test, slow enough for a machine that does much else.
pub const TIMING: Timing = Timing {
    lease: Duration::from_millis(3_000),
    renew_deadline: Duration::from_millis(2_000),
    retry: Duration::from_millis(200),
};

/// The record; clones are the same one.
#[derive(Clone)]
pub struct Keeper(Arc<Mutex<watch::Sender<Option<Versioned>>>>);

impl Default for Keeper {
    fn default() -> Keeper {
        Keeper(Arc::new(Mutex::new(watch::Sender::new(None))))
    }
}

impl Keeper {
    /// As it is now.
    pub fn record(&self) -> GroupRecord {
        self.0
            .lock()
            .borrow()
            .as_ref()
            .map(|versioned| versioned.record.clone())
            .unwrap_or_default()
    }

    /// Changes it as whoever supervises the group does.
    pub fn edit(&self, edit: impl FnOnce(&mut GroupRecord)) {
        let keeper = self.0.lock();
        let mut record =
            keeper.borrow().as_ref().map(|versioned| versioned.record.clone()).unwrap_or_default();
        edit(&mut record);
        put(&keeper, record);
    }

    /// Makes a replica master of the next epoch. The first master of all is the whole in-sync set.
    pub fn appoint(&self, replica: i64) {
        self.edit(|record| {
            record.epoch = Epoch(record.epoch.0 + 1);
            record.master = Some(ReplicaId(replica));
            record.holder = None;
            record.handover = None;
            if record.in_sync.is_empty() {
                record.in_sync.insert(ReplicaId(replica));
            }
        });
    }

    /// Members of the in-sync set.
    pub fn in_sync(&self) -> Vec<i64> {
        self.record().in_sync.iter().map(|replica| replica.0).collect()
    }
}

fn put(keeper: &watch::Sender<Option<Versioned>>, record: GroupRecord) -> String {
    let number: u64 = keeper
        .borrow()
        .as_ref()
        .map_or(0, |versioned| versioned.version.parse().expect("a number"));
    let version = (number + 1).to_string();
    keeper.send_replace(Some(Versioned { version: version.clone(), record }));
    version
}

/// One broker's way to the keeper, which can be cut.
#[derive(Clone)]
pub struct Line {
    keeper: Keeper,
    is_cut: Arc<AtomicBool>,
}

impl Line {
    pub fn to(keeper: &Keeper) -> Line {
        Line { keeper: keeper.clone(), is_cut: Arc::default() }
    }

    pub fn cut(&self, cut: bool) {
        self.is_cut.store(cut, Ordering::Release);
    }

    fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Acquire)
    }
}

impl Coordinator for Line {
    fn read(&self) -> BoxFuture<'_, Result<Option<Versioned>, CoordinatorError>> {
        async {
            if self.is_cut() {
                return Err(CoordinatorError::Unreachable("the line is cut".to_owned()));
            }
            Ok(self.keeper.0.lock().borrow().clone())
        }
        .boxed()
    }

    fn replace<'a>(
        &'a self,
        expected: &'a str,
        record: &'a GroupRecord,
    ) -> BoxFuture<'a, Replaced> {
        async move {
            if self.is_cut() {
                return Replaced::Unknown("the line is cut".to_owned());
            }
            let keeper = self.keeper.0.lock();
            let is_expected =
                keeper.borrow().as_ref().is_some_and(|versioned| versioned.version == expected);
            match is_expected {
                true => Replaced::Written(put(&keeper, record.clone())),
                false => Replaced::Conflict,
            }
        }
        .boxed()
    }

    fn watch<'a>(&'a self, changed: &'a (dyn Fn() + Send + Sync)) -> BoxFuture<'a, ()> {
        async move {
            let mut record = self.keeper.0.lock().subscribe();
            // The sender lives in the keeper, so this fails never.
            while record.changed().await.is_ok() {
                if !self.is_cut() {
                    changed();
                }
            }
        }
        .boxed()
    }
}
