use super::*;
use proptest::prelude::*;

const REFRESH: Duration = Duration::from_secs(30);

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).expect("in range")
}

fn topic(read: i32, write: i32) -> TopicSettings {
    TopicSettings {
        read_queues: read,
        write_queues: write,
        ..created(Wanted { queues: read, permission: 6 })
    }
}

fn wanted(queues: i32) -> Wanted {
    Wanted { queues, permission: 6 }
}

/// Brokers, a status and a clock, driven by the plan as the reconciler does.
struct World {
    groups: Vec<Observed>,
    resize: Option<ResizeStatus>,
    now: i64,
    offset: i64,
    blocked_by: Vec<String>,
}

impl World {
    fn new(groups: &[Option<TopicSettings>]) -> Self {
        let groups = groups
            .iter()
            .enumerate()
            .map(|(i, s)| Observed { group: format!("b{i}"), settings: s.clone() })
            .collect();
        Self { groups, resize: None, now: 0, offset: 0, blocked_by: Vec::new() }
    }

    fn step(&mut self, wanted: Wanted) -> Plan {
        let retiring = shrinks(wanted, &self.groups)
            .then(|| Retiring { offset: self.offset, blocked_by: self.blocked_by.clone() });
        let plan = plan(
            wanted,
            &self.groups,
            true,
            self.resize.as_ref(),
            retiring.as_ref(),
            at(self.now),
            REFRESH,
        );
        for (group, settings) in &plan.writes {
            assert!(settings.read_queues >= settings.write_queues, "{settings:?}");
            let slot = self.groups.iter_mut().find(|o| o.group == *group).expect("a group");
            slot.settings = Some(settings.clone());
        }
        self.resize = plan.resize.clone();
        plan
    }

    fn counts(&self) -> Vec<(i32, i32)> {
        settings(&self.groups).map(|s| (s.read_queues, s.write_queues)).collect()
    }
}

#[test]
fn a_missing_topic_is_created_and_then_left_alone() {
    let mut world = World::new(&[None, None]);
    assert_eq!(world.step(wanted(4)).writes.len(), 2);
    assert_eq!(world.counts(), [(4, 4), (4, 4)]);
    assert_eq!(world.step(wanted(4)), Plan::default());
}

#[test]
fn growing_raises_read_waits_for_consumers_then_raises_write() {
    let mut world = World::new(&[Some(topic(4, 4)), Some(topic(4, 4))]);
    world.step(wanted(8));
    assert_eq!(world.counts(), [(8, 4), (8, 4)]);
    assert_eq!(world.resize.as_ref().expect("under way").step, ResizeStep::WaitForConsumers);
    world.now = 29;
    assert!(world.step(wanted(8)).writes.is_empty());
    world.now = 31;
    world.step(wanted(8));
    assert_eq!(world.counts(), [(8, 8), (8, 8)]);
    world.step(wanted(8));
    assert_eq!(world.resize, None);
}

#[test]
fn shrinking_waits_for_producers_and_consumers() {
    let mut world = World::new(&[Some(topic(8, 8))]);
    world.offset = 10;
    world.blocked_by = vec!["g".to_owned()];
    world.step(wanted(4));
    assert_eq!(world.counts(), [(8, 4)]);
    // A producer with an old route still sends: the wait starts over.
    world.now = 50;
    world.offset = 11;
    world.step(wanted(4));
    world.now = 61;
    world.step(wanted(4));
    assert_eq!(world.resize.as_ref().expect("under way").step, ResizeStep::WaitForProducers);
    world.now = 112;
    world.step(wanted(4));
    let resize = world.resize.clone().expect("under way");
    assert_eq!((resize.step, resize.blocked_by), (ResizeStep::WaitForDrain, vec!["g".to_owned()]));
    assert_eq!(world.counts(), [(8, 4)]);
    world.blocked_by.clear();
    world.step(wanted(4));
    assert_eq!(world.counts(), [(4, 4)]);
    world.step(wanted(4));
    assert_eq!(world.resize, None);
}

#[test]
fn a_shrink_that_lost_its_status_starts_its_wait_anew() {
    let mut world = World::new(&[Some(topic(8, 4))]);
    world.step(wanted(4));
    assert_eq!(world.counts(), [(8, 4)]);
    world.now = 62;
    world.step(wanted(4));
    assert_eq!(world.counts(), [(4, 4)]);
}

#[test]
fn an_aborted_shrink_raises_write_at_once() {
    let mut world = World::new(&[Some(topic(8, 8))]);
    world.step(wanted(4));
    assert_eq!(world.counts(), [(8, 4)]);
    world.step(wanted(8));
    assert_eq!(world.counts(), [(8, 8)]);
    world.step(wanted(8));
    assert_eq!(world.resize, None);
}

#[test]
fn an_aborted_grow_lowers_read_by_the_safe_steps() {
    let mut world = World::new(&[Some(topic(4, 4))]);
    world.step(wanted(8));
    assert_eq!(world.counts(), [(8, 4)]);
    world.step(wanted(4));
    assert_eq!(world.counts(), [(8, 4)]);
    assert_eq!(world.resize.as_ref().expect("under way").step, ResizeStep::WaitForProducers);
    world.now = 100;
    world.step(wanted(4));
    assert_eq!(world.counts(), [(4, 4)]);
}

#[test]
fn a_new_group_does_not_disturb_a_change_under_way() {
    let mut world = World::new(&[Some(topic(8, 8)), None]);
    world.step(wanted(4));
    assert_eq!(world.counts(), [(8, 4), (4, 4)]);
}

#[test]
fn raising_write_and_lowering_read_wait_for_every_group() {
    let resize = ResizeStatus {
        from: 8,
        to: 8,
        step: ResizeStep::WaitForConsumers,
        since: at(0).to_string(),
        retiring_offset: None,
        blocked_by: Vec::new(),
    };
    let one = [Observed { group: "b0".to_owned(), settings: Some(topic(8, 4)) }];
    let plan = plan(wanted(8), &one, false, Some(&resize), None, at(1000), REFRESH);
    assert!(plan.writes.is_empty());
    assert!(plan.resize.is_some());
}

#[test]
fn permission_is_set_at_once_and_other_fields_are_kept() {
    let before = TopicSettings { order: true, sys_flag: 3, ..topic(4, 4) };
    let mut world = World::new(&[Some(before.clone())]);
    let plan = world.step(Wanted { queues: 4, permission: 4 });
    assert_eq!(plan.writes, [("b0".to_owned(), TopicSettings { permission: 4, ..before })]);
}

proptest! {
    /// Whatever the start, the targets and the pace: read never falls below write, queues never lose
    /// readers while a consumer group is behind, and the last target is reached.
    #[test]
    fn every_history_is_safe_and_ends(
        start in prop::collection::vec(prop::option::of((1..20i32, 1..20i32)), 1..4),
        targets in prop::collection::vec(1..20i32, 1..4),
        paces in prop::collection::vec(1..50i64, 1..20),
        sends in prop::collection::vec(any::<bool>(), 1..20),
    ) {
        let start: Vec<_> = start
            .iter()
            .map(|s| s.map(|(a, b)| topic(a.max(b), a.min(b))))
            .collect();
        let mut world = World::new(&start);
        for (i, pace) in paces.iter().enumerate() {
            let target = targets[i % targets.len()];
            if sends[i % sends.len()] {
                world.offset += 1;
            }
            world.blocked_by = vec!["g".to_owned()];
            let before = world.groups.clone();
            world.step(wanted(target));
            for (before, after) in before.iter().zip(&world.groups) {
                if let (Some(before), Some(after)) = (&before.settings, &after.settings) {
                    prop_assert!(
                        after.read_queues >= before.read_queues,
                        "readers were taken from an undrained queue"
                    );
                }
            }
            world.now += pace;
        }
        world.blocked_by.clear();
        let last = targets[0];
        for _ in 0..20 {
            world.now += 61;
            world.step(wanted(last));
        }
        prop_assert!(world.counts().iter().all(|c| *c == (last, last)), "{:?}", world.counts());
        prop_assert_eq!(&world.resize, &None);
    }
}
