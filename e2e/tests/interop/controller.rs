//! Two Java brokers in controller mode: controllers give them their ids and their master, and another
//! master when that one is killed, also after the leading controller was; mqadmin shows and moves it all.
//!
//! `ROCKETMQ_E2E_PEER=java` has Apache's controllers in the place of ours.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::admin::Mqadmin;
use e2e::ledger::{GroupRules, Ledger, SendRules};
use e2e::peer::{Broker, CLUSTER, Namesrv, Peer};
use e2e::ports;
use e2e::programs::{Client, Programs};
use e2e::raw::{Raw, code};
use e2e::wait;
use serde_json::json;

use crate::mqadmin::has;

const LIMIT: Duration = Duration::from_secs(120);
const TOPIC: &str = "Appointed";
const GROUP: &str = "pair";

#[test]
fn controllers_appoint_the_masters_of_java_brokers() -> Result<()> {
    let directory = tempfile::Builder::new().prefix("rocketmq-e2e-").tempdir()?;
    let place = |name: String| directory.path().join(name);
    let addresses = (0..3)
        .map(|_| Ok(format!("127.0.0.1:{}", ports::allocate()?)))
        .collect::<Result<Vec<_>>>()?;
    let mut namesrvs = start_controllers(&addresses, &|id| place(format!("namesrv-{id}")))?;
    let namesrv = namesrvs.iter().map(Namesrv::address).collect::<Vec<_>>().join(";");
    let mut admin = Mqadmin::start(&namesrv, directory.path())?;
    let leader = leader(&addresses)?;
    shows_and_sets_configuration(&mut admin, &addresses, leader)?;

    let settings = [
        ("enableControllerMode", "true"),
        ("controllerAddr", &*addresses.join(";")),
        // What is acknowledged is then on every member of the set.
        ("allAckInSyncStateSet", "true"),
        // Every 5 s by default; a test is not to wait for them.
        ("checkSyncStateSetPeriod", "500"),
        ("syncBrokerMetadataPeriod", "500"),
    ];
    let mut brokers = (0..2)
        .map(|n| Broker::new(Peer::Java, &place(format!("broker-{n}")), &namesrv, GROUP, &settings))
        .collect::<Result<Vec<_>>>()?;
    brokers.iter_mut().try_for_each(Broker::start)?;
    let first = in_sync(&mut admin, &addresses[leader], &brokers)?;

    let out = admin.succeed(&["updateTopic", "-t", TOPIC, "-c", CLUSTER, "-r", "2", "-w", "2"])?;
    has(&out, &[&format!("create topic to {} success", brokers[first].address())])?;
    let programs = Programs::start(Client::Java53, directory.path())?;
    let mut ledger = Ledger::new();
    let mut produce = |prefix: &str, namesrv: &str| -> Result<()> {
        let arguments =
            ["--topic", TOPIC, "--count", "50", "--threads", "1", "--key-prefix", prefix];
        let lines = programs.produce(namesrv, &arguments)?.finish(LIMIT)?;
        ledger.sent(&lines, SendRules::SEQUENTIAL);
        Ok(())
    };
    produce("first", &namesrv)?;

    namesrvs[leader].process().kill()?;
    // A Java client that meets a dead name server may give a call up.
    let others = move || (0..3).filter(move |id| *id != leader);
    let routes = others().map(|id| namesrvs[id].address()).collect::<Vec<_>>().join(";");
    let left: Vec<String> = others().map(|id| addresses[id].clone()).collect();
    let successor = left[self::leader(&left)?].clone();
    let second = succeed_killed(&mut brokers, first, &successor)?;
    produce("second", &routes)?;
    brokers[first].start()?;
    ensure!(in_sync(&mut admin, &successor, &brokers)? == second, "the old one took over");

    let id = id_of(&mut admin, &successor, &brokers[first])?;
    let elect = ["electMaster", "-a", &successor, "-bn", GROUP, "-c", CLUSTER, "-b", &id];
    let elected = format!("#BrokerMasterAddr\t{}", brokers[first].address());
    has(&admin.succeed(&elect)?, &[&elected])?;
    wait_master(&brokers[first], &successor)?;
    produce("third", &routes)?;

    let id = id_of(&mut admin, &successor, &brokers[second])?;
    let clean = ["cleanBrokerMetadata", "-a", &successor, "-bn", GROUP, "-c", CLUSTER, "-b", &id];
    has(&admin.call(&clean)?, &["is still alive, clean up failure"])?;
    brokers[second].kill()?;
    wait::until("the dead broker is forgotten", LIMIT, || {
        has(&admin.call(&clean)?, &["metadata from controller success"])
    })?;
    let out = admin.succeed(&["getSyncStateSet", "-a", &successor, "-b", GROUP])?;
    has(&out, &[&brokers[first].address(), "#SyncStateSetNums\t1"])?;
    ensure!(!out.contains(&brokers[second].address()), "{out}");

    let pull =
        programs.consume(&routes, &["--topic", TOPIC, "--group", "pull", "--mode", "pull"])?;
    ledger.arrived("pull", &pull.finish(LIMIT)?);
    let rules = GroupRules { topic: TOPIC, disturbances: 2, ..GroupRules::default() };
    println!("pull: {}", ledger.check("pull", &rules)?);

    // What they agreed on is in the files of both that are left.
    for id in others() {
        namesrvs[id].kill_and_restart()?;
    }
    let again = &left[self::leader(&left)?];
    let known = wait::until("what they agreed on", LIMIT, || -> Result<String> {
        let known = admin.call(&["getSyncStateSet", "-a", again, "-b", GROUP])?;
        has(&known, &[&format!("#MasterAddr\t{}", brokers[first].address())])?;
        Ok(known)
    })?;
    ensure!(!known.contains(&brokers[second].address()), "{known}");
    Ok(())
}

fn start_controllers(
    addresses: &[String],
    place: &dyn Fn(usize) -> std::path::PathBuf,
) -> Result<Vec<Namesrv>> {
    let list: Vec<_> =
        addresses.iter().enumerate().map(|(id, address)| format!("n{id}-{address}")).collect();
    let list = list.join(";");
    (0..addresses.len())
        .map(|id| {
            let files = place(id).join("controller").display().to_string();
            let settings = [
                ("enableControllerInNamesrv", "true"),
                ("controllerDLegerGroup", "controllers"),
                ("controllerDLegerPeers", &list),
                ("controllerDLegerSelfId", &format!("n{id}")),
                ("controllerStorePath", &files),
                ("mappedFileSize", "1048576"),
            ];
            Namesrv::start_with(Peer::from_environment(), &place(id), &settings)
        })
        .collect()
}

/// Which of them leads, once all that can be asked agree.
fn leader(addresses: &[String]) -> Result<usize> {
    wait::until("a leader of the controllers", LIMIT, || {
        let mut named = addresses.iter().map(|address| -> Result<String> {
            let limit = Duration::from_secs(5);
            let answer = Raw::connect(address, limit)?.call(
                code::CONTROLLER_GET_METADATA_INFO,
                &json!({}),
                &[],
            )?;
            Ok(answer.field("controllerLeaderAddress").unwrap_or_default().to_owned())
        });
        let first = named.next().context("no controller")??;
        for other in named {
            ensure!(other? == first, "the controllers disagree");
        }
        addresses.iter().position(|address| *address == first).context("no leader is named")
    })
}

fn shows_and_sets_configuration(
    admin: &mut Mqadmin,
    addresses: &[String],
    leader: usize,
) -> Result<()> {
    for address in addresses {
        let out = admin.succeed(&["getControllerMetaData", "-a", address])?;
        let leading = format!("#ControllerLeaderAddress\t{}", addresses[leader]);
        has(&out, &["#ControllerGroup\tcontrollers", &leading])?;
        for (id, address) in addresses.iter().enumerate() {
            has(&out, &[&format!("#Peer:\tn{id}:{address}")])?;
        }
    }
    let address = addresses[leader].as_str();
    let value = |out: &str, key: &str| {
        let line = out.lines().find(|line| line.split_whitespace().next() == Some(key));
        line.and_then(|line| line.rsplit("= ").next()).map(|value| value.trim().to_owned())
    };
    let out = admin.succeed(&["getControllerConfig", "-a", address])?;
    ensure!(value(&out, "controllerDLegerSelfId") == Some(format!("n{leader}")), "{out}");
    ensure!(value(&out, "electMasterMaxRetryCount").as_deref() == Some("3"), "{out}");
    let set =
        ["updateControllerConfig", "-a", address, "-k", "electMasterMaxRetryCount", "-v", "4"];
    has(&admin.succeed(&set)?, &["update controller config success"])?;
    let out = admin.succeed(&["getControllerConfig", "-a", address])?;
    ensure!(value(&out, "electMasterMaxRetryCount").as_deref() == Some("4"), "{out}");
    let set = ["updateControllerConfig", "-a", address, "-k", "configStorePath", "-v", "/x"];
    has(&admin.call(&set)?, &["Can not update config in black list"])
}

/// Waits until both brokers are in the set; gives the master, as mqadmin shows it.
fn in_sync(admin: &mut Mqadmin, controller: &str, brokers: &[Broker]) -> Result<usize> {
    wait::until("both brokers in sync", LIMIT, || {
        let out = admin.call(&["getSyncStateSet", "-a", controller, "-b", GROUP])?;
        has(&out, &["#SyncStateSetNums\t2"])?;
        let master = out.lines().find_map(|line| line.strip_prefix("#MasterAddr\t"));
        let master = master.with_context(|| format!("no master in:\n{out}"))?.trim();
        brokers.iter().position(|broker| broker.address() == master).context("an unknown master")
    })
}

/// Kills the master and waits until the other one is master and routed as such; gives it.
fn succeed_killed(brokers: &mut [Broker], master: usize, controller: &str) -> Result<usize> {
    brokers[master].kill()?;
    let killed = Instant::now();
    let next = 1 - master;
    wait_master(&brokers[next], controller)?;
    println!("killed master succeeded after {:.2} s", killed.elapsed().as_secs_f64());
    Ok(next)
}

/// Waits until a broker is master, by the controller's and by its own word.
fn wait_master(broker: &Broker, controller: &str) -> Result<()> {
    let limit = Duration::from_secs(5);
    wait::until("another master", LIMIT, || {
        let fields = json!({"brokerName": GROUP});
        let answer = Raw::connect(controller, limit)?.call(
            code::CONTROLLER_GET_REPLICA_INFO,
            &fields,
            &[],
        )?;
        let master = answer.field("masterAddress");
        ensure!(master == Some(&broker.address()), "{} {master:?}", answer.code);
        let answer = Raw::connect(&broker.address(), limit)?.call(
            code::GET_BROKER_HA_STATUS,
            &json!({}),
            &[],
        )?;
        let body = String::from_utf8_lossy(&answer.body);
        ensure!(body.contains("\"master\":true"), "the broker is no master yet: {body}");
        Ok(())
    })
}

/// The id that controllers gave a broker, as mqadmin shows it.
fn id_of(admin: &mut Mqadmin, controller: &str, broker: &Broker) -> Result<String> {
    let out = admin.succeed(&["getSyncStateSet", "-a", controller, "-b", GROUP])?;
    let line = out
        .lines()
        .find(|line| line.contains("InSyncReplica:") && line.contains(&broker.address()));
    let id = line.and_then(|line| line.split("brokerId=").nth(1)?.split([',', '}']).next());
    Ok(id.with_context(|| format!("no id of {} in:\n{out}", broker.address()))?.to_owned())
}
