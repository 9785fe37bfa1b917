//! Functions whose own CPU time per operation differs most between two profiled arms.
//!
//! A function's time is its share of its role's samples × the role's CPU time per operation, which is
//! measured by clocks. The error is that of independent counts (Poisson): √n samples. It does not include
//! drift and variation between runs.

use std::collections::BTreeSet;

use samehost_model::{Arm, Profile, ProfileDifference, Report, Role};

use crate::index::Index;

/// Maximum number of functions for each pair of arms, those whose difference is largest.
/// They are chosen out of hundreds because they differ most, and so really differ somewhat less. Two runs
/// may differ by more than the error of independent samples that stands beside each, and no other figure
/// uses profiled trials (docs/method.md §10a).
const MOST: usize = 10;
/// What a profile lumps together beyond its limit of size; no function.
const OTHER: &str = "[other]";

#[must_use]
pub fn profile_differences(report: &Report, index: &Index<'_>) -> Vec<ProfileDifference> {
    let mut all = Vec::new();
    for group in &index.groups {
        let Some(baseline) = profile_of(report, group.baseline) else { continue };
        for arm in &group.candidates {
            let Some(candidate) = profile_of(report, arm) else { continue };
            let mut differences = differences(&group.baseline.point, baseline, candidate);
            differences.sort_by(|a, b| b.difference_us_per_op.abs().total_cmp(&a.difference_us_per_op.abs()));
            differences.truncate(MOST);
            all.extend(differences);
        }
    }
    all
}

fn profile_of<'a>(report: &'a Report, arm: &Arm) -> Option<&'a Profile> {
    report.profiles.iter().find(|profile| profile.arm == arm.id)
}

fn differences(
    point: &samehost_model::Point,
    baseline: &Profile,
    candidate: &Profile,
) -> Vec<ProfileDifference> {
    let mut functions: BTreeSet<(Role, &str, bool)> = BTreeSet::new();
    for function in baseline.functions.iter().chain(&candidate.functions) {
        if function.function != OTHER {
            functions.insert((function.role, &function.function, function.kernel));
        }
    }
    let mut differences = Vec::new();
    for (role, function, kernel) in functions {
        let before = samples(baseline, role, function, kernel);
        let after = samples(candidate, role, function, kernel);
        let (before_us, after_us) = (us_per_sample(baseline, role), us_per_sample(candidate, role));
        differences.push(ProfileDifference {
            point: point.clone(),
            baseline: baseline.arm.clone(),
            candidate: candidate.arm.clone(),
            role,
            function: function.to_owned(),
            kernel,
            baseline_us_per_op: before * before_us,
            candidate_us_per_op: after * after_us,
            difference_us_per_op: after * after_us - before * before_us,
            error_us_per_op: (before * before_us.powi(2) + after * after_us.powi(2)).sqrt(),
        });
    }
    differences
}

fn samples(profile: &Profile, role: Role, function: &str, kernel: bool) -> f64 {
    let mut functions = profile.functions.iter();
    let found = functions.find(|f| f.role == role && f.function == function && f.kernel == kernel);
    found.map_or(0, |found| found.samples) as f64
}

/// Microseconds of CPU time per operation that one sample of a role stands for: the role's CPU time per operation, which
/// clocks measured, divided by its samples. 0 for a role that was not profiled or has no sample.
#[must_use]
pub fn us_per_sample(profile: &Profile, role: Role) -> f64 {
    match profile.roles.iter().find(|share| share.role == role) {
        Some(share) if share.samples > 0 => share.cpu_us_per_op / share.samples as f64,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use samehost_model::{FunctionSamples, RoleShare};

    use super::*;

    fn profile(arm: &str, cpu_us_per_op: f64, functions: &[(&str, u64)]) -> Profile {
        let samples = functions.iter().map(|(_, samples)| samples).sum();
        Profile {
            arm: arm.into(),
            event: "cpu-clock".into(),
            frequency_hz: 997,
            call_graph: "fp".into(),
            kernel_symbols: true,
            seconds: 2.0,
            operations: 1000,
            samples,
            roles: vec![RoleShare { role: Role::Server, samples, cpu_us_per_op }],
            functions: functions
                .iter()
                .map(|(function, samples)| FunctionSamples {
                    role: Role::Server,
                    function: (*function).into(),
                    kernel: true,
                    samples: *samples,
                })
                .collect(),
            stacks: Vec::new(),
        }
    }

    #[test]
    fn time_per_operation_is_the_part_of_the_samples_times_the_cpu_time() {
        let tcp = profile("tcp", 20.0, &[("tcp_sendmsg", 300), ("copy", 100)]);
        let unix = profile("unix", 10.0, &[("unix_stream_sendmsg", 300), ("copy", 200), (OTHER, 500)]);
        let all = differences(&samehost_model::Point::default(), &tcp, &unix);
        let difference = |name: &str| all.iter().find(|difference| difference.function == name).unwrap();
        assert_eq!(all.len(), 3, "what is lumped together is no function");
        assert_eq!(
            (difference("tcp_sendmsg").baseline_us_per_op, difference("tcp_sendmsg").candidate_us_per_op),
            (15.0, 0.0)
        );
        assert_eq!(difference("unix_stream_sendmsg").difference_us_per_op, 3.0);
        // 100 × 0.05 µs against 200 × 0.01 µs; √(100 × 0.05² + 200 × 0.01²) = √0.27.
        assert_eq!(difference("copy").difference_us_per_op, -3.0);
        assert!((difference("copy").error_us_per_op - 0.27_f64.sqrt()).abs() < 1e-12);
    }
}
