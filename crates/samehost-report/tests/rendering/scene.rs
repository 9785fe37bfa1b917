//! A small deterministic simulation of a measurement: arms with a latency, blocks with luck, trials with noise.
//! The report is analysed as a real one is, so that its numbers hang together.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use rand::SeedableRng;
use rand_distr::{Distribution, LogNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use samehost_analysis::{analyse, summarise};
use samehost_model::{
    Arm, Head, Host, Latency, Metric, Point, Report, ServerInfo, Transport, Trial, WorkloadInfo,
};

/// What an arm would show on a quiet machine.
#[derive(Clone)]
pub(crate) struct Side {
    pub(crate) name: &'static str,
    pub(crate) transport: Transport,
    /// Median round trip, in µs.
    pub(crate) latency_us: f64,
    /// σ of the requests' lognormal distribution.
    pub(crate) spread: f64,
    /// Relative noise of a trial.
    pub(crate) noise: f64,
    pub(crate) client_cpu: f64,
    pub(crate) server_cpu: f64,
    pub(crate) client_busy: f64,
    pub(crate) server_cpus: f64,
    pub(crate) observed: &'static str,
    pub(crate) cipher: Option<&'static str>,
    /// Part of operations that fail.
    pub(crate) failing: f64,
    pub(crate) measurements: &'static [(&'static str, f64)],
}

pub(crate) fn tcp() -> Side {
    Side {
        name: "tcp",
        transport: Transport::Tcp,
        latency_us: 17.9,
        spread: 0.25,
        noise: 0.008,
        client_cpu: 8.1,
        server_cpu: 7.3,
        client_busy: 0.46,
        server_cpus: 0.41,
        observed: "AF_INET stream to 127.0.0.1:40112",
        cipher: None,
        failing: 0.0,
        measurements: &[],
    }
}

pub(crate) fn unix() -> Side {
    Side {
        name: "unix",
        transport: Transport::Unix,
        latency_us: 12.3,
        client_cpu: 5.6,
        server_cpu: 4.9,
        observed: "AF_UNIX stream, peer pid 4711",
        ..tcp()
    }
}

/// A measurement being made up.
pub(crate) struct Scene {
    pub(crate) report: Report,
    rng: Xoshiro256PlusPlus,
    sides: BTreeMap<String, Side>,
    pub(crate) requests: usize,
}

impl Scene {
    pub(crate) fn new(name: &str, title: &str, metrics: &[&str]) -> Self {
        let report = Report::new(Head {
            samehost_version: "0.1.0".into(),
            started_at: "2026-07-14T10:12:33Z".into(),
            command: vec!["samehost".into(), "bench".into(), name.into()],
            seed: 42,
            host: host(),
            workload: WorkloadInfo {
                name: name.into(),
                title: title.into(),
                server: ServerInfo {
                    kind: "samehost echo".into(),
                    version: "0.1.0".into(),
                    managed: true,
                    pids: vec![4711],
                },
                metrics: metrics.iter().map(|name| Metric::named(name).unwrap().info()).collect(),
                ..WorkloadInfo::default()
            },
            ..Head::default()
        });
        let rng = Xoshiro256PlusPlus::seed_from_u64(7);
        Scene { report, rng, sides: BTreeMap::new(), requests: 12_000 }
    }

    /// Adds an arm at a point, under its name and what is special about the point.
    pub(crate) fn arm(&mut self, side: Side, point: Point, tag: &str) {
        let id = if tag.is_empty() { side.name.to_owned() } else { format!("{}/{tag}", side.name) };
        self.report.head.arms.push(Arm {
            id: id.clone(),
            name: side.name.into(),
            transport: side.transport,
            endpoint: None,
            tls: side.transport.is_tls(),
            capacity_per_s: None,
            point,
        });
        self.sides.insert(id, side);
    }

    /// The harness's own arm.
    pub(crate) fn noop(&mut self, point: Point) {
        let side = Side {
            name: "noop",
            transport: Transport::None,
            latency_us: 0.05,
            client_cpu: 0.05,
            server_cpu: 0.0,
            client_busy: 1.0,
            server_cpus: 0.0,
            observed: "",
            ..tcp()
        };
        self.arm(side, point, "");
    }

    fn wobble(&mut self, sigma: f64) -> f64 {
        LogNormal::new(0.0, sigma).unwrap().sample(&mut self.rng)
    }

    /// Measures blocks: each arm once, the baseline of each point twice.
    pub(crate) fn measure(&mut self, blocks: u32) {
        for block in 0..blocks {
            let luck = self.wobble(0.06);
            let arms = self.report.head.arms.clone();
            let mut points: Vec<Point> = Vec::new();
            let mut position = 0;
            for arm in &arms {
                let first = !points.contains(&arm.point) && arm.transport != Transport::None;
                let runs: &[bool] =
                    if first && self.report.head.plan.control { &[false, true] } else { &[false] };
                for control in runs {
                    let mut trial = self.trial(arm, luck);
                    (trial.block, trial.position, trial.control) = (block, position, *control);
                    self.report.trials.push(trial);
                    position += 1;
                }
                points.push(arm.point.clone());
            }
        }
    }

    fn trial(&mut self, arm: &Arm, luck: f64) -> Trial {
        let side = self.sides[&arm.id].clone();
        let factor = luck * self.wobble(side.noise);
        let seconds = self.report.head.plan.trial_s.unwrap_or(1.0);
        let median = side.latency_us * factor;
        let latency = self.latency(median, side.spread);
        let mean = latency.mean.unwrap();
        let closed = f64::from(arm.point.connections) * 1e6 / mean;
        let throughput = arm.point.rate_per_s.map_or(closed, |rate| rate.min(closed));
        let operations = (throughput * seconds) as u64;
        let failed = (operations as f64 * side.failing) as u64;
        let open = arm.point.rate_per_s.is_some();
        let lateness = open.then(|| self.latency(0.4 * factor, 0.8));
        let service = open.then(|| self.latency(0.8 * median, side.spread));
        Trial {
            arm: arm.id.clone(),
            seconds,
            operations: operations - failed,
            errors: if failed > 0 {
                BTreeMap::from([("status 502".into(), failed)])
            } else {
                BTreeMap::new()
            },
            throughput_per_s: Some(throughput * (1.0 - side.failing)),
            bytes_per_s: arm.point.size_bytes.map(|size| size as f64 * throughput),
            latency_us: Some(latency),
            service_us: service,
            lateness_us: lateness,
            client_cpu_us_per_op: Some(side.client_cpu * factor),
            server_cpu_us_per_op: (side.server_cpu > 0.0).then_some(side.server_cpu * factor),
            client_utilization: Some(side.client_busy),
            server_utilization: (side.server_cpus > 0.0).then_some(side.server_cpus),
            context_switches_per_op: Some(2.0),
            transport_observed: (!side.observed.is_empty()).then(|| side.observed.into()),
            cipher: side.cipher.map(Into::into),
            measurements: side
                .measurements
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value * factor))
                .collect(),
            ..Trial::default()
        }
    }

    fn latency(&mut self, median: f64, spread: f64) -> Latency {
        let mut histogram: Histogram<u64> = Histogram::new(3).unwrap();
        let requests = LogNormal::new((1000.0 * median).ln(), spread).unwrap();
        for _ in 0..self.requests {
            histogram.record((requests.sample(&mut self.rng) as u64).max(1)).unwrap();
        }
        summarise(&histogram)
    }

    /// The analysed report.
    pub(crate) fn done(mut self) -> Report {
        analyse(&self.report).apply(&mut self.report);
        self.report
    }
}

fn host() -> Host {
    Host {
        kernel: "6.18.5".into(),
        cpu_model: "AMD EPYC 7B13 64-Core Processor".into(),
        cpus: 2,
        cpus_allowed: 2,
        memory_mib: 24_000,
        virtualization: "kvm".into(),
        governor: "unknown".into(),
        clock_source: "tsc".into(),
        distribution: "Debian GNU/Linux 12".into(),
        ..Host::default()
    }
}

/// One point of a closed loop.
pub(crate) fn point(connections: u32, size_bytes: Option<u64>) -> Point {
    Point { connections, size_bytes, ..Point::default() }
}
