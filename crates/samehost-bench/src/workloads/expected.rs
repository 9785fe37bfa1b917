//! Who may be at the other end of a measured login.

use std::sync::OnceLock;

use samehost_login::Expected;
use samehost_model::Protocol;

/// Who may be at the other end to get a password: a private server of ours, or one that runs as such servers do.
pub(crate) fn expected(protocol: Protocol) -> &'static Expected {
    &both(protocol).0
}

/// The same for each of many connections that are measured, after one that was not: what it takes to know the server again is
/// a question to the kernel over either transport, and no walk through processes.
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
