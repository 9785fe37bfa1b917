//! Result of `verify` on the terminal: the answer, then its proofs. The answer says what they prove, and at once where
//! the application connects elsewhere than its configuration names, or a login failed.

use std::io::{self, Write};

use samehost_model::scan::{ApplicationSeen, ClientCount, LoginOutcome, Verdict, Verification};

use crate::formats::terminal::{Page, Terminal};
use crate::layout::{Line, Span, Tone, count, labelled, wrap_spans};

/// Most results of which each is shown with its proofs.
const MOST_WHOLE: usize = 4;

impl Terminal {
    /// Several, as of all sites of a machine: of more than a screen shows, those that nothing contradicts are a line each.
    pub fn render_verifications(&self, all: &[Verification], out: &mut dyn Write) -> io::Result<()> {
        let (brief, whole): (Vec<&Verification>, Vec<&Verification>) =
            all.iter().partition(|one| all.len() > MOST_WHOLE && one.verdict() != Verdict::Contradicted);
        let mut page = Page::new(self.width);
        let columns = page.measure();
        page.section(brief.iter().flat_map(|one| wrap_spans(&[answer(one)], columns)).collect());
        self.print(&page, out)?;
        for (index, one) in whole.iter().enumerate() {
            if index > 0 || !brief.is_empty() {
                writeln!(out)?;
            }
            self.render_verification(one, out)?;
        }
        Ok(())
    }

    pub fn render_verification(&self, found: &Verification, out: &mut dyn Write) -> io::Result<()> {
        let mut page = Page::new(self.width);
        let columns = page.measure();
        page.section(wrap_spans(&[answer(found)], columns));
        page.section(proofs(found, columns));
        page.section(connections(found, columns));
        let mut notes = Vec::new();
        for note in &found.notes {
            notes.extend(wrap_spans(&[Span::plain(note)], columns));
        }
        page.section(notes);
        self.print(&page, out)
    }
}

fn proofs(found: &Verification, columns: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    for proof in &found.proofs {
        let by = Span::dim(format!("  {}", proof.by));
        lines.extend(labelled(&by, 15, &[Span::plain(&proof.says)], columns));
    }
    if let Some(settings) = &found.settings {
        let text = samehost_model::printable::clean(&settings.to_string());
        lines.extend(labelled(&Span::dim("  sockets"), 15, &[Span::plain(text)], columns));
    }
    lines
}

/// The headline, of what is proved and nothing else: its tone is the verdict's, which is the exit status as well.
fn answer(found: &Verification) -> Span {
    let tone = match (found.verdict(), found.as_expected, found.application) {
        (Verdict::Contradicted, ..) => Tone::Loud,
        (Verdict::Holds, Some(true), _) | (Verdict::Holds, _, Some(_)) => Tone::Good,
        _ => Tone::Bold,
    };
    let said = if let Some(seen) = found.application {
        of_application(found, seen)
    } else if let Some(clients) = &found.clients {
        format!("{}: {}", found.target, of_clients(found, clients))
    } else {
        of_endpoint_or_process(found)
    };
    let expected = found.expected.as_deref().unwrap_or_default();
    let used = found.named_transport() == Some(expected);
    let text = match (found.verdict(), found.as_expected) {
        (Verdict::Holds, Some(_)) => format!("{said}, as expected ({expected})"),
        // Where the transport is the expected one, something else contradicts, and was said.
        (Verdict::Contradicted, Some(_)) if !used => format!("{said}, but {expected} was expected"),
        (Verdict::Undecided, _) if found.expected.is_some() => {
            format!("{said}; whether it is {expected} is undecided")
        }
        _ => said,
    };
    Span::new(tone, text)
}

fn place(found: &Verification) -> &'static str {
    if found.named_transport() == Some("unix") { "the Unix socket" } else { "TCP" }
}

/// Of a line in a configuration: what its own processes do, and what became of the login that it holds.
fn of_application(found: &Verification, seen: ApplicationSeen) -> String {
    let (target, place) = (&found.target, place(found));
    let (there, elsewhere) = (found.seen_there.join(", "), found.seen_elsewhere.join(", "));
    let failed = found.login.as_ref().filter(|login| !login.is_good());
    let does = match (seen, failed) {
        (ApplicationSeen::InUse, None) => format!("the application uses {place}: {there}"),
        (ApplicationSeen::InUse, Some(_)) => format!("the application holds a connection to it: {there}"),
        (ApplicationSeen::Elsewhere, _) => format!("the application connects elsewhere: {elsewhere}"),
        (ApplicationSeen::AlsoElsewhere, _) => {
            format!("the application connects there ({there}) and elsewhere: {elsewhere}")
        }
        (ApplicationSeen::Unclear, _) => {
            "processes that run other applications too are connected, and whose connection it is is not known"
                .to_owned()
        }
        (ApplicationSeen::NotSeen, _) => {
            "the application was not seen to use it (--wait 60s looks longer)".to_owned()
        }
    };
    match (failed, seen) {
        (Some(login), _) => format!("{target} names {place}, and {}; {does}", login.outcome()),
        (None, ApplicationSeen::Elsewhere | ApplicationSeen::AlsoElsewhere) => {
            format!("{target} names {place}, and {does}")
        }
        (None, ApplicationSeen::InUse) => format!("{target}: {does}"),
        (None, _) => match found.login.as_ref() {
            Some(login) => format!("{target}: over {place} {}; {does}", login.outcome()),
            None => format!("{target} names {place}; {does}"),
        },
    }
}

/// `3 clients: 2 over Unix sockets, 1 over TCP (worker 4711)`
fn of_clients(found: &Verification, clients: &ClientCount) -> String {
    let number = (clients.unix + clients.tcp + clients.both) as usize;
    if number == 0 {
        return "no client is connected now (--wait 60s looks longer)".to_owned();
    }
    let mut parts = Vec::new();
    if clients.unix > 0 {
        parts.push(format!("{} over Unix sockets", clients.unix));
    }
    for (number, how) in [(clients.tcp, "over TCP"), (clients.both, "over both")] {
        if number > 0 {
            parts.push(format!("{number} {how}"));
        }
    }
    let mut over_tcp: Vec<&str> = Vec::new();
    for group in found.connections.iter().filter(|group| group.transport == "tcp") {
        over_tcp.push(group.other.as_deref().unwrap_or("a process that cannot be seen"));
    }
    over_tcp.dedup();
    let who = if over_tcp.is_empty() { String::new() } else { format!(" ({})", over_tcp.join(", ")) };
    format!("{}: {}{who}", count(number, "client"), parts.join(", "))
}

fn of_endpoint_or_process(found: &Verification) -> String {
    let target = &found.target;
    if let Some(login) = found.login.as_ref().filter(|login| !login.is_good()) {
        return format!("{target} names {}, and {}", place(found), login.outcome());
    }
    let but = match &found.login {
        Some(login) if login.outcome() == LoginOutcome::Needed => format!(" ({})", login.outcome()),
        _ => String::new(),
    };
    match found.transport {
        Some("unix") => format!("{target} uses a Unix socket{but}"),
        Some("tcp") => format!("{target} uses TCP{but}"),
        Some("mixed") => format!("{target} uses both TCP and Unix sockets"),
        _ => format!(
            "{target} has no connection to a service on this machine now; one for each request shows in samehost scan --observe 10s"
        ),
    }
}

fn connections(found: &Verification, columns: usize) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for group in &found.connections {
        let service = group.service.as_deref().unwrap_or("no listener");
        let arrow = if group.role == "client" { "→" } else { "←" };
        let other = group.other.as_deref().unwrap_or("not visible");
        let far = if group.role == "client" { format!("{service} ({other})") } else { other.to_owned() };
        let spans = [
            Span::plain(format!("{arrow} {far}")),
            Span::dim(format!("{}, {}", group.service_address, count(group.count as usize, "connection"))),
        ];
        lines.extend(labelled(&Span::new(Tone::Bold, format!("  {}", group.transport)), 8, &spans, columns));
    }
    if found.remote > 0 {
        let text = format!("  and {} with other machines", count(found.remote as usize, "connection"));
        lines.push(Line::of(Tone::Dim, text));
    }
    lines
}
