//! Clients that are over another transport than a file of `samehost scan --expect` says.

use std::io::{self, Write};

use samehost_model::scan::{Hop, Program, Unexpected};

use crate::formats::terminal::{Page, Terminal};
use crate::layout::{Line, Span, Tone, count, count_of, labelled, wrap_spans};

impl Terminal {
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
}

fn hop_lines(hop: &Hop, more: &str, tone: Tone, columns: usize) -> Vec<Line> {
    let text = format!("{}, {}{more}", hop.endpoint, count(hop.connections as usize, "connection"));
    named(&ends(hop), &text, tone, columns)
}

fn named(name: &str, text: &str, tone: Tone, columns: usize) -> Vec<Line> {
    labelled(&Span::plain("  "), 2, &[Span::new(Tone::Bold, name), Span::new(tone, text)], columns)
}

/// Formats as `php-fpm8.2 (www-data, php8.2-fpm.service) → Redis`.
fn ends(hop: &Hop) -> String {
    format!("{} → {}", program(&hop.client), hop.service.name)
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
    use samehost_model::scan::ServiceName;

    use super::*;

    #[test]
    fn clients_are_named_and_nothing_controls_the_terminal() {
        let client = Program {
            name: Some("e\u{1b}[2Jvil".into()),
            user: Some("www-data".into()),
            ..Program::default()
        };
        let service = ServiceName { kind: None, name: "store".into() };
        let hop = Hop { client, service, endpoint: "tcp:127.0.0.1:9".into(), connections: 2 };
        let mut out = Vec::new();
        let terminal = Terminal { width: 80, color: false };
        terminal.render_unexpected(&[Unexpected { hop, expected: "unix" }], &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("1 client is not as expected\n") && !text.contains('\u{1b}'), "{text}");
        assert!(
            text.contains("(www-data) → store tcp:127.0.0.1:9, 2 connections; expected over unix"),
            "{text}"
        );
    }
}
