//! Where a client really connects: listeners that take note of who comes, and hang up.

use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::disk::Disk;
use samehost_edit::editor;
use samehost_model::Endpoint;

/// Two sockets and a port.
pub(crate) struct Listeners {
    folder: tempfile::TempDir,
    default: UnixListener,
    other: UnixListener,
    tcp: TcpListener,
}

impl Listeners {
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("samehost-").tempdir().unwrap();
        let bind = |name: &str| {
            let listener = UnixListener::bind(folder.path().join(name)).unwrap();
            listener.set_nonblocking(true).unwrap();
            listener
        };
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        tcp.set_nonblocking(true).unwrap();
        Listeners { default: bind("default.sock"), other: bind("other.sock"), tcp, folder }
    }

    pub(crate) fn port(&self) -> u16 {
        self.tcp.local_addr().unwrap().port()
    }

    pub(crate) fn default(&self) -> PathBuf {
        self.folder.path().join("default.sock")
    }

    pub(crate) fn other(&self) -> PathBuf {
        self.folder.path().join("other.sock")
    }

    /// PHP whose clients of MySQL take the first socket for the default one.
    pub(crate) fn php(&self, script: &str, arguments: &[&str]) -> Command {
        let mut php = Command::new("php");
        for option in ["mysqli.default_socket", "pdo_mysql.default_socket"] {
            php.arg("-d").arg(format!("{option}={}", self.default().display()));
        }
        php.args(["-r", script, "--"]).args(arguments);
        php
    }

    /// Where an editor says that a file's first connection goes, with the default socket of these listeners.
    pub(crate) fn understood(&self, name: &str, file_name: &str, text: &str) -> Endpoint {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(file_name);
        std::fs::write(&file, text).unwrap();
        let reading = editor(name).unwrap().read(&file, &Disk::default()).unwrap();
        match &reading.settings[0].endpoint {
            Endpoint::Unix(path) if path == Path::new("/run/mysqld/mysqld.sock") => {
                Endpoint::Unix(self.default())
            }
            other => other.clone(),
        }
    }

    /// Where a program connects.
    pub(crate) fn reached(&self, program: &mut Command) -> Vec<Endpoint> {
        let child = program.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut child: Child = child.expect("php (package php-cli)");
        let mut reached = Vec::new();
        let give_up = Instant::now() + Duration::from_secs(20);
        loop {
            let ended = child.try_wait().unwrap().is_some();
            let unix = |path: &Path| Endpoint::Unix(path.to_owned());
            if self.default.accept().is_ok() {
                reached.push(unix(&self.default()));
            }
            if self.other.accept().is_ok() {
                reached.push(unix(&self.other()));
            }
            if self.tcp.accept().is_ok() {
                reached.push(Endpoint::Tcp { host: "127.0.0.1".into(), port: self.port() });
            }
            if ended {
                return reached;
            }
            if Instant::now() > give_up {
                child.kill().unwrap();
                child.wait().unwrap();
                return reached;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
