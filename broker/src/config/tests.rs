use super::*;

fn load(text: &str) -> Result<LoadedConfig, ConfigError> {
    LoadedConfig::from_pairs(&config::parse(text))
}

#[test]
fn the_sample_file_of_rocketmq_loads_without_a_leftover() {
    let loaded = load(
        "brokerClusterName = DefaultCluster\nbrokerName = broker-a\nbrokerId = 0\n\
         deleteWhen = 04\nfileReservedTime = 48\nbrokerRole = ASYNC_MASTER\n\
         flushDiskType = ASYNC_FLUSH\n",
    )
    .unwrap();
    assert_eq!(loaded.config.broker_name, "broker-a");
    assert_eq!(loaded.config.file_reserved_time, 48);
    assert!(loaded.unknown.is_empty() && loaded.without_effect.is_empty());
}

#[test]
fn defaults_are_rocketmqs() {
    let config = BrokerConfig::default();
    assert_eq!(config.listen_port, 10911);
    assert_eq!(config.default_topic_queue_nums, 8);
    assert_eq!(config.mapped_file_size_commit_log, 1 << 30);
    assert_eq!(config.flush_disk_type, FlushDiskType::AsyncFlush);
    assert_eq!(config.ha_port(10911), 10912);
    assert!(!config.broker_name.is_empty(), "the host name");
}

#[test]
fn a_bad_value_names_key_value_and_what_is_allowed() {
    for (text, parts) in [
        ("listenPort=70000", ["listenPort", "70000", "65535"]),
        ("listenPort=1", ["listenPort", "1", "3 to 65535"]),
        ("flushDiskType=sometimes", ["flushDiskType", "sometimes", "SYNC_FLUSH"]),
        ("fileReservedTime=-1", ["fileReservedTime", "-1", "0"]),
        ("autoCreateTopicEnable=yes", ["autoCreateTopicEnable", "yes", "true or false"]),
        ("namesrvAddr=localhost", ["namesrvAddr", "localhost", "host:port"]),
        ("namesrvAddr=a:9876;b:x", ["namesrvAddr", "b:x", "host:port"]),
        ("deleteWhen=25", ["deleteWhen", "25", "0 to 23"]),
        ("brokerRole=SLAVE", ["brokerId", "0", "1 and above with brokerRole=SLAVE"]),
        ("brokerId=1", ["brokerId", "1", "0 unless brokerRole=SLAVE"]),
        ("coordinator=kubernetes\nbrokerRole=SLAVE", ["brokerRole", "SLAVE", "appointed"]),
        (
            "coordinator=kubernetes\ntotalReplicas=2\nminInSyncReplicas=3",
            ["minInSyncReplicas", "3", "totalReplicas, which is 2"],
        ),
        (
            "coordinator=kubernetes\nleaseRenewDeadlineSeconds=15",
            ["leaseRenewDeadlineSeconds", "15", "less than leaseDurationSeconds"],
        ),
        (
            "coordinator=kubernetes\nleaseRetryPeriodSeconds=9",
            ["leaseRetryPeriodSeconds", "9", "divided by 1.2"],
        ),
        (
            "coordinator=kubernetes\nhaSendHeartbeatInterval=8000",
            ["haSendHeartbeatInterval", "8000", "half of haMaxTimeSlaveNotCatchup"],
        ),
        (
            "coordinator=kubernetes\ntransientStorePoolEnable=true",
            ["transientStorePoolEnable", "true", "on no slave"],
        ),
        ("minInSyncReplicas=2", ["minInSyncReplicas", "2", "in-sync sets"]),
        ("enableControllerMode=true", ["enableControllerMode", "true", "brokerRole"]),
        (
            "transientStorePoolEnable=true\nflushDiskType=SYNC_FLUSH",
            ["transientStorePoolEnable", "SYNC_FLUSH", "ASYNC_FLUSH"],
        ),
        ("commitIntervalCommitLog=0", ["commitIntervalCommitLog", "0", "3600000"]),
        ("aclEnable=true", ["aclEnable", "true", "access control"]),
        ("authenticationEnabled=TRUE", ["authenticationEnabled", "TRUE", "access control"]),
        ("storeType=defaultRocksDB", ["storeType", "defaultRocksDB", "RocksDB"]),
    ] {
        let error = load(text).unwrap_err().to_string();
        for part in parts {
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}

#[test]
fn unknown_keys_and_those_without_effect_are_told_apart() {
    let loaded = load("waitTimeMillsInSendQueue=300\nbrokerNmae=x\naclEnable=false\n").unwrap();
    assert_eq!(loaded.unknown, [("brokerNmae".to_owned(), "x".to_owned())]);
    assert_eq!(loaded.without_effect.len(), 2);
}

#[test]
fn no_key_is_both_effective_and_without_effect() {
    for key in BrokerConfig::KEYS {
        assert!(!is_known_without_effect(key), "{key}");
    }
}

#[test]
fn name_servers_are_split_at_semicolons() {
    let config = load("namesrvAddr= a:9876 ; [::1]:9877;\n").unwrap().config;
    assert_eq!(config.namesrv_addresses().unwrap(), ["a:9876", "[::1]:9877"]);
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = LoadedConfig::from_file(Path::new("/nowhere/broker.conf")).unwrap_err();
    assert!(error.to_string().contains("/nowhere/broker.conf"));
}

#[test]
fn the_black_list_holds() {
    let config = load("configBlackList=configBlackList;namesrvAddr").unwrap().config;
    assert!(config.is_black_listed("namesrvAddr"));
    assert!(config.is_black_listed("brokerConfigPath"));
    assert!(!config.is_black_listed("traceOn"));
}

/// Keys that a part of docs/configuration.md names: the first cell of each row, or each word in
/// back quotes of the lists.
fn documented(part: &str) -> std::collections::BTreeSet<&str> {
    let page = include_str!("../../../docs/configuration.md");
    let (broker, _) = page.split_once("## Name server").expect("a part of the name server");
    let (with, without) = broker.split_once("## Broker: keys without").expect("two parts");
    let keys = |line: &'static str| line.split('`').skip(1).step_by(2);
    match part {
        "with" => {
            let rows = with.lines().filter(|line| line.starts_with("| `"));
            rows.filter_map(|row| keys(row).next()).collect()
        }
        _ => {
            let lists = without.rsplit_once("|\n").expect("a table").1;
            lists.split('`').skip(1).step_by(2).collect()
        }
    }
}

#[test]
fn every_key_is_documented_with_its_default() {
    let expected: std::collections::BTreeSet<&str> = BrokerConfig::KEYS.iter().copied().collect();
    assert_eq!(documented("with"), expected, "bring docs/configuration.md up to date");
    let expected: std::collections::BTreeSet<&str> = known_without_effect().collect();
    assert_eq!(documented("without"), expected, "bring docs/configuration.md up to date");
    let page = include_str!("../../../docs/configuration.md");
    for (key, value) in BrokerConfig::default().to_properties() {
        if key == "brokerName" {
            continue;
        }
        let row = page.lines().find(|line| line.starts_with(&format!("| `{key}` |")));
        let cell = row.and_then(|row| row.split('|').nth(2)).expect("a default").trim();
        assert_eq!(cell.trim_matches('`'), value, "default of {key}");
    }
}
