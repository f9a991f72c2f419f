//! The `namesrv` program: command line, configuration file, signals.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod raw;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use raw::{Broker, Raw};
use rocketmq_protocol::code::RequestCode;

fn namesrv() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_namesrv"));
    command.env("RUST_LOG", "info").env("NO_COLOR", "1");
    command
}

fn write(dir: &Path, text: &str) -> String {
    let path = dir.join("namesrv.conf");
    std::fs::write(&path, text).unwrap();
    path.to_string_lossy().into_owned()
}

fn text(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn dash_p_prints_the_effective_configuration_and_exits() {
    let dir = tempfile::tempdir().unwrap();
    let file = write(
        dir.path(),
        "listenPort=9999\nnoSuchKey=1\nserverWorkerThreads=4\nserverSelectorThreads=3\n",
    );
    let output = namesrv().args(["-c", &file, "-p"]).output().unwrap();
    let (stdout, stderr) = text(&output);
    assert!(output.status.success(), "{stderr}");
    assert!(stdout.contains("listenPort=9999\n") && stdout.contains("waitSecondsForService=45\n"));
    assert!(stdout.contains(&format!("configStorePath={file}\n")), "{stdout}");
    assert!(stderr.contains("noSuchKey"), "an unknown key is warned of by name: {stderr}");
    assert!(stderr.contains("serverWorkerThreads"), "a key without effect is said: {stderr}");
    assert!(!stderr.contains("serverSelectorThreads"), "but not at its default: {stderr}");
}

#[test]
fn an_invalid_value_stops_the_start_with_key_value_and_range() {
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "listenPort=99999\n");
    let output = namesrv().args(["-c", &file]).output().unwrap();
    let (_, stderr) = text(&output);
    assert_eq!(output.status.code(), Some(1));
    for part in ["listenPort", "99999", "0 to 65535", &file] {
        assert!(stderr.contains(part), "{part} not in {stderr}");
    }
    let output = namesrv().args(["-c", "/no/such/file"]).output().unwrap();
    assert!(!output.status.success() && text(&output).1.contains("/no/such/file"));
}

#[test]
fn dash_h_explains_itself() {
    let output = namesrv().arg("-h").output().unwrap();
    assert!(output.status.success());
    assert!(text(&output).0.contains("--configFile"));
}

/// Starts the program and waits for the line that gives its address.
fn start(file: &str) -> (Child, SocketAddr) {
    let mut child = namesrv().args(["-c", file]).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = lines
        .by_ref()
        .map(|line| line.unwrap())
        .find(|line| line.contains("name server started"))
        .expect("it says when it is ready");
    // Goes on reading, so that the program can go on writing.
    std::thread::spawn(move || lines.for_each(drop));
    let addr = line.split("addr=").nth(1).unwrap().split_whitespace().next().unwrap();
    (child, addr.parse().unwrap())
}

#[test]
fn a_signal_stops_it_cleanly_and_changes_of_its_configuration_stay() {
    let dir = tempfile::tempdir().unwrap();
    let conf = format!(
        "bindAddress=127.0.0.1\nlistenPort=0\nmetricsExporterType=DISABLE\nkvConfigPath={}\n",
        dir.path().join("kv.json").display()
    );
    let file = write(dir.path(), &conf);
    for (signal, seconds) in [("TERM", "11"), ("INT", "12")] {
        let (mut child, addr) = start(&file);
        let mut raw = Raw::connect(addr);
        raw.register(&Broker::new("a", 0, "h:1")).ok();
        let update = format!("waitSecondsForService={seconds}");
        raw.call(RequestCode::UPDATE_NAMESRV_CONFIG, &[], update.as_bytes()).ok();
        let pid = child.id().to_string();
        let killed = Command::new("kill").args([&format!("-{signal}"), &pid]).status().unwrap();
        assert!(killed.success());
        assert!(child.wait().unwrap().success(), "{signal}");
        let written = std::fs::read_to_string(&file).unwrap();
        assert!(written.contains(&format!("waitSecondsForService={seconds}\n")), "{written}");
    }
}
