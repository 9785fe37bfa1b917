//! postgresql.conf: where the server listens. The name of the socket contains the port; its directory is in
//! `unix_socket_directories`. Values of ALTER SYSTEM override the file, and are left to ALTER SYSTEM.

mod edit;
mod parameters;

use std::path::{Path, PathBuf};

use samehost_model::{Endpoint, Protocol};
use samehost_services::Kind;

use self::parameters::{Parameter, Parameters};
use crate::edit::Edit;
use crate::editing::Editing;
use crate::editor::Editor;
use crate::files::Files;
use crate::goal::Goal;
use crate::lines::{self, has_only, is_loopback, listening_host};
use crate::proposal::verify_edits;
use crate::refusal::{Refusal, Result};
use crate::setting::{Reading, Setting, Uptake};

/// What decides where the server listens.
const WATCHED: &[&str] = &[
    "port",
    "listen_addresses",
    "unix_socket_directories",
    "unix_socket_directory",
    "unix_socket_permissions",
    "unix_socket_group",
];
/// The port where nothing is said.
const PORT: u16 = 5432;

/// postgresql.conf.
pub(crate) struct Postgresql;

/// What a configuration says about listening.
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
            || lines::lines(text).iter().any(|line| {
                let line = text[line.range.clone()].trim_ascii();
                WATCHED[1..].iter().any(|name| {
                    let rest = line.strip_prefix(name.as_bytes());
                    rest.is_some_and(|rest| rest.first().is_some_and(|byte| b" \t='".contains(byte)))
                })
            })
    }

    fn read(&self, file: &Path, files: &dyn Files) -> Result<Reading> {
        Ok(reading(file, &listening(file, files)?))
    }

    fn edit(&self, file: &Path, files: &dyn Files, setting: &Setting, goal: &Goal) -> Result<Vec<Edit>> {
        let edits = Editing::new(file, files, &listening(file, files)?, setting, goal)?.edits()?;
        verify_edits(self, file, files, setting, goal, edits)
    }

    fn listens_on_both(&self) -> bool {
        true
    }

    fn uptake(&self, _file: &Path) -> Uptake {
        Uptake::Restart(Kind::Postgres)
    }
}

/// Reads a configuration; refuses it if anything is not understood.
fn listening(file: &Path, files: &dyn Files) -> Result<Listening> {
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
        let hosts: Vec<&str> = parameter
            .value
            .split(',')
            .map(str::trim)
            .filter(|_| !parameter.value.trim().is_empty())
            .collect();
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
        let folders: Vec<&str> = parameter
            .value
            .split(',')
            .map(str::trim)
            .filter(|_| !parameter.value.trim().is_empty())
            .collect();
        if !folders.iter().all(|folder| folder.starts_with('/') && !folder.contains(['"', '\'', '\\'])) {
            let reason = "the list of directories has quotes, an abstract name or a relative path";
            let by_hand = "write each directory from / on, without inner quotes";
            return Err(parameter.refusal(reason, by_hand));
        }
        found.folders = Some(folders.iter().map(|folder| canonical(folder)).collect());
    }
    Ok(found)
}

/// A directory without trailing slashes.
fn canonical(folder: &str) -> String {
    let trimmed = folder.trim_end_matches('/');
    if trimmed.is_empty() { "/".into() } else { trimmed.to_owned() }
}

/// Refuses if postgresql.auto.conf, which the server reads last, sets something about listening.
fn overridden(file: &Path, files: &dyn Files, parameters: &Parameters) -> Result<()> {
    let folder = parameters.last("data_directory").map(|parameter| PathBuf::from(&parameter.value));
    let folder = folder.or_else(|| file.parent().map(Path::to_owned)).unwrap_or_default();
    let path = folder.join("postgresql.auto.conf");
    match files.read(&path) {
        Err(error)
            if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) =>
        {
            return Ok(());
        }
        _ => {}
    }
    let set = Parameters::read(&path, files)?;
    match set.0.iter().find(|parameter| WATCHED.contains(&parameter.name.as_str())) {
        Some(parameter) if path != file => Err(Refusal::new(
            &path,
            parameter.line.number,
            format!("ALTER SYSTEM has set `{}`, which wins over {}", parameter.name, file.display()),
            format!("as the superuser of the database: ALTER SYSTEM RESET {};", parameter.name),
        )),
        Some(parameter) => Err(Refusal::new(
            &path,
            parameter.line.number,
            "this file belongs to ALTER SYSTEM",
            format!("as the superuser of the database: ALTER SYSTEM RESET {};", parameter.name),
        )),
        None => Ok(()),
    }
}

/// A listener, and the parameter that says so; without one it is the server's default.
fn setting(file: &Path, name: String, endpoint: Endpoint, at: Option<&Parameter>) -> Setting {
    let spelled = at.map_or_else(|| endpoint.to_string(), |at| at.value.clone());
    let (file, line) = at.map_or((file, 1), |at| (&at.file, at.line.number));
    Setting::listens(name, Protocol::Postgres, spelled, endpoint).at(file, line)
}

/// The settings.
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
        if let Ok(endpoint @ Endpoint::Unix(_)) = format!("unix:{path}").parse() {
            let at = listening.parameters.last("unix_socket_directories");
            settings.push(setting(file, name, endpoint, at));
        }
    }
    Reading { settings, refused: Vec::new() }
}

/// The socket in a directory.
fn socket(folder: &str, port: u16) -> String {
    format!("{}/.s.PGSQL.{port}", folder.trim_end_matches('/'))
}
