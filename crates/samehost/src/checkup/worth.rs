//! The checkup's summary of running programs: connections by transport, and the most useful actions with their commands,
//! by the results of scan and checkup. For a loopback that uses BBR it measures the remedy: a stream over TCP with BBR
//! and with CUBIC, in a private network whose routes set them. Changes no route of the machine.

use std::time::Duration;

use samehost_analysis::compare_arms;
use samehost_model::human::TOO_WIDE;
use samehost_model::scan::{Advice, Possible, Scan};
use samehost_model::{Arm, Comparison, Report, Transport, Verdict, metric};
use samehost_report::{part_in_percent, saving_in_short, undecided_in_words};

use super::parts::{BULK_TRIAL, Part};

/// Most recommendations; more would not be read.
pub const MOST: usize = 3;
/// Round trips per second from which on a pair is active.
const AT_WORK: f64 = 1.0;

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Worth {
    pub about: String,
    /// Performs the action, or investigates further.
    pub command: String,
}

/// Recommended actions, the largest saving first. `can_switch` tells whether the switch of a service has a plan, so that
/// no command is printed that ends with "nothing to do".
pub fn worth_doing(scan: &Scan, can_switch: &dyn Fn(&str) -> bool) -> Vec<Worth> {
    let mut all: Vec<&Advice> = scan.advice.iter().filter(|advice| rank(advice).is_some()).collect();
    all.sort_by(|a, b| {
        (rank(a), a.possible)
            .cmp(&(rank(b), b.possible))
            .then_with(|| saved(b).total_cmp(&saved(a)))
            .then_with(|| b.connections.cmp(&a.connections))
    });
    let mut found: Vec<Worth> = Vec::new();
    for advice in all {
        let one = in_words(scan, advice, can_switch);
        if found.len() < MOST && !found.contains(&one) {
            found.push(one);
        }
    }
    found
}

/// The most CPU time that a switch may save, in seconds a day.
fn saved(advice: &Advice) -> f64 {
    advice.saving.map_or(0.0, |saving| saving.cpu_s_per_day.high)
}

/// 0 for a proven saving, 1 for too little traffic or an undecided saving; `None` if not worth a line.
fn rank(advice: &Advice) -> Option<u8> {
    if matches!(advice.possible, Possible::Cannot | Possible::Unknown | Possible::Tool) {
        return None;
    }
    let is_quiet = advice.traffic.is_none_or(|traffic| traffic.all_round_trips_per_s() < AT_WORK);
    match advice.saving {
        Some(saving) if saving.worth_it => Some(0),
        Some(saving) if saving.undecided || is_quiet => Some(1),
        Some(_) => None,
        None => Some(1),
    }
}

fn in_words(scan: &Scan, advice: &Advice, can_switch: &dyn Fn(&str) -> bool) -> Worth {
    let service = scan.services.get(advice.service);
    let name = service.map_or("unknown", |service| service.name.as_str());
    let pair = format!("{} → {name} over {}", advice.client, advice.now);
    let after = match (advice.possible, advice.obstacles.first()) {
        (Possible::AfterSetting, Some(obstacle)) => format!(", after a setting ({})", obstacle.code),
        _ => String::new(),
    };
    match (advice.saving, service.and_then(|service| service.kind)) {
        (Some(saving), Some(kind)) if saving.worth_it => {
            let about = format!(
                "{pair} would save {} of CPU time a day and wait {} less over a Unix socket, at the traffic of this moment{after}.",
                saving_in_short(&saving),
                part_in_percent(saving.waiting_part),
            );
            if can_switch(&kind.to_string()) {
                return Worth { about, command: format!("samehost switch {kind} --dry-run") };
            }
            Worth {
                about: format!(
                    "{about} Which file of the client names the address is not known here: samehost switch with the directory of the application shows the change."
                ),
                command: "samehost scan --observe 10s".to_owned(),
            }
        }
        (Some(saving), None) if saving.worth_it => Worth {
            about: format!("{pair} would gain by a Unix socket; what the service is is not known here."),
            command: "samehost scan --observe 10s".to_owned(),
        },
        (Some(saving), _) if saving.undecided => Worth {
            about: format!("{pair} could use a Unix socket{after}; {}.", undecided_in_words(&saving),),
            command: "samehost scan --observe 60s".to_owned(),
        },
        _ => Worth {
            about: format!(
                "{pair} could use a Unix socket{after}; it had too little traffic to tell what that saves."
            ),
            command: "samehost scan --observe 60s".to_owned(),
        },
    }
}

/// A note at the end is not worth a tenth of the checkup: in 4 s its interval was 1.01–1.29; in 1.5 s, two of five runs
/// showed the gain that all five had.
pub const CURE_TIME: Duration = Duration::from_millis(1800);
const USUAL: &str = "cubic";
/// Size of a write: large enough to show the difference, and realistic for databases and web servers.
const SIZE: u64 = 512 * 1024;

/// Measurement of the remedy's gain; `None` if nothing is wrong.
pub fn cure_part(scan: &Scan) -> Option<Part> {
    let now = scan.slow_congestion.first()?;
    Some(Part {
        parameters: vec![("pattern", "bulk".to_owned())],
        size: Some(SIZE),
        transports: vec![Transport::Tcp],
        congestion: vec![now.congestion.clone(), USUAL.to_owned()],
        trial: BULK_TRIAL,
        ..Part::new("raw")
    })
}

#[derive(Debug, PartialEq, Eq)]
pub enum Cure {
    /// Remedy for each address; the first one includes the measured gain.
    Worth(Vec<Worth>),
    /// It was measured, and no gain was shown.
    Not(String),
}

/// The remedy in words; none if nothing is wrong.
pub fn cure(scan: &Scan, measured: Option<&Report>) -> Option<Cure> {
    let margin = measured.map_or(0.0, |report| report.head.plan.margin);
    cure_in_words(scan, measured.and_then(compared).as_ref(), margin)
}

/// CUBIC's bandwidth ÷ that of the present congestion control.
fn compared(report: &Report) -> Option<Comparison> {
    let metric = report.head.workload.metrics.iter().find(|metric| metric.is(&metric::BANDWIDTH))?;
    let over_tcp: Vec<&Arm> = report.head.arms.iter().filter(|arm| arm.name == "tcp").collect();
    let has_usual = |arm: &Arm| arm.point.parameters.get("congestion").is_some_and(|name| name == USUAL);
    let now = over_tcp.first()?;
    let usual = over_tcp.iter().find(|arm| has_usual(arm))?;
    compare_arms(report, metric, now, usual)
}

fn cure_in_words(scan: &Scan, measured: Option<&Comparison>, margin: f64) -> Option<Cure> {
    let now = scan.slow_congestion.first()?;
    let name = now.congestion.to_uppercase();
    if measured.is_some_and(Comparison::is_too_wide) {
        return Some(Cure::Not(format!(
            "Connections to {} use {name}; what CUBIC would bring for large transfers is {TOO_WIDE}.",
            now.address
        )));
    }
    // A command is advised for a gain that matters at the least, not for one that may be.
    if let Some(found) = measured
        && found.ci_low.is_none_or(|low| low <= 1.0 + margin)
    {
        let costs = match found.verdict {
            Verdict::Equivalent | Verdict::Slower => "that costs nothing here",
            Verdict::Faster | Verdict::Inconclusive => "no cost that matters was shown here",
        };
        return Some(Cure::Not(format!(
            "Connections to {} use {name}; {costs}: with CUBIC, {}.",
            now.address,
            gain(found, 2)
        )));
    }
    let gain = match measured {
        Some(found) => gain(found, 1),
        None => "what that would bring was not measured".into(),
    };
    let first = format!(
        "Connections to {} use {name}. With CUBIC, {gain}; small requests stay the same. As root, for new connections only, until the next start (samehost explain bbr says how to make it last and how to take it back):",
        now.address
    );
    let mut worth = vec![Worth { about: first, command: now.cure.join(" && ") }];
    for other in &scan.slow_congestion[1..] {
        let about = format!("The same for connections to {}:", other.address);
        worth.push(Worth { about, command: other.cure.join(" && ") });
    }
    Some(Cure::Worth(worth))
}

/// The gain in words: `512 KiB writes moved 3.1 times (2.8–3.3) the bytes per second over TCP in a private network here`.
fn gain(found: &Comparison, digits: usize) -> String {
    let interval = match (found.ci_low, found.ci_high) {
        (Some(low), Some(high)) => format!(" ({low:.digits$}–{high:.digits$})"),
        _ => String::new(),
    };
    format!(
        "512 KiB writes moved {:.digits$} times{interval} the bytes per second over TCP in a private network here",
        found.ratio
    )
}

#[cfg(test)]
mod tests {
    use samehost_model::ObstacleCode;
    use samehost_model::scan::{Obstacle, Range, Saving, Service, SlowCongestion, Traffic, Weight};
    use samehost_services::Kind;

    use super::*;

    fn advice(service: usize, saved: Option<f64>, round_trips_per_s: f64) -> Advice {
        fn range(high: f64) -> Range {
            Range { low: high / 2.0, high }
        }
        Advice {
            service,
            client: format!("client{service}"),
            client_pids: vec![],
            now: "tcp:127.0.0.1:1".to_owned(),
            members: vec![],
            connections: 1,
            unseen: 0,
            socket: None,
            possible: Possible::Now,
            obstacles: vec![],
            traffic: Some(Traffic { round_trips_per_s, busy_connections: 1, ..Traffic::default() }),
            saving: saved.map(|seconds| Saving {
                cpu_us_per_request: range(1.0),
                cpu_s_per_day: range(seconds),
                us_per_round_trip: range(1.0),
                cpu_us_per_short_connection: None,
                us_per_short_connection: None,
                waiting_part: range(0.01),
                undecided: false,
                worth_it: seconds > 0.0,
                uncounted: false,
            }),
        }
    }

    fn worth_doing(scan: &Scan) -> Vec<Worth> {
        super::worth_doing(scan, &|_| true)
    }

    #[test]
    fn a_switch_without_a_plan_is_not_proposed_and_an_undecided_saving_has_its_range() {
        let one = scan(vec![advice(1, Some(900.0), 50.0)]);
        let found = super::worth_doing(&one, &|_| false);
        assert_eq!(found[0].command, "samehost scan --observe 10s");
        assert!(
            found[0].about.contains("would save") && found[0].about.contains("is not known here"),
            "{found:?}"
        );
        let mut undecided = scan(vec![advice(1, Some(900.0), 50.0)]);
        if let Some(saving) = &mut undecided.advice[0].saving {
            (saving.worth_it, saving.undecided) = (false, true);
            saving.cpu_s_per_day = Range { low: -3_784.0, high: 3_102.0 };
        }
        let sentence = &worth_doing(&undecided)[0].about;
        assert!(sentence.contains("between -63.1 and +51.7 min of CPU time a day"), "{sentence}");
    }

    fn scan(advice: Vec<Advice>) -> Scan {
        fn service(kind: Option<Kind>, name: &str) -> Service {
            Service {
                kind,
                recognised_by: None,
                name: name.to_owned(),
                pid: None,
                processes: 1,
                network_namespace: 1,
                listeners: vec![],
                connections: 1,
            }
        }
        let services = vec![
            service(Some(Kind::Redis), "Redis"),
            service(Some(Kind::Mariadb), "MariaDB"),
            service(None, "x"),
        ];
        Scan { services, advice, ..Scan::default() }
    }

    #[test]
    fn the_largest_savings_come_first_and_three_are_enough() {
        let few = scan(vec![
            advice(0, Some(100.0), 50.0),
            advice(1, Some(900.0), 50.0),
            advice(2, Some(800.0), 50.0),
        ]);
        let found = worth_doing(&few);
        let commands: Vec<&str> = found.iter().map(|one| one.command.as_str()).collect();
        assert_eq!(
            commands,
            [
                "samehost switch mariadb --dry-run",
                "samehost scan --observe 10s",
                "samehost switch redis --dry-run"
            ]
        );
        assert!(found[0].about.contains("client1 → MariaDB"), "{found:?}");
        let many =
            (0..9).map(|at| Advice { client: at.to_string(), ..advice(0, Some(100.0), 50.0) }).collect();
        assert_eq!(worth_doing(&scan(many)).len(), MOST);
    }

    #[test]
    fn what_is_busy_and_saves_nothing_is_left_out_and_what_is_quiet_is_to_be_watched() {
        assert!(worth_doing(&scan(vec![advice(0, Some(0.0), 50.0)])).is_empty());
        let quiet = worth_doing(&scan(vec![advice(0, Some(0.0), 0.0)]));
        assert_eq!(quiet[0].command, "samehost scan --observe 60s");
        let blocked = Advice { possible: Possible::Cannot, ..advice(0, Some(100.0), 50.0) };
        assert!(worth_doing(&scan(vec![blocked])).is_empty());
        let obstacle = Obstacle {
            code: ObstacleCode::Permissions,
            weight: Weight::Setting,
            found: "".into(),
            remedy: String::new(),
        };
        let later = Advice {
            possible: Possible::AfterSetting,
            obstacles: vec![obstacle],
            ..advice(0, Some(100.0), 50.0)
        };
        assert!(worth_doing(&scan(vec![later]))[0].about.contains("after a setting (permissions)"));
    }

    fn cure_of(verdict: Verdict, ratio: f64, low: f64, high: f64) -> Cure {
        fn slow(address: &str) -> SlowCongestion {
            SlowCongestion {
                address: address.into(),
                congestion: "bbr".into(),
                cure: vec!["ip route replace".into(), "ip route flush cache".into()],
                from: String::new(),
                undo: Vec::new(),
                note: String::new(),
            }
        }
        let scan = Scan { slow_congestion: vec![slow("127.0.0.1"), slow("::1")], ..Scan::default() };
        let found =
            Comparison { verdict, ratio, ci_low: Some(low), ci_high: Some(high), ..Comparison::default() };
        assert!(
            matches!(cure_in_words(&scan, None, 0.0), Some(Cure::Worth(_))),
            "as advice without a figure"
        );
        cure_in_words(&scan, Some(&found), 0.02).expect("something is wrong")
    }

    #[test]
    fn a_gain_is_advised_with_its_commands() {
        for verdict in [Verdict::Faster, Verdict::Inconclusive] {
            let Cure::Worth(lines) = cure_of(verdict, 1.9, 1.1, 3.3) else { panic!("{verdict}") };
            assert_eq!(lines.len(), 2);
            assert!(
                lines[0].about.contains("use BBR. With CUBIC, 512 KiB writes moved 1.9 times (1.1–3.3) the")
            );
            assert!(
                lines[1].about.contains("::1")
                    && lines[1].command == "ip route replace && ip route flush cache"
            );
        }
    }

    #[test]
    fn no_command_is_advised_for_a_gain_that_was_not_shown() {
        let nothing =
            "use BBR; that costs nothing here: with CUBIC, 512 KiB writes moved 1.00 times (0.99–1.01) the";
        let unmeasured = "what CUBIC would bring for large transfers is not measured";
        let open = "use BBR; no cost that matters was shown here: with CUBIC, 512 KiB writes moved 1.00 times (0.60–1.70) the";
        let small = "was shown here: with CUBIC, 512 KiB writes moved 1.02 times (1.01–1.04) the";
        for (told, expected) in [
            (cure_of(Verdict::Equivalent, 1.0, 0.99, 1.01), nothing),
            (cure_of(Verdict::Inconclusive, 1.0, 0.6, 1.7), open),
            (cure_of(Verdict::Inconclusive, 1.37, 0.65, 2.89), unmeasured),
            (cure_of(Verdict::Inconclusive, 1.02, 1.01, 1.04), small),
        ] {
            assert!(matches!(&told, Cure::Not(note) if note.contains(expected)), "{told:?}");
        }
    }
}
