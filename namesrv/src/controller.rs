//! The controller that runs in a name server (`enableControllerInNamesrv`): its set-up out of
//! namesrv.conf, and its view of the running configuration. What it does is in its own crate.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rocketmq_controller::peers::{Peers, parse_id};
use rocketmq_controller::{Controller, ControllerConfig, StartError, Tunables, UpdateRefused};
use rocketmq_protocol::config::{self, ConfigError};

use crate::config::{ControllerType, NamesrvConfig};
use crate::handler::State;

/// Keys that GET_CONTROLLER_CONFIG shows: those of RocketMQ's ControllerConfig.
const KEYS: [&str; 17] = [
    "configBlackList",
    "configStorePath",
    "controllerDLegerGroup",
    "controllerDLegerPeers",
    "controllerDLegerSelfId",
    "controllerRequestThreadPoolQueueCapacity",
    "controllerStorePath",
    "controllerThreadPoolNums",
    "controllerType",
    "electMasterMaxRetryCount",
    "enableElectUncleanMaster",
    "isProcessReadEvent",
    "mappedFileSize",
    "notifyBrokerRoleChanged",
    "rocketmqHome",
    "scanInactiveMasterInterval",
    "scanNotActiveBrokerInterval",
];

/// Reads the controller's set-up.
///
/// # Errors
/// The key that does not fit.
pub(crate) fn config(config: &NamesrvConfig) -> Result<ControllerConfig, ConfigError> {
    let refused = |key: &str, value: &str, allowed: String| ConfigError {
        key: key.to_owned(),
        value: value.to_owned(),
        allowed,
    };
    if config.controller_type != ControllerType::DLedger {
        let allowed = "DLedger, with controllerDLegerGroup, controllerDLegerPeers and \
                       controllerDLegerSelfId in place of the jRaft keys";
        return Err(refused("controllerType", "jRaft", allowed.to_owned()));
    }
    let group = config.controller_dleger_group.as_str();
    if group.is_empty() {
        let allowed = "a name, the same for all controllers, with enableControllerInNamesrv=true";
        return Err(refused("controllerDLegerGroup", group, allowed.to_owned()));
    }
    let list = config.controller_dleger_peers.as_str();
    let peers = Peers::parse(list).map_err(|error| {
        refused("controllerDLegerPeers", list, format!("n0-host:port;n1-host:port ({error})"))
    })?;
    let own = config.controller_dleger_self_id.as_str();
    let found = parse_id(own).and_then(|id| Some((id, peers.address(id)?)));
    let port = found.and_then(|(id, address)| Some((id, address.rsplit_once(':')?.1)));
    let Some((own_id, Ok(port))) = port.map(|(id, port)| (id, port.parse::<u16>())) else {
        let allowed = "the id of an entry of controllerDLegerPeers, as n0";
        return Err(refused("controllerDLegerSelfId", own, allowed.to_owned()));
    };
    if port == config.listen_port {
        let allowed = "another port than listenPort for this controller";
        return Err(refused("controllerDLegerPeers", list, allowed.to_owned()));
    }
    let Ok(ip) = config.bind_address.parse() else {
        let allowed = "an IPv4 or IPv6 address of this machine".to_owned();
        return Err(refused("bindAddress", &config.bind_address, allowed));
    };
    let store_path = match config.controller_store_path.as_str() {
        "" => {
            let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("."), PathBuf::from);
            home.join("DLedgerController")
        }
        path => PathBuf::from(path),
    };
    let listen = SocketAddr::new(ip, port);
    Ok(ControllerConfig {
        idle: Duration::from_secs(config.server_channel_max_idle_time_seconds),
        ..ControllerConfig::new(group.to_owned(), peers, own_id, listen, store_path)
    })
}

/// Starts the controller, if the configuration wants one.
pub(crate) fn start(state: &Arc<State>) -> Result<Option<Controller>, StartFailed> {
    let namesrv = state.settings.get();
    if !namesrv.enable_controller_in_namesrv {
        return Ok(None);
    }
    let settings = Arc::new(Settings(Arc::clone(state)));
    Ok(Some(Controller::start(config(&namesrv)?, settings)?))
}

/// Why it does not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartFailed {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Start(#[from] StartError),
}

/// namesrv.conf as the controller sees it.
struct Settings(Arc<State>);

impl rocketmq_controller::Settings for Settings {
    fn tunables(&self) -> Tunables {
        let config = self.0.settings.get();
        let interval_ms =
            config.scan_not_active_broker_interval.min(config.scan_inactive_master_interval);
        Tunables {
            unclean_elections: config.enable_elect_unclean_master,
            notify_brokers: config.notify_broker_role_changed,
            election_attempts: u32::try_from(config.elect_master_max_retry_count).unwrap_or(1),
            scan_interval: Duration::from_millis(u64::try_from(interval_ms).unwrap_or(1)),
        }
    }

    fn text(&self) -> String {
        let mut pairs = self.0.settings.get().to_properties();
        pairs.retain(|(key, _)| KEYS.contains(key));
        config::write(&pairs)
    }

    fn update(&self, text: &[u8]) -> Result<(), UpdateRefused> {
        match self.0.settings.update(text) {
            Ok(keys) => {
                tracing::info!(?keys, "configuration changed through the controller");
                Ok(())
            }
            Err(error) => {
                tracing::warn!(%error, "configuration not changed");
                Err(UpdateRefused { code: error.code(), remark: error.to_string() })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> Result<ControllerConfig, String> {
        let mut all = vec![
            ("enableControllerInNamesrv", "true"),
            ("controllerDLegerGroup", "g"),
            ("controllerDLegerPeers", "n0-a:9877;n1-b:9878"),
            ("controllerDLegerSelfId", "n1"),
        ];
        all.extend_from_slice(pairs);
        let (namesrv, unknown) = NamesrvConfig::from_properties(&all).unwrap();
        assert!(unknown.is_empty(), "{unknown:?}");
        namesrv.validate().map_err(|error| error.to_string())?;
        Ok(config(&namesrv).unwrap())
    }

    #[test]
    fn the_keys_make_a_controller() {
        let made = of(&[("controllerStorePath", "/c"), ("bindAddress", "127.0.0.1")]).unwrap();
        assert_eq!((made.group.as_str(), made.own_id), ("g", 1));
        assert_eq!(made.listen.to_string(), "127.0.0.1:9878");
        assert_eq!(made.store_path, PathBuf::from("/c"));
        assert!(of(&[]).unwrap().store_path.ends_with("DLedgerController"));
    }

    #[test]
    fn what_does_not_fit_is_refused_by_key() {
        for (key, value, part) in [
            ("controllerType", "jRaft", "DLedger"),
            ("controllerDLegerGroup", "", "a name"),
            ("controllerDLegerPeers", "", "1 to 15 controllers"),
            ("controllerDLegerPeers", "n1-b", "host:port"),
            ("controllerDLegerPeers", "n1-b:9876", "another port than listenPort"),
            ("controllerDLegerSelfId", "n7", "controllerDLegerPeers"),
            ("controllerDLegerSelfId", "", "as n0"),
        ] {
            let error = of(&[(key, value)]).unwrap_err();
            assert!(error.contains(key) && error.contains(part), "{error}");
        }
        // Without a controller nobody asks what its keys say.
        let idle = [("controllerDLegerPeers", "nonsense"), ("controllerType", "jRaft")];
        NamesrvConfig::from_properties(&idle).unwrap().0.validate().unwrap();
    }

    #[test]
    fn every_key_that_is_shown_exists() {
        for key in KEYS {
            assert!(NamesrvConfig::KEYS.contains(&key), "{key}");
        }
    }
}
