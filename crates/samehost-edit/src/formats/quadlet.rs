//! Quadlet files (`NAME.container`), from which podman makes units of systemd: which container reaches another one's
//! database or Redis over TCP, and what to write instead. Nothing is edited: a socket takes a volume in both files and a
//! file for the volume, and what podman makes of them depends on its version.

use std::path::Path;

use super::compose::host_of;
use super::image::{Listens, Served, arguments, is_loopback, leads};
use super::systemd::{Assignment, assignments, words};
use crate::edit::Edit;
use crate::editor::Editor;
use crate::files::Files;
use crate::goal::Goal;
use crate::lines;
use crate::refusal::{Refusal, Result};
use crate::setting::{Reading, Setting, Uptake};

/// The reader of Quadlet files.
#[derive(Debug)]
pub(crate) struct Quadlet;

/// Most files of a directory that are looked at.
const MOST_FILES: usize = 200;

impl Editor for Quadlet {
    fn name(&self) -> &'static str {
        "quadlet"
    }

    fn about(&self) -> &'static str {
        "Quadlet files of podman (.container): says what to write; nothing is edited"
    }

    fn recognises(&self, path: &Path, text: &[u8]) -> bool {
        let has_section =
            || text.split(|byte| *byte == b'\n').any(|line| line.trim_ascii() == b"[Container]");
        path.extension().is_some_and(|end| end == "container") && has_section()
    }

    fn read(&self, file: &Path, files: &dyn Files) -> Result<Reading> {
        let client = Container::open(file, files)?;
        let others = others(file, files);
        let hop = |(name, value, line): &(String, String, u32)| {
            let host = host_of(value).filter(|_| leads(name))?;
            let (server, served) = others.iter().find_map(|other| {
                let is_it = if is_loopback(&host) {
                    client.pod.is_some() && client.pod == other.pod
                } else {
                    other.names.contains(&host)
                };
                Some((other, Served::of_image(&other.image).filter(|_| is_it)?))
            })?;
            let reason =
                format!("{name}: it reaches {} over TCP; Quadlet files are not edited", server.file_name);
            Some(Refusal::new(file, *line, reason, recipe(&client, server, &served, name)))
        };
        Ok(Reading { settings: Vec::new(), refused: client.variables.iter().filter_map(hop).collect() })
    }

    fn edit(&self, _: &Path, _: &dyn Files, setting: &Setting, _: &Goal) -> Result<Vec<Edit>> {
        Err(setting.gone())
    }

    fn uptake(&self, _file: &Path) -> Uptake {
        Uptake::RestartUnit
    }
}

/// The part of a file that says how a container is reached, and whom it reaches.
struct Container {
    file_name: String,
    /// Hosts by which others reach it.
    names: Vec<String>,
    image: String,
    pod: Option<String>,
    /// Name, value and line of each variable.
    variables: Vec<(String, String, u32)>,
}

/// The other containers of the directory.
fn others(file: &Path, files: &dyn Files) -> Vec<Container> {
    let all = file.parent().and_then(|folder| files.list(folder).ok()).unwrap_or_default();
    let containers = all
        .into_iter()
        .filter(|path| path != file && path.extension().is_some_and(|end| end == "container"))
        .take(MOST_FILES);
    containers.filter_map(|path| Container::open(&path, files).ok()).collect()
}

impl Container {
    fn open(file: &Path, files: &dyn Files) -> Result<Self> {
        let text = lines::read_text(file, files, "it is not UTF-8")?;
        // The syntax is that of systemd's units.
        let all = assignments(file, text.as_bytes())?;
        let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let mut container = Container {
            file_name: file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
            names: vec![format!("systemd-{stem}")],
            image: String::new(),
            pod: None,
            variables: Vec::new(),
        };
        for Assignment { key, value, line, .. } in all.into_iter().filter(|one| one.section == "Container") {
            match key.as_str() {
                "ContainerName" => container.names[0] = value,
                "NetworkAlias" | "HostName" => container.names.push(value),
                "Image" => container.image = value,
                "Pod" => container.pod = Some(value),
                "Environment" => {
                    let pairs = words(&value).into_iter().flatten().filter_map(|word| {
                        let (name, value) = word.text.split_once('=')?;
                        Some((name.to_owned(), value.to_owned(), line))
                    });
                    container.variables.extend(pairs);
                }
                _ => {}
            }
        }
        Ok(container)
    }
}

/// What to write for a client and a server.
fn recipe(client: &Container, server: &Container, served: &Served, variable: &str) -> String {
    let stem = server.file_name.trim_end_matches(".container");
    let arguments = match served.listens {
        Listens::ByItself => String::new(),
        // The users of two containers have no group in common; the volume is for these two alone.
        Listens::WithArguments => {
            format!("Exec=redis-server {} in {}; ", arguments("777").join(" "), server.file_name)
        }
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
