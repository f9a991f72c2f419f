//! Errors of a pass, and how soon each class is tried again.

use std::time::Duration;

use thiserror::Error;

use crate::rocketmq::AdminError;

/// What ended a pass early.
#[derive(Debug, Error)]
pub enum Error {
    /// The API server refused or did not answer.
    #[error("{what}: {source}")]
    Kubernetes {
        /// What was being done to what.
        what: String,
        /// The answer.
        source: Box<kube::Error>,
    },
    /// A broker or name server refused or did not answer.
    #[error(transparent)]
    RocketMQ(#[from] AdminError),
    /// Something else has to happen first.
    #[error("{0}")]
    NotYet(String),
    /// An object cannot be written as JSON.
    #[error("{what}: {source}")]
    Json {
        /// Which object.
        what: String,
        /// Why.
        source: serde_json::Error,
    },
}

impl Error {
    /// Adds what was being done to an API server error.
    pub fn kubernetes(what: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let what = what.into();
        move |source| Self::Kubernetes { what, source: Box::new(source) }
    }

    /// Name of the class, a metric label.
    pub fn class(&self) -> &'static str {
        match self {
            Self::Kubernetes { source, .. } if is_conflict(source) => "conflict",
            Self::Kubernetes { .. } => "kubernetes",
            Self::RocketMQ(_) => "rocketmq",
            Self::NotYet(_) => "not_yet",
            Self::Json { .. } => "internal",
        }
    }

    /// When to try again after `failures` failures in a row, before jitter. A conflict means that
    /// someone else wrote: the next look is current. Everything else backs off, at most a minute.
    pub fn retry_after(&self, failures: u32) -> Duration {
        match self.class() {
            "conflict" | "not_yet" => Duration::from_secs(1),
            _ => Duration::from_millis(500 << failures.min(7)).min(Duration::from_secs(60)),
        }
    }
}

/// Whether the API server answered 409.
pub fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

/// `period` varied by a tenth to either side, so that many objects do not move in step.
pub fn jittered(period: Duration) -> Duration {
    period.mul_f64(rand::random_range(0.9..1.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_off_grows_and_is_capped() {
        let error = Error::RocketMQ(AdminError {
            operation: "list topics",
            address: "b:10911".into(),
            message: "connection refused".into(),
            refused: None,
        });
        assert_eq!(error.retry_after(0), Duration::from_millis(500));
        assert_eq!(error.retry_after(1), Duration::from_secs(1));
        assert_eq!(error.retry_after(100), Duration::from_secs(60));
        assert_eq!(Error::NotYet(String::new()).retry_after(100), Duration::from_secs(1));
    }

    #[test]
    fn jitter_stays_near_the_period() {
        for _ in 0..100 {
            let period = jittered(Duration::from_secs(100));
            assert!(period >= Duration::from_secs(90) && period <= Duration::from_secs(110));
        }
    }
}
