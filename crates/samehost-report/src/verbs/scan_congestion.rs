//! Report that local connections use BBR: what that costs, and commands for the user that change it, make it
//! permanent and undo it.

use samehost_model::printable::clean;
use samehost_model::scan::{Scan, SlowCongestion};

use crate::layout::line::{Line, Span, Tone, labelled};

/// Columns that the whole note needs.
const WIDE: usize = 100;
/// The code under which it is explained.
pub(crate) const CODE: &str = "bbr";

/// That connections inside this machine begin with BBR, in a line.
pub(crate) fn note(scan: &Scan, columns: usize) -> Vec<Line> {
    let Some(first) = scan.slow_congestion.first() else { return Vec::new() };
    let label = Span::new(Tone::Doubt, format!("• {CODE}:"));
    let congestion = clean(&first.congestion).to_uppercase();
    let mut text = format!("loopback runs on {congestion}, which slows large transfers over TCP");
    if columns >= WIDE {
        text.push_str("; small requests are the same");
    }
    labelled(&Span::plain("  "), 2, &[label, Span::plain(text)], columns)
}

/// The commands that change it for all affected addresses, make that last, and take it back whole.
pub(crate) fn cure(scan: &Scan, columns: usize) -> Vec<Line> {
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
    let line = |command: &String| Line::from(vec![Span::new(Tone::Bold, format!("    {}", clean(command)))]);
    commands.iter().map(line).collect()
}

/// Removes the unit, where it was made. Before the routes go back, for it would set them again.
const WITHOUT_UNIT: [&str; 3] = [
    "systemctl disable --now loopback-cubic",
    "rm -f /etc/systemd/system/loopback-cubic.service",
    "systemctl daemon-reload",
];

/// Commands that write a systemd unit, which applies the change at every boot.
fn unit(all: &[SlowCongestion]) -> Vec<String> {
    let mut lines = vec![
        "cat > /etc/systemd/system/loopback-cubic.service <<END".to_owned(),
        "[Unit]".to_owned(),
        "After=network.target".to_owned(),
        "[Service]".to_owned(),
        "Type=oneshot".to_owned(),
    ];
    lines.extend(all.iter().flat_map(|one| &one.cure).map(|command| format!("ExecStart={command}")));
    lines.extend(
        ["[Install]", "WantedBy=multi-user.target", "END", "systemctl enable loopback-cubic"]
            .map(str::to_owned),
    );
    lines
}
