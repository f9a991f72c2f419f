//! Orderly stops: what a group has consumed stays consumed, and the store takes care of itself.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::ledger::{GroupRules, Ledger, SendRules};
use e2e::peer::{Peer, Servers};
use e2e::process::Process;
use e2e::programs::{Client, Programs};

const LIMIT: Duration = Duration::from_secs(60);

/// SIGTERM ends the broker with status 0; after the start its group goes on where it was.
#[test]
fn a_stopped_broker_goes_on_where_it_was() -> Result<()> {
    const TOPIC: &str = "Stopped";
    let mut servers = Servers::start(&[])?;
    servers.create_topic(TOPIC, 2)?;
    let namesrv = servers.namesrv_address();
    let programs = Programs::start(Client::Java53, servers.directory())?;
    let mut ledger = Ledger::new();
    let mut round = |servers: &mut Servers, prefix: &str| -> Result<()> {
        let arguments =
            ["--topic", TOPIC, "--count", "50", "--key-prefix", prefix, "--retries", "0"];
        ledger.sent(&programs.produce(&namesrv, &arguments)?.finish(LIMIT)?, SendRules::SEQUENTIAL);
        let consumer = programs.consume(&namesrv, &["--topic", TOPIC, "--group", "stopped"])?;
        let came = consumer.wait_received(50, LIMIT);
        // The client commits its offsets as it stops.
        ledger.arrived("stopped", &consumer.stop()?);
        let rules = GroupRules { topic: TOPIC, ..GroupRules::default() };
        let summary = ledger.check("stopped", &rules)?;
        came?;
        ensure!(summary.deliveries == ledger.acknowledged(TOPIC), "{summary}");
        ensure!(
            servers.broker.store().join("abort").exists(),
            "no abort file beside a running broker"
        );
        let status = servers.broker.terminate()?;
        ensure!(status.success() || is_java(), "the broker ended with {status}");
        ensure!(
            !servers.broker.store().join("abort").exists(),
            "an abort file after an orderly stop"
        );
        servers.broker.start()
    };
    round(&mut servers, "first")?;
    round(&mut servers, "second")?;
    round(&mut servers, "third")
}

/// A JVM reports the signal that ended it, even after an orderly stop.
fn is_java() -> bool {
    Peer::from_environment() == Peer::Java
}

/// A name server that was killed knows the route again once brokers have registered, at most 30 s later.
#[test]
fn a_killed_name_server_learns_its_brokers_again() -> Result<()> {
    const TOPIC: &str = "Routed";
    let mut servers = Servers::start(&[("registerNameServerPeriod", "10000")])?;
    servers.create_topic(TOPIC, 2)?;
    let namesrv = servers.namesrv_address();
    servers.namesrv.kill_and_restart()?;
    let programs = Programs::start(Client::Java53, servers.directory())?;
    let mut ledger = Ledger::new();
    let arguments = ["--topic", TOPIC, "--seconds", "60", "--rate", "20", "--retries", "0"];
    let producer = programs.produce(&namesrv, &arguments)?;
    let consumer = programs.consume(&namesrv, &["--topic", TOPIC, "--group", "routed"])?;
    producer.wait_acknowledged(40, LIMIT)?;
    ledger.sent(&producer.stop()?, SendRules::SEQUENTIAL);
    let came = consumer.wait_received(ledger.acknowledged(TOPIC), LIMIT);
    ledger.arrived("routed", &consumer.stop()?);
    println!("{}", ledger.check("routed", &GroupRules { topic: TOPIC, ..GroupRules::default() })?);
    came
}

/// A second broker on the same store refuses to start and says why.
#[test]
fn a_store_in_use_is_refused() -> Result<()> {
    let mut servers = Servers::start(&[])?;
    let log = servers.directory().join("second.log");
    // Only the ports differ, so that the store alone is in the way.
    let conf = servers.broker.configuration().with_file_name("second.conf");
    let text = std::fs::read_to_string(servers.broker.configuration())?;
    let port = e2e::ports::allocate()?;
    let text: String = text
        .lines()
        .filter(|line| {
            ["listenPort=", "haListenPort=", "metricsPromExporterPort="]
                .iter()
                .all(|key| !line.starts_with(key))
        })
        .map(|line| format!("{line}\n"))
        .chain([format!(
            "listenPort={port}\nhaListenPort={}\nmetricsPromExporterPort={}\n",
            port + 1,
            port - 1
        )])
        .collect();
    std::fs::write(&conf, text)?;
    let mut command = servers.broker.command(&conf)?;
    let mut second = Process::start("second broker", &mut command, &log)?;
    let status = second.wait(LIMIT)?;
    ensure!(!status.success(), "a second broker on one store ended with {status}");
    let said = second.log_text();
    let store = servers.broker.store().display().to_string();
    ensure!(is_java() || said.contains(&store), "it does not name the store {store}:\n{said}");
    servers.broker.running()?.check_running()
}
