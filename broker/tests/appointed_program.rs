//! The `broker` program in a group whose master is appointed by a Lease: a master that is killed, and
//! one that is asked to stop.

mod common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;

use common::{Peer, eventually, pull_header, send_header};
use parking_lot::{Condvar, Mutex};
use rocketmq_protocol::code::{RequestCode, ResponseCode};
use rocketmq_replication::{Epoch, GroupRecord, ReplicaId};
use serde_json::{Value, json};

/// An API server that knows one Lease.
#[derive(Clone)]
struct ApiServer(Arc<(Mutex<Stored>, Condvar)>);

#[derive(Default)]
struct Stored {
    lease: Value,
    version: u64,
}

impl ApiServer {
    /// Starts one; it ends with the process.
    fn start() -> (ApiServer, SocketAddr) {
        let server = ApiServer(Arc::default());
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let addr = listener.local_addr().expect("an address");
        let accepting = server.clone();
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let server = accepting.clone();
                std::thread::spawn(move || server.serve(socket));
            }
        });
        (server, addr)
    }

    fn put(&self, mut lease: Value) -> Value {
        let (stored, changed) = &*self.0;
        let mut stored = stored.lock();
        stored.version += 1;
        lease["apiVersion"] = json!("coordination.k8s.io/v1");
        lease["kind"] = json!("Lease");
        lease["metadata"]["name"] = json!("broker-a");
        lease["metadata"]["resourceVersion"] = json!(stored.version.to_string());
        stored.lease = lease.clone();
        changed.notify_all();
        lease
    }

    fn record(&self) -> GroupRecord {
        let lease = self.0.0.lock().lease.clone();
        let annotations: BTreeMap<String, String> =
            serde_json::from_value(lease["metadata"]["annotations"].clone()).unwrap_or_default();
        GroupRecord::from_annotations(&annotations).expect("a record")
    }

    /// Changes the record as whoever supervises the group does: when nobody writes meanwhile.
    fn edit(&self, edit: impl Fn(&mut GroupRecord)) {
        loop {
            let before = self.0.0.lock().lease.clone();
            let mut record = self.record();
            edit(&mut record);
            let mut lease = before.clone();
            lease["metadata"]["annotations"] = json!(record.to_annotations());
            if self.0.0.lock().lease == before {
                self.put(lease);
                return;
            }
        }
    }

    fn serve(&self, socket: TcpStream) {
        let mut reader = BufReader::new(socket);
        while let Some((line, body)) = request(&mut reader) {
            let mut words = line.split(' ');
            let (method, target) =
                (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let (path, query) = target.split_once('?').unwrap_or((target, ""));
            let lease = self.0.0.lock().lease.clone();
            let version = lease["metadata"]["resourceVersion"].clone();
            if method == "PUT" {
                let next: Value = serde_json::from_slice(&body).expect("JSON");
                let is_expected = next["metadata"]["resourceVersion"] == version;
                let answer = match is_expected {
                    true => (200, self.put(next)),
                    false => (409, status(409, "Conflict")),
                };
                respond(reader.get_mut(), answer);
            } else if path.ends_with("/leases/broker-a") {
                respond(reader.get_mut(), (200, lease));
            } else if query.contains("watch=true") {
                return self.watch(reader.get_mut());
            } else {
                let list = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "LeaseList",
                    "metadata": {"resourceVersion": version}, "items": [lease]});
                respond(reader.get_mut(), (200, list));
            }
        }
    }

    /// Tells changes until the client is gone.
    fn watch(&self, socket: &mut TcpStream) {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n";
        if socket.write_all(head.as_bytes()).is_err() {
            return;
        }
        let (stored, changed) = &*self.0;
        let mut known = stored.lock().version;
        loop {
            let lease = {
                let mut stored = stored.lock();
                while stored.version == known {
                    changed.wait(&mut stored);
                }
                known = stored.version;
                stored.lease.clone()
            };
            let event = json!({"type": "MODIFIED", "object": lease});
            if socket.write_all(format!("{event}\n").as_bytes()).is_err() {
                return;
            }
        }
    }
}

fn status(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": reason, "reason": reason, "code": code})
}

/// The first line of an HTTP request and its body; none at the end of the connection.
fn request(reader: &mut BufReader<TcpStream>) -> Option<(String, Vec<u8>)> {
    let mut first = String::new();
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        if first.is_empty() {
            line.clone_into(&mut first);
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().expect("a length");
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((first, body))
}

fn respond(socket: &mut TcpStream, (code, body): (u16, Value)) {
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {code} Answer\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    // A client that has been killed reads nothing.
    let _ = socket.write_all((head + &body).as_bytes());
}

/// A broker program; killed when it goes out of scope.
struct Program {
    child: Child,
    addr: SocketAddr,
    _stdout: BufReader<ChildStdout>,
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Program {
    /// Starts replica `ordinal + 1`, as the pod of that ordinal.
    fn start(dir: &Path, kubeconfig: &Path, ordinal: usize) -> Program {
        let config = dir.join(format!("broker-{ordinal}.conf"));
        let text = format!(
            "brokerName=broker-a\nbrokerIP1=127.0.0.1\nbindAddress=127.0.0.1\nlistenPort=0\n\
             metricsExporterType=DISABLE\nstorePathRootDir={}\nmappedFileSizeCommitLog=1048576\n\
             coordinator=kubernetes\nbrokerRole=SYNC_MASTER\nreplicasPerGroup=2\n\
             leaseDurationSeconds=4\nleaseRenewDeadlineSeconds=3\nleaseRetryPeriodSeconds=1\n\
             haSendHeartbeatInterval=100\n",
            dir.join(format!("store-{ordinal}")).display()
        );
        std::fs::write(&config, text).expect("a configuration");
        let mut child = Command::new(env!("CARGO_BIN_EXE_broker"))
            .arg("-c")
            .arg(&config)
            .env("KUBECONFIG", kubeconfig)
            .env("POD_NAME", format!("rmq-broker-0-{ordinal}"))
            .env("POD_NAMESPACE", "ns")
            .env("POD_UID", format!("uid-{ordinal}"))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("its output"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("a line");
        let addr = line.trim().rsplit_once('=').expect("an address").1;
        let addr = addr.parse().expect("an address");
        Program { child, addr, _stdout: stdout }
    }

    fn send(&self, body: &str) -> Option<common::Answer> {
        let header = send_header("orders", "0");
        let mut peer = Peer::connect(self.addr);
        peer.try_call(RequestCode::SEND_MESSAGE_V2, &header, body.as_bytes())
    }

    fn is_acknowledged(&self, body: &str) -> bool {
        self.send(body).is_some_and(|answer| answer.code == ResponseCode::SUCCESS.0)
    }

    /// How many messages a consumer finds.
    fn count(&self) -> i64 {
        let mut peer = Peer::connect(self.addr);
        let mut next = 0_i64;
        loop {
            let from = next.to_string();
            let header = pull_header("readers", "orders", &from);
            let answer = peer.call(RequestCode::PULL_MESSAGE, &header, b"");
            if answer.code != ResponseCode::SUCCESS.0 {
                return next;
            }
            next = answer.field("nextBeginOffset").parse().expect("an offset");
        }
    }

    fn terminate(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        let pid = pid.expect("a process");
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("a signal");
        assert!(self.child.wait().expect("it ends").success());
    }
}

#[test]
fn a_killed_master_is_replaced_and_one_that_stops_names_its_successor() {
    let (server, addr) = ApiServer::start();
    let first = GroupRecord {
        epoch: Epoch(1),
        master: Some(ReplicaId(1)),
        in_sync: [ReplicaId(1)].into(),
        ..GroupRecord::default()
    };
    server.put(json!({"metadata": {"annotations": first.to_annotations(), "namespace": "ns"}}));
    let dir = tempfile::tempdir().expect("a directory");
    let kubeconfig = dir.path().join("kubeconfig");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: test\n\
         clusters: [{{name: test, cluster: {{server: \"http://{addr}\"}}}}]\n\
         users: [{{name: test, user: {{}}}}]\n\
         contexts: [{{name: test, context: {{cluster: test, user: test}}}}]\n"
    );
    std::fs::write(&kubeconfig, text).expect("a kubeconfig");
    let start = |ordinal| Program::start(dir.path(), &kubeconfig, ordinal);

    let (one, mut two) = (start(0), start(1));
    let both = [ReplicaId(1), ReplicaId(2)].into();
    eventually("both are in sync", || server.record().in_sync == both);
    let mut acknowledged = 0;
    for n in 0..20 {
        assert!(one.is_acknowledged(&n.to_string()));
        acknowledged += 1;
    }
    let holder = server.record().holder.expect("a holder").incarnation;
    assert!(holder.starts_with("uid-0:"), "{holder}");

    // Killed: whoever supervises the group has seen it end.
    drop(one);
    server.edit(|record| {
        record.epoch = Epoch(2);
        record.master = Some(ReplicaId(2));
        record.holder = None;
        record.vacated = true;
    });
    eventually("the other takes messages", || two.is_acknowledged("after the kill"));
    acknowledged += 1;
    assert!(two.count() >= acknowledged, "{} of {acknowledged}", two.count());

    let one = start(0);
    eventually("it is back in sync", || server.record().in_sync == both);
    assert!(two.is_acknowledged("with both"));
    acknowledged += 1;

    two.terminate();
    let record = server.record();
    assert_eq!((record.epoch, record.master), (Epoch(3), Some(ReplicaId(1))));
    eventually("the first takes messages", || one.is_acknowledged("after the stop"));
    acknowledged += 1;
    assert!(one.count() >= acknowledged, "{} of {acknowledged}", one.count());
}
