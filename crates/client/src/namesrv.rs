//! The list of name servers: one is asked until it fails, then the next.
//!
//! Name servers are equal and do not talk to each other, so what one answers, each could. Changes that each
//! of them must see go to all; see `admin`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use rocketmq_protocol::body::route::TopicRouteData;
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::header::route::GetRouteinfoByTopicRequest;
use rocketmq_remoting::{CallError, Client, Request, ResponseFrame};
use tracing::debug;

use crate::error::ClientError;

/// Addresses of name servers and which of them is asked now. Clones share that.
#[derive(Debug, Clone)]
pub struct NameServers {
    addrs: Arc<[String]>,
    current: Arc<AtomicUsize>,
}

impl NameServers {
    /// Makes a list; each element may itself be several addresses joined by `;`. Clients begin at
    /// different name servers, so that these share the load.
    ///
    /// # Errors
    /// [`ClientError::NoNameServer`] when there is no address in it; [`ClientError::Setting`] when one is
    /// not `host:port`.
    pub fn new<S: AsRef<str>>(addrs: impl IntoIterator<Item = S>) -> Result<Self, ClientError> {
        let mut list = Vec::<String>::new();
        for element in addrs {
            for addr in element.as_ref().split(';').map(str::trim).filter(|a| !a.is_empty()) {
                let port = addr.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
                if !matches!(port, Some(Ok(_))) {
                    return Err(ClientError::Setting {
                        setting: "name server address",
                        value: format!("`{addr}`"),
                        expected: "`host:port`",
                    });
                }
                if list.iter().all(|known| known != addr) {
                    list.push(addr.to_owned());
                }
            }
        }
        if list.is_empty() {
            return Err(ClientError::NoNameServer);
        }
        let first = rand::random_range(0..list.len());
        Ok(Self { addrs: list.into(), current: Arc::new(AtomicUsize::new(first)) })
    }

    /// All addresses, in the order given.
    pub fn addrs(&self) -> &[String] {
        &self.addrs
    }

    /// Asks the current name server; when it cannot be reached or does not answer, the next ones in turn.
    /// The first that answers, whatever it answers, stays the current one.
    ///
    /// # Errors
    /// [`ClientError::NameServers`] when none answers.
    pub async fn call(
        &self,
        client: &Client,
        request: Request,
        timeout: Duration,
    ) -> Result<ResponseFrame, ClientError> {
        let first = self.current.load(Relaxed);
        let mut last = None;
        for step in 0..self.addrs.len() {
            let index = (first + step) % self.addrs.len();
            match client.call(&self.addrs[index], request.clone(), timeout).await {
                Ok(answer) => {
                    self.current.store(index, Relaxed);
                    return Ok(answer);
                }
                Err(error @ CallError::ShutDown { .. }) => return Err(error.into()),
                Err(error) => {
                    debug!(%error, "name server does not answer");
                    last = Some(error);
                }
            }
        }
        match last {
            Some(last) => Err(ClientError::NameServers { addrs: self.addrs.join(";"), last }),
            None => Err(ClientError::NoNameServer),
        }
    }

    /// The route of a topic.
    ///
    /// # Errors
    /// [`ClientError::TopicNotFound`] when the name server does not know it.
    pub async fn topic_route(
        &self,
        client: &Client,
        topic: &str,
        timeout: Duration,
    ) -> Result<TopicRouteData, ClientError> {
        read_route(topic, self.call(client, route_request(topic), timeout).await?)
    }
}

pub(crate) fn route_request(topic: &str) -> Request {
    Request::new(RequestCode::GET_ROUTEINFO_BY_TOPIC).with_header(&GetRouteinfoByTopicRequest {
        topic: topic.into(),
        accept_standard_json_only: Some(true),
    })
}

pub(crate) fn read_route(
    topic: &str,
    answer: ResponseFrame,
) -> Result<TopicRouteData, ClientError> {
    if answer.code == ResponseCode::TOPIC_NOT_EXIST {
        return Err(ClientError::TopicNotFound { topic: topic.to_owned() });
    }
    Ok(answer.into_ok()?.json()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_split_and_checked() {
        let list = NameServers::new(["a:1; b:2;", "c.svc:3", "a:1"]).expect("valid");
        assert_eq!(list.addrs(), ["a:1", "b:2", "c.svc:3"]);
        assert!(matches!(NameServers::new([" ;"]), Err(ClientError::NoNameServer)));
        let wrong = NameServers::new(["host-without-port"]).expect_err("no port");
        assert!(wrong.to_string().contains("`host-without-port`"), "{wrong}");
        assert!(NameServers::new(["host:99999"]).is_err());
    }
}
