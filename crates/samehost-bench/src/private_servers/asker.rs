//! A client of `tcp+run`: this program, started under `samehost run`. It asks for host and port, and hands us the sockets that it
//! gets. It cannot be this process: the supervisor would stop its own calls, and would see our second descriptor of each socket.

use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use samehost_model::Endpoint;
use samehost_system::nowhere;
use samehost_transport::{ConnectOptions, Offer, connect, offer};

use crate::error::BenchError;

/// How long it may take to end after we hang up.
const PATIENCE: Duration = Duration::from_secs(2);
const MOMENT: Duration = Duration::from_millis(2);

/// A running client. It ends when dropped.
#[derive(Debug)]
pub(crate) struct Asker {
    endpoint: Endpoint,
    /// Dropped first: the client ends when nobody asks it any more.
    offer: Option<Offer>,
    supervisor: Child,
}

impl Asker {
    /// Starts a client that asks for `tcp`, and is connected to `unix`; and has it connect once.
    ///
    /// # Errors
    /// When `samehost run` does not work here, with its words.
    pub(crate) fn start(program: &Path, tcp: &Endpoint, unix: &Endpoint) -> Result<Self, BenchError> {
        let (Endpoint::Tcp { host, port }, Endpoint::Unix(path)) = (tcp, unix) else {
            return Err(BenchError::Usage(format!(
                "tcp+run needs a TCP port and a path, not {tcp} and {unix}"
            )));
        };
        let endpoint = Endpoint::TcpRun { host: host.clone(), port: *port, path: path.clone() };
        let address = host
            .parse()
            .map_or_else(|_| format!("{host}:{port}"), |ip| SocketAddr::new(ip, *port).to_string());
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(BenchError::during("starting a client under `samehost run`"))?;
        let mut supervisor = Command::new(program)
            .args(["run", "--quiet", "--map", &format!("{address}={}", path.display()), "--"])
            .arg(program)
            .args(["hand-over", &tcp.to_string()])
            .stdin(theirs)
            .stdout(nowhere())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(BenchError::during("starting a client under `samehost run`"))?;
        let stderr = supervisor.stderr.take();
        let mut asker = Asker { offer: Some(offer(&endpoint, ours)), endpoint, supervisor };
        if let Err(error) = connect(&asker.endpoint, &ConnectOptions::default()) {
            asker.end();
            let mut line = String::new();
            let _ = stderr.map(|mut stderr| stderr.read_to_string(&mut line));
            return Err(BenchError::Start {
                server: "a client under `samehost run`".into(),
                reason: error.to_string(),
                server_said: line,
            });
        }
        Ok(asker)
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    fn end(&mut self) {
        self.offer = None;
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if !matches!(self.supervisor.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(MOMENT);
        }
        let _ = self.supervisor.kill();
        let _ = self.supervisor.wait();
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.end();
    }
}
