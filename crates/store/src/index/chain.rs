//! Walking a chain of entries, from the newest to the oldest.
//!
//! A damaged file can neither lead outside of itself nor around in circles: entries are taken only
//! in front of the end that the header says, each must belong to the chain's slot, and each must
//! have a smaller number than the one in front.

use std::io;

use super::file::{ENTRY_BYTES, Entry, Layout, SLOT_BYTES};

/// Bytes that are read at a time: neighbours in a chain of a frequent key lie close together.
const BLOCK_BYTES: usize = 4096;

/// Why a chain cannot be followed any further.
#[derive(Debug, thiserror::Error)]
pub enum ChainError {
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// An entry is not one that could stand there.
    #[error("entry {number} of the chain of slot {slot} is damaged: {reason}")]
    Damaged {
        /// Its number.
        number: u32,
        /// The slot.
        slot: u32,
        /// What is wrong.
        reason: String,
    },
}

/// Fills a buffer from a position of the file.
pub trait ReadAt: FnMut(&mut [u8], u64) -> io::Result<()> {}

impl<R: FnMut(&mut [u8], u64) -> io::Result<()>> ReadAt for R {}

/// A chain being walked.
#[derive(Debug)]
pub struct Chain<R> {
    layout: Layout,
    slot: u32,
    /// Number of the next entry to hand out, 0 at the end.
    next: u32,
    read: R,
    block: Vec<u8>,
    block_position: u64,
}

impl<R: ReadAt> Chain<R> {
    /// Begins at the slot of `key_hash`. `end` is asked for the number behind the newest entry after
    /// the slot was read: an entry is written before its slot.
    ///
    /// # Errors
    /// When the slot cannot be read.
    pub fn new(
        layout: Layout,
        key_hash: i32,
        mut read: R,
        end: impl FnOnce() -> u32,
    ) -> io::Result<Chain<R>> {
        let slot = layout.slot_of(key_hash);
        let mut word = [0; SLOT_BYTES];
        read(&mut word, layout.slot_position(slot))?;
        let number = i32::from_be_bytes(word);
        let end = end().min(layout.entries);
        // RocketMQ takes what is out of range for an empty slot.
        let next = u32::try_from(number).ok().filter(|number| *number < end).unwrap_or(0);
        Ok(Chain { layout, slot, next, read, block: Vec::new(), block_position: 0 })
    }

    /// The next older entry.
    ///
    /// # Errors
    /// When the file cannot be read or the entry is damaged; the chain ends there.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, ChainError> {
        let number = std::mem::take(&mut self.next);
        if number == 0 {
            return Ok(None);
        }
        let entry = self.entry(number)?;
        let damaged = |reason| ChainError::Damaged { number, slot: self.slot, reason };
        if entry.key_hash < 0 || self.layout.slot_of(entry.key_hash) != self.slot {
            return Err(damaged(format!("key hash {} is of another slot", entry.key_hash)));
        }
        if entry.physical_offset < 0 || entry.seconds < 0 {
            let (offset, seconds) = (entry.physical_offset, entry.seconds);
            return Err(damaged(format!("offset {offset}, time {seconds} s")));
        }
        // Zero and below end the chain.
        self.next = u32::try_from(entry.previous).unwrap_or(0);
        if self.next >= number {
            self.next = 0;
            return Err(damaged(format!("the one in front of it is {}", entry.previous)));
        }
        Ok(Some(entry))
    }

    fn entry(&mut self, number: u32) -> io::Result<Entry> {
        let position = self.layout.entry_position(number);
        let end = position + ENTRY_BYTES as u64;
        let block_end = self.block_position + self.block.len() as u64;
        if position < self.block_position || end > block_end {
            // The rest of the chain lies in front, so the block ends with this entry.
            let first = self.layout.entry_position(0);
            let start = end.saturating_sub(BLOCK_BYTES as u64).max(first);
            self.block.resize((end - start) as usize, 0);
            self.block_position = start;
            if let Err(error) = (self.read)(&mut self.block, start) {
                self.block.clear();
                return Err(error);
            }
        }
        let at = (position - self.block_position) as usize;
        let bytes = self.block.get(at..).and_then(|rest| rest.first_chunk());
        // The block was just seen to hold it.
        bytes.map(Entry::decode).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LAYOUT: Layout = Layout { slots: 4, entries: 400 };

    fn walk(bytes: &[u8], key_hash: i32, end: u32) -> (Vec<Entry>, Option<ChainError>) {
        let read = |buffer: &mut [u8], position: u64| {
            let at = position as usize;
            let found = bytes.get(at..at + buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
            buffer.copy_from_slice(found);
            Ok(())
        };
        let mut entries = Vec::new();
        let mut chain = match Chain::new(LAYOUT, key_hash, read, || end) {
            Ok(chain) => chain,
            Err(error) => return (entries, Some(error.into())),
        };
        loop {
            match chain.next_entry() {
                Ok(Some(entry)) => entries.push(entry),
                Ok(None) => return (entries, None),
                Err(error) => return (entries, Some(error)),
            }
        }
    }

    /// A file with one chain through all its entries, in slot 1.
    fn one_chain(count: u32) -> Vec<u8> {
        let mut bytes = vec![0; LAYOUT.file_bytes() as usize];
        let at = LAYOUT.slot_position(1) as usize;
        bytes[at..at + 4].copy_from_slice(&count.to_be_bytes());
        for number in 1..=count {
            let entry = Entry {
                key_hash: 5,
                physical_offset: i64::from(number),
                seconds: 0,
                previous: number as i32 - 1,
            };
            let at = LAYOUT.entry_position(number) as usize;
            bytes[at..at + ENTRY_BYTES].copy_from_slice(&entry.encode());
        }
        bytes
    }

    #[test]
    fn a_chain_is_walked_to_its_end() {
        let bytes = one_chain(399);
        let (entries, error) = walk(&bytes, 5, 400);
        assert!(error.is_none());
        let offsets: Vec<_> = entries.iter().map(|entry| entry.physical_offset).collect();
        assert_eq!(offsets, (1..=399).rev().collect::<Vec<_>>());
        assert_eq!(walk(&bytes, 6, 400).0.len(), 0);
        assert_eq!(walk(&bytes, 5, 399).0.len(), 0, "behind the end the slot counts as empty");
    }

    #[test]
    fn damage_ends_a_chain_and_is_named() {
        for (previous, key_hash, part) in [
            (399, 5, "in front of it is 399"),
            (200, 5, "in front of it is 200"),
            (99, 6, "another slot"),
            (99, -5, "another slot"),
        ] {
            let mut bytes = one_chain(399);
            let entry = Entry { key_hash, physical_offset: 1, seconds: 0, previous };
            let at = LAYOUT.entry_position(100) as usize;
            bytes[at..at + ENTRY_BYTES].copy_from_slice(&entry.encode());
            let (entries, error) = walk(&bytes, 5, 400);
            assert_eq!(entries.len(), 299);
            let error = error.unwrap().to_string();
            assert!(error.contains("entry 100") && error.contains(part), "{error}");
        }
        let bytes = one_chain(399);
        let (entries, error) = walk(&bytes[..bytes.len() - 100], 5, 400);
        assert!(entries.is_empty() && matches!(error, Some(ChainError::Read(_))));
    }

    proptest! {
        #[test]
        fn garbage_neither_loops_nor_panics(
            words in prop::collection::vec(-2..400_i32, 2_100),
            key_hash in 0..i32::MAX,
        ) {
            let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            bytes.resize(LAYOUT.file_bytes() as usize, 0);
            let (entries, _) = walk(&bytes, key_hash, 400);
            prop_assert!(entries.len() < 400);
        }
    }
}
