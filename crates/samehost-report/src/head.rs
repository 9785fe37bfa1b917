//! Head of a report: what was measured, and how, in a line each.

use samehost_model::human::{count, format_seconds};
use samehost_model::{Host, MetricInfo, Outcome, Placement, Plan, Point, Stopping, Transport};
use std::collections::BTreeSet;

use crate::driving;
use samehost_model::printable::clean;

use crate::sockets;
use crate::text::{width, wrap};
use crate::view::{Parameter, View};

/// What was measured: `raw ping-pong`, `128 B`, `1 connection`, `closed loop`.
pub(crate) fn what(view: &View<'_>) -> Vec<String> {
    let workload = &view.report.head.workload;
    let (name, title) = (clean(&workload.name), clean(&workload.title));
    let mut parts = vec![match () {
        () if title.is_empty() || title == name => name,
        () if title.starts_with(&name) => title,
        () => format!("{name} {title}"),
    }];
    let points: Vec<&Point> = view.groups.iter().map(|group| &group.baseline.point).collect();
    let Some(first) = points.first() else { return parts };
    let varies = |parameter: &Parameter| view.varying.contains(parameter).then(|| range(parameter, &points));
    if first.size_bytes.is_some() {
        parts.push(varies(&Parameter::Size).unwrap_or_else(|| Parameter::Size.phrase(first)));
    }
    let commands =
        view.report.head.arms.iter().all(|arm| matches!(arm.transport, Transport::Command | Transport::None));
    if !commands {
        parts.push(varies(&Parameter::Connections).unwrap_or_else(|| Parameter::Connections.phrase(first)));
        parts.extend(load(view, first, varies(&Parameter::Rate)));
    }
    if let Some(placements) = varies(&Parameter::Placement) {
        parts.push(placements);
    } else if first.placement != Placement::Free && points.iter().all(|p| p.placement == first.placement) {
        parts.push(first.placement.to_string());
    }
    // Capacities at several levels are too many for a head; JSON has them for each arm.
    let parameters = workload.parameters.iter().filter(|(key, _)| !key.starts_with("capacity_per_s/"));
    parts.extend(parameters.map(|(key, value)| pair(key, value)));
    for key in first.parameters.keys() {
        let own = Parameter::Own(key.clone());
        parts.push(varies(&own).unwrap_or_else(|| pair(key, &own.value(first))));
    }
    parts
}

fn pair(key: &str, value: &str) -> String {
    format!("{} {}", clean(key).replace('_', " "), clean(value))
}

/// How requests were driven; `None` for a stream of bytes, which has no requests.
fn load(view: &View<'_>, first: &Point, rates: Option<String>) -> Option<String> {
    let by_request = |metric: &MetricInfo| metric.is_latency() || metric.is_rate_of_work();
    match (rates, first.rate_per_s) {
        (Some(rates), _) => Some(format!("open loop at {rates}")),
        (None, Some(_)) => Some(format!("open loop at {}", Parameter::Rate.phrase(first))),
        (None, None) if view.metrics().iter().any(by_request) => Some("closed loop".to_owned()),
        (None, None) => None,
    }
}

/// Values of a swept parameter: all of them if there are few, else the first and the last.
fn range(parameter: &Parameter, points: &[&Point]) -> String {
    let mut values: Vec<String> = Vec::new();
    for point in points {
        let value = parameter.value(point);
        if !value.is_empty() && !values.contains(&value) {
            values.push(value);
        }
    }
    let text = match values.as_slice() {
        [first, .., last] if values.len() > 4 => format!("{first} to {last}"),
        _ => values.join(", "),
    };
    match parameter {
        Parameter::Connections => format!("{text} connections"),
        Parameter::Own(_) => format!("{} {text}", parameter.title()),
        _ => text,
    }
}

/// How it was measured: blocks and trials, server, machine, time.
pub(crate) fn how(view: &View<'_>) -> Vec<String> {
    let report = view.report;
    let mut parts = vec![trials(view)];
    parts.extend(driving::why_trials(&report.head.plan));
    parts.extend(driving::cpus(&report.head.plan));
    parts.extend(driving::awake(&report.head.plan));
    let server = &report.head.workload.server;
    let own = server.kind.starts_with("samehost") || server.kind.is_empty();
    if !own {
        let managed = if server.managed { "" } else { " (was running)" };
        parts.push(format!("{} {}{managed}", clean(&server.kind), clean(&server.version)).replace("  ", " "));
    }
    parts.extend(sockets::congestion(view));
    parts.push(machine(&report.head.host));
    parts.extend(started(&report.head.started_at));
    parts.retain(|part| !part.is_empty());
    parts
}

fn trials(view: &View<'_>) -> String {
    let report = view.report;
    let blocks: Vec<usize> = view
        .groups
        .iter()
        .map(|group| {
            let ids: Vec<&str> = std::iter::once(&group.baseline)
                .chain(&group.candidates)
                .map(|arm| arm.id.as_str())
                .collect();
            let counted = report.trials.iter().filter(|s| s.counts() && ids.contains(&s.arm.as_str()));
            counted.map(|s| s.block).collect::<BTreeSet<_>>().len()
        })
        .collect();
    let (low, high) = (blocks.iter().min().copied().unwrap_or(0), blocks.iter().max().copied().unwrap_or(0));
    let number = if low == high { count(low as u64) } else { format!("{low}–{high}") };
    let plural = if high == 1 { "" } else { "s" };
    let kept = count(report.trials.iter().filter(|s| !s.set_aside).count() as u64);
    let length = |what: &str| {
        report.head.plan.trial_s.map_or_else(String::new, |s| format!(" of {} {what}", format_seconds(s)))
    };
    match driving::slices(&report.head.plan) {
        Some(slices) => {
            format!("{number} round{plural}{} in {slices}, seed {}", length("an arm"), report.head.seed)
        }
        None => {
            format!("{number} block{plural}{}, {kept} trials, seed {}", length("trials"), report.head.seed)
        }
    }
}

/// Formats as `2 × AMD EPYC, Linux 6.18, virtual machine`.
pub(crate) fn machine(host: &Host) -> String {
    let mut parts = Vec::new();
    let model = short_cpu(&host.cpu_model);
    if host.cpus > 0 {
        let model = if model.is_empty() { "CPU".to_owned() } else { model };
        if host.cpus_allowed > 0 && host.cpus_allowed < host.cpus {
            parts.push(format!("{} of {} × {model}", host.cpus_allowed, host.cpus));
        } else {
            parts.push(format!("{} × {model}", host.cpus));
        }
    }
    if let Some(quota) = host.cgroup_quota {
        parts.push(format!("quota of {quota} CPUs"));
    }
    if !host.kernel.is_empty() {
        parts.push(format!("Linux {}", clean(&host.kernel)));
    }
    match clean(&host.virtualization).as_str() {
        "" | "none" | "unknown" => {}
        kind @ ("docker" | "podman" | "lxc" | "container" | "kubernetes") => parts.push(kind.to_owned()),
        kind if kind.contains("machine") => parts.push(kind.to_owned()),
        kind => parts.push(format!("virtual machine ({kind})")),
    }
    parts.join(", ")
}

/// Name of a CPU without trademarks and filler words.
fn short_cpu(model: &str) -> String {
    let model = clean(model).replace("(R)", "").replace("(TM)", "").replace("(tm)", "");
    let model = model.split('@').next().unwrap_or_default();
    let empty = |word: &&str| !matches!(*word, "CPU" | "Processor") && !word.ends_with("-Core");
    model.split_whitespace().filter(empty).collect::<Vec<_>>().join(" ")
}

/// Start time, to the minute.
pub(crate) fn started(at: &str) -> Option<String> {
    let at = clean(at);
    let (day, time) = at.split_once('T')?;
    let minute = time.get(..5)?;
    Some(if at.ends_with('Z') { format!("{day} {minute} UTC") } else { format!("{day} {minute}") })
}

/// How the measurement ended, unless it ended as planned.
pub(crate) fn outcome(outcome: Outcome, plan: &Plan) -> Option<String> {
    match outcome {
        Outcome::Complete => None,
        Outcome::OutOfBudget => {
            let before = match plan.stopping {
                Stopping::Precision => "the precision was reached",
                Stopping::Decision => "all was decided",
            };
            // A plan that was measured together with others has no time budget of its own.
            let budget = plan.budget_s.filter(|_| plan.asked.is_empty());
            let of = budget.map_or_else(String::new, |s| format!(" of {}", format_seconds(s)));
            Some(format!("the budget{of} ran out before {before}"))
        }
        Outcome::Interrupted => Some("interrupted: this is what was measured until then".to_owned()),
        Outcome::Failed => Some("the measurement failed; this is what was measured until then".to_owned()),
        Outcome::Unfinished => Some("unfinished: this measurement never said how it ended".to_owned()),
    }
}

/// Joins parts by dots into lines of at most `columns`. A part is broken only if it is longer than a line.
pub(crate) fn flow(parts: &[String], columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        match lines.last_mut() {
            Some(line) if width(line) + 3 + width(part) <= columns => {
                line.push_str(" · ");
                line.push_str(part);
            }
            _ => lines.extend(wrap(part, columns)),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_named_shortly() {
        assert_eq!(short_cpu("AMD EPYC 7B13 64-Core Processor"), "AMD EPYC 7B13");
        assert_eq!(short_cpu("Intel(R) Xeon(R) CPU E5-2670 v3 @ 2.30GHz"), "Intel Xeon E5-2670 v3");
        let host = Host { cpus: 8, cpus_allowed: 2, virtualization: "kvm".into(), ..Host::default() };
        assert_eq!(machine(&host), "2 of 8 × CPU, virtual machine (kvm)");
        assert_eq!(machine(&Host::default()), "");
    }

    #[test]
    fn times_to_the_minute() {
        assert_eq!(started("2026-07-14T10:12:33Z").as_deref(), Some("2026-07-14 10:12 UTC"));
        assert_eq!(started("yesterday"), None);
        assert_eq!(started("xTé"), None);
    }

    #[test]
    fn parts_stay_whole() {
        let parts = ["one two".to_owned(), "three".to_owned(), "four five".to_owned()];
        assert_eq!(flow(&parts, 17), ["one two · three", "four five"]);
    }
}
