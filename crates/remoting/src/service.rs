//! What a server does with the requests it reads.

use std::sync::Arc;

use rocketmq_protocol::frame::Frame;

use crate::connection::Connection;
use crate::output::Output;

/// Handles the requests of a server's connections.
///
/// All methods run on the I/O thread that owns the connection and must not block: what has to wait is
/// handed elsewhere together with `Arc<Connection>` and the request's `Ticket`, and answered later by
/// [`Connection::reply`] or [`Connection::send`].
pub trait Service: Send + Sync + 'static {
    /// A connection was accepted; nothing was read from it yet.
    fn connected(&self, conn: &Arc<Connection>) {
        let _ = conn;
    }

    /// A connection ended. Called exactly once for each [`Service::connected`], after the last `serve`.
    fn closed(&self, conn: &Arc<Connection>) {
        let _ = conn;
    }

    /// Handles whole request frames of one socket read, in their order. What is put in `out` leaves with
    /// one socket write. `requests` is never empty; frames that answer our own requests are not in it.
    /// One read may be handed over in several calls when it held very many frames.
    ///
    /// A panic in here closes this connection and no other; answers of the batch are then not sent.
    fn serve(&self, conn: &Arc<Connection>, requests: &[Frame<'_>], out: &mut Output);
}
