//! WordPress during a measurement: the site, its servers, and PHP's log of each trial's pages.

use std::sync::Arc;

use samehost_model::{Arm, Endpoint, ServerInfo, Transport, Trial};

use super::pages::{Page, PageLog, summarise};
use super::site::{Database, Site, private};
use super::web::Web;
use super::{Settings, existing, pages};
use crate::engine::Job;
use crate::error::BenchError;
use crate::private_servers::{FrontKind, MARIADB, PhpFpm, PrivateServer};
use crate::workload::{Instance, StartOptions};
use crate::workloads::foreign::foreign_pids;
use crate::workloads::http::{Expected, Fetched, HttpConnector, fetch, refusal};

/// Text that the page of a private site must contain: its last post.
const MARK: &[u8] = b"Post 24";

/// A running site.
pub(super) struct RunningWordPress {
    // Dropped in this order: the servers in front first.
    web: Web,
    /// The database of a private site.
    server: Option<PrivateServer>,
    site: Site,
    settings: Settings,
    log: PageLog,
    kind: String,
    version: String,
    pids: Vec<u32>,
    trials: u64,
    /// The current trial: name, evidence, and time of a connection.
    current: Option<CurrentTrial>,
    /// The server in front in the current trial.
    via: Option<FrontKind>,
}

struct CurrentTrial {
    name: String,
    observed: String,
    connect_ms: f64,
}

impl RunningWordPress {
    pub(super) fn start(settings: &Settings, start: &StartOptions) -> Result<Self, BenchError> {
        // Missing programs are reported before anything is started.
        settings.via.values.iter().try_for_each(|via| (via.descriptor().server.find)().map(drop))?;
        PhpFpm::require_extension("mysqli", "php-mysql")?;
        let host = settings.host.as_deref();
        let (site, server) = if let Some(path) = &settings.site {
            (existing::given(path, host.unwrap_or_default(), &start.transports)?, None)
        } else {
            (MARIADB.find)()?;
            if host.is_some() {
                return Err(BenchError::Usage(
                    "--host is for a site that is there already: give --site".into(),
                ));
            }
            let (site, server) = private(start, start.most_connections)?;
            (site, Some(server))
        };
        let web = Web::start(start, &site, &settings.via.values, &settings.fpm.values)?;
        let (kind, version) = match &server {
            Some(_) => install(&web)?,
            None => {
                (format!("WordPress, a site that is there already{}", site.runs_as), site.version.clone())
            }
        };
        let mut pids = match &server {
            Some(server) => vec![server.pid()],
            None => foreign_pids(site.databases.values().map(|database| &database.endpoint)),
        };
        pids.push(web.fpm_pid());
        let log = PageLog::new(&web.log());
        Ok(RunningWordPress {
            web,
            server,
            site,
            settings: settings.clone(),
            log,
            kind,
            version,
            pids,
            trials: 0,
            current: None,
            via: None,
        })
    }

    /// Path of the requests.
    fn path(&self) -> String {
        self.settings.path.clone().unwrap_or_else(|| format!("{}/", self.site.base))
    }

    /// Requests a page outside the measurement.
    fn page(&mut self, endpoint: &Endpoint, request: &[u8]) -> Result<Fetched, BenchError> {
        let page = match fetch(endpoint, request) {
            Err(error @ BenchError::ServerLost { .. }) if !self.web.is_going() => return Err(error),
            Err(BenchError::ServerLost { .. }) => return Err(self.web.lost()),
            fetched => fetched?,
        };
        let status = page.head.status;
        if (200..300).contains(&status) {
            if self.server.is_some() && !page.body.windows(MARK.len()).any(|part| part == MARK) {
                return Err(self.refused(endpoint, "it is not the page of the private site", ""));
            }
            return Ok(page);
        }
        let answer = match refusal(status) {
            Some(kind) => format!("{kind}, status {status}"),
            None => format!("status {status}"),
        };
        let try_next = match status {
            300..400 => {
                "only a page counts: give the path that it redirects to (--path), or the name that the site has (--host)"
            }
            500.. => "the site's own log says more; WordPress answers 500 where it cannot reach its database",
            _ => "give a page that is there (--path)",
        };
        Err(self.refused(endpoint, &answer, try_next))
    }

    /// The error for an answer that cannot count, or that PHP-FPM has ended if that is the cause.
    fn refused(&mut self, endpoint: &Endpoint, answer: &str, try_next: &str) -> BenchError {
        if self.web.is_going() {
            return self.web.lost();
        }
        let stderr = self.web.stderr_tail();
        let stderr = stderr.trim();
        let separator = if stderr.is_empty() { "" } else { "; the servers said: " };
        BenchError::Refused {
            endpoint: endpoint.to_string(),
            what: format!("the page {}", self.path()),
            answer: format!("{answer}{separator}{stderr}"),
            try_next: try_next.into(),
        }
    }

    /// Requests a page with evidence about its connection to the database, and with the time of some more
    /// connections.
    fn probe(
        &mut self,
        endpoint: &Endpoint,
        transport: Transport,
        database: &Database,
    ) -> Result<(Fetched, Page), BenchError> {
        let name = format!("probe-{}", self.trials);
        let request = pages::probe(&self.path(), &self.site.host, &name, self.web.key());
        let body = self.page(endpoint, &request)?;
        let pages = self
            .log
            .of_trial(&name, 1)
            .map_err(|error| BenchError::io("reading what PHP wrote down", error))?;
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

/// Installs WordPress and makes its content; returns kind and version of the server.
fn install(web: &Web) -> Result<(String, String), BenchError> {
    let failed = |reason: String| BenchError::Start {
        server: "the private site".into(),
        reason,
        server_said: web.stderr_tail(),
    };
    let page = web.run("/install").map_err(|error| failed(error.to_string()))?;
    let last = page.lines().last().unwrap_or_default();
    let installed = last.strip_prefix("installed WordPress ").and_then(|rest| rest.split_once(", theme "));
    let Some((version, theme)) = installed else {
        return Err(failed(format!("its installer page `{}`", last.escape_debug())));
    };
    Ok((format!("WordPress, theme {theme}"), version.to_owned()))
}

impl Instance for RunningWordPress {
    fn server(&self) -> ServerInfo {
        ServerInfo {
            kind: self.kind.clone(),
            version: self.version.clone(),
            managed: self.server.is_some(),
            pids: self.pids.clone(),
        }
    }

    fn proxy_pids(&self) -> Vec<u32> {
        self.web.front_pids(self.via)
    }

    fn job(&mut self, arm: &Arm) -> Result<Job, BenchError> {
        self.web.require()?;
        let Some(database) = self.site.databases.get(&arm.transport).cloned() else {
            return Err(BenchError::Usage(format!(
                "the site's database is not known over {} for this trial",
                arm.transport
            )));
        };
        self.trials += 1;
        let fpm = self.settings.fpm.at(&arm.point);
        let via = self.settings.via.at(&arm.point);
        self.via = Some(via);
        let endpoint = self.web.endpoint(via, arm.transport, fpm).ok_or_else(|| {
            BenchError::Usage(format!("{} has no address for {} (a fault of samehost)", via.title(), arm.id))
        })?;
        let (first, seen) = self.probe(&endpoint, arm.transport, &database)?;
        let warm = pages::page(&self.path(), &self.site.host, "between", self.web.key());
        let second = self.page(&endpoint, &warm)?;
        let (expected, judged) = if first.is_whole() && second.is_whole() && first.body == second.body {
            let judged = format!("pages of {} bytes compared byte for byte", first.length);
            (Expected::Bytes(first.body.into()), judged)
        } else {
            let judged = "pages differ from one another: their status and length are checked";
            (Expected::Anything, judged.to_owned())
        };
        let name = format!("trial-{}", self.trials);
        let request = pages::page(&self.path(), &self.site.host, &name, self.web.key());
        let observed = format!("{}; {} to PHP-FPM over {fpm}; {judged}", seen.observed(), via.title());
        self.current =
            Some(CurrentTrial { name, observed, connect_ms: seen.connect_ms().unwrap_or(f64::NAN) });
        let connector = Arc::new(HttpConnector { endpoint, request, pipeline: 1, expected });
        Ok(Job::Sessions { connector, small: true })
    }

    fn endpoint(&self, transport: Transport) -> Option<Endpoint> {
        self.site.databases.get(&transport).map(|database| database.endpoint.clone())
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
