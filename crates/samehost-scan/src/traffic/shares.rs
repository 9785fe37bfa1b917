//! Whose the short connections to a service are. Those that were seen while they were open are booked on whoever opened them;
//! the others that look like them, by their round trips and bytes, in the same proportions, where enough were seen for that.
//! What is left is nobody's: it is never booked on a program that happens to be connected.
//!
//! A share of all that were seen would not do. A look sees a connection with a probability that grows with how long it is
//! open: a page of 30 ms was seen a hundred times as often as a PING of 0.3 ms, and got its traffic. Connections that look
//! alike are open for about as long.

use crate::traffic::catch::Seen;
use crate::traffic::ended::{Sum, Tally};

/// So many alike that were seen tell the shares of several programs.
const FOR_SHARES: u64 = 10;
/// So many that were seen, all of one program, tell that it opens the others that look like them.
const FOR_ONE: u64 = 3;

/// A part of the short connections to a service.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Part {
    pub(crate) connections: f64,
    pub(crate) round_trips: f64,
    pub(crate) bytes: f64,
}

impl Part {
    fn add(&mut self, sum: Sum, share: f64) {
        self.connections += share * sum.connections as f64;
        self.round_trips += share * sum.round_trips as f64;
        self.bytes += share * sum.bytes as f64;
    }

    /// Adds another part, as many times.
    pub(crate) fn add_part(&mut self, other: Part, times: f64) {
        self.connections += times * other.connections;
        self.round_trips += times * other.round_trips;
        self.bytes += times * other.bytes;
    }
}

/// The parts of the programs that were seen, in their order, and what is nobody's.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Shares {
    pub(crate) of_senders: Vec<Part>,
    pub(crate) nobodys: Part,
}

/// Books the connections to a service.
pub(crate) fn shares<'a>(seen: &Seen, tallies: impl Iterator<Item = &'a Tally>) -> Shares {
    let mut shares =
        Shares { of_senders: vec![Part::default(); seen.senders.len()], nobodys: Part::default() };
    let only = only_program(seen);
    for tally in tallies {
        let mut numbers = vec![0; seen.senders.len()];
        let mut known = Sum::default();
        let mut number = 0;
        for (opener, sum) in &tally.seen {
            number += sum.connections;
            let Some(program) = seen.program(*opener) else { continue };
            numbers[program] += sum.connections;
            shares.of_senders[program].add(*sum, 1.0);
            known.merge(*sum);
        }
        let rest = tally.all.without(known);
        let is_one = numbers.contains(&number);
        if number >= FOR_SHARES || is_one && number >= FOR_ONE {
            let mut left = 1.0;
            for (program, one) in numbers.iter().enumerate() {
                let share = *one as f64 / number as f64;
                shares.of_senders[program].add(rest, share);
                left -= share;
            }
            shares.nobodys.add(rest, left.max(0.0));
        } else if let Some(only) = only.filter(|_| number > 0) {
            shares.of_senders[only].add(rest, 1.0);
        } else {
            shares.nobodys.add(rest, 1.0);
        }
    }
    shares
}

/// The only program that was seen to open connections to a service, where enough were seen to say so.
pub(crate) fn only_program(seen: &Seen) -> Option<usize> {
    let number: u32 = seen.openers.values().sum();
    let mut programs = seen.openers.keys().map(|opener| seen.program(*opener));
    let first = programs.next()??;
    (u64::from(number) >= FOR_ONE && programs.all(|program| program == Some(first))).then_some(first)
}

#[cfg(test)]
mod tests {
    use samehost_model::scan::Process;

    use super::*;
    use crate::advice::Sender;
    use crate::traffic::ended::Opener;

    fn sum(connections: u64, round_trips: u64) -> Sum {
        Sum { connections, round_trips, bytes: 100 * round_trips }
    }

    fn opener(sender: usize) -> Opener {
        Opener { uid: Some(sender as u32), sender: Some(sender) }
    }

    fn seen(openers: &[(Opener, u32)]) -> Seen {
        let senders = [1, 2].map(|pid| Sender { process: Process { pid, ..Process::default() } });
        Seen { senders: senders.into(), openers: openers.iter().copied().collect() }
    }

    fn tally(all: Sum, seen: &[(Opener, Sum)]) -> Tally {
        Tally { all, seen: seen.iter().copied().collect() }
    }

    #[test]
    fn connections_that_look_alike_are_of_those_who_were_seen_to_open_such() {
        // Pages were seen often and pings seldom; each has what looks like its own.
        let pages = tally(sum(100, 5600), &[(opener(0), sum(60, 3360))]);
        let pings = tally(sum(1000, 1000), &[(opener(1), sum(4, 4))]);
        let found = shares(&seen(&[(opener(0), 60), (opener(1), 4)]), [&pages, &pings].into_iter());
        assert_eq!(
            found.of_senders.iter().map(|part| part.round_trips).collect::<Vec<_>>(),
            [5600.0, 1000.0]
        );
        assert_eq!(found.nobodys, Part::default());
    }

    #[test]
    fn what_looks_like_nothing_that_was_seen_is_nobodys() {
        let all = seen(&[(opener(0), 60), (opener(1), 4)]);
        let found = shares(&all, [&tally(sum(50, 50), &[])].into_iter());
        assert_eq!((found.nobodys.connections, found.of_senders[0].connections), (50.0, 0.0));
        // Two that were seen are booked; what looks like them is not yet.
        let found = shares(&all, [&tally(sum(50, 50), &[(opener(1), sum(2, 2))])].into_iter());
        assert_eq!((found.nobodys.connections, found.of_senders[1].connections), (48.0, 2.0));
        // Where one program alone was seen with the service, one of them tells; and none tells nothing.
        let one = tally(sum(50, 50), &[(opener(0), sum(1, 1))]);
        let found = shares(&seen(&[(opener(0), 60)]), [&one, &tally(sum(20, 900), &[])].into_iter());
        assert_eq!((found.of_senders[0].connections, found.nobodys.connections), (50.0, 20.0));
    }

    #[test]
    fn a_socket_whose_holder_was_not_found_is_of_the_only_program_of_its_user() {
        let unheld = Opener { uid: Some(0), sender: None };
        let of_another = Opener { uid: Some(7), sender: None };
        let known = seen(&[(opener(0), 2), (unheld, 5), (of_another, 1)]);
        assert_eq!((known.program(unheld), known.program(of_another)), (Some(0), None));
        let both = Opener { uid: Some(0), sender: Some(1) };
        assert_eq!(
            seen(&[(opener(0), 2), (both, 2), (unheld, 5)]).program(unheld),
            None,
            "two have that user"
        );
    }
}
