//! Remote procedure calls, one at a time on each connection: gRPC with tonic, against the built-in server or
//! one that is already running; and Go's net/rpc, against a small Go server, with a Go client (gob over HTTP)
//! or ours (JSON codec). The procedure returns the payload, repeated or cut to the size asked for.

mod grpc;
mod json;
mod running;

use std::collections::BTreeMap;

use samehost_model::{MetricInfo, Point, Transport, parse_size};

use crate::error::BenchError;
use crate::workload::{
    Capabilities, Instance, OpenOrClosed, Parameter, ParameterKind, Parameters, StartOptions, Workload,
};
use crate::workloads::requests::{MOST_SLICED, request_metrics};

/// Largest payload in either direction.
const MOST_SIZE: u64 = 64 * 1024 * 1024;
/// Most callers, which have a thread each.
const MOST_CALLERS: u32 = 1024;
/// Value of `--reply` for a reply equal to the request's payload.
const ECHO: &str = "echo";

/// The rpc workload.
pub struct Rpc;

/// Protocol and client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    /// gRPC, tonic on both sides.
    Grpc,
    /// net/rpc's gob over HTTP, Go on both sides.
    GoGob,
    /// net/rpc's JSON codec, our client.
    GoJson,
}

fn protocol(parameters: &Parameters) -> Protocol {
    match parameters["protocol"].as_str() {
        "go-gob" => Protocol::GoGob,
        "go-json" => Protocol::GoJson,
        _ => Protocol::Grpc,
    }
}

impl Workload for Rpc {
    fn name(&self) -> &'static str {
        "rpc"
    }

    fn about(&self) -> &'static str {
        "Remote procedure calls: gRPC (built in), or Go's net/rpc with a Go server of ours"
    }

    fn example(&self) -> &'static str {
        "rpc --connections 1,64 --size 128"
    }

    fn parameters(&self) -> &'static [Parameter] {
        &[
            Parameter {
                name: "protocol",
                help: "grpc: tonic on both sides; go-gob: net/rpc over HTTP as Go programs have it, Go on both sides; go-json: net/rpc's JSON codec, our client. The latter two need Go (golang-go) and build a server of ours first",
                default: "grpc",
                kind: ParameterKind::Choice(&["grpc", "go-gob", "go-json"]),
            },
            Parameter {
                name: "reply",
                help: "Bytes of the reply's payload (such as 4k); echo: the request's payload comes back",
                default: ECHO,
                kind: ParameterKind::Text,
            },
        ]
    }

    fn axes(&self, parameters: &Parameters) -> Capabilities {
        let protocol = protocol(parameters);
        Capabilities {
            transports: if protocol == Protocol::Grpc {
                grpc::TRANSPORTS
            } else {
                &[Transport::Tcp, Transport::Unix]
            },
            connections: Some("1"),
            sizes: Some("128"),
            // The Go client generates its own load, in a closed loop.
            rates: protocol != Protocol::GoGob,
            timed: true,
            foreign_servers: protocol == Protocol::Grpc,
            commands: false,
        }
    }

    fn most_sliced(&self, parameters: &Parameters, _: &BTreeMap<Transport, String>) -> u32 {
        if protocol(parameters) == Protocol::GoJson { MOST_SLICED } else { 0 }
    }

    fn title(&self, parameters: &Parameters) -> String {
        let what = match protocol(parameters) {
            Protocol::Grpc => "gRPC unary calls",
            Protocol::GoGob => "Go net/rpc calls, gob over HTTP, Go client",
            Protocol::GoJson => "Go net/rpc calls, JSON codec",
        };
        match parameters["reply"].as_str() {
            ECHO => what.into(),
            size => format!("{what}, replies of {size}"),
        }
    }

    fn metrics(&self, _: &Parameters, open_loop: OpenOrClosed) -> Vec<MetricInfo> {
        request_metrics(open_loop)
    }

    fn check(&self, point: &Point, _: Transport, parameters: &Parameters) -> Result<(), BenchError> {
        for (name, size) in
            [("size", point.size_bytes.unwrap_or(0)), ("reply", u64::from(reply_size(parameters)?))]
        {
            if size > MOST_SIZE {
                return Err(BenchError::Usage(format!(
                    "--{name} {size} is too large for rpc: at most {MOST_SIZE} bytes here"
                )));
            }
        }
        if protocol(parameters) == Protocol::Grpc && point.connections > MOST_CALLERS {
            return Err(BenchError::Usage(format!(
                "a gRPC client has a thread for each connection; at most {MOST_CALLERS} of them"
            )));
        }
        Ok(())
    }

    fn start(&self, start: &StartOptions) -> Result<Box<dyn Instance>, BenchError> {
        match protocol(&start.parameters) {
            Protocol::Grpc => Ok(Box::new(running::Grpc::start(start)?)),
            protocol => Ok(Box::new(running::Go::start(start, protocol)?)),
        }
    }
}

/// Bytes of the reply's payload; 0 for the size of the request's.
fn reply_size(parameters: &Parameters) -> Result<u32, BenchError> {
    match parameters["reply"].as_str() {
        ECHO => Ok(0),
        text => match u32::try_from(parse_size(text)?) {
            Ok(size) if size > 0 => Ok(size),
            _ => Err(BenchError::Usage(format!("--reply {text}: from 1 byte to {MOST_SIZE}, or {ECHO}"))),
        },
    }
}

/// Text that JSON, gob and protobuf encode without escapes, the same as the Go client's.
fn payload(size: usize) -> Vec<u8> {
    b"abcdefghijklmnopqrstuvwxyz0123456789".iter().copied().cycle().take(size).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(protocol: &str, reply: &str) -> Parameters {
        [("protocol".into(), protocol.into()), ("reply".into(), reply.into())].into()
    }

    #[test]
    fn points_that_make_no_sense_are_refused_before_anything_starts() {
        let point = |connections, size| Point { connections, size_bytes: Some(size), ..Point::default() };
        let check = |point: &Point, protocol, reply| {
            Rpc.check(point, Transport::Tcp, &parameters(protocol, reply)).is_ok()
        };
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
        assert_eq!(reply_size(&parameters("grpc", "echo")).unwrap(), 0);
        assert_eq!(reply_size(&parameters("grpc", "4k")).unwrap(), 4096);
    }

    #[test]
    fn only_the_go_client_has_no_rate_and_only_grpc_other_servers() {
        for (protocol, rates, foreign) in
            [("grpc", true, true), ("go-gob", false, false), ("go-json", true, false)]
        {
            let axes = Rpc.axes(&parameters(protocol, "echo"));
            assert_eq!((axes.rates, axes.foreign_servers), (rates, foreign), "{protocol}");
        }
    }
}
