//! The keeper of the record: it replaces a record if it is the one that was expected. Requests and
//! answers may be lost or late; who waits gives up after a while, and the request may land after that.

use rocketmq_replication::{Attempt, GroupRecord, Input, Reason, Versioned};

use super::world::{Event, World};

const TIME_OUT_MS: u64 = 3000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    Node { node: usize, inc: u64 },
    Operator { operator: usize },
}

#[derive(Clone, Debug)]
pub enum Request {
    Read,
    Write { attempt: Attempt, expected: String, record: GroupRecord },
    Decide { expected: Option<String>, record: GroupRecord, reason: Reason },
}

#[derive(Clone, Debug)]
pub enum Answer {
    Read(Option<Versioned>),
    Written(String),
    Conflict,
}

pub struct Keeper {
    pub record: Option<Versioned>,
    versions: u64,
    /// Until when it cannot be reached, by node and by operator.
    pub lost_to_node: Vec<u64>,
    pub lost_to_operator: Vec<u64>,
    /// Until when its answers do not reach a node, though requests reach it.
    pub unheard_until: Vec<u64>,
    /// From when until when it takes no writes of replicas, whatever they expect; how many each has
    /// tried.
    refusing: (u64, u64),
    refused: Vec<u64>,
}

impl Keeper {
    pub fn new(nodes: usize, operators: usize) -> Keeper {
        Keeper {
            record: None,
            versions: 0,
            lost_to_node: vec![0; nodes],
            lost_to_operator: vec![0; operators],
            unheard_until: vec![0; nodes],
            refusing: (0, 0),
            refused: vec![0; nodes],
        }
    }

    /// Takes no writes of replicas between these times.
    pub fn refuse(&mut self, from: u64, until: u64) {
        self.refusing = (from, until);
        self.refused.fill(0);
    }

    pub fn lost_until(&self, caller: Caller) -> u64 {
        match caller {
            Caller::Node { node, .. } => self.lost_to_node[node],
            Caller::Operator { operator } => self.lost_to_operator[operator],
        }
    }

    /// Puts a record there whatever there was.
    pub fn put(&mut self, record: GroupRecord) -> String {
        self.versions += 1;
        let version = self.versions.to_string();
        self.record = Some(Versioned { version: version.clone(), record });
        version
    }
}

impl World {
    /// A process asks for something; one thing after the other.
    pub fn call(&mut self, node: usize, request: Request) {
        let Some(process) = self.process(node) else { return };
        process.calls.push_back(request);
        if process.call.is_none() {
            self.next_call(node);
        }
    }

    fn next_call(&mut self, node: usize) {
        let number = self.number();
        let Some(caller) = self.caller(node) else { return };
        let Some(process) = self.process(node) else { return };
        let Some(request) = process.calls.front().cloned() else { return };
        process.call = Some(number);
        self.ask(caller, number, request);
    }

    /// Sends a request on its way.
    pub fn ask(&mut self, caller: Caller, number: u64, request: Request) {
        let ms = self.way();
        self.after(ms, Event::Request { caller, number, request });
        self.after(TIME_OUT_MS, Event::TimeOut { caller, number });
    }

    fn way(&mut self) -> u64 {
        if self.setup.slow_keeper && !self.is_calm && self.random.percent(8) {
            self.random.between(500, 30_000)
        } else {
            self.random.between(1, 30)
        }
    }

    /// A request arrives at the keeper.
    pub fn request(&mut self, caller: Caller, number: u64, request: Request) {
        let lost_until = self.keeper.lost_until(caller);
        if lost_until > self.now {
            // Lost, or stuck somewhere on the way.
            if self.random.percent(40) {
                let late = self.random.between(0, 2000);
                self.at(lost_until + late, Event::Request { caller, number, request });
            }
            return;
        }
        let current = self.keeper.record.as_ref().map(|known| known.version.clone());
        let answer = match request {
            Request::Read => Answer::Read(self.keeper.record.clone()),
            Request::Write { .. } if self.is_refused(caller) => Answer::Conflict,
            Request::Write { expected, record, .. } => {
                if current == Some(expected) {
                    self.lands(record, caller, None)
                } else {
                    Answer::Conflict
                }
            }
            Request::Decide { expected, record, reason } => {
                if current == expected {
                    self.lands(record, caller, Some(reason))
                } else {
                    Answer::Conflict
                }
            }
        };
        let ms = self.way();
        let unheard_until = match caller {
            Caller::Node { node, .. } => self.keeper.unheard_until[node],
            Caller::Operator { .. } => 0,
        };
        let is_lost = self.keeper.lost_until(caller).max(unheard_until) > self.now + ms;
        if !is_lost {
            self.after(ms, Event::Answer { caller, number, answer });
        }
    }

    /// Whether a write is refused without a reason; whoever is refused must not try without pause.
    fn is_refused(&mut self, caller: Caller) -> bool {
        let (from, until) = self.keeper.refusing;
        let Caller::Node { node, .. } = caller else { return false };
        if self.now >= until {
            return false;
        }
        self.keeper.refused[node] += 1;
        let (tried, ms) = (self.keeper.refused[node], self.now - from);
        // A process that starts anew knows nothing of it.
        if tried > 10 + ms / 1000 {
            self.fail(format!("replica {} has written {tried} times in {ms} ms", node + 1));
        }
        true
    }

    fn lands(&mut self, record: GroupRecord, caller: Caller, reason: Option<Reason>) -> Answer {
        self.note(|| format!("{caller:?} writes {reason:?} {record:?}"));
        self.check_write(&record, caller, reason);
        Answer::Written(self.keeper.put(record))
    }

    /// An answer comes back, or the time is over.
    pub fn answer(&mut self, caller: Caller, number: u64, answer: Option<Answer>) {
        let Caller::Node { node, inc } = caller else {
            let Caller::Operator { operator } = caller else { return };
            return self.operator_hears(operator, number, answer);
        };
        if !self.is_current(node, inc) {
            return;
        }
        let Some(process) = self.process(node) else { return };
        if process.call != Some(number) {
            return;
        }
        process.call = None;
        let Some(request) = process.calls.pop_front() else { return };
        let input = match (request, answer) {
            (Request::Read, Some(Answer::Read(record))) => Some(Input::Record(record)),
            (Request::Write { attempt, .. }, Some(Answer::Written(version))) => {
                Some(Input::Written(attempt, version))
            }
            (Request::Write { attempt, .. }, Some(Answer::Conflict)) => {
                Some(Input::Conflict(attempt))
            }
            (Request::Write { attempt, .. }, _) => Some(Input::Unknown(attempt)),
            (_, _) => None,
        };
        self.next_call(node);
        if let Some(input) = input {
            self.tell(node, input);
        }
    }
}
