//! A program in the kernel that sees what passes a tracepoint (`BPF_PROG_TYPE_TRACING`).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::call::{self, ProgramLoad, TracepointOpen};
use crate::instruction::Instruction;

/// `BPF_PROG_TYPE_TRACING`.
const TRACING: u32 = 26;
/// `BPF_TRACE_RAW_TP`.
const TRACEPOINT: u32 = 23;
/// It calls no function of the kernel that is for programs under the GPL only.
const LICENSE: &std::ffi::CStr = c"MIT";
/// Bytes of what the verifier may say.
const LOG: usize = 1 << 16;

/// A loaded program.
#[derive(Debug)]
pub(crate) struct Program(OwnedFd);

/// A program that is at a tracepoint, until this is dropped.
#[derive(Debug)]
pub(crate) struct Attached {
    _link: OwnedFd,
}

impl Program {
    /// Loads a program for the tracepoint with this number, which [`crate::types::tracepoint`] has. Its argument leads to those
    /// of the tracepoint, 64 bits each.
    ///
    /// # Errors
    /// EPERM without CAP_BPF and CAP_PERFMON; where the verifier refuses it, its last line.
    pub(crate) fn load(tracepoint: u32, instructions: &[Instruction]) -> io::Result<Self> {
        let mut log = vec![0_u8; LOG];
        let argument = ProgramLoad {
            kind: TRACING,
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
            attached_as: TRACEPOINT,
            types: [0; 9],
            attached_to: tracepoint,
        };
        // SAFETY: the instructions, the text and the log live until this returns, with the lengths that are given; nobody
        // else has the log.
        let loaded = unsafe { call::open(call::PROGRAM_LOAD, &argument) };
        loaded.map(Program).map_err(|error| refused(error, &log))
    }

    /// Sees from now on what passes its tracepoint.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn watch(&self) -> io::Result<Attached> {
        let argument = TracepointOpen { name: 0, program: self.0.as_raw_fd() as u32, reserved: 0 };
        // SAFETY: the argument is that of this command and has no pointers.
        let link = unsafe { call::open(call::TRACEPOINT_OPEN, &argument) }?;
        Ok(Attached { _link: link })
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
    use crate::types;

    #[test]
    fn the_verifier_is_quoted_as_root() {
        let instructions = [instruction::copy(Register::R0, Register::R6), instruction::end()];
        let number = types::tracepoint("inet_sock_set_state").expect("the kernel's types");
        let error = Program::load(number, &instructions).expect_err("R6 has no value");
        assert!(error.to_string().contains("R6 !read_ok"), "{error}");
    }
}
