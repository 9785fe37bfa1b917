//! The servers whose command lines are known: which options say where they listen, and how a socket is said there.

use samehost_model::{Endpoint, Protocol};

use super::words::Word;
use crate::Goal;
use crate::editors::lines::{is_loopback, listening_host, tcp};
use crate::editors::url::is_plain_path;

/// What an option says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Host and port, or a socket.
    Bind,
    Host,
    Port,
    Socket,
    /// The permissions of the socket.
    Mode,
    Backlog,
    /// Where it listens is said elsewhere, or is not to be moved.
    Stop(&'static str),
}

/// A server.
#[derive(Debug)]
pub(super) struct Server {
    programs: &'static [&'static str],
    pub(super) protocol: Protocol,
    options: &'static [(&'static [&'static str], Kind)],
    /// Where it listens when nothing says so.
    host: Option<&'static str>,
    port: Option<u16>,
    /// The variables that say so as well.
    pub(super) variables: &'static [&'static str],
    /// The file in its working directory that it reads unasked.
    pub(super) unasked: Option<&'static str>,
    /// Whether `-p3000` is `-p 3000`.
    is_joined: bool,
    say: Say,
}

/// How a place is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Say {
    Gunicorn,
    Uvicorn,
    Puma,
    Thin,
    Memcached,
    Redis,
}

const CONFIGURED: Kind = Kind::Stop("a file that it names may say where it listens");

/// All of them.
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
        host: Some("127.0.0.1"),
        port: Some(8000),
        variables: &["GUNICORN_CMD_ARGS", "PORT"],
        unasked: Some("gunicorn.conf.py"),
        is_joined: true,
        say: Say::Gunicorn,
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
        host: Some("127.0.0.1"),
        port: Some(8000),
        variables: &["UVICORN_HOST", "UVICORN_PORT", "UVICORN_UDS", "UVICORN_FD"],
        unasked: None,
        is_joined: false,
        say: Say::Uvicorn,
    },
    Server {
        programs: &["puma"],
        protocol: Protocol::Http,
        options: &[(&["--bind", "-b"], Kind::Bind), (&["--port", "-p"], Kind::Port)],
        host: None,
        port: None,
        variables: &[],
        unasked: None,
        is_joined: true,
        say: Say::Puma,
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
        host: Some("0.0.0.0"),
        port: Some(3000),
        variables: &[],
        unasked: None,
        is_joined: true,
        say: Say::Thin,
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
        host: Some("0.0.0.0"),
        port: Some(11211),
        variables: &["MEMCACHED_PORT_FILENAME"],
        unasked: None,
        is_joined: true,
        say: Say::Memcached,
    },
    Server {
        programs: &["redis-server", "valkey-server"],
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
        host: Some("0.0.0.0"),
        port: Some(6379),
        variables: &[],
        unasked: None,
        is_joined: false,
        say: Say::Redis,
    },
];

/// Words that start the program that comes behind them.
const LAUNCHERS: &[&[&str]] = &[
    &["env"],
    &["bundle", "exec"],
    &["pipenv", "run"],
    &["poetry", "run"],
    &["uv", "run"],
    &["python", "-m"],
    &["python3", "-m"],
];

/// An option on a command line.
#[derive(Clone, Debug)]
pub(super) struct Given {
    kind: Kind,
    /// Its words, by number.
    first: usize,
    last: usize,
    /// What stands before the value in the same word: `--bind=`.
    before: String,
    value: String,
}

/// A known server's command line.
#[derive(Debug)]
pub(super) struct Listens {
    pub(super) server: &'static Server,
    pub(super) endpoint: Endpoint,
    pub(super) backlog: Option<u32>,
    /// The number of the word that is the program.
    program: usize,
    given: Vec<Given>,
}

/// The last part of a path.
pub(super) fn base(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word).trim_start_matches(['-', '@', ':', '+', '!'])
}

/// The server that a command line starts, and the number of its word.
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
    SERVERS.iter().find(|server| server.programs.contains(&name)).map(|server| (at, server))
}

impl Server {
    pub(super) fn name(&self) -> &'static str {
        self.programs[0]
    }

    /// Whether it listens at a socket of systemd's where it gets one.
    pub(super) fn takes_sockets(&self) -> bool {
        matches!(self.say, Say::Gunicorn | Say::Puma | Say::Uvicorn)
    }

    /// What its options say. Not understood where they say nothing, and neither does the program by itself.
    pub(super) fn listens(&'static self, words: &[Word], program: usize) -> Result<Listens, String> {
        let given = self.given(words, program)?;
        let one = |kind: Kind| -> Result<Option<&Given>, String> {
            let mut found = given.iter().filter(|given| given.kind == kind);
            match (found.next(), found.next()) {
                (Some(given), Some(_)) => {
                    Err(format!("{} says more than once where it listens ({})", self.name(), given.value))
                }
                (first, _) => Ok(first),
            }
        };
        let (bind, host, port, socket) =
            (one(Kind::Bind)?, one(Kind::Host)?, one(Kind::Port)?, one(Kind::Socket)?);
        one(Kind::Mode)?;
        let backlog = one(Kind::Backlog)?.map(|given| given.value.parse()).transpose();
        let backlog = backlog.map_err(|_| "its backlog is no number".to_owned())?;
        for given in &given {
            if let Kind::Stop(why) = given.kind
                && !why.is_empty()
            {
                return Err(format!("{why}: {}{}", given.before, given.value));
            }
        }
        if bind.is_none() && given.iter().any(|given| given.kind == Kind::Stop("")) {
            return Err("its configuration file may say where it listens".into());
        }
        let unusual = || format!("where {} listens is said in an unusual way", self.name());
        let endpoint = if let Some(bind) = bind {
            if port.is_some() || socket.is_some() {
                return Err(format!("{} says more than once where it listens", self.name()));
            }
            self.bound(&bind.value).ok_or_else(unusual)?
        } else if let Some(socket) = socket {
            if self.say == Say::Redis && port.is_none_or(|port| port.value != "0") {
                return Err("it listens at a port as well as at its socket".into());
            }
            Some(socket.value.clone())
                .filter(|path| is_plain_path(path))
                .map(|path| Endpoint::Unix(path.into()))
                .ok_or_else(unusual)?
        } else {
            // Puma's -p alone is open to all.
            let usual = if self.say == Say::Puma { port.and(Some("0.0.0.0")) } else { self.host };
            let nowhere = || format!("its command does not say where {} listens", self.name());
            let host = host.map(|given| given.value.as_str()).or(usual).ok_or_else(nowhere)?;
            let port = match port {
                Some(given) => given.value.parse().ok(),
                None => self.port,
            };
            let plain = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:*".contains(&byte));
            let numeric = self.say != Say::Memcached
                || !host.contains(':')
                || host.parse::<std::net::Ipv6Addr>().is_ok();
            port.filter(|port| *port > 0 && plain && numeric)
                .and_then(|port| tcp(&listening_host(host), port))
                .ok_or_else(unusual)?
        };
        Ok(Listens { server: self, endpoint, backlog, program, given })
    }

    /// What the value of `--bind` says.
    fn bound(&self, value: &str) -> Option<Endpoint> {
        let unix = |path: &str| is_plain_path(path).then(|| Endpoint::Unix(path.into()));
        if self.say == Say::Puma {
            if let Some(path) = value.strip_prefix("unix://") {
                return unix(path.split('?').next()?);
            }
        } else if let Some(path) = value.strip_prefix("unix:") {
            // Gunicorn takes unix:PATH and unix:///PATH.
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
        let plain = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:".contains(&byte));
        let port = port.parse().ok().filter(|port| *port > 0 && plain)?;
        tcp(&listening_host(host), port)
    }

    /// The options that matter.
    fn given(&self, words: &[Word], program: usize) -> Result<Vec<Given>, String> {
        let mut found = Vec::new();
        let mut at = program + 1;
        while let Some(word) = words.get(at) {
            // `--workers ${WORKERS}` is a value; `$OPTIONS` may be several words.
            let is_value = |dynamic: &str| {
                dynamic.starts_with("${")
                    && words[at - 1].text.starts_with('-')
                    && !words[at - 1].text.contains('=')
            };
            if let Some(dynamic) = &word.dynamic
                && (word.text == *dynamic && dynamic.starts_with('$') && !is_value(dynamic)
                    || self.matching(&word.text).is_some())
            {
                return Err(format!(
                    "{dynamic} is only known when systemd starts it, and may say where it listens"
                ));
            }
            let first = at;
            at += 1;
            if word.text == "--" {
                break;
            }
            if self.say == Say::Redis && first == program + 1 && !word.text.starts_with('-') {
                return Err(format!("{} may say where it listens: samehost switch {}", word.text, word.text));
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
                        return Err(format!("{dynamic} is only known when systemd starts it"));
                    }
                    at += 1;
                    if self.say == Say::Redis
                        && words.get(at).is_some_and(|more| !more.text.starts_with("--"))
                    {
                        return Err(format!("{} has several values", word.text));
                    }
                    (next.text.clone(), first + 1)
                }
            };
            found.push(Given { kind, first, last, before: before.to_owned(), value });
        }
        Ok(found)
    }

    /// The option that a word is: its kind, what stands before the value, and the value where it is in the same word.
    fn matching<'a>(&self, text: &'a str) -> Option<(Kind, &'a str, Option<&'a str>)> {
        self.options.iter().find_map(|(spellings, kind)| {
            spellings.iter().find_map(|spelling| {
                let rest = text.strip_prefix(spelling)?;
                if rest.is_empty() {
                    return Some((*kind, text, None));
                }
                let long = spelling.starts_with("--");
                let behind = if long { rest.strip_prefix('=')? } else { rest };
                (long || self.is_joined).then(|| (*kind, &text[..text.len() - behind.len()], Some(behind)))
            })
        })
    }

    /// A word that the program may take for one of those options: a shortened name, or letters in a row.
    fn lookalike(&self, text: &str) -> Result<(), String> {
        let name = text.split('=').next().unwrap_or(text);
        let is_short = |spelling: &&str| spelling.starts_with("--") && spelling.starts_with(name);
        let mut spellings = self.options.iter().flat_map(|(spellings, _)| spellings.iter());
        let shortened = self.say != Say::Redis && name.starts_with("--") && spellings.any(is_short);
        let letters = self.say == Say::Memcached
            && text.starts_with('-')
            && !text.starts_with("--")
            && text.len() > 2
            && text[1..]
                .starts_with(['A', 'v', 'V', 'd', 'h', 'i', 'k', 'r', 'M', 'L', 'C', 'S', 'F', 'X', 'W'])
            && text[1..].contains(['l', 'p', 's', 'a', 'b', 'U']);
        if shortened || letters { Err(format!("{text} is not understood")) } else { Ok(()) }
    }
}

impl Listens {
    /// Whether its own words say where, which counts before all variables of the environment.
    pub(super) fn is_bound(&self) -> bool {
        self.server.say == Say::Gunicorn && self.given.iter().any(|given| given.kind == Kind::Bind)
    }

    /// Whether anything in the command says where.
    pub(super) fn is_said(&self) -> bool {
        let says = |kind: Kind| matches!(kind, Kind::Bind | Kind::Host | Kind::Port | Kind::Socket);
        self.given.iter().any(|given| says(given.kind))
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
            // Redis keeps its addresses, which its port 0 makes idle; an option of permissions stays with a socket.
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
        let said = format!("{option} {backlog}");
        match self.given.iter().find(|given| given.kind == Kind::Backlog) {
            Some(given) => out.push((given.first, given.last, said)),
            None => {
                if let Some((_, _, with)) = out.iter_mut().find(|(_, _, with)| !with.is_empty()) {
                    *with += &format!(" {said}");
                }
            }
        }
    }
}

/// A command with some words, from the first to the last of them, replaced; an empty text takes the space with it.
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
