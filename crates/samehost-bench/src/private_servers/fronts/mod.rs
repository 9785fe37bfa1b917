//! Servers in front of others: an enum with a descriptor for each. What they pass on is one description, which each
//! writes in its own language, so that they can be compared: as many workers, no access log, connections in front that
//! stay open, no second try and no server left out after a failure.
//!
//! What differs is theirs. Without kept connections HAProxy writes HTTP/1.1, and closes. nginx and HAProxy keep 48 idle
//! connections, Apache one for each of its threads. A worker of Apache is a process whose threads may use several CPUs.
//! Caddy and Envoy were in front too: two more configurations, for what three show.
//!
//! A server that reaches ports only is not here: in a comparison of TCP with Unix sockets it would have one arm. Traefik (3.7) is
//! such a one: `unix://` is an "unsupported protocol scheme" to it, and a listener on a Unix socket ends it in a panic.

mod apache;
mod haproxy;
mod nginx;

use std::path::{Path, PathBuf};

use samehost_model::{Endpoint, Transport};
use samehost_services::{Kind, UnixSocket};

use super::{Account, PrivateDirectory, PrivateServer, Supervision};
use super::{filled_in, installed_service, on_free_port};
use crate::error::BenchError;
use crate::parameters::words;
pub(crate) use nginx::NGINX;

/// Page that reports which server was asked, and the field with the answer.
pub(crate) const WHERE: &str = "/where";
pub(crate) const ASKED: &str = "X-Asked";
/// The field of a request to a site with what only we know.
pub(crate) const KEY: &str = "X-Samehost-Key";
/// Page of the servers behind that answers for it.
const WHERE_BEHIND: &str = "/bytes/64";
/// Path that a server in front of FastCGI answers itself, with status 204.
pub(crate) const READY: &str = "/ready";
/// The backlog in front must not be the limit; the kernel lowers it to net.core.somaxconn.
const BACKLOG: u32 = 65535;

words! {
    pub(crate) enum FrontKind {
        Nginx = "nginx",
        Apache = "apache",
        Haproxy = "haproxy",
    }
}

pub(crate) struct FrontDescriptor {
    pub(crate) kind: Kind,
    pub(crate) worker_is_one_cpu: bool,
    file: &'static str,
    configuration: fn(&Layout<'_>) -> Result<String, BenchError>,
    /// Template of its arguments: see [`Layout::fill_in`].
    arguments: &'static str,
    /// Finds in its log why the connection to a server behind it failed.
    pub(crate) failed_connect: fn(&str) -> Option<String>,
}

impl FrontKind {
    pub(crate) fn descriptor(self) -> &'static FrontDescriptor {
        match self {
            FrontKind::Nginx => &nginx::DESCRIPTOR,
            FrontKind::Apache => &apache::DESCRIPTOR,
            FrontKind::Haproxy => &haproxy::DESCRIPTOR,
        }
    }

    pub(crate) fn title(self) -> &'static str {
        self.descriptor().kind.label()
    }

    /// Finds its program.
    ///
    /// # Errors
    /// When it is not installed; the message names the package.
    pub(crate) fn find(self) -> Result<PathBuf, BenchError> {
        installed_service(self.descriptor().kind)
    }

    pub(crate) fn check_listens(self, front: Transport) -> Result<(), BenchError> {
        match (front, self.ports_only()) {
            (Transport::Unix, Some(why)) => {
                Err(BenchError::Usage(format!("--front unix: {why}; use --front tcp")))
            }
            _ => Ok(()),
        }
    }

    /// The transport on which only we can connect to it, if it has that one.
    pub(crate) fn best(self) -> Transport {
        if self.ports_only().is_some() { Transport::Tcp } else { Transport::Unix }
    }

    /// Why it cannot listen on a Unix socket.
    pub(crate) fn ports_only(self) -> Option<&'static str> {
        match self.descriptor().kind.descriptor().unix() {
            UnixSocket::Never(why) => Some(why),
            UnixSocket::Setting(_) => None,
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct FrontSpec<'a> {
    pub(crate) listens: &'a [Transport],
    /// Connections open at the same time, without those to the servers behind.
    pub(crate) connections: u32,
    pub(crate) workers: u32,
    /// Account to run as if not ours: that of the servers behind it, whose sockets it must reach.
    pub(crate) account: Option<Account>,
    pub(crate) passes: Passes<'a>,
}

#[derive(Clone, Copy)]
pub(crate) enum Passes<'a> {
    /// HTTP, by the name of the host.
    Http(&'a [Host<'a>]),
    FastCgi(&'a Pools<'a>),
    Sites(&'a Sites<'a>),
}

/// A host, and the servers behind that answer for it in turn.
pub(crate) struct Host<'a> {
    pub(crate) name: String,
    pub(crate) servers: Vec<&'a Endpoint>,
    /// Idle connections that it keeps, by HTTP/1.1; `None` for a connection for each request, by HTTP/1.0 if it can.
    pub(crate) kept: Option<u32>,
}

pub(crate) struct Pools<'a> {
    pub(crate) pools: &'a [(String, Endpoint)],
    pub(crate) script: &'a Path,
    /// Parameters that nginx must be given; the others make them themselves.
    pub(crate) parameters: Vec<(&'static str, String)>,
    /// Connections that it keeps to each pool; `None` for a new one for each request.
    pub(crate) kept: Option<u32>,
}

/// PHP applications, each at an address of its own: see [`Layout::site`].
pub(crate) struct Sites<'a> {
    pub(crate) sites: &'a [PhpSite],
    /// What the field [`KEY`] of a request must have, where every local user can connect.
    pub(crate) key: &'a str,
}

pub(crate) struct PhpSite {
    pub(crate) pool: Endpoint,
    pub(crate) root: PathBuf,
    /// The script that answers every request; `None` for the one that the request names without `.php`, whose output is
    /// passed on as it comes.
    pub(crate) script: Option<&'static str>,
    /// Parameters besides those that follow from the request.
    pub(crate) parameters: Vec<(&'static str, String)>,
}

/// Where a site is, by the address of the first one: sockets beside it, or its port at other loopback addresses.
pub(crate) fn site(first: &Endpoint, number: usize) -> Endpoint {
    match first {
        Endpoint::Unix(path) if number > 0 => Endpoint::Unix(path.with_extension(format!("{number}.sock"))),
        Endpoint::Tcp { port, .. } => Endpoint::Tcp { host: format!("127.0.0.{}", number + 1), port: *port },
        first => first.clone(),
    }
}

pub(super) struct Layout<'a> {
    directory: &'a Path,
    port: u16,
    spec: &'a FrontSpec<'a>,
}

impl Layout<'_> {
    fn endpoint(&self, transport: Transport) -> Endpoint {
        match transport {
            Transport::Unix => Endpoint::Unix(self.directory.join("front.sock")),
            _ => Endpoint::Tcp { host: "127.0.0.1".into(), port: self.port },
        }
    }

    fn site(&self, number: usize) -> Endpoint {
        site(&self.endpoint(self.spec.listens.first().copied().unwrap_or(Transport::Unix)), number)
    }

    fn endpoints(&self) -> Vec<Endpoint> {
        self.spec.listens.iter().map(|transport| self.endpoint(*transport)).collect()
    }

    /// The words of a template for a server with this configuration.
    fn fill_in(&self, template: &str, file: &str) -> Vec<String> {
        let (directory, workers) = (self.directory.display().to_string(), self.spec.workers.to_string());
        let file = self.directory.join(file).display().to_string();
        filled_in(template, &[("{directory}", &directory), ("{file}", &file), ("{workers}", &workers)])
    }
}

/// Starts a private server in front. `answers` checks whether it serves.
///
/// # Errors
/// When it is not installed, cannot do what is asked, or does not answer in time.
pub(crate) fn start(
    kind: FrontKind,
    program: &Path,
    spec: &FrontSpec<'_>,
    answers: impl Fn(&PrivateServer) -> Result<(), BenchError>,
) -> Result<PrivateServer, BenchError> {
    let front = kind.descriptor();
    let own = kind.find()?;
    on_free_port(|port| {
        let directory = PrivateDirectory::new()?;
        let path = directory.path().to_owned();
        let layout = Layout { directory: &path, port, spec };
        directory.write(front.file, &(front.configuration)(&layout)?)?;
        let mut command = vec![own.display().to_string()];
        command.extend(layout.fill_in(front.arguments, front.file));
        let supervision = Supervision::new(program, kind.title(), spec.account, command);
        PrivateServer::start(&supervision, directory, layout.endpoints())?.ready(&answers)
    })
}

/// Quotes a word for a configuration that has no means of escaping these characters.
pub(super) fn quoted(word: &str, kind: Kind, special: &[char]) -> Result<String, BenchError> {
    if word.contains(special) || word.chars().any(char::is_control) {
        let mut others = Vec::new();
        for sign in special {
            if !['"', '\\'].contains(sign) {
                others.push(format!("`{sign}`"));
            }
        }
        return Err(BenchError::Usage(format!(
            "`{}` cannot be written in a configuration of {}; use a path without quotes, backslashes and {}",
            word.escape_debug(),
            kind.label(),
            others.join(" ")
        )));
    }
    Ok(format!("\"{word}\""))
}

/// The address of a server behind as this kind writes it: host and port, or what `unix` makes of a path.
fn written_address(
    endpoint: &Endpoint,
    kind: Kind,
    unix: impl Fn(String) -> Result<String, BenchError>,
) -> Result<String, BenchError> {
    match endpoint {
        Endpoint::Unix(path) => unix(path.display().to_string()),
        Endpoint::Tcp { host, port } => Ok(host_and_port(host, *port)),
        other => BenchError::refuse(format!("{} does not pass requests on to {other}", kind.label())),
    }
}

/// Host and port as all of them write them.
pub(super) fn host_and_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters::Word;

    const ALL: [FrontKind; 3] = [FrontKind::Nginx, FrontKind::Apache, FrontKind::Haproxy];

    fn written(kind: FrontKind, passes: Passes<'_>) -> Result<String, BenchError> {
        let spec =
            FrontSpec { listens: &[Transport::Tcp], connections: 8, workers: 2, account: None, passes };
        (kind.descriptor().configuration)(&Layout { directory: Path::new("/run/x"), port: 80, spec: &spec })
    }

    #[test]
    fn words_are_the_names_of_services() {
        for kind in ALL {
            assert_eq!(kind.word(), kind.descriptor().kind.name());
        }
        assert_eq!(FrontKind::WORDS.len(), ALL.len());
    }

    #[test]
    fn each_is_told_hosts_servers_and_connections_in_its_words() {
        let unix = Endpoint::Unix("/run/a.sock".into());
        let tcp = Endpoint::Tcp { host: "127.0.0.1".into(), port: 81 };
        let host = |kept| Host { name: "condition03".into(), servers: vec![&unix, &tcp], kept };
        for (kind, kept_words, other) in [
            (
                FrontKind::Nginx,
                &["server \"unix:/run/a.sock\" max_fails=0;", "server 127.0.0.1:81 ", "keepalive 48;"][..],
                "proxy_http_version 1.0",
            ),
            (
                FrontKind::Apache,
                &["unix:/run/a.sock|http://", "BalancerMember \"http://127.0.0.1:81\"", "retry=0"],
                "force-proxy-request-1.0",
            ),
            (
                FrontKind::Haproxy,
                &["unix@/run/a.sock", " 127.0.0.1:81 ", "pool-max-conn 48"],
                "option http-server-close",
            ),
        ] {
            let text = written(kind, Passes::Http(&[host(Some(48))])).unwrap();
            for words in kept_words.iter().chain(&["condition03"]) {
                assert!(text.contains(words), "{words} in:\n{text}");
            }
            assert!(!text.contains(other), "{other} in:\n{text}");
            assert!(written(kind, Passes::Http(&[host(None)])).unwrap().contains(other), "{other}");
        }
    }

    #[test]
    fn each_pool_has_a_path_of_its_own() {
        let pools = [
            ("tcp-5".to_owned(), Endpoint::Tcp { host: "127.0.0.1".into(), port: 9000 }),
            ("unix-5".to_owned(), Endpoint::Unix("/run/x/unix-5.sock".into())),
        ];
        let spec = |kept, script: &'static str| Pools {
            pools: &pools,
            script: Path::new(script),
            parameters: vec![("QUERY_STRING", "$query_string".into())],
            kept,
        };
        let text = |kind, kept| written(kind, Passes::FastCgi(&spec(kept, "/srv/a.php"))).unwrap();
        for (kind, lines) in [
            (
                FrontKind::Nginx,
                &[
                    "location = /tcp-5 {",
                    "fastcgi_pass 127.0.0.1:9000;",
                    "fastcgi_pass \"unix:/run/x/unix-5.sock\";",
                    "fastcgi_param SCRIPT_FILENAME \"/srv/a.php\";",
                    "fastcgi_param QUERY_STRING $query_string;",
                ][..],
            ),
            (
                FrontKind::Apache,
                &[
                    "ProxyPassMatch \"^/tcp-5$\" \"fcgi://127.0.0.1:9000/srv/a.php\" retry=0",
                    "ProxyPassMatch \"^/unix-5$\" \"unix:/run/x/unix-5.sock|fcgi://unix-5/srv/a.php\" retry=0",
                ],
            ),
            (
                FrontKind::Haproxy,
                &["docroot \"/srv\"", "backend unix-5", "server php unix@/run/x/unix-5.sock proto fcgi"],
            ),
        ] {
            let text = text(kind, None);
            for line in lines {
                assert!(text.lines().any(|given| given.trim() == *line), "{line} in:\n{text}");
            }
        }
        let kept = text(FrontKind::Nginx, Some(4));
        assert!(kept.contains("upstream tcp-5 { server 127.0.0.1:9000; keepalive 4;"), "{kept}");
        assert!(kept.contains("fastcgi_pass unix-5;\n      fastcgi_keep_conn on;"), "{kept}");
        assert!(text(FrontKind::Apache, Some(4)).contains("retry=0 enablereuse=on max=4\n"));
        assert!(text(FrontKind::Haproxy, Some(4)).contains("proto fcgi pool-max-conn 4 "));
        assert!(text(FrontKind::Haproxy, None).contains("no option keep-conn"));
        for kind in ALL {
            assert!(written(kind, Passes::FastCgi(&spec(None, "/srv/a\".php"))).is_err(), "{kind:?}");
        }
    }

    #[test]
    fn a_failed_connect_is_explained_by_its_log() {
        for (kind, log) in [
            (
                FrontKind::Nginx,
                "2026/11/21 07:43:04 [error] 12#12: *57 connect() to unix:/run/x/unix-16.sock failed (11: Resource temporarily unavailable) while connecting to upstream, client: 127.0.0.1",
            ),
            (
                FrontKind::Apache,
                "[Mon Nov 23 12:22:33.698465 2026] [proxy:error] [pid 1:tid 2] (11)Resource temporarily unavailable: AH02454: FCGI: attempt to connect to Unix domain socket /run/x/unix-16.sock (unix-16:8000) failed",
            ),
        ] {
            let reason = (kind.descriptor().failed_connect)(log).unwrap();
            assert!(reason.to_lowercase().contains("resource temporarily unavailable"), "{reason}");
            assert!(reason.len() < 60, "{reason}");
            assert_eq!((kind.descriptor().failed_connect)("all is well"), None);
        }
    }
}
