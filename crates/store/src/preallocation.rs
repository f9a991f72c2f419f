//! The next CommitLog file, made before it is needed.
//!
//! Owns one request at a time: a thread makes the file while appends go on, so that a roll finds it
//! ready and a full disk shows before the log needs the space.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::error::StoreError;
use crate::mapped_file_queue::{MappedFile, MappedFileQueue};

#[derive(Debug, Default)]
struct State {
    wanted: Option<u64>,
    making: Option<u64>,
    ready: Option<Arc<MappedFile>>,
    stopped: bool,
}

/// The file to come.
#[derive(Debug, Default)]
pub(crate) struct Preallocation {
    state: Mutex<State>,
    changed: Condvar,
}

impl Preallocation {
    /// Asks for the file that begins at `base_offset`. Does nothing if it is on its way.
    pub(crate) fn request(&self, base_offset: u64) {
        let mut state = self.state.lock();
        let on_its_way = state.making == Some(base_offset)
            || state.wanted == Some(base_offset)
            || state.ready.as_ref().is_some_and(|file| file.base_offset() == base_offset);
        if !on_its_way && !state.stopped {
            state.wanted = Some(base_offset);
            self.changed.notify_all();
        }
    }

    /// The file that begins at `base_offset`: the one that is ready, or made now.
    ///
    /// # Errors
    /// What the operating system says, a full disk among it.
    pub(crate) fn take(
        &self,
        files: &MappedFileQueue,
        base_offset: u64,
    ) -> Result<Arc<MappedFile>, StoreError> {
        let mut state = self.state.lock();
        while state.making == Some(base_offset) {
            self.changed.wait(&mut state);
        }
        if let Some(file) = state.ready.take()
            && file.base_offset() == base_offset
        {
            return Ok(file);
        }
        state.wanted = None;
        drop(state);
        files.prepare(base_offset)
    }

    /// Forgets the file to come, and waits while one is being made. It is not removed.
    pub(crate) fn forget(&self) {
        let mut state = self.state.lock();
        state.wanted = None;
        while state.making.is_some() {
            self.changed.wait(&mut state);
        }
        state.ready = None;
    }

    /// Makes what is asked for until stopped.
    pub(crate) fn run(&self, files: &MappedFileQueue) {
        loop {
            let mut state = self.state.lock();
            let base_offset = loop {
                if state.stopped {
                    return;
                }
                match state.wanted.take() {
                    Some(base_offset) => break base_offset,
                    None => self.changed.wait(&mut state),
                }
            };
            state.making = Some(base_offset);
            drop(state);
            let made = files.prepare(base_offset);
            let mut state = self.state.lock();
            state.making = None;
            match made {
                Ok(file) => state.ready = Some(file),
                // The append that needs the file tries again and reports what it meets.
                Err(error) => tracing::warn!(%error, "could not make the next commit log file"),
            }
            self.changed.notify_all();
        }
    }

    /// Ends [`Preallocation::run`].
    pub(crate) fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::StoreConfig;
    use crate::file_system::RealFileSystem;

    #[test]
    fn a_requested_file_is_ready_when_it_is_needed() {
        let directory = tempfile::tempdir().unwrap();
        let mut config = StoreConfig::new(directory.path());
        config.commit_log_dirs = vec![directory.path().to_owned()];
        config.commit_log_file_bytes = 4096;
        config.warm_mapped_file_enable = true;
        let files = MappedFileQueue::new(Arc::new(RealFileSystem), &config);
        files.load().unwrap();
        let preallocation = Preallocation::default();
        std::thread::scope(|scope| {
            scope.spawn(|| preallocation.run(&files));
            preallocation.request(4096);
            let mut state = preallocation.state.lock();
            while state.ready.is_none() {
                preallocation.changed.wait(&mut state);
            }
            drop(state);
            preallocation.request(4096);
            assert_eq!(preallocation.take(&files, 4096).unwrap().base_offset(), 4096);
            assert_eq!(preallocation.take(&files, 8192).unwrap().base_offset(), 8192);
            preallocation.stop();
        });
    }
}
