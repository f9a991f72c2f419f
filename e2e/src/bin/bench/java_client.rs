//! Sends of Apache's Java client: our broker and Apache's in turn, interleaved.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::line::Line;
use e2e::peer::{Broker, Namesrv, Peer};
use e2e::ports;
use e2e::programs::{Client, Programs};

use crate::Options;
use crate::meter::{cpu_seconds, resident_mib, wait_for_quiet};

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

/// What brokers under load are started with, both makes.
pub const BROKER_SETTINGS: [(&str, &str); 3] = [
    ("mappedFileSizeCommitLog", "1073741824"),
    ("mappedFileSizeConsumeQueue", "6000000"),
    // The load runs into no flow control on a slow disk.
    ("waitTimeMillsInSendQueue", "5000"),
];

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

/// Measures every case that the options ask for, and prints two tables.
pub fn run(directory: &Path, options: &Options) -> Result<()> {
    let cases: Vec<&Case> = CASES.iter().filter(|case| options.wants(case.name)).collect();
    if cases.is_empty() {
        return Ok(());
    }
    println!();
    println!(
        "| load | broker | msg/s | broker CPU s / 100 000 | client CPU s / 100 000 | p99 ms | RSS MiB | socket calls / message |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    let mut ratios = Vec::new();
    for case in cases {
        let mut ours = Vec::new();
        let mut java = Vec::new();
        for round in 0..options.rounds {
            for (peer, rounds) in [(Peer::Ours, &mut ours), (Peer::Java, &mut java)] {
                let place = directory.join(format!("{round}-{peer:?}"));
                std::fs::create_dir_all(&place)?;
                let measured = measure(case, peer, &place, options)
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

fn measure(case: &Case, peer: Peer, directory: &Path, options: &Options) -> Result<Round> {
    let metrics = ports::allocate()?;
    let metrics_text = metrics.to_string();
    let namesrv = Namesrv::start(peer, &directory.join("namesrv"))?;
    let mut settings = BROKER_SETTINGS.to_vec();
    settings.extend([
        ("metricsExporterType", "PROM"),
        ("metricsPromExporterPort", metrics_text.as_str()),
    ]);
    let mut broker =
        Broker::new(peer, &directory.join("broker"), &namesrv.address(), "bench", &settings)?;
    broker.start()?;
    let process = broker.running()?.id();
    let sample = || Ok((cpu_seconds(process)?, socket_calls(peer, metrics)?));
    let load = run_load(case.body_bytes, case.arguments, &namesrv, directory, options, sample)?;
    let ((cpu_before, calls_before), (cpu, calls)) = (load.before, load.after);
    Ok(Round {
        messages_per_second: load.messages_per_second,
        broker_cpu: (cpu - cpu_before) * 100_000.0 / load.messages,
        client_cpu: load.client_cpu,
        p99_ms: load.p99_ms,
        rss_mib: resident_mib(process)?,
        socket_calls: calls
            .zip(calls_before)
            .map(|(after, before)| (after - before) / load.messages),
    })
}

/// What one load measured, and what `sample` said at the ends of its window.
pub struct Load<T> {
    pub messages: f64,
    pub messages_per_second: f64,
    /// Of the client, for 100 000 messages.
    pub client_cpu: f64,
    pub p99_ms: f64,
    pub before: T,
    pub after: T,
}

/// Lets Apache's client send to the one broker, or group of brokers, of a name server; see the Bench
/// program under e2e/java for `arguments`.
pub fn run_load<T>(
    body_bytes: u32,
    arguments: &[&str],
    namesrv: &Namesrv,
    directory: &Path,
    options: &Options,
    sample: impl Fn() -> Result<T>,
) -> Result<Load<T>> {
    let mut client = Client::Java53.command(directory)?;
    // Tests start faster with the quick compiler alone; a load must not be limited by it.
    client.arg("serve").env("_JAVA_OPTIONS", "-XX:TieredStopAtLevel=4");
    let programs = Programs::start_command(Client::Java53, client, &directory.join("client.log"))?;
    wait_for_quiet();
    let (body, warmup, seconds) =
        (body_bytes.to_string(), options.warmup_seconds.to_string(), options.seconds.to_string());
    let mut all = vec!["--topic", "BenchmarkTest", "--size", &body];
    all.extend(["--warmup-seconds", &warmup, "--seconds", &seconds]);
    all.extend(arguments);
    let bench = programs.bench(&namesrv.address(), &all)?;
    let limit = Duration::from_secs(options.warmup_seconds + options.seconds + 60);
    bench.wait("its window", limit, |output| {
        output.lines.iter().any(|line| matches!(line, Line::Measuring)).then_some(())
    })?;
    let before = sample()?;
    let figures = bench.wait("its figures", limit, |output| {
        output.lines.iter().find_map(|line| match line {
            Line::Bench(figures) => Some(figures.clone()),
            _ => None,
        })
    })?;
    let after = sample()?;
    let figure = |name: &str| {
        figures.get(name).and_then(serde_json::Value::as_f64).with_context(|| format!("no {name}"))
    };
    ensure!(figure("errors")? == 0.0, "the load saw errors: {:?}", figures.get("firstError"));
    bench.finish(Duration::from_secs(60))?;
    Ok(Load {
        messages: figure("messages")?,
        messages_per_second: figure("messagesPerSecond")?,
        client_cpu: figure("clientCpuSecondsPer100000")?,
        p99_ms: figure("p99Ms")?,
        before,
        after,
    })
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
