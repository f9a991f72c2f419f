//! What a message costs that a consumer sends back: as a retry, and as a dead letter.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use e2e::peer::Peer;
use e2e::raw::code;
use serde_json::json;

use crate::meter::cpu_seconds;
use crate::wire::{Bench, numbered, physical_offset, pipeline};

const MESSAGES: usize = 100_000;
const GROUP: &str = "bench";
/// A delay level whose messages are not due while this runs.
const WAITING: &str = "2";

/// Measures both brokers and prints a table.
pub fn run(directory: &Path) -> Result<()> {
    println!();
    println!(
        "| broker CPU s / 100 000 | plain send | retry | retry, with its delivery | dead letter |"
    );
    println!("| --- | --- | --- | --- | --- |");
    for (peer, name) in [(Peer::Ours, "ours"), (Peer::Java, "Java 5.3.3")] {
        let settings = [("messageDelayLevel", "1s 1d"), ("autoCreateSubscriptionGroup", "true")];
        let mut bench = Bench::start(peer, &directory.join(name), &settings)?;
        let process = bench.broker.running()?.id();
        let fields = bench.send_fields("", false);
        let mut raw = bench.connect()?;
        let mut offsets = vec![0; MESSAGES];
        let send = |number| numbered(code::SEND_MESSAGE_V2, number, &fields, &[7; 128]);
        let mut measured = Vec::new();
        // The first time warms a virtual machine up.
        for _ in 0..2 {
            let before = cpu_seconds(process)?;
            pipeline(&mut raw, MESSAGES, send, |number, answer| {
                offsets[number] = physical_offset(answer)?;
                Ok(())
            })?;
            measured.push(cpu_seconds(process)? - before);
        }
        let plain = measured[1];
        let mut send_back = |delay_level: &str, topic: &str| -> Result<f64> {
            let already = bench.max_offset(topic)?;
            let before = cpu_seconds(process)?;
            let request = |number: usize| {
                let fields = json!({
                    "group": GROUP, "offset": offsets[number].to_string(),
                    "delayLevel": delay_level, "originTopic": "Bench", "unitMode": "false",
                    "maxReconsumeTimes": "16",
                });
                numbered(code::CONSUMER_SEND_MSG_BACK, number, &fields, b"")
            };
            pipeline(&mut raw, MESSAGES, request, |_, _| Ok(()))?;
            if delay_level != WAITING {
                bench.wait_for(topic, already + MESSAGES as i64, Duration::from_secs(300))?;
            }
            Ok(cpu_seconds(process)? - before)
        };
        let mut warm = |delay_level: &str, topic: &str| -> Result<f64> {
            send_back(delay_level, topic)?;
            send_back(delay_level, topic)
        };
        let waiting = warm(WAITING, &format!("%RETRY%{GROUP}"))?;
        let retry = warm("1", &format!("%RETRY%{GROUP}"))?;
        let dead = warm("-1", &format!("%DLQ%{GROUP}"))?;
        println!(
            "| {name} | {plain:.2} | {waiting:.2} ({:.1}) | {retry:.2} ({:.1}) | {dead:.2} ({:.1}) |",
            waiting / plain,
            retry / plain,
            dead / plain
        );
        bench.broker.kill()?;
    }
    Ok(())
}
