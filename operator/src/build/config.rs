//! broker.conf and namesrv.conf. Keys of the operator win; the text is sorted, so that equal
//! settings are equal bytes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::names;

/// File name of the broker's configuration in its ConfigMap.
pub const BROKER_FILE: &str = "broker.conf";
/// File name of the name server's configuration in its ConfigMap.
pub const NAME_SERVER_FILE: &str = "namesrv.conf";

/// broker.conf of one group.
pub fn broker(
    cluster: &str,
    namespace: &str,
    number: i32,
    name_servers: i32,
    extra: &BTreeMap<String, String>,
) -> String {
    let host = names::broker_host(cluster, namespace, number);
    let name_server_list = (0..name_servers)
        .map(|ordinal| names::name_server_address(cluster, namespace, ordinal))
        .collect::<Vec<_>>()
        .join(";");
    // Clients that create topics and groups by use would bring back what a resource deleted.
    let mut keys =
        from_pairs(&[("autoCreateTopicEnable", "false"), ("autoCreateSubscriptionGroup", "false")]);
    keys.extend(extra.clone());
    keys.extend(from_pairs(&[
        ("brokerClusterName", cluster),
        ("brokerName", &names::broker(cluster, number)),
        ("brokerId", "0"),
        ("brokerRole", "ASYNC_MASTER"),
        ("brokerIP1", &host),
        ("brokerIP2", &host),
        ("listenPort", &names::BROKER_PORT.to_string()),
        ("namesrvAddr", &name_server_list),
        ("storePathRootDir", "/data/store"),
    ]));
    keys.extend(http());
    render(&keys)
}

/// namesrv.conf.
pub fn name_server(extra: &BTreeMap<String, String>) -> String {
    let mut keys = extra.clone();
    keys.extend(from_pairs(&[
        ("listenPort", &names::NAME_SERVER_PORT.to_string()),
        ("kvConfigPath", "/data/namesrv/kvConfig.json"),
    ]));
    keys.extend(http());
    render(&keys)
}

fn http() -> BTreeMap<String, String> {
    from_pairs(&[
        ("metricsExporterType", "PROM"),
        ("metricsPromExporterHost", "0.0.0.0"),
        ("metricsPromExporterPort", &names::HTTP_PORT.to_string()),
    ])
}

fn from_pairs(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

/// Java's `.properties` text. Keys are letters and digits by the schema; in a value only the
/// backslash and leading blanks mean something to the reader, and non-ASCII needs `\uXXXX`.
fn render(keys: &BTreeMap<String, String>) -> String {
    let mut text = String::new();
    for (key, value) in keys {
        text.push_str(key);
        text.push('=');
        let mut leading = true;
        for c in value.chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                ' ' if leading => text.push_str("\\ "),
                c if c.is_ascii() => text.push(c),
                c => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        // Writing to a String cannot fail.
                        let _ = write!(text, "\\u{unit:04x}");
                    }
                }
            }
            leading = leading && c == ' ';
        }
        text.push('\n');
    }
    text
}

/// FNV-1a, 64 bits: tells configurations apart; no protection against intent is needed.
pub fn checksum(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crd::cluster::{OWNED_BROKER_KEYS, OWNED_NAME_SERVER_KEYS};

    #[test]
    fn keys_of_the_operator_win_over_the_users() {
        let extra = from_pairs(&[("brokerId", "7"), ("fileReservedTime", "48")]);
        let text = broker("demo", "ns", 1, 2, &extra);
        assert!(text.contains("brokerId=0\n"), "{text}");
        assert!(text.contains("fileReservedTime=48\n"), "{text}");
        assert!(text.contains(
            "namesrvAddr=demo-namesrv-0.demo-namesrv-pods.ns.svc:9876;demo-namesrv-1.demo-namesrv-pods.ns.svc:9876\n"
        ));
    }

    #[test]
    fn users_may_turn_auto_creation_on() {
        let extra = from_pairs(&[("autoCreateTopicEnable", "true")]);
        assert!(broker("demo", "ns", 0, 1, &extra).contains("autoCreateTopicEnable=true\n"));
    }

    #[test]
    fn every_key_that_is_set_is_refused_in_the_schema_except_the_defaults() {
        for (text, owned, defaults) in [
            (
                broker("demo", "ns", 0, 1, &BTreeMap::new()),
                OWNED_BROKER_KEYS,
                &["autoCreateTopicEnable", "autoCreateSubscriptionGroup"][..],
            ),
            (name_server(&BTreeMap::new()), OWNED_NAME_SERVER_KEYS, &[]),
        ] {
            for line in text.lines() {
                let key = line.split('=').next().expect("a key");
                assert!(
                    owned.iter().any(|(k, _)| *k == key) || defaults.contains(&key),
                    "{key} has two owners"
                );
            }
        }
    }

    #[test]
    fn values_are_escaped_for_the_properties_reader() {
        let keys = from_pairs(&[("a", "  x\\y"), ("b", "é")]);
        assert_eq!(render(&keys), "a=\\ \\ x\\\\y\nb=\\u00e9\n");
    }
}
