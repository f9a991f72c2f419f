//! All queues of the store, by topic and number.
//!
//! Owns who exists; what a queue holds is `consume_queue`'s business.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::HashMap;
use parking_lot::{Mutex, RwLock};

use crate::consume_queue::{ConsumeQueue, QueueFiles, QueueFormat};
use crate::directory::make_directory;
use crate::error::StoreError;
use crate::file_system::FileSystem;

/// Queues of one topic.
type TopicQueues = HashMap<i32, Arc<ConsumeQueue>>;

/// Whether a topic can be the name of a directory. Which topics are allowed is the broker's
/// business; here it must only not lead out of the store or fail to be made.
pub(crate) fn is_directory_name(topic: &str) -> bool {
    !topic.is_empty()
        && topic.len() <= TOPIC_BYTES_MAX
        && topic != "."
        && topic != ".."
        && !topic.bytes().any(|byte| byte == b'/' || byte == 0)
}

/// Longest name of a directory on Linux, and RocketMQ's limit for retry topics.
pub(crate) const TOPIC_BYTES_MAX: usize = 255;

/// The table.
#[derive(Debug)]
pub(crate) struct QueueTable {
    file_system: Arc<dyn FileSystem>,
    /// Simple queues, then batch queues.
    files: [Arc<QueueFiles>; 2],
    topics: RwLock<HashMap<Arc<str>, TopicQueues>>,
    /// Number of the next queue that is made.
    next_number: AtomicU64,
    /// Queues with entries that are not in their files yet.
    unwritten: Mutex<Vec<Arc<ConsumeQueue>>>,
}

impl QueueTable {
    /// Without queues. `simple` and `batch` say where those of each format are.
    pub(crate) fn new(simple: QueueFiles, batch: QueueFiles) -> QueueTable {
        QueueTable {
            file_system: Arc::clone(&simple.file_system),
            files: [Arc::new(simple), Arc::new(batch)],
            topics: RwLock::default(),
            next_number: AtomicU64::new(0),
            unwritten: Mutex::default(),
        }
    }

    /// The queue, if it exists.
    pub(crate) fn find(&self, topic: &str, queue_id: i32) -> Option<Arc<ConsumeQueue>> {
        self.topics.read().get(topic)?.get(&queue_id).cloned()
    }

    fn files_of(&self, format: QueueFormat) -> &Arc<QueueFiles> {
        let [simple, batch] = &self.files;
        match format {
            QueueFormat::Simple => simple,
            QueueFormat::Batch => batch,
        }
    }

    /// The queue, made with this format if it does not exist. One that does may have the other.
    pub(crate) fn find_or_make(
        &self,
        topic: &str,
        queue_id: i32,
        format: QueueFormat,
    ) -> Arc<ConsumeQueue> {
        if let Some(queue) = self.find(topic, queue_id) {
            return queue;
        }
        let mut topics = self.topics.write();
        let name = match topics.get_key_value(topic) {
            Some((name, _)) => Arc::clone(name),
            None => Arc::from(topic),
        };
        let queues = topics.entry(Arc::clone(&name)).or_default();
        let queue = queues
            .entry(queue_id)
            .or_insert_with(|| self.make(name, queue_id, self.files_of(format)));
        Arc::clone(queue)
    }

    /// Numbers of the topic's queues, ascending.
    pub(crate) fn queue_ids(&self, topic: &str) -> Vec<i32> {
        let topics = self.topics.read();
        let mut ids: Vec<i32> =
            topics.get(topic).map(|queues| queues.keys().copied().collect()).unwrap_or_default();
        ids.sort_unstable();
        ids
    }

    /// Topics that have queues.
    pub(crate) fn topics(&self) -> Vec<Arc<str>> {
        let mut topics: Vec<_> = self.topics.read().keys().cloned().collect();
        topics.sort_unstable();
        topics
    }

    /// Every queue, in the order in which they were made.
    pub(crate) fn snapshot(&self) -> Vec<Arc<ConsumeQueue>> {
        let mut queues: Vec<_> =
            self.topics.read().values().flat_map(|queues| queues.values().cloned()).collect();
        queues.sort_unstable_by_key(|queue| queue.number);
        queues
    }

    /// Notes that a queue has entries in memory.
    pub(crate) fn list_unwritten(&self, queue: &Arc<ConsumeQueue>) {
        // A load first: it is cheaper, and mostly says that there is nothing to do.
        if !queue.listed.load(Ordering::Acquire) && !queue.listed.swap(true, Ordering::AcqRel) {
            self.unwritten.lock().push(Arc::clone(queue));
        }
    }

    /// Takes the list of queues with entries in memory.
    pub(crate) fn take_unwritten(&self) -> Vec<Arc<ConsumeQueue>> {
        let queues = std::mem::take(&mut *self.unwritten.lock());
        for queue in &queues {
            queue.listed.store(false, Ordering::Release);
        }
        queues
    }

    /// Takes a topic out and removes its files. The caller holds the append lock, so that no
    /// message is on its way into one of the queues. False if there was neither.
    pub(crate) fn remove_topic(&self, topic: &str) -> Result<bool, StoreError> {
        if !is_directory_name(topic) {
            return Ok(false);
        }
        let queues = self.topics.write().remove(topic);
        let existed = queues.is_some();
        for queue in queues.iter().flat_map(|queues| queues.values()) {
            queue.set_removed();
        }
        // Also without queues: an earlier attempt may have been stopped halfway.
        let mut found = existed;
        for root in self.roots() {
            if self.remove_directory(&root.join(topic))? {
                found = true;
                self.file_system
                    .sync_directory(root)
                    .map_err(StoreError::io("sync directory", root))?;
            }
        }
        Ok(found)
    }

    /// The directories that hold queues by topic.
    fn roots(&self) -> impl Iterator<Item = &PathBuf> {
        let ext = self.files.iter().filter_map(|files| files.ext.as_ref());
        self.files.iter().map(|files| &files.directory).chain(ext.map(|ext| &ext.directory))
    }

    /// The directory of simple queues.
    pub(crate) fn directory(&self) -> &Path {
        &self.files_of(QueueFormat::Simple).directory
    }

    /// Removes a directory with all it holds. False if it was not there.
    fn remove_directory(&self, directory: &Path) -> Result<bool, StoreError> {
        match self.file_system.remove_directory(directory) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(StoreError::io("remove directory", directory)(error)),
        }
    }

    /// Takes out the queues of a topic whose records all lie in front of `end`. For recovery: the
    /// topic was deleted then, and its files were not removed to the last.
    pub(crate) fn remove_queues_in_front_of(
        &self,
        topic: &str,
        end: i64,
    ) -> Result<(), StoreError> {
        // One without entries is built anew from what the log holds of a new topic of that name.
        let is_old = |queue: &ConsumeQueue| (1..=end).contains(&queue.max_physical());
        let queues: Vec<_> = {
            let topics = self.topics.read();
            topics.get(topic).into_iter().flat_map(TopicQueues::values).cloned().collect()
        };
        if queues.iter().all(|queue| is_old(queue)) {
            return self.remove_topic(topic).map(drop);
        }
        for queue in queues.iter().filter(|queue| is_old(queue)) {
            queue.clear()?;
            queue.remove_empty_directory()?;
            self.forget(queue);
        }
        Ok(())
    }

    /// Takes out a queue that has neither entries nor files.
    pub(crate) fn forget(&self, queue: &ConsumeQueue) {
        let mut topics = self.topics.write();
        if let Some(queues) = topics.get_mut(queue.topic()) {
            queues.remove(&queue.queue_id());
            if queues.is_empty() {
                topics.remove(queue.topic());
            }
        }
    }

    /// Removes the directories of a queue that was taken out, durably.
    pub(crate) fn remove_directory_of(&self, queue: &ConsumeQueue) -> Result<(), StoreError> {
        for root in self.roots() {
            let topic = root.join(&**queue.topic());
            if self.remove_directory(&topic.join(queue.queue_id().to_string()))? {
                self.file_system
                    .sync_directory(&topic)
                    .map_err(StoreError::io("sync directory", &topic))?;
            }
        }
        Ok(())
    }

    /// Takes queues of a topic out and removes their files, and the topic with the last of them.
    /// The caller holds the append lock, as for [`QueueTable::remove_topic`].
    pub(crate) fn remove_queues(
        &self,
        topic: &str,
        mut wanted: impl FnMut(&ConsumeQueue) -> bool,
    ) -> Result<usize, StoreError> {
        let mut removed = Vec::new();
        {
            let mut topics = self.topics.write();
            let Some(queues) = topics.get_mut(topic) else { return Ok(0) };
            if queues.values().all(|queue| wanted(queue)) {
                let count = queues.len();
                drop(topics);
                return self.remove_topic(topic).map(|_| count);
            }
            queues.retain(|_, queue| {
                let goes = wanted(queue);
                if goes {
                    removed.push(Arc::clone(queue));
                }
                !goes
            });
        }
        for queue in &removed {
            queue.set_removed();
            for root in self.roots() {
                self.remove_directory(&root.join(topic).join(queue.queue_id().to_string()))?;
            }
        }
        if !removed.is_empty() {
            for files in &self.files {
                let directory = files.topic_directory(topic);
                match self.file_system.sync_directory(&directory) {
                    Ok(()) => {}
                    // None of its queues was written yet.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(StoreError::io("sync directory", &directory)(error)),
                }
            }
        }
        Ok(removed.len())
    }

    /// Opens every `<topic>/<queue id>` directory. Returns what is no such thing, and the queues
    /// that have a directory but no entry. `vouched_end` is that of [`ConsumeQueue::load`].
    pub(crate) fn load(&self, vouched_end: Option<i64>) -> Result<LoadedTable, StoreError> {
        let mut loaded = LoadedTable::default();
        for files in &self.files {
            self.load_format(files, vouched_end, &mut loaded)?;
        }
        Ok(loaded)
    }

    fn load_format(
        &self,
        files: &Arc<QueueFiles>,
        vouched_end: Option<i64>,
        loaded: &mut LoadedTable,
    ) -> Result<(), StoreError> {
        let file_system = &self.file_system;
        let root = &files.directory;
        make_directory(&**file_system, root)?;
        for topic in file_system.list(root).map_err(StoreError::io("list", root))? {
            let directory = root.join(&topic.name);
            // A name that is not UTF-8 was listed with replacements and leads nowhere.
            if !topic.is_directory
                || !is_directory_name(&topic.name)
                || topic.name.contains(char::REPLACEMENT_CHARACTER)
            {
                loaded.foreign.push(directory);
                continue;
            }
            for queue in file_system.list(&directory).map_err(StoreError::io("list", &directory))? {
                let path = directory.join(&queue.name);
                let id = queue.name.parse::<i32>().ok();
                let Some(queue_id) =
                    id.filter(|id| *id >= 0 && id.to_string() == queue.name && queue.is_directory)
                else {
                    loaded.foreign.push(path);
                    continue;
                };
                let made = self.find(&topic.name, queue_id);
                let queue = match &made {
                    Some(other) => self.make(Arc::clone(other.topic()), queue_id, files),
                    None => self.find_or_make(&topic.name, queue_id, files.format),
                };
                loaded.foreign.extend(queue.load(vouched_end)?.foreign);
                if let Some(other) = made {
                    self.settle(&other, &queue)?;
                    loaded.empty.retain(|empty| !Arc::ptr_eq(empty, &other));
                }
                let Some(queue) = self.find(&topic.name, queue_id) else { continue };
                if queue.max_offset() == 0 || (vouched_end.is_some() && queue.is_bare()) {
                    loaded.empty.push(queue);
                }
            }
        }
        Ok(())
    }

    /// Lets the newer of two queues with one name stay. They are of both formats: the topic was
    /// deleted and made again with the other one, and a crash kept files of the first.
    fn settle(&self, one: &ConsumeQueue, other: &Arc<ConsumeQueue>) -> Result<(), StoreError> {
        let other_stays = other.max_physical() > one.max_physical();
        let leftover = if other_stays { one } else { other };
        tracing::warn!(
            topic = &**leftover.topic(),
            queue_id = leftover.queue_id(),
            format = ?leftover.format(),
            "queue is there in both formats, its files in the older one are removed"
        );
        leftover.clear()?;
        leftover.remove_empty_directory()?;
        if other_stays {
            self.put(Arc::clone(other));
        }
        Ok(())
    }

    /// Puts a queue without entries of this format in the place of one of the other, which has none
    /// either.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn remake(
        &self,
        queue: &ConsumeQueue,
        format: QueueFormat,
    ) -> Result<Arc<ConsumeQueue>, StoreError> {
        queue.remove_empty_directory()?;
        let name = Arc::clone(queue.topic());
        let made = self.make(name, queue.queue_id(), self.files_of(format));
        self.put(Arc::clone(&made));
        Ok(made)
    }

    fn make(&self, topic: Arc<str>, queue_id: i32, files: &Arc<QueueFiles>) -> Arc<ConsumeQueue> {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        Arc::new(ConsumeQueue::new(topic, queue_id, number, Arc::clone(files)))
    }

    fn put(&self, queue: Arc<ConsumeQueue>) {
        let mut topics = self.topics.write();
        topics.entry(Arc::clone(queue.topic())).or_default().insert(queue.queue_id(), queue);
    }
}

/// What [`QueueTable::load`] found beside sound queues.
#[derive(Debug, Default)]
pub(crate) struct LoadedTable {
    /// Left alone.
    pub(crate) foreign: Vec<PathBuf>,
    /// Queues with a directory but without entries.
    pub(crate) empty: Vec<Arc<ConsumeQueue>>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consume_queue::Unit;
    use crate::file_system::RealFileSystem;

    fn table(directory: &Path) -> QueueTable {
        let [simple, batch] = QueueFormat::ALL.map(|format| QueueFiles {
            file_system: Arc::new(RealFileSystem),
            format,
            directory: directory.join(format.directory_name()),
            file_bytes: 8 * format.unit_bytes() as u64,
            ext: None,
            open_files: Default::default(),
        });
        QueueTable::new(simple, batch)
    }

    #[test]
    fn directories_become_queues_and_the_rest_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("consumequeue");
        for sub in ["A/0", "A/11", "A/x", "A/-1", "A/007", "%RETRY%g/0"] {
            std::fs::create_dir_all(root.join(sub)).unwrap();
        }
        std::fs::write(root.join("stray"), b"").unwrap();
        let table = table(directory.path());
        let loaded = table.load(None).unwrap();
        assert_eq!(table.queue_ids("A"), [0, 11]);
        assert_eq!(table.topics(), ["%RETRY%g".into(), "A".into()]);
        assert_eq!(loaded.empty.len(), 3);
        let mut foreign = loaded.foreign;
        foreign.sort();
        let expected = ["A/-1", "A/007", "A/x", "stray"].map(|name| root.join(name));
        assert_eq!(foreign, expected);
    }

    #[test]
    fn a_removed_topic_takes_its_files_along() {
        let directory = tempfile::tempdir().unwrap();
        let table = table(directory.path());
        let queue = table.find_or_make("A", 0, QueueFormat::Simple);
        queue.push(0, Unit { physical_offset: 0, size: 10, tags_code: 0 });
        queue.write_tail().unwrap();
        assert!(directory.path().join("consumequeue/A/0").exists());
        assert!(table.remove_topic("A").unwrap());
        assert!(!table.remove_topic("A").unwrap());
        assert!(!directory.path().join("consumequeue/A").exists());
        assert!(queue.is_removed() && table.find("A", 0).is_none());
        queue.push(1, Unit { physical_offset: 10, size: 10, tags_code: 0 });
        queue.write_tail().unwrap();
        queue.sync().unwrap();
        assert!(!directory.path().join("consumequeue/A").exists(), "it does not come back");
        assert_eq!(table.find_or_make("A", 0, QueueFormat::Batch).max_offset(), 0);
    }

    #[test]
    fn names_that_lead_out_are_refused() {
        for topic in ["", ".", "..", "a/b", "/", "a\0b", &"x".repeat(256)] {
            assert!(!is_directory_name(topic), "{topic:?}");
        }
        assert!(is_directory_name("%RETRY%group") && is_directory_name(&"x".repeat(255)));
    }
}
