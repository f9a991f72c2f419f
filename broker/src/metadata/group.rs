//! Subscription group settings (SubscriptionGroupManager): lookup with automatic creation,
//! changes by administrators, `config/subscriptionGroup.json`.
//!
//! An administrator's change is written before it is answered. A group that merely turned up is
//! published at once and written soon after: if it is lost in a crash, the next request of its
//! members makes it again.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rocketmq_protocol::body::{DataVersion, SubscriptionGroupConfig};
use rocketmq_protocol::code::ResponseCode;
use rocketmq_protocol::names;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tracing::info;

use super::attributes::{self, AttributeError};
use super::persist::{self, MetadataError};
use super::topic::QUEUES_MAX;
use crate::clock::now_ms;
use crate::config::BrokerConfig;

/// `subscriptionGroup.json` below the store's config directory.
pub const FILE_NAME: &str = "subscriptionGroup.json";

/// Groups by name.
pub type GroupMap = HashMap<Arc<str>, Arc<SubscriptionGroupConfig>, foldhash::fast::RandomState>;

/// Per group and topic, the bits of what is forbidden (UPDATE_AND_GET_GROUP_FORBIDDEN).
pub type ForbiddenTable = BTreeMap<String, BTreeMap<String, i32>>;

/// The bit that forbids a group to read a topic (PermName.INDEX_PERM_READ).
const FORBIDDEN_READ: i32 = 1 << 2;

/// Groups that every broker has (SubscriptionGroupManager.init); all but the last two kinds are
/// used by Apache's own tools. The flag: whether broadcast consumption is on.
const BUILT_IN: [(&str, bool); 8] = [
    ("TOOLS_CONSUMER", false),
    ("FILTERSRV_CONSUMER", false),
    ("SELF_TEST_C_GROUP", false),
    ("CID_ONS-HTTP-PROXY", true),
    ("CID_ONSAPI_PULL", true),
    ("CID_ONSAPI_PERMISSION", true),
    ("CID_ONSAPI_OWNER", true),
    ("CID_RMQ_SYS_TRANS", true),
];

/// Why a group is not created or changed.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// No name at all, a longer one than any client can use, or one that no directory can have.
    #[error(
        "group name `{name}` has {} bytes, allowed are 1 to {max} without a slash or a zero byte",
        name.len(),
        max = names::GROUP_NAME_BYTES_MAX
    )]
    Name {
        /// The name.
        name: String,
    },
    /// A retry topic could not be made of it.
    #[error("group {group}: retryQueueNums is {value}, allowed is 0 to {QUEUES_MAX}")]
    RetryQueues {
        /// The group.
        group: String,
        /// What was asked for.
        value: i32,
    },
    /// The attributes are refused.
    #[error(transparent)]
    Attribute(#[from] AttributeError),
    /// `subscriptionGroup.json` cannot be written; nothing was changed.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
}

impl GroupError {
    /// The code RocketMQ 5 answers with.
    pub fn response_code(&self) -> ResponseCode {
        ResponseCode::SYSTEM_ERROR
    }
}

/// All subscription groups of this broker.
pub struct GroupTable {
    groups: ArcSwap<GroupMap>,
    /// Which groups may not read which topics; empty nearly always.
    forbidden: ArcSwap<ForbiddenTable>,
    /// Held by whoever changes the table, from reading it to publishing the new one.
    writer: Mutex<Writer>,
    dirty: AtomicBool,
    /// `autoCreateSubscriptionGroup` and `enableCreateSysGroup`.
    auto_create: AtomicBool,
    create_system: AtomicBool,
    /// Wakes the task that writes groups which turned up.
    appeared: Notify,
}

struct Writer {
    path: PathBuf,
    version: DataVersion,
    /// The same as is published.
    forbidden: ForbiddenTable,
    other: BTreeMap<String, serde_json::Value>,
}

/// The file's shape, also the body of GET_ALL_SUBSCRIPTIONGROUP_CONFIG.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupFile {
    data_version: DataVersion,
    forbidden_table: ForbiddenTable,
    subscription_group_table: BTreeMap<String, SubscriptionGroupConfig>,
    #[serde(flatten)]
    other: BTreeMap<String, serde_json::Value>,
}

impl GroupTable {
    /// Loads `subscriptionGroup.json` from `config_dir` and adds the built-in groups.
    ///
    /// # Errors
    /// When the file is damaged beyond its `.bak`, or the built-in groups cannot be written.
    pub fn load(config_dir: &Path, config: &BrokerConfig) -> Result<Self, MetadataError> {
        let path = config_dir.join(FILE_NAME);
        let file: GroupFile = persist::load(&path)?.unwrap_or_default();
        let mut groups = GroupMap::default();
        for (name, mut group) in file.subscription_group_table {
            group.group_name.clone_from(&name);
            groups.insert(name.into(), Arc::new(group));
        }
        let writer = Writer {
            path,
            version: file.data_version,
            forbidden: file.forbidden_table,
            other: file.other,
        };
        let mut added = false;
        for (name, broadcast) in BUILT_IN {
            groups.entry(name.into()).or_insert_with(|| {
                added = true;
                let consume_broadcast_enable =
                    broadcast || default_group(name).consume_broadcast_enable;
                Arc::new(SubscriptionGroupConfig {
                    consume_broadcast_enable,
                    ..default_group(name)
                })
            });
        }
        if added {
            writer.save(&groups)?;
        }
        Ok(Self {
            groups: ArcSwap::from_pointee(groups),
            forbidden: ArcSwap::from_pointee(writer.forbidden.clone()),
            writer: Mutex::new(writer),
            dirty: AtomicBool::new(false),
            auto_create: AtomicBool::new(config.auto_create_subscription_group),
            create_system: AtomicBool::new(config.enable_create_sys_group),
            appeared: Notify::new(),
        })
    }

    /// Follows a change of the broker's configuration.
    pub fn configure(&self, config: &BrokerConfig) {
        self.auto_create.store(config.auto_create_subscription_group, Ordering::Relaxed);
        self.create_system.store(config.enable_create_sys_group, Ordering::Relaxed);
    }

    /// The group's settings, if it exists; cheap, for the hot path.
    pub fn get(&self, group: &str) -> Option<Arc<SubscriptionGroupConfig>> {
        self.groups.load().get(group).cloned()
    }

    /// The group's settings; an unknown group is created with the defaults when
    /// `autoCreateSubscriptionGroup` is on (or it is a system group and `enableCreateSysGroup` is
    /// on) and its name is valid. `None`: the answer is SUBSCRIPTION_GROUP_NOT_EXIST.
    pub fn get_or_create(&self, group: &str) -> Option<Arc<SubscriptionGroupConfig>> {
        if let Some(found) = self.get(group) {
            return Some(found);
        }
        let system = self.create_system.load(Ordering::Relaxed)
            && group.starts_with(names::SYSTEM_GROUP_PREFIX);
        if !self.auto_create.load(Ordering::Relaxed) && !system {
            return None;
        }
        names::validate_group(group).ok()?;
        let mut writer = self.writer.lock();
        if let Some(found) = self.get(group) {
            return Some(found);
        }
        let created = Arc::new(default_group(group));
        let mut groups = (*self.groups.load_full()).clone();
        groups.insert(group.into(), created.clone());
        self.groups.store(Arc::new(groups));
        writer.version.next(now_ms());
        drop(writer);
        self.dirty.store(true, Ordering::Release);
        self.appeared.notify_one();
        info!(group, "subscription group created");
        Some(created)
    }

    /// Whether the group is forbidden to read the topic; cheap, for the hot path.
    pub fn is_read_forbidden(&self, group: &str, topic: &str) -> bool {
        let forbidden = self.forbidden.load();
        !forbidden.is_empty()
            && forbidden
                .get(group)
                .and_then(|topics| topics.get(topic))
                .is_some_and(|bits| *bits > 0 && bits & FORBIDDEN_READ != 0)
    }

    /// Forbids the group to read the topic, or allows it again.
    ///
    /// # Errors
    /// When the file cannot be written; nothing is changed then.
    pub fn forbid_read(&self, group: &str, topic: &str, forbid: bool) -> Result<(), MetadataError> {
        self.change_all(|_, forbidden| {
            let topics = forbidden.entry(group.to_owned()).or_default();
            let bits = topics.entry(topic.to_owned()).or_default();
            let known = (*bits).max(0);
            *bits = if forbid { known | FORBIDDEN_READ } else { known & !FORBIDDEN_READ };
            topics.retain(|_, bits| *bits > 0);
            forbidden.retain(|_, topics| !topics.is_empty());
        })?;
        info!(group, topic, forbid, "reading of a topic forbidden or allowed");
        Ok(())
    }

    /// Waits until groups turned up that are not written yet.
    pub async fn appeared(&self) {
        self.appeared.notified().await;
    }

    /// Writes the file if groups turned up since the last write.
    ///
    /// # Errors
    /// When it cannot be written; the next call tries again.
    pub fn persist(&self) -> Result<(), MetadataError> {
        let writer = self.writer.lock();
        if !self.dirty.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        writer.save(&self.groups.load()).inspect_err(|_| self.dirty.store(true, Ordering::Release))
    }

    /// All groups as they are now.
    pub fn snapshot(&self) -> Arc<GroupMap> {
        self.groups.load_full()
    }

    /// The table in the file's shape.
    pub fn file(&self) -> GroupFile {
        let writer = self.writer.lock();
        writer.file(&self.groups.load())
    }

    /// Creates or changes groups for an administrator, all or none; `attributes` in the given
    /// configs are signed changes.
    ///
    /// # Errors
    /// When one of them is not allowed, or the file cannot be written.
    pub fn update(&self, wanted: Vec<SubscriptionGroupConfig>) -> Result<(), GroupError> {
        for group in &wanted {
            // Other characters than a client may use are accepted, as the Java broker does, but for
            // those that cannot stand in the name of the directory of its retry topic.
            let name = &group.group_name;
            if name.trim().is_empty()
                || name.len() > names::GROUP_NAME_BYTES_MAX
                || name.contains(['/', '\0'])
            {
                return Err(GroupError::Name { name: name.chars().take(300).collect() });
            }
            if !(0..=QUEUES_MAX).contains(&group.retry_queue_nums) {
                let (group, value) = (name.clone(), group.retry_queue_nums);
                return Err(GroupError::RetryQueues { group, value });
            }
            attributes::apply_to_group(&group.attributes)?;
        }
        for group in &wanted {
            info!(
                group = group.group_name,
                consume_enable = group.consume_enable,
                retry_max_times = group.retry_max_times,
                "subscription group changed"
            );
        }
        self.change(|groups| {
            for mut group in wanted {
                let name: Arc<str> = group.group_name.as_str().into();
                if let Some(existing) = groups.get(&name) {
                    group.attributes.clone_from(&existing.attributes);
                }
                groups.insert(name, Arc::new(group));
            }
        })?;
        Ok(())
    }

    /// Removes the group. Returns whether it was there.
    ///
    /// # Errors
    /// When the file cannot be written; the group is still there then.
    pub fn delete(&self, group: &str) -> Result<bool, MetadataError> {
        if self.get(group).is_none() {
            return Ok(false);
        }
        self.change_all(|groups, forbidden| {
            groups.remove(group);
            forbidden.remove(group);
        })?;
        info!(group, "subscription group deleted");
        Ok(true)
    }

    /// Takes over the groups of a master, version and all.
    ///
    /// # Errors
    /// When the file cannot be written; nothing is changed then.
    pub fn follow(&self, master: GroupFile) -> Result<(), MetadataError> {
        let mut writer = self.writer.lock();
        if writer.version == master.data_version {
            return Ok(());
        }
        let mut groups = GroupMap::default();
        for (name, mut group) in master.subscription_group_table {
            group.group_name.clone_from(&name);
            groups.insert(name.into(), Arc::new(group));
        }
        let version = std::mem::replace(&mut writer.version, master.data_version);
        let forbidden = std::mem::replace(&mut writer.forbidden, master.forbidden_table);
        if let Err(error) = writer.save(&groups) {
            writer.version = version;
            writer.forbidden = forbidden;
            return Err(error);
        }
        self.groups.store(Arc::new(groups));
        self.dirty.store(false, Ordering::Release);
        Ok(())
    }

    fn change(&self, edit: impl FnOnce(&mut GroupMap)) -> Result<(), MetadataError> {
        self.change_all(|groups, _| edit(groups))
    }

    fn change_all(
        &self,
        edit: impl FnOnce(&mut GroupMap, &mut ForbiddenTable),
    ) -> Result<(), MetadataError> {
        let mut writer = self.writer.lock();
        let mut groups = (*self.groups.load_full()).clone();
        let (version, forbidden) = (writer.version, writer.forbidden.clone());
        edit(&mut groups, &mut writer.forbidden);
        writer.version.next(now_ms());
        if let Err(error) = writer.save(&groups) {
            (writer.version, writer.forbidden) = (version, forbidden);
            return Err(error);
        }
        self.forbidden.store(Arc::new(writer.forbidden.clone()));
        self.groups.store(Arc::new(groups));
        self.dirty.store(false, Ordering::Release);
        Ok(())
    }
}

impl Writer {
    fn file(&self, groups: &GroupMap) -> GroupFile {
        GroupFile {
            data_version: self.version,
            forbidden_table: self.forbidden.clone(),
            subscription_group_table: groups
                .iter()
                .map(|(name, group)| (name.to_string(), (**group).clone()))
                .collect(),
            other: self.other.clone(),
        }
    }

    fn save(&self, groups: &GroupMap) -> Result<(), MetadataError> {
        persist::save(&self.path, &self.file(groups))
    }
}

fn default_group(name: &str) -> SubscriptionGroupConfig {
    SubscriptionGroupConfig { group_name: name.to_owned(), ..SubscriptionGroupConfig::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(dir: &Path) -> GroupTable {
        GroupTable::load(dir, &BrokerConfig::default()).unwrap()
    }

    #[test]
    fn built_in_groups_are_there_and_on_disk() {
        let dir = tempfile::tempdir().unwrap();
        drop(table(dir.path()));
        let text = std::fs::read_to_string(dir.path().join(FILE_NAME)).unwrap();
        for (name, _) in BUILT_IN {
            assert!(text.contains(name), "{name}");
        }
    }

    #[test]
    fn a_group_is_created_by_its_first_use_if_that_is_allowed() {
        let dir = tempfile::tempdir().unwrap();
        let groups = table(dir.path());
        let group = groups.get_or_create("orders").unwrap();
        assert_eq!((group.retry_max_times, group.retry_queue_nums), (16, 1));
        groups.persist().unwrap();
        assert!(table(dir.path()).get("orders").is_some());
        for name in ["", "a/b", &"x".repeat(256)] {
            assert!(groups.get_or_create(name).is_none(), "{name}");
        }
        groups.configure(&BrokerConfig {
            auto_create_subscription_group: false,
            ..BrokerConfig::default()
        });
        assert!(groups.get_or_create("other").is_none());
        assert!(groups.get_or_create("CID_RMQ_SYS_other").is_some());
    }

    #[test]
    fn administrators_change_and_delete() {
        let dir = tempfile::tempdir().unwrap();
        let groups = table(dir.path());
        let first = groups.file().data_version.counter;
        let wanted = SubscriptionGroupConfig { retry_max_times: 3, ..default_group("orders") };
        groups.update(vec![wanted.clone()]).unwrap();
        assert_eq!(*table(dir.path()).get("orders").unwrap(), wanted);
        assert!(groups.delete("orders").unwrap());
        assert!(!groups.delete("orders").unwrap());
        assert!(table(dir.path()).get("orders").is_none());
        assert_eq!(groups.file().data_version.counter, first + 2);
    }

    #[test]
    fn a_group_without_a_name_or_with_attributes_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let groups = table(dir.path());
        assert!(groups.update(vec![default_group("good"), default_group(" ")]).is_err());
        let mut odd = default_group("odd");
        odd.attributes.insert("+x".into(), "y".into());
        assert!(groups.update(vec![odd]).is_err());
        let many = SubscriptionGroupConfig { retry_queue_nums: i32::MAX, ..default_group("many") };
        let error = groups.update(vec![many]).unwrap_err().to_string();
        assert!(error.contains("retryQueueNums is 2147483647"), "{error}");
        assert!(groups.get("good").is_none(), "all or none");
    }

    #[test]
    fn forbidden_bits_of_the_file_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let text = r#"{"dataVersion":{"counter":1,"timestamp":1},"forbiddenTable":{"g":{"T":1}},
            "subscriptionGroupTable":{"g":{"groupName":"g","retryMaxTimes":2}}}"#;
        std::fs::write(dir.path().join(FILE_NAME), text).unwrap();
        let groups = table(dir.path());
        let group = groups.get("g").unwrap();
        assert_eq!(group.retry_max_times, 2);
        assert!(group.consume_enable, "missing fields have their defaults");
        assert_eq!(groups.file().forbidden_table["g"]["T"], 1);
        assert!(!groups.is_read_forbidden("g", "T"), "another bit");
        groups.forbid_read("g", "T", true).unwrap();
        groups.forbid_read("g", "T", false).unwrap();
        assert_eq!(groups.file().forbidden_table["g"]["T"], 1);
    }

    #[test]
    fn reading_is_forbidden_topic_by_topic_and_across_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let groups = table(dir.path());
        groups.get_or_create("g").unwrap();
        groups.forbid_read("g", "T", true).unwrap();
        groups.forbid_read("g", "U", true).unwrap();
        groups.forbid_read("g", "U", false).unwrap();
        let again = table(dir.path());
        assert!(again.is_read_forbidden("g", "T"));
        assert!(!again.is_read_forbidden("g", "U"));
        assert!(!again.is_read_forbidden("h", "T"));
        again.delete("g").unwrap();
        assert!(!again.is_read_forbidden("g", "T"));
        assert!(table(dir.path()).file().forbidden_table.is_empty());
    }
}
