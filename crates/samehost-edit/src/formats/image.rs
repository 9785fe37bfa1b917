//! Servers by their container image, and what a client's variable says for their socket. For files that are not edited:
//! the words are for people.

use samehost_services::{Kind, Protocol};

use super::compose::Server;

#[derive(Clone)]
pub(super) struct Served {
    /// Directory of its socket, which both containers mount.
    pub(super) directory: &'static str,
    pub(super) socket: &'static str,
    pub(super) port: u16,
    pub(super) listens: Listens,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Listens {
    ByItself,
    /// Redis and its relatives: when these arguments tell them to.
    WithArguments,
}

/// Arguments that make a Redis listen on its socket, with this mode.
pub(super) fn arguments(mode: &'static str) -> [&'static str; 4] {
    ["--unixsocket", "/sockets/redis.sock", "--unixsocketperm", mode]
}

const LEADS: &[&str] = &["HOST", "URL", "URI", "DSN", "SERVER", "ADDR"];

impl Served {
    pub(super) fn of_image(image: &str) -> Option<Self> {
        if let Some(server) = Server::of_image(image) {
            let port = *Kind::of_protocol(server.protocol)?.descriptor().ports.first()?;
            return Some(Served {
                directory: server.directory,
                socket: server.socket,
                port,
                listens: Listens::ByItself,
            });
        }
        let path = image.split('@').next().unwrap_or_default();
        let name = path.rsplit('/').next().and_then(|name| name.split(':').next());
        let mut named = Kind::all().filter(|kind| Some(kind.name()) == name);
        named.any(|kind| kind.protocol() == Some(Protocol::Redis)).then_some(Served {
            directory: "/sockets",
            socket: "/sockets/redis.sock",
            port: 6379,
            listens: Listens::WithArguments,
        })
    }

    /// The value of a client's variable.
    pub(super) fn value(&self, variable: &str) -> String {
        match variable {
            "WORDPRESS_DB_HOST" => format!("localhost:{}", self.socket),
            "PGHOST" => self.directory.to_owned(),
            _ => format!("the socket {} as its program spells it", self.socket),
        }
    }
}

pub(super) fn leads(name: &str) -> bool {
    LEADS.iter().any(|word| name.contains(word))
}

/// Whether a host is that of the client itself, or of its pod.
pub(super) fn is_loopback(host: &str) -> bool {
    ["localhost", "127.0.0.1", "::1"].contains(&host)
}
