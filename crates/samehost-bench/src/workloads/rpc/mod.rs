//! Remote procedure calls of Go's net/rpc, one at a time on each connection, against a small Go server, with a Go client
//! (gob over HTTP) or ours (JSON codec). The procedure returns the payload.
//! gRPC was measured too, with tonic on both sides: thirty crates for a client whose cost is its own stack's, and nobody's server.

mod clients;

use std::sync::Arc;

use samehost_login::ServerAddress;
use samehost_model::{Arm, Endpoint, Point, Transport};

use crate::engine::Job;
use crate::engine::client::ClientJob;
use crate::error::BenchError;
use crate::parameters::{Parameter, Parameters, Values, words};
use crate::private_servers::go::{self, GoCodec, GoProgram};
use crate::served::{Instance, Served, StartOptions};
use crate::workload::{Capabilities, Configured, Description, Workload};
use crate::workloads::requests::{MAX_SLICED_CONNECTIONS, MAX_SMALL_BYTES, plain_job, require_size, size_of};

const MAX_PAYLOAD_BYTES: u64 = 64 * 1024 * 1024;

pub struct Rpc;

struct Settings {
    protocol: Protocol,
}

words! {
    enum Protocol {
        GoGob = "go-gob",
        GoJson = "go-json",
    }
}

const PARAMETERS: &[Parameter] = &[Parameter::word::<Protocol>(
    "protocol",
    "go-gob: net/rpc over HTTP as Go programs have it, Go on both sides; go-json: net/rpc's JSON codec, our client. Both need Go (golang-go) and build a server of ours first",
)];

impl Workload for Rpc {
    fn description(&self) -> Description {
        Description {
            name: "rpc",
            about: "Remote procedure calls: Go's net/rpc, with a Go server of ours",
            example: "rpc --connections 1,64 --size 128",
            parameters: PARAMETERS,
        }
    }

    fn configure(&self, parameters: &Parameters) -> Result<Arc<dyn Configured>, BenchError> {
        Ok(Arc::new(Settings { protocol: parameters.word("protocol")? }))
    }
}

impl Configured for Settings {
    fn axes(&self) -> Capabilities {
        Capabilities {
            transports: &[Transport::Tcp, Transport::Unix],
            sizes: Some("128"),
            // The Go client generates its own load, in a closed loop.
            rates: self.protocol != Protocol::GoGob,
            foreign_servers: false,
            most_sliced: if self.protocol == Protocol::GoJson { MAX_SLICED_CONNECTIONS } else { 0 },
            ..Capabilities::REQUESTS
        }
    }

    fn title(&self) -> String {
        match self.protocol {
            Protocol::GoGob => "Go net/rpc calls, gob over HTTP, Go client".to_owned(),
            Protocol::GoJson => "Go net/rpc calls, JSON codec".to_owned(),
        }
    }

    fn check(&self, point: &Point, _: Transport) -> Result<(), BenchError> {
        require_size("--size", point.size_bytes.unwrap_or(0), "rpc", MAX_PAYLOAD_BYTES)
    }

    fn start(&self, start: &StartOptions) -> Result<Box<dyn Instance>, BenchError> {
        let codec = match self.protocol {
            Protocol::GoGob => GoCodec::Gob,
            Protocol::GoJson => GoCodec::Json,
        };
        let (server, program) = go::start(&start.program, codec)?;
        let mut served = Served::default();
        served.add(server, &start.transports);
        served.info.kind = "Go's net/rpc, a small server of ours".into();
        served.info.version = program.version().to_owned();
        Ok(Box::new(Go { served, program, codec }))
    }
}

/// Text that JSON and gob encode without escapes, the same as the Go client's.
fn payload(size: usize) -> Vec<u8> {
    b"abcdefghijklmnopqrstuvwxyz0123456789".iter().copied().cycle().take(size).collect()
}

struct Go {
    served: Served,
    program: Arc<GoProgram>,
    codec: GoCodec,
}

impl Go {
    /// The job of the Go client, which generates its own load, in a closed loop: with gob both ends are Go, as in
    /// programs that have it.
    fn client(&self, arm: &Arm, endpoint: &Endpoint) -> ClientJob {
        let text = endpoint.to_string();
        let (network, address) = text.split_once(':').unwrap_or(("tcp", &text));
        let mut command = self.program.client();
        for (flag, value) in [
            ("-network", network.to_owned()),
            ("-address", address.to_owned()),
            ("-connections", arm.point.connections.to_string()),
            ("-size", size_of(arm).to_string()),
        ] {
            command.extend([flag.into(), value]);
        }
        ClientJob { command, endpoint: text, transport: arm.transport }
    }
}

impl Instance for Go {
    fn served(&self) -> &Served {
        &self.served
    }

    fn job(&mut self, arm: &Arm) -> Result<Job, BenchError> {
        let (ServerAddress { endpoint, .. }, _) = self.served.begin(arm, "RPC server")?;
        if self.codec == GoCodec::Gob {
            return Ok(Job::Client(self.client(arm, &endpoint)));
        }
        let payload = payload(size_of(arm));
        let small = payload.len() <= MAX_SMALL_BYTES;
        let asked = clients::JsonAsked::new(&payload);
        Ok(plain_job(endpoint, small, move || clients::JsonSession::new(asked.clone())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configured(protocol: &str) -> Arc<dyn Configured> {
        Rpc.configure(&[("protocol".into(), protocol.into())].into()).unwrap()
    }

    #[test]
    fn points_that_make_no_sense_are_refused_before_anything_starts() {
        let check = |connections: u32, size: u64| {
            let point = Point { connections, size_bytes: Some(size), ..Point::default() };
            configured("go-json").check(&point, Transport::Tcp).is_ok()
        };
        assert!(check(1025, 128) && check(1, MAX_PAYLOAD_BYTES));
        assert!(!check(1, MAX_PAYLOAD_BYTES + 1));
    }

    #[test]
    fn only_the_go_client_has_no_rate() {
        for (protocol, rates) in [("go-gob", false), ("go-json", true)] {
            let axes = configured(protocol).axes();
            assert_eq!((axes.rates, axes.foreign_servers), (rates, false), "{protocol}");
        }
    }
}
