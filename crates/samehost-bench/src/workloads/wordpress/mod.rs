//! A page of WordPress: nginx or Apache, PHP-FPM, WordPress and its database, reached over TCP or a Unix socket. The
//! same processes serve both arms. WordPress itself counts its queries and their time, so that the gain of
//! the page can be compared with what the gain of the queries predicts.
//!
//! No file of an existing site (`--site`) is changed: the address of its database is set before its own
//! settings are read.

mod existing;
mod pages;
mod running;
mod site;
mod web;

use std::path::PathBuf;
use std::sync::Arc;

use samehost_model::{Better, MetricInfo, Part, Point, Transport, metric};

use crate::error::BenchError;
use crate::impact::Impact;
use crate::network::{Instead, Network};
use crate::parameters::{Axis, Parameter, ParameterKind, Parameters, Values};
use crate::private_servers::FrontKind;
use crate::workload::{
    Capabilities, CheckupEntry, Configured, Description, Instance, Look, OpenOrClosed, StartOptions, Starts,
    Wanted, Workload, request_metrics,
};
use running::RunningWordPress;

/// Most pages requested at the same time: each has a process of PHP.
const MOST_CONNECTIONS: u32 = 64;

/// The wordpress workload.
pub struct WordPress;

const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "via",
        help: "The web server in front: nginx, apache, or both as a factor of their own",
        default: VIA[0],
        kind: ParameterKind::Choices(VIA),
    },
    Parameter {
        name: "fpm",
        help: "How the web server reaches PHP-FPM: unix, tcp, or both as a factor of their own",
        default: "unix",
        kind: ParameterKind::Choices(FPM),
    },
    Parameter::text(
        "site",
        "Directory of a site that is there already; no file of it is changed [default: a private site]",
    ),
    Parameter::text("path", "Path and query of the page [default: the site's home]"),
    Parameter::text(
        "host",
        "--site: the Host field, and the site's name [default: that of its home address]",
    ),
];

impl Workload for WordPress {
    fn description(&self) -> Description {
        Description {
            name: "wordpress",
            about: "A page of WordPress through nginx or Apache and PHP-FPM, its database over TCP or a Unix socket",
            example: "wordpress --site /var/www/html",
            parameters: PARAMETERS,
        }
    }

    /// Setting up a site and loading pages takes longer than the checkup has for one server.
    fn checkup(&self) -> Option<CheckupEntry> {
        Some(CheckupEntry::Hints(hints))
    }

    fn configure(&self, parameters: &Parameters) -> Result<Arc<dyn Configured>, BenchError> {
        Ok(Arc::new(Settings {
            via: parameters.list("via", VIA)?,
            fpm: parameters.list("fpm", FPM)?,
            site: parameters.given("site").map(PathBuf::from),
            path: parameters.given("path"),
            host: parameters.given("host"),
        }))
    }
}

impl Configured for Settings {
    fn axes(&self) -> Capabilities {
        Capabilities { rates: false, foreign_servers: false, ..Capabilities::REQUESTS }
    }

    fn title(&self) -> String {
        let fpm = match self.fpm.values.as_slice() {
            [Transport::Tcp] => "TCP",
            [_] => "a Unix socket",
            _ => "both",
        };
        let site = if self.site.is_none() { "private" } else { "given" };
        format!("page of a {site} site, database by transport, PHP-FPM over {fpm}")
    }

    fn metrics(&self, open_loop: OpenOrClosed) -> Vec<MetricInfo> {
        let mut metrics = request_metrics(open_loop);
        metrics.retain(|metric| !metric.is(&metric::TOTAL_CPU_PER_OP));
        let server = metrics.iter().position(|metric| metric.is(&metric::CLIENT_CPU_PER_OP)).unwrap_or(0);
        metrics.insert(server, metric::PROXY_CPU_PER_OP.info());
        metrics.push(metric::TOTAL_CPU_PER_OP.info());
        let own = ["database_ms", "query_ms", "connect_ms", "page_ms"];
        let at = metrics.iter().position(MetricInfo::is_rate_of_work).unwrap_or(metrics.len());
        metrics.splice(at..at, own.map(|name| MetricInfo::own(name, "ms", Better::Lower)));
        metrics
    }

    fn parts(&self) -> Vec<Part> {
        vec![Part { part: "database_ms".into(), whole: metric::LATENCY_MEAN.name.into() }]
    }

    fn check(&self, point: &Point, _: Transport) -> Result<(), BenchError> {
        if point.connections > MOST_CONNECTIONS {
            return Err(BenchError::Usage(format!(
                "{} pages at the same time: each has a process of PHP, and at most {MOST_CONNECTIONS} are started",
                point.connections
            )));
        }
        // PHP-FPM's ports are then where nobody else is, and Apache's with them.
        if self.is_hidden() && self.via.values.contains(&FrontKind::Apache) {
            return Err(BenchError::Usage(
                "--via apache with --site needs --fpm unix: Apache listens on ports only, and has to be where PHP-FPM's port is hidden"
                    .into(),
            ));
        }
        self.path.iter().try_for_each(|path| pages::check_path(path))?;
        self.host.iter().try_for_each(|host| pages::check_host(host))
    }

    fn uses_what_runs(&self) -> bool {
        self.site.is_some()
    }

    /// We write nothing ourselves. But a page runs the site's own code, which does for each of thousands of
    /// requests what it does for a visitor.
    fn impact(&self, look: &Look<'_>) -> Result<Vec<Impact>, BenchError> {
        // A directory without WordPress is refused later, with its own message.
        let Some(root) = self.site.as_ref().filter(|root| root.join("wp-load.php").is_file()) else {
            return Ok(Vec::new());
        };
        let does = format!(
            "loads its pages as fast as they are made, {} at a time: WordPress and its plugins write to its database what they write for any visitor (transients, statistics, counters)",
            look.connections
        );
        Ok(vec![Impact { does: vec![does], ..Impact::of(format!("the site in {}", root.display())) }])
    }

    /// The web servers and the database require a password or access to their sockets; PHP-FPM accepts every client.
    /// The database of an existing site is on the host, so PHP must be there too.
    fn network(&self, _: Wanted<'_>) -> Network {
        if !self.fpm.values.contains(&Transport::Tcp) {
            return Network::Shared;
        }
        let instead = Instead("leave --fpm at unix, where only the web server reaches it");
        if self.site.is_none() { Network::Own(instead) } else { Network::OwnBehind(instead) }
    }

    fn starts(&self) -> Starts {
        // Making a site takes seconds, and both arms are served by the same processes.
        Starts::Once
    }

    fn start(&self, start: &StartOptions) -> Result<Box<dyn Instance>, BenchError> {
        Ok(Box::new(RunningWordPress::start(self, start)?))
    }
}

#[derive(Clone, Debug)]
struct Settings {
    /// The web server in front.
    via: Axis<FrontKind>,
    /// Transport between it and PHP-FPM.
    fpm: Axis<Transport>,
    /// Directory of an existing site; `None` for a private one.
    site: Option<PathBuf>,
    path: Option<String>,
    host: Option<String>,
}

impl Settings {
    /// Whether PHP-FPM is in a network of its own, and we are not.
    fn is_hidden(&self) -> bool {
        self.site.is_some() && self.fpm.values.contains(&Transport::Tcp)
    }
}

const VIA: &[&str] = &["nginx", "apache"];
const FPM: &[&str] = &["unix", "tcp"];

/// What the checkup reports where WordPress is installed.
fn hints() -> Vec<String> {
    let mut hints = Vec::new();
    for path in site::found(std::path::Path::new("/var/www")) {
        hints.push(format!(
            "WordPress is in {0}: samehost bench wordpress --site {0} tells what its pages would gain, and changes no file.",
            path.display()
        ));
    }
    if site::is_installed() {
        hints.push(
            "WordPress is installed: samehost bench wordpress tells in a minute what a page gains.".into(),
        );
    }
    hints
}
