//! Finds other lines that name an address in what running web servers read. Their programs will connect, even if none
//! does now. Reads with the permissions of whoever controls what a server reads: command lines and files are the words
//! of a user, who must not have root read for him what he could not read himself.

use std::path::PathBuf;

use samehost_edit::{Edit, Files, Goal, Role};
use samehost_model::Endpoint;
use samehost_model::scan::{Process, Scan};
use samehost_services::Kind;

use crate::configuration::ConfigFile;
use crate::configuration::server_files::{self, texts_of};
use crate::findings::{place, shown};
use crate::place::{real, same_port};
use crate::plan::hop::Hop;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) found: String,
    pub(crate) remedy: String,
}

/// Lines of running nginx and Apache servers that name an address and are not changed by these moves.
pub(crate) fn named(scan: &Scan, endpoint: &Endpoint, to: &Endpoint, hops: &[Hop]) -> Vec<Named> {
    let mut found: Vec<Named> = Vec::new();
    for service in &scan.services {
        let Some(process) = scan.main_process(service) else { continue };
        if !matches!(service.kind, Some(Kind::Nginx | Kind::Apache)) {
            continue;
        }
        let files = server_files::of(scan, service);
        let mut more = Vec::new();
        if service.kind == Some(Kind::Apache) {
            more = apache(&files, process, (endpoint, to), &edits_of(hops));
        }
        // Only the editor knows the variables.
        if more.is_empty() {
            more = by_editor(&files, process, endpoint, hops);
        }
        for one in more {
            if !found.contains(&one) {
                found.push(one);
            }
        }
    }
    found
}

/// The bytes of Apache's files that these moves change.
fn edits_of(hops: &[Hop]) -> Vec<Edit> {
    let mut all = Vec::new();
    for hop in hops {
        let (config, goal) = (&hop.config, Goal::client(hop.to.clone()));
        if config.kind() != Some(Kind::Apache) {
            continue;
        }
        if let Ok(edits) = config.editor.edit(&config.file, &config.files(), &hop.setting, &goal) {
            all.extend(edits);
        }
    }
    all
}

/// The client lines of a server's configuration that an editor reads, other than those that move.
fn by_editor(files: &[PathBuf], process: &Process, endpoint: &Endpoint, hops: &[Hop]) -> Vec<Named> {
    let Some(config) = files.iter().find_map(|path| ConfigFile::at(path, None).ok()?) else {
        return Vec::new();
    };
    let disk = config.files();
    let Ok(reading) = config.editor.read(&config.file, &disk) else { return Vec::new() };
    let mut named = Vec::new();
    for setting in &reading.settings {
        let is_client = setting.role == Role::Connects && same_port(&setting.endpoint, endpoint);
        let file = disk.real(&setting.file);
        let moves =
            hops.iter().any(|hop| disk.real(&hop.setting.file) == file && hop.setting.line == setting.line);
        if !is_client || moves {
            continue;
        }
        named.push(Named {
            found: format!(
                "{} {}: {} ({}) names {endpoint} as well",
                process.name,
                process.pid,
                setting.name,
                place(&setting.file, setting.line)
            ),
            remedy: format!("Switch both together: add {} to the command", shown(&config.file)),
        });
    }
    named
}

/// Lines of Apache that connect to the address. They are searched as text: also lines that the editor refuses count, because their
/// programs will connect all the same. Those that these moves edit are left out.
fn apache(
    files: &[PathBuf],
    process: &Process,
    (endpoint, to): (&Endpoint, &Endpoint),
    edits: &[Edit],
) -> Vec<Named> {
    let main = files.first().map(|main| shown(main)).unwrap_or_default();
    let mut found = Vec::new();
    for (path, text) in texts_of(files) {
        let own = edits.iter().filter(|edit| real(&edit.file) == real(&path));
        let own: Vec<usize> = own.map(|edit| edit.range.start).collect();
        let mut start = 0;
        for (index, line) in text.split_inclusive('\n').enumerate() {
            let is_edited = own.iter().any(|at| (start..start + line.len()).contains(at));
            start += line.len();
            let line = line.trim();
            let Some(by_hand) = moved(line, endpoint, to).filter(|_| !is_edited) else { continue };
            let (name, pid, place) = (&process.name, process.pid, place(&path, index as u32 + 1));
            found.push(Named {
                found: format!("{name} {pid} names {endpoint}: {place}: {line}"),
                remedy: format!(
                    "Switch both together: add {main} to the command. Or, once something listens at {to}, edit that line by hand and reload Apache: {by_hand}"
                ),
            });
        }
    }
    found
}

/// Directives with which Apache connects. The URL in others (`ProxyPassReverse`, `<Proxy>`) is a name.
const CONNECTING: &[&str] = &[
    "SetHandler", "AddHandler", "ProxyPass", "ProxyPassMatch", "BalancerMember", "RewriteRule",
    "ProxyRemote", "AuthnzFcgiDefineProvider",
];

/// An Apache line that connects to a port, rewritten for a socket (mod_proxy: `unix:PATH|URL`); `None` for
/// other lines.
fn moved(line: &str, endpoint: &Endpoint, to: &Endpoint) -> Option<String> {
    let (Endpoint::Tcp { host, port }, Endpoint::Unix(socket)) = (endpoint, to) else { return None };
    let (name, _) = line.split_once(char::is_whitespace)?;
    if !CONNECTING.iter().any(|one| one.eq_ignore_ascii_case(name)) {
        return None;
    }
    let hosts = [host.as_str(), "127.0.0.1", "localhost", "[::1]"];
    for scheme in ["fcgi", "http", "uwsgi", "scgi", "ajp", "ws", "h2c"] {
        for host in hosts {
            let url = format!("{scheme}://{host}:{port}");
            let Some(at) = line.find(&url) else { continue };
            let (before, after) = (&line[..at], &line[at + url.len()..]);
            // After a socket, the URL is only a name to Apache; and 9000 is not 90001.
            if before.ends_with('|') || after.starts_with(|c: char| c.is_ascii_digit()) {
                continue;
            }
            return Some(format!("{before}unix:{}|{url}{after}", shown(socket)));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_apache_are_found_and_said_anew() {
        fn edited(line: &str) -> Option<String> {
            let from = "tcp:127.0.0.1:9000".parse().unwrap();
            moved(line, &from, &"unix:/run/php/x.sock".parse().unwrap())
        }
        assert_eq!(
            edited("SetHandler \"proxy:fcgi://127.0.0.1:9000\"").as_deref(),
            Some("SetHandler \"proxy:unix:/run/php/x.sock|fcgi://127.0.0.1:9000\"")
        );
        assert_eq!(
            edited("ProxyPassMatch ^/(.*)$ fcgi://localhost:9000/var/www/$1").as_deref(),
            Some("ProxyPassMatch ^/(.*)$ unix:/run/php/x.sock|fcgi://localhost:9000/var/www/$1")
        );
        for other in [
            "# SetHandler proxy:fcgi://127.0.0.1:9000",
            "ProxyPassReverse / http://127.0.0.1:9000/",
            "<Proxy \"fcgi://127.0.0.1:9000\">",
            "SetHandler \"proxy:fcgi://127.0.0.1:90001\"",
            "SetHandler \"proxy:fcgi://127.0.0.1:9001\"",
            "SetHandler \"proxy:unix:/run/php/x.sock|fcgi://127.0.0.1:9000\"",
        ] {
            assert_eq!(edited(other), None, "{other}");
        }
    }
}
