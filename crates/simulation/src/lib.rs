//! What seeded simulations have in common, for tests alone: the source of chance, runs of many seeds on
//! all processors, and the replay of one.
//!
//! A [`Simulation`] says what one seed does. `examples/simulate.rs` of its crate is the program that
//! `cargo xtask simulate` runs ([`run_as_program`]); `tests/simulation.rs` runs some seeds in every test
//! run ([`check_seeds`]).

mod program;
mod random;
mod seeds;

use std::any::Any;
use std::fmt;
use std::panic::{self, AssertUnwindSafe};

pub use program::run_as_program;
pub use random::Random;
pub use seeds::{check_same_seeds, check_seeds};

/// Something that a seed decides everything of.
pub trait Simulation {
    /// What `cargo xtask simulate` calls it.
    const NAME: &'static str;
    /// What was done, in numbers.
    type Summary: Summary;

    /// Runs one seed. A trace costs time, and is made only if asked for.
    fn run(seed: u64, traced: bool) -> Outcome<Self::Summary>;
}

/// What runs did; the sum is printed.
pub trait Summary: Default + Send + PartialEq + fmt::Debug + fmt::Display {
    /// Counts what another run did, too.
    fn add(&mut self, other: &Self);
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome<S> {
    /// What it did, or what went wrong.
    pub result: Result<S, String>,
    /// Everything that happened, if it was traced.
    pub trace: Vec<String>,
}

/// Runs `work` and gives its error; a panic is one.
///
/// # Errors
/// What went wrong.
pub fn caught(work: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    panic::catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|panic| Err(format!("panic: {}", text_of(&*panic))))
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
        (Some(text), _) => text.clone(),
        (None, Some(text)) => (*text).to_owned(),
        (None, None) => "without a message".to_owned(),
    }
}
