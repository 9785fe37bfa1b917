//! Routes of a network namespace by rtnetlink(7): the loopback's addresses with a congestion control. Changes
//! the namespace of the calling thread, so only [`super::OwnNetwork`] may call it, from inside its own.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use samehost_system::diag::attribute;

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
pub(super) fn request(kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
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

/// Sets the congestion control of new connections over the loopback, at both ends.
pub(super) fn set_congestion(name: &str) -> io::Result<()> {
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
