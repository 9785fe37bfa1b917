//! Blocker `driver`: drivers, and servers in front of others, without support for Unix sockets.

use std::path::Path;

use samehost_model::scan::Weight;
use samehost_services::Kind;

use super::Finding;
use super::pair::Pair;

pub(super) fn check(pair: &Pair<'_>) -> Option<Finding> {
    let client = pair.client()?;
    let program = client.executable.as_deref().map(Path::new).and_then(Path::file_name)?;
    let kind = program.to_str().and_then(Kind::of_program);
    if let Some(why) = kind.and_then(|kind| kind.descriptor().reaches_ports_only.as_ref()) {
        return Some(Finding::new(
            Weight::Blocks,
            why.clone(),
            "Put nginx, HAProxy, Caddy or Envoy in its place; or keep connections open and reuse them; or start it, as its \
             own user, under `samehost run`, which connects it over the socket"
                .to_owned(),
        ));
    }
    if program != "java" {
        return None;
    }
    Some(Finding::new(
        Weight::Setting,
        format!("{} is a Java program: its drivers know no Unix sockets by themselves", client.name),
        "Add junixsocket: socketFactory of Connector/J, MariaDB's localSocket, or socketFactory of pgjdbc; or start it under \
         `samehost run`, which connects it over the socket without that"
            .to_owned(),
    ))
}
