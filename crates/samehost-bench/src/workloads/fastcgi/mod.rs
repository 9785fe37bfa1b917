//! FastCGI: requests to PHP-FPM, with a new connection for each as in nginx's default, or over kept
//! connections; also a burst that fills its backlog. A pool listens on one address only, so each transport
//! has its own pool in one PHP-FPM; the children of all pools are forked from one master. Children of two
//! pools are different processes, so PHP-FPM is restarted for every block.

mod advice;
mod caller;
mod front;
mod record;
mod running;
mod script;
mod session;

use samehost_model::{Better, MetricInfo, Point, Transport, parse_count_list};

use crate::error::BenchError;
use crate::impact::Impact;
use crate::network::{Instead, Network};
use crate::private_servers::PHP_FPM;
use crate::workload::{
    Capabilities, CheckupEntry, Instance, Look, OpenOrClosed, Parameter, ParameterKind, Parameters,
    StartOptions, Wanted, Workload,
};
use crate::workloads::foreign::crowding;
use crate::workloads::requests::request_metrics;
use running::RunningFastCgi;

/// Largest reply of the built-in script.
const MOST_SIZE: u64 = 16 << 20;
/// Most children of a pool: each takes some megabytes.
const MOST_CHILDREN: u32 = 256;
/// Default number of children: enough for two CPUs, few enough to start in every block.
const CHILDREN: u32 = 16;
/// Default number of children in a burst.
const CHILDREN_IN_BURST: u32 = 4;
/// Default number of requests of a burst.
const BURST: &str = "128";
/// PHP-FPM's own default.
const BACKLOG: &str = "511";

/// The fastcgi workload.
pub struct FastCgi;

fn is_burst(parameters: &Parameters) -> bool {
    parameters["pattern"] == "burst"
}

fn is_via_nginx(parameters: &Parameters) -> bool {
    parameters["via"] == "nginx"
}

fn is_kept(parameters: &Parameters) -> bool {
    parameters["connect"] == "keep" && !is_burst(parameters)
}

const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "pattern",
        help: "Requests one after the other on each connection, or all at once",
        default: "cycle",
        kind: ParameterKind::Choice(&["cycle", "burst"]),
    },
    Parameter {
        name: "connect",
        help: "A connection for each request, as nginx makes them by default, or kept ones (FCGI_KEEP_CONN)",
        default: "per-request",
        kind: ParameterKind::Choice(&["per-request", "keep"]),
    },
    Parameter {
        name: "via",
        help: "Straight to PHP-FPM, or through a private nginx; the transports compared are those to PHP-FPM",
        default: "none",
        kind: ParameterKind::Choice(&["none", "nginx"]),
    },
    Parameter {
        name: "front",
        help: "The transport in front of nginx, the same for all arms",
        default: "tcp",
        kind: ParameterKind::Choice(&["tcp", "unix"]),
    },
    Parameter {
        name: "script",
        help: "A script of your own, by its absolute path as PHP-FPM sees it; without, one of ours that prints --size bytes",
        default: "",
        kind: ParameterKind::Text,
    },
    Parameter {
        name: "query",
        help: "The query string for --script",
        default: "",
        kind: ParameterKind::Text,
    },
    Parameter {
        name: "children",
        help: "Worker processes of each pool of the private PHP-FPM; each serves one connection at a time; auto: 16, 4 in a burst, one for each kept connection",
        default: "auto",
        kind: ParameterKind::Text,
    },
    Parameter {
        name: "backlog",
        help: "listen.backlog of the private pools, a list or a range; a burst is also measured at the backlog that holds it",
        default: BACKLOG,
        kind: ParameterKind::Counts,
    },
    Parameter {
        name: "nap",
        help: "burst: how long our script sleeps in each request",
        default: "20ms",
        kind: ParameterKind::Duration,
    },
    Parameter {
        name: "patience",
        help: "burst: how long to wait for replies (a dropped SYN is sent again after a second, and then again and again)",
        default: "10s",
        kind: ParameterKind::Duration,
    },
];

impl Workload for FastCgi {
    fn name(&self) -> &'static str {
        "fastcgi"
    }

    fn about(&self) -> &'static str {
        "PHP-FPM: GET of a script by FastCGI, or a burst of requests against a short backlog"
    }

    fn example(&self) -> &'static str {
        "fastcgi --pattern burst --connections 128 --backlog 16"
    }

    fn parameters(&self) -> &'static [Parameter] {
        PARAMETERS
    }

    fn axes(&self, parameters: &Parameters) -> Capabilities {
        let burst = is_burst(parameters);
        Capabilities {
            transports: &[Transport::Tcp, Transport::Unix],
            connections: Some(if burst { BURST } else { "1" }),
            sizes: if parameters["script"].is_empty() { Some("128") } else { None },
            rates: !burst,
            timed: !burst,
            foreign_servers: true,
            commands: false,
        }
    }

    fn title(&self, parameters: &Parameters) -> String {
        let what = match parameters["script"].as_str() {
            "" => "GET of our script".to_owned(),
            path => format!("GET of {path}"),
        };
        let what = if is_via_nginx(parameters) { format!("{what} through nginx") } else { what };
        if is_burst(parameters) {
            format!("{what}, all at once")
        } else if is_kept(parameters) {
            format!("{what}, kept connections")
        } else {
            format!("{what}, a connection per request")
        }
    }

    fn metrics(&self, parameters: &Parameters, open_loop: OpenOrClosed) -> Vec<MetricInfo> {
        if !is_burst(parameters) {
            let mut metrics = request_metrics(open_loop);
            if is_via_nginx(parameters) {
                let at = metrics.iter().position(|metric| metric.name == "server_cpu_per_op");
                metrics.insert(at.unwrap_or(metrics.len()), MetricInfo::built_in("proxy_cpu_per_op"));
            }
            return metrics;
        }
        let mut metrics = vec![
            MetricInfo::own("served_percent", "percent", Better::Higher),
            MetricInfo::own("refused_percent", "percent", Better::Lower),
            MetricInfo::own("stalled_percent", "percent", Better::Lower),
            MetricInfo::own("slowest_ms", "ms", Better::Lower),
        ];
        metrics.extend(["latency_p50", "latency_p90"].map(MetricInfo::built_in));
        metrics
    }

    fn check(&self, point: &Point, _: Transport, parameters: &Parameters) -> Result<(), BenchError> {
        if let Some(size) = point.size_bytes.filter(|size| *size > MOST_SIZE) {
            return Err(BenchError::Usage(format!(
                "--size {size} is too large for fastcgi: at most {MOST_SIZE} bytes here"
            )));
        }
        let connections = point.connections;
        if is_kept(parameters) && connections > children(parameters, connections)? {
            return Err(BenchError::Usage(format!(
                "a child of PHP-FPM serves one connection at a time, and keeps it: {connections} kept connections need --children {connections} (at most {MOST_CHILDREN}), or --connect per-request"
            )));
        }
        let threads = !is_burst(parameters) && !is_kept(parameters) && !is_via_nginx(parameters);
        if threads && connections > 1024 {
            return Err(BenchError::Usage(
                "a connection for each request has a thread for each of --connections; at most 1024 of them"
                    .into(),
            ));
        }
        Ok(())
    }

    fn propose(&self, parameters: &Parameters, connections: &[u32]) -> Result<Parameters, BenchError> {
        let mut parameters = parameters.clone();
        let default = parse_count_list(if is_burst(&parameters) { BURST } else { "1" })?;
        let connections = if connections.is_empty() { &default } else { connections };
        let most = connections.iter().copied().max().unwrap_or(1);
        parameters.insert("children".into(), children(&parameters, most)?.to_string());
        if !is_via_nginx(&parameters) {
            parameters.insert("front".into(), String::new());
        }
        if is_burst(&parameters) {
            // If a given backlog is long enough for the burst, no other is added.
            if parse_count_list(&parameters["backlog"])?.iter().all(|backlog| *backlog < most) {
                let list = format!("{},{most}", parameters["backlog"]);
                parameters.insert("backlog".into(), list);
            }
            parameters.insert("connect".into(), String::new());
        } else {
            for unused in ["nap", "patience"] {
                parameters.insert(unused.into(), String::new());
            }
        }
        Ok(parameters)
    }

    fn impact(&self, look: &Look<'_>) -> Result<Vec<Impact>, BenchError> {
        if is_burst(look.parameters) { crowding(look, true) } else { Ok(Vec::new()) }
    }

    /// A client that reaches a pool's port can run any code. A comparison of port and socket must run in one
    /// network namespace.
    fn network(&self, _: &Parameters, wanted: Wanted<'_>) -> Network {
        if !wanted.starts_one_on(Transport::Tcp) {
            return Network::Shared;
        }
        Network::Own(Instead(
            "measure the Unix socket alone (--transports unix), or a PHP-FPM that runs (--tcp and --unix, with --script)",
        ))
    }

    fn checkup(&self) -> Option<CheckupEntry> {
        Some(CheckupEntry::server(&PHP_FPM, self.name()))
    }

    fn start(&self, start: &StartOptions) -> Result<Box<dyn Instance>, BenchError> {
        Ok(Box::new(RunningFastCgi::start(start)?))
    }
}

/// Number of children of a pool, given the most connections.
fn children(parameters: &Parameters, most_connections: u32) -> Result<u32, BenchError> {
    match parameters["children"].as_str() {
        "auto" if is_burst(parameters) => Ok(CHILDREN_IN_BURST),
        "auto" if is_kept(parameters) => Ok(most_connections.min(MOST_CHILDREN)),
        "auto" => Ok(CHILDREN),
        text => match text.parse() {
            Ok(count) if (1..=MOST_CHILDREN).contains(&count) => Ok(count),
            _ => Err(BenchError::Usage(format!("--children {text}: `auto`, or from 1 to {MOST_CHILDREN}"))),
        },
    }
}

/// Backlog of a point; its own value overrides the workload's.
fn backlog<'a>(point: &'a Point, parameters: &'a Parameters) -> &'a str {
    point.parameters.get("backlog").unwrap_or(&parameters["backlog"])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(changed: &[(&str, &str)]) -> Parameters {
        let changed = changed.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        crate::workload::defaults(&FastCgi).into_iter().chain(changed).collect()
    }

    fn check(connections: u32, changed: &[(&str, &str)]) -> Result<(), BenchError> {
        let point = Point { connections, ..Point::default() };
        FastCgi.check(&point, Transport::Tcp, &parameters(changed))
    }

    #[test]
    fn kept_connections_need_a_child_each() {
        assert!(check(64, &[("connect", "keep")]).is_ok(), "children follow the connections");
        assert!(check(8, &[("connect", "keep"), ("children", "8")]).is_ok());
        let error = check(9, &[("connect", "keep"), ("children", "8")]).unwrap_err().to_string();
        assert!(error.contains("--children 9"), "{error}");
        assert!(check(257, &[("connect", "keep")]).is_err());
        assert!(check(9, &[("children", "8")]).is_ok(), "these wait for their turn");
        for odd in ["0", "257", "many"] {
            assert!(children(&parameters(&[("children", odd)]), 1).is_err());
        }
    }

    #[test]
    fn a_burst_is_measured_at_a_backlog_that_holds_it() {
        let proposed = |backlog: &str, connections: &[u32]| {
            let given = parameters(&[("pattern", "burst"), ("backlog", backlog)]);
            FastCgi.propose(&given, connections).unwrap()["backlog"].clone()
        };
        assert_eq!(proposed("16", &[]), "16,128");
        assert_eq!(proposed("1,4", &[20, 64]), "1,4,64");
        assert_eq!(proposed("64", &[64]), "64");
        assert_eq!(proposed("511", &[]), "511");
        let cycle = parameters(&[]);
        let proposed = FastCgi.propose(&cycle, &[600]).unwrap();
        assert_eq!((proposed["backlog"].as_str(), proposed["children"].as_str()), ("511", "16"));
    }
}
