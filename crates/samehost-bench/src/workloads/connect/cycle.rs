//! One cycle: connect, send a request, read the reply, close. The client closes first, as most clients do, so
//! that TCP's TIME_WAIT stays on its side.

use std::io::{Read, Write};

use samehost_model::{Endpoint, Transport};
use samehost_transport::{ConnectOptions, TlsTrust, connect};

use crate::engine::seen::Seen;
use crate::engine::session::{Bad, Caller};
use crate::error::BenchError;
use crate::workloads::connecting::prove;
use crate::workloads::requests::connect_failure;

/// Opens a new connection for each request.
pub(super) struct Cycle {
    endpoint: Endpoint,
    options: ConnectOptions,
    request: &'static [u8],
    reply: Vec<u8>,
    seen: Option<Seen>,
}

impl Cycle {
    /// Opens one connection at once, to check that a server answers and over which transport.
    pub(super) fn new(
        endpoint: &Endpoint,
        asked: Transport,
        request: &'static [u8],
    ) -> Result<Self, BenchError> {
        let mut cycle = Cycle::again(endpoint, request, None);
        let stream = connect(&cycle.endpoint, &cycle.options)?;
        prove(&stream, asked)?;
        cycle.seen = Some(Seen::of_socket(&stream));
        Ok(cycle)
    }

    /// Another caller of an endpoint that was checked before.
    pub(super) fn again(endpoint: &Endpoint, request: &'static [u8], seen: Option<Seen>) -> Self {
        let options = ConnectOptions { tls: TlsTrust::any_on_loopback(), ..ConnectOptions::default() };
        Cycle { endpoint: endpoint.clone(), options, request, reply: vec![0; request.len()], seen }
    }
}

impl Caller for Cycle {
    fn call(&mut self) -> Result<(), Bad> {
        let mut stream = connect(&self.endpoint, &self.options)
            .map_err(|error| Bad::new(connect_failure(&error), error.to_string()))?;
        stream.write_all(self.request).map_err(|error| Bad::new("write failed", error.to_string()))?;
        stream.flush().map_err(|error| Bad::new("write failed", error.to_string()))?;
        stream.read_exact(&mut self.reply).map_err(|error| Bad::new("read failed", error.to_string()))?;
        if self.reply == self.request {
            Ok(())
        } else {
            Err(Bad::new("wrong echo", "the reply differs from the request"))
        }
    }

    fn seen(&self) -> Option<Seen> {
        self.seen.clone()
    }
}
