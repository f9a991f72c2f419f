//! 100 000 delayed messages that are due within a second or little more.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use e2e::peer::Peer;
use e2e::raw::code;

use crate::meter::cpu_seconds;
use crate::wire::{Bench, numbered, pipeline};

const MESSAGES: usize = 100_000;
/// Longer than sending them takes, so that delivery is measured alone.
const DELAY: Duration = Duration::from_secs(20);

/// Measures both brokers and prints a table.
pub fn run(directory: &Path) -> Result<()> {
    println!();
    println!(
        "| 100 000 delayed messages | broker | due within s | last delivered after the last was due, s | broker CPU s |"
    );
    println!("| --- | --- | --- | --- | --- |");
    for (peer, name) in [(Peer::Ours, "ours"), (Peer::Java, "Java 5.3.3")] {
        let level = format!("{}s", DELAY.as_secs());
        let settings = [("messageDelayLevel", level.as_str())];
        let mut bench = Bench::start(peer, &directory.join(name), &settings)?;
        let fields = bench.send_fields("DELAY\u{1}1\u{2}", false);
        let began = Instant::now();
        let send = |number| numbered(code::SEND_MESSAGE_V2, number, &fields, &[7; 128]);
        pipeline(&mut bench.connect()?, MESSAGES, send, |_, _| Ok(()))?;
        let sent = Instant::now();
        let process = bench.broker.running()?.id();
        let cpu = cpu_seconds(process)?;
        bench.wait_for(bench.topic, MESSAGES as i64, Duration::from_secs(300))?;
        let behind = sent.elapsed().saturating_sub(DELAY);
        println!(
            "| 128 B | {name} | {:.2} | {:.2} | {:.2} |",
            (sent - began).as_secs_f64(),
            behind.as_secs_f64(),
            cpu_seconds(process)? - cpu
        );
        bench.broker.kill()?;
    }
    Ok(())
}
