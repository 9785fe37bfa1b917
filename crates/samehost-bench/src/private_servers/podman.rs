//! A private server in a container of podman: its port published by one of podman's networks, and its socket in a volume
//! that this machine shares.
//!
//! No image is needed, and no registry: the container's root is an empty directory in which this machine's programs and
//! libraries are mounted, read-only (`--rootfs`). So a server inside is the same program as one outside.
//!
//! Nothing of it may stay, and conmon, which watches a container, leaves its parent on purpose. So podman runs in a
//! process namespace, whose end ends all in it, and in a mount namespace, with which all mounts go. Its state is in the
//! server's directory. /run is empty in there: otherwise podman's networks would have firewalld open the machine's
//! firewall, over D-Bus. The interfaces and the rules of the packet filter are in the measurement's network namespace.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use samehost_system::peer::family;

use super::installed_or;
use super::{Account, PrivateDirectory, Supervision};
use crate::error::BenchError;
use crate::parameters::words;

words! {
    /// Where a private server runs: on this machine, or in a container on one of podman's networks.
    pub(crate) enum Place {
        Machine = "machine",
        /// The network of this machine: nothing is published.
        Host = "podman-host",
        /// A bridge; the packet filter rewrites addresses.
        Bridge = "podman-bridge",
        /// rootlesskit's proxy passes the bytes on, as for containers of an ordinary user with podman 3 and 4.
        Rootlesskit = "podman-rootlesskit",
        /// slirp4netns passes the bytes on through a TCP of its own.
        Slirp4netns = "podman-slirp4netns",
    }
}

/// Directory of the volume, as the server in the container sees it.
pub(crate) const VOLUME: &str = "/volume";
/// The same, in the server's directory on this machine.
const SHARED: &str = "volume";
/// Port inside a container that has a network of its own.
pub(crate) const PORT: u16 = 7000;

/// Directories of this machine that podman and its network drivers write to, or find other services in.
const HIDDEN: &[&str] = &["/run", "/var/lib", "/dev/shm"];
/// Directories of programs and libraries. Most are links to others in /usr.
const PROGRAMS: &[&str] = &["usr", "bin", "sbin", "lib", "lib32", "lib64"];
/// The first process of the namespaces: it takes over what loses its parent. crun refuses a machine with control groups of
/// both versions, also where it is to make none; so those of version 2 are not seen in there, where there are others.
const FIRST: &str = r#"set -e
for hidden in $HIDDEN; do mount -t tmpfs none "$hidden"; done
unset HIDDEN
umount /sys/fs/cgroup/unified 2>/dev/null || :
"$@"
exit $?"#;
const INSTEAD: &str = "measure a container that already runs with --tcp and --unix";

/// Distinguishes the containers on a bridge: each has an address of its own.
static NUMBER: AtomicU32 = AtomicU32::new(0);

pub(crate) struct ContainerSpec<'a> {
    pub(crate) name: &'static str,
    pub(crate) program: &'a Path,
    /// Its arguments; paths are those inside.
    pub(crate) arguments: &'a [String],
    pub(crate) port: u16,
}

impl Place {
    pub(crate) fn is_container(self) -> bool {
        self != Place::Machine
    }

    /// Whether a process stands between a published port and the server.
    pub(crate) fn has_proxy(self) -> bool {
        matches!(self, Place::Rootlesskit | Place::Slirp4netns)
    }

    fn network(self) -> &'static str {
        match self {
            Place::Machine | Place::Host => "host",
            Place::Bridge => "bridge",
            Place::Rootlesskit => "slirp4netns:port_handler=rootlesskit",
            Place::Slirp4netns => "slirp4netns:port_handler=slirp4netns",
        }
    }

    /// Where the server listens inside, for a port outside.
    pub(crate) fn listens(self, port: u16) -> (&'static str, u16) {
        if matches!(self, Place::Machine | Place::Host) { ("127.0.0.1", port) } else { ("0.0.0.0", PORT) }
    }

    /// What publishes the port, for the report; podman's version included.
    ///
    /// # Errors
    /// When podman is not installed.
    pub(crate) fn described(self) -> Result<String, BenchError> {
        let by = match self {
            Place::Machine => return Ok("no container".into()),
            Place::Host => "the machine's network".into(),
            Place::Bridge => format!("a bridge of {} and DNAT", backend()),
            Place::Rootlesskit => "slirp4netns, ports by rootlesskit".into(),
            Place::Slirp4netns => "slirp4netns, ports by itself".to_owned(),
        };
        Ok(format!("{}: {by}", version(&podman()?)))
    }

    /// Checks that a container can be started here.
    ///
    /// # Errors
    /// When a program is missing, or the user may not.
    pub(crate) fn check(self) -> Result<(), BenchError> {
        if !self.is_container() {
            return Ok(());
        }
        podman()?;
        tool("crun", "crun")?;
        if self.has_proxy() {
            tool("slirp4netns", "slirp4netns")?;
        }
        if self == Place::Bridge {
            // netavark and CNI say only that a file is not there.
            tool("iptables", "iptables")?;
        }
        if rustix::process::geteuid().is_root() {
            return Ok(());
        }
        Err(BenchError::NotPermitted {
            what: "starting a private container",
            reason: "podman runs in namespaces of its own, so that nothing of it stays, and those take root"
                .into(),
            try_next: "run this as root, or measure a container that already runs with --tcp and --unix",
        })
    }
}

fn tool(program: &str, package: &'static str) -> Result<PathBuf, BenchError> {
    installed_or(&[program], package, INSTEAD)
}

fn podman() -> Result<PathBuf, BenchError> {
    tool("podman", "podman")
}

/// `podman 4.3.1`.
fn version(podman: &Path) -> String {
    let version =
        Command::new(podman).arg("--version").output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&version).trim().replacen("version ", "", 1)
}

/// What makes podman's bridges: netavark where it is installed, the plugins of CNI before podman 4.
fn backend() -> &'static str {
    let folders =
        ["/usr/libexec/podman", "/usr/lib/podman", "/usr/local/libexec/podman", "/usr/local/lib/podman"];
    let is_there = folders.iter().any(|folder| Path::new(folder).join("netavark").exists());
    if is_there { "netavark" } else { "cni" }
}

/// A directory for a container's state and volume.
///
/// # Errors
/// When it cannot be made, or podman could not see it.
pub(super) fn directory() -> Result<PrivateDirectory, BenchError> {
    let directory = PrivateDirectory::for_data("podman", "its state", 1 << 20)?;
    if HIDDEN.iter().any(|hidden| directory.path().starts_with(hidden)) {
        return Err(BenchError::Path {
            path: directory.path().to_owned(),
            reason: "a private container has another directory there; set TMPDIR to a directory on a disk"
                .into(),
        });
    }
    Ok(directory)
}

/// Makes the volume with a file in it, both of `account`; the volume's path on this machine.
///
/// # Errors
/// When that fails.
pub(super) fn volume(
    directory: &PrivateDirectory,
    file: (&str, &str),
    account: Option<Account>,
) -> Result<PathBuf, BenchError> {
    let path = directory.path().join(SHARED);
    let making = |error| BenchError::io(format!("making {}", path.display()), error);
    fs::DirBuilder::new().mode(0o700).create(&path).map_err(making)?;
    directory.write(&format!("{SHARED}/{}", file.0), file.1)?;
    if let Some(account) = account {
        for owned in [path.join(file.0), path.clone()] {
            lchown(&owned, Some(account.uid), Some(account.gid)).map_err(making)?;
        }
    }
    Ok(path)
}

/// # Errors
/// When a program is missing, or the container's root cannot be made.
pub(super) fn supervision(
    program: &Path,
    place: Place,
    spec: &ContainerSpec<'_>,
    account: Option<Account>,
    directory: &PrivateDirectory,
) -> Result<Supervision, BenchError> {
    let podman = podman()?;
    let root = directory.path();
    directory.write("containers.conf", &configuration(root))?;
    let mut command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]
        .map(String::from)
        .to_vec();
    command.extend(["/bin/sh", "-c", FIRST, "samehost-container"].map(String::from));
    command.push(podman.display().to_string());
    command.extend(state(root));
    command.extend(run(place, spec, account, root));
    command.extend(mounts(root).map_err(|error| BenchError::io("making a container's root", error))?);
    command.extend(["--rootfs".into(), root.join("root").display().to_string()]);
    command.push(spec.program.display().to_string());
    command.extend(spec.arguments.iter().cloned());
    let name = format!("{} in a container", spec.name);
    let mut supervision = Supervision::new(program, &name, None, command).ended_at_once();
    let path = std::env::var("PATH").unwrap_or_default();
    supervision.variables = vec![
        ("CONTAINERS_CONF".into(), root.join("containers.conf").display().to_string()),
        ("HIDDEN".into(), HIDDEN.join(" ")),
        // Networks need iptables, which an ordinary PATH lacks.
        ("PATH".into(), format!("{path}:/usr/sbin:/sbin")),
    ];
    Ok(supervision)
}

/// podman's settings; those of this machine are not read.
fn configuration(root: &Path) -> String {
    format!(
        "[engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"none\"\nruntime = \"crun\"\n\
         [network]\nnetwork_backend = \"{}\"\nnetwork_config_dir = \"{}/networks\"\n",
        backend(),
        root.display()
    )
}

fn state(root: &Path) -> Vec<String> {
    let below = |name: &str| root.join(name).display().to_string();
    let mut words: Vec<String> = Vec::new();
    for (option, value) in
        [("--root", below("store")), ("--runroot", below("runroot")), ("--tmpdir", below("tmp"))]
    {
        words.extend([option.to_owned(), value]);
    }
    words.extend(["--storage-driver", "vfs", "--log-level", "error"].map(String::from));
    words
}

/// `podman run` with the network and what the server may do.
fn run(place: Place, spec: &ContainerSpec<'_>, account: Option<Account>, root: &Path) -> Vec<String> {
    // A control group of its own would be made in the machine's tree, and stay.
    let mut words: Vec<String> =
        ["run", "--cgroups=disabled", "--log-driver=passthrough", "--read-only", "--cap-drop=all"]
            .map(String::from)
            .to_vec();
    words.extend(["--security-opt=no-new-privileges", "--security-opt=label=disable"].map(String::from));
    words.extend(["--ulimit=host".into(), format!("--network={}", place.network())]);
    if place != Place::Host {
        words.push(format!("--publish=127.0.0.1:{}:{PORT}", spec.port));
    }
    if place == Place::Bridge {
        words.push(format!("--ip={}", address(NUMBER.fetch_add(1, Ordering::Relaxed))));
    }
    if let Some(account) = account {
        words.push(format!("--user={account}"));
    }
    words.push(format!("--volume={}:{VOLUME}", root.join(SHARED).display()));
    words
}

/// An address of podman's usual network. Each podman of a measurement has state of its own, and would give the first one.
fn address(number: u32) -> String {
    format!("10.88.{}.{}", 1 + number / 200 % 200, 10 + number % 200)
}

/// Makes a root directory with this machine's links to programs and libraries; the directories are mounted.
fn mounts(root: &Path) -> std::io::Result<Vec<String>> {
    let made = root.join("root");
    fs::create_dir(&made)?;
    // Whatever the umask: the server's account enters it.
    fs::set_permissions(&made, fs::Permissions::from_mode(0o755))?;
    let mut words = Vec::new();
    for name in PROGRAMS {
        let path = Path::new("/").join(name);
        match fs::read_link(&path) {
            Ok(target) => symlink(target, made.join(name))?,
            Err(_) if path.is_dir() => words.push(format!("--volume=/{name}:/{name}:ro")),
            Err(_) => {}
        }
    }
    Ok(words)
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Inside {
    /// The server's own.
    pub(crate) server: Vec<u32>,
    /// Those that pass its bytes on.
    pub(crate) proxies: Vec<u32>,
}

impl Inside {
    pub(crate) fn find(started: u32, program: &Path) -> Self {
        let wanted = identity(program);
        let mut inside = Inside::default();
        for pid in family(started) {
            if wanted.is_some() && identity(&proc(pid, "exe")) == wanted {
                inside.server.push(pid);
            }
            if is_proxy(pid) {
                inside.proxies.push(pid);
            }
        }
        inside
    }
}

fn is_proxy(pid: u32) -> bool {
    let name = fs::read_to_string(proc(pid, "comm")).unwrap_or_default();
    ["rootlessport", "slirp4netns"].iter().any(|known| name.starts_with(known))
}

fn proc(pid: u32, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{file}"))
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_publishes_on_the_loopback_only_and_has_no_privileges() {
        let spec =
            ContainerSpec { name: "redis", program: Path::new("/usr/bin/redis"), arguments: &[], port: 7777 };
        for place in [Place::Bridge, Place::Rootlesskit, Place::Slirp4netns] {
            let words =
                run(place, &spec, Some(Account { uid: 60_600, gid: 60_600 }), Path::new("/var/tmp/x"));
            for word in [
                "--publish=127.0.0.1:7777:7000",
                "--cap-drop=all",
                "--user=60600:60600",
                "--cgroups=disabled",
            ] {
                assert!(words.iter().any(|given| given == word), "{word} in {words:?}");
            }
            assert_eq!(words.iter().any(|word| word.starts_with("--ip=")), place == Place::Bridge);
        }
        let words = run(Place::Host, &spec, None, Path::new("/var/tmp/x"));
        assert!(!words.iter().any(|word| word.starts_with("--publish")), "{words:?}");
    }

    #[test]
    fn containers_on_a_bridge_have_addresses_of_their_own() {
        let mut all: Vec<String> = (0..1000).map(address).collect();
        assert_eq!((all[0].as_str(), all[200].as_str()), ("10.88.1.10", "10.88.2.10"));
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 1000);
    }
}
