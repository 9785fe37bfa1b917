//! Getting past PostgreSQL's door: TLS where it is asked for, and whatever proof of identity the server wants.

use fallible_iterator::FallibleIterator;
use postgres_protocol::authentication::{md5_hash, sasl};
use postgres_protocol::message::backend::{AuthenticationSaslBody, Message};
use postgres_protocol::message::frontend;
use samehost_model::Endpoint;

use super::address::{Address, SslMode};
use super::messages::{Refusal, bytes, parse};
use crate::BenchError;
use crate::workloads::link::Link;

/// A connection that is let in and ready for a query.
pub(super) struct LoggedIn {
    pub(super) link: Link,
    /// The server's version.
    pub(super) version: String,
    /// Its process for this connection.
    pub(super) backend: i32,
}

/// The next message, whatever it is.
pub(super) fn next(link: &mut Link, question: &[u8]) -> Result<Message, BenchError> {
    link.ask(question, parse)
}

/// A request that could not be written.
pub(super) fn unsaid(reason: String) -> BenchError {
    BenchError::Usage(reason)
}

/// Connects and logs in. `read_only` has the server itself refuse every write.
pub(super) fn log_in(address: &Address, read_only: bool) -> Result<LoggedIn, BenchError> {
    let mut link = connect(address)?;
    let mut parameters = vec![
        ("user", address.user.as_str()),
        ("database", address.database.as_str()),
        ("client_encoding", "UTF8"),
        ("application_name", "samehost"),
    ];
    if read_only {
        parameters.push(("default_transaction_read_only", "on"));
    }
    let mut question = bytes(|out| frontend::startup_message(parameters, out)).map_err(unsaid)?;
    let mut scram = None;
    let (mut version, mut backend) = (String::new(), 0);
    loop {
        let message = next(&mut link, &question)?;
        question = match message {
            Message::AuthenticationCleartextPassword => {
                if matches!(link.endpoint(), Endpoint::Tcp { .. }) {
                    announce_plain_password(address);
                }
                let password = password(address, &link)?;
                bytes(|out| frontend::password_message(password, out)).map_err(unsaid)?
            }
            Message::AuthenticationMd5Password(body) => {
                let hash = md5_hash(address.user.as_bytes(), password(address, &link)?, body.salt());
                bytes(|out| frontend::password_message(hash.as_bytes(), out)).map_err(unsaid)?
            }
            Message::AuthenticationSasl(body) => {
                let begun = begin_scram(&body, address, &link)?;
                let first =
                    bytes(|out| frontend::sasl_initial_response(sasl::SCRAM_SHA_256, begun.message(), out));
                scram = Some(begun);
                first.map_err(unsaid)?
            }
            Message::AuthenticationSaslContinue(body) => {
                let Some(scram) = &mut scram else { return Err(strange(&link)) };
                scram.update(body.data()).map_err(|error| unproven(&link, &error))?;
                bytes(|out| frontend::sasl_response(scram.message(), out)).map_err(unsaid)?
            }
            Message::AuthenticationSaslFinal(body) => {
                let Some(scram) = &mut scram else { return Err(strange(&link)) };
                scram.finish(body.data()).map_err(|error| unproven(&link, &error))?;
                Vec::new()
            }
            Message::ParameterStatus(body) => {
                if body.name().is_ok_and(|name| name == "server_version") {
                    version = body.value().unwrap_or_default().to_owned();
                }
                Vec::new()
            }
            Message::BackendKeyData(body) => {
                backend = body.process_id();
                Vec::new()
            }
            Message::AuthenticationOk | Message::NoticeResponse(_) => Vec::new(),
            Message::ReadyForQuery(_) => return Ok(LoggedIn { link, version, backend }),
            Message::ErrorResponse(body) => {
                let refusal = Refusal::read(body.fields());
                return Err(refused(&link, format!("user {} the login", address.user), &refusal));
            }
            Message::AuthenticationGss
            | Message::AuthenticationSspi
            | Message::AuthenticationKerberosV5
            | Message::AuthenticationScmCredential => {
                return Err(BenchError::Refused {
                    endpoint: link.endpoint().to_string(),
                    what: "a password".into(),
                    answer: "it wants GSSAPI, SSPI or Kerberos".into(),
                    try_next: "samehost knows scram-sha-256, md5, password, peer and trust: let pg_hba.conf have a line with one of them".into(),
                });
            }
            _ => return Err(strange(&link)),
        };
    }
}

/// Connects, with TLS where the address asks for it.
fn connect(address: &Address) -> Result<Link, BenchError> {
    let (plain, tls) = match &address.endpoint {
        Endpoint::TcpTls { host, port } | Endpoint::Tcp { host, port }
            if address.sslmode != SslMode::Disable =>
        {
            let (host, port) = (host.clone(), *port);
            (Endpoint::Tcp { host: host.clone(), port }, Endpoint::TcpTls { host, port })
        }
        other => return Link::connect(other),
    };
    let mut link = Link::connect(&plain)?;
    let question = bytes(|out| {
        frontend::ssl_request(out);
        Ok(())
    });
    // The answer is one byte, no message.
    let answer = link.ask(&question.map_err(unsaid)?, |input| Ok(input.first().map(|byte| (*byte, 1))))?;
    match (answer, address.sslmode) {
        (b'S', _) => link.start_tls(&tls),
        (b'N', SslMode::Prefer) => Ok(link),
        (b'N', _) => Err(BenchError::Refused {
            endpoint: tls.to_string(),
            what: "TLS".into(),
            answer: "it has none".into(),
            try_next:
                "set `ssl = on` with a certificate in postgresql.conf, or leave tcp+tls out of --transports"
                    .into(),
        }),
        _ => Err(BenchError::lost(&plain, "it answers the request for TLS as no PostgreSQL does")),
    }
}

fn begin_scram(
    body: &AuthenticationSaslBody,
    address: &Address,
    link: &Link,
) -> Result<sasl::ScramSha256, BenchError> {
    let known = body.mechanisms().any(|name| Ok(name == sasl::SCRAM_SHA_256)).unwrap_or(false);
    if !known {
        return Err(strange(link));
    }
    Ok(sasl::ScramSha256::new(password(address, link)?, sasl::ChannelBinding::unsupported()))
}

fn password<'a>(address: &'a Address, link: &Link) -> Result<&'a [u8], BenchError> {
    match &address.password {
        Some(password) => Ok(password.as_bytes()),
        None => Err(BenchError::Refused {
            endpoint: link.endpoint().to_string(),
            what: format!("user {} the login", address.user),
            answer: "it wants a password, and none is given".into(),
            try_next: PASSWORD.into(),
        }),
    }
}

const PASSWORD: &str = "give it in the URL (postgres://USER:PASSWORD@…), in the environment variable PGPASSWORD, or in ~/.pgpass (mode 600)";

/// Said once: the bytes stay on this machine, but whoever may capture packets on it reads them.
fn announce_plain_password(address: &Address) {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        tracing::warn!(
            "{} asks for the password in clear text over plain TCP; scram-sha-256 in pg_hba.conf, tcp+tls or a Unix socket would hide it",
            address.endpoint
        );
    });
}

fn strange(link: &Link) -> BenchError {
    BenchError::lost(link.endpoint(), "it answers the login as no PostgreSQL does")
}

fn unproven(link: &Link, error: &std::io::Error) -> BenchError {
    BenchError::Refused {
        endpoint: link.endpoint().to_string(),
        what: "to prove that it knows the password (SCRAM)".into(),
        answer: error.to_string(),
        try_next: "see whether another program listens there".into(),
    }
}

/// A refusal, with what to try next.
pub(super) fn refused(link: &Link, what: String, refusal: &Refusal) -> BenchError {
    let over_tcp = matches!(link.endpoint(), Endpoint::Tcp { .. });
    let answer = refusal.to_string();
    // It is going down (57P01, 57P02) or not up yet (57P03): no refusal, but a server that is not there.
    if refusal.code.starts_with("57P0") {
        return BenchError::lost(link.endpoint(), answer);
    }
    let try_next = match refusal.code.as_str() {
        "28P01" => PASSWORD,
        // `no encryption` since PostgreSQL 14, `SSL off` before.
        "28000" if over_tcp && (answer.contains("no encryption") || answer.contains("SSL off")) => {
            "pg_hba.conf lets nobody in here without TLS (hostssl), or has no line for this user and database at all: try --transports tcp+tls,unix"
        }
        "28000" if answer.contains("eer authentication") => {
            "peer compares the role with the user who runs samehost: run it as that user (sudo -u postgres samehost …), or name a role that this user may be"
        }
        "28000" => "let pg_hba.conf have a line for this user, database and connection, and the role a LOGIN",
        "3D000" => "name the database in the URL: postgres://USER@HOST/DATABASE",
        "42501" => {
            "grant it (GRANT CREATE ON SCHEMA public TO …), or use --statement select-1 --read-only yes, which writes nothing"
        }
        "25006" => "this server only reads; use --statement select-1 --read-only yes",
        "53100" => {
            "make room on the disk of its data directory (TMPDIR, for a private server), or use fewer --rows"
        }
        "53300" => {
            "use fewer --connections, or raise max_connections in postgresql.conf (and the role's CONNECTION LIMIT)"
        }
        "57P03" => "wait until it has started",
        _ => "",
    };
    BenchError::Refused { endpoint: link.endpoint().to_string(), what, try_next: try_next.into(), answer }
}
