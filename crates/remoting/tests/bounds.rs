//! What is in flight is bounded, quiet and surplus connections go, and the end is graceful.

mod common;

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::{ECHO, ELSEWHERE, HELD, LARGE, PANIC, config, echo, eventually, request, start};
use rocketmq_protocol::code::RequestCode;
use rocketmq_protocol::frame::Frame;
use rocketmq_remoting::{CallError, Connection, Output, ServerConfig, Service};

#[test]
fn a_slow_reader_pauses_itself_and_nobody_else() {
    let server = start(ServerConfig { in_flight_bytes_max: 1 << 20, ..config() });
    let mut slow = server.connect();
    slow.socket.set_write_timeout(Some(Duration::from_millis(300))).expect("timeout");
    // Asks for far more than the bound and the socket buffers hold, without reading.
    let ask = request(LARGE, 1, 0, &[("n", "1000000")], &[0; 10_000]);
    let mut asked = 0;
    while asked < 5_000 {
        match slow.socket.write_all(&ask) {
            Ok(()) => asked += 1,
            Err(_) => break,
        }
    }
    assert!(asked < 5_000, "the server went on reading");
    let conn = server.server.connections().pop().expect("the slow one");
    // The bound may be passed by what one read asked for.
    let one_read = (256 * 1024 / ask.len() + 1) * 1_000_200;
    assert!(conn.unwritten_bytes() < (1 << 20) + one_read, "{}", conn.unwritten_bytes());
    assert!(server.server.counters().snapshot().read_pauses >= 1);
    let mut other = server.connect();
    other.send(&echo(2, b"alive"));
    assert_eq!(other.answer().body, b"alive");
    // Reading makes it go on.
    for _ in 0..asked {
        assert_eq!(slow.answer().body.len(), 1_000_000);
    }
}

#[test]
fn held_requests_pause_reading_and_their_release_resumes_it() {
    let server = start(ServerConfig { in_flight_bytes_max: 10_000, ..config() });
    let mut raw = server.connect();
    raw.send(&request(HELD, 1, 0, &[], &[0; 6_000]));
    raw.send(&request(HELD, 2, 0, &[], &[0; 6_000]));
    eventually("both are held", || server.service.held.lock().len() == 2);
    eventually("reading is paused", || server.server.counters().snapshot().read_pauses == 1);
    raw.send(&echo(3, b"later"));
    // The pause holds: the echo is not seen although the server would have had time for it.
    let mut other = server.connect();
    other.send(&echo(4, b""));
    other.answer();
    assert!(server.service.seen.lock().iter().all(|seen| seen.opaque != 3));
    server.service.release();
    // Released newest first: answers come in the order they are given, not asked.
    let opaques = [raw.answer().opaque, raw.answer().opaque, raw.answer().opaque];
    assert_eq!(opaques, [2, 1, 3]);
}

#[test]
fn a_connection_over_the_bound_is_closed_and_room_is_given_again() {
    let server = start(ServerConfig { connections_max: 2, ..config() });
    let (mut first, mut second) = (server.connect(), server.connect());
    for raw in [&mut first, &mut second] {
        raw.send(&echo(1, b""));
        raw.answer();
    }
    assert_eq!(server.connect().receive(), None);
    assert_eq!(server.server.counters().snapshot().connections_refused, 1);
    drop(first);
    eventually("the first is gone", || server.server.connections().len() == 1);
    let mut third = server.connect();
    third.send(&echo(2, b""));
    assert_eq!(third.answer().opaque, 2);
}

#[test]
fn an_idle_connection_is_closed_and_a_busy_one_is_not() {
    let server = start(ServerConfig { idle: Duration::from_millis(400), ..config() });
    let (mut idle, mut busy) = (server.connect(), server.connect());
    let begun = Instant::now();
    eventually("both are accepted", || server.server.connections().len() == 2);
    while server.server.connections().len() == 2 {
        busy.send(&echo(1, b""));
        busy.answer();
        assert!(begun.elapsed() < Duration::from_secs(10), "the idle one stays");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(begun.elapsed() >= Duration::from_millis(400));
    assert_eq!(idle.receive(), None);
    busy.send(&echo(2, b"alive"));
    assert_eq!(busy.answer().body, b"alive");
}

#[test]
fn a_panic_closes_its_connection_only() {
    let server = start(config());
    let (mut raw, mut other) = (server.connect(), server.connect());
    other.send(&echo(1, b""));
    other.answer();
    raw.send(&request(PANIC, 1, 0, &[], b""));
    assert_eq!(raw.receive(), None);
    other.send(&echo(2, b"alive"));
    assert_eq!(other.answer().body, b"alive");
    let counted = server.server.counters().snapshot();
    assert_eq!(counted.panics, 1);
    eventually("closed is told", || {
        server.service.closed.load(std::sync::atomic::Ordering::SeqCst) == 1
    });
}

/// Panics at the first connection.
#[derive(Default)]
struct PanicsOnce(std::sync::atomic::AtomicBool);

impl Service for PanicsOnce {
    fn connected(&self, _: &Arc<Connection>) {
        let seen = self.0.swap(true, std::sync::atomic::Ordering::SeqCst);
        assert!(seen, "asked to");
    }
    fn serve(&self, _: &Arc<Connection>, requests: &[Frame<'_>], out: &mut Output) {
        requests.iter().for_each(|request| out.reply_unsupported(request.ticket()));
    }
}

#[test]
fn a_panic_while_accepting_does_not_end_accepting() {
    let server = rocketmq_remoting::bind(config(), Arc::new(PanicsOnce::default())).expect("bind");
    let mut first = common::Raw::connect(server.local_addrs()[0]);
    assert_eq!(first.receive(), None);
    let mut second = common::Raw::connect(server.local_addrs()[0]);
    second.send(&echo(1, b""));
    assert_eq!(second.answer().opaque, 1);
    assert_eq!(server.counters().snapshot().panics, 1);
}

#[test]
fn answers_from_other_threads_arrive() {
    let server = start(config());
    let mut raw = server.connect();
    let asked = (0..50).flat_map(|n| request(ELSEWHERE, n, 0, &[], b"")).collect::<Vec<_>>();
    raw.send(&asked);
    let mut opaques = (0..50).map(|_| raw.answer().opaque).collect::<Vec<_>>();
    opaques.sort_unstable();
    assert_eq!(opaques, (0..50).collect::<Vec<_>>());
}

#[test]
fn the_server_asks_a_client_on_its_own_connection() {
    let server = start(config());
    let mut raw = server.connect();
    raw.send(&echo(1, b""));
    raw.answer();
    let conn = server.server.connections().pop().expect("one connection");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("runtime");
    let ask = |timeout_ms| {
        let body = Bytes::from_static(b"how are you");
        let timeout = Duration::from_millis(timeout_ms);
        conn.request(RequestCode::GET_CONSUMER_RUNNING_INFO, &[("x", "y")], body, timeout)
    };
    let first = ask(10_000);
    let second = ask(10_000);
    let (one, two) = (raw.answer(), raw.answer());
    assert_eq!(one.code, RequestCode::GET_CONSUMER_RUNNING_INFO.0);
    assert!(!one.is_response);
    assert_eq!(one.body, b"how are you");
    // Answered out of order.
    raw.send(&request(0, two.opaque, 1, &[("n", "2")], b"two"));
    raw.send(&request(7, one.opaque, 1, &[], b"one"));
    runtime.block_on(async {
        let (first, second) = (first.await.expect("answer"), second.await.expect("answer"));
        assert_eq!((first.code.0, &first.body[..]), (7, b"one".as_slice()));
        assert_eq!((second.field("n"), &second.body[..]), (Some("2"), b"two".as_slice()));
        assert!(matches!(first.into_ok(), Err(CallError::Refused { code, .. }) if code.0 == 7));
        let late = ask(20).await;
        assert!(matches!(late, Err(CallError::Timeout { timeout_ms: 20, .. })), "{late:?}");
    });
    // An answer that comes too late, and one to nothing, are dropped.
    let third = raw.answer();
    raw.send(&request(0, third.opaque, 1, &[], b""));
    raw.send(&request(0, 123_456, 1, &[], b""));
    conn.oneway(RequestCode::NOTIFY_CONSUMER_IDS_CHANGED, &(), Bytes::new()).expect("sent");
    assert_eq!(raw.answer().code, RequestCode::NOTIFY_CONSUMER_IDS_CHANGED.0);
    let waiting = ask(10_000);
    drop(raw);
    runtime.block_on(async {
        let closed = waiting.await;
        assert!(matches!(closed, Err(CallError::Closed { .. })), "{closed:?}");
        let after = ask(10_000).await;
        assert!(matches!(after, Err(CallError::Closed { .. })), "{after:?}");
    });
    let oneway = conn.oneway(RequestCode::NOTIFY_CONSUMER_IDS_CHANGED, &(), Bytes::new());
    assert!(matches!(oneway, Err(CallError::Closed { .. })));
}

#[test]
fn shutdown_lets_held_answers_out_and_takes_nothing_new() {
    let server = start(ServerConfig { io_threads: 2, ..config() });
    let addr = server.addr();
    let (mut first, mut second) = (server.connect(), server.connect());
    first.send(&request(HELD, 1, 0, &[], b""));
    second.send(&echo(2, b""));
    second.answer();
    eventually("the request is held", || server.service.held.lock().len() == 1);
    let common::TestServer { server, service } = server;
    let server = Arc::new(server);
    let begun = Instant::now();
    let stopping = {
        let server = server.clone();
        std::thread::spawn(move || server.shutdown(Duration::from_secs(10)))
    };
    assert_eq!(second.receive(), None);
    first.send(&echo(3, b"too late"));
    service.release();
    assert_eq!(first.answer().opaque, 1);
    assert_eq!(first.receive(), None);
    stopping.join().expect("shutdown");
    assert!(begun.elapsed() < Duration::from_secs(9), "the deadline was waited for");
    assert!(std::net::TcpStream::connect(addr).is_err());
    server.shutdown(Duration::ZERO);
    assert!(service.seen.lock().iter().all(|seen| seen.opaque != 3));
}

#[test]
fn shutdown_ends_at_its_deadline_whatever_is_held() {
    let server = start(config());
    let mut raw = server.connect();
    raw.send(&request(HELD, 1, 0, &[], b""));
    eventually("the request is held", || server.service.held.lock().len() == 1);
    server.server.shutdown(Duration::from_millis(50));
    assert_eq!(raw.receive(), None);
    server.service.release();
}

#[test]
fn every_listener_is_bound_and_known() {
    let listen = vec![([127, 0, 0, 1], 0).into(), ([127, 0, 0, 1], 0).into()];
    let server = start(ServerConfig { listen, io_threads: 3, ..config() });
    let mut raws = Vec::new();
    for addr in server.server.local_addrs() {
        let mut raw = std::net::TcpStream::connect(addr).expect("connect");
        raw.write_all(&request(ECHO, 1, 0, &[], b"")).expect("write");
        raws.push(raw);
    }
    eventually("both are served", || server.service.seen.lock().len() == 2);
    let mut listeners = server.server.connections();
    listeners.sort_by_key(|conn| conn.listener());
    assert_eq!(listeners.iter().map(|conn| conn.listener()).collect::<Vec<_>>(), [0, 1]);
    for (conn, addr) in listeners.iter().zip(server.server.local_addrs()) {
        assert_eq!(conn.local(), *addr);
        assert_eq!(conn.remote_ip_text(), "127.0.0.1");
    }
    let taken = ServerConfig { listen: vec![server.addr()], ..config() };
    let error = rocketmq_remoting::bind(taken, server.service.clone()).expect_err("in use");
    assert!(error.to_string().contains(&server.addr().to_string()), "{error}");
}

#[test]
fn unfinished_frames_of_all_connections_together_are_bounded() {
    const BOUND: usize = 8 << 20;
    let server = start(ServerConfig { input_bytes_max: BOUND, ..config() });
    let unfinished = request(ECHO, 1, 0, &[], &vec![0; 4 << 20]);
    let unfinished = &unfinished[..unfinished.len() - 1];
    // Each alone is within the bound, all together are not.
    let mut raws: Vec<_> = (0..8).map(|_| server.connect()).collect();
    for raw in &mut raws {
        raw.socket.set_write_timeout(Some(Duration::from_secs(10))).expect("timeout");
        // Fails where the server has closed already.
        let _ = raw.socket.write_all(unfinished);
    }
    eventually("some are closed", || server.server.counters().snapshot().frames_broken > 0);
    let mut other = server.connect();
    other.send(&echo(2, b"alive"));
    assert_eq!(other.answer().body, b"alive");
    drop(raws);
    eventually("the others are gone", || server.server.connections().len() == 1);
    // What they had is given back: a large frame fits again.
    let mut large = server.connect();
    large.send(&echo(3, &vec![7; 4 << 20]));
    assert_eq!(large.answer().body.len(), 4 << 20);
}

#[test]
fn a_peer_that_does_not_read_does_not_hold_up_the_shutdown() {
    let server = start(config());
    let mut deaf = server.connect();
    deaf.send(&request(LARGE, 1, 0, &[("n", "12000000")], b""));
    eventually("its answer waits", || {
        server.server.connections().first().is_some_and(|conn| conn.unwritten_bytes() > 0)
    });
    let begun = Instant::now();
    server.server.shutdown(Duration::from_secs(60));
    assert!(begun.elapsed() < Duration::from_secs(30), "the deadline was waited for");
}
