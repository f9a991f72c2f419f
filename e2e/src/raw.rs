//! The remoting protocol by hand, over a plain socket.
//!
//! Written from the format alone, without our own protocol crate, so that a
//! fault there cannot hide itself; and able to send what no client would.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value, json};

/// Request codes of RocketMQ that the tests send by hand.
#[allow(missing_docs)]
pub mod code {
    pub const SEND_MESSAGE: i32 = 10;
    pub const PULL_MESSAGE: i32 = 11;
    pub const QUERY_CONSUMER_OFFSET: i32 = 14;
    pub const UPDATE_CONSUMER_OFFSET: i32 = 15;
    pub const UPDATE_AND_CREATE_TOPIC: i32 = 17;
    pub const GET_BROKER_RUNTIME_INFO: i32 = 28;
    pub const GET_MAX_OFFSET: i32 = 30;
    pub const VIEW_MESSAGE_BY_ID: i32 = 33;
    pub const CONSUMER_SEND_MSG_BACK: i32 = 36;
    pub const END_TRANSACTION: i32 = 37;
    pub const GET_ROUTEINFO_BY_TOPIC: i32 = 105;
    pub const GET_BROKER_CLUSTER_INFO: i32 = 106;
    pub const SEND_MESSAGE_V2: i32 = 310;
    pub const SEND_BATCH_MESSAGE: i32 = 320;
    pub const GET_BROKER_HA_STATUS: i32 = 907;
    pub const CONTROLLER_GET_REPLICA_INFO: i32 = 1004;
    pub const CONTROLLER_GET_METADATA_INFO: i32 = 1005;
    pub const GET_BROKER_EPOCH_CACHE: i32 = 1007;
}

/// RocketMQ's bound of a frame.
pub const MAX_FRAME_BYTES: usize = 16 * 1024 * 1024;

/// An answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Response code; 0 is success.
    pub code: i64,
    /// The request's number.
    pub opaque: i64,
    /// What the other side says, above all in errors.
    pub remark: String,
    /// Header fields, all as text.
    pub fields: Map<String, Value>,
    /// Body.
    pub body: Vec<u8>,
}

impl Answer {
    /// A header field as text.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).and_then(Value::as_str)
    }
}

/// A frame with a JSON header, length word included.
pub fn frame(code: i32, opaque: i32, fields: &Value, body: &[u8]) -> Vec<u8> {
    let header = json!({
        "code": code, "language": "JAVA", "version": 479, "opaque": opaque, "flag": 0,
        "extFields": fields, "serializeTypeCurrentRPC": "JSON",
    });
    frame_of(header.to_string().as_bytes(), body)
}

/// A frame around any header bytes, length words right.
pub fn frame_of(header: &[u8], body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(8 + header.len() + body.len());
    frame.extend_from_slice(&((4 + header.len() + body.len()) as u32).to_be_bytes());
    // The top byte names the encoding: 0 is JSON.
    frame.extend_from_slice(&(header.len() as u32).to_be_bytes());
    frame.extend_from_slice(header);
    frame.extend_from_slice(body);
    frame
}

/// The body of an HTTP answer, which must be 200.
pub fn http_get(address: &str, path: &str) -> Result<String> {
    let mut stream =
        TcpStream::connect(address).with_context(|| format!("connect to {address}"))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").context("no end of the HTTP header")?;
    let status = head.lines().next().unwrap_or_default();
    ensure!(status.contains(" 200 "), "{address}{path} answers {status}");
    Ok(body.to_owned())
}

/// A connection that reads and writes frames, or any bytes.
pub struct Raw {
    stream: TcpStream,
    next: i32,
}

impl Raw {
    /// Connects; every read waits at most `limit`.
    pub fn connect(address: &str, limit: Duration) -> Result<Raw> {
        let stream =
            TcpStream::connect(address).with_context(|| format!("connect to {address}"))?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_nodelay(true)?;
        Ok(Raw { stream, next: 1 })
    }

    /// One request and its answer.
    pub fn call(&mut self, code: i32, fields: &Value, body: &[u8]) -> Result<Answer> {
        let opaque = self.next;
        self.next += 1;
        self.write(&frame(code, opaque, fields, body))?;
        let answer = self.read()?.context("closed instead of an answer")?;
        ensure!(
            answer.opaque == i64::from(opaque),
            "request {opaque} was answered as {}",
            answer.opaque
        );
        Ok(answer)
    }

    /// Any bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes)?;
        Ok(())
    }

    /// The next answer; none when the other side has closed. A JSON answer is expected.
    pub fn read(&mut self) -> Result<Option<Answer>> {
        let mut word = [0; 4];
        if let Err(error) = self.stream.read_exact(&mut word) {
            return match error.kind() {
                ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                    Ok(None)
                }
                _ => Err(error).context("no answer"),
            };
        }
        let length = u32::from_be_bytes(word) as usize;
        ensure!((4..=MAX_FRAME_BYTES).contains(&length), "answer of {length} bytes");
        let mut frame = vec![0; length];
        self.stream.read_exact(&mut frame).context("answer cut short")?;
        let (word, rest) = frame.split_at(4);
        let word = u32::from_be_bytes([word[0], word[1], word[2], word[3]]);
        let header_length = (word & 0x00ff_ffff) as usize;
        ensure!(word >> 24 == 0, "answer in encoding {}", word >> 24);
        ensure!(header_length <= rest.len(), "header of {header_length} bytes in {}", rest.len());
        let (header, body) = rest.split_at(header_length);
        let header: Value = serde_json::from_slice(header).context("answer's header")?;
        ensure!(header["flag"].as_i64().unwrap_or(0) & 1 == 1, "not an answer: {header}");
        Ok(Some(Answer {
            code: header["code"].as_i64().context("answer without a code")?,
            opaque: header["opaque"].as_i64().context("answer without its number")?,
            remark: header["remark"].as_str().unwrap_or_default().to_owned(),
            fields: header["extFields"].as_object().cloned().unwrap_or_default(),
            body: body.to_vec(),
        }))
    }

    /// Waits until the other side closes; an answer before that is returned.
    pub fn read_until_closed(&mut self) -> Result<Vec<Answer>> {
        let mut answers = Vec::new();
        while let Some(answer) = self.read()? {
            answers.push(answer);
            if answers.len() > 1000 {
                bail!("more than 1000 answers and no end");
            }
        }
        Ok(answers)
    }
}
