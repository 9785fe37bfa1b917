//! Whether a preloaded library reaches a program: static programs load none, Go makes its system calls itself, and the loader takes
//! none where a program gets rights by its file. Found out before it is started. It only looks.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::process::{getegid, geteuid};

/// The longest first line of a script that the kernel reads, in bytes.
const LONGEST_LINE: usize = 256;
const LONGEST_TABLE: usize = 1 << 20;
const SET_USER: u32 = 0o4_000;
const SET_GROUP: u32 = 0o2_000;
const CAPABILITIES: &str = "security.capability";
/// Sections that every program of Go has.
const OF_GO: [&[u8]; 2] = [b".go.buildinfo", b".note.go.buildid"];

/// A program's file, and why a preloaded library does not reach it. None where nothing speaks against it.
pub fn hindrance(name: &OsStr) -> Option<(PathBuf, &'static str)> {
    let path = found(name)?;
    let file = File::open(&path).ok()?;
    if let Some(interpreter) = interpreter(&file) {
        // One script may name another: the kernel follows a few.
        return of_file(&interpreter).map(|why| (interpreter, why));
    }
    of_file(&path).map(|why| (path, why))
}

/// The file of a program, as execvp(3) finds it.
fn found(name: &OsStr) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Some(name.into());
    }
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// What a script's first line names: `#!/bin/sh`, `#!/usr/bin/env python3`.
fn interpreter(file: &File) -> Option<PathBuf> {
    let mut bytes = [0; LONGEST_LINE];
    let length = file.read_at(&mut bytes, 0).ok()?;
    let line = bytes[..length].strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words =
        line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).map(OsStr::from_bytes);
    let first = Path::new(words.next()?);
    if first.file_name() == Some(OsStr::new("env")) {
        return found(words.find(|word| !word.as_bytes().starts_with(b"-"))?);
    }
    Some(first.to_owned())
}

fn of_file(path: &Path) -> Option<&'static str> {
    let about = fs::metadata(path).ok()?;
    let is_other_user = about.mode() & SET_USER != 0 && about.uid() != geteuid().as_raw();
    let is_other_group = about.mode() & SET_GROUP != 0 && about.gid() != getegid().as_raw();
    if is_other_user || is_other_group {
        return Some("it runs as another user or group (set-user-ID)");
    }
    if !geteuid().is_root() && rustix::fs::getxattr(path, CAPABILITIES, &mut [0_u8; 64]).is_ok() {
        return Some("it has file capabilities");
    }
    of_elf(&Elf::open(path)?)
}

fn of_elf(elf: &Elf) -> Option<&'static str> {
    if elf.is_short {
        return Some("it is a program of 32 bits");
    }
    if elf.sections().is_some_and(|names| OF_GO.iter().any(|name| names.contains(name))) {
        return Some("it is written in Go, which makes its system calls itself");
    }
    (!elf.has_interpreter()?).then_some("it is a static program")
}

/// A program's file. Only little-endian ELF files of 64 bits are understood.
struct Elf {
    file: File,
    header: [u8; 64],
    is_short: bool,
}

impl Elf {
    fn open(path: &Path) -> Option<Elf> {
        let file = File::open(path).ok()?;
        let mut header = [0; 64];
        file.read_exact_at(&mut header, 0).ok()?;
        let is_short = header[4] == 1;
        header.starts_with(b"\x7fELF").then_some(Elf { file, header, is_short })
    }

    fn bytes(&self, offset: u64, length: u64) -> Option<Vec<u8>> {
        // Longer tables than programs have are not read.
        let length = usize::try_from(length).ok().filter(|length| *length <= LONGEST_TABLE)?;
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, offset).ok()?;
        Some(bytes)
    }

    /// A table of the file, by where the header says where it is, and how many entries of which length it has.
    fn table(&self, offset: usize, count: usize, length: usize) -> Option<Vec<Vec<u8>>> {
        let (count, length) = (number(&self.header, count, 2), number(&self.header, length, 2));
        let bytes = self.bytes(number(&self.header, offset, 8), count * length)?;
        Some(bytes.chunks_exact((length as usize).max(1)).map(<[u8]>::to_vec).collect())
    }

    fn has_interpreter(&self) -> Option<bool> {
        const PT_INTERP: u64 = 3;
        let segments = self.table(32, 56, 54)?;
        Some(segments.iter().any(|segment| number(segment, 0, 4) == PT_INTERP))
    }

    /// The names of its sections, one after the other, each with a zero behind it.
    fn sections(&self) -> Option<Names> {
        let sections = self.table(40, 60, 58)?;
        let names = sections.get(number(&self.header, 62, 2) as usize)?;
        self.bytes(number(names, 24, 8), number(names, 32, 8)).map(Names)
    }
}

struct Names(Vec<u8>);

impl Names {
    fn contains(&self, name: &[u8]) -> bool {
        self.0.split(|byte| *byte == 0).any(|one| one == name)
    }
}

fn number(bytes: &[u8], at: usize, length: usize) -> u64 {
    let bytes = bytes.get(at..at + length).unwrap_or_default();
    bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_dynamic_program_is_reached_also_by_a_script() {
        assert_eq!(hindrance(OsStr::new("env")), None);
        let folder = tempfile::tempdir().expect("a directory");
        for line in ["#!/bin/sh\n", "#! /usr/bin/env -S sh -e\n", "#!/usr/bin/env sh"] {
            let script = folder.path().join("script");
            fs::write(&script, line).expect("written");
            assert_eq!(hindrance(script.as_os_str()), None, "{line}");
        }
        assert_eq!(hindrance(OsStr::new("/nowhere/to/be/found")), None);
    }

    #[test]
    fn what_a_library_does_not_reach_is_named() {
        let folder = tempfile::tempdir().expect("a directory");
        let program = folder.path().join("program");
        let mut header = [0; 64];
        header[..5].copy_from_slice(b"\x7fELF\x01");
        fs::write(&program, header).expect("written");
        assert_eq!(hindrance(program.as_os_str()), Some((program.clone(), "it is a program of 32 bits")));
        header[4] = 2;
        fs::write(&program, header).expect("written");
        assert_eq!(hindrance(program.as_os_str()).map(|(_, why)| why), Some("it is a static program"));
        fs::write(&program, "no program").expect("written");
        assert_eq!(hindrance(program.as_os_str()), None);
        if geteuid().is_root() {
            std::os::unix::fs::chown(&program, Some(65_534), None).expect("given away");
            fs::set_permissions(&program, fs::Permissions::from_mode(SET_USER | 0o755)).expect("set");
            let why = hindrance(program.as_os_str()).map(|(_, why)| why);
            assert_eq!(why, Some("it runs as another user or group (set-user-ID)"));
        }
    }

    #[test]
    fn sections_and_segments_of_this_program_are_read() {
        let elf = Elf::open(&env::current_exe().expect("its path")).expect("an ELF file");
        assert!(!elf.is_short && elf.has_interpreter() == Some(cfg!(not(target_env = "musl"))));
        let names = elf.sections().expect("sections");
        assert!(names.contains(b".text") && !OF_GO.iter().any(|name| names.contains(name)));
    }
}
