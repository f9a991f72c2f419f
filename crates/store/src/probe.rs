//! Proof that a message could be appended and flushed right now, without one.
//!
//! A master whose disk hangs must not keep its lease by a thread that still runs. So the append lock is
//! taken, zeros are written behind the end of the log, where zeros are, and the file is synced, all
//! within a given time; nothing is there to be found afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::background::Parts;
use crate::error::{Refusal, StoreError};
use crate::store::Store;

/// Why the append path is not proven.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ProbeError {
    /// The store refuses appends for good.
    #[error("the append path is not sound: {0}")]
    Refused(#[from] Refusal),
    /// It took too long; the step that did not end.
    #[error("the append path is stuck: {0}")]
    Stuck(&'static str),
    /// The log, or its directory, could not be written or synced.
    #[error("the append path is not sound: {0}")]
    Store(#[from] StoreError),
}

/// The probe of a store.
#[derive(Debug, Default)]
pub(crate) struct Probe {
    is_running: AtomicBool,
}

impl Store {
    /// Proves the append path: that the log can be written and synced. Returns within `timeout`,
    /// whatever hangs. A full disk and other reasons that pass are no failure.
    ///
    /// # Errors
    /// [`ProbeError`] says what failed or hangs. A failed sync is final, as everywhere.
    pub fn prove_append_path(&self, timeout: Duration) -> Result<(), ProbeError> {
        let parts = &self.parts;
        let deadline = Instant::now() + timeout;
        if !parts.environment.threads {
            return parts.prove(deadline);
        }
        if parts.probe.is_running.swap(true, Ordering::AcqRel) {
            return Err(ProbeError::Stuck("an earlier write or sync has not ended"));
        }
        let (sender, receiver) = mpsc::sync_channel(1);
        let shared = Arc::clone(parts);
        // A thread of its own, since a call that hangs cannot be called off.
        let spawned = std::thread::Builder::new().name("store-probe".to_owned()).spawn(move || {
            let result = shared.prove(deadline);
            shared.probe.is_running.store(false, Ordering::Release);
            // Nobody waits any more if it took too long.
            let _ = sender.send(result);
        });
        if let Err(error) = spawned {
            parts.probe.is_running.store(false, Ordering::Release);
            let failed = StoreError::io("start a thread for", &parts.config.root_dir);
            return Err(failed(error).into());
        }
        match receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(result) => result,
            Err(_) => Err(ProbeError::Stuck("a write or sync of the log has not ended")),
        }
    }
}

impl Parts {
    fn prove(&self, deadline: Instant) -> Result<(), ProbeError> {
        if let Some(refusal) = self.writability.last_word() {
            return Err(refusal.into());
        }
        let appender = self.log.try_lock_until(deadline);
        let appender = appender.ok_or(ProbeError::Stuck("another append has not ended"))?;
        let file = self.log.touch_end(&appender)?;
        drop(appender);
        match file {
            Some(file) => self.flusher.prove(self, &file, deadline),
            // The next append makes a file.
            None => {
                let directories = self.log.files.directories();
                let directory = directories.writable().first().map(|directory| directory.path());
                let directory = directory.unwrap_or(&self.config.root_dir);
                let file_system = &self.environment.file_system;
                let synced = file_system.sync_directory(directory);
                Ok(synced.map_err(StoreError::io("sync directory", directory))?)
            }
        }
    }
}
