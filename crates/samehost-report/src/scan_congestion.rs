//! Report that local connections use BBR: what that costs, and commands for the user that change it, make it
//! permanent and undo it.

use samehost_model::printable::clean;
use samehost_model::scan::{Scan, SlowCongestion};

use crate::line::{Line, Span, Tone, labelled, titled};
use crate::text::width;

/// All affected addresses, and one remedy for them.
pub(crate) fn slow(scan: &Scan, columns: usize) -> Vec<Line> {
    let Some(first) = scan.slow_congestion.first() else { return Vec::new() };
    let indented = |text: &str| labelled(&Span::plain("  "), 2, &[Span::plain(text)], columns);
    let title = format!("Loopback runs on {}", clean(&first.congestion).to_uppercase());
    let why = format!(
        "Connections inside this machine begin with {} (from {}), which paces what it sends. Large transfers over TCP are slower for it, small requests are not. CUBIC, which most distributions have, does not pace:",
        clean(&first.congestion),
        clean(&first.from)
    );
    let mut lines = indented(&why);
    for one in &scan.slow_congestion {
        lines.extend(commands(&one.cure, columns));
        if !one.note.is_empty() {
            lines.extend(indented(&format!("{}: {}", one.address, clean(&one.note))));
        }
    }
    lines.extend(indented(
        "That is for connections that are made from then on; programs keep theirs until they connect again. Connections to other machines stay as they are. Until the next start; to make it last, as root:",
    ));
    lines.extend(commands(&unit(&scan.slow_congestion), columns));
    lines.extend(indented("To take it back:"));
    for one in &scan.slow_congestion {
        lines.extend(commands(&one.undo, columns));
    }
    let none = "samehost runs none of this; `samehost` without a verb measures what it would bring here.";
    lines.extend(labelled(&Span::plain("  "), 2, &[Span::dim(none)], columns));
    titled(&title, lines)
}

/// Commands to copy. Long ones continue after a backslash, which both shells and systemd units accept.
fn commands(commands: &[String], columns: usize) -> Vec<Line> {
    let each = commands.iter().flat_map(|command| broken(&clean(command), columns.saturating_sub(6)));
    each.map(|line| Line::from(vec![Span::new(Tone::Bold, format!("    {line}"))])).collect()
}

/// Breaks a command into lines of at most `columns`, plus two for the indent of continuation lines.
pub(crate) fn broken(command: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in command.split(' ') {
        match lines.last_mut() {
            Some(line) if width(line) + 1 + width(word) <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            Some(line) => {
                line.push_str(" \\");
                lines.push(format!("  {word}"));
            }
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_command_goes_on_behind_a_backslash_and_is_the_same() {
        let command = "ip route replace local 127.0.0.1 dev lo proto kernel scope host table local";
        let lines = broken(command, 40);
        assert!(lines.len() > 1 && lines.iter().all(|line| width(line) <= 42), "{lines:?}");
        assert_eq!(lines.join("\n").replace(" \\\n  ", " "), command);
        assert_eq!(broken("ip route", 40), ["ip route"]);
    }
}
