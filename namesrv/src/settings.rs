//! The running configuration: read by every request, changed and written back by
//! UPDATE_NAMESRV_CONFIG.

use std::path::Path;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use rocketmq_protocol::code::ResponseCode;
use rocketmq_protocol::config::{self, ConfigError};

use crate::config::NamesrvConfig;
use crate::safe_file::{self, FileError};

/// Keys that no request may change, whatever `configBlackList` says (RocketMQ's Configuration).
const NEVER_CHANGED: [&str; 4] =
    ["configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"];

/// Why a change was refused; the running configuration is then as before.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpdateError {
    /// The key may not be changed by a request.
    #[error("Can not update config in black list: {key}; change it in the file and restart")]
    BlackListed { key: String },
    /// The value is not one of the key's.
    #[error(transparent)]
    Invalid(#[from] ConfigError),
    /// The file cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
}

impl UpdateError {
    /// How a request for the change ends.
    pub(crate) fn code(&self) -> ResponseCode {
        match self {
            Self::BlackListed { .. } => ResponseCode::NO_PERMISSION,
            Self::Invalid(_) | Self::File(_) => ResponseCode::SYSTEM_ERROR,
        }
    }
}

/// See the module's text.
pub(crate) struct Settings {
    current: RwLock<Arc<NamesrvConfig>>,
    /// Held from reading the old values to writing the file, so that no change is lost.
    writer: Mutex<()>,
}

impl Settings {
    pub(crate) fn new(config: NamesrvConfig) -> Self {
        Self { current: RwLock::new(Arc::new(config)), writer: Mutex::new(()) }
    }

    pub(crate) fn get(&self) -> Arc<NamesrvConfig> {
        Arc::clone(&self.current.read())
    }

    /// `key=value` lines of every key, sorted.
    pub(crate) fn text(&self) -> String {
        config::write(&self.get().to_properties())
    }

    /// Applies properties text: all of it or nothing. Keys that do not exist are skipped with a
    /// warning. The whole configuration is then written to `configStorePath`. Returns the keys that
    /// were set.
    pub(crate) fn update(&self, text: &[u8]) -> Result<Vec<String>, UpdateError> {
        let _writer = self.writer.lock();
        let current = self.get();
        let mut next = NamesrvConfig::clone(&current);
        let mut keys = Vec::new();
        for (key, value) in config::parse_bytes(text) {
            let listed = current.config_black_list.split(';').any(|item| item.trim() == key);
            if listed || NEVER_CHANGED.contains(&key.as_str()) {
                return Err(UpdateError::BlackListed { key });
            }
            if next.set(&key, &value)? {
                keys.push(key);
            } else {
                tracing::warn!(key, "unknown configuration key skipped");
            }
        }
        next.validate()?;
        let path = Path::new(&next.config_store_path);
        safe_file::write(path, config::write(&next.to_properties()).as_bytes())?;
        *self.current.write() = Arc::new(next);
        Ok(keys)
    }
}
