//! What waking two CPUs adds to an exchange between them: measured with CPUs that may sleep and with CPUs that are kept
//! from it. It says what the choice of `--awake` costs, and enters no comparison.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};

use super::awake::Awake;

/// How long each of the two is measured.
const LENGTH: Duration = Duration::from_millis(15);
/// Fewest exchanges for a median.
const LEAST: usize = 50;

/// Microseconds that two wake-ups add to an exchange; `None` with one CPU, where CPUs cannot be kept awake, or where
/// it makes no difference.
#[must_use]
pub fn wake_up_us(cpus: &[usize]) -> Option<f64> {
    let [first, second, ..] = *cpus else { return None };
    let asleep = exchange_us(first, second)?;
    let kept = Awake::keep(&[first, second]).ok()?;
    let awake = exchange_us(first, second)?;
    drop(kept);
    (asleep > awake).then_some(asleep - awake)
}

/// The median time of an exchange between two threads, each of which sleeps while the other works.
fn exchange_us(first: usize, second: usize) -> Option<f64> {
    let ((asked, ask), (answered, answer)) = (pipe().ok()?, pipe().ok()?);
    let answering = spawn(second, move || answer_all(asked, answer))?;
    let asking = spawn(first, move || ask_for(LENGTH, ask, answered))?;
    let mut times = asking.join().ok()?;
    answering.join().ok()?;
    times.sort_by(f64::total_cmp);
    (times.len() >= LEAST).then(|| times[times.len() / 2])
}

/// Asks until the time is over; the times of all exchanges, in microseconds. The other end sees the end of the pipe.
fn ask_for(length: Duration, mut ask: PipeWriter, mut answered: PipeReader) -> Vec<f64> {
    let (begun, mut times, mut byte) = (Instant::now(), Vec::new(), [0]);
    while begun.elapsed() < length {
        let sent = Instant::now();
        if ask.write_all(&byte).is_err() || answered.read_exact(&mut byte).is_err() {
            break;
        }
        times.push(sent.elapsed().as_secs_f64() * 1e6);
    }
    times
}

fn answer_all(mut asked: PipeReader, mut answer: PipeWriter) {
    let mut byte = [0];
    while asked.read_exact(&mut byte).is_ok() && answer.write_all(&byte).is_ok() {}
}

/// A thread on this CPU.
fn spawn<T: Send + 'static>(cpu: usize, work: impl FnOnce() -> T + Send + 'static) -> Option<JoinHandle<T>> {
    Builder::new()
        .name("wakes".into())
        .spawn(move || {
            let mut only = CpuSet::new();
            only.set(cpu);
            if let Err(error) = sched_setaffinity(None, &only) {
                tracing::debug!(%error, cpu, "a thread could not be pinned");
            }
            work()
        })
        .ok()
}

#[cfg(test)]
mod tests {
    use super::super::placement::allowed_cpus;
    use super::*;

    #[test]
    fn an_exchange_takes_some_microseconds_and_one_cpu_has_none() {
        if let [first, second, ..] = allowed_cpus()[..] {
            // Beside other work one try may have too few exchanges.
            let mut tries = (0..100).filter_map(|_| exchange_us(first, second));
            let found = tries.next().expect("50 exchanges within 15 ms, once in a hundred times");
            assert!(found > 0.0, "{found}");
        }
        assert_eq!(wake_up_us(&[0]), None);
    }
}
