//! A full disk, a read-only one, and a log whose tail is damaged: named in the answer or the log, and
//! nothing acknowledged is lost.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::disk::SmallDisk;
use e2e::peer::{Peer, Servers};
use e2e::process::Process;
use e2e::raw::{Answer, Raw, code};
use e2e::record::{self, Record};
use e2e::wait;
use serde_json::json;

const TOPIC: &str = "OnDisk";
const LIMIT: Duration = Duration::from_secs(30);
const MIB: u64 = 1024 * 1024;
/// In ms: longer than any test.
const NEVER: &str = "86400000";

/// Sends by hand and keeps what was acknowledged, in order.
struct Sender {
    raw: Raw,
    acknowledged: Vec<Vec<u8>>,
}

impl Sender {
    fn new(servers: &Servers) -> Result<Sender> {
        let raw = Raw::connect(&servers.broker.address(), LIMIT)?;
        Ok(Sender { raw, acknowledged: Vec::new() })
    }

    /// One message, each with a body of its own.
    fn send(&mut self, bytes: usize) -> Result<Answer> {
        let fields = json!({"producerGroup": "raw", "topic": TOPIC, "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "1", "queueId": "0", "sysFlag": "0", "flag": "0",
            "bornTimestamp": "1700000000000", "properties": "", "reconsumeTimes": "0",
            "unitMode": "false", "batch": "false"});
        let mut body = format!("message {} ", self.acknowledged.len()).into_bytes();
        body.resize(bytes, b'.');
        let answer = self.raw.call(code::SEND_MESSAGE, &fields, &body)?;
        if answer.code == 0 {
            let place = self.acknowledged.len().to_string();
            ensure!(answer.field("queueOffset") == Some(&place), "{:?}", answer.fields);
            self.acknowledged.push(body);
        }
        Ok(answer)
    }

    fn send_many(&mut self, count: usize, bytes: usize) -> Result<()> {
        for _ in 0..count {
            let answer = self.send(bytes)?;
            ensure!(answer.code == 0, "send: {} {}", answer.code, answer.remark);
        }
        Ok(())
    }

    /// Goes on with a broker that was started again.
    fn reconnect(&mut self, servers: &Servers) -> Result<()> {
        self.raw = Raw::connect(&servers.broker.address(), LIMIT)?;
        Ok(())
    }

    /// Pulls the queue from its beginning and compares it with what was acknowledged.
    fn check(&self, servers: &Servers) -> Result<()> {
        let mut raw = Raw::connect(&servers.broker.address(), LIMIT)?;
        let mut offset = 0;
        while offset < self.acknowledged.len() {
            let pull = json!({"consumerGroup": "raw", "topic": TOPIC, "queueId": "0",
                "queueOffset": offset.to_string(), "maxMsgNums": "32", "sysFlag": "4",
                "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*",
                "subVersion": "0", "expressionType": "TAG"});
            let answer = raw.call(code::PULL_MESSAGE, &pull, &[])?;
            ensure!(answer.code == 0, "pull {offset}: {} {}", answer.code, answer.remark);
            let records = record::records(&answer.body)?;
            ensure!(!records.is_empty(), "pull of {offset} brought nothing");
            for Record { body, .. } in records {
                ensure!(
                    self.acknowledged.get(offset).is_none_or(|sent| *sent == body),
                    "message {offset} differs: {}",
                    String::from_utf8_lossy(&body[..body.len().min(40)])
                );
                offset += 1;
            }
        }
        Ok(())
    }
}

/// Fills the disk until a send is refused, with files of 16 MiB on a disk of 96.
/// `look_ms` is how often the broker looks at the disk.
fn refused_until_space_returns(taken_bytes: u64, look_ms: &str, expected: &[&str]) -> Result<()> {
    let settings = [("cleanResourceInterval", look_ms), ("cleanFileForciblyEnable", "false")];
    let mut servers = Servers::prepare("broker-a", &settings)?;
    let disk = SmallDisk::mount(&servers.broker.store(), 96 * MIB)?;
    servers.broker.start()?;
    servers.create_topic(TOPIC, 1)?;
    disk.take(taken_bytes)?;
    let mut sender = Sender::new(&servers)?;
    let mut bytes = 100_000;
    let refusal = wait::until("refusal", LIMIT, || {
        if look_ms != NEVER && disk.used()? > 0.9 {
            // What is left of the disk must last until the broker looks.
            bytes = 100;
        }
        let answer = sender.send(bytes)?;
        ensure!(answer.code != 0, "{} sends were acknowledged", sender.acknowledged.len());
        Ok(answer)
    })?;
    println!(
        "{} acknowledged, then {}: {}",
        sender.acknowledged.len(),
        refusal.code,
        refusal.remark
    );
    let store = servers.broker.store().display().to_string();
    if Peer::from_environment() == Peer::Ours {
        for word in expected.iter().chain([&store.as_str()]) {
            ensure!(refusal.remark.contains(word), "'{word}' is not in: {}", refusal.remark);
        }
    }
    ensure!(!sender.acknowledged.is_empty(), "nothing was acknowledged before");
    // Reading goes on meanwhile, and the refused message is nowhere.
    sender.check(&servers)?;
    disk.give_back()?;
    wait::until("sends after space returned", LIMIT, || {
        let answer = sender.send(1000)?;
        ensure!(answer.code == 0, "{} {}", answer.code, answer.remark);
        Ok(())
    })?;
    sender.send_many(20, 100_000)?;
    servers.broker.kill()?;
    servers.broker.start()?;
    sender.reconnect(&servers)?;
    sender.send_many(1, 1000)?;
    sender.check(&servers)
}

#[test]
fn without_room_for_a_file_sends_are_refused_until_there_is() -> Result<()> {
    // It never looks: the attempt to make a file finds out, or the write of a queue's entries while
    // that attempt holds the last of the space.
    refused_until_space_returns(33 * MIB, NEVER, &["No space left", "free space"])
}

#[test]
fn over_the_warning_level_sends_are_refused_until_there_is_space() -> Result<()> {
    refused_until_space_returns(46 * MIB, "500", &["diskSpaceWarningLevelRatio", "free space"])
}

#[test]
fn a_read_only_disk_stops_the_start_by_name() -> Result<()> {
    let mut servers = Servers::prepare("broker-a", &[])?;
    let disk = SmallDisk::mount(&servers.broker.store(), 96 * MIB)?;
    servers.broker.start()?;
    servers.create_topic(TOPIC, 1)?;
    let mut sender = Sender::new(&servers)?;
    sender.send_many(10, 1000)?;
    servers.broker.terminate()?;
    disk.set_read_only(true)?;
    let log = servers.directory().join("read-only.log");
    let configuration = servers.broker.configuration();
    let mut broker = Process::start("broker", &mut servers.broker.command(&configuration)?, &log)?;
    let status = broker.wait(LIMIT)?;
    let said = broker.log_text();
    ensure!(!status.success(), "a broker on a read-only disk ended with {status}:\n{said}");
    if Peer::from_environment() == Peer::Ours {
        let store = servers.broker.store().display().to_string();
        for word in [store.as_str(), "Read-only file system", "writable"] {
            ensure!(said.contains(word), "'{word}' is not in:\n{said}");
        }
        ensure!(!said.contains("panicked"), "{said}");
    }
    disk.set_read_only(false)?;
    servers.broker.start()?;
    sender.check(&servers)
}

/// The last file of the log that holds something, and where its last record begins and ends.
fn last_record(servers: &Servers) -> Result<(PathBuf, u64, u64)> {
    let mut paths: Vec<PathBuf> = fs::read_dir(servers.broker.store().join("commitlog"))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    paths.sort();
    for path in paths.into_iter().rev() {
        let bytes = fs::read(&path)?;
        let word = |at: usize| record::word(&bytes, at).ok();
        let (mut at, mut before) = (0, None);
        while let (Some(size @ 1..), Some(record::MAGIC)) = (word(at), word(at + 4)) {
            before = Some(at);
            at += size as usize;
        }
        if let Some(before) = before {
            return Ok((path, before as u64, at as u64));
        }
    }
    anyhow::bail!("the log holds no record")
}

/// kill -9, damage by `damage`, start. `lost` messages of the newest were damaged themselves.
fn survive_damage(lost: usize, damage: impl FnOnce(&File, u64, u64) -> Result<()>) -> Result<()> {
    let mut servers = Servers::start(&[("flushDiskType", "SYNC_FLUSH")])?;
    servers.create_topic(TOPIC, 1)?;
    let mut sender = Sender::new(&servers)?;
    sender.send_many(200, 10_000)?;
    servers.broker.kill()?;
    let (path, begin, end) = last_record(&servers)?;
    damage(&File::options().write(true).open(&path)?, begin, end)?;
    let log_before = fs::metadata(servers.broker.log())?.len();
    servers.broker.start()?;
    sender.acknowledged.truncate(200 - lost);
    sender.reconnect(&servers)?;
    sender.check(&servers)?;
    if Peer::from_environment() == Peer::Ours {
        let said = servers.broker.running()?.log_text();
        let said = said.get(log_before as usize..).unwrap_or_default();
        let path = path.display().to_string();
        ensure!(said.contains(&path), "it does not name {path}:\n{said}");
        ensure!(said.contains("cut"), "it does not say what it cut:\n{said}");
    }
    sender.send_many(10, 10_000)?;
    sender.check(&servers)
}

#[test]
fn garbage_behind_the_last_record_is_cut() -> Result<()> {
    survive_damage(0, |file, _, end| Ok(file.write_all_at(&[0xa5; 5000], end)?))
}

#[test]
fn half_a_record_behind_the_last_one_is_cut() -> Result<()> {
    survive_damage(0, |file, _, end| {
        // A length and a magic word that promise more than there is.
        let mut head = 10_000_u32.to_be_bytes().to_vec();
        head.extend_from_slice(&0xdaa3_20a7_u32.to_be_bytes());
        head.resize(3000, 7);
        Ok(file.write_all_at(&head, end)?)
    })
}

#[test]
fn a_damaged_last_record_is_cut_and_the_others_stay() -> Result<()> {
    survive_damage(1, |file, begin, _| Ok(file.write_all_at(b"damage", begin + 500)?))
}
