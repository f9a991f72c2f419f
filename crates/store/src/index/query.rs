//! Finding messages by key (`IndexService.queryOffset` and `DefaultMessageStore.queryMessage`).
//!
//! The index knows hashes and whole seconds; each record is looked at before it counts, so what is
//! returned has exactly the topic, the key and a store time in range, and is still to be seen in
//! its queue.

use std::io;
use std::ops::RangeInclusive;

use bytes::Bytes;
use rocketmq_protocol::message::record::MessageRecord;

use super::chain::ChainError;
use super::key::KeyHasher;
use super::open_file::IndexFile;
use super::{Index, NewEntry};
use crate::commit_log::CommitLog;
use crate::dispatch_properties::DispatchProperties;
use crate::error::StoreError;

/// What is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Query<'a> {
    pub(crate) topic: &'a str,
    /// A unique key or a word of the keys.
    pub(crate) key: &'a str,
    pub(crate) store_time_ms: RangeInclusive<i64>,
    pub(crate) count_max: usize,
    /// Bytes of all records together. The newest is returned even if it is larger.
    pub(crate) bytes_max: usize,
}

/// What a query looks at besides the index.
pub(crate) struct QueryContext<'a> {
    pub(crate) log: &'a CommitLog,
    /// Where the part of the log ends that may be read.
    pub(crate) visible_end: i64,
    /// Whether readers of its queue see the record.
    pub(crate) is_visible: &'a dyn Fn(&MessageRecord<'_>) -> bool,
}

/// Messages that were found by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryResult {
    /// The newest records that match, oldest of them first.
    pub messages: Vec<Bytes>,
    /// Store time of the newest record in the index, in ms; 0 without any.
    pub index_last_update_timestamp_ms: i64,
    /// Where that record lies; 0 without any.
    pub index_last_update_physical_offset: i64,
}

/// A query being answered, from the newest record to the oldest.
struct Search<'a> {
    query: &'a Query<'a>,
    context: &'a QueryContext<'a>,
    found: Vec<Bytes>,
    bytes: usize,
    /// The record looked at last: what does not lie in front of it was looked at already.
    looked_at: i64,
    is_done: bool,
}

impl Index {
    /// Answers a query.
    ///
    /// # Errors
    /// What the operating system says when a file is read.
    pub(crate) fn query(
        &self,
        query: &Query<'_>,
        context: &QueryContext<'_>,
    ) -> Result<QueryResult, StoreError> {
        let key_hash = KeyHasher::new(query.topic).hash(query.key);
        // Memory first: what leaves it meanwhile is found in the files, perhaps twice.
        let (in_memory, newest) = {
            let memory = self.memory.lock();
            let all = || memory.new.iter().rev().chain(memory.leaving.iter().rev());
            let of_hash = all().filter(|entry| entry.key_hash == key_hash);
            let offsets: Vec<i64> = of_hash.map(|entry| entry.physical_offset).collect();
            (offsets, all().next().copied())
        };
        let files = self.snapshot();
        let newest = newest.or_else(|| {
            let header = files.iter().rev().map(|file| file.header()).find(|h| !h.is_empty())?;
            Some(NewEntry {
                key_hash: 0,
                physical_offset: header.end_physical_offset,
                store_timestamp_ms: header.end_timestamp_ms,
            })
        });
        let mut search = Search {
            query,
            context,
            found: Vec::new(),
            bytes: 0,
            looked_at: i64::MAX,
            is_done: query.count_max == 0,
        };
        for physical_offset in in_memory {
            search.look_at(physical_offset);
        }
        for file in files.iter().rev() {
            if search.is_done {
                break;
            }
            search.look_through(file, key_hash)?;
        }
        search.found.reverse();
        Ok(QueryResult {
            messages: search.found,
            index_last_update_timestamp_ms: newest.map_or(0, |entry| entry.store_timestamp_ms),
            index_last_update_physical_offset: newest.map_or(0, |entry| entry.physical_offset),
        })
    }
}

impl Search<'_> {
    fn look_through(&mut self, file: &IndexFile, key_hash: i32) -> Result<(), StoreError> {
        let (begin_ms, end_ms) = self.query.store_time_ms.clone().into_inner();
        let header = file.header();
        if header.is_empty() || header.begin_timestamp_ms > end_ms {
            return Ok(());
        }
        let mut chain = match file.chain(key_hash) {
            Ok(chain) => chain,
            // Its records left the log, and it with them.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(StoreError::io("read", file.path())(error)),
        };
        while !self.is_done {
            let entry = match chain.next_entry() {
                Ok(Some(entry)) => entry,
                Ok(None) => break,
                Err(ChainError::Read(error)) => {
                    return Err(StoreError::io("read", file.path())(error));
                }
                Err(error @ ChainError::Damaged { .. }) => {
                    tracing::error!(
                        path = %file.path().display(), %error,
                        "index file is damaged; take it out of the directory while the broker is \
                         stopped, and it is built anew"
                    );
                    break;
                }
            };
            let earliest_ms = entry.timestamp_ms(header.begin_timestamp_ms);
            if earliest_ms.saturating_add(999) < begin_ms {
                break;
            }
            if entry.key_hash == key_hash && earliest_ms <= end_ms {
                self.look_at(entry.physical_offset);
            }
        }
        // Older files hold older records.
        self.is_done |= header.begin_timestamp_ms < begin_ms;
        Ok(())
    }

    fn look_at(&mut self, physical_offset: i64) {
        if self.is_done || physical_offset >= self.looked_at {
            return;
        }
        self.looked_at = physical_offset;
        let Search { query, context, .. } = self;
        if physical_offset >= context.visible_end {
            return;
        }
        let size = context.log.with_record(physical_offset, |record| {
            let matches = record.topic == query.topic
                && physical_offset + record.size as i64 <= context.visible_end
                && query.store_time_ms.contains(&record.store_timestamp_ms)
                && DispatchProperties::of(record.properties)
                    .index_keys(record.sys_flag)
                    .any(|own| own == query.key)
                && (context.is_visible)(record);
            matches.then_some(record.size)
        });
        let Some(size) = size.flatten() else { return };
        if !self.found.is_empty() && self.bytes + size > query.bytes_max {
            self.is_done = true;
            return;
        }
        let Some(message) = context.log.slice(physical_offset, size) else { return };
        self.bytes += size;
        self.found.push(message);
        self.is_done = self.found.len() >= query.count_max;
    }
}
