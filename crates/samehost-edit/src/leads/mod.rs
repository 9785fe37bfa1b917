//! Values of a text that may lead to a server, whatever format the text has: a host with a port, a URL, a DSN, or a host
//! and a port beside each other or in two lines, and a port alone. Editors say what a program makes of a value; this only finds what none of them spoke of, so that
//! nothing is passed over in silence. It never decides that a value may be changed.

use std::collections::HashMap;

use samehost_model::Endpoint;
use samehost_services::{Localhost, localhost_in};

pub use self::address::databases_in;
use self::items::{CONNECT, Item, Scopes, is_of_host, is_of_port};

mod address;
mod items;
mod tools;
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
    /// What `localhost` means to the library whose spelling this is; `None` where its spelling does not say.
    pub localhost: Option<Localhost>,
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
    /// A host without any port, or a client program without a place, in the words of a service: its usual port, most likely.
    Usual,
    Path,
    /// The path of a socket's file that is mounted into a container.
    MountedPath,
}

/// How many values of a text are told, of those that are asked for: nobody reads more, and each is compared with what editors found.
const MOST: usize = 2000;
/// How many lines above an argument may name its service.
const NEAR: u32 = 12;
/// How many lines above and below a host may name its database.
const MOST_BESIDE: usize = 40;
/// Calls that take a host, and behind user, password and database its port.
const PORT_IS_LAST: &[&str] =
    &["mysqli", "mysqli_connect", "real_connect", "mysqli_real_connect", "mysql_real_connect"];
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
    "no_proxy", "accept", "announce",
];

/// The values of a text that may lead to a server, in the order of the text; none twice for the same line.
///
/// Comments are left out, and so are values whose key says where the program itself is, directives of web servers that
/// connect to nobody. A host without a port gets the one beside it, else that whose key begins
/// alike in the same scope, else the usual ones of what its key names; without any it is left out. No name is looked up. Of a
/// long text the first 2,000 are returned.
#[must_use]
pub fn leads(text: &str) -> Vec<Lead> {
    leads_among(text, "", &|lead| !matches!(lead.form, LeadForm::Usual | LeadForm::Port)).0
}

/// The values that are wanted, also ports that stand alone (`QUEUE_PORT=6379`), however many others are before them, and whether the
/// text has more values than are looked at. The address after 2,000 others was dropped in silence, and its port closed; and so was the usual port of a
/// service below `connect("127.0.0.1")` and `redis-cli` in a crontab: [`LeadForm::Usual`] is for who asks what leads to a
/// place that is closed, and for nobody else. A `file` that has the name of a service speaks of that: rspamd's `redis.conf`; one in a
/// program's directory has its defaults: `icingadb/config.yml`.
#[must_use]
pub fn leads_among(text: &str, file: &str, is_wanted: &dyn Fn(&Lead) -> bool) -> (Vec<Lead>, bool) {
    let (items, scopes, is_cut) = items::items(text);
    let mut places = Places::of(text, &items, &scopes);
    let (folder, file) = file.rsplit_once('/').unwrap_or(("", file));
    let file = file.split('.').next().unwrap_or_default();
    places.of_file = address::ports_of(file);
    places.usual_elsewhere = address::usual_elsewhere(folder.rsplit('/').next().unwrap_or_default());
    let (said, options) = (tools::listening(text), tools::options_to_listen(text, file));
    let mut found: Vec<Lead> = Vec::new();
    for (at, item) in items.iter().enumerate() {
        // uWSGI's and milters' `socket` over TCP is where they listen.
        let is_listener = item.key.eq_ignore_ascii_case("socket") && !item.text.contains('/')
            || said.contains(&item.line) && start_of(item).is_empty()
            || item.is_option && options.contains(&item.key.as_str());
        // `app: { url: … }`
        let is_block = || item.key == "url" && is_own(&format!("{}_url", scopes.name(item.scope)));
        if is_listener || is_own(&item.key) || item.unless.iter().any(|name| is_own(name)) || is_block() {
            continue;
        }
        for lead in places.leads(at).into_iter().filter(|lead| is_wanted(lead)) {
            let mut of_this_line = found.iter().rev().take_while(|other| other.line == lead.line);
            if found.len() < MOST && of_this_line.all(|other| *other != lead) {
                found.push(lead);
            }
        }
    }
    for lead in tools::leads(text).into_iter().filter(|lead| is_wanted(lead)) {
        if found.len() < MOST && found.iter().all(|other| other.line != lead.line) {
            found.push(lead);
        }
    }
    (found, is_cut)
}

/// Whether a value says where the program itself is, by its name.
fn is_own(key: &str) -> bool {
    let key = key.to_ascii_lowercase().replace(['-', '.'], "_");
    // A whole word: `base_url` is none of `database_url`.
    OWN.iter().any(|word| key.starts_with(word) || key.contains(&format!("_{word}")))
}

/// How many scopes around one are looked through for a key that begins alike.
const MOST_AROUND: usize = 8;

/// Items by how their keys begin and by a scope, as indexes in their order.
type ByScope = HashMap<(String, usize), Vec<usize>>;

/// Hosts, or ports, by the scope that they stand in, and by those around that.
#[derive(Default)]
struct Keyed {
    own: ByScope,
    within: ByScope,
}

impl Keyed {
    fn add(&mut self, scopes: &Scopes, at: usize, item: &Item) {
        let start = start_of(item);
        // `host` and `port` alone are keys of many scopes.
        let around = scopes.around(item.scope).take(if start.is_empty() { 0 } else { MOST_AROUND });
        for scope in around {
            self.within.entry((start.clone(), scope)).or_default().push(at);
        }
        self.own.entry((start, item.scope)).or_default().push(at);
    }

    /// Those of the same scope, else of the nearest one around it, else of those within it; and whether it is the same.
    fn near(&self, scopes: &Scopes, item: &Item) -> Option<(bool, &[usize])> {
        let mut key = (start_of(item), item.scope);
        if let Some(own) = self.own.get(&key) {
            return Some((true, own));
        }
        if key.0.is_empty() {
            return None;
        }
        let within = self.within.get(&key);
        let found = scopes.around(item.scope).take(MOST_AROUND).find_map(|scope| {
            key.1 = scope;
            self.own.get(&key)
        });
        found.or(within).map(|found| (false, found.as_slice()))
    }
}

/// Which port belongs to which host. Nearness decided, and named PostgreSQL for the tuple of a Redis: a host and its port belong
/// together by what both stand in, and where that has several, by their order there.
struct Places<'a> {
    items: &'a [Item],
    scopes: &'a Scopes,
    lines: Vec<&'a str>,
    ports: Keyed,
    hosts: Keyed,
    /// Hosts without paths: one beside a port is none of two that belong together.
    named: ByScope,
    /// Lines of which it is known of which services they speak, by the usual ports of these.
    services: HashMap<u32, Vec<u16>>,
    /// Lines that speak of databases, in small letters, with the ports of these; once they are looked for.
    databases: Option<Vec<(String, Vec<u16>)>>,
    /// Lines of which it is known beside which databases a host in them is: one may have ten thousand hosts.
    beside_databases: HashMap<u32, Vec<u16>>,
    /// Ports of the databases that are spoken of in lines with such a beginning of a name, and in any.
    spoken_by_start: HashMap<String, [Vec<u16>; 2]>,
    /// Usual ports of the service whose name the file has.
    of_file: Vec<u16>,
    /// Ports that the program of the file has for usual ones.
    usual_elsewhere: HashMap<u16, u16>,
}

impl<'a> Places<'a> {
    fn of(text: &'a str, items: &'a [Item], scopes: &'a Scopes) -> Self {
        let (mut ports, mut hosts, mut named) = (Keyed::default(), Keyed::default(), ByScope::new());
        for (at, item) in items.iter().enumerate() {
            if is_keyed_port(item) {
                ports.add(scopes, at, item);
            } else if is_of_host(item) && !item.text.contains("${") {
                // A host that is computed may be this machine.
                hosts.add(scopes, at, item);
                if !item.text.starts_with('/') {
                    named.entry((start_of(item), item.scope)).or_default().push(at);
                }
            }
        }
        let lines = text.lines().collect();
        Places {
            items,
            scopes,
            lines,
            ports,
            hosts,
            named,
            services: HashMap::new(),
            databases: None,
            beside_databases: HashMap::new(),
            spoken_by_start: HashMap::new(),
            of_file: Vec::new(),
            usual_elsewhere: HashMap::new(),
        }
    }

    /// What an item says by itself and with those around it.
    fn leads(&mut self, at: usize) -> Vec<Lead> {
        let items = self.items;
        let item = &items[at];
        if let Some(port) = address::port(item.text.trim()) {
            if !self.is_alone(at) {
                return Vec::new();
            }
            let form = if self.is_of_this_machine(item) { LeadForm::HostAndPort } else { LeadForm::Port };
            return vec![Lead { form, ..lone_port(item, port) }];
        }
        let name = item.unless.first().unwrap_or(&item.key).as_str();
        let mut found = Vec::new();
        let block = self.scopes.name(item.scope);
        for address::Named { form, mut endpoints, written, hosts } in address::named(name, block, &item.text)
        {
            let (mut form, mut unless) = (form, item.unless.clone());
            unless.extend(hosts);
            if form == LeadForm::Host {
                self.as_here(&mut endpoints);
                let beside = self.beside(at);
                let is_beside = beside.is_some();
                if let Some(port) = beside.map(Some).or_else(|| self.port_of(at)) {
                    // Of several ports that may be its own none is said.
                    let usual = std::mem::take(&mut endpoints);
                    if let Some((port, number)) =
                        port.and_then(|one| Some((one, address::port(one.text.trim())?)))
                    {
                        endpoints.push(address::tcp(&written, number));
                        unless.extend(port.unless.iter().cloned());
                        // MediaWiki's default is PostgreSQL's port, whatever the database.
                        endpoints.extend(usual.into_iter().filter(|_| port.is_default));
                    }
                }
                if is_beside {
                    form = LeadForm::HostAndPort;
                }
            }
            if form == LeadForm::Host {
                form = self.without_port(item, name, &written, &mut endpoints);
            }
            // Without any port it leads nowhere that is known.
            endpoints.retain(|one| !matches!(one, Endpoint::Tcp { port: 0, .. }));
            if !endpoints.is_empty() {
                let localhost = localhost_in(&item.text);
                found.push(Lead { endpoints, form, written, localhost, unless, ..lone_port(item, 0) });
            }
        }
        found
    }

    /// Puts the port that the program of the file has for its usual one in the place of that.
    fn as_here(&self, endpoints: &mut [Endpoint]) {
        for endpoint in endpoints {
            let Endpoint::Tcp { port, .. } = endpoint else { continue };
            *port = self.usual_elsewhere.get(port).copied().unwrap_or(*port);
        }
    }

    /// Where a host leads of which no port is said: to the usual ports of the databases beside it, else of what is spoken of around it.
    fn without_port(
        &mut self,
        item: &Item,
        name: &str,
        host: &str,
        endpoints: &mut Vec<Endpoint>,
    ) -> LeadForm {
        let at = |ports: Vec<u16>| ports.into_iter().map(|port| address::tcp(host, port)).collect();
        if has_no_port(endpoints) {
            let ports = self.databases_beside(item);
            if !ports.is_empty() {
                *endpoints = at(ports);
            }
        }
        if endpoints.len() > 1 {
            self.keep_spoken_of(name, endpoints);
        }
        // A host in prose is none: "if unset localhost will be used".
        let is_value = item.is_argument || item.is_option || is_of_host(item) || name.ends_with("servers");
        if !has_no_port(endpoints) || !is_value {
            return LeadForm::Host;
        }
        *endpoints = at(self.spoken_of_around(item));
        self.as_here(endpoints);
        LeadForm::Usual
    }

    /// The port beside a host: `connect("127.0.0.1", 6379)`, `new Redis(6379, "127.0.0.1")`, `nc 127.0.0.1 6379`.
    fn beside(&self, at: usize) -> Option<&'a Item> {
        let items = self.items;
        let next = items.get(at + 1).filter(|next| next.follows);
        let before = at.checked_sub(1).and_then(|before| items.get(before)).filter(|_| items[at].follows);
        let own = [next, before]
            .into_iter()
            .flatten()
            .find(|one| address::port(one.text.trim()).is_some() && !is_keyed_port(one));
        let is_mysqls = PORT_IS_LAST.contains(&items[at].key.to_ascii_lowercase().as_str());
        let last = items.get(at + 1).filter(|one| is_mysqls && one.line == items[at].line && one.is_argument);
        own.or(last.filter(|one| address::port(&one.text).is_some()))
    }

    /// The port of a host by their keys; `Some(None)` where it is one of several, and `None` where no port is said.
    fn port_of(&self, host: usize) -> Option<Option<&'a Item>> {
        let items = self.items;
        let item = &items[host];
        let (is_same, ports) = self.ports.near(self.scopes, item)?;
        let (first, last) = (*ports.first()?, *ports.last()?);
        if !is_same {
            return Some(Some(&items[first]).filter(|one| one.text == items[last].text));
        }
        let hosts = self.named.get(&(start_of(item), item.scope)).map_or(&[][..], Vec::as_slice);
        // `connect = host=127.0.0.1 port=3306` is one statement.
        let port = match self.on_line(ports, item.line) {
            [] => in_order(ports, hosts, host),
            own => in_order(own, self.on_line(hosts, item.line), host),
        };
        Some(port.map(|port| &items[port]))
    }

    fn on_line<'b>(&self, all: &'b [usize], line: u32) -> &'b [usize] {
        let start = all.partition_point(|at| self.items[*at].line < line);
        &all[start..all.partition_point(|at| self.items[*at].line <= line)]
    }

    /// Whether the program of a lone port connects to this machine where nothing else is said: stunnel's `connect = 6379`, and Monit's `if
    /// failed port 6379` of a process, or of a host that is this machine.
    fn is_of_this_machine(&self, item: &Item) -> bool {
        if item.key == CONNECT {
            return true;
        }
        let above = self.lines.iter().take(item.line as usize).rev().take(MOST_BESIDE);
        let mut checks = above.map(|line| line.trim_start()).filter(|line| line.starts_with("check "));
        let Some(check) = checks.next().filter(|_| item.key == "port") else { return false };
        match check.split_once("with address ").map(|(_, rest)| rest.split_whitespace().next()) {
            Some(named) => named.is_some_and(|named| address::host(named).is_some()),
            None => check.starts_with("check process "),
        }
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
        let is_claimed = self.hosts.near(self.scopes, item).is_some();
        !is_claimed && (!item.is_option || self.is_near_a_service(item.line, 0))
    }
}

impl<'a> Places<'a> {
    /// The usual ports of the databases beside whose name or driver a host without a port stands, in its line or in one as deep of the
    /// same block: Dovecot's `connect = host=127.0.0.1 dbname=mail`, Postfix's `hosts =` and `dbname =`, `{ host: '127.0.0.1', database:
    /// 'shop' }`, Zabbix's `$DB['TYPE'] = 'MYSQL'`.
    fn databases_beside(&mut self, item: &Item) -> Vec<u16> {
        if let Some(known) = self.beside_databases.get(&item.line) {
            return known.clone();
        }
        let beside = self.databases_beside_line(item.line);
        self.beside_databases.insert(item.line, beside.clone());
        beside
    }

    fn databases_beside_line(&self, line: u32) -> Vec<u16> {
        let own = (line as usize).saturating_sub(1);
        let Some(line) = self.lines.get(own) else { return Vec::new() };
        let depth = depth_of(line);
        let is_of_block = |line: &&&str| {
            line.trim().is_empty() || depth_of(line) >= depth && !line.trim_start().starts_with('[')
        };
        let above = self.lines[..own].iter().rev().take(MOST_BESIDE).take_while(is_of_block);
        let below = self.lines[own + 1..].iter().take(MOST_BESIDE).take_while(is_of_block);
        let names = |line: &&str, ends: &[&str]| {
            depth_of(line) == depth && ends_a_name(line.split(['=', ':']).take(1), ends)
        };
        // A driver further away was that of other values.
        let is_of_paragraph = |line: &&&str| !line.trim().is_empty();
        let paragraph =
            above.clone().take_while(is_of_paragraph).chain(below.clone().take_while(is_of_paragraph));
        let mut drivers = paragraph.map(|line| items::code_of(line)).filter(|line| names(line, DRIVERS));
        if let Some(driver) = drivers.find(|line| !databases_in(line).is_empty()) {
            return databases_in(driver);
        }
        let is_beside = ends_a_name(line.split(['=', ':']), OF_DATABASES)
            || above.chain(below).any(|line| names(line, OF_DATABASES));
        if is_beside { address::DATABASES.to_vec() } else { Vec::new() }
    }

    /// Of the servers that a host without a port may lead to keeps the one of which the text speaks: in lines with names that begin alike
    /// (`DB_CONNECTION=pgsql` beside `DB_HOST`), else in any. `DB_HOST` of a program of PostgreSQL led to the MariaDB beside it.
    fn keep_spoken_of(&mut self, name: &str, endpoints: &mut Vec<Endpoint>) {
        let lines = &self.lines;
        let all = self.databases.get_or_insert_with(|| {
            let named = lines.iter().map(|line| (line.to_ascii_lowercase(), databases_in(line)));
            named.filter(|(_, ports)| !ports.is_empty()).collect()
        });
        let start = start_of_name(name);
        let both = self.spoken_by_start.entry(start).or_insert_with_key(|start| {
            [true, false].map(|is_alike| {
                let near = all.iter().filter(|(line, _)| !is_alike || line.contains(start));
                let mut ports: Vec<u16> = near.flat_map(|(_, ports)| ports).copied().collect();
                ports.sort_unstable();
                ports.dedup();
                ports
            })
        });
        for spoken in both.iter() {
            let is_spoken_of =
                |one: &Endpoint| matches!(one, Endpoint::Tcp { port, .. } if spoken.contains(port));
            if endpoints.iter().filter(|one| is_spoken_of(one)).count() == 1 {
                endpoints.retain(is_spoken_of);
                return;
            }
        }
    }

    fn is_near_a_service(&mut self, line: u32, above: u32) -> bool {
        (line.saturating_sub(above).max(1)..=line).any(|number| !self.spoken_of(number).is_empty())
    }

    /// A line by its number, from 1.
    fn line(&self, number: u32) -> &'a str {
        self.lines.get((number as usize).saturating_sub(1)).copied().unwrap_or_default()
    }

    fn spoken_of(&mut self, number: u32) -> &[u16] {
        let text = self.line(number);
        self.services.entry(number).or_insert_with(|| address::ports_spoken_of(text))
    }

    /// The usual ports of the services that the line of a host speaks of; else, of an argument, the nearest of the lines above; of a
    /// key, the lines that it stands in: those above that are less deep, up to its section.
    fn spoken_of_around(&mut self, item: &Item) -> Vec<u16> {
        let own = self.spoken_of(item.line);
        if !own.is_empty() || item.is_option {
            return own.to_vec();
        }
        let above = if item.is_argument { NEAR } else { MOST_BESIDE as u32 };
        let mut depth = depth_of(self.line(item.line));
        for number in (item.line.saturating_sub(above).max(1)..item.line).rev() {
            let line = self.line(number);
            let is_section = line.trim_start().starts_with('[');
            let is_around = item.is_argument || is_section || depth_of(line) < depth;
            if line.trim().is_empty() || !is_around {
                continue;
            }
            depth = depth.min(depth_of(line));
            let spoken = self.spoken_of(number);
            if !spoken.is_empty() || is_section && !item.is_argument {
                return spoken.to_vec();
            }
        }
        if item.is_argument { Vec::new() } else { self.of_file.clone() }
    }
}

/// Of the ports of a scope that of a host, by the order of its hosts and ports: each host goes before its port, up to the next host,
/// or each behind it. `port`, `host`, `port` may be either's.
fn in_order(ports: &[usize], hosts: &[usize], host: usize) -> Option<usize> {
    let behind = |all: &[usize]| all.get(all.partition_point(|at| *at <= host)).copied();
    let before = |all: &[usize]| all[..all.partition_point(|at| *at < host)].last().copied();
    if hosts.first().is_none_or(|first| first < &ports[0]) {
        behind(ports).filter(|port| behind(hosts).is_none_or(|next| *port < next))
    } else if ports.len() > hosts.len() {
        None
    } else {
        before(ports).filter(|port| before(hosts).is_none_or(|last| *port > last))
    }
}

/// Whether of a place only the host is known.
fn has_no_port(endpoints: &[Endpoint]) -> bool {
    matches!(endpoints, [Endpoint::Tcp { port: 0, .. }])
}

/// How far a line is indented, in bytes.
fn depth_of(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Ends of the names of settings that have the name of a database, and of those that say of which kind it is.
const OF_DATABASES: &[&str] = &["dbname", "db_name", "database"];
const DRIVERS: &[&str] = &["type", "driver", "adapter", "dbms", "dialect"];

/// Whether one of these texts, each before a value, ends with the name of a setting that ends so: `dbname`, `$DB['TYPE']`, `dbtype`.
fn ends_a_name<'a>(mut before_values: impl Iterator<Item = &'a str>, ends: &[&str]) -> bool {
    before_values.any(|text| {
        let name = text.trim_end().trim_end_matches(['"', '\'', ']']).to_ascii_lowercase();
        ends.iter().any(|word| {
            name.strip_suffix(word).is_some_and(|rest| {
                rest.ends_with("db") || !rest.ends_with(|last: char| last.is_alphanumeric())
            })
        })
    })
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
    start_of_name(&item.key)
}

fn start_of_name(name: &str) -> String {
    let key = name.to_ascii_lowercase();
    let ends = address::PLACES.iter().chain(items::PORTS);
    let end = ends.into_iter().find_map(|end| key.strip_suffix(end));
    end.unwrap_or(&key).trim_matches(['_', '-', '.']).to_owned()
}

fn lone_port(item: &Item, port: u16) -> Lead {
    Lead {
        line: item.line,
        column: item.column,
        name: name_of(item),
        endpoints: vec![address::tcp("localhost", port)],
        form: LeadForm::Port,
        written: item.text.trim().to_owned(),
        localhost: None,
        unless: item.unless.clone(),
    }
}

/// What a value is called: its variable, its key or, as it is written, its option (`-p`). A number or an address before it is no name.
fn name_of(item: &Item) -> String {
    match item.unless.first().unwrap_or(&item.key) {
        name if !name.contains(|one: char| one.is_ascii_alphabetic()) => String::new(),
        name if item.is_option && item.unless.is_empty() => format!("-{name}"),
        name => name.clone(),
    }
}

#[cfg(test)]
mod tests;
