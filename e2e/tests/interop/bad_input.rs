//! Hostile and broken input over a plain socket: a clear answer or a closed
//! connection, and everybody else goes on.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::peer::{Peer, Servers};
use e2e::raw::{Answer, MAX_FRAME_BYTES, Raw, code, frame, frame_of};
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(10);
const TOPIC: &str = "Bystander";
/// A frame that says it is shorter than the word in front of its header.
const TOO_SHORT: &str = "length 3";

mod response {
    pub const REQUEST_CODE_NOT_SUPPORTED: i64 = 3;
    pub const MESSAGE_ILLEGAL: i64 = 13;
    pub const TOPIC_NOT_EXIST: i64 = 17;
}

/// Runs `attack` while another connection sends all the time, from before it to after it; none of its
/// sends may fail.
fn beside_a_bystander(attack: impl FnOnce(&Servers) -> Result<()>) -> Result<()> {
    let mut servers = Servers::start(&[])?;
    servers.create_topic(TOPIC, 1)?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let (began, first_sent) = mpsc::channel();
        let address = servers.broker.address();
        let stop = &stop;
        let bystander = scope.spawn(move || bystand(&address, stop, &began));
        // An error means that the bystander has failed, which it says itself.
        let _ = first_sent.recv();
        let attacked = attack(&servers);
        stop.store(true, Ordering::Relaxed);
        let bystood = bystander.join().map_err(|_| anyhow::anyhow!("the bystander panicked"))?;
        attacked?;
        bystood
    })?;
    servers.broker.running()?.check_running()?;
    servers.namesrv.process().check_running()?;
    let log = servers.broker.running()?.log_text();
    ensure!(!log.contains("panicked"), "a panic in the broker:\n{log}");
    let log = servers.namesrv.process().log_text();
    ensure!(!log.contains("panicked"), "a panic in the name server:\n{log}");
    Ok(())
}

fn bystand(address: &str, stop: &AtomicBool, began: &mpsc::Sender<()>) -> Result<()> {
    let mut raw = Raw::connect(address, LIMIT)?;
    let mut sent = 0;
    loop {
        let is_last = stop.load(Ordering::Relaxed);
        let answer = raw.call(code::SEND_MESSAGE, &send_fields(TOPIC), b"good")?;
        ensure!(answer.code == 0, "bystander: {} {}", answer.code, answer.remark);
        ensure!(
            answer.field("queueOffset") == Some(&sent.to_string()),
            "bystander's send {sent} got {:?}",
            answer.fields
        );
        sent += 1;
        if sent == 1 {
            began.send(())?;
        }
        if is_last {
            return Ok(());
        }
        // Often enough to notice a pause; the attack needs the processor too.
        thread::sleep(Duration::from_millis(2));
    }
}

fn send_fields(topic: &str) -> Value {
    json!({"producerGroup": "raw", "topic": topic, "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "0", "bornTimestamp": "1700000000000",
        "flag": "0", "properties": "", "reconsumeTimes": "0", "unitMode": "false", "batch": "false"})
}

fn with(mut fields: Value, name: &str, value: Value) -> Value {
    fields[name] = value;
    fields
}

fn without(mut fields: Value, name: &str) -> Value {
    if let Some(fields) = fields.as_object_mut() {
        fields.remove(name);
    }
    fields
}

fn both(servers: &Servers) -> [String; 2] {
    [servers.broker.address(), servers.namesrv_address()]
}

#[test]
fn broken_frames_close_their_own_connection_only() -> Result<()> {
    let ours = Peer::from_environment() == Peer::Ours;
    beside_a_bystander(|servers| {
        let json = br#"{"code":105,"opaque":1,"flag":0,"language":"JAVA","version":479,"extFields":{"topic":"x"}}"#;
        let cut_header = frame_of(&json[..json.len() - 3], &[]);
        let mut header_beyond_frame = frame_of(json, &[]);
        header_beyond_frame[4..8].copy_from_slice(&0x00ff_ffff_u32.to_be_bytes());
        let mut unknown_encoding = frame_of(json, &[]);
        unknown_encoding[4] = 7;
        let mut binary_encoding = frame_of(json, &[]);
        binary_encoding[4] = 1;
        let cases: [(&str, Vec<u8>); 9] = [
            (TOO_SHORT, vec![0, 0, 0, 3, 1, 2, 3]),
            ("length above 2 GiB", [&[0xff; 4][..], &[0; 64]].concat()),
            ("length above 16 MiB", ((MAX_FRAME_BYTES + 1) as u32).to_be_bytes().to_vec()),
            ("header cut short", cut_header),
            ("header longer than its frame", header_beyond_frame),
            ("unknown header encoding", unknown_encoding),
            ("JSON under the binary encoding's number", binary_encoding),
            ("header that is no object", frame_of(b"[1,2,3]", &[])),
            ("header that is no JSON", frame_of(&[0xfe; 100], &[])),
        ];
        for address in both(servers) {
            for (what, bytes) in &cases {
                if !ours && *what == TOO_SHORT {
                    // Apache's servers wait for a header that can never come.
                    continue;
                }
                let mut raw = Raw::connect(&address, LIMIT)?;
                // The other side may close before all is written.
                let written = raw.write(bytes);
                // Either an error is answered, or the connection is closed; never silence.
                match raw.read() {
                    Ok(Some(answer)) => ensure!(answer.code != 0, "{what}: answered success"),
                    Ok(None) => {}
                    Err(error) => {
                        return Err(error)
                            .with_context(|| format!("{what} to {address}, {written:?}"));
                    }
                }
            }
        }
        Ok(())
    })
}

#[test]
fn truncated_frames_and_random_bytes_harm_nobody() -> Result<()> {
    let seed = rand::random::<u64>();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    beside_a_bystander(|servers| {
        for address in both(servers) {
            let whole = frame(code::SEND_MESSAGE, 1, &send_fields("Truncated"), &[b'x'; 500]);
            for _ in 0..50 {
                let mut stream = TcpStream::connect(&address)?;
                let cut = random.random_range(0..whole.len());
                stream.write_all(&whole[..cut])?;
                // Closed here, in the middle of a frame.
            }
            for _ in 0..50 {
                let mut stream = TcpStream::connect(&address)?;
                let mut bytes = vec![0; random.random_range(1..5000)];
                random.fill_bytes(&mut bytes);
                // A reset while writing is an answer too.
                let _ = stream.write_all(&bytes);
            }
            for _ in 0..50 {
                // Right length words around random headers, and right headers that were bent.
                let mut stream = TcpStream::connect(&address)?;
                let mut bytes = whole.clone();
                for _ in 0..random.random_range(1..20) {
                    let place = random.random_range(8..bytes.len());
                    bytes[place] = random.random();
                }
                let _ = stream.write_all(&bytes);
            }
        }
        Ok(())
    })
    .with_context(|| format!("seed {seed}"))
}

#[test]
fn slow_frames_are_answered_and_idle_ones_cost_nobody() -> Result<()> {
    beside_a_bystander(|servers| {
        let bytes = frame(code::SEND_MESSAGE, 77, &send_fields("Slow"), b"slow");
        // Many connections that stop in the middle of a frame, and stay.
        let mut waiting = Vec::new();
        for address in both(servers) {
            for number in 0..100 {
                let mut stream = TcpStream::connect(&address)?;
                stream.write_all(&bytes[..1 + number % (bytes.len() - 1)])?;
                waiting.push(stream);
            }
        }
        let mut raw = Raw::connect(&servers.broker.address(), LIMIT)?;
        for byte in &bytes {
            raw.write(&[*byte])?;
            thread::sleep(Duration::from_millis(2));
        }
        let answer = raw.read()?.context("a slow request was not answered")?;
        ensure!(answer.code == 0 && answer.opaque == 77, "{answer:?}");
        // Many frames in one write are answered one by one, each under its number.
        let mut many = Vec::new();
        for opaque in 0..50 {
            many.extend(frame(code::SEND_MESSAGE, 1000 + opaque, &send_fields("Slow"), b"many"));
        }
        raw.write(&many)?;
        let mut opaques = Vec::new();
        for _ in 0..50 {
            let answer = raw.read()?.context("closed among many requests")?;
            ensure!(answer.code == 0, "{answer:?}");
            opaques.push(answer.opaque);
        }
        opaques.sort_unstable();
        ensure!(opaques == (1000..1050).collect::<Vec<i64>>(), "{opaques:?}");
        for mut stream in waiting {
            stream.set_nonblocking(true)?;
            let got = stream.read(&mut [0; 16]);
            ensure!(
                got.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock),
                "half a frame was answered or closed: {got:?}"
            );
        }
        Ok(())
    })
}

/// An error answer whose remark has all of `words`.
fn refused(what: &str, answer: &Answer, words: &[&str]) -> Result<()> {
    ensure!(answer.code != 0, "{what}: answered success");
    for word in words {
        ensure!(
            answer.remark.contains(word),
            "{what}: '{word}' is not in the answer {}: '{}'",
            answer.code,
            answer.remark
        );
    }
    Ok(())
}

#[test]
fn bad_headers_are_refused_by_name_and_value() -> Result<()> {
    let ours = Peer::from_environment() == Peer::Ours;
    beside_a_bystander(|servers| {
        let mut raw = Raw::connect(&servers.broker.address(), LIMIT)?;
        let good = || send_fields("Headers");
        let mut send = |fields: Value| raw.call(code::SEND_MESSAGE, &fields, b"body");

        for field in ["topic", "queueId", "sysFlag", "bornTimestamp", "flag"] {
            let answer = send(without(good(), field))?;
            // At a send without a topic Apache's broker stumbles before it looks what is missing.
            let named = if ours || field != "topic" { vec![field] } else { Vec::new() };
            refused(&format!("{field} is missing"), &answer, &named)?;
        }
        for (field, value) in [
            ("queueId", "99999999999"),
            ("queueId", "many"),
            ("bornTimestamp", "99999999999999999999"),
            ("sysFlag", "0x10"),
        ] {
            let answer = send(with(good(), field, json!(value)))?;
            refused(&format!("{field}={value}"), &answer, &[value])?;
        }
        let answer = send(with(good(), "colour", json!("green")))?;
        ensure!(answer.code == 0, "an unknown field: {} {}", answer.code, answer.remark);
        let answer = send(with(good(), "queueId", json!("1000")))?;
        refused("a queue that is not there", &answer, &["1000"])?;

        let answer = raw.call(9999, &json!({}), &[])?;
        ensure!(answer.code == response::REQUEST_CODE_NOT_SUPPORTED, "code {}", answer.code);
        refused("an unknown request", &answer, &["9999"])?;
        let answer = raw.call(code::QUERY_CONSUMER_OFFSET, &json!({}), &[])?;
        refused("an offset of nobody", &answer, &["consumerGroup"])?;
        let pull = json!({"consumerGroup": "g", "topic": TOPIC, "queueId": "0",
            "queueOffset": "-9223372036854775808", "maxMsgNums": "2147483647", "sysFlag": "4",
            "commitOffset": "9223372036854775807", "suspendTimeoutMillis": "9223372036854775807",
            "subscription": "*", "subVersion": "0"});
        // Absurd but well-formed: any answer will do.
        raw.call(code::PULL_MESSAGE, &pull, &[])?;

        let mut raw = Raw::connect(&servers.namesrv_address(), LIMIT)?;
        let answer = raw.call(code::GET_ROUTEINFO_BY_TOPIC, &json!({}), &[])?;
        refused("a route of nothing", &answer, &["topic"])?;
        let answer = raw.call(code::GET_ROUTEINFO_BY_TOPIC, &json!({"topic": "Nowhere"}), &[])?;
        ensure!(answer.code == response::TOPIC_NOT_EXIST, "code {}", answer.code);
        refused("a topic that is not there", &answer, &["Nowhere"])?;
        let answer = raw.call(9999, &json!({}), &[])?;
        ensure!(answer.code == response::REQUEST_CODE_NOT_SUPPORTED, "code {}", answer.code);
        refused("an unknown request to the name server", &answer, &["9999"])
    })
}

#[test]
fn bad_names_and_sizes_are_refused() -> Result<()> {
    let ours = Peer::from_environment() == Peer::Ours;
    beside_a_bystander(|servers| {
        let mut raw = Raw::connect(&servers.broker.address(), LIMIT)?;
        // The Java broker names the rule, not the topic.
        let named = |topic: &'static str| if ours { vec![topic] } else { Vec::new() };
        for topic in ["bad/topic", "bad topic", "../../etc/passwd", "bad\u{0}topic", "böse"] {
            let answer = raw.call(code::SEND_MESSAGE, &send_fields(topic), b"body")?;
            refused(&format!("send to {topic:?}"), &answer, &named(topic))?;
            let create = json!({"topic": topic, "defaultTopic": "TBW102", "readQueueNums": "4",
                "writeQueueNums": "4", "perm": "6", "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": "0", "order": "false"});
            let answer = raw.call(code::UPDATE_AND_CREATE_TOPIC, &create, &[])?;
            refused(&format!("create {topic:?}"), &answer, &named(topic))?;
        }
        let long = "t".repeat(300);
        refused("a topic of 300", &raw.call(code::SEND_MESSAGE, &send_fields(&long), b"x")?, &[])?;
        let empty = raw.call(code::SEND_MESSAGE, &send_fields(""), b"x")?;
        refused("an empty topic", &empty, &[])?;

        // maxMessageSize is 4 MiB.
        let large = vec![b'x'; 4 * 1024 * 1024 + 1];
        let answer = raw.call(code::SEND_MESSAGE, &send_fields(TOPIC), &large)?;
        ensure!(answer.code == response::MESSAGE_ILLEGAL, "{} {}", answer.code, answer.remark);
        if ours {
            refused("a body over the limit", &answer, &["4194304"])?;
        }
        let properties = format!("long\u{1}{}\u{2}", "p".repeat(40_000));
        let fields = with(send_fields(TOPIC), "properties", json!(properties));
        let answer = raw.call(code::SEND_MESSAGE, &fields, b"body")?;
        ensure!(answer.code == response::MESSAGE_ILLEGAL, "{} {}", answer.code, answer.remark);
        if ours {
            refused("properties over the limit", &answer, &["32767"])?;
        }

        // A frame over the limit ends its connection.
        let mut raw = Raw::connect(&servers.broker.address(), LIMIT)?;
        let huge = frame(code::SEND_MESSAGE, 1, &send_fields(TOPIC), &vec![b'x'; MAX_FRAME_BYTES]);
        let _ = raw.write(&huge);
        ensure!(raw.read_until_closed()?.iter().all(|answer| answer.code != 0), "stored");
        ensure!(
            !servers.broker.store().join("consumequeue/bad").exists(),
            "a queue outside its place"
        );
        Ok(())
    })
}
