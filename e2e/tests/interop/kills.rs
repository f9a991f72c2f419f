//! kill -9 of the broker in mid-traffic, again and again: nothing acknowledged is lost.
//!
//! The process alone dies, not the machine: what was written is in the page
//! cache, so the ledger must be clean with asynchronous flush too.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use e2e::chance;
use e2e::ledger::{GroupRules, Ledger, SendRules};
use e2e::peer::Servers;
use e2e::programs::{Client, Program, Programs};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const TOPIC: &str = "Killed";
const QUEUES: u32 = 4;
const LIMIT: Duration = Duration::from_secs(120);

#[test]
fn twenty_kills_with_sync_flush_lose_nothing() -> Result<()> {
    survive("SYNC_FLUSH", Client::Java53)
}

#[test]
fn twenty_kills_with_async_flush_lose_nothing() -> Result<()> {
    survive("ASYNC_FLUSH", Client::Java49)
}

fn survive(flush: &str, client: Client) -> Result<()> {
    let first_seed = chance::seed();
    let mut servers = Servers::start(&[
        ("flushDiskType", flush),
        // Files of the log roll over between and under the kills.
        ("mappedFileSizeCommitLog", "1048576"),
    ])?;
    servers.create_topic(TOPIC, QUEUES)?;
    let namesrv = servers.namesrv_address();
    let programs = Programs::start(client, servers.directory())?;

    let produce = |prefix: &str, more: &[&str]| {
        let common =
            ["--topic", TOPIC, "--seconds", "600", "--timeout-ms", "2000", "--key-prefix", prefix];
        programs.produce(&namesrv, &[&common, more].concat())
    };
    // Retries stay off where one send must stand at one place only.
    let producers: [(Program, SendRules); 4] = [
        (
            produce("sync", &["--threads", "4", "--rate", "400", "--retries", "0"])?,
            SendRules::SEQUENTIAL,
        ),
        (
            produce("order", &["--threads", "2", "--rate", "200", "--retries", "0", "--order"])?,
            SendRules::SEQUENTIAL,
        ),
        (
            produce("async", &["--mode", "async", "--rate", "200", "--retries", "0"])?,
            SendRules::UNORDERED,
        ),
        (
            produce("retried", &["--rate", "50", "--size", "3000", "--retries", "2"])?,
            SendRules { attempts: 3, ..SendRules::SEQUENTIAL },
        ),
    ];
    let consume = |mode: &str| {
        // A restarted broker knows the group from its next heart-beat on.
        let common = ["--topic", TOPIC, "--group", mode, "--mode", mode, "--heartbeat-ms", "1000"];
        programs.consume(&namesrv, &common)
    };
    let (push, orderly) = (consume("push")?, consume("orderly")?);
    push.wait_ready()?;
    orderly.wait_ready()?;

    let acknowledged =
        || -> usize { producers.iter().map(|(producer, _)| producer.acknowledged()).sum() };
    let kills = chance::times("ROCKETMQ_E2E_KILLS", 20);
    let mut down = Duration::ZERO;
    for number in 0..kills {
        let seed = first_seed.wrapping_add(u64::from(number));
        let mut random = StdRng::seed_from_u64(seed);
        // Some traffic since the last start, then a moment nobody chose.
        let before = acknowledged();
        e2e::wait::until("sends after the restart", LIMIT, || {
            if acknowledged() >= before + 50 { Ok(()) } else { Err("no answers") }
        })
        .with_context(|| format!("seed {seed}"))?;
        sleep(Duration::from_micros(random.random_range(0..800_000)));
        servers.broker.kill().with_context(|| format!("seed {seed}"))?;
        let killed = Instant::now();
        servers.broker.start().with_context(|| format!("seed {seed}"))?;
        down += killed.elapsed();
        println!("{flush} kill {number}, seed {seed}: {} acknowledged so far", acknowledged());
    }
    println!("{flush}: ready again {:?} after a kill, in the mean", down / kills.max(1));

    let mut ledger = Ledger::new();
    for (producer, rules) in &producers {
        ledger.sent(&producer.stop()?, *rules);
    }
    let rules = GroupRules { topic: TOPIC, disturbances: kills, ..GroupRules::default() };
    let wanted = ledger.missing(&rules, &[]);
    for (group, consumer, in_order) in [("push", push, false), ("orderly", orderly, true)] {
        let came = e2e::wait::until("every acknowledged message", LIMIT, || {
            match ledger.missing(&rules, &consumer.lines()) {
                0 => Ok(()),
                missing => Err(format!("{missing} of {wanted} are missing")),
            }
        });
        ledger.arrived(group, &consumer.stop()?);
        let rules = GroupRules { in_order, ..rules };
        let summary =
            ledger.check(group, &rules).with_context(|| format!("first seed {first_seed}"))?;
        println!("{flush} {group}: {summary}");
        came?;
    }
    // What the store holds in the end, each place once and no hole.
    let pull =
        programs.consume(&namesrv, &["--topic", TOPIC, "--group", "pull", "--mode", "pull"])?;
    ledger.arrived("pull", &pull.finish(LIMIT)?);
    let rules = GroupRules { in_order: true, disturbances: 0, ..rules };
    let summary = ledger
        .check("pull", &rules)
        .and_then(|summary| ledger.check_no_holes("pull").map(|()| summary))
        .with_context(|| format!("first seed {first_seed}"))?;
    println!("{flush} store: {summary}");
    Ok(())
}
