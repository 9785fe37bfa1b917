//! Instructions of BPF, each by a function, for programs that are written as tables. They do not check: the kernel does.
//!
//! A program that is written from top to bottom, with jumps to labels. Jumps that are counted by hand are the likeliest
//! mistake in a table of instructions, and the kernel reports it, if at all, as something else.

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
    R7,
    R8,
    R9,
    R10,
}

/// What is done to a register with a number or with another register, on 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    Add = 0x00,
    Subtract = 0x10,
    Multiply = 0x20,
    Or = 0x40,
    And = 0x50,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
}

/// What a jump asks of a register, as numbers without a sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Test {
    Is = 0x10,
    IsMore = 0x20,
    IsNot = 0x50,
    IsLess = 0xa0,
    IsAtMost = 0xb0,
}

/// The second of two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    Number(i32),
    Of(Register),
}

impl From<i32> for Operand {
    fn from(number: i32) -> Self {
        Operand::Number(number)
    }
}

impl From<Register> for Operand {
    fn from(register: Register) -> Self {
        Operand::Of(register)
    }
}

impl Operand {
    /// The code of an instruction with this operand, the register and the number.
    fn encoded(self, code: u8) -> (u8, u8, i32) {
        /// `BPF_X`
        const BY_REGISTER: u8 = 0x08;
        match self {
            Operand::Number(number) => (code, 0, number),
            Operand::Of(register) => (code | BY_REGISTER, register as u8, 0),
        }
    }
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

/// `to` = 32 bits at `from + offset`
pub(crate) const fn load_word(to: Register, from: Register, offset: i16) -> Instruction {
    instruction(0x61, to, from as u8, offset, 0)
}

/// `to` = 16 bits at `from + offset`
pub(crate) const fn load_half(to: Register, from: Register, offset: i16) -> Instruction {
    instruction(0x69, to, from as u8, offset, 0)
}

/// `to` = 8 bits at `from + offset`
pub(crate) const fn load_byte(to: Register, from: Register, offset: i16) -> Instruction {
    instruction(0x71, to, from as u8, offset, 0)
}

/// 32 bits at `to + offset` = `from`
pub(crate) const fn store_word(to: Register, offset: i16, from: Register) -> Instruction {
    instruction(0x63, to, from as u8, offset, 0)
}

/// 64 bits at `to + offset` = `number`
pub(crate) const fn store_number(to: Register, offset: i16, number: i32) -> Instruction {
    instruction(0x7a, to, 0, offset, number)
}

/// 64 bits at `to + offset` += `from`, whatever other processors do meanwhile
pub(crate) const fn count(to: Register, offset: i16, from: Register) -> Instruction {
    instruction(0xdb, to, from as u8, offset, 0)
}

/// As [`count`], and `from` = what it was before (Linux 5.12)
pub(crate) const fn count_and_load(to: Register, offset: i16, from: Register) -> Instruction {
    instruction(0xdb, to, from as u8, offset, 1)
}

/// `to` = the lower 32 bits of `from`
pub(crate) const fn copy_word(to: Register, from: Register) -> Instruction {
    instruction(0xbc, to, from as u8, 0, 0)
}

/// `to` is added to, shifted, … by a number or a register
pub(crate) fn compute(to: Register, how: Arithmetic, by: impl Into<Operand>) -> Instruction {
    /// `BPF_ALU64`
    const LONG: u8 = 0x07;
    let (code, from, number) = by.into().encoded(how as u8 | LONG);
    instruction(code, to, from, 0, number)
}

/// Leaves out the next `by` instructions.
pub(crate) const fn skip(by: i16) -> Instruction {
    instruction(0x05, Register::R0, 0, by, 0)
}

/// Leaves out the next `by` instructions if the test holds.
pub(crate) fn skip_if(of: Register, test: Test, than: impl Into<Operand>, by: i16) -> Instruction {
    /// `BPF_JMP`
    const LONG: u8 = 0x05;
    let (code, from, number) = than.into().encoded(test as u8 | LONG);
    instruction(code, of, from, by, number)
}

/// Leaves out the next `by` instructions if the lower 32 bits, with their sign, are not above zero.
pub(crate) const fn skip_unless_positive(of: Register, by: i16) -> Instruction {
    instruction(0xd6, of, 0, by, 0)
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

impl Instruction {
    /// The same jump, over so many instructions.
    pub(crate) const fn over(mut self, by: i16) -> Self {
        self.offset = by;
        self
    }

    /// The 64 bits that the kernel reads, in the order of `struct bpf_insn`.
    #[cfg(test)]
    pub(crate) fn bytes(self) -> [u8; 8] {
        let ([o, p], [i, j, k, l]) = (self.offset.to_le_bytes(), self.immediate.to_le_bytes());
        [self.code, self.registers, o, p, i, j, k, l]
    }
}

// Functions of the kernel that programs call, as `linux/bpf.h` numbers them.

/// `bpf_map_lookup_elem`
pub(crate) const LOOK_UP: i32 = 1;
/// `bpf_map_update_elem`
pub(crate) const UPDATE: i32 = 2;
/// `bpf_map_delete_elem`
pub(crate) const DELETE: i32 = 3;
/// `bpf_ktime_get_ns`
pub(crate) const NOW: i32 = 5;
/// `bpf_get_current_pid_tgid`
pub(crate) const PROCESS: i32 = 14;
/// `bpf_get_current_uid_gid`
pub(crate) const USER: i32 = 15;
/// `bpf_get_current_comm`
pub(crate) const COMM: i32 = 16;
/// `bpf_get_socket_cookie`
pub(crate) const COOKIE: i32 = 46;
/// `bpf_sk_storage_get`
pub(crate) const OF_SOCKET: i32 = 107;
/// `bpf_task_storage_get`
pub(crate) const OF_TASK: i32 = 156;
/// `bpf_get_current_task_btf`
pub(crate) const TASK: i32 = 158;
/// `bpf_sock_from_file`
pub(crate) const SOCKET_OF_FILE: i32 = 162;
/// `bpf_skc_to_unix_sock`, since Linux 5.16
pub(crate) const AS_UNIX: i32 = 178;

/// A place in a program, to which it jumps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label(usize);

/// A program as far as it is written.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    instructions: Vec<Instruction>,
    /// Where each label is.
    places: Vec<Option<usize>>,
    /// Which instruction jumps to which label.
    jumps: Vec<(usize, Label)>,
}

impl Assembly {
    /// A label that has no place yet.
    pub(crate) fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    /// The label is here.
    pub(crate) fn place(&mut self, label: Label) {
        self.places[label.0] = Some(self.instructions.len());
    }

    pub(crate) fn put(&mut self, instructions: impl IntoIterator<Item = Instruction>) {
        self.instructions.extend(instructions);
    }

    pub(crate) fn go(&mut self, to: Label) {
        self.jump(skip(0), to);
    }

    pub(crate) fn go_if(&mut self, of: Register, test: Test, than: impl Into<Operand>, to: Label) {
        self.jump(skip_if(of, test, than, 0), to);
    }

    /// Jumps if the lower 32 bits, with their sign, are not above zero.
    pub(crate) fn go_unless_positive(&mut self, of: Register, to: Label) {
        self.jump(skip_unless_positive(of, 0), to);
    }

    fn jump(&mut self, instruction: Instruction, to: Label) {
        self.jumps.push((self.instructions.len(), to));
        self.instructions.push(instruction);
    }

    /// The program with its jumps. A label without a place leaves a loop, which the kernel refuses.
    pub(crate) fn finish(mut self) -> Vec<Instruction> {
        for (at, label) in self.jumps {
            let place = self.places[label.0].unwrap_or(at);
            let by = place as i64 - at as i64 - 1;
            self.instructions[at] = self.instructions[at].over(by as i16);
        }
        self.instructions
    }
}

#[cfg(test)]
mod tests {
    use super::Register::{R0, R1, R2, R6, R7, R8, R9, R10};
    use super::*;
    use crate::instruction::{end, set};

    /// The encodings are those that `clang -target bpf` and `llvm-objdump` give for the lines beside them.
    #[test]
    fn instructions_are_encoded_as_a_compiler_does() {
        let cases = [
            (compute(R1, Arithmetic::Add, 8), [0x07, 0x01, 0, 0, 8, 0, 0, 0]), // r1 += 8
            (compute(R7, Arithmetic::ShiftRight, R2), [0x7f, 0x27, 0, 0, 0, 0, 0, 0]), // r7 >>= r2
            (compute(R2, Arithmetic::And, 511), [0x57, 0x02, 0, 0, 0xff, 1, 0, 0]), // r2 &= 511
            (compute(R9, Arithmetic::Subtract, R8), [0x1f, 0x89, 0, 0, 0, 0, 0, 0]), // r9 -= r8
            (load_word(R1, R10, -4), [0x61, 0xa1, 0xfc, 0xff, 0, 0, 0, 0]),    // r1 = *(u32 *)(r10 - 4)
            (store_word(R10, -4, R1), [0x63, 0x1a, 0xfc, 0xff, 0, 0, 0, 0]),   // *(u32 *)(r10 - 4) = r1
            (count(R0, 8, R1), [0xdb, 0x10, 8, 0, 0, 0, 0, 0]),                // lock *(u64 *)(r0 + 8) += r1
            (count_and_load(R6, 8, R1), [0xdb, 0x16, 8, 0, 1, 0, 0, 0]), // r1 = atomic_fetch_add((u64 *)(r6 + 8), r1)
            (load_half(R2, R6, 16), [0x69, 0x62, 16, 0, 0, 0, 0, 0]),    // r2 = *(u16 *)(r6 + 16)
            (load_byte(R2, R6, 18), [0x71, 0x62, 18, 0, 0, 0, 0, 0]),    // r2 = *(u8 *)(r6 + 18)
            (copy_word(R8, R8), [0xbc, 0x88, 0, 0, 0, 0, 0, 0]),         // w8 = w8
            (skip_if(R1, Test::Is, 0, 3), [0x15, 0x01, 3, 0, 0, 0, 0, 0]), // if r1 == 0 goto +3
            (skip_if(R1, Test::IsLess, R2, -2), [0xad, 0x21, 0xfe, 0xff, 0, 0, 0, 0]), // if r1 < r2 goto -2
            (skip_unless_positive(R8, 1), [0xd6, 0x08, 1, 0, 0, 0, 0, 0]), // if w8 s<= 0 goto +1
            (skip(5), [0x05, 0, 5, 0, 0, 0, 0, 0]),                      // goto +5
        ];
        for (instruction, bytes) in cases {
            assert_eq!(instruction.bytes(), bytes, "{instruction:?}");
        }
    }

    #[test]
    fn jumps_lead_to_their_labels() {
        let mut program = Assembly::default();
        let (again, done) = (program.label(), program.label());
        program.place(again);
        program.put([set(R0, 0)]);
        program.go_if(R1, Test::Is, 0, done);
        program.go(again);
        program.place(done);
        program.put([end()]);
        assert_eq!(program.finish(), [set(R0, 0), skip_if(R1, Test::Is, 0, 1), skip(-3), end()]);
    }
}
