//! What changed between two scans, on the terminal; and the history of scans, each with what changed since the one before.

use std::io::{self, Write};

use samehost_model::scan::{
    ChangedHop, Hop, Listening, Noted, Program, ScanChanges, ServiceName, Unexpected, is_tcp,
};

use crate::formats::terminal::{Page, Terminal};
use crate::layout::{Line, Span, Tone, count, labelled, titled, wrap_spans};

/// Lines of a list that are shown; JSON has all.
const MOST: usize = 20;

/// Words for a time of a scan.
pub type When<'a> = &'a dyn Fn(&str) -> String;

impl Terminal {
    /// Renders what changed.
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

    /// Renders the hops that are not as a file expects.
    pub fn render_unexpected(&self, unexpected: &[Unexpected], out: &mut dyn Write) -> io::Result<()> {
        let mut page = Page::new(self.width);
        let columns = page.measure();
        let (tone, text) = match unexpected.len() {
            0 => (Tone::Good, "Every client that was seen is as expected.".to_owned()),
            1 => (Tone::Loud, "1 client is not as expected".to_owned()),
            number => (Tone::Loud, format!("{number} clients are not as expected")),
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
            if changes.is_some_and(|changes| !changes.is_changed) {
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
    let parts: Vec<String> = [
        (changes.new_hops.iter().filter(|hop| hop.is_tcp()).count(), "new TCP client"),
        (changes.new_hops.iter().filter(|hop| !hop.is_tcp()).count(), "new Unix client"),
        (changes.changed_hops.len(), "changed client"),
        (changes.new_services.len(), "new service"),
        (changes.changed_services.len(), "changed service"),
        (changes.gone_services.len(), "service gone"),
        (changes.new_findings.len(), "new finding"),
    ]
    .into_iter()
    .filter(|(number, _)| *number > 0)
    .map(|(number, what)| count(number, what).replace("service gones", "services gone"))
    .collect();
    Span::new(Tone::Bold, format!("{} since {since}", parts.join(", ")))
}

/// What changed, the most important first.
fn lists(page: &mut Page, changes: &ScanChanges, when: When<'_>) {
    let columns = page.measure();
    let (tcp, unix): (Vec<&Hop>, Vec<&Hop>) = changes.new_hops.iter().partition(|hop| hop.is_tcp());
    let mut list = |title: &str, lines: Vec<Vec<Line>>| {
        let more = lines.len().saturating_sub(MOST);
        let mut shown: Vec<Line> = lines.into_iter().take(MOST).flatten().collect();
        if more > 0 {
            shown.push(vec![Span::dim(format!("  and {more} more"))].into());
        }
        page.section(titled(title, shown));
    };
    list("New over TCP", tcp.into_iter().map(|hop| hop_lines(hop, "", Tone::Doubt, columns)).collect());
    list(
        "New over Unix sockets",
        unix.into_iter().map(|hop| hop_lines(hop, "", Tone::Plain, columns)).collect(),
    );
    list("Other endpoint", changes.changed_hops.iter().map(|hop| changed_hop(hop, columns)).collect());
    list("New services", changes.new_services.iter().map(|one| service_lines(one, columns)).collect());
    let changed = changes.changed_services.iter().map(|one| {
        let mut words = Vec::new();
        words.extend((!one.opened.is_empty()).then(|| format!("now also {}", one.opened.join(", "))));
        words.extend((!one.closed.is_empty()).then(|| format!("not any more {}", one.closed.join(", "))));
        named(&service(&one.service, &one.program), &words.join("; "), Tone::Plain, columns)
    });
    list("Listens elsewhere", changed.collect());
    list("Services gone", changes.gone_services.iter().map(|one| service_lines(one, columns)).collect());
    list("Worth knowing", changes.new_findings.iter().map(|one| finding(one, columns)).collect());
    list("Settled", changes.gone_findings.iter().map(|one| finding(one, columns)).collect());
    let returned = changes.returned_hops.iter().map(|one| {
        let seen = format!(", last seen {}", when(&one.seen_at));
        hop_lines(&one.hop, &seen, Tone::Dim, columns)
    });
    list("Seen again", returned.collect());
    list(
        "Not connected now",
        changes.gone_hops.iter().map(|hop| hop_lines(hop, "", Tone::Dim, columns)).collect(),
    );
}

/// What one of the scans could not see, when the other could.
fn visibility(changes: &ScanChanges) -> &'static str {
    match changes.since.as_ref().map(|since| (since.as_root, changes.now.as_root)) {
        Some((true, false)) => {
            "The earlier scan was made as root, this one was not: what only root sees counts as gone. Run it with sudo."
        }
        Some((false, true)) => "Only this scan was made as root: what only root sees counts as new.",
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
    let process = by.name.iter().filter(|process| **process != name.name).cloned();
    let parts: Vec<String> = process.chain(place(by)).collect();
    if parts.is_empty() { name.name.clone() } else { format!("{} ({})", name.name, parts.join(", ")) }
}

fn program(program: &Program) -> String {
    let name = program.name.as_deref().unwrap_or("a program that is not visible");
    let parts = place(program);
    if parts.is_empty() { name.to_owned() } else { format!("{name} ({})", parts.join(", ")) }
}

/// User, unit and place of a program.
fn place(program: &Program) -> Vec<String> {
    let container = program.container.as_ref().map(|runtime| format!("{runtime} container"));
    let network = program.other_network.then(|| "another network namespace".to_owned());
    [program.user.clone(), program.unit.clone(), container, network].into_iter().flatten().collect()
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
