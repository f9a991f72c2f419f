//! Topic settings (TopicConfigManager): lookup on the hot path, automatic creation, changes by
//! administrators, `config/topics.json`.
//!
//! A change is written to the file before it is published, so nothing that was answered is lost
//! in a crash: an acknowledged message always has its topic. The price is two syncs for a new
//! topic, once in its life. Readers take a snapshot without a lock.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard};
use rocketmq_protocol::body::{DataVersion, TopicConfig};
use rocketmq_protocol::code::ResponseCode;
use rocketmq_protocol::names;
use serde::{Deserialize, Serialize};
use tracing::info;

use super::attributes::{self, AttributeError, Attributes};
use super::consumer_offset::QUEUE_ID_MAX;
use super::perm;
use super::persist::{self, MetadataError};
use crate::change_signal::ChangeSignal;
use crate::clock::now_ms;
use crate::config::BrokerConfig;

/// `topics.json` below the store's config directory.
pub const FILE_NAME: &str = "topics.json";

/// Topics by name.
pub type TopicMap = HashMap<Arc<str>, Arc<TopicConfig>, foldhash::fast::RandomState>;

/// Most queues a topic may have.
pub const QUEUES_MAX: i32 = QUEUE_ID_MAX + 1;

/// Why a topic is not created or changed.
#[derive(Debug, thiserror::Error)]
pub enum TopicError {
    /// The name is blank, too long, or has other characters than `%|a-zA-Z0-9_-`.
    #[error("{0}")]
    Name(#[from] names::NameError),
    /// A name that the broker reserves.
    #[error("The topic[{0}] is conflict with system topic.")]
    System(String),
    /// A queue count or permission out of range.
    #[error("topic {topic}: {field} is {value}, allowed is {allowed}")]
    Range {
        /// The topic.
        topic: String,
        /// `readQueueNums`, `writeQueueNums` or `perm`.
        field: &'static str,
        /// What was asked for.
        value: i32,
        /// The range.
        allowed: String,
    },
    /// `message.type` MIXED without `enableMixedMessageType`.
    #[error("MIXED message type is not supported.")]
    Mixed,
    /// The attributes are refused.
    #[error(transparent)]
    Attribute(#[from] AttributeError),
    /// `topics.json` cannot be written; nothing was changed.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
}

impl TopicError {
    /// The code RocketMQ 5 answers with.
    pub fn response_code(&self) -> ResponseCode {
        match self {
            Self::Name(_) | Self::System(_) | Self::Range { .. } | Self::Mixed => {
                ResponseCode::INVALID_PARAMETER
            }
            Self::Attribute(_) | Self::Metadata(_) => ResponseCode::SYSTEM_ERROR,
        }
    }
}

/// All topics of this broker.
pub struct TopicTable {
    topics: ArcSwap<TopicMap>,
    /// Held by whoever changes the table, from reading it to publishing the new one.
    writer: Mutex<Writer>,
    changes: Arc<ChangeSignal>,
    reserved: HashSet<String>,
}

struct Writer {
    path: PathBuf,
    version: DataVersion,
    /// Top-level keys of the file that this broker does not know, written back unchanged.
    other: BTreeMap<String, serde_json::Value>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct File {
    data_version: DataVersion,
    topic_config_table: BTreeMap<String, TopicConfig>,
    #[serde(flatten)]
    other: BTreeMap<String, serde_json::Value>,
}

impl TopicTable {
    /// Loads `topics.json` from `config_dir` and adds the system topics that are missing.
    ///
    /// # Errors
    /// When the file is damaged beyond its `.bak`, or the system topics cannot be written.
    pub fn load(
        config_dir: &Path,
        config: &BrokerConfig,
        changes: Arc<ChangeSignal>,
    ) -> Result<Self, MetadataError> {
        let path = config_dir.join(FILE_NAME);
        let file: File = persist::load(&path)?.unwrap_or_default();
        let mut topics = TopicMap::default();
        for (name, mut topic) in file.topic_config_table {
            topic.topic_name.clone_from(&name);
            topics.insert(name.into(), Arc::new(topic));
        }
        let mut writer = Writer { path, version: file.data_version, other: file.other };
        let mut added = false;
        for topic in system_topics(config) {
            let name: Arc<str> = topic.topic_name.as_str().into();
            // What the file says stays, as in Java: an administrator may have changed it.
            topics.entry(name).or_insert_with(|| {
                added = true;
                Arc::new(topic)
            });
        }
        if added {
            writer.version.next(now_ms());
            writer.save(&topics)?;
        }
        Ok(Self {
            topics: ArcSwap::from_pointee(topics),
            writer: Mutex::new(writer),
            changes,
            reserved: reserved_names(config),
        })
    }

    /// The topic's settings; cheap, for the hot path.
    pub fn get(&self, topic: &str) -> Option<Arc<TopicConfig>> {
        self.topics.load().get(topic).cloned()
    }

    /// Whether the topic exists.
    pub fn contains(&self, topic: &str) -> bool {
        self.topics.load().contains_key(topic)
    }

    /// All topics as they are now.
    pub fn snapshot(&self) -> Arc<TopicMap> {
        self.topics.load_full()
    }

    /// All topics and the data version that belongs to them.
    pub fn versioned_snapshot(&self) -> (DataVersion, Arc<TopicMap>) {
        let writer = self.writer.lock();
        (writer.version, self.topics.load_full())
    }

    /// Increases the data version without a change of topics, so that name servers take the next
    /// registration as news (a changed `brokerPermission` is one).
    ///
    /// # Errors
    /// When `topics.json` cannot be written.
    pub fn touch(&self) -> Result<(), MetadataError> {
        self.change(|_| ())
    }

    /// Whether the name belongs to the broker: administrators may not create or delete it.
    pub fn is_system(&self, topic: &str) -> bool {
        self.reserved.contains(topic) || names::is_system_topic(topic)
    }

    /// All names that the broker reserves, existing or not, sorted.
    pub fn reserved_names(&self) -> Vec<String> {
        let mut reserved: Vec<String> = self.reserved.iter().cloned().collect();
        reserved.sort_unstable();
        reserved
    }

    /// Creates the topic of a SEND after the pattern of `default_topic` (TBW102), if that one
    /// passes its settings on. `queue_nums` is what the client asks for, `sys_flag` the topic's.
    ///
    /// `None`: it may not be created, the answer is TOPIC_NOT_EXIST.
    ///
    /// # Errors
    /// When `topics.json` cannot be written; the topic does not exist then.
    pub fn create_on_send(
        &self,
        topic: &str,
        default_topic: &str,
        queue_nums: i32,
        sys_flag: i32,
        config: &BrokerConfig,
    ) -> Result<Option<Arc<TopicConfig>>, MetadataError> {
        let writer = self.writer.lock();
        if let Some(existing) = self.get(topic) {
            return Ok(Some(existing));
        }
        let Some(pattern) = self.get(default_topic) else { return Ok(None) };
        // A TBW102 that an older configuration left behind passes nothing on any more.
        let inherits = pattern.perm & perm::INHERIT != 0
            && (default_topic != names::AUTO_CREATE_TOPIC || config.auto_create_topic_enable);
        let queues = queue_nums.min(pattern.write_queue_nums);
        // The Java broker would make a topic without queues, which nobody can ever use.
        if !inherits || queues <= 0 || names::validate_topic(topic).is_err() {
            return Ok(None);
        }
        let created = TopicConfig {
            topic_name: topic.to_owned(),
            read_queue_nums: queues,
            write_queue_nums: queues,
            perm: pattern.perm & !perm::INHERIT,
            topic_filter_type: pattern.topic_filter_type.clone(),
            topic_sys_flag: sys_flag,
            ..TopicConfig::default()
        };
        self.insert(writer, created).map(Some)
    }

    /// Creates a topic that the broker itself needs, such as `%RETRY%group`; returns the existing
    /// one if there is one.
    ///
    /// # Errors
    /// When `topics.json` cannot be written; the topic does not exist then.
    pub fn create_internal(
        &self,
        topic: &str,
        queue_nums: i32,
        perm: i32,
    ) -> Result<Arc<TopicConfig>, MetadataError> {
        if let Some(existing) = self.get(topic) {
            return Ok(existing);
        }
        let writer = self.writer.lock();
        if let Some(existing) = self.get(topic) {
            return Ok(existing);
        }
        self.insert(writer, internal(topic, queue_nums, perm))
    }

    /// Adds topics that are not there yet, as they are.
    ///
    /// # Errors
    /// When `topics.json` cannot be written; nothing was added then.
    pub fn add_missing(&self, topics: Vec<TopicConfig>) -> Result<(), MetadataError> {
        self.change(|known| {
            for topic in topics {
                let name: Arc<str> = topic.topic_name.as_str().into();
                known.entry(name).or_insert_with(|| Arc::new(topic));
            }
        })
    }

    fn insert(
        &self,
        writer: MutexGuard<'_, Writer>,
        topic: TopicConfig,
    ) -> Result<Arc<TopicConfig>, MetadataError> {
        info!(
            topic = topic.topic_name,
            queues = topic.write_queue_nums,
            perm = topic.perm,
            "topic created"
        );
        let topic = Arc::new(topic);
        self.change_locked(writer, |topics| {
            topics.insert(topic.topic_name.as_str().into(), topic.clone());
        })?;
        Ok(topic)
    }

    /// Creates or changes topics for an administrator, all or none. `attributes` in the given
    /// configs are signed changes (`+key`, `-key`); none keep what is stored. Returns whether
    /// anything differs from before.
    ///
    /// # Errors
    /// When one of them is not allowed, or `topics.json` cannot be written.
    pub fn update(
        &self,
        wanted: Vec<TopicConfig>,
        config: &BrokerConfig,
    ) -> Result<bool, TopicError> {
        for topic in &wanted {
            self.validate(topic, config)?;
        }
        let writer = self.writer.lock();
        let current = self.topics.load();
        let mut changed = Vec::new();
        for mut topic in wanted {
            let existing = current.get(topic.topic_name.as_str());
            topic.attributes = attributes::apply_to_topic(
                existing.map(|existing| &existing.attributes),
                &topic.attributes,
            )?;
            if existing.is_none_or(|existing| **existing != topic) {
                info!(
                    topic = topic.topic_name,
                    read_queues = topic.read_queue_nums,
                    write_queues = topic.write_queue_nums,
                    perm = topic.perm,
                    created = existing.is_none(),
                    "topic changed"
                );
                changed.push(Arc::new(topic));
            }
        }
        drop(current);
        if changed.is_empty() {
            return Ok(false);
        }
        self.change_locked(writer, |topics| {
            for topic in changed {
                topics.insert(topic.topic_name.as_str().into(), topic);
            }
        })?;
        Ok(true)
    }

    fn validate(&self, topic: &TopicConfig, config: &BrokerConfig) -> Result<(), TopicError> {
        let name = &topic.topic_name;
        names::validate_topic(name)?;
        if config.validate_system_topic_when_update_topic && self.is_system(name) {
            return Err(TopicError::System(name.clone()));
        }
        let range = |field, value, low: i32, high: i32| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            let allowed = format!("{low} to {high}");
            Err(TopicError::Range { topic: name.clone(), field, value, allowed })
        };
        range("readQueueNums", topic.read_queue_nums, 0, QUEUES_MAX)?;
        range("writeQueueNums", topic.write_queue_nums, 0, QUEUES_MAX)?;
        range("perm", topic.perm, 0, perm::ALL)?;
        let message_type = topic.attributes.get(&format!("+{}", attributes::MESSAGE_TYPE));
        if message_type.is_some_and(|kind| kind == "MIXED") && !config.enable_mixed_message_type {
            return Err(TopicError::Mixed);
        }
        Ok(())
    }

    /// Removes the topic. `remove_data` deletes its queues and offsets; it runs after the topic
    /// is hidden from sends and pulls and before the removal is written down, with changes of
    /// topics held off: if the broker dies in between, the topic is still there and the deletion
    /// can be repeated, but its old queues can never turn up under a new topic of that name.
    ///
    /// # Errors
    /// When `remove_data` fails or `topics.json` cannot be written; the topic is back then.
    pub fn delete<E: From<MetadataError>>(
        &self,
        topic: &str,
        remove_data: impl FnOnce() -> Result<(), E>,
    ) -> Result<bool, E> {
        let mut writer = self.writer.lock();
        let before = self.topics.load_full();
        if !before.contains_key(topic) {
            // Queues may be left of an earlier life; the request means that they go.
            remove_data()?;
            return Ok(false);
        }
        let mut after = (*before).clone();
        after.remove(topic);
        let after = Arc::new(after);
        self.topics.store(after.clone());
        let version = writer.version;
        writer.version.next(now_ms());
        let written = remove_data().and_then(|()| writer.save(&after).map_err(E::from));
        if let Err(error) = written {
            writer.version = version;
            self.topics.store(before);
            return Err(error);
        }
        drop(writer);
        self.changes.changed();
        info!(topic, "topic deleted");
        Ok(true)
    }

    /// Runs `remove_data` if the topic does not exist, with changes of topics held off, so that it
    /// cannot be created meanwhile.
    pub fn if_absent<T>(&self, topic: &str, remove_data: impl FnOnce() -> T) -> Option<T> {
        let _writer = self.writer.lock();
        (!self.contains(topic)).then(remove_data)
    }

    /// Takes over the topics of a master, version and all. Returns the names that are gone.
    ///
    /// # Errors
    /// When `topics.json` cannot be written; nothing is changed then.
    pub fn follow(
        &self,
        version: DataVersion,
        topics: BTreeMap<String, TopicConfig>,
    ) -> Result<Vec<String>, MetadataError> {
        let mut writer = self.writer.lock();
        if writer.version == version {
            return Ok(Vec::new());
        }
        let mut followed = TopicMap::default();
        for (name, mut topic) in topics {
            topic.topic_name.clone_from(&name);
            followed.insert(name.into(), Arc::new(topic));
        }
        let before = std::mem::replace(&mut writer.version, version);
        if let Err(error) = writer.save(&followed) {
            writer.version = before;
            return Err(error);
        }
        let gone = self
            .topics
            .load()
            .keys()
            .filter(|name| !followed.contains_key(*name))
            .map(|name| name.to_string())
            .collect();
        self.topics.store(Arc::new(followed));
        drop(writer);
        self.changes.changed();
        Ok(gone)
    }

    fn change(&self, edit: impl FnOnce(&mut TopicMap)) -> Result<(), MetadataError> {
        self.change_locked(self.writer.lock(), edit)
    }

    fn change_locked(
        &self,
        mut writer: MutexGuard<'_, Writer>,
        edit: impl FnOnce(&mut TopicMap),
    ) -> Result<(), MetadataError> {
        let mut topics = (*self.topics.load_full()).clone();
        edit(&mut topics);
        let version = writer.version;
        writer.version.next(now_ms());
        if let Err(error) = writer.save(&topics) {
            writer.version = version;
            return Err(error);
        }
        self.topics.store(Arc::new(topics));
        drop(writer);
        self.changes.changed();
        Ok(())
    }
}

impl Writer {
    fn save(&self, topics: &TopicMap) -> Result<(), MetadataError> {
        let file = File {
            data_version: self.version,
            topic_config_table: topics
                .iter()
                .map(|(name, topic)| (name.to_string(), (**topic).clone()))
                .collect(),
            other: self.other.clone(),
        };
        persist::save(&self.path, &file)
    }
}

fn internal(name: impl Into<String>, queues: i32, perm: i32) -> TopicConfig {
    TopicConfig {
        topic_name: name.into(),
        read_queue_nums: queues,
        write_queue_nums: queues,
        perm,
        ..TopicConfig::default()
    }
}

/// The topics that every broker has (TopicConfigManager.init).
fn system_topics(config: &BrokerConfig) -> Vec<TopicConfig> {
    const RW: i32 = perm::READ | perm::WRITE;
    let cluster = &config.broker_cluster_name;
    let broker = &config.broker_name;
    let delay_levels = i32::try_from(config.message_delay_level.split_whitespace().count());
    let shared = |enabled: bool| if enabled { perm::INHERIT | RW } else { perm::INHERIT };
    let mut topics = vec![
        internal(names::SELF_TEST_TOPIC, 1, RW),
        internal("BenchmarkTest", 1024, RW),
        internal(cluster, 16, shared(config.cluster_topic_enable)),
        internal(broker, 1, shared(config.broker_topic_enable)),
        internal(names::OFFSET_MOVED_EVENT, 1, RW),
        internal(names::SCHEDULE_TOPIC, delay_levels.unwrap_or(18).max(1), RW),
        internal(format!("{cluster}_REPLY_TOPIC"), 1, RW),
        internal(names::TRANS_HALF_TOPIC, 1, RW),
        internal(names::TRANS_OP_HALF_TOPIC, 1, RW),
        internal(format!("rmq_sys_REVIVE_LOG_{cluster}"), config.revive_queue_num, RW),
        internal(format!("rmq_sys_SYNC_BROKER_MEMBER_{broker}"), 1, perm::INHERIT),
    ];
    if config.auto_create_topic_enable {
        let queues = config.default_topic_queue_nums;
        topics.push(internal(names::AUTO_CREATE_TOPIC, queues, perm::INHERIT | RW));
    }
    if config.trace_topic_enable {
        topics.push(internal(&config.msg_trace_topic_name, 1, RW));
    }
    if config.timer_wheel_enable {
        topics.push(internal(names::TIMER_TOPIC, 1, RW));
    }
    topics
}

/// Every reserved name: the system topics, existing or not.
fn reserved_names(config: &BrokerConfig) -> HashSet<String> {
    let mut reserved: HashSet<String> =
        system_topics(config).into_iter().map(|topic| topic.topic_name).collect();
    for name in names::system_topics() {
        reserved.insert((*name).to_owned());
    }
    reserved.insert(names::TIMER_TOPIC.to_owned());
    reserved.insert(config.msg_trace_topic_name.clone());
    reserved
}

/// The attributes of a request in text form; see [`attributes::parse`].
///
/// # Errors
/// When the text is malformed.
pub fn parse_attributes(text: &str) -> Result<Attributes, TopicError> {
    Ok(attributes::parse(text)?)
}

#[cfg(test)]
mod tests;
