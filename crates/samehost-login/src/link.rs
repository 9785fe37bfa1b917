//! A request/reply connection with time limits, for handshakes, set-up and evidence. Knows no protocol and
//! measures nothing.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use rustix::net::RecvFlags;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use samehost_model::{Endpoint, Transport};
use samehost_system::interrupt;
use samehost_transport::{ConnectOptions, Stream, connect, start_tls};

use crate::error::{LoginError, Malformed};
use crate::expected::Expected;
use crate::tie::tie;

/// Most bytes of an answer during a login; replies have some hundred.
const MOST_IN_LOGIN: usize = 1 << 20;
/// Most bytes of an answer after the login. The longest that is asked for is a page over FastCGI, or the list of a server's
/// clients (2 MB for 10,000). A parsed answer takes several times its bytes; with this much, 64 MiB hold all of it whatever a
/// server sends (`hostile`, answers). It was 64 MiB for the bytes alone, which made 500 of them as an array of Redis.
const MOST: usize = 8 << 20;
/// Longest wait without a look whether the user interrupts.
const GLANCE: Duration = Duration::from_millis(100);

/// A connection with TLS, as the server sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encrypted {
    pub port: u16,
    /// Version and cipher; the version alone, or nothing, where the server says no more.
    pub tls: String,
}

#[derive(Debug)]
pub struct Link {
    stream: Stream,
    endpoint: Endpoint,
    patience: Duration,
    /// Deadline of the whole login, however many messages it takes; `None` after the login.
    login_ends: Option<Instant>,
    /// Bytes received that no answer has taken yet.
    pending: Vec<u8>,
    most: usize,
    /// Deadline of the question that was asked last. An answer of several messages is read one by one, and has one limit in time
    /// and size all the same.
    answer_ends: Instant,
    /// Bytes of that answer so far.
    taken: usize,
    /// Network namespace of the connection; `None` for ours.
    network: Option<File>,
    is_tied: bool,
}

/// Checks with the kernel that a stream uses the transport asked for.
///
/// # Errors
/// [`LoginError::WrongTransport`] if it uses another one; `Io` if the kernel does not say.
pub fn prove(stream: &Stream, asked: Transport) -> Result<(), LoginError> {
    let observed =
        stream.observed().map_err(|error| LoginError::io("asking the kernel about a socket", error))?;
    if observed.matches(asked) {
        Ok(())
    } else {
        Err(LoginError::WrongTransport { asked, observed: observed.to_string() })
    }
}

/// The endpoint to connect to first: MySQL and PostgreSQL switch to TLS after their first messages.
pub(crate) fn plain(endpoint: &Endpoint) -> Endpoint {
    match endpoint {
        Endpoint::TcpTls { host, port } => Endpoint::Tcp { host: host.clone(), port: *port },
        other => other.clone(),
    }
}

impl Link {
    /// Closes it so that nothing is left of it at the server: an end that the server has not closed yet counts as a client's.
    pub fn abort(self) {
        let _ = rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO));
    }

    /// Connects without a login, and checks the transport with the kernel. `patience` limits the time to connect, and then
    /// the time of each reply.
    ///
    /// # Errors
    /// When connecting fails, or the transport is another one.
    pub fn connect(endpoint: &Endpoint, patience: Duration) -> Result<Self, LoginError> {
        let mut link = Self::proven(endpoint, patience)?;
        link.let_in();
        Ok(link)
    }

    /// The same for a login, which may take `patience` in all.
    pub(crate) fn proven(endpoint: &Endpoint, patience: Duration) -> Result<Self, LoginError> {
        let link = Self::open(endpoint, patience)?;
        prove(&link.stream, endpoint.transport())?;
        Ok(link)
    }

    /// Connects for a login that may take `patience` in all, over whatever transport the endpoint resolves
    /// to: `localhost` may be an IPv6 address.
    pub(crate) fn open(endpoint: &Endpoint, patience: Duration) -> Result<Self, LoginError> {
        let ends = Instant::now() + patience;
        let options = ConnectOptions { timeout: Some(patience), ..ConnectOptions::default() };
        let stream = connect(endpoint, &options)?;
        Ok(Self::over(stream, endpoint, patience, ends, None))
    }

    /// Starts a login over an existing connection, until the deadline.
    pub(crate) fn over(
        stream: Stream,
        endpoint: &Endpoint,
        patience: Duration,
        ends: Instant,
        network: Option<File>,
    ) -> Self {
        Link {
            stream,
            endpoint: endpoint.clone(),
            patience,
            login_ends: Some(ends),
            pending: Vec::new(),
            most: MOST,
            answer_ends: ends,
            taken: 0,
            network,
            is_tied: false,
        }
    }

    /// Ends the login: from now on each reply has its own time limit.
    pub(crate) fn let_in(&mut self) {
        self.login_ends = None;
    }

    /// Raises the limit of answers, for one that is known to have this many bytes; the protocol may add as many.
    pub fn expect(&mut self, bytes: usize) {
        self.most = self.most.max(bytes.saturating_mul(2));
    }

    /// Whether bytes are there that no question has asked for. Over TLS only those that were read already
    /// count.
    pub(crate) fn has_unasked(&self) -> bool {
        if !self.pending.is_empty() || self.stream.cipher().is_some() {
            return !self.pending.is_empty();
        }
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        rustix::net::recv(&self.stream, &mut [0; 1], flags).is_ok_and(|(_, length)| length > 0)
    }

    pub(crate) fn is_in_login(&self) -> bool {
        self.login_ends.is_some()
    }

    /// Verifies the peer, once. Nothing secret is sent before.
    pub(crate) fn tie(&mut self, expected: &Expected) -> Result<(), LoginError> {
        if !self.is_tied {
            let endpoint = self.endpoint.to_string();
            tie(&self.stream, self.network.as_ref(), expected, &endpoint, self.ends())?;
            self.is_tied = true;
        }
        Ok(())
    }

    fn ends(&self) -> Instant {
        let ends = Instant::now() + self.patience;
        match self.login_ends {
            Some(login) => login.min(ends),
            None => ends,
        }
    }

    /// Limits the next call to the interval between two checks for a signal.
    fn limit(&self, which: Timeout, ends: Instant) -> Result<(), LoginError> {
        if interrupt::is_requested() {
            return Err(LoginError::interrupted(&self.endpoint));
        }
        let left = ends.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(self.hung());
        }
        // The kernel takes less than a microsecond as 0, which means no limit.
        self.set_limit(which, Some(left.clamp(Duration::from_micros(1), GLANCE)))
    }

    fn set_limit(&self, which: Timeout, limit: Option<Duration>) -> Result<(), LoginError> {
        set_socket_timeout(&self.stream, which, limit)
            .map_err(|error| LoginError::io(format!("limiting waits on {}", self.endpoint), error))
    }

    pub fn tell(&mut self, words: &[u8]) -> Result<(), LoginError> {
        let ends = self.ends();
        self.send(words, ends)
    }

    fn send(&mut self, mut words: &[u8], ends: Instant) -> Result<(), LoginError> {
        while !words.is_empty() {
            self.limit(Timeout::Send, ends)?;
            match self.stream.write(words) {
                Ok(0) => return Err(LoginError::lost(&self.endpoint, "it takes no more bytes")),
                Ok(written) => words = &words[written..],
                Err(error) if is_wait(&error) => {}
                Err(error) => return Err(self.broken(&error)),
            }
        }
        loop {
            self.limit(Timeout::Send, ends)?;
            match self.stream.flush() {
                Err(error) if is_wait(&error) => {}
                other => return other.map_err(|error| self.broken(&error)),
            }
        }
    }

    /// Sends a request and reads until `parse` finds a complete reply. `parse` gets all bytes received so far, and returns
    /// the reply with its length in bytes, or `None` while it is incomplete. Bytes after the reply are kept for the next one.
    /// An empty request asks for the next message of the answer to the one before, within the same limits.
    ///
    /// # Errors
    /// When the connection broke, the reply did not arrive in time or is too long, or `parse` refuses it.
    pub fn ask<T>(
        &mut self,
        question: &[u8],
        mut parse: impl FnMut(&[u8]) -> Result<Option<(T, usize)>, Malformed>,
    ) -> Result<T, LoginError> {
        if !question.is_empty() {
            (self.answer_ends, self.taken) = (self.ends(), 0);
        }
        let ends = self.answer_ends;
        self.send(question, ends)?;
        let most = if self.login_ends.is_some() { MOST_IN_LOGIN } else { self.most };
        let mut input = [0; 16 * 1024];
        loop {
            match parse(&self.pending) {
                Ok(Some((answer, length))) => {
                    self.pending.drain(..length.min(self.pending.len()));
                    return Ok(answer);
                }
                Ok(None) => {}
                Err(reason) => return Err(LoginError::strange(&self.endpoint, reason)),
            }
            if self.taken > most {
                let reason = format!("an answer of more than {most} bytes");
                return Err(LoginError::strange(&self.endpoint, reason));
            }
            let read = self.receive(&mut input, ends)?;
            self.taken += read;
            self.pending.extend_from_slice(&input[..read]);
        }
    }

    fn receive(&mut self, input: &mut [u8], ends: Instant) -> Result<usize, LoginError> {
        self.stream.set_deadline(Some(ends));
        loop {
            self.limit(Timeout::Recv, ends)?;
            match self.stream.read(input) {
                Ok(0) => {
                    return Err(LoginError::lost(
                        &self.endpoint,
                        "it closed the connection without an answer",
                    ));
                }
                Ok(read) => return Ok(read),
                Err(error) if is_wait(&error) => {}
                Err(error) => return Err(self.broken(&error)),
            }
        }
    }

    fn hung(&self) -> LoginError {
        LoginError::TimedOut { endpoint: self.endpoint.to_string(), after: self.patience }
    }

    fn broken(&self, error: &io::Error) -> LoginError {
        LoginError::lost(&self.endpoint, error.to_string())
    }

    /// Switches the connection to TLS, as MySQL and PostgreSQL do after their first messages; `endpoint` is
    /// then the `tcp+tls` one.
    ///
    /// # Errors
    /// When the handshake fails.
    pub fn start_tls(self, endpoint: &Endpoint) -> Result<Self, LoginError> {
        if !self.pending.is_empty() {
            return Err(LoginError::lost(endpoint, "it sent plain bytes before the TLS handshake"));
        }
        let left = self.ends().saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        for which in [Timeout::Recv, Timeout::Send] {
            self.set_limit(which, None)?;
        }
        let options = ConnectOptions { timeout: Some(left), ..ConnectOptions::default() };
        let stream = start_tls(self.stream, endpoint, &options)?;
        Ok(Link { stream, endpoint: endpoint.clone(), ..self })
    }

    /// TLS version and cipher; `None` without TLS.
    #[must_use]
    pub fn cipher(&self) -> Option<String> {
        self.stream.cipher()
    }

    /// Endpoint of the peer; the `tcp+tls` one once TLS is in use.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    #[must_use]
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The connection without time limits, for a caller with its own.
    pub fn into_stream(mut self) -> Result<Stream, LoginError> {
        for which in [Timeout::Recv, Timeout::Send] {
            self.set_limit(which, None)?;
        }
        self.stream.set_deadline(None);
        Ok(self.stream)
    }
}

/// Whether a call ended because of the interval between checks, or a signal.
fn is_wait(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// Replays recorded server messages, unchanged or mutated, and hangs up: for tests of whole logins against
/// hostile bytes.
#[cfg(test)]
pub(crate) mod replayed {
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Most bytes sent at once: they fit into a socket's buffer without a reader.
    const MOST: usize = 64 * 1024;
    /// Time limit of a login that waits for nothing.
    const ENOUGH: Duration = Duration::from_secs(60);

    pub(crate) fn endpoint() -> Endpoint {
        "unix:/recorded".parse().unwrap()
    }

    /// Runs a login against these bytes, with a peer that counts as tied. Checks that it ends, and that its result is no
    /// longer than the bytes, escaped.
    pub(crate) fn login<T: std::fmt::Debug>(
        bytes: &[u8],
        login: impl FnOnce(Link) -> Result<T, LoginError>,
    ) -> Result<T, LoginError> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(&bytes[..bytes.len().min(MOST)]).unwrap();
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        let stream = Stream::from_fd(ours.into(), Transport::Unix);
        let begun = Instant::now();
        let link = Link::over(stream, &endpoint(), ENOUGH, begun + ENOUGH, None);
        let result = login(Link { is_tied: true, ..link });
        assert!(begun.elapsed() < ENOUGH, "{bytes:?}");
        assert!(format!("{result:?}").len() < 16 * bytes.len() + 4096, "{bytes:?}");
        result
    }
}
