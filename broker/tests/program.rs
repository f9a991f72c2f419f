//! The `broker` program: arguments, refusals, signals.

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

fn broker() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_broker"));
    command.env_remove("NAMESRV_ADDR").env_remove("POD_IP").env("RUST_LOG", "warn");
    command
}

fn text(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn help_and_settings_are_printed() {
    let output = broker().arg("-h").output().unwrap();
    assert!(output.status.success());
    let (help, _) = text(&output);
    assert!(help.contains("-c") && help.contains("-n") && help.contains("-p"), "{help}");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("broker.conf");
    fs::write(&file, "brokerName=broker-x\nnamesrvAddr=a:1\nbrokerNmae=typo\n").unwrap();
    let output = broker().arg("-c").arg(&file).args(["-n", "b:2", "-p"]).output().unwrap();
    let (settings, warnings) = text(&output);
    assert!(output.status.success());
    for line in
        ["brokerName=broker-x", "namesrvAddr=b:2", "listenPort=10911", "fileReservedTime=72"]
    {
        assert!(settings.lines().any(|l| l == line), "{line} in {settings}");
    }
    assert!(warnings.contains("brokerNmae"), "{warnings}");
    let output = broker().arg("-m").output().unwrap();
    let (important, _) = text(&output);
    assert!(important.contains("storePathRootDir=") && !important.contains("traceOn="));
}

#[test]
fn a_wrong_value_stops_the_start_and_says_what_is_right() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("broker.conf");
    fs::write(&file, "listenPort=99999\n").unwrap();
    let output = broker().arg("-c").arg(&file).output().unwrap();
    let (_, error) = text(&output);
    assert!(!output.status.success());
    for part in ["broker.conf", "listenPort", "99999", "65535"] {
        assert!(error.contains(part), "{part} in {error}");
    }
    let output = broker().args(["-c", "/nowhere/broker.conf"]).output().unwrap();
    assert!(text(&output).1.contains("/nowhere/broker.conf"));
}

#[test]
fn it_serves_until_sigterm_and_leaves_a_clean_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let file = dir.path().join("broker.conf");
    let settings = format!(
        "brokerName=broker-x\nbrokerIP1=127.0.0.1\nbindAddress=127.0.0.1\nlistenPort=0\n\
         metricsExporterType=DISABLE\nstorePathRootDir={}\nmappedFileSizeCommitLog=1048576\n",
        store.display()
    );
    fs::write(&file, settings).unwrap();
    let mut child = broker().arg("-c").arg(&file).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let addr = line.trim().rsplit('=').next().unwrap().parse().expect("the address");
    let mut peer = common::Peer::connect(addr);
    peer.produce("orders", 0, b"body");
    assert!(store.join("abort").exists());
    let killed = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    assert!(child.wait().unwrap().success(), "exit code 0");
    assert!(!store.join("abort").exists(), "a clean stop");
}
