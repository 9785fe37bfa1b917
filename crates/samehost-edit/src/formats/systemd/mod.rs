//! Units of systemd: where a known server's command listens, what `Environment=` passes to an application, and where a
//! socket unit listens. Neither the vendor's file nor the administrator's own is edited: changes go into a drop-in,
//! `/etc/systemd/system/UNIT.d/50-samehost.conf`, and are changed back there.

mod command;
mod environment;
mod listens;
mod servers;
mod socket;
mod unit;
mod words;

use std::path::Path;

use samehost_model::Endpoint;

pub use self::environment::{EnvironmentFile, environment_files, places};

use self::command::Command;
use self::environment::Environment;
use self::socket::Socket;
use self::unit::Unit;
pub(super) use self::unit::{Assignment, assignments};
pub(super) use self::words::{quoted, words};
use crate::edit::Edit;
use crate::editor::Editor;
use crate::files::Files;
use crate::proposal::verify_edits;
use crate::refusal::{Refusal, Result};
use crate::setting::{Goal, Reading, Role, Setting, Uptake};

/// Units.
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

    fn read(&self, file: &Path, files: &dyn Files) -> Result<Reading> {
        let unit = Unit::open(file, files)?;
        let mut reading = Reading::default();
        if is_socket(file) {
            match Socket::of(&unit, file, files) {
                Ok(found) => reading.settings.extend(found.map(|found| found.setting)),
                Err(refusal) => reading.refused.push(refusal),
            }
            return Ok(reading);
        }
        let environment = Environment::new(&unit, file);
        match Command::of(&unit, &environment, files) {
            Ok(found) => reading.settings.extend(found.map(|found| found.setting())),
            Err(refusal) => reading.refused.push(refusal),
        }
        let variables = environment.read(files);
        reading.settings.extend(variables.settings);
        reading.refused.extend(variables.refused);
        Ok(reading)
    }

    fn edit(&self, file: &Path, files: &dyn Files, setting: &Setting, goal: &Goal) -> Result<Vec<Edit>> {
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
        verify_edits(self, file, files, setting, goal, edits)
    }

    // No check: systemd-analyze verify also reports problems of other units that this one needs.

    fn uptake(&self, _file: &Path) -> Uptake {
        Uptake::RestartUnit
    }
}

fn is_socket(file: &Path) -> bool {
    file.extension().is_some_and(|end| end == "socket")
}

/// The words of a key of the service, of all its lines.
fn words_of<'a>(unit: &'a Unit, key: &str) -> Vec<&'a str> {
    let all = unit.list("Service", key).into_iter();
    all.flat_map(|one| one.value.split_ascii_whitespace()).collect()
}

/// What the unit's sandbox forbids the service.
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
