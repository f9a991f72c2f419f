//! The table of GET_BROKER_RUNTIME_INFO: RocketMQ's keys, which its tools look up by name.
//!
//! Figures of Java's thread pools are 0 and their capacities the defaults: requests are handled as
//! they arrive and wait in no queue.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use rocketmq_protocol::{names, version};

use super::Rate;
use crate::clock::now_ms;
use crate::state::BrokerState;

/// Every key with its value.
pub fn table(state: &BrokerState) -> BTreeMap<String, String> {
    let mut table = BTreeMap::new();
    broker(state, &mut table);
    messages(state, &mut table);
    store(state, &mut table);
    delays(state, &mut table);
    queues(&mut table);
    table
}

type Table = BTreeMap<String, String>;

fn put(table: &mut Table, key: &str, value: impl ToString) {
    table.insert(key.to_owned(), value.to_string());
}

fn broker(state: &BrokerState, table: &mut Table) {
    let boot_ms = state.identity.boot_timestamp_ms;
    put(table, "brokerVersionDesc", version::name_of(version::CURRENT));
    put(table, "brokerVersion", version::CURRENT);
    put(table, "brokerActive", !state.is_stopping());
    put(table, "bootTimestamp", boot_ms);
    put(table, "runtime", running_time(now_ms() - boot_ms));
    let accept_from = state.config.load().start_accept_send_request_time_stamp;
    put(table, "startAcceptSendRequestTimeStamp", accept_from);
}

/// `[ d days, h hours, m minutes, s seconds ]`.
fn running_time(ms: i64) -> String {
    let seconds = ms.max(0) / 1_000;
    let (days, hours) = (seconds / 86_400, seconds / 3_600 % 24);
    let (minutes, seconds) = (seconds / 60 % 60, seconds % 60);
    format!("[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]")
}

fn messages(state: &BrokerState, table: &mut Table) {
    let (totals, stats) = (&state.metrics.totals, &state.runtime_stats);
    let (puts, bytes) = (totals.put.load(Relaxed), totals.put_bytes.load(Relaxed));
    let mornings = stats.mornings();
    let now = state.metrics.user_totals(|topic| state.topics.is_system(topic));
    put(table, "msgPutTotalYesterdayMorning", mornings.yesterday.put);
    put(table, "msgPutTotalTodayMorning", mornings.today.put);
    put(table, "msgPutTotalTodayNow", now.put);
    put(table, "msgGetTotalYesterdayMorning", mornings.yesterday.get);
    put(table, "msgGetTotalTodayMorning", mornings.today.get);
    put(table, "msgGetTotalTodayNow", now.get);
    put(table, "putMessageTimesTotal", puts);
    put(table, "putMessageFailedTimes", totals.put_failed.load(Relaxed));
    put(table, "putMessageSizeTotal", bytes);
    let average = if puts == 0 { 0.0 } else { bytes as f64 / puts as f64 };
    put(table, "putMessageAverageSize", format!("{average:?}"));
    let times = &state.metrics.store_times;
    put(table, "putMessageEntireTimeMax", times.put_max_ms());
    put(table, "getMessageEntireTimeMax", times.get_max_ms());
    put(table, "putMessageDistributeTime", times.put_distribution());
    for (key, share) in [("putLatency99", 0.99), ("putLatency999", 0.999)] {
        put(table, key, format!("{:.2}", times.put_percentile_ms(share)));
    }
    put(table, "putTps", stats.rates(Rate::Put));
    put(table, "getFoundTps", stats.rates(Rate::GetFound));
    put(table, "getMissTps", stats.rates(Rate::GetMiss));
    put(table, "getTotalTps", stats.rates(Rate::GetTotal));
    put(table, "getTransferredTps", stats.rates(Rate::GetTransferred));
}

fn store(state: &BrokerState, table: &mut Table) {
    let store = &state.store;
    let (min, max) = (store.min_physical_offset(), store.max_physical_offset());
    put(table, "commitLogMinOffset", min);
    put(table, "commitLogMaxOffset", max);
    put(table, "dispatchBehindBytes", store.dispatch_behind_bytes());
    put(table, "remainHowManyDataToFlush", bytes_text((max - store.durable().0).max(0)));
    put(table, "earliestMessageTimeStamp", store.earliest_message_time().unwrap_or(-1));
    // -1 where a disk cannot be asked, as RocketMQ has it.
    let ratio_of =
        |path: &Path| store.file_system().disk_space(path).map_or(-1.0, |space| space.used_ratio());
    let mut least = f64::INFINITY;
    for path in &store.config().commit_log_dirs {
        let ratio = ratio_of(path);
        least = least.min(ratio);
        put(table, &format!("commitLogDiskRatio_{}", path.display()), format!("{ratio:.2}"));
    }
    put(table, "commitLogDiskRatio", format!("{least:.2}"));
    put(table, "consumeQueueDiskRatio", format!("{:.2}", ratio_of(store.root_dir())));
    if let Ok(disk) = rustix::fs::statvfs(store.root_dir()) {
        let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
        let (total, free) = (gib_text(bytes(disk.f_blocks)), gib_text(bytes(disk.f_bavail)));
        put(table, "commitLogDirCapacity", format!("Total : {total}, Free : {free}."));
    }
    if store.config().transient_store_pool_enable {
        let bytes = i64::try_from(store.uncommitted_bytes()).unwrap_or(i64::MAX);
        put(table, "remainHowManyDataToCommit", bytes_text(bytes));
    }
    // No lock on the page cache, and no pool of buffers that could run out.
    put(table, "pageCacheLockTimeMills", 0);
    put(table, "remainTransientStoreBufferNumbs", i32::MAX);
    put(table, "dispatchMaxBuffer", 0);
    // No timed messages yet, so none are late.
    for key in ["timerReadBehind", "timerOffsetBehind", "timerCongestNum"] {
        put(table, key, 0);
    }
    for key in ["timerEnqueueTps", "timerDequeueTps"] {
        put(table, key, "0.0");
    }
}

/// How far each delay level has come, and how far it can.
fn delays(state: &BrokerState, table: &mut Table) {
    for (level, offset) in state.delays.all() {
        let max = state.store.max_queue_offset(names::SCHEDULE_TOPIC, level - 1);
        put(table, &format!("scheduleMessageOffset_{level}"), format!("{offset},{max}"));
    }
}

fn queues(table: &mut Table) {
    let pools = [
        ("sendThreadPoolQueue", 10_000),
        ("pullThreadPoolQueue", 100_000),
        ("litePullThreadPoolQueue", 100_000),
        ("ackThreadPoolQueue", 100_000),
        ("queryThreadPoolQueue", 20_000),
    ];
    for (pool, capacity) in pools {
        put(table, &format!("{pool}Size"), 0);
        put(table, &format!("{pool}Capacity"), capacity);
        put(table, &format!("{pool}HeadWaitTimeMills"), 0);
    }
    put(table, "EndTransactionQueueSize", 0);
    put(table, "EndTransactionThreadPoolQueueCapacity", 100_000);
}

/// As Java shows an amount of memory: `0 B`, `1.5 KiB`.
fn bytes_text(bytes: i64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut amount = bytes as f64;
    let mut unit = 0;
    while amount >= 1_024.0 && unit + 1 < UNITS.len() {
        amount /= 1_024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{amount:.1} {}", UNITS[unit]) }
}

fn gib_text(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_as_rocketmq_shows_them() {
        assert_eq!(running_time(90_061_500), "[ 1 days, 1 hours, 1 minutes, 1 seconds ]");
        assert_eq!(bytes_text(0), "0 B");
        assert_eq!(bytes_text(1_536), "1.5 KiB");
        assert_eq!(gib_text(3 << 29), "1.5 GiB");
    }
}
