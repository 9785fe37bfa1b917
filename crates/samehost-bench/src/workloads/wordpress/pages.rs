//! Pages of a site: requests that are marked with the name of their trial, and PHP's log of them: number of queries,
//! their time, and the time of each page. The log is written by `php/prepend.php`, a line for each page.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use samehost_model::Transport;

use crate::error::BenchError;
use crate::private_servers::fronts::KEY;

/// How long a log line may take after its page has arrived.
const MAX_SEARCH: Duration = Duration::from_secs(2);

/// One page, as PHP logged it. Times are in microseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Page {
    trial: String,
    page_us: f64,
    queries: f64,
    query_us: f64,
    /// The client library's description of its connection: `Localhost via UNIX socket`; empty without a connection.
    library: String,
    /// Sockets that the page opened, according to the kernel: `unix stream`, `tcp 3306`. Only a probe asks for them.
    kernel: Vec<String>,
    connect_us: Vec<f64>,
}

impl Page {
    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split('\t').collect();
        let [trial, page_us, queries, query_us, library, kernel, connect_us, ..] = *fields else {
            return None;
        };
        Some(Page {
            trial: trial.to_owned(),
            page_us: page_us.parse().ok()?,
            queries: queries.parse().ok()?,
            query_us: query_us.parse().ok()?,
            library: library.to_owned(),
            kernel: list(kernel),
            connect_us: list(connect_us).iter().flat_map(|item| item.parse()).collect(),
        })
    }

    /// Whether the connection to the database used this transport. Both the kernel and the library must say so: the one
    /// lists all sockets that the page opened, and the other's word alone proves nothing.
    pub(super) fn is_over(&self, transport: Transport, port: Option<u16>) -> bool {
        let unix = self.library.contains("UNIX socket");
        let tcp = self.library.contains("TCP/IP");
        match transport {
            Transport::Unix => unix && self.kernel.iter().any(|socket| socket == "unix stream"),
            _ => tcp && self.kernel.iter().any(|socket| is_of_port(socket, port)),
        }
    }

    pub(super) fn has_database(&self) -> bool {
        !self.library.is_empty()
    }

    pub(super) fn observed(&self) -> String {
        let kernel = match self.kernel.as_slice() {
            [] => "no socket seen".to_owned(),
            some => some.join(", "),
        };
        format!("database: {kernel} by the kernel, `{}` by PHP", self.library)
    }

    /// Mean time to connect to the database, in milliseconds; `None` without a probe.
    pub(super) fn connect_ms(&self) -> Option<f64> {
        if self.connect_us.is_empty() {
            return None;
        }
        Some(self.connect_us.iter().sum::<f64>() / self.connect_us.len() as f64 / 1e3)
    }
}

/// Whether a socket is of TCP, and of this port where both are known.
fn is_of_port(socket: &str, port: Option<u16>) -> bool {
    match (port, socket.split_once(' ')) {
        (Some(port), Some((_, number))) => socket.starts_with("tcp") && number == port.to_string(),
        _ => socket.starts_with("tcp"),
    }
}

fn list(text: &str) -> Vec<String> {
    text.split(',').filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

/// Means of a trial's pages, by name of measurement. WordPress does not time its connect, so the mean of the probe before
/// the trial stands for that of each page: a page's time in the database is its queries and one connect. What has no
/// finite value is left out, as `connect_ms` is NaN where the probe timed none.
pub(super) fn summarise(pages: &[Page], connect_ms: f64) -> BTreeMap<String, f64> {
    let count = pages.len().max(1) as f64;
    let page_ms = pages.iter().map(|page| page.page_us).sum::<f64>() / count / 1e3;
    let query_ms = pages.iter().map(|page| page.query_us).sum::<f64>() / count / 1e3;
    let database_ms = query_ms + connect_ms;
    let mut means = BTreeMap::new();
    for (name, value) in [
        ("queries", pages.iter().map(|page| page.queries).sum::<f64>() / count),
        ("query_ms", query_ms),
        ("connect_ms", connect_ms),
        ("database_ms", database_ms),
        ("page_ms", page_ms),
        ("database_share_percent", 100.0 * database_ms / page_ms),
    ] {
        if value.is_finite() {
            means.insert(name.to_owned(), value);
        }
    }
    means
}

pub(super) struct PageLog {
    path: PathBuf,
    read_bytes: u64,
    /// Beginning of a line that is not complete yet.
    pending: String,
}

impl PageLog {
    pub(super) fn new(path: &Path) -> Self {
        PageLog { path: path.to_owned(), read_bytes: 0, pending: String::new() }
    }

    /// Pages of a trial that were logged since the last call. A page is logged after it was sent, so this waits until
    /// there are at least `least`, but no longer than [`MAX_SEARCH`].
    pub(super) fn of_trial(&mut self, trial: &str, least: u64) -> io::Result<Vec<Page>> {
        let begun = Instant::now();
        let mut pages = Vec::new();
        loop {
            pages.extend(self.new_pages()?);
            pages.retain(|page| page.trial == trial);
            if pages.len() as u64 >= least || begun.elapsed() > MAX_SEARCH {
                return Ok(pages);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn new_pages(&mut self) -> io::Result<Vec<Page>> {
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            // No page has been served yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        file.seek(SeekFrom::Start(self.read_bytes))?;
        self.read_bytes += file.read_to_string(&mut self.pending)? as u64;
        let Some(last) = self.pending.rfind('\n') else { return Ok(Vec::new()) };
        let whole = last + 1;
        let pages = self.pending[..whole].lines().flat_map(Page::parse).collect();
        self.pending.drain(..whole);
        Ok(pages)
    }
}

/// Further connections to the database that a probe makes, one after the other, to time them.
const CONNECTS: u32 = 16;

/// Checks that a host can be sent in a request; it may come from the site's own settings.
pub(super) fn check_host(host: &str) -> Result<(), BenchError> {
    for byte in host.bytes() {
        if !byte.is_ascii_alphanumeric() && !b".-:_[]".contains(&byte) {
            return BenchError::refuse(format!("--host {} is not a host name", host.escape_debug()));
        }
    }
    Ok(())
}

pub(super) fn page(path: &str, host: &str, trial: &str, key: &str) -> Arc<[u8]> {
    request(path, host, trial, key, "")
}

/// A request after which PHP examines its connection to the database, and times some more connections.
pub(super) fn probe(path: &str, host: &str, trial: &str, key: &str) -> Arc<[u8]> {
    request(path, host, trial, key, &format!("X-Samehost-Probe: {CONNECTS}\r\n"))
}

fn request(path: &str, host: &str, trial: &str, key: &str, more: &str) -> Arc<[u8]> {
    let head = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{KEY}: {key}\r\n");
    format!("{head}X-Samehost-Trial: {trial}\r\n{more}\r\n").into_bytes().into()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::workloads::http::check_path;

    const UNIX: &str = "t1\t60000.5\t54\t5000.25\tLocalhost via UNIX socket\tunix stream\t300,500";
    const TCP: &str = "t2\t61000\t54\t6000\t127.0.0.1 via TCP/IP\ttcp 3306\t";

    #[test]
    fn both_witnesses_must_agree() {
        let (unix, tcp) = (Page::parse(UNIX).unwrap(), Page::parse(TCP).unwrap());
        assert!(unix.is_over(Transport::Unix, None) && !unix.is_over(Transport::Tcp, Some(3306)));
        assert!(tcp.is_over(Transport::Tcp, Some(3306)) && !tcp.is_over(Transport::Tcp, Some(3307)));
        assert!(!tcp.is_over(Transport::Unix, None));
        let silent = Page { kernel: Vec::new(), ..unix.clone() };
        assert!(!silent.is_over(Transport::Unix, None), "the library's word alone is none");
        assert_eq!(unix.connect_ms(), Some(0.4));
        assert_eq!(tcp.connect_ms(), None);
        assert_eq!(Page::parse("t\t1\t2"), None);
    }

    #[test]
    fn pages_are_summed_up() {
        let page = Page::parse(UNIX).unwrap();
        let other = Page { query_us: 7000.25, ..page.clone() };
        let sums = summarise(&[page, other], 0.5);
        assert_eq!((sums["queries"], sums["query_ms"], sums["database_ms"]), (54.0, 6.00025, 6.50025));
        assert!((sums["database_share_percent"] - 10.833_66).abs() < 1e-3, "{sums:?}");
        assert!(!summarise(&[], f64::NAN).contains_key("database_ms"));
    }

    #[test]
    fn lines_come_in_pieces() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pages");
        let mut log = PageLog::new(&path);
        assert_eq!(log.of_trial("t1", 0).unwrap(), []);
        let mut file = File::create(&path).unwrap();
        write!(file, "{TCP}\n{UNIX}\n{}", &UNIX[..10]).unwrap();
        assert_eq!(log.of_trial("t1", 1).unwrap().len(), 1);
        writeln!(file, "{}", &UNIX[10..]).unwrap();
        assert_eq!(log.of_trial("t1", 1).unwrap(), [Page::parse(UNIX).unwrap()]);
    }

    #[test]
    fn nothing_gets_into_a_request_that_would_be_a_second_line() {
        assert!(check_path("/a?b=c").is_ok() && check_path("a").is_err() && check_path("/a b").is_err());
        assert!(check_path("/a\r\nX: y").is_err() && check_host("a\r\nb").is_err());
        assert!(
            check_host("").is_ok() && check_host("blog.example:8080").is_ok() && check_host("a/b").is_err()
        );
        let text = String::from_utf8(page("/", "h", "7", "k").to_vec()).unwrap();
        assert_eq!(text, "GET / HTTP/1.1\r\nHost: h\r\nX-Samehost-Key: k\r\nX-Samehost-Trial: 7\r\n\r\n");
    }
}
