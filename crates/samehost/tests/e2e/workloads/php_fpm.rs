//! The private PHP-FPM: both endpoints answer, its children are told apart by pool, and nothing of it is left.
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;

use samehost_bench::private_servers::{PhpFpm, PhpFpmSpec, Pool};
use samehost_model::{Endpoint, Transport};

fn spec() -> PhpFpmSpec {
    let pool = |name: &str, transport, children| Pool {
        name: name.into(),
        transport,
        children,
        backlog: 7,
        clear_env: true,
        settings: vec![("memory_limit".into(), "64M".into())],
    };
    PhpFpmSpec {
        pools: vec![pool("tcp", Transport::Tcp, 2), pool("unix", Transport::Unix, 3)],
        scripts: vec![("hello.php".into(), "<?php echo 'hello';".into())],
        ..PhpFpmSpec::default()
    }
}

fn runs(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn two_pools_in_one_master_and_nothing_left() {
    let server = PhpFpm::start(Path::new(env!("CARGO_BIN_EXE_samehost")), &spec()).unwrap();
    assert_eq!((server.pids_of("tcp").len(), server.pids_of("unix").len()), (2, 3));
    assert!(server.pids_of("no").is_empty());
    let Some(Endpoint::Tcp { port, .. }) = server.endpoint("tcp") else { panic!("no port") };
    TcpStream::connect(("127.0.0.1", *port)).unwrap();
    let Some(Endpoint::Unix(path)) = server.endpoint("unix") else { panic!("no path") };
    UnixStream::connect(path).unwrap();
    assert_eq!(std::fs::read_to_string(server.scripts().join("hello.php")).unwrap(), "<?php echo 'hello';");
    assert!(server.stderr_tail().contains("ready to handle connections"), "{}", server.stderr_tail());
    let (directory, master, children) = (server.directory().to_owned(), server.pid(), server.pids_of("unix"));
    drop(server);
    assert!(!directory.exists());
    assert!(!runs(master) && !children.into_iter().any(runs));
}
