//! FastCGI: requests to PHP-FPM, with a new connection for each as in nginx's default, or over kept connections; also a
//! burst that fills its backlog. A pool listens on one address only, so each transport has its own pool in one PHP-FPM;
//! the children of all pools are forked from one master. Two masters would differ by more than the transports do: two
//! identical server processes differed by 10 to 20 %. Children of two pools are still different
//! processes, so PHP-FPM is restarted for every block.
//!
//! A burst has advice: whether the backlog was too short, and how long it should be. The backlog that would hold the
//! burst is measured too, in the same blocks: advice by calculation alone would not be proved.

mod record;
mod running;
mod session;

use std::sync::Arc;
use std::time::Duration;

use samehost_model::{Code, Endpoint, MetricInfo, Point, Transport, Warning, parse_count_list};

use crate::error::BenchError;
use crate::impact::Impact;
use crate::network::Network;
use crate::parameters::{Axis, Parameter, ParameterKind, Parameters, Values, words};
use crate::private_servers::{FrontKind, PHP_FPM};
use crate::served::{Instance, StartOptions};
use crate::workload::{
    Capabilities, CheckupEntry, Configured, Description, Look, MANY, OpenOrClosed, Wanted, Workload,
    request_metrics, with_proxy,
};
use crate::workloads::foreign::crowding;
use crate::workloads::requests::{burst_metrics, require_size, require_threads};
use running::RunningFastCgi;

const MAX_BODY_BYTES: u64 = 16 << 20;
/// Most children of a pool: each takes some megabytes.
const MAX_CHILDREN: u32 = 256;
/// Children by default: enough for two CPUs, few enough to start in every block.
const CHILDREN: u32 = 16;
const CHILDREN_IN_BURST: u32 = 4;
/// PHP-FPM's own default.
const BACKLOG: &str = "511";

/// Time of an arm in a block of the checkup: a request takes 150 to 250 µs, with a connection of its own. Beside two
/// neighbours at 60 %, four runs of 8 s: intervals of CPU time at 64 connections of ±15 to ±200 % with 25 ms and 9 to 17
/// blocks, ±4 to ±10 % with 60 ms and 11 blocks, no better with 120 ms and 7 blocks. A quiet checkup has no second to
/// spare, so it is less than 60.
const TRIAL: Duration = Duration::from_millis(35);

pub struct FastCgi;

#[derive(Clone, Debug)]
struct Settings {
    burst: bool,
    kept: bool,
    via: Option<FrontKind>,
    front: Transport,
    /// A script of the user's; `None` for the built-in one.
    script: Option<String>,
    query: String,
    /// Worker processes of each pool; `None` for as many as the kind of load needs.
    children: Option<u32>,
    backlog: Axis<u32>,
}

/// How long our script sleeps in each request of a burst, microseconds.
const NAP_US: u64 = 20_000;
/// How long a burst waits for its replies: a SYN that was dropped is sent again after a second, and then after two, four and eight more.
const PATIENCE: Duration = Duration::from_secs(20);

words! {
    enum Pattern { Cycle = "cycle", Burst = "burst" }

    enum Connect { PerRequest = "per-request", Keep = "keep" }
}

const VIA: &[&str] = &["none", "nginx", "apache", "haproxy"];
const FRONTS: &[&str] = &["tcp", "unix"];

impl Settings {
    fn parse(parameters: &Parameters) -> Result<Self, BenchError> {
        let burst = parameters.word::<Pattern>("pattern")? == Pattern::Burst;
        let via = match parameters.given("via") {
            Some(via) if via != VIA[0] => Some(parameters.one_of("via", VIA)?),
            _ => None,
        };
        let (script, query) = match parameters.given("script") {
            Some(script) => {
                let (path, query) = script.split_once('?').unwrap_or((&script, ""));
                (Some(path.to_owned()), query.to_owned())
            }
            None => (None, String::new()),
        };
        Ok(Settings {
            burst,
            kept: parameters.word::<Connect>("connect")? == Connect::Keep && !burst,
            via,
            front: parameters.one_of("front", FRONTS)?,
            script,
            query,
            children: children(&parameters.text("children"))?,
            backlog: parameters.counts("backlog", u32::MAX)?,
        })
    }

    fn default_connections(&self) -> &'static str {
        if self.burst { "128" } else { "1" }
    }

    /// Number of children of a pool. Each serves one connection at a time, so kept connections need one each.
    fn children(&self, most_connections: u32) -> u32 {
        match self.children {
            Some(count) => count,
            None if self.burst => CHILDREN_IN_BURST,
            None if self.kept => most_connections.min(MAX_CHILDREN),
            None => CHILDREN,
        }
    }
}

fn children(text: &str) -> Result<Option<u32>, BenchError> {
    match text.parse() {
        _ if text == "auto" => Ok(None),
        Ok(count) if (1..=MAX_CHILDREN).contains(&count) => Ok(Some(count)),
        _ => BenchError::refuse(format!("--children {text}: `auto`, or from 1 to {MAX_CHILDREN}")),
    }
}

const PARAMETERS: &[Parameter] = &[
    Parameter::word::<Pattern>("pattern", "Requests one after the other on each connection, or all at once"),
    Parameter::word::<Connect>(
        "connect",
        "A connection for each request, as nginx makes them by default, or kept ones (FCGI_KEEP_CONN)",
    ),
    Parameter::choice(
        "via",
        VIA,
        "Straight to PHP-FPM, or through a private web server; the transports compared are those to PHP-FPM",
    ),
    Parameter::choice("front", FRONTS, "The transport in front of that server, the same for all arms"),
    Parameter::text(
        "script",
        "A script of your own, by its absolute path as PHP-FPM sees it (/srv/page.php?id=1); without, one of ours that prints --size bytes",
    ),
    Parameter {
        name: "children",
        help: "Worker processes of each pool of the private PHP-FPM; each serves one connection at a time; auto: 16, 4 in a burst, one for each kept connection",
        default: "auto",
        kind: ParameterKind::Text,
    },
    Parameter::counts(
        "backlog",
        BACKLOG,
        "listen.backlog of the private pools, a list or a range; a burst is also measured at the backlog that holds it",
    ),
];

impl Workload for FastCgi {
    fn description(&self) -> Description {
        Description {
            name: "fastcgi",
            about: "PHP-FPM: GET of a script by FastCGI, or a burst of requests against a short backlog",
            example: "fastcgi --pattern burst --connections 128 --backlog 16",
            parameters: PARAMETERS,
        }
    }

    fn propose(&self, parameters: &Parameters, connections: &[u32]) -> Result<Parameters, BenchError> {
        let settings = Settings::parse(parameters)?;
        let mut parameters = parameters.clone();
        let default = parse_count_list(settings.default_connections())?;
        let connections = if connections.is_empty() { &default } else { connections };
        let most = connections.iter().copied().max().unwrap_or(1);
        parameters.insert("children".into(), settings.children(most).to_string());
        if settings.via.is_none() {
            parameters.insert("front".into(), String::new());
        }
        if settings.burst {
            // If a given backlog is long enough for the burst, no other is added.
            if settings.backlog.values.iter().all(|backlog| *backlog < most) {
                let list = format!("{},{most}", parameters["backlog"]);
                parameters.insert("backlog".into(), list);
            }
            parameters.insert("connect".into(), String::new());
        }
        Ok(parameters)
    }

    fn checkup(&self) -> Option<CheckupEntry> {
        Some(CheckupEntry::server(&PHP_FPM, self.name(), TRIAL, MANY))
    }

    fn configure(&self, parameters: &Parameters) -> Result<Arc<dyn Configured>, BenchError> {
        Ok(Arc::new(Settings::parse(parameters)?))
    }
}

impl Configured for Settings {
    fn axes(&self) -> Capabilities {
        let burst = self.burst;
        Capabilities {
            connections: Some(self.default_connections()),
            sizes: if self.script.is_none() { Some("128") } else { None },
            rates: !burst,
            timed: !burst,
            ..Capabilities::REQUESTS
        }
    }

    fn title(&self) -> String {
        let what = format!("GET of {}", self.script.as_deref().unwrap_or("our script"));
        let what = match self.via {
            Some(via) => format!("{what} through {}", via.title()),
            None => what,
        };
        if self.burst {
            format!("{what}, all at once")
        } else if self.kept {
            format!("{what}, kept connections")
        } else {
            format!("{what}, a connection per request")
        }
    }

    fn metrics(&self, open_loop: OpenOrClosed) -> Vec<MetricInfo> {
        match self.via {
            _ if self.burst => burst_metrics(),
            Some(_) => with_proxy(request_metrics(open_loop)),
            None => request_metrics(open_loop),
        }
    }

    fn check(&self, point: &Point, _: Transport) -> Result<(), BenchError> {
        require_size("--size", point.size_bytes.unwrap_or(0), "fastcgi", MAX_BODY_BYTES)?;
        if let Some(via) = self.via {
            via.check_listens(self.front)?;
        }
        let connections = point.connections;
        if self.kept && connections > self.children(connections) {
            return BenchError::refuse(format!(
                "a child of PHP-FPM serves one connection at a time, and keeps it: {connections} kept connections need --children {connections} (at most {MAX_CHILDREN}), or --connect per-request"
            ));
        }
        if self.burst || self.kept || self.via.is_some() {
            return Ok(());
        }
        require_threads("--connect per-request", connections)
    }

    fn impact(&self, look: &Look<'_>) -> Result<Vec<Impact>, BenchError> {
        if self.burst { crowding(look, true) } else { Ok(Vec::new()) }
    }

    /// A client that reaches a pool's port can run any code. A comparison of port and socket must run in one
    /// network namespace.
    fn network(&self, wanted: Wanted<'_>) -> Network {
        if !wanted.starts_one_on(Transport::Tcp) {
            return Network::Shared;
        }
        Network::Own(
            "measure the Unix socket alone (--transports unix), or a PHP-FPM that runs (--tcp and --unix, with --script)",
        )
    }

    fn start(&self, start: &StartOptions) -> Result<Box<dyn Instance>, BenchError> {
        Ok(Box::new(RunningFastCgi::start(self, start)?))
    }
}

/// The kernel's limit of a backlog; `None` where it cannot be read.
fn somaxconn() -> Option<u32> {
    std::fs::read_to_string("/proc/sys/net/core/somaxconn").ok()?.trim().parse().ok()
}

/// Advice on a backlog that is shorter than the burst. While no child accepts, each connect but the first
/// needs a place in it; the kernel accepts one more than the backlog.
fn advise(connections: u32, backlog: u32, somaxconn: Option<u32>) -> Option<Warning> {
    let effective = backlog.min(somaxconn.unwrap_or(u32::MAX));
    if connections <= effective {
        return None;
    }
    let cap = match somaxconn {
        Some(most) if most < connections => format!(
            "; net.core.somaxconn is {most} and caps it: raise that first (`sysctl net.core.somaxconn={connections}`)"
        ),
        _ => String::new(),
    };
    Some(Warning::new(
        Code::Note,
        "",
        format!(
            "a backlog of {effective} is shorter than the burst: listen.backlog = {connections} holds all of it{cap}"
        ),
    ))
}

/// Why a server in front answered that there is none behind it at this endpoint, from its log.
fn explain(front: FrontKind, asked: &Endpoint, log: &str) -> Option<Warning> {
    let place = match asked {
        Endpoint::Unix(path) => path.display().to_string(),
        Endpoint::Tcp { host, port } => format!("{host}:{port}"),
        _ => return None,
    };
    let log: Vec<&str> = log.lines().filter(|line| line.contains(&place)).collect();
    let reason = (front.descriptor().failed_connect)(&log.join("\n"))?;
    let title = front.title();
    Some(Warning::new(
        Code::Errors,
        "",
        format!("{title} answered 502 or 503, for its connect() failed ({reason})"),
    ))
}

const FILE: &str = "reply.php";
/// Line that the built-in script repeats: it makes every reply known beforehand.
const LINE: &str = "All this text is printed by PHP and read by samehost to its end\n";

/// The built-in script: prints `size` bytes after a sleep of `nap` microseconds.
fn built_in() -> String {
    let line = LINE.trim_end();
    format!(
        r#"<?php
$nap = (int) ($_GET['nap'] ?? 0);
if ($nap > 0) {{
    usleep($nap);
}}
$size = (int) $_GET['size'];
$line = "{line}\n";
header('Content-Type: text/plain');
echo substr(str_repeat($line, intdiv($size, strlen($line)) + 1), 0, $size);
"#
    )
}

fn query(size: u64, nap_us: u64) -> String {
    format!("size={size}&nap={nap_us}")
}

fn body(size: u64) -> Arc<[u8]> {
    LINE.bytes().cycle().take(usize::try_from(size).unwrap_or(usize::MAX)).collect()
}

/// Parameters of a GET request for a script, as in nginx's `fastcgi.conf`.
fn parameters<'a>(file: &'a str, query: &'a str, uri: &'a str) -> Vec<(&'static str, &'a str)> {
    let (folder, _) = file.rsplit_once('/').unwrap_or_default();
    vec![
        ("SCRIPT_FILENAME", file),
        ("QUERY_STRING", query),
        ("REQUEST_METHOD", "GET"),
        ("CONTENT_TYPE", ""),
        ("CONTENT_LENGTH", ""),
        ("SCRIPT_NAME", uri.split('?').next().unwrap_or(uri)),
        ("REQUEST_URI", uri),
        ("DOCUMENT_URI", uri.split('?').next().unwrap_or(uri)),
        ("DOCUMENT_ROOT", folder),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("REQUEST_SCHEME", "http"),
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("SERVER_SOFTWARE", "samehost"),
        ("REMOTE_ADDR", "127.0.0.1"),
        ("REMOTE_PORT", "0"),
        ("SERVER_ADDR", "127.0.0.1"),
        ("SERVER_PORT", "80"),
        ("SERVER_NAME", "localhost"),
        ("REDIRECT_STATUS", "200"),
        ("HTTP_HOST", "localhost"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(changed: &[(&str, &str)]) -> Parameters {
        let changed = changed.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        crate::workload::defaults(&FastCgi).into_iter().chain(changed).collect()
    }

    fn check(connections: u32, changed: &[(&str, &str)]) -> Result<(), BenchError> {
        let point = Point { connections, ..Point::default() };
        FastCgi.configure(&parameters(changed))?.check(&point, Transport::Tcp)
    }

    #[test]
    fn kept_connections_need_a_child_each() {
        assert!(check(64, &[("connect", "keep")]).is_ok(), "children follow the connections");
        assert!(check(8, &[("connect", "keep"), ("children", "8")]).is_ok());
        let error = check(9, &[("connect", "keep"), ("children", "8")]).unwrap_err().to_string();
        assert!(error.contains("--children 9"), "{error}");
        assert!(check(257, &[("connect", "keep")]).is_err());
        assert!(check(9, &[("children", "8")]).is_ok(), "these wait for their turn");
        for odd in ["0", "257", "many"] {
            assert!(FastCgi.configure(&parameters(&[("children", odd)])).is_err());
        }
    }

    #[test]
    fn a_burst_is_measured_at_a_backlog_that_holds_it() {
        fn proposed(backlog: &str, connections: &[u32]) -> String {
            let given = parameters(&[("pattern", "burst"), ("backlog", backlog)]);
            FastCgi.propose(&given, connections).unwrap()["backlog"].clone()
        }
        assert_eq!(proposed("16", &[]), "16,128");
        assert_eq!(proposed("1,4", &[20, 64]), "1,4,64");
        assert_eq!(proposed("64", &[64]), "64");
        assert_eq!(proposed("511", &[]), "511");
        let cycle = parameters(&[]);
        let proposed = FastCgi.propose(&cycle, &[600]).unwrap();
        assert_eq!((proposed["backlog"].as_str(), proposed["children"].as_str()), ("511", "16"));
    }

    #[test]
    fn a_short_backlog_is_told_with_the_one_that_is_enough() {
        let message = advise(128, 16, Some(4096)).unwrap().message;
        assert!(message.contains("listen.backlog = 128") && !message.contains("somaxconn"), "{message}");
        assert_eq!(advise(128, 128, Some(4096)), None);
        let capped = advise(500, 511, Some(128)).unwrap().message;
        assert!(capped.contains("a backlog of 128") && capped.contains("net.core.somaxconn=500"), "{capped}");
    }

    #[test]
    fn a_bad_gateway_is_explained_by_the_log_on_its_server() {
        let log = "2026/11/21 07:43:04 [error] 12#12: *57 connect() to unix:/run/x/unix-16.sock failed (11: Resource temporarily unavailable) while connecting to upstream, client: 127.0.0.1";
        let explained = |asked: &str| explain(FrontKind::Nginx, &asked.parse().unwrap(), log);
        let message = explained("unix:/run/x/unix-16.sock").unwrap().message;
        assert!(message.ends_with("failed (11: Resource temporarily unavailable)"), "{message}");
        assert_eq!(explained("tcp:127.0.0.1:9000"), None);
    }

    #[test]
    fn a_reply_is_as_long_as_asked_for() {
        assert_eq!(LINE.len(), 64);
        assert_eq!(body(0).len(), 0);
        assert_eq!(&*body(5), b"All t");
        assert_eq!(body(130)[128..], *b"Al");
        assert_eq!(query(5, NAP_US), "size=5&nap=20000");
    }

    #[test]
    fn a_script_is_named_as_a_web_server_names_it() {
        let of = super::parameters("/srv/www/a.php", "x=1", "/a.php?x=1");
        let value = |name| of.iter().find(|(known, _)| *known == name).unwrap().1;
        assert_eq!(value("SCRIPT_FILENAME"), "/srv/www/a.php");
        assert_eq!(value("DOCUMENT_ROOT"), "/srv/www");
        assert_eq!((value("SCRIPT_NAME"), value("REQUEST_URI")), ("/a.php", "/a.php?x=1"));
    }
}
