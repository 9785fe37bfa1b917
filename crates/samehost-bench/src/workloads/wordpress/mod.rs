//! A page of WordPress: nginx, PHP-FPM, WordPress and its database, reached over TCP or a Unix socket. The
//! same processes serve both arms. WordPress itself counts its queries and their time, so that the gain of
//! the page can be compared with what the gain of the queries predicts.
//!
//! No file of an existing site (`--site`) is changed: the address of its database is set before its own
//! settings are read.

mod existing;
mod pages;
mod readers;
mod request;
mod running;
mod site;
mod web;

use samehost_model::{Better, MetricInfo, Part, Point, Transport};

use crate::error::BenchError;
use crate::impact::Impact;
use crate::network::{Instead, Network};
use crate::starts::Starts;
use crate::workload::{
    Capabilities, CheckupEntry, Instance, Look, OpenOrClosed, Parameter, ParameterKind, Parameters,
    StartOptions, Wanted, Workload,
};
use crate::workloads::requests::request_metrics;
use running::RunningWordPress;

/// Most pages requested at the same time: each has a process of PHP.
const MOST_CONNECTIONS: u32 = 64;

/// The wordpress workload.
pub struct WordPress;

impl Workload for WordPress {
    fn name(&self) -> &'static str {
        "wordpress"
    }

    fn about(&self) -> &'static str {
        "A page of WordPress through nginx and PHP-FPM, its database over TCP or a Unix socket"
    }

    fn example(&self) -> &'static str {
        "wordpress --site /var/www/html"
    }

    fn parameters(&self) -> &'static [Parameter] {
        &[
            Parameter {
                name: "fpm",
                help: "How nginx reaches PHP-FPM: unix, tcp, or both as a factor of their own",
                default: "unix",
                kind: ParameterKind::Choices(&["unix", "tcp"]),
            },
            Parameter {
                name: "site",
                help: "Directory of a site that is there already; no file of it is changed [default: a private site]",
                default: "",
                kind: ParameterKind::Text,
            },
            Parameter {
                name: "path",
                help: "Path and query of the page [default: the site's home]",
                default: "",
                kind: ParameterKind::Text,
            },
            Parameter {
                name: "host",
                help: "--site: the Host field, and the site's name [default: that of its home address]",
                default: "",
                kind: ParameterKind::Text,
            },
        ]
    }

    fn axes(&self, _: &Parameters) -> Capabilities {
        Capabilities {
            transports: &[Transport::Tcp, Transport::Unix],
            connections: Some("1"),
            sizes: None,
            rates: false,
            timed: true,
            foreign_servers: false,
            commands: false,
        }
    }

    fn title(&self, parameters: &Parameters) -> String {
        let fpm = match fpm_of(parameters) {
            Some(Transport::Tcp) => "TCP",
            Some(_) => "a Unix socket",
            None => "both",
        };
        let site = if parameters["site"].is_empty() { "private" } else { "given" };
        format!("page of a {site} site, database by transport, PHP-FPM over {fpm}")
    }

    fn metrics(&self, _: &Parameters, open_loop: OpenOrClosed) -> Vec<MetricInfo> {
        let mut metrics = request_metrics(open_loop);
        metrics.retain(|metric| metric.name != "total_cpu_per_op");
        let server = metrics.iter().position(|metric| metric.name == "client_cpu_per_op").unwrap_or(0);
        metrics.insert(server, MetricInfo::built_in("proxy_cpu_per_op"));
        metrics.push(MetricInfo::built_in("total_cpu_per_op"));
        let own = ["database_ms", "query_ms", "connect_ms", "page_ms"];
        let at = metrics.iter().position(|metric| metric.name == "throughput").unwrap_or(metrics.len());
        metrics.splice(at..at, own.map(|name| MetricInfo::own(name, "ms", Better::Lower)));
        metrics
    }

    /// Setting up a site and loading pages takes longer than the checkup has for one server.
    fn checkup(&self) -> Option<CheckupEntry> {
        Some(CheckupEntry::Hints(hints))
    }

    fn parts(&self, _: &Parameters) -> Vec<Part> {
        vec![Part { part: "database_ms".into(), whole: "latency_mean".into() }]
    }

    fn check(&self, point: &Point, _: Transport, parameters: &Parameters) -> Result<(), BenchError> {
        if point.connections > MOST_CONNECTIONS {
            return Err(BenchError::Usage(format!(
                "{} pages at the same time: each has a process of PHP, and at most {MOST_CONNECTIONS} are started",
                point.connections
            )));
        }
        if !parameters["path"].is_empty() {
            request::check_path(&parameters["path"])?;
        }
        request::check_host(&parameters["host"])
    }

    fn uses_what_runs(&self, parameters: &Parameters) -> bool {
        !parameters["site"].is_empty()
    }

    /// We write nothing ourselves. But a page runs the site's own code, which does for each of thousands of
    /// requests what it does for a visitor.
    fn impact(&self, look: &Look<'_>) -> Result<Vec<Impact>, BenchError> {
        let root = std::path::Path::new(&look.parameters["site"]);
        // A directory without WordPress is refused later, with its own message.
        if !root.join("wp-load.php").is_file() {
            return Ok(Vec::new());
        }
        let does = format!(
            "loads its pages as fast as they are made, {} at a time: WordPress and its plugins write to its database what they write for any visitor (transients, statistics, counters)",
            look.connections
        );
        Ok(vec![Impact { does: vec![does], ..Impact::of(format!("the site in {}", root.display())) }])
    }

    /// nginx and the database require a password or access to their sockets; PHP-FPM accepts every client.
    /// The database of an existing site is on the host, so PHP must be there too.
    fn network(&self, parameters: &Parameters, _: Wanted<'_>) -> Network {
        if !parameters["fpm"].split(',').any(|name| name.trim() == Transport::Tcp.name()) {
            return Network::Shared;
        }
        let instead = Instead("leave --fpm at unix, where only nginx reaches it");
        if parameters["site"].is_empty() { Network::Own(instead) } else { Network::OwnBehind(instead) }
    }

    fn starts(&self, _: &Parameters) -> Starts {
        // Making a site takes seconds, and both arms are served by the same processes.
        Starts::Once
    }

    fn start(&self, start: &StartOptions) -> Result<Box<dyn Instance>, BenchError> {
        Ok(Box::new(RunningWordPress::start(start)?))
    }
}

/// Transport between nginx and PHP-FPM if it is the same at every point.
fn fpm_of(parameters: &Parameters) -> Option<Transport> {
    parameters.get("fpm").and_then(|name| name.parse().ok())
}

/// What the checkup reports where WordPress is installed.
fn hints() -> Vec<String> {
    site::found(std::path::Path::new("/var/www"))
        .into_iter()
        .map(|path| {
            format!(
                "WordPress is in {0}: samehost bench wordpress --site {0} tells what its pages would gain, and changes no file.",
                path.display()
            )
        })
        .chain(site::is_installed().then(|| {
            "WordPress is installed: samehost bench wordpress tells in a minute what a page gains.".to_owned()
        }))
        .collect()
}
