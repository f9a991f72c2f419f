//! How long 200 consumers take to share 1000 queues anew, with Apache's Java client: when they all
//! join, when one leaves, and when one joins.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::line::Line;
use e2e::peer::{Broker, Namesrv, Peer};
use e2e::programs::{Client, Programs};
use e2e::raw::{Raw, code};
use serde_json::json;

use crate::meter::{cpu_seconds, wait_for_quiet};

const TOPIC: &str = "Rebalanced";
const CONSUMERS: &str = "200";
const QUEUES: &str = "1000";
/// How often one leaves and another joins.
const ROUNDS: &str = "9";
const LIMIT: Duration = Duration::from_secs(600);
/// Two hundred clients, each with threads of its own.
const HEAP: &str = "2g";

/// Measures both brokers and prints a table.
pub fn run(directory: &Path) -> Result<()> {
    println!();
    println!(
        "| {CONSUMERS} consumers, {QUEUES} queues | all join, s | one leaves, s (median, worst) | one joins, s (median, worst) | broker CPU s |"
    );
    println!("| --- | --- | --- | --- | --- |");
    for (peer, name) in [(Peer::Ours, "ours"), (Peer::Java, "Java 5.3.3")] {
        measure(peer, name, &directory.join(name)).with_context(|| name.to_owned())?;
    }
    Ok(())
}

fn measure(peer: Peer, name: &str, directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory)?;
    wait_for_quiet();
    let namesrv = Namesrv::start(peer, &directory.join("namesrv"))?;
    let address = namesrv.address();
    let mut broker = Broker::new(peer, &directory.join("broker"), &address, "bench", &[])?;
    broker.start()?;
    let fields = json!({
        "topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": QUEUES,
        "writeQueueNums": QUEUES, "perm": "6", "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0", "order": "false",
    });
    let mut raw = Raw::connect(&broker.address(), LIMIT)?;
    let answer = raw.call(code::UPDATE_AND_CREATE_TOPIC, &fields, b"")?;
    ensure!(answer.code == 0, "create the topic: {}: {}", answer.code, answer.remark);
    e2e::wait::until("the topic's route", LIMIT, || {
        let request = json!({"topic": TOPIC});
        let answer =
            Raw::connect(&address, LIMIT)?.call(code::GET_ROUTEINFO_BY_TOPIC, &request, &[])?;
        ensure!(answer.code == 0, "{}: {}", answer.code, answer.remark);
        Ok(())
    })?;
    let mut command = Client::Java53.command_with_heap(directory, HEAP)?;
    command.arg("serve");
    let programs = Programs::start_command(Client::Java53, command, &directory.join("client.log"))?;
    let process = broker.running()?.id();
    let cpu = cpu_seconds(process)?;
    let arguments =
        ["--topic", TOPIC, "--queues", QUEUES, "--consumers", CONSUMERS, "--rounds", ROUNDS];
    let lines = programs.rebalance(&address, &arguments)?.finish(LIMIT)?;
    let cpu = cpu_seconds(process)? - cpu;
    let seconds = |event: &str| -> Result<(f64, f64)> {
        let mut took: Vec<f64> = lines
            .iter()
            .filter_map(|line| match line {
                Line::Bench(figures) if figures.get("event")?.as_str()? == event => {
                    Some(figures.get("ms")?.as_f64()? / 1000.0)
                }
                _ => None,
            })
            .collect();
        took.sort_by(f64::total_cmp);
        let worst = took.last().with_context(|| format!("no figure of '{event}'"))?;
        Ok((took[took.len() / 2], *worst))
    };
    let (all, _) = seconds("all join")?;
    let (leaves, leaves_worst) = seconds("one leaves")?;
    let (joins, joins_worst) = seconds("one joins")?;
    println!(
        "| {name} | {all:.1} | {leaves:.2}, {leaves_worst:.2} | {joins:.2}, {joins_worst:.2} | {cpu:.1} |"
    );
    broker.kill()
}
