//! Prints what it costs to evaluate SQL92 filters on records, in ns each.
//!
//! `cargo run --release -p rocketmq-broker --example filter_cost`

use std::hint::black_box;
use std::net::SocketAddr;
use std::time::Instant;

use rocketmq_broker::filter::sql::Expression;
use rocketmq_broker::filter::{ExpressionFilter, TagFilter};
use rocketmq_protocol::hash::tags_code;
use rocketmq_protocol::message::properties;
use rocketmq_protocol::message::record::{NewMessage, Placement, encode_record};
use rocketmq_store::QueueFilter;

/// Short enough to fit between two turns of the scheduler on a busy machine.
const ROUNDS: u32 = 500;
const RUNS: u32 = 2_000;

fn measure(what: &str, mut round: impl FnMut()) {
    // The best of many runs: anything else on the machine only adds.
    let best = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            (0..ROUNDS).for_each(|_| round());
            start.elapsed() / ROUNDS
        })
        .min()
        .unwrap_or_default();
    println!("{what:<72}\t{:>6} ns", best.as_nanos());
}

/// A message with five properties of its own and those that client and broker add.
fn record() -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in [
        ("KEYS", "order-4711"),
        ("TAGS", "TagA"),
        ("UNIQ_KEY", "7F000001303118B4AAC2088D4E5F0000"),
        ("WAIT", "true"),
        ("a", "17"),
        ("b", "x"),
        ("city", "Berlin"),
        ("price", "19.90"),
        ("region", "eu-central"),
        ("MSG_REGION", "DefaultRegion"),
        ("TRACE_ON", "true"),
        ("CLUSTER", "DefaultCluster"),
    ] {
        properties::append(&mut block, name, value);
    }
    let host = SocketAddr::from(([127, 0, 0, 1], 10911));
    let message = NewMessage {
        topic: "BenchmarkTest",
        queue_id: 3,
        flag: 0,
        sys_flag: 0,
        born_timestamp_ms: 0,
        born_host: host,
        store_host: host,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: &[7; 1024],
        properties: &[&block],
    };
    let mut record = Vec::new();
    encode_record(&mut record, &message, Placement::default()).expect("the record is short");
    record
}

fn main() {
    let record = record();
    let tags = TagFilter::Codes(vec![1, 2, tags_code("TagA") as i32]);
    measure("tag, by the ConsumeQueue entry", || {
        black_box(tags.matches_tags_code(black_box(tags_code("TagA"))));
    });
    for text in [
        "a > 1 AND b = 'x'",
        "a > 1",
        "none > 1",
        "price BETWEEN 10.5 AND 20",
        "city IN ('Paris', 'Rome', 'Berlin', 'Madrid') AND region STARTSWITH 'eu'",
        "(a > 1 OR city = 'Rome') AND b IS NOT NULL AND NOT (price > 20.5) AND TAGS = 'TagA'",
    ] {
        let expression = Expression::parse(text).expect("an expression");
        let filter = ExpressionFilter::of_pull(expression.into());
        measure(text, || {
            black_box(filter.matches_record(black_box(&record)));
        });
    }
    measure("reading the first of these", || {
        black_box(Expression::parse(black_box("a > 1 AND b = 'x'")).is_ok());
    });
}
