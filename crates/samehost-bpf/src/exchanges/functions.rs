//! Kernels before Linux 6.3, which have no tracepoints of sockets: sends and receives are seen to end where their functions return,
//! and bytes to arrive where `sock_def_readable` begins.
//!
//! The functions whose first argument is a `struct socket` have had the same arguments since 5.10; those below them have not
//! (`tcp_recvmsg` has 6, 5 and 4). Where the result stands follows from their number, which the kernel's types have: a constant would
//! read something else after the next change.
//!
//! A receive that was under way before its program was at its place is not seen to return, since it returns past it: an idle
//! server's first one. The tracepoints see it, and so are preferred wherever there are any.

use std::io::{self, ErrorKind};

use super::programs::{self, Arguments, Maps};
use super::{Asked, Loaded, Mode, Programs, SENDERS, Unavailable, entries, names, opened, unavailable};
use crate::memory::AnyAmount;
use crate::program::Place;
use crate::types::Types;

/// Functions that send pages: sendfile(2) and splice(2) to a socket end in them before Linux 6.5.
const PAGE_SENDERS: [&str; 2] = ["inet_sendpage", "unix_stream_sendpage"];
const RECEIVERS: [&str; 3] = ["inet_recvmsg", "inet6_recvmsg", "unix_stream_recvmsg"];
/// What sockets call when bytes are there for their owner.
const ARRIVAL: &str = "sock_def_readable";

/// The programs for a kernel without tracepoints of sockets. `missing` is what the kernel said of those.
pub(super) fn load(types: &Types, asked: &Asked, missing: io::Error) -> Result<Loaded, Unavailable> {
    let _any_amount = AnyAmount::of_locked_memory();
    let carried = asked.maps(types).map_err(unavailable).and_then(|maps| carried(types, maps));
    let refused = match carried {
        Ok(loaded) => return Ok(Loaded { refused: Some(missing), ..loaded }),
        Err(Unavailable::Rights(error)) => return Err(Unavailable::Rights(error)),
        Err(Unavailable::Kernel(error) | Unavailable::Refused(error) | Unavailable::Types(error)) => {
            joined(missing, error)
        }
    };
    if asked.are_new {
        // A socket has no cookie before somebody has asked for it.
        return Err(Unavailable::Kernel(refused));
    }
    match by_cookie(types, asked) {
        Ok(loaded) => Ok(Loaded { refused: Some(refused), ..loaded }),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(Unavailable::Kernel(joined(refused, error))),
        Err(error) => Err(Unavailable::Refused(joined(refused, error))),
    }
}

/// Programs that find what a socket carries (Linux 5.12).
fn carried(types: &Types, maps: Maps) -> Result<Loaded, Unavailable> {
    let sock = types.offset("socket", "sk").map_err(unavailable)?;
    let names = names(types, &maps, sock).map_err(unavailable)?;
    // With the rights for a walk, EPERM is about the place.
    let mut programs = at_functions(types, &maps, Mode::Functions, sock).map_err(Unavailable::Refused)?;
    opened(types, &maps, &mut programs).map_err(unavailable)?;
    Ok(Loaded { maps, mode: Mode::Functions, refused: None, names: Some(names), programs })
}

/// Programs that look for a socket by its cookie, which it has since somebody listed it (sock_diag): Linux 5.10, whose programs may
/// neither ask for a cookie nor for what a socket carries.
fn by_cookie(types: &Types, asked: &Asked) -> io::Result<Loaded> {
    let mut maps = asked.maps(types)?;
    let within = types.offset("sock", "__sk_common")?;
    maps.cookie_at = Some(within + types.offset("sock_common", "skc_cookie")?);
    let sock = types.offset("socket", "sk")?;
    let programs = at_functions(types, &maps, Mode::FunctionsByCookie, sock)?;
    Ok(Loaded { maps, mode: Mode::FunctionsByCookie, refused: None, names: None, programs })
}

fn at_functions(types: &Types, maps: &Maps, mode: Mode, sock: i16) -> io::Result<Programs> {
    let senders = [&SENDERS[..], &PAGE_SENDERS].concat();
    let mut programs = entries(types, maps, mode, &senders, sock)?;
    for name in senders {
        let Some(number) = number(types, name)? else { continue };
        let at = Arguments::of_function(sock, types.arguments(number)?);
        let instructions = programs::sent(maps, mode, at);
        programs.put(Place::Return, number, &instructions).map_err(|error| of(name, error))?;
    }
    for name in RECEIVERS {
        let Some(number) = number(types, name)? else { continue };
        let at = Arguments::of_function(sock, types.arguments(number)?);
        let instructions = programs::received(maps, mode, at);
        programs.put(Place::Return, number, &instructions).map_err(|error| of(name, error))?;
    }
    let arrival = types.function(ARRIVAL)?;
    let instructions = programs::arrived(maps, mode);
    programs.put(Place::Entry, arrival, &instructions).map_err(|error| of(ARRIVAL, error))?;
    Ok(programs)
}

/// The number of a function; `None` for one that this kernel may lack.
pub(super) fn number(types: &Types, name: &str) -> io::Result<Option<u32>> {
    let may_lack = name.starts_with("inet6_") || PAGE_SENDERS.contains(&name);
    match types.function(name) {
        Err(error) if may_lack && error.kind() == ErrorKind::NotFound => Ok(None),
        number => number.map(Some),
    }
}

/// What the kernel said of a program at this function.
pub(super) fn of(name: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{name}: {error}"))
}

/// Both errors, one after the other.
fn joined(first: io::Error, second: io::Error) -> io::Error {
    io::Error::new(second.kind(), format!("{first}; {second}"))
}
