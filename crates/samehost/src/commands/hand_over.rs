//! Hidden verb: the client of `tcp+run`, which `samehost bench` starts under `samehost run`. It asks for host and port, and hands
//! its sockets over to whoever is at the other end of standard input.

use std::os::fd::AsFd;

use anyhow::Context;
use samehost_model::Endpoint;

use crate::exit::Ending;

pub fn hand_over(endpoint: &Endpoint) -> anyhow::Result<Ending> {
    samehost_transport::hand_over(endpoint, std::io::stdin().as_fd()).context("the socket that asks")?;
    Ok(Ending::Done)
}
