//! What one value names: a path, a URL, a DSN, a host, a host with its port, or a port. A form of an address that is not
//! known yet is one line in [`named`].

use std::borrow::Cow;
use std::collections::HashMap;

use samehost_model::{Endpoint, Protocol};
use samehost_services::{Dsn, Kind, Leads as SchemeLeads, plain_scheme, scheme};

use super::LeadForm;

/// What a value names.
pub(super) struct Named {
    pub(super) form: LeadForm,
    pub(super) endpoints: Vec<Endpoint>,
    /// The address as it is written: the host, or a port that stands alone.
    pub(super) written: String,
    /// The variables whose value is the host, where only the port is written.
    pub(super) hosts: Vec<String>,
}

impl Named {
    fn at(form: LeadForm, (written, port): (String, u16)) -> Self {
        Named { form, endpoints: vec![tcp(&written, port)], written, hosts: Vec::new() }
    }
}

/// All that a value names, given its key and what that stands in.
pub(super) fn named(key: &str, block: &str, text: &str) -> Vec<Named> {
    let mut text = text.trim();
    // `unix:/run/fpm.sock|fcgi://127.0.0.1:9000` of Apache goes to the socket; what follows is a name for it.
    if let Some((socket, _)) = text.split_once('|').filter(|(before, _)| before.contains("unix:/")) {
        text = socket;
    }
    let mut found: Vec<Named> = paths(text);
    let dsn = in_dsn(text);
    if !dsn.is_empty() {
        found.extend(dsn.into_iter().map(|at| Named::at(LeadForm::Dsn, at)));
    } else if text.contains("://") {
        for url in text.split([',', ' ', '\t']) {
            // In no block and without a path it may be the program's own (Ghost's); `ocsp { url = … }` and a page that is asked for are not.
            let is_of_file = ["", "return", "module.exports"].contains(&block)
                && url.trim_end_matches('/').matches('/').count() == 2;
            let is_the_programs = is_of_file && key.eq_ignore_ascii_case("url") && url.starts_with("http");
            // `startswith("redis://")` asks for a scheme.
            let lower = key.to_ascii_lowercase();
            let is_scheme = url.ends_with("://") && !OF_URLS.iter().any(|end| lower.ends_with(end));
            if is_the_programs || is_scheme {
                continue;
            }
            // A place of sessions that is a URL is phpredis's.
            let is_of_sessions = key.ends_with("save_path") && url.starts_with("tcp://");
            let url = &if is_of_sessions { url.replacen("tcp", "redis", 1) } else { url.to_owned() };
            // `service:jmx:rmi:///jndi/rmi://localhost:9010/x` has the place in the URL within.
            let url = match url.split_once(":///") {
                Some((_, inner)) if inner.contains("://") => inner,
                _ => url,
            };
            match in_url(url) {
                Some(at) => found.push(Named::at(LeadForm::Url, at)),
                // The second host of a list has no scheme.
                None if !url.contains("://") => found.extend(hosts_and_ports(url)),
                None => found.extend(port_alone(authority(url))),
            }
        }
    } else if let Some(host) = host(text) {
        let endpoints = usual_ports(key).into_iter().map(|port| tcp(host, port)).collect();
        found.push(Named { form: LeadForm::Host, endpoints, written: host.to_owned(), hosts: Vec::new() });
    } else {
        found.extend(hosts_and_ports(text));
        if found.is_empty() {
            found.extend(port_alone(text));
        }
    }
    found
}

/// An endpoint at a host, however that is written: `127.1` is 127.0.0.1 to the resolver.
pub(super) fn tcp(host: &str, port: u16) -> Endpoint {
    let host = short_address(host).map_or_else(|| host.to_owned(), |address| address.to_string());
    Endpoint::Tcp { host, port }
}

/// A value that is a port, and nothing else.
pub(super) fn port(text: &str) -> Option<u16> {
    // Ruby, Python and Rust write 6_380 as well.
    let text = if text.contains('_') { Cow::Owned(text.replace('_', "")) } else { Cow::Borrowed(text) };
    let is_number = (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| is_number && *port > 0)
}

/// A value that is a host of this machine and nothing else. Other names are none: a word may be anything.
pub(super) fn host(text: &str) -> Option<&str> {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    let is_address = match bare.parse::<std::net::IpAddr>() {
        // Who connects to no address connects to this machine (Linux).
        Ok(ip) => ip.to_canonical().is_loopback() || ip.is_unspecified(),
        Err(_) => short_address(bare).is_some_and(|ip| ip.is_loopback()),
    };
    if is_address || bare.eq_ignore_ascii_case("localhost") { Some(bare) } else { None }
}

/// A value that is a host of any machine: an address, or a name with a letter.
pub(super) fn is_any_host(text: &str) -> bool {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    let is_name = bare.chars().all(is_of_a_name) && bare.contains(|one: char| one.is_ascii_alphabetic());
    host(text).is_some() || bare.parse::<std::net::IpAddr>().is_ok() || (is_name && !bare.starts_with('-'))
}

/// An IPv4 address as inet_aton(3) reads it: of up to four numbers, each may be hexadecimal (0x7f) or octal (0177), and the last one
/// fills what is left.
fn short_address(text: &str) -> Option<std::net::Ipv4Addr> {
    let number = |part: &str| match part.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None if part.starts_with('0') => u32::from_str_radix(part, 8).ok(),
        None => part.parse().ok(),
    };
    let parts: Vec<u32> = text.split('.').map(number).collect::<Option<_>>()?;
    let (last, before) = parts.split_last()?;
    if before.len() > 3 || before.iter().any(|part| *part > 255) {
        return None;
    }
    let bits = 8 * (4 - before.len() as u32);
    if bits < 32 && *last >= 1 << bits {
        return None;
    }
    let mut address = *last;
    for (at, part) in before.iter().enumerate() {
        address |= part << (24 - 8 * at);
    }
    Some(address.into())
}

pub(super) fn is_of_a_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.')
}

/// Every `HOST:PORT` of a text, with anything before and behind.
fn hosts_and_ports(text: &str) -> Vec<Named> {
    let mut found = Vec::new();
    let named = |name: &str, number: Option<u16>| Some((host(name)?.to_owned(), number?));
    // `127.0.0.1,1433` of ADO.NET
    let of_ado = text.split_once(',').and_then(|(name, number)| named(name.trim(), port(number.trim())));
    found.extend(of_ado);
    for word in text.split([',', ';', ' ', '\t', '(', ')', '|', '=', '{', '}', '"', '\'', '<', '>']) {
        let (before, place) = word.rsplit_once('@').unwrap_or(("", word));
        let of_milter = leading_port(before.rsplit(':').next().unwrap_or_default());
        let pair = place.split_once('#').or_else(|| place.strip_prefix("/dev/tcp/")?.split_once('/'));
        // `inet:8891@127.0.0.1` of milters, `127.0.0.1@5335` and `127.0.0.1#5335` of name servers, `/dev/tcp/127.0.0.1/80` of bash
        let at = named(place, of_milter)
            .or_else(|| named(before, port(place)))
            .or_else(|| pair.and_then(|(name, number)| named(name, port(number))));
        found.extend(at.or_else(|| bracketed(place)).or_else(|| host_and_port(place)));
    }
    found.into_iter().map(|at| Named::at(LeadForm::HostAndPort, at)).collect()
}

/// Ends of the keys of URLs.
const OF_URLS: &[&str] = &["url", "uri", "dsn", "broker", "backend", "location"];

/// What begins a place that is none over TCP: Kamailio's `udp:127.0.0.1:7722`.
const UDP: &str = "udp";

/// `HOST:PORT`, also with more before it (`inet:127.0.0.1:25`) and behind it (`127.0.0.1:6379:0`). A word before it is no host where one of
/// this machine follows.
fn host_and_port(word: &str) -> Option<(String, u16)> {
    if word.starts_with(UDP) {
        return None;
    }
    let parts: Vec<&str> =
        word.trim_matches(['/', '}', ']', '"', '\'', '*', '!', '^', '~']).split(':').collect();
    let own = parts
        .windows(2)
        .find(|pair| host(pair[0].trim_start_matches('/')).is_some() && leading_port(pair[1]).is_some());
    if let Some(pair) = own {
        return Some((pair[0].trim_start_matches('/').to_owned(), leading_port(pair[1])?));
    }
    let (name, port) = (parts.first()?, parts.get(1)?);
    let is_name =
        name.starts_with(|first: char| first.is_ascii_alphanumeric()) && name.chars().all(is_of_a_name);
    if !is_name || name.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(((*name).to_owned(), leading_port(port)?))
}

/// The port that a text begins with, where no word goes on.
fn leading_port(text: &str) -> Option<u16> {
    let digits = &text[..text.bytes().take_while(u8::is_ascii_digit).count()];
    let is_end = text[digits.len()..].chars().next().is_none_or(|next| !next.is_ascii_alphanumeric());
    digits.parse().ok().filter(|_| is_end)
}

/// A port behind a host that is computed, or that is left out: `${h}:6379`, `:6379`.
fn port_alone(text: &str) -> Option<Named> {
    let (host, rest) = text.rsplit_once(':')?;
    let is_computed =
        host.is_empty() || (host.contains(['$', '{', '%', '#']) && host.ends_with(['}', 's', ')']));
    let port = leading_port(rest).filter(|_| is_computed)?;
    let end = host.find("${").map(|at| &host[at + 2..]).unwrap_or_default();
    let name: String = end.chars().take_while(|one| one.is_ascii_alphanumeric() || *one == '_').collect();
    let hosts = if name.is_empty() { Vec::new() } else { vec![name] };
    Some(Named {
        form: LeadForm::Port,
        endpoints: vec![tcp("localhost", port)],
        written: port.to_string(),
        hosts,
    })
}

/// `[::1]:3306`, and `[127.0.0.1]:8180`.
fn bracketed(text: &str) -> Option<(String, u16)> {
    let (_, rest) = text.split_once('[')?;
    let (address, rest) = rest.split_once("]:")?;
    address.parse::<std::net::IpAddr>().ok()?;
    Some((address.to_owned(), leading_port(rest)?))
}

/// The host and the port in a URL, as they are written.
fn authority(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = &rest[..rest.find(['/', '?']).unwrap_or(rest.len())];
    authority.rsplit_once('@').map_or(authority, |(_, place)| place)
}

/// The host and the port of a URL; without a port the usual one of its scheme.
fn in_url(url: &str) -> Option<(String, u16)> {
    let (before, _) = url.split_once("://")?;
    let scheme_name = before.rsplit(|one| one != '+' && !is_of_a_name(one)).next().unwrap_or_default();
    if scheme_name.starts_with(UDP) {
        return None;
    }
    let place = authority(url);
    let place = place.split_once('#').map_or(place, |(place, _)| place);
    // Go's words: `tcp(127.0.0.1:3306)`.
    let place = place.strip_prefix("tcp(").map_or(place, |inner| inner.trim_end_matches(')'));
    if let Some(at) = bracketed(place).or_else(|| host_and_port(place)) {
        return Some(at);
    }
    // `redis://` alone is this machine to all its clients.
    let is_redis = matches!(scheme(&plain_scheme(scheme_name)), Some((Protocol::Redis, _)));
    let is_bare = is_redis && url.ends_with("://");
    let host = if is_bare { "localhost" } else { host(place)? };
    let usual = match scheme_name {
        "http" | "ws" => Some(80),
        "https" | "wss" => Some(443),
        "amqp" => Some(5672),
        name => ports_of_scheme(name).first().copied(),
    };
    Some((host.to_owned(), usual?))
}

fn ports_of_scheme(name: &str) -> Vec<u16> {
    let found = scheme(&plain_scheme(name));
    let Some((protocol, SchemeLeads::Tcp | SchemeLeads::Tls)) = found else { return Vec::new() };
    Kind::of_protocol(protocol).map_or(Vec::new(), |kind| kind.descriptor().ports.clone())
}

/// `mysql:host=127.0.0.1;port=3306`, libpq's `host=127.0.0.1 port=5432`, `Server=127.0.0.1,1433`, `(host=127.0.0.1)(port=3306)`;
/// `DBI:mysql:books:127.0.0.1:3306` is read as any other address. Of several hosts each has its port.
fn in_dsn(text: &str) -> Vec<(String, u16)> {
    if !text.contains('=') {
        return Vec::new();
    }
    let dsn = Dsn::of(text);
    let all = dsn.hosts.iter().flat_map(|host| host.split(','));
    let (behind, hosts): (Vec<&str>, Vec<&str>) =
        all.map(|host| host.strip_prefix("tcp:").unwrap_or(host)).partition(|host| port(host).is_some());
    if hosts.is_empty() {
        return Vec::new();
    }
    let ports: Vec<&str> =
        behind.into_iter().chain(dsn.all("port").flat_map(|port| port.split(','))).collect();
    // Perl's `DBI:mysql:…`.
    let driver = text.split(':').find(|word| !word.eq_ignore_ascii_case("dbi")).unwrap_or_default();
    let usual = match ports_of_scheme(driver).first() {
        Some(port) => Some(*port),
        None => text.contains("dbname=").then_some(5432),
    };
    let mut found = Vec::new();
    for (at, written) in hosts.into_iter().enumerate() {
        let number = match ports.get(at).or(ports.first()) {
            Some(number) => port(number),
            None => usual,
        };
        let own =
            bracketed(written).or_else(|| host_and_port(written)).filter(|(name, _)| host(name).is_some());
        found.extend(own.or_else(|| Some((host(written)?.to_owned(), number?))));
    }
    found
}

/// The usual ports of the services with a protocol of their own of which a text has a word: a name, or one of their programs.
pub(super) fn ports_spoken_of(text: &str) -> Vec<u16> {
    let text = text.to_ascii_lowercase();
    let mut ports = Vec::new();
    for kind in Kind::all() {
        let Some(protocol) = kind.protocol().filter(|protocol| !protocol.name().contains("http")) else {
            continue;
        };
        let known = kind.descriptor();
        let names = [kind.name(), protocol.name()].into_iter();
        let mut words = names.chain(known.programs.iter().chain(&known.tools).map(String::as_str));
        if words.any(|word| text.contains(word)) || kind == Kind::Postgres && text.contains("pgsql") {
            ports.push(known.ports.first().copied().unwrap_or_default());
        }
    }
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// Ports that a program has for usual ones, by the directory of its settings.
pub(super) fn usual_elsewhere(directory: &str) -> HashMap<u16, u16> {
    let known = Kind::all().map(Kind::descriptor);
    known.filter_map(|known| Some((*known.ports.first()?, *known.usual_elsewhere.get(directory)?))).collect()
}

/// The usual port of the service of this name, if there is one.
pub(super) fn ports_of(name: &str) -> Vec<u16> {
    let own = Kind::all().find(|kind| kind.name() == name && kind.protocol().is_some());
    own.and_then(|kind| kind.descriptor().ports.first().copied()).into_iter().collect()
}

/// The usual ports of the services that a key names; a database may be either.
pub(super) fn usual_ports(key: &str) -> Vec<u16> {
    let key = key.to_ascii_lowercase();
    let mut ports: Vec<u16> = Vec::new();
    for kind in Kind::all() {
        let Some(protocol) = kind.protocol() else { continue };
        if protocol.name().contains("http") {
            continue;
        }
        if key.contains(kind.name())
            || key.contains(protocol.name())
            || (kind == Kind::Postgres && is_pg(&key))
        {
            ports.extend(kind.descriptor().ports.first());
        }
    }
    if ports.is_empty() && (key.contains("database") || key.contains("sql") || is_of_db(&key)) {
        ports = DATABASES.to_vec();
    }
    ports.sort_unstable();
    ports.dedup();
    // Without any the nearest port decides, else it is dropped.
    if ports.is_empty() { vec![0] } else { ports }
}

/// Ends of keys whose values are where a server is.
pub(super) const PLACES: &[&str] =
    &["hostname", "hosts", "host", "servername", "server", "address", "addr", "ip", "socket", "sock", "path"];

/// Whether `db` is a word of a key, or what a word of a place begins or ends with: `DB_HOST`, `dbserver`, `mydb`. `DBL_SPAM` is a list of
/// names that a name server answers for, by 127.0.1.2.
fn is_of_db(key: &str) -> bool {
    key.match_indices("db").any(|(at, _)| {
        let rest = &key[at + 2..];
        !rest.starts_with(|next: char| next.is_ascii_alphabetic())
            || PLACES.iter().any(|end| rest.ends_with(end))
    })
}

/// Whether a line is a comment, by its first signs.
pub(super) fn is_comment(line: &str) -> bool {
    let code = line.trim_start();
    // A time of cron is no comment: `* * * * * redis-cli ping`.
    let is_time = code
        .strip_prefix("* ")
        .is_some_and(|rest| rest.starts_with(|one: char| one == '*' || one.is_ascii_digit()));
    // Kamailio's `#!trydef DBURL "…"` is in force.
    let is_made = code.strip_prefix("#!").is_some_and(|rest| rest.starts_with(char::is_alphabetic));
    // `$ redis-cli ping` is what somebody is to type.
    !is_time && !is_made && ["#", ";", "//", "-- ", "* ", "$ "].iter().any(|sign| code.starts_with(sign))
}

/// Usual ports of the servers that a database may be of, where its name does not say which.
pub(super) const DATABASES: [u16; 2] = [3306, 5432];

/// The ports of [`DATABASES`] of whose server a line speaks: `DB_CONNECTION=pgsql`, `require('pg')`, `driver: mysql`.
pub fn databases_in(line: &str) -> Vec<u16> {
    let line = line.to_ascii_lowercase();
    let mut words = line.split(|sign: char| !sign.is_ascii_alphanumeric());
    let is_named = [
        line.contains("mysql") || line.contains("mariadb"),
        line.contains("postgres") || line.contains("psycopg") || words.any(is_pg),
    ];
    let named = DATABASES.into_iter().zip(is_named).filter(|(_, is)| *is && !is_comment(&line));
    named.map(|(port, _)| port).collect()
}

/// Whether a word is one of PostgreSQL's short ones: `pg`, `pgsql`, `PGHOST`, `pdo_pgsql`.
fn is_pg(word: &str) -> bool {
    word.starts_with("pg") || word.contains("pgsql")
}

fn paths(text: &str) -> Vec<Named> {
    let mut found: Vec<&str> = Vec::new();
    let mut before = ' ';
    for (at, letter) in text.char_indices() {
        let begins = letter == '/' && before != '/' && !is_of_a_name(before);
        // The third slash of a URL without a host begins its path, and the second one of Caddy's `unix//run/fpm.sock`.
        let is_of_a_url = letter == '/' && ["://", "unix/"].iter().any(|start| text[..at].ends_with(start));
        if begins || is_of_a_url {
            let rest = &text[at..];
            let end = rest.find([' ', '\t', '"', '\'', ';', ',', '(', ')', '?', '&', '|', '<', '>', ':']);
            let path = &rest[..end.unwrap_or(rest.len())];
            if path.len() > 1 && !path.starts_with("//") && !found.contains(&path) {
                found.push(path);
            }
        }
        before = letter;
    }
    let mut all = Vec::new();
    for path in found {
        let is_mount = text.matches(path).count() > 1 && text.contains(&format!("{path}:"));
        let form = if is_mount { LeadForm::MountedPath } else { LeadForm::Path };
        let endpoints = vec![Endpoint::Unix(path.into())];
        all.push(Named { form, endpoints, written: path.to_owned(), hosts: Vec::new() });
    }
    all
}
