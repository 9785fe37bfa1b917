//! Where a connection goes: the endpoint at which its service listens already, else the one that it will have.

use std::path::{Path, PathBuf};

use samehost_edit::Setting;
use samehost_model::Endpoint;
use samehost_model::scan::{Scan, Service};
use samehost_model::switch::SwitchObstacle;
use samehost_scan::{accounts_of, services_at, socket_of};
use samehost_services::{Descriptor, Kind, UnixSocket};

use super::SwitchRequest;
use super::findings::bar;
use super::place::unfit;
use super::server::Server;

/// Where a connection goes.
pub(crate) struct Place {
    /// The endpoint.
    pub(crate) endpoint: Endpoint,
    /// Whether the service listens there now.
    pub(crate) listens: bool,
}

/// The socket that replaces a port: the existing one, or the one that the server will have. `taken`: sockets that other
/// servers will have.
pub(crate) fn unix_place(
    request: &SwitchRequest,
    scan: &Scan,
    server: &Server,
    setting: &Setting,
    taken: &[&Path],
) -> Result<Place, SwitchObstacle> {
    let port = match &setting.endpoint {
        Endpoint::Tcp { port, .. } => Some(*port),
        _ => None,
    };
    let present = match server.service.map(|at| socket_of(scan, at, port)).transpose() {
        Ok(present) => present.flatten(),
        // Another one may be asked for.
        Err(unsafe_socket) if request.socket.is_none() => {
            return Err(bar("socket-path", unsafe_socket.to_string(), unsafe_socket.remedy()));
        }
        Err(_) => None,
    };
    // The path on the command line is for one server; another one of the same switch keeps the socket that it has.
    let is_fit = |path: &PathBuf| {
        request.socket.as_ref().is_none_or(|wanted| wanted == path || taken.contains(&wanted.as_path()))
    };
    if let Some(path) = present.filter(is_fit) {
        return Ok(Place { endpoint: Endpoint::Unix(path), listens: true });
    }
    let known = server.kind.map(Kind::descriptor);
    if let Some(UnixSocket::Never(why)) = known.map(Descriptor::unix) {
        return Err(bar("server", format!("it cannot listen on a Unix socket: {why}"), ""));
    }
    let usual = known.map(|known| PathBuf::from(&known.socket)).filter(|path| path.is_absolute());
    let Some(path) = request.socket.clone().or(usual) else {
        return Err(bar(
            "server",
            format!("what listens at {} has no Unix socket, and none is known for it", setting.endpoint),
            "Have it listen on one, and name it: --socket /run/NAME/NAME.sock",
        ));
    };
    let named = server.named.as_ref();
    let path = named.map_or(path.clone(), |(config, setting)| config.editor.socket(setting, &path));
    let path = free(taken, path, port);
    let (users, groups) = match server.service(scan) {
        Some(service) => samehost_scan::users(scan, service),
        None => (server.kind.map_or_else(Vec::new, accounts_of), Vec::new()),
    };
    if let Some((found, remedy)) = unfit(&path, &users, &groups) {
        return Err(bar("socket-path", found, remedy));
    }
    Ok(Place { endpoint: Endpoint::Unix(path), listens: false })
}

/// The port that replaces a socket: the existing one, or the one that the server will have.
pub(crate) fn tcp_place(
    request: &SwitchRequest,
    scan: &Scan,
    server: &Server,
    setting: &Setting,
) -> Result<Place, SwitchObstacle> {
    let found = server.service(scan);
    let sockets =
        found.into_iter().flat_map(|service| &service.listeners).filter_map(|at| scan.sockets.get(*at));
    let mut addresses: Vec<std::net::SocketAddr> =
        sockets.filter(|socket| socket.kind.is_tcp()).filter_map(|socket| socket.local.inet()).collect();
    // The usual port first, and IPv4 first, as most clients use it.
    let usual = found.and_then(|service| service.kind).map_or(&[][..], |kind| &kind.descriptor().ports);
    addresses.sort_by_key(|address| (!usual.contains(&address.port()), address.is_ipv6(), address.port()));
    let Some(address) = addresses.first() else {
        return new_port(request, scan, found, setting);
    };
    let host = match address.ip() {
        ip if ip.is_unspecified() && ip.is_ipv4() => "127.0.0.1".to_owned(),
        ip if ip.is_unspecified() => "::1".to_owned(),
        ip => ip.to_canonical().to_string(),
    };
    Ok(Place { endpoint: Endpoint::Tcp { host, port: address.port() }, listens: true })
}

/// The port that the user named, or the usual one, for a service that listens on none. Its own configuration has to
/// change then.
fn new_port(
    request: &SwitchRequest,
    scan: &Scan,
    service: Option<&Service>,
    setting: &Setting,
) -> Result<Place, SwitchObstacle> {
    let kind = service.and_then(|service| service.kind);
    let usual = kind.and_then(|kind| kind.descriptor().ports.first().copied());
    let usual = usual.map(|port| Endpoint::Tcp { host: "127.0.0.1".into(), port });
    let found = match request.address.clone().or(usual) {
        Some(endpoint) if services_at(scan, &endpoint).is_empty() => {
            return Ok(Place { endpoint, listens: false });
        }
        Some(endpoint) => format!("another program listens at {endpoint}"),
        None => "no usual port is known for it".to_owned(),
    };
    Err(bar(
        "server",
        format!("what listens at {} has no TCP port, and {found}", setting.endpoint),
        "Name a free one: --address 127.0.0.1:PORT",
    ))
}

/// The path, or another if a server beside this one gets it: two servers of one kind need two sockets.
fn free(taken: &[&Path], path: PathBuf, port: Option<u16>) -> PathBuf {
    if !taken.contains(&path.as_path()) {
        return path;
    }
    PathBuf::from(format!("{}.{}.sock", path.with_extension("").display(), port.unwrap_or_default()))
}
