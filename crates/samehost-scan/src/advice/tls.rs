//! Blocker `tls`: the switch drops TLS, or TLS was what cost the time. Certain only with kernel TLS;
//! otherwise inferred from the libraries that both ends have loaded.

use samehost_model::scan::Weight;
use samehost_system::open::proc_file;

use super::Finding;
use super::pair::Pair;

/// Size limit for /proc/PID/maps, which a process can inflate. Servers have some ten thousand bytes.
const LONGEST: u64 = 4 << 20;
/// TLS libraries.
const LIBRARIES: &[&str] = &["libssl", "libgnutls", "libmbedtls", "libnss3", "libwolfssl"];

pub(super) fn check(pair: &Pair<'_>) -> Option<Finding> {
    let sockets = pair.connections.iter().flat_map(|connection| [connection.client, connection.server]);
    let mut sockets = sockets.filter_map(|at| pair.scan.sockets.get(at));
    let remedy = "A Unix socket needs no TLS, for its traffic stays on the machine; a client that requires it (sslmode=require, REQUIRE SSL) must be changed";
    if sockets.any(|socket| socket.kernel_tls) {
        return Some(Finding::new(
            Weight::Setting,
            "the connection is encrypted (kernel TLS)".to_owned(),
            remedy.to_owned(),
        ));
    }
    let client = library(pair.client()?.pid)?;
    library(pair.server()?.pid)?;
    Some(Finding::new(
        Weight::Note,
        format!("both ends have a TLS library loaded ({client}), so the connection may be encrypted"),
        format!("Look at the cipher of both: samehost verify. {remedy}"),
    ))
}

/// TLS library that a process has mapped.
fn library(pid: u32) -> Option<String> {
    let maps = proc_file(&format!("/proc/{pid}/maps"), LONGEST).ok()?;
    let text = String::from_utf8_lossy(&maps);
    text.lines().filter_map(|line| line.rsplit('/').next()).find_map(|name| {
        let is_tls = LIBRARIES.iter().any(|library| name.starts_with(library));
        is_tls.then(|| name.to_owned())
    })
}
