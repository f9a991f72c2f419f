//! Some seeds of simulated groups in every test run. `cargo xtask simulate replication` runs more.

mod simulator;

use std::sync::atomic::{AtomicU64, Ordering};

/// As many as take a few seconds without optimisation.
const SEEDS: u64 = 2000;

#[test]
fn no_message_is_lost_and_no_two_are_masters() {
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
                            "seed {seed}: {}\nreplay it with: cargo xtask simulate replication --seed {seed}",
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
        let runs = [(); 2].map(|()| simulator::trace(seed));
        assert_eq!(runs[0], runs[1], "seed {seed}");
    }
}
