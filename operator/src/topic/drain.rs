//! How the queues that a shrink retires are doing: whether they stand still, and who has still to
//! consume them.

use std::collections::BTreeMap;

use kube::ResourceExt;

use super::plan::{Observed, Retiring, Wanted};
use crate::brokers::Group;
use crate::context::Context;
use crate::crd::topic::{ResizeStep, TopicStatus};
use crate::crd::{SKIP_DRAIN_ANNOTATION, Topic};
use crate::rocketmq::{AdminError, Progress, QueueOffsets};

/// Looks at the queues to retire on every group. Consumer groups are asked for only once the
/// producers had their time, since that is a request per consumer group.
///
/// # Errors
/// Fails when a broker does.
pub async fn look(
    ctx: &Context,
    topic: &Topic,
    groups: &[Group],
    observed: &[Observed],
    wanted: Wanted,
    before: &TopicStatus,
) -> Result<Retiring, AdminError> {
    let name = topic.topic_name();
    let skip = skipped(topic);
    let ask_consumers = before.resize.as_ref().is_some_and(|resize| {
        resize.to == wanted.queues && resize.step != ResizeStep::WaitForConsumers
    });
    let mut retiring = Retiring::default();
    for seen in observed {
        let Some(settings) = seen.settings.as_ref().filter(|s| s.read_queues > wanted.queues)
        else {
            continue;
        };
        let Some(group) = groups.iter().find(|g| g.name == seen.group) else { continue };
        let queues = ctx.admin.queue_offsets(&group.address, name).await?;
        let queues: BTreeMap<i32, QueueOffsets> = queues
            .into_iter()
            .filter(|(queue, _)| (wanted.queues..settings.read_queues).contains(queue))
            .collect();
        retiring.offset =
            retiring.offset.saturating_add(queues.values().map(|q| q.max_queue_offset).sum());
        if ask_consumers && !skip.all {
            let progress = ctx.admin.progress(&group.address, name).await?;
            retiring.blocked_by.extend(behind(&group.name, &queues, &progress, &skip.groups));
        }
    }
    Ok(retiring)
}

struct Skipped {
    all: bool,
    groups: Vec<String>,
}

fn skipped(topic: &Topic) -> Skipped {
    let text = topic.annotations().get(SKIP_DRAIN_ANNOTATION).map_or("", String::as_str);
    let groups: Vec<String> =
        text.split(',').map(str::trim).filter(|g| !g.is_empty()).map(str::to_owned).collect();
    Skipped { all: groups.iter().any(|g| g == "*"), groups }
}

/// Who is behind on one broker group. Messages that expired count as consumed. Queues with messages
/// that no consumer group ever took block as well: those messages would be hidden from whoever
/// comes later.
fn behind(
    broker: &str,
    queues: &BTreeMap<i32, QueueOffsets>,
    progress: &[Progress],
    skip: &[String],
) -> Vec<String> {
    let holds_messages = queues.values().any(|q| q.max_queue_offset > q.min_queue_offset);
    if !holds_messages {
        return Vec::new();
    }
    if progress.is_empty() {
        return vec![format!("no consumer group has consumed the old queues on {broker}")];
    }
    progress
        .iter()
        .filter(|p| !skip.contains(&p.group))
        .filter(|p| {
            queues.iter().any(|(queue, q)| {
                let consumed = p.offsets.get(queue).copied().unwrap_or(0);
                consumed.max(q.min_queue_offset) < q.max_queue_offset
            })
        })
        .map(|p| format!("{} on {broker}", p.group))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(min: i64, max: i64) -> QueueOffsets {
        QueueOffsets { min_queue_offset: min, max_queue_offset: max, last_update_ms: 0 }
    }

    fn progress(group: &str, offsets: &[(i32, i64)]) -> Progress {
        Progress { group: group.to_owned(), offsets: offsets.iter().copied().collect() }
    }

    #[test]
    fn empty_queues_block_nobody() {
        let queues = BTreeMap::from([(4, queue(0, 0)), (5, queue(7, 7))]);
        assert!(behind("b", &queues, &[progress("g", &[])], &[]).is_empty());
        assert!(behind("b", &queues, &[], &[]).is_empty());
    }

    #[test]
    fn every_group_behind_is_named() {
        let queues = BTreeMap::from([(4, queue(0, 10))]);
        let groups =
            [progress("done", &[(4, 10)]), progress("slow", &[(4, 9)]), progress("new", &[])];
        assert_eq!(behind("b", &queues, &groups, &[]), ["slow on b", "new on b"]);
        assert_eq!(behind("b", &queues, &groups, &["slow".into()]), ["new on b"]);
    }

    #[test]
    fn messages_nobody_ever_took_block() {
        let queues = BTreeMap::from([(4, queue(0, 10))]);
        assert_eq!(behind("b", &queues, &[], &[]).len(), 1);
    }

    #[test]
    fn expired_messages_count_as_consumed() {
        let queues = BTreeMap::from([(4, queue(5, 10)), (5, queue(9, 9))]);
        assert!(behind("b", &queues, &[progress("g", &[(4, 10)])], &[]).is_empty());
    }
}
