//! Groups whose master is appointed: several brokers in this process, and a keeper of the group's record.

mod common;
#[path = "../../crates/store/tests/common/faulty.rs"]
#[allow(dead_code, clippy::unwrap_used, reason = "a part of the store's tests")]
mod faulty;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::keeper::{Keeper, Line, TIMING};
use common::{PATIENCE, Peer, TestBroker, eventually, pull_header, send_header};
use rocketmq_broker::config::{BrokerRole, CoordinatorKind, FlushDiskType};
use rocketmq_broker::coordinator::Coordination;
use rocketmq_broker::replication::appointed::stream::{
    Handshake, MasterFrame, SlaveFrame, SlaveKind, group_mark,
};
use rocketmq_broker::{Broker, BrokerConfig};
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_replication::{Epoch, ReplicaId, Role};
use rocketmq_store::Environment;

/// A broker of a group, and its way to the keeper.
struct Member {
    broker: TestBroker,
    line: Line,
}

impl std::ops::Deref for Member {
    type Target = TestBroker;

    fn deref(&self) -> &TestBroker {
        &self.broker
    }
}

impl Member {
    fn role(&self) -> Role {
        self.group().role()
    }

    fn group(&self) -> &rocketmq_broker::replication::appointed::group::Group {
        self.state().group.as_ref().expect("a group")
    }

    fn is_master(&self) -> bool {
        matches!(self.role(), Role::Master(_)) && self.state().role.takes_messages().is_ok()
    }

    fn written(&self) -> i64 {
        self.state().store.written().0
    }
}

/// Settings of a member: links that notice quickly, pieces that cut records.
fn member_config(config: &mut BrokerConfig, replica: i64, replicas: i32) {
    config.coordinator = CoordinatorKind::Kubernetes;
    config.broker_role = BrokerRole::SyncMaster;
    config.broker_id = replica;
    config.total_replicas = replicas;
    config.ha_send_heartbeat_interval = 50;
    config.ha_housekeeping_interval = 3_000;
    config.ha_transfer_batch_size = 777;
    config.ha_max_time_slave_not_catchup = 1_000;
    config.slave_timeout = 2_000;
    config.slave_read_enable = true;
}

fn start_in(
    dir: Arc<tempfile::TempDir>,
    keeper: &Keeper,
    replica: i64,
    change: impl FnOnce(&mut BrokerConfig),
) -> Member {
    start_on(Environment::default(), dir, keeper, replica, change)
}

fn start_on(
    environment: Environment,
    dir: Arc<tempfile::TempDir>,
    keeper: &Keeper,
    replica: i64,
    change: impl FnOnce(&mut BrokerConfig),
) -> Member {
    let line = Line::to(keeper);
    let mut config = common::config(&dir);
    member_config(&mut config, replica, 3);
    change(&mut config);
    let coordination = Coordination { coordinator: Arc::new(line.clone()), timing: TIMING };
    let broker = Broker::start_coordinated(config, environment, coordination);
    let broker = TestBroker { broker: broker.expect("the broker starts"), dir };
    Member { broker, line }
}

fn start(keeper: &Keeper, replica: i64) -> Member {
    start_with(keeper, replica, |_| ())
}

fn start_with(keeper: &Keeper, replica: i64, change: impl FnOnce(&mut BrokerConfig)) -> Member {
    start_in(Arc::new(tempfile::tempdir().expect("a directory")), keeper, replica, change)
}

/// A group of so many with replica 1 as master and all in sync.
fn group(keeper: &Keeper, replicas: i64) -> Vec<Member> {
    keeper.appoint(1);
    let members: Vec<Member> = (1..=replicas).map(|replica| start(keeper, replica)).collect();
    all_in_sync(keeper, &members);
    members
}

fn all_in_sync(keeper: &Keeper, members: &[Member]) {
    eventually("all are in sync", || keeper.in_sync().len() == members.len());
}

fn becomes_master(member: &Member) {
    eventually("it is master", || member.is_master());
}

/// Sends a message that waits for its copies; says whether it was acknowledged.
fn send(peer: &mut Peer, body: &[u8]) -> common::Answer {
    peer.call(RequestCode::SEND_MESSAGE_V2, &send_header("orders", "0"), body)
}

/// All bodies of the queue as a consumer gets them.
fn bodies(member: &Member) -> Vec<String> {
    bodies_of(member, "orders")
}

fn bodies_of(member: &Member, topic: &str) -> Vec<String> {
    let mut peer = member.connect();
    let (mut found, mut next) = (Vec::new(), 0_i64);
    loop {
        let from = next.to_string();
        let header = pull_header("readers", topic, &from);
        let answer = peer.call(RequestCode::PULL_MESSAGE, &header, b"");
        if answer.code != ResponseCode::SUCCESS.0 {
            return found;
        }
        next = answer.field("nextBeginOffset").parse().expect("an offset");
        let mut rest = &answer.body[..];
        while !rest.is_empty() {
            let record = rocketmq_protocol::message::record::MessageRecord::decode(rest);
            let record = record.expect("a record");
            found.push(String::from_utf8_lossy(record.body).into_owned());
            rest = &rest[record.size..];
        }
    }
}

#[test]
fn an_appointed_master_answers_when_everybody_has_the_message() {
    let keeper = Keeper::default();
    let members = group(&keeper, 3);
    becomes_master(&members[0]);
    let mut producer = members[0].connect();
    for n in 0..20 {
        send(&mut producer, format!("{n}").as_bytes()).ok();
        for member in &members {
            assert_eq!(member.written(), members[0].written(), "answered means copied");
        }
    }
    assert_eq!(bodies(&members[0]).len(), 20);
    for slave in &members[1..] {
        let refused = ResponseCode::SERVICE_NOT_AVAILABLE;
        send(&mut slave.connect(), b"x").refused(refused, "slave");
        eventually("the slave shows what is confirmed", || bodies(slave).len() == 20);
        assert_eq!(slave.role(), Role::Slave(Epoch(1)));
    }
    let status: serde_json::Value =
        members[0].connect().call(RequestCode::GET_BROKER_HA_STATUS, &[], b"").ok().json();
    assert_eq!((&status["master"], &status["inSyncSlaveNums"]), (&true.into(), &2.into()));
    let cache = members[1].connect().call(RequestCode::GET_BROKER_EPOCH_CACHE, &[], b"").ok();
    let epochs: serde_json::Value = cache.json();
    assert_eq!(
        (&epochs["brokerId"], &epochs["epochList"][0]["epoch"], &epochs["maxOffset"]),
        (&2.into(), &1.into(), &members[1].written().into()),
        "{epochs}"
    );
    assert_eq!(cache.field("incarnation"), members[1].group().settings.incarnation);
    let metrics = members[0].broker.broker.metrics_addr().expect("metrics");
    let (_, text) = common::http(metrics, "/metrics");
    for line in
        ["rocketmq_group_role{", "rocketmq_group_epoch{", "rocketmq_group_in_sync_replicas{"]
    {
        assert!(text.contains(line), "{line} in {text}");
    }
    let master_line = text.lines().find(|line| line.contains("role=\"master\"")).expect("a line");
    assert!(master_line.ends_with(" 1") || master_line.ends_with(" 1.0"), "{master_line}");
}

#[test]
fn a_slave_is_ready_when_it_has_been_in_sync_and_stays_so() {
    let ready = |member: &Member| {
        let probes = member.broker.broker.metrics_addr().expect("probes");
        common::http(probes, "/readyz")
    };
    let keeper = Keeper::default();
    keeper.appoint(1);
    let slave = start(&keeper, 2);
    eventually("it has read the record", || !slave.group().status().in_sync.is_empty());
    let (status, why) = ready(&slave);
    assert_eq!(status, 503, "{why}");
    assert!(why.contains("in-sync set"), "{why}");

    let master = start(&keeper, 1);
    eventually("both are ready", || ready(&slave).0 == 200 && ready(&master).0 == 200);
    assert_eq!(keeper.in_sync(), [1, 2]);

    // It falls out: others go on with it, and another pod would have no more.
    master.line.cut(true);
    keeper.edit(|record| record.in_sync = [ReplicaId(1)].into());
    eventually("it knows", || slave.group().status().in_sync == [ReplicaId(1)]);
    let (status, why) = ready(&slave);
    assert_eq!(status, 200, "{why}");
}

/// Nobody is there to follow, and nobody but it can be appointed.
#[test]
fn a_member_without_a_master_is_ready() {
    let keeper = Keeper::default();
    keeper.appoint(1);
    keeper.edit(|record| record.in_sync = [ReplicaId(1), ReplicaId(2)].into());
    let slave = start(&keeper, 2);
    let probes = slave.broker.broker.metrics_addr().expect("probes");
    eventually("it is ready", || common::http(probes, "/readyz").0 == 200);
    assert_eq!(slave.role(), Role::Waiting);
}

#[test]
fn nothing_acknowledged_is_lost_when_the_master_is_cut_off_and_its_surplus_is_cut() {
    let keeper = Keeper::default();
    let members = group(&keeper, 3);
    becomes_master(&members[0]);
    let mut producer = members[0].connect();
    for n in 0..30 {
        send(&mut producer, format!("{n}").as_bytes()).ok();
    }
    // It does not see the appointment, and its slaves leave it.
    members[0].line.cut(true);
    keeper.appoint(2);
    becomes_master(&members[1]);
    eventually("nobody follows the old one", || members[0].state().replication.lag(0).0 == 0);
    let late = send(&mut producer, b"never acknowledged");
    assert_ne!(late.code, ResponseCode::SUCCESS.0, "{late:?}");
    let surplus_end = members[0].written();
    eventually("the third follows the new one", || members[2].role() == Role::Slave(Epoch(2)));
    eventually("the third is in sync", || keeper.in_sync() == [2, 3]);
    let mut producer = members[1].connect();
    for n in 30..40 {
        send(&mut producer, format!("{n}").as_bytes()).ok();
    }
    let wanted: Vec<String> = (0..40).map(|n| n.to_string()).collect();
    assert_eq!(bodies(&members[1]), wanted);
    assert!(bodies(&members[0]).len() <= 30, "what is not confirmed is not shown");
    members[0].line.cut(false);
    all_in_sync(&keeper, &members);
    eventually("the old one has the new log", || {
        members[0].role() == Role::Slave(Epoch(2)) && members[0].written() == members[1].written()
    });
    eventually("and shows it", || bodies(&members[0]) == wanted);
    assert_ne!(surplus_end, members[0].written());
    let epochs = |member: &Member| member.group().epochs.table();
    assert_eq!(epochs(&members[0]), epochs(&members[1]));
    assert_eq!(epochs(&members[0]).entries().len(), 2);
}

#[test]
fn a_handover_under_traffic_loses_nothing_and_refuses_hardly_anybody() {
    let keeper = Keeper::default();
    let members = group(&keeper, 2);
    becomes_master(&members[0]);
    let stop = AtomicBool::new(false);
    let acknowledged = std::thread::scope(|scope| {
        let producers: Vec<_> = (0..4)
            .map(|producer| {
                let (members, stop) = (&members, &stop);
                scope.spawn(move || produce_until(members, producer, stop))
            })
            .collect();
        // Also when this thread gives up.
        let _stop = StopOnDrop(&stop);
        let grown = |by: i64| {
            let target = members[0].written().max(members[1].written()) + by;
            eventually("messages come", || {
                members[0].written().max(members[1].written()) >= target
            });
        };
        grown(10_000);
        keeper.edit(|record| record.handover = Some(ReplicaId(2)));
        becomes_master(&members[1]);
        assert_eq!(keeper.record().epoch, Epoch(2));
        grown(10_000);
        // Only a member of the set is handed over to.
        all_in_sync(&keeper, &members);
        keeper.edit(|record| record.handover = Some(ReplicaId(1)));
        becomes_master(&members[0]);
        grown(10_000);
        stop.store(true, Ordering::Release);
        let mut all = Vec::new();
        for producer in producers {
            all.extend(producer.join().expect("a producer"));
        }
        all
    });
    let shown = bodies(&members[0]);
    let known: BTreeSet<&String> = shown.iter().collect();
    assert!(acknowledged.len() > 20, "{}", acknowledged.len());
    for body in &acknowledged {
        assert!(known.contains(body), "{body} was acknowledged and is not there");
    }
    eventually("the other shows the same", || bodies(&members[1]) == shown);
}

/// A producer that finds the group by an address that leads to the old master still: it is answered,
/// and from a moment later on made to connect anew.
#[test]
fn sends_that_come_to_the_old_master_are_answered_by_the_new_one() {
    let keeper = Keeper::default();
    let members = group(&keeper, 2);
    becomes_master(&members[0]);
    let mut peer = members[0].connect();
    send(&mut peer, b"before").ok();
    keeper.edit(|record| record.handover = Some(ReplicaId(2)));
    let mut wanted = vec!["before".to_owned()];
    let (mut closed, mut since_closed) = (0, 0);
    let begun = std::time::Instant::now();
    // A connection that is made too late is served for a while, and closed again.
    while closed < 3 || since_closed < 2 {
        assert!(begun.elapsed() < PATIENCE, "closed {closed} times, then {since_closed} sends");
        let body = format!("{}", wanted.len());
        let header = send_header("orders", "0");
        match peer.try_call(RequestCode::SEND_MESSAGE_V2, &header, body.as_bytes()) {
            // It was on its way into the log when the handover began: producers try again.
            Some(answer) if wanted.len() == 1 && answer.code != ResponseCode::SUCCESS.0 => {
                answer.refused(ResponseCode::SERVICE_NOT_AVAILABLE, "");
            }
            Some(answer) => {
                answer.ok();
                wanted.push(body);
                since_closed += usize::from(closed > 0);
            }
            None => {
                closed += 1;
                peer = members[0].connect();
            }
        }
    }
    assert!(members[1].is_master() && !members[0].is_master());
    let mut shown = bodies(&members[1]);
    // What was refused may have been stored all the same.
    shown.dedup();
    assert_eq!(shown.len(), wanted.len());
    assert!(shown == wanted, "in another order");
    eventually("the other shows the same", || bodies(&members[0]) == bodies(&members[1]));
}

/// The next master learns of it by its message alone, and the old one must not believe meanwhile that
/// the topic was deleted.
#[test]
fn a_topic_that_was_made_just_before_a_handover_stays() {
    const ROUNDS: usize = 6;
    let keeper = Keeper::default();
    let members = group(&keeper, 2);
    for round in 0..ROUNDS {
        let (master, other) = (&members[round % 2], (round + 1) % 2);
        becomes_master(master);
        all_in_sync(&keeper, &members);
        let topic = format!("round-{round}");
        let header = send_header(&topic, "0");
        let sent = master.connect().call(RequestCode::SEND_MESSAGE_V2, &header, b"it");
        assert_eq!(sent.code, ResponseCode::SUCCESS.0, "{sent:?}");
        keeper.edit(|record| record.handover = Some(ReplicaId(other as i64 + 1)));
    }
    becomes_master(&members[ROUNDS % 2]);
    for round in 0..ROUNDS {
        let topic = format!("round-{round}");
        for member in &members {
            eventually("it is shown", || bodies_of(member, &topic) == ["it"]);
        }
    }
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Sends to whoever is master until `stop`, as a client that looks for it anew after an error.
fn produce_until(members: &[Member], producer: usize, stop: &AtomicBool) -> Vec<String> {
    let mut acknowledged = Vec::new();
    let mut number = 0;
    while !stop.load(Ordering::Acquire) {
        let Some(master) = members.iter().find(|member| member.is_master()) else {
            std::thread::yield_now();
            continue;
        };
        let mut peer = master.connect();
        while !stop.load(Ordering::Acquire) {
            number += 1;
            let body = format!("{producer}-{number}");
            let header = send_header("orders", "0");
            match peer.try_call(RequestCode::SEND_MESSAGE_V2, &header, body.as_bytes()) {
                Some(answer) if answer.code == ResponseCode::SUCCESS.0 => acknowledged.push(body),
                _ => break,
            }
        }
    }
    acknowledged
}

#[test]
fn a_master_that_stops_hands_over_and_one_that_comes_back_follows() {
    let keeper = Keeper::default();
    let mut members = group(&keeper, 2);
    becomes_master(&members[0]);
    let mut producer = members[0].connect();
    for n in 0..10 {
        send(&mut producer, format!("{n}").as_bytes()).ok();
    }
    let Member { broker, .. } = members.remove(0);
    let dir = broker.stop();
    assert_eq!(keeper.record().master, Some(ReplicaId(2)), "it has named its successor itself");
    becomes_master(&members[0]);
    let back = start_in(dir, &keeper, 1, |_| ());
    members.insert(0, back);
    all_in_sync(&keeper, &members);
    send(&mut members[1].connect(), b"10").ok();
    eventually("it has all", || members[0].written() == members[1].written());
    assert_eq!(members[0].role(), Role::Slave(Epoch(2)));
    // The last one has nobody to hand over to, and gives the lease back.
    drop(members.remove(0));
    let dir = members.remove(0).broker.stop();
    assert_eq!(keeper.record().holder, None);
    assert_eq!(keeper.record().master, Some(ReplicaId(2)));
    drop(dir);
}

#[test]
fn a_keeper_that_is_gone_stops_nobody_whose_slaves_are_there() {
    let keeper = Keeper::default();
    let members = group(&keeper, 2);
    becomes_master(&members[0]);
    for member in &members {
        member.line.cut(true);
    }
    let mut producer = members[0].connect();
    // Beyond the time for which it relies on its last renewal.
    let begun = std::time::Instant::now();
    let mut sent = 0;
    while begun.elapsed() < TIMING.renew_deadline + TIMING.retry * 5 {
        send(&mut producer, b"x").ok();
        sent += 1;
    }
    assert_eq!(bodies(&members[0]).len(), sent);
}

/// A slave made of a socket.
struct FakeSlave {
    socket: TcpStream,
    input: Vec<u8>,
    has: i64,
}

/// What a master sent, owned.
#[derive(Debug, PartialEq)]
enum Sent {
    Hello(Epoch, i64),
    /// Where it begins, how long it is, what is confirmed.
    Piece(i64, usize, i64),
    Ping(u64),
    Refused(String),
    Closed,
}

impl FakeSlave {
    fn connect(master: &Member) -> FakeSlave {
        let socket = TcpStream::connect(&master.state().identity.ha_addr).expect("connect");
        socket.set_read_timeout(Some(PATIENCE)).expect("timeout");
        FakeSlave { socket, input: Vec::new(), has: 0 }
    }

    fn with_handshake(master: &Member, replica: i64, group: u16) -> FakeSlave {
        let mut slave = FakeSlave::connect(master);
        let kind = SlaveKind::Promises { group };
        slave.write(SlaveFrame::Handshake(Handshake {
            is_sync_from_last_file: false,
            kind,
            replica,
        }));
        slave
    }

    fn write(&mut self, frame: SlaveFrame) {
        let mut out = Vec::new();
        frame.encode(&mut out);
        self.socket.write_all(&out).expect("write");
    }

    fn read(&mut self) -> Sent {
        loop {
            let decoded =
                MasterFrame::decode(&self.input).expect("a frame").map(|(frame, bytes)| {
                    let sent = match frame {
                        MasterFrame::Hello { epoch, log_end, .. } => Sent::Hello(epoch, log_end),
                        MasterFrame::Piece(header, piece) => {
                            Sent::Piece(header.physical_offset, piece.len(), header.confirmed)
                        }
                        MasterFrame::Ping(number) => Sent::Ping(number),
                        MasterFrame::Refused(reason) => Sent::Refused(reason.to_owned()),
                    };
                    (sent, bytes)
                });
            if let Some((sent, bytes)) = decoded {
                self.input.drain(..bytes);
                return sent;
            }
            let mut chunk = [0; 4096];
            match self.socket.read(&mut chunk) {
                Ok(0) | Err(_) => return Sent::Closed,
                Ok(read) => self.input.extend_from_slice(&chunk[..read]),
            }
        }
    }

    /// Takes what comes, and answers it, until it has everything in front of `end`.
    fn copy_to(&mut self, end: i64) {
        while self.has < end {
            self.take_one();
        }
    }

    fn take_one(&mut self) {
        match self.read() {
            Sent::Piece(offset, bytes, _) => {
                self.has = self.has.max(offset + bytes as i64);
                self.write(SlaveFrame::Has(self.has));
            }
            Sent::Ping(number) => self.write(SlaveFrame::Pong(number)),
            other => panic!("{other:?}"),
        }
    }

    /// The reason for which it is turned away.
    fn refused(mut self) -> String {
        loop {
            match self.read() {
                Sent::Refused(reason) => {
                    assert_eq!(self.read(), Sent::Closed);
                    return reason;
                }
                Sent::Closed => panic!("closed without a reason"),
                _ => {}
            }
        }
    }
}

fn mark() -> u16 {
    group_mark("DefaultCluster", "broker-a")
}

/// A consumer gives a message back; see whether its copy counts as stored.
fn send_back(peer: &mut Peer, offset: &str) -> common::Answer {
    let header = [
        ("offset", offset),
        ("group", "readers"),
        ("delayLevel", "0"),
        ("originMsgId", "x"),
        ("originTopic", "orders"),
        ("unitMode", "false"),
    ];
    peer.call(RequestCode::CONSUMER_SEND_MSG_BACK, &header, b"")
}

#[test]
fn consumers_never_see_what_a_member_of_the_set_does_not_have() {
    let keeper = Keeper::default();
    keeper.appoint(1);
    let master = start_with(&keeper, 1, |config| config.slave_timeout = 300);
    becomes_master(&master);
    let mut producer = master.connect();
    send(&mut producer, b"alone").ok();
    let mut slave = FakeSlave::with_handshake(&master, 2, mark());
    assert_eq!(slave.read(), Sent::Hello(Epoch(1), master.written()));
    slave.write(SlaveFrame::Has(0));
    while keeper.in_sync() != [1, 2] {
        slave.take_one();
    }
    // It stays silent now, and so the message is neither answered nor shown.
    let late = send(&mut producer, b"waits");
    assert_eq!(late.code, ResponseCode::FLUSH_SLAVE_TIMEOUT.0, "{late:?}");
    let back = send_back(&mut producer, "0");
    back.refused(ResponseCode::FLUSH_SLAVE_TIMEOUT, "in-sync set");
    assert_eq!(bodies(&master), ["alone"]);
    let written = master.written();
    slave.copy_to(written);
    eventually("it is shown", || bodies(&master) == ["alone", "waits"]);
    // One that does not keep up leaves the set, by the record.
    assert_eq!(keeper.in_sync(), [1, 2]);
    send(&mut producer, b"later");
    eventually("the silent one has left the set", || keeper.in_sync() == [1]);
    eventually("and is not waited for", || bodies(&master).len() == 3);
    send_back(&mut producer, "0").ok();
    send(&mut producer, b"alone again").ok();
}

#[test]
fn too_few_in_the_set_take_nothing_in() {
    let keeper = Keeper::default();
    keeper.appoint(1);
    let master = start_with(&keeper, 1, |config| config.min_in_sync_replicas = 2);
    eventually("it reigns", || matches!(master.role(), Role::Master(_)));
    eventually("it is fenced", || master.state().role.takes_messages().is_err());
    let before = master.written();
    let refused = send(&mut master.connect(), b"x");
    refused.refused(ResponseCode::SYSTEM_ERROR, "in-sync");
    assert_eq!(master.written(), before, "nothing was appended");
    let _slave = start_with(&keeper, 2, |config| config.min_in_sync_replicas = 2);
    eventually("two are in sync", || keeper.in_sync() == [1, 2]);
    eventually("it takes messages", || master.is_master());
    send(&mut master.connect(), b"x").ok();
}

#[test]
fn whoever_does_not_belong_is_turned_away_by_name_and_the_group_goes_on() {
    let keeper = Keeper::default();
    let members = group(&keeper, 2);
    becomes_master(&members[0]);
    let master = &members[0];
    send(&mut master.connect(), b"first").ok();
    for bytes in [&[0xFF; 64][..], b"GET / HTTP/1.1\r\n\r\n", &[0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0]]
    {
        let mut slave = FakeSlave::connect(master);
        slave.socket.write_all(bytes).expect("write");
        assert_eq!(slave.read(), Sent::Closed);
    }
    let own = FakeSlave::with_handshake(master, 1, mark()).refused();
    assert!(own.contains("replica 1 is this broker itself"), "{own}");
    let foreign = FakeSlave::with_handshake(master, 3, group_mark("Other", "broker-a")).refused();
    assert!(foreign.contains("another cluster or broker name"), "{foreign}");
    let mut long = FakeSlave::with_handshake(master, 3, mark());
    let Sent::Hello(_, log_end) = long.read() else { panic!("no handshake") };
    long.write(SlaveFrame::Has(log_end + 1));
    let long = long.refused();
    assert!(long.contains(&format!("says it has {}", log_end + 1)), "{long}");
    // One that answers more than it was sent.
    let mut liar = FakeSlave::with_handshake(master, 3, mark());
    assert!(matches!(liar.read(), Sent::Hello(..)));
    liar.write(SlaveFrame::Has(0));
    liar.write(SlaveFrame::Has(i64::MAX));
    let liar = liar.refused();
    assert!(liar.contains("says it has 9223372036854775807"), "{liar}");
    // A slave is no master.
    let no_master = FakeSlave::with_handshake(&members[1], 3, mark()).refused();
    assert!(no_master.contains("not the master"), "{no_master}");
    send(&mut master.connect(), b"second").ok();
    assert_eq!(keeper.in_sync(), [1, 2]);
    eventually("the slave has all", || members[1].written() == master.written());
}

#[test]
fn a_broker_that_never_knew_the_group_brings_nothing_into_it() {
    let keeper = Keeper::default();
    let members = group(&keeper, 2);
    becomes_master(&members[0]);
    send(&mut members[0].connect(), b"ours").ok();
    // A log of another history.
    let stranger = common::start();
    stranger.connect().produce("orders", 0, b"theirs");
    let log_end = stranger.state().store.written().0;
    let stranger = start_in(stranger.stop(), &keeper, 3, |_| ());
    send(&mut members[0].connect(), b"more").ok();
    // When it has heard the master a second time it has been turned away once.
    let heard = || {
        let status = stranger.connect().call(RequestCode::GET_BROKER_HA_STATUS, &[], b"").ok();
        let status: serde_json::Value = status.json();
        status["haClientRuntimeInfo"]["lastReadTimestamp"].as_i64().expect("a time")
    };
    eventually("it has heard the master", || heard() > 0);
    let first = heard();
    eventually("it has heard the master again", || heard() > first);
    assert!(!matches!(stranger.role(), Role::Slave(_)), "{:?}", stranger.role());
    assert_eq!(stranger.written(), log_end, "it keeps what it has");
    assert_eq!(keeper.in_sync(), [1, 2]);
    assert_eq!(bodies(&members[0]), ["ours", "more"]);
}

#[test]
fn synchronous_flush_counts_what_is_on_disk() {
    let keeper = Keeper::default();
    keeper.appoint(1);
    let sync = |config: &mut BrokerConfig| config.flush_disk_type = FlushDiskType::SyncFlush;
    let members = [start_with(&keeper, 1, sync), start_with(&keeper, 2, sync)];
    all_in_sync(&keeper, &members);
    becomes_master(&members[0]);
    let mut producer = members[0].connect();
    for n in 0..5 {
        send(&mut producer, format!("{n}").as_bytes()).ok();
        let durable = |member: &Member| member.state().store.durable().0;
        assert!(durable(&members[1]) >= members[0].written(), "answered means on both disks");
        assert!(durable(&members[0]) >= members[0].written());
    }
    assert_eq!(bodies(&members[0]).len(), 5);
}

/// A pair that flushes synchronously; syncs of the second one's log can be made to fail.
fn pair_with_a_faulty_disk(keeper: &Keeper) -> (Vec<Member>, faulty::Faulty) {
    keeper.appoint(1);
    let sync = |config: &mut BrokerConfig| config.flush_disk_type = FlushDiskType::SyncFlush;
    let faults = faulty::Faulty::default();
    faults.concern("/commitlog/");
    let environment = Environment { file_system: Arc::new(faults.clone()), ..Default::default() };
    let dir = Arc::new(tempfile::tempdir().expect("a directory"));
    let members = vec![start_with(keeper, 1, sync), start_on(environment, dir, keeper, 2, sync)];
    all_in_sync(keeper, &members);
    becomes_master(&members[0]);
    (members, faults)
}

#[test]
fn a_slave_whose_disk_fails_leaves_the_set_and_can_still_be_stopped() {
    let keeper = Keeper::default();
    let (mut members, faults) = pair_with_a_faulty_disk(&keeper);
    let mut producer = members[0].connect();
    send(&mut producer, b"on both").ok();
    faults.0.sync.store(true, Ordering::SeqCst);
    let late = send(&mut producer, b"on one");
    assert!([0, 12].contains(&late.code), "{late:?}");
    eventually("it has left the set", || keeper.in_sync() == [1]);
    send(&mut producer, b"on one").ok();
    assert!(members[1].state().store.failure().is_some());
    let begun = std::time::Instant::now();
    members.remove(1).broker.stop();
    assert!(begun.elapsed() < PATIENCE, "stopped after {:?}", begun.elapsed());
}

#[test]
fn whoever_cannot_write_does_not_take_the_lease() {
    let keeper = Keeper::default();
    let (members, faults) = pair_with_a_faulty_disk(&keeper);
    let mut producer = members[0].connect();
    send(&mut producer, b"on both").ok();
    // It fails while nobody may change the set.
    members[0].line.cut(true);
    faults.0.sync.store(true, Ordering::SeqCst);
    send(&mut producer, b"on one");
    eventually("it has failed", || members[1].state().store.failure().is_some());
    keeper.appoint(2);
    eventually("it is told", || members[1].role() == Role::TakingOver(Epoch(2)));
    members[0].line.cut(false);
    eventually("the other one steps down", || !members[0].is_master());
    assert_eq!(keeper.record().holder, None);
    keeper.appoint(1);
    becomes_master(&members[0]);
    let epochs = members[0].group().epochs.table();
    let epochs: Vec<i32> = epochs.entries().iter().map(|entry| entry.epoch.0).collect();
    assert_eq!(epochs, [1, 3], "nobody reigned in between");
}

#[test]
fn an_asynchronous_master_does_not_wait_and_an_empty_slave_gets_the_whole_log() {
    let keeper = Keeper::default();
    keeper.appoint(1);
    let is_async = |config: &mut BrokerConfig| config.broker_role = BrokerRole::AsyncMaster;
    let master = start_with(&keeper, 1, is_async);
    becomes_master(&master);
    let mut producer = master.connect();
    // More than a file of the log.
    for _ in 0..700 {
        send(&mut producer, &[7; 2_000]).ok();
    }
    let slave = start_with(&keeper, 2, is_async);
    eventually("it has everything", || slave.written() == master.written());
    assert_eq!(slave.state().store.min_physical_offset(), 0);
    let last_file = start_with(&keeper, 3, |config| {
        is_async(config);
        config.sync_from_last_file = true;
    });
    eventually("it has the newest file", || last_file.written() == master.written());
    assert_eq!(last_file.state().store.min_physical_offset(), 1 << 20);
}

#[test]
fn a_damaged_epoch_file_stops_the_start_by_name() {
    let keeper = Keeper::default();
    let dir = Arc::new(tempfile::tempdir().expect("a directory"));
    let store = dir.path().join("store");
    std::fs::create_dir_all(&store).expect("a directory");
    for name in ["epochFileCheckpoint", "epochFileCheckpoint.bak"] {
        std::fs::write(store.join(name), "nonsense").expect("a file");
    }
    let mut config = common::config(&dir);
    member_config(&mut config, 1, 1);
    let coordination = Coordination { coordinator: Arc::new(Line::to(&keeper)), timing: TIMING };
    let error = Broker::start_coordinated(config, Default::default(), coordination)
        .err()
        .expect("it does not start")
        .to_string();
    assert!(error.contains("epochFileCheckpoint is damaged"), "{error}");
}
