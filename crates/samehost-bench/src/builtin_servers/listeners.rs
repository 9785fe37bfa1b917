//! Listens on several endpoints at once, with a thread for each connection, and what such a thread runs.

use samehost_system::threads;
use std::io;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fd::{AsFd, OwnedFd};
use samehost_model::Endpoint;
use samehost_transport::{ListenOptions, Listener, Stream, TlsServer};

use super::ServeOptions;
use super::responder::Responder;
use crate::engine::bulk::{HEADER, parse_header};
use crate::engine::session::Wait;
use crate::error::BenchError;

/// Stack of a connection's thread; buffers are on the heap.
const STACK_BYTES: usize = 256 * 1024;

#[derive(Debug)]
pub struct Listening {
    pub(super) listeners: Vec<Listener>,
    stopped: Arc<AtomicBool>,
}

/// Stops a server: its listeners accept no more, and their socket files are removed.
#[derive(Debug)]
pub struct Stopper {
    listeners: Vec<OwnedFd>,
    stopped: Arc<AtomicBool>,
}

impl Stopper {
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        for listener in &self.listeners {
            // After shutdown(2), accept(2) on a listener returns at once: EINVAL on TCP (see `epoll.rs` for Unix).
            if let Err(error) = rustix::net::shutdown(listener, rustix::net::Shutdown::Both) {
                tracing::debug!(%error, "a listener was not shut down");
            }
        }
    }
}

impl Listening {
    /// Handle that stops the server from another thread.
    ///
    /// # Errors
    /// When no file descriptor is left.
    pub fn stopper(&self) -> Result<Stopper, BenchError> {
        let mut listeners = Vec::with_capacity(self.listeners.len());
        for listener in &self.listeners {
            let duplicate = listener.as_fd().try_clone_to_owned();
            listeners.push(duplicate.map_err(|error| BenchError::io("a listener", error))?);
        }
        Ok(Stopper { listeners, stopped: Arc::clone(&self.stopped) })
    }

    /// Whether `stop` was called, so that failures to accept are expected.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    #[must_use]
    pub fn endpoints(&self) -> Vec<Endpoint> {
        self.listeners.iter().map(|listener| listener.endpoint().clone()).collect()
    }
}

pub(super) fn listen(endpoints: &[Endpoint], options: &ServeOptions) -> Result<Listening, BenchError> {
    let mut listeners = Vec::with_capacity(endpoints.len());
    for endpoint in endpoints {
        let ServeOptions { backlog, mode, tuning, .. } = options.clone();
        let mut listen_options = ListenOptions { backlog, mode, tuning, ..ListenOptions::default() };
        if endpoint.transport().is_tls() {
            listen_options.tls = Some(TlsServer::self_signed()?);
        }
        listeners.push(samehost_transport::listen(endpoint, &listen_options)?);
    }
    Ok(Listening { listeners, stopped: Arc::default() })
}

/// Serves each connection in a thread, until stopped.
pub(super) fn serve(
    listening: &Listening,
    converse: impl Fn(&mut Stream) -> io::Result<()> + Copy + Send + Sync + 'static,
    accept_delay: Option<Duration>,
) -> Result<(), BenchError> {
    accept(listening, &|stream| start_thread(stream, converse), accept_delay)
}

fn start_thread(mut stream: Stream, converse: impl Fn(&mut Stream) -> io::Result<()> + Send + 'static) {
    let spawned = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
        if let Err(error) = converse(&mut stream) {
            tracing::debug!(%error, "a connection ended");
        }
    });
    if let Err(error) = spawned {
        tracing::warn!(%error, "a connection was dropped: no thread for it");
    }
}

/// Accepts on all listeners until stopped, with a thread for each, and passes every connection to `take`. After each it
/// pauses for `accept_delay`, to imitate a server that is busy.
pub(super) fn accept(
    listening: &Listening,
    take: &(dyn Fn(Stream) + Sync),
    accept_delay: Option<Duration>,
) -> Result<(), BenchError> {
    let ended = in_threads(listening, &|listener| match accept_loop(listener, take, accept_delay) {
        Err(_) if listening.is_stopped() => Ok(()),
        ended => ended,
    });
    ended.map_err(BenchError::during("accepting"))
}

/// Works with each listener in a thread of its own; the first error of any.
pub(super) fn in_threads(
    listening: &Listening,
    work: &(dyn Fn(&Listener) -> io::Result<()> + Sync),
) -> io::Result<()> {
    let Some((first, others)) = listening.listeners.split_first() else { return Ok(()) };
    let mut is_alone = false;
    let (ended, here) = threads::some(others.iter().map(|listener| move || work(listener)), |begun| {
        if begun < others.len() {
            // Nobody would take what comes at the others.
            is_alone = true;
            listening.stopper().map_err(io::Error::other)?.stop();
        }
        work(first)
    });
    if is_alone {
        return Err(io::Error::other("no thread may be started for each listener (pids.max, ulimit -u)"));
    }
    ended.into_iter().chain([here]).collect()
}

fn accept_loop(
    listener: &Listener,
    take: &(dyn Fn(Stream) + Sync),
    accept_delay: Option<Duration>,
) -> io::Result<()> {
    loop {
        let stream = match listener.accept() {
            Ok(stream) => stream,
            Err(error) if is_passing(&error) => {
                // Out of file descriptors: waits for a connection to end instead of spinning.
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            Err(error) => return Err(error),
        };
        take(stream);
        if let Some(delay) = accept_delay {
            std::thread::sleep(delay);
        }
    }
}

/// Errors of accept(2) that concern one connection or are temporary.
pub(super) fn is_passing(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(
        errno,
        Some(Errno::CONNABORTED | Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::INTR)
    )
}

const BUFFER_BYTES: usize = 64 * 1024;
/// Most bytes that the sink reads at once, whatever the sender asks for.
const MAX_READ_BYTES: u64 = 64 * 1024 * 1024;

/// Responds until either side ends the connection.
pub(super) fn converse<R: Responder>(stream: &mut Stream, waits: Wait) -> io::Result<()> {
    let (mut buffer, mut responder) = (vec![0; BUFFER_BYTES], R::default());
    loop {
        waits.before_read(stream)?;
        let read = stream.read(&mut buffer)?;
        if read == 0 {
            return Ok(());
        }
        let (reply, goes_on) = responder.respond(&buffer[..read]);
        stream.write_all(reply)?;
        stream.flush()?;
        if !goes_on {
            return Ok(());
        }
    }
}

/// Receives rounds of bytes (see `engine::bulk`) and acknowledges each. Reads as fast as it can and so never polls.
pub(super) fn sink(stream: &mut Stream, _: Wait) -> io::Result<()> {
    let mut buffer = Vec::new();
    loop {
        let mut header = [0; HEADER];
        match stream.read_exact(&mut header) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            other => other?,
        }
        let (bytes, read_size) = parse_header(header);
        let read_size = read_size.clamp(1, MAX_READ_BYTES) as usize;
        if buffer.len() < read_size {
            buffer.resize(read_size, 0);
        }
        let mut received: u64 = 0;
        while received < bytes {
            let want = (bytes - received).min(read_size as u64) as usize;
            let read = stream.read(&mut buffer[..want])?;
            if read == 0 {
                return Ok(());
            }
            received += read as u64;
        }
        stream.write_all(&received.to_le_bytes())?;
        stream.flush()?;
    }
}
