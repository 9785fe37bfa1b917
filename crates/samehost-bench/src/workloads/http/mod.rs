//! HTTP/1: repeats the same request, on persistent connections or a new one each time, to the built-in server
//! or to any URL. Reads replies to their end, however that is marked, and compares them.

mod address;
mod exchange;
mod head;
mod page;
mod reply;
mod running;
mod session;

use std::collections::BTreeMap;

use samehost_model::{MetricInfo, Point, Redactor, Transport};

use crate::error::BenchError;
use crate::impact::Impact;
use crate::workload::{
    Capabilities, Instance, Look, OpenOrClosed, Parameter, ParameterKind, Parameters, StartOptions, Workload,
};
use crate::workloads::requests::{self, MOST_SLICED, request_metrics};
pub(crate) use exchange::{HttpConnector, RequestParts, fetch, fetch_field};
pub(crate) use head::refusal;
pub use page::PageLook;
use running::RunningHttp;
pub(crate) use session::{Expected, HttpSession};

/// Most requests sent at once.
const MOST_PIPELINE: u32 = 64;
/// Most connections if each has a thread.
const MOST_THREADS: u32 = 1024;
/// Largest reply of the built-in server, and the largest body of a POST.
const MOST_SIZE: u64 = 64 << 20;

/// The http workload.
pub struct Http;

impl Workload for Http {
    fn name(&self) -> &'static str {
        "http"
    }

    fn about(&self) -> &'static str {
        "HTTP/1.0 or 1.1: GET or POST to the built-in server or any URL, kept alive or a connection each"
    }

    fn example(&self) -> &'static str {
        "http --connections 1,64 --size 4k"
    }

    fn parameters(&self) -> &'static [Parameter] {
        &[
            Parameter {
                name: "method",
                help: "Method of the request",
                default: "get",
                kind: ParameterKind::Choice(&["get", "post"]),
            },
            Parameter {
                name: "post-size",
                help: "post: bytes of the request's body",
                default: "128",
                kind: ParameterKind::Count,
            },
            Parameter {
                name: "http",
                help: "Version of HTTP in the request",
                default: "1.1",
                kind: ParameterKind::Choice(&["1.1", "1.0"]),
            },
            Parameter {
                name: "connect",
                help: "keep: connections stay open; per-request: connect, ask, read, close for each request",
                default: "keep",
                kind: ParameterKind::Choice(&["keep", "per-request"]),
            },
            Parameter {
                name: "pipeline",
                help: "Requests sent together, 1 to 64, a list (1,8) or a doubling range (1..64); each counts as an operation, and latency is that of them all",
                default: "1",
                kind: ParameterKind::Counts,
            },
            Parameter {
                name: "path",
                help: "Path and query that are asked for, where --tcp and --unix name a plain endpoint [default: /]",
                default: "",
                kind: ParameterKind::Text,
            },
            Parameter {
                name: "host",
                help: "The Host field [default: that of the URL]",
                default: "",
                kind: ParameterKind::Text,
            },
        ]
    }

    fn axes(&self, _: &Parameters) -> Capabilities {
        Capabilities {
            transports: &[
                Transport::Tcp,
                Transport::Unix,
                Transport::Tcp6,
                Transport::Abstract,
                Transport::TcpTls,
            ],
            connections: Some("1"),
            sizes: Some("4096"),
            rates: true,
            timed: true,
            foreign_servers: true,
            commands: false,
        }
    }

    fn foreign_sizes(&self) -> bool {
        false
    }

    fn most_sliced(&self, parameters: &Parameters, _: &BTreeMap<Transport, String>) -> u32 {
        if is_per_request(parameters) { 0 } else { MOST_SLICED }
    }

    fn title(&self, parameters: &Parameters) -> String {
        let method = parameters["method"].to_ascii_uppercase();
        let connections = if is_per_request(parameters) { "a connection each" } else { "kept alive" };
        let pipeline = match parameters["pipeline"].as_str() {
            "1" => String::new(),
            several if several.contains(',') => ", in pipelines".into(),
            many => format!(", {many} in a pipeline"),
        };
        format!("{method}, HTTP/{}, {connections}{pipeline}", parameters["http"])
    }

    fn metrics(&self, _: &Parameters, open_loop: OpenOrClosed) -> Vec<MetricInfo> {
        request_metrics(open_loop)
    }

    fn check(&self, point: &Point, _: Transport, parameters: &Parameters) -> Result<(), BenchError> {
        let pipeline = pipeline(point, parameters)?;
        if is_per_request(parameters) && pipeline > 1 {
            return Err(BenchError::Usage(
                "--pipeline needs connections that stay: leave --connect per-request out".into(),
            ));
        }
        if is_per_request(parameters) && point.connections > MOST_THREADS {
            return Err(BenchError::Usage(format!(
                "--connect per-request has a thread for each connection: at most {MOST_THREADS} of them"
            )));
        }
        let largest = point.size_bytes.unwrap_or(0).max(post_size(parameters)?);
        if largest.saturating_mul(u64::from(pipeline)) > MOST_SIZE {
            return Err(BenchError::Usage(format!(
                "bodies of {largest} bytes, {pipeline} at once, are more than {MOST_SIZE} bytes; use a smaller --size, --post-size or --pipeline"
            )));
        }
        let path = &parameters["path"];
        if !path.is_empty() && (!path.starts_with('/') || !path.bytes().all(|byte| byte.is_ascii_graphic())) {
            return Err(BenchError::Usage(format!(
                "--path {}: it begins with `/`, and blanks and letters beyond ASCII are percent-encoded",
                path.escape_debug()
            )));
        }
        if !parameters["host"].bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(BenchError::Usage("--host: a host name has no blanks".into()));
        }
        Ok(())
    }

    /// GET is safe: it changes nothing (RFC 9110, 9.2.1).
    fn impact(&self, look: &Look<'_>) -> Result<Vec<Impact>, BenchError> {
        if look.parameters["method"] != "post" {
            return Ok(Vec::new());
        }
        let each = look.servers.values().map(|address| Impact {
            does: vec!["sends POST requests as fast as they are answered; what its application does with them is done".into()],
            ..Impact::of(format!("the server at {}", Redactor::default().word(address)))
        });
        Ok(each.collect())
    }

    fn start(&self, start: &StartOptions) -> Result<Box<dyn Instance>, BenchError> {
        Ok(Box::new(RunningHttp::start(start)?))
    }
}

fn is_per_request(parameters: &Parameters) -> bool {
    parameters["connect"] == "per-request"
}

/// Bytes of the request's body.
fn post_size(parameters: &Parameters) -> Result<u64, BenchError> {
    let text = &parameters["post-size"];
    text.parse().map_err(|_| BenchError::Usage(format!("--post-size {text}: a number of bytes")))
}

/// Requests sent together.
fn pipeline(point: &Point, parameters: &Parameters) -> Result<u32, BenchError> {
    requests::pipeline(point, parameters, MOST_PIPELINE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_that_make_no_sense_are_refused_before_anything_starts() {
        let check = |changed: &[(&str, &str)], size| {
            let mut parameters = crate::workload::defaults(&Http);
            parameters.extend(changed.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
            let point = Point { connections: 1, size_bytes: Some(size), ..Point::default() };
            Http.check(&point, Transport::Tcp, &parameters)
        };
        assert!(check(&[], 4096).is_ok());
        assert!(check(&[], MOST_SIZE + 1).is_err());
        assert!(check(&[("pipeline", "64")], MOST_SIZE / 32).is_err());
        assert!(check(&[("pipeline", "2"), ("connect", "per-request")], 1).is_err());
        assert!(check(&[("path", "/a b")], 1).is_err());
        assert!(check(&[("path", "a")], 1).is_err());
        assert!(check(&[("host", "a b")], 1).is_err());
    }
}
