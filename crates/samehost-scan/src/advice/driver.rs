//! Blocker `driver`: drivers without support for Unix sockets.

use std::path::Path;

use samehost_model::scan::Weight;

use super::Finding;
use super::pair::Pair;

pub(super) fn check(pair: &Pair<'_>) -> Option<Finding> {
    let client = pair.client()?;
    let program = client.executable.as_deref().map(Path::new).and_then(Path::file_name)?;
    if program != "java" {
        return None;
    }
    Some((
        Weight::Setting,
        format!("{} is a Java program: its drivers know no Unix sockets by themselves", client.name),
        "Add junixsocket: socketFactory of Connector/J, MariaDB's localSocket, or socketFactory of pgjdbc"
            .to_owned(),
    ))
}
