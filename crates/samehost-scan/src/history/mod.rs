//! One scan beside another: what changed from one inventory to a later one. Pure. What differs only in a port or a name that the
//! kernel or a program draws at random is the same; so is a client that one of the two scans saw and the other did not.

pub(crate) mod expectation;
pub(crate) mod inventory;

use std::collections::{BTreeMap, BTreeSet};

use samehost_model::scan::{
    ChangedHop, ChangedService, Compared, Hop, Inventory, Listening, Noted, Program, ScanChanges,
    ServiceName, is_tcp,
};

/// First port that counts as drawn: Linux' own beginning of `net.ipv4.ip_local_port_range`.
/// Endpoints with a drawn port or path are matched when nothing else is left to match, because between
/// two scans every process may have been started again. The machine's setting was rejected as the border:
/// an administrator may begin it at 1024, where services have their own ports (docs/decisions/0092).
const FIRST_RANDOM_PORT: u16 = 32_768;
/// Digits that make a part of a path a random one: a process number, a UUID.
const RANDOM_DIGITS: usize = 3;
/// Letters and digits that mkdtemp(3) replaces.
const RANDOM_LETTERS: usize = 6;
/// Digits in the name that autobind gives an abstract socket (unix(7)).
const AUTOBIND: usize = 5;

/// What changed from `old` to `new`: hops and services that came, went or changed, and findings that came or went; `weigh` then
/// says how much that matters. `file` is where the older inventory was read, for the report.
///
/// Hops that are the same in all words are matched first. What is left is matched in three passes, each looser than the one
/// before: the same but for a part drawn at random, the same ends over the other transport, the same ends.
#[must_use]
pub fn changes(old: &Inventory, new: &Inventory, file: Option<&str>) -> ScanChanges {
    let since = Compared { file: file.map(str::to_owned), ..compared(old) };
    let mut found = ScanChanges::none(&new.samehost_version, Some(since), compared(new));
    hops(old, new, &mut found);
    services(old, new, &mut found);
    found.new_findings = only_in(&new.findings, &old.findings);
    found.gone_findings = only_in(&old.findings, &new.findings);
    found.weigh();
    found
}

fn compared(inventory: &Inventory) -> Compared {
    Compared { taken_at: inventory.taken_at.clone(), as_root: inventory.as_root, file: None }
}

/// Whether two hops are the same one, seen at two times.
#[must_use]
pub fn is_same_hop(one: &Hop, other: &Hop) -> bool {
    one.service == other.service
        && is_same_program(&one.client, &other.client)
        && is_same_endpoint(&one.service, &one.endpoint, &other.endpoint)
}

fn hops(old: &Inventory, new: &Inventory, found: &mut ScanChanges) {
    let (mut gone, mut come) = unmatched(&old.hops, &new.hops, |one, other| {
        (&one.client, &one.service, &one.endpoint) == (&other.client, &other.service, &other.endpoint)
    });
    come.retain(|hop| !is_elsewhere(hop, &old.hops));
    gone.retain(|hop| !is_elsewhere(hop, &new.hops));
    pair_off(&mut gone, &mut come, is_same_hop);
    // The other transport first: a move to it is not mistaken for one between two ports.
    let mut changed = pair_off(&mut gone, &mut come, |one, other| {
        same_ends(one, other) && is_tcp(&one.endpoint) != is_tcp(&other.endpoint)
    });
    changed.extend(pair_off(&mut gone, &mut come, same_ends));
    for (before, now) in changed {
        found.changed_hops.push(ChangedHop { before: before.endpoint, now });
    }
    (found.gone_hops, found.new_hops) = (gone, come);
}

/// A client that was not visible is one of those that the other scan saw there.
fn is_elsewhere(hop: &Hop, others: &[Hop]) -> bool {
    others.iter().any(|other| {
        (is_unseen(&hop.client) || is_unseen(&other.client))
            && hop.endpoint == other.endpoint
            && is_same_hop(hop, other)
    })
}

fn same_ends(one: &Hop, other: &Hop) -> bool {
    !is_unseen(&one.client) && one.client == other.client && one.service == other.service
}

fn services(old: &Inventory, new: &Inventory, found: &mut ScanChanges) {
    let (mut gone, mut come) = unmatched(&old.services, &new.services, |one, other| {
        one.service == other.service && one.program == other.program
    });
    // One whose process was not visible in one of the scans, and that is known by its name and by where it listens.
    pair_off(&mut gone, &mut come, |one, other| {
        one.service == other.service
            && is_same_program(&one.program, &other.program)
            && one.endpoints.iter().any(|endpoint| other.endpoints.contains(endpoint))
    });
    let before: BTreeMap<(&ServiceName, &Program), &Listening> =
        old.services.iter().map(|listening| ((&listening.service, &listening.program), listening)).collect();
    for now in &new.services {
        let Some(before) = before.get(&(&now.service, &now.program)) else { continue };
        let (mut closed, mut opened) =
            unmatched(&before.endpoints, &now.endpoints, |one, other| one == other);
        pair_off(&mut closed, &mut opened, |one, other| is_same_endpoint(&now.service, one, other));
        if !(closed.is_empty() && opened.is_empty()) {
            let (service, program) = (now.service.clone(), now.program.clone());
            found.changed_services.push(ChangedService { service, program, opened, closed });
        }
    }
    (found.gone_services, found.new_services) = (gone, come);
}

fn only_in(these: &[Noted], others: &[Noted]) -> Vec<Noted> {
    let others: BTreeSet<(&str, &str)> =
        others.iter().map(|noted| (noted.code.as_str(), noted.subject.as_str())).collect();
    these.iter().filter(|noted| !others.contains(&(&noted.code, &noted.subject))).cloned().collect()
}

/// What only `old` has, and what only `new` has.
fn unmatched<T: Clone>(old: &[T], new: &[T], same: impl Fn(&T, &T) -> bool) -> (Vec<T>, Vec<T>) {
    (without(old, new, &same), without(new, old, &same))
}

fn without<T: Clone>(these: &[T], others: &[T], same: &impl Fn(&T, &T) -> bool) -> Vec<T> {
    these.iter().filter(|one| !others.iter().any(|other| same(one, other))).cloned().collect()
}

fn pair_off<T>(gone: &mut Vec<T>, come: &mut Vec<T>, same: impl Fn(&T, &T) -> bool) -> Vec<(T, T)> {
    let mut pairs = Vec::new();
    let mut at = 0;
    while let Some(one) = gone.get(at) {
        match come.iter().position(|other| same(one, other)) {
            Some(other) => pairs.push((gone.remove(at), come.remove(other))),
            None => at += 1,
        }
    }
    pairs
}

/// A program of which no process was visible has no name.
fn is_unseen(program: &Program) -> bool {
    program.name.is_none()
}

/// Whether two programs are the same, as far as both are known: an ordinary user does not see those of others.
fn is_same_program(one: &Program, other: &Program) -> bool {
    if !is_unseen(one) && !is_unseen(other) {
        return one == other;
    }
    let agree =
        |one: &Option<String>, other: &Option<String>| one.is_none() || other.is_none() || one == other;
    agree(&one.unit, &other.unit) && agree(&one.user, &other.user)
}

fn is_same_endpoint(service: &ServiceName, one: &str, other: &str) -> bool {
    one == other || (is_tcp(one) == is_tcp(other) && shape(service, one) == shape(service, other))
}

/// An endpoint without its random part: a port that the kernel gave; parts of a path, unless it is that of a known
/// service, whose numbers mean something.
fn shape(service: &ServiceName, endpoint: &str) -> String {
    if is_tcp(endpoint) {
        let (host, port) = endpoint.rsplit_once(':').unwrap_or((endpoint, ""));
        let is_random = port.parse().unwrap_or(0) >= FIRST_RANDOM_PORT;
        return if is_random { format!("{host}:*") } else { endpoint.to_owned() };
    }
    if service.kind.is_some() {
        return endpoint.to_owned();
    }
    let parts: Vec<&str> = endpoint.split('/').collect();
    if !parts.iter().any(|part| is_random(part)) {
        return endpoint.to_owned();
    }
    parts.into_iter().map(without_random).collect::<Vec<_>>().join("/")
}

/// Whether a part of a path has a process number, a UUID or the letters of mkdtemp(3) in it.
fn is_random(part: &str) -> bool {
    let digits = part.bytes().filter(u8::is_ascii_digit).count();
    let name = part.strip_prefix("abstract:").unwrap_or_default();
    let is_autobind = name.len() == AUTOBIND && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_autobind || digits >= RANDOM_DIGITS || runs(part).any(is_drawn)
}

fn without_random(part: &str) -> String {
    let mut replaced = Vec::new();
    for run in runs(part) {
        let is_random = run.bytes().any(|byte| byte.is_ascii_digit()) || is_drawn(run) || run.len() <= 2;
        replaced.push(if is_random { "*" } else { run });
    }
    replaced.join("-")
}

/// Whether letters look drawn: as many as mkdtemp(3) draws, of both cases.
fn is_drawn(run: &str) -> bool {
    run.len() >= RANDOM_LETTERS
        && run.bytes().any(|byte| byte.is_ascii_uppercase())
        && run.bytes().any(|byte| byte.is_ascii_lowercase())
}

fn runs(part: &str) -> impl Iterator<Item = &str> {
    part.split(|c: char| !c.is_ascii_alphanumeric()).filter(|run| !run.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(name: &str) -> Program {
        Program { name: Some(name.into()), user: Some("www".into()), ..Program::default() }
    }

    fn known(name: &str) -> ServiceName {
        ServiceName { kind: Some(name.to_lowercase()), name: name.into() }
    }

    fn unknown() -> ServiceName {
        ServiceName { kind: None, name: "ide".into() }
    }

    fn hop(client: Program, service: ServiceName, endpoint: &str) -> Hop {
        Hop { client, service, endpoint: endpoint.into(), connections: 1 }
    }

    fn with(hops: &[Hop]) -> Inventory {
        Inventory { hops: hops.to_vec(), ..Inventory::default() }
    }

    fn listening(name: &str, endpoints: &[&str]) -> Listening {
        let endpoints = endpoints.iter().map(|endpoint| (*endpoint).to_owned()).collect();
        Listening { service: known(name), program: program(name), endpoints }
    }

    fn between(old: &[Hop], new: &[Hop]) -> ScanChanges {
        changes(&with(old), &with(new), None)
    }

    #[test]
    fn a_hop_comes_goes_and_changes_its_transport() {
        let tcp = hop(program("app"), known("Store"), "tcp:127.0.0.1:6379");
        let unix = hop(program("app"), known("Store"), "unix:/run/store.sock");
        let same = between(std::slice::from_ref(&tcp), &[Hop { connections: 9, ..tcp.clone() }]);
        assert!(!same.is_changed && same.gone_hops.is_empty(), "the number of connections is no change");
        let come = between(&[], std::slice::from_ref(&tcp));
        assert!(come.is_changed && come.new_hops == [tcp.clone()]);
        let gone = between(std::slice::from_ref(&tcp), &[]);
        assert!(!gone.is_changed && gone.gone_hops == [tcp.clone()], "it may be open again the next moment");
        let moved = between(std::slice::from_ref(&tcp), std::slice::from_ref(&unix));
        assert!(moved.is_changed && moved.new_hops.is_empty() && moved.gone_hops.is_empty(), "{moved:?}");
        assert_eq!(moved.changed_hops, [ChangedHop { before: tcp.endpoint.clone(), now: unix.clone() }]);
        let both = between(std::slice::from_ref(&tcp), &[tcp.clone(), unix.clone()]);
        assert_eq!(both.new_hops, std::slice::from_ref(&unix), "the old one stays");
        let other = hop(program("cron"), known("Store"), "unix:/run/store.sock");
        let apart = between(std::slice::from_ref(&tcp), std::slice::from_ref(&other));
        assert_eq!((apart.new_hops, apart.gone_hops), (vec![other], vec![tcp]), "another client");
    }

    #[test]
    fn the_other_transport_is_paired_before_another_port() {
        let old = [hop(program("app"), known("Store"), "tcp:127.0.0.1:6379")];
        let new = [
            hop(program("app"), known("Store"), "tcp:127.0.0.1:6380"),
            hop(program("app"), known("Store"), "unix:/run/store.sock"),
        ];
        let found = between(&old, &new);
        assert_eq!(found.changed_hops[0].now.endpoint, "unix:/run/store.sock");
        assert_eq!(found.new_hops, [new[0].clone()]);
    }

    #[test]
    fn ports_and_names_that_are_drawn_are_no_change() {
        fn port(port: u16) -> Hop {
            hop(program("a"), unknown(), &format!("tcp:127.0.0.1:{port}"))
        }
        for (before, now) in [
            ("tcp:127.0.0.1:41234", "tcp:127.0.0.1:60001"),
            ("unix:/tmp/ssh-AbcDEfgh1234/agent.811", "unix:/tmp/ssh-kZzQrstuvwxy/agent.4711"),
            (
                "unix:/tmp/ipc-2f1c9a34-77aa-4b1e-9d11-0123456789ab.sock",
                "unix:/tmp/ipc-9b1c0034-12aa-4b1e-8d12-a12345678900.sock",
            ),
            ("abstract:0001f", "abstract:00a2c"),
        ] {
            let found =
                between(&[hop(program("a"), unknown(), before)], &[hop(program("a"), unknown(), now)]);
            assert!(!found.is_changed && found.gone_hops.is_empty(), "{before} {now}: {found:?}");
        }
        for (before, now) in [
            ("tcp:127.0.0.1:6379", "tcp:127.0.0.1:6380"),
            ("unix:/run/a.sock", "unix:/run/b.sock"),
            ("unix:/run/app8.2.sock", "unix:/run/app8.3.sock"),
        ] {
            let found =
                between(&[hop(program("a"), unknown(), before)], &[hop(program("a"), unknown(), now)]);
            assert_eq!(found.changed_hops.len(), 1, "{before} {now}");
        }
        // Numbers of a known service mean something: an instance, a port.
        let found = between(
            &[hop(program("a"), known("Store"), "unix:/run/store-6379.sock")],
            &[hop(program("a"), known("Store"), "unix:/run/store-6380.sock")],
        );
        assert_eq!(found.changed_hops.len(), 1);
        // Two where one was: one of them is new.
        assert_eq!(between(&[port(40_000)], &[port(40_001), port(40_002)]).new_hops.len(), 1);
    }

    #[test]
    fn a_client_that_one_scan_did_not_see_is_no_change() {
        fn to(client: Program) -> Hop {
            hop(client, known("Store"), "tcp:127.0.0.1:6379")
        }
        let seen = Program { unit: Some("app.service".into()), ..program("app") };
        let by_unit = Program { unit: Some("app.service".into()), ..Program::default() };
        for unseen in [by_unit, Program::default()] {
            for (old, new) in [(&seen, &unseen), (&unseen, &seen)] {
                let found = between(&[to(old.clone())], &[to(new.clone())]);
                assert!(!found.is_changed && found.gone_hops.is_empty(), "{found:?}");
            }
        }
        let other = Program { unit: Some("other.service".into()), ..Program::default() };
        assert_eq!(between(&[to(seen)], &[to(other)]).new_hops.len(), 1, "another unit's");
    }

    #[test]
    fn services_come_go_and_listen_elsewhere() {
        fn inventory(services: &[Listening]) -> Inventory {
            Inventory { services: services.to_vec(), ..Inventory::default() }
        }
        fn between(old: &[Listening], new: &[Listening]) -> ScanChanges {
            changes(&inventory(old), &inventory(new), None)
        }
        let tcp = listening("Store", &["tcp:127.0.0.1:6379"]);
        let both = listening("Store", &["tcp:127.0.0.1:6379", "unix:/run/store.sock"]);
        assert_eq!(between(&[], std::slice::from_ref(&tcp)).new_services, std::slice::from_ref(&tcp));
        assert_eq!(between(std::slice::from_ref(&tcp), &[]).gone_services, std::slice::from_ref(&tcp));
        let found = between(std::slice::from_ref(&tcp), std::slice::from_ref(&both));
        assert!(found.is_changed && found.new_services.is_empty());
        assert_eq!(found.changed_services[0].opened, ["unix:/run/store.sock"]);
        assert!(found.changed_services[0].closed.is_empty());
        let random =
            [listening("Store", &["tcp:127.0.0.1:40000"]), listening("Store", &["tcp:127.0.0.1:40001"])];
        assert!(!between(&random[..1], &random[1..]).is_changed);
        let unseen = Listening { program: Program::default(), ..tcp.clone() };
        assert!(
            !between(std::slice::from_ref(&tcp), &[unseen]).is_changed,
            "an ordinary user does not see whose it is"
        );
    }

    #[test]
    fn a_finding_is_the_same_while_its_numbers_change() {
        fn noted(found: &str) -> Noted {
            Noted { code: "full-queue".into(), subject: "Store".into(), found: found.into() }
        }
        fn with(findings: &[Noted]) -> Inventory {
            Inventory { findings: findings.to_vec(), ..Inventory::default() }
        }
        fn between(old: &[Noted], new: &[Noted]) -> ScanChanges {
            changes(&with(old), &with(new), None)
        }
        let same = between(&[noted("11 wait")], &[noted("12 wait")]);
        assert!(!same.is_changed && same.gone_findings.is_empty());
        assert!(between(&[], &[noted("11 wait")]).is_changed);
        let gone = between(&[noted("11 wait")], &[]);
        assert!(!gone.is_changed && gone.gone_findings.len() == 1);
    }
}
