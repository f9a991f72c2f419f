//! Epochs, and where in the log each began: the epoch file of RocketMQ's controller mode
//! (`EpochFileCache`, `epochFileCheckpoint`).

use std::fmt;

/// A reign. At most one replica is master of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch(pub i32);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where an epoch begins in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEntry {
    /// Which one.
    pub epoch: Epoch,
    /// Physical offset of its first byte; it ends where the next one begins.
    pub start: i64,
}

/// The epochs of a log, oldest first. Epochs grow strictly; starts never fall.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EpochTable(Vec<EpochEntry>);

/// Why a text is no epoch file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EpochFileError {
    /// The first two lines are not a count and a checksum.
    #[error("epoch file: line {line} is {text:?}, expected {expected}")]
    Line {
        /// From 1 on.
        line: usize,
        /// What it says.
        text: String,
        /// What would be right.
        expected: &'static str,
    },
    /// The count does not fit.
    #[error("epoch file: {found} entries, its first line says {said}")]
    Count {
        /// Lines that follow.
        found: usize,
        /// What the first line says.
        said: usize,
    },
    /// The entries are not what was written.
    #[error("epoch file: checksum of the entries is {found}, its second line says {said}")]
    Checksum {
        /// Of the lines that follow.
        found: u32,
        /// What the second line says.
        said: u32,
    },
    /// Epochs or offsets run backwards.
    #[error("epoch file: entry {epoch}-{start} does not come after the one before it")]
    Order {
        /// The entry's epoch.
        epoch: Epoch,
        /// The entry's start.
        start: i64,
    },
}

impl EpochTable {
    /// Entries as another broker says them.
    ///
    /// # Errors
    /// When they are not in order or an offset is negative.
    pub fn new(entries: Vec<EpochEntry>) -> Result<EpochTable, EpochFileError> {
        let mut table = EpochTable::default();
        for entry in entries {
            table.push(entry)?;
        }
        Ok(table)
    }

    /// Adds the newest epoch.
    ///
    /// # Errors
    /// When it is not newer than the last, or begins in front of it.
    pub fn push(&mut self, entry: EpochEntry) -> Result<(), EpochFileError> {
        let follows = match self.0.last() {
            None => entry.start >= 0 && entry.epoch.0 >= 0,
            Some(last) => entry.epoch > last.epoch && entry.start >= last.start,
        };
        if !follows {
            return Err(EpochFileError::Order { epoch: entry.epoch, start: entry.start });
        }
        self.0.push(entry);
        Ok(())
    }

    /// Oldest first.
    pub fn entries(&self) -> &[EpochEntry] {
        &self.0
    }

    /// The newest epoch.
    pub fn last(&self) -> Option<EpochEntry> {
        self.0.last().copied()
    }

    /// The epoch that the byte at `offset` belongs to.
    pub fn at(&self, offset: i64) -> Option<EpochEntry> {
        self.0.iter().rev().find(|entry| entry.start <= offset).copied()
    }

    /// Where the entry at `index` ends in a log that ends at `log_end`.
    fn end(&self, index: usize, log_end: i64) -> i64 {
        self.0.get(index + 1).map_or(log_end, |next| next.start)
    }

    /// The offset up to which two logs are the same: the end, in whichever log it ends first, of the
    /// newest epoch that both have and that began at the same place in both. None if there is no such
    /// epoch.
    pub fn consistent_point(
        &self,
        log_end: i64,
        other: &EpochTable,
        other_end: i64,
    ) -> Option<i64> {
        self.0.iter().enumerate().rev().find_map(|(index, entry)| {
            let there = other.0.iter().position(|theirs| theirs == entry)?;
            Some(self.end(index, log_end).min(other.end(there, other_end)))
        })
    }

    /// Forgets epochs that begin at or behind `offset`, where the log was cut. An epoch that begins
    /// exactly there holds nothing.
    pub fn truncate_suffix(&mut self, offset: i64) {
        self.0.retain(|entry| entry.start < offset);
    }

    /// Forgets epochs that end at or in front of `offset`, whose log was deleted; the one that holds
    /// `offset` keeps its start.
    pub fn truncate_prefix(&mut self, offset: i64) {
        let keep_from = self.0.iter().rposition(|entry| entry.start <= offset).unwrap_or(0);
        self.0.drain(..keep_from);
    }

    /// The text of RocketMQ's epoch file.
    pub fn to_text(&self) -> String {
        let lines: String =
            self.0.iter().map(|entry| format!("{}-{}\n", entry.epoch, entry.start)).collect();
        format!("{}\n{}\n{lines}", self.0.len(), checksum(&lines))
    }

    /// Reads the text of an epoch file. A checksum of 0 is not checked, as in RocketMQ.
    ///
    /// # Errors
    /// When it is damaged; the line or the sum is named.
    pub fn from_text(text: &str) -> Result<EpochTable, EpochFileError> {
        let mut lines = text.split_inclusive('\n');
        let mut number = |line: usize, expected: &'static str| {
            let text = lines.next().unwrap_or_default();
            text.trim().parse::<u32>().map_err(|_| EpochFileError::Line {
                line,
                text: text.trim().to_owned(),
                expected,
            })
        };
        let said = number(1, "the number of entries")? as usize;
        let sum = number(2, "a checksum")?;
        let rest: Vec<&str> = lines.filter(|line| !line.trim().is_empty()).collect();
        if rest.len() != said {
            return Err(EpochFileError::Count { found: rest.len(), said });
        }
        let found = checksum(&rest.concat());
        if sum != 0 && sum != found {
            return Err(EpochFileError::Checksum { found, said: sum });
        }
        let mut table = EpochTable::default();
        for (index, line) in rest.iter().enumerate() {
            let entry = line.trim().split_once('-').and_then(|(epoch, start)| {
                Some(EpochEntry { epoch: Epoch(epoch.parse().ok()?), start: start.parse().ok()? })
            });
            let entry = entry.ok_or_else(|| EpochFileError::Line {
                line: index + 3,
                text: line.trim().to_owned(),
                expected: "an epoch, a dash and a physical offset",
            })?;
            table.push(entry)?;
        }
        Ok(table)
    }
}

/// Of the entry lines with their line ends; the sign bit is cut off.
fn checksum(lines: &str) -> u32 {
    crc32fast::hash(lines.as_bytes()) & 0x7FFF_FFFF
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table(entries: &[(i32, i64)]) -> EpochTable {
        let entries =
            entries.iter().map(|(epoch, start)| EpochEntry { epoch: Epoch(*epoch), start: *start });
        EpochTable::new(entries.collect()).expect("in order")
    }

    #[test]
    fn logs_agree_up_to_the_end_of_the_last_common_epoch() {
        let old = table(&[(1, 0), (2, 100)]);
        let new = table(&[(1, 0), (2, 100), (3, 150)]);
        assert_eq!(old.consistent_point(180, &new, 400), Some(150));
        assert_eq!(old.consistent_point(120, &new, 400), Some(120));
        assert_eq!(new.consistent_point(400, &old, 180), Some(150));
        let elsewhere = table(&[(1, 0), (2, 90)]);
        assert_eq!(old.consistent_point(180, &elsewhere, 200), Some(90), "epoch 1 ended there");
        assert_eq!(old.consistent_point(180, &table(&[(7, 0)]), 10), None);
        assert_eq!(old.consistent_point(180, &EpochTable::default(), 10), None);
    }

    #[test]
    fn a_cut_log_forgets_the_epochs_behind_the_cut() {
        let mut epochs = table(&[(1, 0), (2, 100), (3, 150)]);
        epochs.truncate_suffix(150);
        assert_eq!(epochs, table(&[(1, 0), (2, 100)]));
        epochs.truncate_prefix(100);
        assert_eq!(epochs, table(&[(2, 100)]));
        assert_eq!((epochs.at(99), epochs.at(100)), (None, epochs.last()));
    }

    #[test]
    fn damage_is_named() {
        let text = table(&[(1, 0), (2, 100)]).to_text();
        let error = |text: &str| EpochTable::from_text(text).expect_err("damaged").to_string();
        assert!(error("").contains("line 1 is \"\""));
        assert!(error(&text.replace("2-100", "2-101")).contains("checksum"));
        assert!(error("3\n0\n1-0\n2-5\n").contains("2 entries, its first line says 3"));
        assert!(error("2\n0\n1-0\n1-5\n").contains("1-5 does not come after"));
        assert!(error("1\n0\n1+0\n").contains("line 3"));
        assert_eq!(EpochTable::from_text("2\n0\n1-0\n2-5\n"), Ok(table(&[(1, 0), (2, 5)])));
    }

    proptest! {
        #[test]
        fn a_file_is_read_as_it_was_written(steps in proptest::collection::vec((1..5_i32, 0..1000_i64), 0..20)) {
            let (mut epoch, mut start) = (0, 0);
            let mut epochs = EpochTable::default();
            for (more, bytes) in steps {
                epoch += more;
                start += bytes;
                epochs.push(EpochEntry { epoch: Epoch(epoch), start }).expect("in order");
            }
            prop_assert_eq!(EpochTable::from_text(&epochs.to_text()), Ok(epochs));
        }
    }
}
