//! Bottlenecks with a proxy between client and server, as text and as a claim. The report determines the bottleneck.

use samehost_model::{ClaimOutcome, Comparison, Judgement, Limit, LimitedBy, Report};

use super::claims::not_measured;
use super::published::Claim;

fn in_words(limit: &Limit) -> String {
    let who = match limit.by {
        LimitedBy::Client => "the client was the limit",
        LimitedBy::Proxy => "the proxy was the bottleneck",
        LimitedBy::Server => "the server was the limit",
        LimitedBy::Machine => "the machine was full",
        LimitedBy::Waiting => "nothing was the bottleneck",
    };
    let Limit { client_cpus, proxy_cpus, server_cpus, .. } = limit;
    format!("client {client_cpus:.2}, proxy {proxy_cpus:.2}, server {server_cpus:.2} CPUs, {who}")
}

/// Utilisation of client, proxy and server in both arms of a comparison at one point, and the bottleneck.
pub fn of(found: &Comparison, report: &Report) -> Option<String> {
    if report.arm(&found.baseline)?.point != report.arm(&found.candidate)?.point {
        return None;
    }
    let utilization = |id: &str| {
        let limit = report.analysis.limits.iter().find(|limit| limit.arm == id)?;
        let name = report.arm(id).map_or(id, |arm| arm.name.as_str());
        Some(format!("{name}: {}", in_words(limit)))
    };
    Some(format!("{}; {}", utilization(&found.baseline)?, utilization(&found.candidate)?))
}

/// The claim that the client was the bottleneck: holds if it was in every condition, does not hold if it was in none.
pub fn judge(claim: &Claim, report: &Report) -> Option<ClaimOutcome> {
    let all = &report.analysis.limits;
    let limited = all.iter().filter(|limit| limit.by == LimitedBy::Client).count();
    let busy = || all.iter().map(|limit| 100.0 * limit.client_cpus);
    let (least, most) = (busy().reduce(f64::min)?, busy().reduce(f64::max)?);
    let judgement = match limited {
        0 => Judgement::DoesNotHold,
        some if some == all.len() => Judgement::Holds,
        _ => Judgement::CannotTell,
    };
    let why = format!(
        "the client used {least:.0} to {most:.0} % of a CPU here, and was the limit in {limited} of {} conditions",
        all.len()
    );
    Some(ClaimOutcome { judgement, why, ..not_measured(claim) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::published::Find;
    use samehost_model::Expected;

    fn report(limits: &[(LimitedBy, f64)]) -> Report {
        let limits = limits.iter().enumerate().map(|(arm, (by, client_cpus))| Limit {
            arm: arm.to_string(),
            by: *by,
            client_cpus: *client_cpus,
            proxy_cpus: 0.25,
            server_cpus: 0.5,
        });
        let mut report = crate::reproduce::claims::tests::report(&[(1, 1.0)]);
        report.analysis.limits = limits.collect();
        report
    }

    #[test]
    fn the_client_was_the_limit_in_all_conditions_or_in_none() {
        let claim = Claim {
            text: "the client was the limit",
            published: "~ 100 %",
            expected: Expected::ClientLimit,
            find: Find::Busy,
        };
        let judgement =
            |limits: &[(LimitedBy, f64)]| judge(&claim, &report(limits)).map(|found| found.judgement);
        let (client, waiting) = ((LimitedBy::Client, 0.99), (LimitedBy::Waiting, 0.2));
        assert_eq!(judgement(&[client, client]), Some(Judgement::Holds));
        assert_eq!(judgement(&[waiting, (LimitedBy::Server, 0.3)]), Some(Judgement::DoesNotHold));
        assert_eq!(judgement(&[client, waiting]), Some(Judgement::CannotTell));
        assert_eq!(judgement(&[]), None);
        let why = judge(&claim, &report(&[client, waiting])).unwrap().why;
        assert!(why.contains("20 to 99 % of a CPU") && why.contains("1 of 2 conditions"), "{why}");
    }
}
