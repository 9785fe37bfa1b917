//! Schemes of URLs: which protocol is spoken there, and what they lead to.

use crate::{Kind, Protocol};

/// What a URL of a scheme leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leads {
    /// A host and a port, unless the URL names a socket.
    Tcp,
    /// The same with TLS.
    Tls,
    /// A socket.
    Socket,
}

/// What is spoken at a URL of this scheme, and what it leads to; none where no service has the scheme.
#[must_use]
pub fn scheme(name: &str) -> Option<(Protocol, Leads)> {
    Kind::all().find_map(|kind| {
        let schemes = &kind.descriptor().schemes;
        let lists =
            [(&schemes.tcp, Leads::Tcp), (&schemes.tls, Leads::Tls), (&schemes.socket, Leads::Socket)];
        let (_, leads) = lists.into_iter().find(|(list, _)| list.iter().any(|scheme| scheme == name))?;
        Some((kind.protocol()?, leads))
    })
}

/// Whether a login without a colon in a URL of this scheme is a password.
#[must_use]
pub fn has_bare_password(name: &str) -> bool {
    Kind::all().filter(|kind| kind.descriptor().bare_password).any(|kind| {
        let schemes = &kind.descriptor().schemes;
        [&schemes.tcp, &schemes.tls, &schemes.socket].into_iter().flatten().any(|scheme| scheme == name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_lead_to_protocols() {
        assert_eq!(scheme("mariadb"), Some((Protocol::Mysql, Leads::Tcp)));
        assert_eq!(scheme("rediss"), Some((Protocol::Redis, Leads::Tls)));
        assert_eq!(scheme("http+unix"), Some((Protocol::Http, Leads::Socket)));
        assert_eq!(scheme("unix"), None);
        assert!(has_bare_password("redis+unix") && !has_bare_password("mysql"));
    }
}
