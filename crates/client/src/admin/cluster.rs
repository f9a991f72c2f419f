//! Clusters, brokers and their configuration.

use std::collections::BTreeMap;

use rocketmq_protocol::body::kv::KVTable;
use rocketmq_protocol::body::replication::EpochEntryCache;
use rocketmq_protocol::body::route::ClusterInfo;
use rocketmq_protocol::code::RequestCode;
use rocketmq_protocol::config;
use rocketmq_protocol::header::route::{
    AddWritePermOfBrokerRequest, AddWritePermOfBrokerResponse, WipeWritePermOfBrokerRequest,
    WipeWritePermOfBrokerResponse,
};
use rocketmq_remoting::{Request, ResponseFrame};

use super::Admin;
use crate::error::ClientError;

/// Id of a group's master.
const MASTER_ID: i64 = 0;
/// Field of the answer that says which process answers; ours.
const INCARNATION: &str = "incarnation";

/// What a broker of a group whose master is appointed has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BrokerEpochs {
    /// Which start of which process answered; empty from a Java broker.
    pub incarnation: String,
    /// The epochs of its log, and where that ends.
    pub epochs: EpochEntryCache,
}

impl Admin {
    /// Clusters and broker groups, as one name server knows them.
    ///
    /// # Errors
    /// When no name server answers.
    pub async fn cluster_info(&self) -> Result<ClusterInfo, ClientError> {
        self.namesrv_json(Request::new(RequestCode::GET_BROKER_CLUSTER_INFO)).await
    }

    /// Clusters and broker groups, as the name server at `addr` knows them.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn cluster_info_at(&self, addr: &str) -> Result<ClusterInfo, ClientError> {
        self.json(addr, Request::new(RequestCode::GET_BROKER_CLUSTER_INFO)).await
    }

    /// Addresses of the masters of a cluster by broker name; of every cluster when `cluster` is `None`.
    /// A group without a live master is left out.
    ///
    /// # Errors
    /// When no name server answers.
    pub async fn masters(
        &self,
        cluster: Option<&str>,
    ) -> Result<BTreeMap<String, String>, ClientError> {
        Ok(masters_of(self.cluster_info().await?, cluster))
    }

    /// What a broker tells of itself; the keys are RocketMQ's (`putTps`, `commitLogDiskRatio`, ...).
    ///
    /// # Errors
    /// When the broker does not answer.
    pub async fn broker_runtime_info(
        &self,
        addr: &str,
    ) -> Result<BTreeMap<String, String>, ClientError> {
        let request = Request::new(RequestCode::GET_BROKER_RUNTIME_INFO);
        Ok(self.json::<KVTable>(addr, request).await?.table)
    }

    /// The epochs of a broker's log.
    ///
    /// # Errors
    /// When the broker does not answer, or keeps no epochs: its role is fixed.
    pub async fn broker_epochs(&self, addr: &str) -> Result<BrokerEpochs, ClientError> {
        let answer = self.ok(addr, Request::new(RequestCode::GET_BROKER_EPOCH_CACHE)).await?;
        let incarnation = answer.ext.iter().find(|(key, _)| key == INCARNATION);
        let incarnation = incarnation.map(|(_, value)| value.clone()).unwrap_or_default();
        Ok(BrokerEpochs { incarnation, epochs: answer.json()? })
    }

    /// A broker's whole configuration, sorted by key.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub async fn broker_config(&self, addr: &str) -> Result<Vec<(String, String)>, ClientError> {
        Ok(config::parse_bytes(
            &self.ok(addr, Request::new(RequestCode::GET_BROKER_CONFIG)).await?.body,
        ))
    }

    /// Changes settings of a running broker. Which ones take effect at once is the broker's matter.
    ///
    /// # Errors
    /// When the broker refuses a key or value.
    pub async fn update_broker_config<K: AsRef<str>, V: AsRef<str>>(
        &self,
        addr: &str,
        settings: &[(K, V)],
    ) -> Result<(), ClientError> {
        let request = Request::new(RequestCode::UPDATE_BROKER_CONFIG)
            .with_body(config::write(settings).into_bytes());
        self.ok(addr, request).await.map(drop)
    }

    /// The configuration of the name server at `addr`.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn namesrv_config(&self, addr: &str) -> Result<Vec<(String, String)>, ClientError> {
        let answer = self.ok(addr, Request::new(RequestCode::GET_NAMESRV_CONFIG)).await?;
        Ok(config::parse_bytes(&answer.body))
    }

    /// Changes settings of every name server.
    ///
    /// # Errors
    /// When one of them does not answer or refuses.
    pub async fn update_namesrv_config<K: AsRef<str>, V: AsRef<str>>(
        &self,
        settings: &[(K, V)],
    ) -> Result<(), ClientError> {
        let request = Request::new(RequestCode::UPDATE_NAMESRV_CONFIG)
            .with_body(config::write(settings).into_bytes());
        self.every_namesrv(request).await.map(drop)
    }

    /// Takes the write permission from all topics of a broker, in every name server. Returns how many
    /// topics each of them changed.
    ///
    /// # Errors
    /// When one of them does not answer.
    pub async fn wipe_write_perm(&self, broker_name: &str) -> Result<Vec<i32>, ClientError> {
        let request = Request::new(RequestCode::WIPE_WRITE_PERM_OF_BROKER)
            .with_header(&WipeWritePermOfBrokerRequest { broker_name: broker_name.into() });
        let count = |answer: &ResponseFrame| {
            answer.header::<WipeWritePermOfBrokerResponse>().map(|header| header.wipe_topic_count)
        };
        let answers = self.every_namesrv(request).await?;
        Ok(answers.iter().map(count).collect::<Result<_, _>>()?)
    }

    /// Gives it back; see [`Admin::wipe_write_perm`].
    ///
    /// # Errors
    /// When one of them does not answer.
    pub async fn add_write_perm(&self, broker_name: &str) -> Result<Vec<i32>, ClientError> {
        let request = Request::new(RequestCode::ADD_WRITE_PERM_OF_BROKER)
            .with_header(&AddWritePermOfBrokerRequest { broker_name: broker_name.into() });
        let count = |answer: &ResponseFrame| {
            answer.header::<AddWritePermOfBrokerResponse>().map(|header| header.add_topic_count)
        };
        let answers = self.every_namesrv(request).await?;
        Ok(answers.iter().map(count).collect::<Result<_, _>>()?)
    }
}

/// Addresses of masters by broker name.
fn masters_of(info: ClusterInfo, cluster: Option<&str>) -> BTreeMap<String, String> {
    let brokers = info.broker_addr_table.into_iter();
    let wanted = brokers.filter(|(_, broker)| cluster.is_none_or(|c| broker.cluster == c));
    wanted
        .filter_map(|(name, mut broker)| Some((name, broker.broker_addrs.remove(&MASTER_ID)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use rocketmq_protocol::body::route::BrokerData;

    use super::*;

    #[test]
    fn masters_are_those_of_the_cluster_that_live() {
        let broker = |cluster: &str, ids: &[i64]| BrokerData {
            cluster: cluster.to_owned(),
            broker_addrs: ids.iter().map(|id| (*id, format!("{cluster}:{id}"))).collect(),
            ..BrokerData::default()
        };
        let table =
            [("a", broker("one", &[0, 1])), ("b", broker("two", &[0])), ("c", broker("one", &[1]))];
        let info = ClusterInfo {
            broker_addr_table: table.map(|(name, data)| (name.to_owned(), data)).into(),
            ..ClusterInfo::default()
        };
        let one = masters_of(info.clone(), Some("one"));
        assert_eq!(one, BTreeMap::from([("a".to_owned(), "one:0".to_owned())]));
        assert_eq!(masters_of(info, None).len(), 2);
    }
}
