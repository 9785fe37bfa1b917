//! The proof of the `quadlet` editor: podman's own generator makes the unit of the file, and its command line for `podman run`
//! has the variables, the volumes and the network that the container gets. What a variable means is what its library makes of it
//! (the corpora of other editors hold that); a path in it is one of this machine by the volumes of the command line.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use samehost_model::Protocol;

use crate::case::Case;
use crate::{facts, sandbox};

const LEAST_CASES: usize = 65;

/// Prints the command line of the unit.
const SCRIPT: &str = r#"
QUADLET_UNIT_DIRS="$(dirname "$1")" "$QUADLET" -dryrun 2>/run/errors >/run/units
name="$(basename "$1" .container).service"
sed -n "/^---$name---/,/^---/p" /run/units | sed -n 's/^ExecStart=//p' | grep . || { cat /run/errors; exit 1; }
"#;

fn ask(file: &Path, root: &Path) -> BTreeSet<String> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let program = target.join("servers/root/usr/libexec/podman/quadlet");
    assert!(program.exists(), "{} is missing: cargo xtask servers fetches it", program.display());
    let text = sandbox::run(&format!("QUADLET='{}'\n{SCRIPT}", program.display()), file, root);
    let words = words(text.trim());
    let (mut variables, mut volumes, mut rest) = (BTreeMap::new(), Vec::new(), Vec::new());
    let mut all = words.into_iter();
    while let Some(word) = all.next() {
        match word.as_str() {
            "--env" => {
                let pair = all.next().unwrap();
                let (name, value) = pair.split_once('=').expect("NAME=value");
                variables.insert(name.to_owned(), value.to_owned());
            }
            "-v" => volumes.push(all.next().unwrap()),
            _ => rest.push(word),
        }
    }
    let is_on_host = rest.windows(2).any(|pair| pair == ["--network", "host"]);
    let container = Container { variables, volumes, is_on_host };
    let mut found: BTreeSet<String> = container.meanings().collect();
    found.extend(container.others().map(|(name, value)| format!("variable {name}={value}")));
    found.insert(format!("volumes: {}", container.volumes.join(" ")));
    found.insert(format!("the rest: {}", rest.join(" ")));
    found
}

/// The words of a command line of systemd.
fn words(line: &str) -> Vec<String> {
    let (mut found, mut word, mut is_open, mut is_quoted) = (Vec::new(), String::new(), false, false);
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            ' ' if !is_quoted => {
                if is_open {
                    found.push(std::mem::take(&mut word));
                }
                is_open = false;
                continue;
            }
            '"' => is_quoted = !is_quoted,
            '\\' => match chars.next().unwrap() {
                'x' => {
                    let hex: String = chars.by_ref().take(2).collect();
                    word.push(char::from(u8::from_str_radix(&hex, 16).unwrap()));
                }
                'n' => word.push('\n'),
                't' => word.push('\t'),
                other => word.push(other),
            },
            '%' if chars.as_str().starts_with('%') => word.push(chars.next().unwrap()),
            other => word.push(other),
        }
        is_open = true;
    }
    found.extend(is_open.then_some(word));
    found
}

struct Container {
    variables: BTreeMap<String, String>,
    volumes: Vec<String>,
    is_on_host: bool,
}

impl Container {
    fn value(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// The path on this machine of what the container calls so.
    fn outside(&self, path: &str) -> Option<String> {
        let mounts = self.volumes.iter().filter_map(|volume| {
            let mut parts = volume.split(':');
            Some((parts.next()?, parts.next()?))
        });
        let (here, there) = mounts
            .filter(|(here, there)| here.starts_with('/') && Path::new(path).starts_with(there))
            .max_by_key(|(_, there)| there.len())?;
        Some(format!("{here}{}", path.strip_prefix(there)?))
    }

    fn unix(&self, path: &str) -> String {
        self.outside(path).map_or_else(|| format!("unix:{path} (not mounted)"), |path| format!("unix:{path}"))
    }

    fn tcp(&self, host: &str, port: &str) -> String {
        let host = if !self.is_on_host && host == "host.containers.internal" { "127.0.0.1" } else { host };
        let host = if !self.is_on_host && host == "host.docker.internal" { "127.0.0.1" } else { host };
        format!("tcp:{host}:{port}")
    }

    fn in_directory(&self, host: &str, port: &str) -> String {
        if host.starts_with('/') {
            self.unix(&format!("{host}/.s.PGSQL.{port}"))
        } else {
            self.tcp(host, port)
        }
    }

    /// What the known variables mean.
    fn meanings(&self) -> impl Iterator<Item = String> {
        let mut found = Vec::new();
        let mut add = |name: &str, meaning: String| found.push(format!("{name} means {meaning}"));
        if let Some(value) = self.value("WORDPRESS_DB_HOST") {
            let meaning = match value.strip_prefix("localhost:").filter(|rest| rest.starts_with('/')) {
                Some(path) => self.unix(path),
                None => {
                    let (host, port) = value.split_once(':').unwrap_or((value, "3306"));
                    self.tcp(host, port)
                }
            };
            add("WORDPRESS_DB_HOST", meaning);
        }
        if let Some(host) = self.value("PGHOST") {
            add("PGHOST", self.in_directory(host, self.value("PGPORT").unwrap_or("5432")));
        }
        if let Some(host) = self.value("DB_HOST") {
            let meaning = match (self.value("DB_CONNECTION"), self.value("DB_SOCKET")) {
                (Some("pgsql"), _) => self.in_directory(host, self.value("DB_PORT").unwrap_or("5432")),
                (_, Some(path)) if !path.is_empty() => self.unix(path),
                _ => self.tcp(host, self.value("DB_PORT").unwrap_or("3306")),
            };
            add("DB_HOST", meaning);
        }
        if let Some(host) = self.value("database__connection__host") {
            let port = self.value("database__connection__port").unwrap_or("3306");
            let socket = self.value("database__connection__socketPath");
            add(
                "database__connection__host",
                socket.map_or_else(|| self.tcp(host, port), |path| self.unix(path)),
            );
        }
        if let Some(url) = self.value("DATABASE_URL") {
            let (scheme, rest) = url.split_once("://").expect("a URL");
            let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
            let (place, query) = place.split_once('?').unwrap_or((place, ""));
            let host = place.split('/').next().unwrap_or_default().replace("%2F", "/");
            let usual = if scheme.starts_with("postgres") { "5432" } else { "3306" };
            let meaning = match query.split('&').find_map(|pair| pair.strip_prefix("socket=")) {
                Some(path) => self.unix(&path.replace("%2F", "/")),
                None if host.starts_with('/') => {
                    let (host, port) = host.split_once(':').unwrap_or((&host, usual));
                    self.in_directory(host, port)
                }
                None => {
                    let (host, port) = host.split_once(':').unwrap_or((&host, usual));
                    self.tcp(host, port)
                }
            };
            add("DATABASE_URL", meaning);
        }
        found.into_iter()
    }

    /// The variables that no meaning was told of.
    fn others(&self) -> impl Iterator<Item = (&String, &String)> {
        const TOLD: &[&str] = &[
            "WORDPRESS_DB_HOST",
            "PGHOST",
            "DB_SOCKET",
            "database__connection__socketPath",
            "DATABASE_URL",
            // It may become a directory.
            "DB_HOST",
        ];
        self.variables.iter().filter(|(name, _)| !TOLD.contains(&name.as_str()))
    }
}

/// A fact after the case's moves; `mounts:` is the directory that becomes a volume.
fn expected(fact: &str, case: &Case) -> String {
    if let (Some(before), Some(directory)) = (fact.strip_prefix("volumes:"), case.word("mounts")) {
        return format!("volumes:{} {directory}:{directory}", before.trim_end());
    }
    let protocol = |name: &str| if name.starts_with("PG") { Protocol::Postgres } else { Protocol::Mysql };
    facts::moved_meaning(fact, protocol, case)
}

#[test]
fn quadlet() {
    crate::run("quadlet", LEAST_CASES, ask, expected);
}
