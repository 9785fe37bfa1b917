//! Who has an address already that a server is to take. The kernel says who listens there, and the configurations that
//! are known say who will: Redis and memcached remove a socket that they find at their path, whoever listens there, so a
//! server that takes another's path takes its clients as well.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::fs::Metadata;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use samehost_edit::{Files, Role};
use samehost_model::Endpoint;
use samehost_model::scan::{Scan, Socket};
use samehost_scan::{described, holders_of, services_at};
use samehost_services::Kind;
use samehost_system::proc::unit_or_container;
use samehost_system::{accounts, lookup, ownership};
use samehost_transport::{ConnectError, ConnectOptions, connect};

use super::server::Server;
use crate::configuration::{ConfigFile, ParsedConfig};
use crate::configuration::{server_files, units};
use crate::disk::{Disk, Reads};
use crate::findings::shown;
use crate::place::real;
use crate::request::SwitchRequest;

/// Time limit for the question whether anybody answers at a socket's file that no process here is known to hold.
const PROBE: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Occupant {
    /// A program listens there, or will when its file is put back.
    #[error("{who} listens there")]
    Listens {
        /// Service, process, user and program.
        who: String,
    },
    /// Another site or pool of the same process.
    #[error("{who} listens there for another of its sites")]
    AnotherSite { who: String },
    /// A configuration names it, whether or not its program runs.
    #[error("{name} ({place}) names it")]
    Named { name: String, place: String },
    /// Somebody answers, and no process that can be seen from here.
    #[error("somebody listens there whom no process here shows")]
    Unseen,
    /// A file that is not a socket.
    #[error("a file is there that is not a socket")]
    File,
    /// A socket's file that nobody listens at now.
    #[error("a socket's file of {owner} is there, of a server that is down now or has left it behind")]
    Down { owner: String },
    /// Somebody who bound the name of the new socket as well, and whose file it is no more.
    #[error("{who} bound this name meanwhile as well, and one of the two has lost it")]
    Twice { who: String },
    /// The name of the new socket after the reload of its server.
    #[error("no listener that is known has the file there")]
    Lost,
}

/// What decides about a destination beside the setting itself.
pub(crate) struct Surroundings<'a> {
    pub(crate) request: &'a SwitchRequest,
    pub(crate) scan: &'a Scan,
    /// The configurations that were read so far.
    pub(crate) configurations: &'a [ParsedConfig],
    /// Where other servers will be.
    pub(crate) taken: &'a [&'a Endpoint],
    /// The configurations by which servers run, read once for a plan: a pg_hba.conf of 20 kB read them for each of its 650 lines.
    pub(crate) known: &'a OnceCell<Vec<ParsedConfig>>,
}

impl Surroundings<'_> {
    pub(crate) fn is_taken(&self, path: &Path) -> bool {
        self.taken.iter().any(|to| to.path() == Some(path))
    }
}

/// Who has this address beside the server that is to take it; `None` where it is free.
///
/// Redis and memcached remove what they find at their socket's path, so a second Redis got the path of
/// the first, whose clients then read and wrote its data, and the login that followed was called the
/// proof. The kernel is asked by device and inode and by the bound name, for the plan and again right
/// before the write. Comparing what two servers answer was rejected (two empty Redis answer alike), and
/// so was a login tied to account and program, which two servers of one package share
/// (docs/decisions/0129).
pub(crate) fn occupant(around: &Surroundings<'_>, server: &Server, endpoint: &Endpoint) -> Option<Occupant> {
    let listener = listener(around.scan, server, endpoint);
    if listener.is_some() { listener } else { named(around, server, endpoint) }
}

/// Who listens at an address, or has bound its name; `None` where it is free or the server's own.
pub(crate) fn listener(scan: &Scan, server: &Server, endpoint: &Endpoint) -> Option<Occupant> {
    match endpoint {
        Endpoint::Unix(path) => {
            let root = ownership::root_of(server.pid);
            let mut found = at_path(scan, server, path, Path::new("/"));
            if found.is_none() && root != Path::new("/") {
                // The server may see another file under this name than we do.
                found = at_path(scan, server, path, &root);
            }
            match found {
                Some(Occupant::Down { .. }) if has_name_in_its_file(scan, server, endpoint) => None,
                found => found,
            }
        }
        Endpoint::Tcp { host, port } => at_port(scan, server, host, *port),
        _ => None,
    }
}

fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// The directory and the name of a path: two names for one place agree in both.
fn place(root: &Path, path: &Path) -> Option<(u64, u64, PathBuf)> {
    let folder = std::fs::metadata(below(root, path.parent()?)).ok()?;
    Some((folder.dev(), folder.ino(), path.file_name()?.into()))
}

/// Who has a path below a root directory: a listener whose file this is, by device and inode; one that bound the name, also
/// where its file has gone; or a file that is not a socket.
fn at_path(scan: &Scan, server: &Server, path: &Path, root: &Path) -> Option<Occupant> {
    let wanted = place(root, path);
    let file = std::fs::symlink_metadata(below(root, path)).ok();
    for socket in scan.sockets.iter().filter(|socket| has_name(socket)) {
        let is_its_file = matches!(&file, Some(file) if is_file_of(socket, file));
        let is_it = is_its_file || wanted.is_some() && place_of(socket) == wanted;
        if is_it && let Some(found) = another(scan, server, socket) {
            return Some(found);
        }
    }
    let file = file?;
    if !file.file_type().is_socket() {
        return Some(Occupant::File);
    }
    let is_own = scan.sockets.iter().any(|socket| has_name(socket) && is_file_of(socket, &file));
    if is_own {
        return None;
    }
    // Its holder may be in a process table that is not visible from here.
    if root == Path::new("/") && answers(path) {
        return Some(Occupant::Unseen);
    }
    let owner = accounts::user_name(file.uid()).unwrap_or_else(|| format!("user {}", file.uid()));
    Some(Occupant::Down { owner })
}

/// Whether the server's own configuration has it listen at a path: a socket's file there is one that it left behind.
///
/// A file that nobody answers at was called free before, and a server that was only down for a restart found its name
/// taken, and its clients at another server. Nobody but the server's own file or process says that it is the server's.
fn has_name_in_its_file(scan: &Scan, server: &Server, endpoint: &Endpoint) -> bool {
    for path in own_files(scan, server) {
        let Ok(Some(config)) = ConfigFile::at(&path, None) else { continue };
        let Ok(read) = config.read() else { continue };
        let mut listens = read.reading.settings.iter().filter(|setting| setting.role == Role::Listens);
        if listens.any(|setting| is_same_place(&setting.endpoint, endpoint)) {
            return true;
        }
    }
    false
}

/// What is wrong with the name of a server's new socket after its reload; `None` where the file at the path is that of a
/// listener, and nobody else has bound the name. Servers remove what they find at their path, so that who comes second
/// has the clients of the first, and neither of them says so.
pub(crate) fn without_its_name(scan: &Scan, server: &Server, path: &Path) -> Option<Occupant> {
    let root = Path::new("/");
    let wanted = place(root, path)?;
    let file = std::fs::symlink_metadata(path).ok();
    let (mut at_the_file, mut replaced): (Vec<&Socket>, Vec<&Socket>) = Default::default();
    for socket in scan.sockets.iter().filter(|socket| has_name(socket)) {
        if matches!(&file, Some(file) if is_file_of(socket, file)) {
            at_the_file.push(socket);
        } else if place_of(socket).as_ref() == Some(&wanted) {
            replaced.push(socket);
        }
    }
    // A listener in another table of processes is not to be seen; that nothing is there, or another's file, is.
    if at_the_file.is_empty() && (file.is_none() || !replaced.is_empty()) {
        return Some(Occupant::Lost);
    }
    for socket in replaced {
        // The server as it was before its reload may still end.
        let is_ending = socket.pids.iter().any(|pid| server.has_process(*pid));
        let is_same = at_the_file.iter().any(|other| other.pids.iter().any(|pid| socket.pids.contains(pid)));
        if !is_ending && !is_same && !socket.pids.is_empty() {
            return Some(Occupant::Twice { who: holder_of(scan, socket)? });
        }
    }
    None
}

/// Whether a Unix socket takes connections or datagrams at a path. A connected one has its listener's name.
fn has_name(socket: &Socket) -> bool {
    socket.kind.is_unix() && socket.is_listening() && socket.local.path().is_some()
}

fn is_file_of(socket: &Socket, file: &Metadata) -> bool {
    match socket.file {
        Some(known) => known.device == file.dev() && known.has_inode(file.ino()),
        None => false,
    }
}

/// Where the name of a socket leads the process that bound it, also where its file has gone.
fn place_of(socket: &Socket) -> Option<(u64, u64, PathBuf)> {
    let (path, holder) = (socket.local.path()?, *socket.pids.first()?);
    if path.is_absolute() {
        return place(&ownership::root_of(Some(holder)), path);
    }
    let directory = std::fs::read_link(format!("/proc/{holder}/cwd")).ok()?;
    place(Path::new("/"), &directory.join(path))
}

/// Whether anybody answers at a socket's file. Only one without a listener refuses; a full queue, another type of
/// socket and missing permissions all have one.
fn answers(path: &Path) -> bool {
    let options = ConnectOptions { timeout: Some(PROBE), ..ConnectOptions::default() };
    !matches!(
        connect(&Endpoint::Unix(path.to_owned()), &options),
        Err(ConnectError::Refused { .. } | ConnectError::NotFound { .. } | ConnectError::NotASocket { .. })
    )
}

/// The listener whose address would be in the way of one at this host and port, in the server's network namespace.
fn at_port(scan: &Scan, server: &Server, host: &str, port: u16) -> Option<Occupant> {
    let own = scan.network_namespaces.iter().find(|space| space.own).map(|space| space.inode);
    let namespace = server.network.or(own);
    let wanted = match host.parse::<IpAddr>() {
        Ok(ip) => vec![ip],
        Err(_) => lookup::addresses(host),
    };
    for socket in &scan.sockets {
        let Some(local) = socket.local.inet() else { continue };
        let is_there = socket.kind.is_tcp()
            && socket.is_listening()
            && local.port() == port
            && namespace.is_none_or(|namespace| namespace == socket.network_namespace)
            && wanted.iter().any(|ip| overlap(*ip, local));
        if is_there && let Some(found) = another(scan, server, socket) {
            return Some(found);
        }
    }
    None
}

/// Whether a listener at this address would take connections to that one, or the other way round.
fn overlap(wanted: IpAddr, local: SocketAddr) -> bool {
    let (wanted, local) = (wanted.to_canonical(), local.ip().to_canonical());
    wanted == local || wanted.is_unspecified() || local.is_unspecified()
}

/// Who listens at a server's new place and is not that server: a process that was another service's when the switch was
/// planned, or one of another program. `None` where it is the server, or nobody who listens can be seen.
pub(crate) fn stranger(scan: &Scan, server: &Server, endpoint: &Endpoint) -> Option<Occupant> {
    for at in services_at(scan, endpoint) {
        let service = scan.services.get(at)?;
        for holder in holders_of(scan, service) {
            let is_strange = server.was_anothers(&holder) || is_another_program(scan, server, holder.pid);
            if is_strange && !server.has_process(holder.pid) {
                return Some(Occupant::Listens { who: described(scan, service) });
            }
        }
    }
    None
}

/// Whether a process runs another file than the server did. Of one that did not run, or was not visible, nothing is known.
fn is_another_program(scan: &Scan, server: &Server, pid: u32) -> bool {
    let Some(process) = scan.process(pid) else { return false };
    let (Some(now), Some(before)) = (&process.executable, &server.executable) else { return false };
    before.trim_end_matches(" (deleted)") != now.trim_end_matches(" (deleted)")
}

/// Who holds a listening socket that the server must not take; `None` where it is the server's own.
fn another(scan: &Scan, server: &Server, socket: &Socket) -> Option<Occupant> {
    let is_own = socket.pids.iter().any(|pid| server.has_process(*pid));
    if is_own && !server.has_several_sites() {
        return None;
    }
    let Some(who) = holder_of(scan, socket) else { return Some(Occupant::Unseen) };
    Some(if is_own { Occupant::AnotherSite { who } } else { Occupant::Listens { who } })
}

/// Who holds a socket, in words.
fn holder_of(scan: &Scan, socket: &Socket) -> Option<String> {
    let at = scan.sockets.iter().position(|other| std::ptr::eq(other, socket))?;
    let service = scan.services.iter().find(|service| service.listeners.contains(&at));
    match (service, scan.process(socket.pids.first().copied().unwrap_or_default())) {
        (Some(service), _) => Some(described(scan, service)),
        (None, process) => process.map(|process| format!("{} {}", process.name, process.pid)),
    }
}

/// The line of a configuration that names an address for a listener, of another program than this server: a file that
/// the user named, one by which a service runs, or one where a service's package has it.
fn named(around: &Surroundings<'_>, server: &Server, endpoint: &Endpoint) -> Option<Occupant> {
    let Surroundings { scan, configurations, known, .. } = around;
    let own_files = own_files(scan, server);
    let mut seen: Vec<PathBuf> = own_files.clone();
    for read in *configurations {
        if seen.contains(&read.config.file) && !server.has_several_sites() {
            continue;
        }
        seen.push(read.config.file.clone());
        if let Some(found) = line(read, server, endpoint) {
            return Some(found);
        }
    }
    let mut others = known.get_or_init(|| known_configurations(scan)).iter();
    let found = others.find_map(|read| {
        let is_new = !seen.contains(&read.config.file);
        line(read, server, endpoint).filter(|_| is_new)
    });
    found.or_else(|| named_by_a_unit(server, endpoint.path()?))
}

/// The unit of another server that gives it this path on its command line, whether it runs or not.
fn named_by_a_unit(server: &Server, path: &Path) -> Option<Occupant> {
    let own = server.pid.and_then(unit_or_container);
    let written = units::written();
    let mut others = written.iter().filter(|unit| Some(&unit.name) != own.as_ref());
    others.find_map(|unit| {
        let mut servers = unit.servers();
        let (_, _, place) = servers.find(|(_, words, _)| words.iter().any(|word| Path::new(word) == path))?;
        Some(Occupant::Named { name: unit.name.clone(), place })
    })
}

/// The configurations of the server itself: what they name is its own.
fn own_files(scan: &Scan, server: &Server) -> Vec<PathBuf> {
    if server.has_several_sites() {
        return Vec::new();
    }
    let mut files: Vec<PathBuf> = server.named.iter().map(|(config, _)| config.file.clone()).collect();
    if let Some(service) = server.service(scan) {
        files.extend(server_files::of(scan, service));
    }
    files
}

/// How many files beside one that a package brings are looked at: `/etc/redis/redis-shop.conf`.
const MAX_BESIDE: usize = 64;

/// The configurations by which services run, those that packages bring, those beside them, and those that units name: a server that
/// is stopped has its path all the same, and takes it from whoever has it as it starts.
fn known_configurations(scan: &Scan) -> Vec<ParsedConfig> {
    let mut files: Vec<(Option<Kind>, PathBuf)> = Vec::new();
    for service in &scan.services {
        let its = server_files::of(scan, service).into_iter().find(|path| path.exists());
        files.extend(its.map(|path| (service.kind, path)));
    }
    let mut mains: Vec<(Kind, PathBuf)> = Vec::new();
    for kind in Kind::all() {
        let its = kind.descriptor().main_files.iter().map(PathBuf::from);
        mains.extend(its.filter(|path| path.exists()).map(|path| (kind, path)));
    }
    files.extend(mains.iter().map(|(kind, path)| (Some(*kind), path.clone())));
    for unit in units::written().iter() {
        let named = unit.servers().map(|(kind, words, _)| (Some(kind), server_files::named_by(kind, &words)));
        files.extend(named.filter_map(|(kind, file)| Some((kind, file?))));
    }
    for (kind, main) in &mains {
        files.extend(alike_beside(main, *kind).into_iter().map(|path| (Some(*kind), path)));
    }
    let mut all: Vec<ParsedConfig> = Vec::new();
    let mut known: BTreeSet<PathBuf> = BTreeSet::new();
    // What one of them includes is its own, whatever it is called.
    for (kind, path) in files {
        if !known.insert(real(&path)) {
            continue;
        }
        let Ok(Some(config)) = ConfigFile::run_by(&path, kind) else { continue };
        let Ok(read) = config.read() else { continue };
        known.extend(read.paths(&read.config.files()).iter().map(|path| real(path)));
        all.push(read);
    }
    all
}

/// The files of the same kind beside one that a package brings.
fn alike_beside(main: &Path, kind: Kind) -> Vec<PathBuf> {
    let folder = server_files::folder(main);
    let listed = Disk::of(main, Reads::RootsServer, None).list(folder).unwrap_or_default();
    let alike = |path: &PathBuf| path.extension() == main.extension() && path.is_file();
    let mut found: Vec<PathBuf> = listed.into_iter().filter(alike).take(MAX_BESIDE).collect();
    found.retain(|path| {
        let config = ConfigFile::at(path, None).ok().flatten();
        config.and_then(|config| config.kind()).map(Kind::family) == Some(kind.family())
    });
    found
}

/// A listener of a configuration at an address. That of the very line that moves does not count.
fn line(read: &ParsedConfig, server: &Server, endpoint: &Endpoint) -> Option<Occupant> {
    let own = server.named.as_ref().map(|(_, line)| line);
    for setting in read.reading.settings.iter().filter(|setting| setting.role == Role::Listens) {
        if Some(setting) == own || !is_same_place(&setting.endpoint, endpoint) {
            continue;
        }
        return Some(Occupant::Named {
            name: setting.name.clone(),
            place: format!("{}:{}", shown(&setting.file), setting.line),
        });
    }
    None
}

pub(crate) fn is_same_place(one: &Endpoint, other: &Endpoint) -> bool {
    match (one, other) {
        (Endpoint::Unix(one), Endpoint::Unix(other)) => {
            let (one_place, other_place) = (place(Path::new("/"), one), place(Path::new("/"), other));
            one == other || (one_place.is_some() && one_place == other_place)
        }
        (Endpoint::Tcp { host: one, port: at }, Endpoint::Tcp { host: other, port }) => {
            let alike = match (one.parse::<IpAddr>(), other.parse::<IpAddr>()) {
                (Ok(one), Ok(other)) => overlap(one, SocketAddr::new(other, *port)),
                _ => one == other,
            };
            at == port && alike
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use samehost_model::Protocol;
    use samehost_scan::Trusted;

    use super::*;

    fn unknown_server(scan: &Scan) -> Server {
        Server::of(scan, None, Protocol::Redis, Trusted::default())
    }

    #[test]
    fn who_listens_at_a_path_is_found_by_its_file_and_by_its_name() {
        fn listener_of(path: &Path) -> Option<Occupant> {
            let scan = samehost_scan::collect("test").unwrap();
            listener(&scan, &unknown_server(&scan), &Endpoint::Unix(path.to_owned()))
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.sock");
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(directory.path(), &link).unwrap();
        assert_eq!(listener_of(&path), None, "nothing is there");
        let listening = UnixListener::bind(&path).unwrap();
        for name in [&path, &link.join("s.sock")] {
            assert!(matches!(listener_of(name), Some(Occupant::Listens { .. })), "{}", name.display());
        }
        std::fs::remove_file(&path).unwrap();
        assert!(
            matches!(listener_of(&path), Some(Occupant::Listens { .. })),
            "its file has gone, its name is taken"
        );
        drop(listening);
        assert_eq!(listener_of(&path), None, "a name without a file");
        drop(UnixListener::bind(&path).unwrap());
        let left = listener_of(&path);
        assert!(matches!(left, Some(Occupant::Down { .. })), "somebody's who is down: {left:?}");
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        assert_eq!(listener_of(&path), Some(Occupant::File));
    }

    #[test]
    fn a_port_is_taken_by_whoever_would_be_in_its_way() {
        let listening = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
        let port = listening.local_addr().unwrap().port();
        let scan = samehost_scan::collect("test").unwrap();
        for host in ["127.0.0.1", "0.0.0.0", "127.0.0.5", "localhost"] {
            let endpoint = Endpoint::Tcp { host: host.into(), port };
            let found = listener(&scan, &unknown_server(&scan), &endpoint);
            assert!(matches!(found, Some(Occupant::Listens { .. })), "{host}: {found:?}");
        }
        drop(listening);
        let only = std::net::TcpListener::bind("127.0.0.3:0").unwrap();
        let port = only.local_addr().unwrap().port();
        let scan = samehost_scan::collect("test").unwrap();
        for (host, is_taken) in [("127.0.0.3", true), ("0.0.0.0", true), ("127.0.0.1", false)] {
            let endpoint = Endpoint::Tcp { host: host.into(), port };
            let found = listener(&scan, &unknown_server(&scan), &endpoint);
            assert_eq!(found.is_some(), is_taken, "{host}: {found:?}");
        }
    }
}
