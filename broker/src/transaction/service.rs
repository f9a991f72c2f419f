//! The thread that asks producers about undecided transactions, and writes their decisions to the op
//! topic (RocketMQ's `TransactionalMessageCheckService` and `TransactionalOpBatchService`).

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rocketmq_protocol::names;
use rocketmq_store::AppendBatch;

use super::bridge::{StoreBridge, op_interval, write_decisions};
use super::checker::Checker;
use super::decisions::Woken;
use super::half;
use super::progress;
use super::round::{self, Rules};
use crate::config::BrokerConfig;
use crate::state::BrokerState;

/// Time between looks at what is due.
const TICK: Duration = Duration::from_millis(200);
const HOUR_MS: i64 = 3_600_000;

/// The running thread.
pub struct CheckService {
    state: Arc<BrokerState>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl CheckService {
    /// Starts it. The first round begins after `transactionCheckInterval`.
    ///
    /// # Errors
    /// When the system has no thread to give.
    pub fn start(state: &Arc<BrokerState>) -> std::io::Result<CheckService> {
        let shared = Arc::clone(state);
        let thread = std::thread::Builder::new()
            .name("broker-transaction".to_owned())
            .spawn(move || run(&shared))?;
        Ok(CheckService { state: Arc::clone(state), thread: Mutex::new(Some(thread)) })
    }

    /// Ends it and waits for that. Decisions are in the log then.
    pub fn end(&self) {
        self.state.transactions.decisions.end();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that checks transactions panicked");
        }
    }
}

fn run(state: &BrokerState) {
    let transactions = &state.transactions;
    let mut batch = state.store.new_batch();
    let mut checker = None;
    let mut last_round = Instant::now();
    let mut last_counts = Instant::now();
    loop {
        let woken = transactions.decisions.wait(TICK);
        let config = state.config.load_full();
        if (woken == Woken::End || transactions.decisions.is_due(op_interval(&config)))
            && let Err(error) = write_decisions(state, &config, &mut batch)
        {
            tracing::warn!(%error, "decisions on transactions not stored, trying again");
        }
        if woken == Woken::End {
            return;
        }
        if last_round.elapsed() >= millis(config.transaction_check_interval) {
            check(state, &config, &mut checker, &mut batch);
            last_round = Instant::now();
        }
        let written = state.store.written().0;
        transactions.progress.publish(&state.offsets, written, state.safe_end());
        if last_counts.elapsed() >= millis(config.transaction_metric_flush_interval) {
            last_counts = Instant::now();
            if let Err(error) = transactions.counts.persist() {
                tracing::error!(%error, "counts of transactions not written, trying again");
            }
        }
    }
}

fn millis(time: i64) -> Duration {
    Duration::from_millis(u64::try_from(time).unwrap_or(0))
}

/// One round.
fn check(
    state: &BrokerState,
    config: &BrokerConfig,
    checker: &mut Option<Checker>,
    batch: &mut AppendBatch,
) {
    let progress = &state.transactions.progress;
    if progress.is_overruled(&state.offsets) {
        tracing::info!("the offsets of transactions were set from outside; going on there");
        progress.clear();
        *checker = None;
    }
    let checker = checker.get_or_insert_with(|| {
        let (half, op) = progress::read(&state.offsets);
        let first = |topic| state.store.min_queue_offset(topic, half::QUEUE_ID);
        Checker::new(
            half.unwrap_or_else(|| first(names::TRANS_HALF_TOPIC)),
            op.unwrap_or_else(|| first(names::TRANS_OP_HALF_TOPIC)),
        )
    });
    let rules = Rules {
        timeout_ms: config.transaction_time_out,
        check_max: config.transaction_check_max,
        kept_ms: i64::from(config.file_reserved_time).saturating_mul(HOUR_MS),
    };
    let mut bridge = StoreBridge::new(state, batch);
    if let Err(error) = round::run(checker, &mut bridge, &rules) {
        let (half, op) = (checker.half_offset(), checker.op_offset());
        tracing::warn!(half, op, %error, "transactions");
    }
    progress.set((checker.half_offset(), checker.op_offset()));
}
