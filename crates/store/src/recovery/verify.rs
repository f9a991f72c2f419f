//! Verifying the log on all cores, and handing its records on in order.
//!
//! The caller's thread runs ahead and reads nothing but sizes: it divides each file into segments.
//! Others verify segments, which is where the time goes: pages, parts, CRC. The caller takes their
//! records one segment after the other, and verifies a segment itself rather than wait for someone
//! to begin with it, so on a busy machine the others help and never hinder. A size that is wrong
//! makes a segment that does not verify, and nothing behind the first such segment is handed on, so
//! running ahead does no harm.
//!
//! All that waits is bounded: segments by [`SEGMENT_BYTES`] and [`SEGMENT_RECORDS`], and
//! [`SEGMENTS_AHEAD`] of them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;

use parking_lot::{Condvar, Mutex};
use rocketmq_protocol::message::record::{MAGIC_V1, MAGIC_V2, MessageRecord, place};

use crate::error::StoreError;
use crate::log_walk::{self, Step};
use crate::mapped_file_queue::MappedFile;

/// Bytes of a segment, a last record that reaches beyond apart.
const SEGMENT_BYTES: u64 = 1 << 20;
/// Records of a segment.
const SEGMENT_RECORDS: usize = 4096;
/// Segments that are verified or waiting to be handed on.
const SEGMENTS_AHEAD: usize = 16;
/// A log that is not longer is verified where it is asked for: threads would cost more.
const INLINE_BYTES: u64 = 4 << 20;
/// What the kernel is asked to read at a time, that much in front of the sizes that are looked at:
/// page by page a disk would not come to its speed.
const READ_AHEAD_BYTES: u64 = 8 << 20;
/// Threads that verify, however many cores there are: whoever takes the records cannot keep up with
/// more.
const HELPERS_MAX: usize = 8;

/// A part of a file.
#[derive(Clone, Copy, Debug)]
struct Segment<'f> {
    file: &'f MappedFile,
    /// Physical offset of its first byte.
    start: u64,
    /// Physical offset behind its last record; `None` if it goes on to whatever ends the file.
    end: Option<u64>,
}

/// What a segment holds.
#[derive(Debug)]
pub(super) struct Verified<'f> {
    /// The file.
    pub(super) file: &'f MappedFile,
    /// Whether it begins the file.
    pub(super) begins_file: bool,
    /// Its records, in order.
    pub(super) records: Vec<MessageRecord<'f>>,
    /// Physical offset behind the last of them.
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

/// Verifies `files`, whose bytes are published, and hands their segments to `take` in order, until
/// one ends the log or `take` fails.
///
/// # Errors
/// That of `take`.
pub(super) fn in_order<'f>(
    files: &'f [Arc<MappedFile>],
    check_crc: bool,
    mut take: impl FnMut(Verified<'f>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let bytes: u64 = files.iter().map(|file| file.end_offset() - file.base_offset()).sum();
    if bytes <= INLINE_BYTES {
        for segment in segments(files) {
            if !pass(verify(segment, check_crc), &mut take)? {
                break;
            }
        }
        return Ok(());
    }
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let queue = Queue::default();
    thread::scope(|scope| {
        // Ends the helpers also when this function is left early, or by a panic of `take`.
        let _ends = EndsHelpers(&queue);
        for _ in 0..(cores - 1).min(HELPERS_MAX) {
            let helper = thread::Builder::new().name("store-verify".to_owned());
            // Without a thread to give, the work is done here.
            if helper.spawn_scoped(scope, || queue.help(check_crc)).is_err() {
                break;
            }
        }
        let mut divided = segments(files);
        let mut ahead = VecDeque::new();
        loop {
            while ahead.len() < SEGMENTS_AHEAD
                && let Some(segment) = divided.next()
            {
                ahead.push_back(queue.add(segment));
            }
            let Some(task) = ahead.pop_front() else { return Ok(()) };
            let verified = task.finish(check_crc);
            queue.forget(&task);
            if !pass(verified, &mut take)? {
                return Ok(());
            }
        }
    })
}

/// A segment on its way.
#[derive(Debug)]
struct Task<'f> {
    state: Mutex<State<'f>>,
    changed: Condvar,
}

#[derive(Debug)]
enum State<'f> {
    Waiting(Segment<'f>),
    /// Someone verifies it.
    Begun,
    Done(Verified<'f>),
    /// Whoever began with it panicked, which it has said itself.
    Lost(Segment<'f>),
}

impl<'f> Task<'f> {
    /// Takes the segment, if nobody has begun with it.
    fn begin(&self) -> Option<Segment<'f>> {
        let mut state = self.state.lock();
        let (State::Waiting(segment) | State::Lost(segment)) = *state else { return None };
        *state = State::Begun;
        Some(segment)
    }

    fn set(&self, state: State<'f>) {
        *self.state.lock() = state;
        self.changed.notify_one();
    }

    /// Verifies the segment, or waits for whoever does.
    fn finish(&self, check_crc: bool) -> Verified<'f> {
        loop {
            if let Some(segment) = self.begin() {
                return verify(segment, check_crc);
            }
            let mut state = self.state.lock();
            match std::mem::replace(&mut *state, State::Begun) {
                State::Done(verified) => return verified,
                State::Begun => self.changed.wait(&mut state),
                other => *state = other,
            }
        }
    }
}

/// Segments that nobody has begun with, as far as is known.
#[derive(Debug, Default)]
struct Queue<'f> {
    tasks: Mutex<(VecDeque<Arc<Task<'f>>>, bool)>,
    changed: Condvar,
}

impl<'f> Queue<'f> {
    fn add(&self, segment: Segment<'f>) -> Arc<Task<'f>> {
        let state = Mutex::new(State::Waiting(segment));
        let task = Arc::new(Task { state, changed: Condvar::new() });
        self.tasks.lock().0.push_back(Arc::clone(&task));
        self.changed.notify_one();
        task
    }

    /// Takes out a task that is done, if no helper did.
    fn forget(&self, task: &Arc<Task<'f>>) {
        let mut tasks = self.tasks.lock();
        if tasks.0.front().is_some_and(|front| Arc::ptr_eq(front, task)) {
            tasks.0.pop_front();
        }
    }

    /// Verifies segments until told to end.
    fn help(&self, check_crc: bool) {
        loop {
            let mut tasks = self.tasks.lock();
            let task = loop {
                if tasks.1 {
                    return;
                }
                match tasks.0.pop_front() {
                    Some(task) => break task,
                    None => self.changed.wait(&mut tasks),
                }
            };
            drop(tasks);
            if let Some(segment) = task.begin() {
                let mut given_back = GivesBack { task: &task, segment: Some(segment) };
                let verified = verify(segment, check_crc);
                given_back.segment = None;
                task.set(State::Done(verified));
            }
        }
    }
}

/// Tells the helpers to end when it is dropped.
struct EndsHelpers<'a, 'f>(&'a Queue<'f>);

impl Drop for EndsHelpers<'_, '_> {
    fn drop(&mut self) {
        self.0.tasks.lock().1 = true;
        self.0.changed.notify_all();
    }
}

/// Puts a segment back when a helper panics, so that nobody waits for it for ever.
struct GivesBack<'a, 'f> {
    task: &'a Task<'f>,
    segment: Option<Segment<'f>>,
}

impl Drop for GivesBack<'_, '_> {
    fn drop(&mut self) {
        if let Some(segment) = self.segment.take() {
            self.task.set(State::Lost(segment));
        }
    }
}

/// Hands a segment on; false when the log ends with it.
fn pass<'f>(
    verified: Verified<'f>,
    take: &mut impl FnMut(Verified<'f>) -> Result<(), StoreError>,
) -> Result<bool, StoreError> {
    let goes_on = matches!(verified.ending, Ending::GoesOn | Ending::NextFile);
    take(verified)?;
    Ok(goes_on)
}

/// Divides files by the sizes that their records say.
fn segments(files: &[Arc<MappedFile>]) -> impl Iterator<Item = Segment<'_>> {
    files.iter().flat_map(|file| {
        let mut start = Some(file.base_offset());
        let mut asked = file.base_offset();
        std::iter::from_fn(move || {
            let begin = start?;
            while asked < file.end_offset() && asked < begin + READ_AHEAD_BYTES {
                let from = (asked - file.base_offset()) as usize;
                file.mapping().will_need(from..from + READ_AHEAD_BYTES as usize);
                asked += READ_AHEAD_BYTES;
            }
            let mut end = begin;
            let mut count = 0;
            while end - begin < SEGMENT_BYTES && count < SEGMENT_RECORDS {
                let Some(size) = said_size(file, end) else {
                    start = None;
                    return Some(Segment { file, start: begin, end: None });
                };
                end += size;
                count += 1;
            }
            start = Some(end);
            Some(Segment { file, start: begin, end: Some(end) })
        })
    })
}

/// The size of the record at `position`, if it looks like one and lies within the file.
fn said_size(file: &MappedFile, position: u64) -> Option<u64> {
    let head = file.slice(position, place::BODY_CRC)?;
    let word = |at: usize| head.get(at..)?.first_chunk::<4>().map(|word| u32::from_be_bytes(*word));
    let is_record = matches!(word(place::MAGIC)?, MAGIC_V1 | MAGIC_V2);
    let size = u64::from(word(place::TOTAL_SIZE)?);
    let fits = size > 0 && position + size <= file.end_offset();
    (is_record && fits).then_some(size)
}

/// Verifies a segment. One that was divided off rightly ends where it should.
fn verify(segment: Segment<'_>, check_crc: bool) -> Verified<'_> {
    let Segment { file, start, end } = segment;
    let mut verified = Verified {
        file,
        begins_file: start == file.base_offset(),
        records: Vec::new(),
        end: start,
        ending: Ending::GoesOn,
    };
    while end.is_none_or(|end| verified.end < end) {
        let bytes = file.published_from(verified.end).unwrap_or(&[]);
        verified.ending = match log_walk::verify(bytes, verified.end, file.base_offset(), check_crc)
        {
            Ok(Step::Record(record)) => {
                verified.end += record.size as u64;
                verified.records.push(record);
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
        in_order(files, true, |verified| {
            places.extend(verified.records.iter().map(|record| record.physical_offset));
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
        let error = in_order(&files, true, |verified| {
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
