//! Servers of the rpc workload during a measurement, and the connections of a trial.

use std::sync::Arc;

use bytes::Bytes;
use samehost_model::{Arm, Endpoint, ServerInfo, Transport};
use samehost_transport::{ConnectOptions, Stream, connect};

use super::{clients, payload};
use crate::builtin_servers::rpc::reply_to;
use crate::engine::Job;
use crate::engine::client::ClientJob;
use crate::engine::session::{Caller, Connector, Session};
use crate::error::BenchError;
use crate::private_servers::go::{self, GoCodec, GoProgram};
use crate::private_servers::{BuiltIn, BuiltInSpec, PrivateServer};
use crate::workload::{Instance, StartOptions};
use crate::workloads::foreign::{Given, needs_private};
use crate::workloads::requests::{prove, size_of};

/// Largest message that one blocking connection may send before it reads: it fits into every transport's buffers.
const SMALL: usize = 16 * 1024;

/// A running gRPC server, private or given.
pub(super) struct Grpc {
    server: BuiltIn,
    given: Given,
    reply_size: u32,
}

impl Grpc {
    pub(super) fn start(reply_size: u32, start: &StartOptions) -> Result<Self, BenchError> {
        let given = Given::of(start);
        needs_private(start)?;
        let spec = BuiltInSpec::new(&start.program, "rpc", Vec::new());
        Ok(Grpc { server: BuiltIn::start(spec, &given.missing)?, given, reply_size })
    }
}

impl Instance for Grpc {
    fn server(&self) -> ServerInfo {
        self.given.server("a gRPC server that already runs", "samehost serve rpc (tonic)", self.server.pids())
    }

    fn job(&mut self, arm: &Arm) -> Result<Job, BenchError> {
        let endpoint =
            self.endpoint(arm.transport).ok_or_else(|| BenchError::nobody_on(arm.transport, "RPC server"))?;
        let asked = clients::Asked::new(size_of(arm), self.reply_size)?;
        let callers = (0..arm.point.connections).map(|_| {
            let caller = clients::GrpcCaller::connect(&endpoint, &asked)?;
            Ok(Box::new(caller) as Box<dyn Caller>)
        });
        let callers = callers.collect::<Result<_, BenchError>>()?;
        Ok(Job::Callers { endpoint: endpoint.to_string(), callers })
    }

    fn endpoint(&self, transport: Transport) -> Option<Endpoint> {
        self.given.endpoints.get(&transport).or_else(|| self.server.endpoint(transport)).cloned()
    }

    fn stderr_tail(&self) -> String {
        self.server.stderr_tail()
    }
}

/// A running private Go server.
pub(super) struct Go {
    server: PrivateServer,
    program: Arc<GoProgram>,
    codec: GoCodec,
    reply_size: u32,
}

impl Go {
    pub(super) fn start(codec: GoCodec, reply_size: u32, start: &StartOptions) -> Result<Self, BenchError> {
        let (server, program) = go::start(&start.program, codec)?;
        Ok(Go { server, program, codec, reply_size })
    }

    /// The Go client's job.
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
        let endpoint =
            self.endpoint(arm.transport).ok_or_else(|| BenchError::nobody_on(arm.transport, "RPC server"))?;
        if self.codec == GoCodec::Gob {
            return Ok(Job::Client(self.client(arm, &endpoint)));
        }
        let payload = Bytes::from(payload(size_of(arm)));
        let awaited = reply_to(&payload, self.reply_size).unwrap_or_default();
        let small = payload.len().max(awaited.len()) <= SMALL;
        let asked = clients::JsonAsked::new(&payload, self.reply_size, &awaited);
        let connector = JsonConnector { endpoint, transport: arm.transport, asked };
        Ok(Job::Sessions { connector: Arc::new(connector), small })
    }

    fn endpoint(&self, transport: Transport) -> Option<Endpoint> {
        self.server.endpoint(transport).cloned()
    }

    fn stderr_tail(&self) -> String {
        self.server.stderr_tail()
    }
}

/// Opens connections to the JSON codec.
struct JsonConnector {
    endpoint: Endpoint,
    transport: Transport,
    asked: clients::JsonAsked,
}

impl Connector for JsonConnector {
    fn connect(&self) -> Result<(Stream, Box<dyn Session>), BenchError> {
        let stream = connect(&self.endpoint, &ConnectOptions::default())?;
        prove(&stream, self.transport)?;
        Ok((stream, Box::new(clients::JsonSession::new(self.asked.clone()))))
    }

    fn endpoint(&self) -> String {
        self.endpoint.to_string()
    }
}
