//! How `rmq` ends: the exit codes that scripts rely on, and the errors that lead to them.

use std::fmt;
use std::process::ExitCode;

/// Exit codes. Documented in `rmq --help`; 0 is success and 2 (usage) is clap's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The operation failed.
    Failure = 1,
    /// The arguments are wrong.
    Usage = 2,
    /// The topic, group or broker does not exist.
    NotFound = 3,
    /// Nothing came in time.
    Timeout = 4,
    /// No name server or broker could be reached.
    Unreachable = 5,
    /// A store directory is damaged.
    Damaged = 6,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// Attached to an error as context, it decides the exit code.
#[derive(Debug)]
pub struct Because {
    exit: Exit,
    text: String,
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Because {}

/// An error that ends the program with `exit`.
pub fn error(exit: Exit, text: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(Because { exit, text: text.into() })
}

/// The exit code that an error asks for.
pub fn code_of(error: &anyhow::Error) -> Exit {
    error.downcast_ref::<Because>().map_or(Exit::Failure, |because| because.exit)
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn the_code_survives_added_context() {
        let plain = anyhow::anyhow!("broken");
        assert_eq!(code_of(&plain), Exit::Failure);
        let outer = Err::<(), _>(error(Exit::NotFound, "topic x does not exist")).context("outer");
        assert_eq!(code_of(&outer.unwrap_err()), Exit::NotFound);
    }
}
