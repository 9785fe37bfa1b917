//! Renders the checkup: the cost of a local connection on this machine, and what it means for the reader's
//! programs. Every sentence follows from a verdict, or says that there is none.

use std::io::{self, Write};

use samehost_analysis::OtherLoad;
use samehost_model::human::{
    MAX_PERCENT, TOO_WIDE, change_range, format_size, format_value, is_too_wide, rough_time,
};
use samehost_model::printable::clean;
use samehost_model::{Code, Comparison, Grade, Host, Report, Verdict, Warning};

use crate::formats::terminal::Terminal;
use crate::layout::{count, width, wrap};
use crate::measurement::view::ends;
use crate::measurement::{conditions, head, words};

const NARROW: usize = 24;
/// Lines of sentences below the table of a terminal.
const MOST_LINES: usize = 15;
pub(crate) const NOTHING_WORTH: Running<'static> = Running {
    about: "Nothing that was seen is worth a switch. Look again when the machine is at work:",
    line: "samehost scan --observe 60s",
};
/// Parts of a request's time from which a saving is worth a switch, and below which it is not. Between them lies a factor of five in
/// which the checkup says neither.
const NOTICEABLE: f64 = 0.05;
const NEGLIGIBLE: f64 = 0.01;
/// Of the CPU time that the hypervisor took, up to which a threshold is one figure.
const MAX_STEAL_PERCENT: f64 = 5.0;
/// Queries of a page in the best-known article on the question (WordPress 5.0 with a common theme).
const PAGE_QUERIES: f64 = 54.0;

#[derive(Clone, Copy, Debug)]
pub struct Finding<'a> {
    pub label: &'a str,
    pub report: &'a Report,
    pub metric: &'static str,
    /// Connections of the point that the line shows; `None` when there is only one point.
    pub connections: Option<u32>,
    /// The parameter and its value of that point; `None` where points differ in connections alone.
    pub level: Option<(&'a str, &'a str)>,
    pub kind: FindingKind,
}

/// Something that runs here, and a command about it that the reader may run.
#[derive(Clone, Copy, Debug)]
pub struct Running<'a> {
    pub about: &'a str,
    pub line: &'a str,
}

#[derive(Clone, Copy, Debug)]
pub struct Around<'a> {
    /// Whether it was looked at.
    pub is_known: bool,
    pub running: &'a [Running<'a>],
    /// Recommended actions with their commands, best first.
    pub worth: &'a [Running<'a>],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingKind {
    RoundTrip,
    /// CPU time of a request with many connections at once. Not throughput: with one client and one server on two CPUs the client is
    /// nearly always a limit too.
    Busy,
    Bulk,
    /// A new connection for each request.
    Connect,
    /// A private server of a real program; it only adds a line to the table.
    Server,
}

impl Finding<'_> {
    pub(crate) fn comparison(&self) -> Option<&Comparison> {
        self.report.analysis.comparisons.iter().find(|comparison| {
            let point = &comparison.point;
            let is_at =
                |(name, value): (&str, &str)| point.parameters.get(name).is_some_and(|at| at == value);
            comparison.metric == self.metric
                && self.connections.is_none_or(|connections| point.connections == connections)
                && self.level.is_none_or(is_at)
        })
    }

    /// Whether the row has a verdict; `false` where it was not measured.
    #[must_use]
    pub fn is_decided(&self) -> bool {
        match self.comparison() {
            Some(comparison) => comparison.verdict.is_decided(),
            None => false,
        }
    }

    /// `None` where its interval is too wide to say anything as well: then no sentence may.
    fn measured(&self) -> Option<&Comparison> {
        self.comparison().filter(|comparison| !comparison.is_too_wide())
    }

    /// TCP's value, the Unix socket's, and the difference in words; `None` if the row was not measured.
    pub(crate) fn cells(&self) -> Option<[String; 3]> {
        let comparison = self.measured()?;
        let unit = self.unit();
        // By the ratio, which pairs trials of one block: two medians over all blocks told 55 % beside "48 % less".
        let (tcp, unix) = (comparison.baseline_value, comparison.baseline_value * comparison.ratio);
        Some([format_value(tcp, unit), format_value(unix, unit), difference(comparison)])
    }

    fn unit(&self) -> &str {
        let mut metrics = self.report.head.workload.metrics.iter();
        match metrics.find(|metric| metric.name == self.metric) {
            Some(metric) => &metric.unit,
            None => "",
        }
    }

    /// Microseconds that a Unix socket saves per operation, if the verdict is that it is faster.
    fn saved_us(&self) -> Option<Saved> {
        let comparison = self.measured()?;
        if comparison.verdict != Verdict::Faster || self.unit() != "us" {
            return None;
        }
        let saving = |ratio: f64| comparison.baseline_value * (1.0 - ratio);
        Some(Saved {
            us: saving(comparison.ratio),
            low: comparison.ci_high.map(saving),
            high: comparison.ci_low.map(saving),
        })
    }
}

/// A saving with its interval, computed from the baseline's value and the ratio. The ratio pairs trials of
/// one block, so drift cancels out; the difference of two medians over all blocks would include it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Saved {
    us: f64,
    low: Option<f64>,
    high: Option<f64>,
}

impl Saved {
    /// Formats as `15.1 µs (12.0–18.2 µs)`; what is known is its upper end where the interval is wide.
    fn in_words(self) -> String {
        if let (Some(low), Some(high)) = (self.low, self.high)
            && is_too_wide(low, high)
        {
            return format!("at most {}", format_value(high, "us"));
        }
        words::with_interval(format_value(self.us, "us"), self.low.zip(self.high), |us| {
            format_value(us, "us")
        })
    }
}

impl Terminal {
    pub fn begin_checkup(&self, host: &Host, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "What a connection between two programs costs on this machine")?;
        writeln!(out, "{}\n", head::machine(host))?;
        writeln!(out, "  {:<31} {:>9} {:>9}  unix against tcp", "", "TCP", "Unix")
    }

    pub fn end_checkup(
        &self,
        findings: &[Finding<'_>],
        around: &Around<'_>,
        notes: &[String],
        out: &mut dyn Write,
    ) -> io::Result<()> {
        writeln!(out)?;
        for line in wrap(&legend(findings), self.text_width()) {
            writeln!(out, "{line}")?;
        }
        writeln!(out)?;
        writeln!(out, "What it means")?;
        // Those that fit, in their order: a checkup ended with 70 lines, and its table had scrolled away.
        let mut room = MOST_LINES;
        for sentence in meaning(findings, notes) {
            let lines = wrap(&sentence, self.text_width() - 4).len();
            if lines <= room {
                room -= lines;
                self.bullet(out, &sentence)?;
            }
        }
        self.worth(around, out)?;
        writeln!(out, "\nThe rest, and how to measure each server that runs here: samehost --html FILE")
    }

    fn worth(&self, around: &Around<'_>, out: &mut dyn Write) -> io::Result<()> {
        if !around.is_known {
            return Ok(());
        }
        writeln!(out)?;
        writeln!(out, "Most worth doing here")?;
        for one in around.worth {
            self.with_command(one, out)?;
        }
        if around.worth.is_empty() {
            self.with_command(&NOTHING_WORTH, out)?;
        }
        Ok(())
    }

    fn with_command(&self, one: &Running<'_>, out: &mut dyn Write) -> io::Result<()> {
        self.bullet(out, &clean(one.about))?;
        writeln!(out, "    {}", clean(one.line))
    }

    pub fn checkup_row(&self, finding: &Finding<'_>, out: &mut dyn Write) -> io::Result<()> {
        let (figures, answer) = match finding.cells() {
            Some([tcp, unix, answer]) => (format!("  {:<31} {tcp:>9} {unix:>9}  ", finding.label), answer),
            None if finding.comparison().is_some() => {
                (format!("  {:<31} ", finding.label), TOO_WIDE.to_owned())
            }
            None => (format!("  {:<31} ", finding.label), words::NOT_MEASURED.to_owned()),
        };
        let indent = width(&figures);
        for (index, line) in wrap(&answer, self.width.saturating_sub(indent).max(NARROW)).iter().enumerate() {
            match index {
                0 => writeln!(out, "{figures}{line}")?,
                _ => writeln!(out, "{:indent$}{line}", "")?,
            }
        }
        Ok(())
    }

    fn text_width(&self) -> usize {
        self.width.clamp(40, 100)
    }

    fn bullet(&self, out: &mut dyn Write, text: &str) -> io::Result<()> {
        for (index, line) in wrap(text, self.text_width() - 4).iter().enumerate() {
            writeln!(out, "  {} {line}", if index == 0 { "•" } else { " " })?;
        }
        Ok(())
    }
}

fn of_kind<'a>(findings: &'a [Finding<'a>], kind: FindingKind) -> Option<&'a Finding<'a>> {
    findings.iter().find(|finding| finding.kind == kind)
}

/// The checkup in a line: `Unix socket or TCP on this machine: time of a request 31 % less (30–32 %); …`.
#[cfg(feature = "html")]
pub(crate) fn answer(findings: &[Finding<'_>]) -> String {
    let mut rows = Vec::new();
    for (kind, what) in
        [(FindingKind::RoundTrip, "time of a request"), (FindingKind::Busy, "its CPU time, 64 at once,")]
    {
        if let Some(comparison) = of_kind(findings, kind).and_then(Finding::comparison) {
            rows.push(format!("{what} {}", difference(comparison)));
        }
    }
    let mark = if rows.is_empty() { "?" } else { ": " };
    format!("Unix socket or TCP on this machine{mark}{}", rows.join("; "))
}

pub(crate) fn legend(findings: &[Finding<'_>]) -> String {
    let lead = "In parentheses: the 95 % interval.";
    let Some(first) = findings.first() else { return lead.to_owned() };
    let mut answers = Vec::new();
    for finding in findings {
        answers.extend(finding.cells().map(|[_, _, answer]| answer));
    }
    let answers: Vec<&str> = answers.iter().map(String::as_str).collect();
    match words::legend(&answers, first.report.head.plan.margin) {
        Some(words) => format!("{lead} {words}"),
        None => lead.to_owned(),
    }
}

pub(crate) fn meaning(findings: &[Finding<'_>], notes: &[String]) -> Vec<String> {
    // The most important first: a terminal shows as many as fit.
    let mut all = sentences(findings);
    all.extend(doubts(findings));
    all.extend(more_time(findings));
    all.extend(notes.iter().cloned());
    all.extend(streams(findings));
    all.extend(load(findings));
    all
}

fn sentences(findings: &[Finding<'_>]) -> Vec<String> {
    let mut sentences = Vec::new();
    if let Some(finding) = of_kind(findings, FindingKind::RoundTrip) {
        sentences.extend(round_trip(finding));
    }
    if let Some(finding) = of_kind(findings, FindingKind::Connect)
        && let Some(saved) = finding.saved_us()
    {
        sentences.push(format!(
            "Programs that connect anew for each request (PHP without persistent connections, most scripts) save {} on each.",
            saved.in_words()
        ));
    }
    if let Some(comparison) = of_kind(findings, FindingKind::Busy).and_then(Finding::measured) {
        match comparison.verdict {
            Verdict::Faster => sentences.push(format!(
                "With many connections at once a request costs client and server together {} CPU time over a Unix socket: the same CPUs do up to {:.1} times the work.",
                amount(comparison.ratio),
                1.0 / comparison.ratio
            )),
            Verdict::Slower => {
                sentences.push("With many connections at once TCP costs less CPU time here.".into());
            }
            _ => {}
        }
    }
    sentences
}

fn round_trip(finding: &Finding<'_>) -> Vec<String> {
    let Some(comparison) = finding.comparison() else { return Vec::new() };
    if comparison.is_too_wide() {
        return vec![format!("Single requests: {TOO_WIDE}.")];
    }
    match (comparison.verdict, finding.saved_us()) {
        (Verdict::Faster, Some(saved)) => vec![
            format!(
                "A Unix socket saves {} on every request and reply. A page that makes {PAGE_QUERIES:.0} database queries, one after the other, gains {}.",
                saved.in_words(),
                format_value(saved.us * PAGE_QUERIES, "us")
            ),
            worth_it(saved, finding.report.head.host.steal_percent),
        ],
        (Verdict::Slower, _) => vec!["On this machine a Unix socket is slower than TCP for single requests: switching is not worth it.".into()],
        (Verdict::Equivalent, _) => vec!["On this machine it makes no difference that matters for single requests: switching is not worth it.".into()],
        // Why an interval does not decide is told once, below.
        _ => match &comparison.reason {
            Some(bar) if bar.is_bar() => {
                vec![format!("Single requests: {}; {}.", difference(comparison), bar.message)]
            }
            _ => vec![format!("Single requests: {}.", difference(comparison))],
        },
    }
}

/// Where a saving matters. Where the hypervisor took CPU time the thresholds are ranges: they were 198 and 108 µs within two minutes.
fn worth_it(saved: Saved, steal_percent: f64) -> String {
    let (low, high) = match (saved.low, saved.high) {
        (Some(low), Some(high)) if steal_percent > MAX_STEAL_PERCENT => (low, high),
        _ => (saved.us, saved.us),
    };
    let threshold = |part: f64| {
        let [low, high] = [low / part, high / part].map(|us| format_value(us, "us"));
        if low == high { low } else { format!("{low} to {high}") }
    };
    format!(
        "Worth it where a whole request takes less than {}: cache look-ups, primary-key selects, small RPCs gain {:.0} % and more. Not worth it where it takes more than {}: the gain is below {:.0} %.",
        threshold(NOTICEABLE),
        100.0 * NOTICEABLE,
        threshold(NEGLIGIBLE),
        100.0 * NEGLIGIBLE
    )
}

/// How much more time would decide the open rows; `None` where none is open, or no reasonable time would do.
fn more_time(findings: &[Finding<'_>]) -> Option<String> {
    let mut rows: Vec<(f64, &str)> = Vec::new();
    for finding in findings {
        let Some(comparison) = finding.comparison() else { continue };
        if let (true, Some(seconds)) = (comparison.is_open(), comparison.seconds_to_decide()) {
            rows.push((seconds, finding.label));
        }
    }
    let (longest, label) = rows.iter().copied().max_by(|(one, _), (other, _)| one.total_cmp(other))?;
    Some(format!(
        "More time would decide {}; {label} takes longest, about {} more: samehost --budget {}m.",
        count(rows.len(), "row"),
        rough_time(longest),
        minutes_for(&rows)
    ))
}

/// Minutes of a checkup that would decide these rows, whose needs are in seconds: a minute for the others, and twice the needs, as
/// each is computed as if its estimate were the true value. Two at least, and ten at most, which are as many as a checkup takes.
fn minutes_for(rows: &[(f64, &str)]) -> f64 {
    let needs: f64 = rows.iter().map(|(seconds, _)| seconds).sum();
    (1.0 + 2.0 * needs / 60.0).ceil().clamp(2.0, 10.0)
}

fn load(findings: &[Finding<'_>]) -> Option<String> {
    let mut reports: Vec<&Report> = Vec::new();
    for finding in findings {
        if !reports.iter().any(|known| std::ptr::eq(*known, finding.report)) {
            reports.push(finding.report);
        }
    }
    let load = OtherLoad::of(&reports)?;
    Some(format!("Measured on this machine at work: {}.", load.as_condition()))
}

/// Warnings about rows, one of each kind, as what is wrong with the machine affects all rows.
fn doubts(findings: &[Finding<'_>]) -> Vec<String> {
    const KINDS: [Code; 6] =
        [Code::Errors, Code::SelfCheck, Code::Steal, Code::Throttled, Code::Softirq, Code::SharedCpu];
    let steal: Vec<f64> = findings.iter().map(|finding| finding.report.head.host.steal_percent).collect();
    let (least, most) = ends(&steal).unwrap_or_default();
    let mut cautions = Vec::new();
    for code in KINDS {
        let mut rows: Vec<&Warning> = Vec::new();
        for finding in findings {
            rows.extend(finding.report.warnings.iter().find(|warning| warning.code == code));
        }
        cautions.push(match (code, rows.as_slice()) {
            (_, []) => continue,
            (Code::Steal, [_, _, ..]) => format!(
                "Caution: the hypervisor took {least:.0} to {most:.0} % of the CPU time while these rows were measured: the intervals are wider for it."
            ),
            (_, [only]) => format!("Caution: {}.", only.message),
            (_, [first, ..]) => format!("Caution ({}): {}.", count(rows.len(), "row"), first.message),
        });
    }
    cautions
}

/// Difference by grade, always with the interval: `31 % less (29–33 %)`, `probably less (2–21 %)`,
/// `cannot tell (12 % less to 9 % more)`.
pub(crate) fn difference(comparison: &Comparison) -> String {
    let Some((low, high)) = comparison.ends() else {
        return words::graded(comparison, direction(comparison.ratio));
    };
    if comparison.is_too_wide() {
        return TOO_WIDE.to_owned();
    }
    let direction = direction(comparison.ratio);
    let words = match (comparison.verdict, comparison.grade()) {
        (Verdict::Equivalent, Grade::Decided) => "no difference".to_owned(),
        (_, Grade::Decided) => amount(comparison.ratio),
        _ => words::graded(comparison, direction),
    };
    if 100.0 * (high - 1.0) > MAX_PERCENT && comparison.grade() == Grade::Decided {
        return format!("{:.1} times ({low:.1}–{high:.1})", comparison.ratio);
    }
    if words.contains(direction) && 100.0 * (high - 1.0) <= MAX_PERCENT {
        return format!("{words} ({})", percents(low, high));
    }
    format!("{words} ({})", change_range(low, high))
}

fn direction(ratio: f64) -> &'static str {
    if ratio < 1.0 { "less" } else { "more" }
}

/// Formats as `31 % less` or `98 % more`: one convention for all rows, so that they can be held against each other.
pub(crate) fn amount(ratio: f64) -> String {
    format!("{:.0} % {}", 100.0 * (ratio - 1.0).abs(), direction(ratio))
}

fn percents(low: f64, high: f64) -> String {
    let (a, b) = (100.0 * (low - 1.0).abs(), 100.0 * (high - 1.0).abs());
    format!("{:.0}–{:.0} %", a.min(b), a.max(b))
}

/// Which transport moves more, by the size of a write. It forbids nothing: on other CPUs, or with other programs beside them, the
/// same two programs had the opposite.
fn streams(findings: &[Finding<'_>]) -> Option<String> {
    let (mut unix, mut tcp, mut open) = (Vec::new(), Vec::new(), Vec::new());
    let mut congestion = String::new();
    for finding in findings.iter().filter(|finding| finding.kind == FindingKind::Bulk) {
        let Some(comparison) = finding.measured() else { continue };
        let Some(bytes) = comparison.point.size_bytes else { continue };
        congestion = conditions::of_arm(finding.report, &comparison.baseline);
        let row = format!("{}: {}", format_size(bytes), difference(comparison));
        // By the interval, as the words beside it: "not decided: probably less" contradicted itself.
        match comparison.ends() {
            Some((low, _)) if low > 1.0 => unix.push(row),
            Some((_, high)) if high < 1.0 => tcp.push(row),
            _ => open.push(row),
        }
    }
    let with = if congestion.is_empty() { String::new() } else { format!(" with {congestion}") };
    let mut parts = Vec::new();
    for (rows, lead) in [
        (unix, "a Unix socket moves more bytes a second in writes of".to_owned()),
        (tcp, format!("TCP{with} moves more in writes of")),
        (open, "which moves more is not shown in writes of".to_owned()),
    ] {
        if !rows.is_empty() {
            parts.push(format!("{lead} {}", rows.join(", ")));
        }
    }
    if parts.is_empty() {
        return None;
    }
    Some(format!("Streams, as this machine places programs now: {}.", parts.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_that_is_named_is_enough_for_what_is_open() {
        assert_eq!(minutes_for(&[(1.0, "fastcgi")]), 2.0);
        assert_eq!(minutes_for(&[(90.0, "proxy"), (30.0, "mysql")]), 5.0);
        assert_eq!(minutes_for(&[(360.0, "proxy"), (2.0, "redis")]), 10.0);
    }

    #[test]
    fn differences_have_neither_signs_nor_factors() {
        let worded = |grade, verdict, ratio, low, high| {
            let (ci_low, ci_high) = (Some(low), Some(high));
            difference(&Comparison {
                ratio,
                ci_low,
                ci_high,
                verdict,
                grade: Some(grade),
                ..Comparison::default()
            })
        };
        let open = Verdict::Inconclusive;
        for (found, expected) in [
            (worded(Grade::Decided, Verdict::Faster, 0.65, 0.63, 0.68), "35 % less (32–37 %)"),
            (worded(Grade::Decided, Verdict::Faster, 2.2, 1.97, 2.43), "120 % more (97–143 %)"),
            (worded(Grade::Decided, Verdict::Faster, 5.0, 4.0, 6.0), "5.0 times (4.0–6.0)"),
            (
                worded(Grade::Decided, Verdict::Equivalent, 1.0, 0.99, 1.01),
                "no difference (1 % less to 1 % more)",
            ),
            (worded(Grade::SizeOpen, open, 0.9, 0.82, 0.99), "less, size open (1–18 %)"),
            (worded(Grade::Probable, open, 0.72, 0.64, 0.79), "probably less (21–36 %)"),
            (worded(Grade::Leaning, open, 0.9, 0.8, 1.02), "cannot tell (20 % less to 2 % more)"),
            (worded(Grade::Open, open, 0.9, 0.8, 0.98), "probably less (2–20 %)"),
            (worded(Grade::Open, open, 1.0, 0.6, 1.7), "cannot tell (40 % less to 70 % more)"),
            (worded(Grade::Open, open, 1.0, 0.6, 3.6), TOO_WIDE),
            (worded(Grade::Barred, open, 1.1, 1.09, 1.59), "no verdict (9 to 59 % more)"),
        ] {
            assert_eq!(found, expected);
        }
    }
}
