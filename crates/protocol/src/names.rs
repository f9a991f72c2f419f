//! Rules of topic and group names, and the names that RocketMQ keeps for itself
//! (`TopicValidator`, `MixAll`, `NamespaceUtil`).

use thiserror::Error;

/// Longest topic name in bytes.
pub const TOPIC_NAME_BYTES_MAX: usize = 127;
/// Longest group name in bytes.
pub const GROUP_NAME_BYTES_MAX: usize = 255;

/// Prefix of the topic that holds a group's messages for another try.
pub const RETRY_PREFIX: &str = "%RETRY%";
/// Prefix of the topic that holds a group's messages which failed too often.
pub const DLQ_PREFIX: &str = "%DLQ%";
/// Prefix of 5.x system topics.
pub const SYSTEM_TOPIC_PREFIX: &str = "rmq_sys_";
/// Prefix of system groups.
pub const SYSTEM_GROUP_PREFIX: &str = "CID_RMQ_SYS_";

/// Key topic of automatic topic creation.
pub const AUTO_CREATE_TOPIC: &str = "TBW102";
/// Where messages with a delay level wait.
pub const SCHEDULE_TOPIC: &str = "SCHEDULE_TOPIC_XXXX";
/// Where half messages of transactions wait.
pub const TRANS_HALF_TOPIC: &str = "RMQ_SYS_TRANS_HALF_TOPIC";
/// Decisions on half messages.
pub const TRANS_OP_HALF_TOPIC: &str = "RMQ_SYS_TRANS_OP_HALF_TOPIC";
/// Half messages that were checked too often.
pub const TRANS_CHECK_MAX_TIME_TOPIC: &str = "TRANS_CHECK_MAX_TIME_TOPIC";
/// Group whose consumer offsets say how far half messages and decisions are done.
pub const TRANS_GROUP: &str = "CID_RMQ_SYS_TRANS";
/// Message traces.
pub const TRACE_TOPIC: &str = "RMQ_SYS_TRACE_TOPIC";
/// The broker's test of itself.
pub const SELF_TEST_TOPIC: &str = "SELF_TEST_TOPIC";
/// Offset events of old versions.
pub const OFFSET_MOVED_EVENT: &str = "OFFSET_MOVED_EVENT";
/// The timer wheel's topic.
pub const TIMER_TOPIC: &str = "rmq_sys_wheel_timer";
/// Group of mqadmin.
pub const TOOLS_GROUP: &str = "TOOLS_CONSUMER";
/// Producer group that every Java client has besides its own.
pub const CLIENT_INNER_PRODUCER_GROUP: &str = "CLIENT_INNER_PRODUCER";

/// Topics that a broker has from its start or reserves, whatever its name and cluster.
const SYSTEM_TOPICS: &[&str] = &[
    AUTO_CREATE_TOPIC,
    SCHEDULE_TOPIC,
    "BenchmarkTest",
    TRANS_HALF_TOPIC,
    TRACE_TOPIC,
    TRANS_OP_HALF_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    SELF_TEST_TOPIC,
    OFFSET_MOVED_EVENT,
    "CHECKPOINT_TOPIC",
];

/// Topics that a client may not send to; it may to all other system topics.
const SEND_FORBIDDEN_TOPICS: &[&str] = &[
    SCHEDULE_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    SELF_TEST_TOPIC,
    OFFSET_MOVED_EVENT,
    // The Java broker forgets this one; a message sent to it would be taken for a timer's own.
    TIMER_TOPIC,
];

/// Groups that a broker knows without anybody having made them.
const SYSTEM_GROUPS: &[&str] = &[
    "DEFAULT_PRODUCER",
    "DEFAULT_CONSUMER",
    "SCHEDULE_CONSUMER",
    "FILTERSRV_CONSUMER",
    "__MONITOR_CONSUMER",
    CLIENT_INNER_PRODUCER_GROUP,
    "SELF_TEST_P_GROUP",
    "SELF_TEST_C_GROUP",
    TOOLS_GROUP,
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_ONSAPI_PULL",
    TRANS_GROUP,
];

/// Why a name cannot be that of a topic or a group.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NameError {
    /// It is empty or only white space.
    #[error("the {kind} name is blank")]
    Blank {
        /// `topic` or `group`.
        kind: &'static str,
    },
    /// It is too long.
    #[error("the {kind} name `{name}` has {bytes} bytes, at most {max} are allowed")]
    TooLong {
        /// `topic` or `group`.
        kind: &'static str,
        /// The name, shortened.
        name: String,
        /// Its length.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// It has a character that no name may have.
    #[error(
        "the {kind} name `{name}` contains `{character}`; allowed are letters, digits and `%|-_`"
    )]
    Character {
        /// `topic` or `group`.
        kind: &'static str,
        /// The name.
        name: String,
        /// The first wrong character.
        character: char,
    },
}

/// Checks a topic name: ASCII letters, digits, `%`, `|`, `-`, `_`, at most 127 bytes.
///
/// # Errors
///
/// Says which rule is broken, and where.
pub fn validate_topic(topic: &str) -> Result<(), NameError> {
    validate("topic", topic, TOPIC_NAME_BYTES_MAX)
}

/// Checks a group name: as a topic name, but up to 255 bytes.
///
/// # Errors
///
/// Says which rule is broken, and where.
pub fn validate_group(group: &str) -> Result<(), NameError> {
    validate("group", group, GROUP_NAME_BYTES_MAX)
}

fn validate(kind: &'static str, name: &str, max: usize) -> Result<(), NameError> {
    if name.trim().is_empty() {
        return Err(NameError::Blank { kind });
    }
    if name.len() > max {
        let shortened = name.chars().take(40).chain("...".chars()).collect();
        return Err(NameError::TooLong { kind, name: shortened, bytes: name.len(), max });
    }
    let is_allowed = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '%' | '|' | '-' | '_');
    match name.chars().find(|c| !is_allowed(c)) {
        Some(character) => Err(NameError::Character { kind, name: name.to_owned(), character }),
        None => Ok(()),
    }
}

/// The topic of a group's messages for another try.
pub fn retry_topic(group: &str) -> String {
    format!("{RETRY_PREFIX}{group}")
}

/// The topic of a group's dead letters.
pub fn dlq_topic(group: &str) -> String {
    format!("{DLQ_PREFIX}{group}")
}

/// Whether a topic holds a group's messages for another try.
pub fn is_retry_topic(topic: &str) -> bool {
    topic.starts_with(RETRY_PREFIX)
}

/// The group whose retry topic it is, also of pop consumers, who have one for each topic
/// (`%RETRY%group+topic`); `KeyBuilder.parseGroup`.
pub fn group_of_retry_topic(topic: &str) -> Option<&str> {
    let rest = topic.strip_prefix(RETRY_PREFIX)?;
    match rest.split_once('+') {
        Some((group, topic)) if !topic.is_empty() && !topic.contains('+') => Some(group),
        _ => Some(rest),
    }
}

/// Whether a topic holds a group's dead letters.
pub fn is_dlq_topic(topic: &str) -> bool {
    topic.starts_with(DLQ_PREFIX)
}

/// Whether RocketMQ keeps the topic name for itself. The cluster's, the broker's and the reply
/// topic's name belong to it, too, but only the broker knows those.
pub fn is_system_topic(topic: &str) -> bool {
    topic.starts_with(SYSTEM_TOPIC_PREFIX) || SYSTEM_TOPICS.contains(&topic)
}

/// The fixed names for which [`is_system_topic`] is true.
pub fn system_topics() -> &'static [&'static str] {
    SYSTEM_TOPICS
}

/// Whether a client may not send to the topic.
pub fn is_send_forbidden_topic(topic: &str) -> bool {
    SEND_FORBIDDEN_TOPICS.contains(&topic)
}

/// Whether a group is RocketMQ's own.
pub fn is_system_group(group: &str) -> bool {
    group.starts_with(SYSTEM_GROUP_PREFIX) || SYSTEM_GROUPS.contains(&group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topic_names() {
        assert_eq!(validate_topic("Orders-2_%|x"), Ok(()));
        assert_eq!(validate_topic(&"t".repeat(127)), Ok(()));
        assert!(matches!(
            validate_topic(&"t".repeat(128)),
            Err(NameError::TooLong { bytes: 128, max: 127, .. })
        ));
        assert_eq!(validate_topic(" "), Err(NameError::Blank { kind: "topic" }));
        let slash = validate_topic("a/b").unwrap_err();
        assert!(matches!(slash, NameError::Character { character: '/', .. }));
        assert!(slash.to_string().contains("`a/b`"));
        assert!(validate_topic("ünicode").is_err());
    }

    #[test]
    fn group_names_may_be_longer() {
        assert_eq!(validate_group(&"g".repeat(255)), Ok(()));
        assert!(validate_group(&"g".repeat(256)).is_err());
    }

    #[test]
    fn reserved_names() {
        assert!(is_system_topic("TBW102"));
        assert!(is_system_topic("rmq_sys_anything"));
        assert!(!is_system_topic("%RETRY%g"));
        assert!(is_send_forbidden_topic(TIMER_TOPIC));
        assert!(!is_send_forbidden_topic(TRACE_TOPIC));
        assert!(is_system_group("CID_RMQ_SYS_X"));
        assert!(is_system_group(TOOLS_GROUP));
        assert_eq!(retry_topic("g"), "%RETRY%g");
        for (topic, group) in [
            ("%RETRY%g", Some("g")),
            ("%RETRY%g+orders", Some("g")),
            ("%RETRY%g+", Some("g+")),
            ("%DLQ%g", None),
            ("g", None),
        ] {
            assert_eq!(group_of_retry_topic(topic), group, "{topic}");
        }
        assert_eq!(dlq_topic("g"), "%DLQ%g");
    }
}
