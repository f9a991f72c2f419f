//! The name server's requests: which code is answered by whom, and where the answer is made.
//!
//! Questions and registrations are answered on the I/O thread, from memory. What writes a file goes
//! to the admin thread, one request at a time. The handlers themselves are in the modules below;
//! each turns a request into a `Response` and knows nothing of sockets.

mod admin;
mod broker;
mod route;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Instant;

use parking_lot::{Mutex, RwLock};
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::frame::{Frame, Ticket};
use rocketmq_protocol::header::Header;
use rocketmq_protocol::response::Response;
use rocketmq_remoting::connection::{Connection, InFlight};
use rocketmq_remoting::output::Output;
use rocketmq_remoting::service::Service;
use tokio::sync::mpsc;

use crate::kv_table::KvTable;
use crate::metrics::Metrics;
use crate::route_table::{MinIdChange, Removed, RouteTable};
use crate::settings::Settings;

/// How many admin requests may wait for the admin thread; more are answered SYSTEM_BUSY.
pub(crate) const ADMIN_JOBS_MAX: usize = 256;
/// How many notices of a new lowest broker id may wait; more are dropped, with a log line.
pub(crate) const NOTICES_MAX: usize = 1024;

/// Why a broker was removed, when it asked for it.
const UNREGISTERED: &str = "unregistered";

/// What the admin thread is given.
pub(crate) enum AdminWork {
    /// A request to do and answer.
    Request(AdminJob),
    /// The end.
    Stop,
}

/// A request that writes a file, on its way to the admin thread.
pub(crate) struct AdminJob {
    conn: Arc<Connection>,
    ticket: Ticket,
    work: Work,
    /// Counts the request toward its connection's bound until it is answered.
    _in_flight: InFlight,
}

type Work = Box<dyn FnOnce(&State) -> Response + Send>;

impl AdminJob {
    /// Does the work and answers.
    pub(crate) fn run(self, state: &State) {
        let response = (self.work)(state);
        state.metrics.answered(self.ticket.code, response.code);
        self.conn.reply(self.ticket, &response);
    }
}

/// What a handler made of a request.
enum Outcome {
    Answer(Response),
    /// To be done on the admin thread.
    Blocking(Work),
}

/// Everything the handlers share.
pub(crate) struct State {
    pub(crate) routes: RwLock<RouteTable>,
    pub(crate) kv: KvTable,
    pub(crate) settings: Settings,
    pub(crate) metrics: Arc<Metrics>,
    started: Instant,
    serving: AtomicBool,
    notices: mpsc::Sender<MinIdChange>,
    /// Connections on which a broker registered, to close them when the broker expires.
    broker_connections: Mutex<HashMap<u64, Arc<Connection>>>,
}

impl State {
    pub(crate) fn new(
        kv: KvTable,
        settings: Settings,
        metrics: Arc<Metrics>,
        notices: mpsc::Sender<MinIdChange>,
    ) -> Self {
        Self {
            routes: RwLock::default(),
            kv,
            settings,
            metrics,
            started: Instant::now(),
            serving: AtomicBool::new(false),
            notices,
            broker_connections: Mutex::default(),
        }
    }

    /// Whether requests are answered: false before the port is bound and once the stop has begun.
    pub(crate) fn is_serving(&self) -> bool {
        self.serving.load(Relaxed)
    }

    pub(crate) fn set_serving(&self, serving: bool) {
        self.serving.store(serving, Relaxed);
    }

    /// Milliseconds since the start: a clock that never jumps.
    pub(crate) fn now_ms(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    /// Takes out the silent brokers and closes their connections.
    pub(crate) fn expire(&self) {
        let now_ms = self.now_ms();
        let (removed, idle): (Vec<Removed>, Vec<u64>) = {
            let mut routes = self.routes.write();
            let removed = routes.expire(now_ms);
            let idle = removed
                .iter()
                .map(|broker| broker.connection)
                .filter(|connection| !routes.is_registered_on(*connection))
                .collect();
            (removed, idle)
        };
        let mut connections = self.broker_connections.lock();
        for connection in idle.iter().filter_map(|id| connections.remove(id)) {
            connection.close();
        }
        drop(connections);
        for broker in removed {
            self.after_removal(broker, "expired");
        }
        self.count_routes();
    }

    fn after_removal(&self, broker: Removed, reason: &'static str) {
        // A farewell is as usual as a registration; the other reasons are not.
        if reason == UNREGISTERED {
            tracing::info!(
                cluster = broker.cluster,
                broker_name = broker.broker_name,
                broker_addr = broker.broker_addr,
                "broker unregistered"
            );
        } else {
            tracing::warn!(
                cluster = broker.cluster,
                broker_name = broker.broker_name,
                broker_addr = broker.broker_addr,
                reason,
                "broker removed"
            );
        }
        self.metrics.removed(reason);
        if let Some(change) = broker.min_id_change {
            self.notify(change);
        }
    }

    fn notify(&self, change: MinIdChange) {
        if !self.settings.get().notify_min_broker_id_changed {
            return;
        }
        if let Err(error) = self.notices.try_send(change) {
            tracing::warn!(%error, "notice of a new lowest broker id dropped");
        }
    }

    fn count_routes(&self) {
        let routes = self.routes.read();
        self.metrics.table(routes.broker_count(), routes.group_count(), routes.topic_count());
    }
}

/// The service behind the name server's port.
pub(crate) struct Handler {
    pub(crate) state: Arc<State>,
    jobs: SyncSender<AdminWork>,
}

impl Handler {
    pub(crate) fn new(state: Arc<State>, jobs: SyncSender<AdminWork>) -> Self {
        Self { state, jobs }
    }

    fn answer(&self, conn: &Arc<Connection>, request: &Frame<'_>, out: &mut Output) {
        let ticket = request.ticket();
        let outcome = match self.dispatch(conn, request) {
            Ok(Some(outcome)) => outcome,
            Ok(None) => {
                self.state.metrics.answered(ticket.code, ResponseCode::REQUEST_CODE_NOT_SUPPORTED);
                out.reply_unsupported(ticket);
                return;
            }
            Err(refusal) => Outcome::Answer(refusal),
        };
        let response = match outcome {
            Outcome::Answer(response) => response,
            Outcome::Blocking(work) => {
                let job = AdminJob {
                    conn: Arc::clone(conn),
                    ticket,
                    work,
                    _in_flight: conn.hold(request.body.len()),
                };
                match self.jobs.try_send(AdminWork::Request(job)) {
                    Ok(()) => return,
                    Err(TrySendError::Full(_)) => Response::error(
                        ResponseCode::SYSTEM_BUSY,
                        "[OVERLOAD]system busy: too many configuration changes wait, try again",
                    ),
                    Err(TrySendError::Disconnected(_)) => Response::error(
                        ResponseCode::SYSTEM_ERROR,
                        "the name server is shutting down, ask another one",
                    ),
                }
            }
        };
        self.state.metrics.answered(ticket.code, response.code);
        out.reply(ticket, &response);
    }

    /// `None`: an unknown code.
    fn dispatch(
        &self,
        conn: &Arc<Connection>,
        request: &Frame<'_>,
    ) -> Result<Option<Outcome>, Response> {
        let state = &*self.state;
        let response = match request.request_code() {
            RequestCode::GET_ROUTEINFO_BY_TOPIC => route::route(state, &header(request)?),
            RequestCode::REGISTER_BROKER => broker::register(state, conn, request),
            RequestCode::UNREGISTER_BROKER => broker::unregister(state, conn, &header(request)?),
            RequestCode::BROKER_HEARTBEAT => broker::heartbeat(state, &header(request)?),
            RequestCode::QUERY_DATA_VERSION => {
                broker::query_data_version(state, &header(request)?, request.body)
            }
            RequestCode::GET_BROKER_MEMBER_GROUP => broker::member_group(state, &header(request)?),
            RequestCode::GET_BROKER_CLUSTER_INFO => route::cluster_info(state),
            RequestCode::WIPE_WRITE_PERM_OF_BROKER => {
                route::wipe_write_perm(state, &header(request)?)
            }
            RequestCode::ADD_WRITE_PERM_OF_BROKER => {
                route::add_write_perm(state, &header(request)?)
            }
            RequestCode::GET_ALL_TOPIC_LIST_FROM_NAMESERVER => route::all_topics(state),
            RequestCode::GET_TOPICS_BY_CLUSTER => {
                route::topics_of_cluster(state, &header(request)?)
            }
            RequestCode::GET_SYSTEM_TOPIC_LIST_FROM_NS => route::system_topics(state),
            RequestCode::GET_UNIT_TOPIC_LIST
            | RequestCode::GET_HAS_UNIT_SUB_TOPIC_LIST
            | RequestCode::GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST => {
                route::unit_topics(state, request.request_code())
            }
            RequestCode::DELETE_TOPIC_IN_NAMESRV => route::delete_topic(state, &header(request)?),
            RequestCode::REGISTER_TOPIC_IN_NAMESRV => {
                route::register_topic(state, &header(request)?, request.body)
            }
            RequestCode::GET_KV_CONFIG => admin::get_kv(state, &header(request)?),
            RequestCode::GET_KVLIST_BY_NAMESPACE => admin::kv_list(state, &header(request)?),
            RequestCode::PUT_KV_CONFIG => {
                return Ok(Some(Outcome::Blocking(admin::put_kv(&header(request)?))));
            }
            RequestCode::DELETE_KV_CONFIG => {
                return Ok(Some(Outcome::Blocking(admin::delete_kv(&header(request)?))));
            }
            RequestCode::GET_NAMESRV_CONFIG => admin::get_config(state),
            RequestCode::UPDATE_NAMESRV_CONFIG => {
                return Ok(Some(Outcome::Blocking(admin::update_config(request.body))));
            }
            _ => return Ok(None),
        };
        Ok(Some(Outcome::Answer(response)))
    }
}

impl Service for Handler {
    fn connected(&self, _conn: &Arc<Connection>) {
        self.state.metrics.connections.inc();
    }

    fn closed(&self, conn: &Arc<Connection>) {
        self.state.metrics.connections.dec();
        let id = conn.id();
        let registered = self.state.broker_connections.lock().remove(&id).is_some();
        // At the stop we close the connections ourselves; the brokers did not go.
        if !registered || !self.state.is_serving() {
            return;
        }
        let removed = self.state.routes.write().connection_closed(id);
        for broker in removed {
            self.state.after_removal(broker, "connection closed");
        }
        self.state.count_routes();
    }

    fn serve(&self, conn: &Arc<Connection>, requests: &[Frame<'_>], out: &mut Output) {
        for request in requests {
            self.answer(conn, request, out);
        }
    }
}

/// Reads the typed header; a missing or malformed field is the caller's error and is answered as
/// such.
fn header<'a, H: Header<'a>>(request: &Frame<'a>) -> Result<H, Response> {
    request.header::<H>().map_err(|error| {
        Response::error(
            ResponseCode::SYSTEM_ERROR,
            format!("{} header not understood: {error}", request.request_code()),
        )
    })
}
