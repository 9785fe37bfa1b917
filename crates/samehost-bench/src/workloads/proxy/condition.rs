//! One condition of the matrix: the server in front, and how it reaches its backends.

use samehost_model::{Arm, Endpoint, Transport};

use super::Settings;
use crate::matrix::distinct;
use crate::private_servers::FrontKind;
use crate::private_servers::fronts::Host;
use crate::workloads::http::Version;

/// Connections to the backends that the server in front keeps open, as in the published measurement.
const KEPT: u32 = 48;

/// How a server in front reaches its backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) via: FrontKind,
    /// Transport behind the server in front.
    pub(super) transport: Transport,
    pub(super) backends: u32,
    pub(super) http: Version,
}

impl Condition {
    /// The condition of a trial.
    pub(super) fn of(arm: &Arm, settings: &Settings) -> Self {
        Condition {
            via: settings.via.at(&arm.point),
            transport: arm.transport,
            backends: settings.backends.at(&arm.point),
            http: settings.http.at(&arm.point),
        }
    }

    /// All conditions of a server in front, with these settings and transports.
    pub(super) fn all(via: FrontKind, transports: &[Transport], settings: &Settings) -> Vec<Self> {
        let mut all = Vec::new();
        for transport in transports {
            for backends in &settings.backends.values {
                all.extend(settings.http.values.iter().map(|http| Condition {
                    via,
                    transport: *transport,
                    backends: *backends,
                    http: *http,
                }));
            }
        }
        distinct(all)
    }

    /// Name of the condition's host; all have the same length.
    pub(super) fn host(number: usize) -> String {
        format!("condition{number:02}")
    }

    /// Its host in the configuration of the server in front.
    pub(super) fn described<'a>(&self, number: usize, servers: Vec<&'a Endpoint>) -> Host<'a> {
        let kept = (self.http == Version::V11).then_some(KEPT);
        Host { name: Condition::host(number), servers, kept }
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
        let all = Condition::all(FrontKind::Nginx, &both, &settings("1,4", "1.0,1.1").unwrap());
        assert_eq!(all.len(), 8);
        let first =
            Condition { via: FrontKind::Nginx, transport: Transport::Tcp, backends: 1, http: Version::V10 };
        assert_eq!(all[0], first);
        assert!(settings("0", "1.0").is_err());
        let twice = [Transport::Unix, Transport::Unix];
        assert_eq!(Condition::all(FrontKind::Nginx, &twice, &settings("1", "1.1").unwrap()).len(), 1);
    }
}
