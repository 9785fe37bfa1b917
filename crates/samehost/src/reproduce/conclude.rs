//! Result of an experiment: its claims, judged by its reports, with remarks.

use samehost_model::{
    Arm, ClaimOutcome, Experiment, ExperimentState, Judgement, Measurement, Report, Transport,
};
use samehost_services::Kind;
use samehost_system::clock;

use super::published::{Planned, Published};
use super::race::rows;
use super::{claims, congestion};

/// The experiment before it was measured.
pub fn blank(published: &Published) -> Experiment {
    Experiment {
        id: published.id.into(),
        title: published.title.into(),
        source: published.source.into(),
        setup: published.setup.into(),
        state: ExperimentState::Failed,
        reason: None,
        package: None,
        measured_at: None,
        kept: false,
        differs: published.differs.iter().map(|&text| text.to_owned()).collect(),
        explanations: Vec::new(),
        claims: published.claims.iter().map(claims::not_measured).collect(),
        measurements: Vec::new(),
    }
}

/// Judges the claims by the measurements.
pub fn conclude(experiment: &mut Experiment, published: &Published, mut reports: Vec<(&Planned, Report)>) {
    experiment.state = ExperimentState::Measured;
    experiment.measured_at = Some(clock::utc_now());
    // The comparisons behind the claims form one family.
    let rows: Vec<(usize, usize)> = reports
        .iter()
        .enumerate()
        .flat_map(|(place, (_, report))| {
            rows(published.claims, report).into_iter().map(move |row| (place, row))
        })
        .collect();
    let mut judged: Vec<&mut Report> = reports.iter_mut().map(|(_, report)| report).collect();
    samehost_analysis::judge_rows(&mut judged, &rows, 0);
    let all: Vec<&Report> = reports.iter().map(|(_, report)| report).collect();
    experiment.claims = published.claims.iter().map(|claim| claims::judge(claim, &all)).collect();
    experiment.differs.extend(all.first().and_then(|report| other_server(published, report)));
    experiment.differs.extend(congestion::remark(&all));
    experiment.differs.extend(all.iter().flat_map(|report| scaled(report)));
    // A claim that holds as published needs no explanation.
    let as_published =
        |claim: &ClaimOutcome| claim.judgement == Judgement::Holds && !claim.is_of_other_size();
    if !experiment.claims.iter().all(as_published) {
        experiment.explanations.extend(published.explanations.iter().map(|&text| text.to_owned()));
        experiment.explanations.extend(all.first().and_then(|report| cores(published, report)));
    }
    let measurement =
        |(planned, report): (&Planned, Report)| Measurement { label: planned.label.into(), report };
    experiment.measurements = reports.into_iter().map(measurement).collect();
}

/// The absolute rates that percentages correspond to on this machine.
fn scaled(report: &Report) -> Vec<String> {
    let mut scaled = Vec::new();
    for arm in report.head.arms.iter().filter(|arm| arm.transport == Transport::Tcp) {
        let Some((per_s, capacity)) = rate(arm) else { continue };
        scaled.push(format!(
            "The rate is scaled: {} here, {:.0} % of the {} that TCP does on this machine.",
            text(per_s),
            100.0 * per_s / capacity,
            text(capacity)
        ));
    }
    scaled
}

fn text(per_s: f64) -> String {
    samehost_model::human::format_value(per_s, "per_s")
}

fn rate(arm: &Arm) -> Option<(f64, f64)> {
    Some((arm.point.rate_per_s?, arm.capacity_per_s?))
}

/// Remark on the server that stood for the publication's.
fn other_server(published: &Published, report: &Report) -> Option<String> {
    let then = published.server?;
    let here = &report.head.workload.server;
    let name = here.kind.split([',', ' ']).next().unwrap_or_default();
    let label = Kind::named(name).map_or(name, |kind| kind.label());
    let version = here.version.split('-').next().unwrap_or_default();
    Some(format!("{label} {version} in place of {then}."))
}

/// Remark that this machine has fewer cores.
fn cores(published: &Published, report: &Report) -> Option<String> {
    let (then, here) = (published.cores?, report.head.host.cpus_allowed);
    (here < then).then(|| {
        format!("It had {then} cores or more; here client and server share {here}, and take CPU time from each other.")
    })
}
