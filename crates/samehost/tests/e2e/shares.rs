//! Sockets on a file system that others have too: `scan` names them and says of a usual path that it is on one, `switch`
//! refuses such a path. The file system is a real one: bindfs, over FUSE, in a mount namespace of the test's.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::Path;

use samehost_testing::free_port;

use crate::advice::{advice, obstacle};
use crate::findings::{found, scan};
use crate::scan::{Held, is_root};
use crate::support::{Home, not_tested, wait_for};

/// Whether a FUSE file system can be mounted here.
pub(crate) fn has_fuse(what: &str) -> bool {
    let has = is_root() && Path::new("/dev/fuse").exists();
    if !has {
        not_tested(&format!("without root and /dev/fuse: {what}"));
    }
    has
}

/// A shell's lines that mount one directory over another by FUSE, until the shell ends.
pub(crate) fn mounted(from: &Path, at: &Path) -> String {
    let (from, at) = (from.display(), at.display());
    format!("setpriv --pdeathsig KILL bindfs -f {from} {at} & until mountpoint -q {at}; do sleep 0.02; done")
}

/// A Redis at a port in a mount namespace of its own, where these lines have run before.
fn redis_behind(home: &Home, lines: &str, port: u16, options: &str) -> Held {
    let folder = home.path("run").display().to_string();
    let redis = format!("redis-server --bind 127.0.0.1 --port {port} --save '' --dir {folder} {options}");
    let script = format!("{lines}; exec {redis}");
    let held = Held::start("unshare", &["--mount", "--propagation", "private", "sh", "-c", &script]);
    wait_for("redis", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
    held
}

#[test]
fn a_socket_on_shared_files_is_found_and_one_in_memory_is_not() {
    if !has_fuse("a socket on a FUSE file system") {
        return;
    }
    let home = Home::new();
    let (below, above) = (home.path("below"), home.path("above"));
    fs::create_dir(&below).unwrap();
    fs::create_dir(&above).unwrap();
    let (shared, own) = (above.join("far.sock"), home.path("near.sock"));
    let option = format!("--unixsocket {}", shared.display());
    let _far = redis_behind(&home, &mounted(&below, &above), free_port(), &option);
    let _near = Held::redis(&home, 0, &own, &[]);
    let seen = scan(&home);
    let words = found(&seen, "shared-files", "far.sock");
    assert!(matches!(words.as_slice(), [one] if one.contains(" is on fuse")), "{words:?}");
    assert!(found(&seen, "shared-files", "near.sock").is_empty());
    // What it says is so: who has the same files by another way sees the socket, and is refused.
    let file = below.join("far.sock");
    wait_for("the file", || file.exists().then_some(()));
    assert_eq!(UnixStream::connect(file).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn a_usual_path_on_shared_files_is_in_the_way_and_one_in_memory_is_not() {
    if !has_fuse("a usual path on a FUSE file system") {
        return;
    }
    let home = Home::new();
    let below = home.path("below");
    fs::create_dir(&below).unwrap();
    let told = |lines: &str| {
        let port = free_port();
        let _redis = redis_behind(&home, lines, port, "");
        let client = Held::start("redis-cli", &["-p", &port.to_string(), "subscribe", "x"]);
        let told = advice(&home, &client);
        obstacle(&told, "file-system").map(|one| one["found"].as_str().unwrap().to_owned())
    };
    let in_memory = "mount -t tmpfs none /run && mkdir -p /run/redis";
    assert_eq!(told(in_memory), None);
    let shared = format!("{in_memory} && {}", mounted(&below, Path::new("/run/redis")));
    let words = told(&shared).unwrap();
    assert!(words.starts_with("/run/redis is on fuse"), "{words}");
}
