//! Who leads to a place that a server is about to leave: lines of running web servers, settings that an editor reads
//! and that do not move, values of any text of the plan's files and of those around them (`texts`), and what processes
//! were told when they were started (`processes`). One answer for `--close-tcp`, for a server that can be at one place only, and for
//! `switch finish`, which asks again.
//!
//! What a value is a part of is asked of its reader (`configuration::leads::Readers`), which says whether it moves. Nearness of
//! lines decided before, and a second store's host, four lines below a cache that moved, was taken for a part of the
//! cache: its port was closed under it.

use std::collections::BTreeSet;

use samehost_edit::{Files, Lead, LeadForm, Role, Setting, leads_among};
use samehost_model::Endpoint;
use samehost_model::scan::Scan;
use samehost_scan::services_at;
use samehost_services::{Kind, Localhost};

use super::elsewhere::{self, Named};
use super::left::{Left, Sources, is_there, leads_there};
use super::processes::told;
use super::texts::{Text, Whose, assigned, is_code, names, texts};
use crate::configuration::leads::{Readers, localhost_of};
use crate::configuration::server_files::folder;
use crate::disk::{Disk, Reads};
use crate::findings::{place, shown};
use crate::place::real;
use crate::plan::hop::Hop;
use crate::plan::stages::follow::assignments;

/// All that leads to a place that is left, each with what to do about it; none where nothing that is known does. With it
/// a note where there is more than is looked at.
pub(crate) fn who_leads_there(
    scan: &Scan,
    left: Left<'_>,
    sources: &Sources,
) -> (Vec<Named>, Option<String>) {
    let mut found = elsewhere::named(scan, left.from, left.to, left.hops);
    let mut moving: BTreeSet<String> = BTreeSet::new();
    for (_, line) in &sources.inert {
        moving.extend(assignments(line.as_bytes()).into_keys());
    }
    let assigned = assigned(sources);
    let (texts, is_cut) = texts(scan, &[left], sources);
    for text in texts {
        let Values { staying, moving: parts, is_cut } = text.values(scan, left, (sources, &assigned));
        moving.extend(parts.into_iter().map(|one| one.name));
        if is_cut {
            found.push(text.not_read_to_its_end(left));
        }
        for one in staying.into_iter().take(MOST_TOLD) {
            // A line of a web server is told by its process.
            let is_told = found.iter().any(|other| other.found.contains(&place(&text.path, one.line)));
            if !is_told {
                found.push(text.named(&one, left));
            }
        }
    }
    for one in told(scan, left, &moving) {
        if !found.contains(&one) {
            found.push(one);
        }
    }
    let note = format!(
        "this machine has more settings than are searched: not all was looked at for what leads to {}",
        left.from
    );
    (found, is_cut.then_some(note))
}

/// The sources of a switch with the lines that stay and lead nowhere, before its files are written.
pub(crate) fn with_inert(scan: &Scan, lefts: &[Left<'_>], sources: &Sources) -> Sources {
    let mut sources = sources.clone();
    let assigned = assigned(&sources);
    for text in texts(scan, lefts, &sources).0 {
        for left in lefts {
            for one in text.values(scan, *left, (&sources, &assigned)).moving {
                sources.inert.insert((text.path.clone(), text.line(one.line).trim().to_owned()));
            }
        }
    }
    sources
}

/// How many values of one text are told: each of them keeps the place open.
const MOST_TOLD: usize = 24;

/// Words before an address of code that connects to nobody there.
const NO_CLIENT: &[&str] = &[
    "==", "!=", "listen", "bind", "serve(", ".run(", "env", "default", "print", "echo", "help", "usage",
    "placeholder", "description", "example", "e.g.", "expect(", "assert", "raise ", "throw ", "log(", "log.",
    "logger", "logging.", "warn(", "error(", "info(", "debug(",
];
/// What is around the documentation of Python and Elixir.
const DOCUMENTED: &str = "\"\"\"";

struct Value {
    line: u32,
    name: String,
}

/// The values of a text that lead to a place: those that stay, and those that are a part of what moves.
struct Values {
    staying: Vec<Value>,
    moving: Vec<Value>,
    /// Whether the text has more than is looked at.
    is_cut: bool,
}

impl Text {
    fn line(&self, number: u32) -> &str {
        self.text.lines().nth((number as usize).saturating_sub(1)).unwrap_or_default()
    }

    fn named(&self, one: &Value, left: Left<'_>) -> Named {
        let name = if one.name.is_empty() { String::new() } else { format!(" {}", one.name) };
        Named {
            found: format!("{}:{name} leads to {} and stays", place(&self.path, one.line), left.from),
            remedy: format!(
                "Have it use {} first, by hand or by naming its file as well; or take the line out where nothing reads it",
                left.to
            ),
        }
    }

    fn not_read_to_its_end(&self, left: Left<'_>) -> Named {
        Named {
            found: format!(
                "{} has more values than are read: whether one leads to {} is not known",
                shown(&self.path),
                left.from
            ),
            remedy: format!("Look through it for {}, and close the place by hand", left.from),
        }
    }

    /// The values that lead to a place, given what the plan knows of them and which variables its configurations set: the
    /// default of one that is set counts for nobody.
    fn values(
        &self,
        scan: &Scan,
        left: Left<'_>,
        (sources, assigned): (&Sources, &BTreeSet<String>),
    ) -> Values {
        let mut staying = self.settings_that_stay(scan, left);
        let mut moving = Vec::new();
        let mut readers =
            Readers::of(self.readers.iter().map(|one| &**one).collect(), &self.path, &self.text);
        let (leads, is_cut) =
            leads_among(&self.text, &self.path.to_string_lossy(), &|lead| leads_there(scan, lead, left.from));
        for lead in leads {
            let there = lead.endpoints.iter().find(|endpoint| is_there(scan, endpoint, left.from));
            let Some(there) = there.filter(|there| self.may_connect(scan, &lead, there, assigned)) else {
                continue;
            };
            let is_inert =
                sources.inert.contains(&(self.path.clone(), self.line(lead.line).trim().to_owned()));
            let is_told = staying.iter().any(|one| one.line == lead.line);
            let is_socket = localhost_of(scan, &self.path, &lead, there) == Some(Localhost::Socket);
            if is_inert || is_told || is_socket {
                continue;
            }
            let value = Value { line: lead.line, name: lead.name.clone() };
            let is_part = match readers.parts(&lead) {
                Some(settings) if settings.is_empty() => None,
                Some(settings) => Some(settings.iter().any(|setting| moves(setting, left.hops))),
                None => self.by_line(left, lead.line),
            };
            match is_part {
                Some(true) => moving.push(value),
                Some(false) => {}
                None => staying.push(value),
            }
        }
        Values { staying, moving, is_cut }
    }

    fn may_connect(&self, scan: &Scan, lead: &Lead, there: &Endpoint, assigned: &BTreeSet<String>) -> bool {
        let is_port = lead.form == LeadForm::Port;
        let kinds = services_at(scan, there).into_iter().filter_map(|at| scan.services.get(at)?.kind);
        let is_named = |text: &str| kinds.clone().any(|kind| names(text, kind));
        let is_its = match self.whose {
            Whose::Applications => true,
            Whose::Servers => !is_port,
            // A script that starts the server asks it as well whether it runs.
            Whose::OthersCode => {
                self.is_an_address(lead) && !(is_port && kinds.clone().any(|kind| self.starts(kind)))
            }
            Whose::Machines | Whose::OtherProjects => {
                // A number is a port of this server where an option or a variable says so. `-l` is where a program listens, and a
                // published port leads nowhere.
                let is_option = lead.name.eq_ignore_ascii_case("-p");
                let is_sure = !is_port || is_option || is_named(&lead.name);
                let is_own = ["-l", "ports"].contains(&&*lead.name);
                let is_one = lead.endpoints.len() == 1 || is_named(&self.text);
                // What another project sets in place of a default is known by its `.env`. Every Laravel ships with defaults in its code,
                // whatever it uses; one in a file of settings was written by somebody.
                let is_set = || {
                    let is_default = self.whose == Whose::OtherProjects && !lead.unless.is_empty();
                    let is_set = |name: &String| self.is_set_beside(name);
                    is_default && (is_code(&self.path) || lead.unless.iter().any(is_set))
                };
                is_sure && is_one && !is_own && !is_set()
            }
        };
        let is_set = lead.unless.iter().any(|name| assigned.contains(name));
        lead.form != LeadForm::MountedPath && is_its && !is_set
    }

    /// Whether a value of code is an address to which that connects: any library has `localhost` and the usual port as its default, in
    /// what it prints and documents, and where it listens.
    fn is_an_address(&self, lead: &Lead) -> bool {
        let is_option = lead.form == LeadForm::Port && lead.name.eq_ignore_ascii_case("-p");
        let line = self.line(lead.line);
        let before =
            line.get(..(lead.column as usize).saturating_sub(1)).unwrap_or(line).to_ascii_lowercase();
        let above = self.text.lines().take(lead.line.saturating_sub(1) as usize);
        (is_option || !matches!(lead.form, LeadForm::Port | LeadForm::Usual))
            && lead.unless.is_empty()
            && lead.endpoints.len() == 1
            && NO_CLIENT.iter().all(|word| !before.contains(word))
            && !line.trim_start().starts_with(DOCUMENTED)
            && above.map(|line| line.matches(DOCUMENTED).count()).sum::<usize>() % 2 == 0
    }

    fn starts(&self, kind: Kind) -> bool {
        let mut names = self.text.split_whitespace().filter_map(|word| word.rsplit('/').next());
        names.any(|name| kind.descriptor().programs.iter().any(|program| program == name))
    }

    /// Whether the `.env` of the project around a text sets a variable.
    fn is_set_beside(&self, name: &str) -> bool {
        let around = folder(&self.path).ancestors().take(3).map(|folder| folder.join(".env"));
        around.into_iter().any(|file| {
            let bytes = Disk::of(&file, Reads::Application, None).read(&file).unwrap_or_default();
            assignments(&bytes).contains_key(name)
        })
    }

    /// Settings of this text that lead to the place and are none of those that move.
    fn settings_that_stay(&self, scan: &Scan, left: Left<'_>) -> Vec<Value> {
        let mut staying: Vec<Value> = Vec::new();
        for setting in self.readers.iter().flat_map(|reader| &reader.reading.settings) {
            let is_its = setting.role == Role::Connects && real(&setting.file) == real(&self.path);
            if is_its
                && is_there(scan, &setting.endpoint, left.from)
                && !moves(setting, left.hops)
                && staying.iter().all(|one| one.line != setting.line)
            {
                staying.push(Value { line: setting.line, name: setting.name.clone() });
            }
        }
        staying
    }

    /// Whether all addresses of a line are parts of settings, by the line alone: of one that has its address from another line,
    /// or of a text with very many.
    fn by_line(&self, left: Left<'_>, line: u32) -> Option<bool> {
        let mut all = self.readers.iter().flat_map(|reader| &reader.reading.settings);
        all.find(|one| one.line == line).map(|one| moves(one, left.hops))
    }
}

fn moves(setting: &Setting, hops: &[Hop]) -> bool {
    hops.iter().any(|hop| {
        hop.setting.name == setting.name
            && hop.setting.line == setting.line
            && real(&hop.setting.file) == real(&setting.file)
    })
}
