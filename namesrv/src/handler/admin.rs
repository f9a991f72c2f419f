//! Key-value configuration and the name server's own configuration. What writes a file is returned
//! as work for the admin thread.

use rocketmq_protocol::body::kv::KVTable;
use rocketmq_protocol::code::ResponseCode;
use rocketmq_protocol::header::kv::{
    DeleteKvConfigRequest, GetKvConfigRequest, GetKvConfigResponse, GetKvlistByNamespaceRequest,
    PutKvConfigRequest,
};
use rocketmq_protocol::response::Response;

use super::{State, Work};
use crate::safe_file::FileError;

/// PUT_KV_CONFIG.
pub(super) fn put_kv(head: &PutKvConfigRequest<'_>) -> Work {
    let (namespace, key, value) =
        (head.namespace.to_string(), head.key.to_string(), head.value.to_string());
    Box::new(move |state| written(state.kv.put(&namespace, &key, &value), &namespace, &key))
}

/// DELETE_KV_CONFIG.
pub(super) fn delete_kv(head: &DeleteKvConfigRequest<'_>) -> Work {
    let (namespace, key) = (head.namespace.to_string(), head.key.to_string());
    Box::new(move |state| written(state.kv.delete(&namespace, &key), &namespace, &key))
}

fn written(result: Result<(), FileError>, namespace: &str, key: &str) -> Response {
    match result {
        Ok(()) => {
            tracing::info!(namespace, key, "key-value configuration changed");
            Response::ok()
        }
        Err(error) => {
            tracing::error!(namespace, key, %error, "key-value configuration not changed");
            Response::error(
                ResponseCode::SYSTEM_ERROR,
                format!("{namespace}/{key} not changed: {error}"),
            )
        }
    }
}

/// GET_KV_CONFIG.
pub(super) fn get_kv(state: &State, head: &GetKvConfigRequest<'_>) -> Response {
    match state.kv.get(&head.namespace, &head.key) {
        Some(value) => {
            Response::ok().with_header(&GetKvConfigResponse { value: Some(value.into()) })
        }
        None => Response::error(
            ResponseCode::QUERY_NOT_FOUND,
            format!("No config item, Namespace: {} Key: {}", head.namespace, head.key),
        ),
    }
}

/// GET_KVLIST_BY_NAMESPACE.
pub(super) fn kv_list(state: &State, head: &GetKvlistByNamespaceRequest<'_>) -> Response {
    match state.kv.namespace(&head.namespace) {
        Some(table) => Response::ok().with_json(&KVTable { table }),
        None => Response::error(
            ResponseCode::QUERY_NOT_FOUND,
            format!("No config item, Namespace: {}", head.namespace),
        ),
    }
}

/// GET_NAMESRV_CONFIG: every key with its value, sorted.
pub(super) fn get_config(state: &State) -> Response {
    Response::ok().with_body(state.settings.text())
}

/// UPDATE_NAMESRV_CONFIG.
pub(super) fn update_config(body: &[u8]) -> Work {
    let text = body.to_vec();
    Box::new(move |state| match state.settings.update(&text) {
        Ok(keys) => {
            tracing::info!(?keys, "configuration changed");
            Response::ok()
        }
        Err(error) => {
            tracing::warn!(%error, "configuration not changed");
            Response::error(error.code(), error.to_string())
        }
    })
}
