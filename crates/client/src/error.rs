//! How the client's operations fail.

use rocketmq_protocol::code::ResponseCode;
use rocketmq_protocol::names::NameError;
use rocketmq_protocol::subscription::NoTagError;
use rocketmq_remoting::CallError;

/// Why an operation failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClientError {
    /// A call to a broker or name server failed or was refused.
    #[error(transparent)]
    Call(#[from] CallError),
    /// No name server is configured.
    #[error("no name server is given; expected `host:port`, several joined by `;`")]
    NoNameServer,
    /// No name server answered.
    #[error("none of the name servers {addrs} answered: {last}")]
    NameServers {
        /// Those that were tried.
        addrs: String,
        /// What the last one said.
        last: CallError,
    },
    /// No name server knows the topic.
    #[error("topic `{topic}` has no route: it does not exist, or no broker with it is registered")]
    TopicNotFound {
        /// The topic.
        topic: String,
    },
    /// The topic has no queue that allows what is wanted.
    #[error("topic `{topic}` has no {wanted} queue")]
    NoQueue {
        /// The topic.
        topic: String,
        /// `writable` or `readable`.
        wanted: &'static str,
    },
    /// The broker group of a queue has no address.
    #[error("broker `{broker_name}` is not in the route of topic `{topic}`")]
    NoBroker {
        /// The broker group.
        broker_name: String,
        /// The topic.
        topic: String,
    },
    /// A topic or group name breaks a rule.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A tag expression has no tag.
    #[error(transparent)]
    Expression(#[from] NoTagError),
    /// The message cannot be sent as it is.
    #[error("message to topic `{topic}` cannot be sent: {reason}")]
    IllegalMessage {
        /// The topic.
        topic: String,
        /// Which rule it breaks.
        reason: String,
    },
    /// A message from a broker cannot be read.
    #[error("message from {addr} cannot be read: {reason}")]
    BrokenMessage {
        /// The broker.
        addr: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A setting has an impossible value.
    #[error("{setting} is {value}, {expected} expected")]
    Setting {
        /// Which setting.
        setting: &'static str,
        /// Its value.
        value: String,
        /// What would be right.
        expected: &'static str,
    },
    /// The client was shut down.
    #[error("the client is shut down")]
    ShutDown,
}

impl ClientError {
    /// The peer's response code, when it answered with a refusal.
    pub fn response_code(&self) -> Option<ResponseCode> {
        match self {
            Self::Call(error) | Self::NameServers { last: error, .. } => error.response_code(),
            _ => None,
        }
    }

    /// Whether the peer refused with `code`.
    pub fn is_refused_with(&self, code: ResponseCode) -> bool {
        self.response_code() == Some(code)
    }
}
