//! What a committed transaction costs: half message, commit, and the messages behind them.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use e2e::peer::Peer;
use e2e::raw::code;
use serde_json::json;

use crate::meter::cpu_seconds;
use crate::wire::{Bench, numbered, physical_offset, pipeline};

const MESSAGES: usize = 50_000;

/// Measures both brokers and prints a table.
pub fn run(directory: &Path) -> Result<()> {
    println!();
    println!("| committed transactions | broker | per second | broker CPU s / 100 000 |");
    println!("| --- | --- | --- | --- |");
    let mut cpus = Vec::new();
    for (peer, name) in [(Peer::Ours, "ours"), (Peer::Java, "Java 5.3.3")] {
        let mut bench = Bench::start(peer, &directory.join(name), &[])?;
        let process = bench.broker.running()?.id();
        let mut raw = bench.connect()?;
        // The first rounds warm a virtual machine up.
        let mut last = (0.0, 0.0);
        for round in 1..=3 {
            let (before, began) = (cpu_seconds(process)?, Instant::now());
            let mut halves = vec![(0, String::new()); MESSAGES];
            let half = |number: usize| {
                let properties = format!(
                    "TRAN_MSG\u{1}true\u{2}PGROUP\u{1}bench\u{2}UNIQ_KEY\u{1}{round:016X}{number:016X}\u{2}"
                );
                let mut fields = bench.send_fields(&properties, false);
                fields["f"] = json!("4");
                numbered(code::SEND_MESSAGE_V2, number, &fields, &[7; 128])
            };
            pipeline(&mut raw, MESSAGES, half, |number, answer| {
                let queue_offset = answer.field("queueOffset").context("no queueOffset")?;
                halves[number] = (physical_offset(answer)?, queue_offset.to_owned());
                Ok(())
            })?;
            let commit = |number: usize| {
                let (physical_offset, queue_offset) = &halves[number];
                let fields = json!({
                    "producerGroup": "bench", "tranStateTableOffset": queue_offset,
                    "commitLogOffset": physical_offset.to_string(), "commitOrRollback": "8",
                    "fromTransactionCheck": "false", "msgId": format!("{round:016X}{number:016X}"),
                    "topic": bench.topic,
                });
                numbered(code::END_TRANSACTION, number, &fields, b"")
            };
            pipeline(&mut raw, MESSAGES, commit, |_, _| Ok(()))?;
            bench.wait_for(bench.topic, (round * MESSAGES) as i64, Duration::from_secs(60))?;
            let seconds = began.elapsed().as_secs_f64();
            let cpu = cpu_seconds(process)? - before;
            last = (MESSAGES as f64 / seconds, cpu * 100_000.0 / MESSAGES as f64);
        }
        println!("| 128 B, 256 in flight | {name} | {:.0} | {:.2} |", last.0, last.1);
        cpus.push(last.1);
        bench.broker.kill()?;
    }
    println!("\nTransactions per CPU second, ours / Java: {:.1}", cpus[1] / cpus[0]);
    Ok(())
}
