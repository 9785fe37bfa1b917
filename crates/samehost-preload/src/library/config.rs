//! The maps of this copy of the library, and the page in which it counts.

use core::hint::black_box;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed};

use super::calls;
use super::label::Address;
use crate::layout::{self, Stay};

/// The command writes the maps over it, in a copy of the library. A variable was rejected: a program that clears its
/// environment keeps the maps, and nothing has to be read before the C library is ready (docs/decisions/0126).
#[cfg_attr(not(test), unsafe(link_section = ".data.samehost"))]
static CONFIG: [u8; layout::SIZE] = {
    let mut bytes = [0; layout::SIZE];
    let mut at = 0;
    while at < layout::MAGIC.len() {
        bytes[at] = layout::MAGIC[at];
        at += 1;
    }
    bytes
};

static PAGE: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());

/// The linker's list of functions that are called when the library is loaded.
#[cfg_attr(not(test), used, unsafe(link_section = ".init_array"))]
#[cfg_attr(test, allow(dead_code, reason = "a test is not preloaded"))]
static AT_LOAD: extern "C" fn() = map_page;

/// Early: a program that gives up its user may not open the file any more.
extern "C" fn map_page() {
    let path = &config()[layout::COUNTERS..layout::ENTRIES];
    if path[0] != 0
        && let Some(page) = calls::shared_page(path, layout::PAGE)
    {
        PAGE.store(page, Relaxed);
    }
}

/// What was written over it is not what the compiler saw.
fn config() -> &'static [u8; layout::SIZE] {
    black_box(&CONFIG)
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
}

/// SO_NETNS_COOKIE of the network namespace whose sockets are meant; zeros where the kernel does not tell.
pub fn network() -> [u8; 8] {
    number(config(), layout::NETWORK)
}

/// A port of this machine and the Unix socket in its place.
#[derive(Clone, Copy)]
pub struct Map {
    number: usize,
    entry: &'static [u8],
}

impl Map {
    fn all() -> impl Iterator<Item = Map> {
        let entries = config()[layout::ENTRIES..].chunks_exact(layout::ENTRY).enumerate();
        entries
            .take_while(|(_, entry)| entry[layout::DIRECTION] != 0)
            .map(|(number, entry)| Map { number, entry })
    }

    fn of(direction: u8, address: &Address) -> Option<Map> {
        Map::all().find(|map| {
            map.entry[layout::DIRECTION] == direction
                && map.port() == address.port
                && (map.entry[layout::HAS_ADDRESS] == 0
                    || number::<16>(map.entry, layout::ADDRESS) == address.ip)
        })
    }

    /// None for an address that is not a loopback one: it leads elsewhere.
    pub fn of_peer(address: &Address) -> Option<Map> {
        address.is_loopback().then(|| Map::of(layout::CONNECTS, address)).flatten()
    }

    pub fn of_server(address: &Address) -> Option<Map> {
        let is_here = address.is_loopback() || address.is_any();
        is_here.then(|| Map::of(layout::LISTENS, address)).flatten()
    }

    pub fn of_port(port: u16) -> Option<Map> {
        Map::all().find(|map| map.entry[layout::DIRECTION] == layout::LISTENS && map.port() == port)
    }

    pub fn any_listens() -> bool {
        Map::all().any(|map| map.entry[layout::DIRECTION] == layout::LISTENS)
    }

    pub fn port(&self) -> u16 {
        u16::from_be_bytes(number(self.entry, layout::PORT))
    }

    /// As it stands in `sun_path`: a path with a zero behind it, or a zero and an abstract name.
    pub fn socket(&self) -> &'static [u8] {
        let length = usize::from(self.entry[layout::SOCKET_LENGTH]);
        self.entry.get(layout::SOCKET..layout::SOCKET + length).unwrap_or_default()
    }

    pub fn is_abstract(&self) -> bool {
        self.socket().first() == Some(&0)
    }

    pub fn count(&self, what: usize) {
        if let Some(number) = self.at(what) {
            number.fetch_add(1, Relaxed);
        }
    }

    pub fn stays(&self, why: Stay) {
        self.count(why.number());
    }

    pub fn note(&self, what: usize, value: u64) {
        if let Some(number) = self.at(what) {
            number.store(value, Relaxed);
        }
    }

    fn at(&self, what: usize) -> Option<&'static AtomicU64> {
        let page = PAGE.load(Relaxed).cast::<u64>();
        if page.is_null() || self.number >= layout::MOST_ENTRIES || what >= layout::NUMBERS {
            return None;
        }
        let at = page.wrapping_add(self.number * layout::NUMBERS + what);
        // SAFETY: the page has that many numbers for each map, is never unmapped, and is written to by this function's callers only,
        // here and in other processes.
        Some(unsafe { AtomicU64::from_ptr(at) })
    }
}
