//! PostgreSQL start-up: SSLRequest, then the authentication method that the server asks for.

use fallible_iterator::FallibleIterator;
use postgres_protocol::authentication::{md5_hash, sasl};
use postgres_protocol::message::backend::{AuthenticationSaslBody, Message};
use postgres_protocol::message::frontend;
use samehost_model::{Endpoint, Protocol};

use super::LoggedIn;
use super::messages::{Refusal, bytes, parse};
use crate::address::SslMode;
use crate::credentials::{Credentials, remember_sent};
use crate::error::{LoginError, Refused};
use crate::expected::Expected;
use crate::link::Link;

#[derive(Clone, Copy)]
pub(crate) struct Account<'a> {
    pub user: &'a str,
    pub password: Option<&'a str>,
    pub database: &'a str,
    pub sslmode: SslMode,
    /// Whether the server is asked to refuse all writes of this session.
    pub read_only: bool,
    /// Peers that may receive the password, or a proof of it.
    pub expected: &'a Expected,
}

impl<'a> Account<'a> {
    /// The account of these credentials, whose user is `user`: without TLS, and it may write.
    pub(crate) fn of(user: &'a str, credentials: &'a Credentials, expected: &'a Expected) -> Self {
        Account {
            user,
            password: credentials.password(),
            database: credentials.database.as_deref().unwrap_or(user),
            sslmode: SslMode::Disable,
            read_only: false,
            expected,
        }
    }
}

/// Most messages of a login, and of a reply without rows.
pub(super) const MOST_MESSAGES: usize = 100;

/// Most iterations of SCRAM that are computed: a second or two. PostgreSQL's default is 4096; a hostile
/// server could ask for hours.
const MOST_ROUNDS: u32 = 1_000_000;

/// Sends a question, if it is not empty, and reads the next message of whatever kind.
pub(super) fn next(link: &mut Link, question: &[u8]) -> Result<Message, LoginError> {
    link.ask(question, parse)
}

#[must_use]
pub fn unsaid(reason: impl Into<String>) -> LoginError {
    LoginError::Unsayable(reason.into())
}

/// Logs in, on a connection that already has TLS if it will have it.
pub(super) fn converse(mut link: Link, account: &Account<'_>) -> Result<LoggedIn, LoginError> {
    let mut parameters = vec![
        ("user", account.user),
        ("database", account.database),
        ("client_encoding", "UTF8"),
        ("application_name", "samehost"),
    ];
    if account.read_only {
        parameters.push(("default_transaction_read_only", "on"));
    }
    let mut question = bytes(|out| frontend::startup_message(parameters, out)).map_err(unsaid)?;
    let mut scram = None;
    let (mut version, mut backend) = (String::new(), 0);
    for _ in 0..MOST_MESSAGES {
        question = match next(&mut link, &question)? {
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
                return Err(refused(&link, format!("user {} the login", account.user), &refusal));
            }
            message => authenticate(message, &mut link, account, &mut scram)?,
        };
    }
    Err(LoginError::strange(link.endpoint(), format!("more than {MOST_MESSAGES} messages for one login")))
}

fn authenticate(
    message: Message,
    link: &mut Link,
    account: &Account<'_>,
    scram: &mut Option<sasl::ScramSha256>,
) -> Result<Vec<u8>, LoginError> {
    match message {
        Message::AuthenticationCleartextPassword => {
            if matches!(link.endpoint(), Endpoint::Tcp { .. }) {
                announce_plain_password(link.endpoint());
            }
            let password = password(account, link)?;
            bytes(|out| frontend::password_message(password, out)).map_err(unsaid)
        }
        Message::AuthenticationMd5Password(body) => {
            let hash = md5_hash(account.user.as_bytes(), password(account, link)?, body.salt());
            bytes(|out| frontend::password_message(hash.as_bytes(), out)).map_err(unsaid)
        }
        Message::AuthenticationSasl(body) => {
            let begun = scram.insert(begin_scram(&body, account, link)?);
            bytes(|out| frontend::sasl_initial_response(sasl::SCRAM_SHA_256, begun.message(), out))
                .map_err(unsaid)
        }
        Message::AuthenticationSaslContinue(body) => {
            let Some(scram) = scram else { return Err(strange(link)) };
            if !matches!(rounds(body.data()), Some(..=MOST_ROUNDS)) {
                return Err(strange(link));
            }
            scram.update(body.data()).map_err(|error| unproven(link, &error))?;
            bytes(|out| frontend::sasl_response(scram.message(), out)).map_err(unsaid)
        }
        Message::AuthenticationSaslFinal(body) => {
            let Some(scram) = scram else { return Err(strange(link)) };
            scram.finish(body.data()).map_err(|error| unproven(link, &error))?;
            Ok(Vec::new())
        }
        Message::AuthenticationGss
        | Message::AuthenticationSspi
        | Message::AuthenticationKerberosV5
        | Message::AuthenticationScmCredential => Err(refused_by_us(
            link.endpoint(),
            "a password".into(),
            "it requires GSSAPI, SSPI or Kerberos",
            "samehost knows scram-sha-256, md5, password, peer and trust: let pg_hba.conf have a line with one of them",
        )),
        _ => Err(strange(link)),
    }
}

/// Switches the connection to TLS if the endpoint or `sslmode` asks for it, by SSLRequest, whose answer is a single byte and
/// no message.
pub(super) fn secure(mut link: Link, endpoint: &Endpoint, sslmode: SslMode) -> Result<Link, LoginError> {
    let (tls, sslmode) = match endpoint {
        Endpoint::TcpTls { .. } => (endpoint.clone(), SslMode::Require),
        Endpoint::Tcp { host, port } if sslmode != SslMode::Disable => {
            (Endpoint::TcpTls { host: host.clone(), port: *port }, sslmode)
        }
        _ => return Ok(link),
    };
    let question = bytes(|out| {
        frontend::ssl_request(out);
        Ok(())
    });
    let answer = link.ask(&question.map_err(unsaid)?, |input| Ok(input.first().map(|byte| (*byte, 1))))?;
    match (answer, sslmode) {
        (b'S', _) => link.start_tls(&tls),
        (b'N', SslMode::Prefer) => Ok(link),
        (b'N', _) => Err(refused_by_us(
            &tls,
            "TLS".into(),
            "it has none",
            "set `ssl = on` with a certificate in postgresql.conf, or connect without TLS",
        )),
        _ => {
            Err(LoginError::strange(link.endpoint(), "it answers the request for TLS as no PostgreSQL does"))
        }
    }
}

/// Number of iterations in the server's first message of SCRAM: `r=…,s=…,i=4096`.
fn rounds(first: &[u8]) -> Option<u32> {
    let first = std::str::from_utf8(first).ok()?;
    first.split(',').find_map(|part| part.strip_prefix("i="))?.parse().ok()
}

fn begin_scram(
    body: &AuthenticationSaslBody,
    account: &Account<'_>,
    link: &mut Link,
) -> Result<sasl::ScramSha256, LoginError> {
    let is_offered = body.mechanisms().any(|name| Ok(name == sasl::SCRAM_SHA_256)).unwrap_or(false);
    if !is_offered {
        return Err(strange(link));
    }
    Ok(sasl::ScramSha256::new(password(account, link)?, sasl::ChannelBinding::unsupported()))
}

/// The password, once the peer is tied to an expected one: each method that asks for it is then sent it, or a proof of it.
fn password<'a>(account: &Account<'a>, link: &mut Link) -> Result<&'a [u8], LoginError> {
    let Some(password) = account.password else {
        let what = format!("user {} the login", account.user);
        let answer = "it requires a password, and none was given";
        return Err(refused_by_us(link.endpoint(), what, answer, PASSWORD));
    };
    link.tie(account.expected)?;
    remember_sent(password);
    Ok(password.as_bytes())
}

/// Advice for a login without a password.
pub const PASSWORD: &str = "give it in the URL (postgres://USER:PASSWORD@…), in the environment variable PGPASSWORD, or in ~/.pgpass (mode 600)";

/// Warns once: the bytes stay on this machine, but a user who may capture packets can read them.
fn announce_plain_password(endpoint: &Endpoint) {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        tracing::warn!(
            "{endpoint} asks for the password in clear text over plain TCP; scram-sha-256 in pg_hba.conf, tcp+tls or a Unix socket would hide it"
        );
    });
}

fn strange(link: &Link) -> LoginError {
    LoginError::strange(link.endpoint(), "it answers the login as no PostgreSQL does")
}

fn unproven(link: &Link, error: &std::io::Error) -> LoginError {
    refused_by_us(
        link.endpoint(),
        "to prove that it knows the password (SCRAM)".into(),
        &error.to_string(),
        "see whether another program listens there",
    )
}

fn refused_by_us(endpoint: &Endpoint, what: String, answer: &str, try_next: &str) -> LoginError {
    let refused = Refused::new(Protocol::Postgres, endpoint, what, answer);
    Refused { try_next: try_next.to_owned(), ..refused }.into()
}

/// A refusal as an error with advice. A server that is shutting down (57P01, 57P02) or starting (57P03) does not refuse, but
/// is not available. `no encryption` shows a lack of TLS since PostgreSQL 14, `SSL off` before.
pub(super) fn refused(link: &Link, what: String, refusal: &Refusal) -> LoginError {
    let answer = refusal.to_string();
    let endpoint = link.endpoint();
    if refusal.code.starts_with("57P0") {
        return LoginError::Lost {
            endpoint: endpoint.to_string(),
            reason: answer,
            code: Some(refusal.code.clone()),
        };
    }
    let may_need_tls = matches!(endpoint, Endpoint::Tcp { .. })
        && refusal.code == "28000"
        && (answer.contains("no encryption") || answer.contains("SSL off"));
    let try_next = advice(&refusal.code, &answer, may_need_tls).to_owned();
    let (code, by_password) = (Some(refusal.code.clone()), refusal.code == "28P01");
    let refused = Refused::new(Protocol::Postgres, endpoint, what, answer);
    Refused { code, try_next, may_need_tls, by_password, ..refused }.into()
}

/// Advice after a refusal with this SQLSTATE, for any caller; empty if there is none.
#[must_use]
pub fn advice(code: &str, answer: &str, may_need_tls: bool) -> &'static str {
    match code {
        "28P01" => PASSWORD,
        "28000" if may_need_tls => {
            "pg_hba.conf requires TLS for this connection (hostssl), or has no entry for this user and database"
        }
        "28000" if answer.contains("eer authentication") => {
            "peer compares the role with the user who runs samehost: run it as that user (sudo -u postgres samehost …), or name a role that this user may be"
        }
        "28000" => "let pg_hba.conf have a line for this user, database and connection, and the role a LOGIN",
        "3D000" => "name the database in the URL: postgres://USER@HOST/DATABASE",
        "53300" => {
            "close idle connections, or raise max_connections in postgresql.conf (and the role's CONNECTION LIMIT)"
        }
        _ => "",
    }
}
