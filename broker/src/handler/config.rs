//! GET_BROKER_CONFIG and UPDATE_BROKER_CONFIG (AdminBrokerProcessor over Configuration).

use std::collections::BTreeMap;
use std::sync::Arc;

use rocketmq_protocol::body::DataVersion;
use rocketmq_protocol::code::ResponseCode;
use rocketmq_protocol::config;
use rocketmq_protocol::fastjson;
use rocketmq_protocol::frame::Frame;
use rocketmq_protocol::header::config::GetBrokerConfigResponse;
use rocketmq_protocol::response::Response;
use rocketmq_remoting::Connection;
use rocketmq_store::{RealFileSystem, small_file};
use tracing::{info, warn};

use crate::clock::now_ms;
use crate::config::{BrokerConfig, is_known_without_effect};
use crate::error::StartError;
use crate::state::{BrokerState, ConfigFile};

/// GET_BROKER_CONFIG: every key and its value, sorted.
pub fn get_broker_config(
    state: &Arc<BrokerState>,
    _conn: &Arc<Connection>,
    _frame: &Frame<'_>,
) -> Response {
    let file = state.config_update.lock();
    let mut pairs: BTreeMap<String, String> = file.other.clone().into_iter().collect();
    let effective = state.config.load().to_properties();
    pairs.extend(effective.into_iter().map(|(key, value)| (key.to_owned(), value)));
    let version = DataVersion {
        counter: file.counter,
        timestamp: file.timestamp_ms,
        ..DataVersion::default()
    };
    drop(file);
    let pairs: Vec<(String, String)> = pairs.into_iter().collect();
    let version = String::from_utf8_lossy(&fastjson::to_vec(&version)).into_owned();
    Response::ok()
        .with_header(&GetBrokerConfigResponse { version: version.into() })
        .with_body(config::write(&pairs))
}

/// UPDATE_BROKER_CONFIG: changes keys, all or none, and writes them to the configuration file.
/// What only the start reads takes effect with the next start, and what says which broker this is
/// cannot be changed; unknown keys are ignored, as in RocketMQ.
pub fn update_broker_config(
    state: &Arc<BrokerState>,
    conn: &Arc<Connection>,
    frame: &Frame<'_>,
) -> Response {
    let pairs = config::parse_bytes(frame.body);
    if pairs.is_empty() {
        let remark = "the request has no key=value line";
        return Response::error(ResponseCode::INVALID_PARAMETER, remark);
    }
    let mut file = state.config_update.lock();
    let before = state.config.load_full();
    if let Some((key, _)) = pairs.iter().find(|(key, _)| before.is_black_listed(key)) {
        let remark = format!("Can not update config in black list: {key}");
        return Response::error(ResponseCode::NO_PERMISSION, remark);
    }
    let is_fixed = |key: &str, value: &str| {
        BrokerConfig::is_fixed_while_running(key)
            && before.get(key).as_deref() != Some(value.trim())
    };
    if let Some((key, value)) = pairs.iter().find(|(key, value)| is_fixed(key, value)) {
        let remark = format!(
            "{key} cannot become `{value}` while the broker runs: it says which broker this is or what \
             its files are like; stop the broker and change it in its configuration file"
        );
        return Response::error(ResponseCode::INVALID_PARAMETER, remark);
    }
    let mut after = (*before).clone();
    let (mut taken, mut without_effect) = (Vec::new(), Vec::new());
    for (key, value) in pairs {
        match after.set_checked(&key, &value) {
            Ok(true) => taken.push((key, value)),
            Ok(false) if is_known_without_effect(&key) => {
                without_effect.push((key.clone(), value.clone()));
                taken.push((key, value));
            }
            Ok(false) => warn!(key, "unknown configuration key ignored"),
            Err(error) => {
                return Response::error(ResponseCode::INVALID_PARAMETER, error.to_string());
            }
        }
    }
    if let Err(error) = after.normalize() {
        return Response::error(ResponseCode::INVALID_PARAMETER, error.to_string());
    }
    for (key, value) in &taken {
        info!(key, value, client = conn.remote_text(), "configuration changed");
    }
    state.config.store(Arc::new(after));
    file.other.extend(without_effect);
    file.counter += 1;
    file.timestamp_ms = now_ms();
    let kept = write_file(&file, &taken);
    let applied = apply(state, &before);
    drop(file);
    let mut response = Response::ok();
    if let Err(error) = applied {
        return Response::error(ResponseCode::SYSTEM_ERROR, error.to_string());
    }
    if let Err(error) = kept {
        warn!(error, "configuration change lasts until the next start only");
        response.remark = Some(format!("applied until the next start only: {error}"));
    }
    response
}

/// Tells the parts that keep something of the configuration.
fn apply(state: &BrokerState, before: &BrokerConfig) -> Result<(), StartError> {
    let config = state.config.load();
    state.groups.configure(&config);
    state.filters.make_bit_maps(config.enable_calc_filter_bit_map);
    if config.namesrv_addr != before.namesrv_addr {
        state.registration.set_name_servers(config.namesrv_addresses()?);
    }
    if config.broker_permission != before.broker_permission {
        state.topics.touch()?;
    }
    Ok(())
}

/// Puts the changed keys into the configuration file; its other lines stay, comments do not.
fn write_file(file: &ConfigFile, changes: &[(String, String)]) -> Result<(), String> {
    let Some(path) = &file.path else {
        return Err("the broker was started without a configuration file".to_owned());
    };
    let bytes =
        std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let mut pairs = config::parse_bytes(&bytes);
    for (key, value) in changes {
        pairs.retain(|(known, _)| known != key);
        pairs.push((key.clone(), value.clone()));
    }
    let text = config::write(&pairs);
    small_file::write_small_file(&RealFileSystem, path, text.as_bytes())
        .map_err(|error| error.to_string())
}
