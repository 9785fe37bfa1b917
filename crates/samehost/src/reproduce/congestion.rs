//! Congestion control of the published experiments: CUBIC, the default of Linux since 2006. If this machine
//! uses another one, experiments are run with CUBIC. If that is impossible, claims about large transfers are
//! not comparable.

use samehost_bench::workload::Workload;
use samehost_bench::{BenchError, Request};
use samehost_model::{Comparison, Report, Transport, metric};
use samehost_system::routes::loopback_congestion;

/// The congestion control of the publications.
const THEN: &str = "cubic";
/// Metric that depends on the congestion control.
const OF_BULK: &str = metric::BANDWIDTH.name;

/// Requests CUBIC if this machine's default differs and the workload uses TCP.
pub fn as_then(workload: &dyn Workload, request: Request) -> Request {
    if loopback_congestion().is_none_or(|name| name == THEN) {
        return request;
    }
    if !uses_tcp(workload, &request) || !request.servers.is_empty() || !request.congestion.is_empty() {
        return request;
    }
    let command = request.command.iter().cloned().chain(["--congestion".into(), THEN.into()]).collect();
    Request { congestion: vec![THEN.into()], command, ..request }
}

/// Whether a workload measures TCP among others, with these parameters.
fn uses_tcp(workload: &dyn Workload, request: &Request) -> bool {
    let Ok(configured) = workload.configure(&request.parameters) else { return false };
    let transports = &configured.axes().transports;
    [Transport::Tcp, Transport::Tcp6, Transport::TcpTls].iter().any(|tcp| transports.contains(tcp))
}

/// The request with this machine's congestion control, if the error is that it cannot be chosen.
pub fn as_here(request: &Request, error: &BenchError) -> Option<Request> {
    let cannot = matches!(error, BenchError::Tuning(_) | BenchError::NotPermitted { .. });
    if !cannot || request.congestion.is_empty() {
        return None;
    }
    let mut again = request.clone();
    again.congestion.clear();
    // `as_then` added an option and its value.
    again.command.truncate(again.command.len().saturating_sub(2));
    Some(again)
}

/// Remark about the congestion control of an experiment, if one is needed.
pub fn remark(reports: &[&Report]) -> Option<String> {
    if let Some(other) = reports.iter().find_map(|report| other(report, None)) {
        return Some(format!(
            "TCP ran with {other}, the default here, and not with {THEN} as in the article: claims about large transfers are not comparable."
        ));
    }
    let is_as_then = |report: &&&Report| {
        report.head.workload.parameters.get("congestion").is_some_and(|name| name == THEN)
    };
    let report = reports.iter().find(is_as_then)?;
    let here = report.head.host.sysctls.get("net.ipv4.tcp_congestion_control")?;
    if here == THEN {
        return None;
    }
    Some(format!("TCP ran with {THEN}, as in the article; the default here is {here}."))
}

/// Why a claim about large transfers is not comparable: TCP used another congestion control.
pub fn not_comparable(found: &Comparison, report: &Report) -> Option<String> {
    if found.metric != OF_BULK {
        return None;
    }
    let other = other(report, Some(found))?;
    Some(format!("not comparable: TCP ran with {other}, the article's with {THEN}"))
}

/// A congestion control other than CUBIC, among all connections or those of a comparison's arms.
fn other(report: &Report, of: Option<&Comparison>) -> Option<String> {
    for evidence in &report.analysis.evidence {
        if of.is_some_and(|found| found.baseline != evidence.arm && found.candidate != evidence.arm) {
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
        assert!(remark(&[&bbr]).unwrap().contains("not comparable"));
        let bulk = EXPERIMENTS.iter().find(|one| one.id == "G2").unwrap();
        let claim = bulk.claims.iter().find(|claim| claim.text.starts_with("512 KiB")).unwrap();
        let judged = |report: &Report| crate::reproduce::claims::judge(claim, &[report]);
        assert_eq!(judged(&bbr).judgement, Judgement::CannotTell);
        assert!(judged(&bbr).why.starts_with("not comparable"), "{:?}", judged(&bbr));
        assert_eq!(judged(&cubic).judgement, Judgement::Holds);
    }

    #[test]
    fn what_was_chosen_is_said() {
        let mut cubic = with("cubic");
        assert_eq!(remark(&[&cubic]), None);
        cubic.head.workload.parameters.insert("congestion".into(), "cubic".into());
        cubic.head.host.sysctls.insert("net.ipv4.tcp_congestion_control".into(), "bbr".into());
        assert!(remark(&[&cubic]).unwrap().contains("the default here is bbr"));
    }

    #[test]
    fn what_cannot_be_chosen_is_measured_as_it_is_here() {
        let mut request = Request::new("samehost".into(), vec!["samehost".into()], std::sync::Arc::default());
        request.congestion = vec![THEN.into()];
        request.command.extend(["--congestion".into(), THEN.into()]);
        let denied = BenchError::NotPermitted { what: "it", reason: "no".into(), try_next: "root" };
        let again = as_here(&request, &denied).unwrap();
        assert!(again.congestion.is_empty() && again.command == ["samehost"], "{again:?}");
        assert!(as_here(&again, &denied).is_none() && as_here(&request, &BenchError::Interrupted).is_none());
    }
}
