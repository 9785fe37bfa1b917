//! One condition of the matrix: how nginx reaches its backends, and its lines in nginx.conf.

use std::path::Path;

use samehost_model::{Arm, Endpoint, Transport};

use super::Settings;
use crate::matrix::distinct;
use crate::workloads::http::Version;

/// Connections to the backends that nginx keeps open, as in the published measurement.
const KEPT: u32 = 48;

/// Page that reports which backend nginx uses, and the field with the answer.
pub(super) const WHERE: &str = "/where";
pub(super) const ASKED: &str = "X-Asked";

/// How nginx reaches its backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    /// Transport behind nginx.
    pub(super) transport: Transport,
    pub(super) backends: u32,
    pub(super) http: Version,
}

impl Condition {
    /// The condition of a trial.
    pub(super) fn of(arm: &Arm, settings: &Settings) -> Self {
        let (backends, http) = (settings.backends.at(&arm.point), settings.http.at(&arm.point));
        Condition { transport: arm.transport, backends, http }
    }

    /// All conditions of these settings and transports.
    pub(super) fn all(transports: &[Transport], settings: &Settings) -> Vec<Self> {
        let mut all = Vec::new();
        for transport in transports {
            for backends in &settings.backends.values {
                all.extend(settings.http.values.iter().map(|http| Condition {
                    transport: *transport,
                    backends: *backends,
                    http: *http,
                }));
            }
        }
        distinct(all)
    }

    /// Name of the condition's server block; all have the same length.
    pub(super) fn host(number: usize) -> String {
        format!("condition{number:02}")
    }

    /// Its part of nginx.conf.
    pub(super) fn lines(&self, number: usize, listen: &str, backends: &[&Endpoint]) -> String {
        let host = Condition::host(number);
        let servers: String = backends
            .iter()
            .map(|endpoint| {
                let place = match endpoint {
                    Endpoint::Unix(path) => format!("unix:{}", path.display()),
                    Endpoint::Tcp { host, port } => format!("{host}:{port}"),
                    other => other.to_string(),
                };
                // A failure must show: nginx must not retry, nor leave a backend out for ten seconds.
                format!("    server {place} max_fails=0;\n")
            })
            .collect();
        let (kept, version) = match self.http {
            Version::V11 => (
                format!(
                    "    keepalive {KEPT};\n    keepalive_requests 1000000000;\n    keepalive_timeout 1h;\n"
                ),
                "proxy_http_version 1.1; proxy_set_header Connection \"\";",
            ),
            Version::V10 => (String::new(), "proxy_http_version 1.0;"),
        };
        format!(
            "  upstream {host} {{\n{servers}{kept}  }}\n  server {{\n    listen {listen};\n    server_name {host};\n    \
             {version}\n    proxy_next_upstream off;\n    location / {{ proxy_pass http://{host}; }}\n    \
             location = {WHERE} {{ rewrite ^ /bytes/64 break; add_header {ASKED} $upstream_addr; proxy_pass http://{host}; }}\n  }}\n"
        )
    }
}

/// Value of nginx's `listen` in front, and its endpoint.
pub(super) fn front(transport: Transport, directory: &Path, port: u16) -> (String, Endpoint) {
    if transport == Transport::Tcp {
        let place = format!("127.0.0.1:{port}");
        (place + " backlog=4096", Endpoint::Tcp { host: "127.0.0.1".into(), port })
    } else {
        let path = directory.join("front.sock");
        (format!("unix:{} backlog=4096", path.display()), Endpoint::Unix(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::BenchError;

    fn settings(backends: &str, http: &str) -> Result<Settings, BenchError> {
        let mut parameters = crate::workload::defaults(&super::super::Proxy);
        parameters.extend([("backends".into(), backends.into()), ("http".into(), http.into())]);
        Settings::parse(&parameters)
    }

    #[test]
    fn the_published_matrix_has_eight() {
        let both = [Transport::Tcp, Transport::Unix];
        let all = Condition::all(&both, &settings("1,4", "1.0,1.1").unwrap());
        assert_eq!(all.len(), 8);
        assert_eq!(all[0], Condition { transport: Transport::Tcp, backends: 1, http: Version::V10 });
        assert!(settings("0", "1.0").is_err());
        let twice = [Transport::Unix, Transport::Unix];
        assert_eq!(Condition::all(&twice, &settings("1", "1.1").unwrap()).len(), 1);
    }

    #[test]
    fn nginx_is_told_each_in_its_words() {
        let unix = Endpoint::Unix("/run/a.sock".into());
        let tcp = Endpoint::Tcp { host: "127.0.0.1".into(), port: 81 };
        let condition = |http| Condition { transport: Transport::Unix, backends: 2, http };
        let lines = condition(Version::V11).lines(3, "127.0.0.1:80", &[&unix, &tcp]);
        for part in [
            "upstream condition03 {",
            "server unix:/run/a.sock max_fails=0;",
            "server 127.0.0.1:81 ",
            "keepalive 48;",
        ] {
            assert!(lines.contains(part), "{part} in:\n{lines}");
        }
        assert!(!condition(Version::V10).lines(3, "x", &[&unix]).contains("keepalive"));
    }
}
