//! Conditions of the measurement: self-check, cost of the harness, generator, evidence, repeats, and the congestion control and
//! buffers of the sockets, as read from the connections. They stand below the answer, and none of them is a verdict: what bars one
//! is an issue of the analysis.

use samehost_analysis::distinct;
use samehost_model::human::{count, format_percent, format_value, percent_number};
use samehost_model::printable::clean;
use samehost_model::{Arm, Code, Evidence, Metric, Report, Transport, Trial, Verdict, metric};

use crate::layout::{Align, Column, Grid, Span};
use crate::measurement::view::{View, ends, median};
use crate::measurement::words;

const FLOORS: usize = 3;

pub(crate) struct Condition {
    pub(crate) label: &'static str,
    pub(crate) text: String,
}

pub(crate) fn conditions(view: &View<'_>) -> Vec<Condition> {
    let mut all = Vec::new();
    all.extend(noise(view).map(|text| Condition { label: "self-check", text }));
    all.extend(margin(view).map(|text| Condition { label: "margin", text }));
    all.extend(harness(view).map(|text| Condition { label: "harness", text }));
    all.extend(generator(view).map(|text| Condition { label: "generator", text }));
    all.extend(repeats(view).map(|text| Condition { label: "repeats", text }));
    all.extend(evidence(view).into_iter().map(|text| Condition { label: "evidence", text }));
    all.extend(settings(view).into_iter().map(|text| Condition { label: "sockets", text }));
    all
}

fn noise(view: &View<'_>) -> Option<String> {
    if view.candidates().is_empty() {
        return None;
    }
    if !view.report.head.plan.control {
        return Some(
            "No control was measured: whether the baseline would differ from itself is unknown.".to_owned(),
        );
    }
    let mut floors: Vec<String> = Vec::new();
    for metric in view.metrics() {
        floors.extend(floor(view, &metric.name));
    }
    floors.truncate(FLOORS);
    if floors.is_empty() {
        return None;
    }
    Some(format!("The same measurement against itself differed by at most {}.", floors.join(", ")))
}

/// Formats as `1.8 % in throughput`, or `0.9–2.8 %` over several points.
fn floor(view: &View<'_>, metric: &str) -> Option<String> {
    let mut floors: Vec<f64> = Vec::new();
    for control in view.report.analysis.controls.iter().filter(|control| control.metric == metric) {
        floors.extend(control.noise_floor.filter(|floor| floor.is_finite()));
    }
    let (low, high) = ends(&floors)?;
    let (low, high) = (percent_number(low), percent_number(high));
    let range = if low == high { high } else { format!("{low} to {high}") };
    Some(format!("{range} % in {}", words::title(metric)))
}

fn margin(view: &View<'_>) -> Option<String> {
    if view.report.analysis.comparisons.iter().all(|c| c.verdict != Verdict::Equivalent) {
        return None;
    }
    let margin = format_percent(view.report.head.plan.margin);
    Some(format!("Equivalent means that the difference is shown to be inside ±{margin}."))
}

/// CPU time per operation of the harness itself, from the arm without a transport.
fn harness(view: &View<'_>) -> Option<String> {
    let mut worst: Option<f64> = None;
    for arm in view.noop() {
        let busy = median(view.report, &arm.id, |trial| trial.client_cpu_us_per_op);
        let cost = busy.or_else(|| median(view.report, &arm.id, us_per_op));
        let Some(cost) = cost else { continue };
        worst = Some(cost.max(worst.unwrap_or(cost)));
    }
    Some(format!("The harness itself costs {} per operation.", format_value(worst?, "us")))
}

fn us_per_op(trial: &Trial) -> Option<f64> {
    Some(1e6 / trial.throughput_per_s.filter(|rate| *rate > 0.0)?)
}

fn generator(view: &View<'_>) -> Option<String> {
    let (mut typical, mut tail): (Vec<f64>, Vec<f64>) = (Vec::new(), Vec::new());
    for group in &view.groups {
        for arm in group.arms() {
            typical.extend(median(view.report, &arm.id, |trial| trial.lateness_us.as_ref()?.p50));
            tail.extend(median(view.report, &arm.id, |trial| trial.lateness_us.as_ref()?.p99));
        }
    }
    let (_, typical) = ends(&typical)?;
    let tail = match ends(&tail) {
        Some((_, p99)) => format!(", at p99 {}", format_value(p99, "us")),
        None => String::new(),
    };
    Some(format!(
        "It sent {} late at the median{tail} (worst arm). Latency counts from when a request was due.",
        format_value(typical, "us")
    ))
}

fn repeats(view: &View<'_>) -> Option<String> {
    let warning = view.report.warnings.iter().find(|w| is_repeats(w.code, &w.subject))?;
    let mut text = warning.message.clone();
    if !text.ends_with('.') {
        text.push('.');
    }
    Some(text)
}

/// Whether a warning only counts repeated trials. Such a warning is not an issue.
pub(crate) fn is_repeats(code: Code, subject: &str) -> bool {
    code == Code::Remeasured && subject.is_empty()
}

/// Evidence from kernel and server for each arm, once for all its points.
fn evidence(view: &View<'_>) -> Vec<String> {
    let mut found: Vec<(String, &Evidence, u64)> = Vec::new();
    for evidence in &view.report.analysis.evidence {
        let name = view.name(&evidence.arm);
        match found.iter_mut().find(|(known, first, _)| {
            *known == name && first.says_the_same(&evidence.observed, evidence.cipher.as_deref())
        }) {
            Some((.., trials)) => *trials += u64::from(evidence.trials),
            None => found.push((name, evidence, u64::from(evidence.trials))),
        }
    }
    let mut lines = Vec::new();
    for (name, evidence, trials) in found {
        let all = counted_trials(view, &name);
        let often = if trials < all {
            format!("{} of {} trials", count(trials), count(all))
        } else if all == 1 {
            "the only trial".to_owned()
        } else {
            format!("all {} trials", count(trials))
        };
        let cipher = match &evidence.cipher {
            Some(cipher) => format!(", {}", clean(cipher)),
            None => String::new(),
        };
        lines.push(format!("{name}: {}{cipher} ({often})", clean(&evidence.observed)));
    }
    lines
}

fn counted_trials(view: &View<'_>, name: &str) -> u64 {
    let ids: Vec<&str> = view.arms(name).map(|arm| arm.id.as_str()).collect();
    view.report.trials.iter().filter(|s| s.counts() && ids.contains(&s.arm.as_str())).count() as u64
}

/// Bottleneck: utilisation of client and server, with a row for each arm. Adds CPU per operation when no
/// table has it.
pub(crate) fn limits(view: &View<'_>) -> Option<Grid> {
    if !view.report.analysis.limits.is_empty() {
        return Some(crate::measurement::effects::limits(view.report));
    }
    let names = view.arm_names();
    let mut columns: Vec<&LimitColumn> = Vec::new();
    for column in &LIMIT_COLUMNS {
        // Over one point the metric has a row of its own.
        if let Some(metric) = column.metric
            && !view.is_sweep()
            && view.metric(metric.name).is_some()
        {
            continue;
        }
        if names.iter().any(|name| !view.medians(name, column.read).is_empty()) {
            columns.push(column);
        }
    }
    if columns.is_empty() {
        return None;
    }
    let heads = columns.iter().enumerate().map(|(i, column)| {
        Column::new(column.title, Align::Value).or_short(column.short).spare(if i < 2 { 0 } else { i as u8 })
    });
    let mut grid = Grid::new(std::iter::once(Column::new("", Align::Left)).chain(heads).collect());
    for name in &names {
        let mut row = vec![Span::plain(name)];
        for column in &columns {
            let medians = view.medians(name, column.read);
            row.push(match column.unit {
                "percent" => plain_range(&medians, 0, " %"),
                "" => plain_range(&medians, 2, ""),
                unit => crate::measurement::figures::range(&medians, unit),
            });
        }
        grid.push(row);
    }
    Some(grid)
}

struct LimitColumn {
    title: &'static str,
    short: &'static str,
    unit: &'static str,
    read: fn(&Trial) -> Option<f64>,
    /// The metric that it shows; left out where the report has a row for it.
    metric: Option<&'static Metric>,
}

impl LimitColumn {
    const fn new(
        title: &'static str,
        short: &'static str,
        unit: &'static str,
        read: fn(&Trial) -> Option<f64>,
    ) -> Self {
        LimitColumn { title, short, unit, read, metric: None }
    }

    const fn of(metric: &'static Metric, short: &'static str) -> Self {
        let Metric { title, unit, read, .. } = *metric;
        LimitColumn { title, short, unit, read, metric: Some(metric) }
    }
}

const LIMIT_COLUMNS: [LimitColumn; 7] = [
    LimitColumn::new("client busy", "client", "percent", |trial| Some(100.0 * trial.client_utilization?)),
    LimitColumn::new("client waits", "waits", "percent", |trial| Some(100.0 * trial.client_wait?)),
    LimitColumn::new("interrupted", "interrupted", "percent", |trial| trial.interrupted_percent),
    LimitColumn::new("server CPUs", "server", "", |trial| trial.server_utilization),
    LimitColumn::of(&metric::CLIENT_CPU_PER_OP, "client CPU"),
    LimitColumn::of(&metric::SERVER_CPU_PER_OP, "server CPU"),
    LimitColumn::new("switches/op", "switches", "", |trial| trial.context_switches_per_op),
];

/// One number or the range, without insignificant digits.
fn plain_range(medians: &[f64], decimals: usize, unit: &str) -> Span {
    let Some((low, high)) = ends(medians) else { return Span::dim("–") };
    let (low, high) = (format!("{low:.decimals$}"), format!("{high:.decimals$}"));
    Span::from(if low == high { format!("{high}{unit}") } else { format!("{low}–{high}{unit}") })
}

pub(crate) fn terms(view: &View<'_>) -> String {
    let plan = &view.report.head.plan;
    format!(
        "margin ±{}, precision ±{}, {} confidence",
        format_percent(plan.margin),
        format_percent(plan.precision),
        format_percent(plan.confidence)
    )
}

const DEFAULT: &str = "net.ipv4.tcp_congestion_control";

/// TCP's congestion controls for the head: `TCP with bbr`, as the sockets of the measurement had them. Where none was read, the
/// system's default is named as such, because a client may set its own (docs/congestion.md). `None` where no arm is over TCP,
/// and where one was asked for: it is set by routes, and the head names it already.
pub(crate) fn congestion(view: &View<'_>) -> Option<String> {
    let report = view.report;
    let arms: Vec<&Arm> = report.head.arms.iter().filter(|arm| is_tcp(arm.transport)).collect();
    let commands = report.head.arms.iter().any(|arm| arm.transport == Transport::Command);
    let names = distinct(arms.iter().flat_map(|arm| read(report, &arm.id)));
    if !names.is_empty() {
        return Some(format!("TCP with {}", names.join(", ")));
    }
    let default = report.head.host.sysctls.get(DEFAULT)?;
    let is_asked = report.head.workload.parameters.contains_key("congestion")
        || arms.iter().any(|arm| arm.point.parameters.contains_key("congestion"));
    if is_asked || !commands && arms.is_empty() {
        return None;
    }
    Some(format!("TCP with {} (system default; not checked on the client's own sockets)", clean(default)))
}

fn is_tcp(transport: Transport) -> bool {
    matches!(transport, Transport::Tcp | Transport::Tcp6 | Transport::TcpTls)
}

/// Congestion controls of an arm's connections; `cubic and bbr` if the ends differ.
fn read(report: &Report, arm: &str) -> Vec<String> {
    let evidence = report.analysis.evidence.iter().filter(|evidence| evidence.arm == arm);
    let mut names = Vec::new();
    for connection in evidence.filter_map(|evidence| evidence.connection.as_ref()) {
        names.push(connection.congestion().iter().map(|name| clean(name)).collect::<Vec<_>>().join(" and "));
    }
    names.retain(|both| !both.is_empty());
    distinct(names)
}

/// Congestion control of an arm as a cell; empty if there is none or it was not read.
pub(crate) fn of_arm(report: &Report, arm: &str) -> String {
    read(report, arm).join(";")
}

pub(crate) fn settings(view: &View<'_>) -> Vec<String> {
    let mut lines: Vec<(String, Vec<String>)> = Vec::new();
    for evidence in &view.report.analysis.evidence {
        let Some(connection) = &evidence.connection else { continue };
        let (name, text) = (view.name(&evidence.arm), clean(&connection.to_string()));
        match lines.iter_mut().find(|(known, _)| *known == name) {
            Some((_, texts)) if texts.contains(&text) => {}
            Some((_, texts)) => texts.push(text),
            None => lines.push((name, vec![text])),
        }
    }
    let mut sentences = Vec::new();
    for (name, texts) in lines {
        sentences.push(match texts.as_slice() {
            // TCP's initial buffers depend on the segment size, so further variants add no information.
            [first, second, .., _] => format!("{name}: {first}; or {second}; and others alike"),
            all => format!("{name}: {}", all.join("; or ")),
        });
    }
    sentences
}
