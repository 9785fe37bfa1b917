//! A connection outside the hot path: question and answer with a limit on waiting, for handshakes, set-up and
//! evidence. Measures nothing.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use samehost_model::Endpoint;
use samehost_transport::{ConnectOptions, Stream, connect, start_tls};

use super::prove;
use crate::BenchError;

/// How long to wait for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// One connection that is asked and answers.
pub(super) struct Link {
    stream: Stream,
    endpoint: Endpoint,
    pending: Vec<u8>,
}

impl Link {
    /// Connects, and has the kernel confirm over what.
    pub(super) fn connect(endpoint: &Endpoint) -> Result<Self, BenchError> {
        let options = ConnectOptions { timeout: Some(PATIENCE), ..ConnectOptions::default() };
        let stream = connect(endpoint, &options)?;
        prove(&stream, endpoint.transport())?;
        let link = Link { stream, endpoint: endpoint.clone(), pending: Vec::new() };
        link.limit(Some(PATIENCE))?;
        Ok(link)
    }

    fn limit(&self, patience: Option<Duration>) -> Result<(), BenchError> {
        for which in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&self.stream, which, patience)
                .map_err(|error| BenchError::io(format!("limiting waits on {}", self.endpoint), error))?;
        }
        Ok(())
    }

    /// Sends something that is not answered.
    pub(super) fn tell(&mut self, words: &[u8]) -> Result<(), BenchError> {
        self.stream.write_all(words).and_then(|()| self.stream.flush()).map_err(|error| self.broken(&error))
    }

    /// Sends a question and reads until `parse` finds a whole answer: that, and how many bytes it took.
    pub(super) fn ask<T>(
        &mut self,
        question: &[u8],
        mut parse: impl FnMut(&[u8]) -> Result<Option<(T, usize)>, String>,
    ) -> Result<T, BenchError> {
        self.tell(question)?;
        let mut input = [0; 16 * 1024];
        loop {
            match parse(&self.pending) {
                Ok(Some((answer, length))) => {
                    self.pending.drain(..length);
                    return Ok(answer);
                }
                Ok(None) => {}
                Err(reason) => return Err(BenchError::lost(&self.endpoint, reason)),
            }
            match self.stream.read(&mut input) {
                Ok(0) => {
                    return Err(BenchError::lost(
                        &self.endpoint,
                        "it closed the connection without an answer",
                    ));
                }
                Ok(read) => self.pending.extend_from_slice(&input[..read]),
                Err(error) => return Err(self.broken(&error)),
            }
        }
    }

    fn broken(&self, error: &std::io::Error) -> BenchError {
        if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) {
            BenchError::Hung { endpoint: self.endpoint.to_string(), seconds: PATIENCE.as_secs_f64() }
        } else {
            BenchError::lost(&self.endpoint, error.to_string())
        }
    }

    /// Turns the connection into TLS, as MySQL and PostgreSQL do after their first messages; the endpoint is then
    /// the `tcp+tls` one.
    pub(super) fn start_tls(self, endpoint: &Endpoint) -> Result<Self, BenchError> {
        if !self.pending.is_empty() {
            return Err(BenchError::lost(endpoint, "it sent plain bytes before the TLS handshake"));
        }
        let options = ConnectOptions { timeout: Some(PATIENCE), ..ConnectOptions::default() };
        let stream = start_tls(self.stream, endpoint, &options)?;
        let link = Link { stream, endpoint: endpoint.clone(), pending: Vec::new() };
        link.limit(Some(PATIENCE))?;
        Ok(link)
    }

    /// Protocol version and cipher, where TLS is in use.
    pub(super) fn cipher(&self) -> Option<String> {
        self.stream.cipher()
    }

    /// Our own address in the kernel's words, which for TCP is what the server calls us.
    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The connection, for the engine, which has limits of its own.
    pub(super) fn into_stream(self) -> Result<Stream, BenchError> {
        self.limit(None)?;
        Ok(self.stream)
    }
}
