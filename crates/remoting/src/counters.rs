//! Counts of socket operations and frames of one server or client.
//!
//! The number of socket reads and writes per message decides what a message costs (a busy connection
//! handles many frames per read), so it is counted where it happens: once per system call, not per frame.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// Live counters, shared by every connection of one server or client.
        #[derive(Debug, Default)]
        pub struct SocketCounters { $(pub(crate) $name: AtomicU64,)+ }

        /// The counters at one moment.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct SocketCounts { $($(#[$doc])* pub $name: u64,)+ }

        impl SocketCounters {
            /// Reads all counters. They are read one by one, so sums may differ by what happens meanwhile.
            pub fn snapshot(&self) -> SocketCounts {
                SocketCounts { $($name: self.$name.load(Relaxed),)+ }
            }
        }

        impl std::ops::Sub for SocketCounts {
            type Output = SocketCounts;
            /// What was counted between two moments.
            fn sub(self, earlier: SocketCounts) -> SocketCounts {
                SocketCounts { $($name: self.$name.saturating_sub(earlier.$name),)+ }
            }
        }
    };
}

counters! {
    /// Socket reads that brought bytes or the end of the stream.
    reads,
    /// Socket writes that took bytes.
    writes,
    /// Bytes read.
    bytes_in,
    /// Bytes written.
    bytes_out,
    /// Whole frames read.
    frames_in,
    /// Frames handed over to be written.
    frames_out,
    /// Connections accepted or made.
    connections_opened,
    /// Connections ended.
    connections_closed,
    /// Connections closed at once because the bound was met.
    connections_refused,
    /// Connections closed for bytes that are no frame.
    frames_broken,
    /// Times a connection stopped reading because too much was in flight on it.
    read_pauses,
    /// Batches whose handling panicked.
    panics,
}

impl SocketCounters {
    pub(crate) fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Relaxed);
    }
}

impl SocketCounts {
    /// Connections open at that moment.
    pub fn connections(&self) -> u64 {
        self.connections_opened.saturating_sub(self.connections_closed)
    }
}

/// Gives the counters to a metrics registry as `rocketmq_remoting_*`.
#[derive(Debug)]
pub struct SocketCollector(pub Arc<SocketCounters>);

impl Collector for SocketCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let now = self.0.snapshot();
        let counters = [
            ("reads", "socket reads", now.reads),
            ("writes", "socket writes", now.writes),
            ("read_bytes", "bytes read from sockets", now.bytes_in),
            ("written_bytes", "bytes written to sockets", now.bytes_out),
            ("frames_read", "whole frames read", now.frames_in),
            ("frames_written", "frames written", now.frames_out),
            ("connections_accepted", "connections accepted", now.connections_opened),
            ("connections_refused", "connections over the bound", now.connections_refused),
            ("broken_frames", "connections closed for broken frames", now.frames_broken),
            ("read_pauses", "pauses of a connection with too much in flight", now.read_pauses),
            ("panics", "batches whose handling panicked", now.panics),
        ];
        for (name, help, value) in counters {
            let name = format!("rocketmq_remoting_{name}");
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(
                &name,
                help,
                None,
                counter.metric_type(),
            )?)?;
        }
        let open = ConstGauge::new(i64::try_from(now.connections()).unwrap_or(i64::MAX));
        open.encode(encoder.encode_descriptor(
            "rocketmq_remoting_connections",
            "open connections",
            None,
            open.metric_type(),
        )?)
    }
}
