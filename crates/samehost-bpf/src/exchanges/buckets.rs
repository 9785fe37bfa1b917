//! Buckets of times: 16 for each octave, so that a time is known within 3 %. The kernel's programs compute a time's bucket, and
//! this process reads quantiles from them.
//!
//! 8 buckets an octave were tried: ±6 % is more than the 5 % within which a time is promised. A mean is exact: it is made of
//! sums beside the buckets.

use crate::assembly::Assembly;
use crate::instruction::Arithmetic::{Add, And, Or, ShiftLeft, ShiftRight, Subtract};
use crate::instruction::Register::{R1, R2, R3, R7};
use crate::instruction::{Test, compute, copy, set};

/// How many there are.
pub(crate) const BUCKETS: usize = 512;
/// Buckets of an octave, and the logarithm of that.
const EACH: u64 = 16;
const EACH_LOG: i32 = 4;
/// Times of 2³⁵ ns, 34 s, and more are in the last one.
const LONGEST_LOG: i32 = 35;

/// Computes in `R2` the bucket of the nanoseconds in `R7`, and uses up `R1`, `R3` and `R7`.
pub(crate) fn compute_bucket(program: &mut Assembly) {
    let (fits, is_small, done) = (program.label(), program.label(), program.label());
    program.put([set(R1, 1), compute(R1, ShiftLeft, LONGEST_LOG), compute(R1, Subtract, 1)]);
    program.go_if(R7, Test::IsAtMost, R1, fits);
    program.put([copy(R7, R1)]);
    program.place(fits);
    // The logarithm to base two, rounded down: halves that are empty are left out.
    program.put([copy(R1, R7), set(R2, 0)]);
    for half in [32, 16, 8, 4, 2, 1] {
        let is_empty = program.label();
        program.put([copy(R3, R1), compute(R3, ShiftRight, half)]);
        program.go_if(R3, Test::Is, 0, is_empty);
        program.put([compute(R2, Add, half), copy(R1, R3)]);
        program.place(is_empty);
    }
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

/// Nanoseconds at which a bucket begins.
fn begin(bucket: usize) -> u64 {
    let (octave, step) = (bucket as u64 / EACH, bucket as u64 % EACH);
    match octave.checked_sub(1) {
        None => step,
        Some(times) => (EACH + step) << times,
    }
}

/// The bucket of a time, in nanoseconds.
pub(crate) fn bucket(nanoseconds: u64) -> usize {
    let time = nanoseconds.min((1 << LONGEST_LOG) - 1);
    if time < EACH {
        return time as usize;
    }
    let log = time.ilog2() as usize;
    let step = (time >> (log - EACH_LOG as usize)) & (EACH - 1);
    (log - EACH_LOG as usize + 1) * EACH as usize + step as usize
}

/// How many times are at most so many nanoseconds; one in the bucket of the bound counts if more of the bucket is below it.
pub(crate) fn at_most(counts: &[u64], nanoseconds: u64) -> u64 {
    let nanoseconds = nanoseconds.min((1 << LONGEST_LOG) - 1);
    let last = bucket(nanoseconds);
    let is_below = 2 * nanoseconds >= begin(last) + begin(last + 1);
    counts.iter().take(last + usize::from(is_below)).sum()
}

/// The nanoseconds below which this part of all times lies, 0 to 1; `None` without any.
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
    use crate::instruction::Register::{R0, R1};
    use crate::instruction::{end, load_long};

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
        let instructions = program.finish();
        let argument = call::ProgramLoad {
            kind: RAW_TRACEPOINT,
            instructions: instructions.len() as u32,
            first: instructions.as_ptr() as u64,
            license: c"Dual MIT/GPL".as_ptr() as u64,
            log_level: 0,
            log_bytes: 0,
            log: 0,
            kernel_version: 0,
            flags: 0,
            name: [0; 16],
            interface: 0,
            attached_as: 0,
            types: [0; 9],
            attached_to: 0,
        };
        // SAFETY: the instructions and the text live until this returns.
        unsafe { call::open(call::PROGRAM_LOAD, &argument) }.expect("bpf(2) needs root")
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
