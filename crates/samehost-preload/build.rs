//! Compiles the library that programs preload, for the same processor as this crate, and links it without any C library. Its bytes do
//! not depend on where it is made: no path goes into it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The functions that stand before those of the C library; all others are the library's own.
const EXPORTS: [&str; 10] = [
    "accept", "accept4", "bind", "connect", "epoll_ctl", "getpeername", "getsockname", "getsockopt",
    "setsockopt", "socket",
];

/// Its atomic operations would ask the C library for the processor's features.
const OF_AARCH64: &[&str] = &["-Ctarget-feature=-outline-atomics"];

fn main() {
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUSTC_LINKER");
    let out = PathBuf::from(variable("OUT_DIR"));
    let (object, library) = (out.join("preload.a"), out.join("preload.so"));
    let architecture = variable("CARGO_CFG_TARGET_ARCH");
    let is_known = ["x86_64", "aarch64"].contains(&&*architecture);
    if !is_known || variable("CARGO_CFG_TARGET_OS") != "linux" {
        std::fs::write(library, []).expect("the library is written");
        return;
    }
    compile(&object);
    link(&object, &library, &architecture);
}

fn compile(object: &Path) {
    let mut rustc = Command::new(variable("RUSTC"));
    rustc
        .args(["--edition=2024", "--crate-name=samehost_preloaded", "--crate-type=staticlib"])
        .args(["--target", &variable("TARGET")])
        .args(["-Cpanic=abort", "-Copt-level=s", "-Crelocation-model=pic", "-Clto=fat", "-Ccodegen-units=1"])
        .args(["-Cdebuginfo=0", "-Coverflow-checks=off", "-Cforce-unwind-tables=no"])
        .args(if variable("CARGO_CFG_TARGET_ARCH") == "aarch64" { OF_AARCH64 } else { &[] })
        // Relative: it is a part of messages that nobody prints, and would otherwise be a path of this machine.
        .arg("src/freestanding.rs")
        .arg("-o")
        .arg(object)
        .current_dir(variable("CARGO_MANIFEST_DIR"));
    run(&mut rustc);
}

fn link(object: &Path, library: &Path, architecture: &str) {
    let exports = object.with_extension("exports");
    let list = format!("{{ global: {}; local: *; }};\n", EXPORTS.join("; "));
    std::fs::write(&exports, list).expect("the list of exports is written");
    let mut linker = Command::new(linker(architecture));
    linker
        .args(["-shared", "-nostdlib", "-s", "-Wl,--build-id=none", "-Wl,--gc-sections", "-Wl,-z,now"])
        // Without padding to pages of 64 KiB, which some kernels have.
        .args([
            "-Wl,-z,noseparate-code",
            "-Wl,-z,norelro",
            "-Wl,-z,noexecstack",
            "-Wl,-soname,samehost-preload.so",
        ])
        .arg(format!("-Wl,--version-script={}", exports.display()))
        .args(EXPORTS.map(|name| format!("-Wl,-u,{name}")))
        .arg(object)
        .arg("-o")
        .arg(library);
    run(&mut linker);
}

/// The linker that cargo was told for the target, or that of Debian's cross compiler.
fn linker(architecture: &str) -> String {
    match env::var("RUSTC_LINKER") {
        Ok(linker) => linker,
        Err(_) if variable("HOST").starts_with(architecture) => "cc".into(),
        Err(_) => format!("{architecture}-linux-gnu-gcc"),
    }
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|error| panic!("cargo gives {name}: {error}"))
}

fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"));
    assert!(status.success(), "{command:?} ended with {status}");
}
