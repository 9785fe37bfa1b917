//! A place that a switch leaves: who had it before, whether that server can get it back, and what is left at the new one.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, open, statat, unlinkat};
use samehost_login::Known;
use samehost_model::Endpoint;
use samehost_model::scan::{Scan, Service, Socket};
use samehost_scan::{ScanError, described, holders_of, services_at};
use samehost_services::Kind;
use serde::{Deserialize, Serialize};

use crate::plan::hop::Hop;
use crate::plan::server::is_or_descends;

/// A place that a switch leaves, and who had it before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OldPlace {
    pub(crate) from: Endpoint,
    pub(crate) to: Endpoint,
    pub(crate) name: String,
    kind: Option<String>,
    /// The processes that held its sockets; none where nobody listened, or nobody is visible.
    holders: Vec<Holder>,
    /// The users who made those sockets, by the kernel.
    makers: BTreeSet<u32>,
    /// Users that its server may run as, beside root and those who did.
    trusted: BTreeSet<u32>,
    /// Device and inode of the socket's file that its server made at the new place.
    #[serde(default)]
    made: Option<(u64, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Holder {
    pid: u32,
    start: u64,
    user: u32,
    program: Option<String>,
}

impl OldPlace {
    pub(crate) fn of_hops(scan: &Scan, hops: &[Hop]) -> Vec<Self> {
        let mut all: Vec<OldPlace> = Vec::new();
        for hop in hops {
            let place = OldPlace::of(scan, hop);
            if !all.contains(&place) {
                all.push(place);
            }
        }
        all
    }

    fn of(scan: &Scan, hop: &Hop) -> Self {
        let mut place = OldPlace {
            from: hop.setting.endpoint.clone(),
            to: hop.to.clone(),
            name: "server".to_owned(),
            kind: None,
            holders: Vec::new(),
            makers: BTreeSet::new(),
            trusted: hop.server.trusted.users().collect(),
            made: None,
        };
        for service in at(scan, &place.from) {
            place.name.clone_from(&service.name);
            place.kind = service.kind.map(|kind| kind.name().to_owned());
            place.makers.extend(makers(scan, service));
            for Known { pid, start, uid } in holders_of(scan, service) {
                place.holders.push(Holder { pid, start, user: uid, program: program(scan, pid) });
            }
        }
        place
    }

    /// Remembers the socket's file at the new place, where it is one that the server has just taken.
    pub(crate) fn remember(&mut self, taken: &[Endpoint]) {
        if let (true, Some(path)) = (taken.contains(&self.to), self.to.path()) {
            let file = std::fs::symlink_metadata(path).ok();
            self.made = file.map(|file| (file.dev(), file.ino()));
        }
    }

    pub(crate) fn made_its_socket(&self) -> bool {
        self.made.is_some()
    }

    /// Removes the socket's file that the server made and left behind: memcached removes none, and its own leftover barred the same
    /// switch again. It is that very file, and nobody listens at it.
    pub(crate) fn remove_what_is_left(&self, scan: &Scan) {
        let (Some(made), Some(path)) = (self.made, self.to.path()) else { return };
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return };
        let is_listened_at = |socket: &Socket| {
            socket.is_listening()
                && socket.file.is_some_and(|file| file.device == made.0 && file.has_inode(made.1))
        };
        if scan.sockets.iter().any(is_listened_at) {
            return;
        }
        let Ok(folder) = open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        else {
            return;
        };
        if let Ok(found) = statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)
            && FileType::from_raw_mode(found.st_mode).is_socket()
            && (found.st_dev, found.st_ino) == made
        {
            // What cannot be removed is told by the next switch.
            let _ = unlinkat(&folder, name, AtFlags::empty());
        }
    }

    fn was_empty(&self) -> bool {
        self.holders.is_empty() && self.makers.is_empty()
    }

    /// Whether this service holds the place as it did before the switch, and never left it.
    fn has_stayed(&self, holders: &[Known]) -> bool {
        let is_it = |known: &Known| {
            self.holders.iter().any(|before| (before.pid, before.start) == (known.pid, known.start))
        };
        holders.iter().any(is_it)
    }

    /// Whether a service is what had the place, as far as its users and its program say.
    fn is_like(&self, scan: &Scan, service: &Service, holders: &[Known]) -> bool {
        let mut users = self.trusted.clone();
        users.insert(0);
        users.extend(&self.makers);
        users.extend(self.holders.iter().map(|holder| holder.user));
        if holders.is_empty() {
            return makers(scan, service).is_subset(&users);
        }
        let runs_it = |known: &Known| {
            let program = program(scan, known.pid);
            program.is_some() && self.holders.iter().any(|before| before.program == program)
        };
        let is_its_kind = service.kind.is_some() && service.kind.map(Kind::name) == self.kind.as_deref();
        holders.iter().all(|known| users.contains(&known.uid))
            && (self.holders.is_empty() || is_its_kind || holders.iter().any(runs_it))
    }

    /// Who has the place now and is not the server that left it.
    pub(crate) fn stranger(&self, scan: &Scan) -> Option<String> {
        let there: Vec<Known> =
            at(scan, &self.to).into_iter().flat_map(|service| holders_of(scan, service)).collect();
        let is_its = |known: &Known| {
            let program = program(scan, known.pid);
            self.was_empty() || self.holders.iter().any(|before| before.program == program)
        };
        // That very server is at the new place: whoever is at the old one without being it is another, of the same program too.
        let is_there = there.iter().any(is_its);
        for service in at(scan, &self.from) {
            let holders = holders_of(scan, service);
            let is_the_same = holders.iter().any(|one| {
                there.iter().any(|other| is_or_descends(one.pid, other) || is_or_descends(other.pid, one))
            });
            let is_ours = self.has_stayed(&holders)
                || is_the_same
                || !is_there && (self.was_empty() || self.is_like(scan, service, &holders));
            if !is_ours {
                return Some(described(scan, service));
            }
        }
        None
    }

    /// That nobody knows what is at the old place after the way back, where somebody was there before.
    pub(crate) fn unseen(&self, error: &ScanError) -> Option<String> {
        let (from, name) = (&self.from, &self.name);
        (!self.was_empty()).then(|| format!("whether {name} listens at {from} again is not known: {error}"))
    }

    pub(crate) fn is_of(&self, families: &[Kind]) -> bool {
        let kind = self.kind.as_deref().and_then(Kind::named);
        kind.is_some_and(|kind| families.contains(&kind.family()))
    }

    /// What is wrong at the old place after the way back; `None` where the server that was there is there again.
    pub(crate) fn wrong(&self, scan: &Scan) -> Option<String> {
        let (from, name) = (&self.from, &self.name);
        if self.was_empty() {
            return None;
        }
        let services = at(scan, from);
        if services.is_empty() {
            return Some(format!("nothing listens at {from}: start {name}"));
        }
        for service in services {
            let holders = holders_of(scan, service);
            if !self.has_stayed(&holders) && !self.is_like(scan, service, &holders) {
                let who = described(scan, service);
                return Some(format!(
                    "{who} listens at {from}, and is not the {name} that was there before the switch: stop it, and start that one"
                ));
            }
        }
        None
    }
}

fn at<'a>(scan: &'a Scan, endpoint: &Endpoint) -> Vec<&'a Service> {
    services_at(scan, endpoint).into_iter().filter_map(|at| scan.services.get(at)).collect()
}

fn makers(scan: &Scan, service: &Service) -> BTreeSet<u32> {
    scan.listeners(service).filter_map(|socket| socket.uid).collect()
}

fn program(scan: &Scan, pid: u32) -> Option<String> {
    let program = scan.process(pid)?.executable.as_deref()?;
    Some(program.trim_end_matches(" (deleted)").to_owned())
}
