//! Servers with known command lines: the options that say where they listen, and their form of a socket.

use samehost_model::Protocol;
use samehost_services as services;

use super::unit::Word;

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
    /// Its address is configured elsewhere, or must not be moved.
    Stop(&'static str),
}

/// A server.
#[derive(Debug)]
pub(super) struct Server {
    programs: &'static [&'static str],
    pub(super) protocol: Protocol,
    pub(super) options: &'static [(&'static [&'static str], Kind)],
    /// Where it listens by default.
    pub(super) host: Option<&'static str>,
    pub(super) port: Option<u16>,
    /// The variables that say so as well.
    pub(super) variables: &'static [&'static str],
    /// The file in its working directory that it reads by default.
    pub(super) unasked: Option<&'static str>,
    /// Whether `-p3000` is `-p 3000`.
    pub(super) is_joined: bool,
    pub(super) say: Say,
}

/// How a place is said.
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
        host: Some("0.0.0.0"),
        port: Some(6379),
        variables: &[],
        unasked: None,
        is_joined: false,
        say: Say::Redis,
    },
];

/// Words that start the program after them.
const LAUNCHERS: &[&[&str]] = &[
    &["env"],
    &["bundle", "exec"],
    &["pipenv", "run"],
    &["poetry", "run"],
    &["uv", "run"],
    &["python", "-m"],
    &["python3", "-m"],
];

/// The last part of a path.
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

impl Server {
    /// Whether a program is this server, or one that behaves like it.
    fn is_started_by(&self, program: &str) -> bool {
        if self.programs.contains(&program) {
            return true;
        }
        let Some(kind) = services::Kind::of_program(self.name()) else { return false };
        let mut relatives = kind.relatives().filter(|relative| *relative != kind);
        relatives.any(|relative| relative.descriptor().programs.iter().any(|name| name == program))
    }

    pub(super) fn name(&self) -> &'static str {
        self.programs[0]
    }

    /// Whether it uses a socket of systemd's if it gets one.
    pub(super) fn takes_sockets(&self) -> bool {
        matches!(self.say, Say::Gunicorn | Say::Puma | Say::Uvicorn)
    }
}
