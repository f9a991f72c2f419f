//! Some seeds of the crash simulator in every test run. `cargo xtask simulate store` runs more.

mod simulator;

use std::sync::atomic::{AtomicU64, Ordering};

/// As many as take a few seconds without optimisation.
const SEEDS: u64 = 500;

#[test]
fn what_was_acknowledged_survives_every_crash() {
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= SEEDS {
                        return;
                    }
                    if let Err(failure) = simulator::run(seed, false) {
                        panic!(
                            "seed {seed}: {}\nreplay it with: cargo xtask simulate store --seed {seed}",
                            failure.reason
                        );
                    }
                }
            });
        }
    });
}

#[test]
fn the_same_seed_makes_the_same_run() {
    for seed in 0..20 {
        let runs = [(); 2].map(|()| simulator::run(seed, true).map_err(|failure| failure.trace));
        assert_eq!(runs[0], runs[1], "seed {seed}");
    }
}
