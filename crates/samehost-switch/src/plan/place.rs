//! Checks of paths and hosts.

use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use samehost_edit::{Refusal, Setting};
use samehost_model::switch::SwitchObstacle;
use samehost_model::{Endpoint, ObstacleCode, UNIX_PATH_MAX};
use samehost_scan::Trusted;
use samehost_system::ownership::View;
use samehost_system::{accounts, hosts, mounts};

use super::SwitchRequest;
use super::findings::bar;

/// A refusal in one line; the manual remedy is shown beside it.
pub(crate) fn in_one_line(refusal: &Refusal) -> String {
    let line = if refusal.line > 0 { format!(":{}", refusal.line) } else { String::new() };
    format!("{}{line}: {}", refusal.file.display(), refusal.reason)
}

/// A path without links; itself where it leads nowhere.
pub(crate) fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Whether a TCP endpoint is this machine's loopback.
pub(crate) fn is_local(endpoint: &Endpoint) -> bool {
    let Endpoint::Tcp { host, .. } = endpoint else { return false };
    if let Ok(ip) = host.parse::<IpAddr>() {
        return ip.to_canonical().is_loopback() || ip.is_unspecified();
    }
    let found = hosts::addresses(host);
    !found.is_empty() && found.iter().all(|ip| ip.to_canonical().is_loopback())
}

/// Whether a listener accepts connections of this machine only.
pub(crate) fn is_loopback(endpoint: &Endpoint) -> bool {
    let is_any_address = match endpoint {
        Endpoint::Tcp { host, .. } => host.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified()),
        _ => false,
    };
    is_local(endpoint) && !is_any_address
}

/// Whether two TCP endpoints may be the same listener: the same port, on hosts that loopback reaches.
pub(crate) fn same_port(one: &Endpoint, other: &Endpoint) -> bool {
    match (one, other) {
        (Endpoint::Tcp { port: one, .. }, Endpoint::Tcp { port: other, .. }) => one == other,
        _ => one == other,
    }
}

/// Users that the server of a setting may run as: the owners of the file with the setting and of the server's own file,
/// and the user given on the command line.
pub(crate) fn trusted(
    request: &SwitchRequest,
    setting: &Setting,
    named: Option<&Path>,
) -> Result<Trusted, SwitchObstacle> {
    let mut trusted = Trusted::default();
    for file in [Some(setting.file.as_path()), named].into_iter().flatten() {
        if let Ok(metadata) = std::fs::metadata(file) {
            trusted = trusted.or(metadata.uid());
        }
    }
    let Some(name) = &request.server_user else { return Ok(trusted) };
    match accounts::account(name) {
        Some(account) => Ok(trusted.or(account.uid)),
        None => Err(bar(
            ObstacleCode::ServerUser,
            format!("there is no user {name}"),
            "Name the one that the server runs as: --server-user NAME",
        )),
    }
}

/// Reason not to use a path as a new socket of a server with these users and groups; `None` if it is suitable.
pub(crate) fn unfit(path: &Path, users: &[u32], groups: &[u32]) -> Option<(String, String)> {
    let text = path.display();
    let length = path.as_os_str().len();
    if !path.is_absolute() {
        return Some((
            format!("{text} is not absolute"),
            "Name the whole path: --socket /run/NAME/NAME.sock".into(),
        ));
    }
    if length > UNIX_PATH_MAX {
        return Some((
            format!("{text} has {length} bytes, and a socket's address holds {UNIX_PATH_MAX}"),
            "Choose a shorter path: --socket /run/NAME/NAME.sock".into(),
        ));
    }
    if path.starts_with("/tmp") || path.starts_with("/var/tmp") {
        return Some((
            format!(
                "{text}: services with PrivateTmp= have a /tmp of their own, and anyone may put a file there"
            ),
            "Choose a directory of the service's: --socket /run/NAME/NAME.sock".into(),
        ));
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    if !folder.is_dir() {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        return Some((
            format!("the directory {} is not there", folder.display()),
            format!(
                "Have the service's unit make it (RuntimeDirectory={name}), or name another: --socket PATH"
            ),
        ));
    }
    let device = std::fs::metadata(folder).map(|metadata| metadata.dev()).unwrap_or_default();
    if let Some(share) = mounts::share(device, None) {
        return Some((
            share.refusal(folder),
            "Choose a directory of this machine's own: --socket /run/NAME/NAME.sock".into(),
        ));
    }
    let view = View { root: "/".into(), users: users.to_vec(), groups: groups.to_vec() };
    if let Ok(Some(foreign)) = view.foreign_writer(folder) {
        return Some((
            format!("{text}: {foreign}, who could put a socket of his own there"),
            "Choose a directory that only root or the server's user writes: --socket /run/NAME/NAME.sock"
                .into(),
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_local() {
        for local in ["tcp:127.0.0.1:1", "tcp:[::1]:1", "tcp:127.1.2.3:1", "tcp:[::ffff:127.0.0.1]:1"] {
            assert!(is_local(&local.parse().unwrap()), "{local}");
        }
        for other in ["tcp:192.0.2.1:1", "unix:/x"] {
            assert!(!is_local(&other.parse().unwrap()), "{other}");
        }
    }

    #[test]
    fn a_listener_for_everybody_is_not_for_loopback_alone() {
        let endpoint = |text: &str| text.parse::<Endpoint>().unwrap();
        assert!(is_loopback(&endpoint("tcp:127.0.0.1:80")) && is_loopback(&endpoint("tcp:[::1]:80")));
        assert!(!is_loopback(&endpoint("tcp:0.0.0.0:80")) && !is_loopback(&endpoint("tcp:[::]:80")));
    }

    #[test]
    fn unfit_paths_say_what_to_do() {
        let long = format!("/run/{}", "x".repeat(120));
        for path in ["x.sock", "/tmp/x.sock", "/no/such/folder/x.sock", &long] {
            let (found, remedy) = unfit(Path::new(path), &[], &[]).unwrap();
            assert!(!found.is_empty() && !remedy.is_empty(), "{path}");
        }
        assert!(unfit(Path::new("/run/x.sock"), &[], &[]).is_none());
    }
}
