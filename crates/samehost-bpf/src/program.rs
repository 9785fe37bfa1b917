//! Programs in the kernel that see what passes a tracepoint, or where a function begins or returns, or that walk through all open files
//! (`BPF_PROG_TYPE_TRACING`).

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsRawFd, OwnedFd};

use crate::call::{self, IteratorCreate, LinkCreate, ObjectInfo, ProgramLoad, TracepointOpen};
use crate::instruction::Instruction;

/// `BPF_PROG_TYPE_TRACING`.
const TRACING: u32 = 26;
/// The programs are under the project's licences, of which MIT is one, and under the GPL, version 2: the kernel lets only such
/// programs read its structures, and this text is how one says so.
const LICENSE: &std::ffi::CStr = c"Dual MIT/GPL";
/// Its name in lists of programs.
const NAME: &[u8; 16] = b"samehost\0\0\0\0\0\0\0\0";
/// Bytes of what the verifier may say.
const LOG: usize = 1 << 16;

/// What a program is attached to (`enum bpf_attach_type`). Its argument leads to those of the place, 64 bits each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// `BPF_TRACE_RAW_TP`; its number is that of [`crate::types::Types::tracepoint`].
    Tracepoint = 23,
    /// `BPF_TRACE_FENTRY`: where a function begins.
    Entry = 24,
    /// `BPF_TRACE_FEXIT`: where a function returns; its result stands behind its arguments.
    Return = 25,
    /// `BPF_TRACE_ITER`
    Iterator = 28,
}

/// Where `recursion_misses` is in `struct bpf_prog_info`.
const MISSES: usize = 208;

/// A loaded program.
#[derive(Debug)]
pub(crate) struct Program(OwnedFd);

/// A program that is at its place, until this is dropped.
#[derive(Debug)]
pub(crate) struct Attached {
    _link: OwnedFd,
}

impl Program {
    /// Loads a program for the place with this number among the kernel's types.
    ///
    /// # Errors
    /// EPERM without CAP_BPF and CAP_PERFMON, or where the kernel allows no program there; where the verifier refuses it, its
    /// last line.
    pub(crate) fn load(place: Place, number: u32, instructions: &[Instruction]) -> io::Result<Self> {
        let refused = match load(place, number, instructions, &mut []) {
            Ok(program) => return Ok(Program(program)),
            // It is not the verifier's, which says EACCES or EINVAL.
            Err(error) if is_eperm(&error) => return Err(error),
            Err(error) => error,
        };
        // To ask for the log makes the verifier slower, and one that has no room in it is an error of its own.
        let mut log = vec![0_u8; LOG];
        match load(place, number, instructions, &mut log) {
            Ok(program) => Ok(Program(program)),
            Err(_) => Err(quoted(refused, &log)),
        }
    }

    /// Sees from now on what passes its place.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn watch(&self) -> io::Result<Attached> {
        let argument = TracepointOpen { name: 0, program: self.0.as_raw_fd() as u32, reserved: 0 };
        // SAFETY: the argument is that of this command and has no pointers.
        let link = unsafe { call::open(call::TRACEPOINT_OPEN, &argument) }?;
        Ok(Attached { _link: link })
    }

    /// Runs a program of [`Place::Iterator`] once for each thing that there is.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn walk(&self) -> io::Result<()> {
        let argument = LinkCreate {
            program: self.0.as_raw_fd() as u32,
            target: 0,
            attached_as: Place::Iterator as u32,
            flags: 0,
            iterator: 0,
            iterator_bytes: 0,
            reserved: 0,
        };
        // SAFETY: the argument is that of this command and has no pointers.
        let link = unsafe { call::open(call::LINK_CREATE, &argument) }?;
        let argument = IteratorCreate { link: link.as_raw_fd() as u32, flags: 0 };
        // SAFETY: the argument is that of this command and has no pointers.
        let mut walk = File::from(unsafe { call::open(call::ITERATOR_CREATE, &argument) }?);
        let mut nothing = [0; 64];
        loop {
            match walk.read(&mut nothing) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                // After a million of things it lets others run.
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// How often it was left out because it ran already on that processor (Linux 5.12).
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn misses(&self) -> io::Result<u64> {
        let mut misses = [0; 8];
        misses.copy_from_slice(&self.info()?[MISSES..]);
        Ok(u64::from_ne_bytes(misses))
    }

    /// The beginning of its `struct bpf_prog_info`, up to the misses.
    fn info(&self) -> io::Result<[u8; MISSES + 8]> {
        let mut info = [0_u8; MISSES + 8];
        let argument = ObjectInfo {
            object: self.0.as_raw_fd() as u32,
            bytes: info.len() as u32,
            first: info.as_mut_ptr() as u64,
        };
        // SAFETY: the kernel writes at most as many bytes as are given, and nobody else has them.
        unsafe { call::bpf(call::OBJECT_INFO, &argument) }?;
        Ok(info)
    }

    /// The number by which the kernel lists it.
    #[cfg(test)]
    pub(crate) fn number(&self) -> u32 {
        let info = self.info().expect("it is loaded");
        u32::from_ne_bytes([info[4], info[5], info[6], info[7]])
    }
}

/// EPERM, which `std` does not tell from EACCES.
fn is_eperm(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EPERM)
}

/// Loads a program for a place, with what the verifier writes where there is room for it.
fn load(place: Place, number: u32, instructions: &[Instruction], log: &mut [u8]) -> io::Result<OwnedFd> {
    load_of_kind(TRACING, (place as u32, number), instructions, log)
}

/// Loads a program of a kind (`enum bpf_prog_type`), for a kind of place (`enum bpf_attach_type`) and the number of a type of the kernel's.
pub(crate) fn load_of_kind(
    kind: u32,
    (place, number): (u32, u32),
    instructions: &[Instruction],
    log: &mut [u8],
) -> io::Result<OwnedFd> {
    let argument = ProgramLoad {
        kind,
        instructions: instructions.len() as u32,
        first: instructions.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        log_level: u32::from(!log.is_empty()),
        log_bytes: log.len() as u32,
        log: if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 },
        kernel_version: 0,
        flags: 0,
        name: *NAME,
        interface: 0,
        attached_as: place,
        types: [0; 9],
        attached_to: number,
    };
    // SAFETY: the instructions, the text and the log live until this returns, with the lengths that are given; nobody else
    // has the log.
    unsafe { call::open(call::PROGRAM_LOAD, &argument) }
}

/// The error with the verifier's reason, which stands before its statistics.
fn quoted(error: io::Error, log: &[u8]) -> io::Error {
    let text = String::from_utf8_lossy(log);
    let mut lines = text.trim_end_matches(['\0', '\n']).lines().rev();
    match lines.find(|line| !line.starts_with("processed ") && !line.is_empty()) {
        Some(reason) => io::Error::new(error.kind(), format!("{error}: {reason}")),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instruction::{self, Register};
    use crate::types::Types;

    #[test]
    fn the_verifier_is_quoted_as_root() {
        let instructions = [instruction::copy(Register::R0, Register::R6), instruction::end()];
        let types = Types::read().expect("the kernel's types");
        let number = types.tracepoint("inet_sock_set_state").expect("it is there");
        let error = Program::load(Place::Tracepoint, number, &instructions).expect_err("R6 has no value");
        assert!(error.to_string().contains("R6 !read_ok"), "{error}");
    }

    #[test]
    fn a_walk_ends_and_nothing_was_left_out_as_root() {
        let instructions = [instruction::set(Register::R0, 0), instruction::end()];
        let types = Types::read().expect("the kernel's types");
        let number = types.function("bpf_iter_task_file").expect("it is there");
        let program = Program::load(Place::Iterator, number, &instructions).expect("bpf(2) needs root");
        program.walk().expect("it ends");
        assert_eq!(program.misses().expect("it is loaded"), 0);
    }
}
