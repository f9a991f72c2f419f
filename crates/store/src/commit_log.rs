//! The log of all messages: appending, and reading by physical offset.
//!
//! One lock, one appender at a time. Within the lock nothing is logged, and nothing allocated
//! except when a file is full. Records of a batch go out with one `pwrite` per file; the end of the
//! log is published after the call returned. With `transientStorePoolEnable` they go to a buffer
//! first, and that to the file (RocketMQ's `CommitRealTimeService`).

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use rocketmq_protocol::message::record::{self, BLANK_BYTES_MIN, MessageRecord};

use crate::append::AppendBatch;
use crate::error::{AppendError, Refusal, StoreError};
use crate::mapped_file_queue::{MappedFile, MappedFileQueue};
use crate::offset::{Published, Written};
use crate::preallocation::Preallocation;
use crate::writability::Writability;

/// What the buffer keeps when it is committed.
const BUFFER_BYTES_KEPT: usize = 4 << 20;

/// What only the holder of the append lock may touch.
#[derive(Debug)]
pub(crate) struct Appender {
    /// The file being written; none when the next record begins a new one.
    file: Option<Arc<MappedFile>>,
    /// Where the next record goes.
    position: u64,
    /// What was appended to `file` and is not in it yet; see `commit`.
    buffer: Vec<u8>,
    /// Store time of the newest record. Never goes back, though the clock may: searches by time
    /// and the choice of where to recover from rest on it.
    timestamp_ms: i64,
}

/// The log.
#[derive(Debug)]
pub(crate) struct CommitLog {
    pub(crate) files: MappedFileQueue,
    pub(crate) preallocation: Preallocation,
    appender: Mutex<Appender>,
    /// Most bytes that wait in the buffer; none if everything is written at once.
    buffer_bytes_max: Option<usize>,
    written: Published<Written>,
    /// Store time of the newest record that is written.
    timestamp_ms: AtomicI64,
}

impl CommitLog {
    /// The log of `files`, with a write buffer of at most `buffer_bytes_max` bytes if it has one.
    pub(crate) fn new(files: MappedFileQueue, buffer_bytes_max: Option<usize>) -> CommitLog {
        CommitLog {
            buffer_bytes_max,
            files,
            preallocation: Preallocation::default(),
            appender: Mutex::new(Appender {
                file: None,
                position: 0,
                buffer: Vec::new(),
                timestamp_ms: 0,
            }),
            written: Published::new(Written(0)),
            timestamp_ms: AtomicI64::new(0),
        }
    }

    /// Sets where the log ends, once, after recovery.
    pub(crate) fn begin_at(&self, position: u64, timestamp_ms: i64) {
        let mut appender = self.appender.lock();
        appender.file = self.files.find(position);
        appender.position = position;
        appender.timestamp_ms = timestamp_ms;
        self.timestamp_ms.store(timestamp_ms, Ordering::Release);
        self.written.publish(Written(position as i64));
        self.request_next(&appender);
    }

    /// Takes the append lock.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Appender> {
        self.appender.lock()
    }

    /// Takes the append lock, unless somebody else holds it for too long.
    pub(crate) fn try_lock_until(&self, deadline: Instant) -> Option<MutexGuard<'_, Appender>> {
        self.appender.try_lock_until(deadline)
    }

    /// Writes zeros where the next bytes go, and zeros are, and gives the file; none if the next bytes
    /// go to a new one.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn touch_end(
        &self,
        appender: &Appender,
    ) -> Result<Option<Arc<MappedFile>>, StoreError> {
        static ZEROS: [u8; 512] = [0; 512];
        let Some(file) = &appender.file else { return Ok(None) };
        let position = appender.position - appender.buffer.len() as u64;
        let bytes = (file.end_offset() - position).min(ZEROS.len() as u64) as usize;
        file.write(&ZEROS[..bytes], position).map_err(StoreError::io("write", file.path()))?;
        Ok(Some(Arc::clone(file)))
    }

    /// The end of what was written.
    pub(crate) fn written(&self) -> Written {
        self.written.get()
    }

    /// Store time of the newest written record, in ms. Read it before [`CommitLog::written`] to get
    /// a time that this end covers.
    pub(crate) fn timestamp_ms(&self) -> i64 {
        self.timestamp_ms.load(Ordering::Acquire)
    }

    /// The beginning of the oldest file.
    pub(crate) fn min_offset(&self) -> i64 {
        self.files.first().map_or(self.written().0, |file| file.base_offset() as i64)
    }

    /// Asks for the file behind the current one once that is half full: early enough for a fast
    /// producer, and an idle broker holds only one.
    fn request_next(&self, appender: &Appender) {
        match &appender.file {
            None => self.preallocation.request(appender.position),
            Some(file) => {
                let left = file.end_offset() - appender.position;
                if left <= self.files.file_bytes() / 2 {
                    self.preallocation.request(file.end_offset());
                }
            }
        }
    }

    /// Appends the batch, whose queues are resolved.
    ///
    /// `batch.appended` says how many messages are in the log, also after an error.
    pub(crate) fn append(
        &self,
        appender: &mut Appender,
        batch: &mut AppendBatch,
        now_ms: i64,
        writability: &Writability,
    ) -> Result<(), AppendError> {
        let timestamp_ms = now_ms.max(appender.timestamp_ms);
        // Entries in front of `first` are written, those in front of `placed` have their places.
        let (mut first, mut placed) = (0, 0);
        let mut result = Ok(());
        for index in 0..batch.groups.len() {
            let group_end = batch.groups[index];
            let start = batch.entries[first].record.start;
            let group_start = batch.entries[placed].record.start;
            let group_bytes = batch.entries[group_end - 1].record.end - group_start;
            let mut pending = (group_start - start) as u64;
            let fits = appender.file.as_ref().is_some_and(|file| {
                let left = file.end_offset() - appender.position - pending;
                (group_bytes + BLANK_BYTES_MIN) as u64 <= left
            });
            if !fits {
                let rolled = self
                    .write(appender, &batch.buffer[start..group_start], writability)
                    .and_then(|()| {
                        first = placed;
                        pending = 0;
                        self.roll(appender, writability)
                    });
                if let Err(error) = rolled {
                    result = Err(error);
                    break;
                }
            }
            let position = appender.position + pending;
            batch.place(placed..group_end, position as i64, timestamp_ms);
            placed = group_end;
        }
        if result.is_ok() && first < placed {
            let bytes = batch.entries[first].record.start..batch.entries[placed - 1].record.end;
            result = self.write(appender, &batch.buffer[bytes], writability);
            if result.is_ok() {
                first = placed;
            }
        }
        batch.unplace(first..placed);
        batch.appended = first;
        if first > 0 {
            appender.timestamp_ms = timestamp_ms;
            if appender.buffer.is_empty() {
                self.timestamp_ms.store(timestamp_ms, Ordering::Release);
            }
            self.request_next(appender);
        }
        result
    }

    /// Adds `bytes` to the end of the current file: at once, or to the buffer if there is one.
    fn write(
        &self,
        appender: &mut Appender,
        bytes: &[u8],
        writability: &Writability,
    ) -> Result<(), AppendError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let Some(bytes_max) = self.buffer_bytes_max else {
            self.write_through(appender, bytes, appender.position, writability)?;
            appender.position += bytes.len() as u64;
            return Ok(());
        };
        if appender.buffer.len() + bytes.len() > bytes_max {
            self.commit(appender, writability)?;
        }
        appender.buffer.extend_from_slice(bytes);
        appender.position += bytes.len() as u64;
        Ok(())
    }

    /// Writes `bytes` to the current file and publishes them.
    fn write_through(
        &self,
        appender: &Appender,
        bytes: &[u8],
        position: u64,
        writability: &Writability,
    ) -> Result<(), AppendError> {
        let Some(file) = &appender.file else { return Err(AppendError::NotAppended) };
        if let Err(error) = file.write(bytes, position) {
            let error = StoreError::io("write", file.path())(error);
            // Whole records may have got there. They must not be taken for messages after a
            // crash, when shorter ones were written in their place.
            let in_file = position - file.base_offset();
            if let Err(wipe) = file.file().zero_range(in_file, bytes.len() as u64) {
                let wipe = StoreError::io("wipe the end of", file.path())(wipe);
                writability.refuse_finally(Refusal::WriteFailed(wipe.to_string()));
            }
            return Err(AppendError::Write(error));
        }
        let end = position + bytes.len() as u64;
        file.publish(end);
        self.written.publish(Written(end as i64));
        Ok(())
    }

    /// Syncs the file that is written.
    ///
    /// # Errors
    /// What the operating system says; the caller must treat it as final.
    pub(crate) fn sync_current(&self, appender: &Appender) -> Result<(), StoreError> {
        let Some(file) = &appender.file else { return Ok(()) };
        file.file().sync_data().map_err(StoreError::io("sync", file.path()))
    }

    /// Bytes that wait in the buffer.
    pub(crate) fn uncommitted_bytes(&self, appender: &Appender) -> u64 {
        appender.buffer.len() as u64
    }

    /// Writes what waits in the buffer to the file and publishes it. The caller dispatches it.
    ///
    /// # Errors
    /// What the operating system says; it is still in the buffer then.
    pub(crate) fn commit(
        &self,
        appender: &mut Appender,
        writability: &Writability,
    ) -> Result<(), AppendError> {
        if !appender.buffer.is_empty() {
            let position = appender.position - appender.buffer.len() as u64;
            self.write_through(appender, &appender.buffer, position, writability)?;
            appender.buffer.clear();
            appender.buffer.shrink_to(BUFFER_BYTES_KEPT);
        }
        self.timestamp_ms.fetch_max(appender.timestamp_ms, Ordering::AcqRel);
        Ok(())
    }

    /// Closes the current file with a blank and goes on to the next one.
    fn roll(&self, appender: &mut Appender, writability: &Writability) -> Result<(), AppendError> {
        if let Some(file) = appender.file.clone() {
            let left = file.end_offset() - appender.position;
            // A file is at most 1 TiB; RocketMQ's word for what is left has 32 bits and its files
            // less than 2 GiB. Readers go by the magic.
            let blank = record::blank(u32::try_from(left).unwrap_or(u32::MAX));
            self.commit(appender, writability)?;
            self.write_through(appender, &blank, appender.position, writability)?;
            appender.position = file.end_offset();
            file.publish(file.end_offset());
            appender.file = None;
            self.written.publish(Written(appender.position as i64));
        }
        self.next_file(appender).map(drop)
    }

    /// Makes the file that begins at the appender's position the current one.
    fn next_file(&self, appender: &mut Appender) -> Result<Arc<MappedFile>, AppendError> {
        let file = self
            .preallocation
            .take(&self.files, appender.position)
            .map_err(AppendError::CreateFile)?;
        self.files.push(Arc::clone(&file));
        appender.file = Some(Arc::clone(&file));
        Ok(file)
    }

    /// Lets a copy of another log go on at `physical_offset`: where this log ends, or, if it has no
    /// file yet, where one begins.
    ///
    /// # Errors
    /// [`AppendError::NotNext`] if that is elsewhere.
    pub(crate) fn go_on_at(
        &self,
        appender: &mut Appender,
        physical_offset: i64,
    ) -> Result<(), AppendError> {
        let not_next = AppendError::NotNext { physical_offset, expected: self.written().0 };
        let Ok(position) = u64::try_from(physical_offset) else { return Err(not_next) };
        if position == appender.position {
            return Ok(());
        }
        let is_empty = appender.position == 0 && self.files.len() == 0;
        if !is_empty || !position.is_multiple_of(self.files.file_bytes()) {
            return Err(not_next);
        }
        appender.position = position;
        self.written.publish(Written(physical_offset));
        Ok(())
    }

    /// Adds whole records and blanks of another log to the end of this one, which they continue.
    ///
    /// # Errors
    /// When a file cannot be made or written. The files in front of it are written then.
    pub(crate) fn append_copy(
        &self,
        appender: &mut Appender,
        bytes: &[u8],
        writability: &Writability,
    ) -> Result<(), AppendError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let file = match &appender.file {
                Some(file) => Arc::clone(file),
                None => self.next_file(appender)?,
            };
            let room = (file.end_offset() - appender.position).min(rest.len() as u64) as usize;
            let (now, later) = rest.split_at(room);
            self.write_through(appender, now, appender.position, writability)?;
            appender.position += now.len() as u64;
            if appender.position == file.end_offset() {
                appender.file = None;
            }
            rest = later;
        }
        if !bytes.is_empty() {
            self.request_next(appender);
        }
        Ok(())
    }

    /// Drops what waits in the buffer: the log is a copy, and its master does not have it.
    pub(crate) fn drop_buffer(&self, appender: &mut Appender) {
        appender.position -= appender.buffer.len() as u64;
        appender.buffer = Vec::new();
    }

    /// Lets the written end be in front of where it was, for who cuts the log.
    pub(crate) fn publish_end(&self, end: u64) {
        self.written.publish(Written(end as i64));
    }

    /// Goes on at `position`, where the log was cut; the newest record in front of it is of this time.
    pub(crate) fn cut_back(&self, appender: &mut Appender, position: u64, timestamp_ms: i64) {
        appender.file = self.files.find(position);
        appender.position = position;
        appender.timestamp_ms = timestamp_ms;
        self.timestamp_ms.store(timestamp_ms, Ordering::Release);
        self.request_next(appender);
    }

    /// Notes the store time of the newest record of a copied log.
    pub(crate) fn note_time(&self, appender: &mut Appender, timestamp_ms: i64) {
        appender.timestamp_ms = appender.timestamp_ms.max(timestamp_ms);
        self.timestamp_ms.store(appender.timestamp_ms, Ordering::Release);
    }

    /// The bytes of a record whose place and size a queue told.
    pub(crate) fn slice(&self, physical_offset: i64, bytes: usize) -> Option<Bytes> {
        let offset = u64::try_from(physical_offset).ok()?;
        self.files.find(offset)?.shared_slice(offset, bytes)
    }

    /// Where the file behind the one that holds `physical_offset` begins.
    pub(crate) fn next_file_start(&self, physical_offset: i64) -> i64 {
        let file_bytes = self.files.file_bytes() as i64;
        (physical_offset.max(0) / file_bytes + 1).saturating_mul(file_bytes)
    }

    /// Decodes the record at `physical_offset`, if one begins there, and hands it to `read`.
    pub(crate) fn with_record<T>(
        &self,
        physical_offset: i64,
        read: impl FnOnce(&MessageRecord<'_>) -> T,
    ) -> Option<T> {
        let offset = u64::try_from(physical_offset).ok()?;
        let file = self.files.find(offset)?;
        let record = MessageRecord::decode(file.published_from(offset)?).ok()?;
        (record.physical_offset == physical_offset).then(|| read(&record))
    }

    /// Store time of the record at `physical_offset`, in ms.
    pub(crate) fn store_timestamp_ms(&self, physical_offset: i64) -> Option<i64> {
        self.with_record(physical_offset, |record| record.store_timestamp_ms)
    }
}
