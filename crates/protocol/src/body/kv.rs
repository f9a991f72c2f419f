//! A table of texts (`KVTable`): runtime figures of a broker, key-value configuration of the name server.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Answer to GET_BROKER_RUNTIME_INFO, GET_KVLIST_BY_NAMESPACE and REGISTER_BROKER.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KVTable {
    /// Value by key.
    pub table: BTreeMap<String, String>,
}
