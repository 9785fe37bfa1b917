//! Addresses of IP as they stand in memory. Pure.

use super::numbers::{AF_INET, AF_INET6, AF_UNIX};

const V4: usize = 16;
const V6: usize = 28;
/// The kernel takes an IPv6 address without its scope.
const SHORTEST_V6: usize = 24;
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
const LOOPBACK: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

/// An address of IP with its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    pub is_v4: bool,
    /// One of IPv4 is mapped.
    pub ip: [u8; 16],
    pub port: u16,
}

impl Address {
    /// None for what the kernel would refuse, and for other families.
    pub fn parse(bytes: &[u8]) -> Option<Address> {
        let family = i32::from(u16::from_ne_bytes(*bytes.first_chunk()?));
        let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
        if family == AF_INET && bytes.len() >= V4 {
            let mut ip = [0; 16];
            ip[..12].copy_from_slice(&MAPPED);
            ip[12..].copy_from_slice(bytes.get(4..8)?);
            Some(Address { is_v4: true, ip, port })
        } else if family == AF_INET6 && bytes.len() >= SHORTEST_V6 {
            Some(Address { is_v4: false, ip: *bytes.get(8..)?.first_chunk()?, port })
        } else {
            None
        }
    }

    pub fn is_mapped(&self) -> bool {
        self.ip.starts_with(&MAPPED)
    }

    pub fn is_loopback(&self) -> bool {
        self.ip == LOOPBACK || self.is_mapped() && self.ip[12] == 127
    }

    pub fn is_any(&self) -> bool {
        let rest = if self.is_mapped() { &self.ip[12..] } else { &self.ip[..] };
        rest.iter().all(|byte| *byte == 0)
    }

    /// 127.0.0.1, ::1 or ::ffff:127.0.0.1.
    pub fn loopback(is_v4: bool, is_mapped: bool, port: u16) -> Address {
        let mut ip = LOOPBACK;
        if is_v4 || is_mapped {
            ip[..12].copy_from_slice(&MAPPED);
            ip[12] = 127;
        }
        Address { is_v4, ip, port }
    }

    /// 0.0.0.0 or ::.
    pub fn any(is_v4: bool, port: u16) -> Address {
        let mut ip = [0; 16];
        if is_v4 {
            ip[..12].copy_from_slice(&MAPPED);
        }
        Address { is_v4, ip, port }
    }

    /// Its bytes, and how many they are.
    pub fn bytes(&self) -> ([u8; V6], usize) {
        let mut bytes = [0; V6];
        let family = if self.is_v4 { AF_INET } else { AF_INET6 };
        bytes[..2].copy_from_slice(&(family as u16).to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.port.to_be_bytes());
        if self.is_v4 {
            bytes[4..8].copy_from_slice(&self.ip[12..]);
            return (bytes, V4);
        }
        bytes[8..24].copy_from_slice(&self.ip);
        (bytes, V6)
    }
}

/// The address of a Unix socket with this `sun_path`, and its length.
pub fn unix(path: &[u8]) -> ([u8; 110], usize) {
    let mut bytes = [0; 110];
    let length = path.len().min(108);
    bytes[..2].copy_from_slice(&(AF_UNIX as u16).to_ne_bytes());
    bytes[2..2 + length].copy_from_slice(&path[..length]);
    (bytes, 2 + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_its_bytes() {
        for (is_v4, is_mapped) in [(true, false), (false, false), (false, true)] {
            for address in [Address::loopback(is_v4, is_mapped, 258), Address::any(is_v4, 258)] {
                let (bytes, length) = address.bytes();
                assert_eq!(Address::parse(&bytes[..length]), Some(address));
                assert_eq!(address.is_any(), !address.is_loopback());
            }
        }
        let v4 = Address::loopback(true, false, 258).bytes();
        assert_eq!(v4.0[..v4.1], [2, 0, 1, 2, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn what_the_kernel_refuses_is_no_address() {
        let (v4, _) = Address::loopback(true, false, 1).bytes();
        let (v6, _) = Address::loopback(false, false, 1).bytes();
        assert!(Address::parse(&v6[..24]).is_some());
        for short in [&v4[..15], &v4[..3], &v4[..1], &v4[..0], &v6[..23], &[0; 128], &[1; 16]] {
            assert_eq!(Address::parse(short), None);
        }
    }

    #[test]
    fn a_path_is_ended_by_its_length() {
        let (bytes, length) = unix(b"/a\0");
        assert_eq!(bytes[..length], [1, 0, b'/', b'a', 0]);
        assert_eq!(unix(&[7; 200]).1, 110);
    }
}
