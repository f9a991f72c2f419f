//! Every way to send and to receive, with each client.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::ledger::{GroupRules, Ledger, SendRules};
use e2e::line::Line;
use e2e::peer::Servers;
use e2e::programs::{Client, Program, Programs, received};

const LIMIT: Duration = Duration::from_secs(90);

#[test]
fn java_4_9_sends_and_receives_in_every_way() -> Result<()> {
    every_way(Client::Java49)
}

#[test]
fn java_5_3_sends_and_receives_in_every_way() -> Result<()> {
    every_way(Client::Java53)
}

#[test]
fn go_sends_and_receives_in_every_way() -> Result<()> {
    every_way(Client::Go)
}

fn every_way(client: Client) -> Result<()> {
    let servers = Servers::start(&[])?;
    let programs = Programs::start(client, servers.directory())?;
    let context = |what: &str| format!("{client}: {what}");
    modes(client, &servers, &programs).with_context(|| context("modes"))?;
    members_share(&servers, &programs).with_context(|| context("members share queues"))?;
    broadcast(&servers, &programs).with_context(|| context("broadcast"))
}

/// Sends in each mode to one topic that does not exist yet; then groups in each mode receive all.
fn modes(client: Client, servers: &Servers, programs: &Programs) -> Result<()> {
    const TOPIC: &str = "Modes";
    let namesrv = servers.namesrv_address();
    let mut ledger = Ledger::new();
    let produce = |mode: &str, prefix: &str, more: &[&str]| {
        let arguments = [
            "--topic",
            TOPIC,
            "--mode",
            mode,
            "--key-prefix",
            prefix,
            "--retries",
            "0",
            "--timeout-ms",
            "15000",
        ];
        programs.produce(&namesrv, &[&arguments, more].concat())
    };

    let sync = produce("sync", "sync", &["--count", "60", "--threads", "3", "--tags", "A,B,C"])?;
    ledger.sent(&sync.finish(LIMIT)?, SendRules::SEQUENTIAL);
    ensure!(
        ledger.acknowledged(TOPIC) == 60,
        "{} of 60 synchronous sends were acknowledged, errors: {:#?}",
        ledger.acknowledged(TOPIC),
        errors(&sync)
    );

    let order = ["--count", "60", "--threads", "2", "--order", "--tags", ",A"];
    let large = ["--count", "6", "--size", "100000", "--tags", "A"];
    let others = [
        (produce("async", "async", &["--count", "200", "--tags", "A,B"])?, SendRules::UNORDERED),
        (produce("oneway", "oneway", &["--count", "40", "--tags", "A,C"])?, SendRules::UNORDERED),
        (produce("batch", "batch", &["--count", "40", "--batch-size", "8"])?, SendRules::BATCH),
        (produce("sync", "order", &order)?, SendRules::SEQUENTIAL),
        (produce("sync", "large", &large)?, SendRules::SEQUENTIAL),
    ];
    for (producer, rules) in &others {
        ledger.sent(&producer.finish(LIMIT)?, *rules);
    }
    ensure!(
        ledger.acknowledged(TOPIC) == 367,
        "{} of 367 sends were acknowledged, errors: {:#?}",
        ledger.acknowledged(TOPIC),
        others.iter().flat_map(|(producer, _)| errors(producer)).collect::<Vec<_>>()
    );

    let all = GroupRules { topic: TOPIC, one_way_arrives: true, ..GroupRules::default() };
    let some = GroupRules { tags: &["A", "C"], ..all };
    let in_order = GroupRules { in_order: true, ..all };
    let mut groups = vec![
        ("push", "push", "*", all),
        ("push", "push-tags", "A || C", some),
        ("orderly", "orderly", "*", in_order),
        ("lite-pull", "lite-pull", "*", all),
        ("lite-pull", "lite-pull-tags", "A||C", some),
        ("pull", "pull", "*", in_order),
        ("pull", "pull-tags", "C || A", GroupRules { in_order: true, ..some }),
    ];
    if client != Client::Go {
        // The Go client has no consumer with queues of one's own choice.
        groups.push(("lite-assign", "lite-assign", "*", all));
    }
    let consumers = groups
        .iter()
        .map(|(mode, group, tags, _)| {
            let arguments = ["--topic", TOPIC, "--mode", mode, "--group", group, "--tags", tags];
            programs.consume(&namesrv, &arguments)
        })
        .collect::<Result<Vec<Program>>>()?;
    for ((mode, group, _, rules), consumer) in groups.iter().zip(&consumers) {
        let wanted = ledger.missing(rules, &[]);
        let lines = if *mode == "pull" {
            consumer.finish(LIMIT)?
        } else {
            // The ledger knows better than a count what is missing.
            let came = consumer.wait_received(wanted, LIMIT);
            let lines = consumer.stop()?;
            ledger.arrived(group, &lines);
            ledger.check(group, rules)?;
            came?;
            continue;
        };
        ledger.arrived(group, &lines);
        let summary = ledger.check(group, rules)?;
        println!("{client} {group}: {summary}");
    }
    ledger.check_no_holes("pull")
}

/// The first failed sends.
fn errors(producer: &Program) -> Vec<Line> {
    producer.lines().into_iter().filter(|line| matches!(line, Line::Error(_))).take(3).collect()
}

/// Two members of a group share the queues; when one leaves, the other takes over at once.
fn members_share(servers: &Servers, programs: &Programs) -> Result<()> {
    const TOPIC: &str = "Shared";
    // The client looks by itself every 20 s; being told takes far less.
    const TAKE_OVER: Duration = Duration::from_secs(15);
    servers.create_topic(TOPIC, 4)?;
    let namesrv = servers.namesrv_address();
    let consume = || programs.consume(&namesrv, &["--topic", TOPIC, "--group", "shared"]);
    let (first, second) = (consume()?, consume()?);
    first.wait_ready()?;
    second.wait_ready()?;

    let steady = [
        "--topic",
        TOPIC,
        "--seconds",
        "120",
        "--rate",
        "100",
        "--retries",
        "0",
        "--timeout-ms",
        "15000",
    ];
    let producer =
        programs.produce(&namesrv, &[&steady[..], &["--key-prefix", "both"]].concat())?;
    // Both hold queues once both receive.
    first.wait_received(40, LIMIT)?;
    second.wait_received(40, LIMIT)?;
    let mut ledger = Ledger::new();
    ledger.sent(&producer.stop()?, SendRules::SEQUENTIAL);
    ledger.arrived("shared", &second.stop()?);

    let more = [
        "--topic",
        TOPIC,
        "--count",
        "40",
        "--key-prefix",
        "one",
        "--retries",
        "0",
        "--timeout-ms",
        "15000",
    ];
    ledger.sent(&programs.produce(&namesrv, &more)?.finish(LIMIT)?, SendRules::SEQUENTIAL);
    // A join while messages were under way, and the leaving.
    let rules = GroupRules { topic: TOPIC, disturbances: 2, ..GroupRules::default() };
    let taken = first.wait("the queues of the member that left", TAKE_OVER, |output| {
        let later = received(&output.lines)
            .filter(|received| received.keys.as_deref().is_some_and(|key| key.starts_with("one-")));
        (later.count() >= 40).then_some(())
    });
    ledger.arrived("shared", &first.stop()?);
    println!("{}", ledger.check("shared", &rules)?);
    taken
}

/// Each member of a broadcast group receives everything.
fn broadcast(servers: &Servers, programs: &Programs) -> Result<()> {
    const TOPIC: &str = "Broadcast";
    servers.create_topic(TOPIC, 4)?;
    let namesrv = servers.namesrv_address();
    let consume = || {
        let arguments = ["--topic", TOPIC, "--group", "broadcast", "--model", "broadcast"];
        programs.consume(&namesrv, &arguments)
    };
    let members = [consume()?, consume()?];
    for member in &members {
        member.wait_ready()?;
    }
    let mut ledger = Ledger::new();
    let arguments = [
        "--topic",
        TOPIC,
        "--count",
        "60",
        "--threads",
        "2",
        "--retries",
        "0",
        "--timeout-ms",
        "15000",
    ];
    ledger.sent(&programs.produce(&namesrv, &arguments)?.finish(LIMIT)?, SendRules::SEQUENTIAL);
    let rules = GroupRules { topic: TOPIC, ..GroupRules::default() };
    for (number, member) in members.iter().enumerate() {
        let came = member.wait_received(60, LIMIT);
        let group = format!("broadcast member {number}");
        ledger.arrived(&group, &member.stop()?);
        let summary = ledger.check(&group, &rules)?;
        came?;
        ensure!(summary.acknowledged == 60, "{summary}");
    }
    Ok(())
}

/// What one client sends, plain and compressed, every other one reads.
#[test]
fn every_client_reads_what_the_others_send() -> Result<()> {
    const TOPIC: &str = "Mixed";
    let servers = Servers::start(&[])?;
    servers.create_topic(TOPIC, 8)?;
    let namesrv = servers.namesrv_address();
    let clients = [Client::Java49, Client::Java53, Client::Go];
    let processes = clients
        .iter()
        .map(|client| Programs::start(*client, servers.directory()))
        .collect::<Result<Vec<_>>>()?;

    let mut ledger = Ledger::new();
    let mut producers = Vec::new();
    for (client, programs) in clients.iter().zip(&processes) {
        for (kind, size) in [("small", "64"), ("compressed", "20000")] {
            let prefix = format!("{kind}-{client}");
            let arguments = [
                "--topic",
                TOPIC,
                "--key-prefix",
                &prefix,
                "--count",
                "30",
                "--size",
                size,
                "--timeout-ms",
                "15000",
            ];
            producers.push(programs.produce(&namesrv, &arguments)?);
        }
    }
    for producer in &producers {
        ledger.sent(&producer.finish(LIMIT)?, SendRules { attempts: 3, ..SendRules::SEQUENTIAL });
    }
    ensure!(ledger.acknowledged(TOPIC) == 180, "{} of 180 sends", ledger.acknowledged(TOPIC));

    let rules = GroupRules { topic: TOPIC, in_order: true, ..GroupRules::default() };
    let consumers = clients
        .iter()
        .zip(&processes)
        .map(|(client, programs)| {
            // A dot is no letter of a group's name.
            let group = client.to_string().replace('.', "_");
            let arguments = ["--topic", TOPIC, "--mode", "orderly", "--group", &group];
            Ok((group.clone(), programs.consume(&namesrv, &arguments)?))
        })
        .collect::<Result<Vec<_>>>()?;
    for (group, consumer) in &consumers {
        let came = consumer.wait_received(180, LIMIT);
        ledger.arrived(group, &consumer.stop()?);
        println!("{group}: {}", ledger.check(group, &rules)?);
        came?;
    }
    Ok(())
}
