//! Result of `verify` on the terminal: the answer, then its proofs. The answer is the highest standing that was seen, and says at
//! once where the application connects elsewhere than its configuration names.

use std::io::{self, Write};

use samehost_model::scan::{Standing, Verification};

use crate::formats::terminal::{Page, Terminal};
use crate::layout::{Line, Span, Tone, count, labelled, wrap_spans};

impl Terminal {
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

fn answer(found: &Verification) -> Span {
    let target = &found.target;
    let place = if found.transport == Some("unix") { "the Unix socket" } else { "TCP" };
    if !found.seen_elsewhere.is_empty() {
        let who = found.seen_elsewhere.join(", ");
        let text = format!("{target} names {place}, and the application connects elsewhere: {who}");
        return Span::new(Tone::Loud, text);
    }
    if let Some(standing) = found.standing {
        let (tone, text) = match standing {
            Standing::InUse => {
                (Tone::Good, format!("the application uses {place}: {}", found.seen_there.join(", ")))
            }
            Standing::Tried => (
                Tone::Bold,
                format!(
                    "a login over {place} works; the application was not seen to use it (--wait 60s looks longer)"
                ),
            ),
            Standing::Written => (Tone::Bold, format!("{place} is what it names")),
        };
        return match found.as_expected {
            Some(false) => Span::new(
                Tone::Loud,
                format!("{target}: {text}; {} was expected", found.expected.as_deref().unwrap_or_default()),
            ),
            _ => Span::new(tone, format!("{target}: {text}")),
        };
    }
    let what = match found.transport {
        Some("unix") => format!("{target} uses a Unix socket"),
        Some("tcp") => format!("{target} uses TCP"),
        Some("mixed") => format!("{target} uses both TCP and Unix sockets"),
        _ => format!(
            "{target} has no connection to a service on this machine now; one for each request shows in samehost scan --observe 10s"
        ),
    };
    match (found.as_expected, &found.expected) {
        (Some(true), Some(expected)) => Span::new(Tone::Good, format!("{what}, as expected ({expected})")),
        (Some(false), Some(expected)) => {
            Span::new(Tone::Loud, format!("{what}, but {expected} was expected"))
        }
        _ => Span::new(Tone::Bold, what),
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
        let text = format!("  and {} to other machines", count(found.remote as usize, "connection"));
        lines.push(Line::of(Tone::Dim, text));
    }
    lines
}
