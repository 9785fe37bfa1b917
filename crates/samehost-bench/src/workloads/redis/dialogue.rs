//! Talks to Redis outside the hot path: identity, set-up and clean-up, over the login in `samehost-login`.

use samehost_login::Expected;
use samehost_login::redis;
use samehost_login::redis::resp::Reply;
use samehost_model::{Endpoint, Protocol};
use samehost_transport::Stream;

use super::address::Address;
use crate::error::BenchError;
use crate::private_servers::PrivateServer;
use crate::private_servers::podman::Place;
use crate::workloads::connecting::REPLY_TIMEOUT;
use crate::workloads::expected::{expected, expected_again};

pub(super) use samehost_login::redis::Identity;

/// A connection that is logged in, on its database.
pub(super) struct Dialogue(redis::Dialogue);

impl Dialogue {
    /// Connects, logs in and selects the database.
    pub(super) fn begin(address: &Address) -> Result<Self, BenchError> {
        Self::with(address, expected(Protocol::Redis))
    }

    /// Connects as one of many measured connections.
    pub(super) fn measured(address: &Address) -> Result<Self, BenchError> {
        Self::with(address, expected_again(Protocol::Redis))
    }

    fn with(address: &Address, expected: &Expected) -> Result<Self, BenchError> {
        let account = redis::Account {
            user: address.user.as_deref(),
            password: address.password.as_deref(),
            database: address.database,
            expected,
        };
        Ok(Dialogue(redis::Dialogue::begin(&address.endpoint, &account, REPLY_TIMEOUT)?))
    }

    /// Sends a command and returns the reply, also if it is a refusal.
    pub(super) fn ask(&mut self, words: &[&[u8]]) -> Result<Reply, BenchError> {
        self.is_in_step()?;
        Ok(self.0.ask(words)?)
    }

    /// Whether the server answers only what it is asked. Of one that is ahead no answer says anything.
    fn is_in_step(&self) -> Result<(), BenchError> {
        match self.0.has_unasked() {
            true => Err(BenchError::lost(self.0.link().endpoint(), "it answers before it is asked")),
            false => Ok(()),
        }
    }

    /// Sends a command that the measurement needs; a refusal is an error.
    pub(super) fn must(&mut self, what: &str, words: &[&[u8]]) -> Result<Reply, BenchError> {
        self.is_in_step()?;
        Ok(self.0.must(what, words)?)
    }

    /// Kind and version of the server, as far as it may be asked.
    pub(super) fn identity(&mut self) -> Result<Identity, BenchError> {
        Ok(self.0.identity()?)
    }

    /// A setting of the server; `None` if it may not be asked.
    pub(super) fn setting(&mut self, name: &str) -> Result<Option<String>, BenchError> {
        Ok(match self.ask(&[b"CONFIG", b"GET", name.as_bytes()])? {
            Reply::Array(Some(items)) => items.get(1).and_then(Reply::text),
            _ => None,
        })
    }

    /// The server's view of this connection.
    pub(super) fn view(&mut self) -> Result<Option<String>, BenchError> {
        let addresses = self.0.seen()?.and_then(|seen| seen.addresses());
        Ok(addresses.map(|addresses| format!("the server says {addresses}")))
    }

    /// The connection, for the engine.
    pub(super) fn into_stream(self) -> Result<Stream, BenchError> {
        Ok(self.0.into_link().into_stream()?)
    }
}

/// The server's endpoint on the other transport: its Unix socket if `known` is TCP, its port if `known` is a
/// Unix socket.
pub(super) fn other_half(known: &Address) -> Result<Address, BenchError> {
    let mut dialogue = Dialogue::begin(known)?;
    // Reports a missing login, which CONFIG alone cannot distinguish from a missing permission.
    dialogue.identity()?;
    let tcp = matches!(known.endpoint, Endpoint::Tcp { .. });
    let (setting, missing) = if tcp { ("unixsocket", "--unix") } else { ("port", "--tcp") };
    let value = dialogue.setting(setting)?.filter(|value| !value.is_empty() && value != "0");
    let Some(value) = value else {
        return Err(BenchError::Usage(format!(
            "the server at {} does not tell a `{setting}` to measure against (not set, or CONFIG is not allowed); set it and restart the server, give {missing}, or measure one arm with --transports {}",
            known.endpoint,
            known.endpoint.transport(),
        )));
    };
    let endpoint = if tcp { format!("unix:{value}") } else { format!("tcp:127.0.0.1:{value}") };
    Ok(Address { endpoint: endpoint.parse()?, ..known.clone() })
}

/// Checks that what answers at each endpoint is the process that we started. One in a container has another number
/// there: it is the one at its socket, which is in a directory of ours.
pub(super) fn is_ours(server: &PrivateServer, place: Place) -> Result<(), BenchError> {
    let mut first: Option<String> = None;
    for endpoint in server.endpoints() {
        let identity = Dialogue::begin(&Address::private(endpoint, server))?.identity()?;
        let is_it = if place.is_container() {
            *first.get_or_insert_with(|| identity.run_id.clone()) == identity.run_id
        } else {
            identity.pid.is_none_or(|known| known == server.pid())
        };
        if !is_it {
            return Err(BenchError::lost(endpoint, "another server answers there"));
        }
    }
    Ok(())
}
