//! Which system calls stop, as a program of classic BPF. Pure. A call of another architecture (32 bits, x32) has other numbers,
//! and stops only where those are named too.

use libc::{SECCOMP_RET_ALLOW, SECCOMP_RET_USER_NOTIF, sock_filter};

/// `AUDIT_ARCH_*` of linux/audit.h: what the numbers of system calls belong to.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: Option<u32> = Some(0xC000_003E);
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: Option<u32> = Some(0xC000_00B7);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCHITECTURE: Option<u32> = None;

/// Calls from here on are those of x32; `__X32_SYSCALL_BIT`. Other architectures have none so high.
/// Calls by which a thread gives up rights stop by the numbers of i386, arm and x32 as well. A program
/// may mix these numbers freely, and a change of groups, of filters or to Landlock that went by unseen
/// would leave a thread with connections that it may no longer make (docs/decisions/0115).
pub(crate) const X32: u32 = 0x4000_0000;

/// Places in `struct seccomp_data`. Arguments have 64 bits, and the lower half comes first on both architectures.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const ARGUMENTS: u32 = 16;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const IF_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// A system call that stops, and waits for an answer from outside.
/// ptrace was rejected because it stops every call, and a program that is debugged already cannot be
/// traced. Here a read or a write costs nothing more, since only the listed calls stop. Rewriting a call
/// to AF_UNIX and letting it go on was rejected too: another thread may change the address again, and the
/// memory may be constant (docs/decisions/0099).
#[derive(Clone, Debug)]
pub struct Trap {
    pub call: i64,
    /// It stops when all conditions of one of these hold: the position of an argument, and its lower 32 bits. Without
    /// any it always stops.
    pub when: &'static [&'static [(u32, u32)]],
    /// Its numbers under the other architectures of the processor, by which it stops too, whatever its arguments are. x32 has
    /// this architecture's number with a bit set: it stops where any is given here.
    pub others: &'static [u32],
}

#[derive(Clone, Debug)]
pub struct Filter(Vec<sock_filter>);

impl Filter {
    /// The program begins with a block for the numbers of other architectures, then one for those of x32, and then has a
    /// block for each trap. A jump passes over a block in one step, so a block has at most 255 instructions.
    ///
    /// None where this architecture's numbers are not known, or a block is longer.
    #[must_use]
    pub fn new(traps: &[Trap]) -> Option<Self> {
        let of_others = block_of_numbers(traps.iter().flat_map(|trap| trap.others.iter().copied()));
        let in_x32 = traps.iter().filter(|trap| !trap.others.is_empty()).map(|trap| trap.call as u32 | X32);
        let of_x32 = block_of_numbers(in_x32);
        let mut program = vec![
            statement(LOAD, ARCH),
            jump(IF_EQUAL, ARCHITECTURE?, u8::try_from(of_others.len()).ok()?, 0),
        ];
        program.extend(of_others);
        program.push(statement(LOAD, NUMBER));
        program.push(jump(IF_AT_LEAST, X32, 0, u8::try_from(of_x32.len()).ok()?));
        program.extend(of_x32);
        for trap in traps {
            let block = block(trap.when);
            program.push(jump(IF_EQUAL, u32::try_from(trap.call).ok()?, 0, u8::try_from(block.len()).ok()?));
            program.extend(block);
        }
        program.push(statement(RETURN, SECCOMP_RET_ALLOW));
        Some(Filter(program))
    }

    #[cfg(test)]
    pub(crate) fn of(instructions: Vec<sock_filter>) -> Self {
        Filter(instructions)
    }

    pub(crate) fn instructions(&self) -> &[sock_filter] {
        &self.0
    }
}

/// Stops calls with these numbers, and no other.
fn block_of_numbers(numbers: impl Iterator<Item = u32>) -> Vec<sock_filter> {
    let mut block = vec![statement(LOAD, NUMBER)];
    for number in numbers {
        block.push(jump(IF_EQUAL, number, 0, 1));
        block.push(statement(RETURN, SECCOMP_RET_USER_NOTIF));
    }
    block.push(statement(RETURN, SECCOMP_RET_ALLOW));
    block
}

/// Decides on one call by its arguments. It always returns, because it overwrites the number of the call.
fn block(when: &[&[(u32, u32)]]) -> Vec<sock_filter> {
    let mut block = Vec::new();
    for conditions in when {
        for (at, (argument, value)) in conditions.iter().enumerate() {
            // Past the other conditions, two instructions each, and the answer.
            let skip = 2 * (conditions.len() - at - 1) + 1;
            block.push(statement(LOAD, ARGUMENTS + 8 * argument));
            block.push(jump(IF_EQUAL, *value, 0, skip as u8));
        }
        block.push(statement(RETURN, SECCOMP_RET_USER_NOTIF));
    }
    let rest = if when.is_empty() { SECCOMP_RET_USER_NOTIF } else { SECCOMP_RET_ALLOW };
    block.push(statement(RETURN, rest));
    block
}

fn statement(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

fn jump(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONNECT: i64 = libc::SYS_connect;
    const OPTION: i64 = libc::SYS_getsockopt;
    const RESTRICT: i64 = libc::SYS_landlock_restrict_self;

    fn filter() -> Filter {
        let traps = [
            Trap { call: CONNECT, when: &[], others: &[] },
            Trap { call: OPTION, when: &[&[(1, 6)], &[(1, 1), (2, 39)], &[(1, 1), (2, 38)]], others: &[] },
            Trap { call: RESTRICT, when: &[], others: &[446, 81] },
        ];
        Filter::new(&traps).expect("an architecture with tests")
    }

    /// What the kernel would do: the answer to a call of an architecture.
    fn answer(filter: &Filter, architecture: u32, number: i64, arguments: [u64; 6]) -> u32 {
        let mut data = Vec::new();
        data.extend((number as u32).to_le_bytes());
        data.extend(architecture.to_le_bytes());
        data.extend([0; 8]);
        data.extend(arguments.iter().flat_map(|argument| argument.to_le_bytes()));
        let (mut at, mut accumulator) = (0, 0);
        loop {
            let step = filter.0[at];
            at += 1;
            let jumped = |holds: bool| usize::from(if holds { step.jt } else { step.jf });
            match step.code {
                LOAD => {
                    let bytes = &data[step.k as usize..][..4];
                    accumulator = u32::from_le_bytes(bytes.try_into().expect("four bytes"));
                }
                IF_EQUAL => at += jumped(accumulator == step.k),
                IF_AT_LEAST => at += jumped(accumulator >= step.k),
                RETURN => return step.k,
                other => panic!("{other}"),
            }
        }
    }

    fn stops(number: i64, arguments: [u64; 6]) -> bool {
        let answer = answer(&filter(), ARCHITECTURE.expect("known"), number, arguments);
        assert!([SECCOMP_RET_ALLOW, SECCOMP_RET_USER_NOTIF].contains(&answer));
        answer == SECCOMP_RET_USER_NOTIF
    }

    #[test]
    fn a_call_stops_whatever_its_arguments_are() {
        assert!(stops(CONNECT, [0; 6]));
        assert!(stops(CONNECT, [u64::MAX; 6]));
    }

    #[test]
    fn a_call_stops_by_its_arguments() {
        assert!(stops(OPTION, [3, 6, 1, 0, 0, 0]));
        assert!(stops(OPTION, [3, 1, 39, 0, 0, 0]));
        assert!(stops(OPTION, [3, 1, 38, 0, 0, 0]));
        assert!(!stops(OPTION, [3, 1, 4, 0, 0, 0]), "SO_ERROR, which clients ask for after connect");
        assert!(!stops(OPTION, [3, 2, 38, 0, 0, 0]));
        // The kernel takes an int: what stands above it does not count.
        assert!(stops(OPTION, [3, 0xffff_ffff_0000_0006, 1, 0, 0, 0]));
    }

    #[test]
    fn other_calls_do_not_stop() {
        for number in (0..500).filter(|number| ![CONNECT, OPTION, RESTRICT].contains(number)) {
            assert!(!stops(number, [0, 6, 39, 0, 0, 0]), "{number}");
        }
    }

    #[test]
    fn calls_of_other_architectures_stop_where_their_numbers_are_named() {
        // i386, arm, and the other of ours.
        for architecture in [0x4000_0003, 0x4000_0028, 0xC000_003E, 0xC000_00B7] {
            if Some(architecture) != ARCHITECTURE {
                let answer_to = |number| answer(&filter(), architecture, number, [0; 6]);
                assert_eq!([answer_to(CONNECT), answer_to(OPTION)], [SECCOMP_RET_ALLOW; 2]);
                assert_eq!([answer_to(RESTRICT), answer_to(81)], [SECCOMP_RET_USER_NOTIF; 2]);
            }
        }
        assert!(!stops(CONNECT | i64::from(X32), [0; 6]), "x32");
        assert!(stops(RESTRICT | i64::from(X32), [0; 6]), "x32");
    }
}
