//! Burst: N requests at once, each on a new connection, as when a site gets busy. When the backlog of a
//! listener is full, a Unix socket refuses at once (EAGAIN); on TCP the SYN is dropped and sent again after 1
//! s, 3 s, 7 s (tcp(7)).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::time::Duration;

use hdrhistogram::Histogram;
use rustix::event::epoll;
use rustix::io::Errno;
use samehost_model::Endpoint;
use samehost_transport::{ConnectOptions, Connecting, StartError, Stream, connect_nonblocking};

use super::recorder::histogram;
use super::session::{MAX_UNREAD_BYTES, Progress, Seen, Session};
use super::{Nanos, nanos, now, timespec};
use crate::error::BenchError;

/// A connection that took longer had its SYN dropped: the kernel sends it again after 1 s.
const STALL: Nanos = 900_000_000;

/// What is sent to the listener by many connections at the same moment.
/// `connect`, FastCGI and HTTP all need a burst, so it takes a session of the workload for each of its
/// connections. A burst for each protocol was rejected: it would be three copies of one loop. A workload
/// with sessions has a burst without further code in the engine.
pub struct BurstJob {
    pub endpoint: Endpoint,
    pub connects: u32,
    /// Makes the session of a connection, which has one request and its reply.
    pub session: Box<dyn Fn() -> Box<dyn Session> + Send>,
    /// How long to wait for all replies.
    pub patience: Duration,
}

#[derive(Debug)]
pub struct BurstTally {
    pub served: u64,
    /// Served connections whose SYN was dropped at least once.
    pub stalled: u64,
    pub errors: BTreeMap<String, u64>,
    /// Time from connect to reply of served connections, in nanoseconds.
    pub latency: Histogram<u64>,
    /// From the first connect to the last reply or to the time limit.
    pub elapsed: Nanos,
    /// What the kernel reports about the first socket that was served.
    pub seen: Option<Seen>,
}

struct Attempt {
    stream: Stream,
    session: Box<dyn Session>,
    begun: Nanos,
    connected: bool,
    asked: bool,
    /// Received bytes that the session has not consumed.
    pending: Vec<u8>,
}

/// Opens all connections and waits for their replies.
///
/// # Errors
/// When the machine lacks file descriptors for the burst, or grants no epoll instance.
pub fn drive(job: &BurstJob) -> Result<BurstTally, BenchError> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(BenchError::during("epoll"))?;
    let mut tally = BurstTally {
        served: 0,
        stalled: 0,
        errors: BTreeMap::new(),
        latency: histogram(),
        elapsed: 0,
        seen: None,
    };
    let mut attempts: Vec<Option<Attempt>> = Vec::with_capacity(job.connects as usize);
    let options = ConnectOptions::default();
    let opened = now();
    for index in 0..job.connects {
        let session = (job.session)();
        let begun = now();
        match connect_nonblocking(&job.endpoint, &options) {
            Ok((stream, connecting)) => {
                let flags = epoll::EventFlags::OUT;
                epoll::add(&epoll, &stream, epoll::EventData::new_u64(u64::from(index)), flags)
                    .map_err(BenchError::during("epoll"))?;
                let connected = connecting == Connecting::Done;
                let pending = Vec::new();
                attempts.push(Some(Attempt { stream, session, begun, connected, asked: false, pending }));
            }
            Err(StartError::Os(_, errno)) if !matches!(errno, Errno::MFILE | Errno::NFILE) => {
                fail(&mut tally, &errno_name(errno));
                attempts.push(None);
            }
            Err(error) => return Err(BenchError::StartConnect(error)),
        }
    }
    wait(&epoll, &mut attempts, &mut tally, job, opened)?;
    for _ in attempts.iter().flatten() {
        fail(&mut tally, "no reply in time");
    }
    tally.elapsed = now() - opened;
    Ok(tally)
}

/// Waits until every attempt has ended, or for the job's patience from `opened` on. Attempts that have ended are `None`
/// afterwards; those that are still there had no reply in time.
fn wait(
    epoll: &rustix::fd::OwnedFd,
    attempts: &mut [Option<Attempt>],
    tally: &mut BurstTally,
    job: &BurstJob,
    opened: Nanos,
) -> Result<(), BenchError> {
    let last = opened + nanos(job.patience);
    let mut open = attempts.iter().flatten().count();
    let mut events = Vec::with_capacity(256);
    while open > 0 {
        let left = last.saturating_sub(now());
        if left == 0 {
            break;
        }
        events.clear();
        match epoll::wait(epoll, rustix::buffer::spare_capacity(&mut events), Some(&timespec(left))) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(BenchError::io("epoll_wait", error)),
        }
        for event in &events {
            let slot = &mut attempts[event.data.u64() as usize];
            let Some(attempt) = slot else { continue };
            match step(attempt, epoll, event.data) {
                Ok(Step::Waits) => continue,
                Ok(Step::Served) => {
                    let took = now() - attempt.begun;
                    tally.served += 1;
                    tally.stalled += u64::from(took >= STALL);
                    tally.latency.saturating_record(took);
                    if tally.seen.is_none() {
                        tally.seen = Some(Seen::by_kernel(&attempt.stream));
                    }
                }
                Err(kind) => fail(tally, &kind),
            }
            *slot = None;
            open -= 1;
        }
    }
    Ok(())
}

enum Step {
    Waits,
    Served,
}

/// The kind under which a failed attempt is counted.
type Failure = Cow<'static, str>;

/// Does what one connection is ready for: takes note that it is open, sends its request, or reads.
fn step(attempt: &mut Attempt, epoll: &rustix::fd::OwnedFd, data: epoll::EventData) -> Result<Step, Failure> {
    if !attempt.connected {
        if let Err(error) = attempt.stream.take_error() {
            return Err(match Errno::from_io_error(&error) {
                Some(errno) => errno_name(errno),
                None => error.to_string().into(),
            });
        }
        attempt.connected = true;
    }
    if !attempt.asked {
        let mut request = Vec::new();
        attempt.session.request(&mut request);
        attempt.stream.write_all(&request).map_err(|_| "write failed")?;
        attempt.asked = true;
        epoll::modify(epoll, &attempt.stream, data, epoll::EventFlags::IN).map_err(|_| "epoll failed")?;
        return Ok(Step::Waits);
    }
    let mut input = [0; 16 * 1024];
    match attempt.stream.read(&mut input) {
        Ok(0) => return Err("connection closed".into()),
        Ok(read) => attempt.pending.extend_from_slice(&input[..read]),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(Step::Waits),
        Err(_) => return Err("connection reset".into()),
    }
    match attempt.session.response(&attempt.pending).map_err(|bad| bad.kind)? {
        Progress::Complete { .. } | Progress::Last { rejected: None, .. } => Ok(Step::Served),
        Progress::Rejected { kind, .. } | Progress::Last { rejected: Some(kind), .. } => Err(kind.into()),
        Progress::More { consumed } if attempt.pending.len() - consumed > MAX_UNREAD_BYTES => {
            Err("reply too long".into())
        }
        Progress::More { consumed } => {
            attempt.pending.drain(..consumed);
            Ok(Step::Waits)
        }
    }
}

fn fail(tally: &mut BurstTally, kind: &str) {
    *tally.errors.entry(kind.to_owned()).or_default() += 1;
}

/// errno as manuals and logs name it, so that readers can search for it.
fn errno_name(errno: Errno) -> Failure {
    match errno {
        Errno::AGAIN => "EAGAIN (backlog full)".into(),
        Errno::CONNREFUSED => "ECONNREFUSED".into(),
        Errno::CONNRESET => "ECONNRESET".into(),
        Errno::TIMEDOUT => "ETIMEDOUT".into(),
        Errno::ADDRNOTAVAIL => "EADDRNOTAVAIL (no port left)".into(),
        other => other.to_string().into(),
    }
}
