//! `ExecStart=`: where the command of a known server listens.

use super::environment::Environment;
use super::listens::Listens;
use super::servers::{base, server};
use super::unit::{Assignment, OURS, Unit, add, in_place, under};
use super::words::{Word, command};
use crate::edit::Edit;
use crate::files::Files;
use crate::refusal::{At, Refusal, Result};
use crate::setting::{Goal, Setting};

/// A command that listens.
pub(super) struct Command<'a> {
    unit: &'a Unit,
    assignment: &'a Assignment,
    words: Vec<Word>,
    listens: Listens,
}

impl<'a> Command<'a> {
    /// The command of a unit; `None` if it does not listen, as far as one can see.
    pub(super) fn of(unit: &'a Unit, environment: &Environment, files: &dyn Files) -> Result<Option<Self>> {
        let all = unit.list("Service", "ExecStart");
        let Some(assignment) = all.last().copied() else { return Ok(None) };
        let here = At { file: &assignment.file, line: assignment.line };
        let Some(words) = command(&assignment.value) else {
            return Err(
                here.refusal("a quote of ExecStart= does not end", "put that in order, and switch again")
            );
        };
        let Some((program, server)) = server(&words) else { return unknown(assignment, &words) };
        let by_hand =
            format!("in a drop-in, ExecStart= (empty), then ExecStart= with {}", hint(server.name()));
        if all.len() > 1 || words.iter().any(|word| word.text == ";" && word.raw.len() == 1) {
            return Err(here.refusal("it has several commands", by_hand));
        }
        let prefix = assignment.value.trim_start_matches(['-', ':', '+', '!']);
        if prefix.starts_with(['@', '|']) {
            return Err(here.refusal("its command has another name than its program, or a shell", by_hand));
        }
        let listens = match server.listens(&words, program) {
            Ok(listens) => listens,
            Err(reason) => return Err(here.refusal(reason, by_hand)),
        };
        if let Some(name) = server.variables.iter().find(|name| environment.has(name))
            && !listens.is_bound()
        {
            return Err(here.refusal(format!("{name} says where it listens as well"), by_hand));
        }
        if !listens.is_said() {
            let directory = unit.last("Service", "WorkingDirectory").map_or("/", |one| one.value.as_str());
            let directory = under(&unit.root, directory.trim_start_matches('-'));
            if let Some(name) = server.unasked.filter(|name| files.read(&directory.join(name)).is_ok()) {
                return Err(here
                    .refusal(format!("{name} in its working directory may say where it listens"), by_hand));
            }
            if let Some(one) = unit.list("Service", "EnvironmentFile").first() {
                return Err(here.refusal(format!("{} may say where it listens", one.value), by_hand));
            }
        }
        if let Some(socket) = unit.socket(files).filter(|_| server.takes_sockets()) {
            let by_hand = format!("samehost switch {}", socket.display());
            return Err(here.refusal(format!("{} hands it its socket", socket.display()), by_hand));
        }
        Ok(Some(Command { unit, assignment, words, listens }))
    }

    pub(super) fn setting(&self) -> Setting {
        Setting {
            backlog: self.listens.backlog,
            ..Setting::listens(
                "ExecStart",
                self.listens.server.protocol,
                self.listens.endpoint.to_string(),
                self.listens.endpoint.clone(),
            )
            .at(&self.assignment.file, self.assignment.line)
        }
    }

    pub(super) fn edit(&self, files: &dyn Files, goal: &Goal) -> Result<Vec<Edit>> {
        let one = self.assignment;
        let stop = |reason: String| {
            let by_hand = format!(
                "in a drop-in, ExecStart= (empty), then ExecStart= with {}",
                hint(self.listens.server.name())
            );
            Refusal::new(&one.file, one.line, reason, by_hand)
        };
        if self.unit.is_later(&one.file) {
            return Err(stop(format!("this drop-in counts before the one that would be written ({OURS})")));
        }
        let moved = self.listens.moved(&one.value, &self.words, goal).map_err(stop)?;
        if let Some(edit) = in_place(self.unit, one, &moved) {
            return Ok(vec![edit]);
        }
        let new = ["ExecStart=".to_owned(), format!("ExecStart={moved}")];
        Ok(add(self.unit, files, "Service", &new))
    }
}

/// What an unknown program may do with an address in its command.
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
        return Err(Refusal::new(&assignment.file, assignment.line, reason, by_hand));
    }
    let reason = format!("what {program} makes of the address in its command is not known");
    let by_hand =
        format!("in a drop-in, ExecStart= (empty), then ExecStart= with {program}'s own words for a socket");
    Err(Refusal::new(&assignment.file, assignment.line, reason, by_hand))
}

/// How a server says a socket.
fn hint(server: &str) -> &'static str {
    match server {
        "gunicorn" => "--bind unix:/run/NAME/NAME.sock",
        "uvicorn" => "--uds /run/NAME/NAME.sock",
        "puma" => "--bind unix:///run/NAME/NAME.sock",
        "thin" => "--socket /run/NAME/NAME.sock",
        "memcached" => "-s /run/memcached/memcached.sock -a 0770",
        _ => "--port 0 --unixsocket /run/redis/redis.sock --unixsocketperm 770",
    }
}
