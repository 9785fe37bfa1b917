//! Talks to PostgreSQL outside the hot path: queries for set-up and evidence, prepared statements, clean-up. The messages of the
//! measured requests are here too; all others are in `samehost-login`.

use std::path::Path;
use std::time::Duration;

use bytes::BytesMut;
use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend;
use samehost_login::Expected;
use samehost_login::postgres::{Account, LoggedIn, Row, SslMode, unsaid};
use samehost_model::{Endpoint, Protocol};
use samehost_transport::Stream;

use super::super::requests::{expected, expected_again};
use super::address::Address;
use crate::engine::session::{Bad, Progress, Session};
use crate::error::BenchError;
use crate::private_servers::postgres::DATA;
use crate::private_servers::{POSTGRES_ROLE, PrivateServer};
use crate::workloads::requests::REPLY_TIMEOUT;

/// A connection that is logged in, on its database.
pub(super) struct Dialogue(LoggedIn);

/// Identifies a server and a database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) version: String,
    /// Start time of the server, to the microsecond.
    started: String,
    database: String,
}

impl Identity {
    /// Whether both are the same running server.
    pub(super) fn same_server(&self, other: &Identity) -> bool {
        self.started == other.started && self.version == other.version
    }
}

impl Dialogue {
    pub(super) fn begin(address: &Address, read_only: bool) -> Result<Self, BenchError> {
        Self::with(address, read_only, expected(Protocol::Postgres))
    }

    /// Connects as a part of what is measured.
    pub(super) fn measured(address: &Address, read_only: bool) -> Result<Self, BenchError> {
        Self::with(address, read_only, expected_again(Protocol::Postgres))
    }

    fn with(address: &Address, read_only: bool, expected: &Expected) -> Result<Self, BenchError> {
        let account = Account {
            user: &address.user,
            password: address.password.as_deref(),
            database: &address.database,
            sslmode: address.sslmode,
            read_only,
            expected,
        };
        Ok(Dialogue(LoggedIn::begin(&address.endpoint, &account, REPLY_TIMEOUT)?))
    }

    /// Runs a statement that the measurement needs; returns its rows as text.
    pub(super) fn must(&mut self, what: &str, sql: &str) -> Result<Vec<Row>, BenchError> {
        Ok(self.0.must(what, sql)?)
    }

    /// The single value of a statement.
    pub(super) fn value(&mut self, what: &str, sql: &str) -> Result<String, BenchError> {
        let rows = self.must(what, sql)?;
        Ok(rows.into_iter().flatten().flatten().next().unwrap_or_default())
    }

    /// The RowDescription of a statement; empty if the reply has none.
    pub(super) fn description(&mut self, sql: &str) -> Result<Vec<u8>, BenchError> {
        let mut question = query(sql).map_err(unsaid)?;
        let (mut description, mut refusal) = (Vec::new(), None);
        loop {
            let message = self.0.link.ask(&question, |input| {
                let Some((tag, length)) = first(input)? else { return Ok(None) };
                Ok(Some(((tag, input[..length].to_vec()), length)))
            })?;
            match message {
                (b'T', bytes) => description = bytes,
                (b'E', bytes) => refusal = Some(bytes),
                (b'Z', _) => break,
                _ => {}
            }
            question.clear();
        }
        match refusal {
            None => Ok(description),
            // Sent again, so that the error contains the server's own message.
            Some(_) => self.must("a statement", sql).map(|_| description),
        }
    }

    /// Prepares a named statement.
    pub(super) fn prepare(&mut self, name: &str, sql: &str, parameters: usize) -> Result<(), BenchError> {
        let mut question = parse_statement(name, sql, parameters).map_err(unsaid)?;
        question.extend(
            bytes(|out| {
                frontend::sync(out);
                Ok(())
            })
            .map_err(unsaid)?,
        );
        let mut refusal = None;
        loop {
            match self.0.link.ask(&question, parse)? {
                Message::ErrorResponse(body) => refusal = Some(Refusal::read(body.fields())),
                Message::ReadyForQuery(_) => break,
                _ => {}
            }
            question.clear();
        }
        refusal.map_or(Ok(()), |refusal| Err(self.0.refused("to prepare a statement", &refusal).into()))
    }

    /// Makes one exchange of a session outside the engine. The outer error is the connection's; the inner one
    /// is what was wrong with the reply.
    pub(super) fn exchange(&mut self, session: &mut dyn Session) -> Result<Result<(), Bad>, BenchError> {
        let mut question = Vec::new();
        session.request(&mut question);
        let mut bad = Ok(());
        self.0.link.ask(&question, |input| match session.response(input) {
            Ok(Progress::Complete { consumed }) => Ok(Some(((), consumed))),
            Ok(Progress::Rejected { consumed, kind }) => {
                bad = Err(Bad::new(kind, "the server said no"));
                Ok(Some(((), consumed)))
            }
            Ok(Progress::More { consumed: 0 }) => Ok(None),
            Ok(Progress::More { .. } | Progress::Last { .. }) => Err("a reply in parts".into()),
            Err(wrong) => {
                bad = Err(wrong);
                Ok(Some(((), input.len())))
            }
        })?;
        Ok(bad)
    }

    /// The error for an unusable connection.
    pub(super) fn lost(&self, reason: String) -> BenchError {
        BenchError::lost(self.0.link.endpoint(), reason)
    }

    /// Waits up to two seconds until the backends of the previous trial have ended: their CPU time at the end
    /// would count for this trial, and they occupy connections that this one needs.
    pub(super) fn wait_for_leavers(&mut self) -> Result<(), BenchError> {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'samehost' \
                   AND usename = current_user AND pid <> pg_backend_pid()";
        for _ in 0..100 {
            if self.value("to count our connections", sql)? == "0" {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Identity of the server.
    pub(super) fn identity(&mut self) -> Result<Identity, BenchError> {
        let started = self.value("when it was started", "SELECT pg_postmaster_start_time()::text")?;
        let database = self.value("its database", "SELECT current_database()")?;
        Ok(Identity { version: self.0.version.clone(), started, database })
    }

    /// The server's view of this connection.
    pub(super) fn view(&mut self) -> Result<String, BenchError> {
        Ok(format!("the server says {}", self.0.seen()?))
    }

    /// The transport by which the server is reached: through a pooler, that of the pooler's connection.
    pub(super) fn transport(&mut self) -> Result<Option<&'static str>, BenchError> {
        Ok(self.0.seen()?.transport())
    }

    /// Process of the server for this connection.
    pub(super) fn backend(&self) -> i32 {
        self.0.backend
    }

    /// TLS version and cipher, if TLS is in use.
    pub(super) fn cipher(&self) -> Option<String> {
        self.0.link.cipher()
    }

    /// Sends Terminate, so that the server does not log a lost connection.
    pub(super) fn end(self) -> Result<(), BenchError> {
        Ok(self.0.end()?)
    }

    /// The connection, for the engine.
    pub(super) fn into_stream(self) -> Result<Stream, BenchError> {
        Ok(self.0.link.into_stream()?)
    }
}

/// The server's endpoint on the other transport: its Unix socket if `known` is TCP, its port if `known` is a
/// Unix socket.
pub(super) fn other_half(known: &Address) -> Result<Address, BenchError> {
    let mut dialogue = Dialogue::begin(known, true)?;
    let tcp = matches!(known.endpoint, Endpoint::Tcp { .. } | Endpoint::TcpTls { .. });
    let port = dialogue.value("its port", "SHOW port")?;
    let (setting, missing) =
        if tcp { ("unix_socket_directories", "--unix") } else { ("listen_addresses", "--tcp") };
    // A user who may not read the directories gets an empty value or a refusal.
    let value = dialogue.value(setting, &format!("SHOW {setting}")).unwrap_or_default();
    let found =
        if tcp { socket(&value, &port) } else { host(&value).map(|host| format!("tcp:{host}:{port}")) };
    let Some(found) = found else {
        return Err(BenchError::Usage(format!(
            "the server at {} does not tell a `{setting}` to measure against (none is set, or only members of pg_read_all_settings may read it); set it and restart the server, give {missing}, or measure one arm with --transports {}",
            known.endpoint,
            known.endpoint.transport(),
        )));
    };
    Ok(Address { endpoint: found.parse()?, sslmode: SslMode::Disable, ..known.clone() })
}

/// The first of the directories with a socket; abstract ones start with `@`.
fn socket(directories: &str, port: &str) -> Option<String> {
    let sockets = directories
        .split(',')
        .map(|directory| directory.trim().trim_matches('"'))
        .filter(|directory| directory.starts_with('/'))
        .map(|directory| format!("{}/.s.PGSQL.{port}", directory.trim_end_matches('/')));
    let all: Vec<String> = sockets.collect();
    // The socket may be in a directory that we may not search; then connecting reports it.
    let there = all.iter().find(|socket| Path::new(socket).exists()).or(all.first());
    there.map(|socket| format!("unix:{socket}"))
}

/// How to reach one of the server's listen addresses from its own machine.
fn host(addresses: &str) -> Option<&'static str> {
    let mut all = addresses.split(',').map(str::trim).filter(|address| !address.is_empty());
    all.find_map(|address| match address {
        "localhost" | "*" | "0.0.0.0" | "127.0.0.1" => Some("127.0.0.1"),
        "::" | "::1" => Some("[::1]"),
        _ => None,
    })
}

/// Checks that what answers at each endpoint has its data in the directory of the server that we started.
pub(super) fn is_ours(server: &PrivateServer) -> Result<(), BenchError> {
    let mut addresses = server.plain_endpoints().map(|endpoint| private(endpoint, server.password()));
    addresses.try_for_each(|address| leads_to(server, &address))
}

/// Checks that an address leads to the server that we started.
pub(super) fn leads_to(server: &PrivateServer, address: &Address) -> Result<(), BenchError> {
    // PgBouncer refuses the parameter that makes a session read-only.
    let found = Dialogue::begin(address, false)?.value("its data directory", "SHOW data_directory")?;
    if Path::new(&found) == server.directory().join(DATA) {
        Ok(())
    } else {
        Err(BenchError::lost(&address.endpoint, "another server answers there"))
    }
}

/// Address of the private server.
pub(super) fn private(endpoint: &Endpoint, password: &str) -> Address {
    Address {
        endpoint: endpoint.clone(),
        sslmode: if matches!(endpoint, Endpoint::TcpTls { .. }) {
            SslMode::Require
        } else {
            SslMode::Disable
        },
        user: POSTGRES_ROLE.into(),
        password: Some(password.to_owned()),
        database: "postgres".into(),
    }
}

pub(super) use samehost_login::postgres::messages::{Refusal, bytes, first, is_aside, message, parse, query};

/// OID of the type of our ids, `integer`.
const INT4: u32 = 23;

/// Parse, without Sync; `parameters` are integers.
pub(super) fn parse_statement(name: &str, sql: &str, parameters: usize) -> Result<Vec<u8>, String> {
    bytes(|out| frontend::parse(name, sql, std::iter::repeat_n(INT4, parameters), out))
}

/// Bind of integers in binary, with results as text; then Execute and Sync.
pub(super) fn bind_execute_sync(name: &str, parameters: &[i32]) -> Result<Vec<u8>, String> {
    bytes(|out| {
        frontend::bind(
            "",
            name,
            parameters.iter().map(|_| 1),
            parameters,
            |value: &i32, out: &mut BytesMut| {
                out.extend_from_slice(&value.to_be_bytes());
                Ok(postgres_protocol::IsNull::No)
            },
            std::iter::empty::<i16>(),
            out,
        )
        .map_err(|error| match error {
            frontend::BindError::Serialization(error) => error,
            frontend::BindError::Conversion(error) => std::io::Error::other(error),
        })?;
        frontend::execute("", 0, out)?;
        frontend::sync(out);
        Ok(())
    })
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn the_other_half_is_read_from_the_settings() {
        assert_eq!(socket("/nonexistent/a, /nonexistent/b", "1").unwrap(), "unix:/nonexistent/a/.s.PGSQL.1");
        assert_eq!(socket("@abstract", "1"), None);
        assert_eq!(
            (host("10.0.0.1, localhost"), host("::1"), host("")),
            (Some("127.0.0.1"), Some("[::1]"), None)
        );
    }

    #[test]
    fn requests_are_what_the_protocol_says() {
        let expected = b"B\0\0\0\x17\0s\0\0\x01\0\x01\0\x01\0\0\0\x04\x3b\x9a\xca\x01\0\0E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04";
        assert_eq!(bind_execute_sync("s", &[1_000_000_001]).unwrap(), expected);
        assert_eq!(query("SELECT 1").unwrap(), b"Q\0\0\0\x0dSELECT 1\0");
    }
}
