//! What a package must know of a program: its processor, whether it needs libraries, whether it still has symbols.
//! Reads the header of ELF (System V ABI, chapter 4); 64 bits, little-endian.

use std::path::Path;

use anyhow::{Context, bail, ensure};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Machine {
    X86_64,
    Aarch64,
}

impl Machine {
    /// Name in Debian, and in Go and OCI.
    pub(super) fn debian(self) -> &'static str {
        match self {
            Machine::X86_64 => "amd64",
            Machine::Aarch64 => "arm64",
        }
    }

    /// Name in Rust, uname and rpm.
    pub(super) fn kernel(self) -> &'static str {
        match self {
            Machine::X86_64 => "x86_64",
            Machine::Aarch64 => "aarch64",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Elf {
    pub(super) machine: Machine,
    /// No program interpreter: it needs no library.
    pub(super) is_static: bool,
    pub(super) has_symbols: bool,
}

impl Elf {
    pub(super) fn is_native(self) -> bool {
        self.machine.kernel() == std::env::consts::ARCH
    }
}

/// Type of the program header that names the interpreter (`PT_INTERP`).
const INTERPRETER: u32 = 3;
/// Type of the section with symbols (`SHT_SYMTAB`).
const SYMBOLS: u32 = 2;

pub(super) fn read(path: &Path) -> anyhow::Result<Elf> {
    let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    parse(&bytes).with_context(|| format!("{} is not a program for Linux", path.display()))
}

fn parse(bytes: &[u8]) -> anyhow::Result<Elf> {
    // Class 2: 64 bits; data 1: little-endian.
    ensure!(bytes.starts_with(b"\x7fELF\x02\x01"), "not a 64-bit little-endian ELF file");
    let machine = match number(bytes, 18, 2)? {
        62 => Machine::X86_64,
        183 => Machine::Aarch64,
        other => bail!("no package is made for ELF machine {other}"),
    };
    // Offset, size of an entry, and number of entries.
    let programs = (number(bytes, 32, 8)?, number(bytes, 54, 2)?, number(bytes, 56, 2)?);
    let sections = (number(bytes, 40, 8)?, number(bytes, 58, 2)?, number(bytes, 60, 2)?);
    Ok(Elf {
        machine,
        is_static: !has(bytes, programs, 0, INTERPRETER)?,
        has_symbols: has(bytes, sections, 4, SYMBOLS)?,
    })
}

/// Whether an entry of a table has this type, which stands `at` bytes into it.
fn has(bytes: &[u8], table: (u64, u64, u64), at: u64, wanted: u32) -> anyhow::Result<bool> {
    let (start, size, count) = table;
    for entry in 0..count {
        if number(bytes, start + entry * size + at, 4)? == u64::from(wanted) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn number(bytes: &[u8], at: u64, length: usize) -> anyhow::Result<u64> {
    let at = usize::try_from(at)?;
    let part = bytes.get(at..at + length).context("it is cut off")?;
    Ok(part.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}
