//! Pairs of master and slave, of our brokers and Apache's: the slave holds what the master holds, serves
//! it while the master is gone, and follows it when it is back.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::ledger::{GroupRules, Ledger, SendRules};
use e2e::peer::{Broker, Namesrv, Peer};
use e2e::programs::{Client, Programs};
use e2e::raw::{Raw, code};
use e2e::wait;
use serde_json::json;

const LIMIT: Duration = Duration::from_secs(120);
const TOPIC: &str = "Copied";
const QUEUES: i32 = 4;

#[test]
fn our_slave_follows_our_master() -> Result<()> {
    follow(Peer::Ours, Peer::Ours)
}

#[test]
fn a_java_slave_follows_our_master() -> Result<()> {
    follow(Peer::Ours, Peer::Java)
}

#[test]
fn our_slave_follows_a_java_master() -> Result<()> {
    follow(Peer::Java, Peer::Ours)
}

fn follow(of_master: Peer, of_slave: Peer) -> Result<()> {
    let directory = tempfile::Builder::new().prefix("rocketmq-e2e-").tempdir()?;
    let place = |name: &str| directory.path().join(name);
    let namesrv = Namesrv::start(Peer::Ours, &place("namesrv"))?;
    let reads = ("slaveReadEnable", "true");
    let mut master =
        Broker::new(of_master, &place("master"), &namesrv.address(), "pair", &[reads])?;
    master.start()?;
    let settings = [reads, ("brokerRole", "SLAVE"), ("brokerId", "1")];
    let mut slave = Broker::new(of_slave, &place("slave"), &namesrv.address(), "pair", &settings)?;
    create_topic(&master, &namesrv)?;
    let programs = Programs::start(Client::Java53, directory.path())?;
    let namesrv = namesrv.address();
    let mut ledger = Ledger::new();
    let produce = |ledger: &mut Ledger, prefix: &str| -> Result<()> {
        let arguments =
            ["--topic", TOPIC, "--count", "200", "--threads", "2", "--key-prefix", prefix];
        ledger.sent(&programs.produce(&namesrv, &arguments)?.finish(LIMIT)?, SendRules::SEQUENTIAL);
        Ok(())
    };

    produce(&mut ledger, "before")?;
    slave.start()?;
    produce(&mut ledger, "beside")?;
    same(&master, &slave).context("while both run")?;

    master.kill()?;
    let rules = GroupRules { topic: TOPIC, disturbances: 2, ..GroupRules::default() };
    let consumer = programs.consume(&namesrv, &["--topic", TOPIC, "--group", "readers"])?;
    let wanted = ledger.missing(&rules, &[]);
    consumer.wait_received(wanted, LIMIT).context("from the slave alone")?;

    master.start()?;
    produce(&mut ledger, "after")?;
    same(&master, &slave).context("after the master's return")?;
    consumer.wait_received(wanted + 200, LIMIT).context("after the master's return")?;
    ledger.arrived("readers", &consumer.stop()?);
    println!("{of_master:?} and {of_slave:?}: {}", ledger.check("readers", &rules)?);
    Ok(())
}

fn create_topic(master: &Broker, namesrv: &Namesrv) -> Result<()> {
    let queues = QUEUES.to_string();
    let fields = json!({
        "topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": queues,
        "writeQueueNums": queues, "perm": "6", "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0", "order": "false",
    });
    let answer = connect(&master.address())?.call(code::UPDATE_AND_CREATE_TOPIC, &fields, &[])?;
    ensure!(answer.code == 0, "create {TOPIC}: {}: {}", answer.code, answer.remark);
    wait::until("the route", LIMIT, || {
        let fields = json!({"topic": TOPIC});
        let answer =
            connect(&namesrv.address())?.call(code::GET_ROUTEINFO_BY_TOPIC, &fields, &[])?;
        ensure!(answer.code == 0, "name server answers {}: {}", answer.code, answer.remark);
        Ok(())
    })
}

fn connect(address: &str) -> Result<Raw> {
    Raw::connect(address, Duration::from_secs(5))
}

/// Waits until every queue holds the same bytes on both.
fn same(master: &Broker, slave: &Broker) -> Result<()> {
    for queue in 0..QUEUES {
        wait::until(&format!("queue {queue} on the slave"), LIMIT, || {
            let (expected, found) = (records(master, queue)?, records(slave, queue)?);
            ensure!(!expected.is_empty(), "queue {queue} of the master is empty");
            ensure!(
                expected == found,
                "the master has {} bytes, the slave {}",
                expected.len(),
                found.len()
            );
            Ok(())
        })?;
    }
    Ok(())
}

/// All records of a queue, back to back.
fn records(broker: &Broker, queue: i32) -> Result<Vec<u8>> {
    let mut raw = connect(&broker.address())?;
    let (mut all, mut next) = (Vec::new(), 0_i64);
    loop {
        let fields = json!({
            "consumerGroup": "comparing", "topic": TOPIC, "queueId": queue.to_string(),
            "queueOffset": next.to_string(), "maxMsgNums": "32", "sysFlag": "4",
            "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*",
            "subVersion": "0",
        });
        let answer = raw.call(code::PULL_MESSAGE, &fields, &[])?;
        if answer.code != 0 {
            return Ok(all);
        }
        all.extend_from_slice(&answer.body);
        next = answer.field("nextBeginOffset").context("no nextBeginOffset")?.parse()?;
    }
}
