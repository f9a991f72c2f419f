//! The figures of docs/benchmarks.md: our broker against Apache's, under one client, interleaved.
//!
//! Run by `cargo xtask bench`. Arguments: `--rounds N` (3), `--warmup-seconds N` (20), `--seconds N`
//! (20), `--only TEXT` (cases whose name holds it). The client and the broker share the machine, so
//! CPU per message is the honest figure; throughput ends where the client's own CPU ends.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use e2e::line::Line;
use e2e::peer::{Broker, Namesrv, Peer};
use e2e::process::Process;
use e2e::programs::{Client, Programs};
use e2e::raw::{Raw, code};
use e2e::{environment, ports, wait};
use serde_json::json;

/// One load.
struct Case {
    name: &'static str,
    body_bytes: u32,
    arguments: &'static [&'static str],
}

const CASES: [Case; 3] = [
    Case {
        name: "128 B, 64 sync",
        body_bytes: 128,
        arguments: &["--mode", "sync", "--threads", "64"],
    },
    Case {
        name: "1 KiB, 64 sync",
        body_bytes: 1024,
        arguments: &["--mode", "sync", "--threads", "64"],
    },
    Case {
        name: "128 B, 512 async",
        body_bytes: 128,
        arguments: &["--mode", "async", "--in-flight", "512"],
    },
];

/// A machine busier than this at a round's start would measure its neighbours.
const LOAD_MAX: f64 = 3.0;
const LOAD_WAIT: Duration = Duration::from_secs(180);

struct Options {
    rounds: usize,
    warmup_seconds: u64,
    seconds: u64,
    only: String,
}

/// What one round measured.
#[derive(Clone, Copy, Default)]
struct Round {
    messages_per_second: f64,
    broker_cpu: f64,
    client_cpu: f64,
    p99_ms: f64,
    rss_mib: f64,
    /// Socket reads and writes per message; only our broker counts them.
    socket_calls: Option<f64>,
}

fn main() -> Result<()> {
    let options = options()?;
    let directory = tempfile::tempdir()?;
    if "standalone".contains(&options.only) {
        standalone(&directory.path().join("standalone"))?;
    }
    println!();
    println!(
        "| load | broker | msg/s | broker CPU s / 100 000 | client CPU s / 100 000 | p99 ms | RSS MiB | socket calls / message |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    let mut ratios = Vec::new();
    for case in CASES.iter().filter(|case| case.name.contains(&options.only)) {
        let mut ours = Vec::new();
        let mut java = Vec::new();
        for round in 0..options.rounds {
            for (peer, rounds) in [(Peer::Ours, &mut ours), (Peer::Java, &mut java)] {
                let place = directory.path().join(format!("{round}-{peer:?}"));
                let measured = measure(case, peer, &place, &options)
                    .with_context(|| format!("{}, {peer:?}, round {round}", case.name))?;
                std::fs::remove_dir_all(&place)?;
                rounds.push(measured);
            }
        }
        let (ours, java) = (medians(&ours), medians(&java));
        print_row(case.name, "ours", &ours);
        print_row(case.name, "Java 5.3.3", &java);
        ratios.push((
            case.name,
            ours.broker_cpu / java.broker_cpu,
            ours.messages_per_second / java.messages_per_second,
        ));
    }
    println!();
    println!("| load | broker CPU, ours / Java | throughput, ours / Java |");
    println!("| --- | --- | --- |");
    for (name, cpu, throughput) in ratios {
        println!("| {name} | {cpu:.2} | {throughput:.2} |");
    }
    Ok(())
}

fn options() -> Result<Options> {
    let mut options = Options { rounds: 3, warmup_seconds: 20, seconds: 20, only: String::new() };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().with_context(|| format!("{name} needs a value"))?;
        let number = || value.parse().with_context(|| format!("{name} {value}: a number expected"));
        match name.as_str() {
            "--rounds" => options.rounds = number()? as usize,
            "--warmup-seconds" => options.warmup_seconds = number()?,
            "--seconds" => options.seconds = number()?,
            "--only" => options.only = value,
            _ => bail!("{name}: expected --rounds, --warmup-seconds, --seconds or --only"),
        }
    }
    ensure!(options.rounds > 0 && options.seconds > 0, "--rounds and --seconds must be above 0");
    Ok(options)
}

/// `rmq standalone`: from exec to the first accepted send, and resident memory when idle.
fn standalone(directory: &Path) -> Result<()> {
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

fn measure(case: &Case, peer: Peer, directory: &Path, options: &Options) -> Result<Round> {
    let metrics = ports::allocate()?;
    let metrics_text = metrics.to_string();
    let namesrv = Namesrv::start(peer, &directory.join("namesrv"))?;
    let settings = [
        ("mappedFileSizeCommitLog", "1073741824"),
        ("mappedFileSizeConsumeQueue", "6000000"),
        ("metricsExporterType", "PROM"),
        ("metricsPromExporterPort", metrics_text.as_str()),
        // The load runs into no flow control on a slow disk.
        ("waitTimeMillsInSendQueue", "5000"),
    ];
    let mut broker =
        Broker::new(peer, &directory.join("broker"), &namesrv.address(), "bench", &settings)?;
    broker.start()?;
    let mut client = Client::Java53.command(directory)?;
    // Tests start faster with the quick compiler alone; a load must not be limited by it.
    client.arg("serve").env("_JAVA_OPTIONS", "-XX:TieredStopAtLevel=4");
    let programs = Programs::start_command(Client::Java53, client, &directory.join("client.log"))?;
    wait_for_quiet();
    let (body, warmup, seconds) = (
        case.body_bytes.to_string(),
        options.warmup_seconds.to_string(),
        options.seconds.to_string(),
    );
    let mut arguments = vec!["--topic", "BenchmarkTest", "--size", &body];
    arguments.extend(["--warmup-seconds", &warmup, "--seconds", &seconds]);
    arguments.extend(case.arguments);
    let bench = programs.bench(&namesrv.address(), &arguments)?;
    let limit = Duration::from_secs(options.warmup_seconds + options.seconds + 60);
    bench.wait("its window", limit, |output| {
        output.lines.iter().any(|line| matches!(line, Line::Measuring)).then_some(())
    })?;
    let process = broker.running()?.id();
    let cpu_before = cpu_seconds(process)?;
    let calls_before = socket_calls(peer, metrics)?;
    let figures = bench.wait("its figures", limit, |output| {
        output.lines.iter().find_map(|line| match line {
            Line::Bench(figures) => Some(figures.clone()),
            _ => None,
        })
    })?;
    let cpu = cpu_seconds(process)? - cpu_before;
    let calls_after = socket_calls(peer, metrics)?;
    let rss_mib = resident_mib(process)?;
    let figure = |name: &str| {
        figures.get(name).and_then(serde_json::Value::as_f64).with_context(|| format!("no {name}"))
    };
    ensure!(figure("errors")? == 0.0, "the load saw errors: {:?}", figures.get("firstError"));
    let messages = figure("messages")?;
    bench.finish(Duration::from_secs(60))?;
    Ok(Round {
        messages_per_second: figure("messagesPerSecond")?,
        broker_cpu: cpu * 100_000.0 / messages,
        client_cpu: figure("clientCpuSecondsPer100000")?,
        p99_ms: figure("p99Ms")?,
        rss_mib,
        socket_calls: calls_after
            .zip(calls_before)
            .map(|(after, before)| (after - before) / messages),
    })
}

/// Waits until the machine is quiet, but not forever: the figures then say what they are worth by
/// their spread.
fn wait_for_quiet() {
    let quiet = wait::until("a quiet machine", LOAD_WAIT, || {
        let load = std::fs::read_to_string("/proc/loadavg")?;
        let load: f64 = load.split(' ').next().unwrap_or_default().parse()?;
        ensure!(load < LOAD_MAX, "load average is {load}");
        Ok(())
    });
    if let Err(error) = quiet {
        eprintln!("measuring on a busy machine: {error:#}");
    }
}

/// User and system time of a process.
fn cpu_seconds(process: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name in parentheses may hold blanks; the fields behind it are counted from 3.
    let (_, fields) = stat.rsplit_once(')').context("no name in /proc/PID/stat")?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = |field: usize| -> Result<f64> {
        Ok(fields.get(field - 3).context("a short /proc/PID/stat")?.parse()?)
    };
    let ticks_per_second = rustix::param::clock_ticks_per_second() as f64;
    Ok((ticks(14)? + ticks(15)?) / ticks_per_second)
}

fn resident_mib(process: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: f64 =
        line.and_then(|line| line.split_whitespace().next()).context("no VmRSS")?.parse()?;
    Ok(kib / 1024.0)
}

/// Socket reads and writes so far, from our broker's metrics.
fn socket_calls(peer: Peer, metrics_port: u16) -> Result<Option<f64>> {
    if peer == Peer::Java {
        return Ok(None);
    }
    let text = e2e::raw::http_get(&format!("127.0.0.1:{metrics_port}"), "/metrics")?;
    let value = |name: &str| -> Result<f64> {
        // `name{labels} value`
        let line = text
            .lines()
            .find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])));
        let number = line.and_then(|line| line.rsplit(' ').next());
        Ok(number.with_context(|| format!("no {name} in /metrics"))?.parse()?)
    };
    let reads = value("rocketmq_remoting_reads_total")?;
    let writes = value("rocketmq_remoting_writes_total")?;
    Ok(Some(reads + writes))
}

fn medians(rounds: &[Round]) -> Round {
    let median = |value: fn(&Round) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    Round {
        messages_per_second: median(|round| round.messages_per_second),
        broker_cpu: median(|round| round.broker_cpu),
        client_cpu: median(|round| round.client_cpu),
        p99_ms: median(|round| round.p99_ms),
        rss_mib: median(|round| round.rss_mib),
        socket_calls: rounds[0].socket_calls.map(|_| median(|r| r.socket_calls.unwrap_or(0.0))),
    }
}

fn print_row(case: &str, broker: &str, round: &Round) {
    let calls = round.socket_calls.map_or_else(|| "–".to_owned(), |calls| format!("{calls:.3}"));
    println!(
        "| {case} | {broker} | {:.0} | {:.2} | {:.2} | {:.1} | {:.0} | {calls} |",
        round.messages_per_second, round.broker_cpu, round.client_cpu, round.p99_ms, round.rss_mib
    );
}
