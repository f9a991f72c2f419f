//! What the broker does by the clock: writes offsets, filters and new groups, removes silent clients
//! and expired locks, samples rates.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::{Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info};

use crate::clock::{monotonic_ms, now_ms};
use crate::handler::client::members_changed;
use crate::health::BrokerHealth;
use crate::metadata::persist::MetadataError;
use crate::metrics::RATE_INTERVAL_MS;
use crate::runtime_info::{SAMPLE_INTERVAL_MS, Sample};
use crate::state::BrokerState;

/// Time between scans for silent clients and expired locks, as in the Java broker.
const CLIENT_SCAN: Duration = Duration::from_secs(10);

/// Time between looks for sends whose wait for the group commit or for slaves is over.
const FLUSH_WAIT_SCAN: Duration = Duration::from_millis(100);

/// Time between writes of consumerFilter.json, as in the Java broker.
const FILTER_WRITE: Duration = Duration::from_secs(10);

/// Pause before another try to write groups that turned up.
const WRITE_RETRY: Duration = Duration::from_secs(5);

/// Starts the tasks on the broker's runtime; they end at `stop`.
pub(crate) fn spawn(
    state: &Arc<BrokerState>,
    health: &Arc<BrokerHealth>,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) {
    let runtime = &state.runtime;
    let until_stop = |work: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>| {
        let stop = stop.clone();
        tasks.spawn_on(
            async move {
                tokio::select! {
                    () = work => {}
                    () = stop.cancelled() => {}
                }
            },
            runtime,
        );
    };
    until_stop(Box::pin(sample(state.clone(), health.clone())));
    until_stop(Box::pin(scan_clients(state.clone())));
    until_stop(Box::pin(end_flush_waits(state.clone())));
    until_stop(Box::pin(write_offsets(state.clone())));
    until_stop(Box::pin(write_groups(state.clone())));
    until_stop(Box::pin(write_filters(state.clone())));
}

fn every(period: Duration) -> Interval {
    let mut interval = tokio::time::interval(period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

async fn sample(state: Arc<BrokerState>, health: Arc<BrokerHealth>) {
    let mut interval = every(Duration::from_millis(SAMPLE_INTERVAL_MS));
    let mut next_rates_ms = 0;
    loop {
        interval.tick().await;
        health.loop_turned();
        let monotonic = monotonic_ms();
        let sample = Sample::take(&state.metrics.totals, monotonic);
        state.runtime_stats.sample(sample, now_ms(), || {
            state.metrics.user_totals(|topic| state.topics.is_system(topic))
        });
        if monotonic >= next_rates_ms {
            state.metrics.sample_rates(monotonic, |topic| state.topics.is_system(topic));
            next_rates_ms = monotonic + RATE_INTERVAL_MS;
        }
    }
}

async fn scan_clients(state: Arc<BrokerState>) {
    let mut interval = every(CLIENT_SCAN);
    loop {
        interval.tick().await;
        let expiry_ms = state.config.load().channel_expired_timeout;
        let expiry_ms = u64::try_from(expiry_ms).unwrap_or(u64::MAX);
        let monotonic = monotonic_ms();
        let changes = state.clients.expire(monotonic, expiry_ms);
        if !changes.groups.is_empty() {
            info!(groups = ?changes.groups, "silent clients removed");
        }
        members_changed(&state, changes);
        state.locks.expire(monotonic);
    }
}

async fn end_flush_waits(state: Arc<BrokerState>) {
    let mut interval = every(FLUSH_WAIT_SCAN);
    loop {
        interval.tick().await;
        let now = Instant::now();
        state.flush_waits.end_expired(now);
        state.copy_waits.end_expired(now);
        state.held_sends.end_expired(&state, now);
    }
}

async fn write_offsets(state: Arc<BrokerState>) {
    loop {
        let period_ms = state.config.load().flush_consumer_offset_interval;
        let period_ms = u64::try_from(period_ms).unwrap_or(5_000);
        tokio::time::sleep(Duration::from_millis(period_ms)).await;
        write(&state, |state| state.offsets.persist()).await;
    }
}

async fn write_filters(state: Arc<BrokerState>) {
    let mut interval = every(FILTER_WRITE);
    loop {
        interval.tick().await;
        write(&state, |state| {
            state.filters.remove_dead(state.config.load().filter_data_clean_time_span);
            state.filters.persist()
        })
        .await;
    }
}

async fn write_groups(state: Arc<BrokerState>) {
    loop {
        state.groups.appeared().await;
        while !write(&state, |state| state.groups.persist()).await {
            tokio::time::sleep(WRITE_RETRY).await;
        }
    }
}

/// Writes on a thread that may block; says whether it worked.
async fn write(
    state: &Arc<BrokerState>,
    work: impl FnOnce(&BrokerState) -> Result<(), MetadataError> + Send + 'static,
) -> bool {
    let state = state.clone();
    match tokio::task::spawn_blocking(move || work(&state)).await {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            error!(%error, "metadata not written, trying again");
            false
        }
        Err(error) => {
            error!(%error, "writing metadata ended early");
            false
        }
    }
}
