//! The order in which a broker becomes master, or slave.
//!
//! To the master's side: first nothing of another master is taken over any more, then the store takes
//! messages, then clients may send, last the name servers hear of it. To the slave's side the other way
//! round: first nothing is acknowledged and nothing taken in, then whoever waits is told, and only then
//! may the log be cut and copied.

use std::collections::BTreeMap;
use std::sync::Arc;

use rocketmq_protocol::body::TopicConfig;
use rocketmq_replication::FencedBy;
use tracing::{error, info, warn};

use super::{Role, refusal};
use crate::handler::pull;
use crate::metadata::attributes::{BATCH_CQ, QUEUE_TYPE};
use crate::metadata::perm;
use crate::state::BrokerState;

/// Why a broker did not become master. It is a slave then.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    /// It stops.
    #[error("the broker stops")]
    Stopping,
    /// A thread could not be started.
    #[error("start the work of a master: {0}")]
    System(#[from] std::io::Error),
}

impl BrokerState {
    /// Makes this broker the master of `epoch`: the log ends where it shall, and its epoch is recorded.
    /// Blocks for as long as it takes to read what is in the store's queues.
    ///
    /// # Errors
    /// [`SwitchError`]
    pub fn become_master(self: &Arc<Self>, epoch: i64) -> Result<(), SwitchError> {
        let mut running = self.services.lock();
        if running.is_ended() || self.is_stopping() {
            return Err(SwitchError::Stopping);
        }
        running.end_slave();
        self.services.allow_metadata(false);
        self.store.take_messages();
        self.make_missing_topics();
        // What an earlier time as master left in memory may be about messages that are gone.
        self.transactions.begin_anew();
        self.role.set_fence(None);
        self.role.set_role(Role::Master { epoch });
        if let Err(error) = running.start_master(self) {
            self.step_down(FencedBy::Role);
            self.services.allow_metadata(true);
            running.start_slave(self);
            return Err(error.into());
        }
        drop(running);
        let log_end = self.store.max_physical_offset();
        info!(epoch, log_end, "this broker is master");
        // They were told to ask a master.
        pull::answer_all(self);
        // Sends that have waited since it handed over the last time.
        self.hold_sends(false);
        self.registration.identity_changed();
        Ok(())
    }

    /// Makes this broker a slave. When this returns nothing is acknowledged and nothing on its way into
    /// the log any more. On a slave it only sees to it that copies are taken, and metadata is followed.
    pub fn become_slave(self: &Arc<Self>, why: FencedBy) {
        let mut running = self.services.lock();
        let was_master = self.role.is_master();
        self.step_down(why);
        running.end_master();
        if was_master {
            // What was delivered behind the confirmed offset may go.
            self.delays.fall_back();
        }
        if !running.is_ended() {
            self.services.allow_metadata(true);
            running.start_slave(self);
        }
        drop(running);
        if !was_master {
            return;
        }
        let log_end = self.store.max_physical_offset();
        info!(?why, log_end, "this broker is a slave");
        pull::answer_all(self);
        match why {
            FencedBy::Handover => self.held_sends.handed_over(),
            _ => self.close_clients(),
        }
        self.registration.identity_changed();
    }

    fn step_down(&self, why: FencedBy) {
        self.role.set_role(Role::Slave);
        self.role.set_fence(None);
        self.store.take_copies_only();
        // Those that wait for the end of a handover wait on, as it has succeeded.
        if why != FencedBy::Handover {
            self.held_sends.close_all();
        }
        let (code, _) = refusal(why);
        for waits in [&self.flush_waits, &self.copy_waits] {
            waits.end_all(code);
        }
        self.locks.clear();
    }

    /// Lets a master take nothing in for a reason, or take messages in again. While it hands over, sends
    /// are held instead of refused; see [`BrokerState::hold_sends`]. Does nothing on a slave.
    pub fn set_fenced(self: &Arc<Self>, fenced: Option<FencedBy>) {
        let running = self.services.lock();
        if self.role.is_slave() || self.role.fence() == fenced {
            return;
        }
        info!(?fenced, "what this master takes in changed");
        match fenced {
            Some(FencedBy::Handover) => {
                // In this order: none is refused in between.
                self.hold_sends(true);
                self.role.set_fence(fenced);
                self.store.take_nothing();
            }
            Some(_) => {
                self.role.set_fence(fenced);
                self.store.take_nothing();
                self.hold_sends(false);
            }
            None => {
                self.store.take_messages();
                self.role.set_fence(None);
                self.hold_sends(false);
            }
        }
        drop(running);
    }

    /// As [`BrokerState::close_clients`], once what they sent is answered.
    pub(super) fn drain_clients(&self) {
        for conn in self.clients.connections() {
            conn.drain();
        }
    }

    /// Closes the connections of producers and consumers, so that they look for the master anew: the
    /// address that they used may lead to another broker now.
    fn close_clients(&self) {
        for conn in self.clients.connections() {
            conn.close();
        }
    }

    /// Makes topics that have messages here and no settings: those that the last master made after this
    /// broker copied its topics for the last time. Without them nobody could read the messages.
    fn make_missing_topics(&self) {
        let known = self.topics.snapshot();
        let mut missing = Vec::new();
        for topic in self.store.topics() {
            if known.contains_key(&*topic) {
                continue;
            }
            let Some(last) = self.store.queues(&topic).last().copied() else { continue };
            let queues = last.saturating_add(1);
            let mut attributes = BTreeMap::new();
            if self.store.has_batch_queue(&topic) {
                attributes.insert(QUEUE_TYPE.to_owned(), BATCH_CQ.to_owned());
            }
            warn!(
                topic = &*topic,
                queues, "the topic has messages and no settings; it is made with as many queues"
            );
            missing.push(TopicConfig {
                topic_name: topic.to_string(),
                read_queue_nums: queues,
                write_queue_nums: queues,
                perm: perm::READ | perm::WRITE,
                attributes: attributes.into_iter().collect(),
                ..TopicConfig::default()
            });
        }
        if missing.is_empty() {
            return;
        }
        if let Err(error) = self.topics.add_missing(missing) {
            error!(%error, "topics that have messages and no settings cannot be made");
        }
    }
}
