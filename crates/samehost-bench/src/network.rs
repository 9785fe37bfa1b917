//! A network namespace of our own, with the loopback as its only interface and no other users. A server that
//! accepts every client may listen on a TCP port there, but on none of the machine's.
//!
//! Root can make one directly. An ordinary user needs a user namespace first, which only a process with a
//! single thread can enter: [`prepare`] does that before a command starts any thread.

use samehost_system::threads;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use nix::sched::{CloneFlags, unshare};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use samehost_model::{Code, Warning};
use samehost_system::diag::attribute;
use samehost_system::nowhere;

use crate::error::BenchError;
use crate::machine::network_settings;

/// The network that a measurement's private servers need.
/// FastCGI has no login: whoever reaches a private PHP-FPM's port can run any code as its user. So such a
/// server listens in a network namespace of its own, which a thread of the measurement enters. One for
/// every private server was rejected, because the host's packet filter would be out of the path, and it
/// is part of what is measured; memcached and the web servers give away only our own test data
/// (docs/decisions/0064).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// The network of this process: reaching the servers gives no privilege.
    Shared,
    /// A namespace with the servers and us. The text is what can be measured without one.
    Own(&'static str),
    /// The same, for its routes, which set the congestion control.
    OwnRoutes,
    /// The same, for the interfaces and the rules that containers need.
    OwnContainers,
    /// A namespace for a server behind a Unix socket, while we and other servers stay outside.
    OwnBehind(&'static str),
}

/// rtnetlink request that sets an interface up.
const RTM_NEWLINK: u16 = 16;
/// Why this process of an ordinary user has no user namespace.
static DENIED: OnceLock<String> = OnceLock::new();
/// Hidden verb with which this program tries, in another process, whether it may.
const TRY: &str = "try-own-network";

#[derive(Debug)]
pub struct OwnNetwork {
    namespace: File,
    /// Settings that differ from those outside and could not be changed: name, outside, inside.
    differing: Vec<(String, String, String)>,
}

impl OwnNetwork {
    /// Makes a network namespace with the settings of the current one.
    ///
    /// # Errors
    /// When the kernel does not permit it; `instead` is what can be measured then.
    pub(crate) fn new(instead: &'static str) -> Result<Self, BenchError> {
        let outside = network_settings();
        let made = threads::apart(|| make(&outside)).map_err(io::Error::from).and_then(|made| made);
        made.map_err(|error| BenchError::NoOwnNetwork { reason: reason(&error), instead })
    }

    /// Runs `work` inside, in a new thread: threads and processes that it starts are inside too.
    ///
    /// # Errors
    /// When the namespace cannot be entered.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, BenchError> {
        let what = "entering a network of our own";
        let enter_and_work = || {
            move_into_link_name_space(self.namespace.as_fd(), Some(LinkNameSpaceType::Network))
                .map(|()| work())
        };
        let entered =
            threads::apart(enter_and_work).map_err(|error| BenchError::io(what, io::Error::from(error)))?;
        entered.map_err(BenchError::during(what))
    }

    /// Sets the congestion control of new TCP connections inside, at both ends, by routes. The machine's
    /// routes are not touched, because this runs inside.
    ///
    /// # Errors
    /// When the kernel does not have it.
    pub(crate) fn set_congestion(&self, name: &str) -> Result<(), BenchError> {
        self.inside(|| set_congestion(name))?.map_err(|error| {
            BenchError::io(format!("setting the congestion control {name} in a network of our own"), error)
        })
    }

    pub(crate) fn warning(&self, network: Network) -> Warning {
        let what = match network {
            Network::OwnBehind(_) => "nginx and PHP-FPM's TCP port were in a network namespace of their own",
            _ => "servers and client were in a network namespace of their own, the same for every arm",
        };
        let why = match network {
            Network::OwnRoutes => "whose routes set the congestion control",
            Network::OwnContainers => "so that podman's interfaces and rules were not the machine's",
            _ => "so that no other user reaches a PHP-FPM, which runs any script that it is asked for",
        };
        let mut message =
            format!("{what}, {why}: the host's packet filter and connection tracking were not in the path");
        if !self.differing.is_empty() {
            let each: Vec<String> = self
                .differing
                .iter()
                .map(|(name, outside, inside)| format!("{name} is {inside} there and {outside} on the host"))
                .collect();
            message.push_str(&format!("; {}", each.join(", ")));
        }
        Warning::new(Code::OwnNetwork, "", message)
    }
}

/// Enters the user namespace that an ordinary user needs for a network namespace; his user id stays the same
/// in it. Root needs none. If that is denied, the measurement that needs it reports why.
///
/// # Errors
/// When the namespace was entered but the user id could not be mapped.
pub fn prepare(program: &Path) -> Result<(), BenchError> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    // A process cannot leave a user namespace that is of no use, so another process tries first.
    let tried = Command::new(program).arg(TRY).stdin(nowhere()).stdout(nowhere()).output();
    match tried {
        Ok(output) if output.status.success() => enter_user_namespace()
            .map_err(|error| BenchError::io("entering a user namespace of our own", error)),
        Ok(output) => {
            let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            let _ = DENIED.set(if stderr.is_empty() { format!("{}", output.status) } else { stderr });
            Ok(())
        }
        Err(error) => {
            let _ = DENIED.set(error.to_string());
            Ok(())
        }
    }
}

/// Does what [`prepare`] and then a measurement do, so that the hidden verb `try-own-network` can say in advance whether
/// this user may: a process cannot leave a user namespace that is of no use.
///
/// # Errors
/// What the kernel refuses.
pub fn try_own_network() -> io::Result<()> {
    enter_user_namespace()?;
    make(&BTreeMap::new()).map(|_| ())
}

fn enter_user_namespace() -> io::Result<()> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    // A joined thread may not have exited completely, and unshare needs a single thread: EINVAL is retried.
    let mut tries = 0;
    while let Err(errno) = unshare(CloneFlags::CLONE_NEWUSER) {
        tries += 1;
        if errno != nix::errno::Errno::EINVAL || tries > 100 {
            return Err(errno.into());
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))
}

fn make(outside: &BTreeMap<String, String>) -> io::Result<OwnNetwork> {
    unshare(CloneFlags::CLONE_NEWNET)?;
    raise_loopback()?;
    for (name, value) in outside {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        // Many settings apply to the whole machine and so are the same. Those that cannot be written are in
        // `differing`.
        if let Err(error) = fs::write(path, value) {
            tracing::debug!(%error, name, "stays as it is");
        }
    }
    let inside = network_settings();
    let mut differing = Vec::new();
    for (name, outside) in outside {
        if let Some(inside) = inside.get(name)
            && inside != outside
        {
            differing.push((name.clone(), outside.clone(), inside.clone()));
        }
    }
    Ok(OwnNetwork { namespace: File::open("/proc/thread-self/ns/net")?, differing })
}

/// Sets the loopback up: rtnetlink(7), RTM_NEWLINK of the first interface with IFF_UP.
fn raise_loopback() -> io::Result<()> {
    let mut message = Vec::with_capacity(16);
    // ifinfomsg: family, type, index, flags, the flags that change.
    message.extend([0; 4]);
    for word in [1_u32, 1, 1] {
        message.extend(word.to_ne_bytes());
    }
    request(RTM_NEWLINK, 0, &message)
}

/// Why no namespace could be made, as far as it can be found out, with what would help.
fn reason(error: &io::Error) -> String {
    if rustix::process::geteuid().is_root() {
        return format!(
            "root may not create a network namespace here ({error}), as in most containers; `--cap-add SYS_ADMIN` allows it"
        );
    }
    let setting = if is_set("kernel/unprivileged_userns_clone", "0") {
        "kernel.unprivileged_userns_clone is 0"
    } else if is_set("user/max_user_namespaces", "0") {
        "user.max_user_namespaces is 0"
    } else if is_set("user/max_net_namespaces", "0") {
        "user.max_net_namespaces is 0"
    } else if is_set("kernel/apparmor_restrict_unprivileged_userns", "1") {
        "kernel.apparmor_restrict_unprivileged_userns is 1"
    } else {
        "something here keeps ordinary users from having namespaces"
    };
    let kernel = DENIED.get().map_or_else(|| error.to_string(), Clone::clone);
    format!("{setting} ({kernel}); an administrator can change that, or run this as root")
}

fn is_set(name: &str, value: &str) -> bool {
    fs::read_to_string(format!("/proc/sys/{name}")).is_ok_and(|found| found.trim() == value)
}

// Routes of a network namespace by rtnetlink(7): the loopback's addresses with a congestion control. Changes
// the namespace of the calling thread, so only [`OwnNetwork`] may call it, from inside its own.

const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
/// `NLM_F_REQUEST | NLM_F_ACK`.
const ASKED: u16 = 0x5;
/// `NLM_F_CREATE | NLM_F_REPLACE`.
const IN_PLACE: u16 = 0x500;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const RT_TABLE_LOCAL: u8 = 255;
const RTPROT_KERNEL: u8 = 2;
const RTPROT_STATIC: u8 = 4;
const RT_SCOPE_HOST: u8 = 254;
const RTN_LOCAL: u8 = 2;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
const RTAX_CC_ALGO: u16 = 16;
/// The loopback is the first interface of every network namespace.
const LOOPBACK: u32 = 1;
/// Priority that the kernel gives an IPv6 route without one (`IP6_RT_PRIO_USER`).
const USUAL_PRIORITY: u32 = 1024;

/// Sends a request to rtnetlink; `body` is everything after the header.
fn request(kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
    // Protocol 0 of netlink is rtnetlink.
    let socket: OwnedFd =
        rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    // nlmsghdr: length, type, flags, sequence, port.
    let mut message = (16 + body.len() as u32).to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend((ASKED | flags).to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    rustix::net::sendto(&socket, &message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = [0; 1024];
    let (_, length) = rustix::net::recv(&socket, &mut answer[..], RecvFlags::empty())?;
    // nlmsgerr: the negated errno, or 0.
    match answer[..length.min(answer.len())].get(16..20).map(|word| [word[0], word[1], word[2], word[3]]) {
        Some([0, 0, 0, 0]) => Ok(()),
        Some(word) => Err(io::Error::from_raw_os_error(-i32::from_ne_bytes(word))),
        None => Err(io::Error::other("the kernel's answer about the loopback is too short")),
    }
}

fn set_congestion(name: &str) -> io::Result<()> {
    for prefix in [8, 32] {
        let network = if prefix == 8 { [127, 0, 0, 0] } else { [127, 0, 0, 1] };
        request(RTM_NEWROUTE, IN_PLACE, &ipv4(network, prefix, name))?;
    }
    match set_ipv6(name) {
        // A kernel without IPv6 has no such route.
        Err(error)
            if [Errno::AFNOSUPPORT, Errno::OPNOTSUPP, Errno::NODEV].iter().any(|one| is(&error, *one)) =>
        {
            Ok(())
        }
        other => other,
    }
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

/// Replaces the route to `::1`. The kernel's own cannot be replaced, as its priority 0 means "none" in a
/// request. So ours is added with a lower preference, and then the kernel's is deleted: there is always one.
fn set_ipv6(name: &str) -> io::Result<()> {
    request(RTM_NEWROUTE, IN_PLACE, &ipv6(RTPROT_STATIC, Some(name)))?;
    match request(RTM_DELROUTE, 0, &ipv6(RTPROT_KERNEL, None)) {
        Err(error) if is(&error, Errno::SRCH) => Ok(()),
        other => other,
    }
}

fn ipv4(network: [u8; 4], prefix: u8, congestion: &str) -> Vec<u8> {
    let mut body = head(AF_INET, prefix, RTPROT_KERNEL);
    body.extend(attribute(RTA_DST, &network));
    body.extend(attribute(RTA_OIF, &LOOPBACK.to_ne_bytes()));
    body.extend(attribute(RTA_PREFSRC, &[127, 0, 0, 1]));
    body.extend(metrics(congestion));
    body
}

fn ipv6(protocol: u8, congestion: Option<&str>) -> Vec<u8> {
    let mut body = head(AF_INET6, 128, protocol);
    body.extend(attribute(RTA_DST, &std::net::Ipv6Addr::LOCALHOST.octets()));
    body.extend(attribute(RTA_OIF, &LOOPBACK.to_ne_bytes()));
    if let Some(name) = congestion {
        body.extend(attribute(RTA_PRIORITY, &USUAL_PRIORITY.to_ne_bytes()));
        body.extend(metrics(name));
    }
    body
}

/// `struct rtmsg`.
fn head(family: u8, prefix: u8, protocol: u8) -> Vec<u8> {
    let mut head = vec![family, prefix, 0, 0, RT_TABLE_LOCAL, protocol, RT_SCOPE_HOST, RTN_LOCAL];
    head.extend([0; 4]);
    head
}

fn metrics(congestion: &str) -> Vec<u8> {
    let mut name = congestion.as_bytes().to_vec();
    name.push(0);
    attribute(RTA_METRICS, &attribute(RTAX_CC_ALGO, &name))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    const INSTEAD: &str = "something else";

    #[test]
    fn what_listens_there_is_reached_from_there_alone_as_root() {
        assert!(rustix::process::geteuid().is_root(), "needs root: run the tests as root");
        let network = OwnNetwork::new(INSTEAD).unwrap();
        let outside = network_settings();
        let (listener, inside) =
            network.inside(|| (TcpListener::bind("127.0.0.1:0").unwrap(), network_settings())).unwrap();
        let address = listener.local_addr().unwrap();
        assert!(TcpStream::connect(address).is_err());
        // A process that is started inside is inside too.
        let reached = network.inside(|| {
            let connect = format!("exec 3<>/dev/tcp/127.0.0.1/{}", address.port());
            TcpStream::connect(address).is_ok()
                && Command::new("bash").args(["-c", &connect]).status().unwrap().success()
        });
        assert!(reached.unwrap());
        for (name, value) in &inside {
            let is_reported = network.differing.iter().any(|(differing, _, _)| differing == name);
            assert!(is_reported || outside[name] == *value, "{name}");
        }
        let message = network.warning(Network::Own(INSTEAD)).message;
        assert!(message.contains("packet filter"), "{message}");
    }
}
