//! The name server's key-value configuration.

use std::borrow::Cow;

use crate::header;

header! {
    /// PUT_KV_CONFIG (`PutKVConfigRequestHeader`).
    pub struct PutKvConfigRequest<'a> {
        /// The namespace, such as `ORDER_TOPIC_CONFIG`.
        namespace: Cow<'a, str> = "namespace", required;
        /// The key.
        key: Cow<'a, str> = "key", required;
        /// The value.
        value: Cow<'a, str> = "value", required;
    }
}

header! {
    /// GET_KV_CONFIG (`GetKVConfigRequestHeader`).
    pub struct GetKvConfigRequest<'a> {
        /// The namespace.
        namespace: Cow<'a, str> = "namespace", required;
        /// The key.
        key: Cow<'a, str> = "key", required;
    }
}

header! {
    /// Answer to GET_KV_CONFIG (`GetKVConfigResponseHeader`).
    pub struct GetKvConfigResponse<'a> {
        /// The value.
        value: Option<Cow<'a, str>> = "value", optional;
    }
}

header! {
    /// DELETE_KV_CONFIG (`DeleteKVConfigRequestHeader`).
    pub struct DeleteKvConfigRequest<'a> {
        /// The namespace.
        namespace: Cow<'a, str> = "namespace", required;
        /// The key.
        key: Cow<'a, str> = "key", required;
    }
}

header! {
    /// GET_KVLIST_BY_NAMESPACE (`GetKVListByNamespaceRequestHeader`).
    pub struct GetKvlistByNamespaceRequest<'a> {
        /// The namespace.
        namespace: Cow<'a, str> = "namespace", required;
    }
}
