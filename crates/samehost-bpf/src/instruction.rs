//! Instructions of BPF, each by a function, for programs that are written as tables. They do not check: the kernel does.

use std::os::fd::AsRawFd;

use crate::map::Map;

/// One instruction, as the kernel reads it; a map's descriptor takes two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Instruction {
    code: u8,
    /// Destination in the low half, source in the high half.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// A register: `R0` is what a call returns, `R1` to `R5` are its arguments, `R6` to `R9` outlive it, `R10` is the end of the
/// stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Register {
    R0,
    R1,
    R2,
    R3,
    R4,
    R6 = 6,
    R10 = 10,
}

/// `BPF_PSEUDO_MAP_FD`: the number is a map's descriptor.
const MAP_DESCRIPTOR: u8 = 1;

const fn instruction(code: u8, to: Register, from: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction { code, registers: to as u8 | from << 4, offset, immediate }
}

/// `to = from`
pub(crate) const fn copy(to: Register, from: Register) -> Instruction {
    instruction(0xbf, to, from as u8, 0, 0)
}

/// `to = number`
pub(crate) const fn set(to: Register, number: i32) -> Instruction {
    instruction(0xb7, to, 0, 0, number)
}

/// `to += number`
pub(crate) const fn add(to: Register, number: i32) -> Instruction {
    instruction(0x07, to, 0, 0, number)
}

/// `to` = 64 bits at `from + offset`
pub(crate) const fn load_long(to: Register, from: Register, offset: i16) -> Instruction {
    instruction(0x79, to, from as u8, offset, 0)
}

/// 64 bits at `to + offset` = `from`
pub(crate) const fn store_long(to: Register, offset: i16, from: Register) -> Instruction {
    instruction(0x7b, to, from as u8, offset, 0)
}

/// Calls a function of the kernel by its number in `linux/bpf.h`.
pub(crate) const fn call(function: i32) -> Instruction {
    instruction(0x85, Register::R0, 0, 0, function)
}

/// Leaves out the next `by` instructions if the lower 32 bits of `of` are not `number`.
pub(crate) const fn skip_unless_int(of: Register, number: i32, by: i16) -> Instruction {
    instruction(0x56, of, 0, by, number)
}

/// Returns `R0`.
pub(crate) const fn end() -> Instruction {
    instruction(0x95, Register::R0, 0, 0, 0)
}

/// `to` = the map; the map must live until the program is loaded.
pub(crate) fn map(to: Register, map: &Map) -> [Instruction; 2] {
    [
        instruction(0x18, to, MAP_DESCRIPTOR, 0, map.descriptor().as_raw_fd()),
        instruction(0, Register::R0, 0, 0, 0),
    ]
}
