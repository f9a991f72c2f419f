//! `rmq` as people and scripts use it: a standalone in a fresh directory, and commands against it.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod rmq;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use rmq::{Standalone, eventually, program, rmq};
use serde_json::{Value, json};

fn bodies(lines: &[Value]) -> BTreeSet<String> {
    lines.iter().map(|line| line["body"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_message_goes_all_the_way_and_survives_kill_9() {
    let dir = tempfile::tempdir().unwrap();
    let standalone = Standalone::start(dir.path(), &[]);
    let created = standalone.rmq(&["topic", "create", "orders", "--queues", "2"]).ok().json();
    let row = json!({"topic": "orders", "broker": "standalone", "readQueues": 2, "writeQueues": 2,
        "perm": "rw"});
    assert_eq!(created, json!([row]));
    assert_eq!(standalone.rmq(&["topic", "list"]).ok().json(), json!([row]));

    let mut sent = BTreeSet::new();
    for number in 0..5 {
        let body = format!("order {number}");
        let args = ["send", "orders", &body, "--tag", "new", "--key", "k1", "--property", "a=b"];
        let receipt = standalone.rmq(&args).ok().json();
        assert_eq!(receipt["status"], json!("SEND_OK"));
        sent.insert(body);
    }
    let status = standalone.rmq(&["topic", "status", "orders"]).ok().json();
    let stored: i64 =
        status.as_array().unwrap().iter().map(|q| q["maxOffset"].as_i64().unwrap()).sum();
    assert_eq!(stored, 5);

    let consumed = standalone.rmq(&["consume", "orders", "--group", "billing", "--count", "3"]);
    let consumed = consumed.ok().json_lines();
    assert_eq!(consumed.len(), 3);
    assert_eq!(consumed[0]["tag"], json!("new"));
    assert_eq!(consumed[0]["keys"], json!(["k1"]));
    assert_eq!(consumed[0]["properties"]["a"], json!("b"));
    let progress = standalone.rmq(&["group", "progress", "billing"]).ok().json();
    assert_eq!(progress["lag"], json!(2), "{progress}");
    let groups = standalone.rmq(&["group", "list"]).ok().json();
    assert_eq!(groups[0]["group"], json!("billing"));
    assert_eq!(groups[0]["members"], json!(0));

    let offsets = dir.path().join("store/config/consumerOffset.json");
    eventually("the group's progress is on disk", || {
        let text = std::fs::read_to_string(&offsets).unwrap_or_default();
        let offsets = text.split("orders@billing").nth(1).unwrap_or_default();
        let digits =
            offsets.split('}').next().unwrap_or_default().replace(|c| !char::is_numeric(c), " ");
        let numbers: Vec<i64> = digits.split_whitespace().map(|n| n.parse().unwrap()).collect();
        // Pairs of queue and offset.
        numbers.chunks(2).map(|pair| pair[1..].iter().sum::<i64>()).sum::<i64>() == 3
    });
    assert!(!standalone.end("KILL").success());

    let standalone = Standalone::start(dir.path(), &[]);
    assert_eq!(standalone.rmq(&["topic", "list"]).ok().json(), json!([row]));
    let all = standalone.rmq(&["consume", "orders", "--tail", "--from", "first", "--count", "5"]);
    assert_eq!(bodies(&all.ok().json_lines()), sent);
    let rest = standalone.rmq(&["consume", "orders", "--group", "billing", "--count", "2"]);
    let rest = bodies(&rest.ok().json_lines());
    assert_eq!(&rest | &bodies(&consumed), sent, "the group goes on where it was");
    assert!(rest.is_disjoint(&bodies(&consumed)));
}

#[test]
fn messages_are_found_by_key_and_by_either_id() {
    let dir = tempfile::tempdir().unwrap();
    let standalone = Standalone::start(dir.path(), &[]);
    standalone.rmq(&["topic", "create", "orders", "--queues", "2"]).ok();
    for number in 0..5 {
        let body = format!("order {number}");
        standalone.rmq(&["send", "orders", &body, "--key", "k1"]).ok();
    }
    let receipt = standalone.rmq(&["send", "orders", "order 5", "--key", "k5"]).ok().json();
    let of_key = standalone.rmq(&["message", "get", "orders", "--key", "k5"]).ok().json_lines();
    assert_eq!(bodies(&of_key), BTreeSet::from(["order 5".to_owned()]));
    assert_eq!(of_key[0]["broker"], json!("standalone"));
    for (option, field) in [("--id", "offsetMessageId"), ("--unique-key", "messageId")] {
        let id = receipt[field].as_str().unwrap();
        let found = standalone.rmq(&["message", "get", "orders", option, id]).ok().json_lines();
        assert_eq!(bodies(&found), BTreeSet::from(["order 5".to_owned()]), "{option}");
    }
    let of_key = standalone.rmq(&["message", "get", "orders", "--key", "k1"]).ok().json_lines();
    assert_eq!(of_key.len(), 5);
}

#[test]
fn it_looks_on_without_disturbing_a_group() {
    let dir = tempfile::tempdir().unwrap();
    let standalone = Standalone::start(dir.path(), &[]);
    standalone.rmq(&["topic", "create", "t", "--queues", "1"]).ok();
    standalone.rmq(&["send", "t", "before"]).ok();
    let mut tail = standalone.spawn(&["consume", "t", "--tail", "--count", "1"]);
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    // The tail begins at the end, and when it has begun cannot be seen from outside: send until it
    // has seen one.
    let seen = std::thread::spawn(move || lines.next().unwrap().unwrap());
    eventually("the tail has seen a message", || {
        standalone.rmq(&["send", "t", "after", "--tag", "A"]).ok();
        seen.is_finished()
    });
    let line: Value = serde_json::from_str(&seen.join().unwrap()).unwrap();
    assert_eq!(line["body"], json!("after"));
    assert!(tail.wait().unwrap().success());
    let missing = standalone.rmq(&["group", "progress", "t-watchers"]);
    assert_eq!(missing.code, 3, "{missing:?}");

    let filtered = ["consume", "t", "--tail", "--from", "first", "--tag", "B", "--timeout", "0.5"];
    let none = standalone.rmq(&filtered);
    assert_eq!((none.code, none.stdout.as_str()), (4, ""), "{none:?}");
    let filtered = ["consume", "t", "--tail", "--from", "first", "--tag", "A", "--count", "1"];
    assert_eq!(standalone.rmq(&filtered).ok().json()["tag"], json!("A"));
}

#[test]
fn lines_of_standard_input_are_messages() {
    let dir = tempfile::tempdir().unwrap();
    let standalone = Standalone::start(dir.path(), &[]);
    standalone.rmq(&["topic", "create", "lines", "--queues", "1"]).ok();
    let mut child = program()
        .args(["send", "lines", "-n", standalone.namesrv()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all("first\n\nzweite für später\n".as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 2);
    let all = standalone.rmq(&["consume", "lines", "--tail", "--from", "first", "--count", "2"]);
    let expected = BTreeSet::from(["first".to_owned(), "zweite für später".to_owned()]);
    assert_eq!(bodies(&all.ok().json_lines()), expected);
}

#[test]
fn topics_are_changed_only_when_asked_and_deleted_with_their_messages() {
    let dir = tempfile::tempdir().unwrap();
    let standalone = Standalone::start(dir.path(), &[]);
    let create = |more: &[&str]| standalone.rmq(&[&["topic", "create", "t"], more].concat());
    create(&["--queues", "4"]).ok();
    create(&["--queues", "4"]).ok();
    let refused = create(&["--queues", "8"]);
    assert_eq!(refused.code, 1);
    for part in ["topic t exists", "4 read", "--update"] {
        assert!(refused.stderr.contains(part), "{refused:?}");
    }
    create(&["--queues", "8", "--update"]).ok();
    assert_eq!(standalone.rmq(&["topic", "list"]).ok().json()[0]["writeQueues"], json!(8));

    standalone.rmq(&["send", "t", "x"]).ok();
    standalone.rmq(&["topic", "delete", "t"]).ok();
    for gone in [&["topic", "delete", "t"], &["topic", "status", "t"]] {
        let ended = standalone.rmq(gone);
        assert_eq!(ended.code, 3, "{ended:?}");
        assert_eq!(ended.stderr, "rmq: topic t does not exist; see all with rmq topic list\n");
    }
    assert_eq!(standalone.rmq(&["topic", "list"]).ok().json(), json!([]));
    create(&["--queues", "1"]).ok();
    let status = standalone.rmq(&["topic", "status", "t"]).ok().json();
    assert!(status.as_array().unwrap().iter().all(|q| q["maxOffset"] == json!(0)), "{status}");
}

#[test]
fn exit_codes_are_those_of_the_help() {
    let dir = tempfile::tempdir().unwrap();
    let standalone = Standalone::start(dir.path(), &["autoCreateTopicEnable=false"]);
    let code = |args: &[&str]| {
        let ended = standalone.rmq(args);
        assert!(ended.code == 0 || !ended.stderr.is_empty(), "{ended:?}");
        ended.code
    };
    assert_eq!(code(&["topic", "status", "nowhere"]), 3);
    assert_eq!(code(&["send", "nowhere", "x"]), 3);
    assert_eq!(code(&["consume", "nowhere", "--tail"]), 3);
    assert_eq!(code(&["topic", "list", "--cluster", "nowhere"]), 3);
    assert_eq!(code(&["topic", "create", "a/b"]), 2);
    assert_eq!(code(&["topic", "create", "t"]), 0);
    assert_eq!(code(&["send", "t", ""]), 2);
    assert_eq!(code(&["consume", "t", "--group", "g", "--timeout", "0.3"]), 4);
    assert_eq!(code(&["consume", "t"]), 2, "neither --group nor --tail");
    assert_eq!(rmq(&["topic", "list", "-n", "127.0.0.1:1"]).code, 5);
    assert_eq!(rmq(&["topic", "list", "-n", "nonsense"]).code, 2);
    assert_eq!(rmq(&["no-such-command"]).code, 2);
    let help = rmq(&["--help"]);
    assert!(help.stdout.contains("Exit codes: 0 success"), "{help:?}");
}

#[test]
fn the_name_server_comes_from_the_environment_and_tables_are_for_people() {
    let dir = tempfile::tempdir().unwrap();
    let standalone = Standalone::start(dir.path(), &[]);
    standalone.rmq(&["topic", "create", "orders", "--queues", "2"]).ok();
    let output = program()
        .args(["topic", "list"])
        .env("NAMESRV_ADDR", standalone.namesrv())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        text,
        "TOPIC   BROKER      READ  WRITE  PERM\norders  standalone     2      2  rw\n"
    );
}

#[test]
fn a_signal_stops_the_standalone_cleanly_and_its_directory_is_its_own() {
    let dir = tempfile::tempdir().unwrap();
    for signal in ["TERM", "INT"] {
        let standalone = Standalone::start(dir.path(), &[]);
        assert!(dir.path().join("store/abort").exists());
        let data = dir.path().to_str().unwrap();
        let second = rmq(&["standalone", "--port", "0", "--namesrv-port", "0", "--data", data]);
        assert_eq!(second.code, 1, "{second:?}");
        assert!(second.stderr.contains("in use by another process"), "{second:?}");
        assert!(
            second.stderr.contains("--data") && !second.stderr.contains("storePath"),
            "{second:?}"
        );
        assert!(standalone.end(signal).success());
        assert!(!dir.path().join("store/abort").exists(), "{signal}");
    }
}

#[test]
fn wrong_addresses_and_empty_input_are_explained() {
    let dir = tempfile::tempdir().unwrap();
    let standalone = Standalone::start(dir.path(), &[]);
    let broker = standalone.started["broker"].as_str().unwrap();
    for command in [&["topic", "list"][..], &["topic", "status", "t"], &["send", "t", "x"]] {
        let asked = rmq(&[command, &["-n", broker]].concat());
        assert_eq!(asked.code, 5, "{asked:?}");
        assert!(asked.stderr.contains("is not a name server"), "{asked:?}");
    }

    let taken = standalone.namesrv().rsplit_once(':').unwrap().1;
    let other = tempfile::tempdir().unwrap();
    let data = other.path().to_str().unwrap();
    let second = rmq(&["standalone", "--port", "0", "--namesrv-port", taken, "--data", data]);
    assert_eq!(second.code, 1, "{second:?}");
    assert!(second.stderr.contains("--namesrv-port"), "{second:?}");
    assert!(!second.stderr.contains("listenPort"), "{second:?}");
    let taken = broker.rsplit_once(':').unwrap().1;
    let second = rmq(&["standalone", "--port", taken, "--namesrv-port", "0", "--data", data]);
    assert_eq!(second.code, 1, "{second:?}");
    assert!(second.stderr.contains("--port"), "{second:?}");

    let none = rmq(&["send", "t", "-n", standalone.namesrv()]).ok();
    assert!(none.stdout.starts_with("0 messages sent"), "{none:?}");
}

#[test]
fn progress_after_the_topic_is_gone_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let standalone = Standalone::start(dir.path(), &[]);
    standalone.rmq(&["topic", "create", "t", "--queues", "1"]).ok();
    standalone.rmq(&["send", "t", "x"]).ok();
    standalone.rmq(&["consume", "t", "--group", "g", "--count", "1"]).ok();
    let progress = || rmq(&["group", "progress", "g", "-n", standalone.namesrv()]).ok().stdout;
    assert!(!progress().contains("exists now"), "{}", progress());
    standalone.rmq(&["topic", "delete", "t"]).ok();
    assert!(
        progress().contains("g has consumed nothing of a topic that exists now"),
        "{}",
        progress()
    );
}

#[test]
fn wrong_settings_of_a_standalone_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().to_str().unwrap();
    let start = |setting: &str| {
        rmq(&["standalone", "--port", "0", "--namesrv-port", "0", "--data", data, "--set", setting])
    };
    for (setting, named) in [
        ("nonsense", "KEY=VALUE"),
        ("noSuchKey=1", "noSuchKey"),
        ("flushDiskType=SOMETIMES", "SYNC_FLUSH"),
    ] {
        let ended = start(setting);
        assert_eq!(ended.code, 2, "{ended:?}");
        assert!(ended.stderr.contains(named), "{ended:?}");
    }
}
