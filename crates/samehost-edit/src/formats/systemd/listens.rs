//! Where a known server listens according to its command line, parsed as by the server, with the options that say where
//! it listens, and their form of a socket; and the same command with another place: all other words stay byte for byte.

use samehost_model::{Endpoint, Protocol};
use samehost_services as services;

use super::unit::Word;
use crate::languages::url::is_plain_path;
use crate::lines::{has_only, host_and_port, is_loopback, listening_host, tcp};
use crate::refusal::Reason;
use crate::setting::Goal;

impl Listens {
    /// Whether its own options say where, which overrides all variables of the environment.
    pub(super) fn is_bound(&self) -> bool {
        self.server.say == Say::Gunicorn && self.given.iter().any(|given| given.kind == Kind::Bind)
    }

    pub(super) fn names_place(&self) -> bool {
        self.given
            .iter()
            .any(|given| matches!(given.kind, Kind::Bind | Kind::Host | Kind::Port | Kind::Socket))
    }

    pub(super) fn moved(&self, value: &str, words: &[Word], goal: &Goal) -> Result<String, Reason> {
        if let Endpoint::Tcp { host, .. } = &self.endpoint
            && !is_loopback(host)
        {
            let why = format!("it listens at {host}, where other machines may need it, and cannot do both");
            return Err(why.into());
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
        let mut out: Vec<Change> = Vec::new();
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
            out.push(Change { first: given.first, last: given.last, with });
        }
        if let Some(new) = place {
            let program = &words[self.program];
            let with = format!("{} {new}", &value[program.raw.clone()]);
            out.push(Change { first: self.program, last: self.program, with });
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
                let mode = match mode {
                    Some(mode) => format!("?umask={:04o}", 0o777 & !mode),
                    None => String::new(),
                };
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

    fn tcp(&self, host: &str, port: u16) -> Result<Vec<String>, Reason> {
        let place = host_and_port(host, port);
        let options = match self.server.say {
            Say::Gunicorn => return Ok(vec!["--bind".into(), place]),
            Say::Puma => return Ok(vec!["--bind".into(), format!("tcp://{place}")]),
            Say::Uvicorn => ["--host", "--port"],
            Say::Thin => ["-a", "-p"],
            Say::Memcached => ["-l", "-p"],
            Say::Redis => match self.given.iter().find(|given| given.kind == Kind::Host) {
                Some(bind) if bind.value == host => return Ok(vec!["--port".into(), port.to_string()]),
                Some(bind) => return Err(format!("it has --bind {}", bind.value).into()),
                None => ["--bind", "--port"],
            },
        };
        let [for_host, for_port] = options.map(str::to_owned);
        Ok(vec![for_host, host.to_owned(), for_port, port.to_string()])
    }

    fn backlog(&self, goal: &Goal, out: &mut Vec<Change>) {
        let Some(backlog) = goal.backlog else { return };
        if self.backlog == Some(backlog) {
            return;
        }
        let option = match self.server.say {
            Say::Gunicorn | Say::Uvicorn => "--backlog",
            Say::Memcached => "-b",
            Say::Redis => "--tcp-backlog",
            // Thin has none, and Puma's is in the URL.
            Say::Thin | Say::Puma => return,
        };
        let written = format!("{option} {backlog}");
        match self.given.iter().find(|given| given.kind == Kind::Backlog) {
            Some(given) => out.push(Change { first: given.first, last: given.last, with: written }),
            None => {
                if let Some(change) = out.iter_mut().find(|change| !change.with.is_empty()) {
                    change.with += &format!(" {written}");
                }
            }
        }
    }
}

struct Change {
    first: usize,
    last: usize,
    with: String,
}

/// A command with these changes; an empty text also removes the space before it.
fn splice(value: &str, words: &[Word], mut changes: Vec<Change>) -> String {
    changes.sort_by_key(|change| change.first);
    let mut out = String::with_capacity(value.len());
    let mut at = 0;
    for Change { first, last, with } in changes {
        let before = &value[at..words[first].raw.start];
        out += if with.is_empty() { before.trim_end() } else { before };
        out += &with;
        at = words[last].raw.end;
    }
    out + &value[at..]
}

#[derive(Clone, Debug)]
pub(super) struct Given {
    pub(super) kind: Kind,
    pub(super) first: usize,
    pub(super) last: usize,
    pub(super) before: String,
    pub(super) value: String,
}

#[derive(Debug)]
pub(super) struct Listens {
    pub(super) server: &'static Server,
    pub(super) endpoint: Endpoint,
    pub(super) backlog: Option<u32>,
    pub(super) program: usize,
    pub(super) given: Vec<Given>,
}

impl Server {
    pub(super) fn name(&self) -> &'static str {
        self.programs[0]
    }

    fn is_started_by(&self, program: &str) -> bool {
        if self.programs.contains(&program) {
            return true;
        }
        let Some(kind) = services::Kind::of_program(self.name()) else { return false };
        let mut relatives = kind.relatives().filter(|relative| *relative != kind);
        relatives.any(|relative| relative.descriptor().programs.iter().any(|name| name == program))
    }

    /// Whether `-p3000` is `-p 3000`.
    fn is_joined(&self) -> bool {
        !matches!(self.say, Say::Uvicorn | Say::Redis)
    }

    /// Whether it uses a socket of systemd's if it gets one.
    pub(super) fn takes_sockets(&self) -> bool {
        matches!(self.say, Say::Gunicorn | Say::Puma | Say::Uvicorn)
    }

    /// Where its options make it listen. Not understood if they do not say, and the program has no default.
    pub(super) fn listens(&'static self, words: &[Word], program: usize) -> Result<Listens, Reason> {
        let given = self.given(words, program)?;
        let bind = self.only_one(&given, Kind::Bind)?;
        let host = self.only_one(&given, Kind::Host)?;
        let port = self.only_one(&given, Kind::Port)?;
        let socket = self.only_one(&given, Kind::Socket)?;
        self.only_one(&given, Kind::Mode)?;
        let backlog = match self.only_one(&given, Kind::Backlog)? {
            Some(given) => Some(given.value.parse().map_err(|_| "its backlog is not a number")?),
            None => None,
        };
        for given in &given {
            if let Kind::Stop(why) = given.kind
                && !why.is_empty()
            {
                return Err(format!("{why}: {}{}", given.before, given.value).into());
            }
        }
        if bind.is_none() && given.iter().any(|given| given.kind == Kind::Stop("")) {
            return Err("its configuration file may say where it listens".into());
        }
        let endpoint = if let Some(bind) = bind {
            if port.is_some() || socket.is_some() {
                return Err(format!("{} says more than once where it listens", self.name()).into());
            }
            self.bound(&bind.value)
        } else if let Some(socket) = socket {
            if self.say == Say::Redis && port.is_none_or(|port| port.value != "0") {
                return Err("it listens at a port as well as at its socket".into());
            }
            unix(&socket.value)
        } else {
            // Puma's -p alone is open to all.
            let usual = match (self.say, port) {
                (Say::Puma, Some(_)) => Some("0.0.0.0"),
                (Say::Puma, None) => None,
                _ => self.usual.map(|(host, _)| host),
            };
            let Some(host) = host.map(|given| given.value.as_str()).or(usual) else {
                return Err(format!("its command does not say where {} listens", self.name()).into());
            };
            let port = match port {
                Some(given) => given.value.parse().ok(),
                None => self.usual.map(|(_, port)| port),
            };
            let plain = has_only(host, ".-_:*");
            let numeric = self.say != Say::Memcached
                || !host.contains(':')
                || host.parse::<std::net::Ipv6Addr>().is_ok();
            match port {
                Some(port) if port > 0 && plain && numeric => tcp(&listening_host(host), port),
                _ => None,
            }
        };
        match endpoint {
            Some(endpoint) => Ok(Listens { server: self, endpoint, backlog, program, given }),
            None => Err(format!("where {} listens is written in an unusual way", self.name()).into()),
        }
    }

    fn only_one<'a>(&self, given: &'a [Given], kind: Kind) -> Result<Option<&'a Given>, Reason> {
        let mut found = given.iter().filter(|given| given.kind == kind);
        match (found.next(), found.next()) {
            (Some(given), Some(_)) => {
                Err(format!("{} says more than once where it listens ({})", self.name(), given.value).into())
            }
            (first, _) => Ok(first),
        }
    }

    fn bound(&self, value: &str) -> Option<Endpoint> {
        if self.say == Say::Puma {
            if let Some(path) = value.strip_prefix("unix://") {
                return unix(path.split('?').next()?);
            }
        } else if let Some(path) = value.strip_prefix("unix:") {
            // Gunicorn accepts unix:PATH and unix:///PATH.
            return unix(path.strip_prefix("//").unwrap_or(path));
        }
        let place = if self.say == Say::Puma { value.strip_prefix("tcp://")? } else { value };
        let (host, port) = match place.rsplit_once(':') {
            Some(parts) => parts,
            None if self.say == Say::Gunicorn => (place, "8000"),
            None => return None,
        };
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        if bare.is_none() && host.contains(':') {
            return None;
        }
        let host = bare.unwrap_or(host);
        let host = if host.is_empty() { "0.0.0.0" } else { host };
        let port: u16 = port.parse().ok()?;
        if port == 0 || !has_only(host, ".-_:") {
            return None;
        }
        tcp(&listening_host(host), port)
    }

    fn given(&self, words: &[Word], program: usize) -> Result<Vec<Given>, Reason> {
        let mut found = Vec::new();
        let mut at = program + 1;
        while let Some(word) = words.get(at) {
            if let Some(dynamic) = &word.dynamic {
                // `--workers ${WORKERS}` is one value; `$OPTIONS` may be several words.
                let before = &words[at - 1].text;
                let is_value = dynamic.starts_with("${") && before.starts_with('-') && !before.contains('=');
                let may_be_options = word.text == *dynamic && dynamic.starts_with('$') && !is_value;
                if may_be_options || self.matching(&word.text).is_some() {
                    return Err(format!(
                        "{dynamic} is only known when systemd starts it, and may say where it listens"
                    )
                    .into());
                }
            }
            let first = at;
            at += 1;
            if word.text == "--" {
                break;
            }
            if self.say == Say::Redis && first == program + 1 && !word.text.starts_with('-') {
                let file = &word.text;
                return Err(format!("{file} may say where it listens: samehost switch {file}").into());
            }
            let Some((kind, before, value)) = self.matching(&word.text) else {
                self.lookalike(&word.text)?;
                continue;
            };
            let (value, last) = match value {
                Some(value) => (value.to_owned(), first),
                None if matches!(kind, Kind::Stop(_)) => (String::new(), first),
                None => {
                    let next = words.get(at).ok_or("an option's value is missing")?;
                    if let Some(dynamic) = &next.dynamic {
                        return Err(format!("{dynamic} is only known when systemd starts it").into());
                    }
                    at += 1;
                    if self.say == Say::Redis
                        && words.get(at).is_some_and(|more| !more.text.starts_with("--"))
                    {
                        return Err(format!("{} has several values", word.text).into());
                    }
                    (next.text.clone(), first + 1)
                }
            };
            found.push(Given { kind, first, last, before: before.to_owned(), value });
        }
        Ok(found)
    }

    /// The option in a word: its kind, the text before the value, and the value if it is in the same word.
    fn matching<'a>(&self, text: &'a str) -> Option<(Kind, &'a str, Option<&'a str>)> {
        for (spellings, kind) in self.options {
            for spelling in *spellings {
                let Some(rest) = text.strip_prefix(spelling) else { continue };
                if rest.is_empty() {
                    return Some((*kind, text, None));
                }
                let behind = if spelling.starts_with("--") { rest.strip_prefix('=') } else { Some(rest) };
                let Some(behind) = behind else { continue };
                if spelling.starts_with("--") || self.is_joined() {
                    return Some((*kind, &text[..text.len() - behind.len()], Some(behind)));
                }
            }
        }
        None
    }

    /// A word that the program may read as one of those options: an abbreviated name, or combined letters.
    fn lookalike(&self, text: &str) -> Result<(), Reason> {
        let name = text.split('=').next().unwrap_or(text);
        let mut spellings = self.options.iter().flat_map(|(spellings, _)| spellings.iter());
        let shortened = self.say != Say::Redis
            && name.starts_with("--")
            && spellings.any(|spelling| spelling.starts_with(name));
        let letters = self.say == Say::Memcached
            && text.starts_with('-')
            && !text.starts_with("--")
            && text.len() > 2
            && text[1..]
                .starts_with(['A', 'v', 'V', 'd', 'h', 'i', 'k', 'r', 'M', 'L', 'C', 'S', 'F', 'X', 'W'])
            && text[1..].contains(['l', 'p', 's', 'a', 'b', 'U']);
        if shortened || letters { Err(format!("{text} is not understood").into()) } else { Ok(()) }
    }
}

fn unix(path: &str) -> Option<Endpoint> {
    if is_plain_path(path) { Some(Endpoint::Unix(path.into())) } else { None }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bind,
    Host,
    Port,
    Socket,
    Mode,
    Backlog,
    /// Its address is configured elsewhere, or must not be moved.
    Stop(&'static str),
}

#[derive(Debug)]
pub(super) struct Server {
    programs: &'static [&'static str],
    pub(super) protocol: Protocol,
    options: &'static [(&'static [&'static str], Kind)],
    /// Where it listens if its command does not say.
    usual: Option<(&'static str, u16)>,
    pub(super) variables: &'static [&'static str],
    pub(super) say: Say,
    /// Its words for a socket.
    pub(super) by_hand: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Say {
    Gunicorn,
    Uvicorn,
    Puma,
    Thin,
    Memcached,
    Redis,
}

const CONFIGURED: Kind = Kind::Stop("a file that it names may say where it listens");

const SERVERS: &[Server] = &[
    Server {
        programs: &["gunicorn", "gunicorn3"],
        protocol: Protocol::Http,
        options: &[
            (&["--bind", "-b"], Kind::Bind),
            (&["--backlog"], Kind::Backlog),
            (&["--config", "-c"], Kind::Stop("")),
            (&["--paste", "--paster"], CONFIGURED),
        ],
        usual: Some(("127.0.0.1", 8000)),
        variables: &["GUNICORN_CMD_ARGS", "PORT"],
        say: Say::Gunicorn,
        by_hand: "--bind unix:/run/NAME/NAME.sock",
    },
    Server {
        programs: &["uvicorn"],
        protocol: Protocol::Http,
        options: &[
            (&["--host"], Kind::Host),
            (&["--port"], Kind::Port),
            (&["--uds"], Kind::Socket),
            (&["--backlog"], Kind::Backlog),
            (&["--fd"], Kind::Stop("systemd hands it its socket")),
            (&["--ssl-keyfile", "--ssl-certfile"], Kind::Stop("it speaks TLS")),
        ],
        usual: Some(("127.0.0.1", 8000)),
        variables: &["UVICORN_HOST", "UVICORN_PORT", "UVICORN_UDS", "UVICORN_FD"],
        say: Say::Uvicorn,
        by_hand: "--uds /run/NAME/NAME.sock",
    },
    Server {
        programs: &["puma"],
        protocol: Protocol::Http,
        options: &[(&["--bind", "-b"], Kind::Bind), (&["--port", "-p"], Kind::Port)],
        usual: None,
        variables: &[],
        say: Say::Puma,
        by_hand: "--bind unix:///run/NAME/NAME.sock",
    },
    Server {
        programs: &["thin"],
        protocol: Protocol::Http,
        options: &[
            (&["--address", "-a"], Kind::Host),
            (&["--port", "-p"], Kind::Port),
            (&["--socket", "-S"], Kind::Socket),
            (&["--config", "-C"], CONFIGURED),
            (&["--servers", "-s"], Kind::Stop("a row of servers numbers its sockets")),
            (&["--only", "-o"], Kind::Stop("it is one of a row of servers")),
            (&["--swiftiply", "-y", "--backend", "-b"], Kind::Stop("its backend decides where it listens")),
            (&["--all"], CONFIGURED),
            (&["--ssl"], Kind::Stop("it speaks TLS")),
        ],
        usual: Some(("0.0.0.0", 3000)),
        variables: &[],
        say: Say::Thin,
        by_hand: "--socket /run/NAME/NAME.sock",
    },
    Server {
        programs: &["memcached"],
        protocol: Protocol::Memcached,
        options: &[
            (&["--listen", "-l"], Kind::Host),
            (&["--port", "-p"], Kind::Port),
            (&["--unix-socket", "-s"], Kind::Socket),
            (&["--unix-mask", "-a"], Kind::Mode),
            (&["--listen-backlog", "-b"], Kind::Backlog),
            (&["--udp-port", "-U"], Kind::Stop("a socket has no UDP beside it")),
            (&["--enable-ssl", "-Z"], Kind::Stop("it speaks TLS")),
        ],
        usual: Some(("0.0.0.0", 11211)),
        variables: &["MEMCACHED_PORT_FILENAME"],
        say: Say::Memcached,
        by_hand: "-s /run/memcached/memcached.sock -a 0770",
    },
    Server {
        programs: &["redis-server"],
        protocol: Protocol::Redis,
        options: &[
            (&["--bind"], Kind::Host),
            (&["--port"], Kind::Port),
            (&["--unixsocket"], Kind::Socket),
            (&["--unixsocketperm"], Kind::Mode),
            (&["--tcp-backlog"], Kind::Backlog),
            (&["--tls-port"], Kind::Stop("it speaks TLS")),
            (&["--include", "--sentinel"], CONFIGURED),
        ],
        usual: Some(("0.0.0.0", 6379)),
        variables: &[],
        say: Say::Redis,
        by_hand: "--port 0 --unixsocket /run/redis/redis.sock --unixsocketperm 770",
    },
];

const LAUNCHERS: &[&[&str]] = &[
    &["env"],
    &["bundle", "exec"],
    &["pipenv", "run"],
    &["poetry", "run"],
    &["uv", "run"],
    &["python", "-m"],
    &["python3", "-m"],
];

pub(super) fn base(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word).trim_start_matches(['-', '@', ':', '+', '!'])
}

/// The server that a command line starts, and the index of its word.
pub(super) fn server(words: &[Word]) -> Option<(usize, &'static Server)> {
    let mut at = 0;
    while let Some(launcher) = LAUNCHERS.iter().find(|launcher| {
        launcher.iter().enumerate().all(|(number, part)| {
            words.get(at + number).is_some_and(|word| base(&word.text) == part.trim_start_matches('-'))
        })
    }) {
        at += launcher.len();
        while launcher == &["env"] && words.get(at).is_some_and(|word| word.text.contains('=')) {
            at += 1;
        }
    }
    let name = base(&words.get(at)?.text);
    SERVERS.iter().find(|server| server.is_started_by(name)).map(|server| (at, server))
}
