//! The name servers' key-value configuration, which holds the order of ordered topics.

use std::collections::BTreeMap;

use rocketmq_protocol::body::kv::KVTable;
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::header::kv::{
    DeleteKvConfigRequest, GetKvConfigRequest, GetKvConfigResponse, GetKvlistByNamespaceRequest,
    PutKvConfigRequest,
};
use rocketmq_remoting::Request;

use super::Admin;
use crate::error::ClientError;

/// Namespace of the queues of ordered topics: topic → `broker-a:4;broker-b:4`.
pub const ORDER_TOPIC_CONFIG: &str = "ORDER_TOPIC_CONFIG";

impl Admin {
    /// Sets a value in every name server.
    ///
    /// # Errors
    /// When one of them does not answer; the others have it all the same.
    pub async fn put_kv(&self, namespace: &str, key: &str, value: &str) -> Result<(), ClientError> {
        let header = PutKvConfigRequest {
            namespace: namespace.into(),
            key: key.into(),
            value: value.into(),
        };
        let request = Request::new(RequestCode::PUT_KV_CONFIG).with_header(&header);
        self.every_namesrv(request).await.map(drop)
    }

    /// A value, as one name server has it.
    ///
    /// # Errors
    /// When no name server answers.
    pub async fn get_kv(&self, namespace: &str, key: &str) -> Result<Option<String>, ClientError> {
        let header = GetKvConfigRequest { namespace: namespace.into(), key: key.into() };
        let request = Request::new(RequestCode::GET_KV_CONFIG).with_header(&header);
        let answer = self.name_servers.call(&self.client, request, self.timeout).await?;
        if answer.code == ResponseCode::QUERY_NOT_FOUND {
            return Ok(None);
        }
        let answer = answer.into_ok()?;
        let value = answer.header::<GetKvConfigResponse<'_>>()?.value;
        Ok(value.map(std::borrow::Cow::into_owned))
    }

    /// Deletes a value in every name server. Not an error when it is not there.
    ///
    /// # Errors
    /// When one of them does not answer.
    pub async fn delete_kv(&self, namespace: &str, key: &str) -> Result<(), ClientError> {
        let header = DeleteKvConfigRequest { namespace: namespace.into(), key: key.into() };
        let request = Request::new(RequestCode::DELETE_KV_CONFIG).with_header(&header);
        self.every_namesrv(request).await.map(drop)
    }

    /// All values of a namespace, as one name server has them.
    ///
    /// # Errors
    /// When no name server answers.
    pub async fn kv_list(&self, namespace: &str) -> Result<BTreeMap<String, String>, ClientError> {
        let header = GetKvlistByNamespaceRequest { namespace: namespace.into() };
        let request = Request::new(RequestCode::GET_KVLIST_BY_NAMESPACE).with_header(&header);
        let answer = self.name_servers.call(&self.client, request, self.timeout).await?;
        if answer.code == ResponseCode::QUERY_NOT_FOUND {
            return Ok(BTreeMap::new());
        }
        Ok(answer.into_ok()?.json::<KVTable>()?.table)
    }
}
