//! Reads PHP's log of pages: number of queries, their time, and the time of each page.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use samehost_model::Transport;

/// How long a log line may take after its page has arrived.
const LONGEST_SEARCH: Duration = Duration::from_secs(2);

/// One page, as PHP logged it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Page {
    trial: String,
    page_us: f64,
    queries: f64,
    query_us: f64,
    /// The client library's description of its connection.
    library: String,
    /// Sockets that the page opened, according to the kernel: `unix stream`, `tcp 3306`.
    kernel: Vec<String>,
    /// Times of further connections.
    connect_us: Vec<f64>,
}

impl Page {
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split('\t');
        let mut next = || fields.next();
        Some(Page {
            trial: next()?.to_owned(),
            page_us: next()?.parse().ok()?,
            queries: next()?.parse().ok()?,
            query_us: next()?.parse().ok()?,
            library: next()?.to_owned(),
            kernel: list(next()?),
            connect_us: list(next()?).iter().filter_map(|item| item.parse().ok()).collect(),
        })
    }

    /// Whether the connection to the database used this transport, according to both the kernel and the library.
    pub(super) fn is_over(&self, transport: Transport, port: Option<u16>) -> bool {
        let unix = self.library.contains("UNIX socket");
        let tcp = self.library.contains("TCP/IP");
        let seen = |wanted: &dyn Fn(&str) -> bool| self.kernel.iter().any(|socket| wanted(socket));
        let of_port = |socket: &str| match (port, socket.split_once(' ')) {
            (Some(port), Some((_, number))) => socket.starts_with("tcp") && number == port.to_string(),
            _ => socket.starts_with("tcp"),
        };
        match transport {
            Transport::Unix => unix && seen(&|socket| socket == "unix stream"),
            _ => tcp && seen(&of_port),
        }
    }

    /// Whether it had a connection to a database.
    pub(super) fn has_database(&self) -> bool {
        !self.library.is_empty()
    }

    /// Evidence about its connection, in words.
    pub(super) fn observed(&self) -> String {
        let kernel = match self.kernel.as_slice() {
            [] => "no socket seen".to_owned(),
            some => some.join(", "),
        };
        format!("database: {kernel} by the kernel, `{}` by PHP", self.library)
    }

    /// Mean time to connect.
    pub(super) fn connect_ms(&self) -> Option<f64> {
        let count = self.connect_us.len();
        (count > 0).then(|| self.connect_us.iter().sum::<f64>() / count as f64 / 1e3)
    }
}

fn list(text: &str) -> Vec<String> {
    text.split(',').filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

/// Means of a trial's pages, by name of measurement.
pub(super) fn summarise(pages: &[Page], connect_ms: f64) -> BTreeMap<String, f64> {
    let mean = |value: fn(&Page) -> f64| pages.iter().map(value).sum::<f64>() / pages.len().max(1) as f64;
    let (page_ms, query_ms) = (mean(|page| page.page_us) / 1e3, mean(|page| page.query_us) / 1e3);
    let database_ms = query_ms + connect_ms;
    [
        ("queries", mean(|page| page.queries)),
        ("query_ms", query_ms),
        ("connect_ms", connect_ms),
        ("database_ms", database_ms),
        ("page_ms", page_ms),
        ("database_share_percent", 100.0 * database_ms / page_ms),
    ]
    .into_iter()
    .filter(|(_, value)| value.is_finite())
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

/// The log file that PHP writes.
pub(super) struct PageLog {
    path: PathBuf,
    read: u64,
    /// Beginning of a line that is not complete yet.
    pending: String,
}

impl PageLog {
    pub(super) fn new(path: &Path) -> Self {
        PageLog { path: path.to_owned(), read: 0, pending: String::new() }
    }

    /// Pages of a trial logged since the last call. Waits until there are at least `least`, for a limited time.
    pub(super) fn of_trial(&mut self, trial: &str, least: u64) -> io::Result<Vec<Page>> {
        let begun = Instant::now();
        let mut pages = Vec::new();
        loop {
            pages.extend(self.new_pages()?.into_iter().filter(|page| page.trial == trial));
            if pages.len() as u64 >= least || begun.elapsed() > LONGEST_SEARCH {
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
        file.seek(SeekFrom::Start(self.read))?;
        self.read += file.read_to_string(&mut self.pending)? as u64;
        let whole = self.pending.rfind('\n').map_or(0, |at| at + 1);
        let pages = self.pending[..whole].lines().filter_map(Page::parse).collect();
        self.pending.drain(..whole);
        Ok(pages)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

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
}
