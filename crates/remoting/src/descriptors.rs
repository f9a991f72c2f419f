//! How many connections the process can have before it lacks file descriptors for anything else.

use rustix::process::{Resource, getrlimit, setrlimit};
use tracing::warn;

/// Raises the process's soft limit of open files to its hard limit, as far as the system allows, and
/// gives the number of connections that leaves a quarter of it to files: without descriptors a store
/// cannot go on to its next file. At most `wanted`.
pub(crate) fn connections_max(wanted: usize) -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = rustix::process::Rlimit { current: limit.maximum, ..limit };
        match setrlimit(Resource::Nofile, raised) {
            Ok(()) => limit.current = limit.maximum,
            Err(error) => warn!(%error, "the limit of open files cannot be raised"),
        }
    }
    let Some(files) = limit.current else { return wanted };
    let allowed = usize::try_from(files / 4 * 3).unwrap_or(usize::MAX);
    if allowed < wanted {
        warn!(
            open_files_max = files,
            connections_max = allowed,
            "the limit of open files (ulimit -n) is low: fewer connections are taken"
        );
    }
    wanted.min(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_the_descriptors_stays_for_files() {
        assert_eq!(connections_max(1), 1);
        let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        assert!(connections_max(usize::MAX) as u64 <= files / 4 * 3 + 3);
    }
}
