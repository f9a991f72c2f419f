//! Requests that may block, one at a time for each connection.
//!
//! Each connection has a lane: its requests run one after the other on the threads for blocking work,
//! and the next one waits while the peer has not read the answers to those before. So a peer that
//! asks for much and reads nothing costs one answer beyond the bound, and many that ask for much take
//! turns with everybody else, heart-beats included.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rocketmq_remoting::Connection;

/// Unwritten bytes of a connection above which its next request waits.
const UNREAD_BYTES_MAX: usize = 1 << 20;
/// Time between looks whether the peer has read them.
const UNREAD_LOOK: Duration = Duration::from_millis(20);

/// A request with all it needs.
pub type Job = Box<dyn FnOnce() + Send>;

/// The lanes that have something in them. A lane with an empty queue has its last job running.
#[derive(Clone, Default)]
pub struct Lanes(Arc<Mutex<HashMap<u64, VecDeque<Job>>>>);

impl Lanes {
    /// Runs `job` on a thread of `runtime` that may block, behind the connection's earlier ones. Jobs
    /// of a connection that ends meanwhile are dropped.
    pub fn run(&self, runtime: &tokio::runtime::Handle, conn: &Arc<Connection>, job: Job) {
        let mut lanes = self.0.lock();
        if let Some(waiting) = lanes.get_mut(&conn.id()) {
            waiting.push_back(job);
            return;
        }
        lanes.insert(conn.id(), VecDeque::new());
        drop(lanes);
        let (lanes, conn) = (self.clone(), Arc::clone(conn));
        runtime.spawn(async move { lanes.drive(&conn, job).await });
    }

    async fn drive(&self, conn: &Connection, first: Job) {
        let mut next = Some(first);
        while let Some(job) = next {
            while conn.unwritten_bytes() > UNREAD_BYTES_MAX && !conn.is_closed() {
                tokio::time::sleep(UNREAD_LOOK).await;
            }
            if conn.is_closed() {
                self.0.lock().remove(&conn.id());
                return;
            }
            if let Err(error) = tokio::task::spawn_blocking(job).await {
                tracing::error!(remote = conn.remote_text(), %error, "request ended early");
            }
            next = self.next(conn.id());
        }
    }

    /// The lane's next job; without one the lane is gone.
    fn next(&self, id: u64) -> Option<Job> {
        let mut lanes = self.0.lock();
        let job = lanes.get_mut(&id).and_then(VecDeque::pop_front);
        if job.is_none() {
            lanes.remove(&id);
        }
        job
    }
}
