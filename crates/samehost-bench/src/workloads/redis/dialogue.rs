//! Talking to Redis outside the hot path: being let in, asking what it is, setting up and clearing away.

use std::collections::BTreeMap;

use samehost_model::Endpoint;
use samehost_transport::Stream;

use super::address::Address;
use super::resp::{self, Reply};
use crate::BenchError;
use crate::workloads::link::Link;

/// One connection, let in and on its database.
pub(super) struct Dialogue {
    link: Link,
}

/// What a server says it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Identity {
    /// `redis` or `valkey`.
    pub(super) kind: String,
    pub(super) version: String,
    pub(super) pid: Option<u32>,
    /// Random, anew at each start of the server.
    pub(super) run_id: String,
}

impl Dialogue {
    /// Connects, logs in and selects the database.
    pub(super) fn begin(address: &Address) -> Result<Self, BenchError> {
        let mut dialogue = Dialogue { link: Link::connect(&address.endpoint)? };
        if let Some(password) = &address.password {
            let mut words: Vec<&[u8]> = vec![b"AUTH"];
            words.extend(address.user.as_ref().map(String::as_bytes));
            words.push(password.as_bytes());
            dialogue.must("the login", &words)?;
        }
        if address.database > 0 {
            let number = address.database.to_string();
            dialogue.must(&format!("database {number}"), &[b"SELECT", number.as_bytes()])?;
        }
        Ok(dialogue)
    }

    /// Asks, and hands back what was answered, a refusal too.
    pub(super) fn ask(&mut self, words: &[&[u8]]) -> Result<Reply, BenchError> {
        let mut question = Vec::new();
        resp::command(words, &mut question);
        self.link.ask(&question, |input| resp::parse(input).map_err(|error| error.to_string()))
    }

    /// Asks for something without which nothing can be measured.
    pub(super) fn must(&mut self, what: &str, words: &[&[u8]]) -> Result<Reply, BenchError> {
        match self.ask(words)? {
            Reply::Error(answer) => Err(BenchError::Refused {
                endpoint: self.link.endpoint().to_string(),
                what: what.to_owned(),
                try_next: advice(&answer).to_owned(),
                answer,
            }),
            reply => Ok(reply),
        }
    }

    /// What the server is; where it may not be asked, as much as is known.
    pub(super) fn identity(&mut self) -> Result<Identity, BenchError> {
        match self.ask(&[b"INFO", b"server"])? {
            Reply::Error(answer) if answer.starts_with("NOAUTH") => {
                self.must("a question without a login", &[b"PING"])?;
                Ok(Identity::default())
            }
            reply => Ok(reply.text().map(|text| identity(&text)).unwrap_or_default()),
        }
    }

    /// A setting of the server's, where it may be asked.
    pub(super) fn setting(&mut self, name: &str) -> Result<Option<String>, BenchError> {
        Ok(match self.ask(&[b"CONFIG", b"GET", name.as_bytes()])? {
            Reply::Array(Some(items)) => items.get(1).and_then(Reply::text),
            _ => None,
        })
    }

    /// The server's own view of this connection (CLIENT INFO, Redis 6.2 or later).
    pub(super) fn view(&mut self) -> Result<Option<String>, BenchError> {
        Ok(self.ask(&[b"CLIENT", b"INFO"])?.text().and_then(|text| view(&text)))
    }

    /// The connection, for the engine.
    pub(super) fn into_stream(self) -> Result<Stream, BenchError> {
        self.link.into_stream()
    }
}

fn advice(answer: &str) -> &'static str {
    match answer.split(' ').next().unwrap_or_default() {
        "NOAUTH" | "WRONGPASS" => {
            "give user and password in the URL (redis://USER:PASSWORD@…), or the password in the environment variable REDISCLI_AUTH"
        }
        // Redis before 6, or a server that has no password.
        "ERR" if answer.contains("AUTH") || answer.contains("password") => {
            "see whether the server has a password at all (requirepass), and whether REDISCLI_AUTH holds another server's"
        }
        "NOPERM" => "the user may not do that: --command ping needs no rights to keys",
        "READONLY" => "this is a replica; measure its primary, or use --command ping",
        _ => "",
    }
}

/// Fields of INFO, `name:value` a line.
fn identity(text: &str) -> Identity {
    let fields: BTreeMap<&str, &str> =
        text.lines().filter_map(|line| line.trim_end().split_once(':')).collect();
    let field = |name: &str| fields.get(name).copied().unwrap_or_default().to_owned();
    // Valkey also has a redis_version, of the Redis that it is compatible with.
    let (kind, version) = match fields.get("valkey_version") {
        Some(version) => ("valkey", (*version).to_owned()),
        None => ("redis", field("redis_version")),
    };
    Identity { kind: kind.into(), version, pid: field("process_id").parse().ok(), run_id: field("run_id") }
}

/// The words of CLIENT INFO that tell the transport. For a Unix socket both are its path and port 0.
fn view(text: &str) -> Option<String> {
    let word = |name: &str| text.split_ascii_whitespace().find(|word| word.starts_with(name));
    Some(format!("the server says {} {}", word("addr=")?, word("laddr=")?))
}

/// The other half of a server: its Unix socket when `known` is TCP, its port when `known` is a Unix socket.
pub(super) fn other_half(known: &Address) -> Result<Address, BenchError> {
    let mut dialogue = Dialogue::begin(known)?;
    // Says so when a login is missing, which CONFIG alone would not tell from a right withheld.
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

/// Whether the private server that answers here is the process that we started.
pub(super) fn is_ours(endpoint: &Endpoint, password: &str, pid: u32) -> Result<(), BenchError> {
    let address = Address { password: Some(password.to_owned()), ..Address::open(endpoint.clone()) };
    let identity = Dialogue::begin(&address)?.identity()?;
    if identity.pid.is_none_or(|known| known == pid) {
        Ok(())
    } else {
        Err(BenchError::lost(endpoint, "another server answers there"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_tells_what_it_is() {
        let redis = "# Server\r\nredis_version:7.0.15\r\nprocess_id:41\r\nrun_id:abc\r\n";
        let expected =
            Identity { kind: "redis".into(), version: "7.0.15".into(), pid: Some(41), run_id: "abc".into() };
        assert_eq!(identity(redis), expected);
        let valkey = identity("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1\r\n");
        assert_eq!((valkey.kind.as_str(), valkey.version.as_str(), valkey.pid), ("valkey", "8.0.1", None));
    }

    #[test]
    fn client_info_tells_the_transport() {
        let unix = "id=3 addr=/run/r.sock:0 laddr=/run/r.sock:0 fd=8 name= age=0 flags=U db=0\n";
        assert_eq!(view(unix).unwrap(), "the server says addr=/run/r.sock:0 laddr=/run/r.sock:0");
        assert_eq!(view("id=3 name="), None);
    }
}
