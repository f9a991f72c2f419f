//! Figures by RocketMQ's names and keys (`BrokerStatsManager`), which `mqadmin statsAll` and
//! RocketMQ's exporter ask for with VIEW_BROKER_STATS_DATA.
//!
//! They are read from the counters that metrics are made of; nothing is counted twice.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;

use super::history::{Figures, Window};
use super::queues::{QueueTable, latency, moved};
use super::{BrokerMetrics, DELIVERY_GROUP, GroupOut, SentBack, TopicEntry};
use rocketmq_protocol::names;

/// What a history of a topic holds, in this order.
pub(super) mod topic_counter {
    pub const PUTS: usize = 0;
    pub const MESSAGES: usize = 1;
    pub const BYTES: usize = 2;
    pub const COUNT: usize = 3;
}

/// What a history of a group in a topic holds, in this order.
pub(super) mod group_counter {
    pub const PULLS: usize = 0;
    pub const MESSAGES: usize = 1;
    pub const BYTES: usize = 2;
    pub const LATENCY_MS: usize = 3;
    pub const COUNT: usize = 4;
}

/// What the broker's history holds. RocketMQ counts no times here, so place 0 stays 0.
pub(super) mod broker_counter {
    pub const PUT: usize = 1;
    pub const GET: usize = 2;
    pub const USER_PUT: usize = 3;
    pub const USER_GET: usize = 4;
    pub const COUNT: usize = 5;
}

/// Figures of the windows in [`Window::ALL`].
pub type Stats = [Figures; 3];

/// Messages of topics that are not RocketMQ's own, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserTotals {
    /// Stored.
    pub put: u64,
    /// Handed out.
    pub get: u64,
}

impl BrokerMetrics {
    /// Takes a sample of every counter for the windows that are due; called each
    /// [`super::RATE_INTERVAL_MS`].
    pub fn sample_rates(&self, monotonic_ms: u64, is_system: impl Fn(&str) -> bool) {
        let due = self.due(monotonic_ms);
        let user = self.user_totals(is_system);
        let mut broker = [0; broker_counter::COUNT];
        broker[broker_counter::PUT] = self.totals.put.load(Relaxed);
        broker[broker_counter::GET] = self.totals.get_transferred.load(Relaxed);
        broker[broker_counter::USER_PUT] = user.put;
        broker[broker_counter::USER_GET] = user.get;
        for window in due {
            self.broker_history.sample(window, monotonic_ms, broker);
            for entry in self.incoming.read().values() {
                entry.history.sample(window, monotonic_ms, entry.sums());
                entry.latencies.sample(window, monotonic_ms);
            }
            self.delayed_in.sample(window, monotonic_ms);
            self.delayed_out.sample(window, monotonic_ms);
            for counters in self.outgoing.read().values().flat_map(HashMap::values) {
                counters.history.sample(window, monotonic_ms, counters.sums());
            }
            for counters in self.sent_back.read().values().flat_map(HashMap::values) {
                let sums = [counters.messages.load(Relaxed)];
                counters.history.sample(window, monotonic_ms, sums);
            }
        }
    }

    fn due(&self, monotonic_ms: u64) -> Vec<Window> {
        let mut next = self.next_samples_ms.lock();
        let mut due = Vec::with_capacity(Window::ALL.len());
        for window in Window::ALL {
            let next_ms = &mut next[window as usize];
            if monotonic_ms >= *next_ms {
                *next_ms = monotonic_ms + window.interval_ms();
                due.push(window);
            }
        }
        // The minute is sampled at every call, even if a timer was a little early.
        if !due.contains(&Window::Minute) {
            due.push(Window::Minute);
        }
        due
    }

    /// The figures with this name and key, if anything was counted under them. The broker's own are
    /// kept under the cluster's name.
    pub fn stats(&self, name: &str, key: &str, cluster: &str) -> Option<Stats> {
        let windows = |figures: &dyn Fn(Window) -> Figures| Window::ALL.map(figures);
        let of_topic = |counter| {
            let incoming = self.incoming.read();
            let entry: &TopicEntry = incoming.get(key)?;
            Some(windows(&|window| entry.history.figures(window, counter)))
        };
        let of_group = |counter| {
            let (topic, group) = key.split_once('@')?;
            let outgoing = self.outgoing.read();
            let counters: &GroupOut = outgoing.get(group)?.get(topic)?;
            Some(windows(&|window| counters.history.figures(window, counter)))
        };
        let of_broker = |counter| {
            (key == cluster)
                .then(|| windows(&|window| self.broker_history.figures(window, counter)))
        };
        // RocketMQ counts what is put into a queue, and taken out, for delayed messages alone.
        let of_delays = |table: &QueueTable<{ moved::COUNT }>, queue_id: &str, counter| {
            table.figures(queue_id.parse().ok()?, counter)
        };
        let delayed =
            key.strip_prefix(names::SCHEDULE_TOPIC).and_then(|rest| rest.strip_prefix('@'));
        let delays_put = |counter| of_delays(&self.delayed_in, delayed?, counter);
        let delays_delivered = |counter| {
            let queue_id = delayed?.strip_suffix(DELIVERY_GROUP)?.strip_suffix('@')?;
            of_delays(&self.delayed_out, queue_id, counter)
        };
        match name {
            "QUEUE_PUT_NUMS" => delays_put(moved::MESSAGES),
            "QUEUE_PUT_SIZE" => delays_put(moved::BYTES),
            "QUEUE_GET_NUMS" => delays_delivered(moved::MESSAGES),
            "QUEUE_GET_SIZE" => delays_delivered(moved::BYTES),
            "TOPIC_PUT_LATENCY" => {
                let (queue_id, topic) = key.split_once('@')?;
                let incoming = self.incoming.read();
                let latencies: &QueueTable<_> = &incoming.get(topic)?.latencies;
                latencies.figures(queue_id.parse().ok()?, latency::MS)
            }
            "TOPIC_PUT_NUMS" => of_topic(topic_counter::MESSAGES),
            "TOPIC_PUT_SIZE" => of_topic(topic_counter::BYTES),
            "GROUP_GET_NUMS" => of_group(group_counter::MESSAGES),
            "GROUP_GET_SIZE" => of_group(group_counter::BYTES),
            "GROUP_GET_LATENCY" => of_group(group_counter::LATENCY_MS),
            "SNDBCK_PUT_NUMS" => {
                let (topic, group) = key.split_once('@')?;
                let sent_back = self.sent_back.read();
                let counters: &SentBack = sent_back.get(group)?.get(topic)?;
                Some(windows(&|window| counters.history.figures(window, 0)))
            }
            "BROKER_PUT_NUMS" => of_broker(broker_counter::PUT),
            "BROKER_GET_NUMS" => of_broker(broker_counter::GET),
            "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC" => of_broker(broker_counter::USER_PUT),
            "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC" => of_broker(broker_counter::USER_GET),
            _ => None,
        }
    }

    /// Totals without RocketMQ's own topics; those of topics that were deleted stay in.
    pub fn user_totals(&self, is_system: impl Fn(&str) -> bool) -> UserTotals {
        let incoming = self.incoming.read();
        let put = incoming.iter().filter(|(topic, _)| !is_system(topic));
        let outgoing = self.outgoing.read();
        let get = outgoing.values().flatten().filter(|(topic, _)| !is_system(topic));
        UserTotals {
            put: self.removed_put.load(Relaxed)
                + put.map(|(_, entry)| entry.messages()).sum::<u64>(),
            get: self.removed_get.load(Relaxed)
                + get.map(|(_, counters)| counters.messages.load(Relaxed)).sum::<u64>(),
        }
    }
}

impl TopicEntry {
    fn sums(&self) -> [u64; topic_counter::COUNT] {
        let mut sums = [0; topic_counter::COUNT];
        sums[topic_counter::PUTS] = self.puts.load(Relaxed);
        sums[topic_counter::MESSAGES] = self.messages();
        sums[topic_counter::BYTES] = self.kinds.iter().map(|kind| kind.bytes.load(Relaxed)).sum();
        sums
    }
}

impl GroupOut {
    fn sums(&self) -> [u64; group_counter::COUNT] {
        let mut sums = [0; group_counter::COUNT];
        sums[group_counter::PULLS] = self.pulls.load(Relaxed);
        sums[group_counter::MESSAGES] = self.messages.load(Relaxed);
        sums[group_counter::BYTES] = self.bytes.load(Relaxed);
        sums[group_counter::LATENCY_MS] = self.latency_ms.load(Relaxed);
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MessageType, QueuePuts};
    use super::*;

    #[test]
    fn figures_are_found_by_rocketmqs_names() {
        let metrics = BrokerMetrics::default();
        metrics.stored_by("T", MessageType::Normal, 2, 40, 4_000);
        metrics.stored("SCHEDULE_TOPIC_XXXX", MessageType::Delay, 5, 500);
        metrics.pulled("g", "T", 30, 3_000, 6);
        metrics.pulled("g", "T", 0, 0, 100);
        metrics.sent_back("g", "T");
        assert_eq!(metrics.stats("TOPIC_PUT_NUMS", "T", "c"), Some(Stats::default()));
        metrics.sample_rates(10_000, |topic| topic == "SCHEDULE_TOPIC_XXXX");
        let minute = |name: &str, key: &str| metrics.stats(name, key, "c").map(|all| all[0]);
        let figures = |sum: u64, per_time: f64| {
            Some(Figures { sum, per_second: sum as f64 / 10.0, per_time })
        };
        assert_eq!(minute("TOPIC_PUT_NUMS", "T"), figures(40, 20.0));
        assert_eq!(minute("TOPIC_PUT_SIZE", "T"), figures(4_000, 2_000.0));
        assert_eq!(minute("GROUP_GET_NUMS", "T@g"), figures(30, 30.0));
        assert_eq!(minute("GROUP_GET_SIZE", "T@g"), figures(3_000, 3_000.0));
        assert_eq!(minute("GROUP_GET_LATENCY", "T@g"), figures(6, 6.0));
        assert_eq!(minute("SNDBCK_PUT_NUMS", "T@g"), figures(1, 1.0));
        assert_eq!(minute("BROKER_PUT_NUMS", "c"), figures(45, 0.0));
        assert_eq!(minute("BROKER_GET_NUMS", "c"), figures(30, 0.0));
        assert_eq!(minute("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", "c"), figures(40, 0.0));
        assert_eq!(metrics.stats("TOPIC_PUT_NUMS", "T", "c").unwrap()[2].sum, 40, "of the day");
        for (name, key) in [
            ("TOPIC_PUT_NUMS", "U"),
            ("GROUP_GET_NUMS", "T"),
            ("GROUP_GET_NUMS", "T@h"),
            ("SNDBCK_PUT_NUMS", "U@g"),
            ("BROKER_PUT_NUMS", "other"),
            ("COLOUR", "T"),
        ] {
            assert_eq!(minute(name, key), None, "{name} {key}");
        }
    }

    #[test]
    fn figures_of_queues_are_those_that_rocketmq_counts() {
        let metrics = BrokerMetrics::default();
        let delays = names::SCHEDULE_TOPIC;
        let puts = |queue_id, puts, messages, bytes| QueuePuts { queue_id, puts, messages, bytes };
        metrics.puts_answered("T", &[puts(0, 2, 20, 2_000), puts(3, 1, 1, 100)], 7);
        metrics.puts_answered(delays, &[puts(2, 1, 1, 100)], 3);
        metrics.copy_stored(delays, MessageType::Delay, 2, 300);
        metrics.copy_stored("%RETRY%g", MessageType::Normal, 0, 300);
        metrics.delivered(2, 2, 400);
        metrics.delivered(4, 0, 0);
        metrics.sample_rates(10_000, |_| false);
        let minute = |name: &str, key: &str| {
            metrics.stats(name, key, "c").map(|all| (all[0].sum, all[0].per_time))
        };
        assert_eq!(minute("TOPIC_PUT_LATENCY", "0@T"), Some((14, 7.0)));
        assert_eq!(minute("TOPIC_PUT_LATENCY", "3@T"), Some((7, 7.0)));
        assert_eq!(minute("TOPIC_PUT_LATENCY", &format!("2@{delays}")), Some((3, 3.0)));
        assert_eq!(minute("QUEUE_PUT_NUMS", &format!("{delays}@2")), Some((2, 1.0)));
        assert_eq!(minute("QUEUE_PUT_SIZE", &format!("{delays}@2")), Some((400, 200.0)));
        let delivered = format!("{delays}@2@SCHEDULE_CONSUMER");
        assert_eq!(minute("QUEUE_GET_NUMS", &delivered), Some((2, 1.0)));
        assert_eq!(minute("QUEUE_GET_SIZE", &delivered), Some((400, 200.0)));
        let group = format!("{delays}@SCHEDULE_CONSUMER");
        assert_eq!(minute("GROUP_GET_NUMS", &group), Some((2, 1.0)));
        for (name, key) in [
            ("TOPIC_PUT_LATENCY", "1@T"),
            ("TOPIC_PUT_LATENCY", "T@0"),
            ("QUEUE_PUT_NUMS", "T@0"),
            ("QUEUE_GET_NUMS", "SCHEDULE_TOPIC_XXXX@4@SCHEDULE_CONSUMER"),
            ("QUEUE_GET_NUMS", "SCHEDULE_TOPIC_XXXX@@SCHEDULE_CONSUMER"),
        ] {
            assert_eq!(minute(name, key), None, "{name} {key}");
        }
    }

    #[test]
    fn longer_windows_are_sampled_less_often() {
        let metrics = BrokerMetrics::default();
        let mut last = [0; 3];
        for step in 0..=360 {
            metrics.stored("T", MessageType::Normal, 1, 100);
            metrics.sample_rates(step * 10_000, |_| false);
            last = metrics.stats("TOPIC_PUT_NUMS", "T", "c").unwrap().map(|figures| figures.sum);
        }
        assert_eq!(last, [6, 360, 361]);
    }

    #[test]
    fn totals_outlive_their_topics_and_groups() {
        let metrics = BrokerMetrics::default();
        metrics.stored("T", MessageType::Normal, 3, 300);
        metrics.pulled("g", "T", 2, 200, 0);
        metrics.pulled("h", "T", 1, 100, 0);
        let total = || metrics.user_totals(|_| false);
        assert_eq!(total(), UserTotals { put: 3, get: 3 });
        metrics.remove_group("h");
        assert_eq!(total(), UserTotals { put: 3, get: 3 });
        metrics.remove_topic("T");
        assert_eq!(total(), UserTotals { put: 3, get: 3 });
    }
}
