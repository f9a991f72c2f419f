//! The HA port: connections of slaves, a task each.

use std::fmt::Display;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

/// Slaves at one time; one more is turned away. A group has a few.
const SLAVES_MAX: usize = 64;
/// Pause after accepting failed, which mostly means that the process has no descriptor left.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Serves each slave that connects until `stop`; returns when all are closed.
pub(super) async fn each_slave<S, E>(
    listener: TcpListener,
    stop: CancellationToken,
    serve: impl Fn(TcpStream, String) -> S,
) where
    S: Future<Output = Result<(), E>> + Send + 'static,
    E: Display,
{
    let links = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        match accepted {
            Ok((socket, remote)) => {
                if links.len() >= SLAVES_MAX {
                    warn!(%remote, "slave turned away: {SLAVES_MAX} are connected");
                    continue;
                }
                let remote = remote.to_string();
                let (serving, stop) = (serve(socket, remote.clone()), stop.clone());
                links.spawn(async move {
                    let result = tokio::select! {
                        result = serving => result,
                        () = stop.cancelled() => Ok(()),
                    };
                    match result {
                        Ok(()) => info!(remote, "slave link closed"),
                        Err(error) => warn!(remote, %error, "slave link lost"),
                    }
                });
            }
            Err(error) => {
                warn!(%error, "cannot accept a slave");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
    links.close();
    links.wait().await;
}
