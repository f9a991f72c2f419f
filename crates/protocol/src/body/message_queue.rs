//! A queue of a topic on a broker group (`MessageQueue`).

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::fastjson;

/// A queue of a topic on a broker group. In JSON it can also be the key of a map.
///
/// The order is that of RocketMQ, by which all clients divide queues among themselves: topic,
/// broker name, queue id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageQueue {
    /// The topic.
    pub topic: String,
    /// The broker group.
    pub broker_name: String,
    /// The queue.
    pub queue_id: i32,
}

impl fmt::Display for MessageQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}:{}", self.topic, self.broker_name, self.queue_id)
    }
}

impl Serialize for MessageQueue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // In alphabetical order, as fastjson writes it.
        let mut fields = serializer.serialize_struct("MessageQueue", 3)?;
        fields.serialize_field("brokerName", &self.broker_name)?;
        fields.serialize_field("queueId", &self.queue_id)?;
        fields.serialize_field("topic", &self.topic)?;
        fields.end()
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Fields {
    topic: String,
    broker_name: String,
    queue_id: i32,
}

impl<'de> Deserialize<'de> for MessageQueue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<MessageQueue, D::Error> {
        struct Queue;

        impl<'de> Visitor<'de> for Queue {
            type Value = MessageQueue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a queue as an object, or as the text of one")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<MessageQueue, A::Error> {
                let fields = Fields::deserialize(MapAccessDeserializer::new(map))?;
                Ok(MessageQueue {
                    topic: fields.topic,
                    broker_name: fields.broker_name,
                    queue_id: fields.queue_id,
                })
            }

            /// As the key of a map.
            fn visit_str<E: Error>(self, text: &str) -> Result<MessageQueue, E> {
                // An object, so that a text in a text in a text is no way to recurse.
                if !text.trim_start().starts_with('{') {
                    return Err(E::custom(format_args!("`{text:.40}` is no queue")));
                }
                fastjson::from_str(text).map_err(E::custom)
            }
        }

        deserializer.deserialize_any(Queue)
    }
}
