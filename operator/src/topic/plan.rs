//! The steps of a topic's settings on its broker groups: pure.
//!
//! Producers see write counts, consumers read counts, and a pull from a queue at or above the read
//! count is refused. So the read count is never below the write count, a queue gets readers before
//! its first message, and loses them after its last:
//!
//! - grow: raise read everywhere, wait one client refresh, raise write;
//! - shrink: lower write, wait until the queues to retire stood still for two client refreshes and
//!   every consumer group has consumed them, lower read.
//!
//! A new target is an abort: planning starts from what the brokers have.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::conditions::whole_seconds;
use crate::crd::topic::{ResizeStatus, ResizeStep};
use crate::rocketmq::TopicSettings;

/// What a topic should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Read and write count on each group, once no change is under way.
    pub queues: i32,
    /// perm bits.
    pub permission: i32,
}

/// A topic on one broker group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// brokerName.
    pub group: String,
    /// The topic there, if it is there.
    pub settings: Option<TopicSettings>,
}

/// How the queues to retire are doing, over all groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retiring {
    /// Sum of their maximum offsets.
    pub offset: i64,
    /// Who has not consumed them.
    pub blocked_by: Vec<String>,
}

/// What to do now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Settings to write, by brokerName.
    pub writes: Vec<(String, TopicSettings)>,
    /// The change under way, for the status.
    pub resize: Option<ResizeStatus>,
}

/// Whether a shrink has to be planned, so that [`Retiring`] is needed.
pub fn shrinks(wanted: Wanted, observed: &[Observed]) -> bool {
    settings(observed).all(|s| s.write_queues >= wanted.queues)
        && settings(observed).any(|s| s.read_queues > wanted.queues)
}

/// A new topic.
pub fn created(wanted: Wanted) -> TopicSettings {
    TopicSettings {
        read_queues: wanted.queues,
        write_queues: wanted.queues,
        permission: wanted.permission,
        order: false,
        filter_type: "SINGLE_TAG".to_owned(),
        sys_flag: 0,
    }
}

/// Plans the next writes. `complete`: whether `observed` holds every group; raising write and
/// lowering read are steps of all groups together and wait for the missing ones. `retiring` is what
/// was seen when [`shrinks`] asked for it.
pub fn plan(
    wanted: Wanted,
    observed: &[Observed],
    complete: bool,
    resize: Option<&ResizeStatus>,
    retiring: Option<&Retiring>,
    now: Timestamp,
    refresh: Duration,
) -> Plan {
    let clock = Clock { now, refresh };
    let from = settings(observed).map(|s| s.read_queues).max().unwrap_or(wanted.queues);
    let grows = settings(observed).any(|s| s.write_queues < wanted.queues);
    let mut raise_write = false;
    let mut lower_read = false;
    let resize = if grows {
        let raised_now = settings(observed).any(|s| s.read_queues < wanted.queues);
        let state = clock.growing(wanted, from, resize, raised_now);
        raise_write = complete && !raised_now && state.is_none();
        state.or_else(|| {
            (!raise_write).then(|| clock.begin(from, wanted, ResizeStep::WaitForConsumers))
        })
    } else if shrinks(wanted, observed) {
        let lowered_now = settings(observed).any(|s| s.write_queues > wanted.queues);
        let state = clock.shrinking(wanted, from, resize, lowered_now, retiring);
        lower_read = complete && state.is_none();
        state.or_else(|| {
            (!lower_read).then(|| ResizeStatus {
                blocked_by: vec!["a broker group that does not answer".to_owned()],
                ..resize
                    .filter(|r| r.step == ResizeStep::WaitForDrain)
                    .cloned()
                    .unwrap_or_else(|| clock.begin(from, wanted, ResizeStep::WaitForDrain))
            })
        })
    } else {
        None
    };
    let writes = observed
        .iter()
        .filter_map(|o| {
            let next = next(wanted, o.settings.as_ref(), raise_write, lower_read);
            (o.settings.as_ref() != Some(&next)).then(|| (o.group.clone(), next))
        })
        .collect();
    Plan { writes, resize }
}

fn settings(observed: &[Observed]) -> impl Iterator<Item = &TopicSettings> {
    observed.iter().filter_map(|o| o.settings.as_ref())
}

/// The settings of one group after this step. Raising read and lowering write are safe at any time.
fn next(
    wanted: Wanted,
    current: Option<&TopicSettings>,
    raise_write: bool,
    lower_read: bool,
) -> TopicSettings {
    let Some(current) = current else { return created(wanted) };
    let n = wanted.queues;
    let write = if raise_write { n } else { current.write_queues.min(n) };
    let read = if lower_read { n } else { current.read_queues.max(n) };
    TopicSettings {
        read_queues: read.max(write),
        write_queues: write,
        permission: wanted.permission,
        ..current.clone()
    }
}

struct Clock {
    now: Timestamp,
    refresh: Duration,
}

impl Clock {
    /// The state of a grow, `None` once write may be raised.
    fn growing(
        &self,
        wanted: Wanted,
        from: i32,
        resize: Option<&ResizeStatus>,
        raised_now: bool,
    ) -> Option<ResizeStatus> {
        let begin = || Some(self.begin(from, wanted, ResizeStep::WaitForConsumers));
        if raised_now {
            return begin();
        }
        match resize {
            Some(r) if r.to == wanted.queues && r.step == ResizeStep::WaitForConsumers => {
                if self.waited(r) >= self.refresh { None } else { Some(r.clone()) }
            }
            // An aborted shrink never took the readers away, so there is nobody to wait for.
            Some(r) if r.step != ResizeStep::WaitForConsumers && r.from >= wanted.queues => None,
            _ => begin(),
        }
    }

    /// The state of a shrink, `None` once read may be lowered.
    fn shrinking(
        &self,
        wanted: Wanted,
        from: i32,
        resize: Option<&ResizeStatus>,
        lowered_now: bool,
        retiring: Option<&Retiring>,
    ) -> Option<ResizeStatus> {
        let mut begun = self.begin(from, wanted, ResizeStep::WaitForProducers);
        begun.retiring_offset = retiring.map(|seen| seen.offset);
        let Some(current) = resize.filter(|r| {
            !lowered_now && r.to == wanted.queues && r.step != ResizeStep::WaitForConsumers
        }) else {
            return Some(begun);
        };
        let Some(seen) = retiring else { return Some(current.clone()) };
        if current.retiring_offset != Some(seen.offset) {
            // A message arrived: producers are not all done. The first sight only sets the mark.
            return Some(ResizeStatus {
                from: current.from,
                since: if current.retiring_offset.is_none() {
                    current.since.clone()
                } else {
                    begun.since.clone()
                },
                ..begun
            });
        }
        let drained = seen.blocked_by.is_empty();
        match current.step {
            ResizeStep::WaitForProducers if self.waited(current) < self.refresh * 2 => {
                Some(ResizeStatus { blocked_by: Vec::new(), ..current.clone() })
            }
            _ if drained => None,
            ResizeStep::WaitForDrain => {
                Some(ResizeStatus { blocked_by: seen.blocked_by.clone(), ..current.clone() })
            }
            _ => Some(ResizeStatus {
                step: ResizeStep::WaitForDrain,
                since: begun.since,
                blocked_by: seen.blocked_by.clone(),
                ..current.clone()
            }),
        }
    }

    fn begin(&self, from: i32, wanted: Wanted, step: ResizeStep) -> ResizeStatus {
        ResizeStatus {
            from,
            to: wanted.queues,
            step,
            since: whole_seconds(self.now).to_string(),
            retiring_offset: None,
            blocked_by: Vec::new(),
        }
    }

    /// Time since the step began; an unreadable time counts as now, which only waits longer. The
    /// start was rounded down by up to a second, so a second is taken off.
    fn waited(&self, resize: &ResizeStatus) -> Duration {
        let since = resize.since.parse().unwrap_or(self.now);
        let waited = self.now.duration_since(since) - SignedDuration::from_secs(1);
        Duration::try_from(waited).unwrap_or_default()
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
