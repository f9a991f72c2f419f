//! Filters by expression that consumer groups registered by heart-beat (ConsumerFilterManager), kept
//! in memory and written to `config/consumerFilter.json` every 10 s and at shutdown.
//!
//! A registration outlives its group for `filterDataCleanTimeSpan`: until then the bit maps of new
//! messages (`enableCalcFilterBitMap`) go on telling which of them it matches, so that consumers who
//! come back need not look at each message. Readers take a snapshot without a lock; changes are rare
//! and replace it.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rocketmq_protocol::fastjson;
use rocketmq_protocol::subscription::SubscriptionData;
use rocketmq_store::FilterBitMap;
use serde::{Deserialize, Serialize};
use tracing::{debug, info, warn};

use super::persist::{self, MetadataError};
use crate::clock::now_ms;
use crate::filter::bloom::{BloomBits, BloomFilter};
use crate::filter::compile;
use crate::filter::sql::Expression;

/// `consumerFilter.json` below the store's config directory.
pub const FILE_NAME: &str = "consumerFilter.json";

/// How long ago consumers of a former run are taken to have left, as in RocketMQ.
const LEFT_BEFORE_MS: i64 = 30_000;

/// One registration: what a group wants of a topic.
#[derive(Debug)]
pub struct ConsumerFilter {
    data: FilterData,
    expression: Arc<Expression>,
    /// Messages stored later have its bits in their bit maps if it matches them. Earlier ones have to
    /// be looked at.
    born_ms: AtomicI64,
}

/// A registration in the file's shape.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct FilterData {
    bloom_filter_data: Option<BloomBits>,
    born_time: i64,
    client_version: i64,
    consumer_group: String,
    /// Derived; written for readers that expect it.
    #[serde(skip_deserializing)]
    dead: bool,
    /// When the group went, 0 while it lives.
    dead_time: i64,
    expression: String,
    expression_type: String,
    topic: String,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TopicData {
    group_filter_data: BTreeMap<String, FilterData>,
    topic: String,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct FilterFile {
    filter_data_by_topic: BTreeMap<String, TopicData>,
}

/// The registrations of a topic, by group.
type OfTopic = HashMap<Arc<str>, Arc<ConsumerFilter>>;
type Table = HashMap<Arc<str>, Arc<OfTopic>>;

/// All registrations of this broker.
#[derive(Debug)]
pub struct ConsumerFilters {
    path: PathBuf,
    bloom: BloomFilter,
    table: ArcSwap<Table>,
    /// Held by whoever changes the table, until the changed parts are born.
    changing: Mutex<()>,
    writing: Mutex<()>,
    dirty: AtomicBool,
    /// `enableCalcFilterBitMap`.
    makes_bit_maps: AtomicBool,
}

impl ConsumerFilter {
    /// The compiled expression.
    pub fn expression(&self) -> &Arc<Expression> {
        &self.expression
    }

    /// The registration in fastjson's form, for people.
    pub fn to_json(&self) -> String {
        String::from_utf8_lossy(&fastjson::to_vec(&self.to_data())).into_owned()
    }

    /// The version of the subscription that brought it (`subVersion`).
    pub fn client_version(&self) -> i64 {
        self.data.client_version
    }

    /// Whether the bit map of a message says that it does not match. A message stored before the
    /// registration, or a map of another length, says nothing.
    pub fn is_excluded_by(&self, bit_map: &[u8], store_time_ms: i64) -> bool {
        let Some(bits) = &self.data.bloom_filter_data else { return false };
        // A map that was made has this length, and is not empty.
        let is_of_it = i32::try_from(bit_map.len() * 8).is_ok_and(|len| len == bits.bit_num);
        is_of_it
            && store_time_ms > self.born_ms.load(Ordering::Acquire)
            && !bits.are_set_in(bit_map)
    }

    fn is_dead(&self) -> bool {
        self.data.dead_time >= self.born_ms.load(Ordering::Acquire)
    }

    /// The same registration of a live group.
    fn alive(&self, client_version: i64) -> Arc<ConsumerFilter> {
        self.with(client_version, 0)
    }

    /// The same registration of a group that left.
    fn left(&self, now: i64) -> Arc<ConsumerFilter> {
        self.with(self.data.client_version, now.max(self.born_ms.load(Ordering::Acquire)))
    }

    fn with(&self, client_version: i64, dead_time: i64) -> Arc<ConsumerFilter> {
        Arc::new(ConsumerFilter {
            data: FilterData { client_version, dead_time, ..self.data.clone() },
            expression: Arc::clone(&self.expression),
            born_ms: AtomicI64::new(self.born_ms.load(Ordering::Acquire)),
        })
    }

    fn to_data(&self) -> FilterData {
        let born_time = self.born_ms.load(Ordering::Acquire);
        FilterData { born_time, dead: self.is_dead(), ..self.data.clone() }
    }
}

impl ConsumerFilters {
    /// No registrations yet; the file is in `config_dir`.
    pub fn new(config_dir: &Path, bloom: BloomFilter) -> Self {
        Self {
            path: config_dir.join(FILE_NAME),
            bloom,
            table: ArcSwap::default(),
            changing: Mutex::new(()),
            writing: Mutex::new(()),
            dirty: AtomicBool::new(false),
            makes_bit_maps: AtomicBool::new(false),
        }
    }

    /// Loads the registrations of the file, if there is one. Their groups count as gone until they
    /// send a heart-beat. `was_clean` says whether the last run ended in order: if not, the file may
    /// be older than some bit maps, which are then not relied on.
    ///
    /// # Errors
    /// When the file is damaged beyond its `.bak`.
    pub fn load(&self, was_clean: bool) -> Result<(), MetadataError> {
        let file: FilterFile = persist::load(&self.path)?.unwrap_or_default();
        let now = now_ms();
        let mut table = Table::new();
        for (topic, of_topic) in file.filter_data_by_topic {
            let restore = |(group, data): (String, FilterData)| {
                let filter = self.restored(&topic, &group, data, was_clean, now)?;
                Some((Arc::from(group), Arc::new(filter)))
            };
            let filters: OfTopic =
                of_topic.group_filter_data.into_iter().filter_map(restore).collect();
            if !filters.is_empty() {
                table.insert(topic.into(), Arc::new(filters));
            }
        }
        self.table.store(Arc::new(table));
        Ok(())
    }

    /// Sets whether new messages get bit maps (`enableCalcFilterBitMap`).
    pub fn make_bit_maps(&self, makes_bit_maps: bool) {
        self.makes_bit_maps.store(makes_bit_maps, Ordering::Release);
    }

    /// The registration of a group for a topic.
    pub fn get(&self, topic: &str, group: &str) -> Option<Arc<ConsumerFilter>> {
        self.table.load().get(topic)?.get(group).cloned()
    }

    /// Takes over what a member of the group subscribes to. A higher version replaces a lower one;
    /// an expression that does not compile takes the registration away, so that pulls are told. Topics
    /// that are no longer subscribed count as left.
    ///
    /// `newest_store_time` gives the store time of the newest message in the log, in ms.
    pub fn register(
        &self,
        group: &str,
        subscriptions: &[SubscriptionData],
        newest_store_time: impl FnOnce() -> i64,
    ) {
        let has_expression = subscriptions.iter().any(|subscription| !subscription.is_tag_type());
        if !has_expression && self.table.load().values().all(|filters| !filters.contains_key(group))
        {
            return;
        }
        let _changing = self.changing.lock();
        let before = self.table.load_full();
        let mut after = Cow::new(&before);
        let mut born: Vec<Arc<ConsumerFilter>> = Vec::new();
        for subscription in subscriptions.iter().filter(|s| !s.is_tag_type()) {
            let topic = &*subscription.topic;
            let known = before.get(topic).and_then(|filters| filters.get(group));
            match self.renewed(group, subscription, known) {
                Renewed::Same => {}
                Renewed::Changed(filter) => after.put(topic, group, Some(filter)),
                Renewed::Born(filter) => {
                    born.push(Arc::clone(&filter));
                    after.put(topic, group, Some(filter));
                }
                Renewed::Gone => after.put(topic, group, None),
            }
        }
        let is_subscribed = |topic: &str| subscriptions.iter().any(|s| s.topic == topic);
        let now = now_ms();
        for (topic, filters) in before.iter().filter(|(topic, _)| !is_subscribed(topic)) {
            if let Some(filter) = filters.get(group).filter(|filter| !filter.is_dead()) {
                info!(group, %topic, "filter left: its topic is no longer subscribed");
                after.put(topic, group, Some(filter.left(now)));
            }
        }
        if self.publish(after) {
            // Only now: whatever is stored later finds the registration when its bit map is made.
            let newest = newest_store_time().max(now_ms());
            for filter in born {
                filter.born_ms.store(newest, Ordering::Release);
            }
        }
    }

    /// A registration of the file. None if its expression does not compile, which is logged; its group
    /// is told when it pulls, and can register another one.
    fn restored(
        &self,
        topic: &str,
        group: &str,
        mut data: FilterData,
        was_clean: bool,
        now: i64,
    ) -> Option<ConsumerFilter> {
        let expression = match compile(&data.expression_type, &data.expression) {
            Ok(expression) => Arc::new(expression),
            Err(error) => {
                let expression = data.expression;
                warn!(topic, group, expression, %error, "filter of the file dropped");
                return None;
            }
        };
        let is_of_bloom = data.bloom_filter_data.as_ref().is_some_and(|bits| self.bloom.owns(bits));
        if !is_of_bloom {
            data.bloom_filter_data = Some(self.bloom.bits_of(group, topic));
        }
        if !is_of_bloom || !was_clean {
            data.born_time = data.born_time.max(now);
        }
        if data.dead_time < data.born_time {
            data.dead_time = data.born_time.max(now - LEFT_BEFORE_MS);
        }
        let born_ms = AtomicI64::new(data.born_time);
        Some(ConsumerFilter { data, expression, born_ms })
    }

    /// What becomes of a group's registration when this subscription comes
    /// (`FilterDataMapByTopic.register`).
    fn renewed(
        &self,
        group: &str,
        subscription: &SubscriptionData,
        known: Option<&Arc<ConsumerFilter>>,
    ) -> Renewed {
        let SubscriptionData { topic, sub_string, expression_type, sub_version, .. } = subscription;
        // RocketMQ leaves what is known where the expression is empty.
        if sub_string.is_empty() {
            return Renewed::Same;
        }
        let bits = self.bloom.bits_of(group, topic);
        if let Some(known) = known {
            if *sub_version <= known.client_version() {
                let is_back = *sub_version == known.client_version() && known.is_dead();
                let renewed = is_back.then(|| Renewed::Changed(known.alive(*sub_version)));
                return renewed.unwrap_or(Renewed::Same);
            }
            let is_same = known.data.expression == *sub_string
                && known.data.expression_type == *expression_type
                && known.data.bloom_filter_data.as_ref() == Some(&bits);
            if is_same {
                return Renewed::Changed(known.alive(*sub_version));
            }
        }
        match compile(expression_type, sub_string) {
            Ok(expression) => {
                info!(group, topic, expression = sub_string, "filter registered");
                let data = FilterData {
                    bloom_filter_data: Some(bits),
                    client_version: *sub_version,
                    consumer_group: group.to_owned(),
                    expression: sub_string.clone(),
                    expression_type: expression_type.clone(),
                    topic: topic.clone(),
                    ..FilterData::default()
                };
                let expression = Arc::new(expression);
                // Until it is born, no bit map is relied on.
                let born_ms = AtomicI64::new(i64::MAX);
                Renewed::Born(Arc::new(ConsumerFilter { data, expression, born_ms }))
            }
            Err(error) => {
                debug!(group, topic, expression = sub_string, %error, "filter not registered");
                if known.is_some() { Renewed::Gone } else { Renewed::Same }
            }
        }
    }

    /// The last member of the group left.
    pub fn leave(&self, group: &str) {
        let is_alive =
            |filters: &OfTopic| filters.get(group).is_some_and(|filter| !filter.is_dead());
        if !self.table.load().values().any(|filters| is_alive(filters)) {
            return;
        }
        let _changing = self.changing.lock();
        let before = self.table.load_full();
        let mut after = Cow::new(&before);
        let now = now_ms();
        for (topic, filters) in before.iter().filter(|(_, filters)| is_alive(filters)) {
            if let Some(filter) = filters.get(group) {
                after.put(topic, group, Some(filter.left(now)));
            }
        }
        self.publish(after);
    }

    /// Forgets the topic's registrations.
    pub fn remove_topic(&self, topic: &str) {
        self.retain(|of_topic, _, _| of_topic != topic);
    }

    /// Forgets the group's registrations.
    pub fn remove_group(&self, group: &str) {
        self.retain(|_, of_group, _| of_group != group);
    }

    /// Forgets registrations whose group is gone for `span_ms` (`filterDataCleanTimeSpan`).
    pub fn remove_dead(&self, span_ms: i64) {
        let now = now_ms();
        let is_old = |filter: &ConsumerFilter| {
            filter.is_dead() && now.saturating_sub(filter.data.dead_time) >= span_ms
        };
        self.retain(|_, _, filter| !is_old(filter));
    }

    fn retain(&self, stays: impl Fn(&str, &str, &ConsumerFilter) -> bool) {
        let _changing = self.changing.lock();
        let before = self.table.load_full();
        let mut after = Cow::new(&before);
        for (topic, filters) in &*before {
            for group in filters.iter().filter(|(group, f)| !stays(topic, group, f)).map(|(g, _)| g)
            {
                after.put(topic, group, None);
            }
        }
        self.publish(after);
    }

    /// Makes a change of the table known; says whether there was one.
    fn publish(&self, after: Cow<'_>) -> bool {
        let Some(table) = after.changed else { return false };
        self.table.store(Arc::new(table));
        self.dirty.store(true, Ordering::Release);
        true
    }

    /// Writes the file if anything changed since the last write.
    ///
    /// # Errors
    /// When it cannot be written; the next call tries again.
    pub fn persist(&self) -> Result<(), MetadataError> {
        let _writing = self.writing.lock();
        let changing = self.changing.lock();
        if !self.dirty.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let table = self.table.load_full();
        drop(changing);
        let topics = table.iter().map(|(topic, filters)| {
            let of_group = |(group, filter): (&Arc<str>, &Arc<ConsumerFilter>)| {
                (group.to_string(), filter.to_data())
            };
            let group_filter_data = filters.iter().map(of_group).collect();
            (topic.to_string(), TopicData { group_filter_data, topic: topic.to_string() })
        });
        let file = FilterFile { filter_data_by_topic: topics.collect() };
        persist::save(&self.path, &file).inspect_err(|_| self.dirty.store(true, Ordering::Release))
    }
}

impl FilterBitMap for ConsumerFilters {
    /// As `CommitLogDispatcherCalcBitMap`: registrations of groups that are gone count as well.
    fn bit_map(&self, topic: &str, properties: &[u8], out: &mut Vec<u8>) {
        if !self.makes_bit_maps.load(Ordering::Acquire) {
            return;
        }
        let table = self.table.load();
        let Some(filters) = table.get(topic) else { return };
        out.resize(self.bloom.bit_count() as usize / 8, 0);
        for filter in filters.values() {
            if let Some(bits) = &filter.data.bloom_filter_data
                && filter.expression.matches(properties)
            {
                bits.set_in(out);
            }
        }
    }
}

enum Renewed {
    Same,
    /// As before in what it matches.
    Changed(Arc<ConsumerFilter>),
    Born(Arc<ConsumerFilter>),
    Gone,
}

/// A table that is copied at its first change.
struct Cow<'a> {
    before: &'a Table,
    changed: Option<Table>,
}

impl Cow<'_> {
    fn new(before: &Table) -> Cow<'_> {
        Cow { before, changed: None }
    }

    /// Puts a registration in place of another, or takes it away.
    fn put(&mut self, topic: &str, group: &str, filter: Option<Arc<ConsumerFilter>>) {
        let table = self.changed.get_or_insert_with(|| self.before.clone());
        let mut filters = table.get(topic).map_or_else(OfTopic::new, |filters| (**filters).clone());
        match filter {
            Some(filter) => filters.insert(group.into(), filter),
            None => filters.remove(group),
        };
        if filters.is_empty() {
            table.remove(topic);
        } else {
            table.insert(topic.into(), Arc::new(filters));
        }
    }
}

#[cfg(test)]
mod tests;
