//! Socket units: `ListenStream=`, if the service that gets the socket is known to accept any kind.

use std::path::Path;

use samehost_model::{Endpoint, Protocol};

use super::servers::{base, server};
use super::unit::{Assignment, OURS, Unit, add, in_place};
use super::words::{command, words};
use crate::edit::Edit;
use crate::files::Files;
use crate::languages::url::is_plain_path;
use crate::lines::{is_loopback, listening_host, tcp};
use crate::refusal::{At, Refusal, Result};
use crate::setting::{Goal, Setting};

/// Services that accept any listening socket from systemd.
const TAKERS: &[(&str, Protocol)] =
    &[("gunicorn", Protocol::Http), ("dockerd", Protocol::Http), ("systemd-socket-proxyd", Protocol::Plain)];

/// A socket unit that listens at one place.
pub(super) struct Socket<'a> {
    unit: &'a Unit,
    assignment: &'a Assignment,
    pub(super) setting: Setting,
}

impl<'a> Socket<'a> {
    pub(super) fn of(unit: &'a Unit, file: &Path, files: &dyn Files) -> Result<Option<Self>> {
        // An empty assignment of any kind resets all of them.
        let all: Vec<&Assignment> =
            unit.all.iter().filter(|one| one.section == "Socket" && one.key.starts_with("Listen")).collect();
        let start = all.iter().rposition(|one| one.value.is_empty()).map_or(0, |at| at + 1);
        let all = &all[start..];
        let Some(assignment) = all.first().copied() else { return Ok(None) };
        let by_hand = "in a drop-in, ListenStream= (empty), then ListenStream=/run/NAME.sock";
        let here = At { file: &assignment.file, line: assignment.line };
        if all.len() > 1 {
            return Err(here.refusal("it listens at several places", by_hand));
        }
        if assignment.key != "ListenStream" {
            return Err(here.refusal("it is not a stream", by_hand));
        }
        if unit
            .last("Socket", "Accept")
            .is_some_and(|one| !matches!(one.value.as_str(), "no" | "false" | "off" | "0"))
        {
            return Err(here.refusal("it starts a service for each connection", by_hand));
        }
        let Some(endpoint) = place(&assignment.value) else {
            return Err(here.refusal("its address is unusual", by_hand));
        };
        let protocol = match taker(unit, file, files) {
            Ok(protocol) => protocol,
            Err(program) => {
                return Err(here.refusal(
                    format!("whether {program} takes a Unix socket from systemd is not known"),
                    by_hand,
                ));
            }
        };
        let backlog = unit.last("Socket", "Backlog").and_then(|one| one.value.parse().ok());
        let setting = Setting {
            backlog,
            ..Setting::listens("ListenStream", protocol, assignment.value.clone(), endpoint)
                .at(&assignment.file, assignment.line)
        };
        Ok(Some(Socket { unit, assignment, setting }))
    }

    pub(super) fn edit(&self, files: &dyn Files, goal: &Goal) -> Result<Vec<Edit>> {
        let one = self.assignment;
        let stop = |reason: String| {
            let by_hand = "in a drop-in, ListenStream= (empty), then ListenStream=/run/NAME.sock";
            Refusal::new(&one.file, one.line, reason, by_hand)
        };
        if self.unit.is_later(&one.file) {
            return Err(stop(format!("this drop-in counts before the one that would be written ({OURS})")));
        }
        if let Endpoint::Tcp { host, .. } = &self.setting.endpoint
            && !is_loopback(host)
        {
            return Err(stop(format!("it listens at {host}, where other machines may need it")));
        }
        let value = match &goal.endpoint {
            Endpoint::Unix(path) => path.to_str().filter(|path| is_plain_path(path)).map(str::to_owned),
            Endpoint::Tcp { host, port } if *port > 0 && is_loopback(&listening_host(host)) => {
                let host = listening_host(host);
                Some(if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
            }
            _ => None,
        };
        let value = value.ok_or_else(|| stop("such an address is not written in a socket unit".into()))?;
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
            let present = self.unit.last("Socket", key);
            if present.is_some_and(|one| self.unit.is_later(&one.file) && one.value != value) {
                return Err(stop(format!("{key}= is set in a drop-in that counts before {OURS}")));
            }
            if present.is_none_or(|one| one.value != value) {
                new.push(format!("{key}={value}"));
            }
        }
        if !new.is_empty() {
            edits.extend(add(self.unit, files, "Socket", &new));
        }
        Ok(edits)
    }
}

/// Endpoint of a value of ListenStream=.
fn place(value: &str) -> Option<Endpoint> {
    let words = words(value)?;
    let [word] = words.as_slice() else { return None };
    let text =
        (word.dynamic.is_none() && word.raw.len() == value.len() && word.text == value).then_some(value)?;
    if text.starts_with('/') {
        return is_plain_path(text).then(|| Endpoint::Unix(text.into()));
    }
    if let Ok(port) = text.parse::<u16>() {
        return tcp("::", port).filter(|_| port > 0);
    }
    let (host, port) = text.rsplit_once(':')?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host = bare.map_or_else(
        || host.parse::<std::net::Ipv4Addr>().ok().map(|_| host),
        |host| host.parse::<std::net::Ipv6Addr>().ok().map(|_| host),
    )?;
    tcp(host, port.parse().ok().filter(|port| *port > 0)?)
}

/// Protocol of the service that gets the socket; an error with its program if that is not known to accept any socket.
fn taker(unit: &Unit, file: &Path, files: &dyn Files) -> Result<Protocol, String> {
    let named = unit.last("Socket", "Service").map(|one| one.value.clone());
    let name = named.unwrap_or_else(|| unit.name.trim_end_matches("socket").to_owned() + "service");
    let path = unit.find(&name, files).unwrap_or_else(|| file.with_file_name(&name));
    let service = Unit::open(&path, files).map_err(|_| name.clone())?;
    let all = service.list("Service", "ExecStart");
    let [one] = all.as_slice() else { return Err(name) };
    let words = command(&one.value).ok_or(&name)?;
    let program = match server(&words) {
        Some((_, server)) => server.name(),
        None => base(&words.first().ok_or(&name)?.text),
    };
    TAKERS
        .iter()
        .find(|(taker, _)| *taker == program)
        .map(|(_, protocol)| *protocol)
        .ok_or_else(|| program.to_owned())
}
