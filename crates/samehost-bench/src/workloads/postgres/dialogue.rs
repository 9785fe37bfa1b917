//! Talks to PostgreSQL outside the hot path: queries for set-up and evidence, prepared statements, clean-up. The
//! messages of the measured requests are here too; all others are in `samehost-login`.

use std::path::Path;
use std::time::Duration;

use bytes::BytesMut;
use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend;
use samehost_login::postgres::unsaid;
use samehost_login::{LoginError, ServerAddress};
use samehost_model::{Endpoint, Protocol};

use crate::engine::session::{Bad, Progress, Session};
use crate::error::BenchError;
use crate::private_servers::PrivateServer;
use crate::private_servers::postgres::DATA;
use crate::workloads::foreign::lacking;
use crate::workloads::requests::{REPLY_TIMEOUT, expected, expected_again};

pub(super) use samehost_login::postgres::LoggedIn as Dialogue;
pub(super) use samehost_login::postgres::messages::{Refusal, bytes, first, is_aside, message, parse, query};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) version: String,
    /// Start time of the server, to the microsecond: no two servers of a machine have the same.
    started: String,
    database: String,
}

impl Identity {
    pub(super) fn same_server(&self, other: &Identity) -> bool {
        self.started == other.started && self.version == other.version
    }
}

pub(super) fn begin(address: &ServerAddress, read_only: bool) -> Result<Dialogue, BenchError> {
    Ok(Dialogue::begin(address, read_only, expected(Protocol::Postgres), REPLY_TIMEOUT)?)
}

/// Connects as a part of what is measured, without the walk through /proc that the first connection makes to identify
/// the server (docs/decisions/0065).
pub(super) fn measured(address: &ServerAddress, read_only: bool) -> Result<Dialogue, BenchError> {
    Ok(Dialogue::begin(address, read_only, expected_again(Protocol::Postgres), REPLY_TIMEOUT)?)
}

/// Sends messages and passes those of the reply to `take`, until the server is ready for the next.
fn converse(
    dialogue: &mut Dialogue,
    what: &str,
    mut question: Vec<u8>,
    mut take: impl FnMut(u8, &[u8]),
) -> Result<(), BenchError> {
    let (mut refusal, mut is_ready) = (None, false);
    while !is_ready {
        dialogue.link.ask(&question, |input| {
            let Some((tag, length)) = first(input)? else { return Ok(None) };
            if let Some((Message::ErrorResponse(body), _)) = parse(&input[..length])? {
                refusal = Some(Refusal::read(body.fields()));
            }
            take(tag, &input[..length]);
            is_ready = tag == b'Z';
            Ok(Some(((), length)))
        })?;
        question.clear();
    }
    match refusal {
        Some(refusal) => Err(dialogue.refused(what, &refusal).into()),
        None => Ok(()),
    }
}

/// Runs a statement and returns its RowDescription message, header included; empty if the reply has none.
pub(super) fn description(dialogue: &mut Dialogue, sql: &str) -> Result<Vec<u8>, BenchError> {
    let mut description = Vec::new();
    converse(dialogue, "a statement", query(sql).map_err(unsaid)?, |tag, message| {
        if tag == b'T' {
            description = message.to_vec();
        }
    })?;
    Ok(description)
}

/// Prepares the statement [`PREPARED`] with so many integer parameters.
pub(super) fn prepare(dialogue: &mut Dialogue, sql: &str, parameters: usize) -> Result<(), BenchError> {
    let mut question = parse_statement(PREPARED, sql, parameters)?;
    let sync = bytes(|out| {
        frontend::sync(out);
        Ok(())
    });
    question.extend(sync.map_err(unsaid)?);
    converse(dialogue, "to prepare a statement", question, |_, _| {})
}

/// Makes one exchange of a session outside the engine. The outer error is the connection's; the inner one
/// is what was wrong with the reply.
pub(super) fn exchange_once(
    dialogue: &mut Dialogue,
    session: &mut dyn Session,
) -> Result<Result<(), Bad>, BenchError> {
    let mut question = Vec::new();
    session.request(&mut question);
    let mut bad = Ok(());
    dialogue.link.ask(&question, |input| match session.response(input) {
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

/// Waits up to two seconds until the backends of the previous trial have ended: their CPU time at the end would count
/// for this trial, and they occupy connections that this one needs. After that the trial begins all the same.
pub(super) fn wait_for_leavers(dialogue: &mut Dialogue) -> Result<(), BenchError> {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'samehost' \
               AND usename = current_user AND pid <> pg_backend_pid()";
    for _ in 0..100 {
        if dialogue.value("to count our connections", sql)? == "0" {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

pub(super) fn identity(dialogue: &mut Dialogue) -> Result<Identity, BenchError> {
    let started = dialogue.value("when it was started", "SELECT pg_postmaster_start_time()::text")?;
    let database = dialogue.value("its database", "SELECT current_database()")?;
    Ok(Identity { version: dialogue.version.clone(), started, database })
}

pub(super) fn other_half(known: &ServerAddress) -> Result<Endpoint, BenchError> {
    let mut dialogue = begin(known, true)?;
    let is_tcp = known.endpoint.path().is_none();
    let port = dialogue.value("its port", "SHOW port")?;
    let (setting, missing) =
        if is_tcp { ("unix_socket_directories", "--unix") } else { ("listen_addresses", "--tcp") };
    // A user who may not read the directories gets an empty value or a refusal.
    let value = dialogue.value(setting, &format!("SHOW {setting}")).unwrap_or_default();
    let found = if is_tcp { socket(&value, &port) } else { tcp(&value, &port) };
    match found {
        Some(endpoint) => Ok(endpoint.parse()?),
        None => Err(lacking(
            known,
            &format!(
                "does not tell a `{setting}` to measure against (none is set, or only members of pg_read_all_settings may read it); set it and restart the server, give {missing}"
            ),
        )),
    }
}

/// The endpoint of the first socket that is there, in the directories of `unix_socket_directories`; `None` if all are
/// abstract, whose names start with `@`. If none can be seen, the first: it may be in a directory that we may not search,
/// and then connecting reports that.
fn socket(directories: &str, port: &str) -> Option<String> {
    let mut first = None;
    for directory in directories.split(',') {
        let directory = directory.trim().trim_matches('"');
        if !directory.starts_with('/') {
            continue;
        }
        let socket = format!("{}/.s.PGSQL.{port}", directory.trim_end_matches('/'));
        if Path::new(&socket).exists() {
            return Some(format!("unix:{socket}"));
        }
        first.get_or_insert(format!("unix:{socket}"));
    }
    first
}

/// The endpoint of the first of `listen_addresses` that the server's own machine surely reaches; `None` without one.
fn tcp(addresses: &str, port: &str) -> Option<String> {
    for address in addresses.split(',') {
        match address.trim() {
            "localhost" | "*" | "0.0.0.0" | "127.0.0.1" => return Some(format!("tcp:127.0.0.1:{port}")),
            "::" | "::1" => return Some(format!("tcp:[::1]:{port}")),
            _ => {}
        }
    }
    None
}

/// Checks that what answers at each endpoint of a private server has its data in the directory that we made for it.
pub(super) fn is_ours(server: &PrivateServer) -> Result<(), BenchError> {
    for address in server.plain_addresses() {
        leads_to(server, &address)?;
    }
    Ok(())
}

pub(super) fn leads_to(server: &PrivateServer, address: &ServerAddress) -> Result<(), BenchError> {
    // PgBouncer refuses the parameter that makes a session read-only.
    let found = begin(address, false)?.value("its data directory", "SHOW data_directory")?;
    if Path::new(&found) == server.directory().join(DATA) {
        Ok(())
    } else {
        Err(BenchError::lost(&address.endpoint, "another server answers there"))
    }
}

/// OID of the type of our ids, `integer`.
const INT4: u32 = 23;
pub(super) const PREPARED: &str = "s";

/// Encodes Parse, without Sync, of a statement with so many integer parameters.
pub(super) fn parse_statement(name: &str, sql: &str, parameters: usize) -> Result<Vec<u8>, LoginError> {
    bytes(|out| frontend::parse(name, sql, std::iter::repeat_n(INT4, parameters), out)).map_err(unsaid)
}

/// Encodes Bind of integers in binary, with results as text; then Execute and Sync.
pub(super) fn bind_execute_sync(name: &str, parameters: &[i32]) -> Result<Vec<u8>, LoginError> {
    let encoded = bytes(|out| {
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
    });
    encoded.map_err(unsaid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_half_is_read_from_the_settings() {
        assert_eq!(socket("/nonexistent/a, /nonexistent/b", "1").unwrap(), "unix:/nonexistent/a/.s.PGSQL.1");
        assert_eq!(socket("@abstract", "1"), None);
        assert_eq!(tcp("10.0.0.1, localhost", "1").unwrap(), "tcp:127.0.0.1:1");
        assert_eq!(tcp("::1", "1").unwrap(), "tcp:[::1]:1");
        assert_eq!(tcp("", "1"), None);
    }

    #[test]
    fn requests_are_what_the_protocol_says() {
        let expected = b"B\0\0\0\x17\0s\0\0\x01\0\x01\0\x01\0\0\0\x04\x3b\x9a\xca\x01\0\0E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04";
        assert_eq!(bind_execute_sync("s", &[1_000_000_001]).unwrap(), expected);
        assert_eq!(query("SELECT 1").unwrap(), b"Q\0\0\0\x0dSELECT 1\0");
    }
}
