//! One run: operations chosen by the seed, crashes, starts, and a look at the store after each.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rocketmq_protocol::message::batch;
use rocketmq_protocol::message::record::BLANK_BYTES_MIN;
use rocketmq_store::clock::ManualClock;
use rocketmq_store::file_system::OpenMode;
use rocketmq_store::{
    AppendBatch, DurableOutcome, Environment, FileSystem, Refusal, Store, StoreConfig,
};

use super::Done;
use super::disk::{Call, SimulatedDisk};
use super::message::{self, Spec, TOPICS};
use super::metadata::Metadata;
use super::model::{Message, Model, Moment};
use rocketmq_simulation::Random;

/// 2024-01-01, midnight.
const BEGIN_MS: i64 = 1_704_067_200_000;
const HOUR_MS: i64 = 3_600_000;

pub struct Scenario {
    random: Random,
    pub disk: SimulatedDisk,
    clock: Arc<ManualClock>,
    config: StoreConfig,
    model: Model,
    metadata: Vec<Metadata>,
    store: Option<Arc<Store>>,
    /// Whether the directory was left by a shutdown that succeeded.
    shut_down: bool,
    /// Whether what is written has to be confirmed before it is shown, and may be cut until then.
    is_appointed: bool,
    /// A call that is to fail, instead of everything else that the seed would break.
    fail_point: Option<(Call, u64)>,
    /// Whether the store has named the call that failed.
    named: bool,
    /// Whether a shutdown was begun since the last start, or no start ever succeeded.
    maybe_clean: bool,
    pub summary: Done,
}

impl Scenario {
    pub fn new(mut random: Random, traced: bool) -> Scenario {
        let clock = Arc::new(ManualClock::new(BEGIN_MS));
        let disk = SimulatedDisk::new(random.fork(), Arc::clone(&clock), traced);
        let root = PathBuf::from(random.pick(&["/store", "/data/rocketmq/store"]));
        let mut config = StoreConfig::new(&root);
        if random.percent(20) {
            config.commit_log_dirs = vec![PathBuf::from("/fast/commitlog")];
        } else if random.percent(20) {
            config.commit_log_dirs =
                vec![root.join("commitlog"), PathBuf::from("/other/commitlog")];
        }
        config.commit_log_file_bytes = random.pick(&[4096, 4096, 8192, 16_384]);
        config.consume_queue_file_bytes = random.pick(&[160, 400, 1000]);
        config.batch_consume_queue_file_bytes = random.pick(&[3 * 46, 8 * 46, 20 * 46]);
        config.index_slots = random.pick(&[3, 40, 700]);
        config.index_entries = random.pick(&[10, 40, 250]);
        config.enable_consume_queue_ext = config.consume_queue_file_bytes == 1000;
        config.consume_queue_ext_file_bytes = 32_771;
        config.message_bytes_max = 2048;
        config.flush_consume_queue_least_pages = random.pick(&[0, 0, 2]);
        config.flush_consume_queue_thorough_interval_ms = u64::MAX;
        config.delete_commit_log_files_interval_ms = 0;
        config.delete_consume_queue_files_interval_ms = 0;
        config.delete_consume_queue_files_interval_ms = 0;
        config.delete_file_batch_max = random.pick(&[1, 2, 10]);
        let is_appointed = random.percent(50);
        let metadata = ["topics.json", "consumerOffset.json"]
            .map(|name| Metadata::new(root.join("config").join(name)));
        Scenario {
            random,
            disk,
            clock,
            config,
            model: Model::default(),
            metadata: metadata.into(),
            store: None,
            shut_down: false,
            is_appointed,
            fail_point: None,
            named: false,
            maybe_clean: true,
            summary: Done::default(),
        }
    }

    /// Lets a call of this kind fail after so many have worked, and nothing else.
    pub fn with_fail_point(mut self, kind: Call, left: u64) -> Scenario {
        self.fail_point = Some((kind, left));
        self
    }

    pub fn run(&mut self) -> Result<(), String> {
        self.disk.note(|| {
            format!(
                "settings: log in {:?} files of {}, queue files of {}, queue pages {}",
                self.config.commit_log_dirs,
                self.config.commit_log_file_bytes,
                self.config.consume_queue_file_bytes,
                self.config.flush_consume_queue_least_pages,
            )
        });
        if let Some((kind, left)) = self.fail_point {
            self.disk.fail_after(Some(kind), left, false);
        }
        self.start(0)?;
        let mut operations = self.random.between(5, 60);
        if self.fail_point.is_some() {
            operations = 45;
        }
        for _ in 0..operations {
            self.summary.operations += 1;
            self.operate()?;
            if self.disk.is_off() {
                self.lose_power()?;
            } else if self.disk.has_failed() {
                self.after_failure()?;
            }
        }
        self.look()?;
        self.lose_power()
    }

    fn store(&self) -> Arc<Store> {
        Arc::clone(self.store.as_ref().expect("the store is open between operations"))
    }

    fn note(&self, text: impl FnOnce() -> String) {
        self.disk.note(text);
    }

    fn operate(&mut self) -> Result<(), String> {
        match self.random.below(100) {
            0..40 => self.append(),
            40..50 => self.append_client_batch(),
            50..58 => self.flush(),
            58..63 => self.tick(),
            63..66 if self.is_appointed => self.follow(),
            63..66 => self.tick(),
            66..70 => self.remove_old_files(),
            70..73 => self.delete_topic(),
            73..77 => self.write_metadata(),
            77..80 => {
                let by_ms = self.random.pick(&[1, 50, 5_000, 2 * HOUR_MS, -1_000, -3 * HOUR_MS]);
                self.note(|| format!("clock moves by {by_ms} ms"));
                self.clock.advance(by_ms);
                Ok(())
            }
            80..82 => self.shut_down(),
            82..85 => self.kill_process(),
            85..87 => self.lose_power(),
            87..97 if self.fail_point.is_some() => Ok(()),
            87..95 => {
                let after = self.random.between(1, 40);
                self.note(|| format!("power will go at change {after} from now"));
                self.disk.cut_after(after);
                Ok(())
            }
            95..97 => {
                let (left, lasting) = (self.random.below(30), self.random.percent(30));
                self.note(|| format!("a call fails after {left} more, lasting {lasting}"));
                self.disk.fail_after(None, left, lasting);
                Ok(())
            }
            _ => self.look(),
        }
    }

    /// Whether an error is what the run itself brought about.
    fn is_expected(&mut self, error: &dyn std::fmt::Display) -> Result<(), String> {
        self.note(|| format!("    -> {error}"));
        self.named |= self.disk.last_failed().is_some_and(|(_, path)| names(error, &path));
        let refused = self.store.as_ref().is_some_and(|store| store.writable().is_err());
        if self.disk.is_off() || self.disk.has_failed() || refused {
            return Ok(());
        }
        Err(format!("failed without a reason: {error}"))
    }

    fn new_spec(&mut self, body_max: u64, queue: Option<(usize, i32)>) -> (u64, Spec) {
        let (topic, queue_id) =
            queue.unwrap_or_else(|| (self.random.below(4) as usize, self.random.below(2) as i32));
        let padding_bytes =
            if self.random.percent(15) { self.random.below(1300) as usize } else { 0 };
        let mut body_bytes = 8 + self.random.below(body_max) as usize;
        let mut inner = 0;
        if self.has_batch_queues(topic) {
            inner = self.random.between(1, 5) as usize;
            body_bytes = body_bytes.min(1_300 / inner);
        }
        let spec = Spec { topic, queue_id, body_bytes, padding_bytes, inner };
        self.model.specs.push(spec);
        (self.model.specs.len() as u64 - 1, spec)
    }

    /// What kind of queues a topic has is settled when it is made.
    fn has_batch_queues(&mut self, topic: usize) -> bool {
        let is_batch = self.random.percent(30);
        *self.model.batch_topics.entry(topic).or_insert(is_batch)
    }

    /// Gives a message the size with which its record fills the current file of the log, or one
    /// byte more or less, as far as messages can be so large.
    fn fill_file(&mut self, id: u64, spec: &mut Spec, store: &Store) {
        let file_bytes = self.config.commit_log_file_bytes as usize;
        let left = file_bytes - store.max_physical_offset() as usize % file_bytes;
        let topic_bytes = TOPICS[spec.topic].len();
        let empty_record = 91 + usize::from(topic_bytes > 127) + topic_bytes;
        let others = empty_record + spec.properties(id).len() + BLANK_BYTES_MIN;
        let body_bytes = (left + self.random.below(3) as usize).wrapping_sub(others + 1);
        if (8..=self.config.message_bytes_max).contains(&body_bytes) {
            spec.body_bytes = body_bytes;
            self.model.specs[id as usize] = *spec;
        }
    }

    fn append(&mut self) -> Result<(), String> {
        let count = if self.random.percent(50) { 1 } else { self.random.between(2, 8) };
        let body_max = self.random.pick(&[20, 200, 1_300]);
        let store = self.store();
        let mut batch = store.new_batch();
        let mut ids = Vec::new();
        for _ in 0..count {
            let (id, mut spec) = self.new_spec(body_max, None);
            if count == 1 && spec.inner == 0 && self.random.percent(15) {
                self.fill_file(id, &mut spec, &store);
            }
            push(&mut batch, id, &spec)?;
            ids.push(id);
        }
        self.finish_append(&store, batch, &ids)
    }

    fn append_client_batch(&mut self) -> Result<(), String> {
        let count = self.random.between(1, 6);
        let queue = (self.random.below(4) as usize, self.random.below(2) as i32);
        let store = self.store();
        if self.has_batch_queues(queue.0) {
            let (id, spec) = self.new_spec(150, Some(queue));
            let mut batch = store.new_batch();
            push(&mut batch, id, &spec)?;
            return self.finish_append(&store, batch, &[id]);
        }
        let mut body = Vec::new();
        let mut ids = Vec::new();
        for _ in 0..count {
            let (id, mut spec) = self.new_spec(150, Some(queue));
            spec.padding_bytes = spec.padding_bytes.min(100);
            self.model.specs[id as usize] = spec;
            let part = batch::BatchMessage {
                flag: 0,
                body: &spec.body(id),
                properties: &spec.properties(id),
            };
            batch::encode(&mut body, &part).map_err(|error| error.to_string())?;
            ids.push(id);
        }
        let common = self.model.specs[ids[0] as usize];
        let mut batch = store.new_batch();
        let pushed = batch.push_batch(&message::new_message(&common, b"", &[]), &body);
        pushed.map_err(|error| error.to_string())?;
        self.finish_append(&store, batch, &ids)
    }

    fn finish_append(
        &mut self,
        store: &Store,
        mut batch: AppendBatch,
        ids: &[u64],
    ) -> Result<(), String> {
        let outcome = store.append(&mut batch);
        let mut taken = 0;
        for (index, id) in ids.iter().enumerate() {
            let Ok(placed) = batch.result(index) else { break };
            taken += 1;
            let spec = self.model.specs[*id as usize];
            let list = self.model.queues.entry((spec.topic, spec.queue_id)).or_default();
            if placed.queue_offset != list.len() as i64 {
                return Err(format!(
                    "{}-{}: message {id} got queue offset {}, {} is next",
                    TOPICS[spec.topic],
                    spec.queue_id,
                    placed.queue_offset,
                    list.len()
                ));
            }
            let message = Message {
                id: *id,
                physical_offset: placed.physical_offset,
                end: placed.physical_offset + placed.bytes as i64,
                store_timestamp_ms: placed.store_timestamp_ms,
            };
            list.extend(std::iter::repeat_n(message, spec.count()));
        }
        self.summary.messages += taken as u64;
        let physical = batch.result(0).map(|placed| placed.physical_offset);
        self.note(|| format!("append messages {ids:?}: {taken} taken, at {physical:?}"));
        if taken > 0 {
            self.model.in_flight.clear();
        }
        if taken < ids.len() {
            self.model.in_flight.push(ids[taken..].to_vec());
        }
        self.model.written = store.max_physical_offset();
        match outcome {
            Ok(outcome) if outcome.appended != taken => {
                Err(format!("{} appended, {taken} with a result", outcome.appended))
            }
            Ok(outcome) => {
                if taken < ids.len() {
                    let error = batch
                        .result(taken)
                        .map_or_else(|error| error.to_string(), |_| String::new());
                    self.is_expected(&error)?;
                }
                if self.random.percent(60) {
                    self.await_durable(store, outcome.end_physical_offset);
                }
                Ok(())
            }
            Err(error) if taken > 0 => Err(format!("{taken} taken, but {error}")),
            Err(error) => self.is_expected(&error),
        }
    }

    /// Asks to hear when the log is durable up to there; some later flush says so.
    fn await_durable(&self, store: &Store, end: i64) {
        let durable = Arc::clone(&self.model.durable);
        store.on_durable(
            end,
            Box::new(move |outcome| {
                if outcome == DurableOutcome::Durable {
                    durable.fetch_max(end, Ordering::SeqCst);
                }
            }),
        );
    }

    /// What happens where the master is appointed.
    fn follow(&mut self) -> Result<(), String> {
        let store = self.store();
        let confirmed = self.model.confirmed.unwrap_or(0);
        match self.random.below(4) {
            0 => {
                let ends = self.model.queues.values().flatten().map(|message| message.end);
                let mut ends: Vec<i64> = ends.filter(|end| *end > confirmed).collect();
                ends.push(store.written().0);
                ends.sort_unstable();
                let end = ends[self.random.below(ends.len() as u64) as usize];
                self.note(|| format!("confirm {end}"));
                store.confirm(end);
                self.model.confirmed = Some(end);
                Ok(())
            }
            1 => {
                self.note(|| "prove the append path".to_owned());
                let proven = store.prove_append_path(Duration::from_secs(60));
                proven.or_else(|error| self.is_expected(&error))
            }
            _ => self.truncate(&store, confirmed),
        }
    }

    /// Another one was master meanwhile, and has something else behind some place.
    fn truncate(&mut self, store: &Store, confirmed: i64) -> Result<(), String> {
        let written = store.written().0;
        // What was noted of it before a loss of power may be gone as old by now.
        let confirmed = confirmed.max(store.min_physical_offset());
        let to = confirmed + self.random.below((written - confirmed + 1) as u64) as i64;
        self.note(|| format!("cut the log of {written} at {to}"));
        store.take_copies_only();
        let result = store.truncate_to(to);
        store.take_messages();
        match result {
            Ok(cut) => {
                let whole = self.model.queues.values().flatten().filter(|m| m.end <= to);
                let whole = whole.map(|message| message.end).max().unwrap_or(0);
                let count = |model: &Model| model.queues.values().map(Vec::len).sum::<usize>();
                let before = count(&self.model);
                // Without anything behind it nothing was touched.
                if cut.bytes > 0 {
                    self.model.cut(cut.end);
                }
                let gone = (before - count(&self.model)) as u64;
                self.note(|| format!("    -> {cut:?}"));
                let is_right = (whole.max(confirmed)..=to).contains(&cut.end)
                    && cut.bytes == (written - cut.end) as u64
                    && cut.messages >= gone
                    && store.written().0 == cut.end
                    && store.durable().0 <= cut.end;
                is_right.then_some(()).ok_or_else(|| format!("{cut:?} of {written} at {to}"))
            }
            Err(error) => {
                self.model.may_be_cut(to);
                self.is_expected(&error)
            }
        }
    }

    fn flush(&mut self) -> Result<(), String> {
        self.note(|| "flush".to_owned());
        let store = self.store();
        let written = store.max_physical_offset();
        match store.flush() {
            Ok(()) => {
                self.model.durable.fetch_max(written, Ordering::SeqCst);
                Ok(())
            }
            Err(error) => self.is_expected(&error),
        }
    }

    fn tick(&mut self) -> Result<(), String> {
        self.note(|| "tick".to_owned());
        self.store().tick().or_else(|error| self.is_expected(&error))
    }

    fn remove_old_files(&mut self) -> Result<(), String> {
        let store = self.store();
        let result = if self.random.percent(50) {
            self.note(|| "remove old files: the disk is full".to_owned());
            self.disk.set_used_percent(86);
            let result = store.tick();
            self.disk.set_used_percent(10);
            result
        } else {
            self.note(|| "remove old files: they have expired".to_owned());
            self.clock.advance(80 * HOUR_MS);
            store.remove_old_files(true).map(drop)
        };
        match result {
            Ok(()) => {
                self.model.log_start = store.min_physical_offset();
                Ok(())
            }
            Err(error) => self.is_expected(&error),
        }
    }

    fn delete_topic(&mut self) -> Result<(), String> {
        let topic = self.random.below(4) as usize;
        self.note(|| format!("delete topic {}", TOPICS[topic]));
        let store = self.store();
        let existed = self.model.queues.keys().any(|(of, _)| *of == topic);
        match store.delete_topic(TOPICS[topic]) {
            Ok(false) if existed => Err(format!("{} is not there", TOPICS[topic])),
            Ok(_) => {
                self.model.remove_topic(topic);
                Ok(())
            }
            Err(error) => {
                self.is_expected(&error)?;
                self.model.deleting.insert(topic);
                Ok(())
            }
        }
    }

    fn write_metadata(&mut self) -> Result<(), String> {
        let index = self.random.below(self.metadata.len() as u64) as usize;
        let metadata = &mut self.metadata[index];
        self.disk.note(|| format!("write {}", metadata.path().display()));
        metadata.write(&self.disk).or_else(|error| self.is_expected(&error))
    }

    fn shut_down(&mut self) -> Result<(), String> {
        self.note(|| "shut down".to_owned());
        let store = self.store();
        self.maybe_clean = true;
        match store.shutdown() {
            Ok(()) => {
                let durable = store.durable().0;
                self.model.durable.store(durable, Ordering::SeqCst);
                self.shut_down = store.writable() == Err(Refusal::ShutDown);
            }
            Err(error) => self.is_expected(&error)?,
        }
        if self.disk.is_off() {
            return Ok(());
        }
        drop(store);
        if self.shut_down && self.random.percent(50) {
            return self.lose_power();
        }
        self.kill_process()
    }

    fn kill_process(&mut self) -> Result<(), String> {
        if self.failed_sync_is_not_noted() {
            // Nothing tells the next process that the page cache lies: only the machine's restart
            // helps, as the log says.
            return self.lose_power();
        }
        self.note(|| "the process ends".to_owned());
        self.summary.process_kills += 1;
        self.store = None;
        self.disk.kill_process();
        // All that the operating system was given is there.
        self.start(self.model.written)
    }

    /// Whether the last failure was that of noting an earlier one, and it was not made good since.
    fn failed_sync_is_not_noted(&self) -> bool {
        let Some((_, path)) = self.disk.last_failed() else { return false };
        if path.file_name() != Some("abort".as_ref()) {
            return false;
        }
        let mut text = vec![0; std::process::id().to_string().len()];
        let read = self.disk.undisturbed(|| {
            let file = self.disk.open(&path, OpenMode::ReadOnly)?;
            file.read_at(&mut text, 0)
        });
        read.is_ok() && text == std::process::id().to_string().as_bytes()
    }

    fn lose_power(&mut self) -> Result<(), String> {
        self.note(|| format!("power is lost; durable is {}", self.model.durable()));
        self.summary.power_cuts += 1;
        self.store = None;
        self.disk.cut_power();
        self.start(self.model.durable())
    }

    /// Ends the failing of calls. The store must have said which call failed, unless it can do
    /// without what the call was for.
    fn heal(&mut self) -> Result<(), String> {
        self.note(|| "calls work again".to_owned());
        self.disk.heal();
        self.summary.failed_calls += 1;
        let Some((call, path)) = self.disk.last_failed() else { return Ok(()) };
        if let Some(store) = &self.store
            && let Err(refusal) = store.writable()
        {
            self.named |= names(&refusal, &path);
        }
        let log_dirs = &self.config.commit_log_dirs;
        let is_of_log = log_dirs.iter().any(|log| path.starts_with(log));
        let can_do_without = match call {
            Call::DiskSpace | Call::Modified => true,
            // Files of the log are looked at now and then to see whether someone changed them.
            Call::Length | Call::Exists => is_of_log,
            // What one directory cannot take goes to another one.
            Call::Create | Call::Allocate | Call::Sync | Call::SyncDirectory | Call::Map => {
                is_of_log && log_dirs.len() > 1
            }
            _ => false,
        };
        if std::mem::take(&mut self.named) || can_do_without || self.fail_point.is_none() {
            return Ok(());
        }
        Err(format!("{call:?} of {} failed and nothing was said", path.display()))
    }

    /// The store goes on after a call failed, or refuses for good and is opened again.
    fn after_failure(&mut self) -> Result<(), String> {
        self.heal()?;
        let store = self.store();
        for topic in std::mem::take(&mut self.model.deleting) {
            // Whoever deletes tries again until it works.
            if let Err(error) = store.delete_topic(TOPICS[topic]) {
                self.is_expected(&error)?;
                self.model.deleting.insert(topic);
            } else {
                self.model.remove_topic(topic);
            }
        }
        if !self.model.deleting.is_empty() || self.random.percent(20) {
            return self.lose_power();
        }
        if is_failed(&store) {
            drop(store);
            self.tick()?;
            // It must not say now that everything is durable.
            self.flush()?;
            if self.disk.is_off() {
                return Ok(());
            }
            return if self.random.percent(50) { self.lose_power() } else { self.kill_process() };
        }
        // What failed is tried again when its time comes.
        drop(store);
        self.tick()?;
        if self.disk.is_off() { Ok(()) } else { self.look() }
    }

    /// Opens the store, which may take several attempts, and looks at it.
    fn start(&mut self, kept: i64) -> Result<(), String> {
        let mut kept = kept;
        loop {
            if self.fail_point.is_none() && self.random.percent(25) {
                let after = self.random.between(1, 40);
                self.note(|| format!("power will go at change {after} of the start"));
                self.disk.cut_after(after);
            }
            self.note(|| "open".to_owned());
            let environment = Environment {
                file_system: Arc::new(self.disk.clone()),
                clock: Arc::clone(&self.clock) as _,
                threads: false,
                filter_bit_map: None,
            };
            match Store::open(self.config.clone(), environment) {
                Ok((store, mut report)) => {
                    // The machine's time, of which the seed decides nothing.
                    report.elapsed = Duration::ZERO;
                    self.note(|| format!("    -> {report}"));
                    if self.shut_down && !(report.clean && report.bytes_cut == 0) {
                        return Err(format!("after a clean end: {report}"));
                    }
                    if report.clean && !self.maybe_clean {
                        return Err(format!("taken for a clean end: {report}"));
                    }
                    (self.shut_down, self.maybe_clean) = (false, false);
                    if self.disk.has_failed() {
                        // It could do without.
                        self.heal()?;
                    }
                    if !self.disk.is_off() {
                        let disk = self.disk.clone();
                        let confirmed = self.model.confirmed.take();
                        disk.undisturbed(|| {
                            self.model.check(&store, Moment::Reopened { kept })?;
                            self.metadata.iter().try_for_each(|metadata| metadata.check(&disk))
                        })?;
                        if self.is_appointed {
                            self.show_confirmed_only(&store, confirmed)?;
                        }
                        self.store = Some(store);
                        return Ok(());
                    }
                }
                Err(error) => {
                    self.note(|| format!("    -> {error}"));
                    self.named |=
                        self.disk.last_failed().is_some_and(|(_, path)| names(&error, &path));
                    if self.disk.has_failed() {
                        self.heal()?;
                        // Also where the power was to go: what a call did in part may be there.
                        self.note(|| "the process ends during the start".to_owned());
                        self.disk.kill_process();
                        self.shut_down = false;
                        continue;
                    }
                    if !self.disk.is_off() {
                        return Err(format!("cannot be opened: {error}"));
                    }
                    // It may have come far enough to leave its mark.
                    self.shut_down = false;
                }
            }
            self.note(|| "power is lost during the start".to_owned());
            self.summary.power_cuts += 1;
            kept = kept.min(self.model.durable());
            self.disk.cut_power();
        }
    }

    /// After a start, at which everything was looked at. What was confirmed counts as such again, as far
    /// as the store knows.
    fn show_confirmed_only(&mut self, store: &Store, before: Option<i64>) -> Result<(), String> {
        let disk = self.disk.clone();
        let confirmed = disk.undisturbed(|| store.show_confirmed_only());
        let confirmed = match confirmed {
            Ok(confirmed) => confirmed.0,
            Err(_) if self.disk.is_off() => {
                self.model.confirmed = Some(before.unwrap_or(0));
                return Ok(());
            }
            Err(error) => return Err(error.to_string()),
        };
        if confirmed > before.unwrap_or(0) {
            return Err(format!("{confirmed} is said to be confirmed, {before:?} was"));
        }
        self.model.confirmed = Some(confirmed);
        Ok(())
    }

    fn look(&mut self) -> Result<(), String> {
        if self.disk.is_off() {
            return Ok(());
        }
        self.note(|| "look at everything".to_owned());
        let store = self.store();
        let disk = self.disk.clone();
        disk.undisturbed(|| self.model.check(&store, Moment::Running))
    }
}

/// Adds a message, or an inner batch, to what is appended.
fn push(batch: &mut AppendBatch, id: u64, spec: &Spec) -> Result<(), String> {
    let (body, properties) = (spec.body(id), spec.properties(id));
    let properties = [&properties[..]];
    let message = message::new_message(spec, &body, &properties);
    let pushed = match spec.inner {
        0 => batch.push(&message),
        _ => batch.push_inner_batch(&message),
    };
    pushed.map(drop).map_err(|error| error.to_string())
}

/// Whether an error names a path, or the directory that it lies in.
fn names(error: &dyn std::fmt::Display, path: &Path) -> bool {
    let text = error.to_string();
    let directory = path.parent().filter(|directory| directory.parent().is_some());
    [Some(path), directory]
        .into_iter()
        .flatten()
        .any(|path| text.contains(&*path.to_string_lossy()))
}

/// Whether the store takes nothing until it is opened again.
fn is_failed(store: &Store) -> bool {
    use Refusal::{FileChanged, SyncFailed, WriteFailed};
    matches!(store.writable(), Err(SyncFailed(_) | WriteFailed(_) | FileChanged { .. }))
}
