//! Docker Compose: services that reach a database by its service name. A socket needs a directory that both containers
//! mount (never the socket's file, which is replaced at each start). So an edit adds a volume, mounts it in both, and
//! changes the variable. Only clear cases are edited: the databases' official images, and variables whose reader is
//! known.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use samehost_model::{Endpoint, Protocol};
use samehost_services::Kind;

use crate::budget::Metered;
use crate::editor::{Check, Editor, Program, written_lines};
use crate::files::{Edit, Files, minimal};
use crate::languages::yaml::Document;
use crate::lines;
use crate::refusal::{Reason, Refusal, Result};
use crate::setting::{Goal, Reading, Setting, Uptake};

mod image;
mod service;
mod words;

use image::{Server, leads};
use service::{Service, Variable};
use words::port;
use words::{Words, endpoint, host_of, with_login, words, written};

#[derive(Debug)]
pub struct Compose;

const BY_HAND: &str = "a named volume at /var/run/mysqld (or /var/run/postgresql) in both services, and the path in the client's variable";

impl Editor for Compose {
    fn name(&self) -> &'static str {
        "compose"
    }

    fn about(&self) -> &'static str {
        "Docker Compose: WordPress, Ghost, Laravel, Rails and libpq beside MySQL, MariaDB or PostgreSQL"
    }

    fn names(&self) -> &'static [&'static str] {
        &["compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml"]
    }

    fn recognises(&self, path: &Path, text: &[u8]) -> bool {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let yaml = name.ends_with(".yml") || name.ends_with(".yaml");
        let services =
            text.starts_with(b"services:") || text.windows(10).any(|window| window == b"\nservices:");
        yaml && name.contains("compose") && services
    }

    fn read_metered(&self, file: &Path, files: &Metered<'_>) -> Result<Reading> {
        let project = Project::open(file, files)?;
        Ok(project.found().into_iter().map(|found| found.map(|found| found.setting)).collect())
    }

    fn edit_metered(
        &self,
        file: &Path,
        files: &Metered<'_>,
        setting: &Setting,
        goal: &Goal,
    ) -> Result<Vec<Edit>> {
        let project = Project::open(file, files)?;
        let found = setting.find(project.found().into_iter().flatten(), |found| &found.setting)?;
        if found.setting.endpoint == goal.endpoint {
            return Ok(Vec::new());
        }
        project.write(&found, &goal.endpoint).map_err(|why| {
            let reason = format!("{}: {why}", found.setting.name);
            let by_hand = by_hand(&found.client, &found.target, &found.server);
            project.refusal(found.setting.line, &reason, &by_hand)
        })
    }

    fn check_metered(&self, file: &Path, files: &Metered<'_>) -> Option<Check> {
        let name = file.to_str()?;
        let project = Project::open(file, files).ok()?;
        let folder = file.parent().unwrap_or(Path::new("/"));
        let mut named: Vec<PathBuf> = Vec::new();
        let mut unknown = None;
        for service in project.services() {
            match service.files() {
                Some(names) => named.extend(names.into_iter().map(|name| folder.join(name))),
                None => unknown = Some("which other files it reads (env_file, extends) is not clear".into()),
            }
        }
        let mut reads = vec![file.to_owned()];
        // Compose reads the variables of this file by itself.
        let own = file.with_file_name(".env");
        if files.exists(&own) {
            reads.push(own);
        }
        if unknown.is_none() {
            reads.extend(named);
        }
        let arguments = ["compose", "-f", name, "config", "--quiet"].map(str::to_owned).to_vec();
        Some(Check { unknown, ..Check::new(&COMPOSE, arguments, reads) })
    }

    fn in_container_metered(&self, file: &Path, files: &Metered<'_>, setting: &Setting) -> Option<String> {
        let project = Project::open(file, files).ok()?;
        let found = setting.find(project.found().into_iter().flatten(), |found| &found.setting).ok()?;
        Some(by_hand(&found.client, &found.target, &found.server))
    }

    fn uptake(&self, _file: &Path) -> Uptake {
        Uptake::RestartApplication
    }
}

struct Found<'a> {
    setting: Setting,
    client: Service<'a>,
    target: Service<'a>,
    server: Server,
    variable: Variable,
    words: Words,
}

struct Project<'a> {
    file: &'a Path,
    text: String,
    document: Document,
}

impl<'a> Project<'a> {
    fn open(file: &'a Path, files: &Metered<'_>) -> Result<Self> {
        Self::parse(file, files).map_err(|refusal| refusal.in_file(file).by_hand(BY_HAND))
    }

    fn parse(file: &'a Path, files: &Metered<'_>) -> Result<Self> {
        let text = lines::read_text(file, files, "it is not UTF-8")?;
        let document = Document::parse(&text)?;
        for name in ["include", "services", "volumes"] {
            let Some((key, _)) = document.root.get(name) else { continue };
            if name == "include" || document.root.twice(name) {
                return Err(Refusal::at(key.line, format!("{name} makes more of it than stands here")));
            }
        }
        let mut first: HashMap<Option<&str>, u32> = HashMap::new();
        let mut twice = Vec::new();
        for (key, _) in document.root.pairs_of("services") {
            let line = *first.entry(key.text()).or_insert(key.line);
            if line != key.line {
                twice.push(line);
            }
        }
        if let Some(line) = twice.into_iter().min() {
            return Err(Refusal::at(line, "a service stands in it twice"));
        }
        Ok(Project { file, text, document })
    }

    fn refusal(&self, line: u32, reason: &str, by_hand: &str) -> Refusal {
        Refusal::new(self.file, line, reason, by_hand)
    }

    fn services(&self) -> Vec<Service<'_>> {
        let mut services = Vec::new();
        for (key, map) in self.document.root.pairs_of("services") {
            let Some(name) = key.text() else { continue };
            services.push(Service::of(name, map));
        }
        services
    }

    fn found(&self) -> Vec<Result<Found<'_>>> {
        let services = Services::of(self.services());
        let mut found = Vec::new();
        for client in &services.all {
            for variable in client.variables.iter() {
                found.extend(self.connection(&services, client, variable.clone()));
            }
        }
        found
    }

    /// Meaning of a variable; `None` if it does not name a database of the file.
    fn connection<'s>(
        &'s self,
        services: &Services<'s>,
        client: &Service<'s>,
        variable: Variable,
    ) -> Option<Result<Found<'s>>> {
        const HOSTS: &[&str] =
            &["WORDPRESS_DB_HOST", "DB_HOST", "PGHOST", "DATABASE_URL", "database__connection__host"];
        let is_host = HOSTS.contains(&variable.name.as_str());
        if variable.filled && is_host && !services.servers.is_empty() {
            let reason = format!("{} {}: Compose fills it in", client.name, variable.name);
            let by_hand = format!("{}: written out, then switch again", variable.name);
            return Some(Err(self.refusal(variable.line, &reason, &by_hand)));
        }
        if !is_host && !leads(&variable.name) {
            return None;
        }
        let value = variable.value.as_deref()?;
        let host = host_of(value)?;
        let target = services.behind(client, &host)?;
        let name = format!("{} {}", client.name, variable.name);
        let refuse = |server: &Server, reason: Reason| {
            let by_hand = by_hand(client, target, server);
            Some(Err(self.refusal(variable.line, &format!("{name}: {reason}"), &by_hand)))
        };
        let Some(server) = target.server() else {
            let (why, by_hand) = unknown_image(target)?;
            let reason = format!("{name}: the image of {} {why}", target.name);
            return Some(Err(self.refusal(variable.line, &reason, &by_hand)));
        };
        let Some(words) = words(&client.client, &variable.name, value, server.protocol) else {
            // A path by itself may be anything.
            let why = "the program that reads it is unknown, and each library spells this in its own way";
            return if host.starts_with('/') { None } else { refuse(&server, why.into()) };
        };
        let endpoint = match agreed(client, target, &server, words, &variable) {
            Ok(endpoint) => endpoint,
            Err(why) => return refuse(&server, why),
        };
        let setting = Setting::connects(name, server.protocol, value, endpoint).at(self.file, variable.line);
        let setting = with_login(&client.client, words, setting);
        Some(Ok(Found { setting, client: client.clone(), target: target.clone(), server, variable, words }))
    }

    fn write(&self, found: &Found<'_>, to: &Endpoint) -> Result<Vec<Edit>, Reason> {
        let Found { client, server, variable, words, .. } = found;
        let mut edits = shared_directory(self, found, to)?;
        if let (Words::Directory(of_port), Endpoint::Unix(_)) = (words, to)
            && port(&client.client, of_port, server.port())? != server.port()
        {
            return Err("its port is a part of the socket's name, and not the image's".into());
        }
        let now = (variable.name.as_str(), variable.value.as_deref().unwrap_or_default());
        for (name, value) in written(&client.client, *words, now, server.protocol, to)? {
            edits.extend(self.set(found, name, &value)?);
        }
        Ok(edits)
    }

    /// Sets a variable: in its line, or below the one that names the server, where it is that of a socket.
    fn set(&self, found: &Found<'_>, name: &str, value: &str) -> Result<Option<Edit>, Reason> {
        match found.client.variable(name) {
            Some(now) if now.range.is_empty() => {
                Err("the variable of its socket is empty: take that line away".into())
            }
            Some(now) => Ok(minimal(self.file, now.range.start, &self.text[now.range.clone()], value)),
            None if matches!(found.words, Words::Beside(_)) => {
                self.variable(&found.variable, name, value).map(Some)
            }
            None => Err("its port is not the usual one, and no variable has it".into()),
        }
    }
}

/// What to write by hand, for each connection and not only for one that is refused: of two containers that reach each
/// other no login can be tried from outside, so that `switch` says what to write and leaves the file alone
/// (docs/switch.md, "What it edits").
fn by_hand(client: &Service<'_>, target: &Service<'_>, server: &Server) -> String {
    format!(
        "add the volume {name}-socket: below volumes: at the top of the file, mount it in both services (- {name}-socket:{directory} in volumes: of {name} and of {client}), and name {socket} in {client}'s variable; `samehost how {protocol} --client LIBRARY --compose` prints the whole file in the library's words",
        name = target.name,
        directory = server.directory,
        client = client.name,
        socket = if server.protocol == Protocol::Postgres { server.directory } else { server.socket },
        protocol = server.protocol,
    )
}

/// Why something that looks like a server is not a known one, and the manual edit; `None` for everything else.
fn unknown_image(target: &Service<'_>) -> Option<(&'static str, String)> {
    let (image, name) = (target.image()?, &target.name);
    let mut without_socket =
        Kind::all().filter(|kind| matches!(kind.protocol(), Some(Protocol::Redis | Protocol::Memcached)));
    if without_socket.any(|kind| image.contains(kind.name())) {
        let by_hand = format!(
            "{name}: command: redis-server --unixsocket /sockets/redis.sock --unixsocketperm 777, and in both services a volume at /sockets that its user may write to"
        );
        return Some(("makes no socket by itself", by_hand));
    }
    let databases = ["mysql", "mariadb", "percona", "postgres", "postgis", "timescale", "pgvector"];
    if !databases.iter().any(|name| image.contains(name)) {
        return None;
    }
    let by_hand = format!("a named volume at the directory of the socket, in {name} and in its client");
    Some(("is not one whose socket is known", by_hand))
}

struct Services<'a> {
    all: Vec<Service<'a>>,
    /// Where each name stands; none stands twice.
    named: HashMap<String, usize>,
    /// The databases, and the first two of each kind of socket.
    servers: Vec<(usize, Server)>,
}

impl<'a> Services<'a> {
    fn of(all: Vec<Service<'a>>) -> Self {
        let named = all.iter().enumerate().map(|(place, one)| (one.name.clone(), place)).collect();
        let mut servers: Vec<(usize, Server)> = Vec::new();
        for (place, service) in all.iter().enumerate() {
            let Some(server) = service.server() else { continue };
            // A client looks for another service than itself: two of a kind are enough.
            if servers.iter().filter(|(_, known)| known.directory == server.directory).count() < 2 {
                servers.push((place, server));
            }
        }
        Services { all, named, servers }
    }

    fn behind(&self, client: &Service<'_>, host: &str) -> Option<&Service<'a>> {
        if !host.starts_with('/') {
            let named = &self.all[*self.named.get(host)?];
            return if named.name == client.name { None } else { Some(named) };
        }
        for (place, server) in &self.servers {
            let found = &self.all[*place];
            if found.name != client.name && Path::new(host).starts_with(server.directory) {
                return Some(found);
            }
        }
        None
    }
}

/// The edits that make both services mount the directory of the socket.
fn shared_directory(project: &Project<'_>, found: &Found<'_>, to: &Endpoint) -> Result<Vec<Edit>, Reason> {
    let Found { client, target, server, .. } = found;
    let path = match to {
        Endpoint::Unix(path) => path,
        Endpoint::Tcp { host, .. } if *host == target.name => return Ok(Vec::new()),
        Endpoint::Tcp { .. } => return Err("a container is reached by the name of its service".into()),
        _ => return Err("only a Unix socket or plain TCP can be written here".into()),
    };
    if path != Path::new(server.socket) {
        return Err("the image has its socket elsewhere".into());
    }
    // A volume that one of them mounts there is used for the other as well.
    let there = target.mounts(server.directory).or(client.mounts(server.directory));
    let name = format!("{}-socket", target.name);
    let source = there.unwrap_or(&name);
    let mut edits = Vec::new();
    for service in [target, client] {
        if service.mounts(server.directory) == Some(source) {
            continue;
        }
        if service.covers(server.directory) {
            return Err("something else is mounted at the socket's directory".into());
        }
        edits.push(project.mount(service, source, server.directory)?);
    }
    if there.is_none() {
        edits.extend(project.declare(source)?);
    }
    Ok(edits)
}

/// Endpoint in a variable; or why it is not certain.
fn agreed(
    client: &Service<'_>,
    target: &Service<'_>,
    server: &Server,
    words: Words,
    variable: &Variable,
) -> Result<Endpoint, Reason> {
    if let Some(why) = client.unclear().or(target.unclear()).or(target.changes_socket()) {
        return Err(why.into());
    }
    if client.variable(&variable.name).is_none() {
        return Err("it stands there twice".into());
    }
    let value = variable.value.as_deref().unwrap_or_default();
    let endpoint = endpoint(&client.client, words, value, server.protocol)?;
    if matches!(endpoint, Endpoint::Unix(_)) {
        let shared = client.mounts(server.directory);
        if shared.is_none() || shared != target.mounts(server.directory) {
            return Err("it names a socket whose directory the two services do not share".into());
        }
    }
    Ok(endpoint)
}

static COMPOSE: Program =
    Program { usual: "docker", is_called: Program::has_one_name, could_not_look, service: None };

fn could_not_look(output: &str) -> bool {
    written_lines(output).next_back().is_some_and(|line| {
        line.ends_with("permission denied")
            // The environment of the shell that usually runs it is not ours.
            || line.ends_with("is missing a value")
            || line.contains("is not a docker command")
            || line.contains("unknown shorthand flag: 'f'")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_it_lacks_is_no_verdict() {
        assert!(could_not_look("open /x/.env: permission denied\n"));
        assert!(could_not_look("error while interpolating x: required variable TAG is missing a value\n"));
        assert!(!could_not_look("yaml: line 3: did not find\n"));
    }
}
