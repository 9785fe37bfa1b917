//! The record of a connection that both its ends share in the kernel: the moments of the exchange that goes on, and sums.
//!
//! Times have buckets besides, 16 for each octave, so that a quantile is known within 3 %. The kernel's programs compute a time's
//! bucket, and this process reads quantiles from them. A mean is exact: it is made of sums beside the buckets.

use std::f64::consts::LN_2;

use crate::map::long;
use crate::program::Arithmetic::{Add, And, Multiply, Or, ShiftLeft, ShiftRight, Subtract};
use crate::program::Register::{R1, R2, R3, R7};
use crate::program::{Assembly, Test, compute, copy, set};

/// Places of its parts, in bytes. Words of 64 bits, but for the first two.
pub(super) const PAIR: i16 = 0;
/// Which ends have been given their storage: 1 the client's, 2 the server's, 3 both. Those that need none have it.
pub(super) const NAMED: i16 = 4;

/// Moments of the exchange that goes on, in nanoseconds of the kernel's clock, 0 where there was none: the client begins to send
/// (before its first time 0 as well), that is there for the server, the server has read a first piece and begins to send, that is
/// there for the client, the client has read a first piece and, so far, a last one.
pub(super) const BEGUN: i16 = 8;
pub(super) const ARRIVED: i16 = 16;
pub(super) const TAKEN_AT: i16 = 24;
pub(super) const ANSWERED: i16 = 32;
pub(super) const RETURNED: i16 = 40;
pub(super) const READ: i16 = 48;
pub(super) const LAST: i16 = 56;

/// What is odd about this exchange: it is not one at a time; nobody knows when it began; more came long after its reply.
pub(super) const VIOLATED: i16 = 64;
pub(super) const IS_UNTIMED: i16 = 72;
pub(super) const STREAMED: i16 = 80;
/// The next piece that the client reads is one that it did not ask for.
pub(super) const PUSHED: i16 = 88;

/// Bytes: sent by the client, read by the server, sent by the server, read by the client.
pub(super) const OUT: i16 = 96;
pub(super) const TAKEN: i16 = 104;
pub(super) const BACK: i16 = 112;
pub(super) const RECEIVED: i16 = 120;

/// Numbers: exchanges one at a time, others, pieces that the client read, those that it had not asked for, exchanges without a
/// beginning.
pub(super) const EXCHANGES: i16 = 128;
pub(super) const VIOLATIONS: i16 = 136;
pub(super) const RECEIVES: i16 = 144;
pub(super) const UNASKED: i16 = 152;
pub(super) const UNTIMED: i16 = 160;

/// Sums of nanoseconds, and of how many exchanges: to the first piece, to the last one, and the five parts of the first.
pub(super) const FIRST_SUM: i16 = 168;
pub(super) const LAST_SUM: i16 = 176;
pub(super) const LASTS: i16 = 184;
pub(super) const PARTS: i16 = 192;
/// The way there, waiting, work, the way back, and the client's own delay.
pub(super) const PART_SUMS: [i16; 5] = [200, 208, 216, 224, 232];

/// Whether the server was seen to read, where ends of receives are seen as functions return.
pub(super) const SEEN_READING: i16 = 240;

/// Nanoseconds of the first exchange with a time, which no sum has, of a connection that is measured from its opening on: while it
/// waits the server takes the connection, and begins a thread or a process for it.
pub(super) const OPENING: i16 = 248;

/// The sum of [`compute_log`] of the same times as [`FIRST_SUM`], of a connection that is measured from its opening on.
pub(super) const LOG_SUM: i16 = 256;

pub(super) const BYTES: usize = 264;

pub(super) struct Record(Vec<u8>);

impl Record {
    /// `None` for bytes that are too few.
    pub(super) fn new(bytes: Vec<u8>) -> Option<Self> {
        if bytes.len() >= BYTES { Some(Record(bytes)) } else { None }
    }

    pub(super) fn at(&self, place: i16) -> u64 {
        long(&self.0, place as usize)
    }

    /// Exchanges that have a time and that another followed.
    pub(super) fn timed(&self) -> u64 {
        self.at(EXCHANGES) - self.at(UNTIMED).min(self.at(EXCHANGES))
    }

    /// The sum of the natural logarithms of the nanoseconds in [`FIRST_SUM`], of a connection that is measured from its opening on.
    pub(super) fn log_sum(&self) -> f64 {
        self.at(LOG_SUM) as f64 / f64::from(LOG_STEPS) * LN_2
    }

    /// The first exchange of a connection that is measured from its opening on; `None` of others, and where no other followed it.
    pub(super) fn opening(&self) -> Option<u64> {
        Some(self.at(OPENING)).filter(|nanoseconds| *nanoseconds > 0)
    }

    pub(super) fn is_named(&self) -> bool {
        self.0[NAMED as usize..NAMED as usize + 4] == 3_u32.to_ne_bytes()
    }

    /// Nanoseconds of the exchange that has its reply and that no other followed, for which the programs wait to count it.
    pub(super) fn unfinished(&self) -> Option<Unfinished> {
        let (begun, read) = (self.at(BEGUN), self.at(READ));
        if begun == 0 || read <= begun || self.at(VIOLATED) != 0 {
            return None;
        }
        let is_timed = self.at(IS_UNTIMED) == 0;
        let parts = if is_timed { self.parts() } else { None };
        Some(Unfinished { nanoseconds: if is_timed { Some(read - begun) } else { None }, parts })
    }

    /// The parts of the exchange that goes on, as the programs count them: if all moments are known and follow each other.
    fn parts(&self) -> Option<[u64; 5]> {
        let moments = [BEGUN, ARRIVED, TAKEN_AT, ANSWERED, RETURNED, READ].map(|place| self.at(place));
        let [begun, arrived, taken, answered, returned, read] = moments;
        // A reader on another processor may have it before the sender says that it is there.
        let (arrived, returned) = (arrived.min(taken), returned.min(read));
        if moments.contains(&0) || arrived < begun || answered < taken || returned < answered {
            return None;
        }
        Some([arrived - begun, taken - arrived, answered - taken, returned - answered, read - returned])
    }
}

/// An exchange that no other followed.
pub(super) struct Unfinished {
    /// `None` where nobody knows when it began.
    pub(super) nanoseconds: Option<u64>,
    pub(super) parts: Option<[u64; 5]>,
}

/// A record without anything but its pair, and which ends have their storage, as [`NAMED`] says it.
pub(super) fn begun(pair: u32, named: u32) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes[PAIR as usize..4].copy_from_slice(&pair.to_ne_bytes());
    bytes[NAMED as usize..NAMED as usize + 4].copy_from_slice(&named.to_ne_bytes());
    bytes
}

/// Buckets of a pair's times: 16 an octave up to 34 s, with the rank's place within its bucket, which is
/// within 3 %. Eight an octave were rejected: ±6 % is more than what is promised. Events in a ring,
/// counted outside, were rejected as well: at 100,000 requests a second that is what other tools cost,
/// and here sums and buckets stay in the kernel (docs/decisions/0134).
pub(crate) const BUCKETS: usize = 512;
/// Buckets of an octave, and the logarithm of that to base two.
const EACH: u64 = 16;
const EACH_LOG: i32 = 4;
/// Times of 2³⁵ ns, 34 s, and more are in the last one.
const LONGEST_LOG: i32 = 35;

/// Computes in `R2` the logarithm to base two of `R7`, rounded down, and uses up `R1` and `R3`: halves that are empty are left out.
fn compute_octave(program: &mut Assembly) {
    program.put([copy(R1, R7), set(R2, 0)]);
    for half in [32, 16, 8, 4, 2, 1] {
        let is_empty = program.label();
        program.put([copy(R3, R1), compute(R3, ShiftRight, half)]);
        program.go_if(R3, Test::Is, 0, is_empty);
        program.put([compute(R2, Add, half), copy(R1, R3)]);
        program.place(is_empty);
    }
}

/// Computes in `R2` the bucket of the nanoseconds in `R7`, and uses up `R1`, `R3` and `R7`. BPF has no
/// instruction for a logarithm: six halvings find the octave, and the bits below its first one are the step within.
pub(crate) fn compute_bucket(program: &mut Assembly) {
    let (fits, is_small, done) = (program.label(), program.label(), program.label());
    program.put([set(R1, 1), compute(R1, ShiftLeft, LONGEST_LOG), compute(R1, Subtract, 1)]);
    program.go_if(R7, Test::IsAtMost, R1, fits);
    program.put([copy(R7, R1)]);
    program.place(fits);
    compute_octave(program);
    program.go_if(R2, Test::IsLess, EACH_LOG, is_small);
    program.put([copy(R3, R2), compute(R3, Subtract, EACH_LOG), compute(R7, ShiftRight, R3)]);
    program.put([compute(R7, And, EACH as i32 - 1), compute(R2, Subtract, EACH_LOG - 1)]);
    program.put([compute(R2, ShiftLeft, EACH_LOG), compute(R2, Or, R7)]);
    program.go(done);
    program.place(is_small);
    program.put([copy(R2, R7)]);
    program.place(done);
    // The verifier wants to see it.
    program.put([compute(R2, And, BUCKETS as i32 - 1)]);
}

/// Bits behind the point of a logarithm of a time: steps of 1/1024 of an octave.
/// A connection's value in a trial is the mean of its exchanges' logarithms, summed in the kernel as they
/// end. The buckets of a histogram are too wide for that: 6 %, where 5 % are looked for. The logarithm of
/// the plain mean, which needed no logarithm here, was the value before and scatters more
/// (docs/method.md §17).
const LOG_BITS: u32 = 10;
const LOG_STEPS: u32 = 1 << LOG_BITS;

/// Computes in `R2` the logarithm to base two of the nanoseconds in `R7`, in steps of 1/1024 and rounded down, and uses up `R1`, `R3`
/// and `R7`.
///
/// A connection's times are known by their logarithms, and a bucket is too wide for that: 6 %, where 5 % are looked for. Each bit
/// behind the point takes a square: that of 1.5 is 2.25, so that its logarithm is more than a half. A parabola through both ends of
/// an octave takes a third of the instructions, and makes 4.5 to 5.2 % of 5 %, by where in its octave a time lies.
pub(super) fn compute_log(program: &mut Assembly) {
    compute_octave(program);
    // From 1 to below 2, with 31 bits behind the point.
    program.put([set(R3, 63), compute(R3, Subtract, R2)]);
    program.put([compute(R7, ShiftLeft, R3), compute(R7, ShiftRight, 32)]);
    for _ in 0..LOG_BITS {
        program.put([compute(R7, Multiply, R7), copy(R3, R7), compute(R3, ShiftRight, 63)]);
        program.put([compute(R7, ShiftRight, 31), compute(R7, ShiftRight, R3)]);
        program.put([compute(R2, ShiftLeft, 1), compute(R2, Or, R3)]);
    }
}

/// Nanoseconds at which a bucket begins. The first 16 are a nanosecond wide.
fn begin(bucket: usize) -> u64 {
    let (octave, step) = (bucket as u64 / EACH, bucket as u64 % EACH);
    match octave.checked_sub(1) {
        None => step,
        Some(times) => (EACH + step) << times,
    }
}

/// The bucket of a time in nanoseconds, as [`compute_bucket`] computes it in the kernel.
pub(crate) fn bucket(nanoseconds: u64) -> usize {
    let time = nanoseconds.min((1 << LONGEST_LOG) - 1);
    if time < EACH {
        return time as usize;
    }
    let log = time.ilog2() as usize;
    let step = (time >> (log - EACH_LOG as usize)) & (EACH - 1);
    (log - EACH_LOG as usize + 1) * EACH as usize + step as usize
}

/// How many of the counted times are at most so many nanoseconds, within 3 %: those in the bucket of the bound count if more than
/// half of the bucket lies below it.
pub(crate) fn at_most(counts: &[u64], nanoseconds: u64) -> u64 {
    let nanoseconds = nanoseconds.min((1 << LONGEST_LOG) - 1);
    let last = bucket(nanoseconds);
    let is_below = 2 * nanoseconds >= begin(last) + begin(last + 1);
    counts.iter().take(last + usize::from(is_below)).sum()
}

/// The nanoseconds below which this part of all counted times lies, 0 to 1, as if times lay evenly within their bucket; `None`
/// without any.
pub(crate) fn quantile(counts: &[u64], part: f64) -> Option<f64> {
    let all: u64 = counts.iter().sum();
    let rank = part * all as f64;
    let mut below = 0;
    for (bucket, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let is_here = (below + count) as f64 >= rank;
        if is_here {
            let within = ((rank - below as f64) / *count as f64).clamp(0.0, 1.0);
            let (first, next) = (begin(bucket) as f64, begin(bucket + 1) as f64);
            return Some(first + within * (next - first));
        }
        below += count;
    }
    None
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::os::fd::{AsRawFd, OwnedFd};

    use super::*;
    use crate::call;
    use crate::program::Register::{R0, R1};
    use crate::program::{end, load_long, load_of_kind};

    /// `BPF_PROG_TYPE_RAW_TRACEPOINT`, which the kernel runs for a test with arguments that it is given.
    const RAW_TRACEPOINT: u32 = 17;

    /// Argument of [`call::PROGRAM_TEST`].
    #[derive(Default)]
    #[repr(C)]
    struct ProgramTest {
        program: u32,
        /// The kernel writes it.
        result: Cell<u32>,
        bytes: [u32; 2],
        data: [u64; 2],
        repeat: u32,
        duration: Cell<u32>,
        context_bytes: [u32; 2],
        context: [u64; 2],
        flags: u32,
        processor: u32,
    }

    fn loaded(program: Assembly) -> OwnedFd {
        load_of_kind(RAW_TRACEPOINT, (0, 0), &program.finish(), &mut []).expect("bpf(2) needs root")
    }

    fn run(program: &impl AsRawFd, argument: u64) -> u32 {
        let arguments = [argument];
        let test = ProgramTest {
            program: program.as_raw_fd() as u32,
            context_bytes: [8, 0],
            context: [arguments.as_ptr() as u64, 0],
            ..ProgramTest::default()
        };
        // SAFETY: the kernel reads the arguments, which live until this returns, and writes numbers into `test`, of which only
        // the cell is read afterwards.
        unsafe { call::bpf(call::PROGRAM_TEST, &test) }.expect("it runs");
        test.result.get()
    }

    #[test]
    fn the_kernel_and_this_process_agree_on_each_bucket_as_root() {
        let mut program = Assembly::default();
        program.put([load_long(R7, R1, 0)]);
        compute_bucket(&mut program);
        program.put([copy(R0, R2), end()]);
        let program = loaded(program);
        let mut times: Vec<u64> = (0..200).chain([u64::MAX, 1 << 35, (1 << 35) - 1]).collect();
        times.extend((4..64).flat_map(|log| [(1 << log) - 1, 1 << log, (1 << log) + (1 << (log - 1)) + 1]));
        for time in times {
            assert_eq!(run(&program, time) as usize, bucket(time), "{time} ns");
        }
    }

    #[test]
    fn the_kernel_has_the_logarithm_of_each_time_within_a_step_as_root() {
        let mut program = Assembly::default();
        program.put([load_long(R7, R1, 0)]);
        compute_log(&mut program);
        program.put([copy(R0, R2), end()]);
        let program = loaded(program);
        let mut times: Vec<u64> = (1..200).chain([u64::MAX, 999_999_999]).collect();
        times.extend((4..63).flat_map(|log| [(1 << log) - 1, 1 << log, (1 << log) + (1 << (log - 1)) + 1]));
        times.extend((0..400).map(|percent| 10_000 * (100 + percent) / 100));
        for time in times {
            let (found, real) = (f64::from(run(&program, time)), 1024.0 * (time as f64).log2());
            assert!(found <= real + 1e-6 && found > real - 1.001, "{time} ns: {found}, not {real}");
        }
    }

    #[test]
    fn a_bucket_holds_what_is_in_it_and_is_narrow() {
        for at in 0..BUCKETS - 1 {
            let (first, next) = (begin(at), begin(at + 1));
            assert_eq!((bucket(first), bucket(next - 1), bucket(next)), (at, at, at + 1));
            assert!(first < 16 || (next - first) as f64 / first as f64 <= 0.0625 + 1e-9, "{first} to {next}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_lie_where_the_times_are() {
        let mut counts = vec![0; BUCKETS];
        assert_eq!(quantile(&counts, 0.5), None);
        for time in 10_000..20_000 {
            counts[bucket(time)] += 1;
        }
        for time in [11_000, 15_000, 20_000] {
            let found = at_most(&counts, time) as f64;
            assert!((found - (time as f64 - 10_000.0)).abs() <= 0.032 * time as f64, "{time}: {found}");
        }
        assert_eq!((at_most(&counts, 9000), at_most(&counts, u64::MAX)), (0, 10_000));
        for part in [0.01, 0.5, 0.99, 1.0] {
            let (found, real) = (quantile(&counts, part).unwrap(), 10_000.0 + 10_000.0 * part);
            assert!((found / real - 1.0).abs() < 0.03, "{part}: {found}, not {real}");
        }
    }
}
