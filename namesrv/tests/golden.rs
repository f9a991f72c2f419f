//! Requests that a real broker, real clients and mqadmin sent to a Java name server, replayed; our
//! answers must equal the Java ones wherever the state is the same.
//!
//! The recording keeps the first exchange of each kind only, so some registrations are missing from
//! it; a route of a topic that no recorded registration names cannot be compared.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod raw;

use std::collections::BTreeSet;
use std::path::Path;

use raw::{Answer, Raw, Server};
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::fastjson;
use rocketmq_protocol::frame::{Frame, LENGTH_BYTES};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Line {
    /// A number; other marks in scenarios that are no requests and answers.
    pair: Option<Value>,
    scenario: String,
    from: String,
    to: String,
    kind: String,
    hex: String,
}

struct Exchange {
    pair: i64,
    scenario: String,
    request: Vec<u8>,
    response: Vec<u8>,
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

fn exchanges() -> Vec<Exchange> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../e2e/testdata/golden/frames.jsonl");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let lines: Vec<Line> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut exchanges = Vec::new();
    for line in lines.iter().filter(|line| line.to == "name server" && line.kind == "request") {
        let response = lines
            .iter()
            .find(|other| other.pair == line.pair && other.from == "name server")
            .expect("each request of the recording is answered");
        exchanges.push(Exchange {
            pair: line.pair.as_ref().and_then(Value::as_i64).expect("a request has a pair"),
            scenario: line.scenario.clone(),
            request: unhex(&line.hex),
            response: unhex(&response.hex),
        });
    }
    exchanges
}

fn body_json(body: &[u8]) -> Option<Value> {
    (!body.is_empty()).then(|| fastjson::from_slice(body).unwrap())
}

/// The topics that a registration lists.
fn topics_of(body: &[u8]) -> BTreeSet<String> {
    let body: Value = fastjson::from_slice(body).unwrap();
    let table = &body["topicConfigSerializeWrapper"]["topicConfigTable"];
    table.as_object().unwrap().keys().cloned().collect()
}

fn sorted(value: &Value) -> Vec<String> {
    let mut items: Vec<String> =
        value.as_array().unwrap().iter().map(|v| v.as_str().unwrap().to_owned()).collect();
    items.sort();
    items
}

fn replay(raw: &mut Raw, request: &[u8]) -> Answer {
    raw.write(request);
    raw.receive()
}

#[test]
fn the_answers_equal_those_of_the_java_name_server() {
    let mut server = Server::start(&[]);
    let mut raw = server.connect();
    let mut topics = BTreeSet::new();
    let (mut put_kv, mut delete_kv) = (Vec::new(), Vec::new());
    let mut compared = 0;
    for exchange in exchanges() {
        let request = Frame::decode(&exchange.request[LENGTH_BYTES..]).unwrap();
        let expected = Frame::decode(&exchange.response[LENGTH_BYTES..]).unwrap();
        let code = request.request_code();
        let name = format!("pair {} ({}) {code}", exchange.pair, exchange.scenario);
        if code == RequestCode::REGISTER_BROKER && topics.is_empty() {
            // The recording's name server was started anew.
            server = Server::start(&[]);
            raw = server.connect();
        }
        if code == RequestCode::PUT_KV_CONFIG {
            put_kv.clone_from(&exchange.request);
        }
        if code == RequestCode::GET_KV_CONFIG {
            // mqadmin had put the value once more, after the recorded deletion, and deleted it in
            // the end.
            assert_eq!(replay(&mut raw, &put_kv).code, ResponseCode::SUCCESS);
        }
        let answer = replay(&mut raw, &exchange.request);
        if code == RequestCode::UNREGISTER_BROKER
            && request.ext.get("brokerId").as_deref() == Some("0")
        {
            topics.clear();
        }
        if code == RequestCode::DELETE_KV_CONFIG {
            delete_kv.clone_from(&exchange.request);
        }
        if code == RequestCode::GET_KV_CONFIG {
            assert_eq!(replay(&mut raw, &delete_kv).code, ResponseCode::SUCCESS);
        }
        assert_eq!(answer.opaque, request.opaque, "{name}");
        if code == RequestCode::REGISTER_BROKER {
            topics.extend(topics_of(request.body));
        }
        if code == RequestCode::GET_ROUTEINFO_BY_TOPIC {
            let topic = request.ext.get("topic").unwrap();
            let recorded = expected.response_code() == ResponseCode::SUCCESS;
            if recorded && !topics.contains(&*topic) {
                assert_eq!(answer.code, ResponseCode::TOPIC_NOT_EXIST, "{name}");
                continue;
            }
        }
        assert_eq!(answer.code, expected.response_code(), "{name}: {answer:?}");
        compared += 1;
        match code {
            RequestCode::GET_ALL_TOPIC_LIST_FROM_NAMESERVER => {
                let ours: BTreeSet<String> =
                    sorted(&answer.json()["topicList"]).into_iter().collect();
                let theirs = sorted(&body_json(expected.body).unwrap()["topicList"]);
                assert_eq!(ours, topics, "{name}");
                // mqadmin's own topics came in registrations of one topic each, all but the first
                // kind not recorded.
                let unseen = theirs.iter().filter(|topic| !topic.starts_with("AdmT_"));
                let unseen: Vec<_> = unseen.filter(|topic| !ours.contains(*topic)).collect();
                assert!(unseen.is_empty(), "{name}: {unseen:?}");
                assert!(ours.iter().all(|topic| theirs.contains(topic)), "{name}");
            }
            RequestCode::WIPE_WRITE_PERM_OF_BROKER | RequestCode::ADD_WRITE_PERM_OF_BROKER => {
                assert_eq!(answer.ext.len(), expected.ext.len(), "{name}");
                let count: usize = answer.ext.values().next().unwrap().parse().unwrap();
                assert_eq!(count, topics.len(), "{name}");
            }
            // Unlike the routes of 4.x, paths and ports are the machine's; the keys must be there.
            RequestCode::GET_NAMESRV_CONFIG => {
                let ours = String::from_utf8(answer.body).unwrap();
                let theirs = String::from_utf8(expected.body.to_vec()).unwrap();
                for line in theirs.lines() {
                    let (key, _) = line.split_once('=').unwrap();
                    assert!(ours.lines().any(|l| l.starts_with(&format!("{key}="))), "{key}");
                }
            }
            _ => {
                let ext: Vec<(String, String)> =
                    expected.ext.iter().map(|(k, v)| (k.into_owned(), v.into_owned())).collect();
                assert_eq!(answer.ext.into_iter().collect::<Vec<_>>(), ext, "{name}");
                assert_eq!(body_json(&answer.body), body_json(expected.body), "{name}");
                if answer.code == ResponseCode::TOPIC_NOT_EXIST {
                    let (ours, theirs) = (answer.remark.unwrap(), expected.remark.unwrap());
                    assert!(theirs.starts_with(ours.lines().next().unwrap()), "{ours} | {theirs}");
                }
            }
        }
    }
    assert!(compared > 40, "only {compared} exchanges were compared");
}
