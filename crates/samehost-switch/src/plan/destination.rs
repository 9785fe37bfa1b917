//! Where a connection goes: the endpoint at which its service listens already, else the one that it will have.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use samehost_edit::Setting;
use samehost_model::scan::Scan;
use samehost_model::switch::SwitchObstacle;
use samehost_model::{Endpoint, ObstacleCode, UNIX_PATH_MAX};
use samehost_scan::{accounts_of, proposed_for, services_at, socket_of};
use samehost_services::{Kind, UnixSocket, socket_by_port};
use samehost_system::mounts;
use samehost_system::ownership::View;

use super::client::identity::ClientIdentity;
use super::occupant::{Occupant, Surroundings, occupant};
use super::server::Server;
use crate::findings::bar;
use crate::place::same_port;
use crate::request::SwitchRequest;

pub(crate) struct Place {
    pub(crate) endpoint: Endpoint,
    /// Whether the service listens there now.
    pub(crate) listens: bool,
}

/// The socket that replaces a port: the existing one, or the one that the server will have. With a note where another
/// name than the usual one is taken.
pub(crate) fn unix_place(
    around: &Surroundings<'_>,
    server: &Server,
    setting: &Setting,
) -> Result<(Place, Option<String>), SwitchObstacle> {
    let Surroundings { request, scan, .. } = around;
    let port = match &setting.endpoint {
        Endpoint::Tcp { port, .. } => Some(*port),
        _ => None,
    };
    if let Some(path) = present(around, server, setting, port)? {
        return Ok((Place { endpoint: Endpoint::Unix(path), listens: true }, None));
    }
    if let Some(kind) = server.kind
        && let UnixSocket::Never(why) = kind.descriptor().unix()
    {
        return Err(bar(ObstacleCode::Server, format!("it cannot listen on a Unix socket: {why}"), ""));
    }
    let Some(path) = proposed(request, scan, server, setting, port) else {
        return Err(bar(
            ObstacleCode::Server,
            format!("what listens at {} has no Unix socket, and none is known for it", setting.endpoint),
            "Have it listen on one, and name it: --socket /run/NAME/NAME.sock",
        ));
    };
    let (path, note) = free(around, server, setting, path, port)?;
    Ok((Place { endpoint: Endpoint::Unix(path), listens: false }, note))
}

/// Refuses a path for a new socket that does not suit the server, or where somebody else could deceive these clients.
///
/// Who connects as the only user may own the directory as well: that one could deceive only itself. Debian gives /run/php to
/// www-data, nginx runs as it, and each pool of another user was refused there.
pub(crate) fn suits(
    scan: &Scan,
    server: &Server,
    place: &Place,
    clients: &[ClientIdentity],
) -> Result<(), SwitchObstacle> {
    let (Some(path), false) = (place.endpoint.path(), place.listens) else { return Ok(()) };
    let (mut users, groups) = match server.service(scan) {
        Some(service) => samehost_scan::users(scan, service),
        None => (server.kind.map(accounts_of).unwrap_or_default(), Vec::new()),
    };
    let connecting: BTreeSet<u32> = clients.iter().map(|client| client.identity.uid).collect();
    if connecting.len() == 1 {
        users.extend(connecting);
    }
    match unfit(path, &users, &groups) {
        Some((found, remedy)) => Err(bar(ObstacleCode::SocketPath, found, remedy)),
        None => Ok(()),
    }
}

/// The path that the user asks for, else the one that every verb proposes to this server at this port. A server that makes the
/// name from its port has the folder asked for.
fn proposed(
    request: &SwitchRequest,
    scan: &Scan,
    server: &Server,
    setting: &Setting,
    port: Option<u16>,
) -> Option<PathBuf> {
    let known = server.kind.map(Kind::descriptor);
    if let Some(asked) = &request.socket {
        let name = known.zip(port).and_then(|(known, port)| known.name_by_port(port));
        return Some(name.map_or_else(|| asked.clone(), |name| asked.with_file_name(name)));
    }
    let known = known.filter(|known| Path::new(&known.socket).is_absolute())?;
    let file = server.line(scan, setting).ok().map(|((_, line), _)| line.file);
    Some(proposed_for(scan, known, server.service(scan), port, file.as_deref()).into())
}

/// The socket at which the server listens already, and that leads to what its port leads to.
fn present(
    around: &Surroundings<'_>,
    server: &Server,
    setting: &Setting,
    port: Option<u16>,
) -> Result<Option<PathBuf>, SwitchObstacle> {
    let Surroundings { request, scan, .. } = around;
    let Some(at) = server.service else { return Ok(None) };
    if server.has_several_sites() {
        return Ok(of_the_same_site(around, server, setting, at));
    }
    if let Some(wanted) = &request.socket
        && services_at(scan, &Endpoint::Unix(wanted.clone())).contains(&at)
    {
        return Ok(Some(wanted.clone()));
    }
    let present = match socket_of(scan, at, port) {
        Ok(present) => present,
        // Another one may be asked for.
        Err(unsafe_socket) if request.socket.is_none() => {
            return Err(bar(ObstacleCode::SocketPath, unsafe_socket.to_string(), unsafe_socket.remedy()));
        }
        Err(_) => None,
    };
    match &request.socket {
        // It is to have the path on the command line, and not the one that it has.
        Some(wanted) if !around.is_taken(wanted) => Ok(None),
        // That path is for one server; another one of the same switch keeps the socket that it has.
        _ => Ok(present),
    }
}

/// The socket at which the same site listens, of a server that has several: its configuration says so, or the user does,
/// where no editor reads it.
fn of_the_same_site(
    around: &Surroundings<'_>,
    server: &Server,
    setting: &Setting,
    service: usize,
) -> Option<PathBuf> {
    let wanted = around.request.socket.as_deref().filter(|path| !around.is_taken(path));
    let Some(places) = places_of_the_site(around.scan, server, setting) else {
        let wanted = wanted?;
        return if listens(around.scan, service, wanted) { Some(wanted.to_owned()) } else { None };
    };
    for endpoint in places {
        let Some(path) = endpoint.path() else { continue };
        let is_wanted = wanted.is_none() || wanted == Some(path);
        if is_wanted && listens(around.scan, service, path) {
            return Some(path.to_owned());
        }
    }
    None
}

/// Where the server's own configuration has its site listen, loaded or not; `None` where no editor reads it.
fn places_of_the_site(scan: &Scan, server: &Server, setting: &Setting) -> Option<Vec<Endpoint>> {
    let ((config, line), _) = server.line(scan, setting).ok()?;
    Some(config.editor.same_site(&config.file, &config.files(), &line).unwrap_or_default())
}

fn listens(scan: &Scan, service: usize, path: &Path) -> bool {
    services_at(scan, &Endpoint::Unix(path.to_owned())).contains(&service)
}

/// The port that replaces a socket: the existing one, or the one that the server will have.
pub(crate) fn tcp_place(
    around: &Surroundings<'_>,
    server: &Server,
    setting: &Setting,
) -> Result<Place, SwitchObstacle> {
    let scan = around.scan;
    if server.has_several_sites() {
        // Its other ports are other sites', each with a user and files of its own.
        return match port_of_the_same_site(around, server, setting) {
            Some(endpoint) => Ok(Place { endpoint, listens: true }),
            None => new_port(around, server, setting),
        };
    }
    let mut addresses: Vec<SocketAddr> = Vec::new();
    let mut usual: &[u16] = &[];
    if let Some(found) = server.service(scan) {
        for socket in found.listeners.iter().filter_map(|at| scan.sockets.get(*at)) {
            if socket.kind.is_tcp() {
                addresses.extend(socket.local.inet());
            }
        }
        if let Some(kind) = found.kind {
            usual = &kind.descriptor().ports;
        }
    }
    // The usual port first, and IPv4 first, as most clients use it.
    addresses.sort_by_key(|address| (!usual.contains(&address.port()), address.is_ipv6(), address.port()));
    let Some(address) = addresses.first() else {
        return new_port(around, server, setting);
    };
    let host = match address.ip() {
        ip if ip.is_unspecified() && ip.is_ipv4() => "127.0.0.1".to_owned(),
        ip if ip.is_unspecified() => "::1".to_owned(),
        ip => ip.to_canonical().to_string(),
    };
    Ok(Place { endpoint: Endpoint::Tcp { host, port: address.port() }, listens: true })
}

/// The port at which the same site listens, of a server that has several.
fn port_of_the_same_site(around: &Surroundings<'_>, server: &Server, setting: &Setting) -> Option<Endpoint> {
    let service = server.service?;
    let mut ports = places_of_the_site(around.scan, server, setting)?.into_iter();
    ports.find(|one| matches!(one, Endpoint::Tcp { .. }) && services_at(around.scan, one).contains(&service))
}

/// How many ports from the usual one on are tried for a site of a server that has several.
const MAX_PORTS_TRIED: usize = 20;

/// The port that the user named, or the usual one or the next that is free, for a service that listens on none. Its own
/// configuration has to change then.
fn new_port(around: &Surroundings<'_>, server: &Server, setting: &Setting) -> Result<Place, SwitchObstacle> {
    let Surroundings { request, taken, .. } = around;
    let mut wanted: Vec<Endpoint> = request.address.iter().cloned().collect();
    if let (None, Some(kind)) = (&request.address, server.kind)
        && let Some(usual) = kind.descriptor().ports.first()
    {
        // Each site has its own.
        let tried = if server.has_several_sites() { MAX_PORTS_TRIED } else { 1 };
        let ports = (*usual..=u16::MAX).take(tried);
        wanted.extend(ports.map(|port| Endpoint::Tcp { host: "127.0.0.1".into(), port }));
    }
    let mut found = "no usual port is known for it".to_owned();
    for endpoint in wanted {
        if taken.iter().any(|other| same_port(other, &endpoint)) {
            found = format!("{endpoint} is another server's in this switch");
            continue;
        }
        match occupant(around, server, &endpoint) {
            None => return Ok(Place { endpoint, listens: false }),
            Some(occupant) => found = format!("{endpoint} is not free: {occupant}"),
        }
    }
    Err(bar(
        ObstacleCode::Server,
        format!("what listens at {} has no TCP port, and {found}", setting.endpoint),
        "Name a free one: --address 127.0.0.1:PORT",
    ))
}

/// The path, or another one where that is somebody else's: a server beside this one gets it in the same switch, or has
/// it, or will have it by its configuration. A path that the user named is refused then. With a note on who has it.
fn free(
    around: &Surroundings<'_>,
    server: &Server,
    setting: &Setting,
    path: PathBuf,
    port: Option<u16>,
) -> Result<(PathBuf, Option<String>), SwitchObstacle> {
    let Surroundings { request, scan, .. } = around;
    let by_port = by_port(server, &path, port);
    if around.is_taken(&path) {
        if around.is_taken(&by_port) {
            let found = format!("{} is another server's in this switch", by_port.display());
            let remedy =
                "Switch one first, and the other one to a path of its own: --socket /run/NAME/NAME.sock";
            return Err(bar(ObstacleCode::SocketPath, found, remedy));
        }
        return match occupant(around, server, &Endpoint::Unix(by_port.clone())) {
            None => Ok((by_port, None)),
            Some(occupant) => Err(not_free(&by_port, &occupant)),
        };
    }
    if is_of_its_site(scan, server, setting, &path) {
        return Ok((path, None));
    }
    let Some(found) = occupant(around, server, &Endpoint::Unix(path.clone())) else {
        return Ok((path, None));
    };
    let is_asked_for = request.socket.is_some();
    if is_asked_for || by_port == path || occupant(around, server, &Endpoint::Unix(by_port.clone())).is_some()
    {
        return Err(not_free(&path, &found));
    }
    let note = format!("{} is not free ({found}): {} is proposed instead", path.display(), by_port.display());
    Ok((by_port, Some(note)))
}

/// The path with the server's port in its name: the same where it has that already, or where the server makes the name itself.
fn by_port(server: &Server, path: &Path, port: Option<u16>) -> PathBuf {
    let port = port.unwrap_or_default();
    let is_own_name = server.kind.is_some_and(|kind| kind.descriptor().name_by_port(port).is_some());
    let has_port = path.file_stem().is_some_and(|stem| stem.to_string_lossy().ends_with(&format!(".{port}")));
    if is_own_name || has_port { path.to_owned() } else { socket_by_port(path, port) }
}

/// Whether the server's own configuration has its site listen at a path, loaded or not.
fn is_of_its_site(scan: &Scan, server: &Server, setting: &Setting, path: &Path) -> bool {
    let places = places_of_the_site(scan, server, setting).unwrap_or_default();
    places.iter().any(|endpoint| endpoint.path() == Some(path))
}

fn not_free(path: &Path, occupant: &Occupant) -> SwitchObstacle {
    bar(
        ObstacleCode::SocketPath,
        format!(
            "{} is not free: {occupant}. A server that takes it would take that one's clients",
            path.display()
        ),
        match occupant {
            Occupant::Down { .. } => {
                "Name a path that nobody uses: --socket /run/NAME/NAME.sock; or remove the file where no server of this machine, running or not, has it"
            }
            _ => "Name a path that nobody uses: --socket /run/NAME/NAME.sock",
        },
    )
}

/// Reason not to use a path as a new socket of a server with these users and groups, with the remedy; `None` if it is
/// suitable. A socket has the rights of its directory: who may write there could put one of his own in its place.
fn unfit(path: &Path, users: &[u32], groups: &[u32]) -> Option<(String, String)> {
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
    fn unfit_paths_say_what_to_do() {
        let long = format!("/run/{}", "x".repeat(120));
        for path in ["x.sock", "/tmp/x.sock", "/no/such/folder/x.sock", &long] {
            let (found, remedy) = unfit(Path::new(path), &[], &[]).unwrap();
            assert!(!found.is_empty() && !remedy.is_empty(), "{path}");
        }
        assert!(unfit(Path::new("/run/x.sock"), &[], &[]).is_none());
    }
}
