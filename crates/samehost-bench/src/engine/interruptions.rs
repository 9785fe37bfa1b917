//! Finds the exchanges of one connection during which client or server was ready to run and waited for a CPU that
//! another program had.
//!
//! On a busy machine such an exchange takes as long as the scheduler's turn of somebody else, a hundred times its own
//! time; three in a hundred of them are nearly all the noise of a mean. The kernel says how long each thread waited
//! (`schedstat`). Reading that costs a microsecond for each thread, so it is read only after an exchange that took more
//! than [`LONG_IN_MEDIANS`] times the arm's median so far, and now and then for what threads wait ordinarily: being woken is
//! a short wait as well. An exchange that waited for at least half of its time is left out of the mean and of the
//! throughput, in every arm by the same rule. A long exchange that did not wait counts: a delayed acknowledgement is
//! what a transport costs. Percentiles have all exchanges.
//!
//! Measured in C beside a compiler on both CPUs (raw exchanges over TCP, Unix and TCP again, one connection, slices of
//! 1 ms, 30 rounds of 100 ms an arm), standard deviation of a round's ln ratio: plain 14 to 19 %; passes weighed by
//! waiting, which was the rule before, 5 to 12 %; this 1.7 to 2.6 %; both 2.6 to 6.6 %; medians 1.4 to 2.0 %. With 100 µs
//! of work for each request: 12 to 16, 12 to 16, 1.2 to 2.4, 2.5 and 1.0 to 1.4 %. Whether 60 or 300 µs was long changed
//! nothing.
//!
//! What is assumed: the ratio does not differ between exchanges that waited and others. Who is interrupted in proportion
//! to time or to CPU time has the same ratio with and without; who waits as long in both arms has a ratio nearer to 1.

use std::sync::Arc;

use super::Nanos;
use crate::machine::{SwitchCounter, ThreadMeter, Threads, thread_cpu_ns};

/// An exchange is looked at from this multiple of the arm's median on: it is left out if client or server
/// waited for a CPU for half of it. Three in a hundred exchanges, each a hundred times as long as the
/// others, are nearly all the noise of a mean on a busy machine. Beside a compiler on both of two CPUs a
/// round's ln ratio scattered by 19.0 % with the plain mean, by 6.5 % with passes weighed by their
/// waiting, and by 1.9 % with the interrupted exchanges left out. With 60, 100 or 300 µs as the length to
/// look from the errors were the same. A long request that did not wait counts: 40 ms of a delayed
/// acknowledgement are what a transport costs (docs/method.md §1a).
const LONG_IN_MEDIANS: f64 = 3.0;
/// Exchanges after which the waits are read, so that ordinary ones do not add up to an interruption.
/// Being woken is a short wait too. The least that was seen for an exchange is what threads wait
/// ordinarily, and it is subtracted before an exchange is called interrupted. The exchange after a
/// reading has the reading in it and counts nowhere, and the CPU time of a reading is not the client's
/// (docs/method.md §1a).
const EXCHANGES_BETWEEN_READINGS: u64 = 32;
/// Fewest exchanges that tell how long one waits ordinarily.
const MIN_EXCHANGES: u64 = 8;
/// Most threads of servers and proxies whose waiting is read, beside the client's thread.
/// The kernel says how long a thread waited in the second number of its `schedstat`, a file to read for
/// each thread. Of more threads those are taken that have run most often since they were listed. What is
/// left out by this rule is in `interrupted_percent`; percentiles and CPU time have all requests
/// (docs/method.md §1a).
const MAX_THREADS_READ: usize = 12;
/// By what the estimate of the median rises with each exchange that took longer, and falls with each that did not. A median
/// of the warm-up was tried: of the few exchanges of a warm-up beside others it was twenty times too long, and then nothing was
/// found for a whole round.
const STEP: f64 = 1.03;
/// Where the estimate begins without a warm-up, in nanoseconds: too low, so that too much is looked at until it is right.
const FIRST_MEDIAN_NS: f64 = 5_000.0;

/// How long client and server waited for a CPU so far.
pub(super) trait Waits: Send + Sync {
    /// In nanoseconds, of all threads together.
    fn waited_ns(&self) -> u64;
}

/// The calling thread, and the listed ones; where those are many, so many that have run most often since.
pub(super) fn clock(servers: Threads) -> Arc<dyn Waits> {
    Arc::new(ThreadWaits { client: ThreadMeter::current(), servers: servers.watched(MAX_THREADS_READ) })
}

/// Waits of the thread that made it and of watched threads, as the kernel has them. Only that thread reads it.
struct ThreadWaits {
    client: ThreadMeter,
    servers: Vec<SwitchCounter>,
}

impl Waits for ThreadWaits {
    fn waited_ns(&self) -> u64 {
        self.client.waited_ns() + self.servers.iter().map(|thread| thread.read().waited_ns).sum::<u64>()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Whole,
    /// It waited for a CPU: left out of the mean and of the throughput.
    Interrupted,
    /// Its time has the reading of the waits in it: left out of everything.
    Disturbed,
}

pub(super) struct Interruptions {
    waits: Arc<dyn Waits>,
    /// Estimate of the median latency, in nanoseconds.
    median: f64,
    /// Nanoseconds waited at the last reading, and exchanges since then.
    waited: u64,
    since: u64,
    /// Nanoseconds that an exchange waits although nobody else has the CPU; `None` until it was learned.
    ordinary: Option<f64>,
    follows_reading: bool,
    /// CPU time that the readings took.
    reading: Nanos,
    pub(super) sums: Sums,
}

/// Exchanges and their time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    pub whole: u64,
    pub whole_ns: Nanos,
    pub interrupted: u64,
    /// Of interrupted and disturbed exchanges.
    pub left_out: u64,
}

impl Interruptions {
    /// Begins after a warm-up whose shortest exchange took so many nanoseconds; `None` without an exchange.
    pub(super) fn new(waits: Arc<dyn Waits>, shortest: Option<Nanos>) -> Self {
        let mut interruptions = Interruptions {
            waits,
            median: shortest.map_or(FIRST_MEDIAN_NS, |shortest| shortest as f64),
            waited: 0,
            since: 0,
            ordinary: None,
            follows_reading: false,
            reading: 0,
            sums: Sums::default(),
        };
        interruptions.begin();
        // What is counted of the client's CPU time begins after this.
        interruptions.reading = 0;
        interruptions
    }

    /// Begins a slice: what threads waited before it is nobody's.
    pub(super) fn begin(&mut self) {
        self.read();
        self.follows_reading = false;
    }

    #[inline]
    pub(super) fn hear(&mut self, latency: Nanos) -> Heard {
        self.since += 1;
        if self.follows_reading {
            self.follows_reading = false;
            self.sums.left_out += 1;
            return Heard::Disturbed;
        }
        let longest = self.median * LONG_IN_MEDIANS;
        self.median *= if latency as f64 > self.median { STEP } else { 1.0 / STEP };
        if latency as f64 > longest {
            return self.look(latency);
        }
        self.sums.whole += 1;
        self.sums.whole_ns += latency;
        if self.since >= EXCHANGES_BETWEEN_READINGS {
            self.learn();
        }
        Heard::Whole
    }

    #[cold]
    fn look(&mut self, latency: Nanos) -> Heard {
        let ordinary = self.ordinary.unwrap_or(0.0) * self.since as f64;
        let waited = self.read() as f64 - ordinary;
        if waited < latency as f64 / 2.0 {
            self.sums.whole += 1;
            self.sums.whole_ns += latency;
            return Heard::Whole;
        }
        self.sums.interrupted += 1;
        self.sums.left_out += 1;
        Heard::Interrupted
    }

    /// Learns how long an exchange waits ordinarily: the least that was seen. Called at the end of a slice, too.
    #[cold]
    pub(super) fn learn(&mut self) {
        let exchanges = self.since;
        let waited = self.read() as f64 / exchanges.max(1) as f64;
        if exchanges >= MIN_EXCHANGES {
            self.ordinary = Some(self.ordinary.map_or(waited, |least| least.min(waited)));
        }
    }

    /// Reads the waits; returns how much they have grown since the last reading.
    fn read(&mut self) -> u64 {
        let before = thread_cpu_ns();
        let waited = self.waits.waited_ns();
        self.reading += thread_cpu_ns().saturating_sub(before);
        let grown = waited.saturating_sub(self.waited);
        (self.waited, self.since, self.follows_reading) = (waited, 0, true);
        grown
    }

    /// CPU time of this thread that the readings took, in nanoseconds. It is not the client's, and is subtracted from it.
    pub(super) fn reading_ns(&self) -> Nanos {
        self.reading
    }
}

impl Sums {
    /// Mean latency of the exchanges that were not interrupted, in nanoseconds; `None` without any.
    pub(super) fn mean(&self) -> Option<f64> {
        (self.whole > 0).then(|| self.whole_ns as f64 / self.whole as f64)
    }

    /// Part of all exchanges that was interrupted, in percent; `None` without any.
    pub(super) fn interrupted_percent(&self) -> Option<f64> {
        let all = self.whole + self.left_out;
        (all > 0).then(|| 100.0 * self.interrupted as f64 / all as f64)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use super::*;

    /// Waits that a test sets.
    #[derive(Clone, Default)]
    struct Scripted(Arc<AtomicU64>);

    impl Scripted {
        fn grow(&self, by: u64) {
            self.0.fetch_add(by, Ordering::Relaxed);
        }
    }

    impl Waits for Scripted {
        fn waited_ns(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
    }

    /// After a warm-up whose shortest exchange took 1,000 ns.
    fn started(waits: &Scripted) -> Interruptions {
        Interruptions::new(Arc::new(waits.clone()), Some(1000))
    }

    #[test]
    fn what_waited_for_a_cpu_is_left_out_and_what_was_only_slow_counts() {
        let waits = Scripted::default();
        let mut interruptions = started(&waits);
        assert_eq!(interruptions.hear(1000), Heard::Whole);
        waits.grow(4_000_000);
        assert_eq!(interruptions.hear(4_001_000), Heard::Interrupted);
        assert_eq!(interruptions.hear(9_000), Heard::Disturbed, "the waits were read in it");
        assert_eq!(interruptions.hear(40_000_000), Heard::Whole, "a delayed acknowledgement");
        assert_eq!(interruptions.hear(1000), Heard::Disturbed);
        assert_eq!(interruptions.hear(2800), Heard::Whole, "not long: nobody looks");
        let sums = interruptions.sums;
        assert_eq!((sums.whole, sums.whole_ns), (3, 40_003_800));
        assert_eq!((sums.interrupted, sums.left_out), (1, 3));
        assert_eq!(sums.interrupted_percent(), Some(100.0 / 6.0));
    }

    #[test]
    fn ordinary_waits_do_not_add_up_to_an_interruption() {
        fn wait(waits: &Scripted, interruptions: &mut Interruptions, number: u64) {
            for _ in 0..number {
                waits.grow(200);
                interruptions.hear(1000);
            }
        }
        let waits = Scripted::default();
        let mut interruptions = started(&waits);
        interruptions.begin();
        wait(&waits, &mut interruptions, 10);
        interruptions.learn();
        interruptions.begin();
        // 30 exchanges wait for 6 µs together, and a slow one of 8 µs waited for nobody.
        wait(&waits, &mut interruptions, 30);
        assert_eq!(interruptions.hear(8_000), Heard::Whole);
        // Waits of the time before a slice are not the slice's.
        waits.grow(1_000_000);
        interruptions.begin();
        assert_eq!(interruptions.hear(8_000), Heard::Whole);
    }

    #[test]
    fn without_a_warm_up_the_median_is_found_at_once() {
        let waits = Scripted::default();
        let mut interruptions = Interruptions::new(Arc::new(waits.clone()), None);
        for number in 0..2000 {
            // Every twentieth waits for 3 ms.
            let wait = if number % 20 == 19 { 3_000_000 } else { 0 };
            waits.grow(wait);
            interruptions.hear(100_000 + number % 7 * 1000 + wait);
        }
        let sums = interruptions.sums;
        assert_eq!(sums.interrupted, 100);
        let mean = sums.mean().unwrap();
        assert!((100_000.0..107_000.0).contains(&mean), "{mean}");
        let median = interruptions.median;
        assert!((90_000.0..120_000.0).contains(&median), "{median}");
    }

    #[test]
    fn a_thread_that_waits_is_seen_by_the_kernels_clock() {
        let clock = clock(Threads::list(&[std::process::id()]));
        let before = clock.waited_ns();
        // More threads than CPUs: somebody waits.
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let is_over = AtomicBool::new(false);
        let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
        std::thread::scope(|scope| {
            for _ in 0..2 * cpus {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            while clock.waited_ns() == before && std::time::Instant::now() < until {
                std::hint::spin_loop();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert!(clock.waited_ns() > before, "this thread shared its CPU with others");
    }
}
