//! Values of a text that may lead to a server, whatever format the text has: a host with a port, a URL, a DSN, or a host
//! and a port beside each other or in two lines, and a port alone. Editors say what a program makes of a value; this only finds what none of them spoke of, so that
//! nothing is passed over in silence. It never decides that a value may be changed.

use std::collections::HashMap;

use samehost_model::Endpoint;

use self::items::{Item, Scopes, is_of_host, is_of_port};

mod address;
mod items;
mod variables;

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
    /// Its column, from 1; that of the line as it is read, where variables of the text are filled in.
    pub column: u32,
    /// The key before it: `DB_HOST`. Never the value, which may have a password.
    pub name: String,
    /// Where it may lead, the surest first: a host without a port has the usual ports of what its key names.
    pub endpoints: Vec<Endpoint>,
    pub form: LeadForm,
    /// The address as its line has it: the host, the path, or a port that stands alone.
    pub written: String,
    /// Variables without which it counts: it is their default, or a port behind one that is a host.
    pub unless: Vec<String>,
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
    /// A host; its port stands elsewhere, or is the usual one.
    Host,
    /// A port whose host is left out, or computed: it may be this machine.
    Port,
    Path,
    /// The path of a socket's file that is mounted into a container.
    MountedPath,
}

/// How many values of a text are told: nobody reads more, and each is compared with what editors found.
const MOST: usize = 2000;
/// How many lines above an argument may name its service.
const NEAR: u32 = 12;
/// The least port that is looked for among the arguments of a call: less is how often, or how long.
const LEAST_ARGUMENT: u16 = 1024;
/// Words of calls whose numbers are times.
const OF_TIME: &[&str] = &["sleep", "timeout", "interval", "delay", "expire", "ttl"];
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

/// The values of a text that may lead to a server, in the order of the text; none twice for the same line.
///
/// Comments are left out, and so are values whose key says where the program itself is, directives of web servers that
/// connect to nobody, and lines of more than 8 KiB. A host without a port gets the one beside it, else that whose key begins
/// alike in the same scope, else the usual ones of what its key names; without any it is left out. No name is looked up. Of a
/// long text the first 2,000 are returned.
#[must_use]
pub fn leads(text: &str) -> Vec<Lead> {
    let mut found = leads_and_ports(text);
    found.retain(|lead| lead.form != LeadForm::Port);
    found
}

/// The same with ports that stand alone, each of which may lead to this machine: `{ port: 6379 }`, `QUEUE_PORT=6379`.
#[must_use]
pub fn leads_and_ports(text: &str) -> Vec<Lead> {
    let (items, scopes) = items::items(text);
    let mut places = Places::of(text, &items, &scopes);
    let mut found: Vec<Lead> = Vec::new();
    for (at, item) in items.iter().enumerate() {
        if is_own(&item.key) || item.unless.iter().any(|name| is_own(name)) {
            continue;
        }
        for lead in places.leads(at) {
            let mut of_this_line = found.iter().rev().take_while(|other| other.line == lead.line);
            if found.len() < MOST && of_this_line.all(|other| *other != lead) {
                found.push(lead);
            }
        }
    }
    found
}

/// Whether a value says where the program itself is, by its name.
fn is_own(key: &str) -> bool {
    let key = key.to_ascii_lowercase().replace(['-', '.'], "_");
    // A whole word: `base_url` is none of `database_url`.
    OWN.iter().any(|word| key.starts_with(word) || key.contains(&format!("_{word}")))
}

/// Hosts and ports by how their keys begin, as indexes of items.
type ByStart = HashMap<String, Vec<usize>>;

/// Which port belongs to which host. Nearness decided, and named PostgreSQL for the tuple of a Redis: a host and its port belong
/// together by what both stand in, and where that has several, by their order there.
struct Places<'a> {
    items: &'a [Item],
    scopes: &'a Scopes,
    lines: Vec<&'a str>,
    ports: ByStart,
    hosts: ByStart,
    /// Lines of which it is known whether they have a word of a service.
    services: HashMap<u32, bool>,
}

impl<'a> Places<'a> {
    fn of(text: &'a str, items: &'a [Item], scopes: &'a Scopes) -> Self {
        let (mut ports, mut hosts) = (ByStart::new(), ByStart::new());
        for (at, item) in items.iter().enumerate() {
            // A host that is computed may be this machine.
            let is_host = is_of_host(item) && !item.text.contains("${");
            let of_its_kind = match (is_keyed_port(item), is_host) {
                (true, _) => &mut ports,
                (false, true) => &mut hosts,
                _ => continue,
            };
            of_its_kind.entry(start_of(item)).or_default().push(at);
        }
        Places { items, scopes, lines: text.lines().collect(), ports, hosts, services: HashMap::new() }
    }

    /// What an item says by itself and with those around it.
    fn leads(&mut self, at: usize) -> Vec<Lead> {
        let items = self.items;
        let item = &items[at];
        if let Some(port) = address::port(item.text.trim()) {
            return if self.is_alone(at) { vec![lone_port(item, port)] } else { Vec::new() };
        }
        let name = item.unless.first().unwrap_or(&item.key).as_str();
        let mut found = Vec::new();
        for address::Named { form, mut endpoints, written, hosts } in address::named(name, &item.text) {
            let (mut form, mut unless) = (form, item.unless.clone());
            unless.extend(hosts);
            if form == LeadForm::Host {
                let beside = self.beside(at);
                let is_beside = beside.is_some();
                if let Some(port) = beside.map(Some).or_else(|| self.port_of(at)) {
                    // Of several ports that may be its own none is said.
                    endpoints.clear();
                    if let Some((port, number)) =
                        port.and_then(|one| Some((one, address::port(one.text.trim())?)))
                    {
                        endpoints.push(address::tcp(&written, number));
                        unless.extend(port.unless.iter().cloned());
                    }
                }
                if is_beside {
                    form = LeadForm::HostAndPort;
                }
            }
            // Without any port it leads nowhere that is known.
            endpoints.retain(|one| !matches!(one, Endpoint::Tcp { port: 0, .. }));
            if !endpoints.is_empty() {
                let (line, column) = (item.line, item.column);
                found.push(Lead { line, column, name: named(name), endpoints, form, written, unless });
            }
        }
        found
    }

    /// The port beside a host: `connect("127.0.0.1", 6379)`, `new Redis(6379, "127.0.0.1")`, `nc 127.0.0.1 6379`.
    fn beside(&self, at: usize) -> Option<&'a Item> {
        let items = self.items;
        let next = items.get(at + 1).filter(|next| next.follows);
        let before = at.checked_sub(1).and_then(|before| items.get(before)).filter(|_| items[at].follows);
        [next, before]
            .into_iter()
            .flatten()
            .find(|one| address::port(one.text.trim()).is_some() && !is_keyed_port(one))
    }

    /// The port of a host by their keys; `Some(None)` where it is one of several, and `None` where no port is said.
    fn port_of(&self, host: usize) -> Option<Option<&'a Item>> {
        let start = start_of(&self.items[host]);
        let all = self.ports.get(&start)?;
        let mut ports = self.nearest_scope(all, host)?;
        let hosts = self.hosts.get(&start).map_or(&[][..], Vec::as_slice);
        let line = self.items[host].line;
        // `connect = host=127.0.0.1 port=3306` is one statement.
        let is_one_line = ports.iter().any(|at| self.items[*at].line == line);
        ports.retain(|at| !is_one_line || self.items[*at].line == line);
        // A path beside them is none of two that belong together.
        let is_beside = |at: &usize| {
            self.scopes_of(*at, host) == Some(0)
                && !self.items[*at].text.starts_with('/')
                && (!is_one_line || self.items[*at].line == line)
        };
        let hosts: Vec<usize> = hosts.iter().copied().filter(is_beside).collect();
        let (first, last) = (*ports.first()?, *ports.last()?);
        let port = if self.scopes_of(first, host) != Some(0) {
            Some(first).filter(|_| self.items[first].text == self.items[last].text)
        } else if hosts.first().is_none_or(|one| *one < first) {
            // A host before each port, up to the next host.
            let end = hosts.iter().find(|one| **one > host).copied().unwrap_or(usize::MAX);
            ports.iter().copied().find(|port| *port > host && *port < end)
        } else if ports.len() > hosts.len() {
            // `port`, `host`, `port`: it may be either's.
            None
        } else {
            let start = hosts.iter().rfind(|one| **one < host).copied().unwrap_or(0);
            ports.iter().copied().rfind(|port| *port < host && *port >= start)
        };
        Some(port.map(|port| &self.items[port]))
    }

    /// Of these items those in the scope that is the nearest of those around another one, or within it.
    fn nearest_scope(&self, all: &[usize], one: usize) -> Option<Vec<usize>> {
        let is_named = !start_of(&self.items[one]).is_empty();
        // `host` and `port` alone are keys of many scopes.
        let far = |at: &usize| self.scopes_of(*at, one).filter(|count| is_named || *count == 0);
        let least = all.iter().filter_map(far).min()?;
        Some(all.iter().copied().filter(|at| far(at) == Some(least)).collect())
    }

    fn scopes_of(&self, one: usize, other: usize) -> Option<usize> {
        self.scopes.between(self.items[one].scope, self.items[other].scope)
    }

    /// Whether a port has no host: by its key, or as an argument near the words of a service.
    fn is_alone(&mut self, at: usize) -> bool {
        let items = self.items;
        let item = &items[at];
        if !is_keyed_port(item) {
            let is_large = address::port(&item.text).is_some_and(|port| port >= LEAST_ARGUMENT);
            let next = items
                .get(at + 1)
                .filter(|next| next.follows)
                .is_some_and(|next| address::host(&next.text).is_some());
            let before = item.follows && at > 0 && address::host(&items[at - 1].text).is_some();
            let key = item.key.to_ascii_lowercase();
            let is_time = OF_TIME.iter().any(|word| key.contains(word));
            let is_free = !is_time && !item.is_beside_a_name && !next && !before;
            return item.is_argument && is_large && is_free && self.is_near_a_service(item.line, NEAR);
        }
        let hosts = self.hosts.get(&start_of(item)).map_or(&[][..], Vec::as_slice);
        let is_claimed = self.nearest_scope(hosts, at).is_some();
        !is_claimed && (!item.is_option || self.is_near_a_service(item.line, 0))
    }
}

impl Places<'_> {
    fn is_near_a_service(&mut self, line: u32, above: u32) -> bool {
        let Places { lines, services, .. } = self;
        (line.saturating_sub(above).max(1)..=line).any(|number| {
            let text = lines.get(number as usize - 1).copied().unwrap_or_default();
            *services.entry(number).or_insert_with(|| address::names_a_service(text))
        })
    }
}

fn is_keyed_port(item: &Item) -> bool {
    let is_option = item.is_option && item.key.eq_ignore_ascii_case("p");
    address::port(item.text.trim()).is_some() && (is_option || is_of_port(&item.key))
}

/// How a key begins before its last word: `DB` of `DB_HOST` and of `DB_PORT`.
fn start_of(item: &Item) -> String {
    if item.is_option {
        return String::new();
    }
    let key = item.key.to_ascii_lowercase();
    let ends = items::PLACES.iter().chain(&["port"]);
    let end = ends.into_iter().find_map(|end| key.strip_suffix(end));
    end.unwrap_or(&key).trim_matches(['_', '-', '.']).to_owned()
}

fn lone_port(item: &Item, port: u16) -> Lead {
    Lead {
        line: item.line,
        column: item.column,
        name: named(item.unless.first().unwrap_or(&item.key)),
        endpoints: vec![address::tcp("localhost", port)],
        form: LeadForm::Port,
        written: item.text.trim().to_owned(),
        unless: item.unless.clone(),
    }
}

/// A key as the name of a value: a number or an address before it is none.
fn named(key: &str) -> String {
    let is_name = key.contains(|one: char| one.is_ascii_alphabetic());
    if is_name { key.to_owned() } else { String::new() }
}

#[cfg(test)]
mod tests;
