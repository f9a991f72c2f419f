//! What every request handler shares: one value per broker, alive until the broker stops.
//!
//! Owns nothing but the parts; each part guards itself, so handlers on any thread use it through
//! a plain reference. The order in which the parts start and stop is written in `broker.rs`.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rocketmq_protocol::message::id::UniqueKeyMaker;
use rocketmq_store::Store;
use tracing::warn;

use crate::assignment::Assignments;
use crate::client_table::ClientTable;
use crate::config::BrokerConfig;
use crate::confirm_waits::ConfirmWaits;
use crate::delay::DelayProgress;
use crate::filter::ExpressionCache;
use crate::flush_waits::FlushWaits;
use crate::lock_table::LockTable;
use crate::long_poll::LongPolls;
use crate::metadata::consumer_filter::ConsumerFilters;
use crate::metadata::consumer_offset::ConsumerOffsets;
use crate::metadata::group::GroupTable;
use crate::metadata::topic::TopicTable;
use crate::metrics::BrokerMetrics;
use crate::registration::Registration;
use crate::replication::Replication;
use crate::replication::appointed::group::Group;
use crate::role::RoleCell;
use crate::role::held_sends::HeldSends;
use crate::role::services::Services;
use crate::runtime_info::RuntimeStats;
use crate::transaction::Transactions;

/// The broker's shared state.
pub struct BrokerState {
    /// Effective configuration; replaced as a whole by UPDATE_BROKER_CONFIG.
    pub config: ArcSwap<BrokerConfig>,
    /// Who this broker is; fixed until it stops.
    pub identity: Identity,
    /// Properties that the broker adds to every message: region, trace switch, cluster.
    pub broker_properties: Vec<u8>,
    /// Makes the unique keys of messages that came without one.
    pub unique_keys: UniqueKeyMaker,
    /// Messages on disk.
    pub store: Arc<Store>,
    /// Topic settings.
    pub topics: TopicTable,
    /// Subscription group settings.
    pub groups: GroupTable,
    /// How far delayed messages have been delivered.
    pub delays: DelayProgress,
    /// Transactions that wait for their decision.
    pub transactions: Transactions,
    /// Committed offsets of consumer groups.
    pub offsets: ConsumerOffsets,
    /// How groups consume, and the routes by which queues are shared out.
    pub assignments: Assignments,
    /// Filters by expression that consumer groups registered.
    pub filters: Arc<ConsumerFilters>,
    /// Filters by expression that pulls bring.
    pub expressions: ExpressionCache,
    /// Live producers and consumers and their connections.
    pub clients: ClientTable,
    /// Queue locks of ordered consumption.
    pub locks: LockTable,
    /// Time-outs of sends that wait for the group commit.
    pub flush_waits: FlushWaits,
    /// Time-outs of sends that wait for slaves.
    pub copy_waits: FlushWaits,
    /// Sends that wait until what they stored is confirmed.
    pub(crate) confirm_waits: ConfirmWaits,
    /// Sends that wait for the end of a handover.
    pub held_sends: HeldSends,
    /// Master or slave, and under which id and addresses.
    pub role: RoleCell,
    /// What runs in this role alone.
    pub services: Services,
    /// The group whose master is appointed, if it is; see [`RoleCell`] for the role at this moment.
    pub group: Option<Arc<Group>>,
    /// Slaves, or the master that is followed.
    pub replication: Replication,
    /// Pulls that wait for messages.
    pub long_polls: LongPolls,
    /// Prometheus metrics.
    pub metrics: Arc<BrokerMetrics>,
    /// Figures of GET_BROKER_RUNTIME_INFO.
    pub runtime_stats: RuntimeStats,
    /// Registration at the name servers.
    pub registration: Arc<Registration>,
    /// Where slow work runs: `spawn` for waits, `spawn_blocking` for disk and administration.
    pub runtime: tokio::runtime::Handle,
    /// Set once, when the broker begins to stop: sends and pulls are refused from then on.
    pub stopping: AtomicBool,
    /// Serialises UPDATE_BROKER_CONFIG with the rewrite of the configuration file.
    pub config_update: Mutex<ConfigFile>,
}

/// Where those who exist before the broker's state find it once it is there. It is held weakly:
/// metrics and probes keep no broker alive.
#[derive(Clone, Default)]
pub struct StateSlot(Arc<OnceLock<Weak<BrokerState>>>);

impl StateSlot {
    /// Fills the slot; the first state stays.
    pub fn set(&self, state: &Arc<BrokerState>) {
        self.0.get_or_init(|| Arc::downgrade(state));
    }

    /// The state, if it is there and the broker lives.
    pub fn get(&self) -> Option<Arc<BrokerState>> {
        self.0.get()?.upgrade()
    }
}

/// The addresses and names of this broker, resolved once at start.
#[derive(Clone, Debug)]
pub struct Identity {
    /// `host:port` of `brokerIP1` and the listen port; may hold a DNS name. What is registered at the
    /// name servers says the [role](BrokerState::role).
    pub broker_addr: String,
    /// `host:haPort` of `brokerIP2` and `haListenPort`.
    pub ha_addr: String,
    /// IP address and port written into each record and message id.
    pub store_host: SocketAddr,
    /// Milliseconds since 1970 at which this process started serving.
    pub boot_timestamp_ms: i64,
}

/// The configuration file, kept so that a run-time update can rewrite it.
#[derive(Debug, Default)]
pub struct ConfigFile {
    /// The `-c` file; `None` when the broker was started without one.
    pub path: Option<PathBuf>,
    /// Keys of the file that this broker accepts without effect or does not know, kept on rewrite.
    pub other: HashMap<String, String>,
    /// Increased by every update, reported by GET_BROKER_CONFIG.
    pub counter: i64,
    /// Time of the last update, milliseconds since 1970.
    pub timestamp_ms: i64,
}

impl BrokerState {
    /// When a message of a queue was stored, milliseconds since 1970; `None` if it is not there or
    /// cannot be read, which is logged.
    pub fn store_time_at(&self, topic: &str, queue_id: i32, queue_offset: i64) -> Option<i64> {
        self.store.store_time_at(topic, queue_id, queue_offset).unwrap_or_else(|error| {
            warn!(topic, queue_id, queue_offset, %error, "store time cannot be read");
            None
        })
    }

    /// The end of what of the log survives a loss of power and, where the master is appointed, a change
    /// of the master.
    pub fn safe_end(&self) -> i64 {
        let durable = self.store.durable().0;
        if self.store.shows_confirmed_only() {
            durable.min(self.store.confirmed().0)
        } else {
            durable
        }
    }

    /// Whether the broker has begun to stop.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}
