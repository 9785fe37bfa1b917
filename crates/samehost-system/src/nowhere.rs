//! Input and output that lead nowhere, also in a root directory without `/dev/null`, such as that of a container with one
//! program.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::Stdio;

use rustix::fs::{MemfdFlags, memfd_create};

/// For a program that has nothing to read, or whose output nobody reads.
#[must_use]
pub fn nowhere() -> Stdio {
    at(Path::new("/dev/null"))
}

fn at(null: &Path) -> Stdio {
    let null = File::options().read(true).write(true).open(null);
    // It is empty at first, and what is written is gone with the program.
    let memory = || memfd_create("nowhere", MemfdFlags::CLOEXEC).map(File::from).map_err(io::Error::from);
    null.or_else(|_| memory()).map_or_else(|_| Stdio::null(), Stdio::from)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::at;

    #[test]
    fn without_dev_null_nothing_is_read_and_all_is_written() {
        let nowhere = || at(Path::new("/nonexistent/null"));
        let script = "test -z \"$(cat)\" && echo out && echo error >&2";
        let mut sh = Command::new("sh");
        let status = sh.args(["-c", script]).stdin(nowhere()).stdout(nowhere()).stderr(nowhere()).status();
        assert!(status.unwrap().success());
    }
}
