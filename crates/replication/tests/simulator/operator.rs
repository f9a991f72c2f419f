//! An operator: it reads the record, looks at the replicas, decides, writes. Each step takes time, and
//! it may stop in between.

use rocketmq_replication::{Decision, Epoch, Policy, Reason, Report, Seen, Supervisor, Versioned};

use super::keeper::{Answer, Caller, Request};
use super::world::{Clock, Event, Node, Setup, World};
use rocketmq_simulation::Random;

pub struct Operator {
    clock: Clock,
    supervisor: Supervisor,
    policy: Policy,
    pub paused_until: u64,
    /// Replicas that it cannot reach.
    pub lost_until: Vec<u64>,
    call: Option<u64>,
    /// What it read and saw.
    read: Option<Versioned>,
    seen: Vec<Seen>,
    pub last: Option<Decision>,
}

impl Operator {
    pub fn new(random: &mut Random, setup: &Setup) -> Operator {
        let policy = Policy {
            replicas: setup.replicas,
            lease_ms: setup.lease_ms,
            patience_ms: 3000,
            allow_unclean: setup.allow_unclean,
            known_epoch: Epoch(0),
        };
        Operator {
            clock: Clock::new(random),
            supervisor: Supervisor::new(policy.clone()),
            policy,
            paused_until: 0,
            lost_until: vec![0; setup.replicas],
            call: None,
            read: None,
            seen: Vec::new(),
            last: None,
        }
    }

    /// It starts anew and remembers nothing.
    pub fn restart(&mut self) {
        self.supervisor = Supervisor::new(self.policy.clone());
        self.call = None;
    }
}

impl World {
    /// A round begins with a read.
    pub fn operate(&mut self, operator: usize) {
        let number = self.number();
        self.operators[operator].call = Some(number);
        self.ask(Caller::Operator { operator }, number, Request::Read);
    }

    pub fn operator_hears(&mut self, operator: usize, number: u64, answer: Option<Answer>) {
        if self.operators[operator].call != Some(number) {
            return;
        }
        match answer {
            Some(Answer::Read(record)) => {
                self.operators[operator].read = record;
                self.operators[operator].seen = self.look(operator);
                let ms = if self.random.percent(5) { self.random.between(100, 4000) } else { 5 };
                self.after(ms, Event::Decide { operator, number });
            }
            _ => self.next_round(operator),
        }
    }

    fn next_round(&mut self, operator: usize) {
        self.operators[operator].call = None;
        self.after_between(200, 1500, Event::Operate { operator });
    }

    /// What it sees of the replicas.
    fn look(&mut self, operator: usize) -> Vec<Seen> {
        let held = self.operators[operator].read.as_ref();
        let holder = held.and_then(|read| read.record.holder.as_ref());
        let holder = holder.map(|holder| holder.incarnation.clone());
        let mut seen = Vec::new();
        for index in 0..self.nodes.len() {
            let node = &self.nodes[index];
            let is_reached = self.operators[operator].lost_until[index] <= self.now;
            let process = node.process.as_ref();
            let runs = process.is_some_and(|process| Some(&process.incarnation) == holder.as_ref());
            let is_its = holder.as_ref().is_some_and(|holder| {
                holder.split_once(':').is_some_and(|(id, _)| id == Node::id(index).to_string())
            });
            let report = process.filter(|_| is_reached && node.paused_until <= self.now);
            let report = report.map(|process| Report {
                incarnation: process.incarnation.clone(),
                last_epoch: process.replica.epochs().last().map_or(Epoch(0), |last| last.epoch),
                log_end: i64::try_from(node.disk.log.len()).unwrap(),
            });
            let has_ended = is_its && !runs && is_reached && self.random.percent(70);
            seen.push(Seen { id: Node::id(index), is_ready: report.is_some(), report, has_ended });
        }
        seen
    }

    pub fn decide(&mut self, operator: usize, number: u64) {
        let now = self.now;
        let it = &mut self.operators[operator];
        if it.call != Some(number) {
            return;
        }
        let local = it.clock.shows(now);
        let decision = it.supervisor.decide(local, it.read.as_ref(), &it.seen);
        if it.last.as_ref() != Some(&decision) {
            it.last = Some(decision.clone());
            let line = format!("operator {operator}: {decision:?}");
            self.note(|| line);
        }
        if let Decision::Write { record, reason } = decision {
            let read = &self.operators[operator].read;
            let expected = read.as_ref().map(|read| read.version.clone());
            let number = self.number();
            self.operators[operator].call = Some(number);
            let request = Request::Decide { expected, record, reason };
            self.ask(Caller::Operator { operator }, number, request);
        } else {
            self.next_round(operator);
        }
    }

    /// Whether the operators have given up, and for what.
    pub fn is_blocked(&self) -> bool {
        self.operators.iter().all(|operator| {
            matches!(
                operator.last,
                Some(Decision::Blocked(Reason::NoSafeCandidate | Reason::MemberSilent(_)))
            )
        })
    }
}
