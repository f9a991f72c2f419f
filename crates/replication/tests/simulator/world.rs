//! The group, its time, and what happens next.

use std::collections::BTreeMap;

use rocketmq_replication::{EpochTable, Input, Millis, ReplicaId};

use super::Done;
use super::checks::Truth;
use super::keeper::{Answer, Caller, Keeper, Request};
use super::network::Link;
use super::operator::Operator;
use super::process::Process;
use rocketmq_simulation::Random;

/// How the group is set up, and what may happen to it.
#[derive(Clone, Debug)]
pub struct Setup {
    pub replicas: usize,
    pub operators: usize,
    pub sync_flush: bool,
    pub waits_for_copies: bool,
    pub min_in_sync: usize,
    pub allow_unclean: bool,
    /// Requests to the keeper may arrive very late.
    pub slow_keeper: bool,
    /// One in so many steps of a process is interrupted; 0 for never.
    pub interruptions: u64,
    /// How long things go wrong.
    pub trouble_ms: u64,
    pub lease_ms: u64,
    /// Most records in a frame.
    pub frame_max: usize,
}

/// One message in a log. Offsets count messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    pub id: u64,
    pub epoch: i32,
}

#[derive(Debug, Default)]
pub struct Disk {
    pub log: Vec<Record>,
    /// What is in front of this survives a loss of power.
    pub durable: usize,
    pub epochs: EpochTable,
    /// Changes with each cut: what was asked for before it is void.
    pub cuts: u64,
    pub frozen_until: u64,
    /// When it will have done what it was asked for.
    pub busy_until: u64,
}

/// The clock of a machine: a rate in thousandths, and what it shows at the beginning.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    pub base: u64,
    pub rate: u64,
}

impl Clock {
    pub fn new(random: &mut Random) -> Clock {
        Clock { base: random.below(1_000_000), rate: random.between(950, 1050) }
    }

    pub fn shows(self, now: u64) -> Millis {
        Millis(self.base + now * self.rate / 1000)
    }

    /// When it shows this.
    pub fn when(self, local: Millis) -> u64 {
        (local.0.saturating_sub(self.base) * 1000).div_ceil(self.rate)
    }
}

pub struct Node {
    pub clock: Clock,
    pub disk: Disk,
    pub process: Option<Process>,
    pub paused_until: u64,
}

impl Node {
    pub fn id(index: usize) -> ReplicaId {
        ReplicaId(i64::try_from(index).unwrap() + 1)
    }
}

/// Something that is due. `inc` says which process it is meant for; another one never hears of it.
#[derive(Clone, Debug)]
pub enum Event {
    Tell {
        node: usize,
        inc: u64,
        input: Input,
    },
    Tick {
        node: usize,
        inc: u64,
        number: u64,
    },
    /// Go on after an interruption.
    GoOn {
        node: usize,
        inc: u64,
    },
    Connect {
        node: usize,
        inc: u64,
    },
    Stream {
        link: u64,
    },
    Arrive {
        link: u64,
        at_master: bool,
    },
    LinkCheck {
        link: u64,
    },
    Flushed {
        node: usize,
        inc: u64,
        cuts: u64,
        up_to: usize,
    },
    Background {
        node: usize,
    },
    Start {
        node: usize,
    },
    Stop {
        node: usize,
        inc: u64,
    },
    Request {
        caller: Caller,
        number: u64,
        request: Request,
    },
    Answer {
        caller: Caller,
        number: u64,
        answer: Answer,
    },
    TimeOut {
        caller: Caller,
        number: u64,
    },
    Operate {
        operator: usize,
    },
    Decide {
        operator: usize,
        number: u64,
    },
    Client,
    Fault,
    Calm,
    End,
}

pub struct World {
    pub random: Random,
    pub setup: Setup,
    pub now: u64,
    events: BTreeMap<(u64, u64), Event>,
    last_number: u64,
    pub nodes: Vec<Node>,
    pub links: BTreeMap<u64, Link>,
    /// Until when nothing gets from one node to another.
    pub cut_until: Vec<Vec<u64>>,
    pub keeper: Keeper,
    pub operators: Vec<Operator>,
    pub truth: Truth,
    pub is_calm: bool,
    pub has_ended: bool,
    pub summary: Done,
    is_traced: bool,
    pub trace: Vec<String>,
    pub failure: Option<String>,
}

impl World {
    pub fn new(mut random: Random, is_traced: bool) -> World {
        let replicas = random.pick(&[1, 2, 2, 2, 3, 3, 3, 3]);
        let setup = Setup {
            replicas,
            operators: random.pick(&[1, 1, 2]),
            sync_flush: random.percent(60),
            waits_for_copies: random.percent(70),
            min_in_sync: if replicas > 1 && random.percent(25) { 2 } else { 1 },
            allow_unclean: random.percent(8),
            slow_keeper: random.percent(50),
            interruptions: random.pick(&[0, 2000, 500, 150]),
            trouble_ms: random.between(20_000, 100_000),
            lease_ms: 15_000,
            frame_max: random.pick(&[1, 3, 20, 20]),
        };
        let node = |random: &mut Random| Node {
            clock: Clock::new(random),
            disk: Disk::default(),
            process: None,
            paused_until: 0,
        };
        let nodes = (0..replicas).map(|_| node(&mut random)).collect();
        let operators = (0..setup.operators).map(|_| Operator::new(&mut random, &setup)).collect();
        let mut world = World {
            random,
            now: 0,
            events: BTreeMap::new(),
            last_number: 0,
            nodes,
            links: BTreeMap::new(),
            cut_until: vec![vec![0; replicas]; replicas],
            keeper: Keeper::new(replicas, setup.operators),
            operators,
            truth: Truth::default(),
            is_calm: false,
            has_ended: false,
            summary: Done::default(),
            is_traced,
            trace: Vec::new(),
            failure: None,
            setup,
        };
        let setup = world.setup.clone();
        world.note(|| format!("{setup:?}"));
        for node in 0..replicas {
            world.after_between(0, 3000, Event::Start { node });
            world.after_between(500, 5000, Event::Background { node });
        }
        for operator in 0..world.operators.len() {
            world.after_between(0, 2000, Event::Operate { operator });
        }
        world.after(1000, Event::Client);
        world.after_between(4000, 12_000, Event::Fault);
        world.after(world.setup.trouble_ms, Event::Calm);
        world
    }

    pub fn note(&mut self, line: impl FnOnce() -> String) {
        if self.is_traced {
            let line = format!("{:>7} {}", self.now, line());
            self.trace.push(line);
        }
    }

    pub fn fail(&mut self, reason: String) {
        self.note(|| format!("FAILS: {reason}"));
        self.failure.get_or_insert(reason);
    }

    pub fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    pub fn at(&mut self, time: u64, event: Event) {
        let number = self.number();
        self.events.insert((time.max(self.now), number), event);
    }

    pub fn after(&mut self, ms: u64, event: Event) {
        self.at(self.now + ms, event);
    }

    pub fn after_between(&mut self, first: u64, last: u64, event: Event) {
        let ms = self.random.between(first, last);
        self.after(ms, event);
    }

    pub fn is_current(&self, node: usize, inc: u64) -> bool {
        self.nodes[node].process.as_ref().is_some_and(|process| process.inc == inc)
    }

    /// When the process may see this, if not now.
    fn postponed(&self, event: &Event) -> Option<u64> {
        let node = match event {
            Event::Tell { node, .. }
            | Event::Tick { node, .. }
            | Event::GoOn { node, .. }
            | Event::Connect { node, .. }
            | Event::Flushed { node, .. } => *node,
            Event::Answer { caller: Caller::Node { node, .. }, .. }
            | Event::TimeOut { caller: Caller::Node { node, .. }, .. } => *node,
            Event::Stream { link } => self.links.get(link)?.master.0,
            Event::Arrive { link, at_master } => {
                let link = self.links.get(link)?;
                if *at_master { link.master.0 } else { link.slave.0 }
            }
            Event::Operate { operator } | Event::Decide { operator, .. } => {
                let until = self.operators[*operator].paused_until;
                return (until > self.now).then_some(until);
            }
            _ => return None,
        };
        let until = self.nodes[node].paused_until;
        (until > self.now).then_some(until)
    }

    pub fn run(&mut self) -> Result<(), String> {
        while let Some(((time, _), event)) = self.events.pop_first() {
            self.now = self.now.max(time);
            if let Some(until) = self.postponed(&event) {
                self.at(until, event);
                continue;
            }
            self.summary.events += 1;
            self.happen(event);
            if let Some(failure) = self.failure.take() {
                return Err(failure);
            }
            if self.has_ended {
                self.summary.simulated_ms = self.now;
                return Ok(());
            }
        }
        Err("nothing happens any more".to_owned())
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Tell { node, inc, input } => {
                if self.is_current(node, inc) {
                    self.tell(node, input);
                }
            }
            Event::Tick { node, inc, number } => self.tick(node, inc, number),
            Event::GoOn { node, inc } => {
                if self.is_current(node, inc) {
                    self.carry_out(node);
                }
            }
            Event::Connect { node, inc } => self.connect(node, inc),
            Event::Stream { link } => self.stream(link),
            Event::Arrive { link, at_master } => self.arrive(link, at_master),
            Event::LinkCheck { link } => self.check_link(link),
            Event::Flushed { node, inc, cuts, up_to } => self.flushed(node, inc, cuts, up_to),
            Event::Background { node } => self.background(node),
            Event::Start { node } => self.start(node),
            Event::Stop { node, inc } => {
                if self.is_current(node, inc) {
                    self.kill(node, true);
                    self.after_between(200, 5000, Event::Start { node });
                }
            }
            Event::Request { caller, number, request } => self.request(caller, number, request),
            Event::Answer { caller, number, answer } => self.answer(caller, number, Some(answer)),
            Event::TimeOut { caller, number } => self.answer(caller, number, None),
            Event::Operate { operator } => self.operate(operator),
            Event::Decide { operator, number } => self.decide(operator, number),
            Event::Client => self.client(),
            Event::Fault => self.fault(),
            Event::Calm => self.calm(),
            Event::End => self.end(),
        }
    }
}
