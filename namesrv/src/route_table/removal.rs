//! How brokers leave: by their own farewell, by the close of their connection, by silence, or because
//! another took their place.

use super::{Live, MASTER_ID, PERM_WRITE, Removed, RouteTable};

impl RouteTable {
    /// Takes out a broker at its own request. A request on a connection older than the one the
    /// broker last registered on comes from a process that has been replaced, and changes nothing.
    pub fn unregister(
        &mut self,
        broker_name: &str,
        broker_addr: &str,
        connection: u64,
    ) -> Option<Removed> {
        let live = self.live.get(broker_addr)?;
        if live.broker_name != broker_name || connection < live.connection {
            return None;
        }
        self.take_out(broker_addr)
    }

    /// Takes out every broker that last registered on the closed connection.
    pub fn connection_closed(&mut self, connection: u64) -> Vec<Removed> {
        self.take_out_where(|live| live.connection == connection)
    }

    /// Takes out every broker that has been silent longer than its time.
    pub fn expire(&mut self, now_ms: i64) -> Vec<Removed> {
        self.take_out_where(|live| now_ms.saturating_sub(live.last_update_ms) > live.timeout_ms)
    }

    fn take_out_where(&mut self, gone: impl Fn(&Live) -> bool) -> Vec<Removed> {
        let mut addrs: Vec<String> =
            self.live.iter().filter(|(_, live)| gone(live)).map(|(addr, _)| addr.clone()).collect();
        addrs.sort();
        addrs.iter().filter_map(|addr| self.take_out(addr)).collect()
    }

    /// Removes one broker with everything that stood only through it.
    pub(super) fn take_out(&mut self, broker_addr: &str) -> Option<Removed> {
        let live = self.live.remove(broker_addr)?;
        self.filter_servers.remove(broker_addr);
        let broker_name = live.broker_name;
        let mut min_id_change = None;
        if let Some(group) = self.groups.get_mut(&broker_name) {
            let min_before = group.min_id();
            group.addrs.retain(|_, addr| addr != broker_addr);
            if group.addrs.is_empty() {
                self.drop_group(&broker_name);
            } else {
                let min_changed = group.min_id() != min_before;
                if group.enable_acting_master && !group.addrs.contains_key(&MASTER_ID) {
                    self.change_perm(&broker_name, |perm| perm & !PERM_WRITE);
                }
                if min_changed {
                    min_id_change = self.min_id_change(&broker_name, Some(broker_addr));
                }
            }
        }
        Some(Removed {
            cluster: live.cluster,
            broker_name,
            broker_addr: broker_addr.to_owned(),
            connection: live.connection,
            min_id_change,
        })
    }

    fn drop_group(&mut self, broker_name: &str) {
        if let Some(group) = self.groups.remove(broker_name) {
            self.leave_cluster(&group.cluster, broker_name);
        }
        self.topics.retain(|_, queues| {
            queues.remove(broker_name);
            !queues.is_empty()
        });
        self.mappings.retain(|_, by_broker| {
            by_broker.remove(broker_name);
            !by_broker.is_empty()
        });
    }

    pub(super) fn leave_cluster(&mut self, cluster: &str, broker_name: &str) {
        if let Some(names) = self.clusters.get_mut(cluster) {
            names.remove(broker_name);
            if names.is_empty() {
                self.clusters.remove(cluster);
            }
        }
    }
}
