//! One IndexFile in use: adding entries, repairing it, handing out its chains.
//!
//! Entries are added in groups with ordinary writes, entries first, then the slots that lead to
//! them, then the header; a full disk is an error and not a signal. One caller at a time writes,
//! anyone reads meanwhile.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::Mutex;
use rocketmq_protocol::message::record::MessageRecord;

use super::chain::{Chain, ReadAt};
use super::file::{ENTRY_BYTES, Entry, HEADER_BYTES, Header, Layout, SLOT_BYTES, seconds_since};
use super::key::KeyHasher;
use crate::dispatch_properties::DispatchProperties;
use crate::error::StoreError;
use crate::file_system::{FileSystem, OpenMode, StoreFile};

/// Slots nearer to each other than this are read and written with one call: copying 2 KiB costs
/// less than a call.
const RUN_GAP_SLOTS: u32 = 512;
/// Most slots of one such call.
const RUN_SLOTS_MAX: u32 = 16 * 1024;
/// Entries that a repair looks at with one read.
const REPAIR_ENTRIES: u32 = 64 * 1024;

/// An entry to be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NewEntry {
    pub(crate) key_hash: i32,
    pub(crate) physical_offset: i64,
    pub(crate) store_timestamp_ms: i64,
}

impl NewEntry {
    /// The entries of a record, in their order.
    pub(crate) fn of_record<'a>(
        record: &MessageRecord<'a>,
    ) -> impl Iterator<Item = NewEntry> + use<'a> {
        NewEntry::of_record_with(record, KeyHasher::new(record.topic))
    }

    /// As [`NewEntry::of_record`], with the hasher of the record's topic.
    pub(crate) fn of_record_with<'a>(
        record: &MessageRecord<'a>,
        hasher: KeyHasher,
    ) -> impl Iterator<Item = NewEntry> + use<'a> {
        let MessageRecord { physical_offset, store_timestamp_ms, .. } = *record;
        let found = DispatchProperties::of(record.properties);
        found.index_keys(record.sys_flag).map(move |key| NewEntry {
            key_hash: hasher.hash(key),
            physical_offset,
            store_timestamp_ms,
        })
    }
}

/// Buffers of [`IndexFile::append`], kept from one call to the next.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// Slot in the upper half, index of the entry in the lower one.
    order: Vec<u64>,
    slots: Vec<u8>,
    entries: Vec<u8>,
}

/// A file in use.
pub(crate) struct IndexFile {
    path: PathBuf,
    layout: Layout,
    file_system: Arc<dyn FileSystem>,
    /// Open while it is written; readers of older files open them when they need them.
    file: Mutex<Option<Arc<dyn StoreFile>>>,
    header: Mutex<Header>,
    /// Number behind the newest entry that is written: what a slot may lead to. It runs ahead of
    /// the header while a group is being added.
    written_end: AtomicU32,
    /// Whether an addition failed halfway, so that slots may lead to entries that do not count.
    is_torn: AtomicBool,
    is_unsynced: AtomicBool,
}

impl std::fmt::Debug for IndexFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IndexFile")
            .field("path", &self.path)
            .field("header", &self.header())
            .finish_non_exhaustive()
    }
}

impl IndexFile {
    fn new(
        file_system: Arc<dyn FileSystem>,
        path: PathBuf,
        layout: Layout,
        header: Header,
        file: Option<Arc<dyn StoreFile>>,
    ) -> IndexFile {
        IndexFile {
            path,
            layout,
            file_system,
            file: Mutex::new(file),
            written_end: AtomicU32::new(header.next_entry),
            header: Mutex::new(header),
            is_torn: AtomicBool::new(false),
            is_unsynced: AtomicBool::new(false),
        }
    }

    /// Makes a file without entries, in the place of one that an earlier call left half-made. Its length is set, no space reserved: it is mostly holes.
    ///
    /// # Errors
    /// What the operating system says; nothing is left behind then.
    pub(crate) fn make(
        file_system: Arc<dyn FileSystem>,
        path: PathBuf,
        layout: Layout,
    ) -> Result<IndexFile, StoreError> {
        let make = || {
            let file = file_system
                .open(&path, OpenMode::Empty)
                .map_err(StoreError::io("create", &path))?;
            file.set_len(layout.file_bytes()).map_err(StoreError::io("extend", &path))?;
            Ok(file)
        };
        let file = make().inspect_err(|_| {
            // Best effort: one that stays has no length, and is removed when it is found.
            let _ = file_system.remove_file(&path);
        })?;
        let made = IndexFile::new(file_system, path, layout, Header::EMPTY, Some(file));
        made.is_unsynced.store(true, Ordering::Release);
        Ok(made)
    }

    /// Opens a file that exists and has the right length.
    ///
    /// # Errors
    /// What the operating system says. The inner error says what is wrong with the header.
    pub(crate) fn load(
        file_system: Arc<dyn FileSystem>,
        path: PathBuf,
        layout: Layout,
    ) -> Result<Result<IndexFile, String>, StoreError> {
        let file =
            file_system.open(&path, OpenMode::Existing).map_err(StoreError::io("open", &path))?;
        let mut bytes = [0; HEADER_BYTES];
        file.read_at(&mut bytes, 0).map_err(StoreError::io("read", &path))?;
        let header = Header::decode(&bytes, &layout);
        Ok(header.map(|header| IndexFile::new(file_system, path, layout, header, None)))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn header(&self) -> Header {
        *self.header.lock()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.header().next_entry >= self.layout.entries
    }

    /// Whether there is something that a loss of power would take.
    pub(crate) fn is_unsynced(&self) -> bool {
        self.is_unsynced.load(Ordering::Acquire)
    }

    /// The file, which stays open.
    fn keep_open(&self) -> Result<Arc<dyn StoreFile>, StoreError> {
        let mut open = self.file.lock();
        if let Some(file) = &*open {
            return Ok(Arc::clone(file));
        }
        let file = self.open()?;
        *open = Some(Arc::clone(&file));
        Ok(file)
    }

    fn open(&self) -> Result<Arc<dyn StoreFile>, StoreError> {
        self.file_system
            .open(&self.path, OpenMode::Existing)
            .map_err(StoreError::io("open", &self.path))
    }

    /// Closes the file until it is needed again.
    pub(crate) fn close(&self) {
        *self.file.lock() = None;
    }

    /// The chain of a hash.
    ///
    /// # Errors
    /// What the operating system says; a file that was removed meanwhile is not found.
    pub(crate) fn chain(&self, key_hash: i32) -> io::Result<Chain<impl ReadAt>> {
        let open = self.file.lock().clone();
        let file = match open {
            Some(file) => file,
            None => self.file_system.open(&self.path, OpenMode::Existing)?,
        };
        let read = move |buffer: &mut [u8], position| file.read_at(buffer, position);
        Chain::new(self.layout, key_hash, read, || self.written_end.load(Ordering::Acquire))
    }

    /// How many of the newest entries, at most `count_max`, are of the record at `physical_offset`,
    /// and whether that are all entries of the file.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn newest_of(&self, physical_offset: i64) -> Result<(usize, bool), StoreError> {
        let header = self.header();
        let file = self.open()?;
        let mut bytes = [0; ENTRY_BYTES];
        let mut count = 0;
        for number in (1..header.next_entry).rev() {
            file.read_at(&mut bytes, self.layout.entry_position(number))
                .map_err(StoreError::io("read", &self.path))?;
            if Entry::decode(&bytes).physical_offset != physical_offset {
                return Ok((count, false));
            }
            count += 1;
        }
        Ok((count, true))
    }

    /// The hash of the newest entry.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn newest_hash(&self) -> Result<i32, StoreError> {
        let number = self.header().next_entry.saturating_sub(1);
        let mut bytes = [0; ENTRY_BYTES];
        self.open()?
            .read_at(&mut bytes, self.layout.entry_position(number))
            .map_err(StoreError::io("read", &self.path))?;
        Ok(Entry::decode(&bytes).key_hash)
    }

    /// Adds entries behind the last one, as many as there is room for; they come in the order of
    /// the log. Returns how many that were. One caller at a time.
    ///
    /// # Errors
    /// What the operating system says; then none of them counts.
    pub(crate) fn append(
        &self,
        new: &[NewEntry],
        scratch: &mut Scratch,
    ) -> Result<usize, StoreError> {
        let mut header = self.header();
        let room = self.layout.entries.saturating_sub(header.next_entry);
        let new = &new[..new.len().min(room as usize)];
        let (Some(first), Some(last)) = (new.first(), new.last()) else { return Ok(0) };
        if self.is_torn.load(Ordering::Acquire) {
            let end_timestamp_ms = header.end_timestamp_ms;
            if self.repair(i64::MAX, |_| Some(end_timestamp_ms))? {
                tracing::error!(path = %self.path.display(), "index file is damaged, a part is lost");
            }
            header = self.header();
        }
        let file = self.keep_open()?;
        if header.is_empty() {
            header.begin_timestamp_ms = first.store_timestamp_ms;
            header.begin_physical_offset = first.physical_offset;
        }
        header.end_timestamp_ms = last.store_timestamp_ms;
        header.end_physical_offset = last.physical_offset;

        scratch.order.clear();
        scratch.order.extend(new.iter().enumerate().map(|(index, entry)| {
            u64::from(self.layout.slot_of(entry.key_hash)) << 32 | index as u64
        }));
        scratch.order.sort_unstable();
        let numbers = header.next_entry;
        header.slots_used += self.chain_up(&*file, new, &header, scratch)?;
        header.next_entry += new.len() as u32;

        self.is_torn.store(true, Ordering::Release);
        self.is_unsynced.store(true, Ordering::Release);
        file.write_at(&scratch.entries, self.layout.entry_position(numbers))
            .map_err(StoreError::io("write", &self.path))?;
        self.written_end.store(header.next_entry, Ordering::Release);
        self.write_slots(&*file, numbers, scratch)?;
        file.write_at(&header.encode(), 0).map_err(StoreError::io("write", &self.path))?;
        *self.header.lock() = header;
        self.is_torn.store(false, Ordering::Release);
        // Once more: a sync may have begun in the middle.
        self.is_unsynced.store(true, Ordering::Release);
        Ok(new.len())
    }

    /// Encodes the entries, each with the one in front of it in its chain. Returns how many slots
    /// were empty before.
    fn chain_up(
        &self,
        file: &dyn StoreFile,
        new: &[NewEntry],
        header: &Header,
        scratch: &mut Scratch,
    ) -> Result<u32, StoreError> {
        let Scratch { order, slots, entries } = scratch;
        entries.clear();
        entries.resize(new.len() * ENTRY_BYTES, 0);
        let mut begun = 0;
        for run in runs(order) {
            let first = slot(run[0]);
            self.read_slots(file, run, slots)?;
            let mut in_front: Option<(u32, u32)> = None;
            for item in run {
                let (slot, index) = (slot(*item), *item as u32 as usize);
                let previous = match in_front {
                    Some((of, number)) if of == slot => number,
                    _ => {
                        let word = word_at(slots, slot - first);
                        u32::try_from(word).ok().filter(|n| *n < header.next_entry).unwrap_or(0)
                    }
                };
                if previous == 0 {
                    begun += 1;
                }
                in_front = Some((slot, header.next_entry + index as u32));
                let NewEntry { key_hash, physical_offset, store_timestamp_ms } = new[index];
                let entry = Entry {
                    key_hash,
                    physical_offset,
                    seconds: seconds_since(header.begin_timestamp_ms, store_timestamp_ms),
                    // Numbers stay below the layout's entries, which fit 31 bits.
                    previous: previous as i32,
                };
                entries[index * ENTRY_BYTES..][..ENTRY_BYTES].copy_from_slice(&entry.encode());
            }
        }
        Ok(begun)
    }

    /// Lets the slots lead to the new entries, the first of which is number `numbers`.
    fn write_slots(
        &self,
        file: &dyn StoreFile,
        numbers: u32,
        scratch: &mut Scratch,
    ) -> Result<(), StoreError> {
        let Scratch { order, slots, .. } = scratch;
        for run in runs(order) {
            let first = slot(run[0]);
            self.read_slots(file, run, slots)?;
            // Of several entries of a slot the newest comes last.
            for item in run {
                let at = (slot(*item) - first) as usize * SLOT_BYTES;
                slots[at..at + SLOT_BYTES].copy_from_slice(&(numbers + *item as u32).to_be_bytes());
            }
            file.write_at(slots, self.layout.slot_position(first))
                .map_err(StoreError::io("write", &self.path))?;
        }
        Ok(())
    }

    fn read_slots(
        &self,
        file: &dyn StoreFile,
        run: &[u64],
        slots: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        let (first, last) = (slot(run[0]), slot(run[run.len() - 1]));
        slots.resize((last - first + 1) as usize * SLOT_BYTES, 0);
        file.read_at(slots, self.layout.slot_position(first))
            .map_err(StoreError::io("read", &self.path))
    }

    /// Reads all entries, keeps those from the front on that are sound and whose records lie in
    /// front of `keep_before`, wipes the rest, and makes the slots and the header anew. `time_of`
    /// says the store time of a record. Returns whether the first entry left out is a damaged one.
    ///
    /// For recovery, and for the one who adds entries.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn repair(
        &self,
        keep_before: i64,
        time_of: impl Fn(i64) -> Option<i64>,
    ) -> Result<bool, StoreError> {
        let old = self.header();
        let file = self.keep_open()?;
        let mut header = Header { slots_used: 0, next_entry: 1, ..old };
        let mut slots = vec![0_u32; self.layout.slots as usize];
        let mut bytes = Vec::new();
        let mut is_damaged = false;
        let mut newest: Option<Entry> = None;
        'entries: while header.next_entry < old.next_entry {
            let count = (old.next_entry - header.next_entry).min(REPAIR_ENTRIES);
            bytes.resize(count as usize * ENTRY_BYTES, 0);
            file.read_at(&mut bytes, self.layout.entry_position(header.next_entry))
                .map_err(StoreError::io("read", &self.path))?;
            for entry in Entry::iter(&bytes) {
                let floor = newest.map_or(header.begin_physical_offset, |e| e.physical_offset);
                let slot = self.layout.slot_of(entry.key_hash) as usize;
                let is_sound = entry.key_hash >= 0
                    && entry.seconds >= 0
                    && entry.physical_offset >= floor
                    && u32::try_from(entry.previous).is_ok_and(|previous| previous == slots[slot]);
                if !is_sound || entry.physical_offset >= keep_before {
                    is_damaged = !is_sound;
                    break 'entries;
                }
                if slots[slot] == 0 {
                    header.slots_used += 1;
                }
                slots[slot] = header.next_entry;
                header.next_entry += 1;
                newest = Some(entry);
            }
        }
        match newest {
            Some(entry) => {
                header.end_physical_offset = entry.physical_offset;
                header.end_timestamp_ms = time_of(entry.physical_offset)
                    .unwrap_or_else(|| entry.timestamp_ms(header.begin_timestamp_ms));
            }
            None => header = Header::EMPTY,
        }
        let write = |bytes: &[u8], position| {
            file.write_at(bytes, position).map_err(StoreError::io("write", &self.path))
        };
        self.is_torn.store(true, Ordering::Release);
        self.is_unsynced.store(true, Ordering::Release);
        // Slots that are right stay as they are: readers may be on their way through them.
        let mut found = Vec::new();
        for (index, chunk) in slots.chunks(RUN_SLOTS_MAX as usize).enumerate() {
            let position = self.layout.slot_position(index as u32 * RUN_SLOTS_MAX);
            bytes.clear();
            bytes.extend(chunk.iter().flat_map(|number| number.to_be_bytes()));
            found.resize(bytes.len(), 0);
            file.read_at(&mut found, position).map_err(StoreError::io("read", &self.path))?;
            if found != bytes {
                write(&bytes, position)?;
            }
        }
        let end = self.layout.entry_position(header.next_entry);
        file.zero_range(end, self.layout.file_bytes() - end)
            .map_err(StoreError::io("wipe the end of", &self.path))?;
        write(&header.encode(), 0)?;
        self.written_end.store(header.next_entry, Ordering::Release);
        *self.header.lock() = header;
        self.is_torn.store(false, Ordering::Release);
        Ok(is_damaged)
    }

    /// Makes what was written durable.
    ///
    /// # Errors
    /// What the operating system says; the caller must treat it as final.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        if self.is_unsynced.swap(false, Ordering::AcqRel) {
            let file = self.keep_open()?;
            file.sync_data().map_err(StoreError::io("sync", &self.path))?;
        }
        Ok(())
    }
}

fn slot(item: u64) -> u32 {
    (item >> 32) as u32
}

/// The slot word with this index in `bytes`.
fn word_at(bytes: &[u8], index: u32) -> i32 {
    let words = bytes.as_chunks::<SLOT_BYTES>().0;
    words.get(index as usize).map_or(0, |word| i32::from_be_bytes(*word))
}

/// Cuts what is sorted by slot into runs that are read and written at once; none is empty.
fn runs(order: &[u64]) -> impl Iterator<Item = &[u64]> {
    let mut rest = order;
    std::iter::from_fn(move || {
        let first = slot(*rest.first()?);
        let mut last = first;
        let end = rest.iter().position(|item| {
            let slot = slot(*item);
            let ends = slot - last > RUN_GAP_SLOTS || slot - first >= RUN_SLOTS_MAX;
            last = slot;
            ends
        });
        let (run, behind) = rest.split_at(end.unwrap_or(rest.len()));
        rest = behind;
        Some(run)
    })
}
