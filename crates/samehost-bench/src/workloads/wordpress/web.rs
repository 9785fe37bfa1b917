//! Web servers of a site: one nginx and one PHP-FPM for all arms. Each arm has its own socket in front of
//! nginx, which passes the endpoint of that arm's database to PHP; everything behind is the same for all.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use samehost_model::{Endpoint, Transport};

use super::site::{PREPEND, Site};
use crate::error::BenchError;
use crate::private_servers::nginx::{self, NginxSpec};
use crate::private_servers::{PhpFpm, PhpFpmSpec, Pool, PrivateServer};
use crate::workload::StartOptions;
use crate::workloads::http::{RequestParts, fetch, refusal};

/// File in its directory in which PHP logs each page.
const LOG: &str = "pages";
/// Socket for nginx's readiness check and for installing the private site.
const OURS: &str = "ours.sock";
/// Transports between nginx and PHP-FPM: each has a pool.
const POOLS: [Transport; 2] = [Transport::Unix, Transport::Tcp];

/// How long a supervisor may take to notice that its server has ended.
const MOMENT: Duration = Duration::from_millis(500);

/// Running web servers.
pub(super) struct Web {
    // Dropped first: it stands in front.
    nginx: PrivateServer,
    fpm: PhpFpm,
}

impl Web {
    /// Starts both, with PHP processes for as many pages as are requested at the same time.
    pub(super) fn start(start: &StartOptions, site: &Site, pools: &[Transport]) -> Result<Self, BenchError> {
        let pages = start.most_connections;
        // One more than concurrent pages: a process may still be logging a page when the next is requested.
        let pool = |transport: &Transport| Pool {
            name: transport.to_string(),
            transport: *transport,
            children: pages + 1,
            backlog: 511,
            clear_env: true,
            settings: [("display_errors", "0"), ("log_errors", "1"), ("max_execution_time", "60")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .to_vec(),
        };
        let asked = POOLS.iter().filter(|transport| pools.contains(transport));
        let spec = PhpFpmSpec {
            pools: asked.map(pool).collect(),
            scripts: site.scripts.clone(),
            account: site.account,
            ports_in: start.behind.clone(),
        };
        let fpm = PhpFpm::start(&start.program, &spec)?;
        check_name(fpm.directory())?;
        let php = Php::of(&fpm);
        let start_nginx = || {
            let http = |directory: &Path| configuration(directory, site, &php);
            let spec = NginxSpec { connections: pages, workers: 1, account: site.account, http: &http };
            nginx::start(&start.program, &spec, |nginx| ours(nginx.directory(), "/ready").map(|_| ()))
        };
        // nginx's own sockets can be reached from every namespace; it must run where PHP-FPM's ports are.
        let nginx = match &start.behind {
            Some(network) => network.inside(start_nginx)??,
            None => start_nginx()?,
        };
        Ok(Web { nginx, fpm })
    }

    /// Endpoint for the pages of an arm.
    pub(super) fn endpoint(&self, database: Transport, fpm: Transport) -> Endpoint {
        Endpoint::Unix(front(self.nginx.directory(), database, fpm))
    }

    /// Runs a PHP script of the script folder; returns its output.
    pub(super) fn run(&self, script: &str) -> Result<String, BenchError> {
        ours(self.nginx.directory(), script)
    }

    pub(super) fn log(&self) -> PathBuf {
        self.fpm.directory().join(LOG)
    }

    pub(super) fn nginx_pid(&self) -> u32 {
        self.nginx.pid()
    }

    pub(super) fn fpm_pid(&self) -> u32 {
        self.fpm.pid()
    }

    /// Whether PHP-FPM has ended, or ends within a moment: a broken page is noticed before the supervisor ends.
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

    /// Fails if PHP-FPM has ended.
    pub(super) fn require(&mut self) -> Result<(), BenchError> {
        if self.fpm.has_ended() { Err(self.lost()) } else { Ok(()) }
    }

    /// The error that PHP-FPM has ended.
    pub(super) fn lost(&self) -> BenchError {
        BenchError::ServerLost {
            endpoint: self.fpm.directory().display().to_string(),
            reason: "PHP-FPM ended".into(),
            server_said: self.fpm.stderr_tail(),
        }
    }

    /// The end of both servers' stderr.
    pub(super) fn stderr_tail(&self) -> String {
        let each = [("nginx", self.nginx.stderr_tail()), ("PHP-FPM", self.fpm.stderr_tail())];
        let said = each.into_iter().filter(|(_, said)| !said.trim().is_empty());
        said.map(|(name, said)| format!("{name}: {}", said.trim())).collect::<Vec<_>>().join("\n")
    }
}

/// What nginx has to know of PHP-FPM.
struct Php {
    pools: Vec<(Transport, Endpoint)>,
    scripts: PathBuf,
    log: PathBuf,
}

impl Php {
    fn of(fpm: &PhpFpm) -> Self {
        let endpoint = |transport: Transport| Some((transport, fpm.endpoint(transport.name())?.clone()));
        Php {
            pools: POOLS.into_iter().filter_map(endpoint).collect(),
            scripts: fpm.scripts(),
            log: fpm.directory().join(LOG),
        }
    }
}

/// Checks that a path can be quoted in nginx's configuration.
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

fn front(directory: &Path, database: Transport, fpm: Transport) -> PathBuf {
    directory.join(format!("{database}-{fpm}.sock"))
}

fn ours(directory: &Path, target: &str) -> Result<String, BenchError> {
    let request = RequestParts::get(target, "localhost");
    let endpoint = Endpoint::Unix(directory.join(OURS));
    let (head, body) = fetch(&endpoint, &request.bytes())?;
    let text = String::from_utf8_lossy(&body).into_owned();
    match refusal(head.status) {
        None => Ok(text),
        Some(kind) => Err(BenchError::Refused {
            endpoint: endpoint.to_string(),
            what: format!("the script {target}"),
            answer: kind.into(),
            try_next: String::new(),
        }),
    }
}

/// The lines inside `http { … }`.
fn configuration(directory: &Path, site: &Site, php: &Php) -> String {
    let Php { pools, scripts, log } = php;
    let mut text = String::from(
        // A page fits into memory; on disk it would cost more than the database.
        "  fastcgi_buffer_size 32k;\n  fastcgi_buffers 64 16k;\n  fastcgi_read_timeout 70s;\n",
    );
    if let Some((_, endpoint)) = pools.first() {
        let parameters = parameters(site, scripts, "$document_uri.php");
        text.push_str(&format!(
            "  server {{\n    listen \"unix:{}\";\n    location = /ready {{ return 200 ready; }}\n    location / {{\n      {};\n      fastcgi_buffering off;\n{parameters}    }}\n  }}\n",
            directory.join(OURS).display(),
            pass(endpoint),
        ));
    }
    for (transport, database) in &site.databases {
        for (fpm, endpoint) in pools {
            // This one file makes every page of WordPress; files beside it are not requested.
            let root = site.root.as_deref().unwrap_or(scripts);
            let mut lines = parameters(site, root, "/index.php");
            for (name, value) in [
                ("SAMEHOST_DB_HOST", database.host.clone()),
                ("SAMEHOST_LOG", log.display().to_string()),
                ("PHP_ADMIN_VALUE", format!("auto_prepend_file={}", scripts.join(PREPEND.0).display())),
            ] {
                lines.push_str(&format!("      fastcgi_param {name} \"{value}\";\n"));
            }
            text.push_str(&format!(
                "  server {{\n    listen \"unix:{}\";\n    location / {{\n      {};\n{lines}    }}\n  }}\n",
                front(directory, *transport, *fpm).display(),
                pass(endpoint),
            ));
        }
    }
    text
}

fn pass(endpoint: &Endpoint) -> String {
    match endpoint {
        Endpoint::Unix(path) => format!("fastcgi_pass \"unix:{}\"", path.display()),
        Endpoint::Tcp { host, port } => format!("fastcgi_pass {host}:{port}"),
        other => format!("fastcgi_pass {other}"),
    }
}

/// FastCGI parameters of a request, as in distributions' own files.
fn parameters(site: &Site, root: &Path, script: &str) -> String {
    let host = site.host.split(':').next().unwrap_or_default();
    let (scheme, port) = if site.https { ("https", "443") } else { ("http", "80") };
    let root = root.display().to_string();
    let file = format!("{root}{script}");
    let name = format!("{}{script}", site.base);
    let mut list = vec![
        ("QUERY_STRING", "$query_string"),
        ("REQUEST_METHOD", "$request_method"),
        ("CONTENT_TYPE", "$content_type"),
        ("CONTENT_LENGTH", "$content_length"),
        ("SCRIPT_FILENAME", &file),
        ("SCRIPT_NAME", &name),
        ("REQUEST_URI", "$request_uri"),
        ("DOCUMENT_URI", "$document_uri"),
        ("DOCUMENT_ROOT", &root),
        ("SERVER_PROTOCOL", "$server_protocol"),
        ("REQUEST_SCHEME", scheme),
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("SERVER_SOFTWARE", "nginx/$nginx_version"),
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
    list.into_iter().map(|(name, value)| format!("      fastcgi_param {name} \"{value}\";\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let text = parameters(&site, Path::new("/srv"), "/index.php");
        for line in [
            "fastcgi_param HTTPS \"on\";",
            "fastcgi_param SCRIPT_NAME \"/blog/index.php\";",
            "fastcgi_param SERVER_NAME \"blog.example\";",
            "fastcgi_param SCRIPT_FILENAME \"/srv/index.php\";",
        ] {
            assert!(text.lines().any(|given| given.trim() == line), "{line} in:\n{text}");
        }
    }
}
