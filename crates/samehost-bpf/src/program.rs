//! Programs in the kernel, from their instructions to their places: each instruction by a function, an assembly that knows labels,
//! and loading and attaching (`BPF_PROG_TYPE_TRACING`) to what passes a tracepoint, to where a function begins or returns, or to a
//! walk through all open files. Written here and not in C, since an object file or a compiler is much for a few dozen instructions
//! (docs/decisions/0121).

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsRawFd, OwnedFd};

use crate::call::{self, IteratorCreate, LinkCreate, ObjectInfo, ProgramLoad, TracepointOpen};
use crate::map::{Map, long};
use Register::{R1, R2, R3, R4, R10};

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
        const BPF_X: u8 = 0x08;
        match self {
            Operand::Number(number) => (code, 0, number),
            Operand::Of(register) => (code | BPF_X, register as u8, 0),
        }
    }
}

/// `BPF_PSEUDO_MAP_FD`: the number of the instruction is a map's descriptor.
const MAP_DESCRIPTOR: u8 = 1;

const fn instruction(code: u8, to: Register, from: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction { code, registers: to as u8 | from << 4, offset, immediate }
}

// A function for each instruction: `to` is changed and `from` is read, at a place in memory where there is an `offset`. A long has
// 64 bits, a word 32, a half 16 and a byte 8. Nothing is checked here: the kernel's verifier does that.

pub(crate) const fn copy(to: Register, from: Register) -> Instruction {
    instruction(0xbf, to, from as u8, 0, 0)
}

pub(crate) const fn set(to: Register, number: i32) -> Instruction {
    instruction(0xb7, to, 0, 0, number)
}

pub(crate) const fn load_long(to: Register, from: Register, offset: i16) -> Instruction {
    instruction(0x79, to, from as u8, offset, 0)
}

pub(crate) const fn load_word(to: Register, from: Register, offset: i16) -> Instruction {
    instruction(0x61, to, from as u8, offset, 0)
}

pub(crate) const fn load_half(to: Register, from: Register, offset: i16) -> Instruction {
    instruction(0x69, to, from as u8, offset, 0)
}

pub(crate) const fn load_byte(to: Register, from: Register, offset: i16) -> Instruction {
    instruction(0x71, to, from as u8, offset, 0)
}

pub(crate) const fn store_word(to: Register, offset: i16, from: Register) -> Instruction {
    instruction(0x63, to, from as u8, offset, 0)
}

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
    const BPF_ALU64: u8 = 0x07;
    let (code, from, number) = by.into().encoded(how as u8 | BPF_ALU64);
    instruction(code, to, from, 0, number)
}

/// Leaves out the next `by` instructions.
pub(crate) const fn skip(by: i16) -> Instruction {
    instruction(0x05, Register::R0, 0, by, 0)
}

/// Leaves out the next `by` instructions if the test holds.
pub(crate) fn skip_if(of: Register, test: Test, than: impl Into<Operand>, by: i16) -> Instruction {
    const BPF_JMP: u8 = 0x05;
    let (code, from, number) = than.into().encoded(test as u8 | BPF_JMP);
    instruction(code, of, from, by, number)
}

/// Leaves out the next `by` instructions if the lower 32 bits, with their sign, are not above zero.
pub(crate) const fn skip_unless_positive(of: Register, by: i16) -> Instruction {
    instruction(0xd6, of, 0, by, 0)
}

pub(crate) const fn store_long(to: Register, offset: i16, from: Register) -> Instruction {
    instruction(0x7b, to, from as u8, offset, 0)
}

/// Calls a function of the kernel by its number in `linux/bpf.h`.
pub(crate) const fn call(function: i32) -> Instruction {
    instruction(0x85, Register::R0, 0, 0, function)
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

const LOOK_UP: i32 = 1; // bpf_map_lookup_elem
const UPDATE: i32 = 2; // bpf_map_update_elem
pub(crate) const DELETE: i32 = 3; // bpf_map_delete_elem
pub(crate) const NOW: i32 = 5; // bpf_ktime_get_ns
pub(crate) const PROCESS: i32 = 14; // bpf_get_current_pid_tgid
pub(crate) const USER: i32 = 15; // bpf_get_current_uid_gid
pub(crate) const COMM: i32 = 16; // bpf_get_current_comm
pub(crate) const COOKIE: i32 = 46; // bpf_get_socket_cookie
pub(crate) const OF_SOCKET: i32 = 107; // bpf_sk_storage_get
pub(crate) const OF_TASK: i32 = 156; // bpf_task_storage_get
pub(crate) const TASK: i32 = 158; // bpf_get_current_task_btf
pub(crate) const SOCKET_OF_FILE: i32 = 162; // bpf_sock_from_file
pub(crate) const AS_UNIX: i32 = 178; // bpf_skc_to_unix_sock, since Linux 5.16

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label(usize);

/// A program as far as it is written, from top to bottom, with jumps to labels. Jumps that are counted by hand are the likeliest
/// mistake in a table of instructions, and the kernel reports it, if at all, as something else.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    instructions: Vec<Instruction>,
    /// The place of each label, and the label of each jump, by numbers of instructions.
    places: Vec<Option<usize>>,
    jumps: Vec<(usize, Label)>,
}

impl Assembly {
    /// A label that has no place yet.
    pub(crate) fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

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

    /// In `R0` the value of the key at a place on the stack, or zero. Uses up `R1` and `R2`.
    pub(crate) fn look_up(&mut self, of: &Map, key: i16) {
        self.put(map(R1, of));
        self.put([copy(R2, R10), compute(R2, Arithmetic::Add, i32::from(key)), call(LOOK_UP)]);
    }

    /// Writes the value at a place on the stack under the key at another. Uses up `R1` to `R4`.
    pub(crate) fn update(&mut self, of: &Map, [key, value]: [i16; 2], flags: i32) {
        self.put(map(R1, of));
        self.put([copy(R2, R10), compute(R2, Arithmetic::Add, i32::from(key))]);
        self.put([copy(R3, R10), compute(R3, Arithmetic::Add, i32::from(value))]);
        self.put([set(R4, flags), call(UPDATE)]);
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

const TRACING: u32 = 26;
/// The programs are under the project's licences, of which MIT is one, and under the GPL, version 2: the kernel lets only such
/// programs read its structures, and this text is how one says so.
const LICENSE: &std::ffi::CStr = c"Dual MIT/GPL";
const NAME: &[u8; 16] = b"samehost\0\0\0\0\0\0\0\0";
/// Bytes for what the verifier writes about a program that it refuses.
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

#[derive(Debug)]
pub(crate) struct Program(OwnedFd);

/// Keeps a program at its place until it is dropped, or this process ends in whatever way: nothing is pinned.
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
            // EPERM is about rights; the verifier says EACCES or EINVAL.
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => return Err(error),
            Err(error) => error,
        };
        // Only now: to ask for the log makes the verifier slower, and one that has no room in it is an error of its own.
        let mut log = vec![0_u8; LOG];
        match load(place, number, instructions, &mut log) {
            Ok(program) => Ok(Program(program)),
            Err(_) => Err(quoted(refused, &log)),
        }
    }

    /// Sees from now on what passes its place: a link to the place that it was loaded for.
    ///
    /// # Errors
    /// The kernel's: ENOENT on Linux 5.10 for a program that was at its place before.
    pub(crate) fn watch(&self) -> io::Result<Attached> {
        let argument = TracepointOpen { name: 0, program: self.0.as_raw_fd() as u32, reserved: 0 };
        // SAFETY: the argument is that of this command and has no pointers.
        let link = unsafe { call::open(call::TRACEPOINT_OPEN, &argument) }?;
        Ok(Attached { _link: link })
    }

    /// Runs a program of [`Place::Iterator`] once for each thing that there is, and returns when it has seen them all.
    ///
    /// # Errors
    /// Those of bpf(2), and of reading the walk.
    pub(crate) fn walk(&self) -> io::Result<()> {
        let argument = LinkCreate {
            program: self.0.as_raw_fd() as u32,
            attached_as: Place::Iterator as u32,
            ..LinkCreate::default()
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

    /// How often it was left out because it ran already on that processor. Linux has counted this since 5.12; before, it is 0.
    pub(crate) fn misses(&self) -> io::Result<u64> {
        Ok(long(&self.info()?, MISSES))
    }

    /// The beginning of its `struct bpf_prog_info`, up to the number of misses.
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

fn load(place: Place, number: u32, instructions: &[Instruction], log: &mut [u8]) -> io::Result<OwnedFd> {
    load_of_kind(TRACING, (place as u32, number), instructions, log)
}

/// Loads a program of a kind (`enum bpf_prog_type`), for a kind of place (`enum bpf_attach_type`) and the number of one of the
/// kernel's types. The verifier writes into `log`, where that has room.
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
        name: *NAME,
        attached_as: place,
        attached_to: number,
        ..ProgramLoad::default()
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
    use super::Register::{R0, R1, R2, R6, R7, R8, R9, R10};
    use super::*;
    use crate::types::Types;

    #[test]
    fn the_verifier_is_quoted_as_root() {
        let instructions = [copy(R0, R6), end()];
        let types = Types::read().expect("the kernel's types");
        let number = types.tracepoint("inet_sock_set_state").expect("it is there");
        let error = Program::load(Place::Tracepoint, number, &instructions).expect_err("R6 has no value");
        assert!(error.to_string().contains("R6 !read_ok"), "{error}");
    }

    #[test]
    fn a_walk_ends_and_nothing_was_left_out_as_root() {
        let instructions = [set(R0, 0), end()];
        let types = Types::read().expect("the kernel's types");
        let number = types.function("bpf_iter_task_file").expect("it is there");
        let program = Program::load(Place::Iterator, number, &instructions).expect("bpf(2) needs root");
        program.walk().expect("it ends");
        assert_eq!(program.misses().expect("it is loaded"), 0);
    }

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
