//! Web servers of a site: one PHP-FPM for all arms, and in front of it nginx, Apache or both. Each arm has its own
//! address in front, which passes the endpoint of that arm's database to PHP; everything behind is the same for all.
//!
//! nginx listens on sockets that only we reach. Apache listens on ports, where every local user can connect: without the
//! run's key it answers nothing.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use samehost_model::{Endpoint, Transport};

use super::pages;
use super::site::{PREPEND, Site};
use crate::error::BenchError;
use crate::private_servers::fronts::{self, FrontSpec, Passes, PhpSite, READY, Sites};
use crate::private_servers::{Account, FrontKind, PhpFpm, PhpFpmSpec, Pool, PrivateServer, random_hex};
use crate::served::StartOptions;
use crate::workloads::http::{Fetched, fetch, refusal};

/// File in PHP-FPM's directory in which PHP logs each page.
const LOG: &str = "pages";
/// Transports between the server in front and PHP-FPM: each has a pool.
const POOLS: [Transport; 2] = [Transport::Unix, Transport::Tcp];

/// How long a supervisor may take to notice that its server has ended.
const MOMENT: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, PartialEq, Eq)]
struct Way {
    database: Transport,
    fpm: Transport,
}

struct Front {
    kind: FrontKind,
    server: PrivateServer,
}

pub(super) struct Web {
    // Dropped first: they stand in front.
    fronts: Vec<Front>,
    fpm: PhpFpm,
    /// The ways of the sites in front, in their order. Before them is a site for our own scripts.
    ways: Vec<Way>,
    /// Random, and in each request of ours: without it Apache, whose ports every local user reaches, answers nothing.
    key: String,
}

impl Web {
    pub(super) fn start(
        start: &StartOptions,
        site: &Site,
        via: &[FrontKind],
        pools: &[Transport],
    ) -> Result<Self, BenchError> {
        let pages = start.most_connections;
        let mut asked = POOLS.to_vec();
        asked.retain(|transport| pools.contains(transport));
        let spec = PhpFpmSpec {
            pools: asked.iter().map(|transport| pool(*transport, pages)).collect(),
            scripts: site.scripts.clone(),
            account: site.account,
            ports_in: start.behind.clone(),
        };
        let fpm = PhpFpm::start(&start.program, &spec)?;
        check_name(fpm.directory())?;
        let (ways, sites) = sites(site, &fpm);
        let key = random_hex(24)?;
        // nginx's sockets can be reached from every namespace; it must run where PHP-FPM's ports are.
        let fronts = match &start.behind {
            Some(network) => network.inside(|| start_fronts(start, via, site.account, &sites, &key))??,
            None => start_fronts(start, via, site.account, &sites, &key)?,
        };
        Ok(Web { fronts, fpm, ways, key })
    }

    pub(super) fn endpoint(&self, via: FrontKind, database: Transport, fpm: Transport) -> Option<Endpoint> {
        let front = self.fronts.iter().find(|front| front.kind == via)?;
        let first = front.server.endpoint(via.best())?;
        let number = self.ways.iter().position(|way| *way == Way { database, fpm })?;
        Some(fronts::site(first, number + 1))
    }

    pub(super) fn key(&self) -> &str {
        &self.key
    }

    pub(super) fn run_script(&self, script: &str) -> Result<String, BenchError> {
        match self.fronts.first() {
            Some(front) => ours(&front.server, script, &self.key),
            None => Ok(String::new()),
        }
    }

    pub(super) fn log(&self) -> PathBuf {
        self.fpm.directory().join(LOG)
    }

    /// The first process of the server in front; of all where none is named.
    pub(super) fn front_pids(&self, via: Option<FrontKind>) -> Vec<u32> {
        let mut pids = Vec::new();
        for front in &self.fronts {
            if via.is_none() || via == Some(front.kind) {
                pids.push(front.server.pid());
            }
        }
        pids
    }

    pub(super) fn fpm_pid(&self) -> u32 {
        self.fpm.pid()
    }

    /// Whether PHP-FPM has ended, or ends within [`MOMENT`]: a broken page is noticed before the supervisor ends.
    pub(super) fn is_going(&mut self) -> bool {
        let begun = Instant::now();
        while !self.fpm.has_ended() {
            if begun.elapsed() > MOMENT {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }

    pub(super) fn require(&mut self) -> Result<(), BenchError> {
        if self.fpm.has_ended() { Err(self.lost()) } else { Ok(()) }
    }

    pub(super) fn lost(&self) -> BenchError {
        BenchError::ServerLost {
            endpoint: self.fpm.directory().display().to_string(),
            reason: "PHP-FPM ended".into(),
            server_said: self.fpm.stderr_tail(),
        }
    }

    /// The end of the stderr of each server that has written something, after its name.
    pub(super) fn stderr_tail(&self) -> String {
        let fronts = self.fronts.iter().map(|front| (front.kind.title(), front.server.stderr_tail()));
        let mut lines = Vec::new();
        for (name, tail) in fronts.chain([("PHP-FPM", self.fpm.stderr_tail())]) {
            let tail = tail.trim();
            if !tail.is_empty() {
                lines.push(format!("{name}: {tail}"));
            }
        }
        lines.join("\n")
    }
}

fn start_fronts(
    start: &StartOptions,
    via: &[FrontKind],
    account: Option<Account>,
    sites: &[PhpSite],
    key: &str,
) -> Result<Vec<Front>, BenchError> {
    let mut fronts = Vec::new();
    for kind in via {
        let spec = FrontSpec {
            listens: &[kind.best()],
            connections: start.most_connections,
            workers: 1,
            account,
            passes: Passes::Sites(&Sites { sites, key }),
        };
        let server = fronts::start(*kind, &start.program, &spec, |server| {
            ours(server, READY, key)?;
            Ok(())
        })?;
        fronts.push(Front { kind: *kind, server });
    }
    Ok(fronts)
}

fn pool(transport: Transport, pages: u32) -> Pool {
    Pool {
        name: transport.to_string(),
        transport,
        // One more than concurrent pages: a process may still be logging a page when the next is requested.
        children: pages + 1,
        backlog: 511,
        clear_env: true,
        settings: vec![
            ("display_errors".into(), "0".into()),
            ("log_errors".into(), "1".into()),
            ("max_execution_time".into(), "60".into()),
        ],
    }
}

pub(super) fn check_name(path: &Path) -> Result<(), BenchError> {
    let text = path.to_string_lossy();
    if text.contains(['"', '$', '\\', '{', '}', ';']) || text.chars().any(char::is_control) {
        return Err(BenchError::Path {
            path: path.to_owned(),
            reason: "a name with quotes, `$`, braces, semicolons or backslashes cannot be written in an nginx configuration"
                .into(),
        });
    }
    Ok(())
}

/// Requests something of the first site, which has our own scripts.
fn ours(server: &PrivateServer, target: &str, key: &str) -> Result<String, BenchError> {
    let Some(endpoint) = server.endpoints().next() else {
        return Err(server.failure("it has no listener"));
    };
    let Fetched { head, body, .. } = fetch(endpoint, &pages::page(target, "localhost", "", key))?;
    let text = String::from_utf8_lossy(&body.begins).into_owned();
    match refusal(head.status) {
        None => Ok(text),
        Some(kind) => Err(BenchError::refused(endpoint, format!("the script {target}"), kind, "")),
    }
}

/// The sites of each server in front: one for our own scripts, and then one for each of the ways.
fn sites(site: &Site, fpm: &PhpFpm) -> (Vec<Way>, Vec<PhpSite>) {
    let mut pools: Vec<(Transport, &Endpoint)> = Vec::new();
    for transport in POOLS {
        if let Some(pool) = fpm.endpoint(transport.name()) {
            pools.push((transport, pool));
        }
    }
    let (scripts, log) = (fpm.scripts(), fpm.directory().join(LOG));
    let (mut ways, mut sites) = (Vec::new(), Vec::new());
    if let Some((_, pool)) = pools.first() {
        let parameters = parameters(site);
        sites.push(PhpSite { pool: (*pool).clone(), root: scripts.clone(), script: None, parameters });
    }
    for (transport, database) in &site.databases {
        for (fpm, pool) in &pools {
            let mut parameters = parameters(site);
            parameters.extend([
                ("SAMEHOST_DB_HOST", database.host.clone()),
                ("SAMEHOST_LOG", log.display().to_string()),
                ("PHP_ADMIN_VALUE", format!("auto_prepend_file={}", scripts.join(PREPEND.0).display())),
            ]);
            ways.push(Way { database: *transport, fpm: *fpm });
            sites.push(PhpSite {
                pool: (*pool).clone(),
                root: site.root.clone().unwrap_or_else(|| scripts.clone()),
                // This one file makes every page of WordPress; files beside it are not requested.
                script: Some("index.php"),
                parameters,
            });
        }
    }
    (ways, sites)
}

/// The host of a `Host` header without its port; that of IPv6 keeps its brackets, as nginx's `$host` does.
fn name_of(host: &str) -> &str {
    let (address, rest) = host.split_at(host.find(']').map_or(0, |end| end + 1));
    let name = rest.split(':').next().unwrap_or_default();
    &host[..address.len() + name.len()]
}

/// FastCGI parameters besides those that follow from the request, as in distributions' own files.
fn parameters(site: &Site) -> Vec<(&'static str, String)> {
    let host = name_of(&site.host);
    let (scheme, port) = if site.https { ("https", "443") } else { ("http", "80") };
    let name = format!("{}/index.php", site.base);
    let mut list = vec![
        ("SCRIPT_NAME", name.as_str()),
        ("REQUEST_SCHEME", scheme),
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("REMOTE_ADDR", "127.0.0.1"),
        ("REMOTE_PORT", "0"),
        ("SERVER_ADDR", "127.0.0.1"),
        ("SERVER_PORT", port),
        ("SERVER_NAME", host),
        ("REDIRECT_STATUS", "200"),
    ];
    if site.https {
        list.push(("HTTPS", "on"));
    }
    list.into_iter().map(|(name, value)| (name, value.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_server_is_its_host_without_the_port() {
        assert_eq!(name_of("blog.example:8080"), "blog.example");
        assert_eq!(name_of("blog.example"), "blog.example");
        assert_eq!(name_of("[::1]:8080"), "[::1]");
        assert_eq!(name_of("[::1]"), "[::1]");
    }

    #[test]
    fn a_name_that_would_end_its_quotes_is_refused() {
        assert!(check_name(Path::new("/var/www/my site")).is_ok());
        for name in ["/a\"b", "/a$b", "/a\nb", "/a;b"] {
            assert!(check_name(Path::new(name)).is_err(), "{name}");
        }
    }

    #[test]
    fn a_site_behind_tls_is_told_so() {
        let site = Site {
            root: None,
            host: "blog.example:8443".into(),
            base: "/blog".into(),
            https: true,
            account: None,
            runs_as: String::new(),
            databases: std::collections::BTreeMap::new(),
            version: String::new(),
            scripts: Vec::new(),
        };
        let given = parameters(&site);
        for (name, value) in
            [("HTTPS", "on"), ("SCRIPT_NAME", "/blog/index.php"), ("SERVER_NAME", "blog.example")]
        {
            assert!(given.contains(&(name, value.to_owned())), "{name} in {given:?}");
        }
    }
}
