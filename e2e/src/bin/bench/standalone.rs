//! How fast `rmq standalone` starts, and what it needs when idle.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::process::Process;
use e2e::raw::{Raw, code};
use e2e::{environment, ports};
use serde_json::json;

use crate::meter::resident_mib;

/// `rmq standalone`: from exec to the first accepted send, and resident memory when idle.
pub fn run(directory: &Path) -> Result<()> {
    let mut starts_ms = Vec::new();
    let mut rss_mib = 0.0;
    for round in 0..5 {
        let data = directory.join(round.to_string());
        std::fs::create_dir_all(&data)?;
        let (broker, namesrv) = (ports::allocate()?, ports::allocate()?);
        let mut command = std::process::Command::new(environment::binary("rmq")?);
        command
            .args(["standalone", "--port", &broker.to_string()])
            .args(["--namesrv-port", &namesrv.to_string(), "--data"])
            .arg(data.join("store"));
        let started = Instant::now();
        let mut process = Process::start("rmq", &mut command, &data.join("rmq.log"))?;
        let address = format!("127.0.0.1:{broker}");
        while first_send(&address).is_err() {
            process.check_running()?;
            ensure!(started.elapsed() < Duration::from_secs(30), "no send accepted in 30 s");
        }
        starts_ms.push(started.elapsed().as_secs_f64() * 1000.0);
        // Idle is after the first flush and registration rounds.
        std::thread::sleep(Duration::from_secs(3));
        rss_mib = f64::max(rss_mib, resident_mib(process.id())?);
        process.terminate(Duration::from_secs(30))?;
    }
    starts_ms.sort_by(f64::total_cmp);
    println!(
        "rmq standalone: first accepted send after {:.1} ms (median of 5, worst {:.1}), idle RSS {rss_mib:.1} MiB",
        starts_ms[starts_ms.len() / 2],
        starts_ms[starts_ms.len() - 1]
    );
    Ok(())
}

fn first_send(address: &str) -> Result<()> {
    let fields = json!({
        "a": "bench", "b": "first", "c": "TBW102", "d": "4", "e": "0", "f": "0",
        "g": "1", "h": "0", "i": "", "j": "0", "k": "false", "m": "false",
    });
    let mut raw = Raw::connect(address, Duration::from_secs(5))?;
    let answer = raw.call(code::SEND_MESSAGE_V2, &fields, b"first")?;
    ensure!(answer.code == 0, "{}: {}", answer.code, answer.remark);
    Ok(())
}
