//! What every producer and consumer has: identity, connections, routes, heart-beats.
//!
//! Owns the loop that refreshes routes and heart-beats every 30 s. What is in a heart-beat is set by the
//! producer or consumer.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rocketmq_protocol::body::HeartbeatData;
use rocketmq_protocol::code::RequestCode;
use rocketmq_protocol::header::client::UnregisterClientRequest;
use rocketmq_remoting::{Client, ClientConfig, ClientRequestHandler, Request, ResponseFrame};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use crate::client_id::ClientId;
use crate::error::ClientError;
use crate::namesrv::NameServers;
use crate::route::{Route, Routes};

/// Period of heart-beats and route refreshes (heartbeatBrokerInterval, pollNameServerInterval).
const PERIOD: Duration = Duration::from_secs(30);
/// Deadline of a call that is not a send or a pull (mqClientApiTimeout).
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(crate) struct Member {
    pub id: ClientId,
    pub client: Client,
    pub name_servers: NameServers,
    pub routes: Routes,
    /// Ends every task of this member.
    pub stop: CancellationToken,
    pub tasks: TaskTracker,
    heartbeat: Mutex<HeartbeatData>,
    /// Producers heart-beat to masters only.
    masters_only: bool,
}

impl Member {
    pub(crate) async fn new(
        name_servers: NameServers,
        handler: Option<Arc<dyn ClientRequestHandler>>,
        masters_only: bool,
    ) -> Self {
        let servers = name_servers.clone();
        // Resolves a host name, which blocks.
        let id = tokio::task::spawn_blocking(move || ClientId::new(&servers)).await;
        let id = id.unwrap_or_else(|_| ClientId::new(&name_servers));
        let heartbeat = HeartbeatData { client_id: id.text.clone(), ..HeartbeatData::default() };
        Self {
            id,
            client: Client::new(ClientConfig::default(), handler),
            name_servers,
            routes: Routes::new(CALL_TIMEOUT),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            heartbeat: Mutex::new(heartbeat),
            masters_only,
        }
    }

    /// Sets what heart-beats say from now on; the client id is filled in here.
    pub(crate) fn set_heartbeat(&self, data: HeartbeatData) {
        *self.heartbeat.lock() = HeartbeatData { client_id: self.id.text.clone(), ..data };
    }

    /// The route as last fetched, fetched now if it never was.
    pub(crate) async fn route(&self, topic: &str) -> Result<Arc<Route>, ClientError> {
        match self.routes.known(topic) {
            Some(route) => Ok(route),
            None => self.fetch_route(topic).await,
        }
    }

    pub(crate) async fn fetch_route(&self, topic: &str) -> Result<Arc<Route>, ClientError> {
        self.routes.fetch(&self.client, &self.name_servers, topic).await
    }

    pub(crate) async fn call(
        &self,
        addr: &str,
        request: Request,
    ) -> Result<ResponseFrame, ClientError> {
        Ok(self.client.call(addr, request, CALL_TIMEOUT).await?)
    }

    /// Heart-beats to every known broker, all at once. Failures are logged; the next one comes anyway.
    pub(crate) async fn heartbeat(&self) {
        let request = Request::new(RequestCode::HEART_BEAT).with_json(&*self.heartbeat.lock());
        let beats = self.routes.broker_addrs(self.masters_only).into_iter().map(|addr| {
            let (client, request) = (self.client.clone(), request.clone());
            self.tasks.spawn(async move {
                let answer = client.call(&addr, request, CALL_TIMEOUT).await;
                if let Err(error) = answer.and_then(ResponseFrame::into_ok) {
                    debug!(addr, %error, "heart-beat failed");
                }
            })
        });
        for beat in beats.collect::<Vec<_>>() {
            if beat.await.is_err() {
                warn!("a heart-beat task ended by a panic");
            }
        }
    }

    /// Refreshes routes and heart-beats until the member stops.
    pub(crate) fn start(self: &Arc<Self>) {
        self.start_loop(true);
    }

    /// Refreshes routes until the member stops: for a consumer that is in no group.
    pub(crate) fn start_refreshing(self: &Arc<Self>) {
        self.start_loop(false);
    }

    fn start_loop(self: &Arc<Self>, with_heartbeat: bool) {
        let this = self.clone();
        self.tasks.spawn(async move {
            let work = async {
                loop {
                    tokio::time::sleep(PERIOD).await;
                    this.routes.refresh(&this.client, &this.name_servers).await;
                    if with_heartbeat {
                        this.heartbeat().await;
                    }
                }
            };
            tokio::select! {
                () = this.stop.cancelled() => {}
                () = work => {}
            }
        });
    }

    /// Tells every known broker that this client leaves its groups.
    pub(crate) async fn unregister(
        &self,
        producer_group: Option<&str>,
        consumer_group: Option<&str>,
    ) {
        let request =
            Request::new(RequestCode::UNREGISTER_CLIENT).with_header(&UnregisterClientRequest {
                client_id: self.id.text.as_str().into(),
                producer_group: producer_group.map(Into::into),
                consumer_group: consumer_group.map(Into::into),
            });
        // Only brokers that are connected can know this client.
        let connected = self.client.connected_addrs();
        for addr in self.routes.broker_addrs(self.masters_only) {
            if connected.iter().any(|known| **known == *addr)
                && let Err(error) = self.call(&addr, request.clone()).await
            {
                debug!(addr, %error, "not unregistered; the broker notices the closed connection");
            }
        }
    }

    /// Ends all tasks and connections.
    pub(crate) async fn shutdown(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.client.shutdown().await;
    }
}

/// Ends the member's tasks when its owner is dropped without a shutdown.
#[derive(Debug)]
pub(crate) struct StopOnDrop(pub Arc<Member>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop.cancel();
    }
}
