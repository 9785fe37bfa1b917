//! Servers that are already running, given with `--tcp` and `--unix`: how their addresses are read, and the half of a server that the
//! command line does not give.

use samehost_login::url::ServerUrl;
use samehost_login::{Credentials, CredentialsError, Destination, ServerAddress};
use samehost_model::{Endpoint, Protocol, Transport};

use crate::error::BenchError;
use crate::impact::Impact;
use crate::machine::queue;
use crate::served::Servers;
use crate::workload::{Look, Written};
use crate::workloads::requests::link_to;

/// Impact of bursts and of repeated connections on other clients of running servers; the accept queue belongs
/// to a listener.
///
/// # Errors
/// When no server answers there: the user should know that first.
pub(crate) fn crowding(look: &Look<'_>, is_burst: bool) -> Result<Vec<Impact>, BenchError> {
    let mut impacts = Vec::new();
    for (transport, address) in look.servers {
        let endpoint = &address.endpoint;
        let mut impact = Impact::on(format!("the server at {endpoint}"));
        impact.does.push(if is_burst {
            format!(
                "makes {} connections at once, over and over: while they wait to be accepted its queue may be full, and whoever else connects is {}",
                look.connections,
                match transport {
                    Transport::Unix | Transport::Abstract | Transport::Seqpacket => "refused (EAGAIN)",
                    _ => "held up for a second or more",
                }
            )
        } else {
            format!("makes new connections as fast as it takes them, {} at a time", look.connections)
        });
        link_to(endpoint)?;
        if let Some(queue) = queue(endpoint) {
            impact.found.push(format!(
                "{} connections may wait to be accepted there (its backlog), {} do now",
                queue.most, queue.waiting
            ));
        }
        impacts.push(impact);
    }
    Ok(impacts)
}

/// How servers of a protocol are named on the command line: by a URL of its own, or a plain endpoint. All
/// workloads read URLs here, and this asks `samehost-login`: with a reader for each, `mysql://u@localhost/db` was a
/// Unix socket to one verb and TCP to the other (docs/decisions/0087).
pub(crate) struct Forms {
    pub(crate) protocol: Protocol,
    pub(crate) title: &'static str,
    pub(crate) examples: &'static str,
    /// Added where an option names an endpoint of another transport; may be empty.
    pub(crate) hint: &'static str,
}

impl Forms {
    pub(crate) fn wrong(&self, reason: &str) -> BenchError {
        BenchError::Usage(format!("{reason}; write {}", self.examples))
    }

    /// The URL, with the password that was prompted for if it has none; `None` for a plain endpoint.
    pub(crate) fn url(&self, written: &Written<'_>) -> Result<Option<ServerUrl>, BenchError> {
        let Some(url) = ServerUrl::parse(written.text) else { return Ok(None) };
        let mut url = url.map_err(|error| self.wrong(&error.to_string()))?;
        if let (None, Some(password)) = (&url.password, written.password) {
            url.password = Some(password.reveal().to_owned());
        }
        Ok(Some(url))
    }

    pub(crate) fn endpoint(&self, url: &ServerUrl) -> Result<Endpoint, BenchError> {
        let found = Destination::of(url).map_err(|error| self.wrong(&error.to_string()))?;
        if found.protocol != self.protocol {
            let scheme = url.scheme.escape_debug();
            return Err(self.wrong(&format!("`{scheme}://` is not a URL of {}", self.title)));
        }
        Ok(found.endpoint)
    }

    /// The address that is written as this URL, or without one as a plain endpoint. The login is completed from the environment
    /// and the user's files.
    pub(crate) fn address(
        &self,
        written: &Written<'_>,
        url: Option<&ServerUrl>,
    ) -> Result<ServerAddress, BenchError> {
        let endpoint = match url {
            Some(url) => self.endpoint(url)?,
            None => written.plain()?,
        };
        self.require_fit(written, &endpoint)?;
        let credentials =
            Credentials::of_url(self.protocol, url, &endpoint).map_err(|error| match error {
                CredentialsError::Url(error) => self.wrong(&error.to_string()),
                other => other.into(),
            })?;
        Ok(ServerAddress::new(endpoint, credentials))
    }

    /// Refuses an option that names an endpoint of another transport: `--unix tcp:…`.
    pub(crate) fn require_fit(&self, written: &Written<'_>, endpoint: &Endpoint) -> Result<(), BenchError> {
        if written.fits(endpoint) {
            return Ok(());
        }
        let (asked, found) = (written.transport, endpoint.transport());
        BenchError::refuse(format!("--{asked} names a server reached over {found}: {endpoint}{}", self.hint))
    }
}

/// The error that a server does not listen on the other transport, TCP or the Unix socket, or does not tell this user:
/// `lacks` is a predicate whose subject is the server.
pub(crate) fn lacking(known: &ServerAddress, lacks: &str) -> BenchError {
    let (endpoint, transport) = (&known.endpoint, known.endpoint.transport());
    BenchError::Usage(format!(
        "the server at {endpoint} {lacks}, or measure one arm with --transports {transport}"
    ))
}

/// The given servers over all transports that are wanted, none in `wanted` meaning all that they have. The half that
/// was not given is asked for with `ask`, at the address that is known, and a server is reached over TLS at its TCP
/// port.
///
/// # Errors
/// When the server cannot be asked, or lacks the half that is wanted.
pub(crate) fn complete(
    servers: &Servers,
    wanted: &[Transport],
    ask: impl Fn(&ServerAddress) -> Result<Endpoint, BenchError>,
) -> Result<Servers, BenchError> {
    let mut servers = servers.clone();
    let over_tls = wanted.contains(&Transport::TcpTls);
    let wants = |transport: Transport| wanted.is_empty() || wanted.contains(&transport);
    for (known, other) in [(Transport::Tcp, Transport::Unix), (Transport::Unix, Transport::Tcp)] {
        let wants_other = wants(other) || (other == Transport::Tcp && over_tls);
        if servers.len() != 1 || !wants_other {
            continue;
        }
        let Some(address) = servers.get(&known) else { continue };
        // A server that refuses plain TCP may still be asked over TLS.
        let asked = if over_tls { address.over_tls() } else { address.clone() };
        servers.insert(other, ServerAddress::new(ask(&asked)?, asked.credentials));
    }
    if over_tls && let Some(address) = servers.get(&Transport::Tcp) {
        let address = address.over_tls();
        servers.insert(Transport::TcpTls, address);
    }
    servers.retain(|transport, _| wants(*transport));
    Ok(servers)
}
