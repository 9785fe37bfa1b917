//! Drives many connections in one thread with epoll, closed or open loop. An operation takes one read, one write, and
//! a share of one epoll_wait. Sessions hold no buffers, so that a thousand connections fit into the cache.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;

use rustix::event::epoll;
use rustix::fd::OwnedFd;
use samehost_transport::Stream;

use super::recorder::{Count, Recorder, Tally};
use super::session::{Connector, MAX_UNREAD_BYTES, Progress, Session};
use super::{Nanos, now, timespec};
use crate::error::BenchError;

/// Bytes of the read buffer that all connections share.
const BUFFER: usize = 256 * 1024;
/// Longest sleep: the end of the window is noticed even without replies.
const MAX_SLEEP_NS: Nanos = 50_000_000;
/// Consecutive attempts to reopen a connection before the server counts as lost.
const RECONNECTS: u32 = 8;
const EVENTS: usize = 256;

#[derive(Debug)]
pub enum Pace {
    /// When the previous reply has arrived.
    Closed,
    /// When it is due, on any idle connection; requests queue while no connection is idle.
    Open {
        /// Due times, ascending.
        due: Vec<Nanos>,
        /// How long before a due time the thread stops sleeping and polls.
        spin: Nanos,
        /// How long to wait for replies after the window.
        grace: Nanos,
    },
}

struct Connection {
    stream: Stream,
    session: Box<dyn Session>,
    /// The request being sent, of which `written` bytes are sent.
    out: Vec<u8>,
    written: usize,
    pending: Vec<u8>,
    due: Nanos,
    sent: Nanos,
    busy: bool,
    waits_to_write: bool,
}

pub struct Driver<C> {
    epoll: OwnedFd,
    connections: Vec<Connection>,
    connector: Arc<dyn Connector>,
    pub(super) recorder: C,
    input: Vec<u8>,
    /// Open loop: idle connections, the longest idle first, and since when each is idle.
    /// A due request goes to the first of them; while none is idle, requests wait in line. Latency counts
    /// from when a request was due, lateness from the later of "due" and "a connection was free".
    /// Counting all waiting as the generator's was rejected: a slow server would make the generator look
    /// late.
    idle: VecDeque<(usize, Nanos)>,
    /// Closed loop: a reply is followed by the next request at once.
    closed: bool,
    /// Whether the window, or the slice, still lasts.
    inside: bool,
}

type Broken = &'static str;

impl<C: Count> Driver<C> {
    pub fn new(
        streams: Vec<(Stream, Box<dyn Session>)>,
        connector: &Arc<dyn Connector>,
        recorder: C,
    ) -> Result<Self, BenchError> {
        let mut driver = Driver {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC).map_err(BenchError::during("epoll"))?,
            connections: Vec::with_capacity(streams.len()),
            connector: Arc::clone(connector),
            recorder,
            input: vec![0; BUFFER],
            idle: VecDeque::with_capacity(streams.len()),
            closed: true,
            inside: true,
        };
        for (index, (stream, session)) in streams.into_iter().enumerate() {
            let connection = Connection {
                stream,
                session,
                out: Vec::with_capacity(1024),
                written: 0,
                pending: Vec::new(),
                due: 0,
                sent: 0,
                busy: false,
                waits_to_write: false,
            };
            driver.register(&connection, index).map_err(BenchError::during("epoll"))?;
            driver.connections.push(connection);
        }
        Ok(driver)
    }

    fn register(&self, connection: &Connection, index: usize) -> rustix::io::Result<()> {
        connection.stream.set_nonblocking(true).map_err(|_| rustix::io::Errno::IO)?;
        let data = epoll::EventData::new_u64(index as u64);
        epoll::add(&self.epoll, &connection.stream, data, epoll::EventFlags::IN)
    }

    fn closed_loop(&mut self) -> Result<(), BenchError> {
        let mut at = now();
        for index in 0..self.connections.len() {
            self.send(index, at, at)?;
            at = now();
        }
        let mut events = Vec::with_capacity(EVENTS);
        while self.inside {
            self.wait(&mut events, MAX_SLEEP_NS)?;
            self.handle(&events)?;
            if events.is_empty() {
                self.inside = self.recorder.advance(now());
            }
        }
        Ok(())
    }

    fn wait(&self, events: &mut Vec<epoll::Event>, sleep: Nanos) -> Result<(), BenchError> {
        events.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), Some(&timespec(sleep))) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(BenchError::io("epoll_wait", error)),
        }
    }

    fn handle(&mut self, events: &[epoll::Event]) -> Result<(), BenchError> {
        for event in events {
            let index = event.data.u64() as usize;
            let (flags, mut result) = (event.flags, Ok(()));
            if flags.contains(epoll::EventFlags::OUT) {
                result = self.flush(index);
            }
            if result.is_ok() && flags != epoll::EventFlags::OUT {
                result = self.receive(index);
            }
            if let Err(kind) = result {
                self.reconnect(index, kind)?;
            }
        }
        Ok(())
    }

    /// Sends a request on a connection that is idle.
    #[inline]
    fn begin(&mut self, index: usize, due: Nanos, at: Nanos) -> Result<(), Broken> {
        let connection = &mut self.connections[index];
        connection.due = due;
        connection.sent = at;
        connection.busy = true;
        connection.out.clear();
        connection.written = 0;
        connection.session.request(&mut connection.out);
        self.flush(index)
    }

    fn send(&mut self, index: usize, due: Nanos, at: Nanos) -> Result<(), BenchError> {
        self.begin(index, due, at).or_else(|kind| self.reconnect(index, kind))
    }

    /// Writes the rest of the request; waits for EPOLLOUT if the socket takes no more.
    fn flush(&mut self, index: usize) -> Result<(), Broken> {
        let connection = &mut self.connections[index];
        let mut blocked = false;
        while connection.written < connection.out.len() {
            match connection.stream.write(&connection.out[connection.written..]) {
                Ok(0) => return Err("write failed"),
                Ok(written) => connection.written += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    blocked = true;
                    break;
                }
                Err(_) => return Err("write failed"),
            }
        }
        if !blocked && connection.stream.wants_write() {
            match connection.stream.flush() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => blocked = true,
                Err(_) => return Err("write failed"),
                Ok(()) => {}
            }
        }
        if blocked != connection.waits_to_write {
            connection.waits_to_write = blocked;
            let mut flags = epoll::EventFlags::IN;
            flags.set(epoll::EventFlags::OUT, blocked);
            let data = epoll::EventData::new_u64(index as u64);
            epoll::modify(&self.epoll, &connection.stream, data, flags).map_err(|_| "epoll failed")?;
        }
        Ok(())
    }

    /// Reads what has arrived and passes it to the session; sends the next request in a closed loop.
    fn receive(&mut self, index: usize) -> Result<(), Broken> {
        loop {
            let connection = &mut self.connections[index];
            let read = match connection.stream.read(&mut self.input) {
                Ok(0) => return Err("connection closed"),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(_) => return Err("read failed"),
            };
            if !connection.busy {
                return Err("unasked bytes");
            }
            let (progress, shown) = if connection.pending.is_empty() {
                (connection.session.response(&self.input[..read]), read)
            } else {
                connection.pending.extend_from_slice(&self.input[..read]);
                (connection.session.response(&connection.pending), connection.pending.len())
            };
            match progress.map_err(|bad| bad.kind)? {
                Progress::More { consumed } if shown - consumed > MAX_UNREAD_BYTES => {
                    return Err("reply too long");
                }
                Progress::More { consumed } => {
                    if connection.pending.is_empty() {
                        connection.pending.extend_from_slice(&self.input[consumed..read]);
                    } else {
                        connection.pending.drain(..consumed);
                    }
                }
                Progress::Complete { consumed } if consumed == shown => {
                    connection.pending.clear();
                    self.completed(index)?;
                }
                Progress::Rejected { consumed, kind } if consumed == shown => {
                    connection.pending.clear();
                    self.recorder.failed(kind);
                    self.proceed(index, now())?;
                }
                Progress::Last { consumed, rejected } if consumed == shown => {
                    match rejected {
                        None => self.count(index, now()),
                        Some(kind) => self.recorder.failed(kind),
                    }
                    return self.renew(index);
                }
                Progress::Complete { .. } | Progress::Rejected { .. } | Progress::Last { .. } => {
                    return Err("unasked bytes");
                }
            }
            // Plain sockets wake us again; bytes that TLS has already decrypted would not.
            if !self.connections[index].stream.has_buffered() {
                return Ok(());
            }
        }
    }

    #[inline]
    fn completed(&mut self, index: usize) -> Result<(), Broken> {
        let at = now();
        self.count(index, at);
        self.proceed(index, at)
    }

    #[inline]
    fn count(&mut self, index: usize, at: Nanos) {
        let connection = &self.connections[index];
        self.inside = self.recorder.done(at, connection.due, connection.sent);
    }

    /// After an operation: sends the next request (closed loop), or marks the connection idle (open loop).
    #[inline]
    fn proceed(&mut self, index: usize, at: Nanos) -> Result<(), Broken> {
        self.connections[index].busy = false;
        if !self.closed {
            self.idle.push_back((index, at));
            Ok(())
        } else if self.inside {
            self.begin(index, at, at)
        } else {
            Ok(())
        }
    }

    #[cold]
    fn renew(&mut self, index: usize) -> Result<(), Broken> {
        self.replace(index).map_err(|error| {
            tracing::debug!(%error, "connecting anew");
            "connecting anew failed"
        })?;
        self.proceed(index, now())
    }

    fn replace(&mut self, index: usize) -> Result<(), BenchError> {
        let fresh = self.connector.connect()?;
        let connection = &mut self.connections[index];
        (connection.stream, connection.session) = fresh;
        connection.pending.clear();
        connection.waits_to_write = false;
        self.register(&self.connections[index], index).map_err(|error| BenchError::io("epoll", error))
    }

    #[cold]
    fn reconnect(&mut self, index: usize, first_kind: Broken) -> Result<(), BenchError> {
        let was_busy = self.connections[index].busy;
        let mut kind = first_kind;
        for _ in 0..RECONNECTS {
            self.recorder.failed(kind);
            self.inside = self.recorder.advance(now());
            if !self.inside && !C::GOES_ON {
                return Ok(());
            }
            self.replace(index).map_err(|error| self.connector.lost(kind, &error))?;
            self.connections[index].busy = false;
            if !self.inside {
                return Ok(());
            }
            let at = now();
            if !self.closed {
                // A connection that broke while idle is still in the queue of idle ones.
                if was_busy {
                    self.idle.push_back((index, at));
                }
                return Ok(());
            }
            match self.begin(index, at, at) {
                Ok(()) => return Ok(()),
                Err(again) => kind = again,
            }
        }
        Err(BenchError::lost(&self.connector.endpoint(), format!("{kind}, {RECONNECTS} times in a row")))
    }

    /// Drives one slice on connections that stay open, and waits for the requests in flight at its end.
    ///
    /// # Errors
    /// When a connection breaks and cannot be opened again, or a reply takes longer than `patience`.
    pub fn turn(&mut self, patience: Nanos) -> Result<(), BenchError> {
        self.inside = true;
        self.closed_loop()?;
        let last = now() + patience;
        let mut events = Vec::with_capacity(EVENTS);
        while self.connections.iter().any(|connection| connection.busy) {
            self.wait(&mut events, MAX_SLEEP_NS)?;
            self.handle(&events)?;
            if now() > last {
                let (endpoint, seconds) = (self.connector.endpoint(), patience as f64 / 1e9);
                return Err(BenchError::Hung { endpoint, seconds });
            }
        }
        Ok(())
    }
}

impl Driver<Recorder> {
    /// Drives all connections until the window is over.
    ///
    /// # Errors
    /// When a connection breaks and cannot be opened again.
    pub fn drive(mut self, pace: Pace) -> Result<Tally, BenchError> {
        match pace {
            Pace::Closed => self.closed_loop()?,
            Pace::Open { due, spin, grace } => {
                self.closed = false;
                self.open_loop(&due, spin, grace)?;
            }
        }
        Ok(self.recorder.finish())
    }

    fn open_loop(&mut self, due: &[Nanos], spin: Nanos, grace: Nanos) -> Result<(), BenchError> {
        let started = now();
        self.idle.extend((0..self.connections.len()).map(|index| (index, started)));
        let last = self.recorder.window.end + grace;
        let mut events = Vec::with_capacity(EVENTS);
        let mut next = 0;
        loop {
            let mut at = now();
            while next < due.len() && due[next] <= at {
                let Some((index, idle_since)) = self.idle.pop_front() else { break };
                self.recorder.sent(due[next], at - due[next].max(idle_since));
                self.send(index, due[next], at)?;
                next += 1;
                at = now();
            }
            let all_free = self.idle.len() == self.connections.len();
            if (next == due.len() && all_free) || at >= last {
                break;
            }
            let sleep = match due.get(next) {
                Some(due) if !self.idle.is_empty() => due.saturating_sub(at).saturating_sub(spin),
                _ => MAX_SLEEP_NS.min(last - at),
            };
            self.wait(&mut events, sleep.min(MAX_SLEEP_NS))?;
            self.handle(&events)?;
        }
        let at = now();
        for connection in self.connections.iter().filter(|connection| connection.busy) {
            self.recorder.unfinished(at, connection.due);
        }
        for due in &due[next..] {
            self.recorder.unfinished(at, *due);
        }
        Ok(())
    }
}
