//! Sends metrics to an OpenTelemetry receiver: OTLP over HTTP, as JSON, with the environment variables that OpenTelemetry's
//! programs have in common.

use std::env;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use samehost_login::url::ServerUrl;
use samehost_model::percent_decoded;
use samehost_report::{Metric, metrics_as_otlp};

use crate::wrong_use::WrongUse;

/// Where receivers of OTLP over HTTP listen by default.
const USUAL: &str = "http://localhost:4318";
const PATH: &str = "/v1/metrics";
/// Time for the whole exchange, as OpenTelemetry has it by default.
const LONGEST: Duration = Duration::from_secs(10);
/// Longest answer that is read; of a good one nothing is needed.
const LONGEST_ANSWER: u64 = 64 * 1024;
/// Most characters of an answer that are shown.
const SHOWN: usize = 200;

#[derive(Debug, thiserror::Error)]
pub enum OtlpError {
    #[error("{url} cannot be reached: {error}; does a receiver of OTLP over HTTP listen there?")]
    Unreachable { url: String, error: io::Error },
    #[error("{url} did not answer within {} s", LONGEST.as_secs())]
    Timeout { url: String },
    #[error("{url} refused the metrics: {status} {says}")]
    Refused { url: String, status: u16, says: String },
    #[error("{url} does not answer as an HTTP server does: {says}")]
    NotHttp { url: String, says: String },
}

#[derive(Debug)]
pub struct Exporter {
    receiver: Receiver,
    resource: Vec<(String, String)>,
}

impl Exporter {
    /// To the receiver of `--otlp URL`, else of the environment, else the usual one.
    pub fn open(named: Option<&str>) -> Result<Self, WrongUse> {
        Ok(Exporter { receiver: Receiver::open(named)?, resource: resource()? })
    }

    /// Sends metrics, and waits until they are accepted. They are of now, as those of a file are when it is read: a receiver
    /// refuses what is older than what this host has sent since, and when it was measured is a metric itself.
    pub fn send(&self, metrics: &[Metric]) -> anyhow::Result<()> {
        let version = env!("CARGO_PKG_VERSION");
        let body = metrics_as_otlp(metrics, &self.resource, version, Timestamp::now().as_nanosecond());
        Ok(self.receiver.send(&serde_json::to_vec(&body)?)?)
    }
}

/// A receiver, and what is sent besides the metrics.
#[derive(Debug)]
struct Receiver {
    url: String,
    host: String,
    port: u16,
    path: String,
    headers: Vec<(String, String)>,
}

impl Receiver {
    fn open(named: Option<&str>) -> Result<Self, WrongUse> {
        let url = match named {
            Some(base) => below(base),
            None => url_of_environment()?,
        };
        let mut receiver = Receiver::at(url)?;
        // What is set for one signal takes the place of what is set for all.
        let own = "OTEL_EXPORTER_OTLP_METRICS_HEADERS";
        let headers = if variable(own).is_some() { own } else { "OTEL_EXPORTER_OTLP_HEADERS" };
        receiver.headers = pairs(headers)?;
        Ok(receiver)
    }

    fn at(url: String) -> Result<Self, WrongUse> {
        let wrong = |why: &str| WrongUse(format!("--otlp: {why}, such as http://127.0.0.1:4318"));
        let parsed = match ServerUrl::parse(&url) {
            Some(Ok(parsed)) => parsed,
            Some(Err(why)) => return Err(wrong(&format!("the URL has {why}; write one"))),
            None => return Err(wrong("write the URL of a receiver of OTLP over HTTP")),
        };
        match parsed.scheme.as_str() {
            "http" => {}
            "https" => {
                return Err(wrong(
                    "samehost sends without TLS: name a collector on this host, which may send on over https",
                ));
            }
            _ => return Err(wrong("write an http:// URL")),
        }
        if parsed.user.is_some() || parsed.password.is_some() {
            return Err(wrong(
                "put credentials into OTEL_EXPORTER_OTLP_HEADERS, not into the URL; write one",
            ));
        }
        let (authority, path) = parsed.place.split_once('/').unwrap_or((&parsed.place, ""));
        let (host, port) = match authority.rsplit_once(':') {
            // The colons of `[::1]` are before its end.
            Some((host, port)) if !port.contains(']') => {
                (host, port.parse().map_err(|_| wrong("write a port number"))?)
            }
            _ => (authority, 80),
        };
        let path = format!("/{path}");
        if host.is_empty() || !is_plain(&path) || !is_plain(host) || !parsed.options.is_empty() {
            return Err(wrong("write host, port and path only"));
        }
        Ok(Receiver { host: host.to_owned(), port, path, headers: Vec::new(), url })
    }

    /// Sends the body of a request, and waits until it is accepted.
    fn send(&self, body: &[u8]) -> Result<(), OtlpError> {
        let url = || self.url.clone();
        let answer = self.exchange(body).map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => OtlpError::Timeout { url: url() },
            _ => OtlpError::Unreachable { url: url(), error },
        })?;
        let text = String::from_utf8_lossy(&answer);
        let (head, said) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        match status(head) {
            Some(200..=299) => Ok(()),
            Some(status) => Err(OtlpError::Refused { url: url(), status, says: first_line(head, said) }),
            None => Err(OtlpError::NotHttp {
                url: url(),
                says: shortened(head.lines().next().unwrap_or_default()),
            }),
        }
    }

    fn exchange(&self, body: &[u8]) -> io::Result<Vec<u8>> {
        let until = Instant::now() + LONGEST;
        let left = || {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok::<_, io::Error>(left) }
        };
        let mut stream = self.connect(&left)?;
        stream.set_write_timeout(Some(left()?))?;
        let mut request = format!(
            "POST {} HTTP/1.1\r\nHost: {}:{}\r\nUser-Agent: samehost/{}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n",
            self.path,
            self.host,
            self.port,
            env!("CARGO_PKG_VERSION"),
            body.len()
        );
        for (name, value) in &self.headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        request.push_str("\r\n");
        stream.write_all(request.as_bytes())?;
        stream.write_all(body)?;
        let mut answer = Vec::new();
        let mut part = [0; 4096];
        while (answer.len() as u64) < LONGEST_ANSWER && !is_whole(&answer) {
            stream.set_read_timeout(Some(left()?))?;
            match stream.read(&mut part)? {
                0 => break,
                read => answer.extend_from_slice(&part[..read]),
            }
        }
        Ok(answer)
    }

    fn connect(&self, left: &dyn Fn() -> io::Result<Duration>) -> io::Result<TcpStream> {
        let name = self.host.trim_start_matches('[').trim_end_matches(']');
        let mut last = io::Error::other("the name has no address");
        for address in (name, self.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, left()?) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// The receiver that the environment names, else the usual one.
fn url_of_environment() -> Result<String, WrongUse> {
    // What is set for one signal takes the place of what is set for all.
    let protocol =
        variable("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL").or_else(|| variable("OTEL_EXPORTER_OTLP_PROTOCOL"));
    if protocol.as_deref() == Some("grpc") {
        return Err(WrongUse(
            "OTEL_EXPORTER_OTLP_PROTOCOL is grpc, and samehost speaks OTLP over HTTP only: name that receiver, --otlp http://localhost:4318".into(),
        ));
    }
    if let Some(url) = variable("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT") {
        return Ok(url);
    }
    Ok(below(variable("OTEL_EXPORTER_OTLP_ENDPOINT").as_deref().unwrap_or(USUAL)))
}

/// The status of an HTTP answer; `None` if it is not one.
fn status(head: &str) -> Option<u16> {
    if !head.starts_with("HTTP/1.") {
        return None;
    }
    head.split(' ').nth(1)?.parse().ok()
}

/// Whether an answer has its head, and as much of a body as that says.
fn is_whole(answer: &[u8]) -> bool {
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { return false };
    for line in String::from_utf8_lossy(&answer[..end]).lines() {
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
            && let Ok(length) = value.trim().parse::<usize>()
        {
            return answer.len() - (end + 4) >= length;
        }
    }
    false
}

/// The first line of a body; in chunks, the first of the first chunk.
fn first_line(head: &str, body: &str) -> String {
    let is_chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let mut lines = body.lines().map(str::trim).filter(|line| !line.is_empty());
    if is_chunked {
        lines.next();
    }
    shortened(lines.next().unwrap_or_default())
}

fn shortened(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}

/// Whether text may stand in a request's head.
fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// The URL for metrics below that for all signals.
fn below(base: &str) -> String {
    format!("{}{PATH}", base.trim_end_matches('/'))
}

/// The pairs of a variable as `a=b,c=d`, percent-decoded. An error does not repeat them: they may be secret.
fn pairs(variable: &str) -> Result<Vec<(String, String)>, WrongUse> {
    let text = env::var(variable).unwrap_or_default();
    parse_pairs(&text)
        .ok_or_else(|| WrongUse(format!("{variable}: write NAME=VALUE,NAME=VALUE, percent-encoded")))
}

fn parse_pairs(text: &str) -> Option<Vec<(String, String)>> {
    let mut pairs = Vec::new();
    for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=')?;
        let (name, value) = (name.trim(), percent_decoded(value.trim())?);
        if name.is_empty() || !is_plain(name) || value.contains(['\r', '\n', '\0']) {
            return None;
        }
        pairs.push((name.to_owned(), value));
    }
    Some(pairs)
}

/// What the metrics are of: OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME come before what is known here.
fn resource() -> Result<Vec<(String, String)>, WrongUse> {
    let mut all = pairs("OTEL_RESOURCE_ATTRIBUTES")?;
    if let Some(name) = variable("OTEL_SERVICE_NAME") {
        all.retain(|(key, _)| key != "service.name");
        all.push(("service.name".to_owned(), name));
    }
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let known = [
        ("service.name", "samehost".to_owned()),
        ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
        // Prometheus makes it the label `instance`, without which the metrics of several hosts are one.
        ("service.instance.id", host.clone()),
        ("host.name", host),
    ];
    for (key, value) in known {
        if all.iter().all(|(other, _)| other != key) {
            all.push((key.to_owned(), value));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_leads_to_host_port_and_path() {
        let receiver = |url: &str| {
            let receiver = Receiver::at(url.to_owned()).map_err(|error| error.to_string())?;
            Ok::<_, String>((receiver.host, receiver.port, receiver.path))
        };
        assert_eq!(
            receiver("http://localhost:4318/v1/metrics"),
            Ok(("localhost".into(), 4318, "/v1/metrics".into()))
        );
        assert_eq!(receiver("http://[::1]:9090/a"), Ok(("[::1]".into(), 9090, "/a".into())));
        assert_eq!(receiver("http://[::1]"), Ok(("[::1]".into(), 80, "/".into())));
        for (url, words) in [
            ("https://a/", "without TLS"),
            ("ftp://a/", "http://"),
            ("localhost:4318", "URL"),
            ("http://u:secret@a/", "OTEL_EXPORTER_OTLP_HEADERS"),
            ("http://a:b/", "port"),
            ("http:///x", "host"),
            ("http://a/x y", "host"),
            ("http://a/x?y=1", "host"),
        ] {
            let error = receiver(url).unwrap_err();
            assert!(error.contains(words) && !error.contains("secret"), "{url}: {error}");
        }
    }

    #[test]
    fn pairs_are_decoded_and_end_no_line() {
        fn pair(name: &str, value: &str) -> (String, String) {
            (name.to_owned(), value.to_owned())
        }
        assert_eq!(parse_pairs("a=b%20c, d=e=f,"), Some(vec![pair("a", "b c"), pair("d", "e=f")]));
        for wrong in ["a", "=b", "a=%zz", "a=b%0d%0aX: y", "a b=c"] {
            assert_eq!(parse_pairs(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn an_answer_is_whole_and_its_first_line_is_found() {
        assert!(is_whole(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"));
        assert!(!is_whole(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{"));
        assert!(!is_whole(b"HTTP/1.1 200 OK\r\n\r\n{}"), "it ends with the connection");
        assert_eq!(
            first_line("HTTP/1.1 400 Bad\r\nTransfer-Encoding: chunked", "5\r\nwrong\r\n0\r\n"),
            "wrong"
        );
        assert_eq!(first_line("HTTP/1.1 400 Bad", "\nno\nyes"), "no");
    }
}
