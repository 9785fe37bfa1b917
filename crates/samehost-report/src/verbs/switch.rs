//! A switch on the terminal: moved connections, changed lines, obstacles, and the outcome.

use std::io::{self, Write};

use samehost_model::switch::{
    FileDiff, Standing, StoredSwitch, SwitchHop, SwitchObstacle, SwitchOutcome, SwitchReport, SwitchStep,
};

use crate::formats::page::Page;
use crate::formats::terminal::Terminal;
use crate::layout::line::titled;
use crate::layout::line::{Line, Span, Tone, labelled, wrap_spans};
use crate::measurement::head::started;

impl Terminal {
    /// Renders a planned or finished switch.
    pub fn render_switch(&self, report: &SwitchReport, out: &mut dyn Write) -> io::Result<()> {
        let mut page = Page::new(self.width);
        let columns = page.measure();
        page.section(wrap_spans(&[answer(report)], columns));
        page.section(wrap_spans(&what_brings_more(report), columns));
        page.section(report.hops.iter().flat_map(|hop| moved(hop, columns)).collect());
        if matches!(report.outcome, SwitchOutcome::Planned | SwitchOutcome::Declined) {
            for (index, step) in report.steps.iter().enumerate() {
                let title = if report.steps.len() > 1 {
                    format!("{}. {}", index + 1, step.title)
                } else {
                    "The change".to_owned()
                };
                page.section(change(title, step, columns));
            }
        }
        if matches!(
            report.outcome,
            SwitchOutcome::Planned | SwitchOutcome::Declined | SwitchOutcome::Committed
        ) {
            for step in &report.later {
                page.section(change(format!("Later: {}", step.title), step, columns));
            }
        }
        for (title, bars) in [("In the way", true), ("Warnings", false)] {
            let obstacles = report.obstacles.iter().filter(|obstacle| obstacle.bars == bars);
            page.section(titled(
                title,
                obstacles.flat_map(|obstacle| in_the_way(obstacle, columns)).collect(),
            ));
        }
        page.section(bullets("Proof", &report.proofs, columns));
        page.section(bullets("Still over TCP", &report.still_tcp, columns));
        page.section(bullets("Left", &report.left, columns));
        page.section(bullets("Notes", &report.notes, columns));
        page.section(
            next(report).iter().flat_map(|next| wrap_spans(&[Span::plain(next)], columns)).collect(),
        );
        self.print(&page, out)
    }

    /// Renders what would be done with stored switches.
    pub fn render_stored(&self, switches: &[StoredSwitch], out: &mut dyn Write) -> io::Result<()> {
        let mut page = Page::new(self.width);
        let columns = page.measure();
        for switch in switches {
            let mut head =
                wrap_spans(&[Span::new(Tone::Bold, format!("{}: {}", switch.id, switch.would))], columns);
            if !switch.summary.is_empty() {
                head.extend(labelled(&Span::plain("  "), 4, &[Span::dim(&switch.summary)], columns));
            }
            page.section(head);
            for (index, step) in switch.steps.iter().enumerate() {
                let count = switch.steps.len();
                let title = if count > 1 {
                    format!("{}. {}", index + 1, step.title)
                } else {
                    "The change".to_owned()
                };
                page.section(change(title, step, columns));
            }
            page.section(bullets("Left as it is", &switch.left, columns));
        }
        self.print(&page, out)
    }
}

fn answer(report: &SwitchReport) -> Span {
    let targets = report.targets.join(", ");
    let to = if report.to == "unix" { "the Unix socket" } else { "TCP" };
    match report.outcome {
        SwitchOutcome::Nothing => Span::new(Tone::Bold, format!("{targets}: nothing to do")),
        SwitchOutcome::Left => Span::new(
            Tone::Bold,
            format!(
                "{targets}: what is understood goes to {to} already, and other values that lead here stay"
            ),
        ),
        SwitchOutcome::Refused => {
            Span::new(Tone::Loud, format!("{targets} is not switched: nothing was touched"))
        }
        SwitchOutcome::Planned => Span::new(Tone::Bold, format!("{targets} → {to}: this would be done")),
        SwitchOutcome::Declined => Span::new(Tone::Bold, format!("{targets}: nothing was touched")),
        SwitchOutcome::Committed => committed(report, &targets, to),
        SwitchOutcome::RolledBack => Span::new(Tone::Loud, put_back(report, &targets)),
    }
}

fn put_back(report: &SwitchReport, targets: &str) -> String {
    let why = report.reason.as_deref().unwrap_or_default().trim_end_matches('.');
    let but = if report.left.is_empty() { "" } else { ", but for what is left below" };
    format!("{targets} is not switched: {why}. All files were restored{but}.")
}

/// The headline of a switch that is in force: the lowest of what holds for its connections.
fn committed(report: &SwitchReport, targets: &str, to: &str) -> Span {
    let old: Vec<&str> = report.hops.iter().flat_map(|hop| &hop.seen_old).map(String::as_str).collect();
    if !old.is_empty() {
        return Span::new(
            Tone::Loud,
            format!(
                "{targets} is written for {to}, and the application still connects at the old address: {}",
                old.join(", ")
            ),
        );
    }
    if report.hops.iter().all(|hop| hop.standing.is_none()) {
        return Span::new(
            Tone::Good,
            format!("{targets}: the server listens at the new place now, and answers there"),
        );
    }
    match report.standing {
        Some(Standing::InUse) => Span::new(Tone::Good, format!("{targets}: the application uses {to} now")),
        Some(Standing::Tried) => Span::new(
            Tone::Bold,
            format!("{targets} is switched to {to} and tried; the application was not seen to use it yet"),
        ),
        Some(Standing::Written) | None => Span::new(Tone::Bold, format!("{targets} is written for {to}")),
    }
}

/// What would bring the next proof, where a switch is in force and not seen in use.
fn what_brings_more(report: &SwitchReport) -> Vec<Span> {
    let is_seen =
        report.standing == Some(Standing::InUse) || report.hops.iter().all(|hop| hop.standing.is_none());
    if report.outcome != SwitchOutcome::Committed || is_seen {
        return Vec::new();
    }
    let transport = report.to;
    let look = format!("samehost verify {} --expect {transport} --wait 60s", report.targets.join(" "));
    let text = if report.hops.iter().any(|hop| !hop.seen_old.is_empty()) {
        format!(
            "Something goes before the file: a variable of its environment, a cache, or a program that was not restarted. Look again: {look}"
        )
    } else {
        format!(
            "No connection of it was seen since the change. Call the page, or restart the application; then: {look}"
        )
    };
    vec![Span::plain(text)]
}

fn moved(hop: &SwitchHop, columns: usize) -> Vec<Line> {
    let mut lines = labelled(
        &Span::new(Tone::Bold, format!("  {}  ", hop.name)),
        4,
        &[Span::plain(format!("{} → {}", hop.from, hop.to)), Span::dim(hop.place.clone())],
        columns,
    );
    let clients = hop.clients.join(", ");
    let who = match (&hop.service, clients.is_empty()) {
        (Some(service), false) => format!("{clients} → {service}"),
        (Some(service), true) => service.clone(),
        (None, _) => clients,
    };
    lines.extend(labelled(&Span::plain("    "), 4, &[Span::dim(who)], columns));
    if let Some(login) = &hop.login {
        let text = format!("tried over the new transport {login}");
        lines.extend(labelled(&Span::plain("    "), 4, &[Span::new(Tone::Good, text)], columns));
    }
    if !hop.seen_new.is_empty() {
        let text = format!("in use: {} connected after the change", hop.seen_new.join(", "));
        lines.extend(labelled(&Span::plain("    "), 4, &[Span::new(Tone::Good, text)], columns));
    }
    lines
}

fn change(title: String, step: &SwitchStep, columns: usize) -> Vec<Line> {
    let mut lines = vec![Line::from(vec![Span::new(Tone::Bold, title)])];
    for file in &step.files {
        lines.extend(diff(file, columns));
    }
    for check in &step.checks {
        lines.extend(labelled(&Span::dim("  then"), 7, &[Span::plain(format!("check: {check}"))], columns));
    }
    for reload in &step.reloads {
        lines.extend(labelled(&Span::dim("  then"), 7, &[Span::plain(reload)], columns));
    }
    lines
}

fn diff(file: &FileDiff, columns: usize) -> Vec<Line> {
    let what = if file.made {
        " (made)"
    } else if file.removed {
        " (removed)"
    } else {
        ""
    };
    let mut lines = labelled(&Span::plain("  "), 4, &[Span::plain(format!("{}{what}", file.path))], columns);
    for line in &file.lines {
        let tone = if line.sign == '-' { Tone::Bad } else { Tone::Good };
        let label = Span::dim(format!("  {:>5} ", line.line));
        lines.extend(labelled(
            &label,
            8,
            &[Span::new(tone, format!("{} {}", line.sign, line.text))],
            columns,
        ));
    }
    lines
}

fn in_the_way(obstacle: &SwitchObstacle, columns: usize) -> Vec<Line> {
    let tone = if obstacle.bars { Tone::Bad } else { Tone::Dim };
    let label = Span::new(tone, format!("  • {}:", obstacle.code));
    let mut lines = labelled(&Span::plain("  "), 4, &[label, Span::plain(&obstacle.found)], columns);
    if !obstacle.remedy.is_empty() {
        lines.extend(labelled(
            &Span::plain("    "),
            6,
            &[Span::plain(format!("→ {}", obstacle.remedy))],
            columns,
        ));
    }
    lines
}

fn bullets(title: &str, texts: &[String], columns: usize) -> Vec<Line> {
    let lines = texts.iter().flat_map(|text| labelled(&Span::plain("  •"), 4, &[Span::plain(text)], columns));
    titled(title, lines.collect())
}

/// Next steps for the user.
fn next(report: &SwitchReport) -> Vec<String> {
    let (SwitchOutcome::Committed, Some(id)) = (report.outcome, &report.id) else { return Vec::new() };
    let mut next = Vec::new();
    if let Some(until) = &report.confirm_until {
        let until = started(until).unwrap_or_else(|| until.clone());
        next.push(format!("It will be undone automatically at {until}, unless you keep it."));
        next.push(format!("To keep it: samehost switch --confirm {id}"));
    }
    if !report.later.is_empty() {
        next.push(format!("When nobody uses the old address any more: samehost switch --finish {id}"));
    }
    next.push(format!("To put it back: samehost switch --undo {id}"));
    next
}
