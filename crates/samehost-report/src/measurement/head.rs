//! Head of a report: what was measured, and how, in a line each; how arms were driven and CPUs kept from idle states.

use std::collections::BTreeSet;

use samehost_analysis::distinct;
use samehost_model::human::{count, format_seconds, format_value};
use samehost_model::printable::clean;
use samehost_model::{
    AwakeBy, Driven, Host, Outcome, Placement, Plan, Point, Stopping, Transport, Undivided, WorkloadInfo,
};

use crate::layout::{Line, Tone, width, wrap};
use crate::measurement::conditions;
use crate::measurement::view::{Parameter, View, ends};

/// What was measured: `raw ping-pong`, `128 B`, `1 connection`, `closed loop`.
pub(crate) fn what(view: &View<'_>) -> Vec<String> {
    let workload = &view.report.head.workload;
    let mut parts = vec![subject(workload)];
    let points: Vec<&Point> = view.groups.iter().map(|group| &group.baseline.point).collect();
    let Some(first) = points.first() else { return parts };
    if first.size_bytes.is_some() {
        parts.push(values(view, &Parameter::Size, &points, first));
    }
    let commands =
        view.report.head.arms.iter().all(|arm| matches!(arm.transport, Transport::Command | Transport::None));
    if !commands {
        parts.push(values(view, &Parameter::Connections, &points, first));
        parts.extend(load(view, &points, first));
    }
    if view.varying.contains(&Parameter::Placement) {
        parts.push(range(&Parameter::Placement, &points));
    } else if first.placement != Placement::Free && points.iter().all(|p| p.placement == first.placement) {
        parts.push(first.placement.to_string());
    }
    for (key, value) in &workload.parameters {
        // Capacities at several levels are too many for a head; JSON has them for each arm.
        if !key.starts_with("capacity_per_s/") {
            parts.push(pair(key, value));
        }
    }
    for (key, value) in &first.parameters {
        let own = Parameter::Own(key.clone());
        parts.push(if view.varying.contains(&own) { range(&own, &points) } else { pair(key, value) });
    }
    parts
}

/// A workload by its name and its title: `redis GET`.
pub(crate) fn subject(workload: &WorkloadInfo) -> String {
    let (name, title) = (clean(&workload.name), clean(&workload.title));
    if title.is_empty() {
        name
    } else if title.starts_with(&name) {
        title
    } else {
        format!("{name} {title}")
    }
}

/// A parameter in words: its range where points differ in it, else that of the first point.
fn values(view: &View<'_>, parameter: &Parameter, points: &[&Point], first: &Point) -> String {
    if view.varying.contains(parameter) { range(parameter, points) } else { parameter.phrase(first) }
}

fn pair(key: &str, value: &str) -> String {
    format!("{} {}", clean(key).replace('_', " "), clean(value))
}

/// How requests were driven; `None` for a stream of bytes, which has no requests.
fn load(view: &View<'_>, points: &[&Point], first: &Point) -> Option<String> {
    if view.varying.contains(&Parameter::Rate) || first.rate_per_s.is_some() {
        return Some(format!("open loop at {}", values(view, &Parameter::Rate, points, first)));
    }
    if view.metrics().iter().any(|metric| metric.is_latency() || metric.is_rate_of_work()) {
        return Some("closed loop".to_owned());
    }
    None
}

/// Values of a swept parameter: all of them if there are few, else the first and the last.
fn range(parameter: &Parameter, points: &[&Point]) -> String {
    let mut values = distinct(points.iter().map(|point| parameter.value(point)));
    values.retain(|value| !value.is_empty());
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

/// How it was measured, each part as words of its own: blocks or rounds, why not in slices, CPUs, server, congestion control,
/// machine, time. [`flow`] joins them.
pub(crate) fn how(view: &View<'_>) -> Vec<String> {
    let report = view.report;
    let mut parts = vec![trials(view)];
    parts.extend(why_trials(&report.head.plan));
    parts.extend(cpus(&report.head.plan));
    parts.extend(awake(&report.head.plan));
    let server = &report.head.workload.server;
    let own = server.kind.starts_with("samehost") || server.kind.is_empty();
    if !own {
        let managed = if server.managed { "" } else { " (was running)" };
        parts.push(format!("{} {}{managed}", clean(&server.kind), clean(&server.version)).replace("  ", " "));
    }
    parts.extend(conditions::congestion(view));
    parts.push(machine(&report.head.host));
    parts.extend(started(&report.head.started_at));
    parts.retain(|part| !part.is_empty());
    parts
}

fn trials(view: &View<'_>) -> String {
    let report = view.report;
    let mut blocks: Vec<usize> = Vec::new();
    for group in &view.groups {
        let ids: Vec<&str> = group.arms().map(|arm| arm.id.as_str()).collect();
        let counted = report.trials.iter().filter(|s| s.counts() && ids.contains(&s.arm.as_str()));
        blocks.push(counted.map(|s| s.block).collect::<BTreeSet<_>>().len());
    }
    let (low, high) = (blocks.iter().min().copied().unwrap_or(0), blocks.iter().max().copied().unwrap_or(0));
    let number = if low == high { count(low as u64) } else { format!("{low}–{high}") };
    let plural = if high == 1 { "" } else { "s" };
    let kept = count(report.trials.iter().filter(|s| !s.set_aside).count() as u64);
    let (length, seed) = (report.head.plan.trial_s.map(format_seconds), report.head.seed);
    match (slices(&report.head.plan), length) {
        (Some(slices), Some(length)) => {
            format!("{number} round{plural} of {length} an arm in {slices}, seed {seed}")
        }
        (Some(slices), None) => format!("{number} round{plural} in {slices}, seed {seed}"),
        (None, Some(length)) => {
            format!("{number} block{plural} of {length} trials, {kept} trials, seed {seed}")
        }
        (None, None) => format!("{number} block{plural}, {kept} trials, seed {seed}"),
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

fn short_cpu(model: &str) -> String {
    let model = clean(model).replace("(R)", "").replace("(TM)", "").replace("(tm)", "");
    let model = model.split('@').next().unwrap_or_default();
    model
        .split_whitespace()
        .filter(|word| !matches!(*word, "CPU" | "Processor") && !word.ends_with("-Core"))
        .collect::<Vec<_>>()
        .join(" ")
}

pub(crate) fn started(at: &str) -> Option<String> {
    let at = clean(at);
    let (day, time) = at.split_once('T')?;
    let minute = time.get(..5)?;
    Some(if at.ends_with('Z') { format!("{day} {minute} UTC") } else { format!("{day} {minute}") })
}

pub(crate) fn outcome(outcome: Outcome, plan: &Plan) -> Option<String> {
    match outcome {
        Outcome::Complete => None,
        Outcome::OutOfBudget => {
            let before = match plan.stopping {
                Stopping::Precision => "the precision was reached",
                Stopping::Decision => "all was decided",
            };
            // A plan that was measured together with others has no time budget of its own.
            Some(match plan.budget_s {
                Some(seconds) if plan.asked.is_empty() => {
                    format!("the budget of {} ran out before {before}", format_seconds(seconds))
                }
                _ => format!("the budget ran out before {before}"),
            })
        }
        Outcome::Interrupted => Some("interrupted: this is what was measured until then".to_owned()),
        Outcome::Failed => Some("the measurement failed; this is what was measured until then".to_owned()),
        Outcome::Unfinished => Some("unfinished: this measurement never said how it ended".to_owned()),
    }
}

/// Joins parts by dots into lines of at most `columns`. A part is broken only if it is longer than a line.
pub(crate) fn flow(tone: Tone, parts: &[String], columns: usize) -> Vec<Line> {
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
    lines.into_iter().map(|text| Line::of(tone, text)).collect()
}

/// Formats as `slices of 3 ms` or `slices of 3 ms to 20 ms`; `None` unless everything was measured in slices.
pub(crate) fn slices(plan: &Plan) -> Option<String> {
    let lengths: Vec<f64> = plan.driven.iter().map(|driven| driven.slice_s).collect::<Option<_>>()?;
    let (low, high) = ends(&lengths)?;
    let (least, most) = (format_seconds(low), format_seconds(high));
    Some(if low < high { format!("slices of {least} to {most}") } else { format!("slices of {most}") })
}

/// Why trials were not divided into slices. Omitted when the workload itself does not allow it.
fn why_trials(plan: &Plan) -> Option<String> {
    let mut reasons = plan.driven.iter().filter_map(|driven| driven.undivided);
    let why = reasons.find(|why| *why != Undivided::Workload)?;
    let reason = match why {
        Undivided::OpenLoop => "requests come due by themselves",
        Undivided::Threads => "several client threads",
        Undivided::Connections => "so many connections",
        Undivided::Asked | Undivided::Workload => "as asked",
    };
    Some(format!("no slices ({reason})"))
}

/// Formats as `client on CPU 0, server on CPU 1`.
pub(crate) fn cpus(plan: &Plan) -> Option<String> {
    let pinned = plan.driven.iter().find(|driven| is_pinned(driven))?;
    let client = list(&pinned.client_cpus);
    let is_one_of_several = pinned.connections == 1 && !plan.driven.iter().all(is_pinned);
    let whose = if is_one_of_several { "one connection: " } else { "" };
    Some(match pinned.server_cpus.as_slice() {
        [] => format!("{whose}client on CPU {client}, the server wherever it runs"),
        server if server == pinned.client_cpus => format!("{whose}client and server on CPU {client}"),
        server => {
            let swapped = if pinned.swapped_at_random { ", changing places at random" } else { "" };
            format!("{whose}client on CPU {client}, server on CPU {}{swapped}", list(server))
        }
    })
}

fn is_pinned(driven: &Driven) -> bool {
    !driven.client_cpus.is_empty()
}

fn list(cpus: &[u32]) -> String {
    cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

/// Whether CPUs were kept from idle states, and what the choice costs where one request at a time was measured.
pub(crate) fn awake(plan: &Plan) -> Option<String> {
    let wake_up = plan.wake_up_us.map(|us| format_value(us, "us"));
    let how = match plan.awake {
        Some(AwakeBy::LatencyRequest) => "/dev/cpu_dma_latency",
        Some(AwakeBy::IdleThreads) => "idle-priority threads",
        None => {
            return wake_up
                .map(|us| format!("CPUs may sleep, which adds about {us} to one request (--awake)"));
        }
    };
    Some(match wake_up {
        Some(us) => format!(
            "CPUs kept awake ({how}; asleep, waking them adds about {us} to one request, over each transport (--awake=no))"
        ),
        None => format!("CPUs kept awake ({how})"),
    })
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
        let lines = flow(Tone::Bold, &parts, 17);
        let texts: Vec<String> = lines.iter().map(|line| line.print(false)).collect();
        assert_eq!(texts, ["one two · three", "four five"]);
    }

    fn driven(connections: u32, slice_s: Option<f64>, cpus: &[u32]) -> Driven {
        Driven {
            connections,
            placement: if cpus.is_empty() { Placement::Free } else { Placement::CrossCore },
            slice_s,
            undivided: slice_s.is_none().then_some(Undivided::OpenLoop),
            client_cpus: cpus.iter().copied().take(1).collect(),
            server_cpus: cpus.iter().copied().skip(1).collect(),
            swapped_at_random: false,
        }
    }

    fn plan(driven: Vec<Driven>) -> Plan {
        Plan { driven, ..Plan::default() }
    }

    #[test]
    fn rounds_say_their_slices_and_cpus() {
        let one = plan(vec![driven(1, Some(0.003), &[0, 1])]);
        assert_eq!(slices(&one).as_deref(), Some("slices of 3 ms"));
        assert_eq!(cpus(&one).as_deref(), Some("client on CPU 0, server on CPU 1"));
        let both = plan(vec![driven(1, Some(0.003), &[0, 1]), driven(64, Some(0.02), &[])]);
        assert_eq!(slices(&both).as_deref(), Some("slices of 3 ms to 20 ms"));
        assert_eq!(cpus(&both).as_deref(), Some("one connection: client on CPU 0, server on CPU 1"));
        let foreign = plan(vec![driven(1, Some(0.003), &[0])]);
        assert_eq!(cpus(&foreign).as_deref(), Some("client on CPU 0, the server wherever it runs"));
        let awake_too = Plan { awake: Some(AwakeBy::IdleThreads), ..one };
        assert!(awake(&awake_too).unwrap().contains("idle-priority"));
        let with_cost = Plan { wake_up_us: Some(38.4), ..awake_too };
        assert!(
            awake(&with_cost).unwrap().contains("38.4 µs to one request, over each transport (--awake=no)")
        );
        let asleep = Plan { awake: None, ..with_cost };
        assert!(awake(&asleep).unwrap().ends_with("adds about 38.4 µs to one request (--awake)"));
    }

    #[test]
    fn trials_say_why() {
        let open = plan(vec![driven(1, None, &[])]);
        assert_eq!(slices(&open), None);
        assert!(why_trials(&open).unwrap().contains("come due"));
        assert_eq!(cpus(&open), None);
        assert_eq!((slices(&Plan::default()), why_trials(&Plan::default())), (None, None));
    }
}
