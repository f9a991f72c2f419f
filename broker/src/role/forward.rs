//! After a handover: sends that still come here go on to the new master, and its answers back.
//!
//! Where the group's master has one address for clients, connections that were made before the handover
//! lead to the old master, and new ones as well until that address has moved. A producer would need its
//! tries for that, and with a group alone it has no other broker to try. What is forwarded keeps its
//! order; the new master sees this broker as where it was born.

use std::sync::Arc;
use std::time::{Duration, Instant};

use foldhash::HashMap;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use rocketmq_protocol::response::Response;
use rocketmq_remoting::{Client, ClientConfig, Connection, Output, Request};

use super::held_sends::{ADDRESS_MOVES, AFTERMATH, HeldSend};
use crate::state::BrokerState;

/// How long the new master may take to answer; producers wait no longer (`sendMsgTimeout`).
const TIMEOUT: Duration = Duration::from_secs(3);
/// Time between looks whether the new master is there.
const LOOK: Duration = Duration::from_millis(20);

/// Forwards whenever this broker has handed over, for ever.
pub(super) async fn forward(state: &Arc<BrokerState>) {
    let client = Client::new(ClientConfig::default(), None);
    let mut calls = FuturesUnordered::new();
    // When each connection was first forwarded for.
    let mut seen: HashMap<u64, Instant> = HashMap::default();
    loop {
        tokio::select! {
            () = state.held_sends.came() => {}
            Some(()) = calls.next(), if !calls.is_empty() => continue,
        }
        // A master that lets its log be copied takes messages in.
        let master = state.replication.master();
        if !state.replication.is_copying_from(&master) {
            tokio::time::sleep(LOOK).await;
            state.held_sends.look_again();
            continue;
        }
        let sends = state.held_sends.take_all_for_address();
        let now = Instant::now();
        seen.retain(|_, first| now.duration_since(*first) < AFTERMATH);
        for send in sends {
            let first = *seen.entry(send.connection().id()).or_insert(now);
            // It is to be made anew now and then, until it leads elsewhere; not at each answer, which
            // would cost others on the same connection all of their tries.
            let is_last = now.duration_since(first) >= ADDRESS_MOVES;
            if is_last {
                seen.remove(&send.connection().id());
            }
            let call = forward_one(state, &client, master.broker.clone(), send, is_last);
            let mut call = Box::pin(call);
            // Its first step puts it on the connection: in the order in which they came.
            if futures::poll!(&mut call).is_pending() {
                calls.push(call);
            }
        }
    }
}

async fn forward_one(
    state: &BrokerState,
    client: &Client,
    master: String,
    send: HeldSend,
    is_last: bool,
) {
    // Closed if this future is dropped: its sender is to try again at once.
    let mut unanswered = Unanswered(Some(Arc::clone(send.connection())));
    let Some(frame) = send.decode() else { return };
    let request = Request {
        code: frame.request_code(),
        ext: frame.ext.iter().map(|(k, v)| (k.into_owned().into(), v.into_owned())).collect(),
        body: bytes::Bytes::copy_from_slice(frame.body),
    };
    let (ticket, code) = (frame.ticket(), frame.request_code());
    match client.call(&master, request, TIMEOUT).await {
        Ok(answer) => {
            let answer = Response::from(answer);
            state.metrics.answered(code, answer.code, false, send.since(), 1);
            let mut out = Output::new();
            out.reply(ticket, &answer);
            send.connection().send(out);
            unanswered.0 = None;
            if is_last {
                send.connection().drain();
            }
        }
        Err(error) => tracing::debug!(master, %error, "a send was not forwarded"),
    }
}

/// A connection that is closed unless its send was answered.
struct Unanswered(Option<Arc<Connection>>);

impl Drop for Unanswered {
    fn drop(&mut self) {
        if let Some(conn) = &self.0 {
            conn.close();
        }
    }
}
