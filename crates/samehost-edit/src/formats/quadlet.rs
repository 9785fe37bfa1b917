//! Quadlet files (`NAME.container`), from which podman makes units of systemd. A variable that leads to a server of this
//! machine is edited: it gets the socket as the container sees it, and the container the socket's directory as a volume. The
//! directory, never the file: a server makes a new one each time that it starts. A container is described by how it is
//! reached, whom it reaches, and what of this machine it sees.
//!
//! What reaches another container is said, and not edited: a socket between two takes a volume in both files, and a file for the
//! volume.

use std::cell::OnceCell;
use std::ops::Range;
use std::path::{Path, PathBuf};

use samehost_model::{Endpoint, Protocol};

use super::compose::{Client, Words, endpoint, host_of, with_login, words, written};
use super::image::{Server, is_loopback, leads, name_of};
use super::systemd::{Assignment, assignments, counting, quoted, variables};
use crate::editor::Editor;
use crate::files::{Edit, Files};
use crate::lines::{self, has_only, is_plain, lines};
use crate::proposal::verify_edits;
use crate::refusal::{Reason, Refusal, Result};
use crate::setting::{Goal, Reading, Setting, Uptake};

#[derive(Debug)]
pub(crate) struct Quadlet;

/// Most files of a directory that are looked at.
const MOST_FILES: usize = 200;

impl Editor for Quadlet {
    fn name(&self) -> &'static str {
        "quadlet"
    }

    fn about(&self) -> &'static str {
        "Quadlet files of podman (.container): WordPress, Ghost, Laravel, Rails and libpq with a server of this machine"
    }

    fn recognises(&self, path: &Path, text: &[u8]) -> bool {
        if path.extension().is_none_or(|end| end != "container") {
            return false;
        }
        text.split(|byte| *byte == b'\n').any(|line| line.trim_ascii() == b"[Container]")
    }

    fn read(&self, file: &Path, files: &dyn Files) -> Result<Reading> {
        let client = Container::open(file, files)?;
        let unclear = client.unclear(file, files);
        let mut reading = Reading::default();
        let hops = hops(file, &client, unclear.as_deref()).into_iter();
        reading.extend(hops.map(|hop| Ok(hop?.setting)));
        let others = others(file, files);
        for variable in &client.variables {
            reading.refused.extend(between(file, &client, &others, variable));
        }
        Ok(reading)
    }

    fn edit(&self, file: &Path, files: &dyn Files, setting: &Setting, goal: &Goal) -> Result<Vec<Edit>> {
        if setting.endpoint == goal.endpoint {
            return Ok(Vec::new());
        }
        let client = Container::open(file, files)?;
        let unclear = client.unclear(file, files);
        let found = hops(file, &client, unclear.as_deref()).into_iter().flatten();
        let found = setting.find(found, |hop| &hop.setting)?;
        let edits = found.write(file, &goal.endpoint).map_err(|why| {
            let by_hand = format!(
                "in [Container], Volume= with the socket's directory, and {} for {}",
                setting.name, goal.endpoint
            );
            Refusal::new(file, setting.line, format!("{}: {why}", setting.name), by_hand)
        })?;
        verify_edits(self, file, files, setting, goal, edits)
    }

    fn mounts(&self) -> bool {
        true
    }

    fn uptake(&self, _file: &Path) -> Uptake {
        Uptake::RestartUnit
    }
}

fn hops<'a>(file: &Path, container: &'a Container, unclear: Option<&str>) -> Vec<Result<Hop<'a>>> {
    container.variables.iter().filter_map(|variable| hop(file, container, variable, unclear)).collect()
}

/// What is said of a variable that leads to another container: both are described, and neither is edited.
/// Editing two containers that reach each other was rejected. The volume stands in two files and a third
/// one, the server's container must be started anew, and no login can be tried before. The refusal has
/// the lines to write by hand (docs/decisions/0105).
fn between(file: &Path, client: &Container, others: &[Container], one: &Variable) -> Option<Refusal> {
    if !leads(&one.name) {
        return None;
    }
    let host = host_of(one.value.as_deref()?)?;
    for server in others {
        let is_meant = if is_loopback(&host) {
            client.pod.is_some() && client.pod == server.pod
        } else {
            server.names.contains(&host)
        };
        if !is_meant {
            continue;
        }
        let Some(served) = Server::of_image(&server.image) else { continue };
        let reason = format!(
            "{}: it reaches {} over TCP; a socket between two containers is not edited",
            one.name, server.file_name
        );
        return Some(Refusal::new(file, one.line, reason, recipe(client, server, served, &one.name)));
    }
    None
}

fn others(file: &Path, files: &dyn Files) -> Vec<Container> {
    let Some(folder) = file.parent() else { return Vec::new() };
    let mut paths = files.list(folder).unwrap_or_default();
    paths.retain(|path| path != file && path.extension().is_some_and(|end| end == "container"));
    let mut containers = Vec::new();
    for path in paths.iter().take(MOST_FILES) {
        containers.extend(Container::open(path, files).ok());
    }
    containers
}

fn recipe(client: &Container, server: &Container, served: Server, variable: &str) -> String {
    let stem = server.file_name.trim_end_matches(".container");
    // The users of two containers have no group in common; the volume is for these two alone.
    let arguments = match served.arguments("777") {
        None => String::new(),
        Some(arguments) => format!("Exec=redis-server {} in {}; ", arguments.join(" "), server.file_name),
    };
    format!(
        "{stem}-socket.volume beside them, with [Volume] in it; Volume={stem}-socket.volume:{} in [Container] of {} and of {}; {arguments}Environment={variable}={} in {}; then systemctl daemon-reload, and restart both",
        served.directory,
        server.file_name,
        client.file_name,
        served.value(variable),
        client.file_name
    )
}

/// Parts of names of variables that lead to a database or a cache.
const SERVERS: &[&str] =
    &["DB", "DATABASE", "PG", "POSTGRES", "MYSQL", "MARIADB", "REDIS", "MEMCACHE", "database__"];

struct Hop<'a> {
    setting: Setting,
    container: &'a Container,
    variable: &'a Variable,
    words: Words,
}

/// The meaning of a variable; `None` if it does not lead to a server of this machine.
fn hop<'a>(
    file: &Path,
    container: &'a Container,
    variable: &'a Variable,
    unclear: Option<&str>,
) -> Option<Result<Hop<'a>, Refusal>> {
    let name = &variable.name;
    let refuse = |why: &str| {
        let by_hand = format!(
            "Volume=DIRECTORY:DIRECTORY in [Container] of {} with the directory of the socket, and in {name} the socket as its program spells it; then systemctl daemon-reload, and restart it",
            container.file_name
        );
        Some(Err(Refusal::new(file, variable.line, format!("{name}: {why}"), by_hand)))
    };
    let is_about_server = SERVERS.iter().any(|word| name.contains(word)) && leads(&name.to_uppercase());
    if !is_about_server {
        return None;
    }
    let Some(value) = variable.value.as_deref() else {
        return if container.is_on_host() { refuse("podman or systemd fills it in") } else { None };
    };
    let host = host_of(value)?;
    let is_socket = host.starts_with('/');
    if !is_socket && !container.means_this_machine(&host) {
        return None;
    }
    let known = [Protocol::Mysql, Protocol::Postgres]
        .into_iter()
        .find_map(|protocol| words(&container.client, name, value, protocol).map(|words| (protocol, words)));
    let Some((protocol, words)) = known else {
        let why = "the program that reads it is unknown, and each library spells a socket in its own way";
        return if is_socket { None } else { refuse(why) };
    };
    if let Some(why) = unclear {
        return refuse(why);
    }
    match meaning(container, words, value, protocol) {
        Ok(endpoint) => {
            let setting = Setting::connects(name, protocol, value, endpoint?).at(file, variable.line);
            let setting = with_login(&container.client, words, setting);
            Some(Ok(Hop { setting, container, variable, words }))
        }
        Err(why) => refuse(&why.to_string()),
    }
}

/// The endpoint in a value, on this machine; `None` if it is a socket that is not mounted.
fn meaning(
    container: &Container,
    words: Words,
    value: &str,
    protocol: Protocol,
) -> Result<Option<Endpoint>, Reason> {
    if protocol == Protocol::Mysql && value == "localhost" {
        return Err("`localhost` may be a socket inside of the container; write 127.0.0.1".into());
    }
    Ok(match endpoint(&container.client, words, value, protocol)? {
        Endpoint::Unix(path) => container.outside(&path).map(Endpoint::Unix),
        Endpoint::Tcp { port, .. } if !container.is_on_host() => {
            Some(Endpoint::Tcp { host: "127.0.0.1".to_owned(), port })
        }
        other => Some(other),
    })
}

impl Hop<'_> {
    fn write(&self, file: &Path, to: &Endpoint) -> Result<Vec<Edit>, Reason> {
        let mut edits = Vec::new();
        let mut seen = to.clone();
        match to {
            Endpoint::Unix(path) => match self.container.inside(path) {
                Some(inside) => seen = Endpoint::Unix(inside),
                None => edits.push(self.mount(file, path)?),
            },
            Endpoint::Tcp { .. } if !self.container.is_on_host() => {
                return Err(
                    "whether the server takes connections from the container's network is not known here"
                        .into(),
                );
            }
            _ => {}
        }
        let now = (self.variable.name.as_str(), self.variable.value.as_deref().unwrap_or_default());
        for (name, value) in written(&self.container.client, self.words, now, self.setting.protocol, &seen)? {
            edits.push(self.set(file, name, &value)?);
        }
        Ok(edits)
    }

    fn mount(&self, file: &Path, socket: &Path) -> Result<Edit, Reason> {
        if let Some(why) = self.container.cannot_mount(socket) {
            return Err(why.into());
        }
        let text = socket.parent().unwrap_or(Path::new("/")).display().to_string();
        if !is_plain(&text) || text.contains([':', '%']) {
            return Err("its directory has unusual characters".into());
        }
        self.line(file, "Volume", &format!("Volume={text}:{text}"))
    }

    /// Sets a variable: in its own line if it is alone there, else in a new one, which counts because it is later.
    fn set(&self, file: &Path, name: &str, value: &str) -> Result<Edit, Reason> {
        let word =
            if has_only(value, "./_-:@?&=+,") { format!("{name}={value}") } else { quoted(name, value) };
        let own = self.container.client.place(name).map(|place| &self.container.variables[place]);
        match own.and_then(|one| one.alone.clone()) {
            Some(range) => Ok(Edit::new(file, range, word)),
            None => self.line(file, "Environment", &format!("Environment={word}")),
        }
    }

    fn line(&self, file: &Path, key: &str, new: &str) -> Result<Edit, Reason> {
        let text = self.container.text.as_bytes();
        let range = self.container.last_of(key).ok_or("no variable is set in it")?;
        let all = lines(text);
        let line = all.iter().rfind(|line| line.range.start <= range.end).ok_or("it is empty")?;
        Ok(lines::insert_below(file, text, line, new))
    }
}

const SECTION: &str = "Container";
/// What a container with a network of its own calls this machine.
const THIS_MACHINE: &[&str] = &["host.containers.internal", "host.docker.internal"];
/// Options of `podman run` that say what keys of the file say as well.
const OPTIONS: &[&str] =
    &["-e", "--env", "-v", "--volume", "--mount", "--net", "--pod", "--tmpfs", "--add-host"];

#[derive(Default)]
struct Container {
    file_name: String,
    text: String,
    /// Hosts by which others reach it.
    names: Vec<String>,
    image: String,
    pod: Option<String>,
    variables: Vec<Variable>,
    client: Client,
    on_host: OnceCell<bool>,
    all: Vec<Assignment>,
}

struct Variable {
    name: String,
    /// None where podman or systemd fills something in.
    value: Option<String>,
    line: u32,
    /// Where its whole assignment stands, if that is in one line and sets nothing else.
    alone: Option<Range<usize>>,
}

struct Mount<'a> {
    here: &'a Path,
    there: &'a Path,
}

impl Container {
    fn open(file: &Path, files: &dyn Files) -> Result<Self> {
        let text =
            lines::read_text(file, files, "it is not UTF-8").map_err(|refusal| refusal.in_file(file))?;
        // The syntax is that of systemd's units.
        let mut all = assignments(file, text.as_bytes())?;
        all.retain(|one| one.section == SECTION);
        let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let mut container = Container {
            file_name: file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
            names: vec![format!("systemd-{stem}")],
            text,
            all,
            ..Container::default()
        };
        container.image = container.last("Image").unwrap_or_default().to_owned();
        container.pod = container.last("Pod").map(str::to_owned);
        if let Some(name) = container.last("ContainerName") {
            container.names[0] = name.to_owned();
        }
        for key in ["NetworkAlias", "HostName"] {
            let more: Vec<String> = container.list(key).iter().map(|one| one.value.clone()).collect();
            container.names.extend(more);
        }
        container.variables = container.environment();
        let values = container.variables.iter().map(|one| (one.name.as_str(), one.value.as_deref()));
        container.client = Client::new(Some(name_of(&container.image)), values);
        Ok(container)
    }

    fn list(&self, key: &str) -> Vec<&Assignment> {
        counting(self.all.iter().filter(|one| one.key == key))
    }

    fn last(&self, key: &str) -> Option<&str> {
        self.list(key).last().map(|one| one.value.as_str())
    }

    fn environment(&self) -> Vec<Variable> {
        let mut found = Vec::new();
        for one in variables(self.list("Environment")) {
            let range = one.assignment.range.clone();
            let is_alone = one.is_alone && !self.text[range.clone()].contains('\n');
            found.push(Variable {
                name: one.name,
                value: if one.odd.is_none() { Some(one.value) } else { None },
                line: one.assignment.line,
                alone: if is_alone { Some(range) } else { None },
            });
        }
        found
    }

    /// Why what is read here may not be what podman is told; `None` if it is.
    /// Whatever may contradict the file is refused and not followed: drop-ins (not every podman that reads
    /// these files reads them), templates, options of `PodmanArgs=` that say the same as keys, and rights that
    /// are taken from the container (docs/decisions/0105).
    fn unclear(&self, file: &Path, files: &dyn Files) -> Option<String> {
        let folders = [format!("{}.d", self.file_name), "container.d".to_owned()];
        let of_stem = file.file_stem().is_some_and(|stem| stem.to_string_lossy().contains('@'));
        if of_stem {
            return Some("it is a template, or an instance of one".to_owned());
        }
        for folder in folders {
            let found = files.list(&file.with_file_name(&folder)).unwrap_or_default();
            if found.iter().any(|path| path.extension().is_some_and(|end| end == "conf")) {
                return Some(format!("files in {folder} add to it"));
            }
        }
        for one in self.list("PodmanArgs") {
            let mut words = one.value.split_ascii_whitespace();
            if words.any(|word| OPTIONS.iter().any(|option| word.starts_with(option))) {
                return Some(format!("PodmanArgs= in line {} sets such things too", one.line));
            }
        }
        if self.last("DropCapability").is_some() && self.last("User").is_none() {
            return Some(
                "DropCapability= may take from root the right to use a socket of another user".to_owned(),
            );
        }
        if self.last("SecurityLabelDisable") != Some("true")
            && files.read(Path::new("/sys/fs/selinux/enforce")).is_ok_and(|text| text == b"1")
        {
            return Some(
                "SELinux keeps containers from sockets of this machine; SecurityLabelDisable=true would let it"
                    .to_owned(),
            );
        }
        None
    }

    fn is_on_host(&self) -> bool {
        *self.on_host.get_or_init(|| {
            self.pod.is_none() && self.list("Network").iter().any(|network| network.value == "host")
        })
    }

    fn means_this_machine(&self, host: &str) -> bool {
        if self.is_on_host() { is_loopback(host) } else { THIS_MACHINE.contains(&host) }
    }

    fn mounts(&self) -> Vec<Mount<'_>> {
        let mut mounts = Vec::new();
        for one in self.list("Volume") {
            let mut parts = one.value.split(':');
            let (Some(here), Some(there)) = (parts.next(), parts.next()) else { continue };
            if [here, there].iter().all(|path| path.starts_with('/') && !path.contains('%')) {
                mounts.push(Mount { here: Path::new(here), there: Path::new(there) });
            }
        }
        mounts
    }

    /// What the container calls a path of this machine.
    fn inside(&self, path: &Path) -> Option<PathBuf> {
        let mounts = self.mounts();
        let fitting = mounts.iter().filter(|mount| path.starts_with(mount.here) && path != mount.here);
        let mount = fitting.max_by_key(|mount| mount.here.components().count())?;
        let found = mount.there.join(path.strip_prefix(mount.here).ok()?);
        // Another volume may lie over it.
        if self.outside(&found).as_deref() == Some(path) { Some(found) } else { None }
    }

    /// The path on this machine of what the container calls so.
    fn outside(&self, path: &Path) -> Option<PathBuf> {
        let mounts = self.mounts();
        let over = mounts.iter().filter(|mount| path.starts_with(mount.there));
        let mount = over.max_by_key(|mount| mount.there.components().count())?;
        let rest = path.strip_prefix(mount.there).ok()?;
        // Joined with nothing, it would end with a slash.
        Some(if rest == Path::new("") { mount.here.to_owned() } else { mount.here.join(rest) })
    }

    /// Why the directory of a socket of this machine cannot be mounted at the same path; `None` if it can.
    /// The directory, never the socket's file: a server makes another file each time that it starts, and a mounted file
    /// stays the old one. It gets no `:z`, which would relabel the server's own directory and may close it to the
    /// server (docs/decisions/0105).
    fn cannot_mount(&self, socket: &Path) -> Option<String> {
        if self.mounts().iter().any(|mount| mount.here == socket) {
            return Some(
                "its Volume= mounts the socket's file, and the server makes another one when it starts; mount the directory"
                    .to_owned(),
            );
        }
        let directory = socket.parent().unwrap_or(Path::new("/"));
        let text = directory.display().to_string();
        if directory.components().count() < 3 {
            return Some(format!("{text} as a whole would hide the container's own"));
        }
        let mut taken: Vec<&str> = Vec::new();
        for one in self.list("Volume") {
            taken.extend(one.value.split(':').nth(1));
        }
        for one in self.list("Tmpfs") {
            taken.extend(one.value.split(':').next());
        }
        let is_taken = taken.iter().any(|path| Path::new(path) == directory)
            || self.list("Mount").iter().any(|one| one.value.contains(&text));
        if is_taken { Some(format!("something else is mounted at {text} already")) } else { None }
    }

    /// Where a new assignment goes: the bytes of the last one of this key, else of another one.
    fn last_of(&self, key: &str) -> Option<Range<usize>> {
        for key in [key, "Environment"] {
            if let Some(last) = self.all.iter().rfind(|one| one.key == key) {
                return Some(last.range.clone());
            }
        }
        None
    }
}
