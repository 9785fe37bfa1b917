//! The built-in servers behind `samehost serve`: useful by themselves, and the other side of the workloads that
//! need no foreign server.

mod epoll;
mod http;
mod listeners;
mod responder;
mod threads;

use std::time::Duration;

use samehost_model::{Endpoint, Transport};
use samehost_transport::{ListenOptions, Stream};

use http::HttpResponder;
pub(crate) use http::body as http_body;
pub use listeners::{Listening, Stopper};
use responder::Echo;

use crate::BenchError;

/// A built-in server.
#[derive(Clone, Copy, Debug)]
pub struct Server {
    /// Name under `samehost serve`.
    pub name: &'static str,
    /// One line of help.
    pub about: &'static str,
    /// Talks to one connection, blocking, until it ends.
    converse: fn(&mut Stream) -> std::io::Result<()>,
    /// Serves all connections in one thread instead, by epoll.
    epoll: Option<fn(&Listening) -> Result<(), BenchError>>,
}

/// Every built-in server.
pub const SERVERS: &[Server] = &[
    Server {
        name: "echo",
        about: "Send back every byte that comes",
        converse: threads::converse::<Echo>,
        epoll: Some(epoll::serve::<Echo>),
    },
    Server {
        name: "http",
        about: "HTTP/1: `/bytes/N` (GET or POST) is a reply of N bytes, `/` one of 4096",
        converse: threads::converse::<HttpResponder>,
        epoll: Some(epoll::serve::<HttpResponder>),
    },
    Server {
        name: "sink",
        about: "Take rounds of bytes and acknowledge each (the receiving end of bulk)",
        converse: threads::sink,
        epoll: None,
    },
];

/// The built-in server of this name.
#[must_use]
pub fn server(name: &str) -> Option<&'static Server> {
    SERVERS.iter().find(|server| server.name == name)
}

/// How connections are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Model {
    /// A thread for each connection, blocking.
    #[default]
    Threads,
    /// One thread for all connections, epoll.
    Epoll,
}

/// How to serve.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// How connections are served.
    pub model: Model,
    /// Connections that may wait to be accepted.
    pub backlog: i32,
    /// Rights of socket files.
    pub mode: u32,
    /// Pause after each accept, to play a busy server.
    pub accept_delay: Option<Duration>,
}

impl Server {
    /// Listens on all endpoints, or on none if one of them fails.
    ///
    /// # Errors
    /// When one of them cannot be listened on.
    pub fn listen(&self, endpoints: &[Endpoint], options: &ServeOptions) -> Result<Listening, BenchError> {
        listeners::listen(endpoints, options)
    }

    /// Serves until stopped; the socket files go with `listening`.
    ///
    /// # Errors
    /// When accepting fails for good.
    pub fn serve(&self, listening: &Listening, options: &ServeOptions) -> Result<(), BenchError> {
        match options.model {
            Model::Epoll => match self.epoll {
                Some(serve) => serve(listening),
                None => Err(BenchError::Usage(format!("`serve {}` has no --model epoll", self.name))),
            },
            Model::Threads => listeners::serve(listening, self.converse, options.accept_delay),
        }
    }

    /// Serves the one connection that the parent handed over on standard input (and output, for pipes).
    ///
    /// # Errors
    /// When the connection breaks.
    pub fn serve_inherited(&self, transport: Transport) -> std::io::Result<()> {
        let input = rustix::io::dup(rustix::stdio::stdin())?;
        let mut stream = if transport == Transport::Pipe {
            Stream::pipe(input, rustix::io::dup(rustix::stdio::stdout())?)
        } else {
            Stream::from_fd(input, transport)
        };
        (self.converse)(&mut stream)
    }
}

/// Options for the transport's listener.
fn listen_options(options: &ServeOptions) -> ListenOptions {
    ListenOptions { backlog: options.backlog, mode: options.mode, ..ListenOptions::default() }
}
