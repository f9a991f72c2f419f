//! Prints what it costs to decode and to write the headers of the hot path, in ns each.
//!
//! `cargo run --release -p rocketmq-protocol --example header_cost`

use std::hint::black_box;
use std::time::Instant;

use bytes::BytesMut;
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::ext::ExtSource;
use rocketmq_protocol::frame::{self, Frame, Head, LENGTH_BYTES, SerializeType};
use rocketmq_protocol::header::pull::{PullMessageRequest, PullMessageResponse};
use rocketmq_protocol::header::send::{SendMessageRequest, SendMessageResponse};

/// Short enough to fit between two turns of the scheduler on a busy machine.
const ROUNDS: u32 = 500;
const RUNS: u32 = 2_000;

fn measure(what: &str, serialize: SerializeType, mut round: impl FnMut()) {
    // The best of many runs: anything else on the machine only adds.
    let best = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            (0..ROUNDS).for_each(|_| round());
            start.elapsed() / ROUNDS
        })
        .min()
        .unwrap_or_default();
    println!("{what:<24} {serialize:?}\t{:>6} ns", best.as_nanos());
}

fn encoded(serialize: SerializeType, code: RequestCode, ext: &dyn ExtSource) -> BytesMut {
    let mut out = BytesMut::new();
    frame::encode(&mut out, serialize, Head::request(code, 123_456, false), None, ext, &[0; 128]);
    out
}

fn main() {
    let send = SendMessageRequest {
        producer_group: "BenchmarkProducer".into(),
        topic: "BenchmarkTest".into(),
        queue_id: 3,
        born_timestamp: 1_796_075_787_230,
        properties: Some(
            "UNIQ_KEY\u{1}7F000001303118B4AAC2088D4E5F0000\u{2}WAIT\u{1}true\u{2}TAGS\u{1}TagA\u{2}"
                .into(),
        ),
        reconsume_times: Some(0),
        unit_mode: Some(false),
        batch: Some(false),
        broker_name: Some("broker-a".into()),
        ..Default::default()
    };
    let pull = PullMessageRequest {
        consumer_group: "benchmark_consumer".into(),
        topic: "BenchmarkTest".into(),
        queue_offset: 1_234_567,
        max_msg_nums: 32,
        sys_flag: 6,
        suspend_timeout_millis: 15_000,
        subscription: Some("TagA || TagB".into()),
        sub_version: 1_796_075_787_230,
        expression_type: Some("TAG".into()),
        ..Default::default()
    };
    let sent = SendMessageResponse {
        msg_id: "7F00000100002A9F00000000000A8C3D".into(),
        queue_id: 3,
        queue_offset: 1_234_567,
        transaction_id: Some("7F000001303118B4AAC2088D4E5F0000".into()),
        msg_region: Some("DefaultRegion".into()),
        trace_on: Some(true),
        ..Default::default()
    };
    let pulled = PullMessageResponse {
        next_begin_offset: 1_234_599,
        max_offset: 9_999_999,
        ..Default::default()
    };
    for serialize in [SerializeType::Json, SerializeType::Binary] {
        let bytes = encoded(serialize, RequestCode::SEND_MESSAGE_V2, &send);
        measure("decode SEND_MESSAGE_V2", serialize, || {
            let frame = Frame::decode(black_box(&bytes[LENGTH_BYTES..])).expect("a whole frame");
            black_box(frame.header::<SendMessageRequest<'_>>().expect("a whole header"));
        });
        let bytes = encoded(serialize, RequestCode::PULL_MESSAGE, &pull);
        measure("decode PULL_MESSAGE", serialize, || {
            let frame = Frame::decode(black_box(&bytes[LENGTH_BYTES..])).expect("a whole frame");
            black_box(frame.header::<PullMessageRequest<'_>>().expect("a whole header"));
        });
        let ticket = Frame::decode(&bytes[LENGTH_BYTES..]).expect("a whole frame").ticket();
        let mut out = BytesMut::with_capacity(1 << 16);
        for (what, ext) in [
            ("write SEND answer", &sent as &dyn ExtSource),
            ("write PULL answer", &pulled as &dyn ExtSource),
        ] {
            measure(what, serialize, || {
                out.clear();
                let head = Head::response(ticket, ResponseCode::SUCCESS);
                frame::encode_head(&mut out, serialize, head, None, black_box(ext), 0);
                black_box(&out);
            });
        }
    }
}
