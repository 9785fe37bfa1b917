//! Poolers before a private PostgreSQL: an enum with a descriptor for each. Each is one process that listens on a TCP port
//! and a Unix socket, and has one database for each transport behind it. So the client chooses both hops, by address and by
//! name of the database.
//!
//! Their files have the password as text, as those of many installations have: with a SCRAM secret they could not log in to
//! the server. Only the account of both servers can read them.

mod odyssey;
mod pgbouncer;

use std::path::{Path, PathBuf};

use samehost_model::{Endpoint, Transport};

use super::free_port::on_free_port;
use super::postgres;
use super::{PrivateDirectory, PrivateServer, ServerKind, Supervision};
use crate::error::BenchError;
use crate::parameters::words;

/// Connections to the server besides those of the clients that are measured, for each transport behind.
const SPARE: u32 = 24;
/// Runs a command with a limit of open files: poolers do not raise their own.
const WITH_FILES: &str = r#"ulimit -Sn "$1" && shift && exec "$@""#;

words! {
    /// A pooler.
    pub(crate) enum PoolerKind { Pgbouncer = "pgbouncer", Odyssey = "odyssey" }
}

/// Files of a pooler with their texts, by name.
type Files = Vec<(&'static str, String)>;

/// What is known of a pooler.
struct PoolerDescriptor {
    server: ServerKind,
    /// Its files; the first is its configuration.
    files: fn(&Layout<'_>) -> Result<Files, BenchError>,
}

/// How to start a pooler.
pub(crate) struct PoolerSpec<'a> {
    /// The server behind it.
    pub(crate) server: &'a PrivateServer,
    /// How long a client keeps a connection to the server: `transaction` or `session`.
    pub(crate) mode: &'static str,
    /// Most clients at the same time.
    pub(crate) connections: u32,
}

/// A pooler with the places that it has.
struct Layout<'a> {
    directory: PathBuf,
    /// A free port.
    port: u16,
    spec: &'a PoolerSpec<'a>,
}

impl PoolerKind {
    fn descriptor(self) -> &'static PoolerDescriptor {
        match self {
            PoolerKind::Pgbouncer => &pgbouncer::DESCRIPTOR,
            PoolerKind::Odyssey => &odyssey::DESCRIPTOR,
        }
    }

    /// Its name in reports.
    pub(crate) fn title(self) -> &'static str {
        self.descriptor().server.title
    }
}

/// Name of the database that is reached over this transport behind the pooler.
pub(crate) fn database(behind: Transport) -> String {
    format!("over_{behind}")
}

/// Starts a private pooler, which runs as the server behind it does. `answers` checks whether it leads to that server.
///
/// # Errors
/// When it is not installed, may not run as this user, or does not answer in time.
pub(crate) fn start(
    kind: PoolerKind,
    program: &Path,
    spec: &PoolerSpec<'_>,
    answers: impl Fn(&PrivateServer) -> Result<(), BenchError>,
) -> Result<PrivateServer, BenchError> {
    let known = kind.descriptor();
    let pooler = (known.server.find)()?;
    let account = postgres::account()?;
    on_free_port(|port| {
        let directory = PrivateDirectory::new()?;
        let root = directory.path().to_owned();
        let layout = Layout { directory: root.clone(), port, spec };
        let files = (known.files)(&layout)?;
        files.iter().try_for_each(|(name, text)| directory.write(name, text))?;
        let configuration = files.first().map(|(name, _)| root.join(name)).unwrap_or_default();
        let open = layout.clients().saturating_add(2 * layout.pool()).saturating_add(64);
        let mut command = ["/bin/sh", "-c", WITH_FILES, "samehost-pooler"].map(String::from).to_vec();
        command.extend([open.to_string(), pooler.display().to_string()]);
        command.push(configuration.display().to_string());
        // At SIGTERM newer ones wait until every client is gone.
        let supervision = Supervision::new(program, known.server.title, account, command).ended_at_once();
        let endpoints = [
            Endpoint::Tcp { host: "127.0.0.1".into(), port },
            Endpoint::Unix(root.join(format!(".s.PGSQL.{port}"))),
        ];
        let password = spec.server.password();
        PrivateServer::start(&supervision, directory, endpoints)?.with_password(password).ready(&answers)
    })
}

impl Layout<'_> {
    /// Connections to the server, for each transport behind: none of ours may wait for one.
    fn pool(&self) -> u32 {
        self.spec.connections.saturating_add(SPARE)
    }

    /// Clients at the same time; those of the previous trial may still be closing.
    fn clients(&self) -> u32 {
        self.spec.connections.saturating_mul(2).saturating_add(64)
    }
}

/// Directory or host, and port, of an endpoint of PostgreSQL as libpq writes them.
fn host_and_port(endpoint: &Endpoint) -> (String, String) {
    match endpoint {
        Endpoint::Unix(path) => {
            let port = path.extension().unwrap_or_default().to_string_lossy().into_owned();
            (path.parent().unwrap_or(Path::new("/")).display().to_string(), port)
        }
        Endpoint::Tcp { host, port } => (host.clone(), port.to_string()),
        other => (other.to_string(), String::new()),
    }
}
