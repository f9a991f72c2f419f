//! What a broker registers with a name server (`RegisterBrokerBody`), plain and compressed.

use std::io::{Read as _, Write as _};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{TopicConfig, TopicConfigSerializeWrapper, TopicQueueMappingInfo};
use crate::fastjson::{self, JsonError};
use crate::version;

/// The most a compressed registration may unpack to, in bytes: some hundred thousand topics.
pub const UNPACKED_BYTES_MAX: u64 = 64 << 20;

/// Body of REGISTER_BROKER.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RegisterBrokerBody {
    /// Filter servers; of old versions.
    pub filter_server_list: Vec<String>,
    /// The broker's topics.
    pub topic_config_serialize_wrapper: TopicConfigSerializeWrapper,
}

/// Why a registration's body is not understood.
#[derive(Debug, Error)]
pub enum RegisterBrokerBodyError {
    /// It, or a part of it, is not the JSON it should be.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// It does not unpack.
    #[error("registration does not unpack: {0}")]
    Unpack(#[from] std::io::Error),
    /// It unpacks to more than [`UNPACKED_BYTES_MAX`].
    #[error("registration unpacks to more than {UNPACKED_BYTES_MAX} bytes")]
    TooLarge,
    /// It ends too early, or a length in it is wrong.
    #[error("registration ends inside {0}")]
    Truncated(&'static str),
    /// A topic's line is not understood.
    #[error(
        "registration has the topic line `{0}`; name, read queues, write queues, perm and filter type expected"
    )]
    TopicLine(String),
}

impl RegisterBrokerBody {
    /// Reads a body. `version` is the sender's: older ones than 5.0.0 have no queue mappings.
    ///
    /// # Errors
    ///
    /// The body is not understood; see [`RegisterBrokerBodyError`].
    pub fn decode(
        body: &[u8],
        compressed: bool,
        version: i32,
    ) -> Result<RegisterBrokerBody, RegisterBrokerBodyError> {
        if !compressed {
            return Ok(fastjson::from_slice(body)?);
        }
        let mut unpacked = Vec::new();
        ZlibDecoder::new(body).take(UNPACKED_BYTES_MAX + 1).read_to_end(&mut unpacked)?;
        if unpacked.len() as u64 > UNPACKED_BYTES_MAX {
            return Err(RegisterBrokerBodyError::TooLarge);
        }
        let mut rest = unpacked.as_slice();
        let mut table = TopicConfigSerializeWrapper {
            data_version: fastjson::from_slice(counted(&mut rest, "the data version")?)?,
            ..TopicConfigSerializeWrapper::default()
        };
        for _ in 0..int(&mut rest, "the topic count")? {
            let topic = topic_from_line(counted(&mut rest, "a topic")?)?;
            table.topic_config_table.insert(topic.topic_name.clone(), topic);
        }
        let filter_server_list = fastjson::from_slice(counted(&mut rest, "the filter servers")?)?;
        if version >= version::V5_0_0 {
            for _ in 0..int(&mut rest, "the mapping count")? {
                let mapping = counted(&mut rest, "a queue mapping")?;
                let mapping: TopicQueueMappingInfo = fastjson::from_slice(mapping)?;
                table.topic_queue_mapping_info_map.insert(mapping.topic.clone(), mapping);
            }
        }
        Ok(RegisterBrokerBody { filter_server_list, topic_config_serialize_wrapper: table })
    }

    /// Writes a body; a compressed one as versions from 5.0.0 on do.
    pub fn encode(&self, compressed: bool) -> Vec<u8> {
        if !compressed {
            return fastjson::to_vec(self);
        }
        let table = &self.topic_config_serialize_wrapper;
        let mut plain = Vec::new();
        put_counted(&mut plain, &fastjson::to_vec(&table.data_version));
        put_int(&mut plain, table.topic_config_table.len());
        for topic in table.topic_config_table.values() {
            put_counted(&mut plain, topic_to_line(topic).as_bytes());
        }
        put_counted(&mut plain, &fastjson::to_vec(&self.filter_server_list));
        put_int(&mut plain, table.topic_queue_mapping_info_map.len());
        for mapping in table.topic_queue_mapping_info_map.values() {
            put_counted(&mut plain, &fastjson::to_vec(mapping));
        }
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
        let packed = encoder.write_all(&plain).and_then(|()| encoder.finish());
        packed.expect("writing to memory cannot fail")
    }
}

/// `TopicConfig.decode`.
fn topic_from_line(line: &[u8]) -> Result<TopicConfig, RegisterBrokerBodyError> {
    let text = String::from_utf8_lossy(line);
    let fields: Vec<&str> = text.splitn(6, ' ').collect();
    let refused = || RegisterBrokerBodyError::TopicLine(text.chars().take(200).collect());
    let [name, read, write, perm, filter_type, ref attributes @ ..] = fields[..] else {
        return Err(refused());
    };
    let number = |field: &str| field.parse::<i32>().map_err(|_| refused());
    let mut topic = TopicConfig {
        topic_name: name.to_owned(),
        read_queue_nums: number(read)?,
        write_queue_nums: number(write)?,
        perm: number(perm)?,
        topic_filter_type: filter_type.to_owned(),
        ..TopicConfig::default()
    };
    if let Some(attributes) = attributes.first().filter(|text| !text.trim().is_empty()) {
        topic.attributes = fastjson::from_str(attributes)?;
    }
    Ok(topic)
}

/// `TopicConfig.encode`.
fn topic_to_line(topic: &TopicConfig) -> String {
    let mut line = format!(
        "{} {} {} {} {} ",
        topic.topic_name,
        topic.read_queue_nums,
        topic.write_queue_nums,
        topic.perm,
        topic.topic_filter_type
    );
    line.push_str(&String::from_utf8_lossy(&fastjson::to_vec(&topic.attributes)));
    line
}

fn int(rest: &mut &[u8], what: &'static str) -> Result<usize, RegisterBrokerBodyError> {
    let truncated = || RegisterBrokerBodyError::Truncated(what);
    let (word, after) = rest.split_first_chunk::<4>().ok_or_else(truncated)?;
    *rest = after;
    usize::try_from(i32::from_be_bytes(*word)).map_err(|_| truncated())
}

fn counted<'a>(
    rest: &mut &'a [u8],
    what: &'static str,
) -> Result<&'a [u8], RegisterBrokerBodyError> {
    let len = int(rest, what)?;
    let split = rest.split_at_checked(len);
    let (bytes, after) = split.ok_or(RegisterBrokerBodyError::Truncated(what))?;
    *rest = after;
    Ok(bytes)
}

fn put_int(out: &mut Vec<u8>, value: usize) {
    // A table of more than 2^31 topics does not fit in memory.
    out.extend_from_slice(&(value as i32).to_be_bytes());
}

fn put_counted(out: &mut Vec<u8>, bytes: &[u8]) {
    put_int(out, bytes.len());
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::body::DataVersion;

    fn body() -> RegisterBrokerBody {
        let plain = TopicConfig { topic_name: "A".to_owned(), ..TopicConfig::default() };
        let typed = TopicConfig {
            topic_name: "%RETRY%g".to_owned(),
            attributes: BTreeMap::from([("message.type".to_owned(), "FIFO \"x\" y".to_owned())]),
            perm: 4,
            ..TopicConfig::default()
        };
        let mapping = TopicQueueMappingInfo {
            topic: "A".to_owned(),
            bname: "b".to_owned(),
            curr_id_map: BTreeMap::from([(0, 1)]),
            ..TopicQueueMappingInfo::default()
        };
        RegisterBrokerBody {
            filter_server_list: vec!["f".to_owned()],
            topic_config_serialize_wrapper: TopicConfigSerializeWrapper {
                data_version: DataVersion { counter: 3, state_version: 1, timestamp: 9 },
                topic_config_table: BTreeMap::from([
                    (plain.topic_name.clone(), plain),
                    (typed.topic_name.clone(), typed),
                ]),
                topic_queue_mapping_info_map: BTreeMap::from([("A".to_owned(), mapping)]),
                ..TopicConfigSerializeWrapper::default()
            },
        }
    }

    #[test]
    fn both_forms_hold_the_same() {
        let body = body();
        for compressed in [false, true] {
            let bytes = body.encode(compressed);
            let read = RegisterBrokerBody::decode(&bytes, compressed, version::CURRENT).unwrap();
            assert_eq!(read, body);
        }
        // An older version does not write mappings, so none are looked for.
        let read = RegisterBrokerBody::decode(&body.encode(true), true, 409).unwrap();
        assert!(read.topic_config_serialize_wrapper.topic_queue_mapping_info_map.is_empty());
    }

    #[test]
    fn damaged_forms_are_refused() {
        let packed = body().encode(true);
        for len in 0..packed.len() {
            assert!(RegisterBrokerBody::decode(&packed[..len], true, 479).is_err(), "{len}");
        }
        let pack = |plain: &[u8]| {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
            encoder.write_all(plain).unwrap();
            encoder.finish().unwrap()
        };
        let negative = pack(&[0xff; 8]);
        assert!(matches!(
            RegisterBrokerBody::decode(&negative, true, 479),
            Err(RegisterBrokerBodyError::Truncated("the data version"))
        ));
        let bomb = pack(&vec![0; UNPACKED_BYTES_MAX as usize + 1]);
        assert!(bomb.len() < 100_000);
        assert!(matches!(
            RegisterBrokerBody::decode(&bomb, true, 479),
            Err(RegisterBrokerBodyError::TooLarge)
        ));
        assert!(topic_from_line(b"A 1 2").is_err());
        assert!(topic_from_line(b"A 1 2 x SINGLE_TAG").is_err());
        assert_eq!(topic_from_line(b"A 1 2 6 SINGLE_TAG").unwrap().write_queue_nums, 2);
    }
}
