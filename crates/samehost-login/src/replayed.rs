//! Replays recorded server messages, unchanged or mutated, and hangs up: for tests of whole logins against
//! hostile bytes.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use samehost_model::{Endpoint, Transport};
use samehost_transport::Stream;

use crate::error::LoginError;
use crate::link::Link;

/// Most bytes sent at once: they fit into a socket's buffer without a reader.
const MOST: usize = 64 * 1024;
/// Time limit of a login that waits for nothing.
const ENOUGH: Duration = Duration::from_secs(60);

pub(crate) fn endpoint() -> Endpoint {
    "unix:/recorded".parse().unwrap()
}

/// Runs a login against these bytes. Checks that it ends, and that its result is no longer than the bytes, escaped.
pub(crate) fn login<T: std::fmt::Debug>(
    bytes: &[u8],
    login: impl FnOnce(Link) -> Result<T, LoginError>,
) -> Result<T, LoginError> {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(&bytes[..bytes.len().min(MOST)]).unwrap();
    theirs.shutdown(std::net::Shutdown::Write).unwrap();
    let stream = Stream::from_fd(ours.into(), Transport::Unix);
    let begun = Instant::now();
    let result = login(Link::over(stream, &endpoint(), ENOUGH, begun + ENOUGH, None).already_tied());
    assert!(begun.elapsed() < ENOUGH, "{bytes:?}");
    assert!(format!("{result:?}").len() < 16 * bytes.len() + 4096, "{bytes:?}");
    result
}
