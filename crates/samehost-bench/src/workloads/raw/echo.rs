//! The echo session: a message of fixed size that starts with a running number, and the same message back.

use crate::builtin_servers::MARK;
use crate::engine::session::{Bad, Progress, Session};

/// Session on one connection.
#[derive(Debug)]
pub(in crate::workloads) struct EchoSession {
    message: Vec<u8>,
    number: u64,
    /// Correct bytes of the current reply so far.
    received: usize,
}

impl EchoSession {
    /// A session with messages of `size` bytes.
    pub(in crate::workloads) fn new(size: usize) -> Self {
        let message = (0..size).map(|i| (i % 251) as u8).collect();
        EchoSession { message, number: 0, received: 0 }
    }

    /// Marks the messages, so that a server with work does more of it.
    pub(in crate::workloads) fn marked(mut self) -> Self {
        if let Some(last) = self.message.last_mut() {
            *last = MARK;
        }
        self
    }
}

impl Session for EchoSession {
    fn request(&mut self, out: &mut Vec<u8>) {
        self.number += 1;
        self.received = 0;
        let head = self.message.len().min(8);
        self.message[..head].copy_from_slice(&self.number.to_le_bytes()[..head]);
        out.extend_from_slice(&self.message);
    }

    fn response(&mut self, input: &[u8]) -> Result<Progress, Bad> {
        let rest = &self.message[self.received..];
        let length = input.len().min(rest.len());
        if input[..length] != rest[..length] {
            return Err(Bad::new("wrong echo", format!("after {} right bytes", self.received)));
        }
        self.received += length;
        Ok(if self.received == self.message.len() {
            Progress::Complete { consumed: length }
        } else {
            Progress::More { consumed: length }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_may_come_in_pieces_and_must_be_right() {
        let mut session = EchoSession::new(20);
        let mut out = Vec::new();
        session.request(&mut out);
        assert_eq!(out.len(), 20);
        assert_eq!(session.response(&out[..7]), Ok(Progress::More { consumed: 7 }));
        assert_eq!(session.response(&out[7..]), Ok(Progress::Complete { consumed: 13 }));
        let earlier = out.clone();
        out.clear();
        session.request(&mut out);
        assert_eq!(session.response(&earlier).unwrap_err().kind, "wrong echo", "the number differs");
    }

    #[test]
    fn a_mark_stays_whatever_the_number() {
        let (mut plain, mut marked) = (EchoSession::new(20), EchoSession::new(20).marked());
        for _ in 0..300 {
            let (mut a, mut b) = (Vec::new(), Vec::new());
            plain.request(&mut a);
            marked.request(&mut b);
            assert_eq!((a.last() == Some(&MARK), b.last() == Some(&MARK)), (false, true));
            assert_eq!(marked.response(&b), Ok(Progress::Complete { consumed: 20 }));
        }
    }

    #[test]
    fn more_than_was_asked_for_is_not_consumed() {
        let mut session = EchoSession::new(3);
        let mut out = Vec::new();
        session.request(&mut out);
        out.push(9);
        assert_eq!(session.response(&out), Ok(Progress::Complete { consumed: 3 }));
    }
}
