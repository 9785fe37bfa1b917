//! A server in front of PHP-FPM: one listener, and a path for each pool. The transport in front stays the
//! same while the transports behind are compared.

use std::path::Path;
use std::sync::Arc;

use samehost_model::{Endpoint, Transport};

use crate::error::BenchError;
use crate::private_servers::fronts::{self, FrontSpec, Passes, Pools, READY};
use crate::private_servers::{Account, FrontKind, PrivateServer};
use crate::workloads::http::{RequestParts, fetch};

/// What stands in front.
pub(super) struct InFront {
    pub(super) kind: FrontKind,
    /// Transport of its listener: a port of 127.0.0.1, or a Unix socket.
    pub(super) transport: Transport,
    /// Concurrent connections in front.
    pub(super) connections: u32,
    /// Account of PHP-FPM, whose sockets it must reach; `None` for ours.
    pub(super) account: Option<Account>,
}

/// A private server in front.
#[derive(Debug)]
pub(super) struct Front {
    pub(super) kind: FrontKind,
    server: PrivateServer,
    endpoint: Endpoint,
}

impl Front {
    /// Starts it in front of pools.
    ///
    /// # Errors
    /// When it is not installed, does not become ready, or a path cannot be quoted.
    pub(super) fn start(
        program: &Path,
        front: &InFront,
        pools: &[(String, Endpoint)],
        script: &Path,
        kept: Option<u32>,
    ) -> Result<Self, BenchError> {
        let spec = FrontSpec {
            listens: &[front.transport],
            connections: front.connections,
            workers: 1,
            account: front.account,
            passes: Passes::FastCgi(&Pools { pools, script, parameters: parameters(), kept }),
        };
        let server = fronts::start(front.kind, program, &spec, |server| {
            server.endpoints().try_for_each(|endpoint| match fetch(endpoint, &request(READY))?.head.status {
                204 => Ok(()),
                _ => Err(BenchError::lost(endpoint, "another server answers there")),
            })
        })?;
        let endpoint =
            server.endpoints().next().cloned().ok_or_else(|| server.failure("it has no listener"))?;
        Ok(Front { kind: front.kind, server, endpoint })
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Its first process.
    pub(super) fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// The end of its error log.
    pub(super) fn stderr_tail(&self) -> String {
        self.server.stderr_tail()
    }
}

/// The request that is passed on to a pool.
pub(super) fn request_for(pool: &str, query: &str) -> Arc<[u8]> {
    let target = if query.is_empty() { format!("/{pool}") } else { format!("/{pool}?{query}") };
    request(&target)
}

fn request(target: &str) -> Arc<[u8]> {
    let parts = RequestParts::get(target, "localhost");
    parts.bytes()
}

/// Parameters as nginx makes them, without the script's path.
fn parameters() -> Vec<(&'static str, String)> {
    let mut passed = Vec::new();
    for (name, value) in super::parameters("", "", "") {
        let value = match name {
            "QUERY_STRING" => "$query_string",
            "REQUEST_METHOD" => "$request_method",
            "CONTENT_TYPE" => "$content_type",
            "CONTENT_LENGTH" => "$content_length",
            "SCRIPT_NAME" | "DOCUMENT_URI" => "$document_uri",
            "REQUEST_URI" => "$request_uri",
            "REMOTE_PORT" => "$remote_port",
            // nginx passes the request's fields on by itself.
            "SCRIPT_FILENAME" | "DOCUMENT_ROOT" | "HTTP_HOST" => continue,
            _ => value,
        };
        passed.push((name, value.to_owned()));
    }
    passed
}
