//! Facts from the kernel and the system: sockets (sock_diag), processes (/proc), namespaces, identity of
//! processes, ownership of files. Also safe ways to open files that other users may have chosen, and to run
//! programs. Knows no service and no protocol, changes no file and prints nothing.
//!
//! Start reading at `identity` (processes), `diag` (sockets) and `open` (files).

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod accounts;
pub mod clock;
pub mod command;
pub mod diag;
pub mod identity;
pub mod interrupt;
pub mod lookup;
pub mod mounts;
pub mod namespaces;
pub mod open;
pub mod ownership;
pub mod peer;
pub mod proc;
pub mod refusal;
pub mod routes;
pub mod threads;

pub use accounts::{Account, User, as_user};
pub use command::{Run, RunError, may_open_enough, nowhere, silenced};
pub use identity::{Executable, Identity, start_time};
pub use ownership::{Decider, ForeignWriter, NotPrivate, decider, foreign_writer, private};
pub use refusal::{Asked, Refusal};

/// Tests the parsers of kernel data against mutated bytes captured from this kernel: bytes changed,
/// truncated, inserted, lengths set to extremes. The parsers may return nonsense, but may not panic or loop
/// forever. For many more cases: `PROPTEST_CASES=1000000 cargo test -p samehost-system mutated`.
#[cfg(test)]
mod mutated {
    use std::io::{Read, Write};
    use std::sync::LazyLock;

    use proptest::prelude::*;
    use samehost_model::scan::{Address, SocketKind};
    use samehost_testing::bent;

    use crate::accounts::Names;
    use crate::diag::fuzzed;
    use crate::proc::{fuzzed as proc_fuzzed, net_table, status::Status};

    /// Minimum number of cases of each property.
    const CASES: u32 = 5000;

    /// Most bytes of a file that are mutated.
    const MOST_OF_FILE: usize = 4096;

    /// Replies of this kernel and files of /proc, captured with sockets of every kind open.
    struct Captured {
        datagrams: Vec<Vec<u8>>,
        files: Vec<Vec<u8>>,
    }

    static CAPTURED: LazyLock<Captured> = LazyLock::new(|| {
        let directory = tempfile::tempdir().unwrap();
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = std::net::TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
        let (mut server, _) = tcp.accept().unwrap();
        client.write_all(&[7; 300]).unwrap();
        server.read_exact(&mut [0; 300]).unwrap();
        let tcp6 = std::net::TcpListener::bind("[::1]:0");
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let unix = std::os::unix::net::UnixListener::bind(directory.path().join("a b.sock")).unwrap();
        let pair = std::os::unix::net::UnixDatagram::pair().unwrap();
        let datagrams = fuzzed::captured();
        let names = ["net/tcp", "net/tcp6", "net/udp", "net/unix", "status", "cgroup", "cmdline", "environ"];
        let mut files: Vec<Vec<u8>> =
            names.iter().filter_map(|name| std::fs::read(format!("/proc/self/{name}")).ok()).collect();
        files.push(std::fs::read("/etc/passwd").unwrap_or_default());
        for file in &mut files {
            // Tables of a busy machine are long, and their lines are all alike.
            file.truncate(MOST_OF_FILE);
        }
        drop((server, tcp6, udp, unix, pair));
        Captured { datagrams, files }
    });

    proptest! {
        #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(CASES), ..ProptestConfig::default() })]

        #[test]
        fn replies_of_the_kernel(bytes in bent(CAPTURED.datagrams.clone())) {
            let sockets = fuzzed::read(&bytes);
            // A socket needs at least its fixed part, whatever lengths it claims.
            prop_assert!(sockets.len() <= 5 * bytes.len().div_ceil(16));
            for socket in sockets {
                prop_assert!(socket.local.to_string().len() <= 4 * bytes.len() + 64);
                let _ = (socket.is_listening(), socket.local.inet(), Address::path(&socket.peer).is_some());
            }
        }

        #[test]
        fn files_of_proc(bytes in bent(CAPTURED.files.clone())) {
            let lines = bytes.iter().filter(|byte| **byte == b'\n').count() + 1;
            for sockets in net_table::fuzzed(&bytes) {
                prop_assert!(sockets.len() <= lines);
            }
            let status = Status::parse(&bytes);
            let _ = status.may(2, 0o660, 1, 1);
            let _ = Names::users_in(&bytes).name(0);
            proc_fuzzed(&bytes);
        }
    }

    #[test]
    fn what_was_captured_is_worth_bending() {
        let sockets: Vec<_> = CAPTURED.datagrams.iter().flat_map(|bytes| fuzzed::read(bytes)).collect();
        for kind in [SocketKind::Tcp, SocketKind::Udp, SocketKind::UnixStream, SocketKind::UnixDgram] {
            assert!(sockets.iter().any(|socket| socket.kind == kind), "no {kind:?} was captured");
        }
        assert!(sockets.iter().any(|socket| socket.local.to_string().ends_with("a b.sock")));
        assert!(CAPTURED.files.len() >= 7);
    }
}
