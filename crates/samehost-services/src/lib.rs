//! What a service is: one descriptor a service in `services/`, read by everything that finds, asks, measures or switches
//! one. A service that behaves like a known one is one more file there. Beside them, in `clients/`, how clients are told
//! where a service is. Pure: it looks at nothing on this machine.

mod client;
mod descriptor;
mod dsn;
mod kind;
mod protocol;

pub use client::{Client, Language, Localhost, application_of, languages};
pub use descriptor::{
    Container, ContainerClient, Descriptor, FileName, NewSocket, Others, Schemes, Threading, UnixSocket,
    php_version, socket_by_port, word_after,
};
pub use dsn::Dsn;
pub use kind::Kind;
pub use protocol::{
    ASKED_FOR_TLS_ON_A_SOCKET, Leads, Protocol, has_bare_password, localhost_in, plain_scheme, scheme,
};
