//! Load by frames from this process, for what a client library would hide or limit: many requests
//! are written before their answers are read.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::peer::{Broker, Namesrv, Peer};
use e2e::raw::{Answer, Raw, code, frame};
use serde_json::{Value, json};

/// Requests on their way at one time.
const WINDOW: usize = 256;
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// A name server and a broker with a topic of one queue.
pub struct Bench {
    _namesrv: Namesrv,
    pub broker: Broker,
    pub topic: &'static str,
}

impl Bench {
    /// Starts both in `directory`, which is made.
    pub fn start(peer: Peer, directory: &Path, settings: &[(&str, &str)]) -> Result<Bench> {
        let namesrv = Namesrv::start(peer, &directory.join("namesrv"))?;
        let mut all = vec![
            ("mappedFileSizeCommitLog", "1073741824"),
            ("mappedFileSizeConsumeQueue", "6000000"),
            // The load runs into no flow control on a slow disk.
            ("waitTimeMillsInSendQueue", "30000"),
        ];
        all.extend_from_slice(settings);
        let mut broker =
            Broker::new(peer, &directory.join("broker"), &namesrv.address(), "bench", &all)?;
        broker.start()?;
        let bench = Bench { _namesrv: namesrv, broker, topic: "Bench" };
        let fields = json!({
            "topic": bench.topic, "defaultTopic": "TBW102", "readQueueNums": "1",
            "writeQueueNums": "1", "perm": "6", "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0", "order": "false",
        });
        bench.call(code::UPDATE_AND_CREATE_TOPIC, &fields, b"")?;
        Ok(bench)
    }

    pub fn connect(&self) -> Result<Raw> {
        Raw::connect(&self.broker.address(), ANSWER_LIMIT)
    }

    /// One request that must succeed.
    pub fn call(&self, request: i32, fields: &Value, body: &[u8]) -> Result<Answer> {
        let answer = self.connect()?.call(request, fields, body)?;
        ensure!(answer.code == 0, "request {request}: {}: {}", answer.code, answer.remark);
        Ok(answer)
    }

    /// The header of a send to the topic.
    pub fn send_fields(&self, properties: &str, is_batch: bool) -> Value {
        json!({
            "a": "bench", "b": self.topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1",
            "h": "0", "i": properties, "j": "0", "k": "false", "m": is_batch.to_string(),
        })
    }

    /// The offset behind the newest message of a topic's first queue.
    pub fn max_offset(&self, topic: &str) -> Result<i64> {
        let fields = json!({"topic": topic, "queueId": "0", "committed": "true"});
        let answer = self.call(code::GET_MAX_OFFSET, &fields, b"")?;
        Ok(answer.field("offset").context("no offset")?.parse()?)
    }

    /// Waits until the first queue of `topic` holds `count` messages.
    pub fn wait_for(&self, topic: &str, count: i64, limit: Duration) -> Result<()> {
        let until = std::time::Instant::now() + limit;
        loop {
            let max = self.max_offset(topic)?;
            if max >= count {
                return Ok(());
            }
            ensure!(std::time::Instant::now() < until, "{topic} holds {max} of {count} messages");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Writes `count` requests, a window of them at a time, and reads their answers, which must be
/// successes. `request` makes the frame with the number that it is given, `answered` sees each
/// answer with its number.
pub fn pipeline(
    raw: &mut Raw,
    count: usize,
    mut request: impl FnMut(usize) -> Vec<u8>,
    mut answered: impl FnMut(usize, &Answer) -> Result<()>,
) -> Result<()> {
    let mut out = Vec::new();
    let mut sent = 0;
    while sent < count {
        out.clear();
        let window = WINDOW.min(count - sent);
        for number in sent..sent + window {
            out.extend_from_slice(&request(number));
        }
        raw.write(&out)?;
        for _ in 0..window {
            let answer = raw.read()?.context("closed instead of an answer")?;
            ensure!(answer.code == 0, "{}: {}", answer.code, answer.remark);
            answered(usize::try_from(answer.opaque)?, &answer)?;
        }
        sent += window;
    }
    Ok(())
}

/// A frame whose number is that of the request in its pipeline.
pub fn numbered(request: i32, number: usize, fields: &Value, body: &[u8]) -> Vec<u8> {
    frame(request, number as i32, fields, body)
}

/// Where a sent message lies in the log, from the id of its answer: address (16 digits), offset (16).
pub fn physical_offset(answer: &Answer) -> Result<i64> {
    let id = answer.field("msgId").context("no msgId")?;
    let offset = id.get(16..32).with_context(|| format!("message id {id}"))?;
    i64::from_str_radix(offset, 16).with_context(|| format!("message id {id}"))
}
