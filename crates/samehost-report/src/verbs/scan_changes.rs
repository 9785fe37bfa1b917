//! What changed between two scans, on the terminal; and the history of scans, each with what changed since the one before.

use std::io::{self, Write};

use samehost_model::scan::{
    ChangedHop, ChangedService, Hop, Listening, Noted, Program, ScanChanges, ServiceName, Unexpected, is_tcp,
};

use crate::formats::terminal::{Page, Terminal};
use crate::layout::{Line, Span, Tone, beyond, count, count_of, labelled, titled, wrap_spans};

/// Lines of a list that are shown; JSON has all.
const MOST: usize = 20;

/// Words for the time of a scan: `Tuesday 2026-11-17 14:00, 6 days ago`. The caller has them, because this crate reads no clock.
pub type When<'a> = &'a dyn Fn(&str) -> String;

impl Terminal {
    pub fn render_scan_changes(
        &self,
        changes: &ScanChanges,
        when: When<'_>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let mut page = Page::new(self.width);
        let columns = page.measure();
        page.section(wrap_spans(&[head(changes, when)], columns));
        lists(&mut page, changes, when);
        page.section(wrap_spans(&[Span::new(Tone::Doubt, visibility(changes))], columns));
        self.print(&page, out)
    }

    pub fn render_unexpected(&self, unexpected: &[Unexpected], out: &mut dyn Write) -> io::Result<()> {
        let mut page = Page::new(self.width);
        let columns = page.measure();
        let (tone, text) = match unexpected.len() {
            0 => (Tone::Good, "Every client that was seen is as expected.".to_owned()),
            number => {
                (Tone::Loud, format!("{} not as expected", count_of(number, "client is", "clients are")))
            }
        };
        page.section(wrap_spans(&[Span::new(tone, text)], columns));
        let mut lines = Vec::new();
        for one in unexpected {
            let expected = format!("; expected over {}", one.expected);
            lines.extend(hop_lines(&one.hop, &expected, Tone::Doubt, columns));
        }
        page.section(lines);
        self.print(&page, out)
    }

    /// Renders kept scans, the oldest first, each with what changed since the one before. Those without a change are
    /// counted.
    pub fn render_scan_history(
        &self,
        scans: &[(&str, Option<&ScanChanges>)],
        when: When<'_>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let mut page = Page::new(self.width);
        let columns = page.measure();
        let mut same = 0;
        for (taken_at, changes) in scans {
            if let Some(changes) = changes
                && !changes.is_changed
            {
                same += 1;
                continue;
            }
            without_change(&mut page, same);
            same = 0;
            let title = match changes {
                Some(_) => when(taken_at),
                None => format!("{}: the first scan that is kept", when(taken_at)),
            };
            page.section(wrap_spans(&[Span::new(Tone::Bold, title)], columns));
            if let Some(changes) = changes {
                lists(&mut page, changes, when);
            }
        }
        without_change(&mut page, same);
        self.print(&page, out)
    }
}

fn without_change(page: &mut Page, scans: usize) {
    if scans > 0 {
        let text = format!("{} without a change", count(scans, "scan"));
        page.section(wrap_spans(&[Span::dim(text)], page.measure()));
    }
}

fn head(changes: &ScanChanges, when: When<'_>) -> Span {
    let Some(since) = &changes.since else {
        return Span::plain("This is the first scan that is kept: there is nothing to compare it with yet.");
    };
    let since = match (&since.taken_at, &since.file) {
        (Some(taken_at), _) => when(taken_at),
        (None, Some(file)) => file.clone(),
        (None, None) => "an earlier scan".into(),
    };
    if !changes.is_changed {
        return Span::plain(format!("No change since {since}"));
    }
    let mut parts = Vec::new();
    for (number, one, several) in [
        (changes.new_hops.iter().filter(|hop| hop.is_tcp()).count(), "new TCP client", "new TCP clients"),
        (changes.new_hops.iter().filter(|hop| !hop.is_tcp()).count(), "new Unix client", "new Unix clients"),
        (changes.changed_hops.len(), "changed client", "changed clients"),
        (changes.new_services.len(), "new service", "new services"),
        (changes.changed_services.len(), "changed service", "changed services"),
        (changes.gone_services.len(), "service gone", "services gone"),
        (changes.new_findings.len(), "new finding", "new findings"),
    ] {
        if number > 0 {
            parts.push(count_of(number, one, several));
        }
    }
    Span::new(Tone::Bold, format!("{} since {since}", parts.join(", ")))
}

/// The lists of a page, the most important first; those that are empty have no title.
fn lists(page: &mut Page, changes: &ScanChanges, when: When<'_>) {
    let columns = page.measure();
    let (tcp, unix): (Vec<&Hop>, Vec<&Hop>) = changes.new_hops.iter().partition(|hop| hop.is_tcp());
    list(page, "New over TCP", &tcp, |hop| hop_lines(hop, "", Tone::Doubt, columns));
    list(page, "New over Unix sockets", &unix, |hop| hop_lines(hop, "", Tone::Plain, columns));
    list(page, "Other endpoint", &changes.changed_hops, |hop| changed_hop(hop, columns));
    list(page, "New services", &changes.new_services, |one| service_lines(one, columns));
    list(page, "Listens elsewhere", &changes.changed_services, |one| changed_service(one, columns));
    list(page, "Services gone", &changes.gone_services, |one| service_lines(one, columns));
    list(page, "Worth knowing", &changes.new_findings, |one| finding(one, columns));
    list(page, "Settled", &changes.gone_findings, |one| finding(one, columns));
    list(page, "Seen again", &changes.returned_hops, |one| {
        let seen = format!(", last seen {}", when(&one.seen_at));
        hop_lines(&one.hop, &seen, Tone::Dim, columns)
    });
    list(page, "Not connected now", &changes.gone_hops, |hop| hop_lines(hop, "", Tone::Dim, columns));
}

fn list<T>(page: &mut Page, title: &str, entries: &[T], lines_of: impl Fn(&T) -> Vec<Line>) {
    let mut lines: Vec<Line> = entries.iter().take(MOST).flat_map(lines_of).collect();
    if let Some(more) = beyond(entries.len(), MOST) {
        lines.push(Line::of(Tone::Dim, format!("  and {more} more")));
    }
    page.section(titled(title, lines));
}

fn changed_service(changed: &ChangedService, columns: usize) -> Vec<Line> {
    let mut words = Vec::new();
    if !changed.opened.is_empty() {
        words.push(format!("now also {}", changed.opened.join(", ")));
    }
    if !changed.closed.is_empty() {
        words.push(format!("not any more {}", changed.closed.join(", ")));
    }
    named(&service(&changed.service, &changed.program), &words.join("; "), Tone::Plain, columns)
}

fn visibility(changes: &ScanChanges) -> &'static str {
    let Some(since) = &changes.since else { return "" };
    match (since.as_root, changes.now.as_root) {
        (true, false) => {
            "The earlier scan was made as root, this one was not: what only root sees counts as gone. Run it with sudo."
        }
        (false, true) => "Only this scan was made as root: what only root sees counts as new.",
        _ => "",
    }
}

fn hop_lines(hop: &Hop, more: &str, tone: Tone, columns: usize) -> Vec<Line> {
    let text = format!("{}, {}{more}", hop.endpoint, count(hop.connections as usize, "connection"));
    named(&ends(hop), &text, tone, columns)
}

fn changed_hop(hop: &ChangedHop, columns: usize) -> Vec<Line> {
    let tone = match (is_tcp(&hop.before), hop.now.is_tcp()) {
        (true, false) => Tone::Good,
        (false, true) => Tone::Doubt,
        _ => Tone::Plain,
    };
    named(&ends(&hop.now), &format!("{}, before {}", hop.now.endpoint, hop.before), tone, columns)
}

fn service_lines(listening: &Listening, columns: usize) -> Vec<Line> {
    let endpoints: Vec<&str> = listening.endpoints.iter().take(MOST).map(String::as_str).collect();
    named(&service(&listening.service, &listening.program), &endpoints.join(", "), Tone::Plain, columns)
}

fn finding(noted: &Noted, columns: usize) -> Vec<Line> {
    labelled(&Span::plain("  •"), 4, &[Span::plain(format!("{}.", noted.found))], columns)
}

fn named(name: &str, text: &str, tone: Tone, columns: usize) -> Vec<Line> {
    labelled(&Span::plain("  "), 2, &[Span::new(Tone::Bold, name), Span::new(tone, text)], columns)
}

/// Formats as `php-fpm8.2 (www-data, php8.2-fpm.service) → Redis`.
fn ends(hop: &Hop) -> String {
    format!("{} → {}", program(&hop.client), hop.service.name)
}

/// Formats as `Redis (redis-server, redis, redis-server.service)`.
fn service(name: &ServiceName, by: &Program) -> String {
    let mut parts = Vec::new();
    if let Some(process) = &by.name
        && *process != name.name
    {
        parts.push(process.clone());
    }
    parts.extend(place(by));
    if parts.is_empty() { name.name.clone() } else { format!("{} ({})", name.name, parts.join(", ")) }
}

fn program(program: &Program) -> String {
    let name = program.name.as_deref().unwrap_or("a program that is not visible");
    let parts = place(program);
    if parts.is_empty() { name.to_owned() } else { format!("{name} ({})", parts.join(", ")) }
}

/// What tells a program from others of its name: its user, its unit, its container, and another network.
fn place(program: &Program) -> Vec<String> {
    let mut parts = Vec::new();
    parts.extend(program.user.clone());
    parts.extend(program.unit.clone());
    if let Some(runtime) = &program.container {
        parts.push(format!("{runtime} container"));
    }
    if program.other_network {
        parts.push("another network namespace".to_owned());
    }
    parts
}

#[cfg(test)]
mod tests {
    use samehost_model::scan::{Compared, ReturnedHop};

    use super::*;

    fn hop(name: &str, endpoint: &str) -> Hop {
        let client = Program { name: Some(name.into()), user: Some("www-data".into()), ..Program::default() };
        let service = ServiceName { kind: None, name: "store".into() };
        Hop { client, service, endpoint: endpoint.into(), connections: 2 }
    }

    fn found() -> ScanChanges {
        let since = Compared { taken_at: Some("T".into()), as_root: true, file: None };
        let mut found =
            ScanChanges::none("1", Some(since), Compared { as_root: true, ..Compared::default() });
        fn port(port: u16) -> Hop {
            hop("app", &format!("tcp:127.0.0.1:{port}"))
        }
        found.new_hops = (1..=25).map(port).chain([hop("e\u{1b}[2Jvil", "unix:/run/s")]).collect();
        found.changed_hops =
            vec![ChangedHop { now: hop("app", "unix:/run/a"), before: "tcp:127.0.0.1:1".into() }];
        found.returned_hops = vec![ReturnedHop { hop: hop("cron", "tcp:127.0.0.1:9"), seen_at: "S".into() }];
        found.weigh();
        found
    }

    fn text(width: usize, render: impl Fn(&Terminal, &mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        render(&Terminal { width, color: false }, &mut out);
        let text = String::from_utf8(out).unwrap();
        assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
        text
    }

    #[test]
    fn long_lists_are_cut_and_nothing_controls_the_terminal() {
        let found = found();
        let when = |time: &str| format!("Tuesday {time}");
        for width in [40, 80] {
            let text = text(width, |terminal, out| terminal.render_scan_changes(&found, &when, out).unwrap());
            assert!(text.contains("and 5 more") && text.contains("Tuesday T"), "{text}");
            assert!(!text.contains('\u{1b}') && text.contains("Seen again"), "{text}");
        }
        let wide = text(100, |terminal, out| terminal.render_scan_changes(&found, &when, out).unwrap());
        assert!(
            wide.starts_with("25 new TCP clients, 1 new Unix client, 1 changed client since Tuesday T\n"),
            "{wide}"
        );
        assert!(wide.contains("  app (www-data) → store unix:/run/a, before tcp:127.0.0.1:1\n"), "{wide}");
        assert!(wide.contains("last seen Tuesday S"), "{wide}");
    }

    #[test]
    fn what_only_root_sees_is_said() {
        let mut found = found();
        found.now.as_root = false;
        assert!(visibility(&found).contains("sudo"));
        found.since = None;
        assert_eq!(visibility(&found), "");
        let first =
            text(80, |terminal, out| terminal.render_scan_changes(&found, &str::to_owned, out).unwrap());
        assert!(first.starts_with("This is the first scan"), "{first}");
    }

    #[test]
    fn scans_without_a_change_are_counted() {
        let changed = found();
        let same = ScanChanges::none("1", None, Compared::default());
        let scans =
            [("A", None), ("B", Some(&same)), ("C", Some(&same)), ("D", Some(&changed)), ("E", Some(&same))];
        let text =
            text(80, |terminal, out| terminal.render_scan_history(&scans, &str::to_owned, out).unwrap());
        let order = [
            "A: the first scan that is kept",
            "2 scans without a change",
            "\nD\n",
            "New over TCP",
            "1 scan without a change",
        ];
        let places: Vec<usize> = order.iter().map(|words| text.find(words).expect(words)).collect();
        assert!(places.is_sorted(), "{text}");
    }
}
