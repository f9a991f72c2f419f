//! Addresses of a cluster's brokers and name servers, for administrative requests. They follow from
//! names alone, so that no name server is needed to find a broker.

use kube::ResourceExt;

use crate::build::names;
use crate::context::namespace_of;
use crate::crd::RocketMQCluster;

/// A broker group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// brokerName.
    pub name: String,
    /// `host:port` of its master.
    pub address: String,
}

/// Every group of a cluster: those asked for, and those its status still shows.
pub fn groups(cluster: &RocketMQCluster) -> Vec<Group> {
    let name = cluster.name_any();
    let namespace = namespace_of(cluster);
    let shown = cluster.status.as_ref().map_or(0, |status| status.groups.len());
    let count = cluster.spec.brokers.groups.max(i32::try_from(shown).unwrap_or(0));
    (0..count)
        .map(|number| Group {
            name: names::broker(&name, number),
            address: names::broker_address(&name, &namespace, number),
        })
        .collect()
}

/// Every name server of a cluster.
pub fn name_servers(cluster: &RocketMQCluster) -> Vec<String> {
    let name = cluster.name_any();
    let namespace = namespace_of(cluster);
    (0..cluster.spec.name_servers.replicas.max(1))
        .map(|ordinal| names::name_server_address(&name, &namespace, ordinal))
        .collect()
}

/// Said of a Topic or ConsumerGroup whose cluster is not there.
pub fn no_cluster(namespace: &str, name: &str) -> String {
    format!(
        "namespace {namespace:?} has no RocketMQCluster {name:?}: create it there, or create this resource anew with another clusterRef (`kubectl get rocketmqclusters --all-namespaces` lists what there is)"
    )
}
