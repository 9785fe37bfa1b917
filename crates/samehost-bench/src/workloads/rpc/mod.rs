//! Remote procedure calls, one at a time on each connection: gRPC with tonic, against the built-in server or one that is
//! already running; and Go's net/rpc, against a small Go server, with a Go client (gob over HTTP) or ours (JSON codec).
//! The procedure returns the payload, repeated or cut to the size asked for.

mod clients;

use std::sync::Arc;

use bytes::Bytes;
use samehost_model::{Arm, Endpoint, Point, ServerInfo, Transport, parse_size};

use crate::builtin_servers::rpc::reply_to;
use crate::engine::Job;
use crate::engine::client::ClientJob;
use crate::error::BenchError;
use crate::parameters::{Parameter, ParameterKind, Parameters, Values, words};
use crate::private_servers::go::{self, GoCodec, GoProgram};
use crate::private_servers::{BuiltIn, BuiltInSpec, PrivateServer};
use crate::workload::{Capabilities, Configured, Description, Instance, StartOptions, Workload};
use crate::workloads::foreign::{Given, needs_private};
use crate::workloads::requests::{
    MOST_SLICED, Opener, SMALL, listening, require_size, require_threads, size_of,
};

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
        Grpc = "grpc",
        GoGob = "go-gob",
        GoJson = "go-json",
    }
}

const PARAMETERS: &[Parameter] = &[
    Parameter::word::<Protocol>(
        "protocol",
        "grpc: tonic on both sides; go-gob: net/rpc over HTTP as Go programs have it, Go on both sides; go-json: net/rpc's JSON codec, our client. The latter two need Go (golang-go) and build a server of ours first",
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
            about: "Remote procedure calls: gRPC (built in), or Go's net/rpc with a Go server of ours",
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
        use Transport::{Abstract, Tcp, Tcp6, Unix};
        let is_grpc = self.protocol == Protocol::Grpc;
        Capabilities {
            transports: if is_grpc { &[Tcp, Unix, Tcp6, Abstract] } else { &[Tcp, Unix] },
            sizes: Some("128"),
            // The Go client generates its own load, in a closed loop.
            rates: self.protocol != Protocol::GoGob,
            foreign_servers: is_grpc,
            most_sliced: if self.protocol == Protocol::GoJson { MOST_SLICED } else { 0 },
            ..Capabilities::REQUESTS
        }
    }

    fn title(&self) -> String {
        let what = match self.protocol {
            Protocol::Grpc => "gRPC unary calls",
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
        match self.protocol {
            Protocol::Grpc => require_threads("a gRPC client", point.connections),
            Protocol::GoGob | Protocol::GoJson => Ok(()),
        }
    }

    fn start(&self, start: &StartOptions) -> Result<Box<dyn Instance>, BenchError> {
        let codec = match self.protocol {
            Protocol::Grpc => {
                needs_private(start)?;
                let given = Given::of(start);
                let spec = BuiltInSpec::new(&start.program, "rpc", Vec::new());
                let server = BuiltIn::start(spec, &given.missing)?;
                return Ok(Box::new(Grpc { server, given, reply_size: self.reply_size }));
            }
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

/// Text that JSON, gob and protobuf encode without escapes, the same as the Go client's.
fn payload(size: usize) -> Vec<u8> {
    b"abcdefghijklmnopqrstuvwxyz0123456789".iter().copied().cycle().take(size).collect()
}

struct Grpc {
    server: BuiltIn,
    given: Given,
    reply_size: u32,
}

impl Instance for Grpc {
    fn server(&self) -> ServerInfo {
        self.given.server("a gRPC server that already runs", "samehost serve rpc (tonic)", self.server.pids())
    }

    fn job(&mut self, arm: &Arm) -> Result<Job, BenchError> {
        let endpoint = listening(arm.transport, "RPC server", self.endpoint(arm.transport))?;
        let asked = clients::Asked::new(size_of(arm), self.reply_size)?;
        Job::callers(&endpoint, None, arm.point.connections, |_| {
            clients::GrpcCaller::connect(&endpoint, &asked)
        })
    }

    fn endpoint(&self, transport: Transport) -> Option<Endpoint> {
        self.given.endpoints.get(&transport).or_else(|| self.server.endpoint(transport)).cloned()
    }

    fn stderr_tail(&self) -> String {
        self.server.stderr_tail()
    }
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
        let payload = Bytes::from(payload(size_of(arm)));
        let awaited = reply_to(&payload, self.reply_size).unwrap_or_default();
        let small = payload.len().max(awaited.len()) <= SMALL;
        let asked = clients::JsonAsked::new(&payload, self.reply_size, &awaited);
        Ok(Opener::job(endpoint, small, move || clients::JsonSession::new(asked.clone())))
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
        assert!(check(&point(1024, 128), "grpc", "echo"));
        assert!(!check(&point(1025, 128), "grpc", "echo"));
        assert!(check(&point(1025, 128), "go-json", "echo"));
        assert!(check(&point(1, MOST_SIZE), "grpc", "64m"));
        assert!(!check(&point(1, MOST_SIZE + 1), "grpc", "echo"));
        assert!(!check(&point(1, 1), "grpc", "65m"));
        assert!(!check(&point(1, 1), "grpc", "0"));
        assert!(!check(&point(1, 1), "grpc", "much"));
    }

    #[test]
    fn a_reply_has_the_length_asked_for() {
        fn reply_size(reply: &str) -> u32 {
            Settings::parse(&parameters("grpc", reply)).unwrap().reply_size
        }
        assert_eq!((reply_size("echo"), reply_size("4k")), (0, 4096));
    }

    #[test]
    fn only_the_go_client_has_no_rate_and_only_grpc_other_servers() {
        for (protocol, rates, foreign) in
            [("grpc", true, true), ("go-gob", false, false), ("go-json", true, false)]
        {
            let axes = Rpc.configure(&parameters(protocol, "echo")).unwrap().axes();
            assert_eq!((axes.rates, axes.foreign_servers), (rates, foreign), "{protocol}");
        }
    }
}
