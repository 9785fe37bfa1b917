//! A page of WordPress: nginx or Apache, PHP-FPM, WordPress and its database, reached over TCP or a Unix socket. The same
//! processes serve both arms. WordPress itself counts its queries and their time, so that the gain of the page can be
//! compared with what the gain of the queries predicts.
//!
//! No file of an existing site (`--site`) is changed: the address of its database is set before its own settings are
//! read (`php/prepend.php`).

mod existing;
mod pages;
mod site;
mod web;

use std::path::PathBuf;
use std::sync::Arc;

use samehost_login::ServerAddress;
use samehost_model::{Arm, Better, Endpoint, MetricInfo, Part, Point, ServerInfo, Transport, Trial, metric};

use crate::engine::Job;
use crate::error::BenchError;
use crate::impact::Impact;
use crate::network::Network;
use crate::parameters::{Axis, Parameter, Parameters, Values};
use crate::private_servers::{FrontKind, MARIADB, PhpFpm};
use crate::served::{Instance, Served, StartOptions, foreign_pids};
use crate::workload::{
    Capabilities, CheckupEntry, Configured, Description, Look, OpenOrClosed, Starts, Wanted, Workload,
    request_metrics,
};
use crate::workloads::http::{Expected, Fetched, HttpSession, check_path, fetch, refusal};
use pages::{Page, PageLog, summarise};
use site::{Database, Site, private};
use web::Web;

/// Most pages requested at the same time: each has a process of PHP.
const MAX_PAGES_AT_ONCE: u32 = 64;

pub struct WordPress;

const PARAMETERS: &[Parameter] = &[
    Parameter::choices(
        "via",
        VIA,
        "The web server in front: nginx, apache, or both as a factor of their own",
    ),
    Parameter::choices(
        "fpm",
        FPM,
        "How the web server reaches PHP-FPM: unix, tcp, or both as a factor of their own",
    ),
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

    /// The checkup only says how to measure pages: setting up a site and loading them takes longer than it has for one
    /// server.
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
        // Making a site takes seconds, and both arms are served by the same processes.
        let starts = Starts::Once;
        Capabilities { rates: false, foreign_servers: false, starts, ..Capabilities::REQUESTS }
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
        // Times stand together: ours follow latency, before the rate.
        let rate = metrics.iter().position(MetricInfo::is_rate_of_work).unwrap_or(metrics.len());
        metrics.splice(rate..rate, own.map(|name| MetricInfo::own(name, "ms", Better::Lower)));
        metrics
    }

    fn parts(&self) -> Vec<Part> {
        vec![Part { part: "database_ms".into(), whole: metric::LATENCY_MEAN.name.into() }]
    }

    fn check(&self, point: &Point, _: Transport) -> Result<(), BenchError> {
        if point.connections > MAX_PAGES_AT_ONCE {
            return BenchError::refuse(format!(
                "{} pages at the same time: each has a process of PHP, and at most {MAX_PAGES_AT_ONCE} are started",
                point.connections
            ));
        }
        // PHP-FPM's ports are then where nobody else is, and Apache's with them.
        if self.is_hidden() && self.via.values.contains(&FrontKind::Apache) {
            return BenchError::refuse(
                "--via apache with --site needs --fpm unix: Apache listens on ports only, and has to be where PHP-FPM's port is hidden",
            );
        }
        if let Some(path) = &self.path {
            check_path(path)?;
        }
        if let Some(host) = &self.host {
            pages::check_host(host)?;
        }
        Ok(())
    }

    /// We write nothing ourselves. But a page runs the site's own code, which does for each of thousands of requests what
    /// it does for a visitor.
    fn impact(&self, look: &Look<'_>) -> Result<Vec<Impact>, BenchError> {
        let Some(root) = &self.site else { return Ok(Vec::new()) };
        // A directory without WordPress is refused later, with its own message.
        if !root.join("wp-load.php").is_file() {
            return Ok(Vec::new());
        }
        let does = format!(
            "loads its pages as fast as they are made, {} at a time: WordPress and its plugins write to its database what they write for any visitor (transients, statistics, counters)",
            look.connections
        );
        Ok(vec![Impact { does: vec![does], ..Impact::on(format!("the site in {}", root.display())) }])
    }

    /// The web servers and the database require a password or access to their sockets; PHP-FPM accepts every client.
    /// The database of an existing site is on the host, so PHP must be there too.
    fn network(&self, _: Wanted<'_>) -> Network {
        if !self.fpm.values.contains(&Transport::Tcp) {
            return Network::Shared;
        }
        let instead = "leave --fpm at unix, where only the web server reaches it";
        if self.site.is_none() { Network::Own(instead) } else { Network::OwnBehind(instead) }
    }

    fn start(&self, start: &StartOptions) -> Result<Box<dyn Instance>, BenchError> {
        // Missing programs are reported before anything is started.
        for via in &self.via.values {
            via.find()?;
        }
        PhpFpm::require_extension("mysqli", "php-mysql")?;
        let host = self.host.as_deref();
        let (site, server) = if let Some(path) = &self.site {
            (existing::given(path, host.unwrap_or_default(), &start.transports)?, None)
        } else {
            MARIADB.find()?;
            if host.is_some() {
                return BenchError::refuse("--host is for a site that is there already: give --site");
            }
            let (site, server) = private(start, start.most_connections)?;
            (site, Some(server))
        };
        let web = Web::start(start, &site, &self.via.values, &self.fpm.values)?;
        let (kind, version) = match &server {
            Some(_) => install(&web)?,
            None => {
                (format!("WordPress, a site that is there already{}", site.runs_as), site.version.clone())
            }
        };
        let mut served = Served::default();
        for (transport, database) in &site.databases {
            served.addresses.insert(*transport, ServerAddress::open(database.endpoint.clone()));
        }
        let mut pids = match &server {
            Some(server) => vec![server.pid()],
            None => foreign_pids(site.databases.values().map(|database| &database.endpoint)),
        };
        pids.push(web.fpm_pid());
        served.info = ServerInfo { kind, version, managed: server.is_some(), pids };
        served.proxy_pids = web.front_pids(None);
        served.private.extend(server);
        Ok(Box::new(RunningWordPress {
            log: PageLog::new(&web.log()),
            web,
            served,
            site,
            settings: self.clone(),
            trials: 0,
            current: None,
        }))
    }
}

#[derive(Clone, Debug)]
struct Settings {
    via: Axis<FrontKind>,
    fpm: Axis<Transport>,
    /// Directory of an existing site; `None` for a private one.
    site: Option<PathBuf>,
    path: Option<String>,
    host: Option<String>,
}

impl Settings {
    /// Whether PHP-FPM is in a network of its own, and we are not: an existing site's database is on the host.
    fn is_hidden(&self) -> bool {
        self.site.is_some() && self.fpm.values.contains(&Transport::Tcp)
    }
}

const VIA: &[&str] = &["nginx", "apache"];
const FPM: &[&str] = &["unix", "tcp"];

fn hints() -> Vec<String> {
    let sites = site::found(std::path::Path::new("/var/www"));
    let names: Vec<String> = sites.iter().map(|path| path.display().to_string()).collect();
    match names.as_slice() {
        [] if site::is_installed() => {
            vec![
                "WordPress is installed: samehost bench wordpress tells in a minute what a page gains."
                    .into(),
            ]
        }
        [] => Vec::new(),
        [first, ..] => vec![format!(
            "WordPress is in {}: samehost bench wordpress --site {first} tells what its pages would gain, and changes no file.",
            names.join(", ")
        )],
    }
}

/// Text that the page of a private site must contain: its last post.
const MARK: &[u8] = b"Post 24";

struct RunningWordPress {
    // Dropped in this order: the servers in front first.
    web: Web,
    /// The database, ours for a private site.
    served: Served,
    site: Site,
    settings: Settings,
    log: PageLog,
    /// Number of trials, which gives each its name in PHP's log.
    trials: u64,
    current: Option<CurrentTrial>,
}

struct CurrentTrial {
    name: String,
    observed: String,
    /// Mean time to connect to the database, in the probe before the trial; NaN if none was timed.
    connect_ms: f64,
}

impl RunningWordPress {
    fn path(&self) -> String {
        match &self.settings.path {
            Some(path) => path.clone(),
            None => format!("{}/", self.site.base),
        }
    }

    /// Requests a page outside the measurement.
    ///
    /// # Errors
    /// When it is not a success, or not the page of the private site: a fast error page would be taken for a fast site.
    fn page(&mut self, endpoint: &Endpoint, request: &[u8]) -> Result<Fetched, BenchError> {
        let page = match fetch(endpoint, request) {
            Err(error @ BenchError::ServerLost { .. }) if !self.web.is_going() => return Err(error),
            Err(BenchError::ServerLost { .. }) => return Err(self.web.lost()),
            fetched => fetched?,
        };
        let status = page.head.status;
        let Some(kind) = refusal(status) else {
            if self.served.is_private() && !page.body.begins.windows(MARK.len()).any(|part| part == MARK) {
                return Err(self.refused(endpoint, "it is not the page of the private site", ""));
            }
            return Ok(page);
        };
        let try_next = match status {
            300..400 => {
                "only a page counts: give the path that it redirects to (--path), or the name that the site has (--host)"
            }
            500.. => "the site's own log says more; WordPress answers 500 where it cannot reach its database",
            _ => "give a page that is there (--path)",
        };
        Err(self.refused(endpoint, &format!("{kind}, status {status}"), try_next))
    }

    /// The error for an answer that cannot count; if PHP-FPM has ended, that is the cause, and the error says so.
    fn refused(&mut self, endpoint: &Endpoint, answer: &str, try_next: &str) -> BenchError {
        if self.web.is_going() {
            return self.web.lost();
        }
        let stderr = self.web.stderr_tail();
        let stderr = stderr.trim();
        let separator = if stderr.is_empty() { "" } else { "; the servers said: " };
        let (what, answer) = (format!("the page {}", self.path()), format!("{answer}{separator}{stderr}"));
        BenchError::refused(endpoint, what, answer, try_next)
    }

    /// Requests a page with evidence about its connection to the database, and with the time of some more connections.
    /// The pages of a trial do neither.
    ///
    /// # Errors
    /// When the page has no connection to the database, or one over another transport than the arm's.
    fn probe(
        &mut self,
        endpoint: &Endpoint,
        transport: Transport,
        database: &Database,
    ) -> Result<(Fetched, Page), BenchError> {
        let name = format!("probe-{}", self.trials);
        let request = pages::probe(&self.path(), &self.site.host, &name, self.web.key());
        let body = self.page(endpoint, &request)?;
        let pages = self.log.of_trial(&name, 1).map_err(BenchError::during("reading what PHP wrote down"))?;
        let Some(page) = pages.into_iter().next() else {
            return Err(self.refused(
                endpoint,
                "PHP wrote nothing down about the page",
                "is it WordPress that answers there?",
            ));
        };
        if !page.has_database() {
            return Err(self.refused(
                endpoint,
                "the page has no connection to a database that WordPress made with mysqli",
                "a cache may have answered; give a page that is not cached (--path)",
            ));
        }
        if page.is_over(transport, database.port()) {
            Ok((body, page))
        } else {
            Err(BenchError::WrongTransport { asked: transport, observed: page.observed() })
        }
    }
}

fn install(web: &Web) -> Result<(String, String), BenchError> {
    let reason = match web.run_script("/install") {
        Ok(page) => {
            let last = page.lines().last().unwrap_or_default();
            match installed(last) {
                Some((version, theme)) => {
                    return Ok((format!("WordPress, theme {theme}"), version.to_owned()));
                }
                None => format!("its installer page `{}`", last.escape_debug()),
            }
        }
        Err(error) => error.to_string(),
    };
    let server = "the private site".into();
    Err(BenchError::Start { server, reason, server_said: web.stderr_tail() })
}

/// Version and theme in the last line that `php/install.php` prints.
fn installed(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("installed WordPress ")?.split_once(", theme ")
}

impl Instance for RunningWordPress {
    fn served(&self) -> &Served {
        &self.served
    }

    fn job(&mut self, arm: &Arm) -> Result<Job, BenchError> {
        self.web.require()?;
        let Some(database) = self.site.databases.get(&arm.transport).cloned() else {
            return BenchError::refuse(format!(
                "the site's database is not known over {} for this trial",
                arm.transport
            ));
        };
        self.trials += 1;
        let fpm = self.settings.fpm.at(&arm.point);
        let via = self.settings.via.at(&arm.point);
        self.served.proxy_pids = self.web.front_pids(Some(via));
        let Some(endpoint) = self.web.endpoint(via, arm.transport, fpm) else {
            return BenchError::refuse(format!(
                "{} has no address for {} (a fault of samehost)",
                via.title(),
                arm.id
            ));
        };
        let (first, seen) = self.probe(&endpoint, arm.transport, &database)?;
        let warm = pages::page(&self.path(), &self.site.host, "between", self.web.key());
        let second = self.page(&endpoint, &warm)?;
        let length = first.body.length;
        let expected = Expected::learned(first.body, || Ok(second.body))?;
        let judged = match &expected {
            Expected::Bytes(_) => format!("pages of {length} bytes compared byte for byte"),
            Expected::Anything => "pages differ from one another: their status and length are checked".into(),
        };
        let name = format!("trial-{}", self.trials);
        let request = pages::page(&self.path(), &self.site.host, &name, self.web.key());
        let observed = format!("{}; {} to PHP-FPM over {fpm}; {judged}", seen.observed(), via.title());
        self.current =
            Some(CurrentTrial { name, observed, connect_ms: seen.connect_ms().unwrap_or(f64::NAN) });
        Ok(HttpSession::job(endpoint, request, 1, expected))
    }

    fn stderr_tail(&self) -> String {
        self.web.stderr_tail()
    }

    fn finish_trial(&mut self, trial: &mut Trial) {
        let Some(current) = self.current.take() else { return };
        // The engine saw the connection to the server in front, which is the same in both arms.
        trial.transport_observed = Some(current.observed);
        let pages = self.log.of_trial(&current.name, trial.operations).unwrap_or_default();
        if pages.is_empty() && trial.operations > 0 {
            trial.invalid = Some("PHP wrote nothing down about the pages of this trial".into());
            return;
        }
        trial.measurements.extend(summarise(&pages, current.connect_ms));
    }
}
