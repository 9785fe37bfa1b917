//! The library that programs preload, as bytes, with the maps written into it; and what it counted. The library itself is
//! `library/`, which `build.rs` compiles without a standard library. It decides nothing about the maps.

mod layout;
#[cfg(all(test, target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[allow(dead_code, reason = "its functions are called by other programs, in the library that build.rs makes")]
mod library;

use std::net::{IpAddr, Ipv6Addr};

pub use layout::{Stay, port_of};

const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/preload.so"));

/// Length of the file in which the library counts, in bytes.
pub const COUNTERS: usize = layout::PAGE;

/// Whether whoever connects to the port, or whoever binds to it, gets the Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Connects,
    Listens,
}

/// A port of this machine and the Unix socket in its place.
#[derive(Clone, Debug)]
pub struct Entry {
    pub direction: Direction,
    /// Without one: every loopback address, and where a server binds, all addresses.
    pub address: Option<IpAddr>,
    pub port: u16,
    /// As it stands in `sun_path`: a path with a zero behind it, or a zero and an abstract name.
    pub socket: Vec<u8>,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum LibraryError {
    #[error("a preloaded library exists for x86_64 and aarch64 only")]
    Architecture,
    #[error("more than {0} maps are too many for the preloaded library")]
    Maps(usize),
    #[error("the path {0} is too long for the preloaded library: {max} bytes at most", max = layout::LONGEST_PATH - 1)]
    Path(String),
}

/// The library with these maps: the first that fits counts. It counts in the file `counters`, and leaves sockets of another
/// network namespace (SO_NETNS_COOKIE) alone.
pub fn library(entries: &[Entry], network: Option<u64>, counters: &str) -> Result<Vec<u8>, LibraryError> {
    let magic = layout::MAGIC;
    let at = LIBRARY.windows(magic.len()).position(|window| window == magic);
    let at = at.ok_or(LibraryError::Architecture)?;
    if entries.len() > layout::MOST_ENTRIES {
        return Err(LibraryError::Maps(layout::MOST_ENTRIES));
    }
    if counters.len() >= layout::LONGEST_PATH {
        return Err(LibraryError::Path(counters.into()));
    }
    let mut library = LIBRARY.to_vec();
    let config = &mut library[at..at + layout::SIZE];
    config[layout::NETWORK..][..8].copy_from_slice(&network.unwrap_or_default().to_ne_bytes());
    config[layout::COUNTERS..][..counters.len()].copy_from_slice(counters.as_bytes());
    for (entry, bytes) in entries.iter().zip(config[layout::ENTRIES..].chunks_exact_mut(layout::ENTRY)) {
        write(entry, bytes)?;
    }
    Ok(library)
}

fn write(entry: &Entry, bytes: &mut [u8]) -> Result<(), LibraryError> {
    let socket = &entry.socket;
    if socket.len() > layout::LONGEST_SOCKET {
        return Err(LibraryError::Path(String::from_utf8_lossy(socket).into_owned()));
    }
    bytes[layout::DIRECTION] = match entry.direction {
        Direction::Connects => layout::CONNECTS,
        Direction::Listens => layout::LISTENS,
    };
    if let Some(address) = entry.address {
        let address: Ipv6Addr = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        bytes[layout::HAS_ADDRESS] = 1;
        bytes[layout::ADDRESS..][..16].copy_from_slice(&address.octets());
    }
    bytes[layout::PORT..][..2].copy_from_slice(&entry.port.to_be_bytes());
    bytes[layout::SOCKET_LENGTH] = socket.len() as u8;
    bytes[layout::SOCKET..][..socket.len()].copy_from_slice(socket);
    Ok(())
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub over_unix: u64,
    /// How many stayed with TCP, by reason; reasons without any are left out.
    pub stayed: Vec<(Stay, u64)>,
    /// The last error of a Unix socket that did not answer.
    pub error: i32,
}

/// Reads the file in which the library counted: one entry for each map that there may be, in the order of the entries.
pub fn counted(file: &[u8]) -> Vec<Counted> {
    let number =
        |bytes: &[u8], at: usize| bytes[8 * at..].first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
    file.chunks_exact(8 * layout::NUMBERS)
        .map(|bytes| {
            let stayed = Stay::ALL.into_iter().map(|why| (why, number(bytes, why.number())));
            Counted {
                over_unix: number(bytes, layout::OVER_UNIX),
                stayed: stayed.filter(|(_, count)| *count > 0).collect(),
                error: number(bytes, layout::ERROR) as i32,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(socket: &[u8]) -> Entry {
        Entry { direction: Direction::Connects, address: None, port: 258, socket: socket.into() }
    }

    #[test]
    fn maps_are_written_into_the_library_and_nothing_else_is_changed() {
        let made = library(&[entry(b"/a\0")], Some(7), "/counters").expect("made");
        assert_eq!(made.len(), LIBRARY.len());
        let at = made.windows(32).position(|window| window == layout::MAGIC).expect("the place");
        let place = at..at + layout::SIZE;
        for (at, byte) in made.iter().enumerate() {
            assert!(*byte == LIBRARY[at] || place.contains(&at), "{at}");
        }
        let bytes = &made[at + layout::ENTRIES..];
        assert_eq!(bytes[..4], [1, 0, 1, 2]);
        assert_eq!(bytes[layout::SOCKET_LENGTH..][..4], [3, b'/', b'a', 0]);
    }

    #[test]
    fn what_is_too_much_is_refused() {
        let many = vec![entry(b"/a\0"); layout::MOST_ENTRIES + 1];
        assert_eq!(library(&many, None, ""), Err(LibraryError::Maps(layout::MOST_ENTRIES)));
        assert!(library(&[entry(&[b'a'; 109])], None, "").is_err());
        assert!(library(&[], None, &"a".repeat(256)).is_err());
    }

    #[test]
    fn what_was_counted_is_read() {
        let mut page = vec![0; COUNTERS];
        let second = 8 * layout::NUMBERS;
        page[second] = 3;
        page[second + 8 * Stay::Epoll.number()] = 2;
        let counted = counted(&page);
        assert_eq!(counted.len(), layout::MOST_ENTRIES);
        assert_eq!(counted[0], Counted::default());
        assert_eq!((counted[1].over_unix, &counted[1].stayed[..]), (3, &[(Stay::Epoll, 2)][..]));
    }

    /// It must load beside any C library: all that it wants of one is what every one has.
    #[test]
    fn the_library_wants_little_of_a_c_library() {
        let names = dynamic_names(LIBRARY);
        let wanted: Vec<&str> =
            names.iter().filter(|(_, is_defined)| !is_defined).map(|(name, _)| &**name).collect();
        let of_every = ["__errno_location", "memcpy", "memmove", "memset", "memcmp", "bcmp"];
        assert!(wanted.iter().all(|name| of_every.contains(name)), "{wanted:?}");
        let mut given: Vec<&str> =
            names.iter().filter(|(_, is_defined)| *is_defined).map(|(name, _)| &**name).collect();
        given.sort_unstable();
        let expected = [
            "accept", "accept4", "bind", "connect", "epoll_ctl", "getpeername", "getsockname", "getsockopt",
            "setsockopt", "socket",
        ];
        assert_eq!(given, expected);
        assert!(LIBRARY.len() < 60_000, "{} bytes", LIBRARY.len());
    }

    /// The names of a library's dynamic symbols, and whether it defines them.
    fn dynamic_names(elf: &[u8]) -> Vec<(String, bool)> {
        let number = |at: usize, length: usize| {
            elf[at..at + length].iter().rev().fold(0_usize, |sum, byte| sum << 8 | usize::from(*byte))
        };
        let (sections, count) = (number(40, 8), number(60, 2));
        let section = |at: usize| sections + 64 * at;
        // SHT_DYNSYM
        let symbols = (0..count).map(section).find(|at| number(at + 4, 4) == 11).expect("symbols");
        let strings = number(section(number(symbols + 40, 4)) + 24, 8);
        let (from, length) = (number(symbols + 24, 8), number(symbols + 32, 8));
        let entries = (from..from + length).step_by(24).skip(1);
        let string = |at: usize| {
            let name = &elf[strings + number(at, 4)..];
            let end = name.iter().position(|byte| *byte == 0).expect("an end");
            (String::from_utf8_lossy(&name[..end]).into_owned(), number(at + 6, 2) != 0)
        };
        entries.map(string).collect()
    }
}
