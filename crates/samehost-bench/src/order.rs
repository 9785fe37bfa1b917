//! The order of trials: every arm as often as each other one per block, in random order, balanced by reversing each order two
//! blocks later. Pure.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use samehost_model::{Arm, Plan, Slot};

/// Arms of one point, as indices into the list of arms; the first is the baseline.
pub type Group = Vec<usize>;

/// Groups arms by point, in order of first appearance. The floor's arm is a group of its own.
pub fn groups(arms: &[Arm]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (index, arm) in arms.iter().enumerate() {
        match groups.iter_mut().find(|group| arms[group[0]].point == arm.point) {
            Some(group) => group.push(index),
            None => groups.push(vec![index]),
        }
    }
    groups
}

/// The slots of a block: points in random order, with the arms of a point adjacent, because what is
/// compared should be measured close in time. Of four blocks the last two reverse the orders of the first
/// two (X, Y, X′, Y′), so that every arm has the same position on average and a linear drift cancels.
/// Reversing in the very next block was rejected: the same arm would stand on both sides of the border,
/// and what lasts longer than a trial would be in both blocks (95 % intervals then covered in 94.1 % of
/// simulated measurements, and in 95.0 % this way). Every block's order includes all `groups`, and those
/// that are not `active` are left out: a point that is finished in the middle of a cycle does not change
/// the order of the others (docs/method.md §1).
pub fn slots_of_block(
    arms: &[Arm],
    groups: &[Group],
    active: &[Group],
    plan: &Plan,
    seed: u64,
    block: u32,
) -> Vec<Slot> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ (u64::from(block / 4 * 2 + block % 2) << 32));
    let mut order: Vec<&Group> = groups.iter().collect();
    order.shuffle(&mut random);
    let mut planned = Vec::new();
    for group in order {
        let runs = plan.runs_in_a_block(group.len());
        let mut slots: Vec<(usize, bool)> = Vec::with_capacity(group.len() * runs);
        for arm in group {
            slots.extend((0..runs).map(|run| (*arm, run > 0)));
        }
        slots.shuffle(&mut random);
        if active.contains(group) {
            planned.extend(slots);
        }
    }
    if block % 4 >= 2 {
        planned.reverse();
    }
    let mut slots = Vec::with_capacity(planned.len());
    for (position, (arm, control)) in planned.into_iter().enumerate() {
        slots.push(Slot { arm: arms[arm].id.clone(), block, position: position as u32, control });
    }
    slots
}

#[cfg(test)]
mod tests {
    use samehost_model::{Point, Transport};

    use super::*;

    fn arms(points: u32, transports: &[Transport]) -> Vec<Arm> {
        (1..=points)
            .flat_map(|connections| {
                transports.iter().map(move |transport| Arm {
                    id: format!("{transport}/c{connections}"),
                    name: transport.to_string(),
                    transport: *transport,
                    endpoint: None,
                    tls: false,
                    capacity_per_s: None,
                    point: Point { connections, ..Point::default() },
                })
            })
            .collect()
    }

    /// A block's order as text: arms by first letter, a control in upper case, points in brackets.
    fn line(planned: &[Slot]) -> String {
        planned
            .iter()
            .map(|slot| {
                let first = slot.arm.chars().next().unwrap();
                if slot.control { first.to_ascii_uppercase() } else { first }
            })
            .collect()
    }

    #[test]
    fn every_arm_twice_a_block_and_reversed_two_blocks_later() {
        let arms = arms(1, &[Transport::Tcp, Transport::Unix]);
        let groups = groups(&arms);
        assert_eq!(groups, [vec![0, 1]]);
        let mut seen = std::collections::BTreeSet::new();
        for number in (0..80).filter(|number| number % 4 < 2) {
            let forth = line(&slots_of_block(&arms, &groups, &groups, &Plan::default(), 9, number));
            let back = line(&slots_of_block(&arms, &groups, &groups, &Plan::default(), 9, number + 2));
            assert_eq!(forth.chars().rev().collect::<String>(), back);
            let mut sorted: Vec<char> = forth.chars().collect();
            sorted.sort_unstable();
            assert_eq!(sorted, ['T', 'U', 't', 'u']);
            seen.insert(forth);
        }
        assert!(seen.len() >= 5, "orders are random: {seen:?}");
    }

    #[test]
    fn arms_of_a_point_stand_together_and_a_lone_arm_has_no_control() {
        fn level(slot: &Slot) -> &str {
            slot.arm.split('/').nth(1).unwrap()
        }
        let arms = arms(3, &[Transport::Tcp, Transport::Unix]);
        let groups = groups(&arms);
        for number in 0..10 {
            let planned = slots_of_block(&arms, &groups, &groups, &Plan::default(), 1, number);
            assert_eq!(planned.len(), 12);
            for point in planned.chunks(4) {
                assert!(point.iter().all(|slot| level(slot) == level(&point[0])));
            }
            assert!(planned.iter().enumerate().all(|(i, slot)| slot.position == i as u32));
        }
        let once = Plan { control: false, ..Plan::default() };
        let planned = slots_of_block(&arms, &groups, &groups, &once, 1, 0);
        assert!(planned.len() == 6 && planned.iter().all(|slot| !slot.control), "{planned:?}");
        let lone = super::groups(&arms[..1]);
        assert_eq!(slots_of_block(&arms[..1], &lone, &lone, &Plan::default(), 1, 0).len(), 1);
    }

    #[test]
    fn the_seed_decides() {
        let arms = arms(4, &[Transport::Tcp, Transport::Unix]);
        let groups = groups(&arms);
        assert_eq!(
            slots_of_block(&arms, &groups, &groups, &Plan::default(), 5, 3),
            slots_of_block(&arms, &groups, &groups, &Plan::default(), 5, 3)
        );
        assert_ne!(
            slots_of_block(&arms, &groups, &groups, &Plan::default(), 5, 2),
            slots_of_block(&arms, &groups, &groups, &Plan::default(), 6, 2)
        );
    }

    #[test]
    fn a_point_that_is_done_leaves_the_others_in_their_order() {
        fn ids(planned: Vec<Slot>) -> Vec<String> {
            planned.into_iter().map(|t| t.arm).collect()
        }
        let arms = arms(3, &[Transport::Tcp, Transport::Unix]);
        let groups = groups(&arms);
        let (active, done) = (&groups[1..], &groups[0]);
        for number in (0..20).filter(|number| number % 4 < 2) {
            let mut all = ids(slots_of_block(&arms, &groups, &groups, &Plan::default(), 9, number));
            let mut back = ids(slots_of_block(&arms, &groups, active, &Plan::default(), 9, number + 2));
            all.retain(|id| done.iter().all(|arm| arms[*arm].id != *id));
            back.reverse();
            assert_eq!(all, back, "block {} is still the reverse of block {number}", number + 2);
        }
    }
}
