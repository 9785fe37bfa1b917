//! Renders `samehost how`: how a service and its clients are configured for a socket. Lines to copy are not wrapped.

use std::io::{self, Write};

use samehost_model::scan::{ClientWords, HowTo};

use crate::line::titled;
use crate::line::{Line, Span, Tone, labelled, wrap_spans};
use crate::page::Page;
use crate::terminal::Terminal;

impl Terminal {
    /// Renders an answer.
    pub fn render_how(&self, answer: &HowTo, out: &mut dyn Write) -> io::Result<()> {
        let mut page = Page::new(self.width);
        let columns = page.measure();
        let head = format!("{} over a Unix socket: {}", answer.label, answer.path);
        let mut lines = wrap_spans(&[Span::new(Tone::Bold, head)], columns);
        let from = match answer.path_from {
            "found here" => "It listens there now.",
            "given" => "The path is the one of the URL.",
            _ => "The usual path; the service does not listen on a socket here, or does not run.",
        };
        lines.extend(wrap_spans(&[Span::dim(from)], columns));
        page.section(lines);
        let steps = answer.server.iter().enumerate().flat_map(|(index, step)| {
            labelled(&Span::plain(format!("  {}.", index + 1)), 5, &[Span::plain(step)], columns)
        });
        page.section(titled("The server", steps.collect()));
        let clients = answer.clients.iter().flat_map(|words| client(words, answer.beside, columns));
        page.section(titled("The clients", clients.collect()));
        if answer.clients.iter().any(|words| !words.tested) {
            let text = if answer.beside == "udp" {
                "Rows marked * were not tested against a server: samehost scan shows who sends to it."
            } else {
                "Rows marked * were not tested against a server: samehost verify shows what really happens."
            };
            page.section(wrap_spans(&[Span::dim(text)], columns));
        }
        self.print(&page, out)
    }
}

fn client(words: &ClientWords, beside: &str, columns: usize) -> Vec<Line> {
    let mark = if words.tested { "" } else { " *" };
    let localhost = match words.localhost {
        "socket" => "`localhost` means the default socket",
        "tcp" => "`localhost` means TCP",
        _ => "",
    };
    let mut notes = vec![Span::new(Tone::Bold, format!("{}, {}{mark}", words.client, words.language))];
    let remarks: Vec<&str> = [localhost, words.note].into_iter().filter(|text| !text.is_empty()).collect();
    notes.push(Span::dim(remarks.join("; ")));
    let mut lines = labelled(&Span::plain("  "), 2, &notes, columns);
    let mut add = |label: &str, text: &str| {
        for (index, line) in text.lines().enumerate() {
            let label = if index == 0 { label } else { "" };
            lines.push(Line::from(vec![Span::dim(format!("    {label:<7}")), Span::plain(line)]));
        }
    };
    match &words.socket {
        Some(socket) => add("socket", socket),
        None if beside == "tcp" => add("socket", "it cannot by itself; under `samehost run` it can"),
        None => add("socket", "it cannot by itself"),
    }
    add(beside, &words.tcp);
    lines
}
