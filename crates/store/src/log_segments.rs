//! Working on the log on all cores, with results in order.
//!
//! The caller's thread runs ahead and reads nothing but sizes: it divides each file into segments.
//! Others work on segments, which is where the time goes: pages, parts, CRC, properties. The caller
//! takes the results one after the other. Rather than wait for one it works on the next segment
//! that nobody has begun with, so that no core is idle, and on a busy machine the others help and
//! never hinder. A size that is wrong makes a segment that is not what it should be; whoever takes
//! the results ends there or goes on with the next file, so running ahead does no harm.
//!
//! All that waits is bounded: segments by [`SEGMENT_BYTES`] and [`SEGMENT_RECORDS`], and
//! [`SEGMENTS_AHEAD`] of them.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::thread;

use parking_lot::{Condvar, Mutex};
use rocketmq_protocol::message::record::{MAGIC_V1, MAGIC_V2, place};

use crate::error::StoreError;
use crate::mapped_file_queue::MappedFile;

/// Bytes of a segment, a last record that reaches beyond apart.
const SEGMENT_BYTES: u64 = 1 << 20;
/// Records of a segment.
pub(crate) const SEGMENT_RECORDS: usize = 4096;
/// Segments that are worked on or waiting to be taken.
const SEGMENTS_AHEAD: usize = 32;
/// A log that is not longer is worked on where it is asked for: threads would cost more.
pub(crate) const INLINE_BYTES: u64 = 4 << 20;
/// What the kernel is asked to read at a time, that much in front of the sizes that are looked at:
/// page by page a disk would not come to its speed.
const READ_AHEAD_BYTES: u64 = 8 << 20;
/// Threads that help, however many cores there are: whoever takes the results cannot keep up with
/// more.
const HELPERS_MAX: usize = 8;

/// A part of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment<'f> {
    pub(crate) file: &'f MappedFile,
    /// Physical offset of its first byte.
    pub(crate) start: u64,
    /// Physical offset behind its last record; `None` if it goes on to whatever ends the file.
    pub(crate) end: Option<u64>,
}

/// Divides what lies at `place` of the log, whose `files` are published that far, by the sizes that
/// the records say. A record begins at its start.
pub(crate) fn segments(
    files: &[Arc<MappedFile>],
    place: Range<u64>,
) -> impl Iterator<Item = Segment<'_>> {
    files.iter().flat_map(move |file| {
        let mut start = Some(place.start.max(file.base_offset()));
        let mut asked = place.start.max(file.base_offset());
        let until = place.end.min(file.end_offset());
        std::iter::from_fn(move || {
            let begin = start.filter(|start| *start < until)?;
            while asked < until && asked < begin + READ_AHEAD_BYTES {
                let from = (asked - file.base_offset()) as usize;
                file.mapping().will_need(from..from + READ_AHEAD_BYTES as usize);
                asked += READ_AHEAD_BYTES;
            }
            let mut end = begin;
            let mut count = 0;
            while end < until && end - begin < SEGMENT_BYTES && count < SEGMENT_RECORDS {
                let Some(size) = said_size(file, end) else {
                    start = None;
                    return Some(Segment { file, start: begin, end: None });
                };
                end += size;
                count += 1;
            }
            // A record that fills the file to its last byte is not followed by a blank, and what
            // takes the results must hear that the log goes on.
            if end == file.end_offset() {
                start = None;
                return Some(Segment { file, start: begin, end: None });
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

/// Lets `work` be done on each segment, and hands the results to `take` in order, for as long as it
/// says so. On the caller's thread alone unless `with_threads`.
///
/// # Errors
/// That of `take`.
pub(crate) fn in_order<'f, T: Send>(
    mut segments: impl Iterator<Item = Segment<'f>>,
    with_threads: bool,
    work: impl Fn(Segment<'f>) -> T + Sync,
    mut take: impl FnMut(T) -> Result<bool, StoreError>,
) -> Result<(), StoreError> {
    if !with_threads {
        for segment in segments {
            if !take(work(segment))? {
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
            let helper = thread::Builder::new().name("store-recover".to_owned());
            // Without a thread to give, the work is done here.
            if helper.spawn_scoped(scope, || queue.help(&work)).is_err() {
                break;
            }
        }
        let mut ahead = VecDeque::new();
        loop {
            while ahead.len() < SEGMENTS_AHEAD
                && let Some(segment) = segments.next()
            {
                ahead.push_back(queue.add(segment));
            }
            let Some(task) = ahead.pop_front() else { return Ok(()) };
            if !take(queue.finish(&task, &work))? {
                return Ok(());
            }
        }
    })
}

/// A segment on its way.
#[derive(Debug)]
struct Task<'f, T> {
    state: Mutex<State<'f, T>>,
    changed: Condvar,
}

#[derive(Debug)]
enum State<'f, T> {
    Waiting(Segment<'f>),
    /// Someone works on it.
    Begun,
    Done(T),
    /// Whoever began with it panicked, which it has said itself.
    Lost(Segment<'f>),
}

impl<'f, T> Task<'f, T> {
    /// The segment, if nobody works on it; the caller does from now on.
    fn begin(&self) -> Option<Segment<'f>> {
        let mut state = self.state.lock();
        let (State::Waiting(segment) | State::Lost(segment)) = *state else { return None };
        *state = State::Begun;
        Some(segment)
    }

    fn set(&self, state: State<'f, T>) {
        *self.state.lock() = state;
        self.changed.notify_one();
    }

    /// The result, if it is there.
    fn take(&self) -> Option<T> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::Begun) {
            State::Done(result) => Some(result),
            other => {
                *state = other;
                None
            }
        }
    }

    /// Waits for whoever works on it.
    fn wait(&self) {
        let mut state = self.state.lock();
        while matches!(*state, State::Begun) {
            self.changed.wait(&mut state);
        }
    }

    /// Works on it, unless somebody has begun.
    fn run(&self, work: &impl Fn(Segment<'f>) -> T) {
        if let Some(segment) = self.begin() {
            let mut given_back = GivesBack { task: self, segment: Some(segment) };
            let result = work(segment);
            given_back.segment = None;
            self.set(State::Done(result));
        }
    }
}

/// Segments that nobody has begun with, as far as is known.
#[derive(Debug)]
struct Queue<'f, T> {
    tasks: Mutex<(VecDeque<Arc<Task<'f, T>>>, bool)>,
    changed: Condvar,
}

impl<T> Default for Queue<'_, T> {
    fn default() -> Self {
        Queue { tasks: Mutex::default(), changed: Condvar::new() }
    }
}

impl<'f, T> Queue<'f, T> {
    fn add(&self, segment: Segment<'f>) -> Arc<Task<'f, T>> {
        let state = Mutex::new(State::Waiting(segment));
        let task = Arc::new(Task { state, changed: Condvar::new() });
        self.tasks.lock().0.push_back(Arc::clone(&task));
        self.changed.notify_one();
        task
    }

    /// The next segment's task, if there is one.
    fn next(&self) -> Option<Arc<Task<'f, T>>> {
        self.tasks.lock().0.pop_front()
    }

    /// The result of `task`. While somebody else works on it the caller works on the next one.
    fn finish(&self, task: &Task<'f, T>, work: &impl Fn(Segment<'f>) -> T) -> T {
        loop {
            if let Some(result) = task.take() {
                return result;
            }
            if let Some(segment) = task.begin() {
                return work(segment);
            }
            match self.next() {
                Some(next) => next.run(work),
                None => task.wait(),
            }
        }
    }

    /// Works on segments until told to end.
    fn help(&self, work: &impl Fn(Segment<'f>) -> T) {
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
            task.run(work);
        }
    }
}

/// Tells the helpers to end when it is dropped.
struct EndsHelpers<'a, 'f, T>(&'a Queue<'f, T>);

impl<T> Drop for EndsHelpers<'_, '_, T> {
    fn drop(&mut self) {
        self.0.tasks.lock().1 = true;
        self.0.changed.notify_all();
    }
}

/// Puts a segment back when a helper panics, so that nobody waits for it for ever.
struct GivesBack<'a, 'f, T> {
    task: &'a Task<'f, T>,
    segment: Option<Segment<'f>>,
}

impl<T> Drop for GivesBack<'_, '_, T> {
    fn drop(&mut self) {
        if let Some(segment) = self.segment.take() {
            self.task.set(State::Lost(segment));
        }
    }
}
