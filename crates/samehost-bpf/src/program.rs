//! A program in the kernel: one that decides about each message which a socket of a map sends (`BPF_PROG_TYPE_SK_MSG`), or
//! one that sees what passes a tracepoint (`BPF_PROG_TYPE_TRACING`).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::call::{self, ProgramAttach, ProgramLoad, TracepointOpen};
use crate::instruction::Instruction;
use crate::map::Map;

/// `BPF_PROG_TYPE_SK_MSG`.
const MESSAGES: u32 = 16;
/// `BPF_SK_MSG_VERDICT`.
const VERDICT: u32 = 7;
/// `BPF_PROG_TYPE_TRACING`.
const TRACING: u32 = 26;
/// `BPF_TRACE_RAW_TP`.
const TRACEPOINT: u32 = 23;
/// It calls no function of the kernel that is for programs under the GPL only.
const LICENSE: &std::ffi::CStr = c"MIT";
/// Bytes of what the verifier may say.
const LOG: usize = 1 << 16;

/// What a program is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Decides about messages of sockets.
    Messages,
    /// Sees a tracepoint, whose number [`crate::tracepoint`] has. Its argument leads to those of the tracepoint, 64 bits each.
    Tracepoint(u32),
}

/// A loaded program.
#[derive(Debug)]
pub struct Program(OwnedFd);

/// A program that is at a tracepoint, until this is dropped.
#[derive(Debug)]
pub struct Attached {
    _link: OwnedFd,
}

impl Program {
    /// Loads a program.
    ///
    /// # Errors
    /// EPERM without CAP_BPF, and CAP_NET_ADMIN for messages, CAP_PERFMON for a tracepoint; where the verifier refuses it, its
    /// last line.
    pub fn load(purpose: Purpose, instructions: &[Instruction]) -> io::Result<Self> {
        let mut log = vec![0_u8; LOG];
        let (kind, attached_as, attached_to) = match purpose {
            Purpose::Messages => (MESSAGES, 0, 0),
            Purpose::Tracepoint(number) => (TRACING, TRACEPOINT, number),
        };
        let argument = ProgramLoad {
            kind,
            instructions: instructions.len() as u32,
            first: instructions.as_ptr() as u64,
            license: LICENSE.as_ptr() as u64,
            log_level: 1,
            log_bytes: LOG as u32,
            log: log.as_mut_ptr() as u64,
            kernel_version: 0,
            flags: 0,
            name: [0; 16],
            interface: 0,
            attached_as,
            types: [0; 9],
            attached_to,
        };
        // SAFETY: the instructions, the text and the log live until this returns, with the lengths that are given; nobody
        // else has the log.
        let loaded = unsafe { call::open(call::PROGRAM_LOAD, &argument) };
        loaded.map(Program).map_err(|error| refused(error, &log))
    }

    /// Sees from now on what passes its tracepoint.
    ///
    /// # Errors
    /// What the kernel says: EINVAL for a program that is for messages.
    pub fn watch(&self) -> io::Result<Attached> {
        let argument = TracepointOpen { name: 0, program: self.0.as_raw_fd() as u32, reserved: 0 };
        // SAFETY: the argument is that of this command and has no pointers.
        let link = unsafe { call::open(call::TRACEPOINT_OPEN, &argument) }?;
        Ok(Attached { _link: link })
    }

    /// Decides from now on about what sockets of `map` send that are put into it after this.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn attach(&self, map: &Map) -> io::Result<()> {
        let argument = ProgramAttach {
            target: map.descriptor().as_raw_fd() as u32,
            program: self.0.as_raw_fd() as u32,
            kind: VERDICT,
            flags: 0,
        };
        // SAFETY: the argument is that of this command and has no pointers.
        unsafe { call::bpf(call::PROGRAM_ATTACH, &argument) }.map(|_| ())
    }
}

/// The error with the verifier's reason, which stands before its statistics.
fn refused(error: io::Error, log: &[u8]) -> io::Error {
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
    use crate::map::Kind;

    #[test]
    fn a_program_is_loaded_and_attached_as_root() {
        let map = Map::new(Kind::Sockets, 4, 8, 2).expect("bpf(2) needs root");
        let instructions = [instruction::set(Register::R0, 1), instruction::end()];
        let program = Program::load(Purpose::Messages, &instructions).expect("loaded");
        program.attach(&map).expect("attached");
    }

    #[test]
    fn the_verifier_is_quoted_as_root() {
        let instructions = [instruction::copy(Register::R0, Register::R6), instruction::end()];
        let error = Program::load(Purpose::Messages, &instructions).expect_err("R6 has no value");
        assert!(error.to_string().contains("R6 !read_ok"), "{error}");
    }
}
