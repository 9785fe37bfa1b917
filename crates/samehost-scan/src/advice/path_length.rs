//! Blocker `path-length`: a path over 107 bytes does not fit into `sun_path`. A server can bind such a socket
//! by a relative path; clients that have the full path cannot connect.

use std::os::unix::ffi::OsStrExt;

use samehost_model::UNIX_PATH_MAX;
use samehost_model::scan::{Found, Weight};

use super::pair::Pair;
use super::{Finding, show};

pub(super) fn check(pair: &Pair<'_>) -> Option<Finding> {
    let path = pair.path()?;
    let length = path.as_os_str().as_bytes().len();
    if length <= UNIX_PATH_MAX {
        return None;
    }
    Some(Finding::new(
        Weight::Setting,
        Found::with(
            format!("{} is {length} bytes long", show(&path)),
            format!("a socket's address holds {UNIX_PATH_MAX}"),
        ),
        "Put the socket into a shorter folder, such as one below /run, or reach it by a symbolic link"
            .to_owned(),
    ))
}
