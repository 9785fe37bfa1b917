//! Remote procedure calls of Go's net/rpc, one at a time on each connection, against a small Go server, with a Go client
//! (gob over HTTP) or ours (JSON codec). The procedure returns the payload, repeated or cut to the size asked for.
//! gRPC was measured too, with tonic on both sides: thirty crates for a client whose cost is its own stack's, and nobody's server.

mod clients;

use std::sync::Arc;

use samehost_model::{Arm, Endpoint, Point, ServerInfo, Transport, parse_size};

use crate::engine::Job;
use crate::engine::client::ClientJob;
use crate::error::BenchError;
use crate::parameters::{Parameter, ParameterKind, Parameters, Values, words};
use crate::private_servers::PrivateServer;
use crate::private_servers::go::{self, GoCodec, GoProgram};
use crate::workload::{Capabilities, Configured, Description, Instance, StartOptions, Workload};
use crate::workloads::requests::{MOST_SLICED, SMALL, listening, plain_job, require_size, size_of};

const MOST_SIZE: u64 = 64 * 1024 * 1024;
const ECHO: &str = "echo";

pub struct Rpc;

struct Settings {
    protocol: Protocol,
    /// Size of the reply's payload as it was given; `None` for that of the request.
    reply: Option<String>,
    /// Bytes of the reply's payload; 0 for the size of the request's.
    reply_size: u32,
}

words! {
    enum Protocol {
        GoGob = "go-gob",
        GoJson = "go-json",
    }
}

const PARAMETERS: &[Parameter] = &[
    Parameter::word::<Protocol>(
        "protocol",
        "go-gob: net/rpc over HTTP as Go programs have it, Go on both sides; go-json: net/rpc's JSON codec, our client. Both need Go (golang-go) and build a server of ours first",
    ),
    Parameter {
        name: "reply",
        help: "Bytes of the reply's payload (such as 4k); echo: the request's payload comes back",
        default: ECHO,
        kind: ParameterKind::Text,
    },
];

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
        Ok(Arc::new(Settings::parse(parameters)?))
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
            most_sliced: if self.protocol == Protocol::GoJson { MOST_SLICED } else { 0 },
            ..Capabilities::REQUESTS
        }
    }

    fn title(&self) -> String {
        let what = match self.protocol {
            Protocol::GoGob => "Go net/rpc calls, gob over HTTP, Go client",
            Protocol::GoJson => "Go net/rpc calls, JSON codec",
        };
        match &self.reply {
            None => what.into(),
            Some(size) => format!("{what}, replies of {size}"),
        }
    }

    fn check(&self, point: &Point, _: Transport) -> Result<(), BenchError> {
        let sizes = [("--size", point.size_bytes.unwrap_or(0)), ("--reply", u64::from(self.reply_size))];
        for (name, size) in sizes {
            require_size(name, size, "rpc", MOST_SIZE)?;
        }
        Ok(())
    }

    fn start(&self, start: &StartOptions) -> Result<Box<dyn Instance>, BenchError> {
        let codec = match self.protocol {
            Protocol::GoGob => GoCodec::Gob,
            Protocol::GoJson => GoCodec::Json,
        };
        let (server, program) = go::start(&start.program, codec)?;
        Ok(Box::new(Go { server, program, codec, reply_size: self.reply_size }))
    }
}

impl Settings {
    fn parse(parameters: &Parameters) -> Result<Self, BenchError> {
        let protocol = parameters.word("protocol")?;
        match parameters.given("reply") {
            Some(text) if text != ECHO => {
                Ok(Settings { protocol, reply_size: reply_size(&text)?, reply: Some(text) })
            }
            _ => Ok(Settings { protocol, reply_size: 0, reply: None }),
        }
    }
}

fn reply_size(text: &str) -> Result<u32, BenchError> {
    match u32::try_from(parse_size(text)?) {
        Ok(size) if size > 0 => Ok(size),
        _ => BenchError::refuse(format!("--reply {text}: from 1 byte to {MOST_SIZE}, or {ECHO}")),
    }
}

/// Text that JSON and gob encode without escapes, the same as the Go client's.
fn payload(size: usize) -> Vec<u8> {
    b"abcdefghijklmnopqrstuvwxyz0123456789".iter().copied().cycle().take(size).collect()
}

/// The payload that comes back: the request's, or as many bytes of it, over and over.
fn reply_to(payload: &[u8], reply_size: u32) -> Vec<u8> {
    if reply_size == 0 {
        return payload.to_vec();
    }
    payload.iter().copied().cycle().take(reply_size as usize).collect()
}

struct Go {
    server: PrivateServer,
    program: Arc<GoProgram>,
    codec: GoCodec,
    reply_size: u32,
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
            ("-reply-size", self.reply_size.to_string()),
        ] {
            command.extend([flag.into(), value]);
        }
        ClientJob { command, endpoint: text, transport: arm.transport }
    }
}

impl Instance for Go {
    fn server(&self) -> ServerInfo {
        ServerInfo {
            kind: "Go's net/rpc, a small server of ours".into(),
            version: self.program.version().to_owned(),
            managed: true,
            pids: vec![self.server.pid()],
        }
    }

    fn job(&mut self, arm: &Arm) -> Result<Job, BenchError> {
        let endpoint = listening(arm.transport, "RPC server", self.endpoint(arm.transport))?;
        if self.codec == GoCodec::Gob {
            return Ok(Job::Client(self.client(arm, &endpoint)));
        }
        let payload = payload(size_of(arm));
        let awaited = reply_to(&payload, self.reply_size);
        let small = payload.len().max(awaited.len()) <= SMALL;
        let asked = clients::JsonAsked::new(&payload, self.reply_size, &awaited);
        Ok(plain_job(endpoint, small, move || clients::JsonSession::new(asked.clone())))
    }

    fn endpoint(&self, transport: Transport) -> Option<Endpoint> {
        self.server.endpoint(transport).cloned()
    }

    fn stderr_tail(&self) -> String {
        self.server.stderr_tail()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(protocol: &str, reply: &str) -> Parameters {
        [("protocol".into(), protocol.into()), ("reply".into(), reply.into())].into()
    }

    #[test]
    fn points_that_make_no_sense_are_refused_before_anything_starts() {
        fn point(connections: u32, size: u64) -> Point {
            Point { connections, size_bytes: Some(size), ..Point::default() }
        }
        fn check(point: &Point, protocol: &str, reply: &str) -> bool {
            let configured = Rpc.configure(&parameters(protocol, reply));
            configured.is_ok_and(|rpc| rpc.check(point, Transport::Tcp).is_ok())
        }
        assert!(check(&point(1025, 128), "go-json", "echo"));
        assert!(check(&point(1, MOST_SIZE), "go-gob", "64m"));
        assert!(!check(&point(1, MOST_SIZE + 1), "go-gob", "echo"));
        assert!(!check(&point(1, 1), "go-json", "65m"));
        assert!(!check(&point(1, 1), "go-gob", "0"));
        assert!(!check(&point(1, 1), "go-gob", "much"));
    }

    #[test]
    fn a_reply_has_the_length_asked_for() {
        fn reply_size(reply: &str) -> u32 {
            Settings::parse(&parameters("go-gob", reply)).unwrap().reply_size
        }
        assert_eq!((reply_size("echo"), reply_size("4k")), (0, 4096));
        assert_eq!(
            [reply_to(b"abc", 0), reply_to(b"abc", 2), reply_to(b"abc", 8)],
            [&b"abc"[..], b"ab", b"abcabcab"]
        );
    }

    #[test]
    fn only_the_go_client_has_no_rate() {
        for (protocol, rates) in [("go-gob", false), ("go-json", true)] {
            let axes = Rpc.configure(&parameters(protocol, "echo")).unwrap().axes();
            assert_eq!((axes.rates, axes.foreign_servers), (rates, false), "{protocol}");
        }
    }
}
