//! Committed offsets of consumer groups (ConsumerOffsetManager), kept in memory and written to
//! `config/consumerOffset.json` every `flushConsumerOffsetInterval` and at shutdown.
//!
//! Offsets are taken as the client gives them, lower ones too: that is how a client rewinds. An
//! offset beyond the queue (its tail was lost in a crash) stays as it is; the pull it leads to is
//! answered OFFSET_MOVED with the queue's maximum, and the client commits that.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock};
use rocketmq_protocol::body::DataVersion;
use serde::{Deserialize, Serialize};

use super::persist::{self, MetadataError};
use crate::clock::now_ms;

/// Queue ids above this are refused, so that a client cannot fill the table with invented queues.
pub const QUEUE_ID_MAX: i32 = 65_535;

/// `consumerOffset.json` below the store's config directory.
pub const FILE_NAME: &str = "consumerOffset.json";

type Queues = Mutex<BTreeMap<i32, QueueOffset>>;
type ByTopic = HashMap<Box<str>, Arc<Queues>>;

/// All consumer offsets of this broker.
#[derive(Debug)]
pub struct ConsumerOffsets {
    path: PathBuf,
    groups: RwLock<HashMap<Box<str>, ByTopic>>,
    /// Offsets set by an administrator, each waiting for the next pull of its queue.
    resets: Mutex<HashMap<String, BTreeMap<i32, i64>>>,
    /// Entries in `resets`, so that pulls do not lock for the usual case of none.
    reset_count: AtomicUsize,
    version: Mutex<DataVersion>,
    commits: AtomicU64,
    /// A new data version every so many commits (`consumerOffsetUpdateVersionStep`).
    version_step: u64,
    dirty: AtomicBool,
    writing: Mutex<()>,
    /// Entries of the file whose key is not `topic@group`, written back unchanged.
    unreadable: BTreeMap<String, BTreeMap<i32, i64>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct QueueOffset {
    committed: Option<i64>,
    /// Where the last pull ended; not persisted.
    pulled: Option<i64>,
}

/// The file's shape, also the body of GET_ALL_CONSUMER_OFFSET.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OffsetFile {
    data_version: DataVersion,
    /// Derived from the table; written for readers that expect it, ignored on load.
    group_topic_map: BTreeMap<String, Vec<String>>,
    offset_table: BTreeMap<String, BTreeMap<i32, i64>>,
}

impl ConsumerOffsets {
    /// Loads the table from `config_dir`, or starts an empty one if there is no file.
    ///
    /// # Errors
    /// When the file is damaged beyond its `.bak`.
    pub fn load(config_dir: &Path, version_step: u64) -> Result<Self, MetadataError> {
        let path = config_dir.join(FILE_NAME);
        let file: OffsetFile = persist::load(&path)?.unwrap_or_default();
        let mut groups: HashMap<Box<str>, ByTopic> = HashMap::new();
        let mut unreadable = BTreeMap::new();
        for (key, queues) in file.offset_table {
            let Some((topic, group)) = key.split_once('@') else {
                unreadable.insert(key, queues);
                continue;
            };
            let queues = queues
                .into_iter()
                .map(|(id, offset)| (id, QueueOffset { committed: Some(offset), pulled: None }))
                .collect();
            groups
                .entry(group.into())
                .or_default()
                .insert(topic.into(), Arc::new(Mutex::new(queues)));
        }
        Ok(Self {
            path,
            groups: RwLock::new(groups),
            resets: Mutex::default(),
            reset_count: AtomicUsize::new(0),
            version: Mutex::new(file.data_version),
            commits: AtomicU64::new(0),
            version_step: version_step.max(1),
            dirty: AtomicBool::new(false),
            writing: Mutex::new(()),
            unreadable,
        })
    }

    /// Stores the group's consumer offset of the queue. A queue id outside `0..=QUEUE_ID_MAX` is
    /// ignored; handlers refuse it before.
    pub fn commit(&self, group: &str, topic: &str, queue_id: i32, consumer_offset: i64) {
        self.set(group, topic, queue_id, |queue| queue.committed = Some(consumer_offset));
        self.changed();
    }

    /// Notes where the last pull of the queue ended (`pullOffset` of GET_CONSUME_STATS).
    pub fn pulled(&self, group: &str, topic: &str, queue_id: i32, queue_offset: i64) {
        self.set(group, topic, queue_id, |queue| queue.pulled = Some(queue_offset));
    }

    fn set(&self, group: &str, topic: &str, queue_id: i32, change: impl FnOnce(&mut QueueOffset)) {
        if !(0..=QUEUE_ID_MAX).contains(&queue_id) {
            return;
        }
        if let Some(queues) = self.queues(group, topic) {
            change(queues.lock().entry(queue_id).or_default());
            return;
        }
        let mut groups = self.groups.write();
        let queues = groups.entry(group.into()).or_default().entry(topic.into()).or_default();
        change(queues.lock().entry(queue_id).or_default());
    }

    fn queues(&self, group: &str, topic: &str) -> Option<Arc<Queues>> {
        self.groups.read().get(group)?.get(topic).cloned()
    }

    /// Marks the table for the next write and bumps the data version every so many changes.
    fn changed(&self) {
        self.dirty.store(true, Ordering::Release);
        let commits = self.commits.fetch_add(1, Ordering::Relaxed) + 1;
        if commits.is_multiple_of(self.version_step) {
            self.next_version();
        }
    }

    fn next_version(&self) {
        let mut version = self.version.lock();
        version.timestamp = now_ms();
        version.counter += 1;
    }

    /// The group's consumer offset of the queue: a pending reset, else the committed one. A
    /// negative stored offset counts as none, as in the Java broker.
    pub fn query(&self, group: &str, topic: &str, queue_id: i32) -> Option<i64> {
        if let Some(offset) = self.pending_reset(group, topic, queue_id) {
            return Some(offset);
        }
        let queues = self.queues(group, topic)?;
        let offset = queues.lock().get(&queue_id)?.committed?;
        (offset >= 0).then_some(offset)
    }

    /// Gives group `to` the consumer offsets that group `from` has for the topic, in place of its
    /// own; none if `from` has none.
    pub fn clone_topic(&self, from: &str, to: &str, topic: &str) {
        let offsets = self.of_topic(from, topic);
        if offsets.is_empty() {
            return;
        }
        let queues = offsets
            .into_iter()
            .map(|(id, offset)| (id, QueueOffset { committed: Some(offset), pulled: None }))
            .collect();
        let mut groups = self.groups.write();
        groups.entry(to.into()).or_default().insert(topic.into(), Arc::new(Mutex::new(queues)));
        drop(groups);
        self.changed();
    }

    /// Where the last pull of the queue ended, if one was seen since the start.
    pub fn pull_offset(&self, group: &str, topic: &str, queue_id: i32) -> Option<i64> {
        self.queues(group, topic)?.lock().get(&queue_id)?.pulled
    }

    /// All committed offsets of the group for the topic, by queue id.
    pub fn of_topic(&self, group: &str, topic: &str) -> BTreeMap<i32, i64> {
        let Some(queues) = self.queues(group, topic) else { return BTreeMap::new() };
        let queues = queues.lock();
        queues.iter().filter_map(|(id, queue)| Some((*id, queue.committed?))).collect()
    }

    /// Topics for which the group has committed offsets, sorted.
    pub fn topics_of(&self, group: &str) -> Vec<String> {
        let groups = self.groups.read();
        let Some(topics) = groups.get(group) else { return Vec::new() };
        let mut names: Vec<String> = topics
            .iter()
            .filter(|(_, queues)| has_committed(queues))
            .map(|(topic, _)| topic.to_string())
            .collect();
        names.sort_unstable();
        names
    }

    /// Groups that have committed offsets for the topic, sorted.
    pub fn groups_of(&self, topic: &str) -> Vec<String> {
        let groups = self.groups.read();
        let mut names: Vec<String> = groups
            .iter()
            .filter(|(_, topics)| topics.get(topic).is_some_and(has_committed))
            .map(|(group, _)| group.to_string())
            .collect();
        names.sort_unstable();
        names
    }

    /// Every (group, topic) pair with committed offsets.
    pub fn group_topics(&self) -> Vec<(String, String)> {
        let groups = self.groups.read();
        groups
            .iter()
            .flat_map(|(group, topics)| {
                topics
                    .iter()
                    .filter(|(_, queues)| has_committed(queues))
                    .map(|(topic, _)| (group.to_string(), topic.to_string()))
            })
            .collect()
    }

    /// Sets the offset from which the group's next pull of the queue must go on, whatever offset
    /// that pull asks for (server-side reset of RocketMQ 5).
    pub fn reset(&self, group: &str, topic: &str, queue_id: i32, consumer_offset: i64) {
        self.commit(group, topic, queue_id, consumer_offset);
        let mut resets = self.resets.lock();
        let queues = resets.entry(topic_at_group(topic, group)).or_default();
        if queues.insert(queue_id, consumer_offset).is_none() {
            self.reset_count.fetch_add(1, Ordering::Release);
        }
    }

    /// The pending reset of the queue, if any.
    pub fn pending_reset(&self, group: &str, topic: &str, queue_id: i32) -> Option<i64> {
        if self.reset_count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.resets.lock().get(&topic_at_group(topic, group))?.get(&queue_id).copied()
    }

    /// Takes the pending reset: the pull that gets it answers OFFSET_MOVED with this offset.
    pub fn take_reset(&self, group: &str, topic: &str, queue_id: i32) -> Option<i64> {
        if self.reset_count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let key = topic_at_group(topic, group);
        let mut resets = self.resets.lock();
        let queues = resets.get_mut(&key)?;
        let offset = queues.remove(&queue_id)?;
        if queues.is_empty() {
            resets.remove(&key);
        }
        self.reset_count.fetch_sub(1, Ordering::Release);
        Some(offset)
    }

    /// Forgets all offsets of the group.
    pub fn remove_group(&self, group: &str) {
        self.groups.write().remove(group);
        self.remove_resets(|key| key.split_once('@').is_some_and(|(_, g)| g == group));
    }

    /// Forgets the offsets of every group for the topic.
    pub fn remove_topic(&self, topic: &str) {
        self.groups.write().retain(|_, topics| {
            topics.remove(topic);
            !topics.is_empty()
        });
        self.remove_resets(|key| key.split_once('@').is_some_and(|(t, _)| t == topic));
    }

    fn remove_resets(&self, gone: impl Fn(&str) -> bool) {
        let mut resets = self.resets.lock();
        resets.retain(|key, queues| {
            let remove = gone(key);
            if remove {
                self.reset_count.fetch_sub(queues.len(), Ordering::Release);
            }
            !remove
        });
        drop(resets);
        self.dirty.store(true, Ordering::Release);
        self.next_version();
    }

    /// The table in the file's shape.
    pub fn snapshot(&self) -> OffsetFile {
        let mut offset_table = self.unreadable.clone();
        let mut group_topic_map: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (group, topics) in self.groups.read().iter() {
            for (topic, queues) in topics {
                let queues: BTreeMap<i32, i64> = queues
                    .lock()
                    .iter()
                    .filter_map(|(id, queue)| Some((*id, queue.committed?)))
                    .collect();
                if !queues.is_empty() {
                    group_topic_map.entry(group.to_string()).or_default().push(topic.to_string());
                    offset_table.insert(topic_at_group(topic, group), queues);
                }
            }
        }
        let data_version = *self.version.lock();
        OffsetFile { data_version, group_topic_map, offset_table }
    }

    /// Takes over the offsets of a master; those that it does not have stay, as with RocketMQ.
    pub fn follow(&self, master: OffsetFile) {
        for (key, queues) in master.offset_table {
            let Some((topic, group)) = key.split_once('@') else { continue };
            for (queue_id, consumer_offset) in queues {
                self.set(group, topic, queue_id, |queue| queue.committed = Some(consumer_offset));
            }
        }
        *self.version.lock() = master.data_version;
        self.dirty.store(true, Ordering::Release);
    }

    /// Writes the file if anything changed since the last write.
    ///
    /// # Errors
    /// When it cannot be written; the next call tries again.
    pub fn persist(&self) -> Result<(), MetadataError> {
        let _writing = self.writing.lock();
        // Cleared before the snapshot: a commit that comes after it marks the table again.
        if !self.dirty.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        persist::save(&self.path, &self.snapshot())
            .inspect_err(|_| self.dirty.store(true, Ordering::Release))
    }
}

fn has_committed(queues: &Arc<Queues>) -> bool {
    queues.lock().values().any(|queue| queue.committed.is_some())
}

fn topic_at_group(topic: &str, group: &str) -> String {
    format!("{topic}@{group}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn table(dir: &Path) -> ConsumerOffsets {
        ConsumerOffsets::load(dir, 500).unwrap()
    }

    #[test]
    fn commits_survive_a_reload() {
        let dir = tempfile::tempdir().unwrap();
        let offsets = table(dir.path());
        offsets.commit("g", "T", 0, 5);
        offsets.commit("g", "T", 1, 7);
        offsets.commit("g", "T", 1, 6);
        offsets.commit("h", "%RETRY%h", 0, 1);
        offsets.persist().unwrap();
        let again = table(dir.path());
        assert_eq!(again.query("g", "T", 1), Some(6), "a lower offset is stored too");
        assert_eq!(again.of_topic("g", "T"), BTreeMap::from([(0, 5), (1, 6)]));
        assert_eq!(again.topics_of("h"), ["%RETRY%h"]);
        assert_eq!(again.groups_of("T"), ["g"]);
        assert_eq!(again.query("g", "T", 2), None);
    }

    #[test]
    fn reads_the_java_brokers_file() {
        let dir = tempfile::tempdir().unwrap();
        let text = "{\n\t\"dataVersion\":{\n\t\t\"counter\":3,\n\t\t\"stateVersion\":0,\n\t\t\
            \"timestamp\":1796076110821\n\t},\n\t\"groupTopicMap\":{\"G\":[\"R\"]},\n\t\
            \"offsetTable\":{\n\t\t\"R@G\":{0:1,1:1,3:0\n\t\t},\n\t\t\"%RETRY%G@G\":{0:2\n\t\t}\n\t}\n}";
        std::fs::write(dir.path().join(FILE_NAME), text).unwrap();
        let offsets = table(dir.path());
        assert_eq!(offsets.of_topic("G", "R"), BTreeMap::from([(0, 1), (1, 1), (3, 0)]));
        assert_eq!(offsets.query("G", "%RETRY%G", 0), Some(2));
        assert_eq!(offsets.version.lock().counter, 3);
    }

    #[test]
    fn odd_values_are_none_and_odd_queues_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let offsets = table(dir.path());
        offsets.commit("g", "T", 0, -5);
        offsets.commit("g", "T", -1, 5);
        offsets.commit("g", "T", QUEUE_ID_MAX + 1, 5);
        assert_eq!(offsets.query("g", "T", 0), None);
        assert_eq!(offsets.of_topic("g", "T").len(), 1);
    }

    #[test]
    fn a_reset_waits_for_one_pull_and_goes_with_its_topic() {
        let dir = tempfile::tempdir().unwrap();
        let offsets = table(dir.path());
        offsets.commit("g", "T", 0, 9);
        offsets.reset("g", "T", 0, 2);
        assert_eq!(offsets.query("g", "T", 0), Some(2));
        assert_eq!(offsets.take_reset("g", "T", 0), Some(2));
        assert_eq!(offsets.take_reset("g", "T", 0), None);
        offsets.reset("g", "T", 1, 2);
        offsets.remove_topic("T");
        assert_eq!(offsets.take_reset("g", "T", 1), None);
        assert_eq!(offsets.query("g", "T", 0), None);
        assert_eq!(offsets.reset_count.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn offsets_are_cloned_topic_by_topic_in_place_of_older_ones() {
        let dir = tempfile::tempdir().unwrap();
        let offsets = table(dir.path());
        offsets.commit("g", "T", 0, 5);
        offsets.commit("g", "U", 0, 6);
        offsets.commit("h", "T", 1, 7);
        offsets.clone_topic("g", "h", "T");
        offsets.clone_topic("nobody", "h", "T");
        assert_eq!(offsets.of_topic("h", "T"), BTreeMap::from([(0, 5)]));
        assert!(offsets.of_topic("h", "U").is_empty());
        offsets.commit("g", "T", 0, 9);
        assert_eq!(offsets.query("h", "T", 0), Some(5), "a copy");
        offsets.persist().unwrap();
        assert_eq!(table(dir.path()).query("h", "T", 0), Some(5));
    }

    #[test]
    fn a_pull_offset_alone_is_not_a_committed_one() {
        let dir = tempfile::tempdir().unwrap();
        let offsets = table(dir.path());
        offsets.pulled("g", "T", 0, 4);
        assert_eq!(offsets.query("g", "T", 0), None);
        assert!(offsets.topics_of("g").is_empty());
        assert!(offsets.snapshot().offset_table.is_empty());
    }

    #[test]
    fn removal_reaches_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let offsets = table(dir.path());
        offsets.commit("g", "T", 0, 1);
        offsets.commit("h", "T", 0, 1);
        offsets.persist().unwrap();
        offsets.remove_group("g");
        offsets.persist().unwrap();
        assert_eq!(table(dir.path()).groups_of("T"), ["h"]);
    }

    proptest! {
        #[test]
        fn the_last_commit_of_each_queue_wins(
            commits in prop::collection::vec((0..3u8, 0..3u8, 0..4i32, 0..100i64), 0..80)
        ) {
            let dir = tempfile::tempdir().unwrap();
            let offsets = table(dir.path());
            let mut model = BTreeMap::new();
            for (group, topic, queue, offset) in commits {
                let (group, topic) = (format!("g{group}"), format!("t{topic}"));
                offsets.commit(&group, &topic, queue, offset);
                model.insert((group, topic, queue), offset);
            }
            offsets.persist().unwrap();
            let again = table(dir.path());
            for ((group, topic, queue), offset) in &model {
                prop_assert_eq!(offsets.query(group, topic, *queue), Some(*offset));
                prop_assert_eq!(again.query(group, topic, *queue), Some(*offset));
            }
            let stored: usize = again.snapshot().offset_table.values().map(BTreeMap::len).sum();
            prop_assert_eq!(stored, model.len());
        }
    }
}
