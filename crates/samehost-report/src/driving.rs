//! Describes how arms were driven: slices or trials, CPUs, and how CPUs were kept from idle states.

use samehost_model::human::{format_seconds, format_value};
use samehost_model::{AwakeBy, Driven, Plan, Undivided};

/// Formats as `slices of 3 ms` or `slices of 3 ms to 20 ms`; `None` unless everything was measured in slices.
pub(crate) fn slices(plan: &Plan) -> Option<String> {
    let lengths: Vec<f64> = plan.driven.iter().map(|driven| driven.slice_s).collect::<Option<_>>()?;
    let (low, high) = (lengths.iter().copied().reduce(f64::min)?, lengths.iter().copied().reduce(f64::max)?);
    let (least, most) = (format_seconds(low), format_seconds(high));
    Some(if low < high { format!("slices of {least} to {most}") } else { format!("slices of {most}") })
}

/// Why trials were not divided into slices. Omitted when the workload itself does not allow it.
pub(crate) fn why_trials(plan: &Plan) -> Option<String> {
    let why =
        plan.driven.iter().filter_map(|driven| driven.undivided).find(|why| *why != Undivided::Workload)?;
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
    let is_pinned = |driven: &&Driven| !driven.client_cpus.is_empty();
    let pinned = plan.driven.iter().find(is_pinned)?;
    let list = |cpus: &[u32]| cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let client = list(&pinned.client_cpus);
    let whose = if plan.driven.iter().all(|driven| is_pinned(&driven)) || pinned.connections != 1 {
        ""
    } else {
        "one connection: "
    };
    Some(match pinned.server_cpus.as_slice() {
        [] => format!("{whose}client on CPU {client}, the server wherever it runs"),
        server if server == pinned.client_cpus => format!("{whose}client and server on CPU {client}"),
        server => {
            let swapped = if pinned.swapped_at_random { ", changing places at random" } else { "" };
            format!("{whose}client on CPU {client}, server on CPU {}{swapped}", list(server))
        }
    })
}

/// Whether CPUs were kept from idle states, and what the choice costs where one request at a time was measured.
pub(crate) fn awake(plan: &Plan) -> Option<String> {
    let wake_up = plan.wake_up_us.map(|us| format_value(us, "us"));
    match (plan.awake, wake_up) {
        (None, None) => None,
        (None, Some(us)) => Some(format!("CPUs may sleep, which adds about {us} to one request (--awake)")),
        (Some(by), wake_up) => {
            let how = match by {
                AwakeBy::LatencyRequest => "/dev/cpu_dma_latency",
                AwakeBy::IdleThreads => "idle-priority threads",
            };
            let asleep = wake_up.map_or_else(String::new, |us| {
                format!(
                    "; asleep, waking them adds about {us} to one request, over each transport (--awake=no)"
                )
            });
            Some(format!("CPUs kept awake ({how}{asleep})"))
        }
    }
}

#[cfg(test)]
mod tests {
    use samehost_model::Placement;

    use super::*;

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
