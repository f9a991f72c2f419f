use super::*;
use rocketmq_broker::{BrokerConfig, LoadedConfig};
use rocketmq_namesrv::NamesrvConfig;
use rocketmq_protocol::config::ConfigError;

use crate::crd::cluster::{OWNED_BROKER_KEYS, OWNED_NAME_SERVER_KEYS};

/// What the broker makes of one setting.
fn broker(key: &str, value: &str) -> Result<(), ConfigError> {
    LoadedConfig::from_pairs(&[(key.to_owned(), value.to_owned())]).map(drop)
}

/// What the name server makes of one setting.
fn name_server(key: &str, value: &str) -> Result<(), ConfigError> {
    let (config, _) = NamesrvConfig::from_properties(&[(key, value)])?;
    config.validate()
}

/// The line of a key: what the program says when it refuses a text, the largest number or `true`.
fn line(key: &str, set: impl Fn(&str, &str) -> Result<(), ConfigError>) -> String {
    let mut allowed = match set(key, "?") {
        Ok(()) => "any text".to_owned(),
        Err(error) => error.allowed,
    };
    let asks_for_more = match Allowed::parse(&allowed) {
        Allowed::Integer { max, .. } => set(key, &max.to_string()),
        Allowed::Any | Allowed::Boolean => set(key, "true"),
        _ => Ok(()),
    };
    if let Err(error) = asks_for_more {
        allowed = error.allowed;
    }
    format!("{key} {allowed}\n")
}

fn table<'k>(
    keys: impl Iterator<Item = &'k str>,
    set: impl Fn(&str, &str) -> Result<(), ConfigError>,
) -> String {
    let mut keys: Vec<&str> = keys.collect();
    keys.sort_unstable();
    keys.dedup();
    keys.into_iter().map(|key| line(key, &set)).collect()
}

/// `UPDATE_GOLDEN=1 cargo test -p rocketmq-operator settings` writes the tables; run
/// `cargo xtask crds` after it.
#[test]
fn the_tables_say_what_the_programs_say() {
    let broker_keys =
        BrokerConfig::KEYS.iter().copied().chain(rocketmq_broker::config::known_without_effect());
    for (file, found, wanted) in [
        ("broker.txt", BROKER.table, table(broker_keys, broker)),
        ("namesrv.txt", NAME_SERVER.table, table(NamesrvConfig::KEYS.iter().copied(), name_server)),
    ] {
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("src/crd/settings")
                .join(file);
            std::fs::write(path, wanted).expect("the table");
            continue;
        }
        assert!(
            found == wanted,
            "operator/src/crd/settings/{file} is not what the program says; run `UPDATE_GOLDEN=1 \
             cargo test -p rocketmq-operator settings`, then `cargo xtask crds`"
        );
    }
}

/// Each key with values inside, at the edge of and outside its bounds: the operator and the program
/// agree.
#[test]
fn the_operator_refuses_what_the_program_refuses() {
    type Set = fn(&str, &str) -> Result<(), ConfigError>;
    for (settings, owned, set) in [
        (BROKER, OWNED_BROKER_KEYS, broker as Set),
        (NAME_SERVER, OWNED_NAME_SERVER_KEYS, name_server),
    ] {
        for (key, allowed) in settings.keys().filter(|(k, _)| owned.iter().all(|(o, _)| o != k)) {
            let mut values: Vec<String> =
                ["?", "true", "FALSE", "-1", "1", "04;16", "1s 5m", "24", "ASYNC_FLUSH", "default"]
                    .map(str::to_owned)
                    .to_vec();
            if let Allowed::Integer { min, max } = Allowed::parse(allowed) {
                for edge in [i128::from(min), i128::from(max)] {
                    values.extend((-1..=1).map(|step| (edge + step).to_string()));
                }
            }
            for value in values {
                let config = BTreeMap::from([(key.to_owned(), value.clone())]);
                let faults = settings.faults(&config);
                let program = set(key, &value);
                // Of a feature that it lacks a program refuses `true` and reads no other text.
                let stricter = matches!(Allowed::parse(allowed), Allowed::Only(_));
                if !stricter || program.is_err() {
                    assert_eq!(faults.is_empty(), program.is_ok(), "{key}={value}: {faults:?}");
                }
            }
        }
    }
}

#[test]
fn unknown_keys_are_named_with_the_nearest_one() {
    let faults = |key: &str| BROKER.faults(&BTreeMap::from([(key.to_owned(), "1".to_owned())]));
    assert_eq!(
        faults("flushDiskTyp"),
        [
            "brokers.config.flushDiskTyp: broker.conf has no such key: write flushDiskType, or remove it"
        ]
    );
    assert_eq!(
        faults("somethingElse"),
        ["brokers.config.somethingElse: broker.conf has no such key: remove it"]
    );
}

#[test]
fn a_buffer_in_front_of_a_synchronous_disk_is_refused() {
    let both = [("transientStorePoolEnable", "true"), ("flushDiskType", "SYNC_FLUSH")]
        .map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert!(LoadedConfig::from_pairs(&both).is_err());
    assert!(buffers_what_must_be_on_disk(&BTreeMap::from(both)));
}

/// Values around the bounds that two keys set each other, and a buffer: the operator and a broker of a
/// group with slaves agree.
#[test]
fn what_contradicts_slaves_is_refused_as_the_broker_does() {
    let given = |key: &str, value: Option<&str>| value.map(|v| (key.to_owned(), v.to_owned()));
    let mut refused = 0;
    for heartbeat in [None, Some("100"), Some("7500"), Some("7501"), Some("60000")] {
        for catch_up in [None, Some("199"), Some("200"), Some("10000"), Some("15001")] {
            for buffer in [None, Some("false"), Some("TRUE")] {
                let pairs: Vec<(String, String)> = [
                    given("haSendHeartbeatInterval", heartbeat),
                    given("haMaxTimeSlaveNotCatchup", catch_up),
                    given("transientStorePoolEnable", buffer),
                ]
                .into_iter()
                .flatten()
                .collect();
                let mut whole = pairs.clone();
                whole.push(("coordinator".to_owned(), "kubernetes".to_owned()));
                let broker = LoadedConfig::from_pairs(&whole).map(drop);
                let faults = faults_with_slaves(&pairs.iter().cloned().collect());
                assert_eq!(faults.is_empty(), broker.is_ok(), "{pairs:?}: {faults:?} {broker:?}");
                refused += faults.len();
            }
        }
    }
    assert!(refused > 0);
}

#[test]
fn groups_without_slaves_may_buffer() {
    let spec: RocketMQClusterSpec = serde_json::from_value(json!({
        "brokers": {
            "groups": 1, "storage": {"size": "1Gi"},
            "config": {"transientStorePoolEnable": "true", "haSendHeartbeatInterval": "60000"},
        },
    }))
    .expect("a spec");
    assert_eq!(Refused::of(&spec, false).text(), None);
    let text = Refused::of(&spec, true).text().expect("refused");
    for part in [
        "brokers.config.transientStorePoolEnable: \"true\" is not allowed in groups with slaves",
        "brokers.config.haSendHeartbeatInterval: \"60000\" is not allowed in groups with slaves, only at most half of haMaxTimeSlaveNotCatchup, which is 15000",
        "no pod is changed before this is corrected",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}
