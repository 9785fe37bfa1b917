//! Context of a page: machine, server, command, and the method in a paragraph.

use samehost_model::human::{format_percent, format_seconds};
use samehost_model::{Report, Stopping};

use samehost_model::printable::clean;

/// Environment as label and value; unknown values are omitted.
pub(crate) fn environment(report: &Report) -> Vec<(String, String)> {
    let (host, server) = (&report.head.host, &report.head.workload.server);
    let allowed = if host.cpus_allowed > 0 && host.cpus_allowed != host.cpus {
        format!("{} of {}", host.cpus_allowed, host.cpus)
    } else {
        host.cpus.to_string()
    };
    let whose = if server.managed { "started by samehost" } else { "was running" };
    let server_text = if server.kind.is_empty() {
        String::new()
    } else {
        format!("{} {} ({whose})", server.kind, server.version).replace("  ", " ")
    };
    let mut all: Vec<(String, String)> = [
        ("CPU", host.cpu_model.clone()),
        ("CPUs", if host.cpus > 0 { allowed } else { String::new() }),
        ("quota", host.cgroup_quota.map_or_else(String::new, |quota| format!("{quota} CPUs"))),
        ("memory", if host.memory_mib > 0 { format!("{} MiB", host.memory_mib) } else { String::new() }),
        ("distribution", host.distribution.clone()),
        ("kernel", host.kernel.clone()),
        ("virtualization", host.virtualization.clone()),
        ("governor", host.governor.clone()),
        ("clock source", host.clock_source.clone()),
        ("mitigations", host.mitigations.join(", ")),
        ("stolen time", format!("{:.1} %", host.steal_percent)),
        ("server", server_text),
        ("started", report.head.started_at.clone()),
        ("seed", report.head.seed.to_string()),
        ("samehost", report.head.samehost_version.clone()),
    ]
    .into_iter()
    .map(|(label, value)| (label.to_owned(), clean(&value)))
    .collect();
    all.extend(host.sysctls.iter().map(|(name, value)| (clean(name), clean(value))));
    all.retain(|(_, value)| !value.trim().is_empty());
    all
}

/// Explains how the numbers were obtained, for readers who have only this page.
pub(crate) fn method(report: &Report) -> String {
    let plan = &report.head.plan;
    let trial = plan.trial_s.map_or_else(
        || "One run of the operation is a trial.".to_owned(),
        |s| match crate::driving::slices(plan) {
            Some(slices) => format!(
                "In a round the connections of all arms are open and take turns in {slices}; {} of each arm are one sample.",
                format_seconds(s)
            ),
            None => format!("A trial is {} of checked operations.", format_seconds(s)),
        },
    );
    let compared = if report.analysis.comparisons.is_empty() {
        return format!("{trial} Values are medians over trials.");
    } else {
        "Every block runs each arm once, in a random order, so that what changes with time meets all arms alike."
    };
    let control = if plan.control {
        " The baseline also runs against itself. If the two differed, this report would give no verdict."
    } else {
        ""
    };
    let stopping = match plan.stopping {
        Stopping::Precision => format!(
            "How much to measure was decided beforehand: at fixed numbers of blocks ({} to {}) the precision of ±{} was \
             looked at.",
            plan.min_blocks,
            plan.max_blocks,
            format_percent(plan.precision)
        ),
        Stopping::Decision => format!(
            "Each point was measured until it was decided, by a test that may be looked at after every block, or for {} \
             blocks.",
            plan.max_blocks
        ),
    };
    format!(
        "{trial} {compared} The ratio is that of the blocks' log ratios with its {} interval, by the method that each \
         comparison names.{control} A verdict needs a p-value below 5 % of a difference within the margin (±{}), adjusted for all \
         that is asked (Holm); equivalent means the difference is shown to lie inside the margin. {stopping} Trials that \
         something else on the machine disturbed were measured again, by a rule that does not see the result.",
        format_percent(plan.confidence),
        format_percent(plan.margin),
    )
}

#[cfg(test)]
mod tests {
    use samehost_model::{Head, Host};

    use super::*;

    #[test]
    fn what_is_unknown_is_left_out() {
        let report = Report::new(Head {
            samehost_version: "0".into(),
            seed: 7,
            host: Host { cpus: 8, cpus_allowed: 2, ..Host::default() },
            ..Head::default()
        });
        let labels: Vec<(String, String)> = environment(&report);
        let labels: Vec<&str> = labels.iter().map(|(label, _)| label.as_str()).collect();
        assert_eq!(labels, ["CPUs", "stolen time", "seed", "samehost"]);
        assert_eq!(environment(&report)[0].1, "2 of 8");
        assert_eq!(
            method(&report),
            "A trial is 0.5 s of checked operations. Values are medians over trials."
        );
    }
}
