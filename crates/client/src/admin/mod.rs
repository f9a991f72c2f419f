//! Administrative calls, typed: what `mqadmin` does, one request at a time.
//!
//! Owns sending and reading; which brokers a change must reach is the caller's decision, with one exception:
//! what concerns name servers alone goes to each of them, since they do not share it. A missing topic, group
//! or offset is `None` where RocketMQ has a code for it.

mod cluster;
mod group;
mod kv;
mod message;
mod offset;
mod topic;

use std::time::Duration;

use rocketmq_remoting::{Client, ClientConfig, Request, ResponseFrame};
use serde::de::DeserializeOwned;

use crate::error::ClientError;
use crate::namesrv::NameServers;

pub use cluster::BrokerEpochs;
pub use kv::ORDER_TOPIC_CONFIG;
pub use offset::ResetTo;
pub use topic::topic_request;

/// How long a call may take unless said otherwise (mqadmin's own value).
pub const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Administrative calls to name servers and brokers. Clones share connections.
#[derive(Clone)]
pub struct Admin {
    client: Client,
    name_servers: NameServers,
    timeout: Duration,
}

impl Admin {
    /// Calls through the given name servers; see [`NameServers::new`]. Connects on first use.
    ///
    /// # Errors
    /// When the list is empty or an address is not `host:port`.
    pub fn new<S: AsRef<str>>(
        name_servers: impl IntoIterator<Item = S>,
    ) -> Result<Self, ClientError> {
        let client = Client::new(ClientConfig::default(), None);
        Ok(Self::with_client(client, NameServers::new(name_servers)?))
    }

    /// Calls over an existing client's connections.
    pub fn with_client(client: Client, name_servers: NameServers) -> Self {
        Self { client, name_servers, timeout: CALL_TIMEOUT }
    }

    /// Sets how long each call may take.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The name servers.
    pub fn name_servers(&self) -> &NameServers {
        &self.name_servers
    }

    /// The client whose connections are used.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Sends any request to any address; the answer may have any code.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn call(&self, addr: &str, request: Request) -> Result<ResponseFrame, ClientError> {
        Ok(self.client.call(addr, request, self.timeout).await?)
    }

    /// Closes all connections; later calls fail.
    pub async fn shutdown(&self) {
        self.client.shutdown().await;
    }

    /// A call that must succeed.
    async fn ok(&self, addr: &str, request: Request) -> Result<ResponseFrame, ClientError> {
        Ok(self.call(addr, request).await?.into_ok()?)
    }

    /// A call that must succeed and whose body is JSON.
    async fn json<T: DeserializeOwned>(
        &self,
        addr: &str,
        request: Request,
    ) -> Result<T, ClientError> {
        Ok(self.ok(addr, request).await?.json()?)
    }

    /// A call to one name server that must succeed and whose body is JSON.
    async fn namesrv_json<T: DeserializeOwned>(&self, request: Request) -> Result<T, ClientError> {
        let answer = self.name_servers.call(&self.client, request, self.timeout).await?;
        Ok(answer.into_ok()?.json()?)
    }

    /// A call to every name server. All are asked, even after one failed; the first failure is returned.
    async fn every_namesrv(&self, request: Request) -> Result<Vec<ResponseFrame>, ClientError> {
        let mut answers = Vec::new();
        let mut failure = None;
        for addr in self.name_servers.addrs() {
            match self.ok(addr, request.clone()).await {
                Ok(answer) => answers.push(answer),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(answers), Err)
    }
}
