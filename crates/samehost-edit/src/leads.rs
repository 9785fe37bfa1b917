//! Values of a text that may lead to a server, whatever format the text has: a host with a port, a URL, a DSN, or a host
//! and a port in two lines. Editors say what a program makes of a value; this only finds what none of them spoke of, so that
//! nothing is passed over in silence. It never decides that a value may be changed.

use std::collections::{BTreeMap, HashMap};

use samehost_model::Endpoint;
use samehost_services::{Kind, Leads as SchemeLeads, scheme};

use crate::lines::has_only;

/// A value that may lead to a server, found by its form and not by an editor.
/// An editor that refuses a line says so; one that passes it over says nothing, and that was read as
/// done. A value counts where its address has a listener on this machine. Taking an unknown key for a
/// known one by its port was rejected, since the words of a program cannot be guessed from where it
/// connects. Names are not asked of a name server: a word of somebody's text would leave the machine
/// (docs/decisions/0131).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lead {
    /// Its line, from 1.
    pub line: u32,
    /// The key before it: `DB_HOST`. Never the value, which may have a password.
    pub name: String,
    /// Where it may lead, the surest first: a host without a port has the usual ports of what its key names.
    pub endpoints: Vec<Endpoint>,
    pub form: LeadForm,
}

/// How a value names a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeadForm {
    /// `127.0.0.1:3306`.
    HostAndPort,
    /// `mysql://u@127.0.0.1:3306/db`.
    Url,
    /// `host=127.0.0.1;port=3306`.
    Dsn,
    /// A host; its port stands in another line, or is the usual one.
    Host,
    Path,
    /// The path of a socket's file that is mounted into a container.
    MountedPath,
}

/// How many values of a text are told: nobody reads more, and each is compared with what editors found.
const MOST: usize = 2000;
/// Longest line that is looked at, in bytes.
const LONGEST_LINE: usize = 8192;
/// How many lines a host and its port may be apart.
const NEAR: u32 = 12;
/// Words in the names of values that say where a program itself is found or listens, or who may call it. They lead to no
/// server that the program would connect to, though something listens at their address: the program itself. That
/// a name decides, and not the address, is why a key of another kind that has such a word is passed over
/// (docs/decisions/0131).
const OWN: &[&str] = &[
    "listen", "bind", "app_url", "site_url", "siteurl", "site_name", "base_url", "home_url", "wp_home",
    "asset", "callback", "redirect", "origin", "cors", "allow", "deny", "trust", "domain", "public",
    "frontend", "overwrite", "canonical", "server_name", "forwarded", "real_ip", "report_host", "except",
    "no_proxy",
];
/// Directives of web servers with addresses to which they do not connect.
const OWN_DIRECTIVES: &[&str] = &[
    "return", "rewrite", "server_name", "listen", "allow", "deny", "proxy_redirect", "add_header", "resolver",
];

struct Value<'a> {
    key: String,
    text: &'a str,
}

/// The values of a text that may lead to a server, in the order of the text; none twice for the same line.
///
/// Comments are left out, and so are values whose key says where the program itself is, directives of web servers that
/// connect to nobody, and lines of more than 8 KiB. A host without a port gets the nearest port whose key begins
/// alike, else the usual ones of what its key names; without any it is left out. No name is looked up. Of a long
/// text the first 2,000 are returned.
#[must_use]
pub fn leads(text: &str) -> Vec<Lead> {
    let mut found: Vec<Lead> = Vec::new();
    let mut ports = Ports::default();
    let mut is_comment = false;
    let mut above = String::new();
    for (index, line) in text.lines().enumerate() {
        let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
        let Some(code) = without_comment(line, &mut is_comment) else { continue };
        if code.len() > LONGEST_LINE || is_directive_of_its_own(code) {
            continue;
        }
        for Value { key, text } in values(code) {
            let (key, text) = with_its_name(key, text, &above);
            if let Ok(port) = text.trim().parse::<u16>()
                && key.to_ascii_lowercase().ends_with("port")
            {
                ports.entry(start_of(&key, &["port"])).or_default().insert(number, port);
            }
            if is_own(&key) {
                continue;
            }
            for (form, endpoints) in in_value(&key, text) {
                let lead = Lead { line: number, name: key.clone(), endpoints, form };
                let mut of_this_line = found.iter().rev().take_while(|other| other.line == number);
                if found.len() < MOST && of_this_line.all(|other| *other != lead) {
                    found.push(lead);
                }
            }
        }
        above = name_for_below(code).unwrap_or(above);
    }
    for lead in found.iter_mut().filter(|lead| lead.form == LeadForm::Host) {
        if let Some(port) = port_of_host(&ports, lead)
            && let Some(Endpoint::Tcp { host, .. }) = lead.endpoints.first().cloned()
        {
            lead.endpoints = vec![Endpoint::Tcp { host, port }];
        }
    }
    found.retain(|lead| !lead.endpoints.iter().any(|one| matches!(one, Endpoint::Tcp { port: 0, .. })));
    found
}

/// A value with the name that it has inside of its own text (`Environment=DB_HOST=127.0.0.1`), or in a line above: that of a
/// list's items, and `name:` above `value:`.
fn with_its_name<'a>(key: String, text: &'a str, above: &str) -> (String, &'a str) {
    if let Some((name, value)) = text.split_once('=')
        && !name.is_empty()
        && has_only(name, "_.-")
        && !value.contains([' ', ';'])
    {
        return (name.to_owned(), value);
    }
    if key.is_empty() || key == "value" { (above.to_owned(), text) } else { (key, text) }
}

/// The name that a line gives to those below it: `servers:`, `- name: DB_HOST`.
fn name_for_below(code: &str) -> Option<String> {
    let code = code.trim().trim_start_matches("- ");
    let (key, value) = code.split_once(':')?;
    let name = match (key.trim_matches(['"', '\'']), value.trim().trim_matches(['"', '\'', ','])) {
        ("name", value) => value,
        (key, "" | "[" | "|" | ">") => key,
        _ => return None,
    };
    if name.is_empty() || !has_only(name, "_.-") { None } else { Some(name.to_owned()) }
}

/// Whether a value says where the program itself is, by its name.
fn is_own(key: &str) -> bool {
    let key = key.to_ascii_lowercase().replace(['-', '.'], "_");
    // A whole word: `base_url` is none of `database_url`.
    OWN.iter().any(|word| key.starts_with(word) || key.contains(&format!("_{word}")))
}

/// Whether a line is a directive of a web server that connects to nobody. PHP's `return [...]` is none.
fn is_directive_of_its_own(code: &str) -> bool {
    let first = code.split_whitespace().next().unwrap_or_default();
    OWN_DIRECTIVES.contains(&first) && !code.contains('[')
}

/// The ports of a text by how their keys begin, each with its line.
type Ports = HashMap<String, BTreeMap<u32, u16>>;

/// The port that belongs to a host: the nearest one whose key begins alike (`DB_HOST`, `DB_PORT`).
fn port_of_host(ports: &Ports, host: &Lead) -> Option<u16> {
    let start = start_of(&host.name, &["hostname", "hosts", "host", "server", "address", "addr", "ip"]);
    let alike = ports.get(&start)?;
    let before = alike.range(..=host.line).next_back();
    let after = alike.range(host.line..).next();
    let both = [before, after].into_iter().flatten();
    let (line, port) = both.min_by_key(|(line, _)| line.abs_diff(host.line))?;
    // `host` and `port` alone are keys of many sections.
    let is_near = line.abs_diff(host.line) <= NEAR;
    if start.is_empty() && !is_near { None } else { Some(*port) }
}

fn start_of(key: &str, ends: &[&str]) -> String {
    let key = key.to_ascii_lowercase();
    let end = ends.iter().find_map(|end| key.strip_suffix(end));
    end.unwrap_or(&key).trim_matches(['_', '-', '.']).to_owned()
}

/// A line without its comment; `None` where it is one.
fn without_comment<'a>(line: &'a str, is_comment: &mut bool) -> Option<&'a str> {
    let code = line.trim();
    if *is_comment || code.starts_with("/*") {
        *is_comment = !code.contains("*/");
        return None;
    }
    if code.is_empty() || ["#", ";", "//", "--", "<!--", "* "].iter().any(|sign| code.starts_with(sign)) {
        return None;
    }
    let mut quote = None;
    let mut before = ' ';
    for (at, letter) in line.char_indices() {
        match quote {
            Some(open) if letter == open && before != '\\' => quote = None,
            Some(_) => {}
            None if matches!(letter, '"' | '\'') => quote = Some(letter),
            None if letter == '#' && before.is_whitespace() => return Some(&line[..at]),
            None if letter == '/' && before.is_whitespace() && line[at..].starts_with("// ") => {
                return Some(&line[..at]);
            }
            None => {}
        }
        before = letter;
    }
    Some(line)
}

/// The values of a line: what is quoted, and the words that are not.
fn values(code: &str) -> Vec<Value<'_>> {
    let mut found = Vec::new();
    let mut rest = 0;
    let mut bare = String::new();
    while let Some(open) = code[rest..].find(['"', '\'']).map(|at| rest + at) {
        let quote = &code[open..=open];
        let Some(close) = code[open + 1..].find(quote).map(|at| open + 1 + at) else { break };
        bare.push_str(&code[rest..open]);
        bare.push_str(&" ".repeat(close + 1 - open));
        let inside = &code[open + 1..close];
        // A name in quotes is what is before a value, and no value.
        let after = code[close + 1..].trim_start();
        let after_index = after.strip_prefix(']').map_or(after, str::trim_start);
        if !after.starts_with(':') && !after_index.starts_with('=') {
            found.push(Value { key: key_before(&code[..open]), text: inside });
        }
        rest = close + 1;
    }
    bare.push_str(&code[rest..]);
    // Byte for byte as long as the line, so that the words can be cut out of it.
    let mut at = 0;
    for word in bare.split([' ', '\t', ',', '<', '>']) {
        let start = at;
        at += word.len() + 1;
        if word.is_empty() {
            continue;
        }
        let (from, text) = match word.find('=').filter(|equals| !word[..*equals].contains(['/', ':'])) {
            Some(equals) => (start + equals + 1, &code[start + equals + 1..start + word.len()]),
            None => (start, &code[start..start + word.len()]),
        };
        let text = text.trim_matches([';', '{', '}', '[', ']', '(', ')', '>', '<']);
        if !text.is_empty() {
            found.push(Value { key: key_before(&code[..from]), text });
        }
    }
    found
}

fn is_of_a_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.')
}

/// The key before a value: the last name in the text before it.
fn key_before(before: &str) -> String {
    let end = before.trim_end_matches(|letter: char| !is_of_a_name(letter));
    let start = end
        .rfind(|letter: char| !is_of_a_name(letter))
        .map_or(0, |at| at + end[at..].chars().next().map_or(1, char::len_utf8));
    end[start..].trim_matches(['-', '.']).to_owned()
}

fn in_value(key: &str, text: &str) -> Vec<(LeadForm, Vec<Endpoint>)> {
    let text = text.trim();
    let mut found = Vec::new();
    for path in paths(text) {
        let is_mount = text.matches(&path).count() > 1 && text.contains(&format!("{path}:"));
        let form = if is_mount { LeadForm::MountedPath } else { LeadForm::Path };
        found.push((form, vec![Endpoint::Unix(path.into())]));
    }
    if let Some(endpoint) = in_dsn(text) {
        found.push((LeadForm::Dsn, vec![endpoint]));
    } else if text.contains("://") {
        for url in text.split([',', ' ', '\t']) {
            let is_the_programs = key.eq_ignore_ascii_case("url") && url.starts_with("http");
            if !is_the_programs && let Some(endpoint) = in_url(url) {
                found.push((LeadForm::Url, vec![endpoint]));
            }
        }
    } else if let Some(host) = host(text) {
        let endpoints = usual_ports(key).into_iter().map(|port| tcp(&host, port)).collect();
        found.push((LeadForm::Host, endpoints));
    } else {
        for word in text.split([',', ';', ' ', '\t', '(', ')', '[', '|', '@', '=']) {
            found.extend(host_and_port(word).map(|endpoint| (LeadForm::HostAndPort, vec![endpoint])));
        }
        found.extend(bracketed(text).map(|endpoint| (LeadForm::HostAndPort, vec![endpoint])));
    }
    found
}

fn tcp(host: &str, port: u16) -> Endpoint {
    Endpoint::Tcp { host: host.to_owned(), port }
}

/// A value that is a host of this machine and nothing else. Other names are none: a word may be anything.
fn host(text: &str) -> Option<String> {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    let is_address = bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback());
    if is_address || bare.eq_ignore_ascii_case("localhost") { Some(bare.to_owned()) } else { None }
}

/// `HOST:PORT`, also with more behind it (`127.0.0.1:6379:0`).
fn host_and_port(word: &str) -> Option<Endpoint> {
    let mut parts = word.trim_matches(['/', '}', ']', '"', '\'']).split(':');
    let (name, port) = (parts.next()?, parts.next()?);
    let digits: String = port.chars().take_while(char::is_ascii_digit).collect();
    let is_end = port[digits.len()..].chars().next().is_none_or(|next| !next.is_ascii_alphanumeric());
    let is_name =
        name.starts_with(|first: char| first.is_ascii_alphanumeric()) && name.chars().all(is_of_a_name);
    if !is_name || !is_end || name.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(tcp(name, digits.parse().ok()?))
}

/// `[::1]:3306`.
fn bracketed(text: &str) -> Option<Endpoint> {
    let (_, rest) = text.split_once('[')?;
    let (address, rest) = rest.split_once("]:")?;
    address.parse::<std::net::Ipv6Addr>().ok()?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Some(tcp(address, digits.parse().ok()?))
}

/// The host and the port of a URL; without a port the usual one of its scheme.
fn in_url(url: &str) -> Option<Endpoint> {
    let (before, rest) = url.split_once("://")?;
    let scheme_name = before.rsplit(|one| one != '+' && !is_of_a_name(one)).next().unwrap_or_default();
    let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    let place = authority.rsplit_once('@').map_or(authority, |(_, place)| place);
    // Go's words: `tcp(127.0.0.1:3306)`.
    let place = place.strip_prefix("tcp(").map_or(place, |inner| inner.trim_end_matches(')'));
    if let Some(endpoint) = bracketed(place).or_else(|| host_and_port(place)) {
        return Some(endpoint);
    }
    let host = host(place)?;
    let usual = match scheme_name {
        "http" | "ws" => Some(80),
        "https" | "wss" => Some(443),
        "amqp" => Some(5672),
        name => ports_of_scheme(name).first().copied(),
    };
    Some(tcp(&host, usual?))
}

fn ports_of_scheme(name: &str) -> Vec<u16> {
    let name = match name {
        "pgsql" | "pdo-pgsql" | "pdo_pgsql" => "postgres",
        "mysqli" | "mysql2" | "pdo-mysql" | "pdo_mysql" => "mysql",
        other => other,
    };
    let Some((protocol, SchemeLeads::Tcp | SchemeLeads::Tls)) = scheme(name) else { return Vec::new() };
    Kind::of_protocol(protocol).map_or(Vec::new(), |kind| kind.descriptor().ports.clone())
}

/// `mysql:host=127.0.0.1;port=3306`, and libpq's `host=127.0.0.1 port=5432`.
fn in_dsn(text: &str) -> Option<Endpoint> {
    let host = host(value_in_dsn(text, "host").or_else(|| value_in_dsn(text, "server"))?)?;
    let port = match value_in_dsn(text, "port") {
        Some(port) => port.parse().ok()?,
        None => {
            let driver = text.split(':').next().unwrap_or_default();
            match ports_of_scheme(driver).first() {
                Some(port) => *port,
                None if text.contains("dbname=") => 5432,
                None => return None,
            }
        }
    };
    Some(tcp(&host, port))
}

/// The value of a name in a DSN, whatever stands between its parts.
fn value_in_dsn<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    for part in text.split([';', ' ', '&', '?', ',']) {
        let part = part.trim().rsplit(':').next().unwrap_or_default();
        if let Some(value) = part.strip_prefix(name).and_then(|rest| rest.strip_prefix('=')) {
            return Some(value.trim_matches(['\'', '"']));
        }
    }
    None
}

/// The usual ports of the services that a key names; a database may be either.
fn usual_ports(key: &str) -> Vec<u16> {
    let key = key.to_ascii_lowercase();
    let mut ports: Vec<u16> = Vec::new();
    for kind in Kind::all() {
        let Some(protocol) = kind.protocol() else { continue };
        if protocol.name().contains("http") {
            continue;
        }
        let is_named = key.contains(kind.name())
            || key.contains(protocol.name())
            || (kind.name() == "postgres" && (key.starts_with("pg") || key.contains("pgsql")));
        if is_named {
            ports.extend(kind.descriptor().ports.first());
        }
    }
    if ports.is_empty() && ["db", "database", "sql"].iter().any(|word| key.contains(word)) {
        ports = vec![3306, 5432];
    }
    ports.sort_unstable();
    ports.dedup();
    // Without any the nearest port decides, else it is dropped.
    if ports.is_empty() { vec![0] } else { ports }
}

fn paths(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut before = ' ';
    for (at, letter) in text.char_indices() {
        let begins = letter == '/' && before != '/' && !is_of_a_name(before);
        // The third slash of a URL without a host begins its path.
        let is_of_a_url = letter == '/' && text[..at].ends_with("://");
        if begins || is_of_a_url {
            let rest = &text[at..];
            let end = rest.find([' ', '\t', '"', '\'', ';', ',', '(', ')', '?', '&', '|', '<', '>', ':']);
            let path = &rest[..end.unwrap_or(rest.len())];
            if path.len() > 1 && !path.starts_with("//") && !found.iter().any(|one| one == path) {
                found.push(path.to_owned());
            }
        }
        before = letter;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The leads of a text over TCP, or to sockets.
    fn reported(text: &str, to_sockets: bool) -> Vec<String> {
        let mut reported = Vec::new();
        for Lead { line, name, endpoints, form } in leads(text) {
            let places: Vec<String> = endpoints.iter().map(ToString::to_string).collect();
            if matches!(form, LeadForm::Path | LeadForm::MountedPath) == to_sockets {
                reported.push(format!("{line} {name} {}", places.join("|")));
            }
        }
        reported
    }

    #[test]
    fn a_host_with_its_port_is_found_in_every_form() {
        for (text, expected) in [
            ("DB_HOST=127.0.0.1:3399", "1 DB_HOST tcp:127.0.0.1:3399"),
            (
                "$config['db_dsnw'] = 'pgsql://stats:fe:rn@127.0.0.1:5499/stats';",
                "1 db_dsnw tcp:127.0.0.1:5499",
            ),
            ("$config['redis_hosts'] = ['127.0.0.1:6390:0'];", "1 redis_hosts tcp:127.0.0.1:6390"),
            ("define( 'DB_HOST', 'localhost:3306' );", "1 DB_HOST tcp:localhost:3306"),
            ("dsn: \"mysql:host=127.0.0.1;port=3399;dbname=a\"", "1 dsn tcp:127.0.0.1:3399"),
            ("conn = \"host=localhost port=5499 dbname=a\"", "1 conn tcp:localhost:5499"),
            ("conn = \"host=localhost dbname=a\"", "1 conn tcp:localhost:5432"),
            ("DATABASE_URL=mysql://u:p@localhost/a", "1 DATABASE_URL tcp:localhost:3306"),
            ("DSN=u:p@tcp(127.0.0.1:3306)/a", "1 DSN tcp:127.0.0.1:3306"),
            ("  - DB_SERVER_HOST=127.0.0.1:1", "1 DB_SERVER_HOST tcp:127.0.0.1:1"),
            ("{ \"redis\": \"[::1]:6379\" }", "1 redis tcp:[::1]:6379"),
            ("ExecStart=/usr/bin/app --db 127.0.0.1:5432 --listen 127.0.0.1:80", "1 db tcp:127.0.0.1:5432"),
            ("set $backend 127.0.0.1:8000;", "1 backend tcp:127.0.0.1:8000"),
            ("REDIS_HOST=127.0.0.1", "1 REDIS_HOST tcp:127.0.0.1:6379"),
            ("DB_HOST=localhost", "1 DB_HOST tcp:localhost:3306|tcp:localhost:5432"),
            ("Environment=\"DB_ADDR=127.0.0.1:3399\" A=b", "1 DB_ADDR tcp:127.0.0.1:3399"),
            ("Environment=REDIS_HOST=127.0.0.1", "1 REDIS_HOST tcp:127.0.0.1:6379"),
            ("<redis-host>127.0.0.1</redis-host>", "1 redis-host tcp:127.0.0.1:6379"),
            ("$wgDBserver = \"127.0.0.1:3399\";", "1 wgDBserver tcp:127.0.0.1:3399"),
            ("{ \"host\": \"127.0.0.1\", \"port\": 6390 }", "1 host tcp:127.0.0.1:6390"),
            (
                "spring.datasource.url=jdbc:postgresql://localhost:5499/a",
                "1 spring.datasource.url tcp:localhost:5499",
            ),
        ] {
            assert_eq!(reported(text, false), [expected], "{text}");
        }
    }

    #[test]
    fn a_host_and_its_port_in_two_lines_belong_together() {
        let php = "'host' => '127.0.0.1',\n'password' => 'moss',\n'port' => 3399,\n";
        assert_eq!(reported(php, false), ["1 host tcp:127.0.0.1:3399"]);
        let compose = "  a:\n    environment:\n      DB_SERVER_HOST: 127.0.0.1\n      DB_SERVER_PORT: 3399\n  b:\n      DB_SERVER_HOST: 127.0.0.1\n      DB_SERVER_PORT: 3400\n";
        assert_eq!(
            reported(compose, false),
            ["3 DB_SERVER_HOST tcp:127.0.0.1:3399", "6 DB_SERVER_HOST tcp:127.0.0.1:3400"]
        );
        let manifest = "- name: DB_HOST\n  value: 127.0.0.1\n- name: DB_PORT\n  value: \"3399\"\n";
        assert_eq!(reported(manifest, false), ["2 DB_HOST tcp:127.0.0.1:3399"]);
        assert_eq!(reported("servers:\n  - 127.0.0.1:11211\n", false), ["2 servers tcp:127.0.0.1:11211"]);
        assert_eq!(
            reported("DB_HOST=127.0.0.1\nREDIS_PORT=6390\n", false),
            ["1 DB_HOST tcp:127.0.0.1:3306|tcp:127.0.0.1:5432"]
        );
    }

    #[test]
    fn sockets_are_found_by_their_paths() {
        for (text, expected) in [
            ("DB_HOST=localhost;unix_socket=/run/m/m.sock", "1 DB_HOST unix:/run/m/m.sock"),
            ("REDIS_URL=unix:///run/r.sock?db=1", "1 REDIS_URL unix:/run/r.sock"),
            ("'host' => '/run/r.sock',", "1 host unix:/run/r.sock"),
            ("- /run/m.sock:/run/m.sock", "1  unix:/run/m.sock"),
        ] {
            let all = reported(text, true);
            assert!(all.iter().any(|one| one == expected), "{text}: {all:?}");
        }
        assert_eq!(leads("      - /run/m.sock:/run/m.sock")[0].form, LeadForm::MountedPath);
    }

    #[test]
    fn what_leads_nowhere_is_none() {
        for text in [
            "# DB_HOST=127.0.0.1:1",
            "/*\n 'host' => '127.0.0.1:1'\n*/",
            "APP_URL=http://localhost:8000",
            "listen 127.0.0.1:80;",
            "bind-address = 127.0.0.1",
            "trusted_proxies = 127.0.0.1",
            "'overwrite.cli.url' => 'http://localhost:80',",
            "return 301 http://localhost:8080/;",
            "time = 10:30",
            "image: redis:7",
            "name: localhost",
            "CACHE=redis",
            "APP_PORT=8000",
            "url: http://localhost:2368",
            "A=b # 127.0.0.1:1",
            "",
        ] {
            let mut found = leads(text);
            found.retain(|lead| matches!(&lead.endpoints[0], Endpoint::Tcp { host, .. } if super::host(host).is_some()));
            assert_eq!(found, [], "{text}");
        }
    }
}
