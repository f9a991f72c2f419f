//! Connections between slaves and masters. Each keeps its order, as TCP does; a side may be gone
//! without the other knowing; what is sent into a cut network waits for it to heal.

use std::collections::VecDeque;

use rocketmq_replication::{Epoch, EpochEntry, EpochTable, Input, LinkId, Role};

use super::world::{Event, Node, Record, World};

const SILENCE_MS: u64 = 20_000;

#[derive(Clone, Debug)]
pub enum Message {
    Hello {
        epoch: Epoch,
        epochs: EpochTable,
        end: usize,
    },
    Joined {
        end: usize,
    },
    Frame {
        epoch: Epoch,
        entry: EpochEntry,
        from: usize,
        records: Vec<Record>,
        confirmed: i64,
    },
    Has {
        end: usize,
    },
    Ping(u64),
    Pong(u64),
    /// The other side closed.
    Fin,
}

pub struct Link {
    /// Node and process.
    pub slave: (usize, u64),
    pub master: (usize, u64),
    slave_open: bool,
    master_open: bool,
    to_master: VecDeque<Message>,
    to_slave: VecDeque<Message>,
    /// When the slave and the master heard something last.
    heard: [u64; 2],
    /// Where the stream is, once the slave has joined.
    sent: Option<usize>,
    sent_at: u64,
}

impl World {
    /// A slave tries to reach its master, again and again.
    pub fn connect(&mut self, node: usize, inc: u64) {
        if !self.is_current(node, inc) {
            return;
        }
        let Some(process) = self.process(node) else { return };
        let Some(target) = process.follows else { return };
        let is_idle = process.link.is_none();
        self.after_between(100, 1500, Event::Connect { node, inc });
        let is_cut =
            self.cut_until[node][target] > self.now || self.cut_until[target][node] > self.now;
        if !is_idle || is_cut || target == node {
            return;
        }
        let Some(there) = self.process(target).map(|process| process.inc) else { return };
        let number = self.number();
        let link = Link {
            slave: (node, inc),
            master: (target, there),
            slave_open: true,
            master_open: true,
            to_master: VecDeque::new(),
            to_slave: VecDeque::new(),
            heard: [self.now; 2],
            sent: None,
            sent_at: 0,
        };
        self.links.insert(number, link);
        if let Some(process) = self.process(node) {
            process.link = Some(number);
            process.is_copying = false;
        }
        self.after_between(1, 30, Event::Stream { link: number });
        self.after(5000, Event::LinkCheck { link: number });
    }

    pub fn send(&mut self, link: u64, to_master: bool, message: Message) {
        let ms = self.random.between(1, 20);
        let Some(found) = self.links.get_mut(&link) else { return };
        let is_open = if to_master { found.slave_open } else { found.master_open };
        if !is_open && !matches!(message, Message::Fin) {
            return;
        }
        if to_master {
            found.to_master.push_back(message);
        } else {
            found.to_slave.push_back(message);
        }
        self.after(ms, Event::Arrive { link, at_master: to_master });
    }

    /// The master's side of a connection: shakes hands, then sends the log.
    pub fn stream(&mut self, number: u64) {
        let Some(link) = self.links.get(&number) else { return };
        let (node, inc) = link.master;
        if !link.master_open || !self.is_current(node, inc) {
            return;
        }
        let (sent, sent_at) = (link.sent, link.sent_at);
        let disk = &self.nodes[node].disk;
        let Some(process) = self.nodes[node].process.as_ref() else { return };
        let Role::Master(epoch) = process.replica.role() else {
            return self.close(number, true);
        };
        let epochs = process.replica.epochs();
        let confirmed = process.replica.confirmed();
        let message = match sent {
            None if sent_at == 0 => {
                Some(Message::Hello { epoch, epochs: epochs.clone(), end: disk.log.len() })
            }
            None => None,
            Some(from) => {
                let entry = epochs.at(i64::try_from(from).unwrap());
                let entry = entry.expect("the first epoch begins at 0");
                let next = epochs.entries().iter().find(|next| next.start > entry.start);
                let end = next.map_or(disk.log.len(), |next| usize::try_from(next.start).unwrap());
                let records: Vec<Record> = disk.log[from..end.min(disk.log.len())]
                    .iter()
                    .take(self.setup.frame_max)
                    .copied()
                    .collect();
                let is_due = !records.is_empty() || sent_at + 1000 <= self.now;
                is_due.then_some(Message::Frame { epoch, entry, from, records, confirmed })
            }
        };
        let now = self.now;
        if let (Some(message), Some(link)) = (message, self.links.get_mut(&number)) {
            link.sent_at = now.max(1);
            if let Message::Frame { from, records, .. } = &message {
                link.sent = Some(from + records.len());
            }
            self.send(number, false, message);
        }
        self.after_between(5, 120, Event::Stream { link: number });
    }

    pub fn arrive(&mut self, number: u64, at_master: bool) {
        let Some(link) = self.links.get_mut(&number) else { return };
        let (from, to) =
            if at_master { (link.slave.0, link.master) } else { (link.master.0, link.slave) };
        let healed = self.cut_until[from][to.0];
        let frozen = if at_master { 0 } else { self.nodes[to.0].disk.frozen_until };
        let until = healed.max(frozen);
        if until > self.now {
            return self.at(until, Event::Arrive { link: number, at_master });
        }
        let is_open = if at_master { link.master_open } else { link.slave_open };
        let queue = if at_master { &mut link.to_master } else { &mut link.to_slave };
        let Some(message) = queue.pop_front() else { return };
        link.heard[usize::from(at_master)] = self.now;
        if !is_open || !self.is_current(to.0, to.1) {
            return;
        }
        if at_master {
            self.master_hears(number, to.0, message);
        } else {
            self.slave_hears(number, to.0, message);
        }
    }

    fn master_hears(&mut self, number: u64, node: usize, message: Message) {
        let link = LinkId(number);
        let Some(found) = self.links.get_mut(&number) else { return };
        match message {
            Message::Joined { end } => {
                found.sent = Some(end);
                let (replica, end) = (Node::id(found.slave.0), i64::try_from(end).unwrap());
                self.tell(node, Input::SlaveJoined { link, replica, end, is_learner: false });
            }
            Message::Has { end } => {
                self.tell(node, Input::SlaveHas { link, end: i64::try_from(end).unwrap() });
            }
            Message::Pong(number) => self.tell(node, Input::Pong { link, number }),
            Message::Fin => {
                found.master_open = false;
                self.tell(node, Input::SlaveLeft(link));
            }
            Message::Hello { .. } | Message::Frame { .. } | Message::Ping(_) => {}
        }
    }

    fn slave_hears(&mut self, number: u64, node: usize, message: Message) {
        let link = LinkId(number);
        match message {
            Message::Hello { epoch, epochs, end } => {
                let log_end = i64::try_from(end).unwrap();
                self.tell(node, Input::MasterHello { link, epoch, epochs, log_end });
            }
            Message::Frame { epoch, entry, from, records, confirmed } => {
                self.tell(node, Input::MasterSent { link, epoch, entry, confirmed });
                // Whatever that asked for is done; an interruption may have ended the process.
                if self.nodes[node].paused_until > self.now {
                    let frame = Message::Frame { epoch, entry, from, records, confirmed };
                    let Some(found) = self.links.get_mut(&number) else { return };
                    found.to_slave.push_front(frame);
                    let until = self.nodes[node].paused_until;
                    return self.at(until, Event::Arrive { link: number, at_master: false });
                }
                let end = self.nodes[node].disk.log.len();
                let copies = self
                    .process(node)
                    .is_some_and(|process| process.link == Some(number) && process.is_copying);
                if !copies {
                    return;
                }
                if from != end {
                    return self.fail(format!("replica {} has {end}, is sent {from}", node + 1));
                }
                if records.is_empty() {
                    self.send_has(node);
                } else {
                    self.append(node, &records);
                }
            }
            Message::Ping(number) => self.tell(node, Input::Ping { link, number }),
            Message::Fin => self.lost_by_slave(number, node, true),
            Message::Joined { .. } | Message::Has { .. } | Message::Pong(_) => {}
        }
    }

    fn lost_by_slave(&mut self, number: u64, node: usize, closed_by_master: bool) {
        if let Some(link) = self.links.get_mut(&number) {
            link.slave_open = false;
        }
        if let Some(process) = self.process(node)
            && process.link == Some(number)
        {
            process.link = None;
            process.is_copying = false;
        }
        let link = LinkId(number);
        self.tell(node, Input::MasterLost { link, closed_by_master });
    }

    /// One side closes; the other hears of it in its turn.
    pub fn close(&mut self, number: u64, by_master: bool) {
        let Some(link) = self.links.get_mut(&number) else { return };
        let open = if by_master { &mut link.master_open } else { &mut link.slave_open };
        if std::mem::take(open) {
            self.send(number, !by_master, Message::Fin);
        }
    }

    pub fn refuse(&mut self, node: usize, inc: u64, number: u64) {
        let Some(link) = self.links.get(&number) else { return };
        let by_master = link.master == (node, inc);
        self.close(number, by_master);
        let link = LinkId(number);
        let input = if by_master {
            Input::SlaveLeft(link)
        } else {
            if let Some(process) = self.process(node)
                && process.link == Some(number)
            {
                process.link = None;
                process.is_copying = false;
            }
            Input::MasterLost { link, closed_by_master: false }
        };
        self.after(1, Event::Tell { node, inc, input });
    }

    fn links_of(&self, node: usize, inc: u64) -> Vec<(u64, bool)> {
        let ends = |(number, link): (&u64, &Link)| {
            let is_master = link.master == (node, inc);
            (is_master || link.slave == (node, inc)).then_some((*number, is_master))
        };
        self.links.iter().filter_map(ends).collect()
    }

    pub fn close_all_of_master(&mut self, node: usize, inc: u64) {
        for (number, is_master) in self.links_of(node, inc) {
            if is_master {
                self.close(number, true);
            }
        }
    }

    /// The process is gone. Without a kernel nobody hears of it.
    pub fn close_all(&mut self, node: usize, inc: u64, has_kernel: bool) {
        for (number, is_master) in self.links_of(node, inc) {
            if has_kernel {
                self.close(number, is_master);
            } else if let Some(link) = self.links.get_mut(&number) {
                let open = if is_master { &mut link.master_open } else { &mut link.slave_open };
                *open = false;
            }
        }
    }

    /// Each side gives a silent connection up.
    pub fn check_link(&mut self, number: u64) {
        let Some(link) = self.links.get(&number) else { return };
        if !link.slave_open
            && !link.master_open
            && link.to_slave.is_empty()
            && link.to_master.is_empty()
        {
            self.links.remove(&number);
            return;
        }
        let silent = link.heard.map(|heard| heard + SILENCE_MS < self.now);
        let (slave, master) = (link.slave, link.master);
        let open = [link.slave_open, link.master_open];
        let awake = |node: usize| self.nodes[node].paused_until <= self.now;
        let (slave_awake, master_awake) = (awake(slave.0), awake(master.0));
        if open[0] && silent[0] && slave_awake && self.is_current(slave.0, slave.1) {
            self.close(number, false);
            self.lost_by_slave(number, slave.0, false);
        }
        if open[1] && silent[1] && master_awake && self.is_current(master.0, master.1) {
            self.close(number, true);
            self.tell(master.0, Input::SlaveLeft(LinkId(number)));
        }
        self.after_between(1000, 5000, Event::LinkCheck { link: number });
    }
}
