//! postgresql.conf: where the server listens, and the edits that make it listen elsewhere. The name of the socket contains the
//! port; its directory is in `unix_socket_directories`. Values of ALTER SYSTEM override the file, and are left to ALTER SYSTEM.

mod parameters;

use std::path::{Path, PathBuf};

use samehost_model::{Endpoint, Protocol};
use samehost_services::Kind;

use self::parameters::{Parameter, Parameters, parse};
use crate::budget::Metered;
use crate::editor::Editor;
use crate::files::{Edit, Files};
use crate::lines::{
    self, Line, append, has_only, insert_below, is_loopback, is_plain, lines, listening_host, socket_path,
};
use crate::proposal::Editing;
use crate::refusal::{Refusal, Result};
use crate::setting::{Goal, Reading, Setting, Uptake};

const WATCHED: &[&str] = &[
    "port", "listen_addresses", "unix_socket_directories", "unix_socket_directory",
    "unix_socket_permissions", "unix_socket_group",
];

const PORT: u16 = 5432;

pub(crate) struct Postgresql;

struct Listening {
    parameters: Parameters,
    port: u16,
    /// The addresses as written; empty if TCP is closed.
    hosts: Vec<String>,
    /// The directories of the sockets; `None` if the file does not set them.
    folders: Option<Vec<String>>,
}

impl Editor for Postgresql {
    fn name(&self) -> &'static str {
        "postgresql"
    }

    fn about(&self) -> &'static str {
        "postgresql.conf: where the server listens"
    }

    fn recognises(&self, path: &Path, text: &[u8]) -> bool {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !name.ends_with(".conf") {
            return false;
        }
        name.starts_with("postgresql.")
            || lines(text).any(|line| sets_watched(text[line.range.clone()].trim_ascii()))
    }

    fn read_metered(&self, file: &Path, files: &Metered<'_>) -> Result<Reading> {
        Ok(reading(file, &listening(file, files)?))
    }

    fn edit_metered(
        &self,
        file: &Path,
        files: &Metered<'_>,
        setting: &Setting,
        goal: &Goal,
    ) -> Result<Vec<Edit>> {
        Editing::new(file, files, &listening(file, files)?, setting, goal)?.edits()
    }

    fn listens_on_both(&self) -> bool {
        true
    }

    fn may_contradict_itself(&self) -> bool {
        true
    }

    /// Each cluster of a machine has its port in the name.
    fn uptake(&self, _file: &Path) -> Uptake {
        Uptake::Restart(Kind::Postgres)
    }
}

/// Whether a line sets something about listening; `port` alone is a word of many programs.
fn sets_watched(line: &[u8]) -> bool {
    for name in &WATCHED[1..] {
        let Some(rest) = line.strip_prefix(name.as_bytes()) else { continue };
        if rest.first().is_some_and(|byte| b" \t='".contains(byte)) {
            return true;
        }
    }
    false
}

/// The items of a list; none where the value is empty.
fn items(value: &str) -> Vec<&str> {
    if value.trim().is_empty() { Vec::new() } else { value.split(',').map(str::trim).collect() }
}

fn listening(file: &Path, files: &Metered<'_>) -> Result<Listening> {
    let parameters = Parameters::read(file, files)?;
    overridden(file, files, &parameters)?;
    let mut found = Listening { parameters, port: PORT, hosts: vec!["127.0.0.1".into()], folders: None };
    if let Some(parameter) = found.parameters.last("unix_socket_directory") {
        let reason = "this parameter ended with version 9.2";
        return Err(parameter.refusal(reason, "write unix_socket_directories"));
    }
    if let Some(parameter) = found.parameters.last("port") {
        let digits = Some(parameter.value.as_str()).filter(|value| !value.starts_with(['0', '+']));
        match digits.and_then(|digits| digits.parse().ok()) {
            Some(port) => found.port = port,
            None => {
                let by_hand = "write it in decimal: `port = 5432`";
                return Err(parameter.refusal("the port is not a plain number", by_hand));
            }
        }
    }
    if let Some(parameter) = found.parameters.last("listen_addresses") {
        let hosts = items(&parameter.value);
        if !hosts.iter().all(|host| *host == "*" || !host.is_empty() && has_only(host, ".:-_")) {
            let reason = "the list of addresses is not understood";
            return Err(parameter.refusal(reason, "write it without inner quotes"));
        }
        found.hosts.clear();
        for host in hosts {
            found.hosts.push(if host == "*" { "0.0.0.0".into() } else { listening_host(host) });
        }
    }
    if let Some(parameter) = found.parameters.last("unix_socket_directories") {
        let folders = items(&parameter.value);
        if !folders.iter().all(|folder| folder.starts_with('/') && !folder.contains(['"', '\'', '\\'])) {
            let reason = "the list of directories has quotes, an abstract name or a relative path";
            let by_hand = "write each directory from / on, without inner quotes";
            return Err(parameter.refusal(reason, by_hand));
        }
        found.folders = Some(folders.iter().map(|folder| canonical(folder)).collect());
    }
    Ok(found)
}

fn canonical(folder: &str) -> String {
    let trimmed = folder.trim_end_matches('/');
    if trimmed.is_empty() { "/".into() } else { trimmed.to_owned() }
}

/// Refuses if postgresql.auto.conf, which the server reads last, sets something about listening.
fn overridden(file: &Path, files: &Metered<'_>, parameters: &Parameters) -> Result<()> {
    let folder = match parameters.last("data_directory") {
        Some(parameter) => PathBuf::from(&parameter.value),
        None => file.parent().map(Path::to_owned).unwrap_or_default(),
    };
    let path = folder.join("postgresql.auto.conf");
    if let Err(error) = files.read(&path)
        && matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
    {
        return Ok(());
    }
    let set = Parameters::read(&path, files)?;
    let Some(parameter) = set.list.iter().find(|parameter| WATCHED.contains(&parameter.name.as_str())) else {
        return Ok(());
    };
    let reason = if path == file {
        "this file belongs to ALTER SYSTEM".to_owned()
    } else {
        format!("ALTER SYSTEM has set `{}`, which wins over {}", parameter.name, file.display())
    };
    let by_hand = format!("as the superuser of the database: ALTER SYSTEM RESET {};", parameter.name);
    Err(parameter.refusal(reason, by_hand))
}

/// A listener, and the parameter that says so; without one it is the server's default.
fn setting(file: &Path, name: String, endpoint: Endpoint, at: Option<&Parameter>) -> Setting {
    let (written, file, line) = match at {
        Some(at) => (at.value.clone(), at.file.as_path(), at.line.number),
        None => (endpoint.to_string(), file, 1),
    };
    Setting::listens(name, Protocol::Postgres, written, endpoint).at(file, line)
}

fn reading(file: &Path, listening: &Listening) -> Reading {
    let mut settings = Vec::new();
    let host = listening.hosts.iter().find(|host| is_loopback(host)).or_else(|| listening.hosts.first());
    if let Some(endpoint) = host.and_then(|host| lines::tcp(host, listening.port)) {
        let at = listening.parameters.last("listen_addresses").or_else(|| listening.parameters.last("port"));
        settings.push(setting(file, "listen_addresses".into(), endpoint, at));
    }
    for (index, folder) in listening.folders.iter().flatten().enumerate() {
        let name = match index {
            0 => "unix_socket_directories".to_owned(),
            _ => format!("unix_socket_directories, {}", index + 1),
        };
        let path = socket(folder, listening.port);
        if let Some(endpoint) = lines::unix(&path) {
            let at = listening.parameters.last("unix_socket_directories");
            settings.push(setting(file, name, endpoint, at));
        }
    }
    Reading { settings, refused: Vec::new() }
}

fn socket(folder: &str, port: u16) -> String {
    format!("{}/.s.PGSQL.{port}", folder.trim_end_matches('/'))
}

impl Editing<'_, Listening> {
    fn edits(mut self) -> Result<Vec<Edit>> {
        match &self.goal.endpoint {
            Endpoint::Unix(_) => self.listen_unix()?,
            Endpoint::Tcp { host, port } => self.listen_tcp(host, *port)?,
            other => {
                let reason = format!("this setting cannot be changed to {other}");
                return Err(self.refuse(reason, "choose a socket's path"));
            }
        }
        Ok(self.edits)
    }

    fn last(&self, name: &str) -> Option<&Parameter> {
        self.configuration.parameters.last(name)
    }

    fn is_tcp(&self) -> bool {
        matches!(self.setting.endpoint, Endpoint::Tcp { .. })
    }

    fn listen_unix(&mut self) -> Result<()> {
        let (goal, port) = (self.goal, self.configuration.port);
        let by_hand = "add the socket's directory to unix_socket_directories";
        let path = socket_path(&goal.endpoint).map_err(|reason| self.refuse(reason, by_hand))?;
        let folder = path.strip_suffix(&format!("/.s.PGSQL.{port}")).unwrap_or_default();
        if folder.is_empty() || !is_plain(folder) {
            let wanted = socket("/DIRECTORY", port);
            return Err(self.refuse(
                format!("the server's socket is always {wanted}, in a directory with a plain name"),
                format!("choose unix:/run/postgresql/.s.PGSQL.{port}, say, and {by_hand}"),
            ));
        }
        let folder = canonical(folder);
        let folders = self.folders(&folder)?;
        if self.is_tcp() || goal.stays {
            if !folders.contains(&folder) {
                let list = [folders.as_slice(), std::slice::from_ref(&folder)].concat().join(", ");
                self.set("unix_socket_directories", &format!("'{list}'"));
            } else if self.configuration.folders.is_none() {
                self.set("unix_socket_directories", &format!("'{}'", folders.join(", ")));
            }
        } else if self.setting.endpoint != goal.endpoint {
            let own = self.own_folder();
            let list: Vec<&str> =
                folders.iter().map(|one| if *one == own { folder.as_str() } else { one.as_str() }).collect();
            self.set("unix_socket_directories", &format!("'{}'", list.join(", ")));
        }
        self.access(&folders, &folder)?;
        if !goal.stays && self.is_tcp() { self.close() } else { Ok(()) }
    }

    /// The present directories; if the file does not set them, the built-in ones according to its comment.
    fn folders(&self, wanted: &str) -> Result<Vec<String>> {
        if let Some(folders) = &self.configuration.folders {
            return Ok(folders.clone());
        }
        let comment = self.comment("unix_socket_directories").map(|(_, value)| value);
        let folders: Vec<String> =
            comment.iter().flat_map(|list| list.split(',')).map(|folder| canonical(folder.trim())).collect();
        if folders.iter().any(|folder| folder == wanted) {
            return Ok(folders);
        }
        Err(Refusal::new(
            self.file,
            0,
            "unix_socket_directories is not set, and what is built into the server is not known here",
            format!("SHOW unix_socket_directories, and write them and {wanted} into the parameter"),
        ))
    }

    fn own_folder(&self) -> String {
        match self.setting.endpoint.path().and_then(Path::parent) {
            Some(folder) => folder.display().to_string(),
            None => String::new(),
        }
    }

    fn access(&mut self, folders: &[String], folder: &str) -> Result<()> {
        let Some(access) = &self.goal.access else { return Ok(()) };
        let wanted = access.mode & 0o777;
        let present = match self.last("unix_socket_permissions") {
            Some(at) => mode(&at.value),
            None => Some(0o777),
        };
        let Some(present) = present else {
            let by_hand = format!("write `unix_socket_permissions = {wanted:#05o}`").replace("0o", "0");
            return Err(self.refuse("unix_socket_permissions is not understood", by_hand));
        };
        let others = folders.iter().any(|one| one != folder);
        let present_group = self.configuration.parameters.last("unix_socket_group");
        let present_group = present_group.map_or("", |at| at.value.as_str());
        let there = folders.iter().any(|one| one == folder);
        // An existing socket that admits the clients stays as it is, because others use it.
        let lets_in =
            access.group.as_deref().is_none_or(|wanted| wanted == present_group) || present & 0o6 == 0o6;
        if there && present & wanted == wanted && lets_in {
            return Ok(());
        }
        let others = others || (there && self.configuration.folders.is_some());
        if others && present & !wanted != 0 {
            return Err(self.refuse(
                "unix_socket_permissions holds for all sockets: users of the other directories could lose access",
                format!("keep {present:o}, or write `unix_socket_permissions = 0{wanted:o}`"),
            ));
        }
        if present != wanted {
            self.set("unix_socket_permissions", &format!("0{wanted:o}"));
        }
        let Some(group) = access.group.as_deref() else { return Ok(()) };
        if present_group == group {
            return Ok(());
        }
        if !is_plain(group) || (others && !present_group.is_empty()) {
            let reason = "unix_socket_group holds for all sockets, and is another one";
            return Err(self.refuse(reason, format!("write `unix_socket_group = '{group}'`")));
        }
        self.set("unix_socket_group", &format!("'{group}'"));
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        if let Some(open) = self.configuration.hosts.iter().find(|host| !is_loopback(host)) {
            return Err(self.refuse(
                format!("the server also listens at {open}, where other machines may need it"),
                "keep TCP open; or, if only this machine uses it, write `listen_addresses = ''`",
            ));
        }
        if !self.configuration.hosts.is_empty() {
            self.set("listen_addresses", "''");
        }
        Ok(())
    }

    fn listen_tcp(&mut self, host: &str, port: u16) -> Result<()> {
        let host = listening_host(host);
        let by_hand = format!("write `listen_addresses = '{host}'` and `port = {port}`");
        if self.setting.endpoint == self.goal.endpoint {
            return Ok(());
        }
        if port != self.configuration.port {
            return Err(self.refuse("another port would give the sockets another name", by_hand));
        }
        if !is_loopback(&host) {
            return Err(self.refuse("only an address that other machines do not reach is written", by_hand));
        }
        let hosts = &self.configuration.hosts;
        if self.is_tcp() || (!hosts.is_empty() && !hosts.contains(&host)) {
            let reason = format!("`listen_addresses` has other addresses ({})", hosts.join(", "));
            return Err(self.refuse(reason, by_hand));
        }
        if hosts.is_empty() {
            let written = if host == "127.0.0.1" { "localhost" } else { host.as_str() };
            self.set("listen_addresses", &format!("'{written}'"));
        }
        if !self.goal.stays {
            let own = self.own_folder();
            let kept = self.configuration.folders.iter().flatten().filter(|folder| **folder != own);
            let list = kept.cloned().collect::<Vec<_>>().join(", ");
            self.set("unix_socket_directories", &format!("'{list}'"));
        }
        Ok(())
    }

    /// Writes a parameter: in place of the effective one, or as a new line below its comment or a related line.
    fn set(&mut self, name: &str, written: &str) {
        if let Some(at) = self.last(name) {
            let edit = Edit::new(&at.file, at.written.clone(), written);
            self.edits.push(edit);
            return;
        }
        let new = format!("{name} = {written}");
        let relations = ["unix_socket_directories", "listen_addresses", "port", "max_connections"];
        let mut related =
            relations.iter().filter_map(|name| self.last(name)).filter(|at| at.file == self.file);
        let place = match self.comment(name) {
            Some((line, _)) => Some(line),
            None => related.next().map(|at| at.line.clone()),
        };
        self.edits.push(match place {
            Some(line) => insert_below(self.file, &self.text, &self.explanation(line), &new),
            None => append(self.file, &self.text, &new),
        });
    }

    /// Last line of the comment that continues below a parameter: `# (change requires restart)`, indented.
    fn explanation(&self, line: Line) -> Line {
        let mut last = line;
        for next in lines(&self.text).skip(last.number as usize) {
            let content = &self.text[next.range.clone()];
            let indented = content.first().is_some_and(|byte| matches!(byte, b' ' | b'\t'));
            if !indented || !content.trim_ascii_start().starts_with(b"#") {
                break;
            }
            last = next;
        }
        last
    }

    /// The commented-out line that would set a name, and its value.
    fn comment(&self, name: &str) -> Option<(Line, String)> {
        for line in lines(&self.text) {
            if self.text[line.range.clone()].first() != Some(&b'#') {
                continue;
            }
            let found = parse(&self.text, line.range.start + 1..line.range.end);
            let Ok(Some((found, value, _))) = found else { continue };
            if found == name {
                return Some((line, value));
            }
        }
        None
    }
}

/// Permissions as the server reads them: octal with a leading zero.
fn mode(value: &str) -> Option<u32> {
    match value.strip_prefix('0') {
        Some("") => Some(0),
        Some(octal) => u32::from_str_radix(octal, 8).ok(),
        None => value.parse().ok(),
    }
}
