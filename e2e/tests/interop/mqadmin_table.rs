//! Every sub-command of mqadmin 4.9.8 and 5.3.3: what it prints is what it prints of Apache's broker and
//! name server 5.3.3.
//!
//! `testdata/mqadmin/calls.txt` is the table of calls. Beside it is what Apache's servers make them print,
//! and, with the reason, what ours do where that differs. With `ROCKETMQ_E2E_RECORD` in the environment
//! a run with Apache's servers writes its file anew, and one with ours its differences, the reasons left
//! to be filled in.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use e2e::admin::{Mqadmin, Tool};
use e2e::environment;
use e2e::peer::{Peer, Servers};
use e2e::programs::{Client, Program, Programs};
use e2e::raw::{Raw, code};
use e2e::transcript::{self, Printed};
use e2e::wait;
use serde_json::json;

const LIMIT: Duration = Duration::from_secs(60);
/// How long what settles may take, and how long it must not change to be settled.
const SETTLE_LIMIT: Duration = Duration::from_secs(30);
const SETTLED: Duration = Duration::from_secs(3);

/// Not in the table: they never end.
const ENDLESS: [&str; 2] = ["clusterRT", "startMonitoring"];
/// Nor these, which read files of the machine and ask no server.
const LOCAL: [&str; 2] = ["dumpCompactionLog", "exportMetadataInRocksDB"];

#[test]
fn mqadmin_4_9_prints_what_it_prints_of_apaches_servers() -> Result<()> {
    compare(Tool::V49)
}

#[test]
fn mqadmin_5_3_prints_what_it_prints_of_apaches_servers() -> Result<()> {
    compare(Tool::V53)
}

fn directory() -> PathBuf {
    environment::source().join("testdata/mqadmin")
}

fn read(name: &str) -> Result<String> {
    let path = directory().join(name);
    fs::read_to_string(&path).with_context(|| path.display().to_string())
}

/// What a call is to print.
struct Expected {
    apaches: BTreeMap<String, Printed>,
    differences: BTreeMap<String, Printed>,
}

impl Expected {
    fn read(tool: Tool) -> Result<Expected> {
        let version = tool.version();
        let apaches = transcript::read(&read(&format!("{version}.txt"))?)?;
        let differences = transcript::read(&read(&format!("differences-{version}.txt"))?)?;
        for (call, differing) in &differences {
            ensure!(!differing.reason.is_empty(), "{call} differs without a reason");
            ensure!(
                apaches.get(call).is_some_and(|printed| printed.lines != differing.lines),
                "{call} is listed as a difference and does not differ"
            );
        }
        Ok(Expected { apaches, differences })
    }

    fn of(&self, call: &str, peer: Peer) -> Result<&[String]> {
        let own = self.differences.get(call).filter(|_| peer == Peer::Ours);
        let printed = own.or_else(|| self.apaches.get(call));
        Ok(&printed.with_context(|| format!("nothing is expected of {call}"))?.lines)
    }
}

fn compare(tool: Tool) -> Result<()> {
    let peer = Peer::from_environment();
    let records = std::env::var_os("ROCKETMQ_E2E_RECORD").is_some();
    let expected = if records { None } else { Some(Expected::read(tool)?) };
    let table = read("calls.txt")?;
    let mut scene = Scene::set(tool)?;
    let names = scene.commands()?;
    let mut called = BTreeSet::new();
    let mut recorded: Vec<(String, Printed)> = Vec::new();
    let mut wrong = Vec::new();
    for line in table.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(step) = line.strip_prefix('@') {
            scene.step(step).with_context(|| line.to_owned())?;
            continue;
        }
        let Some(call) = Call::read(line, tool) else { continue };
        called.extend(call.words.first().cloned());
        let wanted = match &expected {
            Some(expected) => Some(expected.of(call.text, peer)?),
            None => None,
        };
        let began = Instant::now();
        let lines = scene.call(&call, wanted)?;
        println!("{:6} ms: {}", began.elapsed().as_millis(), call.text);
        if wanted.is_some_and(|wanted| lines != wanted) {
            let wanted = wanted.unwrap_or_default().join("\n");
            wrong.push(format!("--- {}\n{wanted}\n+++ is\n{}", call.text, lines.join("\n")));
        }
        recorded.push((call.text.to_owned(), Printed { reason: String::new(), lines }));
    }
    if records {
        return record(tool, peer, recorded);
    }
    for name in names {
        ensure!(
            called.contains(&name) || ENDLESS.contains(&&*name) || LOCAL.contains(&&*name),
            "{name} is not in the table"
        );
    }
    ensure!(wrong.is_empty(), "{} calls differ:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}

fn record(tool: Tool, peer: Peer, calls: Vec<(String, Printed)>) -> Result<()> {
    let version = tool.version();
    let mut unique = BTreeSet::new();
    for (call, _) in &calls {
        ensure!(unique.insert(call), "{call} is in the table twice");
    }
    if peer == Peer::Java {
        let head =
            format!("What mqadmin {version} prints of Apache's servers; calls.txt tells how.\n");
        fs::write(directory().join(format!("{version}.txt")), transcript::write(&head, &calls))?;
        return Ok(());
    }
    let name = format!("differences-{version}.txt");
    let apaches = transcript::read(&read(&format!("{version}.txt"))?)?;
    let known = read(&name).and_then(|text| transcript::read(&text)).unwrap_or_default();
    let differing = calls.into_iter().filter_map(|(call, mut printed)| {
        if apaches.get(&call).is_some_and(|apaches| apaches.lines == printed.lines) {
            return None;
        }
        printed.reason = known.get(&call).map(|known| known.reason.clone()).unwrap_or_default();
        Some((call, printed))
    });
    let head = format!(
        "What mqadmin {version} prints of our servers where that is something else than of Apache's, and why.\n"
    );
    let text = transcript::write(&head, &differing.collect::<Vec<_>>());
    fs::write(directory().join(name), text)?;
    Ok(())
}

/// A line of the table.
struct Call<'a> {
    /// The command with its arguments, as in the table.
    text: &'a str,
    words: Vec<String>,
    has_figures: bool,
    is_sorted: bool,
    settles: bool,
    is_head: bool,
}

impl<'a> Call<'a> {
    /// None if it is not for this version of the tool.
    fn read(line: &'a str, tool: Tool) -> Option<Call<'a>> {
        let version = if tool == Tool::V49 { "4.9: " } else { "5.3: " };
        let mut text = match line.strip_prefix(version) {
            Some(rest) => rest,
            None if line.starts_with("4.9: ") || line.starts_with("5.3: ") => return None,
            None => line,
        };
        let mut flag = |name: &str| match text.strip_prefix(name) {
            Some(rest) => {
                text = rest;
                true
            }
            None => false,
        };
        let settles = flag("settles ");
        let is_sorted = flag("sorted ");
        let has_figures = flag("figures ");
        let is_head = flag("head ");
        let words = text.split_whitespace().map(str::to_owned).collect();
        Some(Call { text, words, has_figures, is_sorted, settles, is_head })
    }
}

/// The servers, the tool, and who else is there.
struct Scene {
    admin: Mqadmin,
    consumer: Option<Program>,
    /// What is put in for names in braces, and what such names are put in for.
    known: Vec<(&'static str, String)>,
    // The programs end before the servers do.
    programs: Programs,
    servers: Servers,
}

impl Scene {
    fn set(tool: Tool) -> Result<Scene> {
        // Rounds of transactions would write offsets in the middle of the table.
        let servers = Servers::start(&[("transactionCheckInterval", "600000")])?;
        let namesrv = servers.namesrv_address();
        let admin = Mqadmin::start_version(tool, &namesrv, servers.directory())?;
        let programs = Programs::start(Client::Java53, servers.directory())?;
        let files = servers.directory().join("files");
        fs::create_dir_all(&files)?;
        let topics = json!([{"topicName": "ListedOne", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6},
            {"topicName": "ListedTwo", "readQueueNums": 2, "writeQueueNums": 2, "perm": 4}]);
        fs::write(files.join("topics.json"), topics.to_string())?;
        let groups = json!([{"groupName": "listed-one", "retryMaxTimes": 5},
            {"groupName": "listed-two", "consumeEnable": false}]);
        fs::write(files.join("groups.json"), groups.to_string())?;
        let known = vec![
            ("files", files.display().to_string()),
            ("directory", servers.directory().display().to_string()),
            ("broker", servers.broker.address()),
            ("namesrv", namesrv),
        ];
        Ok(Scene { admin, consumer: None, known, programs, servers })
    }

    fn commands(&mut self) -> Result<Vec<String>> {
        self.admin.commands()
    }

    /// A step of the test itself.
    fn step(&mut self, step: &str) -> Result<()> {
        let words: Vec<&str> = step.split_whitespace().collect();
        match words[..] {
            ["routed", ref topics @ ..] => {
                topics.iter().try_for_each(|topic| self.servers.wait_routed(topic))
            }
            ["sent", topic, count] => self.learn_ids(topic, count.parse()?),
            ["consume", group, topic, queues] => {
                let namesrv = self.servers.namesrv_address();
                let arguments = ["--topic", topic, "--group", group, "--tags", "TagA || TagB"];
                let consumer = self.programs.consume(&namesrv, &arguments)?;
                consumer.wait_assigned(queues.parse()?)?;
                self.consumer = Some(consumer);
                let out = self.admin.succeed(&["consumerConnection", "-g", group])?;
                // A row: client id, address, language, version.
                let member = out.lines().find(|line| line.contains("JAVA"));
                let member = member.and_then(|line| line.split_whitespace().next());
                self.learn("member", member.context("no member")?.to_owned());
                Ok(())
            }
            ["committed", group, topic, count] => wait::until("committed offsets", LIMIT, || {
                self.committed(group, topic, count.parse()?)
            }),
            ["stop"] => {
                let consumer = self.consumer.take().context("nobody consumes")?;
                consumer.stop().map(drop)
            }
            _ => bail!("no such step"),
        }
    }

    fn learn(&mut self, name: &'static str, value: String) {
        self.known.retain(|(known, _)| *known != name);
        self.known.push((name, value));
    }

    /// Learns the ids of the first message of a queue, once it has `count` messages.
    fn learn_ids(&mut self, topic: &str, count: i64) -> Result<()> {
        let fields = json!({"topic": topic, "queueId": "0"});
        let broker = self.servers.broker.address();
        wait::until("messages in the queue", LIMIT, || {
            let answer = Raw::connect(&broker, LIMIT)?.call(code::GET_MAX_OFFSET, &fields, &[])?;
            let max = answer.field("offset").context("no offset")?.parse::<i64>()?;
            ensure!(max == count, "{max} of {count} messages");
            Ok(())
        })?;
        let first = ["queryMsgByOffset", "-t", topic, "-b", "broker-a", "-i", "0", "-o", "0"];
        let out = self.admin.call(&first)?;
        for (name, head, end) in
            [("offset-id", "OffsetID:", '\n'), ("unique-key", "UNIQ_KEY=", ',')]
        {
            let id = out.split_once(head).and_then(|(_, rest)| rest.split(end).next());
            let id = id.with_context(|| format!("no {head} in:\n{out}"))?.trim().to_owned();
            self.learn(name, id);
        }
        Ok(())
    }

    fn committed(&self, group: &str, topic: &str, count: i64) -> Result<()> {
        let mut raw = Raw::connect(&self.servers.broker.address(), LIMIT)?;
        let mut sum = 0;
        for queue_id in ["0", "1"] {
            let fields = json!({"consumerGroup": group, "topic": topic, "queueId": queue_id});
            let answer = raw.call(code::QUERY_CONSUMER_OFFSET, &fields, &[])?;
            sum += answer.field("offset").map_or(Ok(0), str::parse::<i64>)?;
        }
        ensure!(sum == count, "{sum} of {count} are committed");
        Ok(())
    }

    /// What a call prints, normalised. One that settles is repeated until it prints what is wanted.
    fn call(&mut self, call: &Call<'_>, wanted: Option<&[String]>) -> Result<Vec<String>> {
        let began = Instant::now();
        let mut lines = self.call_once(call)?;
        let mut since = began;
        while call.settles && wanted.is_none_or(|wanted| wanted != lines) {
            let enough = if wanted.is_some() { began } else { since };
            let limit = if wanted.is_some() { SETTLE_LIMIT } else { SETTLED };
            if enough.elapsed() > limit {
                break;
            }
            // Often enough; each call is one of a tool that starts a client.
            std::thread::sleep(Duration::from_millis(200));
            let newer = self.call_once(call)?;
            if newer != lines {
                lines = newer;
                since = Instant::now();
            }
        }
        Ok(lines)
    }

    fn call_once(&mut self, call: &Call<'_>) -> Result<Vec<String>> {
        let mut words = call.words.clone();
        for word in &mut words {
            for (name, value) in &self.known {
                *word = word.replace(&format!("{{{name}}}"), value);
            }
        }
        let out = self.admin.call(&words.iter().map(String::as_str).collect::<Vec<_>>())?;
        let known: Vec<(&str, &str)> =
            self.known.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let mut lines = transcript::normalise(&out, &known);
        if call.has_figures {
            transcript::without_figures(&mut lines);
        }
        if call.is_head {
            lines.truncate(1);
        }
        if call.is_sorted {
            lines.sort();
        }
        Ok(lines)
    }
}
