//! What mqadmin 5.3.3 shows of groups, queues, figures and traces, and what it does to them.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::admin::Mqadmin;
use e2e::line::Line;
use e2e::peer::{CLUSTER, Servers};
use e2e::programs::{Client, Program, Programs};
use e2e::wait;

use crate::mqadmin::{has, row};

const LIMIT: Duration = Duration::from_secs(60);
const TOPIC: &str = "Watched";
const GROUP: &str = "watchers";
const SENT: usize = 20;

struct Scene {
    admin: Mqadmin,
    broker: String,
    consumer: Program,
    sent: Vec<Line>,
    // The programs end before the servers do.
    _programs: Programs,
    servers: Servers,
}

#[test]
fn mqadmin_sees_into_groups_queues_and_figures() -> Result<()> {
    let mut scene = Scene::set()?;
    scene.consumers().context("consumers")?;
    scene.figures().context("figures")?;
    scene.messages().context("messages")?;
    scene.traces().context("traces")?;
    scene.offsets().context("offsets")?;
    scene.servers().context("servers")
}

impl Scene {
    /// A topic with messages that a group has consumed; the producer left traces.
    fn set() -> Result<Scene> {
        let servers = Servers::start(&[("traceTopicEnable", "true")])?;
        let namesrv = servers.namesrv_address();
        let broker = servers.broker.address();
        let mut admin = Mqadmin::start(&namesrv, servers.directory())?;
        admin.succeed(&["updateTopic", "-t", TOPIC, "-b", &broker, "-r", "2", "-w", "2"])?;
        let programs = Programs::start(Client::Java53, servers.directory())?;
        let consumer = programs.consume(&namesrv, &["--topic", TOPIC, "--group", GROUP])?;
        consumer.wait_assigned(2)?;
        let count = SENT.to_string();
        let arguments = [
            "--topic",
            TOPIC,
            "--count",
            &count,
            "--tags",
            "A",
            "--key-prefix",
            "seen",
            "--timeout-ms",
            "15000",
            "--trace",
        ];
        let sent = programs.produce(&namesrv, &arguments)?.finish(LIMIT)?;
        consumer.wait_received(SENT, LIMIT)?;
        Ok(Scene { admin, broker, consumer, sent, _programs: programs, servers })
    }

    fn client_id(&mut self) -> Result<String> {
        let out = self.admin.succeed(&["consumerConnection", "-g", GROUP])?;
        let line = out.lines().find(|line| line.contains("JAVA")).context("no client")?;
        // A row: client id, address, language, version.
        let id = line.split_whitespace().next().context("no client id")?;
        Ok(id.to_owned())
    }

    fn consumers(&mut self) -> Result<()> {
        let client = self.client_id()?;
        let admin = &mut self.admin;
        let out = admin.succeed(&["consumerStatus", "-g", GROUP])?;
        has(&out, &[&client, "V5_3_3", "Rebalance OK", "Same subscription"])?;
        // One of the properties is called after an exception.
        let out = admin.call(&["consumerStatus", "-g", GROUP, "-i", &client, "-s"])?;
        has(
            &out,
            &["#Consumer Properties#", "#Consumer Subscription#", TOPIC, "#Consumer jstack#"],
        )?;
        let out = admin.succeed(&["getConsumerConfig", "-g", GROUP])?;
        has(&out, &["retryMaxTimes", "16", "broker-a"])?;
        // The client commits every 5 s; its address is taken from its id.
        let host = client.split('@').next().unwrap_or_default();
        wait::until("progress with addresses", LIMIT, || -> Result<()> {
            let out = admin.succeed(&["consumerProgress", "-g", GROUP, "-s", "true"])?;
            has(&out, &["Consume Diff Total: 0", host])
        })?;
        let out = admin.succeed(&["producer", "-b", &self.broker])?;
        has(&out, &["producer group (CLIENT_INNER_PRODUCER) instance", "language=JAVA"])?;
        let mode = ["setConsumeMode", "-b", &self.broker, "-t", TOPIC, "-g", GROUP, "-m", "PULL"];
        let out = admin.succeed(&mode)?;
        has(&out, &["set consume mode to", "success"])
    }

    fn figures(&mut self) -> Result<()> {
        let admin = &mut self.admin;
        let out = admin.succeed(&["brokerConsumeStats", "-b", &self.broker])?;
        has(&out, &["Diff Total: 0"])?;
        let mut total = 0;
        for queue in ["0", "1"] {
            let row = row(&out, &[TOPIC, GROUP, "broker-a", queue])?;
            total += row[4].parse::<usize>()?;
        }
        ensure!(total == SENT, "brokerConsumeStats:\n{out}");
        // Figures are sampled every 10 s.
        wait::until("figures", LIMIT, || -> Result<()> {
            let out = admin.succeed(&["statsAll", "-t", TOPIC])?;
            // Accumulation, messages a second in and out, messages of 24 h in and out.
            let row = row(&out, &[TOPIC, GROUP, "0"])?;
            ensure!(row[5] == SENT.to_string() && row[6] == SENT.to_string(), "statsAll: {row:?}");
            Ok(())
        })?;
        Ok(())
    }

    fn messages(&mut self) -> Result<()> {
        let client = self.client_id()?;
        let admin = &mut self.admin;
        let sent = self.sent.iter().find_map(|line| match line {
            Line::Send(sent) => Some(sent.clone()),
            _ => None,
        });
        let sent = sent.context("no send")?;
        let id = sent.offset_msg_id.context("no offset id")?;
        let out =
            admin.succeed(&["queryMsgById", "-t", TOPIC, "-i", &id, "-g", GROUP, "-d", &client])?;
        has(&out, &["CR_SUCCESS"])?;
        self.consumer.wait_received(SENT + 1, LIMIT)?;
        let queue = sent.queue_id.context("no queue")?.to_string();
        let offset = sent.queue_offset.context("no offset")?.to_string();
        let out = admin.succeed(&[
            "queryCq",
            "-t",
            TOPIC,
            "-q",
            &queue,
            "-i",
            "0",
            "-c",
            "3",
            "-g",
            GROUP,
            "-b",
            &self.broker,
        ])?;
        has(&out, &["Subscription data", "\"subString\":\"*\"", "physicOffset", "min: 0"])?;
        let out = admin.succeed(&["printMsg", "-t", TOPIC])?;
        let shown = out.matches("MSGID: ").count();
        ensure!(shown == SENT, "printMsg shows {shown} messages:\n{out}");
        let by_queue = [
            "printMsgByQueue",
            "-t",
            TOPIC,
            "-a",
            "broker-a",
            "-i",
            &queue,
            "-p",
            "true",
            "-d",
            "true",
            "-f",
            "true",
        ];
        let out = admin.succeed(&by_queue)?;
        has(&out, &["MSGID: ", "Tag: A"])?;
        let one = ["-t", TOPIC, "-b", "broker-a", "-i", &queue, "-o", &offset];
        let out = admin.succeed(&[&["consumeMessage"][..], &one[..], &["-c", "1"][..]].concat())?;
        has(&out, &["MSGID: ", &sent.key])?;
        // A Java broker names the topic among its groups, at which the command shows an error.
        let out = admin.call(&[&["queryMsgByOffset"][..], &one[..]].concat())?;
        has(&out, &[&sent.key])?;
        let out = admin.succeed(&["checkMsgSendRT", "-t", TOPIC, "-a", "5", "-s", "32"])?;
        has(&out, &["Avg RT:", "true"])?;
        ensure!(!out.contains("false"), "checkMsgSendRT:\n{out}");
        self.consumer.wait_received(SENT + 1 + 5, LIMIT)?;
        let out = admin.succeed(&["sendMsgStatus", "-b", "broker-a", "-c", "3"])?;
        let sent = out.matches("SEND_OK").count();
        ensure!(sent >= 3, "sendMsgStatus: {sent} sends:\n{out}");
        Ok(())
    }

    fn traces(&mut self) -> Result<()> {
        let ids = self.sent.iter().find_map(|line| match line {
            Line::Send(sent) => sent.msg_id.clone(),
            _ => None,
        });
        let id = ids.context("no message id")?;
        wait::until("the trace of a send", LIMIT, || -> Result<()> {
            let out = self.admin.succeed(&["queryMsgTraceById", "-i", &id])?;
            has(&out, &["Pub", "e2e_producer", "success"])
        })
    }

    fn offsets(&mut self) -> Result<()> {
        const CLONE: &str = "cloned";
        let admin = &mut self.admin;
        admin.succeed(&["updateSubGroup", "-b", &self.broker, "-g", CLONE])?;
        let out = admin.succeed(&[
            "cloneGroupOffset",
            "-s",
            GROUP,
            "-d",
            CLONE,
            "-t",
            TOPIC,
            "-o",
            "true",
        ])?;
        has(&out, &["clone group offset success"])?;
        let out = admin.succeed(&["brokerConsumeStats", "-b", &self.broker])?;
        row(&out, &[TOPIC, CLONE, "broker-a", "0"])?;
        let before = received(&self.consumer);
        let reset = ["resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s"];
        let out = admin.succeed(&[&reset[..], &["1"][..]].concat())?;
        has(&out, &["#brokerName", "broker-a"])?;
        // What was sent by both programs comes again.
        self.consumer.wait_received(before + SENT + 5, LIMIT)?;
        let out =
            admin.succeed(&["skipAccumulatedMessage", "-g", GROUP, "-t", TOPIC, "-f", "true"])?;
        has(&out, &["broker-a"])?;
        self.consumer.stop()?;
        // Offline groups can be moved, too.
        let out = admin.succeed(&[&reset[..], &["now"][..]].concat())?;
        has(&out, &["broker-a"])?;
        let out = admin.call(&["consumerStatus", "-g", GROUP])?;
        has(&out, &["CODE: 206"])
    }

    fn servers(&mut self) -> Result<()> {
        let admin = &mut self.admin;
        let out = admin.succeed(&["haStatus", "-b", &self.broker])?;
        has(&out, &["#MasterCommitLogMaxOffset", "#SlaveNum\t0"])?;
        let out = admin.succeed(&["clusterList", "-m"])?;
        has(&out, &["broker-a"])?;
        let exported = self.servers.directory().join("exported");
        let exported = exported.to_string_lossy();
        for (command, file, wanted) in [
            ("exportMetrics", "metrics.json", "\"totalTps\""),
            ("exportConfigs", "configs.json", "\"brokerConfigs\""),
            ("exportMetadata", "metadata.json", TOPIC),
        ] {
            let out = admin.succeed(&[command, "-c", CLUSTER, "-f", &exported])?;
            has(&out, &["success"])?;
            let text = std::fs::read_to_string(format!("{exported}/{file}"))
                .with_context(|| format!("{command} left no {file}"))?;
            ensure!(text.contains(wanted), "{command}: no {wanted} in {text}");
        }
        let out = admin.call(&["getBrokerEpoch", "-b", "broker-a"])?;
        has(&out, &["CODE: 1 "])
    }
}

fn received(consumer: &Program) -> usize {
    consumer.lines().iter().filter(|line| matches!(line, Line::Recv(_))).count()
}
