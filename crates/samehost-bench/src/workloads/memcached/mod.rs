//! memcached: get and set in its text protocol or its meta commands, by value size. It cannot listen on a TCP
//! port and a Unix socket at once. Each transport has its own process, restarted for every block, so that
//! differences between processes (memory layout) are not taken for differences between transports.

mod dialogue;
mod impact;
mod running;
mod session;

use std::collections::BTreeMap;

use samehost_login::Destination;
use samehost_login::url::ServerUrl;
use samehost_model::{Endpoint, MetricInfo, Point, Transport};

use crate::error::BenchError;
use crate::impact::Impact;
use crate::private_servers::MEMCACHED;
use crate::workload::{
    Capabilities, CheckupEntry, Instance, Look, OpenOrClosed, Parameter, ParameterKind, Parameters,
    StartOptions, Workload, word,
};
use crate::workloads::reached::require_transport;
use crate::workloads::requests::{MOST_SLICED, request_metrics};
use running::RunningMemcached;
use session::Protocol;

/// Largest value.
const MOST_SIZE: u64 = 1024 * 1024;

/// The memcached workload.
pub struct Memcached;

impl Workload for Memcached {
    fn name(&self) -> &'static str {
        "memcached"
    }

    fn about(&self) -> &'static str {
        "memcached: get or set, by value size up to 1 MiB; one key `samehost:…` only"
    }

    fn example(&self) -> &'static str {
        "memcached --connections 1,64 --size 128,1m"
    }

    fn parameters(&self) -> &'static [Parameter] {
        &[
            Parameter {
                name: "command",
                help: "What is asked, of a key `samehost:…` that is set before the first trial and deleted after the last",
                default: "get",
                kind: ParameterKind::Choice(&["get", "set"]),
            },
            Parameter {
                name: "protocol",
                help: "The classic text protocol (get, set) or the meta commands (mg, ms)",
                default: "text",
                kind: ParameterKind::Choice(&["text", "meta"]),
            },
        ]
    }

    fn axes(&self, _: &Parameters) -> Capabilities {
        Capabilities {
            transports: &[Transport::Tcp, Transport::Unix],
            connections: Some("1"),
            sizes: Some("128"),
            rates: true,
            timed: true,
            foreign_servers: true,
            commands: false,
        }
    }

    fn most_sliced(&self, _: &Parameters, _: &BTreeMap<Transport, String>) -> u32 {
        MOST_SLICED
    }

    fn title(&self, parameters: &Parameters) -> String {
        format!("{}, {} protocol", parameters["command"], parameters["protocol"])
    }

    fn metrics(&self, _: &Parameters, open_loop: OpenOrClosed) -> Vec<MetricInfo> {
        request_metrics(open_loop)
    }

    fn check(&self, point: &Point, _: Transport, _: &Parameters) -> Result<(), BenchError> {
        match point.size_bytes {
            Some(size) if size > MOST_SIZE => Err(BenchError::Usage(format!(
                "--size {size} is too large for memcached: at most {MOST_SIZE} bytes here"
            ))),
            _ => Ok(()),
        }
    }

    fn impact(&self, look: &Look<'_>) -> Result<Vec<Impact>, BenchError> {
        impact::look(look)
    }

    fn checkup(&self) -> Option<CheckupEntry> {
        Some(CheckupEntry::server(&MEMCACHED, self.name()))
    }

    fn start(&self, start: &StartOptions) -> Result<Box<dyn Instance>, BenchError> {
        Ok(Box::new(RunningMemcached::start(start)?))
    }
}

/// Parsed parameters.
#[derive(Clone, Copy, Debug)]
struct Settings {
    command: Command,
    protocol: Protocol,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    Get,
    Set,
}

impl Settings {
    fn parse(parameters: &Parameters) -> Result<Self, BenchError> {
        Ok(Settings {
            command: word(parameters, "command", &[("get", Command::Get), ("set", Command::Set)])?,
            protocol: word(parameters, "protocol", &[("text", Protocol::Text), ("meta", Protocol::Meta)])?,
        })
    }
}

/// Parses `memcached://127.0.0.1:11211`, `memcached+unix:///path` or a plain endpoint.
fn endpoint(transport: Transport, text: &str) -> Result<Endpoint, BenchError> {
    let wrong = |reason: String| {
        BenchError::Usage(format!(
            "{reason}; write memcached://127.0.0.1:11211, memcached+unix:///path or a plain endpoint"
        ))
    };
    let endpoint = match ServerUrl::parse(text).transpose().map_err(wrong)? {
        None => text.parse()?,
        Some(url) => match Destination::of(&url).map_err(|error| wrong(error.to_string()))? {
            found if found.protocol == samehost_model::Protocol::Memcached => found.endpoint,
            _ => return Err(wrong(format!("`{}://` is not a URL of memcached", url.scheme.escape_debug()))),
        },
    };
    require_transport(transport, &endpoint)?;
    Ok(endpoint)
}

#[cfg(test)]
mod tests {
    use samehost_testing::assert_leads_everywhere;

    use super::*;

    #[test]
    fn servers_are_named_by_url_or_endpoint() {
        let tcp = |text| endpoint(Transport::Tcp, text).map(|endpoint| endpoint.to_string());
        assert_eq!(tcp("memcached://127.0.0.1:11211").unwrap(), "tcp:127.0.0.1:11211");
        assert_eq!(tcp("tcp:[::1]:11211").unwrap(), "tcp:[::1]:11211");
        assert!(tcp("memcached+unix:///run/m.sock").unwrap_err().to_string().contains("--tcp names"));
        assert!(tcp("127.0.0.1:11211").is_err());
    }

    #[test]
    fn urls_lead_where_they_lead_everywhere() {
        let read = |text: &str| {
            endpoint(Transport::Tcp, text)
                .or_else(|_| endpoint(Transport::Unix, text))
                .map(|found| found.to_string())
        };
        assert_leads_everywhere(&["memcached"], read);
    }

    #[test]
    fn an_unknown_word_is_refused() {
        let settings = |protocol: &str| {
            let given = [("command", "get"), ("protocol", protocol)];
            Settings::parse(&given.map(|(name, value)| (name.into(), value.into())).into())
        };
        assert_eq!(settings("meta").unwrap().protocol, Protocol::Meta);
        let error = settings("binary").unwrap_err().to_string();
        assert!(error.contains("--protocol: `binary` is none of text, meta"), "{error}");
    }

    #[test]
    fn values_beyond_one_mebibyte_are_refused() {
        let check = |size| {
            let point = Point { connections: 1, size_bytes: Some(size), ..Point::default() };
            Memcached.check(&point, Transport::Unix, &Parameters::new())
        };
        assert!(check(MOST_SIZE).is_ok());
        assert!(check(MOST_SIZE + 1).is_err());
    }
}
