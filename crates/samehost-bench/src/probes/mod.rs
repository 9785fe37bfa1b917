//! Ways past TCP that are tried out on sockets of our own before anything is measured, and refused where they do not carry
//! what TCP carries. A probe changes nothing outside of its own sockets.

mod smc;
mod sockmap;

use samehost_model::Transport;

use crate::error::BenchError;

/// Refuses a transport that this machine, or this program, does not have.
///
/// # Errors
/// With the probes that failed, and what was seen.
pub(crate) fn check(transport: Transport) -> Result<(), BenchError> {
    let refused = match transport {
        Transport::TcpSockmap => sockmap::refusal()?,
        Transport::TcpSmc => smc::refusal(),
        _ => return Ok(()),
    };
    Err(BenchError::ProbeFailed { transport, reason: refused })
}
