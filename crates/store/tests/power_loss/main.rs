//! What the crash simulator found, each without a seed: whatever was not synced is lost.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

#[path = "../common/mod.rs"]
mod common;
mod failed_calls;
mod names;
mod old_files;
#[path = "../simulator/mod.rs"]
mod simulator;
mod torn;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{append, bodies, message, small_config};
use rocketmq_protocol::message::batch;
use rocketmq_simulation::Random;
use rocketmq_store::clock::ManualClock;
use rocketmq_store::file_system::OpenMode;
use rocketmq_store::small_file::{read_small_file, write_small_file};
use rocketmq_store::{
    DurableOutcome, Environment, FileSystem, MessageError, RecoveryReport, Refusal, Store,
    StoreConfig,
};
use simulator::disk::{Call, SimulatedDisk};

const ROOT: &str = "/data/store";

/// Not an hour at which old files are removed.
fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(1_700_000_000_000))
}

fn new_disk() -> SimulatedDisk {
    SimulatedDisk::new(Random::new(1), clock(), false)
}

fn open_with(disk: &SimulatedDisk, config: StoreConfig) -> (Arc<Store>, RecoveryReport) {
    let file_system = Arc::new(disk.clone());
    let environment =
        Environment { file_system, clock: clock(), threads: false, ..Environment::default() };
    Store::open(config, environment).unwrap()
}

fn open(disk: &SimulatedDisk) -> (Arc<Store>, RecoveryReport) {
    open_with(disk, small_config(Path::new(ROOT)))
}

fn lose_power(disk: &SimulatedDisk, store: Arc<Store>) {
    drop(store);
    disk.cut_power_and_lose_all();
}

fn kill(disk: &SimulatedDisk, store: Arc<Store>) {
    drop(store);
    disk.kill_process();
}

fn log_file(base_offset: u64) -> PathBuf {
    Path::new(ROOT).join(format!("commitlog/{base_offset:020}"))
}

/// Small messages in a queue of A, then ones in B of which two fill a file of the log.
fn append_small_and_large(store: &Store, small: usize, large: u8) {
    for _ in 0..small {
        append(store, "A", 0, b"soon gone");
    }
    for n in 0..large {
        append(store, "B", 0, &[n; 1500]);
    }
}
