//! What slaves cost: a broker alone, with a slave, with a slave that every send waits for, and a group
//! whose master is appointed; and how fast a slave without anything gets a log.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::appointed::Group;
use e2e::peer::{Broker, Namesrv, Peer};
use e2e::raw::{Raw, code};
use e2e::wait;
use serde_json::{Value, json};

use crate::Options;
use crate::java_client::{BROKER_SETTINGS, run_load};
use crate::meter::cpu_seconds;

const LOAD: &[&str] = &["--mode", "sync", "--threads", "64"];
const BODY_BYTES: u32 = 128;
/// Of the log that a slave has to catch up with.
const FILL: &[&str] = &["--mode", "async", "--in-flight", "512"];
const FILL_BODY_BYTES: u32 = 1024;
const LIMIT: Duration = Duration::from_secs(300);
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Who has to have a message.
#[derive(Clone, Copy)]
enum Setup {
    Alone,
    AsyncPair,
    SyncPair,
    /// A master and a slave, of which the master is appointed.
    Appointed,
}

const ROWS: [(&str, Peer, Setup); 7] = [
    ("ours, alone", Peer::Ours, Setup::Alone),
    ("Java 5.3.3, alone", Peer::Java, Setup::Alone),
    ("ours, ASYNC_MASTER and slave", Peer::Ours, Setup::AsyncPair),
    ("Java 5.3.3, ASYNC_MASTER and slave", Peer::Java, Setup::AsyncPair),
    ("ours, SYNC_MASTER and slave", Peer::Ours, Setup::SyncPair),
    ("Java 5.3.3, SYNC_MASTER and slave", Peer::Java, Setup::SyncPair),
    ("ours, appointed SYNC_MASTER and slave", Peer::Ours, Setup::Appointed),
];

/// Prints both tables.
pub fn run(directory: &Path, options: &Options) -> Result<()> {
    println!();
    println!("| 128 B, 64 sync | msg/s | CPU s of all brokers / 100 000 | p99 ms |");
    println!("| --- | --- | --- | --- |");
    for (name, peer, setup) in ROWS {
        let mut rounds = Vec::new();
        for round in 0..options.rounds {
            let place = directory.join(format!("{round}"));
            std::fs::create_dir_all(&place)?;
            let measured = measure(peer, setup, &place, options);
            rounds.push(measured.with_context(|| format!("{name}, round {round}"))?);
            std::fs::remove_dir_all(&place)?;
        }
        let median = |figure: usize| {
            let mut values: Vec<f64> = rounds.iter().map(|round| round[figure]).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        println!("| {name} | {:.0} | {:.2} | {:.1} |", median(0), median(1), median(2));
    }
    println!();
    println!("| an empty slave gets the whole log | MiB | s | MiB/s |");
    println!("| --- | --- | --- | --- |");
    for (name, peer) in [("ours", Peer::Ours), ("Java 5.3.3", Peer::Java)] {
        let place = directory.join("catch-up");
        std::fs::create_dir_all(&place)?;
        let (mib, seconds) = catch_up(peer, &place, options).with_context(|| name.to_owned())?;
        std::fs::remove_dir_all(&place)?;
        println!("| {name} | {mib:.0} | {seconds:.1} | {:.0} |", mib / seconds);
    }
    Ok(())
}

/// Messages a second, brokers' CPU for 100 000 of them, p99 in ms.
fn measure(peer: Peer, setup: Setup, directory: &Path, options: &Options) -> Result<[f64; 3]> {
    let namesrv = Namesrv::start(peer, &directory.join("namesrv"))?;
    let address = namesrv.address();
    let mut brokers = Vec::new();
    let mut group = None;
    match setup {
        Setup::Alone => brokers.push(start(peer, directory, &address, "0", "ASYNC_MASTER")?),
        Setup::AsyncPair => {
            brokers.push(start(peer, directory, &address, "0", "ASYNC_MASTER")?);
            brokers.push(start(peer, directory, &address, "1", "SLAVE")?);
        }
        Setup::SyncPair => {
            brokers.push(start(peer, directory, &address, "0", "SYNC_MASTER")?);
            brokers.push(start(peer, directory, &address, "1", "SLAVE")?);
        }
        Setup::Appointed => {
            let started = Group::start(directory, &address, "bench", 2, &BROKER_SETTINGS)?;
            started.wait_in_sync()?;
            group = Some(started);
        }
    }
    if let [master, _slave] = &mut brokers[..] {
        wait_for_copies(master)?;
    }
    let mut processes = Vec::new();
    for broker in &mut brokers {
        processes.push(broker.running()?.id());
    }
    if let Some(group) = &mut group {
        processes.extend(group.processes()?);
    }
    let sample = || processes.iter().map(|process| cpu_seconds(*process)).sum::<Result<f64>>();
    let load = run_load(BODY_BYTES, LOAD, &namesrv, directory, options, sample)?;
    let cpu = (load.after - load.before) * 100_000.0 / load.messages;
    Ok([load.messages_per_second, cpu, load.p99_ms])
}

fn start(peer: Peer, directory: &Path, namesrv: &str, id: &str, role: &str) -> Result<Broker> {
    let mut settings = BROKER_SETTINGS.to_vec();
    // The master included; without it RocketMQ's SYNC_MASTER waits for nobody.
    settings.extend([("brokerRole", role), ("brokerId", id), ("inSyncReplicas", "2")]);
    let mut broker = Broker::new(peer, &directory.join(id), namesrv, "bench", &settings)?;
    broker.start()?;
    Ok(broker)
}

/// Waits until the one slave has everything; gives how much that is.
fn wait_for_copies(master: &Broker) -> Result<f64> {
    wait::until("the slave has everything", LIMIT, || {
        let mut raw = Raw::connect(&master.address(), ANSWER_LIMIT)?;
        let answer = raw.call(code::GET_BROKER_HA_STATUS, &json!({}), &[])?;
        ensure!(answer.code == 0, "HA status: {}: {}", answer.code, answer.remark);
        let status: Value = serde_json::from_slice(&answer.body)?;
        let slave = &status["haConnectionInfo"][0];
        ensure!(slave["diff"] == 0, "{status}");
        status["masterCommitLogMaxOffset"].as_f64().context("no offset")
    })
}

/// MiB of the log, and the seconds from the start of the slave's process until it has them.
fn catch_up(peer: Peer, directory: &Path, options: &Options) -> Result<(f64, f64)> {
    let namesrv = Namesrv::start(peer, &directory.join("namesrv"))?;
    let address = namesrv.address();
    let master = start(peer, directory, &address, "0", "ASYNC_MASTER")?;
    run_load(FILL_BODY_BYTES, FILL, &namesrv, directory, options, || Ok(()))?;
    let mut settings = BROKER_SETTINGS.to_vec();
    settings.extend([("brokerRole", "SLAVE"), ("brokerId", "1")]);
    let mut slave = Broker::new(peer, &directory.join("1"), &address, "bench", &settings)?;
    let began = Instant::now();
    slave.start()?;
    let bytes = wait_for_copies(&master)?;
    Ok((bytes / f64::from(1 << 20), began.elapsed().as_secs_f64()))
}
