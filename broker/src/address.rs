//! Which addresses this broker has: what it tells clients, and what it writes into records.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs, UdpSocket};

use rocketmq_protocol::config::ConfigError;
use tracing::warn;

use crate::config::{BrokerConfig, invalid};

/// An address reserved for documentation: connecting a datagram socket to it sends nothing, but
/// makes the system choose the local address that leads outside.
const OUTSIDE: &str = "192.0.2.1:9";

/// The host to advertise and the IP address to write into records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosts {
    /// `brokerIP1`, or the local address: an IP address or a DNS name.
    pub advertised: String,
    /// Goes into each record and so into message ids.
    pub store_ip: IpAddr,
}

/// Finds the broker's addresses from its configuration, the environment and the machine.
///
/// # Errors
/// When `storeHost` or POD_IP is not an IP address.
pub fn find_hosts(config: &BrokerConfig) -> Result<Hosts, ConfigError> {
    let bound: Option<IpAddr> = config.bind_address.parse().ok();
    let bound = bound.filter(|ip| !ip.is_unspecified());
    let local = || bound.unwrap_or_else(local_ip);
    let advertised = match config.broker_ip1.trim() {
        "" => host_text(local()),
        configured => configured.to_owned(),
    };
    let from_environment = std::env::var("POD_IP").unwrap_or_default();
    let store_ip = if !config.store_host.trim().is_empty() {
        parse_ip("storeHost", &config.store_host)?
    } else if !from_environment.trim().is_empty() {
        parse_ip("POD_IP (environment)", &from_environment)?
    } else {
        resolve(&advertised).unwrap_or_else(|| {
            let ip = local();
            warn!(
                broker_ip1 = advertised,
                store_host = %ip,
                "brokerIP1 does not resolve, message ids hold the local address; set storeHost"
            );
            ip
        })
    };
    Ok(Hosts { advertised, store_ip })
}

/// `host:port`, with brackets around an IPv6 address.
pub fn host_port(host: &str, port: u16) -> String {
    if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

fn host_text(ip: IpAddr) -> String {
    ip.to_string()
}

fn parse_ip(key: &str, value: &str) -> Result<IpAddr, ConfigError> {
    value.trim().parse().map_err(|_| invalid(key, value, "an IP address"))
}

fn resolve(host: &str) -> Option<IpAddr> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(ip) = bare.parse() {
        return Some(ip);
    }
    let found: Vec<SocketAddr> = (bare, 0).to_socket_addrs().ok()?.collect();
    // Old clients read only IPv4 in message ids.
    found.iter().find(|addr| addr.is_ipv4()).or(found.first()).map(SocketAddr::ip)
}

/// The address by which other machines reach this one, as far as it can be told.
fn local_ip() -> IpAddr {
    if let Some(ip) = outgoing_ip().or_else(interface_ip) {
        return ip;
    }
    warn!("no address but loopback found, clients on other machines cannot connect; set brokerIP1");
    IpAddr::V4(Ipv4Addr::LOCALHOST)
}

/// The address that packets to the outside leave from.
fn outgoing_ip() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect(OUTSIDE).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    is_reachable(ip).then_some(ip)
}

/// The first address of an interface, for machines without a route to the outside.
fn interface_ip() -> Option<IpAddr> {
    local_addresses(&fs::read_to_string("/proc/net/fib_trie").ok()?)
        .into_iter()
        .find(|ip| is_reachable(*ip))
}

/// The local addresses in the kernel's routing table: lines `|-- ADDRESS` followed by one with
/// `host LOCAL`.
fn local_addresses(fib_trie: &str) -> Vec<IpAddr> {
    let mut found = Vec::new();
    let mut last = None;
    for line in fib_trie.lines() {
        let line = line.trim();
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse().ok();
        } else if line.ends_with("host LOCAL")
            && let Some(ip) = last
            && !found.contains(&ip)
        {
            found.push(ip);
        }
    }
    found
}

fn is_reachable(ip: IpAddr) -> bool {
    !ip.is_loopback() && !ip.is_unspecified()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(broker_ip1: &str, store_host: &str) -> BrokerConfig {
        BrokerConfig {
            broker_ip1: broker_ip1.to_owned(),
            store_host: store_host.to_owned(),
            ..BrokerConfig::default()
        }
    }

    #[test]
    fn a_configured_host_is_advertised_as_it_is() {
        let hosts = find_hosts(&config("broker-0.brokers.svc", "10.1.2.3")).unwrap();
        assert_eq!(hosts.advertised, "broker-0.brokers.svc");
        assert_eq!(hosts.store_ip, IpAddr::from([10, 1, 2, 3]));
        assert_eq!(
            find_hosts(&config("10.9.8.7", "")).unwrap().store_ip,
            IpAddr::from([10, 9, 8, 7])
        );
        let error = find_hosts(&config("", "broker-0")).unwrap_err().to_string();
        assert!(error.contains("storeHost") && error.contains("broker-0"), "{error}");
    }

    #[test]
    fn a_name_without_an_address_falls_back_to_the_local_one() {
        let hosts = find_hosts(&config("no-such-host.invalid", "")).unwrap();
        assert_eq!(hosts.advertised, "no-such-host.invalid");
        assert!(!hosts.store_ip.is_unspecified());
    }

    #[test]
    fn ipv6_hosts_get_brackets() {
        assert_eq!(host_port("10.0.0.1", 1), "10.0.0.1:1");
        assert_eq!(host_port("::1", 1), "[::1]:1");
        assert_eq!(host_port("[::1]", 1), "[::1]:1");
    }

    #[test]
    fn local_addresses_are_read_from_the_routing_table() {
        let text = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n\
            Local:\n     |-- 127.0.0.1\n        /32 host LOCAL\n     |-- 10.1.1.0\n\
            \x20       /24 link UNICAST\n     |-- 10.1.1.7\n        /32 host LOCAL\n";
        let found = local_addresses(text);
        assert_eq!(found, [IpAddr::from([127, 0, 0, 1]), IpAddr::from([10, 1, 1, 7])]);
    }
}
