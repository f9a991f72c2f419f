//! Attributes of topics (TopicAttributes, AttributeUtil): which keys exist, which values they
//! take, and how a request such as `+message.type=FIFO,-reserve.time` changes the stored ones.

use std::collections::BTreeMap;

/// Stored attributes: key without sign to value.
pub type Attributes = BTreeMap<String, String>;

/// Why a change of attributes is refused. The texts are those that RocketMQ's tools show.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttributeError {
    /// An entry is neither `+key=value` nor `-key`.
    #[error("attribute format is wrong: {0}, expected +key=value or -key")]
    Format(String),
    /// The same key twice.
    #[error("alter duplication key. key: {0}")]
    Duplicate(String),
    /// Not an attribute of topics or groups.
    #[error("unsupported key: {0}")]
    Unsupported(String),
    /// A new topic cannot lose an attribute.
    #[error("only add attribute is supported while creating topic. key: {0}")]
    OnlyAdd(String),
    /// The attribute to remove is not set.
    #[error("attempt to delete a nonexistent key: {0}")]
    Nonexistent(String),
    /// Fixed when the topic is created.
    #[error("attempt to update an unchangeable attribute. key: {0}")]
    Unchangeable(String),
    /// Not one of the allowed values.
    #[error("value {value} of attribute {key} is not in set: {allowed}")]
    Value {
        /// The attribute.
        key: String,
        /// What was asked for.
        value: String,
        /// What is allowed.
        allowed: &'static str,
    },
}

/// The kind of messages a topic is meant for; `MIXED` needs `enableMixedMessageType`.
pub const MESSAGE_TYPE: &str = "message.type";
/// Which kind of queue holds a topic's messages.
pub const QUEUE_TYPE: &str = "queue.type";
/// The [`QUEUE_TYPE`] whose entries stand for batches.
pub const BATCH_CQ: &str = "BatchCQ";

/// Whether a topic has batch queues, by its attributes.
pub fn has_batch_queues(attributes: &BTreeMap<String, String>) -> bool {
    attributes.get(QUEUE_TYPE).is_some_and(|kind| kind == BATCH_CQ)
}

struct Known {
    key: &'static str,
    /// Allowed values; `None` for a number of at least −1.
    values: Option<&'static [&'static str]>,
    allowed: &'static str,
    changeable: bool,
}

const TOPIC_ATTRIBUTES: [Known; 4] = [
    Known {
        key: QUEUE_TYPE,
        values: Some(&["SimpleCQ", BATCH_CQ]),
        allowed: "[SimpleCQ, BatchCQ]",
        changeable: false,
    },
    Known {
        key: "cleanup.policy",
        values: Some(&["DELETE", "COMPACTION"]),
        allowed: "[DELETE, COMPACTION]",
        changeable: false,
    },
    Known {
        key: MESSAGE_TYPE,
        values: Some(&["UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"]),
        allowed: "[UNSPECIFIED, NORMAL, FIFO, DELAY, TRANSACTION, MIXED]",
        changeable: true,
    },
    Known {
        key: "reserve.time",
        values: None,
        allowed: "[-1, 9223372036854775807]",
        changeable: true,
    },
];

/// Splits the text of the `attributes` field of UPDATE_AND_CREATE_TOPIC into signed keys and
/// values, as the body of UPDATE_AND_CREATE_TOPIC_LIST holds them.
///
/// # Errors
/// When an entry is malformed or a key occurs twice.
pub fn parse(text: &str) -> Result<Attributes, AttributeError> {
    let mut changes = Attributes::new();
    for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let (key, value) = match entry.split_once('=') {
            Some((key, value)) if key.starts_with('+') => (key.trim(), value.trim()),
            None if entry.starts_with('-') => (entry, ""),
            _ => return Err(AttributeError::Format(entry.to_owned())),
        };
        if changes.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(AttributeError::Duplicate(key[1..].to_owned()));
        }
    }
    Ok(changes)
}

/// Applies signed changes to a topic's attributes; `current` is `None` for a new topic.
///
/// # Errors
/// When a key or value is not allowed, or a removal names what is not there.
pub fn apply_to_topic(
    current: Option<&Attributes>,
    changes: &Attributes,
) -> Result<Attributes, AttributeError> {
    let mut attributes = current.cloned().unwrap_or_default();
    for (signed, value) in changes {
        let (sign, key) = split_sign(signed)?;
        if sign == '-' && current.is_none() {
            return Err(AttributeError::OnlyAdd(key.to_owned()));
        }
        if changes.contains_key(&opposite(sign, key)) {
            return Err(AttributeError::Duplicate(key.to_owned()));
        }
        let known = TOPIC_ATTRIBUTES
            .iter()
            .find(|known| known.key == key)
            .ok_or_else(|| AttributeError::Unsupported(key.to_owned()))?;
        if sign == '-' {
            if !attributes.contains_key(key) {
                return Err(AttributeError::Nonexistent(key.to_owned()));
            }
        } else if !known.accepts(value) {
            return Err(AttributeError::Value {
                key: key.to_owned(),
                value: value.clone(),
                allowed: known.allowed,
            });
        }
        // The same value again is no change: a manifest applied twice must not fail.
        let same = sign == '+' && attributes.get(key) == Some(value);
        if current.is_some() && !known.changeable && !same {
            return Err(AttributeError::Unchangeable(key.to_owned()));
        }
        if sign == '-' {
            attributes.remove(key);
        } else {
            attributes.insert(key.to_owned(), value.clone());
        }
    }
    Ok(attributes)
}

/// Applies signed changes to a group's attributes: RocketMQ 5.3 has none, so any key is refused.
///
/// # Errors
/// For every key.
pub fn apply_to_group(changes: &Attributes) -> Result<(), AttributeError> {
    match changes.keys().next() {
        Some(signed) => Err(AttributeError::Unsupported(split_sign(signed)?.1.to_owned())),
        None => Ok(()),
    }
}

impl Known {
    fn accepts(&self, value: &str) -> bool {
        match self.values {
            Some(values) => values.contains(&value),
            None => value.parse::<i64>().is_ok_and(|number| number >= -1),
        }
    }
}

fn split_sign(signed: &str) -> Result<(char, &str), AttributeError> {
    match signed.chars().next() {
        Some(sign @ ('+' | '-')) if signed.len() > 1 => Ok((sign, &signed[1..])),
        _ => Err(AttributeError::Format(signed.to_owned())),
    }
}

fn opposite(sign: char, key: &str) -> String {
    format!("{}{key}", if sign == '+' { '-' } else { '+' })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(pairs: &[(&str, &str)]) -> Attributes {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn parses_additions_and_removals() {
        let changes = parse("+message.type=FIFO, -reserve.time").unwrap();
        assert_eq!(changes, attributes(&[("+message.type", "FIFO"), ("-reserve.time", "")]));
        assert!(parse("").unwrap().is_empty());
        for text in ["message.type=FIFO", "+a", "-a=b", "x", "+=,", "ä=1"] {
            let refused = parse(text).and_then(|changes| apply_to_topic(None, &changes));
            assert!(refused.is_err(), "{text}");
        }
        assert_eq!(parse("+a=1,+a=2"), Err(AttributeError::Duplicate("a".into())));
    }

    #[test]
    fn a_new_topic_takes_only_known_keys_and_values() {
        let good = attributes(&[("+message.type", "DELAY"), ("+reserve.time", "-1")]);
        assert_eq!(
            apply_to_topic(None, &good).unwrap(),
            attributes(&[("message.type", "DELAY"), ("reserve.time", "-1")])
        );
        for (key, value) in [
            ("+colour", "red"),
            ("+message.type", "fifo"),
            ("+reserve.time", "-2"),
            ("-message.type", ""),
            ("message.type", "FIFO"),
            ("", ""),
        ] {
            assert!(apply_to_topic(None, &attributes(&[(key, value)])).is_err(), "{key}={value}");
        }
    }

    #[test]
    fn an_existing_topic_changes_what_is_changeable() {
        let current = attributes(&[("queue.type", "SimpleCQ"), ("message.type", "FIFO")]);
        let changed =
            apply_to_topic(Some(&current), &attributes(&[("-message.type", "")])).unwrap();
        assert_eq!(changed, attributes(&[("queue.type", "SimpleCQ")]));
        assert_eq!(
            apply_to_topic(Some(&current), &attributes(&[("+queue.type", "BatchCQ")])),
            Err(AttributeError::Unchangeable("queue.type".into()))
        );
        let again = attributes(&[("+queue.type", "SimpleCQ")]);
        assert_eq!(apply_to_topic(Some(&current), &again).unwrap(), current);
        assert_eq!(
            apply_to_topic(Some(&current), &attributes(&[("-reserve.time", "")])),
            Err(AttributeError::Nonexistent("reserve.time".into()))
        );
    }

    #[test]
    fn groups_have_no_attributes() {
        assert!(apply_to_group(&Attributes::new()).is_ok());
        assert!(apply_to_group(&attributes(&[("+a", "b")])).is_err());
    }
}
