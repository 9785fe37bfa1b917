//! FIELD 11: TLS is dropped by the switch, or was what cost the time. Sure only where the kernel encrypts; else told
//! from the libraries that both ends have loaded.

use samehost_model::scan::Weight;
use samehost_system::open::proc_file;

use super::Finding;
use super::pair::Pair;

/// A process can map as much as it likes; servers have some ten thousand bytes of maps.
const LONGEST: u64 = 4 << 20;
/// Libraries that speak TLS.
const LIBRARIES: &[&str] = &["libssl", "libgnutls", "libmbedtls", "libnss3", "libwolfssl"];

pub(super) fn check(pair: &Pair<'_>) -> Option<Finding> {
    let sockets = pair.connections.iter().flat_map(|connection| [connection.client, connection.server]);
    let mut sockets = sockets.filter_map(|at| pair.scan.sockets.get(at));
    let remedy = "A Unix socket needs none, for it never leaves the machine; but a client that insists (sslmode=require, REQUIRE SSL) must be told";
    if sockets.any(|socket| socket.kernel_tls) {
        return Some((
            Weight::Setting,
            "the connection is encrypted (kernel TLS)".to_owned(),
            remedy.to_owned(),
        ));
    }
    let client = library(pair.client()?.pid)?;
    library(pair.server()?.pid)?;
    Some((
        Weight::Note,
        format!("both ends have a TLS library loaded ({client}), so the connection may be encrypted"),
        format!("Look at the cipher of both: samehost verify. {remedy}"),
    ))
}

/// The TLS library that a process has mapped.
fn library(pid: u32) -> Option<String> {
    let maps = proc_file(&format!("/proc/{pid}/maps"), LONGEST).ok()?;
    let text = String::from_utf8_lossy(&maps);
    text.lines().filter_map(|line| line.rsplit('/').next()).find_map(|name| {
        let is_tls = LIBRARIES.iter().any(|library| name.starts_with(library));
        is_tls.then(|| name.to_owned())
    })
}
