//! Caddyfile: where the upstreams of `reverse_proxy`, `php_fastcgi` and `forward_auth` are, read as Caddy's adapter reads
//! it (caddyconfig and modules/caddyhttp/reverseproxy of 2.6), and what of the rest of such a directive would mean
//! something else with another kind of address. Where Caddy itself listens is not changed.
//!
//! An upstream's address is read as `parseUpstreamDialAddress` does (modules/caddyhttp/reverseproxy/addresses.go of 2.6).
//! What the real program decided: a client's `Host` is the same over a socket, but a health check asks for the host of
//! the address over TCP and for `localhost` over a socket, where it has no host of its own, so an edit names it;
//! `health_port` has no host to go to there; and `{upstream_hostport}` is empty.

mod tree;

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use samehost_model::{Endpoint, Protocol};
use samehost_services::Kind;

use self::tree::{Statement, Token};
use crate::budget::Metered;
use crate::editor::{Arguments, Check, Editor, OfService, Program, written_lines};
use crate::files::{Edit, Files};
use crate::languages::url;
use crate::lines::{host_and_port, insert_below, is_plain, line_end, lines};
use crate::refusal::{Reason, Refusal, Result};
use crate::setting::{Goal, Reading, Setting, Uptake};

#[derive(Debug)]
pub(crate) struct Caddy;

/// Directives whose blocks hold directives.
const ROUTES: &[&str] = &["handle", "handle_path", "handle_errors", "handle_response", "intercept", "route"];

impl Editor for Caddy {
    fn name(&self) -> &'static str {
        "caddy"
    }

    fn about(&self) -> &'static str {
        "Caddyfile: the upstreams of reverse_proxy and its like"
    }

    fn recognises(&self, path: &Path, _text: &[u8]) -> bool {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        // A template of a Caddyfile is not one.
        let is_part = name.ends_with(".caddyfile") || name.ends_with(".caddy");
        let is_whole = name == "caddyfile" || name.starts_with("caddyfile.") && !name.ends_with(".j2");
        is_part || is_whole || name == "caddy.json"
    }

    fn read_metered(&self, file: &Path, files: &Metered<'_>) -> Result<Reading> {
        let statements = tree::read(file, files)?;
        let mut reading = Reading::default();
        // A snippet may be imported several times.
        let (mut seen, mut dynamic) = (BTreeSet::new(), BTreeSet::new());
        for proxy in proxies(&statements) {
            if let Some(refusal) = proxy.dynamic()
                && dynamic.insert((refusal.file.clone(), refusal.line))
            {
                reading.refused.push(refusal);
            }
            for upstream in proxy.upstreams(file) {
                let (file, at) = (upstream.statement.file.as_path(), upstream.token.range.start);
                if seen.insert((file.to_owned(), at)) {
                    reading.extend([upstream.setting()]);
                }
            }
        }
        Ok(reading)
    }

    fn edit_metered(
        &self,
        file: &Path,
        files: &Metered<'_>,
        setting: &Setting,
        goal: &Goal,
    ) -> Result<Vec<Edit>> {
        let statements = tree::read(file, files)?;
        for proxy in proxies(&statements) {
            for upstream in proxy.upstreams(file) {
                let Ok(now) = upstream.setting() else { continue };
                if now.name != setting.name || now.endpoint != setting.endpoint {
                    continue;
                }
                if now.endpoint == goal.endpoint {
                    return Ok(Vec::new());
                }
                return upstream.write(&now.endpoint, &goal.endpoint, files);
            }
        }
        Err(setting.gone())
    }

    fn check_metered(&self, file: &Path, files: &Metered<'_>) -> Option<Check> {
        let read = tree::read(file, files);
        let mut check = Check::new(&CADDY, vec!["validate".into()], files.paths());
        check.unknown = read.err().map(|refusal| refusal.reason);
        // Caddy opens its logs while it validates.
        let logs: Vec<PathBuf> = check.reads.iter().flat_map(|path| log_files(path, files)).collect();
        check.reads.extend(logs);
        Some(check)
    }

    fn uptake(&self, _file: &Path) -> Uptake {
        Uptake::Reload(Kind::Caddy)
    }
}

/// The files that logs are written to, or the directories that they will be made in.
fn log_files(path: &Path, files: &Metered<'_>) -> Vec<PathBuf> {
    let text = files.read(path).unwrap_or_default();
    let tokens = tree::tokens(&String::from_utf8_lossy(&text)).unwrap_or_default();
    let mut found = Vec::new();
    for three in tokens.windows(3) {
        let [output, file, log] = three else { continue };
        if !output.begins_line || output.value != "output" || file.value != "file" || log.begins_line {
            continue;
        }
        let log = PathBuf::from(&log.value);
        let folder = log.parent().unwrap_or(Path::new("/")).to_owned();
        found.push(if files.exists(&log) { log } else { folder });
    }
    found
}

fn proxies(statements: &[Statement]) -> Vec<Proxy<'_>> {
    let mut found = Vec::new();
    for statement in statements {
        let is_proxy = DIRECTIVES.contains(&statement.word(0));
        if is_proxy {
            found.push(Proxy { statement, together: OnceCell::new() });
        }
        if is_proxy || ROUTES.contains(&statement.word(0)) {
            let block = statement.block.as_deref().unwrap_or_default();
            found.extend(proxies(block));
        }
    }
    found
}

/// Caddy's own check, with the arguments of the service: it has its adapter on the command line.
static CADDY: Program = Program {
    usual: "caddy",
    is_called: Program::has_one_name,
    could_not_look,
    service: Some(OfService {
        shown: "caddy validate",
        file_option: "--config",
        reads_folder: true,
        arguments,
    }),
};

fn could_not_look(output: &str) -> bool {
    written_lines(output).next_back().is_some_and(|line| line.ends_with("permission denied"))
}

/// Go's flags, with one or two dashes, and the value behind `=` or in the next word.
fn arguments(words: &[String]) -> Result<Arguments, Reason> {
    let mut found = Arguments::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let Some(flag) = word.strip_prefix('-') else { continue };
        let flag = flag.strip_prefix('-').unwrap_or(flag);
        let (name, attached) = match flag.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (flag, None),
        };
        if !["config", "c", "adapter", "a", "envfile", "pidfile", "pingback"].contains(&name) {
            continue;
        }
        let Some(value) = attached.or_else(|| words.next().cloned()) else { continue };
        match name {
            "config" | "c" => found.files = vec![value.into()],
            "adapter" | "a" => found.options.extend(["--adapter".to_owned(), value]),
            "envfile" => return Err("Caddy was started with --envfile, which its check does not take".into()),
            _ => {}
        }
    }
    Ok(found)
}

const BY_HAND: &str = "unix//path/of.sock in place of the address";
/// Directives that pass requests on. The last two are written with others, and take what `reverse_proxy` takes.
const DIRECTIVES: &[&str] = &["reverse_proxy", "php_fastcgi", "forward_auth"];

struct Proxy<'a> {
    statement: &'a Statement,
    together: OnceCell<Together>,
}

struct Together {
    is_alone: bool,
    schemes: Vec<Scheme>,
    has_tls: bool,
    transport: Option<String>,
}

struct Upstream<'a> {
    proxy: &'a Proxy<'a>,
    statement: &'a Statement,
    token: &'a Token,
    name: String,
}

impl Proxy<'_> {
    fn together(&self) -> &Together {
        self.together.get_or_init(|| {
            let all = self.upstreams(Path::new(""));
            let mut schemes: Vec<Scheme> = Vec::new();
            for upstream in &all {
                let Ok((scheme, _)) = parse(upstream.token) else { continue };
                if !schemes.contains(&scheme) {
                    schemes.push(scheme);
                }
            }
            let transport = self.block().find(|one| one.word(0) == "transport");
            let below = transport.map(Statement::below).unwrap_or_default();
            let has_tls = below.iter().any(|below| below.word(0).starts_with("tls"));
            let transport = transport.map(|transport| transport.word(1).to_owned());
            Together { is_alone: all.len() == 1, schemes, has_tls, transport }
        })
    }

    fn block(&self) -> impl Iterator<Item = &Statement> {
        self.statement.block.iter().flatten()
    }

    fn refuse(&self, why: impl Into<String>, by_hand: impl Into<String>) -> Refusal {
        self.statement.refusal(self.statement.line, why, by_hand)
    }

    /// Its upstreams; `main` is the file that the configuration begins with.
    fn upstreams(&self, main: &Path) -> Vec<Upstream<'_>> {
        let first = self.statement.word(1);
        let is_matcher = first == "*" || first.starts_with(['/', '@']);
        let skipped = if is_matcher { 2 } else { 1 };
        let mut all: Vec<(&Statement, &Token)> = Vec::new();
        all.extend(self.statement.words.iter().skip(skipped).map(|token| (self.statement, token)));
        for to in self.block().filter(|one| one.word(0) == "to") {
            all.extend(to.words.iter().skip(1).map(|token| (to, token)));
        }
        let mut name = format!("{} on line {}", self.statement.word(0), self.statement.line);
        if *self.statement.file != main {
            let file = self.statement.file.strip_prefix(main.parent().unwrap_or(main));
            name += &format!(" of {}", file.unwrap_or(&self.statement.file).display());
        }
        let is_alone = all.len() == 1;
        let mut upstreams = Vec::new();
        for (index, (statement, token)) in all.into_iter().enumerate() {
            let name = if is_alone { name.clone() } else { format!("{name}, upstream {}", index + 1) };
            upstreams.push(Upstream { proxy: self, statement, token, name });
        }
        upstreams
    }

    /// The refusal of upstreams that are looked up while Caddy runs.
    fn dynamic(&self) -> Option<Refusal> {
        let found = self.block().find(|one| one.word(0) == "dynamic")?;
        let by_hand = "reverse_proxy unix//path/of.sock, and no `dynamic`";
        Some(found.refusal(found.line, "`dynamic` looks its upstreams up while Caddy runs", by_hand))
    }

    /// What is spoken with an upstream; an error where it may not be spoken over a socket.
    fn protocol(&self, own: Scheme) -> Result<Protocol, Reason> {
        let Together { schemes, has_tls, transport, .. } = self.together();
        // One of them decides for all.
        if own == Scheme::Https || schemes.contains(&Scheme::Https) || *has_tls {
            return Err("TLS is spoken to it, which its socket may not".into());
        }
        match transport.as_deref() {
            Some("fastcgi") => Ok(Protocol::FastCgi),
            None if self.statement.word(0) == "php_fastcgi" => Ok(Protocol::FastCgi),
            None | Some("http") if schemes.contains(&Scheme::H2c) => Ok(Protocol::Grpc),
            None | Some("http") => Ok(Protocol::Http),
            Some(other) => Err(format!("`transport {other}` is unknown").into()),
        }
    }

    /// Why it cannot get an address of another kind, which would take the meaning from what it says, and the manual edit.
    fn obstacle(&self, scheme: Scheme) -> Option<(String, &'static str)> {
        let is_alone = self.together().is_alone;
        if !is_alone && scheme == Scheme::Http {
            let why = "the upstreams of a directive need the same scheme, and a socket has no `http://`";
            return Some((why.to_owned(), "remove `http://` from each upstream first"));
        }
        for one in &self.statement.below() {
            let text = format!("`{}` (line {})", one.word(0), one.line);
            if one.words.first().is_some_and(|word| word.has_variable) {
                return Some((
                    format!("line {} is put together from environment variables", one.line),
                    BY_HAND,
                ));
            }
            if one.words.iter().any(uses_address) {
                let by_hand = "write the host instead: header_up Host NAME";
                return Some((format!("{text} uses the address of the upstream"), by_hand));
            }
            let (why, by_hand) = match one.word(0) {
                "health_port" => {
                    ("has no host to go to over a socket", "health_upstream ADDRESS:PORT (since Caddy 2.8)")
                }
                "network_proxy" | "forward_proxy_url" => ("leads there through a proxy", BY_HAND),
                "local_address" => ("is an address that no socket has", "remove it first"),
                "lb_policy"
                    if !is_alone
                        && ["ip_hash", "client_ip_hash", "uri_hash", "header", "query", "cookie"]
                            .contains(&one.word(1)) =>
                {
                    ("gives each client its upstream by the address of that", BY_HAND)
                }
                _ => continue,
            };
            return Some((format!("{text} {why}"), by_hand));
        }
        None
    }
}

impl Upstream<'_> {
    fn refuse(&self, why: impl Into<String>, by_hand: impl Into<String>) -> Refusal {
        self.statement.refusal(self.token.line, why, by_hand)
    }

    fn setting(&self) -> Result<Setting> {
        let (scheme, endpoint) = parse(self.token).map_err(|why| self.refuse(why, BY_HAND))?;
        let protocol = self.proxy.protocol(scheme).map_err(|why| {
            self.proxy.refuse(why, format!("{BY_HAND}, once the server behind it speaks without TLS"))
        })?;
        let setting = Setting::connects(self.name.clone(), protocol, self.token.value.clone(), endpoint);
        Ok(setting.at(&self.statement.file, self.token.line))
    }

    fn write(&self, now: &Endpoint, to: &Endpoint, files: &Metered<'_>) -> Result<Vec<Edit>> {
        let (scheme, _) = parse(self.token).map_err(|why| self.refuse(why, BY_HAND))?;
        let mut more = None;
        if now.path().is_some() != to.path().is_some() {
            if let Some((why, by_hand)) = self.proxy.obstacle(scheme) {
                return Err(self.refuse(why, by_hand));
            }
            more = named_host(self.proxy.statement, self.proxy.together().is_alone, now, files)
                .map_err(|(why, by_hand)| self.refuse(why, by_hand))?;
        }
        let written = spell(to, scheme).map_err(|why| self.refuse(why, BY_HAND))?;
        let edit = Edit::new(&self.statement.file, self.token.range.clone(), written);
        Ok([edit].into_iter().chain(more).collect())
    }
}

fn uses_address(word: &Token) -> bool {
    word.value.contains("upstream_hostport") || word.value.contains("reverse_proxy.upstream.")
}

const ASKED_HOST_BY_HAND: &str = "say for which host it asks: health_headers { Host NAME }";

/// The edit that names the host of a proxy's health check, if it has one and names none; or what is in the way, and what
/// to do by hand. `is_alone` says whether the proxy has one upstream only.
fn named_host(
    proxy: &Statement,
    is_alone: bool,
    now: &Endpoint,
    files: &Metered<'_>,
) -> Result<Option<Edit>, (String, &'static str)> {
    let below = proxy.below();
    let check = below.iter().find(|one| ["health_uri", "health_path"].contains(&one.word(0)));
    let Some(check) = check else { return Ok(None) };
    let mut has_headers = false;
    for one in below.iter().filter(|one| one.word(0) == "health_headers") {
        has_headers = true;
        if one.below().iter().any(|header| header.word(0).eq_ignore_ascii_case("Host")) {
            return Ok(None);
        }
    }
    let host = match now {
        Endpoint::Unix(_) => "localhost".to_owned(),
        Endpoint::Tcp { host, port } => host_and_port(host, *port),
        _ => return Ok(None),
    };
    let text = files.read(&check.file).unwrap_or_default();
    let all: Vec<crate::lines::Line> = lines(&text).collect();
    // A snippet's line is not this proxy's alone, and stands elsewhere.
    let is_own = check.file == proxy.file && check.line > proxy.line;
    let last = check.words.last().map_or(check.line, |word| word.line);
    let line = all.get(last as usize - 1).filter(|_| is_own && is_alone && !has_headers);
    let first = all.get(check.line as usize - 1);
    let (Some(line), Some(first)) = (line, first) else {
        let why = "asks for the host of the address, which over a socket is `localhost`";
        return Err((format!("`{}` (line {}) {why}", check.word(0), check.line), ASKED_HOST_BY_HAND));
    };
    let first = String::from_utf8_lossy(&text[first.range.clone()]).into_owned();
    let indent = &first[..first.len() - first.trim_start().len()];
    let deeper = if indent.contains('\t') { "\t" } else { "    " };
    let end = line_end(&text);
    let new = format!("{indent}health_headers {{{end}{indent}{deeper}Host {host}{end}{indent}}}");
    Ok(Some(insert_below(&check.file, &text, line, &new)))
}

const USUAL_PORT: u16 = 80;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    None,
    Http,
    /// HTTP/2 without TLS: `h2c://`, `unix+h2c/`.
    H2c,
    Https,
}

fn parse(token: &Token) -> Result<(Scheme, Endpoint), Reason> {
    let text = token.value.as_str();
    if token.has_variable {
        return Err("the address is put together from environment variables".into());
    }
    if text.contains('{') {
        return Err("the address is put together from placeholders or arguments".into());
    }
    if let Some((scheme, rest)) = text.split_once("://") {
        let scheme = match scheme {
            "http" => Scheme::Http,
            "h2c" => Scheme::H2c,
            "https" => Scheme::Https,
            other => return Err(format!("`{other}://` is not a scheme of an upstream").into()),
        };
        return Ok((scheme, tcp(rest)?));
    }
    let Some((network, rest)) = text.split_once('/') else { return Ok((Scheme::None, tcp(text)?)) };
    let scheme = match network.to_ascii_lowercase().as_str() {
        "tcp" | "tcp4" | "tcp6" => return Ok((Scheme::None, tcp(rest)?)),
        "unix" => Scheme::None,
        "unix+h2c" => Scheme::H2c,
        other => return Err(format!("`{other}` is a special network").into()),
    };
    if url::is_plain_path(rest) && !rest.split('/').any(|part| part == "..") {
        Ok((scheme, Endpoint::Unix(rest.into())))
    } else {
        Err("the path of its socket is unusual".into())
    }
}

fn tcp(text: &str) -> Result<Endpoint, Reason> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, digits)) if !text.ends_with(']') => match digits.parse::<u16>() {
            Ok(port) if port.to_string() == digits => (host, port),
            _ => return Err(format!("`{digits}` is not one port").into()),
        },
        _ => (text, USUAL_PORT),
    };
    let unusual = || Reason::from(format!("`{text}` is an unusual address"));
    let name = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(bare) => bare,
        None if host.contains(':') => return Err(unusual()),
        // Without a host, Go connects to this machine.
        None if host.is_empty() => "localhost",
        None => host,
    };
    url::tcp(name, port).ok_or_else(unusual)
}

fn spell(to: &Endpoint, scheme: Scheme) -> Result<String, Reason> {
    match to {
        Endpoint::Unix(path) => {
            let path = path.to_str().filter(|path| url::is_plain_path(path));
            let path = path.ok_or("the path of the socket is unusual")?;
            Ok(format!("{}/{path}", if scheme == Scheme::H2c { "unix+h2c" } else { "unix" }))
        }
        Endpoint::Tcp { host, port } if url::tcp(host, *port).is_some() && is_plain(host) => {
            let prefix = match scheme {
                Scheme::H2c => "h2c://",
                Scheme::Http => "http://",
                Scheme::None | Scheme::Https => "",
            };
            Ok(prefix.to_owned() + &host_and_port(host, *port))
        }
        _ => Err("only a Unix socket or plain TCP can be written here".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::editor::tests::assert_reads;

    #[test]
    fn the_check_has_what_decides_how_the_files_are_read() {
        assert_reads(
            arguments,
            "run --environ --config /etc/caddy/Caddyfile",
            "",
            "/etc/caddy/Caddyfile",
            "",
        );
        assert_reads(
            arguments,
            "run -config=/c --adapter caddyfile --pidfile /p",
            "--adapter caddyfile",
            "/c",
            "",
        );
        let words = ["run", "--envfile", "/e", "--config", "/c"].map(str::to_owned);
        assert!(arguments(&words).unwrap_err().to_string().contains("--envfile"));
    }
}
