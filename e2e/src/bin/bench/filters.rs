//! A SQL filter that passes one message in a thousand, over hot messages.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use e2e::peer::Peer;
use e2e::raw::code;
use serde_json::json;

use crate::meter::cpu_seconds;
use crate::wire::{Bench, numbered, pipeline};

const BATCH: usize = 1_000;
const OURS_MESSAGES: usize = 10_000_000;
/// Enough to see the rate of the slower one.
const JAVA_MESSAGES: usize = 1_000_000;
const EXPRESSION: &str = "wanted = 1 AND region BETWEEN 3 AND 5";

/// Measures both brokers and prints a table.
pub fn run(directory: &Path) -> Result<()> {
    println!();
    println!(
        "| SQL filter, 1 in 1000 passes | broker | messages | evaluated / s | evaluated / CPU s |"
    );
    println!("| --- | --- | --- | --- | --- |");
    let brokers = [(Peer::Ours, "ours", OURS_MESSAGES), (Peer::Java, "Java 5.3.3", JAVA_MESSAGES)];
    for (peer, name, messages) in brokers {
        let settings = [("enablePropertyFilter", "true")];
        let mut bench = Bench::start(peer, &directory.join(name), &settings)?;
        let process = bench.broker.running()?.id();
        let body = batch_body();
        let fields = bench.send_fields("", true);
        let mut raw = bench.connect()?;
        for first in (0..messages / BATCH).step_by(16) {
            let count = 16.min(messages / BATCH - first);
            let send = |number| numbered(code::SEND_BATCH_MESSAGE, number, &fields, &body);
            pipeline(&mut raw, count, send, |_, _| Ok(()))?;
        }
        let (before, began) = (cpu_seconds(process)?, Instant::now());
        let (mut next, mut found) = (0_i64, 0);
        while next < messages as i64 {
            let fields = json!({
                "consumerGroup": "bench", "topic": bench.topic, "queueId": "0",
                "queueOffset": next.to_string(), "maxMsgNums": "32", "sysFlag": "4",
                "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": EXPRESSION,
                "subVersion": "0", "expressionType": "SQL92",
            });
            let answer = raw.call(code::PULL_MESSAGE, &fields, b"")?;
            ensure!(matches!(answer.code, 0 | 20), "{}: {}", answer.code, answer.remark);
            let begin = answer.field("nextBeginOffset").context("no nextBeginOffset")?;
            let begin: i64 = begin.parse()?;
            ensure!(begin > next, "the pull does not advance behind {next}");
            found += usize::from(answer.code == 0);
            next = begin;
        }
        let seconds = began.elapsed().as_secs_f64();
        let cpu = cpu_seconds(process)? - before;
        ensure!(found > 0, "nothing passed");
        println!(
            "| `{EXPRESSION}` | {name} | {messages} | {:.0} | {:.0} |",
            messages as f64 / seconds,
            messages as f64 / cpu
        );
        bench.broker.kill()?;
    }
    Ok(())
}

/// A batch with one message that passes.
fn batch_body() -> Vec<u8> {
    let mut body = Vec::new();
    for number in 0..BATCH {
        let wanted = i32::from(number == BATCH / 2);
        let properties = format!(
            "KEYS\u{1}k\u{2}TAGS\u{1}a\u{2}region\u{1}4\u{2}wanted\u{1}{wanted}\u{2}other\u{1}x\u{2}"
        );
        let text = [7; 32];
        let bytes = 4 * 5 + text.len() + 2 + properties.len();
        body.extend_from_slice(&(bytes as u32).to_be_bytes());
        body.extend_from_slice(&[0; 12]);
        body.extend_from_slice(&(text.len() as u32).to_be_bytes());
        body.extend_from_slice(&text);
        body.extend_from_slice(&(properties.len() as u16).to_be_bytes());
        body.extend_from_slice(properties.as_bytes());
    }
    body
}
