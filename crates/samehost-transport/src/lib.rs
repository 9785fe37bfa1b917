//! Connect and listen by endpoint: one string selects TCP, TLS or a Unix socket. Has no notion of what is
//! exchanged, of clocks or of statistics, and never prints.
//!
//! ```
//! use std::io::{Read, Write};
//! use samehost_transport::{ConnectOptions, Endpoint, ListenOptions, connect, listen};
//!
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("app.sock");
//! for endpoint in ["tcp:127.0.0.1:0".to_owned(), format!("unix:{}", path.display())] {
//!     let endpoint: Endpoint = endpoint.parse()?;          // the only line that knows the transport
//!     let listener = listen(&endpoint, &ListenOptions::default())?;
//!     let mut client = connect(listener.endpoint(), &ConnectOptions::default())?;
//!     let mut server = listener.accept()?;
//!     client.write_all(b"ping")?;
//!     let mut received = [0; 4];
//!     server.read_exact(&mut received)?;
//!     assert_eq!(&received, b"ping");
//!     assert!(client.observed()?.matches(endpoint.transport())); // asked of the kernel
//! }
//! assert!(!path.exists());                                 // the listener took its socket file away
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | endpoint | what it is |
//! |---|---|
//! | `tcp:127.0.0.1:7000`, `tcp:[::1]:7000` | TCP with `TCP_NODELAY` at both ends; port 0 takes a free one |
//! | `tcp+tls:127.0.0.1:7000` | TLS 1.3 or 1.2 over TCP ([`TlsServer`], [`TlsTrust`]) |
//! | `unix:/run/app/app.sock` | a stream socket with a path, safely taken ([`listen`]) |
//! | `abstract:name` | a stream socket with a Linux abstract name |
//! | `seqpacket:/run/app/app.sock` | a Unix socket that keeps message boundaries ([`Stream`] has the limits) |
//! | `tcp+run:127.0.0.1:7000=/run/app/app.sock` | a program under `samehost run` connects and hands the socket over ([`offer`]) |
//! | `socketpair:`, `pipe:` | inherited from a parent: [`pair`], [`pipe_pair`] |
//!
//! # TLS
//!
//! ```
//! use std::io::{Read, Write};
//! use samehost_transport::{ConnectOptions, ListenOptions, TlsServer, TlsTrust, connect, listen};
//!
//! let server = TlsServer::self_signed()?;
//! let trust = TlsTrust::pinned(server.certificate_der());
//! let options = ListenOptions { tls: Some(server), ..ListenOptions::default() };
//! let listener = listen(&"tcp+tls:127.0.0.1:0".parse()?, &options)?;
//! let endpoint = listener.endpoint().clone();
//! let serving = std::thread::spawn(move || -> std::io::Result<()> {
//!     let mut stream = listener.accept()?;        // never waits for the client's handshake
//!     stream.write_all(b"hello")                  // the handshake is done here
//! });
//! let mut stream = connect(&endpoint, &ConnectOptions { tls: trust, ..ConnectOptions::default() })?;
//! let mut received = String::new();
//! stream.read_to_string(&mut received)?;
//! assert_eq!(received, "hello");
//! assert!(stream.cipher().is_some_and(|cipher| cipher.starts_with("TLSv1.3")));
//! serving.join().expect("the server does not panic")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Try it with nc
//!
//! The examples talk to anything that speaks bytes, such as `nc` (Debian: `netcat-openbsd`):
//!
//! ```text
//! cargo run -p samehost-transport --example echo_server -- unix:/run/user/1000/echo.sock
//! printf 'hello\n' | nc -N -U /run/user/1000/echo.sock             # prints hello
//!
//! cargo run -p samehost-transport --example echo_server -- tcp:127.0.0.1:7000
//! printf 'hello\n' | nc -N 127.0.0.1 7000                          # prints hello
//!
//! printf 'pong\n' | nc -l -U /run/user/1000/nc.sock                # prints ping
//! printf 'ping\n' | cargo run -p samehost-transport --example client -- unix:/run/user/1000/nc.sock   # prints pong
//! ```

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![warn(missing_docs)]

mod claim;
mod error;
mod observed;
mod socket;
mod stream;
mod tls;
mod transports;
mod tuning;

pub use crate::transports::unix::pipe_pair;
pub use crate::tuning::{ConnectOptions, ListenOptions};
pub use error::{ConnectError, Denied, ListenError, Right, StartError};
pub use observed::{Family, Kind, Name, Observed, Protocol};
pub use rustix::io::Errno;
pub use samehost_model::{Endpoint, EndpointError, Transport};
pub use socket::{AddressError, Connecting};
pub use stream::{Listener, Stream};
pub use tls::{CertificateMakingError, MadeCertificate, TlsServer, TlsTrust};
pub use transports::run::{Offer, hand_over, offer};
pub use transports::tls::start_tls;
pub use transports::unix::pair;
pub use transports::{connect, connect_nonblocking, listen};
pub use tuning::{Tuning, TuningError};
