//! A server that says what was recorded, or what became of it when it was bent, and then hangs up: for tests of whole
//! logins against hostile bytes.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use samehost_model::{Endpoint, Transport};
use samehost_transport::Stream;

use crate::error::LoginError;
use crate::link::Link;

/// The most that is said at once: what a socket holds while nobody reads.
const MOST: usize = 64 * 1024;
/// How long a login may take that waits for nobody.
const ENOUGH: Duration = Duration::from_secs(5);

pub(crate) fn endpoint() -> Endpoint {
    "unix:/recorded".parse().unwrap()
}

/// What a login makes of these bytes. It ends, and what it says of them is no longer than they are, escaped.
pub(crate) fn login<T: std::fmt::Debug>(
    bytes: &[u8],
    login: impl FnOnce(Link) -> Result<T, LoginError>,
) -> Result<T, LoginError> {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(&bytes[..bytes.len().min(MOST)]).unwrap();
    theirs.shutdown(std::net::Shutdown::Write).unwrap();
    let stream = Stream::from_fd(ours.into(), Transport::Unix);
    let begun = Instant::now();
    let result = login(Link::over(stream, &endpoint(), ENOUGH, begun + ENOUGH, None));
    assert!(begun.elapsed() < ENOUGH, "{bytes:?}");
    assert!(format!("{result:?}").len() < 16 * bytes.len() + 4096, "{bytes:?}");
    result
}
