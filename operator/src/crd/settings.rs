//! The keys of broker.conf and namesrv.conf and what each may be set to: rules for the schema, and
//! the operator's own look before it changes a pod. A setting that stops a program's start would
//! else be found out by a pod that is gone.
//!
//! The tables in `settings/` say what the programs themselves say; the tests write and compare them.
//! Keys that the operator sets itself are listed in `cluster`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::cluster::RocketMQClusterSpec;

/// The settings of one program.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Field of the spec that they stand in.
    pub field: &'static str,
    /// The program's file.
    pub file: &'static str,
    /// A line a key: the key, a blank, what it may be.
    table: &'static str,
}

/// Keys of broker.conf.
pub const BROKER: Settings = Settings {
    field: "brokers.config",
    file: "broker.conf",
    table: include_str!("settings/broker.txt"),
};

/// Keys of namesrv.conf.
pub const NAME_SERVER: Settings = Settings {
    field: "nameServers.config",
    file: "namesrv.conf",
    table: include_str!("settings/namesrv.txt"),
};

/// What a key may be set to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Allowed<'t> {
    /// Any text: names, or a key without effect.
    Any,
    /// `true` or `false` in any case.
    Boolean,
    /// An integer.
    Integer { min: i64, max: i64 },
    /// One of these.
    OneOf(Vec<&'t str>),
    /// This alone: all else asks for what the program does not have.
    Only(&'t str),
    /// Hours of the day, separated by `;`.
    Hours,
    /// Numbers with a unit, separated by blanks.
    Delays,
}

impl<'t> Allowed<'t> {
    /// Reads a table's text, which is the program's own where it refuses a value.
    fn parse(text: &'t str) -> Self {
        if text == "true or false" {
            return Self::Boolean;
        }
        if text.starts_with("hours ") {
            return Self::Hours;
        }
        if text.starts_with("numbers with a unit ") {
            return Self::Delays;
        }
        let range = text.strip_prefix("an integer from ").unwrap_or(text);
        if let Some((min, max)) = range.split_once(" to ")
            && let (Ok(min), Ok(max)) = (min.parse(), max.parse())
        {
            return Self::Integer { min, max };
        }
        if let Some((only, _why)) = text.split_once(": ") {
            return Self::Only(only);
        }
        if text.contains(" or ") {
            return Self::OneOf(text.split(" or ").flat_map(|part| part.split(", ")).collect());
        }
        Self::Any
    }

    fn holds(&self, value: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Boolean => ["true", "false"].iter().any(|b| value.eq_ignore_ascii_case(b)),
            Self::Integer { min, max } => {
                value.parse::<i64>().is_ok_and(|number| (*min..=*max).contains(&number))
            }
            Self::OneOf(values) => values.contains(&value),
            Self::Only(only) => value.eq_ignore_ascii_case(only),
            Self::Hours => value
                .split(';')
                .map(str::trim)
                .all(|hour| hour.is_empty() || hour.parse::<u8>().is_ok_and(|hour| hour <= 23)),
            Self::Delays => value.split_whitespace().all(|level| {
                level.strip_suffix(['s', 'm', 'h', 'd']).is_some_and(|number| {
                    // Days of nine digits still fit into milliseconds.
                    (1..=9).contains(&number.len()) && number.bytes().all(|b| b.is_ascii_digit())
                })
            }),
        }
    }

    /// The same as an expression over `self['key']`; `None` where everything is allowed.
    fn expression(&self, key: &str) -> Option<String> {
        let value = format!("self['{key}']");
        Some(match self {
            Self::Any => return None,
            Self::Boolean => format!("{value}.matches('^(?i:true|false)$')"),
            // Eighteen digits always fit into the 64 bits of `int`.
            Self::Integer { min, max } => format!(
                "{value}.matches('^-?[0-9]{{1,18}}$') && int({value}) >= {min} && int({value}) <= {max}"
            ),
            Self::OneOf(values) => format!("{value} in ['{}']", values.join("', '")),
            Self::Only(only) => format!("{value}.matches('^(?i:{only})$')"),
            Self::Hours => {
                format!("{value}.matches('^[ ;]*(([01]?[0-9]|2[0-3]) *(;[ ;]*|$))*$')")
            }
            Self::Delays => format!("{value}.matches('^ *([0-9]{{1,9}}[smhd]( +|$))*$')"),
        })
    }
}

impl Settings {
    fn keys(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.table.lines().filter_map(|line| line.split_once(' '))
    }

    /// Rules for the schema of the field, one a key that has bounds. Keys that nobody knows are left
    /// to [`Settings::faults`]: naming one costs an expression more than the API server allows.
    pub fn rules(self, owned: &[(&str, &str)]) -> Vec<Value> {
        self.keys()
            .filter(|(key, _)| owned.iter().all(|(owned, _)| owned != key))
            .filter_map(|(key, allowed)| {
                let holds = Allowed::parse(allowed).expression(key)?;
                let allowed = allowed.replace('\'', "\\'");
                Some(json!({
                    "rule": format!("!('{key}' in self) || ({holds})"),
                    "messageExpression": format!(
                        "'{}.{key}: \"' + self['{key}'] + '\" is not allowed, only {allowed}'",
                        self.field
                    ),
                }))
            })
            .collect()
    }

    /// What is wrong with `config`, a sentence a key.
    pub fn faults(self, config: &BTreeMap<String, String>) -> Vec<String> {
        config
            .iter()
            .filter_map(|(key, value)| match self.keys().find(|(known, _)| known == key) {
                Some((_, allowed)) => (!Allowed::parse(allowed).holds(value)).then(|| {
                    format!("{}.{key}: \"{value}\" is not allowed, only {allowed}", self.field)
                }),
                None => Some(self.unknown(key)),
            })
            .collect()
    }

    fn unknown(self, key: &str) -> String {
        let nearest = self
            .keys()
            .map(|(known, _)| (distance(key, known), known))
            .min()
            .filter(|(distance, _)| *distance <= 3);
        let fix = match nearest {
            Some((_, known)) => format!("write {known}, or remove it"),
            None => "remove it".to_owned(),
        };
        format!("{}.{key}: {} has no such key: {fix}", self.field, self.file)
    }
}

/// What keeps a spec from being rolled out, by tier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Faults of `nameServers.config`.
    pub name_servers: Vec<String>,
    /// Faults of `brokers.config`.
    pub brokers: Vec<String>,
}

impl Refused {
    /// Looks at both configurations. `appointed`: whether a group has slaves, or once had some, so that
    /// its master is appointed.
    pub fn of(spec: &RocketMQClusterSpec, appointed: bool) -> Self {
        let mut brokers = BROKER.faults(&spec.brokers.config);
        if buffers_what_must_be_on_disk(&spec.brokers.config) {
            brokers.push(BUFFERED_SYNC.to_owned());
        }
        if appointed {
            brokers.extend(faults_with_slaves(&spec.brokers.config));
        }
        Self { name_servers: NAME_SERVER.faults(&spec.name_servers.config), brokers }
    }

    /// All faults, `None` if there is none.
    pub fn text(&self) -> Option<String> {
        let faults: Vec<&str> =
            self.name_servers.iter().chain(&self.brokers).map(String::as_str).collect();
        (!faults.is_empty())
            .then(|| format!("{}; no pod is changed before this is corrected", faults.join("; ")))
    }
}

/// What a broker of a group whose master is appointed would not start with, besides.
fn faults_with_slaves(config: &BTreeMap<String, String>) -> Vec<String> {
    let mut faults = Vec::new();
    if buffers(config) {
        faults.push(BUFFERED_COPIES.to_owned());
    }
    // What is no number is a fault of its own.
    let ms = |key: &str, default: i64| config.get(key).map_or(Some(default), |v| v.parse().ok());
    let heartbeat = ms("haSendHeartbeatInterval", HEARTBEAT_MS);
    let catch_up = ms("haMaxTimeSlaveNotCatchup", CATCH_UP_MS);
    if let (Some(heartbeat), Some(catch_up)) = (heartbeat, catch_up)
        && heartbeat > catch_up / 2
    {
        faults.push(format!(
            "brokers.config.haSendHeartbeatInterval: \"{heartbeat}\" is not allowed in groups with slaves, only at most half of haMaxTimeSlaveNotCatchup, which is {catch_up}: a slave that is silent for longer leaves the in-sync set"
        ));
    }
    faults
}

/// The broker's default of haSendHeartbeatInterval.
const HEARTBEAT_MS: i64 = 5_000;
/// The broker's default of haMaxTimeSlaveNotCatchup.
const CATCH_UP_MS: i64 = 15_000;
/// Said of a buffer in front of copies.
const BUFFERED_COPIES: &str = "brokers.config.transientStorePoolEnable: \"true\" is not allowed in groups with slaves: what waits in a buffer is on no slave";

/// Said of the pair of broker keys that contradict each other in any group.
const BUFFERED_SYNC: &str = "brokers.config.transientStorePoolEnable: \"true\" is not allowed with flushDiskType SYNC_FLUSH: what waits in a buffer cannot be on disk";

/// The rule of that pair.
pub fn buffered_sync_rule() -> Value {
    json!({
        "rule": "!('transientStorePoolEnable' in self && 'flushDiskType' in self && self['flushDiskType'] == 'SYNC_FLUSH' && self['transientStorePoolEnable'].matches('^(?i:true)$'))",
        "message": BUFFERED_SYNC,
    })
}

fn buffers(config: &BTreeMap<String, String>) -> bool {
    config.get("transientStorePoolEnable").is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

fn buffers_what_must_be_on_disk(config: &BTreeMap<String, String>) -> bool {
    buffers(config) && config.get("flushDiskType").is_some_and(|value| value == "SYNC_FLUSH")
}

/// Characters to insert, remove or replace to get from one key to another, whatever their case.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<u8> = b.bytes().map(|c| c.to_ascii_lowercase()).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().map(|c| c.to_ascii_lowercase()).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
#[path = "settings/tests.rs"]
mod tests;
