//! Finds other lines that name an address in what running web servers read. Their programs will connect, even if none
//! does now. Reads with the permissions of whoever controls what a server reads: command lines and files are the words
//! of a user, who must not have root read for him what he could not read himself.

use std::path::PathBuf;

use samehost_edit::{Edit, Files, Goal, Role};
use samehost_model::Endpoint;
use samehost_model::scan::{Process, Scan};
use samehost_services::Kind;
use samehost_system::lookup;

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
    let (mut found, edits): (Vec<Named>, _) = (Vec::new(), edits_of(hops));
    for service in &scan.services {
        let Some(process) = scan.main_process(service) else { continue };
        if !matches!(service.kind, Some(Kind::Nginx | Kind::Apache)) {
            continue;
        }
        let files = server_files::of(scan, service);
        // Only the editor knows the variables; it refuses lines whose programs connect all the same.
        let over = passed_over(&files, process, (endpoint, to), &edits);
        let mut more = by_editor(&files, process, endpoint, hops);
        // Of a line that both have, the text has the words by hand.
        more.retain(|one| over.iter().all(|(place, _)| !one.found.contains(&format!("({place})"))));
        more.extend(over.into_iter().map(|(_, one)| one));
        for one in more {
            if !found.contains(&one) {
                found.push(one);
            }
        }
    }
    found
}

/// A web server's lines that connect to the address, or to one put together of variables that may be this one, each with its place;
/// but for those that these edits change.
fn passed_over(
    files: &[PathBuf],
    process: &Process,
    (endpoint, to): (&Endpoint, &Endpoint),
    edits: &[Edit],
) -> Vec<(String, Named)> {
    let Endpoint::Tcp { port, .. } = endpoint else { return Vec::new() };
    let texts = texts_of(files);
    let mut found = Vec::new();
    for ((path, text), line, statement) in connecting(&texts, *port) {
        let mut own = edits.iter().filter(|edit| real(&edit.file) == real(path));
        if own.any(|edit| line_of(text, edit.range.start) == line) {
            continue;
        }
        let (name, pid, place) = (&process.name, process.pid, place(path, line));
        let (how, remedy) = if let Some(word) = words(statement).find(|word| is_at(word, *port)) {
            let main = shown(&files[0]);
            let by_hand = moved(statement, word, to).map_or(String::new(), |line| format!(": {line}"));
            let remedy = format!(
                "Switch both together: add {main} to the command; or edit that line by hand, once something listens at {to}{by_hand}"
            );
            ("leads", remedy)
        } else {
            let remedy = "Write the address out there, and switch again; or leave the port open: --keep-tcp";
            ("has its address from variables, which are not followed, and may lead", remedy.to_owned())
        };
        let found_there = format!("{name} {pid}: {place}: `{statement}` {how} to {endpoint}");
        found.push((place, Named { found: found_there, remedy }));
    }
    found
}

/// A statement of Apache's rewritten for a socket, given its word with the URL (mod_proxy: `unix:PATH|URL`); `None` of another server's.
fn moved(statement: &str, word: &str, to: &Endpoint) -> Option<String> {
    let (Endpoint::Unix(socket), name) = (to, statement.split_whitespace().next()?) else { return None };
    if !CONNECTING.iter().any(|one| one.eq_ignore_ascii_case(name)) {
        return None;
    }
    let scheme = word.find("://").and_then(|at| word[..at].rfind(':')).map_or(0, |at| at + 1);
    let url = &word[scheme..];
    Some(statement.replacen(url, &format!("unix:{}|{url}", shown(socket)), 1))
}

/// The statements of a web server that connect to this port of this machine, or may by their variables: `fastcgi_pass 127.0.0.1:$port`
/// where another line has the port's number, and `$host:9000`. These were passed over, and the port was closed under their sites.
fn connecting(texts: &[(PathBuf, String)], port: u16) -> Vec<(&(PathBuf, String), u32, &str)> {
    let all = || {
        texts
            .iter()
            .flat_map(|file| statements(&file.1).map(move |(line, statement)| (file, line, statement)))
    };
    let is_set = all().any(|(_, _, statement)| {
        !connects_or_listens(statement) && numbers(statement).any(|number| number == port)
    });
    let may_lead = |word: &str| is_at(word, port) || may_be(word, port, is_set);
    all().filter(|(_, _, statement)| connects(statement) && words(statement).any(may_lead)).collect()
}

fn words(statement: &str) -> impl Iterator<Item = &str> {
    statement.split(|letter: char| letter.is_whitespace() || "\"'".contains(letter))
}

/// Host and port of a URL or an address; none of what is behind a socket, which is a name to Apache.
fn host_and_port(word: &str) -> Option<(&str, &str)> {
    let authority = word.rsplit("://").next().filter(|_| !word.contains('|'))?;
    authority.split('/').next()?.rsplit_once(':')
}

/// Whether a word is the URL of this port of this machine.
fn is_at(word: &str, port: u16) -> bool {
    let is_its =
        |(host, own): (&str, &str)| own.parse() == Ok(port) && lookup::is_here(host.trim_matches(['[', ']']));
    word.contains("://") && host_and_port(word).is_some_and(is_its)
}

fn line_of(text: &str, at: usize) -> u32 {
    1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count() as u32
}

/// The statements of nginx's or Apache's text, each with its line.
fn statements(text: &str) -> impl Iterator<Item = (u32, &str)> {
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim_start().starts_with('#'));
    lines.flat_map(|(number, line)| {
        // Braces are also around a name of Apache's: `${FPM}`.
        line.split(';').flat_map(|part| part.split(" {")).map(move |part| (number, part.trim()))
    })
}

fn first_word(statement: &str) -> &str {
    statement.trim_start_matches(['}', ' ', '\t']).split_whitespace().next().unwrap_or_default()
}

fn connects(statement: &str) -> bool {
    let name = first_word(statement);
    name.ends_with("_pass") || CONNECTING.iter().any(|one| one.eq_ignore_ascii_case(name))
}

fn connects_or_listens(statement: &str) -> bool {
    const LISTENING: &[&str] = &["listen", "server", "<VirtualHost", "ServerName"];
    connects(statement) || LISTENING.iter().any(|one| one.eq_ignore_ascii_case(first_word(statement)))
}

fn numbers(text: &str) -> impl Iterator<Item = u16> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric());
    words.filter_map(|word| word.parse().ok())
}

/// Whether a word with a variable may be this port of this machine, given whether another line has its number.
fn may_be(word: &str, port: u16, is_set: bool) -> bool {
    let Some((host, behind)) = host_and_port(word) else { return false };
    let digits = behind.len() - behind.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
    let is_here = host.contains('$') || lookup::is_here(host.trim_matches(['[', ']']));
    match behind[..digits].parse::<u16>() {
        Ok(number) => host.contains('$') && number == port,
        Err(_) => behind.starts_with('$') && is_here && is_set,
    }
}

/// The bytes of web servers' files that these moves change.
fn edits_of(hops: &[Hop]) -> Vec<Edit> {
    let mut all = Vec::new();
    for hop in hops {
        let (config, goal) = (&hop.config, Goal::client(hop.to.clone()));
        if !matches!(config.kind(), Some(Kind::Nginx | Kind::Apache)) {
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
    let Some(config) = ConfigFile::first_of(files) else {
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

/// Directives with which Apache connects. The URL in others (`ProxyPassReverse`, `<Proxy>`) is a name.
const CONNECTING: &[&str] = &[
    "SetHandler", "AddHandler", "ProxyPass", "ProxyPassMatch", "BalancerMember", "RewriteRule",
    "ProxyRemote", "AuthnzFcgiDefineProvider",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_variables_may_be_any_that_another_line_has() {
        let is_found = |text: &str| {
            let texts = [(PathBuf::from("/etc/nginx/nginx.conf"), text.to_owned())];
            !connecting(&texts, 9000).is_empty()
        };
        for text in [
            "server { set $port 9000; location / { fastcgi_pass 127.0.0.1:$port; } }",
            "set $h 127.0.0.1;\nlocation / {\n  fastcgi_pass $h:9000;\n}",
            "map $host $p { default 9001; b.test 9000; }\nserver { location / { fastcgi_pass 127.0.0.1:$p; } }",
            "<Macro S $p>\nSetHandler \"proxy:fcgi://127.0.0.1:$p\"\n</Macro>\nUse S 9000\n",
            "Define P 9000\nProxyPass / http://localhost:${P}/\n",
        ] {
            assert!(is_found(text), "{text}");
        }
        for text in [
            "server { set $port 9001; location / { fastcgi_pass 127.0.0.1:$port; } location /a { fastcgi_pass 127.0.0.1:9000; } }",
            "set $h 127.0.0.1; location / { fastcgi_pass $h:9001; }",
            "# set $port 9000;\nlocation / { fastcgi_pass 127.0.0.1:$port; }",
            "listen 9000; location / { proxy_pass http://127.0.0.1:3000$request_uri; }",
            "set $port 9000; location / { fastcgi_pass 10.0.0.7:$port; }",
            "ProxyPassMatch ^/(.*)$ fcgi://localhost:9001/var/www/$1\nDefine P 9000\n",
        ] {
            assert!(!is_found(text), "{text}");
        }
    }

    #[test]
    fn lines_of_apache_that_connect_are_found_and_said_anew() {
        let is_found = |line: &str| {
            let texts = [(PathBuf::from("/etc/apache2/apache2.conf"), line.to_owned())];
            !connecting(&texts, 9000).is_empty()
        };
        for line in [
            "SetHandler \"proxy:fcgi://127.0.0.1:9000\"",
            "ProxyPassMatch ^/(.*)$ fcgi://localhost:9000/var/www/$1",
            "RewriteRule ^/(a|b)$ http://[::1]:9000/$1 [P]",
        ] {
            assert!(is_found(line), "{line}");
        }
        let edited = |line: &str| {
            let word = words(line).find(|word| is_at(word, 9000))?;
            moved(line, word, &"unix:/run/php/x.sock".parse().unwrap())
        };
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
            assert!(!is_found(other), "{other}");
        }
    }
}
