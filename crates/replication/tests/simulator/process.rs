//! A broker: it carries out what the replica asks for, takes messages in, acknowledges them.

use std::collections::VecDeque;

use rocketmq_replication::{Epoch, Input, MasterAddresses, Output, Refusal, Replica, Settings};

use super::keeper::{Caller, Request};
use super::network::Message;
use super::world::{Event, Node, Record, World};

pub struct Process {
    /// Never used twice.
    pub inc: u64,
    pub replica: Replica,
    pub incarnation: String,
    /// What was asked for and not done.
    out: VecDeque<Output>,
    /// Messages are taken in, of this epoch.
    pub serves: Option<Epoch>,
    pub is_fenced: bool,
    /// Ends of messages that wait for their acknowledgement.
    waiting: VecDeque<usize>,
    /// Whose log to copy.
    pub follows: Option<usize>,
    pub link: Option<u64>,
    pub is_copying: bool,
    /// What counts of the log.
    pub counted: usize,
    /// What consumers were shown here.
    pub shown: usize,
    /// It has messages that were lost elsewhere, as an unclean election allows.
    pub is_astray: bool,
    /// Requests to the keeper; the first is on its way if there is a number.
    pub calls: VecDeque<Request>,
    pub call: Option<u64>,
    tick: u64,
    tick_at: Option<u64>,
}

impl World {
    pub fn process(&mut self, node: usize) -> Option<&mut Process> {
        self.nodes[node].process.as_mut()
    }

    pub fn start(&mut self, node: usize) {
        if self.nodes[node].process.is_some() {
            return;
        }
        let inc = self.number();
        let incarnation = format!("{}:{inc}", Node::id(node));
        let settings = Settings {
            id: Node::id(node),
            incarnation: incarnation.clone(),
            addresses: MasterAddresses { broker: node.to_string(), ha: node.to_string() },
            min_in_sync: self.setup.min_in_sync,
            renew_deadline_ms: 10_000,
            retry_ms: 2000,
            catch_up_ms: 8000,
            promise_ms: 10_000,
        };
        let disk = &mut self.nodes[node].disk;
        // A start syncs what it finds.
        disk.durable = disk.log.len();
        let end = disk.log.len();
        let replica = Replica::new(settings, disk.epochs.clone(), i64::try_from(end).unwrap());
        self.note(|| format!("{incarnation} starts with {end}"));
        self.nodes[node].process = Some(Process {
            inc,
            replica,
            incarnation,
            out: VecDeque::new(),
            serves: None,
            is_fenced: false,
            waiting: VecDeque::new(),
            follows: None,
            link: None,
            is_copying: false,
            counted: end,
            shown: 0,
            is_astray: false,
            calls: VecDeque::new(),
            call: None,
            tick: 0,
            tick_at: None,
        });
        self.tell(node, Input::Tick);
    }

    /// Ends a process. Its kernel closes the connections if there is one left to do so.
    pub fn kill(&mut self, node: usize, has_kernel: bool) {
        let Some(process) = self.nodes[node].process.take() else { return };
        self.note(|| format!("{} ends", process.incarnation));
        self.nodes[node].paused_until = self.now;
        self.close_all(node, process.inc, has_kernel);
    }

    pub fn tell(&mut self, node: usize, input: Input) {
        // What an interruption left over comes first.
        self.carry_out(node);
        if self.nodes[node].paused_until > self.now {
            if let Some(inc) = self.process(node).map(|process| process.inc) {
                self.at(self.nodes[node].paused_until, Event::Tell { node, inc, input });
            }
            return;
        }
        let local = self.nodes[node].clock.shows(self.now);
        let Some(process) = self.nodes[node].process.as_mut() else { return };
        let is_noise = matches!(input, Input::Tick | Input::MasterSent { .. });
        let line = (!is_noise).then(|| format!("{} < {input:?}", process.incarnation));
        let mut out = Vec::new();
        process.replica.handle(local, input, &mut out);
        process.out.extend(out);
        if let Some(line) = line {
            self.note(|| line);
        }
        self.carry_out(node);
    }

    pub fn carry_out(&mut self, node: usize) {
        loop {
            if self.nodes[node].paused_until > self.now {
                return;
            }
            let Some(process) = self.nodes[node].process.as_mut() else { return };
            let inc = process.inc;
            let Some(output) = process.out.pop_front() else { break };
            if self.interrupted() {
                if self.random.percent(30) {
                    self.kill(node, true);
                    self.after_between(100, 8000, Event::Start { node });
                    return;
                }
                if let Some(process) = self.process(node) {
                    process.out.push_front(output);
                }
                let ms = self.random.between(1, 30_000);
                self.note(|| format!("replica {} stops for {ms} in the middle", node + 1));
                self.nodes[node].paused_until = self.now + ms;
                self.after(ms, Event::GoOn { node, inc });
                return;
            }
            self.do_one(node, inc, output);
        }
        self.show(node);
        self.acknowledge(node);
        self.set_tick(node);
    }

    fn interrupted(&mut self) -> bool {
        let one_in = self.setup.interruptions;
        !self.is_calm && one_in > 0 && self.random.below(one_in) == 0
    }

    fn do_one(&mut self, node: usize, inc: u64, output: Output) {
        let name = self.nodes[node].process.as_ref().map(|process| process.incarnation.clone());
        if !matches!(output, Output::Read | Output::Probe(_) | Output::Confirm(_)) {
            self.note(|| format!("{} > {output:?}", name.unwrap_or_default()));
        }
        match output {
            Output::Read => self.call(node, Request::Read),
            Output::Write { attempt, expected, record } => {
                self.call(node, Request::Write { attempt, expected, record });
                // The moment that matters most to be late for.
                if !self.is_calm && self.random.below(200) == 0 {
                    let ms = self.random.between(5000, 40_000);
                    self.note(|| format!("replica {} stops for {ms} behind a write", node + 1));
                    self.nodes[node].paused_until = self.now + ms;
                    self.after(ms, Event::GoOn { node, inc });
                }
            }
            // Now and then it fails.
            Output::Probe(_) if !self.is_calm && self.random.percent(3) => {}
            Output::Probe(number) => self.disk_does(node, inc, Input::Proven(number)),
            Output::Follow { ha_address, .. } => {
                let Some(process) = self.process(node) else { return };
                process.follows = ha_address.parse().ok();
                self.after_between(1, 50, Event::Connect { node, inc });
            }
            Output::Unfollow => {
                let Some(process) = self.process(node) else { return };
                process.follows = None;
                if let Some(link) = process.link.take() {
                    self.close(link, false);
                }
            }
            Output::Truncate { to, surplus, epochs } => {
                let to = usize::try_from(to).unwrap();
                if let Some(process) = self.process(node) {
                    process.is_astray = false;
                }
                if surplus < 0 {
                    self.fail(format!("replica {} cuts {surplus}", node + 1));
                }
                let disk = &mut self.nodes[node].disk;
                disk.cuts += 1;
                disk.log.truncate(to);
                let end = disk.log.len();
                disk.durable = if self.setup.sync_flush { end } else { disk.durable.min(end) };
                self.counts(node, end);
                // The log is cut before the epoch file is.
                if self.interrupted() {
                    self.kill(node, true);
                    self.after_between(100, 8000, Event::Start { node });
                    return;
                }
                self.nodes[node].disk.epochs = epochs;
                let end = i64::try_from(end).unwrap();
                self.disk_does(node, inc, Input::Truncated { end });
            }
            Output::Seal => {
                let Some(process) = self.process(node) else { return };
                process.is_copying = false;
                let disk = &mut self.nodes[node].disk;
                disk.cuts += 1;
                let end = disk.log.len();
                if self.setup.sync_flush {
                    disk.durable = end;
                }
                self.counts(node, end);
                let end = i64::try_from(end).unwrap();
                self.disk_does(node, inc, Input::Truncated { end });
            }
            Output::Copy { link } => {
                let end = self.nodes[node].disk.log.len();
                let Some(process) = self.process(node) else { return };
                if process.link == Some(link.0) {
                    process.is_copying = true;
                    self.send(link.0, true, Message::Joined { end });
                }
            }
            Output::RecordEpochs(epochs) => {
                let last = epochs.last().map(|entry| entry.epoch);
                self.nodes[node].disk.epochs = epochs;
                if let Some(last) = last {
                    self.disk_does(node, inc, Input::EpochRecorded(last));
                }
            }
            Output::Pong { link, number } => self.send(link.0, true, Message::Pong(number)),
            Output::Ping { link, number } => self.send(link.0, false, Message::Ping(number)),
            Output::Serve(epoch) => {
                let Some(process) = self.process(node) else { return };
                process.serves = Some(epoch);
                process.is_fenced = false;
                self.summary.reigns += 1;
                self.check_master(node, epoch);
            }
            Output::StepDown(_) => {
                let Some(process) = self.process(node) else { return };
                process.serves = None;
                process.waiting.clear();
                self.close_all_of_master(node, inc);
            }
            Output::Fenced(fenced) => {
                let Some(process) = self.process(node) else { return };
                process.is_fenced = fenced.is_some();
            }
            Output::Confirm(_) => {}
            Output::Refuse { link, reason } => {
                if matches!(reason, Refusal::BelowConfirmed { .. } | Refusal::Disorder) {
                    self.check_refusal(node, &reason);
                }
                if matches!(reason, Refusal::BelowConfirmed { .. } | Refusal::NothingInCommon) {
                    self.truth.refused.insert(node);
                }
                self.refuse(node, inc, link.0);
            }
        }
    }

    /// The disk does something and says so, unless it is frozen.
    fn disk_does(&mut self, node: usize, inc: u64, input: Input) {
        let frozen = self.nodes[node].disk.frozen_until.saturating_sub(self.now);
        let ms = frozen + self.random.between(1, 15);
        // One thing after the other.
        let disk = &mut self.nodes[node].disk;
        disk.busy_until = disk.busy_until.max(self.now + ms);
        let at = disk.busy_until;
        self.at(at, Event::Tell { node, inc, input });
    }

    fn counts(&mut self, node: usize, end: usize) {
        if let Some(process) = self.process(node) {
            process.counted = end;
        }
    }

    /// Puts records at the end of the log. They count when they are flushed, or at once.
    pub fn append(&mut self, node: usize, records: &[Record]) {
        let disk = &mut self.nodes[node].disk;
        disk.log.extend_from_slice(records);
        let (up_to, cuts) = (disk.log.len(), disk.cuts);
        let frozen = disk.frozen_until.saturating_sub(self.now);
        let Some(inc) = self.process(node).map(|process| process.inc) else { return };
        if self.setup.sync_flush {
            let ms = frozen + self.random.between(1, 20);
            self.after(ms, Event::Flushed { node, inc, cuts, up_to });
        } else {
            self.log_ends(node, up_to);
        }
    }

    pub fn flushed(&mut self, node: usize, inc: u64, cuts: u64, up_to: usize) {
        let disk = &mut self.nodes[node].disk;
        if disk.cuts == cuts {
            disk.durable = disk.durable.max(up_to);
            if self.is_current(node, inc) {
                self.log_ends(node, up_to);
            }
        }
    }

    fn log_ends(&mut self, node: usize, end: usize) {
        let Some(process) = self.process(node) else { return };
        process.counted = process.counted.max(end);
        let end = process.counted;
        self.tell(node, Input::LogEnd(i64::try_from(end).unwrap()));
        self.send_has(node);
    }

    /// A slave says what it has.
    pub fn send_has(&mut self, node: usize) {
        let Some(process) = self.process(node) else { return };
        if let (Some(link), true) = (process.link, process.is_copying) {
            let end = process.counted;
            self.send(link, true, Message::Has { end });
        }
    }

    /// What is flushed in the background.
    pub fn background(&mut self, node: usize) {
        let disk = &mut self.nodes[node].disk;
        if disk.frozen_until <= self.now {
            disk.durable = disk.log.len();
        }
        self.after_between(500, 5000, Event::Background { node });
    }

    pub fn client(&mut self) {
        self.after_between(20, 600, Event::Client);
        let now = self.now;
        let ready = |node: &Node| {
            node.paused_until <= now
                && node.disk.frozen_until <= now
                && node.process.as_ref().is_some_and(|process| {
                    process.out.is_empty() && process.serves.is_some() && !process.is_fenced
                })
        };
        for node in 0..self.nodes.len() {
            if !ready(&self.nodes[node]) {
                continue;
            }
            let Some(epoch) = self.process(node).and_then(|process| process.serves) else {
                continue;
            };
            let count = self.random.between(1, 3);
            let records: Vec<Record> =
                (0..count).map(|_| Record { id: self.number(), epoch: epoch.0 }).collect();
            let begin = self.nodes[node].disk.log.len();
            if let Some(process) = self.process(node) {
                process.waiting.extend((1..=records.len()).map(|more| begin + more));
            }
            self.append(node, &records);
            return;
        }
    }

    fn acknowledge(&mut self, node: usize) {
        let local = self.nodes[node].clock.shows(self.now);
        while let Some(process) = self.nodes[node].process.as_mut() {
            let Some(end) = process.waiting.front().copied() else { return };
            let confirmed = usize::try_from(process.replica.confirmed()).unwrap();
            let has = if self.setup.waits_for_copies { confirmed } else { process.counted };
            if has < end || process.replica.may_acknowledge(local).is_err() {
                return;
            }
            process.waiting.pop_front();
            self.check_acknowledgement(node, end);
        }
    }

    fn set_tick(&mut self, node: usize) {
        let clock = self.nodes[node].clock;
        let now = self.now;
        let Some(process) = self.nodes[node].process.as_mut() else { return };
        let at = process.replica.next_deadline().map(|local| clock.when(local).max(now + 1));
        if at == process.tick_at {
            return;
        }
        process.tick_at = at;
        process.tick += 1;
        let (inc, number) = (process.inc, process.tick);
        if let Some(at) = at {
            self.at(at, Event::Tick { node, inc, number });
        }
    }

    pub fn tick(&mut self, node: usize, inc: u64, number: u64) {
        if !self.is_current(node, inc) {
            return;
        }
        if let Some(process) = self.process(node) {
            if process.tick != number {
                return;
            }
            process.tick_at = None;
        }
        self.tell(node, Input::Tick);
    }

    pub fn caller(&self, node: usize) -> Option<Caller> {
        let inc = self.nodes[node].process.as_ref()?.inc;
        Some(Caller::Node { node, inc })
    }
}
