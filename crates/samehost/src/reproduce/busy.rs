//! Who was the limit: how busy client, proxy and server were at a point, where something stands between the two.

use samehost_model::{Arm, ClaimOutcome, Comparison, Judgement, Report, Sample, Transport};
use samehost_stats::median;

use super::claims::not_measured;
use super::experiments::Claim;

/// From here on a side is full: what it needs besides is what any program waits for.
const FULL: f64 = 0.95;

/// How busy each side was, as a part of what it could use.
struct Busy {
    client: f64,
    /// Proxy and server; absent where it is not known what they can use.
    others: Vec<(&'static str, f64)>,
}

impl Busy {
    fn of(report: &Report, arm: &Arm) -> Option<Self> {
        let of = |read: &dyn Fn(&Sample) -> Option<f64>| {
            let trials = report.trials.iter().filter(|sample| sample.arm == arm.id && sample.counts());
            median(&trials.filter_map(read).collect::<Vec<f64>>())
        };
        let proxy = of(&|sample| Some(sample.proxy_utilization? / sample.proxy_most_cpus?));
        let server = of(&|sample| Some(sample.server_utilization? / sample.server_most_cpus?));
        let others = [("proxy", proxy?), ("server", server?)];
        Some(Busy { client: of(&|sample| sample.client_utilization)?, others: others.into() })
    }

    /// The side that was full, where one was.
    fn limit(&self) -> Option<&'static str> {
        let full = self.others.iter().find(|(_, part)| *part >= FULL).map(|(name, _)| *name);
        full.or((self.client >= FULL).then_some("client"))
    }

    fn in_words(&self) -> String {
        let percent = |part: f64| format!("{:.0} %", 100.0 * part);
        let others = self.others.iter().map(|(name, part)| format!("{name} {}", percent(*part)));
        let sides: Vec<String> =
            [format!("client {}", percent(self.client))].into_iter().chain(others).collect();
        sides.join(", ")
    }
}

/// How busy everybody was in both arms of a comparison, and who was the limit.
pub fn of(found: &Comparison, report: &Report) -> Option<String> {
    let of = |id: &str| Some((report.arm(id)?, Busy::of(report, report.arm(id)?)?));
    let told = |(arm, busy): (&Arm, Busy)| {
        let limit =
            busy.limit().map_or("nobody was full".to_owned(), |side| format!("the {side} was the limit"));
        format!("{}: {}, {limit}", arm.name, busy.in_words())
    };
    Some(format!("busy over {}; {}", told(of(&found.baseline)?), told(of(&found.candidate)?)))
}

/// The claim that the client was the limit, at every point: all of them, or none.
pub fn judge(claim: &Claim, report: &Report) -> Option<ClaimOutcome> {
    let compared = report.arms.iter().filter(|arm| arm.transport != Transport::None);
    let all: Vec<Busy> = compared.filter_map(|arm| Busy::of(report, arm)).collect();
    let limited = all.iter().filter(|busy| busy.limit() == Some("client")).count();
    let (least, most) = all.iter().fold((f64::INFINITY, 0.0_f64), |(least, most), busy| {
        (least.min(busy.client), most.max(busy.client))
    });
    let judgement = match limited {
        _ if all.is_empty() => return None,
        0 => Judgement::DoesNotHold,
        some if some == all.len() => Judgement::Holds,
        _ => Judgement::CannotTell,
    };
    let why = format!(
        "the client was {:.0} to {:.0} % busy here, and the limit in {limited} of {} conditions",
        100.0 * least,
        100.0 * most,
        all.len()
    );
    Some(ClaimOutcome { judgement, why, ..not_measured(claim) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(client: f64, proxy: f64, server: f64) -> Busy {
        Busy { client, others: vec![("proxy", proxy), ("server", server)] }
    }

    #[test]
    fn the_limit_is_who_is_full_and_the_client_only_where_nobody_else_is() {
        assert_eq!(busy(0.3, 0.4, 0.5).limit(), None);
        assert_eq!(busy(0.99, 0.4, 0.2).limit(), Some("client"));
        assert_eq!(busy(0.99, 0.4, 0.97).limit(), Some("server"));
        assert_eq!(busy(0.5, 0.98, 0.3).limit(), Some("proxy"));
        assert_eq!(busy(0.305, 0.4, 0.5).in_words(), "client 30 %, proxy 40 %, server 50 %");
    }
}
