//! How bytes become requests: any chunking, several frames at once, frames that are none.

mod common;

use common::{ECHO, config, echo, eventually, request, start};
use proptest::prelude::*;
use rocketmq_protocol::code::ResponseCode;
use rocketmq_remoting::ServerConfig;

#[test]
fn two_frames_split_at_each_byte_boundary_give_the_same_two_answers() {
    let server = start(config());
    let mut bytes = echo(1, b"first");
    bytes.extend(echo(2, b"second"));
    for cut in 1..bytes.len() {
        let mut raw = server.connect();
        let reads = server.server.counters().snapshot().reads;
        raw.send(&bytes[..cut]);
        eventually("the first part is read", || server.server.counters().snapshot().reads > reads);
        raw.send(&bytes[cut..]);
        let (first, second) = (raw.answer(), raw.answer());
        assert_eq!((first.opaque, first.body.as_slice()), (1, b"first".as_slice()));
        assert_eq!((second.opaque, second.body.as_slice()), (2, b"second".as_slice()));
        assert_eq!(first.ext, [("a".to_owned(), "1".to_owned())]);
        assert_eq!(first.code, ResponseCode::SUCCESS.0);
        assert!(first.is_response);
    }
}

#[test]
fn frames_that_come_in_one_read_leave_in_one_write() {
    let server = start(config());
    let mut raw = server.connect();
    raw.send(&echo(0, b""));
    raw.answer();
    let before = server.server.counters().snapshot();
    let bytes = (1..=100).flat_map(|n| echo(n, b"small")).collect::<Vec<_>>();
    raw.send(&bytes);
    for n in 1..=100 {
        assert_eq!(raw.answer().opaque, n);
    }
    let used = server.server.counters().snapshot() - before;
    assert_eq!((used.frames_in, used.frames_out), (100, 100));
    // The first read asks for 8 KiB, later ones for more.
    assert!(used.reads <= 4 && used.writes <= 4, "{used:?}");
}

#[test]
fn a_writer_of_single_bytes_is_served() {
    let server = start(config());
    let mut raw = server.connect();
    for byte in echo(7, b"slow") {
        raw.send(&[byte]);
    }
    assert_eq!(raw.answer().body, b"slow");
}

#[test]
fn frames_of_length_zero_are_skipped() {
    let server = start(config());
    let mut raw = server.connect();
    let mut bytes = vec![0; 8];
    bytes.extend(echo(3, b"x"));
    bytes.extend([0; 4]);
    raw.send(&bytes);
    assert_eq!(raw.answer().opaque, 3);
}

#[test]
fn an_unknown_code_is_answered_with_the_code_in_the_remark() {
    let server = start(config());
    let mut raw = server.connect();
    raw.send(&request(9999, 4, 0, &[], b""));
    let answer = raw.answer();
    assert_eq!(answer.code, 3);
    assert_eq!(answer.remark.as_deref(), Some(" request type 9999 not supported"));
}

#[test]
fn a_one_way_request_is_never_answered() {
    let server = start(config());
    let mut raw = server.connect();
    let mut bytes = request(ECHO, 5, 2, &[], b"");
    bytes.extend(request(9999, 6, 2, &[], b""));
    bytes.extend(echo(7, b""));
    raw.send(&bytes);
    assert_eq!(raw.answer().opaque, 7);
    assert_eq!(server.service.seen.lock().len(), 3);
}

#[test]
fn a_broken_frame_closes_its_connection_after_the_answers_before_it_and_no_other() {
    let server = start(ServerConfig { frame_bytes_max: 4096, ..config() });
    let mut other = server.connect();
    let mut unknown_type = echo(1, b"");
    unknown_type[4] = 9;
    let mut header_longer_than_frame = echo(1, b"");
    header_longer_than_frame[6] = 0xff;
    let broken = [
        ("oversize", (4093_i32).to_be_bytes().to_vec()),
        ("http", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
        ("negative", (-1_i32).to_be_bytes().to_vec()),
        ("unknown serialize type", unknown_type),
        ("header longer than the frame", header_longer_than_frame),
        ("shorter than a header word", vec![0, 0, 0, 2, 0, 0]),
        ("no json", vec![0, 0, 0, 8, 0, 0, 0, 4, b'[', b'1', b',', b']']),
    ];
    for (number, (what, bytes)) in broken.iter().enumerate() {
        let mut raw = server.connect();
        let mut sent = echo(11, b"before");
        sent.extend(bytes);
        sent.extend(echo(12, b"after"));
        raw.send(&sent);
        assert_eq!(raw.answer().body, b"before", "{what}");
        assert_eq!(raw.receive(), None, "{what}");
        let counted = server.server.counters().snapshot().frames_broken;
        assert_eq!(counted, number as u64 + 1, "{what}");
    }
    other.send(&echo(13, b"alive"));
    assert_eq!(other.answer().body, b"alive");
    assert!(server.service.seen.lock().iter().all(|seen| seen.opaque != 12));
}

#[test]
fn the_largest_allowed_frame_passes() {
    let frame = echo(1, &[9; 3000]);
    let server = start(ServerConfig { frame_bytes_max: frame.len(), ..config() });
    let mut raw = server.connect();
    raw.send(&frame);
    assert_eq!(raw.answer().body.len(), 3000);
}

#[test]
fn a_tls_hello_is_closed() {
    let server = start(config());
    let mut raw = server.connect();
    raw.send(&[0x16, 3, 1, 2, 0, 1]);
    assert_eq!(raw.receive(), None);
    eventually("the connection is gone", || server.server.connections().is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the chunks, the same requests are seen, in order.
    #[test]
    fn any_chunking_gives_the_same_requests(
        bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..2000), 1..20),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let server = start(config());
        let mut raw = server.connect();
        let mut bytes = Vec::new();
        for (number, body) in bodies.iter().enumerate() {
            bytes.extend(echo(number as i32, body));
        }
        let mut cuts = cuts.iter().map(|cut| cut.index(bytes.len())).collect::<Vec<_>>();
        cuts.sort_unstable();
        let mut from = 0;
        for cut in cuts {
            raw.send(&bytes[from..cut]);
            from = cut;
        }
        raw.send(&bytes[from..]);
        for (number, body) in bodies.iter().enumerate() {
            let answer = raw.answer();
            prop_assert_eq!(answer.opaque, number as i32);
            prop_assert_eq!(&answer.body, body);
        }
        let seen = server.service.seen.lock();
        prop_assert_eq!(seen.len(), bodies.len());
        for (number, body) in bodies.iter().enumerate() {
            prop_assert_eq!(seen[number].opaque, number as i32);
            prop_assert_eq!(&seen[number].body, body);
        }
    }

    /// Arbitrary bytes take down nothing: the server goes on serving others.
    #[test]
    fn arbitrary_bytes_harm_nobody_else(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let server = start(ServerConfig { frame_bytes_max: 4096, ..config() });
        let mut raw = server.connect();
        raw.send(&bytes);
        let mut other = server.connect();
        other.send(&echo(1, b"alive"));
        prop_assert_eq!(other.answer().body, b"alive");
        prop_assert_eq!(server.server.counters().snapshot().panics, 0);
    }
}
