//! Values of a text that may lead to a server, whatever format the text has: a host with a port, a URL, a DSN, or a host
//! and a port beside each other or in two lines, and a port alone. Editors say what a program makes of a value; this only finds what none of them spoke of, so that
//! nothing is passed over in silence. It never decides that a value may be changed.

use std::collections::{BTreeMap, HashMap};

use samehost_model::Endpoint;

use self::items::{Item, is_of_host, is_of_port};

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
/// How many lines a host and its port may be apart.
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
/// connect to nobody, and lines of more than 8 KiB. A host without a port gets the one beside it, else the nearest whose
/// key begins alike, else the usual ones of what its key names; without any it is left out. No name is looked up. Of a
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
    let items = items::items(text);
    let mut places = Places::of(text, &items);
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

/// Places by how their keys begin, within a pair of brackets or anywhere, each with its line and its item.
type ByStart<'a> = HashMap<(String, Option<usize>), BTreeMap<(u32, usize), &'a Item>>;

/// Which port belongs to which host.
struct Places<'a> {
    items: &'a [Item],
    lines: Vec<&'a str>,
    ports: ByStart<'a>,
    hosts: ByStart<'a>,
    /// Lines of which it is known whether they have a word of a service.
    services: HashMap<u32, bool>,
}

impl<'a> Places<'a> {
    fn of(text: &'a str, items: &'a [Item]) -> Self {
        let (mut ports, mut hosts) = (ByStart::new(), ByStart::new());
        for (at, item) in items.iter().enumerate() {
            let of_its_kind = match (is_keyed_port(item), is_of_host(item)) {
                (true, _) => &mut ports,
                (false, true) => &mut hosts,
                _ => continue,
            };
            let start = start_of(item);
            if item.block > 0 {
                of_its_kind
                    .entry((start.clone(), Some(item.block)))
                    .or_default()
                    .insert((item.line, at), item);
            }
            of_its_kind.entry((start, None)).or_default().insert((item.line, at), item);
        }
        Places { items, lines: text.lines().collect(), ports, hosts, services: HashMap::new() }
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
                let (port, is_beside) = match self.beside(at) {
                    Some(port) => (Some(port), true),
                    None => (self.port_of(item), false),
                };
                if let Some((number, port)) =
                    port.and_then(|port| Some((address::port(port.text.trim())?, port)))
                {
                    endpoints = vec![address::tcp(&written, number)];
                    unless.extend(port.unless.iter().cloned());
                }
                if is_beside {
                    form = LeadForm::HostAndPort;
                }
            }
            // Without any port it leads nowhere that is known.
            endpoints.retain(|one| !matches!(one, Endpoint::Tcp { port: 0, .. }));
            if !endpoints.is_empty() {
                found.push(Lead { line: item.line, name: named(name), endpoints, form, written, unless });
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

    /// The port of a host by their keys: in the same brackets, else the nearest one.
    fn port_of(&self, host: &Item) -> Option<&'a Item> {
        let start = start_of(host);
        if let Some(inside) = self.ports.get(&(start.clone(), Some(host.block))) {
            return nearest(inside, host.line).map(|(port, _)| port);
        }
        let (port, lines) = nearest(self.ports.get(&(start.clone(), None))?, host.line)?;
        // `host` and `port` alone are keys of many sections.
        if start.is_empty() && lines > NEAR { None } else { Some(port) }
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
        let start = start_of(item);
        if self.hosts.contains_key(&(start.clone(), Some(item.block))) {
            return false;
        }
        let anywhere = self.hosts.get(&(start.clone(), None)).and_then(|hosts| nearest(hosts, item.line));
        let is_claimed = anywhere.is_some_and(|(host, lines)| match start.is_empty() {
            true => item.block == 0 && host.block == 0 && lines <= NEAR,
            false => true,
        });
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

fn nearest<'a>(places: &BTreeMap<(u32, usize), &'a Item>, line: u32) -> Option<(&'a Item, u32)> {
    let before = places.range(..(line + 1, 0)).next_back();
    let after = places.range((line, 0)..).next();
    let both = [before, after].into_iter().flatten();
    let (place, item) = both.min_by_key(|((other, _), _)| other.abs_diff(line))?;
    Some((item, place.0.abs_diff(line)))
}

fn lone_port(item: &Item, port: u16) -> Lead {
    Lead {
        line: item.line,
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
mod tests {
    use super::*;

    /// The leads of a text over TCP, or to sockets.
    fn reported(text: &str, to_sockets: bool) -> Vec<String> {
        let mut reported = Vec::new();
        for Lead { line, name, endpoints, form, .. } in leads(text) {
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
            "<Proxy fcgi://127.0.0.1:9000>",
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
            found.retain(|lead| matches!(&lead.endpoints[0], Endpoint::Tcp { host, .. } if address::host(host).is_some()));
            assert_eq!(found, [], "{text}");
        }
    }

    /// The leads of a text that leads to port 6395 of this machine, or has that port alone.
    fn to_the_port(text: &str) -> Vec<Lead> {
        let mut found = leads_and_ports(text);
        found.retain(|lead| {
            lead.endpoints
                .iter()
                .any(|one| matches!(one, Endpoint::Tcp { host, port: 6395 } if address::host(host).is_some()))
        });
        found
    }

    #[test]
    fn a_new_form_of_an_address_is_one_line_here() {
        for text in [
            "$r->connect(\"127.0.0.1\", 6395);",
            "$m->addServer('127.0.0.1',6395);",
            "$r->connect(\n  \"127.0.0.1\",\n  6395,\n);",
            "HOSTS = [(\"127.0.0.1\", 6395)]",
            "HOSTS=[(\"localhost\", 6395)]",
            "$servers = array(array(\"127.0.0.1\", 6395));",
            "return [\"servers\" => [[\"127.0.0.1\", 6395]]];",
            "const r = new Redis(6395, \"127.0.0.1\");",
            "const c = redis.createClient(6395, '127.0.0.1');",
            "createClient({ socket: { port: 6395, host: \"127.0.0.1\" } });",
            "{\"redis\":{\"host\":\"127.0.0.1\",\"port\":6395}}",
            "{\"a\":{\"host\":\"127.0.0.1\",\"port\":1},\"b\":{\"host\":\"127.0.0.1\",\"port\":6395}}",
            "r = Redis.new(host: \"127.0.0.1\", port: 6395)",
            "r = redis.Redis(host=\"127.0.0.1\", port=6395)",
            "redis-cli -h 127.0.0.1 -p 6395 ping",
            "mysql -h127.0.0.1 -P6395 shop",
            "system(\"redis-cli -h 127.0.0.1 -p 6395 ping\");",
            "*/5 * * * * redis-cli -p 6395 del x",
            "* * * * * root redis-cli -p 6395 ping",
            "echo PING | nc 127.0.0.1 6395",
            "replicaof 127.0.0.1 6395",
            "command=/usr/bin/worker --redis-host 127.0.0.1 --redis-port 6395",
            "Environment=CACHE_HOST=127.0.0.1 CACHE_PORT=6395",
            "environment=REDIS_HOST=\"127.0.0.1\",REDIS_PORT=\"6395\"",
            "<property name=\"port\" value=\"6395\"/><property name=\"host\" value=\"127.0.0.1\"/>",
            "php_value[session.save_path]=tcp://127.0.0.1:6395",
            "    server a 127.0.0.1:6395",
            "RH=127.0.0.1\nRP=6395\nSESSION_DSN=redis://${RH}:${RP}/3",
            "S=redis://127.1:6395/3",
            "S=redis://0.0.0.0:6395",
            "S=${X:-redis://127.0.0.1:6395}",
            "R = os.environ.get(\"R\", \"redis://127.0.0.1:6395/0\")",
            "'servers' => [['host' => env('MH', '127.0.0.1'), 'port' => env('MP', 6395)]],",
            "createClient({port: 6395})",
            "createClient({ url: `redis://${h}:6395` })",
            "QUEUE_REDIS_PORT=6395",
            "$c = new Predis\\Client([\"port\" => 6395]);",
            "const c = require(\"ioredis\"); new c(6395);",
            "$r = new Redis(); $r->connect($host, 6395);",
            "const addr = \":6395\"",
            "define('R_HOST', '127.0.0.1');\ndefine('R_PORT', 6395);",
        ] {
            assert_eq!(to_the_port(text).len(), 1, "{text}: {:?}", to_the_port(text));
        }
    }

    #[test]
    fn what_leads_to_another_host_or_port_or_to_nobody_is_none() {
        for text in [
            "$r->connect(\"10.0.0.7\", 6395);",
            "$r->connect(\"redis\", 6395);",
            "$r->connect(\"127.0.0.1\", 63951);",
            "HOSTS = [(\"cache.example.org\", 6395)]",
            "const r = new Redis(6395, \"10.0.0.7\");",
            "{\"redis\":{\"host\":\"10.0.0.7\",\"port\":6395}}",
            "redis:\n  host: cache\n  port: 6395\n",
            "REDIS_HOST=10.0.0.7\nREDIS_PORT=6395\n",
            "REDIS_HOST=/run/r.sock\nREDIS_PORT=6395\n",
            "redis-cli -h 10.0.0.7 -p 6395",
            "ssh -p 6395 example.org",
            "mkdir -p 6395",
            "$redis->ping(); usleep(6395);",
            "const r = new Redis(); setTimeout(6395);",
            "$redis->expire('key', 6395);",
            "# redis-cli -p 6395",
            "// connect(\"127.0.0.1\", 6395)",
            "foo(); /* connect(\"127.0.0.1\", 6395) */",
            "\"\"\"\nredis://127.0.0.1:6395\n\"\"\"\n",
            "REDIS_URL=redis://10.0.0.7:6395",
            "S=redis://126.1:6395",
            "LISTEN_PORT=6395",
            "image: redis:6395",
        ] {
            assert_eq!(to_the_port(text), [], "{text}");
        }
    }

    #[test]
    fn a_default_counts_without_its_variable() {
        let found =
            leads_and_ports("'host' => env('REDIS_HOST', '127.0.0.1'), 'port' => env('REDIS_PORT', '6395'),");
        assert_eq!((found.len(), found[0].name.as_str()), (1, "REDIS_HOST"));
        assert_eq!(found[0].unless, ["REDIS_HOST", "REDIS_PORT"]);
    }
}
