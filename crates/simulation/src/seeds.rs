//! Many seeds at a time.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::{Simulation, Summary};

/// The sum of what the seeds did, or the smallest that fails among those that were run, and why. After
/// a failure no other seed is begun.
pub(crate) fn run_seeds<S: Simulation>(
    seeds: Range<u64>,
    threads: u64,
) -> Result<S::Summary, (u64, String)> {
    let next = AtomicU64::new(seeds.start);
    let shared = Mutex::new((S::Summary::default(), None::<(u64, String)>));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let result = S::run(seed, false).result;
                    let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
                    match result {
                        Ok(summary) => shared.0.add(&summary),
                        Err(reason) => {
                            next.store(seeds.end, Ordering::Relaxed);
                            if shared.1.as_ref().is_none_or(|(other, _)| seed < *other) {
                                shared.1 = Some((seed, reason));
                            }
                        }
                    }
                }
            });
        }
    });
    match shared.into_inner().unwrap_or_else(PoisonError::into_inner) {
        (summary, None) => Ok(summary),
        (_, Some(failure)) => Err(failure),
    }
}

/// How many seeds run at a time if nobody says.
pub(crate) fn processors() -> u64 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u64)
}

/// What to type to see a seed again.
pub(crate) fn replay_with<S: Simulation>(seed: u64) -> String {
    format!("replay it with: cargo xtask simulate {} --seed {seed}", S::NAME)
}

/// Runs the seeds from 0 to in front of `seeds`.
///
/// # Panics
/// When one of them fails; the message says which one, why, and how to replay it.
pub fn check_seeds<S: Simulation>(seeds: u64) {
    if let Err((seed, reason)) = run_seeds::<S>(0..seeds, processors()) {
        panic!("seed {seed}: {reason}\n{}", replay_with::<S>(seed));
    }
}

/// Runs each seed from 0 to in front of `seeds` twice.
///
/// # Panics
/// When the two runs differ.
pub fn check_same_seeds<S: Simulation>(seeds: u64) {
    for seed in 0..seeds {
        let runs = [(); 2].map(|()| S::run(seed, true));
        assert!(!runs[0].trace.is_empty(), "seed {seed} has no trace to compare");
        let [one, other] = &runs;
        let same =
            one.trace.iter().zip(&other.trace).take_while(|(one, other)| one == other).count();
        let next = [one, other].map(|run| run.trace.get(same).map_or("its end", String::as_str));
        assert!(
            one == other,
            "seed {seed}: after {same} equal steps one run has {:?}, the other {:?}; {:?}, {:?}",
            next[0],
            next[1],
            one.result,
            other.result
        );
    }
}
