//! Units of systemd: where a known server's command listens, what `Environment=` passes to an application, and where a
//! socket unit listens. Neither the vendor's file nor the administrator's own is edited: changes go into a drop-in,
//! `/etc/systemd/system/UNIT.d/50-samehost.conf`, and are changed back there.

mod environment;
mod listens;
mod unit;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use samehost_model::{Endpoint, Protocol};

use self::environment::Environment;
use self::unit::{Assignment, OURS, Unit, Word, add, command, counting, in_place, under, words};
use crate::budget::Metered;
use crate::editor::Editor;
use crate::files::{Edit, Files};
use crate::languages::url::is_plain_path;
use crate::lines::{host_and_port, is_loopback, listening_host, tcp};
use crate::refusal::{Reason, Refusal, Result};
use crate::setting::{Goal, Reading, Role, Setting, Uptake};
use listens::{Listens, Say, base, server};

pub use self::environment::{EnvironmentFile, environment_files, places};

/// The words of a value as systemd splits them, without their quotes; none of one whose quote is not closed, which it ignores.
#[must_use]
pub fn unquoted(value: &str) -> Vec<String> {
    words(value).unwrap_or_default().into_iter().map(|word| word.text).collect()
}

/// What a unit's file assigns, in whatever section, as systemd joins its lines: key, value and the first line's number. A unit that
/// cannot be edited says where it leads all the same.
#[must_use]
pub fn assigned(text: &str) -> Vec<(String, String, u32)> {
    let mut found = Vec::new();
    for (line, number, _) in unit::logical_lines(text) {
        if let Some((key, value)) = line.split_once('=') {
            found.push((key.trim().to_owned(), value.trim().to_owned(), number));
        }
    }
    found
}

pub(crate) struct Systemd;

impl Editor for Systemd {
    fn name(&self) -> &'static str {
        "systemd"
    }

    fn about(&self) -> &'static str {
        "units of systemd: commands of servers, environments of applications, sockets"
    }

    fn recognises(&self, path: &Path, text: &[u8]) -> bool {
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        let has =
            |title: &str| text.split(|byte| *byte == b'\n').any(|line| line.trim_ascii() == title.as_bytes());
        match path.extension().and_then(|end| end.to_str()) {
            Some("service") => has("[Service]"),
            Some("socket") => has("[Socket]"),
            _ => false,
        }
    }

    fn read_metered(&self, file: &Path, files: &Metered<'_>) -> Result<Reading> {
        let unit = Unit::open(file, files)?;
        let mut reading = Reading::default();
        if is_socket(file) {
            let socket = Socket::of(&unit, file, files).transpose();
            reading.extend(socket.map(|found| Ok(found?.setting)));
            return Ok(reading);
        }
        let environment = Environment::new(&unit, file);
        let command = Command::of(&unit, &environment, files).transpose();
        reading.extend(command.map(|found| Ok(found?.setting())));
        let variables = environment.read(files);
        reading.settings.extend(variables.settings);
        reading.refused.extend(variables.refused);
        Ok(reading)
    }

    fn edit_metered(
        &self,
        file: &Path,
        files: &Metered<'_>,
        setting: &Setting,
        goal: &Goal,
    ) -> Result<Vec<Edit>> {
        if setting.endpoint == goal.endpoint {
            return Ok(Vec::new());
        }
        let unit = Unit::open(file, files)?;
        let edits = if is_socket(file) {
            let socket = Socket::of(&unit, file, files)?.ok_or_else(|| setting.gone())?;
            socket.edit(files, goal)?
        } else {
            if let Some(refusal) = forbidden(&unit, setting, goal) {
                return Err(refusal);
            }
            let environment = Environment::new(&unit, file);
            if setting.role == Role::Listens {
                let command = Command::of(&unit, &environment, files)?.ok_or_else(|| setting.gone())?;
                command.edit(files, goal)?
            } else {
                environment.edit(files, setting, goal)?
            }
        };
        Ok(edits)
    }

    // No check: systemd-analyze verify also reports problems of other units that this one needs.

    fn may_contradict_itself(&self) -> bool {
        true
    }

    fn uptake(&self, _file: &Path) -> Uptake {
        Uptake::RestartUnit
    }
}

fn is_socket(file: &Path) -> bool {
    file.extension().is_some_and(|end| end == "socket")
}

fn words_of<'a>(unit: &'a Unit, key: &str) -> Vec<&'a str> {
    let all = unit.list("Service", key).into_iter();
    all.flat_map(|one| one.value.split_ascii_whitespace()).collect()
}

/// The refusal of a goal that the unit's sandbox keeps the service from; `None` if it lets it.
fn forbidden(unit: &Unit, setting: &Setting, goal: &Goal) -> Option<Refusal> {
    let Endpoint::Unix(path) = &goal.endpoint else { return None };
    if let [.., last] = unit.list("Service", "RestrictAddressFamilies").as_slice() {
        let words = words_of(unit, "RestrictAddressFamilies");
        let is_denied = words.first().is_some_and(|word| word.starts_with('~'));
        if words.iter().any(|word| word.trim_start_matches('~') == "AF_UNIX") == is_denied {
            let by_hand = "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 in a drop-in";
            return Some(last.refusal("it does not let the service use Unix sockets", by_hand));
        }
    }
    for key in ["RootDirectory", "RootImage"] {
        if let Some(one) = unit.last("Service", key) {
            let by_hand = format!("name the socket as the service sees it below {key}=");
            return Some(one.refusal("the service sees another file system", by_hand));
        }
    }
    if let Some(one) = unit.last("Service", "PrivateTmp")
        && matches!(one.value.as_str(), "yes" | "true" | "on" | "1")
        && (path.starts_with("/tmp") || path.starts_with("/var/tmp"))
    {
        return Some(one.refusal("the service has a /tmp of its own", "choose a path below /run"));
    }
    let strict = unit.last("Service", "ProtectSystem").filter(|one| one.value == "strict")?;
    let mut writable = Vec::new();
    for (key, place) in
        [("RuntimeDirectory", "/run/"), ("StateDirectory", "/var/lib/"), ("ReadWritePaths", "")]
    {
        for word in words_of(unit, key) {
            writable.push(format!("{place}{}", word.trim_start_matches(['-', '+'])));
        }
    }
    if setting.role == Role::Listens && !writable.iter().any(|place| path.starts_with(place)) {
        let name = unit.name.split(['.', '@']).next().unwrap_or_default();
        let by_hand = format!("RuntimeDirectory={name} in a drop-in, and a socket in /run/{name}");
        return Some(strict.refusal("it does not let the service write there", by_hand));
    }
    None
}

// `ExecStart=`: where the command of a known server listens.

struct Command<'a> {
    unit: &'a Unit,
    assignment: &'a Assignment,
    words: Vec<Word>,
    listens: Listens,
}

impl<'a> Command<'a> {
    /// The command of a unit; `None` if it does not listen, as far as one can see.
    fn of(unit: &'a Unit, environment: &Environment, files: &Metered<'_>) -> Result<Option<Self>> {
        let all = unit.list("Service", "ExecStart");
        let Some(assignment) = all.last().copied() else { return Ok(None) };
        let here = assignment;
        let Some(words) = command(&assignment.value) else {
            let by_hand = "put that in order, and switch again";
            return Err(here.refusal("a quote of ExecStart= does not end", by_hand));
        };
        let Some((program, server)) = server(&words) else { return unknown(assignment, &words) };
        let by_hand = by_hand(server.by_hand);
        if all.len() > 1 || words.iter().any(|word| word.text == ";" && word.raw.len() == 1) {
            return Err(here.refusal("it has several commands", by_hand));
        }
        let prefix = assignment.value.trim_start_matches(['-', ':', '+', '!']);
        if prefix.starts_with(['@', '|']) {
            return Err(here.refusal("its command has another name than its program, or a shell", by_hand));
        }
        let listens =
            server.listens(&words, program).map_err(|reason| here.refusal(reason, by_hand.as_str()))?;
        if let Some(name) = server.variables.iter().find(|name| environment.has(name))
            && !listens.is_bound()
        {
            return Err(here.refusal(format!("{name} says where it listens as well"), by_hand));
        }
        if !listens.names_place() {
            let directory = unit.last("Service", "WorkingDirectory").map_or("/", |one| one.value.as_str());
            let directory = under(&unit.root, directory.trim_start_matches('-'));
            let unasked = "gunicorn.conf.py";
            if server.say == Say::Gunicorn && files.read(&directory.join(unasked)).is_ok() {
                let reason = format!("{unasked} in its working directory may say where it listens");
                return Err(here.refusal(reason, by_hand));
            }
            if let Some(one) = unit.list("Service", "EnvironmentFile").first() {
                return Err(here.refusal(format!("{} may say where it listens", one.value), by_hand));
            }
        }
        if server.takes_sockets()
            && let Some(socket) = unit.socket(files)
        {
            let by_hand = format!("samehost switch {}", socket.display());
            return Err(here.refusal(format!("{} hands it its socket", socket.display()), by_hand));
        }
        Ok(Some(Command { unit, assignment, words, listens }))
    }

    fn setting(&self) -> Setting {
        let Listens { server, endpoint, backlog, .. } = &self.listens;
        let setting = Setting::listens("ExecStart", server.protocol, endpoint.to_string(), endpoint.clone());
        Setting { backlog: *backlog, ..setting.at(&self.assignment.file, self.assignment.line) }
    }

    fn edit(&self, files: &Metered<'_>, goal: &Goal) -> Result<Vec<Edit>> {
        let one = self.assignment;
        let by_hand = by_hand(self.listens.server.by_hand);
        if self.unit.is_later(&one.file) {
            return Err(one.later(by_hand));
        }
        let moved = self.listens.moved(&one.value, &self.words, goal);
        let moved = moved.map_err(|reason| one.refusal(reason, by_hand))?;
        if let Some(edit) = in_place(self.unit, one, &moved) {
            return Ok(vec![edit]);
        }
        let new = ["ExecStart=".to_owned(), format!("ExecStart={moved}")];
        Ok(add(self.unit, files, "Service", &new))
    }
}

fn unknown<'a>(assignment: &Assignment, words: &[Word]) -> Result<Option<Command<'a>>> {
    let leads_here = words.iter().find(|word| {
        ["127.0.0.1", "localhost", "[::1]"].iter().any(|place| word.text.contains(place))
            || ["memcached.conf", "redis.conf"].iter().any(|file| word.text.ends_with(file))
    });
    let Some(word) = leads_here else { return Ok(None) };
    let program = base(&words[0].text);
    if word.text.ends_with(".conf") {
        let reason = format!("where {program} listens is said in {}", word.text);
        let by_hand = format!("samehost switch {}", word.text);
        return Err(assignment.refusal(reason, by_hand));
    }
    let reason = format!("what {program} makes of the address in its command is not known");
    Err(assignment.refusal(reason, by_hand(&format!("{program}'s own words for a socket"))))
}

fn by_hand(words: &str) -> String {
    format!("in a drop-in, ExecStart= (empty), then ExecStart= with {words}")
}

// Socket units: `ListenStream=`, if the service that gets the socket is known to accept any kind.

const SOCKET_BY_HAND: &str = "in a drop-in, ListenStream= (empty), then ListenStream=/run/NAME.sock";
/// Services that accept any listening socket from systemd.
const TAKERS: &[(&str, Protocol)] =
    &[("gunicorn", Protocol::Http), ("dockerd", Protocol::Http), ("systemd-socket-proxyd", Protocol::Plain)];

struct Socket<'a> {
    unit: &'a Unit,
    assignment: &'a Assignment,
    setting: Setting,
}

impl<'a> Socket<'a> {
    fn of(unit: &'a Unit, file: &Path, files: &Metered<'_>) -> Result<Option<Self>> {
        // An empty assignment of any kind resets all of them.
        let all = unit.all.iter();
        let all = counting(all.filter(|one| one.section == "Socket" && one.key.starts_with("Listen")));
        let Some(assignment) = all.first().copied() else { return Ok(None) };
        let stop = |reason: &str| Err(assignment.refusal(reason, SOCKET_BY_HAND));
        if all.len() > 1 {
            return stop("it listens at several places");
        }
        if assignment.key != "ListenStream" {
            return stop("it is not a stream");
        }
        if let Some(accept) = unit.last("Socket", "Accept")
            && !matches!(accept.value.as_str(), "no" | "false" | "off" | "0")
        {
            return stop("it starts a service for each connection");
        }
        let Some(endpoint) = place(&assignment.value) else { return stop("its address is unusual") };
        let protocol =
            taker(unit, file, files).map_err(|reason| assignment.refusal(reason, SOCKET_BY_HAND))?;
        let backlog = unit.last("Socket", "Backlog").and_then(|one| one.value.parse().ok());
        let setting = Setting::listens("ListenStream", protocol, &assignment.value, endpoint);
        let setting = Setting { backlog, ..setting.at(&assignment.file, assignment.line) };
        Ok(Some(Socket { unit, assignment, setting }))
    }

    fn edit(&self, files: &Metered<'_>, goal: &Goal) -> Result<Vec<Edit>> {
        let one = self.assignment;
        let stop = |reason: String| one.refusal(reason, SOCKET_BY_HAND);
        if self.unit.is_later(&one.file) {
            return Err(one.later(SOCKET_BY_HAND));
        }
        if let Endpoint::Tcp { host, .. } = &self.setting.endpoint
            && !is_loopback(host)
        {
            return Err(stop(format!("it listens at {host}, where other machines may need it")));
        }
        let value = match &goal.endpoint {
            Endpoint::Unix(path) if path.to_str().is_some_and(is_plain_path) => path.display().to_string(),
            Endpoint::Tcp { host, port } if *port > 0 && is_loopback(&listening_host(host)) => {
                host_and_port(&listening_host(host), *port)
            }
            _ => return Err(stop("such an address is not written in a socket unit".into())),
        };
        let (mut edits, mut new) = (Vec::new(), Vec::new());
        match in_place(self.unit, one, &value) {
            Some(edit) => edits.push(edit),
            None => new.extend(["ListenStream=".to_owned(), format!("ListenStream={value}")]),
        }
        let mut wanted: Vec<(&str, String)> = Vec::new();
        if let (Some(access), Endpoint::Unix(_)) = (&goal.access, &goal.endpoint) {
            wanted.extend(access.owner.iter().map(|owner| ("SocketUser", owner.clone())));
            wanted.extend(access.group.iter().map(|group| ("SocketGroup", group.clone())));
            wanted.push(("SocketMode", format!("{:04o}", access.mode & 0o777)));
        }
        wanted.extend(goal.backlog.map(|backlog| ("Backlog", backlog.to_string())));
        for (key, value) in wanted {
            match self.unit.last("Socket", key) {
                Some(present) if present.value == value => {}
                Some(present) if self.unit.is_later(&present.file) => {
                    return Err(stop(format!("{key}= is set in a drop-in that counts before {OURS}")));
                }
                _ => new.push(format!("{key}={value}")),
            }
        }
        if !new.is_empty() {
            edits.extend(add(self.unit, files, "Socket", &new));
        }
        Ok(edits)
    }
}

fn place(value: &str) -> Option<Endpoint> {
    let words = words(value)?;
    let [word] = words.as_slice() else { return None };
    if word.dynamic.is_some() || word.raw.len() != value.len() || word.text != value {
        return None;
    }
    if value.starts_with('/') {
        return if is_plain_path(value) { Some(Endpoint::Unix(value.into())) } else { None };
    }
    if let Ok(port) = value.parse::<u16>() {
        return if port > 0 { tcp("::", port) } else { None };
    }
    let (host, port) = value.rsplit_once(':')?;
    let port: u16 = port.parse().ok()?;
    let (host, is_address) = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(bare) => (bare, bare.parse::<Ipv6Addr>().is_ok()),
        None => (host, host.parse::<Ipv4Addr>().is_ok()),
    };
    if is_address && port > 0 { tcp(host, port) } else { None }
}

/// Protocol of the service that gets the socket; an error if that is not known to accept any socket.
fn taker(unit: &Unit, file: &Path, files: &Metered<'_>) -> Result<Protocol, Reason> {
    let unknown = |program: &str| {
        Reason::from(format!("whether {program} takes a Unix socket from systemd is not known"))
    };
    let name = match unit.last("Socket", "Service") {
        Some(named) => named.value.clone(),
        None => unit.name.trim_end_matches("socket").to_owned() + "service",
    };
    let path = unit.find(&name, files).unwrap_or_else(|| file.with_file_name(&name));
    let service = Unit::open(&path, files).map_err(|_| unknown(&name))?;
    let all = service.list("Service", "ExecStart");
    let [one] = all.as_slice() else { return Err(unknown(&name)) };
    let words = command(&one.value).ok_or_else(|| unknown(&name))?;
    let program = match server(&words) {
        Some((_, server)) => server.name(),
        None => base(&words.first().ok_or_else(|| unknown(&name))?.text),
    };
    for (taker, protocol) in TAKERS {
        if *taker == program {
            return Ok(*protocol);
        }
    }
    Err(unknown(program))
}
