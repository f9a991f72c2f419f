//! How this process names itself to brokers.

use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

use rocketmq_protocol::message::id::UniqueKeyMaker;

use crate::namesrv::NameServers;

/// Numbers the clients of this process.
static INSTANCES: AtomicU32 = AtomicU32::new(0);

/// The time now in ms of the Unix epoch.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Identity of one producer or consumer.
#[derive(Debug)]
pub(crate) struct ClientId {
    /// `ip@pid#instance`, RocketMQ's form. Brokers tell members of a group apart by it.
    pub text: String,
    pub unique_keys: UniqueKeyMaker,
}

impl ClientId {
    /// Takes the address by which this host reaches a name server. Blocks for a name to be resolved.
    pub(crate) fn new(name_servers: &NameServers) -> Self {
        let ip = name_servers
            .addrs()
            .iter()
            .find_map(|addr| local_ip_toward(addr))
            .unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let instance = INSTANCES.fetch_add(1, Relaxed);
        let pid = std::process::id();
        // Tells apart processes of the same id in containers that share an address.
        let salt = rand::random::<u32>();
        Self {
            text: format!("{ip}@{pid}#{instance}-{salt:08x}"),
            unique_keys: UniqueKeyMaker::new(ip, pid, salt),
        }
    }
}

/// The local address that the system would use; nothing is sent.
fn local_ip_toward(addr: &str) -> Option<IpAddr> {
    let remote = addr.to_socket_addrs().ok()?.next()?;
    let any = if remote.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(remote).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_of_one_process_differ() {
        let servers = NameServers::new(["127.0.0.1:9876"]).expect("valid");
        let (one, two) = (ClientId::new(&servers), ClientId::new(&servers));
        assert_ne!(one.text, two.text);
        assert!(one.text.starts_with("127.0.0.1@"), "{}", one.text);
        let now = now_ms();
        assert_ne!(one.unique_keys.next(now), two.unique_keys.next(now));
    }
}
