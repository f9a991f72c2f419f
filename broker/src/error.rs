//! Why a broker does not start.

use std::io;

use rocketmq_protocol::config::{ConfigError, NotText};
use rocketmq_store::StoreError;

use crate::coordinator::CoordinatorError;
use crate::metadata::persist::MetadataError;

/// Why a broker does not start. Each text names the thing, its value and what would be right.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A value of the configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A value in the configuration file.
    #[error("configuration file {path}: {source}")]
    ConfigFile {
        /// The file.
        path: String,
        /// What is wrong in it.
        source: ConfigError,
    },
    /// A configuration file that is no text.
    #[error("configuration file {path}: {source}")]
    ConfigText {
        /// The file.
        path: String,
        /// What is wrong with it.
        #[source]
        source: NotText,
    },
    /// The message store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A metadata file.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// The keeper of the group's record.
    #[error(transparent)]
    Coordinator(#[from] CoordinatorError),
    /// Something of the system: a port, a thread, a file.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried.
        action: String,
        /// The system's answer.
        source: io::Error,
    },
}

impl StartError {
    /// Makes an error of a system call's failure.
    pub(crate) fn system(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        move |source| Self::System { action, source }
    }
}
