//! Quadlet files (`NAME.container`), from which podman makes units of systemd. A variable that leads to a server of this
//! machine is edited: it gets the socket as the container sees it, and the container the socket's directory as a volume. The
//! directory, never the file: a server makes a new one each time that it starts.
//!
//! What reaches another container is said, and not edited: a socket between two takes a volume in both files, and a file for the
//! volume.

mod container;
mod hop;

use std::path::Path;

use super::compose::host_of;
use super::image::{Listens, Served, arguments, is_loopback, leads};
use crate::edit::Edit;
use crate::editor::Editor;
use crate::files::Files;
use crate::goal::Goal;
use crate::proposal::verify_edits;
use crate::refusal::{Refusal, Result};
use crate::setting::{Reading, Setting, Uptake};
use container::{Container, Variable};
use hop::{Hop, hop};

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
        "Quadlet files of podman (.container): WordPress, Ghost, Laravel, Rails and libpq with a server of this machine"
    }

    fn recognises(&self, path: &Path, text: &[u8]) -> bool {
        let has_section =
            || text.split(|byte| *byte == b'\n').any(|line| line.trim_ascii() == b"[Container]");
        path.extension().is_some_and(|end| end == "container") && has_section()
    }

    fn read(&self, file: &Path, files: &dyn Files) -> Result<Reading> {
        let client = Container::open(file, files)?;
        let unclear = client.unclear(file, files);
        let found = hops(file, &client, unclear.as_deref());
        let mut reading: Reading = found.map(|hop| hop.map(|hop| hop.setting)).collect();
        let others = others(file, files);
        reading
            .refused
            .extend(client.variables.iter().filter_map(|one| between(file, &client, &others, one)));
        Ok(reading)
    }

    fn edit(&self, file: &Path, files: &dyn Files, setting: &Setting, goal: &Goal) -> Result<Vec<Edit>> {
        if setting.endpoint == goal.endpoint {
            return Ok(Vec::new());
        }
        let client = Container::open(file, files)?;
        let unclear = client.unclear(file, files);
        let found = hops(file, &client, unclear.as_deref()).flatten();
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

/// The variables that lead to servers of this machine.
fn hops<'a>(
    file: &'a Path,
    container: &'a Container,
    unclear: Option<&'a str>,
) -> impl Iterator<Item = Result<Hop<'a>>> {
    container.variables.iter().filter_map(move |variable| hop(file, container, variable, unclear))
}

/// Whether a variable of this name may lead to a server; Ghost's are in small letters.
fn leads_or_host(name: &str) -> bool {
    leads(&name.to_uppercase())
}

/// What is said of a variable that leads to another container.
fn between(file: &Path, client: &Container, others: &[Container], one: &Variable) -> Option<Refusal> {
    let host = host_of(one.value.as_deref()?).filter(|_| leads(&one.name))?;
    let (server, served) = others.iter().find_map(|other| {
        let is_it = if is_loopback(&host) {
            client.pod.is_some() && client.pod == other.pod
        } else {
            other.names.contains(&host)
        };
        Some((other, Served::of_image(&other.image).filter(|_| is_it)?))
    })?;
    let reason = format!(
        "{}: it reaches {} over TCP; a socket between two containers is not edited",
        one.name, server.file_name
    );
    Some(Refusal::new(file, one.line, reason, recipe(client, server, &served, &one.name)))
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
