//! A cluster of one process: a name server and brokers that keep messages in memory.
//!
//! It does what the tests need of RocketMQ's rules, over real sockets: routes, sends, pulls that are held,
//! offsets, membership. What it is asked, it counts.

#![allow(dead_code)]

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use rocketmq_protocol::body::HeartbeatData;
use rocketmq_protocol::body::consume::ConsumerIdList;
use rocketmq_protocol::body::replication::{EpochEntry, EpochEntryCache};
use rocketmq_protocol::body::route::{BrokerData, ClusterInfo, QueueData, TopicRouteData};
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_protocol::fastjson;
use rocketmq_protocol::frame::{Frame, Ticket};
use rocketmq_protocol::hash::tags_code;
use rocketmq_protocol::header::client::*;
use rocketmq_protocol::header::offset::*;
use rocketmq_protocol::header::pull::*;
use rocketmq_protocol::header::route::GetRouteinfoByTopicRequest;
use rocketmq_protocol::header::send::{SendMessageRequest, SendMessageResponse};
use rocketmq_protocol::message::batch;
use rocketmq_protocol::message::properties::{self, name};
use rocketmq_protocol::message::record::{NewMessage, Placement, encode_record};
use rocketmq_protocol::response::Response;
use rocketmq_protocol::subscription::SubscriptionData;
use rocketmq_remoting::{Connection, InFlight, Output, Server, ServerConfig, Service, bind};

pub const TOPIC: &str = "T";

/// A record and its tag code.
#[derive(Clone)]
struct Stored {
    bytes: Bytes,
    tags_code: i64,
}

/// A pull that waits for messages.
struct HeldPull {
    ticket: Ticket,
    guard: InFlight,
    queue: (String, i32),
    offset: i64,
    tags: SubscriptionData,
}

#[derive(Default)]
struct State {
    queues: HashMap<(String, i32), Vec<Stored>>,
    held: Vec<HeldPull>,
    pub offsets: BTreeMap<(String, String, i32), i64>,
    members: BTreeMap<String, (String, Arc<Connection>)>,
    heartbeats: usize,
    asked: HashMap<i32, usize>,
    /// Answered to sends instead of storing, once each.
    refusals: Vec<ResponseCode>,
    log_bytes: i64,
}

pub struct Broker {
    pub name: String,
    state: Mutex<State>,
}

/// One broker, its server, and the address of both.
pub struct RunningBroker {
    pub broker: Arc<Broker>,
    pub server: Server,
    pub addr: SocketAddr,
}

/// Topic → queues per broker. What is missing has no route.
type Topics = Mutex<BTreeMap<String, i32>>;

pub struct NameServer {
    topics: Topics,
    brokers: Mutex<BTreeMap<String, String>>,
}

pub struct Cluster {
    pub name_server: Arc<NameServer>,
    name_server_socket: Server,
    pub brokers: Vec<RunningBroker>,
}

fn listen() -> ServerConfig {
    ServerConfig { listen: vec![([127, 0, 0, 1], 0).into()], ..ServerConfig::default() }
}

/// Starts a name server and brokers `a`, `b`, ... with [`TOPIC`] in `queues` queues each.
pub fn cluster(brokers: usize, queues: i32) -> Cluster {
    let name_server = Arc::new(NameServer {
        topics: Mutex::new(BTreeMap::from([(TOPIC.to_owned(), queues)])),
        brokers: Mutex::default(),
    });
    let name_server_socket = bind(listen(), name_server.clone()).expect("bind");
    let brokers = (0..brokers).map(|number| {
        let name = char::from(b'a' + u8::try_from(number).expect("few")).to_string();
        let broker = Arc::new(Broker { name: name.clone(), state: Mutex::default() });
        let server = bind(listen(), broker.clone()).expect("bind");
        let addr = server.local_addrs()[0];
        name_server.brokers.lock().insert(name, addr.to_string());
        RunningBroker { broker, server, addr }
    });
    let brokers = brokers.collect();
    Cluster { name_server, name_server_socket, brokers }
}

impl Cluster {
    pub fn name_server_addr(&self) -> String {
        self.name_server_socket.local_addrs()[0].to_string()
    }

    pub fn set_topic(&self, topic: &str, queues: Option<i32>) {
        let mut topics = self.name_server.topics.lock();
        match queues {
            Some(queues) => topics.insert(topic.to_owned(), queues),
            None => topics.remove(topic),
        };
    }

    /// Messages stored of a topic, at all brokers.
    pub fn stored(&self, topic: &str) -> usize {
        self.brokers.iter().map(|b| b.broker.stored(topic)).sum()
    }

    /// The committed offset of a group, summed over all queues of a topic.
    pub fn committed(&self, group: &str, topic: &str) -> i64 {
        let of = |b: &RunningBroker| {
            let state = b.broker.state.lock();
            let own = state.offsets.iter().filter(|((g, t, _), _)| g == group && t == topic);
            own.map(|(_, offset)| *offset).sum::<i64>()
        };
        self.brokers.iter().map(of).sum()
    }
}

impl Broker {
    pub fn stored(&self, topic: &str) -> usize {
        let state = self.state.lock();
        state.queues.iter().filter(|((t, _), _)| t == topic).map(|(_, q)| q.len()).sum()
    }

    pub fn asked(&self, code: RequestCode) -> usize {
        self.state.lock().asked.get(&code.0).copied().unwrap_or(0)
    }

    pub fn refuse_next_send(&self, code: ResponseCode) {
        self.state.lock().refusals.push(code);
    }

    pub fn members(&self) -> usize {
        self.state.lock().members.len()
    }

    /// A connection of some member, to ask it something.
    pub fn member_connection(&self) -> Arc<Connection> {
        self.state.lock().members.values().next().expect("a member").1.clone()
    }

    fn append(
        &self,
        state: &mut State,
        request: &SendMessageRequest<'_>,
        flag: i32,
        body: &[u8],
        props: &[u8],
    ) -> i64 {
        let key = (request.topic.to_string(), request.queue_id);
        let queue_offset = state.queues.get(&key).map_or(0, Vec::len) as i64;
        let message = NewMessage {
            topic: &request.topic,
            queue_id: request.queue_id,
            flag,
            sys_flag: request.sys_flag,
            born_timestamp_ms: request.born_timestamp,
            born_host: ([127, 0, 0, 1], 1).into(),
            store_host: ([127, 0, 0, 1], 10911).into(),
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body,
            properties: &[props],
        };
        let physical_offset = state.log_bytes;
        let placement = Placement { queue_offset, physical_offset, store_timestamp_ms: 1 };
        let mut bytes = Vec::new();
        encode_record(&mut bytes, &message, placement).expect("encodes");
        state.log_bytes += bytes.len() as i64;
        let tags_code = properties::find(props, name::TAGS).map_or(0, tags_code);
        state.queues.entry(key).or_default().push(Stored { bytes: bytes.into(), tags_code });
        queue_offset
    }

    fn send(&self, request: &Frame<'_>) -> Response {
        let header = request.header::<SendMessageRequest<'_>>().expect("send header");
        let mut state = self.state.lock();
        if let Some(code) = state.refusals.pop() {
            return Response::error(code, "as the test says");
        }
        let props = header.properties.as_deref().unwrap_or("").as_bytes().to_vec();
        let offset = if header.batch == Some(true) {
            let mut first = None;
            for part in batch::iter(request.body) {
                let part = part.expect("valid batch");
                let offset =
                    self.append(&mut state, &header, part.flag, part.body, part.properties);
                first = first.or(Some(offset));
            }
            first.expect("a message")
        } else {
            self.append(&mut state, &header, header.flag, request.body, &props)
        };
        self.wake(&mut state);
        Response::ok().with_header(&SendMessageResponse {
            msg_id: "offset-id".into(),
            queue_id: header.queue_id,
            queue_offset: offset,
            ..SendMessageResponse::default()
        })
    }

    fn pull(&self, conn: &Arc<Connection>, request: &Frame<'_>) -> Option<Response> {
        let header = request.header::<PullMessageRequest<'_>>().expect("pull header");
        let tags = SubscriptionData::from_tags(
            &header.topic,
            header.subscription.as_deref().unwrap_or("*"),
            0,
        );
        let pull = HeldPull {
            ticket: request.ticket(),
            guard: conn.hold(0),
            queue: (header.topic.to_string(), header.queue_id),
            offset: header.queue_offset,
            tags: tags.expect("valid"),
        };
        let mut state = self.state.lock();
        let (answer, _) = read(&state, &pull);
        if answer.code != ResponseCode::PULL_NOT_FOUND || !header.has_flag(SYS_FLAG_SUSPEND) {
            return Some(answer);
        }
        state.held.push(pull);
        None
    }

    /// Answers held pulls whose queue has grown.
    fn wake(&self, state: &mut State) {
        let held = std::mem::take(&mut state.held);
        for pull in held {
            let (answer, grown) = read(state, &pull);
            if grown {
                pull.guard.connection().reply(pull.ticket, &answer);
            } else {
                state.held.push(pull);
            }
        }
    }

    fn serve_one(&self, conn: &Arc<Connection>, request: &Frame<'_>) -> Option<Response> {
        *self.state.lock().asked.entry(request.code).or_default() += 1;
        let not_found = || Response::error(ResponseCode::QUERY_NOT_FOUND, "not found");
        Some(match request.request_code() {
            RequestCode::SEND_MESSAGE_V2 | RequestCode::SEND_BATCH_MESSAGE => self.send(request),
            RequestCode::PULL_MESSAGE => return self.pull(conn, request),
            RequestCode::HEART_BEAT => {
                let data = fastjson::from_slice::<HeartbeatData>(request.body).expect("heart-beat");
                let mut state = self.state.lock();
                state.heartbeats += 1;
                for consumer in &data.consumer_data_set {
                    let member = (consumer.group_name.clone(), conn.clone());
                    if state.members.insert(data.client_id.clone(), member).is_none() {
                        notify(&state, &consumer.group_name);
                    }
                }
                Response::ok()
            }
            RequestCode::UNREGISTER_CLIENT => {
                let header = request.header::<UnregisterClientRequest<'_>>().expect("header");
                let mut state = self.state.lock();
                if let Some((group, _)) = state.members.remove(&*header.client_id) {
                    notify(&state, &group);
                }
                Response::ok()
            }
            RequestCode::GET_CONSUMER_LIST_BY_GROUP => {
                let header = request.header::<GetConsumerListByGroupRequest<'_>>().expect("header");
                let state = self.state.lock();
                let own = state.members.iter().filter(|(_, (g, _))| *g == header.consumer_group);
                let ids = own.map(|(id, _)| id.clone()).collect::<Vec<_>>();
                Response::ok().with_json(&ConsumerIdList { consumer_id_list: ids })
            }
            RequestCode::QUERY_CONSUMER_OFFSET => {
                let header = request.header::<QueryConsumerOffsetRequest<'_>>().expect("header");
                let key =
                    (header.consumer_group.to_string(), header.topic.to_string(), header.queue_id);
                match self.state.lock().offsets.get(&key) {
                    Some(offset) => {
                        Response::ok().with_header(&QueryConsumerOffsetResponse { offset: *offset })
                    }
                    None => not_found(),
                }
            }
            RequestCode::UPDATE_CONSUMER_OFFSET => {
                let header = request.header::<UpdateConsumerOffsetRequest<'_>>().expect("header");
                let key = (
                    header.consumer_group.to_string(),
                    header.topic.to_string(),
                    header.queue_id.expect("queue"),
                );
                let offset = header.commit_offset.expect("offset");
                self.state.lock().offsets.insert(key, offset);
                Response::ok()
            }
            RequestCode::GET_MAX_OFFSET => {
                let header = request.header::<GetMaxOffsetRequest<'_>>().expect("header");
                let key = (header.topic.to_string(), header.queue_id);
                let offset = self.state.lock().queues.get(&key).map_or(0, Vec::len) as i64;
                Response::ok().with_header(&GetMaxOffsetResponse { offset })
            }
            RequestCode::GET_MIN_OFFSET => {
                Response::ok().with_header(&GetMinOffsetResponse { offset: 0 })
            }
            RequestCode::CONSUMER_SEND_MSG_BACK => {
                Response::error(ResponseCode::SYSTEM_ERROR, "retry is not there yet")
            }
            RequestCode::GET_BROKER_EPOCH_CACHE => {
                let epochs = [(1, 0, 100), (3, 100, i64::MAX)].map(|(epoch, start, end)| {
                    EpochEntry { epoch, start_offset: start, end_offset: end }
                });
                Response::ok().with_field("incarnation", "uid:7").with_json(&EpochEntryCache {
                    broker_name: self.name.clone(),
                    epoch_list: epochs.to_vec(),
                    max_offset: 150,
                    ..EpochEntryCache::default()
                })
            }
            RequestCode::GET_BROKER_CONFIG => {
                Response::ok().with_body("brokerName=a\nlistenPort=10911\n")
            }
            code => Response::error(
                ResponseCode::REQUEST_CODE_NOT_SUPPORTED,
                format!(" request type {} not supported", code.0),
            ),
        })
    }
}

/// What a pull gets now, and whether its queue has grown beyond the offset.
fn read(state: &State, pull: &HeldPull) -> (Response, bool) {
    let none = Vec::new();
    let queue = state.queues.get(&pull.queue).unwrap_or(&none);
    let max = queue.len() as i64;
    let header = |next| PullMessageResponse {
        suggest_which_broker_id: 0,
        next_begin_offset: next,
        min_offset: 0,
        max_offset: max,
        ..PullMessageResponse::default()
    };
    let Some(new) = usize::try_from(pull.offset).ok().and_then(|from| queue.get(from..)) else {
        let moved = Response::error(ResponseCode::PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY");
        return (moved.with_header(&header(max)), true);
    };
    if new.is_empty() {
        let nothing = Response::error(ResponseCode::PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE");
        return (nothing.with_header(&header(pull.offset)), false);
    }
    let new = &new[..new.len().min(32)];
    let next = pull.offset + new.len() as i64;
    let wanted = new.iter().filter(|stored| pull.tags.matches_tags_code(stored.tags_code));
    let body = wanted.flat_map(|stored| stored.bytes.to_vec()).collect::<Vec<_>>();
    if body.is_empty() {
        let filtered = Response::error(ResponseCode::PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE");
        return (filtered.with_header(&header(next)), true);
    }
    (Response::ok().with_header(&header(next)).with_body(body), true)
}

fn notify(state: &State, group: &str) {
    let header = NotifyConsumerIdsChangedRequest { consumer_group: group.to_owned().into() };
    for (own, conn) in state.members.values() {
        if own == group {
            let code = RequestCode::NOTIFY_CONSUMER_IDS_CHANGED;
            let _ = conn.oneway(code, &header, Bytes::new());
        }
    }
}

impl Service for Broker {
    fn closed(&self, conn: &Arc<Connection>) {
        let mut state = self.state.lock();
        state.held.retain(|pull| pull.guard.connection().id() != conn.id());
        let gone = state.members.iter().filter(|(_, (_, c))| c.id() == conn.id());
        let gone = gone.map(|(id, (g, _))| (id.clone(), g.clone())).collect::<Vec<_>>();
        for (id, group) in gone {
            state.members.remove(&id);
            notify(&state, &group);
        }
    }

    fn serve(&self, conn: &Arc<Connection>, requests: &[Frame<'_>], out: &mut Output) {
        for request in requests {
            if let Some(response) = self.serve_one(conn, request) {
                out.reply(request.ticket(), &response);
            }
        }
    }
}

impl Service for NameServer {
    fn serve(&self, _: &Arc<Connection>, requests: &[Frame<'_>], out: &mut Output) {
        for request in requests {
            let response = match request.request_code() {
                RequestCode::GET_ROUTEINFO_BY_TOPIC => self.route(request),
                RequestCode::GET_BROKER_CLUSTER_INFO => Response::ok().with_json(&ClusterInfo {
                    broker_addr_table: self.broker_datas(),
                    cluster_addr_table: BTreeMap::new(),
                }),
                _ => Response::error(ResponseCode::REQUEST_CODE_NOT_SUPPORTED, "not here"),
            };
            out.reply(request.ticket(), &response);
        }
    }
}

impl NameServer {
    fn broker_datas(&self) -> BTreeMap<String, BrokerData> {
        let data = |(name, addr): (&String, &String)| {
            let data = BrokerData {
                broker_name: name.clone(),
                broker_addrs: BTreeMap::from([(0, addr.clone())]),
                cluster: "C".to_owned(),
                ..BrokerData::default()
            };
            (name.clone(), data)
        };
        self.brokers.lock().iter().map(data).collect()
    }

    fn route(&self, request: &Frame<'_>) -> Response {
        let header = request.header::<GetRouteinfoByTopicRequest<'_>>().expect("header");
        let Some(queues) = self.topics.lock().get(&*header.topic).copied() else {
            return Response::error(ResponseCode::TOPIC_NOT_EXIST, "no route");
        };
        let brokers = self.broker_datas();
        let queue_data = |name: &String| QueueData {
            broker_name: name.clone(),
            perm: 6,
            read_queue_nums: queues,
            write_queue_nums: queues,
            topic_sys_flag: 0,
        };
        Response::ok().with_json(&TopicRouteData {
            queue_datas: brokers.keys().map(queue_data).collect(),
            broker_datas: brokers.into_values().collect(),
            ..TopicRouteData::default()
        })
    }
}

/// Waits until `condition` holds; fails after twenty seconds.
pub async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let until = tokio::time::Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(tokio::time::Instant::now() < until, "not within twenty seconds: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
