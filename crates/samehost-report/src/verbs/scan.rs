//! A scan on the terminal: services with endpoints, connections by pair, advice on each pair, and what was not visible.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};

use samehost_model::human::format_value;
use samehost_model::printable::clean;
use samehost_model::scan::{
    Advice, Possible, Process, Queues, ReadBy, Scan, SeenAs, Service, Socket, SocketKind, Traffic, Weight,
};

use crate::formats::terminal::{Page, Terminal};
use crate::layout::{Line, Span, Tone, beyond, count, count_of, labelled, titled, wrap_spans};
use crate::verbs::exchanges::{exchanges, name_of_service, of_a_request, unix_openers};
use crate::verbs::explanation::BBR;
use crate::verbs::savings::saving_in_words;

/// Endpoints listed per service; the rest are counted.
const MOST_ENDPOINTS: usize = 4;
/// Pairs over Unix sockets that are listed; the rest are counted, and JSON has all.
const MOST_PAIRS: usize = 20;

/// Columns from which on the note on BBR is shown whole.
const WHOLE_NOTE: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notes {
    /// A line of each; `samehost explain CODE` has the rest.
    Brief,
    Whole,
}

impl Terminal {
    /// Renders a scan: who talks to whom over TCP, what is worth it and what is in the way come first.
    pub fn render_scan(&self, scan: &Scan, notes: Notes, out: &mut dyn Write) -> io::Result<()> {
        let mut page = Page::new(self.width);
        page.section(head(scan, page.measure()));
        if notes == Notes::Whole && scan.services.is_empty() && scan.connections.is_empty() {
            page.section(vec![Line::of(Tone::Plain, "Nothing of that name or port is here.")]);
        }
        page.section(advice(scan, notes, page.measure()));
        page.section(exchanges(scan, page.measure()));
        page.section(unix_openers(scan, page.measure()));
        page.section(findings(scan, notes, page.measure()));
        page.section(explained(scan, notes, page.measure()));
        page.section(pairs(scan, page.measure()));
        page.section(services(scan, page.measure()));
        page.section(hidden(scan, page.measure()));
        self.print(&page, out)
    }
}

/// Where notes are brief: how to read one in full.
fn explained(scan: &Scan, notes: Notes, columns: usize) -> Vec<Line> {
    let has_note =
        scan.advice.iter().any(|advice| advice.obstacles.iter().any(|one| one.weight == Weight::Note));
    let is_brief = has_note || !scan.findings.is_empty() || !scan.slow_congestion.is_empty();
    if notes == Notes::Whole || !is_brief {
        return Vec::new();
    }
    wrap_spans(&[Span::dim("A note in full, and what to set: samehost explain CODE")], columns)
}

fn head(scan: &Scan, columns: usize) -> Vec<Line> {
    let services = scan.services.iter().filter(|service| is_shown(scan, service)).count();
    let tcp = scan.connections.iter().filter(|connection| connection.kind.is_tcp()).count();
    let unix = scan.connections.iter().filter(|connection| connection.kind.is_unix()).count();
    let text = format!(
        "{}, {} with both ends here: {tcp} over TCP, {unix} over Unix sockets",
        count(services, "service"),
        count(scan.connections.len(), "connection"),
    );
    let mut lines = wrap_spans(&[Span::new(Tone::Bold, text)], columns);
    let others = scan.network_namespaces.len().saturating_sub(1);
    let mut seen = vec![count(scan.sockets.len(), "socket")];
    seen.push(count_of(scan.processes.len(), "process that holds any", "processes that hold any"));
    if others > 0 {
        seen.push(count(others, "other network namespace"));
    }
    seen.push(format!("seen as {}", scan.seen_as.label()));
    lines.extend(wrap_spans(&[Span::dim(seen.join(" · "))], columns));
    lines
}

/// Whether a service has stream sockets. Services that have only datagram sockets are in JSON.
fn is_shown(scan: &Scan, service: &Service) -> bool {
    scan.listeners(service).any(|socket| {
        socket.kind.is_tcp() || matches!(socket.kind, SocketKind::UnixStream | SocketKind::UnixSeqpacket)
    })
}

/// Formats as `mariadbd 812, user mysql, mariadb.service`.
fn identity(process: &Process) -> String {
    let mut parts = vec![format!("{} {}", process.name, process.pid), format!("user {}", user(process))];
    parts.extend(process.unit.clone());
    if let Some(container) = &process.container {
        parts.push(container.to_string());
    }
    parts.join(", ")
}

fn user(process: &Process) -> String {
    match &process.user {
        Some(name) => name.clone(),
        None => process.uid.to_string(),
    }
}

fn services(scan: &Scan, columns: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    for service in scan.services.iter().filter(|service| is_shown(scan, service)) {
        let who = match scan.main_process(service) {
            // An unrecognised service is already named after its process.
            Some(process) if process.name == service.name => {
                identity(process).trim_start_matches(&process.name).trim_start().to_owned()
            }
            Some(process) => identity(process),
            None => unseen(scan, service),
        };
        let mut spans = vec![Span::new(Tone::Bold, &service.name), Span::dim(who)];
        if service.network_namespace != own_namespace(scan) {
            spans.push(Span::dim(format!("· {}", namespace_name(scan, service.network_namespace))));
        }
        for socket in scan.listeners(service).take(MOST_ENDPOINTS) {
            spans.push(Span::plain(format!("· {}", endpoint(socket))));
        }
        if let Some(more) = beyond(service.listeners.len(), MOST_ENDPOINTS) {
            spans.push(Span::dim(format!("· and {more} more")));
        }
        lines.extend(labelled(&Span::plain("  "), 2, &spans, columns));
    }
    titled("Services", lines)
}

fn unseen(scan: &Scan, service: &Service) -> String {
    match scan.listeners(service).find_map(|socket| socket.uid) {
        Some(uid) if !scan.as_root() => format!("process of user {uid} not visible: {}", way_to_see(scan)),
        _ => format!("process not visible: {}", way_to_see(scan)),
    }
}

fn way_to_see(scan: &Scan) -> String {
    match (&scan.hidden.because, scan.seen_as) {
        (_, SeenAs::User) => "root sees it, sudo samehost scan".to_owned(),
        (Some(because), _) => clean(&because.why),
        (None, _) => "no process found for this socket".to_owned(),
    }
}

fn endpoint(socket: &Socket) -> String {
    let waiting = match socket.queues {
        Queues::Listening { waiting, .. } if waiting > 0 => format!(" ({waiting} waiting)"),
        _ => String::new(),
    };
    // One word, as `verify` takes it.
    let between = if socket.kind.label().contains(' ') { " " } else { ":" };
    format!("{}{between}{}{waiting}", socket.kind.label(), socket.local)
}

fn findings(scan: &Scan, notes: Notes, columns: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    for finding in &scan.findings {
        let label = Span::new(Tone::Doubt, format!("• {}:", finding.code));
        let text = match notes {
            Notes::Brief => clean(&finding.found.fact),
            Notes::Whole => {
                format!("{}. {}.", clean(&finding.found.to_string()), clean(&finding.remedy))
            }
        };
        lines.extend(labelled(&Span::plain("  "), 2, &[label, Span::plain(text)], columns));
    }
    lines.extend(slow_congestion(scan, columns));
    titled("Worth knowing", lines)
}

/// That connections inside this machine begin with BBR, in a line. Only large transfers suffer, and only where there is room for it
/// does the line say so.
fn slow_congestion(scan: &Scan, columns: usize) -> Vec<Line> {
    let Some(first) = scan.slow_congestion.first() else { return Vec::new() };
    let label = Span::new(Tone::Doubt, format!("• {BBR}:"));
    let congestion = clean(&first.congestion).to_uppercase();
    let mut text = format!("loopback runs on {congestion}, which slows large transfers over TCP");
    if columns >= WHOLE_NOTE {
        text.push_str("; small requests are the same");
    }
    labelled(&Span::plain("  "), 2, &[label, Span::plain(text)], columns)
}

fn own_namespace(scan: &Scan) -> u64 {
    match scan.network_namespaces.first() {
        Some(own) => own.inode,
        None => 0,
    }
}

fn namespace_name(scan: &Scan, inode: u64) -> String {
    for space in scan.network_namespaces.iter().filter(|space| space.inode == inode) {
        if let Some(name) = &space.name {
            return format!("network namespace {name}");
        }
    }
    format!("network namespace {inode}")
}

fn pairs(scan: &Scan, columns: usize) -> Vec<Line> {
    let mut pairs: BTreeMap<(String, String, String), usize> = BTreeMap::new();
    let mut unnamed = 0;
    for connection in scan.connections.iter().filter(|connection| connection.kind.is_unix()) {
        let service = connection.service.and_then(|at| scan.services.get(at));
        let (Some(service), Some(server)) = (service, scan.sockets.get(connection.server)) else {
            unnamed += 1;
            continue;
        };
        let client = match scan.holder(connection.client) {
            Some(process) => process.name.clone(),
            None => "not visible".to_owned(),
        };
        let to = format!("{} {}", server.kind.label(), server.local);
        *pairs.entry((client, service.name.clone(), to)).or_default() += 1;
    }
    let mut lines = Vec::new();
    for ((client, service, to), number) in pairs.iter().take(MOST_PAIRS) {
        let text = format!("{client} → {service}");
        let spans = [Span::plain(text), Span::dim(format!("{to}, {}", count(*number, "connection")))];
        lines.extend(labelled(&Span::plain("  "), 2, &spans, columns));
    }
    let mut rest = Vec::new();
    if let Some(more) = beyond(pairs.len(), MOST_PAIRS) {
        rest.push(count(more, "more pair"));
    }
    if unnamed > 0 {
        rest.push(format!("{} between a program and its own processes", count(unnamed, "connection")));
    }
    if !rest.is_empty() {
        let and = if pairs.is_empty() { "" } else { "and " };
        let rest = Span::dim(format!("{and}{}", rest.join(", ")));
        lines.extend(labelled(&Span::plain("  "), 2, &[rest], columns));
    }
    titled("Over Unix sockets already", lines)
}

fn hidden(scan: &Scan, columns: usize) -> Vec<Line> {
    let hidden = &scan.hidden;
    let mut parts = Vec::new();
    let unread = if hidden.processes > 0 {
        let processes = count_of(hidden.processes as usize, "process", "processes");
        Some(format!("the descriptors of {processes} of other users"))
    } else if hidden.sockets > 0 && hidden.because.is_some() {
        Some("some processes".to_owned())
    } else {
        None
    };
    if let Some(unread) = unread {
        let sockets = count(hidden.sockets as usize, "socket");
        parts.push(format!("{unread}, so {sockets} without an owner{}", by_namespace(scan)));
    }
    for space in &scan.network_namespaces {
        match &space.read_by {
            ReadBy::SockDiag => {}
            ReadBy::Proc => parts.push(format!(
                "the peers of Unix sockets in {} ({})",
                namespace_name(scan, space.inode),
                clean(space.refused.as_deref().unwrap_or_default())
            )),
            ReadBy::Refused(why) => {
                parts.push(format!("the sockets of {} ({})", namespace_name(scan, space.inode), clean(why)));
            }
        }
    }
    if parts.is_empty() {
        return Vec::new();
    }
    let mut text = format!("Not seen: {}.", parts.join("; "));
    if let Some(because) = &hidden.because {
        let _ = write!(text, " Why: {}; {}.", clean(&because.why), clean(&because.try_next));
    }
    wrap_spans(&[Span::new(Tone::Doubt, text)], columns)
}

/// Number of unowned sockets in other network namespaces: ` (3 in network namespace web)`.
fn by_namespace(scan: &Scan) -> String {
    let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
    let unowned = scan.sockets.iter().filter(|socket| socket.pids.is_empty() && socket.inode != 0);
    for socket in unowned.filter(|socket| socket.network_namespace != own_namespace(scan)) {
        *counts.entry(socket.network_namespace).or_default() += 1;
    }
    if counts.is_empty() {
        return String::new();
    }
    let mut parts = Vec::new();
    for (inode, number) in counts {
        parts.push(format!("{number} in {}", namespace_name(scan, inode)));
    }
    format!(" ({})", parts.join(", "))
}

/// All pairs over TCP in the order of the scan, which has those that could switch now first.
pub(crate) fn advice(scan: &Scan, notes: Notes, columns: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    for advice in &scan.advice {
        lines.extend(pair(scan, advice, notes, columns));
    }
    if let Some(text) = price_in_words(scan) {
        lines.extend(labelled(&Span::plain("  "), 2, &[Span::dim(text)], columns));
    }
    titled("Over TCP", lines)
}

/// Where the price of the traffic that was counted is from, or what finds it; nothing where there is nothing to price.
pub(crate) fn price_in_words(scan: &Scan) -> Option<String> {
    let can_move = |advice: &&Advice| advice.possible < Possible::Cannot && advice.traffic.is_some();
    scan.advice.iter().find(can_move)?;
    Some(match &scan.priced_at {
        Some(at) => format!("Priced by the checkup of {}.", clean(at)),
        None => {
            "What that would save is not known yet: samehost checkup, as this user, measures what a request costs here."
                .to_owned()
        }
    })
}

fn pair(scan: &Scan, advice: &Advice, notes: Notes, columns: usize) -> Vec<Line> {
    let service = name_of_service(scan, advice.service);
    let connections = count(advice.connections as usize, "connection");
    let unseen = match advice.unseen {
        0 => String::new(),
        all if all == advice.connections => String::new(),
        part => format!(", {part} of them of no visible process"),
    };
    let to = Span::dim(format!("{}, {connections}{unseen}", advice.now));
    let who = Span::new(Tone::Bold, format!("{} → {service}", client(scan, advice)));
    let mut lines = labelled(&Span::plain("  "), 2, &[who, to], columns);
    lines.extend(labelled(&Span::plain(""), 6, &[verdict(advice)], columns));
    // Nobody sets anything for a client program.
    let is_for_somebody = advice.possible != Possible::Tool;
    for obstacle in advice.obstacles.iter().filter(|_| is_for_somebody) {
        let tone = match obstacle.weight {
            Weight::Note => Tone::Dim,
            Weight::Setting => Tone::Doubt,
            Weight::Blocks => Tone::Bad,
        };
        let label = Span::new(tone, format!("• {}:", obstacle.code));
        let text = match (notes, obstacle.weight) {
            (Notes::Brief, Weight::Note) => clean(&obstacle.found.fact),
            _ => format!("{}. {}", obstacle.found, obstacle.remedy),
        };
        let spans = [label, Span::plain(text.trim_end())];
        lines.extend(labelled(&Span::plain("      "), 6, &spans, columns));
    }
    if let Some(traffic) = &advice.traffic {
        lines.extend(labelled(&Span::plain(""), 6, &[Span::plain(traffic_in_words(traffic))], columns));
    }
    if let Some(saving) = &advice.saving {
        let tone = if saving.worth_it { Tone::Good } else { Tone::Dim };
        lines.extend(labelled(&Span::plain(""), 6, &[Span::new(tone, saving_in_words(saving))], columns));
    }
    if let Some(text) = of_a_request(scan, advice) {
        lines.extend(labelled(&Span::plain(""), 6, &[Span::plain(text)], columns));
    }
    lines
}

/// The client's name, with its user where several programs of that name are clients of the service.
fn client(scan: &Scan, advice: &Advice) -> String {
    let mut alike = 0;
    for other in &scan.advice {
        if other.client == advice.client && other.service == advice.service {
            alike += 1;
        }
    }
    match scan.processes.iter().find(|process| advice.client_pids.contains(&process.pid)) {
        Some(process) if alike > 1 => format!("{} ({})", advice.client, user(process)),
        _ => advice.client.clone(),
    }
}

fn verdict(advice: &Advice) -> Span {
    let place = match &advice.socket {
        Some(socket) => format!(": {socket}"),
        None => String::new(),
    };
    match advice.possible {
        Possible::Now => Span::new(Tone::Good, format!("could switch now{place}")),
        Possible::AfterSetting => Span::new(Tone::Doubt, format!("could switch after a setting{place}")),
        Possible::Unknown => Span::dim(
            "it has no Unix socket; samehost does not know this program and cannot say whether it supports one",
        ),
        Possible::Cannot => Span::new(Tone::Bad, "cannot switch as things stand"),
        Possible::Tool => Span::dim("a client program that a person or a job runs: nothing to switch"),
    }
}

fn traffic_in_words(traffic: &Traffic) -> String {
    let has_short = traffic.short_connections_per_s >= 0.5;
    let mut parts = Vec::new();
    if traffic.busy_connections > 0 || !has_short {
        parts.push(format!(
            "{}, {}/s, about {}/s on {}",
            format_value(traffic.bytes_per_s, "bytes_per_s"),
            count(traffic.segments_per_s.round() as usize, "segment"),
            count(traffic.round_trips_per_s.round() as usize, "round trip"),
            count(traffic.busy_connections as usize, "busy connection"),
        ));
    }
    if has_short {
        let each_second = count(traffic.short_connections_per_s.round() as usize, "short connection");
        let mut text = format!("about {each_second}/s");
        if let Some(short) = traffic.short {
            let each = short.round_trips_per_s / traffic.short_connections_per_s;
            let bytes = format_value(short.bytes_per_s, "bytes_per_s");
            text.push_str(&format!(" of {} each, {bytes}", count(each.round() as usize, "round trip")));
        }
        parts.push(text);
    }
    let uncounted = traffic.uncounted_connections_per_s;
    if uncounted > 0.0 {
        parts.push(format!(
            "{uncounted:.0} more connections/s began in this network namespace than were counted"
        ));
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use samehost_model::scan::ShortTraffic;

    use super::*;

    #[test]
    fn connections_that_stay_and_those_that_go_are_told_apart() {
        let stay = Traffic {
            bytes_per_s: 3e6,
            round_trips_per_s: 7_000.0,
            busy_connections: 2,
            ..Traffic::default()
        };
        assert_eq!(
            traffic_in_words(&stay),
            "3.00 MB/s, 0 segments/s, about 7000 round trips/s on 2 busy connections"
        );
        let go = Traffic {
            short_connections_per_s: 16.0,
            short: Some(ShortTraffic { round_trips_per_s: 976.0, bytes_per_s: 1.5e6 }),
            ..Traffic::default()
        };
        assert_eq!(traffic_in_words(&go), "about 16 short connections/s of 61 round trips each, 1.50 MB/s");
        let web = Traffic { short: Some(ShortTraffic { round_trips_per_s: 16.2, bytes_per_s: 5.4e3 }), ..go };
        assert!(traffic_in_words(&web).contains(" of 1 round trip each, "));
        let both = Traffic { short_connections_per_s: 16.0, ..stay };
        assert!(traffic_in_words(&both).ends_with("busy connections; about 16 short connections/s"));
        assert!(traffic_in_words(&Traffic::default()).contains("0 round trips/s"));
    }
}
