//! Takes a snapshot of a page outside of any measurement, from several requests, and later checks whether the page is
//! the same, and how long it takes a visitor. What differs between the first answers may differ later; the rest may not. A status alone proves little:
//! a page may report with 200 that its database is gone, and a cache may answer for an application that is down.

use std::time::{Duration, Instant};

use samehost_model::Transport;
use samehost_model::switch::PageTimes;
use samehost_stats::median;
use samehost_system::clock;
use serde::{Deserialize, Serialize};

use super::exchange::{RequestParts, fetch};
use super::{authorization, read};
use crate::error::BenchError;
use crate::workload::Written;

/// Requests for a snapshot: what all answers have in common is taken to stay the same.
const LOOKS: usize = 3;
/// One in this many of the constant parts may disappear: news, offers and quotes change.
const MAY_CHANGE: usize = 5;
/// For how long a page is timed, and with how many requests at least.
const PERIOD: Duration = Duration::from_secs(2);
const FEWEST: usize = 5;
const BLOCKS: usize = 10;
/// One in so many comes first and does not count: a reloaded server's workers read their files then.
const COLD: usize = 5;
/// Between two requests, so that they take no worker from the visitors, and no limit of requests is soon reached.
const PAUSE: Duration = Duration::from_millis(10);
const FAILURES: &[&str] = &[
    "Error establishing a database connection",
    "Database connection error",
    "Could not connect to the database",
    "SQLSTATE[",
    "PDOException",
    "mysqli_sql_exception",
    "OperationalError",
    "ActiveRecord::ConnectionNotEstablished",
    "RedisException",
    "The website encountered an unexpected error",
];
/// Words of an application that caught its failure and says it in its own way.
const TROUBLES: &[&str] =
    &["error", "exception", "failed", "could not", "couldn't", "cannot", "unable to", "unavailable", "sorry"];
const CACHES: &[&str] = &[
    "x-cache", "x-cache-status", "cf-cache-status", "x-fastcgi-cache", "x-proxy-cache", "x-litespeed-cache",
];

/// Why a page has no times.
#[derive(Debug, thiserror::Error)]
pub enum Untimed {
    #[error(transparent)]
    Unanswered(#[from] BenchError),
    #[error("request {request} in a row was answered otherwise: {how}")]
    Differs { request: usize, how: String },
}

/// A snapshot of a page. It is stored, and compared much later, so hashes of the parts stand for the text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageLook {
    status: u16,
    /// Media type, and the target of a redirect without its numbers.
    kind: String,
    /// Sorted hashes of the parts that all answers have in common.
    parts: Vec<u64>,
    shortest: usize,
    /// One of [`FAILURES`]: texts that applications show when their database or cache does not answer.
    failure: Option<String>,
    /// How often it says one of [`TROUBLES`]; `None` in what an older version stored.
    #[serde(default)]
    troubles: Option<usize>,
    cache: Option<String>,
}

impl PageLook {
    /// Takes a snapshot with several requests to an `http:` or `http+unix:` URL.
    ///
    /// # Errors
    /// When the URL cannot be parsed, or the server does not answer, or not in HTTP.
    pub fn take(url: &str) -> Result<Self, BenchError> {
        let (mut first, _) = timed(url)?;
        for _ in 1..LOOKS {
            let (next, _) = timed(url)?;
            first.parts.retain(|part| next.parts.contains(part));
            first.shortest = first.shortest.min(next.shortest);
        }
        Ok(first)
    }

    /// Field of the cache that answered instead of the application; `None` if the application answered.
    #[must_use]
    pub fn cache(&self) -> Option<&str> {
        self.cache.as_deref()
    }

    /// Whether it is an error, or says that the application fails: that it stays so proves nothing.
    #[must_use]
    pub fn fails(&self) -> bool {
        self.status >= 400 || self.failure.is_some()
    }

    /// Requests the page again. Returns how it differs, or `None` if it is the same.
    ///
    /// # Errors
    /// When the server does not answer, or not in HTTP.
    pub fn differs(&self, url: &str) -> Result<Option<String>, BenchError> {
        Ok(self.difference(&timed(url)?.0))
    }

    /// Times the page as a visitor has it, for some two seconds: from the connect to the last byte, one request after the
    /// other. Only answers that are as in this snapshot count: an error is soon there.
    ///
    /// # Errors
    /// When the server does not answer, not in HTTP, or otherwise.
    pub fn times(&self, url: &str) -> Result<PageTimes, Untimed> {
        let (at, begun) = (clock::utc_now(), Instant::now());
        let mut times_ms = Vec::new();
        while times_ms.len() < FEWEST || begun.elapsed() < PERIOD {
            let (now, took) = timed(url)?;
            if let Some(how) = self.difference(&now) {
                return Err(Untimed::Differs { request: times_ms.len() + 1, how });
            }
            times_ms.push(1000.0 * took.as_secs_f64());
            std::thread::sleep(PAUSE);
        }
        times_ms.drain(..times_ms.len().div_ceil(COLD));
        Ok(PageTimes {
            at,
            requests: times_ms.len() as u32,
            median_ms: median(&times_ms).unwrap_or_default(),
            blocks_ms: in_blocks(&times_ms),
        })
    }

    /// The first difference that a person would call one, in the order of how surely it is a failure: the status, a text
    /// of a failure, a cache that answers, the kind, the parts, half of the length.
    fn difference(&self, now: &PageLook) -> Option<String> {
        if now.status != self.status {
            return Some(match &now.failure {
                Some(failure) => format!("HTTP {}, `{failure}`", now.status),
                None => format!("HTTP {}", now.status),
            });
        }
        if let Some(failure) = &now.failure
            && now.failure != self.failure
        {
            return Some(format!("it says `{failure}`"));
        }
        if let (Some(cache), None) = (&now.cache, &self.cache) {
            return Some(format!("a cache answers in place of the application ({cache})"));
        }
        if now.kind != self.kind {
            return Some(format!("it is {} now, and was {}", now.kind, self.kind));
        }
        let gone = self.parts.iter().filter(|part| !now.parts.contains(part)).count();
        if gone * MAY_CHANGE > self.parts.len() {
            return Some(format!(
                "{gone} of the {} parts that were always the same are gone",
                self.parts.len()
            ));
        }
        // News and offers change, and bring no such word where one of the parts has gone.
        if gone > 0
            && let (Some(before), Some(after)) = (self.troubles, now.troubles)
            && after > before
        {
            return Some(
                "a part of it is gone, and it speaks of an error or says sorry, which it did not".to_owned(),
            );
        }
        if now.shortest * 2 < self.shortest {
            return Some(format!("it has {} bytes now, and had {}", now.shortest, self.shortest));
        }
        None
    }
}

/// Formats as `HTTP 200, text/html, 5120 bytes`.
impl std::fmt::Display for PageLook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HTTP {}, {}, {} bytes", self.status, self.kind, self.shortest)?;
        match &self.failure {
            Some(failure) => write!(f, ", which says `{failure}`"),
            None => Ok(()),
        }
    }
}

/// The median of each of ten blocks of successive values, as equal in number as can be; of fewer values, each is a block.
fn in_blocks(values: &[f64]) -> Vec<f64> {
    let blocks = values.len().min(BLOCKS);
    let bounds = |block: usize| block * values.len() / blocks..(block + 1) * values.len() / blocks;
    (0..blocks).filter_map(|block| median(&values[bounds(block)])).collect()
}

/// One answer, and how long it took. The query is another one each time, and the fields ask for no cached answer, so that the
/// application has to answer by itself.
fn timed(url: &str) -> Result<(PageLook, Duration), BenchError> {
    // The transport is for an option of the command line, which this is not.
    let address = read(&Written { transport: Transport::Tcp, text: url, password: None })?;
    let (target, host) = match &address.page {
        Some(page) => (page.target.as_str(), page.host.as_str()),
        None => ("/", "localhost"),
    };
    let joint = if target.contains('?') { '&' } else { '?' };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let target = format!("{target}{joint}samehost={}", now.as_nanos());
    let authorization = authorization(&address.credentials);
    let request = RequestParts {
        keeps: false,
        authorization: authorization.as_deref(),
        ..RequestParts::get(&target, host)
    };
    let request = request.bytes();
    let head = request.strip_suffix(b"\r\n").unwrap_or(&request);
    let request = [head, b"Cache-Control: no-cache\r\nPragma: no-cache\r\n\r\n"].concat();
    let asked = Instant::now();
    let fetched = fetch(&address.endpoint, &request)?;
    let took = asked.elapsed();
    let text = String::from_utf8_lossy(&fetched.body.begins);
    let media = fetched.field("content-type").unwrap_or_default();
    let media = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let mut kind = if media.is_empty() { "no media type".to_owned() } else { media };
    if let Some(target) = fetched.field("location") {
        kind.push_str(&format!(" to {}", without_numbers(&target)));
    }
    let failure = FAILURES.iter().find(|failure| text.contains(**failure));
    let look = PageLook {
        status: fetched.head.status,
        kind,
        parts: parts(&text),
        shortest: usize::try_from(fetched.body.length).unwrap_or(usize::MAX),
        failure: failure.map(|failure| (*failure).to_owned()),
        troubles: Some(troubles(&text)),
        cache: cached(|name| fetched.field(name)),
    };
    Ok((look, took))
}

fn troubles(text: &str) -> usize {
    let text = text.to_lowercase();
    TROUBLES.iter().map(|word| text.matches(word).count()).sum()
}

/// The field by which a cache declares that it answered: one of its own with `hit` in it, or an age above 0.
fn cached(field: impl Fn(&str) -> Option<String>) -> Option<String> {
    for name in CACHES {
        if let Some(value) = field(name)
            && value.to_ascii_lowercase().contains("hit")
        {
            return Some(format!("{name}: {value}"));
        }
    }
    let age = field("age")?;
    match age.trim().parse::<u64>() {
        Ok(seconds) if seconds > 0 => Some(format!("age: {age}")),
        _ => None,
    }
}

/// Sorted hashes of a text's lines and elements: a page may be a single line. Words with digits (times, nonces,
/// counters) count as one and the same word, as they differ from answer to answer.
fn parts(text: &str) -> Vec<u64> {
    let mut found = Vec::new();
    for part in text.split(['\n', '>']) {
        let part = without_numbers(part.trim());
        if !part.is_empty() {
            found.push(hash(&part));
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// A text with `#` for each word that has a digit.
fn without_numbers(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for word in text.split_inclusive(|c: char| !c.is_ascii_alphanumeric()) {
        let (word, end) = match word.char_indices().last() {
            Some((at, last)) if !last.is_ascii_alphanumeric() => word.split_at(at),
            _ => (word, ""),
        };
        out.push_str(if word.contains(|c: char| c.is_ascii_digit()) { "#" } else { word });
        out.push_str(end);
    }
    out
}

/// FNV-1a: stable across versions, because stored snapshots are compared much later.
fn hash(text: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325;
    for byte in text.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(status: u16, text: &str) -> PageLook {
        PageLook {
            status,
            kind: "text/html".into(),
            parts: parts(text),
            shortest: text.len(),
            failure: FAILURES.iter().find(|one| text.contains(**one)).map(|one| (*one).to_owned()),
            troubles: Some(troubles(text)),
            cache: None,
        }
    }

    #[test]
    fn numbers_may_change_and_the_rest_may_not() {
        fn page(time: &str, news: &str) -> String {
            format!(
                "<html><title>A blog</title>\n<p>It is {time}</p><i>{news}</i><input value=\"a9f{time}\">\n<b>one</b><b>two</b><b>three</b></html>"
            )
        }
        let before = look(200, &page("12:00:01", "rain"));
        assert_eq!(before.difference(&look(200, &page("12:31:59", "sun"))), None);
        let broken = look(200, "<h1>Error establishing a database connection</h1>");
        assert!(before.difference(&broken).unwrap().contains("Error establishing"));
        assert!(before.difference(&look(500, &page("12:00:01", "rain"))).unwrap().contains("HTTP 500"));
        assert!(before.difference(&look(200, "<html><title>A blog</title>Sorry</html>")).is_some());
        // One part of many says that it failed, in words of its own.
        let caught =
            before.difference(&look(200, &page("12:00:01", "rain").replace("A blog", "Internal error")));
        assert!(caught.is_some_and(|how| how.contains("speaks of an error")));
        let other = page("12:00:01", "rain").replace("<b>two</b>", "<b>The new offer</b>");
        assert_eq!(before.difference(&look(200, &other)), None, "what changes now and then");
        let mut cached = look(200, &page("12:00:01", "rain"));
        cached.cache = Some("x-cache: HIT".into());
        assert!(before.difference(&cached).unwrap().contains("cache"));
    }

    #[test]
    fn blocks_are_in_order_and_as_equal_as_can_be() {
        assert_eq!(in_blocks(&[3.0, 1.0, 2.0]), [3.0, 1.0, 2.0]);
        let twelve: Vec<f64> = (1..=12).map(f64::from).collect();
        assert_eq!(in_blocks(&twelve), [1.0, 2.0, 3.0, 4.0, 5.5, 7.0, 8.0, 9.0, 10.0, 11.5]);
        assert_eq!(in_blocks(&[]), Vec::<f64>::new());
    }

    #[test]
    fn caches_are_known_by_their_words() {
        fn answer(fields: &[(&str, &str)]) -> Option<String> {
            cached(|name| {
                fields.iter().find(|(field, _)| *field == name).map(|(_, value)| (*value).to_owned())
            })
        }
        assert_eq!(answer(&[("x-cache", "HIT from a")]).as_deref(), Some("x-cache: HIT from a"));
        assert_eq!(answer(&[("age", "12")]).as_deref(), Some("age: 12"));
        assert_eq!(answer(&[("x-cache", "MISS"), ("age", "0")]), None);
    }
}
