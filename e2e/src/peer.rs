//! A name server and a broker as child processes: ours, or Apache's in their place.
//!
//! `ROCKETMQ_E2E_PEER=java` starts Apache's 5.3.3 instead of ours. The Java
//! broker is the expected value: a test that fails against it is wrong.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use tempfile::TempDir;

use crate::process::Process;
use crate::raw::{Raw, code};
use crate::{environment, ports, wait};

/// Ours takes milliseconds; a Java broker takes 10 s, and minutes where many compile.
const READY_LIMIT: Duration = Duration::from_secs(180);
const STOP_LIMIT: Duration = Duration::from_secs(60);
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// Cluster that the broker belongs to.
pub const CLUSTER: &str = "DefaultCluster";

/// Whose servers run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// The binaries of this project.
    Ours,
    /// Apache's 5.3.3.
    Java,
    /// Apache's 4.9.7, the newest 4.9 whose broker is published as a package.
    Java49,
}

impl Peer {
    /// By `ROCKETMQ_E2E_PEER`: unset or `ours`, or `java`.
    pub fn from_environment() -> Peer {
        match std::env::var("ROCKETMQ_E2E_PEER").as_deref() {
            Ok("java") => Peer::Java,
            Ok("ours" | "") | Err(_) => Peer::Ours,
            Ok(other) => panic!("ROCKETMQ_E2E_PEER is '{other}': expected ours or java"),
        }
    }

    fn command(self, directory: &Path, server: &str) -> Result<Command> {
        if self == Peer::Ours {
            return Ok(Command::new(environment::binary(server)?));
        }
        let version = if self == Peer::Java49 { "4.9.7" } else { "5.3.3" };
        let library = environment::java_library(&format!("peer-{version}"))?;
        let silent = directory.join("logback.xml");
        let text = "<configuration><root level=\"OFF\"/></configuration>";
        fs::write(&silent, text)?;
        // 4.9 knows these places alone, and does not start without.
        fs::create_dir_all(directory.join("conf"))?;
        fs::write(directory.join(format!("conf/logback_{server}.xml")), text)?;
        let mut command = Command::new("java");
        command
            .env("ROCKETMQ_HOME", directory)
            .arg(format!("-Drmq.logback.configurationFile={}", silent.display()))
            .arg(format!("-Duser.home={}", directory.display()));
        let main = if server == "broker" {
            command.args([
                "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
                "--add-opens=java.base/java.nio=ALL-UNNAMED",
                "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
                // 4.9 unmaps files through it.
                "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
                "-Xms256m",
                "-Xmx1g",
                "-XX:MaxDirectMemorySize=512m",
            ]);
            "org.apache.rocketmq.broker.BrokerStartup"
        } else {
            command.args(["-Xms64m", "-Xmx256m"]);
            "org.apache.rocketmq.namesrv.NamesrvStartup"
        };
        command.arg("-cp").arg(format!("{}/*", library.display())).arg(main);
        Ok(command)
    }
}

/// A running name server.
pub struct Namesrv {
    peer: Peer,
    directory: PathBuf,
    port: u16,
    process: Process,
}

impl Namesrv {
    /// Starts one and waits until it answers; its files are under `directory`.
    pub fn start(peer: Peer, directory: &Path) -> Result<Namesrv> {
        Self::start_with(peer, directory, &[])
    }

    /// As [`Namesrv::start`], with further lines of namesrv.conf.
    pub fn start_with(peer: Peer, directory: &Path, settings: &[(&str, &str)]) -> Result<Namesrv> {
        let port = ports::allocate()?;
        fs::create_dir_all(directory)?;
        let conf = directory.join("namesrv.conf");
        let mut text = format!(
            "listenPort={port}\nbindAddress=127.0.0.1\nkvConfigPath={0}/kvConfig.json\n\
             rocketmqHome={0}\n",
            directory.display()
        );
        if peer == Peer::Ours {
            text += &format!(
                "metricsExporterType=PROM\nmetricsPromExporterHost=127.0.0.1\n\
                 metricsPromExporterPort={}\n",
                port + 1
            );
        }
        for (key, value) in settings {
            text += &format!("{key}={value}\n");
        }
        fs::write(&conf, text)?;
        let process = Self::spawn(peer, directory)?;
        let mut namesrv = Namesrv { peer, directory: directory.to_owned(), port, process };
        namesrv.wait_ready()?;
        Ok(namesrv)
    }

    fn spawn(peer: Peer, directory: &Path) -> Result<Process> {
        let mut command = peer.command(directory, "namesrv")?;
        command.arg("-c").arg(directory.join("namesrv.conf"));
        Process::start("namesrv", &mut command, &directory.join("namesrv.log"))
    }

    fn wait_ready(&mut self) -> Result<()> {
        let address = self.address();
        let process = &mut self.process;
        wait::until("name server ready", READY_LIMIT, || {
            process.check_running()?;
            cluster_info(&address).map(drop)
        })
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// kill -9, then a start on the same port.
    pub fn kill_and_restart(&mut self) -> Result<()> {
        self.process.kill()?;
        self.process = Self::spawn(self.peer, &self.directory)?;
        self.wait_ready()
    }

    /// Its process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}

/// A broker: its configuration and data outlive its process.
pub struct Broker {
    peer: Peer,
    directory: PathBuf,
    namesrv: String,
    name: String,
    port: u16,
    environment: Vec<(String, String)>,
    process: Option<Process>,
}

impl Broker {
    /// Writes a configuration for `name` under `directory` and starts nothing yet.
    ///
    /// `settings` are further lines of broker.conf; they win over the small file sizes set here.
    pub fn new(
        peer: Peer,
        directory: &Path,
        namesrv: &str,
        name: &str,
        settings: &[(&str, &str)],
    ) -> Result<Broker> {
        fs::create_dir_all(directory)?;
        let port = ports::allocate()?;
        let store = directory.join("store");
        let mut conf = vec![
            ("brokerClusterName", CLUSTER.to_owned()),
            ("brokerName", name.to_owned()),
            ("brokerId", "0".to_owned()),
            ("brokerIP1", "127.0.0.1".to_owned()),
            ("brokerIP2", "127.0.0.1".to_owned()),
            ("namesrvAddr", namesrv.to_owned()),
            ("listenPort", port.to_string()),
            ("haListenPort", (port + 1).to_string()),
            ("bindAddress", "127.0.0.1".to_owned()),
            ("storePathRootDir", store.display().to_string()),
            ("storePathCommitLog", store.join("commitlog").display().to_string()),
            // Small enough that files roll over in a test.
            ("mappedFileSizeCommitLog", (16 * 1024 * 1024).to_string()),
            ("mappedFileSizeConsumeQueue", (20 * 1000).to_string()),
        ];
        if peer == Peer::Ours {
            // Of the four ports in a row, the one that RocketMQ leaves free.
            conf.push(("metricsExporterType", "PROM".to_owned()));
            conf.push(("metricsPromExporterHost", "127.0.0.1".to_owned()));
            conf.push(("metricsPromExporterPort", (port - 1).to_string()));
        } else {
            // A cold JVM on a busy machine is slow, not overloaded.
            conf.push(("waitTimeMillsInSendQueue", "10000".to_owned()));
        }
        conf.retain(|(key, _)| !settings.iter().any(|(given, _)| given == key));
        let mut text = String::new();
        for (key, value) in conf.iter().map(|(key, value)| (*key, value.as_str())) {
            text += &format!("{key}={value}\n");
        }
        for (key, value) in settings {
            text += &format!("{key}={value}\n");
        }
        let broker = Broker {
            peer,
            directory: directory.to_owned(),
            namesrv: namesrv.to_owned(),
            name: name.to_owned(),
            port,
            environment: Vec::new(),
            process: None,
        };
        fs::write(broker.configuration(), text)?;
        Ok(broker)
    }

    /// Its broker.conf.
    pub fn configuration(&self) -> PathBuf {
        self.directory.join("broker.conf")
    }

    /// The command that starts a broker with the configuration file `configuration`.
    pub fn command(&self, configuration: &Path) -> Result<Command> {
        let mut command = self.peer.command(&self.directory, "broker")?;
        command.arg("-c").arg(configuration);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }

    /// Sets a variable of the environment that the next start runs in.
    pub fn set_variable(&mut self, name: &str, value: &str) {
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    /// Lets another make of broker take the directory over with the next start.
    pub fn hand_over(&mut self, peer: Peer) -> Result<()> {
        ensure!(self.process.is_none(), "broker {} runs still", self.name);
        self.peer = peer;
        Ok(())
    }

    /// Starts it and waits until it answers and is routed.
    pub fn start(&mut self) -> Result<()> {
        ensure!(self.process.is_none(), "broker {} runs already", self.name);
        let process =
            Process::start("broker", &mut self.command(&self.configuration())?, &self.log())?;
        let process = self.process.insert(process);
        let address = format!("127.0.0.1:{}", self.port);
        wait::until(&format!("broker {} ready", self.name), READY_LIMIT, || {
            process.check_running()?;
            let answer = Raw::connect(&address, ANSWER_LIMIT)?.call(
                code::GET_BROKER_RUNTIME_INFO,
                &json!({}),
                &[],
            )?;
            ensure!(answer.code == 0, "broker answers {}: {}", answer.code, answer.remark);
            // It registers with all of them at the same time.
            let namesrv = self.namesrv.split(';').next().unwrap_or_default();
            let routed = cluster_info(namesrv)?;
            ensure!(routed.contains(&format!("\"{address}\"")), "not registered yet: {routed}");
            Ok(())
        })
    }

    /// kill -9.
    pub fn kill(&mut self) -> Result<()> {
        self.running()?.kill()?;
        self.process = None;
        Ok(())
    }

    /// SIGTERM; gives how it ended.
    pub fn terminate(&mut self) -> Result<ExitStatus> {
        let status = self.running()?.terminate(STOP_LIMIT)?;
        self.process = None;
        Ok(status)
    }

    /// Its process; an error when it does not run.
    pub fn running(&mut self) -> Result<&mut Process> {
        match &mut self.process {
            Some(process) => Ok(process),
            None => anyhow::bail!("broker {} does not run", self.name),
        }
    }

    /// Whether it was started and neither killed nor terminated since.
    pub fn is_started(&self) -> bool {
        self.process.is_some()
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Its brokerName.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its storePathRootDir.
    pub fn store(&self) -> PathBuf {
        self.directory.join("store")
    }

    /// What it prints.
    pub fn log(&self) -> PathBuf {
        self.directory.join("broker.log")
    }
}

/// One name server and one broker in a directory of their own.
pub struct Servers {
    /// The name server.
    pub namesrv: Namesrv,
    /// The broker.
    pub broker: Broker,
    // Last, so that the processes are gone when it is removed.
    directory: TempDir,
}

impl Servers {
    /// Starts both; `settings` as for [`Broker::new`].
    pub fn start(settings: &[(&str, &str)]) -> Result<Servers> {
        let mut servers = Self::prepare("broker-a", settings)?;
        servers.broker.start()?;
        Ok(servers)
    }

    /// Starts the name server and only prepares the broker, whose store can be filled first.
    pub fn prepare(name: &str, settings: &[(&str, &str)]) -> Result<Servers> {
        let peer = Peer::from_environment();
        let directory = tempfile::Builder::new().prefix("rocketmq-e2e-").tempdir()?;
        let namesrv = Namesrv::start(peer, &directory.path().join("namesrv"))?;
        let broker =
            Broker::new(peer, &directory.path().join(name), &namesrv.address(), name, settings)?;
        Ok(Servers { namesrv, broker, directory })
    }

    /// A place for files of the test.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Creates a topic with as many readable as writeable queues and waits until it is routed.
    pub fn create_topic(&self, topic: &str, queues: u32) -> Result<()> {
        let fields = json!({
            "topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues.to_string(),
            "writeQueueNums": queues.to_string(), "perm": "6", "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0", "order": "false",
        });
        let answer = Raw::connect(&self.broker.address(), ANSWER_LIMIT)?.call(
            code::UPDATE_AND_CREATE_TOPIC,
            &fields,
            &[],
        )?;
        ensure!(answer.code == 0, "create topic {topic}: {}: {}", answer.code, answer.remark);
        self.wait_routed(topic)
    }

    /// Waits until the name server has a topic's route.
    pub fn wait_routed(&self, topic: &str) -> Result<()> {
        wait::until(&format!("route of topic {topic}"), READY_LIMIT, || {
            let answer = Raw::connect(&self.namesrv.address(), ANSWER_LIMIT)?.call(
                code::GET_ROUTEINFO_BY_TOPIC,
                &json!({"topic": topic}),
                &[],
            )?;
            ensure!(answer.code == 0, "name server answers {}: {}", answer.code, answer.remark);
            Ok(())
        })
    }

    /// Address of the name server.
    pub fn namesrv_address(&self) -> String {
        self.namesrv.address()
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        // A failed test is explained by what the broker said.
        if std::thread::panicking() {
            let log = fs::read(self.broker.log()).unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            let lines: Vec<&str> = log.lines().collect();
            eprintln!("--- end of the broker's log ---");
            for line in &lines[lines.len().saturating_sub(40)..] {
                eprintln!("{line}");
            }
        }
    }
}

/// The body of GET_BROKER_CLUSTER_INFO; its map keys are integers, so it is no strict JSON.
fn cluster_info(namesrv: &str) -> Result<String> {
    let answer = Raw::connect(namesrv, ANSWER_LIMIT)?.call(
        code::GET_BROKER_CLUSTER_INFO,
        &json!({}),
        &[],
    )?;
    ensure!(answer.code == 0, "name server answers {}: {}", answer.code, answer.remark);
    Ok(String::from_utf8_lossy(&answer.body).into_owned())
}
