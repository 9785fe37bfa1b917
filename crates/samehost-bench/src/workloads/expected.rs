//! Identity of the servers that a measurement logs in to.

use std::sync::OnceLock;

use samehost_login::Expected;
use samehost_model::Protocol;

/// Servers that may receive a password: a private server of ours, or one that runs as its packages run it.
pub(crate) fn expected(protocol: Protocol) -> &'static Expected {
    &both(protocol).0
}

/// For further measured connections after the first one, which was not measured. To recognize the server
/// takes one query to the kernel over either transport, and no scan of processes.
pub(crate) fn expected_again(protocol: Protocol) -> &'static Expected {
    &both(protocol).1
}

fn both(protocol: Protocol) -> &'static (Expected, Expected) {
    static MYSQL: OnceLock<(Expected, Expected)> = OnceLock::new();
    static POSTGRES: OnceLock<(Expected, Expected)> = OnceLock::new();
    static REDIS: OnceLock<(Expected, Expected)> = OnceLock::new();
    let known = match protocol {
        Protocol::Mysql => &MYSQL,
        Protocol::Postgres => &POSTGRES,
        _ => &REDIS,
    };
    known.get_or_init(|| {
        let first = Expected::of_service(protocol).or_started_by_us();
        let again = first.again();
        (first, again)
    })
}
