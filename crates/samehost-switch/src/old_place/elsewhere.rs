//! Finds other lines that name an address in what running web servers read. Their programs will connect, even if none
//! does now. Reads with the permissions of whoever controls what a server reads: command lines and files are the words
//! of a user, who must not have root read for him what he could not read himself.

use std::path::{Path, PathBuf};

use samehost_edit::{Edit, Files, Goal, Role, glob};
use samehost_model::Endpoint;
use samehost_model::scan::{Process, Scan, Service};
use samehost_services::Kind;

use crate::configuration::ConfigFile;
use crate::configuration::server_files;
use crate::disk::{Disk, Reads};
use crate::findings::shown;
use crate::place::same_port;
use crate::plan::hop::Hop;

/// Maximum number of files that a configuration may include.
const MOST: usize = 1024;

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
        let more = match service.kind {
            Some(Kind::Nginx) => by_editor(&server_files::of(scan, service), process, endpoint, hops),
            Some(Kind::Apache) => {
                let lines = apache(scan, service, process, (endpoint, to), &edits_of(hops));
                // Only the editor knows the variables.
                if lines.is_empty() {
                    by_editor(&server_files::of(scan, service), process, endpoint, hops)
                } else {
                    lines
                }
            }
            _ => Vec::new(),
        };
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
                "{} {}: {} ({}:{}) names {endpoint} as well",
                process.name,
                process.pid,
                setting.name,
                shown(&setting.file),
                setting.line
            ),
            remedy: format!("Switch both together: add {} to the command", shown(&config.file)),
        });
    }
    named
}

/// Where Apache starts to read: its root for relative names, and its main file.
struct Apache {
    root: PathBuf,
    main: PathBuf,
}

impl Apache {
    /// From its command line, else the distributions' usual files; `None` if no file of this system can be its own.
    fn of(scan: &Scan, service: &Service, process: &Process) -> Option<Self> {
        let words: Vec<&str> = process.command_line.iter().map(String::as_str).collect();
        let usual = ["/etc/apache2", "/etc/httpd"].map(PathBuf::from);
        let root = match samehost_services::word_after(&words, "-d") {
            Some(given) => given,
            None => usual.into_iter().find(|path| path.is_dir())?,
        };
        let main = match samehost_services::word_after(&words, "-f") {
            Some(path) => root.join(path),
            None => {
                let usual = ["apache2.conf", "conf/httpd.conf"].map(|name| root.join(name));
                usual.into_iter().find(|path| path.is_file())?
            }
        };
        if server_files::is_for(scan, service, &main) { Some(Apache { root, main }) } else { None }
    }
}

/// Lines of Apache that connect to the address. They are searched as text, following includes in any order: also lines that
/// the editor refuses count, because their programs will connect all the same. Those that these moves edit are left out.
fn apache(
    scan: &Scan,
    service: &Service,
    process: &Process,
    (endpoint, to): (&Endpoint, &Endpoint),
    edits: &[Edit],
) -> Vec<Named> {
    let Some(Apache { root, main }) = Apache::of(scan, service, process) else { return Vec::new() };
    let disk = Disk::of(&main, Reads::RootsServer, None);
    let mut waiting = vec![main.clone()];
    let (mut seen, mut found, mut root) = (Vec::new(), Vec::new(), root);
    while let Some(path) = waiting.pop() {
        if seen.contains(&path) || seen.len() >= MOST {
            continue;
        }
        let text = disk.read(&path).unwrap_or_default();
        seen.push(path.clone());
        let own = edits.iter().filter(|edit| disk.real(&edit.file) == disk.real(&path));
        let own: Vec<usize> = own.map(|edit| edit.range.start).collect();
        let mut start = 0;
        for (index, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let is_edited = own.iter().any(|at| (start..start + line.len()).contains(at));
            start += line.len();
            let line = String::from_utf8_lossy(line);
            let line = line.trim();
            if let Some(folder) = argument(line, &["ServerRoot"]) {
                root = PathBuf::from(folder);
            }
            if let Some(pattern) = argument(line, &["Include", "IncludeOptional"]) {
                waiting.extend(included(&disk, &root, pattern));
            }
            if let Some(by_hand) = moved(line, endpoint, to)
                && !is_edited
            {
                found.push(Named {
                    found: format!(
                        "{} {} names {endpoint}: {}:{}: {line}",
                        process.name,
                        process.pid,
                        shown(&path),
                        index + 1
                    ),
                    remedy: format!(
                        "Switch both together: add {} to the command. Or, once something listens at {to}, edit that line by hand and reload Apache: {by_hand}",
                        shown(&main)
                    ),
                });
            }
        }
    }
    found
}

fn argument<'a>(line: &'a str, names: &[&str]) -> Option<&'a str> {
    let (name, rest) = line.split_once(char::is_whitespace)?;
    if !names.iter().any(|one| one.eq_ignore_ascii_case(name)) {
        return None;
    }
    Some(rest.trim().trim_matches('"'))
}

fn included(disk: &Disk, root: &Path, pattern: &str) -> Vec<PathBuf> {
    let path = root.join(pattern);
    // A directory stands for all files in it.
    match disk.list(&path) {
        Ok(files) => files,
        Err(_) => glob(disk, path.as_os_str().as_encoded_bytes()).unwrap_or_default(),
    }
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
    argument(line, CONNECTING)?;
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
