//! Talks to memcached. Outside the hot path: its version, set-up, clean-up, its view of a connection, and what a
//! measurement would do to one that is already running, from its own statistics. In it: a session in the classic text
//! protocol or the meta commands, which is pure, without I/O or clock.

use std::collections::BTreeMap;
use std::sync::Arc;

use samehost_login::Link;
use samehost_login::memcached::{self, line, listing};

use super::{Command, Settings};
use crate::engine::session::{Bad, Progress, Session};
use crate::error::BenchError;
use crate::impact::{Impact, in_words};
use crate::parameters::words;
use crate::private_servers::PrivateServer;
use crate::workload::Look;
use crate::workloads::requests::{Awaited, Seen, link_to, says};

pub(super) fn version(link: &mut Link) -> Result<String, BenchError> {
    memcached::version(link)?.map_err(|answer| refused(link, "its version", answer))
}

pub(super) fn set(link: &mut Link, exchange: &Exchange) -> Result<(), BenchError> {
    must(link, "setting a key", exchange.request(), &["STORED", "HD"])
}

/// Deletes a key; a key that does not exist is not an error.
pub(super) fn delete(link: &mut Link, key: &str) -> Result<(), BenchError> {
    let request = format!("delete {key}\r\n");
    must(link, "deleting our key", request.as_bytes(), &["DELETED", "NOT_FOUND"])
}

fn must(link: &mut Link, what: &str, request: &[u8], right: &[&str]) -> Result<(), BenchError> {
    let answer = link.ask(request, line)?;
    if right.contains(&answer.as_str()) { Ok(()) } else { Err(refused(link, what, answer)) }
}

/// The server's view of this connection (`stats conns`, memcached 1.4.31 or later).
pub(super) fn view(link: &mut Link) -> Result<Option<String>, BenchError> {
    Ok(memcached::seen(link)?.map(says))
}

pub(super) fn is_ours(server: &PrivateServer) -> Result<(), BenchError> {
    for endpoint in server.endpoints() {
        let stats = link_to(endpoint)?.ask(b"stats\r\n", listing)?;
        if numbers(&stats).get("pid") != Some(&u64::from(server.pid())) {
            return Err(BenchError::lost(endpoint, "another server answers there"));
        }
    }
    Ok(())
}

fn refused(link: &Link, what: &str, answer: String) -> BenchError {
    let try_next = if answer.contains("too large") {
        "raise the largest item of the server (memcached -I), or use a smaller --size".into()
    } else {
        String::new()
    };
    BenchError::Refused { endpoint: link.endpoint().to_string(), what: what.into(), answer, try_next }
}

/// Asks each server what a measurement would do to it and whether it has the room: connections, memory. They are not
/// told apart, as one memcached listens on a port or on a socket, never on both.
pub(super) fn look(settings: Settings, look: &Look<'_>) -> Result<Vec<Impact>, BenchError> {
    let mut impacts = Vec::new();
    for address in look.servers.values() {
        let endpoint = &address.endpoint;
        let stats = link_to(endpoint)?.ask(b"stats\r\n", listing)?;
        let mut impact = Impact::on(format!("the memcached at {endpoint}"));
        let stats = numbers(&stats);
        // Our own connection is not counted.
        let open = stats.get("curr_connections").map(|open| open.saturating_sub(1));
        impact.connections(look.connections, open, stats.get("max_connections").copied(), "its option -c");
        impact.does.push(format!(
            "sets one key samehost:… with up to {}, which is deleted at the end",
            in_words(look.sizes)
        ));
        if settings.command == Command::Set {
            impact.does.push("sets it again with every command, as fast as it answers".into());
        }
        if let (Some(&used), Some(&all)) = (stats.get("bytes"), stats.get("limit_maxbytes")) {
            impact.memory(look.sizes, used, all, "of its memory, beyond which it gives up others' items");
        }
        impacts.push(impact);
    }
    Ok(impacts)
}

/// Parses lines `STAT name value`; those whose value is not a number are passed over.
fn numbers(stats: &str) -> BTreeMap<&str, u64> {
    let mut numbers = BTreeMap::new();
    for line in stats.lines() {
        let Some(stat) = line.trim().strip_prefix("STAT ") else { continue };
        let Some((name, value)) = stat.split_once(' ') else { continue };
        if let Ok(value) = value.parse() {
            numbers.insert(name, value);
        }
    }
    numbers
}

words! {
    pub(super) enum Protocol {
        Text = "text",
        Meta = "meta",
    }
}

#[derive(Clone, Debug)]
pub(super) struct Exchange {
    request: Arc<[u8]>,
    reply: Awaited,
}

impl Exchange {
    pub(super) fn get(protocol: Protocol, key: &str, value: &[u8]) -> Self {
        let (request, head, end): (_, _, &[u8]) = match protocol {
            Protocol::Text => {
                (format!("get {key}\r\n"), format!("VALUE {key} 0 {}\r\n", value.len()), b"\r\nEND\r\n")
            }
            Protocol::Meta => (format!("mg {key} v\r\n"), format!("VA {}\r\n", value.len()), b"\r\n"),
        };
        Exchange { request: request.into_bytes().into(), reply: Awaited::new(head.as_bytes(), value, end) }
    }

    pub(super) fn set(protocol: Protocol, key: &str, value: &[u8]) -> Self {
        let (head, reply): (_, &[u8]) = match protocol {
            Protocol::Text => (format!("set {key} 0 0 {}\r\n", value.len()), b"STORED\r\n"),
            Protocol::Meta => (format!("ms {key} {}\r\n", value.len()), b"HD\r\n"),
        };
        let request = [head.as_bytes(), value, b"\r\n"].concat();
        Exchange { request: request.into(), reply: Awaited::new(reply, b"", b"") }
    }

    pub(super) fn request(&self) -> &[u8] {
        &self.request
    }
}

#[derive(Debug)]
pub(super) struct MemcachedSession {
    exchange: Exchange,
    received: usize,
}

impl MemcachedSession {
    pub(super) fn new(exchange: Exchange) -> Self {
        MemcachedSession { exchange, received: 0 }
    }
}

impl Session for MemcachedSession {
    fn request(&mut self, out: &mut Vec<u8>) {
        self.received = 0;
        out.extend_from_slice(&self.exchange.request);
    }

    fn response(&mut self, input: &[u8]) -> Result<Progress, Bad> {
        match self.exchange.reply.look(&mut self.received, input) {
            Seen::Whole { consumed } => Ok(Progress::Complete { consumed }),
            Seen::Partly { consumed } => Ok(Progress::More { consumed }),
            Seen::WrongBody => Err(Bad::new("wrong value", "a value differs from what was set")),
            Seen::OtherHead => other(input),
        }
    }
}

/// Parses a reply other than the one that must come: a refusal that leaves the connection usable, or a wrong one.
#[cold]
fn other(input: &[u8]) -> Result<Progress, Bad> {
    let Some((line, consumed)) = line(input).map_err(Bad::malformed)? else {
        return Ok(Progress::More { consumed: 0 });
    };
    let kind = match line.split(' ').next().unwrap_or_default() {
        "END" | "EN" | "NF" => "missing value",
        "NOT_STORED" | "NS" => "not stored",
        "SERVER_ERROR" => "SERVER_ERROR",
        "CLIENT_ERROR" => "CLIENT_ERROR",
        "ERROR" => "ERROR",
        "VALUE" | "VA" => return Err(Bad::new("wrong value", line)),
        _ => return Err(Bad::malformed(line)),
    };
    Ok(Progress::Rejected { consumed, kind })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use samehost_testing::bent;

    use super::*;

    #[test]
    fn what_it_says_of_itself_is_read() {
        let stats = numbers("STAT pid 1\r\nSTAT version 1.6.18\r\nSTAT limit_maxbytes 67108864\r\nEND\r\n");
        assert_eq!((stats["pid"], stats["limit_maxbytes"], stats.get("version")), (1, 67_108_864, None));
    }

    fn asked(exchange: Exchange) -> (MemcachedSession, Vec<u8>) {
        let mut session = MemcachedSession::new(exchange);
        let mut out = Vec::new();
        session.request(&mut out);
        (session, out)
    }

    #[test]
    fn each_protocol_in_its_own_words() {
        for (exchange, request, reply) in [
            (Exchange::get(Protocol::Text, "k", b"abc"), "get k\r\n", "VALUE k 0 3\r\nabc\r\nEND\r\n"),
            (Exchange::get(Protocol::Meta, "k", b"abc"), "mg k v\r\n", "VA 3\r\nabc\r\n"),
            (Exchange::set(Protocol::Text, "k", b"abc"), "set k 0 0 3\r\nabc\r\n", "STORED\r\n"),
            (Exchange::set(Protocol::Meta, "k", b"abc"), "ms k 3\r\nabc\r\n", "HD\r\n"),
        ] {
            let (mut session, out) = asked(exchange);
            assert_eq!(out, request.as_bytes());
            assert_eq!(session.response(reply.as_bytes()), Ok(Progress::Complete { consumed: reply.len() }));
            session.request(&mut Vec::new());
            assert_eq!(session.response(&reply.as_bytes()[..1]), Ok(Progress::More { consumed: 0 }));
        }
    }

    #[test]
    fn refusals_are_told_apart_from_wrong_bytes() {
        fn rejected(consumed: usize, kind: &'static str) -> Result<Progress, Bad> {
            Ok(Progress::Rejected { consumed, kind })
        }
        let answer =
            |reply: &str| asked(Exchange::get(Protocol::Text, "k", b"abc")).0.response(reply.as_bytes());
        assert_eq!(answer("END\r\n"), rejected(5, "missing value"));
        assert_eq!(answer("SERVER_ERROR out of memory\r\n"), rejected(28, "SERVER_ERROR"));
        assert_eq!(answer("ERROR\r\n"), rejected(7, "ERROR"));
        assert_eq!(answer("ERR"), Ok(Progress::More { consumed: 0 }));
        assert_eq!(answer("VALUE k 0 4\r\nabcd\r\nEND\r\n").unwrap_err().kind, "wrong value");
        assert_eq!(answer("VALUE k 0 3\r\nabx\r\nEND\r\n").unwrap_err().kind, "wrong value");
        assert_eq!(answer("+OK\r\n").unwrap_err().kind, "malformed reply");
        assert_eq!(answer(&"x".repeat(3000)).unwrap_err().kind, "malformed reply");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in bent(["VALUE k 0 3\r\nabc\r\nEND\r\n", "VA 3\r\nabc\r\n", "STORED\r\n"].map(|text| text.as_bytes().to_vec()).to_vec())) {
            for protocol in [Protocol::Text, Protocol::Meta] {
                let _ = asked(Exchange::get(protocol, "k", b"abc")).0.response(&bytes);
                let _ = asked(Exchange::set(protocol, "k", b"abc")).0.response(&bytes);
            }
        }
    }
}
