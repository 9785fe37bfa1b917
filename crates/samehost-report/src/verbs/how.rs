//! Renders `samehost how`: how a service and its clients are configured for a socket. Lines to copy are not wrapped.

use std::io::{self, Write};

use samehost_model::scan::{ClientWords, HowTo};

use crate::formats::terminal::{Page, Terminal};
use crate::layout::{Line, Span, Tone, labelled, titled, wrap_spans};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients<'a> {
    /// What it is told, for both transports, and what else to know of it. With the languages that were chosen for the
    /// reader.
    Whole(&'a [&'a str]),
    /// How it names the socket, in a line.
    Brief,
}

impl Terminal {
    pub fn render_how(&self, answer: &HowTo, how: Clients<'_>, out: &mut dyn Write) -> io::Result<()> {
        let mut page = Page::new(self.width);
        let columns = page.measure();
        let head = format!("{} over a Unix socket: {}", answer.label, answer.path);
        let mut lines = wrap_spans(&[Span::new(Tone::Bold, head)], columns);
        let from = match answer.path_from {
            "found here" => "It listens there now.",
            "given" => "The path is the one of the URL.",
            "unsafe" => {
                "The path to give it. The socket that it has is not safe, as another server took its path or may: samehost scan says which."
            }
            "localhost" => "`localhost` is this path to the client.",
            "elsewhere" => {
                "The host of the URL is not this machine, by its address and by /etc/hosts. A Unix socket leads to a server of this machine only: to another one, with other data."
            }
            _ => "The path to give it. The service is not listening on it now (stopped, or not configured).",
        };
        lines.extend(wrap_spans(&[Span::dim(from)], columns));
        if !answer.others.is_empty() {
            let text = format!(
                "Others of its kind run here, with other data: {}. The one that is meant is said by --url.",
                answer.others.join(", ")
            );
            lines.extend(wrap_spans(&[Span::plain(text)], columns));
        }
        page.section(lines);
        let mut steps = Vec::new();
        for (index, step) in answer.server.iter().enumerate() {
            let number = Span::plain(format!("  {}.", index + 1));
            steps.extend(labelled(&number, 5, &[Span::plain(step)], columns));
        }
        page.section(titled("The server", steps));
        let mut clients = Vec::new();
        for words in &answer.clients {
            match how {
                Clients::Whole(_) => clients.extend(client(words, answer.beside, columns)),
                Clients::Brief => clients.push(brief(words)),
            }
        }
        page.section(titled("The clients", clients));
        if let Some(text) = others(how) {
            page.section(wrap_spans(&[Span::dim(text)], columns));
        }
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

fn others(how: Clients<'_>) -> Option<String> {
    match how {
        Clients::Whole([]) => None,
        Clients::Whole(languages) => Some(format!(
            "Clients of what this directory is written in ({}); others: --client LANGUAGE",
            languages.join(", ")
        )),
        Clients::Brief => {
            Some("Both transports, and what else to know: --client LANGUAGE, or NAME".to_owned())
        }
    }
}

/// The client and how it names the socket. A text of several lines has its first.
fn brief(words: &ClientWords) -> Line {
    let mark = if words.tested { "" } else { " *" };
    let name = Span::new(Tone::Bold, format!("  {}, {}{mark}  ", words.client, words.language));
    let socket = words.socket.as_deref().unwrap_or("only under samehost run");
    let more = if socket.lines().count() > 1 { " …" } else { "" };
    Line::from(vec![name, Span::plain(format!("{}{more}", socket.lines().next().unwrap_or_default()))])
}

fn client(words: &ClientWords, beside: &str, columns: usize) -> Vec<Line> {
    let mark = if words.tested { "" } else { " *" };
    let localhost = match words.localhost {
        "socket" => "`localhost` means the default socket",
        "tcp" => "`localhost` means TCP",
        _ => "",
    };
    let mut notes = vec![Span::new(Tone::Bold, format!("{}, {}{mark}", words.client, words.language))];
    let mut remarks = vec![localhost, words.note];
    remarks.retain(|text| !text.is_empty());
    notes.push(Span::dim(remarks.join("; ")));
    let mut lines = labelled(&Span::plain("  "), 2, &notes, columns);
    let socket = match &words.socket {
        Some(socket) => socket,
        None if beside == "tcp" => "it cannot by itself; under `samehost run` it can",
        None => "it cannot by itself",
    };
    lines.extend(to_copy("socket", socket));
    lines.extend(to_copy(beside, &words.tcp));
    lines
}

/// A text beside its label, line by line as it stands: what is wrapped cannot be copied.
fn to_copy(label: &str, text: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let label = if index == 0 { label } else { "" };
        lines.push(Line::from(vec![Span::dim(format!("    {label:<7}")), Span::plain(line)]));
    }
    lines
}
