//! Reaching a cluster: the name server option, calls and their errors, the masters.

use std::future::Future;
use std::time::Duration;

use anyhow::Context;
use rocketmq_client::{Admin, ClientError};
use rocketmq_protocol::body::route::TopicRouteData;
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_remoting::CallError;

use crate::exit::{self, Exit};

/// Where the name server is when nothing says otherwise; `rmq standalone` listens there.
const NAMESRV_DEFAULT: &str = "127.0.0.1:9876";
/// Longer waits are written without a timeout.
const SECONDS_MAX: Duration = Duration::from_secs(86_400 * 365);
const NAMESRV_VARIABLE: &str = "NAMESRV_ADDR";

/// `-n`.
#[derive(Clone, Debug, clap::Args)]
pub struct Namesrv {
    /// Name servers, as host:port;host:port [default: NAMESRV_ADDR of the environment, else
    /// 127.0.0.1:9876]
    #[arg(short = 'n', long = "namesrv", value_name = "ADDRESSES")]
    namesrv: Option<String>,
}

impl Namesrv {
    /// The addresses: the option, else the environment, else the default.
    pub fn addresses(&self) -> String {
        let from_environment =
            || std::env::var(NAMESRV_VARIABLE).ok().filter(|text| !text.trim().is_empty());
        self.namesrv.clone().or_else(from_environment).unwrap_or_else(|| NAMESRV_DEFAULT.to_owned())
    }

    /// A client for administration. Nothing is sent yet.
    pub fn admin(&self) -> anyhow::Result<Admin> {
        let usage = |error: ClientError| {
            exit::error(Exit::Usage, format!("{error} (-n, or {NAMESRV_VARIABLE})"))
        };
        Admin::new([self.addresses()]).map_err(usage)
    }
}

/// Runs a command on a runtime of one thread.
pub fn block_on(command: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?
        .block_on(command)
}

/// Reads `KEY=VALUE`.
pub fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write KEY=VALUE".to_owned()),
    }
}

/// Reads a number of seconds, fractions allowed.
pub fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "write a number of seconds".to_owned())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() && duration <= SECONDS_MAX => Ok(duration),
        _ => Err(format!("write more than 0 and at most {} seconds", SECONDS_MAX.as_secs())),
    }
}

/// Turns a client's error into one that carries the exit code.
pub fn done<T>(result: Result<T, ClientError>) -> anyhow::Result<T> {
    result.map_err(failed)
}

/// The address of a broker that was asked what only a name server knows.
fn not_a_name_server(error: &ClientError) -> Option<&str> {
    let (ClientError::Call(call) | ClientError::NameServers { last: call, .. }) = error else {
        return None;
    };
    match call {
        CallError::Refused {
            addr,
            request: RequestCode::GET_BROKER_CLUSTER_INFO | RequestCode::GET_ROUTEINFO_BY_TOPIC,
            code: ResponseCode::REQUEST_CODE_NOT_SUPPORTED,
            ..
        } => Some(addr),
        _ => None,
    }
}

/// The error with its exit code, and for the usual causes with what to do.
pub fn failed(error: ClientError) -> anyhow::Error {
    if let Some(addr) = not_a_name_server(&error) {
        let text = format!(
            "{addr} is not a name server, but probably a broker; give the address of a name server, \
             whose port is usually 9876 (-n, or {NAMESRV_VARIABLE})"
        );
        return exit::error(Exit::Unreachable, text);
    }
    let (exit, hint) = match &error {
        ClientError::NoNameServer
        | ClientError::Name(_)
        | ClientError::Expression(_)
        | ClientError::IllegalMessage { .. }
        | ClientError::Setting { .. } => (Exit::Usage, ""),
        ClientError::TopicNotFound { .. } => {
            (Exit::NotFound, "; create it with rmq topic create, see all with rmq topic list")
        }
        ClientError::NameServers { .. } => {
            (Exit::Unreachable, "; is it running, and is the address right (-n, or NAMESRV_ADDR)?")
        }
        ClientError::Call(CallError::Connect { .. } | CallError::Closed { .. }) => {
            (Exit::Unreachable, "; is the broker running, and is its address reachable from here?")
        }
        ClientError::Call(CallError::Timeout { .. }) => (Exit::Timeout, ""),
        _ => match error.response_code() {
            Some(ResponseCode::TOPIC_NOT_EXIST | ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST) => {
                (Exit::NotFound, "")
            }
            _ => (Exit::Failure, ""),
        },
    };
    exit::error(exit, format!("{error}{hint}"))
}

/// A master.
#[derive(Clone, Debug)]
pub struct Broker {
    /// Name of its group.
    pub name: String,
    /// Its cluster.
    pub cluster: String,
    /// Its address.
    pub addr: String,
}

/// The masters of a cluster, or of all; an error when there is none.
pub async fn masters(admin: &Admin, cluster: Option<&str>) -> anyhow::Result<Vec<Broker>> {
    let info = done(admin.cluster_info().await)?;
    let masters: Vec<Broker> = info
        .broker_addr_table
        .into_iter()
        .filter(|(_, data)| cluster.is_none_or(|cluster| cluster == data.cluster))
        .filter_map(|(name, mut data)| {
            let addr = data.broker_addrs.remove(&0)?;
            Some(Broker { name, cluster: data.cluster, addr })
        })
        .collect();
    if !masters.is_empty() {
        return Ok(masters);
    }
    let clusters: Vec<&str> = info.cluster_addr_table.keys().map(String::as_str).collect();
    let text = match cluster {
        Some(cluster) if !clusters.contains(&cluster) => {
            let clusters = clusters.join(", ");
            format!("cluster {cluster} does not exist; the name server knows: {clusters}")
        }
        _ => "no master broker is registered at the name server; is the broker running, and does \
              its namesrvAddr name this name server?"
            .to_owned(),
    };
    Err(exit::error(Exit::NotFound, text))
}

/// Said of a topic that is nowhere.
pub fn no_such_topic(topic: &str) -> anyhow::Error {
    exit::error(
        Exit::NotFound,
        format!("topic {topic} does not exist; see all with rmq topic list"),
    )
}

/// A topic's route; `None` when the name server does not know it.
pub async fn route(admin: &Admin, topic: &str) -> anyhow::Result<Option<TopicRouteData>> {
    match admin.topic_route(topic).await {
        Ok(route) => Ok(Some(route)),
        Err(ClientError::TopicNotFound { .. }) => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_split_at_the_first_equals_sign() {
        assert_eq!(parse_pair("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert_eq!(parse_pair("a="), Ok(("a".to_owned(), String::new())));
        assert!(parse_pair("a").is_err() && parse_pair("=b").is_err());
    }

    #[test]
    fn errors_lead_to_documented_exit_codes() {
        let missing = failed(ClientError::TopicNotFound { topic: "t".to_owned() });
        assert_eq!(exit::code_of(&missing), Exit::NotFound);
        assert!(missing.to_string().contains("rmq topic create"));
        let connect =
            CallError::Connect { addr: "h:1".into(), reason: "connection refused".to_owned() };
        let namesrv = ClientError::NameServers { addrs: "h:1".to_owned(), last: connect.clone() };
        for error in [ClientError::Call(connect), namesrv] {
            assert_eq!(exit::code_of(&failed(error)), Exit::Unreachable);
        }
        let broker = CallError::Refused {
            addr: "h:10911".into(),
            request: RequestCode::GET_BROKER_CLUSTER_INFO,
            code: ResponseCode::REQUEST_CODE_NOT_SUPPORTED,
            remark: String::new(),
        };
        let broker = failed(ClientError::Call(broker));
        assert_eq!(exit::code_of(&broker), Exit::Unreachable);
        assert!(broker.to_string().contains("h:10911 is not a name server"), "{broker}");
        let wrong = Namesrv { namesrv: Some("nonsense".to_owned()) }.admin();
        let wrong = wrong.err().expect("no address");
        assert_eq!(exit::code_of(&wrong), Exit::Usage);
        assert!(wrong.to_string().contains("nonsense"));
    }
}
