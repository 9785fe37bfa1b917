//! A connection for each request, as nginx does by default: connect, send the request, read the whole reply, close.

use std::io::{Read, Write};

use samehost_model::Endpoint;
use samehost_transport::{ConnectOptions, connect};

use super::session::FastCgiSession;
use crate::engine::seen::Seen;
use crate::engine::session::{Bad, Caller, Progress, Session};
use crate::workloads::requests::connect_failure;

/// Bytes read at once.
const BUFFER: usize = 64 * 1024;

/// Opens a new connection for each request.
pub(super) struct PerRequest {
    endpoint: Endpoint,
    options: ConnectOptions,
    session: FastCgiSession,
    seen: Option<Seen>,
    out: Vec<u8>,
    input: Vec<u8>,
}

impl PerRequest {
    /// `seen` is what the kernel reported about an earlier connection.
    pub(super) fn new(endpoint: &Endpoint, session: FastCgiSession, seen: Option<Seen>) -> Self {
        PerRequest {
            endpoint: endpoint.clone(),
            options: ConnectOptions::default(),
            session,
            seen,
            out: Vec::with_capacity(1024),
            input: vec![0; BUFFER],
        }
    }
}

impl Caller for PerRequest {
    fn call(&mut self) -> Result<(), Bad> {
        let mut stream = connect(&self.endpoint, &self.options)
            .map_err(|error| Bad::new(connect_failure(&error), error.to_string()))?;
        self.out.clear();
        self.session.request(&mut self.out);
        stream.write_all(&self.out).map_err(|error| Bad::new("write failed", error.to_string()))?;
        let mut filled = 0;
        loop {
            let ready = stream.wait_readable(None);
            ready.map_err(|error| Bad::new("poll failed", error.to_string()))?;
            match stream.read(&mut self.input[filled..]) {
                Ok(0) => return Err(Bad::new("connection closed", "before the end of the reply")),
                Ok(read) => filled += read,
                Err(error) => return Err(Bad::new("read failed", error.to_string())),
            }
            match self.session.response(&self.input[..filled])? {
                Progress::More { consumed } => {
                    self.input.copy_within(consumed..filled, 0);
                    filled -= consumed;
                }
                Progress::Complete { consumed } if consumed == filled => return Ok(()),
                Progress::Rejected { kind, .. } => return Err(Bad::new(kind, "the server's answer")),
                Progress::Complete { .. } | Progress::Last { .. } => {
                    return Err(Bad::new("unasked bytes", "behind the end of the reply"));
                }
            }
        }
    }

    fn seen(&self) -> Option<Seen> {
        self.seen.clone()
    }
}
