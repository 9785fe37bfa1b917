//! A connection that is asked and answers, with a limit on waiting: for handshakes, set-up and evidence. Knows no
//! protocol and measures nothing.

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use samehost_model::{Endpoint, Transport};
use samehost_transport::{ConnectOptions, Stream, connect, start_tls};

use crate::LoginError;

/// One connection that is asked and answers.
#[derive(Debug)]
pub struct Link {
    stream: Stream,
    endpoint: Endpoint,
    patience: Duration,
    pending: Vec<u8>,
}

/// The kernel's word that a stream is what was asked for.
///
/// # Errors
/// When it is not.
pub fn prove(stream: &Stream, asked: Transport) -> Result<(), LoginError> {
    let observed =
        stream.observed().map_err(|error| LoginError::io("asking the kernel about a socket", error))?;
    if observed.matches(asked) {
        Ok(())
    } else {
        Err(LoginError::WrongTransport { asked, observed: observed.to_string() })
    }
}

/// The endpoint that is connected to first: MySQL and PostgreSQL turn to TLS after their first
/// messages.
pub(crate) fn plain(endpoint: &Endpoint) -> Endpoint {
    match endpoint {
        Endpoint::TcpTls { host, port } => Endpoint::Tcp { host: host.clone(), port: *port },
        other => other.clone(),
    }
}

impl Link {
    /// Connects, and has the kernel confirm over what. `patience` is the longest that connecting, and then each
    /// answer, may take.
    ///
    /// # Errors
    /// When nobody can be connected to there, or it is another transport.
    pub fn connect(endpoint: &Endpoint, patience: Duration) -> Result<Self, LoginError> {
        let link = Self::open(endpoint, patience)?;
        prove(&link.stream, endpoint.transport())?;
        Ok(link)
    }

    /// Connects over whatever the endpoint turns out to mean: `localhost` may be an IPv6 address.
    pub(crate) fn open(endpoint: &Endpoint, patience: Duration) -> Result<Self, LoginError> {
        let options = ConnectOptions { timeout: Some(patience), ..ConnectOptions::default() };
        let stream = connect(endpoint, &options)?;
        let link = Link { stream, endpoint: endpoint.clone(), patience, pending: Vec::new() };
        link.limit(Some(patience))?;
        Ok(link)
    }

    fn limit(&self, patience: Option<Duration>) -> Result<(), LoginError> {
        for which in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&self.stream, which, patience)
                .map_err(|error| LoginError::io(format!("limiting waits on {}", self.endpoint), error))?;
        }
        Ok(())
    }

    /// Sends something that is not answered.
    ///
    /// # Errors
    /// When the connection broke, or nobody reads.
    pub fn tell(&mut self, words: &[u8]) -> Result<(), LoginError> {
        self.stream.write_all(words).and_then(|()| self.stream.flush()).map_err(|error| self.broken(&error))
    }

    /// Sends a question and reads until `parse` finds a whole answer: that, and how many bytes it took.
    ///
    /// # Errors
    /// When the connection broke, no whole answer came in time, or `parse` says that it is none.
    pub fn ask<T>(
        &mut self,
        question: &[u8],
        mut parse: impl FnMut(&[u8]) -> Result<Option<(T, usize)>, String>,
    ) -> Result<T, LoginError> {
        self.tell(question)?;
        let begun = Instant::now();
        let mut input = [0; 16 * 1024];
        loop {
            match parse(&self.pending) {
                Ok(Some((answer, length))) => {
                    self.pending.drain(..length);
                    return Ok(answer);
                }
                Ok(None) => {}
                Err(reason) => return Err(LoginError::strange(&self.endpoint, reason)),
            }
            match self.stream.read(&mut input) {
                Ok(0) => {
                    return Err(LoginError::lost(
                        &self.endpoint,
                        "it closed the connection without an answer",
                    ));
                }
                // One that sends a byte now and then would keep us for ever.
                Ok(_) if begun.elapsed() > 2 * self.patience => return Err(self.hung()),
                Ok(read) => self.pending.extend_from_slice(&input[..read]),
                Err(error) => return Err(self.broken(&error)),
            }
        }
    }

    fn hung(&self) -> LoginError {
        LoginError::TimedOut { endpoint: self.endpoint.to_string(), after: self.patience }
    }

    fn broken(&self, error: &std::io::Error) -> LoginError {
        if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) {
            self.hung()
        } else {
            LoginError::lost(&self.endpoint, error.to_string())
        }
    }

    /// Turns the connection into TLS, as MySQL and PostgreSQL do after their first messages; the endpoint is then
    /// the `tcp+tls` one.
    ///
    /// # Errors
    /// When the handshake fails.
    pub fn start_tls(self, endpoint: &Endpoint) -> Result<Self, LoginError> {
        if !self.pending.is_empty() {
            return Err(LoginError::lost(endpoint, "it sent plain bytes before the TLS handshake"));
        }
        let options = ConnectOptions { timeout: Some(self.patience), ..ConnectOptions::default() };
        let stream = start_tls(self.stream, endpoint, &options)?;
        let link = Link { stream, endpoint: endpoint.clone(), patience: self.patience, pending: Vec::new() };
        link.limit(Some(self.patience))?;
        Ok(link)
    }

    /// Protocol version and cipher, where TLS is in use.
    #[must_use]
    pub fn cipher(&self) -> Option<String> {
        self.stream.cipher()
    }

    /// Where the other end is; the `tcp+tls` endpoint once the connection is TLS.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The connection as it is.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The connection, for one who has limits of his own.
    ///
    /// # Errors
    /// When the limit on waiting cannot be lifted.
    pub fn into_stream(self) -> Result<Stream, LoginError> {
        self.limit(None)?;
        Ok(self.stream)
    }
}
