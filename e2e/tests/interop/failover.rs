//! A group of three whose master is appointed, under Java producers and a consumer: its master is
//! killed, frozen, cut off and asked to hand over, again and again. Nothing acknowledged is lost.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use e2e::appointed::{Group, LEASE_SECONDS};
use e2e::chance;
use e2e::ledger::{GroupRules, Ledger, SendRules};
use e2e::peer::{Namesrv, Peer};
use e2e::programs::{Client, Programs};
use e2e::raw::{Raw, code};
use e2e::wait;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use serde_json::json;

const GROUP: &str = "trio";
const TOPIC: &str = "Appointed";
const QUEUES: i32 = 4;
const LIMIT: Duration = Duration::from_secs(120);
/// Kubernetes' way to the same end is a Service whose address stays; here clients look for routes.
const ROUTE_POLL_MS: &str = "500";

/// What happens to the master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Kill,
    Terminate,
    /// For longer than its Lease.
    Freeze,
    /// From the Lease, for longer than it lasts; its slaves promise, so it goes on.
    CutOff,
    HandOver,
    /// While nobody supervises the group: it goes on when somebody does again.
    KillUnsupervised,
}

const FAULTS: [Fault; 6] = [
    Fault::Kill,
    Fault::Terminate,
    Fault::Freeze,
    Fault::CutOff,
    Fault::HandOver,
    Fault::KillUnsupervised,
];

#[test]
fn masters_come_and_go_and_nothing_acknowledged_is_lost() -> Result<()> {
    let seed = chance::seed();
    survive(seed).with_context(|| format!("seed {seed}"))
}

fn survive(seed: u64) -> Result<()> {
    let directory = tempfile::Builder::new().prefix("rocketmq-e2e-").tempdir()?;
    let namesrv = Namesrv::start(Peer::Ours, &directory.path().join("namesrv"))?;
    let address = namesrv.address();
    let settings = [("mappedFileSizeCommitLog", "1048576"), ("autoCreateTopicEnable", "false")];
    let mut group = Group::start(directory.path(), &address, GROUP, 3, &settings)?;
    group.wait_in_sync()?;
    create_topic(&group, &namesrv)?;

    let programs = Programs::start(Client::Java53, directory.path())?;
    let produce = |prefix: &str, retries: &str| {
        programs.produce(
            &address,
            &[
                "--topic",
                TOPIC,
                "--seconds",
                "3000",
                "--timeout-ms",
                "1000",
                "--threads",
                "2",
                "--rate",
                "100",
                "--retries",
                retries,
                "--route-poll-ms",
                ROUTE_POLL_MS,
                "--key-prefix",
                prefix,
            ],
        )
    };
    let producers = [
        (produce("once", "0")?, SendRules::SEQUENTIAL),
        (produce("retried", "2")?, SendRules { attempts: 3, ..SendRules::SEQUENTIAL }),
    ];
    let consumer = programs.consume(
        &address,
        &[
            "--topic",
            TOPIC,
            "--group",
            "readers",
            "--heartbeat-ms",
            "1000",
            "--route-poll-ms",
            ROUTE_POLL_MS,
        ],
    )?;
    consumer.wait_ready()?;
    let acknowledged =
        || -> usize { producers.iter().map(|(producer, _)| producer.acknowledged()).sum() };
    flowing(&acknowledged)?;

    let mut random = StdRng::seed_from_u64(seed);
    let rounds = chance::times("ROCKETMQ_E2E_FAILOVERS", 12);
    let mut pauses = Vec::new();
    let mut faults: Vec<Fault> = Vec::new();
    for round in 0..rounds {
        if faults.is_empty() {
            faults = FAULTS.to_vec();
            faults.shuffle(&mut random);
        }
        let Some(fault) = faults.pop() else { break };
        sleep(Duration::from_micros(random.random_range(0..300_000)));
        let began = Instant::now();
        disturb(&mut group, fault, &acknowledged)
            .with_context(|| format!("round {round}, {fault:?}\n{}", group.logs()))?;
        flowing(&acknowledged)
            .with_context(|| format!("after round {round}, {fault:?}\n{}", group.logs()))?;
        let pause = began.elapsed();
        println!("round {round}: {fault:?}: sends answered after {:.2} s", pause.as_secs_f64());
        if fault == Fault::Kill {
            pauses.push(pause);
        }
        for number in 0..3 {
            if !group.broker(number).is_started() {
                group.run(number)?;
            }
        }
        group
            .wait_in_sync()
            .with_context(|| format!("after round {round}, {fault:?}\n{}", group.logs()))?;
    }
    pauses.sort_unstable();
    if let Some(median) = pauses.get(pauses.len() / 2) {
        println!("kill to the first answered sends: median {:.2} s", median.as_secs_f64());
    }

    let mut ledger = Ledger::new();
    for (producer, rules) in &producers {
        ledger.sent(&producer.stop()?, *rules);
    }
    let disturbances = rounds * 3;
    let rules = GroupRules { topic: TOPIC, disturbances, ..GroupRules::default() };
    let came = wait::until("every acknowledged message", LIMIT, || {
        match ledger.missing(&rules, &consumer.lines()) {
            0 => Ok(()),
            missing => Err(format!("{missing} are missing")),
        }
    });
    ledger.arrived("readers", &consumer.stop()?);
    println!("readers: {}", ledger.check("readers", &rules)?);
    came?;
    // What the last master holds in the end, each place once and no hole.
    let pull =
        programs.consume(&address, &["--topic", TOPIC, "--group", "pull", "--mode", "pull"])?;
    ledger.arrived("pull", &pull.finish(LIMIT)?);
    let rules = GroupRules { in_order: true, disturbances: 0, ..rules };
    let summary = ledger.check("pull", &rules)?;
    ledger.check_no_holes("pull")?;
    println!("store: {summary}");
    Ok(())
}

fn disturb(group: &mut Group, fault: Fault, acknowledged: &dyn Fn() -> usize) -> Result<()> {
    group.wait_in_sync()?;
    let master = group.master()?;
    match fault {
        Fault::Kill => group.kill(master)?,
        Fault::Terminate => group.terminate(master)?,
        Fault::Freeze => {
            group.freeze(master, true)?;
            let next = group.master_other_than(master);
            group.freeze(master, false)?;
            next?;
        }
        Fault::CutOff => {
            group.cut(master, true);
            sleep(Duration::from_secs(LEASE_SECONDS + 2));
            // Whoever is master then, it goes on, and not only when the cut is mended.
            let answered = flowing(acknowledged);
            group.cut(master, false);
            return answered.context("while the master is cut off from its Lease");
        }
        Fault::HandOver => group.hand_over((master + 1) % 3)?,
        Fault::KillUnsupervised => {
            group.supervised(false);
            group.kill(master)?;
            sleep(Duration::from_millis(500));
            group.supervised(true);
        }
    }
    group.master_other_than(master).map(drop)
}

/// Waits until sends are answered.
fn flowing(acknowledged: &dyn Fn() -> usize) -> Result<()> {
    let before = acknowledged();
    wait::until("answered sends", LIMIT, || {
        let more = acknowledged() - before;
        if more >= 40 { Ok(()) } else { Err(format!("{more} answered")) }
    })
}

fn create_topic(group: &Group, namesrv: &Namesrv) -> Result<()> {
    let queues = QUEUES.to_string();
    let fields = json!({
        "topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": queues,
        "writeQueueNums": queues, "perm": "6", "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0", "order": "false",
    });
    // The operator does so on Kubernetes, and again after each appointment.
    let limit = Duration::from_secs(5);
    let master = group.broker(group.master()?).address();
    wait::until("the topic", LIMIT, || {
        let answer =
            Raw::connect(&master, limit)?.call(code::UPDATE_AND_CREATE_TOPIC, &fields, &[])?;
        anyhow::ensure!(answer.code == 0, "{}: {}", answer.code, answer.remark);
        let fields = json!({"topic": TOPIC});
        let route = Raw::connect(&namesrv.address(), limit)?.call(
            code::GET_ROUTEINFO_BY_TOPIC,
            &fields,
            &[],
        )?;
        anyhow::ensure!(route.code == 0, "{}: {}", route.code, route.remark);
        Ok(())
    })
}
