//! `samehost explain`: what a code or an error means, what of it was found on this machine, and what to set.

use std::io::{self, Write};

use samehost_model::printable::clean;
use samehost_model::scan::{Explanation, Scan, SlowCongestion};

use crate::formats::terminal::{Page, Terminal};
use crate::layout::{Line, Span, Tone, labelled, titled, width, wrap_spans};
use crate::verbs::exchanges::name_of_service;

/// The code of connections inside this machine that begin with BBR.
pub(crate) const BBR: &str = "bbr";

impl Terminal {
    /// `there` is what is at the place that an error names.
    pub fn render_explanation(
        &self,
        one: &Explanation,
        there: &[String],
        scan: &Scan,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let mut page = Page::new(self.width);
        let columns = page.measure();
        let mut head = vec![Span::new(Tone::Bold, format!("{}:", one.code)), Span::plain(one.is)];
        if !one.more.is_empty() {
            head.push(Span::plain(one.more));
        }
        page.section(wrap_spans(&head, columns));
        let mut paragraphs = Vec::new();
        for (label, text) in [("matters", one.matters), ("change", one.change), ("undo", one.undo)] {
            paragraphs.extend(labelled(&Span::new(Tone::Bold, label), 9, &[Span::plain(text)], columns));
        }
        page.section(paragraphs);
        page.section(titled("On this machine", here(one.code, there, scan, columns)));
        self.print(&page, out)
    }

    pub fn render_explanations(&self, all: &[Explanation], out: &mut dyn Write) -> io::Result<()> {
        let mut page = Page::new(self.width);
        let indent = all.iter().map(|one| width(one.code)).max().unwrap_or(0) + 2;
        let mut lines: Vec<Line> = Vec::new();
        for one in all {
            let code = Span::new(Tone::Bold, one.code);
            lines.extend(labelled(&code, indent, &[Span::plain(one.is)], page.measure()));
        }
        page.section(lines);
        self.print(&page, out)
    }
}

fn here(code: &str, there: &[String], scan: &Scan, columns: usize) -> Vec<Line> {
    let mut found: Vec<String> = there.to_vec();
    for advice in &scan.advice {
        let service = name_of_service(scan, advice.service);
        for obstacle in advice.obstacles.iter().filter(|obstacle| obstacle.code.name() == code) {
            found.push(format!("{} → {service}: {}. {}", advice.client, obstacle.found, obstacle.remedy));
        }
    }
    for finding in scan.findings.iter().filter(|finding| finding.code.name() == code) {
        found.push(format!("{}. {}", finding.found, finding.remedy));
    }
    let mut lines = Vec::new();
    for text in &found {
        let text = format!("{}.", clean(text).trim_end_matches('.'));
        lines.extend(labelled(&Span::plain("  •"), 4, &[Span::plain(text)], columns));
    }
    if code == BBR {
        lines.extend(cure(scan, columns));
    }
    if lines.is_empty() {
        lines.extend(labelled(&Span::plain("  "), 2, &[Span::dim("Nothing of it was found now.")], columns));
    }
    lines
}

/// The commands that change BBR for all affected addresses, make that last, and take it back whole. samehost runs none of them: a
/// measurement never changes a setting of the host (docs/congestion.md).
fn cure(scan: &Scan, columns: usize) -> Vec<Line> {
    if scan.slow_congestion.is_empty() {
        return Vec::new();
    }
    let indented = |text: &str| labelled(&Span::plain("  "), 2, &[Span::plain(text)], columns);
    let mut lines = indented("As root, until the next start:");
    for one in &scan.slow_congestion {
        lines.extend(commands(&one.cure));
        if !one.note.is_empty() {
            lines.extend(indented(&format!("{}: {}", one.address, clean(&one.note))));
        }
    }
    lines.extend(indented("To make it last:"));
    lines.extend(commands(&unit(&scan.slow_congestion)));
    lines.extend(indented("To take it back, all of it:"));
    lines.extend(commands(&WITHOUT_UNIT.map(str::to_owned)));
    for one in &scan.slow_congestion {
        lines.extend(commands(&one.undo));
    }
    let none = "samehost runs none of this; `samehost` without a verb measures what it would bring here.";
    lines.extend(labelled(&Span::plain("  "), 2, &[Span::dim(none)], columns));
    lines
}

/// Commands to copy, which are never broken.
fn commands(commands: &[String]) -> Vec<Line> {
    let mut lines = Vec::new();
    for command in commands {
        lines.push(Line::of(Tone::Bold, format!("    {}", clean(command))));
    }
    lines
}

/// Removes the unit, where it was made. Before the routes go back, for it would set them again.
const WITHOUT_UNIT: [&str; 3] = [
    "systemctl disable --now loopback-cubic",
    "rm -f /etc/systemd/system/loopback-cubic.service",
    "systemctl daemon-reload",
];

fn unit(all: &[SlowCongestion]) -> Vec<String> {
    let head = [
        "cat > /etc/systemd/system/loopback-cubic.service <<END",
        "[Unit]",
        "After=network.target",
        "[Service]",
        "Type=oneshot",
    ];
    let end = ["[Install]", "WantedBy=multi-user.target", "END", "systemctl enable loopback-cubic"];
    let mut lines = head.map(str::to_owned).to_vec();
    for command in all.iter().flat_map(|one| &one.cure) {
        lines.push(format!("ExecStart={command}"));
    }
    lines.extend(end.map(str::to_owned));
    lines
}
