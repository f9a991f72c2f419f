//! What a consumer group subscribes to, and how it consumes (`SubscriptionData`, `FilterAPI`,
//! `MessageModel`, `ConsumeType`, `ConsumeFromWhere`).

use std::collections::BTreeSet;

use serde::de::{Error, Unexpected};
use serde::{Deserialize, Deserializer, Serialize};

use crate::hash::java_hash;

/// The expression that takes every message.
pub const SUB_ALL: &str = "*";
/// Expression type: tags, joined by `||`.
pub const TAG: &str = "TAG";
/// Expression type: a condition on properties.
pub const SQL92: &str = "SQL92";

/// One topic of a consumer group, and which of its messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubscriptionData {
    /// Filter by a class, which no version still does.
    pub class_filter_mode: bool,
    /// Java hashes of the tags. The Go client writes them as text.
    #[serde(deserialize_with = "numbers_or_text")]
    pub code_set: BTreeSet<i32>,
    /// `TAG` or `SQL92`.
    pub expression_type: String,
    /// The expression.
    pub sub_string: String,
    /// When the client made it, in ms: a higher one is newer.
    pub sub_version: i64,
    /// The tags; empty for all.
    pub tags_set: BTreeSet<String>,
    /// The topic.
    pub topic: String,
}

impl Default for SubscriptionData {
    fn default() -> Self {
        SubscriptionData {
            class_filter_mode: false,
            code_set: BTreeSet::new(),
            expression_type: TAG.to_owned(),
            sub_string: SUB_ALL.to_owned(),
            sub_version: 0,
            tags_set: BTreeSet::new(),
            topic: String::new(),
        }
    }
}

/// Reads `[65, "66"]`: fastjson takes a number in quotes for a number.
fn numbers_or_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeSet<i32>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Code {
        Number(i32),
        Text(String),
    }
    let codes = Option::<Vec<Code>>::deserialize(deserializer)?;
    codes
        .unwrap_or_default()
        .into_iter()
        .map(|code| match code {
            Code::Number(code) => Ok(code),
            Code::Text(text) => text.parse().map_err(|_| {
                D::Error::invalid_value(Unexpected::Str(&text), &"the 32-bit hash of a tag")
            }),
        })
        .collect()
}

/// A tag expression has no tag in it, such as `||`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the expression `{0}` has no tag; write tags joined by `||`, or `*` for all messages")]
pub struct NoTagError(
    /// The expression.
    pub String,
);

impl SubscriptionData {
    /// Makes a subscription from a tag expression: tags joined by `||`; `*` or blank for all.
    /// `sub_version` is the time now in ms.
    ///
    /// # Errors
    ///
    /// The expression has no tag.
    pub fn from_tags(topic: &str, expression: &str, sub_version: i64) -> Result<Self, NoTagError> {
        let mut data = SubscriptionData {
            topic: topic.to_owned(),
            sub_version,
            ..SubscriptionData::default()
        };
        if expression.is_empty() || expression == SUB_ALL {
            return Ok(data);
        }
        data.sub_string = expression.to_owned();
        let tags = expression.split("||").map(str::trim).filter(|tag| !tag.is_empty());
        for tag in tags {
            data.tags_set.insert(tag.to_owned());
            data.code_set.insert(java_hash(tag));
        }
        if data.tags_set.is_empty() {
            return Err(NoTagError(expression.to_owned()));
        }
        Ok(data)
    }

    /// Whether it is by tags, not by a condition on properties.
    pub fn is_tag_type(&self) -> bool {
        self.expression_type.is_empty() || self.expression_type == TAG
    }

    /// Whether an entry of a ConsumeQueue may hold a message that is subscribed; by hash, so the
    /// tag itself is to be compared afterwards.
    pub fn matches_tags_code(&self, tags_code: i64) -> bool {
        self.sub_string == SUB_ALL
            || self.code_set.is_empty()
            || i32::try_from(tags_code).is_ok_and(|code| self.code_set.contains(&code))
    }
}

/// Declares an enum that is a name in JSON; an ordinal is read, too, and an unknown one is the
/// first, as fastjson leaves such a field at what it was.
macro_rules! json_enum {
    (
        $(#[$meta:meta])*
        pub enum $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $text:literal,)+ }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$variant_meta])* $variant,)+
        }

        impl $name {
            /// Every value, in the order of RocketMQ's ordinals.
            pub const ALL: &[$name] = &[$($name::$variant,)+];

            /// The name in JSON.
            pub fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $text,)+
                }
            }

            /// The value of a name.
            pub fn from_name(name: &str) -> Option<$name> {
                match name {
                    $($text => Some($name::$variant),)+
                    _ => None,
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(
                deserializer: D,
            ) -> Result<$name, D::Error> {
                struct Visitor;
                impl serde::de::Visitor<'_> for Visitor {
                    type Value = $name;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str(concat!("one of", $(" ", $text),+))
                    }

                    fn visit_str<E>(self, name: &str) -> Result<$name, E> {
                        Ok($name::from_name(name).unwrap_or_default())
                    }

                    fn visit_u64<E>(self, ordinal: u64) -> Result<$name, E> {
                        let ordinal = usize::try_from(ordinal).unwrap_or(usize::MAX);
                        Ok($name::ALL.get(ordinal).copied().unwrap_or_default())
                    }
                }
                deserializer.deserialize_any(Visitor)
            }
        }
    };
}

json_enum! {
    /// Who of a group gets a message.
    pub enum MessageModel {
        /// Every member gets every message.
        Broadcasting = "BROADCASTING",
        /// One member gets it.
        #[default]
        Clustering = "CLUSTERING",
    }
}

json_enum! {
    /// How a group consumes.
    pub enum ConsumeType {
        /// The application pulls.
        #[default]
        ConsumeActively = "CONSUME_ACTIVELY",
        /// The client pulls and pushes to the application.
        ConsumePassively = "CONSUME_PASSIVELY",
        /// The broker hands out and keeps track (pop).
        ConsumePop = "CONSUME_POP",
    }
}

json_enum! {
    /// Where a group begins in a queue of which it has no offset yet.
    pub enum ConsumeFromWhere {
        /// At the newest message.
        #[default]
        ConsumeFromLastOffset = "CONSUME_FROM_LAST_OFFSET",
        /// Obsolete; as the first.
        ConsumeFromLastOffsetAndFromMinWhenBootFirst =
            "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
        /// Obsolete; as the first.
        ConsumeFromMinOffset = "CONSUME_FROM_MIN_OFFSET",
        /// Obsolete; as the first.
        ConsumeFromMaxOffset = "CONSUME_FROM_MAX_OFFSET",
        /// At the oldest message.
        ConsumeFromFirstOffset = "CONSUME_FROM_FIRST_OFFSET",
        /// At a time.
        ConsumeFromTimestamp = "CONSUME_FROM_TIMESTAMP",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_expressions() {
        let data = SubscriptionData::from_tags("T", " TagA || TagB||", 5).unwrap();
        assert_eq!(data.tags_set, BTreeSet::from(["TagA".to_owned(), "TagB".to_owned()]));
        assert!(data.matches_tags_code(i64::from(java_hash("TagA"))));
        assert!(!data.matches_tags_code(i64::from(java_hash("TagC"))));
        // A delivery time in place of a tag code, whose low half is that of a tag.
        assert!(!data.matches_tags_code(i64::from(java_hash("TagA")) + (1 << 40)));
        let all = SubscriptionData::from_tags("T", "*", 5).unwrap();
        assert!(all.tags_set.is_empty() && all.matches_tags_code(77));
        assert!(SubscriptionData::from_tags("T", "||", 5).is_err());
    }

    #[test]
    fn tag_hashes_may_be_text() {
        let read = serde_json::from_str::<SubscriptionData>;
        // As the Go client 2.1.2 writes it.
        let data = read(r#"{"topic":"T","subString":"A || B","codeSet":["65","66"]}"#).unwrap();
        assert_eq!(data.code_set, BTreeSet::from([65, 66]));
        assert_eq!(read(r#"{"codeSet":[-7]}"#).unwrap().code_set, BTreeSet::from([-7]));
        assert!(read(r#"{"codeSet":null}"#).unwrap().code_set.is_empty());
        assert!(read(r#"{"codeSet":["A"]}"#).is_err());
        assert!(read(r#"{"codeSet":["4294967296"]}"#).is_err());
    }

    #[test]
    fn enums_are_read_by_name_or_ordinal() {
        let read = |text: &str| serde_json::from_str::<ConsumeType>(text).unwrap();
        assert_eq!(read("\"CONSUME_POP\""), ConsumeType::ConsumePop);
        assert_eq!(read("1"), ConsumeType::ConsumePassively);
        assert_eq!(read("\"CONSUME_BY_MAGIC\""), ConsumeType::ConsumeActively);
        assert_eq!(MessageModel::default(), MessageModel::Clustering);
        assert_eq!(serde_json::to_string(&MessageModel::Clustering).unwrap(), "\"CLUSTERING\"");
    }
}
