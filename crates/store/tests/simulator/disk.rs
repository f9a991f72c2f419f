//! A disk in memory that keeps apart what is durable and what is only in the page cache.
//!
//! Owns the tree of files, the numbering of calls, and the three ways in which they end badly: the
//! power goes in the middle of a call, the process dies, a call fails. What a loss of power leaves
//! is chosen in `power_cut`.

mod file;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rocketmq_store::clock::ManualClock;
use rocketmq_store::file_system::{DirectoryEntry, DiskSpace, OpenMode, StoreFile};
use rocketmq_store::mapping::Mapping;
use rocketmq_store::{Clock, FileSystem};
use rustix::fs::MemfdFlags;

use super::power_cut::{self, PAGE_BYTES};
use file::SimulatedFile;
use rocketmq_simulation::Random;

const ENOENT: i32 = 2;
const EIO: i32 = 5;
const EEXIST: i32 = 17;
const ENOSPC: i32 = 28;

/// What the store asks of the operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Open,
    Create,
    CreateDirectory,
    SyncDirectory,
    SyncAll,
    List,
    Exists,
    Rename,
    RemoveFile,
    RemoveDirectory,
    DiskSpace,
    Length,
    Modified,
    Write,
    Read,
    Allocate,
    SetLength,
    Zero,
    Sync,
    Map,
    Lock,
}

impl Call {
    /// Whether it changes what is on the disk or in the page cache, or makes it durable.
    pub fn is_change(self) -> bool {
        use Call::*;
        !matches!(self, Open | List | Exists | DiskSpace | Length | Modified | Read | Map | Lock)
    }

    /// Whether a part of it may be there when it fails; other calls are whole or nothing.
    fn can_be_half_done(self) -> bool {
        use Call::*;
        matches!(self, Write | Zero | CreateDirectory | RemoveDirectory | Sync)
    }

    /// What the operating system says when it fails.
    fn errno(self) -> i32 {
        use Call::*;
        match self {
            Create | CreateDirectory | Write | Allocate | SetLength => ENOSPC,
            _ => EIO,
        }
    }
}

pub(super) type NodeId = usize;

#[derive(Debug)]
pub(super) enum Node {
    File(FileNode),
    Directory(DirectoryNode),
}

#[derive(Debug, Default)]
pub(super) struct FileNode {
    /// The contents as programs see them.
    pub cache: Vec<u8>,
    /// The contents that are durable.
    pub disk: Vec<u8>,
    /// What leads from `disk` to `cache`, oldest first.
    pub pending: Vec<Change>,
    /// The contents once more, for mappings.
    view: Option<File>,
    modified_ms: i64,
    /// Handle that holds the lock.
    locked_by: Option<u64>,
}

/// A change to a file that no sync made durable.
#[derive(Debug)]
pub(super) enum Change {
    Write { position: usize, bytes: Vec<u8> },
    Length(usize),
}

#[derive(Debug, Default)]
pub(super) struct DirectoryNode {
    pub cache: BTreeMap<String, NodeId>,
    pub disk: BTreeMap<String, NodeId>,
    /// What leads from `disk` to `cache`; the names of one element change together.
    pub pending: Vec<Vec<(String, Option<NodeId>)>>,
}

impl DirectoryNode {
    fn change(&mut self, names: Vec<(String, Option<NodeId>)>) {
        power_cut::apply(&mut self.cache, &names);
        self.pending.push(names);
    }

    fn sync(&mut self) {
        self.pending.clear();
        self.disk.clone_from(&self.cache);
    }
}

impl FileNode {
    fn write(&mut self, bytes: &[u8], position: usize) {
        if position + bytes.len() > self.cache.len() {
            self.set_length(position + bytes.len());
        }
        self.cache[position..position + bytes.len()].copy_from_slice(bytes);
        self.pending.push(Change::Write { position, bytes: bytes.to_vec() });
        self.show(bytes, position);
    }

    fn set_length(&mut self, bytes: usize) {
        let before = self.cache.len();
        if bytes == before {
            return;
        }
        self.cache.resize(bytes, 0);
        self.pending.push(Change::Length(bytes));
        // A mapping never shrinks; what is cut off reads as zeros there.
        if bytes < before {
            self.show(&vec![0; before - bytes], bytes);
        }
    }

    fn show(&self, bytes: &[u8], position: usize) {
        if let Some(view) = &self.view {
            view.write_all_at(bytes, position as u64).expect("memory takes what is written");
        }
    }

    /// The file as the next start of the machine finds it.
    pub fn after_power_cut(&self, contents: Vec<u8>) -> FileNode {
        FileNode {
            cache: contents.clone(),
            disk: contents,
            modified_ms: self.modified_ms,
            ..FileNode::default()
        }
    }

    fn sync(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        // Only dirty pages are written: what a failed sync gave up stays lost.
        for change in std::mem::take(&mut self.pending) {
            match change {
                Change::Length(bytes) => self.disk.resize(bytes, 0),
                Change::Write { position, bytes } => {
                    let start = position / PAGE_BYTES * PAGE_BYTES;
                    let end = (position + bytes.len()).next_multiple_of(PAGE_BYTES);
                    let end = end.min(self.cache.len());
                    if end > self.disk.len() {
                        self.disk.resize(end, 0);
                    }
                    if start < end {
                        self.disk[start..end].copy_from_slice(&self.cache[start..end]);
                    }
                }
            }
        }
        // The length is not a page but part of the inode, which is written as a whole with every
        // change: what a later sync writes takes it along, also if a failed one gave it up.
        self.disk.resize(self.cache.len(), 0);
    }
}

#[derive(Debug)]
struct Failure {
    /// Only calls of this kind count; all if none.
    kind: Option<Call>,
    /// How many calls are let through before one fails.
    left: u64,
    /// Whether the calls behind it fail too.
    lasting: bool,
    fired: bool,
}

impl Failure {
    /// Whether this call fails.
    fn hits(&mut self, call: Call) -> bool {
        if self.kind.is_some_and(|kind| kind != call) || (self.fired && !self.lasting) {
            return false;
        }
        if self.left > 0 {
            self.left -= 1;
            return false;
        }
        self.fired = true;
        true
    }
}

#[derive(Debug)]
pub(super) struct State {
    pub nodes: Vec<Node>,
    /// Handles of an older generation lead nowhere: their process is gone.
    generation: u64,
    handles: u64,
    pub random: Random,
    clock: Arc<ManualClock>,
    changes: u64,
    /// Number of the change during which the power goes.
    cut_at: Option<u64>,
    off: bool,
    failure: Option<Failure>,
    last_failed: Option<(Call, PathBuf)>,
    used_percent: u64,
    pub trace: Option<Vec<String>>,
}

/// The disk. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct SimulatedDisk(Arc<Mutex<State>>);

const ROOT: NodeId = 0;

/// How a call that is let through ends.
enum Fate {
    Works,
    /// A part of it is done, then this is said.
    Breaks(io::Error),
}

impl State {
    fn enter(&mut self, generation: u64, call: Call, path: &Path) -> io::Result<Fate> {
        if self.off || generation != self.generation {
            return Err(io::Error::other("the machine is off"));
        }
        if call.is_change() {
            self.changes += 1;
            self.note(|| format!("      {call:?} {}", path.display()));
            if self.cut_at == Some(self.changes) {
                self.off = true;
                self.note(|| "      ... and the power goes".to_owned());
                let error = io::Error::other("the power went");
                return if self.random.percent(50) { Err(error) } else { Ok(Fate::Breaks(error)) };
            }
        }
        if self.failure.as_mut().is_some_and(|failure| failure.hits(call)) {
            self.last_failed = Some((call, path.to_owned()));
            self.note(|| format!("      {call:?} {} fails", path.display()));
            let error = io::Error::from_raw_os_error(call.errno());
            let nothing = !call.can_be_half_done() || self.random.percent(50);
            return if nothing { Err(error) } else { Ok(Fate::Breaks(error)) };
        }
        Ok(Fate::Works)
    }

    pub fn note(&mut self, text: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(text());
        }
    }

    fn find(&self, path: &Path) -> io::Result<NodeId> {
        let mut id = ROOT;
        for component in path.components() {
            let Component::Normal(name) = component else { continue };
            let Node::Directory(directory) = &self.nodes[id] else { return Err(missing()) };
            id = *directory.cache.get(name.to_str().ok_or_else(missing)?).ok_or_else(missing)?;
        }
        Ok(id)
    }

    fn find_parent(&self, path: &Path) -> io::Result<(NodeId, String)> {
        let parent = self.find(path.parent().ok_or_else(missing)?)?;
        let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(missing)?;
        Ok((parent, name.to_owned()))
    }

    fn directory(&mut self, id: NodeId) -> io::Result<&mut DirectoryNode> {
        match &mut self.nodes[id] {
            Node::Directory(directory) => Ok(directory),
            Node::File(_) => Err(missing()),
        }
    }

    fn file(&mut self, id: NodeId) -> io::Result<&mut FileNode> {
        match &mut self.nodes[id] {
            Node::File(file) => Ok(file),
            Node::Directory(_) => Err(missing()),
        }
    }

    /// Takes a node out of its directory.
    fn unlink(&mut self, path: &Path) -> io::Result<()> {
        let (parent, name) = self.find_parent(path)?;
        self.directory(parent)?.change(vec![(name, None)]);
        Ok(())
    }

    /// Empties a directory as `rm -r` does: each name by itself. `left` says after how many names
    /// it breaks off.
    fn empty_directory(&mut self, id: NodeId, left: &mut usize) -> io::Result<()> {
        let children: Vec<_> =
            self.directory(id)?.cache.iter().map(|(name, id)| (name.clone(), *id)).collect();
        for (name, child) in children {
            if matches!(self.nodes[child], Node::Directory(_)) {
                self.empty_directory(child, left)?;
            }
            if *left == 0 {
                return Ok(());
            }
            *left -= 1;
            self.directory(id)?.change(vec![(name, None)]);
        }
        Ok(())
    }

    fn sync_tree(&mut self, id: NodeId) {
        match &mut self.nodes[id] {
            Node::File(file) => file.sync(),
            Node::Directory(directory) => {
                directory.sync();
                for child in directory.cache.values().copied().collect::<Vec<_>>() {
                    self.sync_tree(child);
                }
            }
        }
    }

    fn touch(&mut self, id: NodeId) {
        let now_ms = self.clock.now_ms();
        if let Node::File(file) = &mut self.nodes[id] {
            file.modified_ms = now_ms;
        }
    }
}

fn missing() -> io::Error {
    io::Error::from_raw_os_error(ENOENT)
}

impl SimulatedDisk {
    /// An empty disk. `traced`: whether [`SimulatedDisk::take_trace`] will be asked.
    pub fn new(random: Random, clock: Arc<ManualClock>, traced: bool) -> SimulatedDisk {
        SimulatedDisk(Arc::new(Mutex::new(State {
            nodes: vec![Node::Directory(DirectoryNode::default())],
            generation: 0,
            handles: 0,
            random,
            clock,
            changes: 0,
            cut_at: None,
            off: false,
            failure: None,
            last_failed: None,
            used_percent: 0,
            trace: traced.then(Vec::new),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A test that failed while it held the lock is reported by its own message.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line to the trace, if there is one.
    pub fn note(&self, text: impl FnOnce() -> String) {
        self.lock().note(text);
    }

    pub fn take_trace(&self) -> Vec<String> {
        self.lock().trace.take().unwrap_or_default()
    }

    /// Lets the power go during the change that comes as number `after` from now, from 1 on.
    pub fn cut_after(&self, after: u64) {
        let mut state = self.lock();
        state.cut_at = Some(state.changes + after);
    }

    /// Lets a call fail, of this kind if one is given, once `left` more have been made; with
    /// `lasting` those behind it fail too.
    pub fn fail_after(&self, kind: Option<Call>, left: u64, lasting: bool) {
        let mut state = self.lock();
        state.failure = Some(Failure { kind, left, lasting, fired: false });
        state.last_failed = None;
    }

    /// Ends failing once a call has failed. Whether one has.
    pub fn heal(&self) -> bool {
        self.lock().failure.take_if(|failure| failure.fired).is_some()
    }

    /// Lets no call fail while `look` runs.
    pub fn undisturbed<T>(&self, look: impl FnOnce() -> T) -> T {
        let failure = self.lock().failure.take();
        let result = look();
        self.lock().failure = failure;
        result
    }

    /// Whether a call has failed since [`SimulatedDisk::fail_after`].
    pub fn has_failed(&self) -> bool {
        self.lock().failure.as_ref().is_some_and(|failure| failure.fired)
    }

    /// The last call that failed.
    pub fn last_failed(&self) -> Option<(Call, PathBuf)> {
        self.lock().last_failed.clone()
    }

    /// Whether the power is gone.
    pub fn is_off(&self) -> bool {
        self.lock().off
    }

    pub fn set_used_percent(&self, percent: u64) {
        self.lock().used_percent = percent;
    }

    /// Takes the power away, if it is not gone yet, and gives it back: of what was not synced
    /// something is left, chosen by the seed.
    pub fn cut_power(&self) {
        let mut state = self.lock();
        power_cut::choose_survivors(&mut state);
        state.begin_generation();
    }

    /// As [`SimulatedDisk::cut_power`], and of what was not synced nothing is left.
    pub fn cut_power_and_lose_all(&self) {
        let mut state = self.lock();
        power_cut::keep_what_is_durable(&mut state);
        state.begin_generation();
    }

    /// Ends the process that holds the handles; the page cache stays.
    pub fn kill_process(&self) {
        self.lock().begin_generation();
    }
}

impl State {
    fn begin_generation(&mut self) {
        self.generation += 1;
        self.off = false;
        self.cut_at = None;
        for node in &mut self.nodes {
            if let Node::File(file) = node {
                file.locked_by = None;
            }
        }
    }
}

impl FileSystem for SimulatedDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StoreFile>> {
        let mut state = self.lock();
        let generation = state.generation;
        let found = state.find(path);
        let changes = match mode {
            OpenMode::Existing | OpenMode::ReadOnly => false,
            OpenMode::New => true,
            OpenMode::Any => found.is_err(),
            OpenMode::Empty => true,
        };
        let fate =
            state.enter(generation, if changes { Call::Create } else { Call::Open }, path)?;
        let id = match found {
            Ok(_) if mode == OpenMode::New => return Err(io::Error::from_raw_os_error(EEXIST)),
            Ok(id) => {
                let file = state.file(id)?;
                if mode == OpenMode::Empty {
                    file.set_length(0);
                    state.touch(id);
                }
                id
            }
            Err(error) if matches!(mode, OpenMode::Existing | OpenMode::ReadOnly) => {
                return Err(error);
            }
            Err(_) => {
                let (parent, name) = state.find_parent(path)?;
                let id = state.nodes.len();
                state.nodes.push(Node::File(FileNode::default()));
                state.touch(id);
                state.directory(parent)?.change(vec![(name, Some(id))]);
                id
            }
        };
        if let Fate::Breaks(error) = fate {
            return Err(error);
        }
        state.handles += 1;
        let handle = state.handles;
        Ok(Arc::new(SimulatedFile {
            disk: self.clone(),
            path: path.to_owned(),
            id,
            generation,
            handle,
        }))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        let mut state = self.lock();
        let generation = state.generation;
        if state.find(path).is_ok() {
            return Ok(());
        }
        let fate = state.enter(generation, Call::CreateDirectory, path)?;
        let mut made = PathBuf::new();
        for component in path.components() {
            made.push(component);
            if state.find(&made).is_err() {
                let (parent, name) = state.find_parent(&made)?;
                let id = state.nodes.len();
                state.nodes.push(Node::Directory(DirectoryNode::default()));
                state.directory(parent)?.change(vec![(name, Some(id))]);
            }
        }
        match fate {
            Fate::Works => Ok(()),
            Fate::Breaks(error) => Err(error),
        }
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let mut state = self.lock();
        let generation = state.generation;
        let id = state.find(path)?;
        if let Fate::Breaks(error) = state.enter(generation, Call::SyncDirectory, path)? {
            return Err(error);
        }
        state.directory(id)?.sync();
        Ok(())
    }

    fn sync_all(&self, path: &Path) -> io::Result<()> {
        let mut state = self.lock();
        let generation = state.generation;
        // Each directory of the root is a disk of its own.
        let id = state.find(&path.components().take(2).collect::<PathBuf>())?;
        if let Fate::Breaks(error) = state.enter(generation, Call::SyncAll, path)? {
            return Err(error);
        }
        state.sync_tree(id);
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>> {
        let mut state = self.lock();
        let generation = state.generation;
        let id = state.find(path)?;
        if let Fate::Breaks(error) = state.enter(generation, Call::List, path)? {
            return Err(error);
        }
        let Node::Directory(directory) = &state.nodes[id] else { return Err(missing()) };
        let entries = directory.cache.iter().map(|(name, id)| {
            let bytes = match &state.nodes[*id] {
                Node::File(file) => Some(file.cache.len() as u64),
                Node::Directory(_) => None,
            };
            DirectoryEntry {
                name: name.clone(),
                is_directory: bytes.is_none(),
                is_special: false,
                bytes: bytes.unwrap_or(0),
            }
        });
        Ok(entries.collect())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let mut state = self.lock();
        let generation = state.generation;
        match state.enter(generation, Call::Exists, path)? {
            Fate::Works => Ok(state.find(path).is_ok()),
            Fate::Breaks(error) => Err(error),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.lock();
        let generation = state.generation;
        let id = state.find(from)?;
        let fate = state.enter(generation, Call::Rename, from)?;
        let (from_parent, from_name) = state.find_parent(from)?;
        let (to_parent, to_name) = state.find_parent(to)?;
        assert_eq!(from_parent, to_parent, "the store renames within a directory");
        let names = vec![(from_name, None), (to_name, Some(id))];
        state.directory(from_parent)?.change(names);
        match fate {
            Fate::Works => Ok(()),
            Fate::Breaks(error) => Err(error),
        }
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.lock();
        let generation = state.generation;
        state.find(path)?;
        let fate = state.enter(generation, Call::RemoveFile, path)?;
        state.unlink(path)?;
        match fate {
            Fate::Works => Ok(()),
            Fate::Breaks(error) => Err(error),
        }
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        let mut state = self.lock();
        let generation = state.generation;
        let id = state.find(path)?;
        let fate = state.enter(generation, Call::RemoveDirectory, path)?;
        let mut left = usize::MAX;
        if matches!(fate, Fate::Breaks(_)) {
            left = state.random.below(6) as usize;
        }
        state.empty_directory(id, &mut left)?;
        match fate {
            Fate::Works => state.unlink(path),
            Fate::Breaks(error) => Err(error),
        }
    }

    fn disk_space(&self, path: &Path) -> io::Result<DiskSpace> {
        let mut state = self.lock();
        let generation = state.generation;
        match state.enter(generation, Call::DiskSpace, path)? {
            Fate::Works => Ok(DiskSpace {
                used_bytes: state.used_percent,
                available_bytes: 100 - state.used_percent,
            }),
            Fate::Breaks(error) => Err(error),
        }
    }

    fn memory_bytes(&self) -> u64 {
        1 << 30
    }
}
