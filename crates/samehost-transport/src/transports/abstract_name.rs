//! `abstract`: a stream socket with a Linux abstract name. Without a file there are no permissions and nothing to
//! remove. It is visible in one network namespace only. Any local user may connect, and may take an unused name.

use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketType};
use samehost_model::{Endpoint, Transport};

use super::Carrier;
use super::unix::{connect_to, listen_on, start_to};
use crate::error::ListenError;
use crate::listener::Listener;
use crate::observed::{Family, Kind, Name};
use crate::options::ListenOptions;
use crate::socket::{self, AddressError, Blocking};

pub(crate) const CARRIER: Carrier = Carrier {
    transport: Transport::Abstract,
    connect: |endpoint, options| connect_to(endpoint, options, &name_address(endpoint)?, SocketType::STREAM),
    start: |endpoint, options| start_to(endpoint, options, &name_address(endpoint)?, SocketType::STREAM),
    listen,
    carries: |seen| {
        seen.family == Family::Unix
            && seen.kind == Kind::Stream
            && seen.either(|name| matches!(name, Name::Abstract(_)))
    },
};

fn name_address(endpoint: &Endpoint) -> Result<SocketAddrUnix, AddressError> {
    match endpoint {
        Endpoint::Abstract(name) => socket::abstract_name(name),
        _ => Err(AddressError::Empty),
    }
}

fn listen(endpoint: &Endpoint, options: &ListenOptions) -> Result<Listener, ListenError> {
    let address = name_address(endpoint)?;
    let fd = socket::open(AddressFamily::UNIX, SocketType::STREAM, Blocking::Yes)
        .map_err(ListenError::at(endpoint))?;
    net::bind(&fd, &address).map_err(|errno| match errno {
        rustix::io::Errno::ADDRINUSE => {
            ListenError::InUse { endpoint: endpoint.clone(), pid: crate::claim::listening_pid(&address) }
        }
        errno => ListenError::from_errno(endpoint, errno),
    })?;
    listen_on(endpoint, options, fd)
}
