//! What goes wrong, and how it ends.

use std::collections::BTreeSet;

use rocketmq_replication::{EpochTable, GroupRecord, Input, Versioned};

use super::world::{Event, Node, World};

impl World {
    pub fn fault(&mut self) {
        if self.is_calm {
            return;
        }
        self.after_between(500, 12_000, Event::Fault);
        self.summary.faults += 1;
        let node = self.random.below(self.nodes.len() as u64) as usize;
        match self.random.below(100) {
            0..15 => {
                self.note(|| format!("fault: the process of {} is killed", node + 1));
                self.kill(node, true);
                self.after_between(100, 12_000, Event::Start { node });
            }
            15..22 => {
                self.note(|| format!("fault: the power of {} goes", node + 1));
                self.lose_power(node);
            }
            22..24 => {
                self.note(|| "fault: all power goes".to_owned());
                for node in 0..self.nodes.len() {
                    self.lose_power(node);
                }
            }
            24..27 => {
                self.note(|| format!("fault: the disk of {} is lost", node + 1));
                self.lose_disk(node);
            }
            27..40 => {
                let ms = self.long();
                self.note(|| format!("fault: {} is paused for {ms}", node + 1));
                let until = self.now + ms;
                self.nodes[node].paused_until = self.nodes[node].paused_until.max(until);
            }
            40..46 => {
                let ms = self.long();
                self.note(|| format!("fault: the disk of {} is frozen for {ms}", node + 1));
                self.nodes[node].disk.frozen_until = self.now + ms;
            }
            46..60 => self.cut_network(),
            60..64 => self.lose_keeper(),
            64..66 => {
                let ms = self.long();
                self.note(|| format!("fault: no replica may write the record for {ms}"));
                self.keeper.refuse(self.now, self.now + ms);
            }
            66..72 => self.isolate_master(),
            72..77 => {
                let operator = self.random.below(self.operators.len() as u64) as usize;
                let ms = self.long();
                self.note(|| format!("fault: operator {operator} stops for {ms}"));
                self.operators[operator].paused_until = self.now + ms;
                if self.random.percent(60) {
                    self.operators[operator].restart();
                    self.after(ms, Event::Operate { operator });
                }
            }
            77..85 => {
                self.note(|| format!("fault: a switchover to {} is asked for", node + 1));
                self.change_record(|record| record.handover = Some(Node::id(node)));
            }
            85..93 => {
                self.note(|| format!("fault: {} is asked to stop", node + 1));
                if let Some(inc) = self.process(node).map(|process| process.inc) {
                    self.after(0, Event::Tell { node, inc, input: Input::Release });
                    self.after_between(100, 9000, Event::Stop { node, inc });
                }
            }
            93..96 => {
                self.note(|| format!("fault: {} is fenced, or no more", node + 1));
                self.change_record(|record| {
                    if !record.fenced.remove(&Node::id(node)) {
                        record.fenced.insert(Node::id(node));
                    }
                });
            }
            _ => {
                let links: Vec<u64> = self.links.keys().copied().collect();
                if !links.is_empty() {
                    let link = self.random.pick(&links);
                    self.note(|| format!("fault: link {link} is reset"));
                    self.reset(link);
                }
            }
        }
    }

    fn long(&mut self) -> u64 {
        if self.random.percent(50) {
            self.random.between(50, 3000)
        } else {
            self.random.between(3000, 40_000)
        }
    }

    /// Whoever is at one of the ends loses the connection; the other is not told.
    fn reset(&mut self, number: u64) {
        let Some(link) = self.links.get(&number) else { return };
        let (node, inc) = if self.random.percent(50) { link.slave } else { link.master };
        if self.is_current(node, inc) && self.nodes[node].paused_until <= self.now {
            self.refuse(node, inc, number);
        }
    }

    fn change_record(&mut self, change: impl FnOnce(&mut GroupRecord)) {
        if let Some(Versioned { mut record, .. }) = self.keeper.record.clone() {
            change(&mut record);
            self.keeper.put(record);
        }
    }

    fn lose_power(&mut self, node: usize) {
        self.kill(node, false);
        let disk = &self.nodes[node].disk;
        let (durable, end) = (disk.durable, disk.log.len());
        let left = self.random.between(durable as u64, end as u64) as usize;
        let disk = &mut self.nodes[node].disk;
        disk.log.truncate(left);
        disk.cuts += 1;
        self.tail_is_lost(node, left);
        self.after_between(1000, 15_000, Event::Start { node });
    }

    fn lose_disk(&mut self, node: usize) {
        let has_kernel = self.random.percent(50);
        self.kill(node, has_kernel);
        let disk = &mut self.nodes[node].disk;
        disk.log.clear();
        disk.durable = 0;
        disk.epochs = EpochTable::default();
        disk.cuts += 1;
        self.disk_is_lost(node);
        self.after_between(500, 15_000, Event::Start { node });
    }

    fn cut_network(&mut self) {
        let count = self.nodes.len();
        let ms = self.long();
        let until = self.now + ms;
        let one = self.random.below(count as u64) as usize;
        let other = self.random.below(count as u64) as usize;
        let is_alone = self.random.percent(40);
        let is_asymmetric = self.random.percent(50);
        for from in 0..count {
            for to in 0..count {
                let is_out = from == one && (is_alone || to == other);
                let is_in = to == one && (is_alone || from == other);
                if is_out || (is_in && !is_asymmetric) {
                    self.cut_until[from][to] = until;
                }
            }
        }
        let with_others = self.random.percent(40);
        if with_others {
            self.keeper.lost_to_node[one] = until;
            for operator in &mut self.operators {
                operator.lost_until[one] = until;
            }
        }
        self.note(|| {
            format!(
                "fault: network of {} cut for {ms}, towards {}, {}, {}",
                one + 1,
                if is_alone { "all".to_owned() } else { (other + 1).to_string() },
                if is_asymmetric { "one way" } else { "both ways" },
                if with_others { "with the keeper" } else { "not the keeper" }
            )
        });
    }

    fn lose_keeper(&mut self) {
        let ms = self.long();
        let until = self.now + ms;
        let mut lost = BTreeSet::new();
        for node in 0..self.nodes.len() {
            if self.random.percent(70) {
                lost.insert(node + 1);
                self.keeper.lost_to_node[node] = until;
            }
        }
        let with_operators = self.random.percent(50);
        if with_operators {
            self.keeper.lost_to_operator.fill(until);
        }
        self.note(|| {
            format!("fault: keeper lost for {ms} to {lost:?}, operators {with_operators}")
        });
    }

    /// The master alone does not reach the keeper, or does not hear it, for about as long as a lease;
    /// perhaps a slave is lost as well.
    fn isolate_master(&mut self) {
        let serves =
            |node: &Node| node.process.as_ref().is_some_and(|process| process.serves.is_some());
        let Some(master) = self.nodes.iter().position(serves) else { return };
        let ms = self.random.between(3000, 45_000);
        let until = self.now + ms;
        let is_deaf = self.random.percent(50);
        if is_deaf {
            self.keeper.unheard_until[master] = until;
        } else {
            self.keeper.lost_to_node[master] = until;
        }
        self.note(|| {
            format!("fault: master {} without keeper for {ms}, deaf {is_deaf}", master + 1)
        });
        let other = self.random.below(self.nodes.len() as u64) as usize;
        if other == master {
            return;
        }
        let (first, last) = (self.now, until);
        let at = self.random.between(first, last) - first;
        match self.random.below(5) {
            // Its links go, in one or both directions.
            0 | 1 => {
                self.cut_until[other][master] = until;
                if self.random.percent(50) {
                    self.cut_until[master][other] = until;
                }
            }
            // It starts anew, and the master does not hear that it ended.
            2 => {
                self.cut_until[other][master] = until;
                if let Some(inc) = self.process(other).map(|process| process.inc) {
                    self.after(at, Event::Stop { node: other, inc });
                }
            }
            3 => {
                if let Some(inc) = self.process(other).map(|process| process.inc) {
                    self.after(at, Event::Stop { node: other, inc });
                }
            }
            _ => {}
        }
    }

    /// Everything is repaired. From now on the group has to come back.
    pub fn calm(&mut self) {
        self.note(|| "calm".to_owned());
        self.is_calm = true;
        let now = self.now;
        for node in 0..self.nodes.len() {
            // Whoever is paused wakes when it would have: what waits for it keeps its order.
            let frozen = &mut self.nodes[node].disk.frozen_until;
            *frozen = now.min(*frozen);
            self.after(100, Event::Start { node });
            if let Some(inc) = self.process(node).map(|process| process.inc) {
                self.after(0, Event::GoOn { node, inc });
            }
        }
        self.cut_until.iter_mut().for_each(|row| row.fill(now));
        self.keeper.lost_to_node.fill(now);
        self.keeper.lost_to_operator.fill(now);
        self.keeper.unheard_until.fill(now);
        self.keeper.refuse(now, now);
        for operator in &mut self.operators {
            operator.paused_until = now;
            operator.lost_until.fill(now);
        }
        self.change_record(|record| {
            record.fenced.clear();
            record.handover = None;
        });
        self.truth.acknowledged_at_calm = self.truth.acknowledged;
        self.after(1000, Event::End);
    }
}
