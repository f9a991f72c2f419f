//! What all cases share: a store in a directory of its own, messages like a Java producer's, clocks.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rocketmq_protocol::message::record::NewMessage;
use rocketmq_store::{AppendBatch, Environment, Store, StoreConfig};

use crate::counting::{Calls, Counting};

/// What any case may end with.
pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// How much to measure, and where.
pub struct Options {
    /// Parent of all directories; they are removed at the end.
    pub directory: PathBuf,
    /// Length of one measurement.
    pub window: Duration,
    /// Length of the sustained one.
    pub sustained: Duration,
    /// Cases whose name holds it.
    pub only: String,
}

/// A store directory that is removed when dropped.
pub struct Bed {
    root: PathBuf,
}

impl Bed {
    /// An empty directory below `parent`.
    pub fn new(parent: &Path) -> Result<Bed> {
        let root = parent.join(format!("rocketmq-bench-{}", std::process::id()));
        if root.exists() {
            std::fs::remove_dir_all(&root)?;
        }
        std::fs::create_dir_all(&root)?;
        Ok(Bed { root })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// A store in it, with the counts of its system calls.
    pub fn open(&self, change: impl FnOnce(&mut StoreConfig)) -> Result<(Arc<Store>, Arc<Calls>)> {
        let mut config = StoreConfig::new(self.root.join("store"));
        change(&mut config);
        let calls = Arc::new(Calls::default());
        let file_system = Arc::new(Counting(Arc::clone(&calls)));
        let environment = Environment { file_system, ..Environment::default() };
        let (store, _) = Store::open(config, environment)?;
        Ok((store, calls))
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.root) {
            eprintln!("{}: {error}", self.root.display());
        }
    }
}

/// Properties as a Java producer and the broker leave them.
const PROPERTIES: [&[u8]; 2] = [
    b"UNIQ_KEY\x017F00000100002B670000000000000123\x02WAIT\x01true\x02TAGS\x01TagA\x02",
    b"MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01DefaultCluster\x02",
];

/// Puts `count` messages into an emptied batch, spread over `queues` queues of `topic`.
pub fn fill(
    batch: &mut AppendBatch,
    topic: &str,
    queues: usize,
    body: &[u8],
    count: usize,
) -> Result {
    batch.clear();
    for n in 0..count {
        batch.push(&NewMessage {
            topic,
            queue_id: (n % queues) as i32,
            flag: 0,
            sys_flag: 0,
            born_timestamp_ms: 1_700_000_000_000,
            born_host: ([127, 0, 0, 1], 41722).into(),
            store_host: ([127, 0, 0, 1], 10911).into(),
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body,
            properties: &PROPERTIES,
        })?;
    }
    Ok(())
}

/// A field of /proc/self/status, in MiB.
pub fn status_mib(field: &str) -> Result<f64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let kib: f64 = line
        .and_then(|line| line.trim_start_matches(':').split_whitespace().next())
        .ok_or_else(|| format!("no {field} in /proc/self/status"))?
        .parse()?;
    Ok(kib / 1024.0)
}

/// The value that `share` of `sorted` do not exceed.
pub fn percentile(sorted: &[u64], share: f64) -> u64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * share) as usize).copied().unwrap_or(0)
}

/// The middle of `values`.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
