//! The client: correlation, deadlines, reconnection, requests from the server.

mod common;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::{ECHO, HELD, LARGE, config, start};
use parking_lot::Mutex;
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::frame::Frame;
use rocketmq_protocol::response::Response;
use rocketmq_remoting::{
    CallError, Client, ClientConfig, ClientRequestHandler, Connection, Request, ServerConfig,
};

const SECOND: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(10);

fn client() -> Client {
    Client::new(ClientConfig::default(), None)
}

fn echo(body: impl Into<Bytes>) -> Request {
    Request::new(RequestCode(ECHO)).with_field("a", 1).with_body(body)
}

#[tokio::test]
async fn many_calls_share_a_connection_and_each_gets_its_own_answer() {
    let server = start(config());
    let addr = server.addr().to_string();
    let client = client();
    let calls = (0..200).map(|n: u32| {
        let (client, addr) = (client.clone(), addr.clone());
        tokio::spawn(async move {
            let answer = client.call(&addr, echo(n.to_be_bytes().to_vec()), LONG).await;
            assert_eq!(answer.expect("answer").body[..], n.to_be_bytes());
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.expect("echoed");
    }
    assert_eq!(server.server.connections().len(), 1);
    // The calls of one moment share socket writes.
    let counted = client.counters().snapshot();
    assert_eq!((counted.frames_out, counted.frames_in), (200, 200));
    assert!(counted.writes < 100, "{counted:?}");
    client.shutdown().await;
    let after = client.call(&addr, echo(""), SECOND).await;
    assert!(matches!(after, Err(CallError::ShutDown { .. })), "{after:?}");
}

#[tokio::test]
async fn a_body_of_many_slices_arrives_whole() {
    let server = start(config());
    let request = Request::new(RequestCode(LARGE)).with_field("n", 3_000_001);
    let answer = client().call(&server.addr().to_string(), request, LONG).await.expect("answer");
    assert_eq!(answer.body.len(), 3_000_001);
    assert!(answer.body[..1_500_000].iter().all(|b| *b == 7));
    assert!(answer.body[1_500_000..].iter().all(|b| *b == 8));
}

#[tokio::test]
async fn a_refusal_is_an_error_that_names_everything() {
    let server = start(config());
    let addr = server.addr().to_string();
    let answer = client().call(&addr, Request::new(RequestCode(9999)), LONG).await;
    let error = answer.expect("an answer").into_ok().expect_err("a refusal");
    assert_eq!(error.response_code(), Some(ResponseCode::REQUEST_CODE_NOT_SUPPORTED));
    let text = error.to_string();
    assert!(
        text.contains(&addr) && text.contains("9999") && text.contains("not supported"),
        "{text}"
    );
}

#[tokio::test]
async fn a_call_ends_at_its_deadline_and_leaves_the_connection_usable() {
    let server = start(config());
    let addr = server.addr().to_string();
    let client = client();
    let held = client.call(&addr, Request::new(RequestCode(HELD)), Duration::from_millis(50)).await;
    let Err(CallError::Timeout { timeout_ms, code, .. }) = held else { panic!("{held:?}") };
    assert_eq!((timeout_ms, code), (50, RequestCode(HELD)));
    server.service.release();
    let answer = client.call(&addr, echo("x"), LONG).await.expect("answer");
    assert_eq!(&answer.body[..], b"x");
    assert_eq!(server.server.connections().len(), 1);
}

#[tokio::test]
async fn answers_out_of_order_find_their_calls() {
    let server = start(config());
    let addr = server.addr().to_string();
    let client = client();
    let held = {
        let (client, addr) = (client.clone(), addr.clone());
        tokio::spawn(async move { client.call(&addr, Request::new(RequestCode(HELD)), LONG).await })
    };
    eventually_async("held", || server.service.held.lock().len() == 1).await;
    assert_eq!(&client.call(&addr, echo("now"), LONG).await.expect("answer").body[..], b"now");
    server.service.release();
    assert!(held.await.expect("task").expect("answer").into_ok().is_ok());
}

#[tokio::test]
async fn nobody_listening_is_a_connect_error_and_the_next_call_connects() {
    let server = start(config());
    let addr = server.addr();
    server.server.shutdown(Duration::ZERO);
    let client = client();
    let refused = client.call(&addr.to_string(), echo(""), LONG).await;
    let Err(CallError::Connect { addr: named, .. }) = &refused else { panic!("{refused:?}") };
    assert_eq!(named.as_ref(), addr.to_string());
    let again = start(ServerConfig { listen: vec![addr], ..config() });
    client.call(&addr.to_string(), echo(""), LONG).await.expect("connected");
    // The server ends the connection; the call after that makes a new one.
    again.server.connections()[0].close();
    eventually_async("closed", || client.connected_addrs().is_empty()).await;
    client.call(&addr.to_string(), echo(""), LONG).await.expect("connected again");
    assert_eq!(client.connected_addrs().len(), 1);
}

#[tokio::test]
async fn a_lost_connection_fails_the_calls_that_wait_on_it() {
    let server = start(config());
    let addr = server.addr().to_string();
    let client = client();
    let held = {
        let (client, addr) = (client.clone(), addr.clone());
        tokio::spawn(async move { client.call(&addr, Request::new(RequestCode(HELD)), LONG).await })
    };
    eventually_async("held", || server.service.held.lock().len() == 1).await;
    server.server.connections()[0].close();
    let closed = held.await.expect("task");
    assert!(matches!(closed, Err(CallError::Closed { .. })), "{closed:?}");
}

#[tokio::test]
async fn host_names_are_resolved() {
    let server = start(config());
    let addr = format!("localhost:{}", server.addr().port());
    let client = client();
    client.call(&addr, echo(""), LONG).await.expect("answer");
    let unknown = client.call("no-such-host.invalid:9876", echo(""), LONG).await;
    assert!(matches!(unknown, Err(CallError::Connect { .. })), "{unknown:?}");
    let nonsense = client.call("no port", echo(""), LONG).await;
    assert!(matches!(nonsense, Err(CallError::Connect { .. })), "{nonsense:?}");
}

#[tokio::test]
async fn the_bound_on_what_is_in_flight_makes_calls_wait() {
    let server = start(config());
    let addr = server.addr().to_string();
    let two_calls = ClientConfig { in_flight_bytes_max: 2048, ..ClientConfig::default() };
    let client = Client::new(two_calls, None);
    let held = (0..2).map(|_| {
        let (client, addr) = (client.clone(), addr.clone());
        tokio::spawn(async move { client.call(&addr, Request::new(RequestCode(HELD)), LONG).await })
    });
    let held = held.collect::<Vec<_>>();
    eventually_async("held", || server.service.held.lock().len() == 2).await;
    let third = client.call(&addr, echo(""), Duration::from_millis(30)).await;
    assert!(matches!(third, Err(CallError::Busy { .. })), "{third:?}");
    server.service.release();
    for call in held {
        call.await.expect("task").expect("answer");
    }
    // A body above the bound takes all of the room, and passes.
    let large = client.call(&addr, echo(vec![1; 10_000]), LONG).await.expect("answer");
    assert_eq!(large.body.len(), 10_000);
}

#[derive(Default)]
struct Handler {
    seen: Mutex<Vec<i32>>,
}

impl ClientRequestHandler for Handler {
    fn handle(&self, conn: &Arc<Connection>, request: &Frame<'_>) -> Option<Response> {
        self.seen.lock().push(request.code);
        match request.request_code() {
            RequestCode::GET_CONSUMER_RUNNING_INFO => {
                Some(Response::ok().with_body(request.body.to_vec()))
            }
            RequestCode::GET_CONSUMER_STATUS_FROM_CLIENT => {
                let (conn, ticket) = (conn.clone(), request.ticket());
                tokio::spawn(async move { conn.reply(ticket, &Response::ok()) });
                None
            }
            _ => None,
        }
    }
}

#[tokio::test]
async fn the_handler_answers_requests_of_the_server() {
    let server = start(config());
    let handler = Arc::new(Handler::default());
    let client = Client::new(ClientConfig::default(), Some(handler.clone()));
    client.connect(&server.addr().to_string()).await.expect("connected");
    eventually_async("accepted", || server.server.connections().len() == 1).await;
    let conn = server.server.connections().remove(0);
    let body = Bytes::from_static(b"?");
    let answer = conn.request(RequestCode::GET_CONSUMER_RUNNING_INFO, &(), body, LONG).await;
    assert_eq!(&answer.expect("answer").body[..], b"?");
    let code = RequestCode::GET_CONSUMER_STATUS_FROM_CLIENT;
    conn.request(code, &(), Bytes::new(), LONG).await.expect("answered later");
    conn.oneway(RequestCode::NOTIFY_CONSUMER_IDS_CHANGED, &(), Bytes::new()).expect("sent");
    eventually_async("all were seen", || handler.seen.lock().len() == 3).await;
}

#[tokio::test]
async fn without_a_handler_requests_are_refused() {
    let server = start(config());
    let client = client();
    client.connect(&server.addr().to_string()).await.expect("connected");
    eventually_async("accepted", || server.server.connections().len() == 1).await;
    let conn = server.server.connections().remove(0);
    let answer = conn.request(RequestCode(307), &(), Bytes::new(), LONG).await.expect("answer");
    assert_eq!(answer.code, ResponseCode::REQUEST_CODE_NOT_SUPPORTED);
}

#[tokio::test]
async fn an_idle_connection_ends_and_dropping_the_client_ends_all() {
    let server = start(config());
    let idle = ClientConfig { idle: Duration::from_millis(100), ..ClientConfig::default() };
    let client = Client::new(idle, None);
    let addr = server.addr().to_string();
    client.call(&addr, echo(""), LONG).await.expect("answer");
    eventually_async("idle", || client.connected_addrs().is_empty()).await;
    eventually_async("gone", || server.server.connections().is_empty()).await;
    let second = Client::new(ClientConfig::default(), None);
    second.call(&addr, echo(""), LONG).await.expect("answer");
    drop(second);
    eventually_async("gone", || server.server.connections().is_empty()).await;
}

async fn eventually_async(what: &'static str, mut condition: impl FnMut() -> bool) {
    let until = tokio::time::Instant::now() + LONG;
    while !condition() {
        assert!(tokio::time::Instant::now() < until, "not within ten seconds: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
