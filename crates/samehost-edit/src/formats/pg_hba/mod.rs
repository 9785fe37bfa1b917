//! pg_hba.conf: who may log in over TCP from this machine, and whether the same login works on the socket. The socket
//! itself is in postgresql.conf. A login that moves gets a `local` record of its own, above the one that would match.

mod records;

use std::collections::HashSet;
use std::path::Path;

use samehost_model::{Endpoint, Protocol};
use samehost_services::Kind;

use self::records::{Meets, Record, Records, records};
use crate::budget::Metered;
use crate::editor::Editor;
use crate::files::Edit;
use crate::lines::{self, insert_above, insert_below};
use crate::proposal::Editing;
use crate::refusal::{Refusal, Result};
use crate::setting::{Goal, Reading, Setting, Uptake};

/// Methods that ask for a password, and the one that asks for nothing.
const METHODS: &[&str] = &["scram-sha-256", "md5", "password", "trust"];

pub(crate) struct PgHba;

impl Editor for PgHba {
    fn name(&self) -> &'static str {
        "pg-hba"
    }

    fn about(&self) -> &'static str {
        "pg_hba.conf: logins over the socket"
    }

    fn recognises(&self, path: &Path, _: &[u8]) -> bool {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("pg_hba"))
    }

    fn read_metered(&self, file: &Path, files: &Metered<'_>) -> Result<Reading> {
        let text = lines::read(file, files)?;
        Ok(reading(file, files, &records(file, &text)?))
    }

    fn edit_metered(
        &self,
        file: &Path,
        files: &Metered<'_>,
        setting: &Setting,
        goal: &Goal,
    ) -> Result<Vec<Edit>> {
        let records = files.once(file, || records(file, &lines::read(file, files)?))?;
        Editing::new(file, files, &*records, setting, goal)?.edits()
    }

    fn listens_on_both(&self) -> bool {
        true
    }

    fn may_contradict_itself(&self) -> bool {
        true
    }

    fn uptake(&self, _file: &Path) -> Uptake {
        Uptake::Reload(Kind::Postgres)
    }
}

/// Port and socket of the server, from the postgresql.conf beside the file.
fn places(file: &Path, files: &Metered<'_>) -> (u16, Endpoint) {
    let beside = file.with_file_name("postgresql.conf");
    let postgresql: &dyn Editor = &super::postgresql::Postgresql;
    let found = postgresql.read(&beside, files).unwrap_or_default();
    let (mut port, mut socket) = (None, None);
    for setting in found.settings {
        port = port.or(match &setting.endpoint {
            Endpoint::Tcp { port, .. } => Some(*port),
            other => other.path().and_then(port_of),
        });
        if socket.is_none() && setting.endpoint.path().is_some() {
            socket = Some(setting.endpoint);
        }
    }
    let port = port.unwrap_or(5432);
    (port, socket.unwrap_or_else(|| Endpoint::Unix(format!("/var/run/postgresql/.s.PGSQL.{port}").into())))
}

/// The port in the name of a socket: `.s.PGSQL.5432`.
fn port_of(socket: &Path) -> Option<u16> {
    socket.extension()?.to_str()?.parse().ok()
}

fn hosts(record: &Record) -> impl Iterator<Item = &'static str> {
    ["127.0.0.1", "::1"].into_iter().filter(|host| record.loopback(host) == Meets::Yes)
}

/// The record that a login on the socket matches first; also one that it may match.
fn first_local<'a>(records: &'a Records, database: &str, user: &str) -> Option<(&'a Record, Meets)> {
    let record = &records[records.local.first(records, database, user)?];
    Some((record, record.meets(database, user)))
}

/// Whether a password that is valid for one method is valid for the other.
fn passes(local: &Record, method: &str) -> bool {
    !local.has_options
        && (local.method == method
            || local.method == "trust"
            || (method == "scram-sha-256" && matches!(local.method.as_str(), "md5" | "password"))
            || (method == "md5" && local.method == "password"))
}

/// The logins over TCP from this machine, and those of them that work on the socket.
fn reading(file: &Path, files: &Metered<'_>, records: &Records) -> Reading {
    let (port, socket) = places(file, files);
    let (mut reading, mut names) = (Reading::default(), HashSet::new());
    for (index, record) in records.iter().enumerate() {
        if record.method == "reject" {
            continue;
        }
        let Some(host) = hosts(record).next() else { continue };
        let (database, user) = match understood(file, records, index, host) {
            Ok(login) => login,
            Err(refusal) => {
                reading.refused.push(refusal);
                continue;
            }
        };
        let Some(endpoint) = lines::tcp(host, port) else { continue };
        let address = record.address.as_deref().unwrap_or_default();
        let written = format!("{} {} {address}", record.database.written, record.user.written);
        let name = format!("host {written} (line {})", record.line.number);
        let whole = format!("{} {written} {}", record.kind, record.method);
        let tcp = login(name, whole, endpoint, (database, user)).at(file, record.line.number);
        names.insert(tcp.name.clone());
        reading.settings.push(tcp.clone());
        let Some((local, Meets::Yes)) = first_local(records, database, user) else { continue };
        let name = format!("local {} {}", record.database.written, record.user.written);
        if passes(local, &record.method) && names.insert(name.clone()) {
            reading.settings.push(Setting {
                name,
                endpoint: socket.clone(),
                written: format!("local {} {} {}", local.database.written, local.user.written, local.method),
                line: local.line.number,
                ..tcp
            });
        }
    }
    add_local(file, records, &socket, &mut reading.settings, &mut names);
    reading
}

fn add_local(
    file: &Path,
    records: &Records,
    socket: &Endpoint,
    settings: &mut Vec<Setting>,
    names: &mut HashSet<String>,
) {
    for record in records.iter().filter(|record| record.kind == "local" && !record.has_options) {
        let (Some(database), Some(user)) = (record.database.name(), record.user.name()) else { continue };
        let first = first_local(records, database, user).map(|(first, _)| first.line.number);
        if first != Some(record.line.number) || !METHODS.contains(&record.method.as_str()) {
            continue;
        }
        let name = format!("local {} {}", record.database.written, record.user.written);
        if !names.insert(name.clone()) {
            continue;
        }
        let whole = format!("{name} {}", record.method);
        let setting = login(name, whole, socket.clone(), (database, user));
        settings.push(setting.at(file, record.line.number));
    }
}

fn login(name: String, written: String, endpoint: Endpoint, (database, user): (&str, &str)) -> Setting {
    let (user, database) = (Some(user.to_owned()), Some(database.to_owned()));
    Setting { user, database, ..Setting::listens(name, Protocol::Postgres, written, endpoint) }
}

/// Database and user of a record that its login matches and that can be written for the socket.
fn understood<'a>(file: &Path, records: &'a Records, index: usize, host: &str) -> Result<(&'a str, &'a str)> {
    let record = &records[index];
    let stop = |reason: String| {
        let method =
            if METHODS.contains(&record.method.as_str()) { record.method.as_str() } else { "scram-sha-256" };
        let first = records.first_local.map(|first| &records[first]);
        let place = first.map_or("at the end".into(), |first| format!("above line {}", first.line.number));
        let by_hand =
            format!("{place} write, with the application's own names: local DATABASE USER {method}");
        Err(Refusal::new(file, record.line.number, reason, by_hand))
    };
    let (Some(database), Some(user)) = (record.database.name(), record.user.name()) else {
        return stop(if record.is_for_all() {
            "it is for everyone: the same for the socket would end the logins without a password there".into()
        } else {
            "it is for several logins, or for those of a group or a file".into()
        });
    };
    if !METHODS.contains(&record.method.as_str()) || record.has_options {
        return stop(format!(
            "`{}`, or its options, does not work on a socket as it does here",
            record.method
        ));
    }
    let earlier = records.over_tcp(host).first(records, database, user).filter(|earlier| *earlier < index);
    if let Some(earlier) = earlier {
        let line = records[earlier].line.number;
        return stop(format!("line {line} may decide about this login before it"));
    }
    if let Some((local, Meets::Yes)) = first_local(records, database, user) {
        // Programs may rely on logging in by their user's name, which a password would end.
        let by_name = local.user.name() == Some(user) && matches!(local.method.as_str(), "peer" | "ident");
        if local.method == "reject" || by_name {
            return stop(format!(
                "line {} decides about this login on the socket, on purpose",
                local.line.number
            ));
        }
    }
    Ok((database, user))
}

impl Editing<'_, Records> {
    fn edits(mut self) -> Result<Vec<Edit>> {
        let (records, setting, goal) = (self.configuration, self.setting, self.goal);
        if goal.endpoint == setting.endpoint {
            return Ok(Vec::new());
        }
        let Some(record) = records.iter().find(|record| record.line.number == setting.line) else {
            return Err(self.refuse("the record is gone", "look at the file again"));
        };
        let (Some(database), Some(user)) = (setting.database.as_deref(), setting.user.as_deref()) else {
            return Err(self.refuse("the record is not for one login", "write `local DATABASE USER METHOD`"));
        };
        let own = record.database.name() == Some(database) && record.user.name() == Some(user);
        if !own || !METHODS.contains(&record.method.as_str()) {
            let by_hand = "write a record for this login alone, and one for the other transport";
            return Err(self.refuse("the record is for several logins: others may use it", by_hand));
        }
        let found = self.files.once(self.file, || Ok(reading(self.file, self.files, records)))?;
        let there = found.settings.iter().any(|one| {
            let same = one.user == setting.user && one.database == setting.database;
            same && one.endpoint == goal.endpoint
        });
        let (_, socket) = places(self.file, self.files);
        match &goal.endpoint {
            Endpoint::Tcp { host, .. } if !there => self.admit_over_tcp(record, host, (database, user))?,
            Endpoint::Tcp { .. } => {}
            to if *to != socket => {
                let by_hand = format!("use {socket}, or change postgresql.conf first");
                return Err(self.refuse(format!("the server's socket is {socket}"), by_hand));
            }
            // A record for everybody may admit it already; without the one for TCP it needs its own.
            _ if !there || !goal.stays => self.admit_at_socket(record, (database, user)),
            _ => {}
        }
        if !goal.stays {
            let start = record.line.range.start;
            self.edits.push(Edit::new(self.file, start..start, "# "));
        }
        Ok(self.edits)
    }

    fn admit_at_socket(&mut self, record: &Record, (database, user): (&str, &str)) {
        let records = self.configuration;
        let first = first_local(records, database, user).map(|(first, _)| first);
        if first.is_some_and(|first| passes(first, &record.method) && first.user.name() == Some(user)) {
            return;
        }
        let last = records.iter().rfind(|record| record.kind == "local");
        let like = first.or(last).unwrap_or(record);
        let new = columns(&self.text[like.line.range.clone()], record, "");
        self.edits.push(if first.is_none() && last.is_some() {
            insert_below(self.file, &self.text, &like.line, &new)
        } else {
            insert_above(self.file, &self.text, &like.line, &new)
        });
    }

    fn admit_over_tcp(&mut self, record: &Record, host: &str, (database, user): (&str, &str)) -> Result<()> {
        let records = self.configuration;
        let network = if host.contains(':') { "::1/128" } else { "127.0.0.1/32" };
        let by_hand = format!(
            "write `host {} {} {network} {}` above the first record that fits",
            record.database.written, record.user.written, record.method
        );
        let (port, _) = places(self.file, self.files);
        let is_there = lines::tcp(host, port).as_ref() == Some(&self.goal.endpoint);
        if !is_there || !matches!(host, "127.0.0.1" | "::1") {
            return Err(self.refuse("the server is not reached there", by_hand));
        }
        let first = records
            .iter()
            .find(|one| one.loopback(host) != Meets::No && one.meets(database, user) != Meets::No);
        if first.is_some_and(|first| first.method == "reject") {
            return Err(self.refuse("a record refuses this login over TCP on purpose", by_hand));
        }
        let new = columns(&self.text[first.unwrap_or(record).line.range.clone()], record, network);
        self.edits.push(match first {
            Some(above) => insert_above(self.file, &self.text, &above.line, &new),
            None => insert_below(self.file, &self.text, &records.last().unwrap_or(record).line, &new),
        });
        Ok(())
    }
}

/// A record for the socket, or for a network if one is named, in the columns of another line.
fn columns(like: &[u8], record: &Record, network: &str) -> String {
    let kind = if network.is_empty() { "local" } else { "host" };
    let (database, user, method) = (&record.database.written, &record.user.written, &record.method);
    let is_tabbed = like.contains(&b'\t');
    if !is_tabbed && (like.starts_with(b"local   ") || like.starts_with(b"host    ")) {
        return format!("{kind:<7} {database:<15} {user:<15} {network:<23} {method}");
    }
    let mut words = vec![kind, database, user, network, method];
    words.retain(|word| !word.is_empty());
    words.join(if is_tabbed { "\t" } else { " " })
}
