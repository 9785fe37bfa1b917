//! Why a trial does not begin.

use std::io;

use samehost_bpf::Unavailable;
use samehost_scan::refusal_of_bpf;
use samehost_system::Refusal;

use super::doors::Doors;
use super::maps::Map;

pub const MOST_PORTS: usize = 8;

#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    #[error(
        "a trial needs --map, and has room for {MOST_PORTS} of them: name the ports that the program connects to"
    )]
    Ports,
    #[error("{0}: a trial sends a part of the connections to each door, so both must be one server's; {1}")]
    TwoServers(String, String),
    #[error("{0}: a trial sends a part of the connections to each door, so it needs to know; {1}")]
    Untold(String, String),
    #[error(
        "a trial needs to know when a request begins, and this kernel allows no program where functions begin to send ({0}): times \
         over TCP would lack the way there, 2 to 11 µs, and are not to be compared; --exact stamps system calls instead, for \
         about 2 µs of CPU time a request and a little at each system call of the machine"
    )]
    Inexact(String),
    #[error(
        "a trial needs the kernel's types (BTF), which are not here: {0}; a kernel with CONFIG_DEBUG_INFO_BTF has them"
    )]
    Types(String),
    #[error("a trial times requests in the kernel: {0}")]
    Forbidden(Refusal),
    #[error(
        "this kernel has not all that a trial needs to time requests: {0}; Linux 6.18, where it was tried, has it"
    )]
    Kernel(String),
    #[error("the kernel refuses what times requests: {0}")]
    Refused(String),
    #[error("a trial needs the kernel's list of sockets (sock_diag), by which it tells whose they are: {0}")]
    Listing(#[source] io::Error),
}

impl From<Unavailable> for TrialError {
    fn from(why: Unavailable) -> Self {
        if let Some(refusal) = refusal_of_bpf(&why) {
            return TrialError::Forbidden(refusal);
        }
        match why {
            Unavailable::Types(error) => TrialError::Types(error.to_string()),
            Unavailable::Kernel(error) => TrialError::Kernel(error.to_string()),
            Unavailable::Rights(error) | Unavailable::Refused(error) => {
                TrialError::Refused(error.to_string())
            }
        }
    }
}

/// Whether a trial may begin on these doors. Those of which one is closed may be: nothing is drawn before one server has both.
///
/// # Errors
/// Which of them are two servers', or of which it cannot be told.
pub fn may_be_tried<'a>(doors: impl IntoIterator<Item = (&'a Map, &'a Doors)>) -> Result<(), TrialError> {
    for (map, found) in doors {
        let said = format!("{map}: {found}");
        match found {
            Doors::One(_) | Doors::Closed(_) => {}
            Doors::Two(_) => {
                let next = "name the socket of the server that has the port (samehost scan lists both)";
                return Err(TrialError::TwoServers(said, next.into()));
            }
            Doors::Untold(_) => {
                let next = "without --trial all of them go over the socket";
                return Err(TrialError::Untold(said, next.into()));
            }
        }
    }
    Ok(())
}
