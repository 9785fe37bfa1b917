//! Takes datagrams and counts them, with a thread for each socket that waits in recv, as a plain statsd server does. A
//! question among the datagrams is answered with the number of those before it: a socket's queue keeps its order, so
//! whatever is not counted by then was lost.

use std::io;
use std::os::fd::AsFd;

use rustix::io::retry_on_intr;
use rustix::net::{RecvFlags, SendFlags, recvfrom, sendto};
use samehost_transport::Listener;

use super::listeners::in_threads;
use super::responder::{Echo, Responder};
use super::{Listening, ServeOptions};
use crate::error::BenchError;

/// How a question begins. A number of 8 bytes follows, which the answer repeats, so that a late answer is not taken for
/// that to a later question.
const QUESTION: &[u8; 24] = b"samehost: how many came?";
const ASKED: usize = QUESTION.len() + 8;
const BUFFER: usize = 64 * 1024;

pub(crate) fn question(number: u64) -> Vec<u8> {
    [&QUESTION[..], &number.to_le_bytes()].concat()
}

/// The number of datagrams in the answer to the question with this number; `None` for the answer to another one.
pub(crate) fn count_in(answer: &[u8], number: u64) -> Option<u64> {
    let (asked, count) = answer.split_first_chunk::<8>()?;
    if u64::from_le_bytes(*asked) != number {
        return None;
    }
    Some(u64::from_le_bytes(count.try_into().ok()?))
}

/// The answer to a datagram, if it is a question.
fn answer(datagram: &[u8], count: u64) -> Option<Vec<u8>> {
    if datagram.len() != ASKED {
        return None;
    }
    let number = datagram.strip_prefix(QUESTION)?;
    Some([number, &count.to_le_bytes()].concat())
}

pub(super) fn serve(listening: &Listening, _: &ServeOptions) -> Result<(), BenchError> {
    in_threads(listening, &|listener| take(listener, listening))
        .map_err(BenchError::during("receiving datagrams"))
}

fn take(listener: &Listener, listening: &Listening) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    let (mut count, mut work) = (0, Echo::default());
    loop {
        let (length, _, from) =
            retry_on_intr(|| recvfrom(listener.as_fd(), &mut buffer[..], RecvFlags::empty()))?;
        // After shutdown(2) there is nothing more; an empty datagram looks the same.
        if length == 0 && listening.is_stopped() {
            return Ok(());
        }
        if let (Some(answer), Some(from)) = (answer(&buffer[..length], count), from) {
            if let Err(error) = sendto(listener.as_fd(), &answer, SendFlags::DONTWAIT, &from) {
                tracing::debug!(%error, "nobody took an answer");
            }
            continue;
        }
        count += 1;
        work.respond(&buffer[..length]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_answered_and_metrics_are_not() {
        let asked = question(7);
        let answered = answer(&asked, 1000).unwrap();
        assert_eq!((count_in(&answered, 7), count_in(&answered, 8)), (Some(1000), None));
        assert_eq!(answer(b"requests:1|c", 5), None);
        assert_eq!(answer(&asked[..ASKED - 1], 5), None);
        assert_eq!(count_in(&answered[..15], 7), None);
    }
}
