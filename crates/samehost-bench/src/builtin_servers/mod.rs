//! Built-in servers of `samehost serve`: useful by themselves, and the peers of workloads that need no
//! foreign server.

mod epoll;
mod listeners;
mod responder;

use std::time::Duration;

use samehost_model::{Endpoint, Transport};
use samehost_transport::{Stream, Tuning};

pub use listeners::{Listening, Stopper};
use responder::{Echo, HttpResponder};
pub(crate) use responder::{MARK, body as http_body};

use crate::engine::session::Wait;
use crate::error::BenchError;

type Converse = fn(&mut Stream, Wait) -> std::io::Result<()>;

/// Serves all connections in one thread.
type ServeEpoll = fn(&Listening, epoll::Replies) -> Result<(), BenchError>;

#[derive(Clone, Copy, Debug)]
pub struct Server {
    pub name: &'static str,
    pub about: &'static str,
    converse: Converse,
    epoll: Option<ServeEpoll>,
}

/// Transports of all of them.
const TRANSPORTS: &[Transport] = &[
    Transport::Tcp,
    Transport::Tcp6,
    Transport::Unix,
    Transport::Abstract,
    Transport::TcpTls,
    Transport::Seqpacket,
];

pub const SERVERS: &[Server] = &[
    Server {
        name: "echo",
        about: "Send back every byte that comes",
        converse: listeners::converse::<Echo>,
        epoll: Some(epoll::serve::<Echo>),
    },
    Server {
        name: "http",
        about: "HTTP/1: `/bytes/N` (GET or POST) is a reply of N bytes, `/` one of 4096",
        converse: listeners::converse::<HttpResponder>,
        epoll: Some(epoll::serve::<HttpResponder>),
    },
    Server {
        name: "sink",
        about: "Take rounds of bytes and acknowledge each (the receiving end of bulk)",
        converse: listeners::sink,
        epoll: None,
    },
];

#[must_use]
pub fn server(name: &str) -> Option<&'static Server> {
    SERVERS.iter().find(|server| server.name == name)
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Model {
    /// A thread for each connection, which waits in poll(2).
    #[default]
    Threads,
    /// A thread for each connection, which waits in read(2).
    Blocking,
    Epoll,
    /// One thread for all connections, with epoll; replies at the end of each round, as Redis does.
    Rounds,
}

impl Model {
    pub const ALL: &[(&str, Model)] = &[
        ("threads", Model::Threads),
        ("blocking", Model::Blocking),
        ("epoll", Model::Epoll),
        ("rounds", Model::Rounds),
    ];

    fn waits(self) -> Wait {
        if self == Model::Blocking { Wait::Read } else { Wait::Poll }
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        Model::ALL.iter().find(|(_, model)| *model == self).map_or("", |(name, _)| name)
    }
}

impl std::str::FromStr for Model {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        for (name, model) in Model::ALL {
            if *name == text {
                return Ok(*model);
            }
        }
        let names: Vec<&str> = Model::ALL.iter().map(|(name, _)| *name).collect();
        Err(format!("`{text}` is none of {}", names.join(", ")))
    }
}

#[derive(Clone, Debug)]
pub struct ServeOptions {
    pub model: Model,
    pub backlog: i32,
    pub mode: u32,
    /// Pause after each accept, to imitate a busy server.
    pub accept_delay: Option<Duration>,
    /// CPU time that echo spends on everything it reads; `None` for no work.
    pub work: Option<Duration>,
    /// Additional work for a marked message, as a fraction of `work`.
    pub longer: Option<f64>,
    pub tuning: Tuning,
}

impl Server {
    /// Listens on all endpoints, or on none if one of them fails. Connections are accepted as soon as
    /// [`serve`](Self::serve) is called.
    ///
    /// # Errors
    /// When this server has no such transport, or an endpoint is taken.
    pub fn listen(&self, endpoints: &[Endpoint], options: &ServeOptions) -> Result<Listening, BenchError> {
        match endpoints.iter().find(|endpoint| !TRANSPORTS.contains(&endpoint.transport())) {
            Some(other) => {
                let names: Vec<&str> = TRANSPORTS.iter().map(|transport| transport.name()).collect();
                Err(BenchError::Usage(format!(
                    "`serve {}` does not listen on {other}; what it listens on is {}",
                    self.name,
                    names.join(", ")
                )))
            }
            None => listeners::listen(endpoints, options),
        }
    }

    /// Serves until stopped; dropping `listening` removes the socket files.
    ///
    /// # Errors
    /// When accepting fails permanently.
    pub fn serve(&self, listening: &Listening, options: &ServeOptions) -> Result<(), BenchError> {
        if let Some(work) = options.work {
            responder::set_work(work, options.longer.unwrap_or(0.0));
        }
        let replies = match options.model {
            Model::Threads | Model::Blocking => {
                let (converse, waits) = (self.converse, options.model.waits());
                return listeners::serve(
                    listening,
                    move |stream: &mut Stream| converse(stream, waits),
                    options.accept_delay,
                );
            }
            Model::Epoll => epoll::Replies::AtOnce,
            Model::Rounds => epoll::Replies::AfterTheRound,
        };
        match self.epoll {
            Some(serve) => serve(listening, replies),
            None => {
                let model = options.model.name();
                Err(BenchError::Usage(format!("`serve {}` has no --model {model}", self.name)))
            }
        }
    }

    /// Serves a single connection inherited on stdin (and stdout, for pipes).
    pub fn serve_inherited(&self, transport: Transport, model: Model) -> std::io::Result<()> {
        let input = rustix::io::dup(rustix::stdio::stdin())?;
        let mut stream = if transport == Transport::Pipe {
            Stream::pipe(input, rustix::io::dup(rustix::stdio::stdout())?)
        } else {
            Stream::from_fd(input, transport)
        };
        (self.converse)(&mut stream, model.waits())
    }
}
