//! Verifying the log on all cores, and handing its records on in order.
//!
//! Whoever verifies a record also makes of it what dispatch needs, and sorts the records of a
//! segment by their queues, so that the one who takes them finds a queue once for all of them.

use std::sync::Arc;

use foldhash::HashMap;
use rocketmq_protocol::message::record::{MessageRecord, sys_flag};

use crate::dispatch::Dispatch;
use crate::error::StoreError;
use crate::log_segments::{INLINE_BYTES, SEGMENT_RECORDS, Segment, in_order, segments};
use crate::log_walk::{self, Step};
use crate::mapped_file_queue::MappedFile;

/// What a segment holds.
#[derive(Debug)]
pub(super) struct Verified<'f> {
    /// The file.
    pub(super) file: &'f MappedFile,
    /// Whether it begins the file.
    pub(super) begins_file: bool,
    /// How many records it has.
    pub(super) records: u64,
    /// Their bytes.
    pub(super) bytes: u64,
    /// Store time of the newest of them, in ms; 0 without one.
    pub(super) timestamp_ms: i64,
    /// Those that go to a queue.
    pub(super) runs: Runs<'f>,
    /// Physical offset behind the last record.
    pub(super) end: u64,
    /// How it ends.
    pub(super) ending: Ending,
}

/// How a segment ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The file goes on.
    GoesOn,
    /// The log goes on in the next file.
    NextFile,
    /// Nothing was ever written behind it.
    Unwritten,
    /// Something that counts as nothing, and why.
    Bad(String),
}

/// Records of a segment by the queue that they name, in the order of the log within each.
#[derive(Debug, Default)]
pub(super) struct Runs<'f> {
    queues: Vec<Run<'f>>,
    /// The records of all, in the order of the log, each with the index of the next one of its
    /// queue: one allocation however many queues there are.
    members: Vec<(Dispatch<'f>, Option<u32>)>,
    by_name: HashMap<(&'f str, i32), u32>,
}

#[derive(Debug)]
struct Run<'f> {
    topic: &'f str,
    queue_id: i32,
    first: u32,
    last: u32,
}

impl<'f> Runs<'f> {
    fn add(&mut self, record: &MessageRecord<'f>, delay_levels_ms: &[i64]) {
        let Runs { queues, members, by_name } = self;
        // A segment has few records.
        let index = members.len() as u32;
        members.push((Dispatch::of_record(record, delay_levels_ms), None));
        let MessageRecord { topic, queue_id, .. } = *record;
        let run = *by_name.entry((topic, queue_id)).or_insert_with(|| {
            queues.push(Run { topic, queue_id, first: index, last: index });
            queues.len() as u32 - 1
        });
        let Run { last, .. } = &mut queues[run as usize];
        if *last != index {
            members[*last as usize].1 = Some(index);
            *last = index;
        }
    }

    /// Each queue's topic, number and records, the queue first whose first record comes first.
    pub(super) fn iter(
        &self,
    ) -> impl Iterator<Item = (&'f str, i32, impl Iterator<Item = &Dispatch<'f>>)> {
        self.queues.iter().map(move |run| {
            let mut next = Some(run.first);
            let members = std::iter::from_fn(move || {
                let (dispatch, behind) = &self.members[next? as usize];
                next = *behind;
                Some(dispatch)
            });
            (run.topic, run.queue_id, members)
        })
    }
}

/// How records are read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading<'a> {
    pub(super) check_crc: bool,
    pub(super) delay_levels_ms: &'a [i64],
}

/// Verifies `files`, whose bytes are published, and hands their segments to `take` in order, until
/// one ends the log or `take` fails.
///
/// # Errors
/// That of `take`.
pub(super) fn verified<'f>(
    files: &'f [Arc<MappedFile>],
    reading: Reading<'_>,
    mut take: impl FnMut(Verified<'f>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let bytes: u64 = files.iter().map(|file| file.end_offset() - file.base_offset()).sum();
    let work = |segment| verify(segment, reading);
    in_order(segments(files, 0..u64::MAX), bytes > INLINE_BYTES, work, |verified| {
        let goes_on = matches!(verified.ending, Ending::GoesOn | Ending::NextFile);
        take(verified)?;
        Ok(goes_on)
    })
}

/// Verifies a segment. One that was divided off rightly ends where it should.
fn verify<'f>(segment: Segment<'f>, reading: Reading<'_>) -> Verified<'f> {
    let Segment { file, start, end } = segment;
    let mut verified = Verified {
        file,
        begins_file: start == file.base_offset(),
        records: 0,
        bytes: 0,
        timestamp_ms: 0,
        runs: Runs { members: Vec::with_capacity(SEGMENT_RECORDS), ..Runs::default() },
        end: start,
        ending: Ending::GoesOn,
    };
    while end.is_none_or(|end| verified.end < end) {
        let (position, base) = (verified.end, file.base_offset());
        let bytes = file.published_from(position).unwrap_or(&[]);
        verified.ending = match log_walk::verify(bytes, position, base, reading.check_crc) {
            Ok(Step::Record(record)) => {
                verified.end += record.size as u64;
                verified.records += 1;
                verified.bytes += record.size as u64;
                verified.timestamp_ms = verified.timestamp_ms.max(record.store_timestamp_ms);
                if !sys_flag::is_outside_queues(record.sys_flag) {
                    verified.runs.add(&record, reading.delay_levels_ms);
                }
                continue;
            }
            Ok(Step::NextFile) => Ending::NextFile,
            Ok(Step::End) => Ending::Unwritten,
            Err(reason) => Ending::Bad(reason),
        };
        break;
    }
    verified
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rocketmq_protocol::message::record::{self, NewMessage, Placement};

    use super::*;
    use crate::config::StoreConfig;
    use crate::file_system::RealFileSystem;
    use crate::mapped_file_queue::MappedFileQueue;

    const FILE_BYTES: u64 = 3 << 20;
    const READING: Reading<'_> = Reading { check_crc: true, delay_levels_ms: &[] };

    fn members(verified: &Verified<'_>) -> impl Iterator<Item = i64> {
        let runs = verified.runs.iter();
        runs.flat_map(|(.., run)| run.map(|dispatch| dispatch.entry.unit.physical_offset))
    }

    /// Files full of records of about `body_bytes` bytes, the last one half full.
    fn made(root: &Path, file_count: u64, body_bytes: usize) -> Vec<Arc<MappedFile>> {
        let mut config = StoreConfig::new(root);
        config.commit_log_file_bytes = FILE_BYTES;
        let queue = MappedFileQueue::new(Arc::new(RealFileSystem), &config);
        std::fs::create_dir_all(root.join("commitlog")).unwrap();
        queue.load().unwrap();
        let body = vec![b'x'; body_bytes];
        let message = NewMessage {
            topic: "A",
            queue_id: 0,
            flag: 0,
            sys_flag: 0,
            born_timestamp_ms: 1,
            born_host: "127.0.0.1:1".parse().unwrap(),
            store_host: "127.0.0.1:2".parse().unwrap(),
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body: &body,
            properties: &[],
        };
        for number in 0..file_count {
            let file = queue.prepare(number * FILE_BYTES).unwrap();
            let mut bytes = Vec::new();
            let full = if number + 1 == file_count { FILE_BYTES / 2 } else { FILE_BYTES };
            loop {
                let placement = Placement {
                    queue_offset: 0,
                    physical_offset: (file.base_offset() + bytes.len() as u64) as i64,
                    store_timestamp_ms: 1,
                };
                let before = bytes.len();
                record::encode_record(&mut bytes, &message, placement).unwrap();
                if bytes.len() as u64 + 8 > full {
                    bytes.truncate(before);
                    break;
                }
            }
            if number + 1 < file_count {
                let left = FILE_BYTES - bytes.len() as u64;
                bytes.extend_from_slice(&record::blank(left as u32));
            }
            file.write(&bytes, file.base_offset()).unwrap();
            file.publish(file.end_offset());
            queue.push(file);
        }
        queue.snapshot()
    }

    /// What one thread, record by record, makes of it.
    fn expected(files: &[Arc<MappedFile>]) -> (Vec<i64>, Ending) {
        let mut places = Vec::new();
        for file in files {
            let mut position = file.base_offset();
            loop {
                let bytes = file.published_from(position).unwrap();
                match log_walk::verify(bytes, position, file.base_offset(), true) {
                    Ok(Step::Record(record)) => {
                        places.push(record.physical_offset);
                        position += record.size as u64;
                    }
                    Ok(Step::NextFile) => break,
                    Ok(Step::End) => return (places, Ending::Unwritten),
                    Err(reason) => return (places, Ending::Bad(reason)),
                }
            }
        }
        (places, Ending::NextFile)
    }

    fn found(files: &[Arc<MappedFile>]) -> (Vec<i64>, Ending) {
        let (mut places, mut ending, mut begun) = (Vec::new(), Ending::GoesOn, 0);
        super::verified(files, READING, |verified| {
            let mut of_segment: Vec<_> = members(&verified).collect();
            assert_eq!(verified.records, of_segment.len() as u64);
            of_segment.sort_unstable();
            places.extend(of_segment);
            ending = verified.ending;
            begun += usize::from(verified.begins_file);
            Ok(())
        })
        .unwrap();
        assert!(begun <= files.len());
        (places, ending)
    }

    #[test]
    fn records_come_in_order_with_and_without_threads() {
        for (file_count, body_bytes) in [(1, 100), (4, 100), (3, 5_000), (3, 1_200_000)] {
            let directory = tempfile::tempdir().unwrap();
            let files = made(directory.path(), file_count, body_bytes);
            let (places, ending) = found(&files);
            assert!(places.len() as u64 >= file_count, "{file_count} {body_bytes}");
            assert_eq!((places, ending), expected(&files), "{file_count} {body_bytes}");
        }
    }

    #[test]
    fn whatever_is_damaged_ends_the_walk_where_it_lies() {
        let directory = tempfile::tempdir().unwrap();
        let files = made(directory.path(), 3, 700);
        let whole = expected(&files).0;
        for (victim, at, bytes) in [
            (0, 100, &b"?"[..]),
            (5, 0, b"\0\0\0\x01"),
            (2_000, 0, b"\x7f\xff\xff\xff"),
            (4_000, 4, b"\0\0\0\0"),
            (5_000, 0, b"\0\0\x04\0"),
            (6_000, 28, b"\x01"),
            (9_000, 0, b"\0\0\0\0\0\0\0\0"),
        ] {
            let place = whole[victim.min(whole.len() - 1)] as u64;
            let file = files.iter().find(|file| file.holds(place)).unwrap();
            let position = place - file.base_offset() + at;
            let mut before = vec![0; bytes.len()];
            file.file().read_at(&mut before, position).unwrap();
            file.file().write_at(bytes, position).unwrap();
            let (places, ending) = found(&files);
            assert_eq!(places.len(), victim.min(whole.len() - 1), "{victim}: {ending:?}");
            assert_eq!((places, ending), expected(&files), "{victim}");
            file.file().write_at(&before, position).unwrap();
        }
        assert_eq!(found(&files).0, whole);
    }

    #[test]
    fn an_error_of_the_taker_ends_it() {
        let directory = tempfile::tempdir().unwrap();
        let files = made(directory.path(), 4, 700);
        let mut taken = 0;
        let error = super::verified(&files, READING, |verified| {
            taken += 1;
            if taken == 3 {
                let error = std::io::Error::other("full");
                return Err(StoreError::io("write", verified.file.path())(error));
            }
            Ok(())
        });
        assert!(error.unwrap_err().to_string().contains("full"));
        assert_eq!(taken, 3);
    }
}
