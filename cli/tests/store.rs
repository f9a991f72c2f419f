//! `rmq store` against the directory of a standalone that was stopped.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod rmq;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rmq::{Ended, Standalone, rmq};
use serde_json::json;

/// The store of a broker that took five messages and was stopped.
fn made(data: &Path) -> PathBuf {
    let standalone = Standalone::start(data, &[]);
    standalone.rmq(&["topic", "create", "orders", "--queues", "1"]).ok();
    for number in 0..5 {
        standalone.rmq(&["send", "orders", &format!("order {number}"), "--tag", "new"]).ok();
    }
    let dir = data.join("store");
    let busy = store(&["check"], &dir);
    assert_eq!(busy.code, 1, "{busy:?}");
    assert!(busy.stderr.contains("in use by another process"), "{busy:?}");
    assert!(standalone.end("TERM").success());
    dir
}

fn store(args: &[&str], dir: &Path) -> Ended {
    rmq(&[&["store", args[0], dir.to_str().unwrap()], &args[1..], &["-o", "json"]].concat())
}

#[test]
fn a_directory_is_checked_printed_damaged_and_repaired() {
    let data = tempfile::tempdir().unwrap();
    let dir = made(data.path());
    let report = store(&["check"], &dir).ok().json();
    assert_eq!((&report["damage"], &report["cleanEnd"]), (&json!(0), &json!(true)), "{report}");
    assert_eq!(report["findings"], json!([]), "{report}");
    assert_eq!(report["logFileBytes"], json!(1_048_576));
    assert_eq!((&report["indexFiles"], &report["indexEntries"]), (&json!(1), &json!(5)));

    let entries = store(&["dump", "--queue", "orders/0"], &dir).ok().json();
    assert_eq!(entries.as_array().unwrap().len(), 5);
    let third = entries[2]["physicalOffset"].as_u64().unwrap();
    let some = store(&["dump", "--queue", "orders/0", "--from", "2", "--count", "1"], &dir);
    assert_eq!(some.ok().json(), json!([entries[2]]));
    let record = store(&["dump", "--physical-offset", &third.to_string()], &dir).ok().json();
    assert_eq!(record["body"], json!("order 2"));
    assert_eq!((&record["topic"], &record["queueOffset"]), (&json!("orders"), &json!(2)));
    assert_eq!(record["properties"]["TAGS"], json!("new"));
    let words = store(&["dump", "--checkpoint"], &dir).ok().json();
    assert!(words["physicMsgTimestamp"].as_i64().unwrap() > 0, "{words}");
    let key = record["properties"]["UNIQ_KEY"].as_str().unwrap();
    let hits = store(&["dump", "--key", &format!("orders/{key}")], &dir).ok().json();
    assert_eq!(hits.as_array().unwrap().len(), 1, "{hits}");
    assert_eq!((&hits[0]["physicalOffset"], &hits[0]["hasKey"]), (&json!(third), &json!(true)));
    assert_eq!(store(&["dump", "--key", "orders/none"], &dir).ok().json(), json!([]));
    assert_eq!(store(&["dump", "--key", "orders"], &dir).code, 2);
    assert_eq!(store(&["dump", "--physical-offset", "999999999999"], &dir).code, 3);
    assert_eq!(store(&["dump", "--queue", "orders/7"], &dir).code, 3);
    assert_eq!(store(&["dump", "--queue", "orders"], &dir).code, 2);
    assert_eq!(store(&["dump"], &dir).code, 2, "it must be said what");

    let log = dir.join("commitlog/00000000000000000000");
    let file = File::options().write(true).open(&log).unwrap();
    file.write_all_at(b"!", third + 90).unwrap();
    let damaged = store(&["check"], &dir);
    assert_eq!(damaged.code, 6, "{damaged:?}");
    let report = damaged.json();
    let finding = &report["findings"][0];
    assert_eq!(finding["file"], json!(log.to_str().unwrap()), "{report}");
    assert_eq!((&finding["byte"], &finding["severity"]), (&json!(third), &json!("damage")));
    assert!(finding["what"].as_str().unwrap().contains("does not match its CRC"), "{report}");
    assert_eq!(finding["repair"], json!("cut the log here"));
    assert_eq!(store(&["dump", "--physical-offset", &third.to_string()], &dir).code, 6);

    let asked = store(&["repair"], &dir);
    assert_eq!(asked.code, 6, "nobody said yes: {asked:?}");
    assert_eq!(asked.json()["cut"]["messages"], json!(2), "{asked:?}");
    assert!(asked.stderr.contains("--yes"), "{asked:?}");
    let text = rmq(&["store", "repair", dir.to_str().unwrap()]);
    for part in ["repair would:", "with 2 sound messages from ", "repair-TIME"] {
        assert!(text.stdout.contains(part), "{text:?}");
    }
    assert_eq!(store(&["check"], &dir).code, 6, "nothing was changed");
    let repaired = store(&["repair", "--yes"], &dir).ok().json();
    assert_eq!(repaired["damageLeft"], json!(0), "{repaired}");
    let kept = PathBuf::from(repaired["keptIn"].as_str().unwrap());
    assert!(kept.join("commitlog").read_dir().unwrap().next().is_some());
    store(&["check"], &dir).ok();
    assert_eq!(store(&["repair", "--yes"], &dir).ok().json(), json!({"repaired": false}));

    let standalone = Standalone::start(data.path(), &[]);
    let left = standalone.rmq(&["consume", "orders", "--tail", "--from", "first", "--count", "2"]);
    assert_eq!(left.ok().json_lines().len(), 2);
}

#[test]
fn sizes_come_from_the_configuration_or_the_files() {
    let data = tempfile::tempdir().unwrap();
    let dir = made(data.path());
    let conf = data.path().join("broker.conf");
    std::fs::write(&conf, "mappedFileSizeCommitLog=1048576\nmappedFileSizeConsumeQueue=20000\n")
        .unwrap();
    let conf = conf.to_str().unwrap();
    let report = store(&["check", "-c", conf], &dir).ok().json();
    assert_eq!(report["damage"], json!(0), "{report}");
    std::fs::write(conf, "mappedFileSizeCommitLog=4096\n").unwrap();
    let report = store(&["check", "-c", conf], &dir);
    assert_eq!(report.code, 6);
    assert!(report.stdout.contains("has 1048576 bytes, 4096 are expected"), "{report:?}");
    assert_eq!(store(&["check"], &data.path().join("nowhere")).code, 3);
    assert_eq!(store(&["check", "-c", "/nowhere.conf"], &dir).code, 1);
    let text = rmq(&["store", "check", dir.to_str().unwrap()]).ok().stdout;
    assert!(text.contains("0 findings of damage"), "{text}");
}
