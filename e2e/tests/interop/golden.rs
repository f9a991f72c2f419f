//! The store directory of a Java broker opens here, and every message in it is as it was.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::golden;
use e2e::peer::Servers;
use e2e::programs::{Client, Programs, received};
use e2e::raw::{Raw, code};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(60);

/// Topics whose waiting messages may fall due while a Java broker looks on.
const DUE_LATER: [&str; 2] = ["GoldenDelay", "GoldenTimer"];

#[test]
fn a_java_store_opens_after_a_clean_stop() -> Result<()> {
    serve("clean")
}

#[test]
fn a_java_store_opens_after_a_kill() -> Result<()> {
    serve("unclean")
}

fn serve(archive: &str) -> Result<()> {
    let mut servers = Servers::prepare(golden::BROKER_NAME, golden::SETTINGS)?;
    let store = servers.broker.store();
    golden::unpack(archive, store.parent().context("a store without a parent")?)?;
    ensure!(store.join("abort").exists() == (archive == "unclean"), "abort file of {archive}");
    servers.broker.start()?;
    let manifest = golden::manifest()?;
    records_by_id(&servers, &manifest)?;
    messages_by_pull(&servers, &manifest)?;
    // And it takes new messages behind the old ones.
    let mut raw = Raw::connect(&servers.broker.address(), LIMIT)?;
    let fields = json!({"producerGroup": "g", "topic": "GoldenNormal", "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "0", "bornTimestamp": "1",
        "flag": "0", "properties": "KEYS\u{1}new\u{2}", "reconsumeTimes": "0", "unitMode": "false"});
    let answer = raw.call(code::SEND_MESSAGE, &fields, b"new message")?;
    ensure!(answer.code == 0, "send: {} {}", answer.code, answer.remark);
    ensure!(answer.field("queueOffset") == Some("11"), "queue offset {:?}", answer.fields);
    Ok(())
}

/// Every record of the log, those of system topics too, by its offset id.
fn records_by_id(servers: &Servers, manifest: &Value) -> Result<()> {
    let records = manifest["unclean"]["commitLog"].as_array().context("commitLog")?;
    let mut raw = Raw::connect(&servers.broker.address(), LIMIT)?;
    let mut compared = 0;
    for expected in records.iter().filter(|record| record["blank"].is_null()) {
        let offset = expected["physicalOffset"].to_string();
        let fields = json!({"offset": offset, "topic": expected["topic"]});
        let answer = raw.call(code::VIEW_MESSAGE_BY_ID, &fields, &[])?;
        ensure!(answer.code == 0, "message at {offset}: {} {}", answer.code, answer.remark);
        let record =
            Record::decode(&answer.body).with_context(|| format!("message at {offset}"))?;
        record.compare(expected).with_context(|| format!("message at {offset}"))?;
        compared += 1;
    }
    ensure!(compared == 93, "{compared} of 93 records");
    Ok(())
}

/// Every message of the topics, as Apache's pull consumer sees it.
fn messages_by_pull(servers: &Servers, manifest: &Value) -> Result<()> {
    let expected = manifest["pulled"].as_array().context("pulled")?;
    let mut topics: Vec<&str> =
        expected.iter().filter_map(|message| message["topic"].as_str()).collect();
    topics.sort_unstable();
    topics.dedup();
    let programs = Programs::start(Client::Java53, servers.directory())?;
    let arguments = ["--topic", &topics.join(","), "--mode", "pull", "--group", "golden_reader"];
    let lines = programs.consume(&servers.namesrv_address(), &arguments)?.finish(LIMIT)?;
    let mut pulled: BTreeMap<(String, i32, i64), Value> = BTreeMap::new();
    for message in received(&lines) {
        let place = (message.topic.clone(), message.queue_id, message.queue_offset);
        let value = json!({
            "topic": message.topic, "queueId": message.queue_id, "queueOffset": message.queue_offset,
            "physicalOffset": message.physical_offset, "size": message.size, "msgId": message.msg_id,
            "tags": message.tags, "keys": message.keys, "flag": message.flag,
            "sysFlag": message.sys_flag, "bodyCRC": message.body_crc,
            "bornTimestamp": message.born_timestamp, "bornHost": message.born_host,
            "storeTimestamp": message.store_timestamp, "storeHost": message.store_host,
            "reconsumeTimes": message.reconsume_times,
            "preparedTransactionOffset": message.prepared_transaction_offset,
            "properties": message.properties, "bodyLength": message.body_length,
            "bodySha256": message.body_sha256,
        });
        ensure!(pulled.insert(place.clone(), value).is_none(), "{place:?} was pulled twice");
    }
    for expected in expected {
        let place = (
            expected["topic"].as_str().unwrap_or_default().to_owned(),
            expected["queueId"].as_i64().unwrap_or(-1) as i32,
            expected["queueOffset"].as_i64().unwrap_or(-1),
        );
        let found = pulled.remove(&place).with_context(|| format!("{place:?} was not pulled"))?;
        for (name, value) in found.as_object().into_iter().flatten() {
            let mut wanted = expected[name.as_str()].clone();
            if name == "properties" && DUE_LATER.contains(&place.0.as_str()) {
                // The queue may have grown by a message that fell due.
                wanted["MAX_OFFSET"] = value["MAX_OFFSET"].clone();
            }
            ensure!(*value == wanted, "{place:?}: {name} is {value}, was {wanted}");
        }
    }
    pulled.retain(|place, _| !DUE_LATER.contains(&place.0.as_str()));
    ensure!(pulled.is_empty(), "messages that were not in the store: {pulled:#?}");
    Ok(())
}

/// A record of the log, read by hand from the layout of RocketMQ's MessageDecoder.
#[derive(Debug)]
struct Record {
    fields: BTreeMap<&'static str, Value>,
    body: Vec<u8>,
}

impl Record {
    fn decode(bytes: &[u8]) -> Result<Record> {
        let mut reader = Reader { rest: bytes };
        let mut fields = BTreeMap::new();
        fields.insert("size", json!(reader.int()?));
        fields.insert("magic", json!(format!("{:08x}", reader.int()?)));
        fields.insert("bodyCRC", json!(reader.int()?));
        fields.insert("queueId", json!(reader.int()?));
        fields.insert("flag", json!(reader.int()?));
        fields.insert("queueOffset", json!(reader.long()?));
        fields.insert("physicalOffset", json!(reader.long()?));
        fields.insert("sysFlag", json!(reader.int()?));
        fields.insert("bornTimestamp", json!(reader.long()?));
        fields.insert("bornHost", json!(reader.host()?));
        fields.insert("storeTimestamp", json!(reader.long()?));
        fields.insert("storeHost", json!(reader.host()?));
        fields.insert("reconsumeTimes", json!(reader.int()?));
        fields.insert("preparedTransactionOffset", json!(reader.long()?));
        let body_length = reader.int()? as usize;
        fields.insert("bodyLength", json!(body_length));
        let body = reader.take(body_length)?.to_vec();
        let topic_length = usize::from(reader.take(1)?[0]);
        fields.insert("topic", json!(std::str::from_utf8(reader.take(topic_length)?)?));
        let properties_length = i16::from_be_bytes(reader.array()?) as usize;
        let properties = std::str::from_utf8(reader.take(properties_length)?)?;
        let properties: BTreeMap<&str, &str> = properties
            .split('\u{2}')
            .filter(|pair| !pair.is_empty())
            .map(|pair| pair.split_once('\u{1}').unwrap_or((pair, "")))
            .collect();
        fields.insert("properties", json!(properties));
        ensure!(reader.rest.is_empty(), "{} bytes behind the record", reader.rest.len());
        Ok(Record { fields, body })
    }

    fn compare(&self, expected: &Value) -> Result<()> {
        for (name, value) in &self.fields {
            ensure!(*value == expected[*name], "{name} is {value}, was {}", expected[*name]);
        }
        if let Some(text) = expected["bodyText"].as_str() {
            ensure!(self.body == text.as_bytes(), "body differs from '{text}'");
        }
        Ok(())
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self
            .rest
            .split_at_checked(count)
            .with_context(|| format!("{count} bytes wanted, {} left", self.rest.len()))?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.take(N)?.try_into()?)
    }

    fn int(&mut self) -> Result<i32> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    fn long(&mut self) -> Result<i64> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    /// The golden store knows IPv4 hosts only.
    fn host(&mut self) -> Result<String> {
        let [a, b, c, d] = self.array()?;
        Ok(format!("{a}.{b}.{c}.{d}:{}", self.int()?))
    }
}
