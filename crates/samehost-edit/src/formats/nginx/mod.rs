//! nginx: the addresses that it forwards requests to (`server` of an `upstream`, `proxy_pass` and similar), and those
//! that it listens at. Reads what nginx reads: `http`, `server` and `location` blocks with everything they include.

mod analysis;
mod lexer;
mod listen;
mod pass;
pub mod passing;
mod tree;

use std::net::Ipv6Addr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use samehost_model::{Endpoint, UNIX_PATH_MAX};

use crate::budget::Metered;
use crate::editor::{Check, Editor, Program, is_all, written_lines};
use crate::files::{Edit, Files, main_of};
use crate::lines::{has_only, starts_with_any_case};
use crate::refusal::{Reason, Result};
use crate::setting::{Goal, Reading, Setting, Uptake};
use analysis::{Analysis, Found, Kind};
use listen::Listener;
use tree::Tree;

#[derive(Debug)]
pub struct Nginx;

impl Editor for Nginx {
    fn name(&self) -> &'static str {
        "nginx"
    }

    fn about(&self) -> &'static str {
        "nginx: servers of upstreams, proxy_pass and its like, listen"
    }

    fn recognises(&self, path: &Path, text: &[u8]) -> bool {
        let names: Vec<&[u8]> = path
            .components()
            .filter_map(|part| match part {
                Component::Normal(name) => Some(name.as_encoded_bytes()),
                _ => None,
            })
            .collect();
        let Some((name, above)) = names.split_last() else { return false };
        if *name == b"nginx.conf" {
            return true;
        }
        let folders = [&b"conf.d"[..], b"snippets", b"vhosts", b"http.d", b"stream.d"];
        let mut below = above.iter().skip_while(|folder| **folder != b"nginx");
        let is_below = below.any(|folder| folder.starts_with(b"sites-") || folders.contains(folder));
        // Also the files of hosting panels, which may be anywhere.
        is_below || (name.ends_with(b".conf") && has_blocks(text))
    }

    fn read_metered(&self, file: &Path, files: &Metered<'_>) -> Result<Reading> {
        let analysis = Analysis::of(file, files)?;
        let settings = analysis.found.into_iter().map(|found| found.setting).collect();
        Ok(Reading { settings, refused: analysis.refused })
    }

    fn same_site_metered(
        &self,
        file: &Path,
        files: &Metered<'_>,
        setting: &Setting,
    ) -> Result<Vec<Endpoint>> {
        let analysis = Analysis::of(file, files)?;
        let Some(own) = analysis.found.iter().find(|found| found.setting == *setting) else {
            return Ok(Vec::new());
        };
        let servers = analysis.servers_of(own);
        let mut endpoints = Vec::new();
        for other in &analysis.found {
            let is_another = other.kind == Kind::Listen && other.setting != *setting;
            if is_another && analysis.servers_of(other) == servers {
                endpoints.push(other.setting.endpoint.clone());
            }
        }
        Ok(endpoints)
    }

    fn edit_metered(
        &self,
        file: &Path,
        files: &Metered<'_>,
        setting: &Setting,
        goal: &Goal,
    ) -> Result<Vec<Edit>> {
        let analysis = &*files.once(file, || Analysis::of(file, files))?;
        // The line first: of thousands of moves each looks here, and names are long and alike.
        let is_it = |found: &&Found| {
            let other = &found.setting;
            other.line == setting.line && other.name == setting.name && other.file == setting.file
        };
        let found = analysis.found.iter().find(is_it).ok_or_else(|| setting.missing())?;
        let mut places = found.nodes.iter().map(|node| {
            if found.kind == Kind::Listen {
                Listener { analysis, found, node: *node, goal }.edits()
            } else {
                connection(analysis, found, *node, goal)
            }
        });
        let first = places.next().unwrap_or_else(|| Ok(Vec::new()))?;
        for other in places {
            if other? != first {
                let reason = "the file is included in several places, which would need different edits";
                let by_hand = "write the directive into each place";
                return Err(analysis.tree.at(found.nodes[0]).refusal(reason, by_hand));
            }
        }
        Ok(first)
    }

    fn listens_on_both(&self) -> bool {
        true
    }

    fn connects_to_both(&self, setting: &Setting) -> bool {
        setting.name.starts_with("upstream ")
    }

    fn check_metered(&self, file: &Path, files: &Metered<'_>) -> Option<Check> {
        // A part of a configuration can only be checked with the rest.
        let is_whole = files.read(file).is_ok_and(|text| tops(&text).iter().any(|name| name == b"events"));
        let main = if is_whole { file.to_owned() } else { main_of(file, tree::MAIN_NAMES, files)? };
        let main = std::path::absolute(main).ok()?;
        let arguments = vec!["-t".into(), "-q".into(), "-c".into(), main.to_str()?.to_owned()];
        let (reads, unknown) = match Tree::read(&main, files) {
            Ok(tree) => (tree.files(&main, files), None),
            Err(refusal) => (vec![main], Some(format!("{}: {}", refusal.file.display(), refusal.reason))),
        };
        Some(Check { unknown, ..Check::new(&NGINX, arguments, reads) })
    }

    fn uptake(&self, _file: &Path) -> Uptake {
        Uptake::Reload(samehost_services::Kind::Nginx)
    }
}

fn tops(text: &[u8]) -> Vec<Vec<u8>> {
    let mut depth = 0_usize;
    let mut names = Vec::new();
    for statement in lexer::statements(text).unwrap_or_default() {
        match statement.end {
            lexer::End::Opens => {
                if depth == 0 {
                    names.push(statement.words[0].value.clone());
                }
                depth += 1;
            }
            lexer::End::Closes => depth = depth.saturating_sub(1),
            lexer::End::Semicolon | lexer::End::Lua => {}
        }
    }
    names
}

fn has_blocks(text: &[u8]) -> bool {
    tops(text).iter().any(|name| matches!(&name[..], b"server" | b"upstream" | b"http" | b"events"))
}

/// Adds the new address as a second `server` of the upstream with `max_fails=0`: nginx falls back to the other one, and
/// keeps retrying this one. So a server that has one address only (uvicorn, say) moves without a gap: nginx names both
/// while it moves, and asks whichever of the two answers. The present line's own `max_fails` is not repeated.
fn beside(tree: &Tree, node: usize, address: &str) -> Edit {
    let directive = &tree.nodes[node];
    let source = tree.source(node);
    let mut line = format!("server {address}");
    for word in &directive.arguments()[1..] {
        let parameter = String::from_utf8_lossy(&source.text[word.range.clone()]);
        if !parameter.starts_with("max_fails=") {
            line = format!("{line} {parameter}");
        }
    }
    listen::insert(tree, node, &[line + " max_fails=0;"])
}

fn connection(analysis: &Analysis, found: &Found, node: usize, goal: &Goal) -> Result<Vec<Edit>> {
    let (tree, setting) = (&analysis.tree, &found.setting);
    if goal.endpoint == setting.endpoint {
        return Ok(Vec::new());
    }
    let word = &tree.nodes[node].arguments()[0];
    let example = match found.kind {
        Kind::Pass(pass) => pass.example(""),
        Kind::Server | Kind::Listen => "`server unix:/path/of.sock;`".to_owned(),
    };
    let refused = |reason: String| tree.at(node).refusal(reason, example.clone());
    if matches!(goal.endpoint, Endpoint::Unix(_))
        && let Some(bound) = analysis.bind
    {
        let (text, place) = (tree.text(bound), tree.place(bound));
        return Err(refused(format!("`{text}` ({place}) is an address that no socket has")));
    }
    let value = std::str::from_utf8(&word.value).map_err(|_| refused("the address is not UTF-8".into()))?;
    let Kind::Pass(pass) = found.kind else {
        let written = spell(&goal.endpoint).map_err(|why| refused(why.into()))?;
        let edit = if goal.stays {
            beside(tree, node, &written)
        } else {
            Edit::new(&setting.file, word.range.clone(), written)
        };
        return Ok(vec![edit]);
    };
    let after = pass.with(value, &goal.endpoint).map_err(|why| refused(why.into()))?;
    let (from, to) = (&setting.endpoint, &goal.endpoint);
    let moved = pass::Moved { tree, node, pass, from, to, before: value, after: &after };
    let lines = moved.beside()?;
    let mut edits = vec![Edit::new(&setting.file, word.range.clone(), after.as_bytes())];
    if !lines.is_empty() {
        edits.push(listen::insert(tree, node, &lines));
    }
    Ok(edits)
}

/// nginx' own check, which needs the file alone. Its relatives check the same files.
static NGINX: Program = Program {
    usual: "nginx",
    is_called: |name| ["nginx", "openresty", "angie"].contains(&name),
    could_not_look,
    service: None,
};

fn could_not_look(output: &str) -> bool {
    let errors = written_lines(output).filter(|line| line.contains("[emerg]"));
    is_all(errors, |line| {
        line.contains("(13: Permission denied)")
            || line.contains("(1: Operation not permitted)")
            || (line.contains("(SSL: ") && line.contains("Permission denied:"))
    })
}

// Addresses in an nginx configuration: parses `127.0.0.1`, `[::1]:80` and `unix:/path`, and writes endpoints.
// Independent of directives.

#[derive(Clone, Debug, PartialEq, Eq)]
enum Address {
    /// An address; a TCP address may lack a port.
    Unix(String),
    Tcp {
        host: String,
        port: Option<u16>,
    },
}

/// An address of a client's directive, or why it is none.
fn parse(text: &[u8]) -> Result<Address, Reason> {
    let text = std::str::from_utf8(text).map_err(|_| "the address is not UTF-8")?;
    if let Some(path) = unix(text) {
        return socket(path);
    }
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, behind) =
                rest.split_once(']').ok_or_else(|| format!("`{text}` has a bracket that is not closed"))?;
            host.parse::<Ipv6Addr>().map_err(|_| format!("`{host}` is not an IPv6 address"))?;
            let port = match behind {
                "" => None,
                behind => {
                    Some(behind.strip_prefix(':').ok_or_else(|| format!("`{text}` is not an address"))?)
                }
            };
            (host, port)
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if !text.starts_with('[') && (host.is_empty() || !has_only(host, ".-_")) {
        return Err(format!("`{text}` is not an address").into());
    }
    Ok(Address::Tcp { host: host.to_owned(), port: port.map(number).transpose()? })
}

/// An address of `listen`, which may also be a port alone or `*`, or why it is none.
fn parse_listen(text: &[u8]) -> Result<Endpoint, Reason> {
    let port = match text {
        b"*" => 80,
        [b'*', b':', port @ ..] => number(&String::from_utf8_lossy(port))?,
        _ if text.iter().all(|byte| byte.is_ascii_digit() || *byte == b'-') => {
            number(&String::from_utf8_lossy(text))?
        }
        _ => return parse(text).map(|address| address.endpoint(80)),
    };
    Ok(Endpoint::Tcp { host: "0.0.0.0".into(), port })
}

fn unix(text: &str) -> Option<&str> {
    if starts_with_any_case(text.as_bytes(), "unix:") { text.get(5..) } else { None }
}

fn socket(path: &str) -> Result<Address, Reason> {
    if path.starts_with('/') && path.len() <= UNIX_PATH_MAX {
        Ok(Address::Unix(path.to_owned()))
    } else {
        Err(format!("`{path}` is not an absolute path of at most {UNIX_PATH_MAX} bytes").into())
    }
}

fn number(text: &str) -> Result<u16, Reason> {
    // Rust takes a sign before the digits, and nginx does not.
    let has_only_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(port) if has_only_digits && port != 0 => Ok(port),
        _ if text.contains('-') => Err(format!("`{text}` is a range of ports").into()),
        _ => Err(format!("`{text}` is not a port").into()),
    }
}

impl Address {
    fn endpoint(self, port_if_none: u16) -> Endpoint {
        match self {
            Address::Unix(path) => Endpoint::Unix(path.into()),
            Address::Tcp { host, port } => Endpoint::Tcp { host, port: port.unwrap_or(port_if_none) },
        }
    }
}

/// Whether a byte of a path means something else to nginx.
fn is_special(byte: u8) -> bool {
    byte <= b' ' || byte == 0x7f || b";{}\"'\\$#*".contains(&byte)
}

/// How an endpoint is written, or why it cannot be.
fn spell(endpoint: &Endpoint) -> Result<String, Reason> {
    match endpoint {
        Endpoint::Unix(path) => {
            let text = path.to_str().ok_or("a path that is not UTF-8 cannot be written")?;
            if let Some(byte) = text.bytes().find(|byte| is_special(*byte)) {
                let byte = char::from(byte).escape_default();
                return Err(format!("a path with `{byte}` means something else to nginx").into());
            }
            if !path.is_absolute() {
                return Err(format!("{text}: nginx would look for it where it happens to run").into());
            }
            if path.as_os_str().as_bytes().len() > UNIX_PATH_MAX {
                return Err(format!("{text} is longer than {UNIX_PATH_MAX} bytes").into());
            }
            Ok(format!("unix:{text}"))
        }
        Endpoint::Tcp { port: 0, .. } => Err("port 0 is none that anybody could connect to".into()),
        Endpoint::Tcp { host, port } if host.parse::<Ipv6Addr>().is_ok() => Ok(format!("[{host}]:{port}")),
        Endpoint::Tcp { host, port } => {
            if host.is_empty() || !has_only(host, ".-_") {
                return Err(format!("`{host}` is not a host that nginx could look up").into());
            }
            Ok(format!("{host}:{port}"))
        }
        other => Err(format!("nginx cannot use {other}").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_missing_permissions_are_no_verdict() {
        let log = "nginx: [alert] could not open error log file: open() \"/var/log/nginx/error.log\" failed (13: Permission denied)\n";
        let key = "2026/01/01 00:00:00 [emerg] 1#1: cannot load certificate key \"/k\": BIO_new_file() failed (SSL: error:8000000D:system library::Permission denied:calling fopen(/k, r) error:10080002:BIO routines::system lib)\n";
        let pid = "nginx: [emerg] open() \"/run/nginx.pid\" failed (13: Permission denied)\nnginx: configuration file /n test failed\n";
        let wrong = "nginx: [emerg] unknown directive \"Permission denied\" in /n:3\n";
        for denied in [pid, key, &format!("{log}{pid}")] {
            assert!(could_not_look(denied), "{denied}");
        }
        for looked in [wrong, &format!("{log}{wrong}"), &format!("{wrong}{pid}"), log, ""] {
            assert!(!could_not_look(looked), "{looked}");
        }
    }

    #[test]
    fn addresses_are_what_nginx_takes_them_for() {
        fn parsed(text: &str) -> Result<String, Reason> {
            parse(text.as_bytes()).map(|address| address.endpoint(80).to_string())
        }
        for (text, endpoint) in [
            ("127.0.0.1", "tcp:127.0.0.1:80"),
            ("localhost:3000", "tcp:localhost:3000"),
            ("[::1]", "tcp:[::1]:80"),
            ("[::1]:9", "tcp:[::1]:9"),
            ("unix:/run/a:b", "unix:/run/a:b"),
            ("UNIX:/run/a", "unix:/run/a"),
        ] {
            assert_eq!(parsed(text).unwrap(), endpoint);
        }
        for text in
            ["", "127.0.0.1:", "127.0.0.1:0", "a/b", "[::1", "[x]", "[::1]9", "unix:", "unix:a", "a:1-2", "é"]
        {
            assert!(parsed(text).is_err(), "{text}");
        }
    }

    #[test]
    fn listeners_may_leave_the_host_out() {
        fn parsed(text: &str) -> Result<String, Reason> {
            parse_listen(text.as_bytes()).map(|endpoint| endpoint.to_string())
        }
        assert_eq!(parsed("8080").unwrap(), "tcp:0.0.0.0:8080");
        assert_eq!(parsed("*:8080").unwrap(), "tcp:0.0.0.0:8080");
        assert_eq!(parsed("[::]:80").unwrap(), "tcp:[::]:80");
        assert_eq!(parsed("127.0.0.1").unwrap(), "tcp:127.0.0.1:80");
        assert!(parsed("8080-8090").is_err() && parsed("99999").is_err());
    }

    #[test]
    fn what_is_written_is_read_again() {
        for text in ["unix:/run/a.sock", "tcp:[::1]:80", "tcp:localhost:1"] {
            let endpoint: Endpoint = text.parse().unwrap();
            let written = spell(&endpoint).unwrap();
            assert_eq!(parse(written.as_bytes()).unwrap().endpoint(80), endpoint);
        }
        for text in ["unix:/a b", "unix:/a;b", "unix:a", "abstract:a", "tcp+tls:a:1", "tcp:a:0", "unix:/$a"] {
            assert!(spell(&text.parse().unwrap()).is_err(), "{text}");
        }
    }
}
