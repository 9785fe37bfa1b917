//! Congestion control of the published experiments: CUBIC, the default of Linux since 2006. What is about large transfers asks for it
//! in its command line; where TCP had another one all the same, such a claim is not comparable.

use samehost_model::{Comparison, Report, metric};

/// The congestion control of the publications.
const THEN: &str = "cubic";
/// Metric that depends on the congestion control.
const OF_BULK: &str = metric::BANDWIDTH.name;

/// Why a claim about large transfers is not comparable: TCP used another congestion control.
pub fn not_comparable(found: &Comparison, report: &Report) -> Option<String> {
    if found.metric != OF_BULK {
        return None;
    }
    let other = other(found, report)?;
    Some(format!("not comparable: TCP ran with {other}, the article's with {THEN}"))
}

/// A congestion control other than CUBIC, among the connections of a comparison's arms.
fn other(found: &Comparison, report: &Report) -> Option<String> {
    for evidence in &report.analysis.evidence {
        if found.baseline != evidence.arm && found.candidate != evidence.arm {
            continue;
        }
        let Some(connection) = &evidence.connection else { continue };
        if let Some(name) = connection.congestion().into_iter().find(|name| *name != THEN) {
            return Some(name.to_owned());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use samehost_model::{ConnectionSettings, Judgement, SocketEnd};

    use super::*;
    use crate::reproduce::claims::tests::report;
    use crate::reproduce::published::EXPERIMENTS;

    fn with(congestion: &str) -> Report {
        let mut report = report(&[(1, 1.3)]);
        let end = SocketEnd { congestion: Some(congestion.into()), ..SocketEnd::default() };
        let both = ConnectionSettings { client: Some(end.clone()), server: Some(end) };
        for trial in &mut report.trials {
            trial.transport_observed = Some("AF_INET stream tcp".into());
            trial.connection = trial.arm.starts_with("tcp").then(|| both.clone());
            trial.bytes_per_s = trial.throughput_per_s;
        }
        report.head.workload.metrics.push(metric::BANDWIDTH.info());
        for arm in &mut report.head.arms {
            arm.point.size_bytes = Some(512 << 10);
        }
        samehost_analysis::analyse(&report).apply(&mut report);
        report
    }

    #[test]
    fn what_is_said_of_bulk_with_another_tcp_is_not_comparable() {
        let (bbr, cubic) = (with("bbr"), with("cubic"));
        fn remark_on(report: &Report, metric: &str) -> Option<String> {
            let found = report.analysis.comparisons.iter().find(|found| found.metric == metric).unwrap();
            not_comparable(found, report)
        }
        assert!(remark_on(&bbr, OF_BULK).unwrap().contains("bbr"));
        assert_eq!((remark_on(&bbr, "throughput"), remark_on(&cubic, OF_BULK)), (None, None));
        let bulk = EXPERIMENTS.iter().find(|one| one.id == "G2").unwrap();
        let claim = bulk.claims.iter().find(|claim| claim.text.starts_with("512 KiB")).unwrap();
        let judged = |report: &Report| crate::reproduce::claims::judge(claim, &[report]);
        assert_eq!(judged(&bbr).judgement, Judgement::CannotTell);
        assert!(judged(&bbr).why.starts_with("not comparable"), "{:?}", judged(&bbr));
        assert_eq!(judged(&cubic).judgement, Judgement::Holds);
    }
}
