//! Order of slices: every arm once in each pass, in random order, with readings at the borders. It does no
//! I/O and reads no clock, so that tests can play a whole round with scripted arms.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::engine::clock::Nanos;
use crate::error::BenchError;

/// An arm that can be driven for a slice, repeatedly.
pub(super) trait Arm {
    /// Drives one slice of this length; no request is in flight on return.
    fn turn(&mut self, length: Nanos) -> Result<(), BenchError>;
}

/// What is read between slices.
pub(super) trait Borders {
    /// Called before a slice of this arm.
    ///
    /// # Errors
    /// [`BenchError::Interrupted`] after a signal.
    fn before(&mut self, arm: usize) -> Result<(), BenchError>;

    /// Called after the slice.
    fn after(&mut self, arm: usize);
}

/// Gives each arm `passes` slices of this length.
///
/// Every second pass reverses the order of the one before. Each arm thus has the same position on average,
/// and drift within the two passes cancels.
pub(super) fn play(
    arms: &mut [impl Arm],
    (passes, length): (u32, Nanos),
    seed: u64,
    borders: &mut impl Borders,
) -> Result<(), BenchError> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut order: Vec<usize> = (0..arms.len()).collect();
    for pass in 0..passes {
        if pass % 2 == 0 {
            order.shuffle(&mut random);
        } else {
            order.reverse();
        }
        for arm in &order {
            borders.before(*arm)?;
            arms[*arm].turn(length)?;
            borders.after(*arm);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    type Log = Rc<RefCell<Vec<String>>>;

    struct Scripted {
        name: usize,
        log: Log,
        fails_at: Option<u32>,
        turns: u32,
    }

    impl Arm for Scripted {
        fn turn(&mut self, length: Nanos) -> Result<(), BenchError> {
            self.turns += 1;
            if self.fails_at == Some(self.turns) {
                return Err(BenchError::Usage("the server died".into()));
            }
            self.log.borrow_mut().push(format!("{} {length}", self.name));
            Ok(())
        }
    }

    #[derive(Default)]
    struct Counted {
        before: Vec<usize>,
        after: Vec<usize>,
        stops_after: Option<usize>,
    }

    impl Borders for Counted {
        fn before(&mut self, arm: usize) -> Result<(), BenchError> {
            if self.stops_after == Some(self.after.len()) {
                return Err(BenchError::Interrupted);
            }
            self.before.push(arm);
            Ok(())
        }

        fn after(&mut self, arm: usize) {
            self.after.push(arm);
        }
    }

    fn arms(log: &Log, number: usize) -> Vec<Scripted> {
        (0..number).map(|name| Scripted { name, log: Rc::clone(log), fails_at: None, turns: 0 }).collect()
    }

    #[test]
    fn every_arm_once_a_pass_and_every_order_reversed() {
        let log = Log::default();
        let mut borders = Counted::default();
        play(&mut arms(&log, 3), (100, 7), 5, &mut borders).unwrap();
        assert_eq!(log.borrow().len(), 300);
        assert_eq!(borders.before, borders.after);
        let mut orders = std::collections::BTreeSet::new();
        let mut places = [[0_u32; 3]; 3];
        for two in borders.after.chunks(6) {
            let mut sorted = two[..3].to_vec();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2]);
            assert_eq!(two[..3].iter().rev().collect::<Vec<_>>(), two[3..].iter().collect::<Vec<_>>());
            orders.insert(two[..3].to_vec());
            two.iter().enumerate().for_each(|(place, arm)| places[*arm][place % 3] += 1);
        }
        assert_eq!(orders.len(), 6, "every order comes");
        for arm in places {
            assert_eq!(arm[0], arm[2], "as often first as last");
        }
        assert!(log.borrow().iter().all(|turn| turn.ends_with(" 7")));
    }

    #[test]
    fn the_seed_decides_the_orders() {
        let turns = |seed| {
            let mut borders = Counted::default();
            play(&mut arms(&Log::default(), 3), (20, 1), seed, &mut borders).unwrap();
            borders.after
        };
        assert_eq!(turns(1), turns(1));
        assert_ne!(turns(1), turns(2));
    }

    #[test]
    fn an_arm_that_fails_ends_the_round_and_a_signal_does() {
        let log = Log::default();
        let mut some = arms(&log, 3);
        some[1].fails_at = Some(4);
        let mut borders = Counted::default();
        let failed = play(&mut some, (10, 1), 1, &mut borders);
        assert!(failed.unwrap_err().to_string().contains("the server died"));
        assert_eq!(borders.after.iter().filter(|arm| **arm == 1).count(), 3);
        assert!(borders.after.len() < 12, "the others do not go on either");
        let mut stopped = Counted { stops_after: Some(8), ..Counted::default() };
        let result = play(&mut arms(&log, 3), (10, 1), 1, &mut stopped);
        assert!(matches!(result, Err(BenchError::Interrupted)));
        assert_eq!(stopped.after.len(), 8);
    }
}
