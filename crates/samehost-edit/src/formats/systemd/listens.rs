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
        let say = self.server.say;
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
        let gone = |kind: Kind| match kind {
            // Redis keeps its addresses, which port 0 disables; an option for permissions stays with a socket.
            Kind::Host => say != Say::Redis,
            Kind::Port | Kind::Socket | Kind::Bind => true,
            Kind::Mode => goal.access.is_some() || !matches!(goal.endpoint, Endpoint::Unix(_)),
            Kind::Backlog | Kind::Stop(_) => false,
        };
        let mut place = Some(new.join(" "));
        for given in self.given.iter().filter(|given| gone(given.kind)) {
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
        let with = |first: [&str; 2], option: &str, mode: Option<String>| {
            let mut words: Vec<String> = first.iter().map(|word| (*word).to_owned()).collect();
            if let Some(mode) = mode {
                words.extend([option.to_owned(), mode]);
            }
            words
        };
        match self.server.say {
            Say::Gunicorn => vec!["--bind".into(), format!("unix:{path}")],
            Say::Uvicorn => vec!["--uds".into(), path.into()],
            Say::Thin => vec!["--socket".into(), path.into()],
            Say::Puma => {
                let mode = mode.map_or_else(String::new, |mode| format!("?umask={:04o}", 0o777 & !mode));
                vec!["--bind".into(), format!("unix://{path}{mode}")]
            }
            Say::Memcached => with(["-s", path], "-a", mode.map(|mode| format!("{mode:04o}"))),
            Say::Redis => {
                let mut words = vec!["--port".to_owned(), "0".to_owned()];
                words.extend(with(
                    ["--unixsocket", path],
                    "--unixsocketperm",
                    mode.map(|mode| format!("{mode:o}")),
                ));
                words
            }
        }
    }

    /// The words for an address.
    fn tcp(&self, host: &str, port: u16) -> Result<Vec<String>, String> {
        let bracketed = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let words = |words: [&str; 3]| {
            let mut words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            words.push(port.to_string());
            words
        };
        Ok(match self.server.say {
            Say::Gunicorn => vec!["--bind".into(), format!("{bracketed}:{port}")],
            Say::Puma => vec!["--bind".into(), format!("tcp://{bracketed}:{port}")],
            Say::Uvicorn => words(["--host", host, "--port"]),
            Say::Thin => words(["-a", host, "-p"]),
            Say::Memcached => words(["-l", host, "-p"]),
            Say::Redis => {
                let bind = self.given.iter().find(|given| given.kind == Kind::Host);
                match bind {
                    Some(bind) if bind.value == host => vec!["--port".into(), port.to_string()],
                    Some(bind) => return Err(format!("it has --bind {}", bind.value)),
                    None => words(["--bind", host, "--port"]),
                }
            }
        })
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
