//! nginx in front of PHP-FPM: one listener, and a location for each pool. The transport in front stays the
//! same while the transports behind are compared.

use std::path::Path;
use std::sync::Arc;

use samehost_model::{Endpoint, Transport};

use super::script;
use crate::error::BenchError;
use crate::private_servers::nginx::{self, NginxSpec};
use crate::private_servers::{Account, PrivateServer};
use crate::workloads::http::{RequestParts, fetch};

/// Path that nginx answers itself.
const READY: &str = "/ready";

/// What nginx passes on, and how.
pub(super) struct FrontSpec<'a> {
    /// Transport of nginx's listener: a port of 127.0.0.1, or a Unix socket.
    pub(super) transport: Transport,
    /// Name and endpoint of each pool.
    pub(super) pools: &'a [(String, Endpoint)],
    /// Path of the script.
    pub(super) script: &'a Path,
    /// Concurrent connections in front.
    pub(super) connections: u32,
    /// Kept connections to each pool; `None` for a new one per request, nginx's default.
    pub(super) kept: Option<u32>,
    /// Account of PHP-FPM, whose sockets nginx must reach; `None` for ours.
    pub(super) account: Option<Account>,
}

/// A private nginx in front.
#[derive(Debug)]
pub(super) struct Front {
    nginx: PrivateServer,
    endpoint: Endpoint,
}

impl Front {
    /// Starts nginx.
    ///
    /// # Errors
    /// When it is not installed, does not become ready, or a path cannot be quoted.
    pub(super) fn start(program: &Path, spec: &FrontSpec<'_>) -> Result<Self, BenchError> {
        let locations = locations(spec)?;
        let endpoint = |directory: &Path, port| match spec.transport {
            Transport::Unix => Endpoint::Unix(directory.join("front.sock")),
            _ => Endpoint::Tcp { host: "127.0.0.1".into(), port },
        };
        let http = |directory: &Path, port| {
            let listen = match endpoint(directory, port) {
                Endpoint::Unix(path) => format!("unix:{}", path.display()),
                _ => format!("127.0.0.1:{port}"),
            };
            // nginx's own backlog must not be the limit; the kernel lowers it to net.core.somaxconn.
            format!("{}  server {{\n    listen {listen} backlog=65535;\n{}  }}\n", locations.0, locations.1)
        };
        let front = |directory: &Path, port| Some(endpoint(directory, port));
        let spec = NginxSpec {
            connections: spec.connections,
            workers: 1,
            account: spec.account,
            http: &http,
            front: &front,
        };
        let nginx = nginx::start(program, &spec, |nginx| {
            nginx.endpoints().try_for_each(|endpoint| match fetch(endpoint, &request(READY))?.0.status {
                204 => Ok(()),
                _ => Err(BenchError::lost(endpoint, "another server answers there")),
            })
        })?;
        let endpoint =
            nginx.endpoints().next().cloned().ok_or_else(|| nginx.failure("it has no listener"))?;
        Ok(Front { nginx, endpoint })
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The master process.
    pub(super) fn pid(&self) -> u32 {
        self.nginx.pid()
    }

    /// The end of its error log.
    pub(super) fn stderr_tail(&self) -> String {
        self.nginx.stderr_tail()
    }
}

/// The request that nginx passes on to a pool.
pub(super) fn request_for(pool: &str, query: &str) -> Arc<[u8]> {
    let target = if query.is_empty() { format!("/{pool}") } else { format!("/{pool}?{query}") };
    request(&target)
}

fn request(target: &str) -> Arc<[u8]> {
    let parts = RequestParts::get(target, "localhost");
    parts.bytes()
}

/// The lines before the server block, and those inside.
fn locations(spec: &FrontSpec<'_>) -> Result<(String, String), BenchError> {
    let (mut upstreams, mut locations) =
        (String::new(), format!("    location = {READY} {{ return 204; }}\n"));
    let script = quoted(&spec.script.display().to_string())?;
    // Parameters other than the script's path follow nginx's own configuration.
    let parameters: String = script::parameters("", "", "")
        .into_iter()
        .filter_map(|(name, value)| {
            let value = match name {
                "SCRIPT_FILENAME" => script.clone(),
                "QUERY_STRING" => "$query_string".into(),
                "REQUEST_METHOD" => "$request_method".into(),
                "CONTENT_TYPE" => "$content_type".into(),
                "CONTENT_LENGTH" => "$content_length".into(),
                "SCRIPT_NAME" | "DOCUMENT_URI" => "$document_uri".into(),
                "REQUEST_URI" => "$request_uri".into(),
                "REMOTE_PORT" => "$remote_port".into(),
                // nginx passes the request's fields on by itself.
                "DOCUMENT_ROOT" | "HTTP_HOST" => return None,
                _ => value.to_owned(),
            };
            Some(format!("      fastcgi_param {name} {value};\n"))
        })
        .collect();
    for (name, endpoint) in spec.pools {
        let address = match endpoint {
            Endpoint::Unix(path) => quoted(&format!("unix:{}", path.display()))?,
            Endpoint::Tcp { host, port } if host.contains(':') => format!("[{host}]:{port}"),
            Endpoint::Tcp { host, port } => format!("{host}:{port}"),
            other => return Err(BenchError::Usage(format!("nginx does not pass requests on to {other}"))),
        };
        let pass = match spec.kept {
            Some(kept) => {
                upstreams.push_str(&format!(
                    "  upstream {name} {{ server {address}; keepalive {kept}; keepalive_requests 1000000000; }}\n"
                ));
                format!("{name};\n      fastcgi_keep_conn on")
            }
            None => address,
        };
        locations.push_str(&format!(
            "    location = /{name} {{\n      fastcgi_pass {pass};\n{parameters}    }}\n"
        ));
    }
    Ok((upstreams, locations))
}

/// Quotes an argument for nginx's configuration.
fn quoted(word: &str) -> Result<String, BenchError> {
    if word.contains(['"', '$', '\\']) || word.chars().any(char::is_control) {
        return Err(BenchError::Usage(format!(
            "`{}` cannot be written in an nginx configuration; use a path without quotes, `$` and backslashes",
            word.escape_debug()
        )));
    }
    Ok(format!("\"{word}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pool_has_a_location_of_its_own() {
        let pools = [
            ("tcp-5".to_owned(), Endpoint::Tcp { host: "127.0.0.1".into(), port: 9000 }),
            ("unix-5".to_owned(), Endpoint::Unix("/run/x/unix-5.sock".into())),
        ];
        let spec = |kept| FrontSpec {
            transport: Transport::Tcp,
            pools: &pools,
            script: Path::new("/srv/a.php"),
            connections: 1,
            kept,
            account: None,
        };
        let (before, inside) = locations(&spec(None)).unwrap();
        assert!(before.is_empty());
        for line in [
            "location = /tcp-5 {",
            "fastcgi_pass 127.0.0.1:9000;",
            "fastcgi_pass \"unix:/run/x/unix-5.sock\";",
            "fastcgi_param SCRIPT_FILENAME \"/srv/a.php\";",
            "fastcgi_param QUERY_STRING $query_string;",
        ] {
            assert!(inside.lines().any(|given| given.trim() == line), "{line} in:\n{inside}");
        }
        let (before, inside) = locations(&spec(Some(4))).unwrap();
        assert!(before.contains("upstream tcp-5 { server 127.0.0.1:9000; keepalive 4;"), "{before}");
        assert!(inside.contains("fastcgi_pass unix-5;\n      fastcgi_keep_conn on;"), "{inside}");
        assert!(quoted("/srv/$a.php").is_err());
    }
}
