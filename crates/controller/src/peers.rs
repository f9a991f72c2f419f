//! The controllers as `controllerDLegerPeers` lists them: `n0-host:port;n1-host:port`.

use std::collections::BTreeMap;
use std::fmt;

/// Controllers that a list may have.
const PEERS_MAX: usize = 15;

/// Id (the number in `n0`) and address (`host:port`) of each controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peers(BTreeMap<u64, String>);

/// Why a list is refused, with what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PeersError(String);

impl Peers {
    /// Reads a list.
    ///
    /// # Errors
    /// An entry that is none, an id or address that stands there twice, an empty list.
    pub fn parse(text: &str) -> Result<Self, PeersError> {
        let mut peers = BTreeMap::new();
        for entry in text.split(';').map(str::trim).filter(|entry| !entry.is_empty()) {
            let refused = |why: &str| Err(PeersError(format!("`{entry}`: {why}")));
            let Some((id, address)) = entry.split_once('-') else {
                return refused("an id, `-` and `host:port` expected, as in n0-host:9877");
            };
            let Some(id) = parse_id(id) else {
                return refused("the id is to be `n` and a number, as n0");
            };
            let port = address.rsplit_once(':').filter(|(host, _)| !host.is_empty());
            if port.and_then(|(_, port)| port.parse::<u16>().ok()).is_none_or(|port| port == 0) {
                return refused("the address is to be `host:port`");
            }
            if peers.values().any(|known| known == address) {
                return refused("another controller has that address");
            }
            if peers.insert(id, address.to_owned()).is_some() {
                return refused("another controller has that id");
            }
        }
        if peers.is_empty() || peers.len() > PEERS_MAX {
            let text = format!("1 to {PEERS_MAX} controllers expected, as n0-host:9877;n1-…");
            return Err(PeersError(text));
        }
        Ok(Self(peers))
    }

    /// Where a controller is.
    pub fn address(&self, id: u64) -> Option<&str> {
        self.0.get(&id).map(String::as_str)
    }

    /// All ids, in order.
    pub fn ids(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.keys().copied()
    }

    /// `n0:host:port;` each, as GET_METADATA_INFO says it.
    pub fn metadata_text(&self) -> String {
        self.0.iter().map(|(id, address)| format!("n{id}:{address};")).collect()
    }
}

impl fmt::Display for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (id, address)) in self.0.iter().enumerate() {
            write!(f, "{}n{id}-{address}", if index == 0 { "" } else { ";" })?;
        }
        Ok(())
    }
}

/// The number of an id like `n0`.
pub fn parse_id(id: &str) -> Option<u64> {
    id.trim().strip_prefix('n')?.parse::<u32>().ok().map(u64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_and_written() {
        let text = "n1-host-1.example:9878;n0-[::1]:9877; ";
        let peers = Peers::parse(text).unwrap();
        assert_eq!(peers.address(1), Some("host-1.example:9878"));
        assert_eq!(peers.to_string(), "n0-[::1]:9877;n1-host-1.example:9878");
        assert_eq!(peers.metadata_text(), "n0:[::1]:9877;n1:host-1.example:9878;");
        assert_eq!(peers.ids().collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, part) in [
            ("", "controllers expected"),
            ("n0", "n0-host:9877"),
            ("x0-h:1", "`n` and a number"),
            ("n-1-h:1", "`n` and a number"),
            ("n0-h", "`host:port`"),
            ("n0-:1", "`host:port`"),
            ("n0-h:0", "`host:port`"),
            ("n0-h:1;n0-h:2", "has that id"),
            ("n0-h:1;n1-h:1", "has that address"),
        ] {
            let error = Peers::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
