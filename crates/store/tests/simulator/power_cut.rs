//! What is left of a disk when the power goes.
//!
//! Of each file's unsynced changes nothing, all, the first few, or a mixture is left: each page at
//! another moment of its history, or torn, each of its sectors at another. Of each directory's
//! unsynced changes nothing, all, the first few or any of them are left. The length of a file is
//! journaled: it follows its own moment, and what lies in it but was not written reads as zeros.

use std::collections::BTreeMap;

use super::disk::{Change, DirectoryNode, FileNode, Node, NodeId, State};
use rocketmq_simulation::Random;

const SECTOR_BYTES: usize = 512;
pub(super) const PAGE_BYTES: usize = 4096;
const SECTORS_PER_PAGE: usize = PAGE_BYTES / SECTOR_BYTES;

/// Replaces the tree by what was synced.
pub(super) fn keep_what_is_durable(state: &mut State) {
    for node in &mut state.nodes {
        match node {
            Node::File(file) => file.pending.clear(),
            Node::Directory(directory) => directory.pending.clear(),
        }
    }
    choose_survivors(state);
}

/// Replaces the tree by what survives.
pub(super) fn choose_survivors(state: &mut State) {
    let mut random = state.random.fork();
    let mut survivors = Survivors {
        before: std::mem::take(&mut state.nodes),
        after: Vec::new(),
        moved: BTreeMap::new(),
    };
    survivors.keep(0, &mut random);
    state.nodes = survivors.after;
}

struct Survivors {
    before: Vec<Node>,
    after: Vec<Node>,
    moved: BTreeMap<NodeId, NodeId>,
}

impl Survivors {
    fn keep(&mut self, id: NodeId, random: &mut Random) -> NodeId {
        if let Some(moved) = self.moved.get(&id) {
            return *moved;
        }
        let new_id = self.after.len();
        self.moved.insert(id, new_id);
        match &self.before[id] {
            Node::File(file) => {
                let contents = surviving_contents(file, random);
                self.after.push(Node::File(file.after_power_cut(contents)));
            }
            Node::Directory(directory) => {
                let names = surviving_names(directory, random);
                self.after.push(Node::Directory(DirectoryNode::default()));
                let mut kept = BTreeMap::new();
                for (name, child) in names {
                    kept.insert(name, self.keep(child, random));
                }
                self.after[new_id] = Node::Directory(DirectoryNode {
                    cache: kept.clone(),
                    disk: kept,
                    pending: Vec::new(),
                });
            }
        }
        new_id
    }
}

pub(super) fn apply(names: &mut BTreeMap<String, NodeId>, change: &[(String, Option<NodeId>)]) {
    for (name, id) in change {
        match id {
            Some(id) => names.insert(name.clone(), *id),
            None => names.remove(name),
        };
    }
}

fn surviving_names(directory: &DirectoryNode, random: &mut Random) -> BTreeMap<String, NodeId> {
    if directory.pending.is_empty() {
        return directory.disk.clone();
    }
    let mut names = directory.disk.clone();
    let count = directory.pending.len() as u64;
    let (first, each_percent) = match random.below(4) {
        0 => return names,
        1 => return directory.cache.clone(),
        2 => (random.below(count + 1) as usize, 0),
        _ => (0, 50),
    };
    for (index, change) in directory.pending.iter().enumerate() {
        if index < first || random.percent(each_percent) {
            apply(&mut names, change);
        }
    }
    names
}

/// What a file holds when only what is durable, and something of the rest, is left.
pub(super) fn surviving_contents(file: &FileNode, random: &mut Random) -> Vec<u8> {
    if file.pending.is_empty() {
        return file.disk.clone();
    }
    let count = file.pending.len();
    let moment = |random: &mut Random| random.below(count as u64 + 1) as usize;
    // The moment of the length, and that of each sector: changes in front of it are there.
    let longest = file.cache.len().max(file.disk.len());
    let sectors = longest.div_ceil(SECTOR_BYTES);
    let (length, moments) = match random.below(4) {
        0 => return file.disk.clone(),
        1 => return file.cache.clone(),
        2 => {
            let moment = moment(random);
            (moment, vec![moment; sectors])
        }
        _ => {
            let length = if random.percent(50) { count } else { moment(random) };
            let mut moments = Vec::with_capacity(sectors + SECTORS_PER_PAGE);
            while moments.len() < sectors {
                match random.below(3) {
                    0 => moments.extend([count; SECTORS_PER_PAGE]),
                    1 => moments.extend([moment(random); SECTORS_PER_PAGE]),
                    _ => moments.extend(
                        (0..SECTORS_PER_PAGE)
                            .map(|_| if random.percent(50) { count } else { moment(random) }),
                    ),
                }
            }
            (length, moments)
        }
    };
    // Blocks that a truncation gave back were not those that later writes went to.
    let mut known_length = file.disk.len();
    let mut writes_end = count;
    for (index, change) in file.pending.iter().enumerate() {
        if let Change::Length(bytes) = change {
            if *bytes < known_length && index >= length {
                writes_end = index;
                break;
            }
            known_length = *bytes;
        }
    }
    let mut contents = file.disk.clone();
    for (index, change) in file.pending.iter().enumerate() {
        match change {
            Change::Length(bytes) if index < length => contents.resize(*bytes, 0),
            Change::Length(_) => {}
            Change::Write { position, bytes } if index < writes_end => {
                let mut at = *position;
                let end = (position + bytes.len()).min(contents.len());
                while at < end {
                    let sector = at / SECTOR_BYTES;
                    let step = end.min((sector + 1) * SECTOR_BYTES);
                    if index < moments.get(sector).copied().unwrap_or(0) {
                        contents[at..step].copy_from_slice(&bytes[at - position..step - position]);
                    }
                    at = step;
                }
            }
            Change::Write { .. } => {}
        }
    }
    contents
}
