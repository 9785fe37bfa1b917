//! The parsers of what the kernel says, held against bytes of this kernel that were bent: bytes changed, cut off, put in,
//! lengths set to extremes. They may read nonsense; they may not panic, and not go on for ever. Many more cases:
//! `PROPTEST_CASES=1000000 cargo test -p samehost-system mutated`.

use std::io::{Read, Write};
use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::sample::Index;
use samehost_model::scan::{Address, SocketKind};

use crate::diag::fuzzed;
use crate::proc::{fuzzed as proc_fuzzed, net_table, status::Status, users::Names};

/// Cases of each property, where the environment does not say.
const CASES: u32 = 5000;

/// The most of a file that is bent.
const MOST_OF_FILE: usize = 4096;

/// One change to bytes.
#[derive(Clone, Debug)]
enum Bend {
    Set(Index, u8),
    /// The numbers that lengths go wrong with.
    Number(Index, u32),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    Cut(Index),
    /// A piece of the bytes once more, elsewhere.
    Repeat(Index, Index, usize),
}

fn bend() -> impl Strategy<Value = Bend> {
    let number = prop_oneof![
        Just(0),
        Just(1),
        Just(3),
        Just(4),
        Just(15),
        Just(u32::from(u16::MAX)),
        Just(i32::MAX as u32),
        Just(u32::MAX),
        any::<u32>()
    ];
    prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Bend::Set(at, byte)),
        (any::<Index>(), number).prop_map(|(at, number)| Bend::Number(at, number)),
        (any::<Index>(), proptest::collection::vec(any::<u8>(), 1..40))
            .prop_map(|(at, bytes)| Bend::Insert(at, bytes)),
        (any::<Index>(), 1..80usize).prop_map(|(at, length)| Bend::Remove(at, length)),
        any::<Index>().prop_map(Bend::Cut),
        (any::<Index>(), any::<Index>(), 1..200usize)
            .prop_map(|(from, to, length)| Bend::Repeat(from, to, length)),
    ]
}

fn bent(mut bytes: Vec<u8>, bends: &[Bend]) -> Vec<u8> {
    for bend in bends {
        let place = |at: &Index, bytes: &[u8]| at.index(bytes.len() + 1);
        match bend {
            Bend::Set(at, byte) => {
                let at = place(at, &bytes);
                if let Some(old) = bytes.get_mut(at) {
                    *old = *byte;
                }
            }
            Bend::Number(at, number) => {
                let at = place(at, &bytes) & !3;
                for (old, new) in bytes.iter_mut().skip(at).zip(number.to_ne_bytes()) {
                    *old = new;
                }
            }
            Bend::Insert(at, more) => {
                let at = place(at, &bytes);
                bytes.splice(at..at, more.iter().copied());
            }
            Bend::Remove(at, length) => {
                let at = place(at, &bytes);
                bytes.drain(at..bytes.len().min(at + length));
            }
            Bend::Cut(at) => bytes.truncate(place(at, &bytes)),
            Bend::Repeat(from, to, length) => {
                let (from, to) = (place(from, &bytes), place(to, &bytes));
                let piece: Vec<u8> = bytes[from..bytes.len().min(from + length)].to_vec();
                bytes.splice(to..to, piece);
            }
        }
    }
    bytes
}

/// What this kernel answers and /proc says, with sockets of every kind open.
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
        // Tables of a busy machine are long, and each of their lines is like the others.
        file.truncate(MOST_OF_FILE);
    }
    drop((server, tcp6, udp, unix, pair));
    Captured { datagrams, files }
});

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(CASES), ..ProptestConfig::default() })]

    #[test]
    fn replies_of_the_kernel(which: Index, bends in proptest::collection::vec(bend(), 0..12)) {
        let bytes = bent(which.get(&CAPTURED.datagrams).clone(), &bends);
        let sockets = fuzzed::read(&bytes);
        // A socket takes its fixed part at least, whatever it claims of itself.
        prop_assert!(sockets.len() <= 5 * bytes.len().div_ceil(16));
        for socket in sockets {
            prop_assert!(socket.local.to_string().len() <= 4 * bytes.len() + 64);
            let _ = (socket.is_listening(), socket.local.inet(), Address::path(&socket.peer).is_some());
        }
    }

    #[test]
    fn files_of_proc(which: Index, bends in proptest::collection::vec(bend(), 0..12)) {
        let bytes = bent(which.get(&CAPTURED.files).clone(), &bends);
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count() + 1;
        for sockets in net_table::fuzzed(&bytes) {
            prop_assert!(sockets.len() <= lines);
        }
        let status = Status::parse(&bytes);
        let _ = status.may(2, 0o660, 1, 1);
        let _ = Names::parse(&bytes).name(0);
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
