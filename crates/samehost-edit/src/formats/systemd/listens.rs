//! Where a known server's command should listen, in the server's own options; all other words stay byte for byte.

use samehost_model::Endpoint;

use super::options::Listens;
use super::servers::{Kind, Say};
use super::words::Word;
use crate::goal::Goal;
use crate::languages::url::is_plain_path;
use crate::lines::{is_loopback, listening_host};

impl Listens {
    /// Whether its own options say where, which overrides all variables of the environment.
    pub(super) fn is_bound(&self) -> bool {
        self.server.say == Say::Gunicorn && self.given.iter().any(|given| given.kind == Kind::Bind)
    }

    /// Whether anything in the command says where.
    pub(super) fn is_said(&self) -> bool {
        self.given
            .iter()
            .any(|given| matches!(given.kind, Kind::Bind | Kind::Host | Kind::Port | Kind::Socket))
    }

    /// The command with the goal in it.
    pub(super) fn moved(&self, value: &str, words: &[Word], goal: &Goal) -> Result<String, String> {
        if let Endpoint::Tcp { host, .. } = &self.endpoint
            && !is_loopback(host)
        {
            return Err(format!(
                "it listens at {host}, where other machines may need it, and cannot do both"
            ));
        }
        let new = match &goal.endpoint {
            Endpoint::Unix(path) => {
                let path = path.to_str().filter(|path| is_plain_path(path));
                self.unix(path.ok_or("the path has characters that mean something in a unit")?, goal)
            }
            Endpoint::Tcp { host, port } if *port > 0 && is_loopback(&listening_host(host)) => {
                self.tcp(&listening_host(host), *port)?
            }
            _ => {
                return Err(
                    "only a Unix socket, or an address that other machines do not reach, is written".into()
                );
            }
        };
        let mut out: Vec<(usize, usize, String)> = Vec::new();
        let mut place = Some(new.join(" "));
        for given in &self.given {
            let goes = match given.kind {
                // Redis keeps its addresses, which port 0 disables; an option for permissions stays with a socket.
                Kind::Host => self.server.say != Say::Redis,
                Kind::Port | Kind::Socket | Kind::Bind => true,
                Kind::Mode => goal.access.is_some() || !matches!(goal.endpoint, Endpoint::Unix(_)),
                Kind::Backlog | Kind::Stop(_) => false,
            };
            if !goes {
                continue;
            }
            let with = match (given.kind, place.take()) {
                (Kind::Bind, Some(_)) => {
                    let value = new.last().cloned().unwrap_or_default();
                    if given.first == given.last {
                        given.before.clone() + &value
                    } else {
                        format!("{} {value}", given.before)
                    }
                }
                (_, with) => with.unwrap_or_default(),
            };
            out.push((given.first, given.last, with));
        }
        if let Some(new) = place {
            let program = &words[self.program];
            out.push((self.program, self.program, format!("{} {new}", &value[program.raw.clone()])));
        }
        self.backlog(goal, &mut out);
        Ok(splice(value, words, out))
    }

    /// The words for a socket; the last is the value of `--bind`.
    fn unix(&self, path: &str, goal: &Goal) -> Vec<String> {
        let mode = goal.access.as_ref().map(|access| access.mode & 0o777);
        let mut words: Vec<String> = match self.server.say {
            Say::Gunicorn => vec!["--bind".into(), format!("unix:{path}")],
            Say::Uvicorn => vec!["--uds".into(), path.into()],
            Say::Thin => vec!["--socket".into(), path.into()],
            Say::Puma => {
                let mode = mode.map_or_else(String::new, |mode| format!("?umask={:04o}", 0o777 & !mode));
                vec!["--bind".into(), format!("unix://{path}{mode}")]
            }
            Say::Memcached => vec!["-s".into(), path.into()],
            Say::Redis => vec!["--port".into(), "0".into(), "--unixsocket".into(), path.into()],
        };
        match (self.server.say, mode) {
            (Say::Memcached, Some(mode)) => words.extend(["-a".into(), format!("{mode:04o}")]),
            (Say::Redis, Some(mode)) => words.extend(["--unixsocketperm".into(), format!("{mode:o}")]),
            _ => {}
        }
        words
    }

    /// The words for an address.
    fn tcp(&self, host: &str, port: u16) -> Result<Vec<String>, String> {
        let bracketed = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let options = match self.server.say {
            Say::Gunicorn => return Ok(vec!["--bind".into(), format!("{bracketed}:{port}")]),
            Say::Puma => return Ok(vec!["--bind".into(), format!("tcp://{bracketed}:{port}")]),
            Say::Uvicorn => ["--host", "--port"],
            Say::Thin => ["-a", "-p"],
            Say::Memcached => ["-l", "-p"],
            Say::Redis => match self.given.iter().find(|given| given.kind == Kind::Host) {
                Some(bind) if bind.value == host => return Ok(vec!["--port".into(), port.to_string()]),
                Some(bind) => return Err(format!("it has --bind {}", bind.value)),
                None => ["--bind", "--port"],
            },
        };
        let [for_host, for_port] = options.map(str::to_owned);
        Ok(vec![for_host, host.to_owned(), for_port, port.to_string()])
    }

    /// The backlog that is asked for.
    fn backlog(&self, goal: &Goal, out: &mut Vec<(usize, usize, String)>) {
        let Some(backlog) = goal.backlog.filter(|backlog| Some(*backlog) != self.backlog) else { return };
        let option = match self.server.say {
            Say::Gunicorn | Say::Uvicorn => "--backlog",
            Say::Memcached => "-b",
            Say::Redis => "--tcp-backlog",
            // Thin has none, and Puma's is in the URL.
            Say::Thin | Say::Puma => return,
        };
        let written = format!("{option} {backlog}");
        match self.given.iter().find(|given| given.kind == Kind::Backlog) {
            Some(given) => out.push((given.first, given.last, written)),
            None => {
                if let Some((_, _, with)) = out.iter_mut().find(|(_, _, with)| !with.is_empty()) {
                    *with += &format!(" {written}");
                }
            }
        }
    }
}

/// A command with some words, from the first to the last of them, replaced; an empty text also removes the space.
fn splice(value: &str, words: &[Word], mut changes: Vec<(usize, usize, String)>) -> String {
    changes.sort_by_key(|(first, ..)| *first);
    let mut out = String::with_capacity(value.len());
    let mut at = 0;
    for (first, last, with) in changes {
        let before = &value[at..words[first].raw.start];
        out += if with.is_empty() { before.trim_end() } else { before };
        out += &with;
        at = words[last].raw.end;
    }
    out + &value[at..]
}
