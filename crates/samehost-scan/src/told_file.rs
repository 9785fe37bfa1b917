//! What a server says that it was started with. A Redis writes a title over its command line, and names its file when asked.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use samehost_login::redis::Dialogue;
use samehost_login::{Expected, ServerAddress};
use samehost_model::Endpoint;
use samehost_model::scan::{Scan, Service};
use samehost_services::Kind;

/// How long a server may take to say what it was started with. It answers at once or is busy, and then its file is not known.
const TO_TELL: Duration = Duration::from_millis(500);

/// What each process said, which is asked once: a connection of ours in the middle of a look at who uses a port counted as somebody's.
static TOLD: LazyLock<Mutex<HashMap<u32, Option<PathBuf>>>> = LazyLock::new(Mutex::default);

/// The file that a service says it was started with, where its command line does not; an empty path where it was started with none.
pub fn told_file(scan: &Scan, service: &Service) -> Option<PathBuf> {
    let pid = service.pid?;
    let mut told = TOLD.lock().ok()?;
    told.entry(pid).or_insert_with(|| ask(scan, service)).clone()
}

/// `None` where a Redis asks for a login first, as nothing is known of a server yet that would get a password.
fn ask(scan: &Scan, service: &Service) -> Option<PathBuf> {
    let is_here =
        scan.network_namespaces.iter().any(|space| space.own && space.inode == service.network_namespace);
    if service.kind?.family() != Kind::Redis || !is_here {
        return None;
    }
    // Its socket first: who looks for clients of its port, another samehost too, is to find none of ours.
    let path = scan.listeners(service).find_map(|socket| socket.local.path());
    let inet =
        scan.listeners(service).find_map(|socket| socket.local.inet().filter(|_| socket.kind.is_tcp()));
    let endpoint = match (path, inet) {
        (Some(path), _) => Endpoint::Unix(path.to_owned()),
        (None, at) => Endpoint::Tcp { host: at?.ip().to_string(), port: at?.port() },
    };
    let mut dialogue = Dialogue::begin(&ServerAddress::open(endpoint), &Expected::default(), TO_TELL).ok()?;
    let told = dialogue.identity();
    dialogue.abort();
    let told = told.ok()?;
    if told.pid == service.pid { told.file } else { None }
}
