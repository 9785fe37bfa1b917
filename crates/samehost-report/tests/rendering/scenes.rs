//! The reports that the renderers are shown.

use std::collections::BTreeMap;

use samehost_model::{
    Better, Code, ConnectionSettings, MetricInfo, Outcome, Point, Report, SocketEnd, Transport, Warning,
};

use crate::scene::{Scene, Side, point, tcp, unix};

const LATENCY: &[&str] = &[
    "latency_p50", "latency_mean", "latency_p99", "throughput", "client_cpu_per_op", "server_cpu_per_op",
    "total_cpu_per_op",
];
const RATE: &[&str] = &["throughput", "latency_p50", "latency_p99", "total_cpu_per_op"];

type Make = fn() -> Report;

/// Every scene by name.
pub(crate) const SCENES: &[(&str, Make)] = &[
    ("single_point", single_point),
    ("three_arms", three_arms),
    ("connections", connections),
    ("sizes", sizes),
    ("open_loop", open_loop),
    ("ladder", ladder),
    ("errors", errors),
    ("client_bound", client_bound),
    ("single_arm", single_arm),
    ("command", command),
    ("burst", burst),
    ("interrupted", interrupted),
    ("hostile", hostile),
    ("equal", equal),
    ("grid", grid),
    ("mixed", mixed),
    ("tail", tail),
    ("factors", || factors(&[1, 64])),
];

pub(crate) fn single_point() -> Report {
    let mut scene = Scene::new("raw", "ping-pong", LATENCY);
    let at = point(1, Some(128));
    scene.arm(tcp(), at.clone(), "");
    scene.arm(unix(), at.clone(), "");
    scene.noop(at);
    scene.measure(12);
    scene.done()
}

pub(crate) fn three_arms() -> Report {
    let mut scene = Scene::new("raw", "ping-pong", &LATENCY[..4]);
    let at = point(1, Some(128));
    scene.arm(tcp(), at.clone(), "");
    scene.arm(unix(), at.clone(), "");
    let tls = Side {
        name: "tcp+tls",
        transport: Transport::TcpTls,
        latency_us: 24.0,
        cipher: Some("TLSv1.3 TLS_AES_256_GCM_SHA384"),
        ..tcp()
    };
    scene.arm(tls, at, "");
    scene.measure(12);
    scene.done()
}

pub(crate) fn connections() -> Report {
    let mut scene = Scene::new("mysql", "point select", RATE);
    scene.report.head.workload.server.kind = "mariadb".into();
    scene.report.head.workload.server.version = "10.11.6".into();
    for (i, connections) in [1, 4, 16, 64, 256, 1024].into_iter().enumerate() {
        let queue = 40.0 * f64::from(connections).powf(0.85);
        let gain = [0.88, 0.85, 0.80, 0.77, 0.97, 0.995][i];
        let at = point(connections, None);
        let busy = [0.4, 0.55, 0.6, 0.66, 0.7, 0.7][i];
        let base =
            Side { latency_us: queue, client_busy: busy, server_cpus: 1.3 * busy, noise: 0.012, ..tcp() };
        let candidate = Side {
            latency_us: queue * gain,
            client_busy: busy,
            server_cpus: 1.2 * busy,
            noise: 0.012,
            ..unix()
        };
        scene.arm(base, at.clone(), &format!("c{connections}"));
        scene.arm(candidate, at, &format!("c{connections}"));
    }
    scene.measure(12);
    scene.done()
}

pub(crate) fn sizes() -> Report {
    let mut scene = Scene::new("raw", "stream", &["bandwidth", "total_cpu_per_op"]);
    scene.requests = 2000;
    for (i, size) in [64, 1024, 16_384, 65_536, 262_144, 1_048_576, 33_554_432].into_iter().enumerate() {
        let time = 0.9 + size as f64 / 9500.0;
        let gain = [0.45, 0.5, 0.72, 0.9, 1.0, 1.0, 1.0][i];
        let at = point(1, Some(size));
        scene.arm(Side { latency_us: time, noise: 0.005, ..tcp() }, at.clone(), &format!("{size}B"));
        scene.arm(Side { latency_us: time * gain, noise: 0.005, ..unix() }, at, &format!("{size}B"));
    }
    scene.measure(12);
    scene.done()
}

pub(crate) fn open_loop() -> Report {
    let metrics =
        ["latency_mean", "latency_p50", "latency_p99", "latency_p99_9", "service_mean", "throughput"];
    let mut scene = Scene::new("mysql", "point select", &metrics);
    scene.report.head.workload.server.kind = "mariadb".into();
    scene.report.head.workload.server.version = "10.11.6".into();
    let at = Point { rate_per_s: Some(24_000.0), ..point(64, None) };
    scene.arm(Side { latency_us: 420.0, spread: 0.9, noise: 0.05, ..tcp() }, at.clone(), "");
    scene.arm(Side { latency_us: 96.0, spread: 0.6, noise: 0.05, ..unix() }, at, "");
    scene.measure(12);
    scene.done()
}

/// Eleven rates: tcp has a knee and is saturated at the end, one rate of unix is void.
pub(crate) fn ladder() -> Report {
    let metrics = ["latency_mean", "latency_p99", "client_cpu_per_op"];
    let mut scene = Scene::new("redis", "GET", &metrics);
    scene.requests = 3000;
    let capacity = 50_000.0;
    for tenth in 1..=11 {
        let part = f64::from(tenth) / 10.0;
        let at = Point { rate_per_s: Some(part * capacity), ..point(16, Some(128)) };
        let queue = |limit: f64| 1.0 / (1.0 - (part / limit).min(0.96));
        let tag = format!("{tenth}0%");
        scene.arm(Side { latency_us: 30.0 * queue(1.0), ..tcp() }, at.clone(), &tag);
        scene.arm(Side { latency_us: 24.0 * queue(1.9), ..unix() }, at, &tag);
    }
    scene.measure(4);
    for arm in &mut scene.report.head.arms {
        arm.capacity_per_s = Some(if arm.name == "tcp" { capacity } else { 1.7 * capacity });
    }
    for trial in &mut scene.report.trials {
        match trial.arm.as_str() {
            "tcp/110%" => trial.throughput_per_s = trial.throughput_per_s.map(|rate| 0.9 * rate),
            "unix/60%" => trial.invalid = Some("the generator was late".into()),
            _ => {}
        }
    }
    scene.done()
}

pub(crate) fn errors() -> Report {
    let mut scene = Scene::new("proxy", "nginx to Thin", RATE);
    let at = point(128, None);
    scene.arm(Side { latency_us: 7000.0, ..tcp() }, at.clone(), "");
    scene.arm(Side { latency_us: 700.0, failing: 0.77, ..unix() }, at, "");
    scene.measure(12);
    scene.done()
}

pub(crate) fn client_bound() -> Report {
    let mut scene = Scene::new("http", "GET of 4 KiB", RATE);
    let at = point(8, Some(4096));
    scene.arm(Side { latency_us: 300.0, client_busy: 0.99, ..tcp() }, at.clone(), "");
    scene.arm(Side { latency_us: 270.0, client_busy: 0.98, ..unix() }, at, "");
    scene.measure(12);
    for trial in scene.report.trials.iter_mut().take(2) {
        trial.polluted = vec!["steal 12.5 %".into()];
    }
    let mut aside = scene.report.trials[0].clone();
    aside.set_aside = true;
    scene.report.trials.insert(0, aside);
    scene.done()
}

pub(crate) fn single_arm() -> Report {
    let mut scene = Scene::new("redis", "GET", RATE);
    scene.report.head.plan.control = false;
    scene.arm(Side { latency_us: 310.0, ..unix() }, point(50, None), "");
    scene.measure(10);
    scene.done()
}

pub(crate) fn command() -> Report {
    let mut scene = Scene::new("command", "", &["wall_time", "cpu_time"]);
    scene.report.head.plan.trial_s = None;
    let at = point(1, None);
    for (name, seconds) in [("dump over tcp", 1.77), ("dump over unix", 1.74)] {
        scene.arm(
            Side { name, transport: Transport::Command, latency_us: seconds, noise: 0.02, ..tcp() },
            at.clone(),
            "",
        );
    }
    scene.measure(12);
    for trial in &mut scene.report.trials {
        let latency = trial.latency_us.take().unwrap();
        trial.seconds = latency.p50.unwrap();
        trial.cpu_s = Some(0.7 * trial.seconds);
        trial.operations = 1;
        trial.throughput_per_s = None;
        (trial.client_cpu_us_per_op, trial.server_cpu_us_per_op) = (None, None);
        (trial.client_utilization, trial.server_utilization, trial.context_switches_per_op) =
            (None, None, None);
        trial.transport_observed = None;
    }
    scene.done()
}

pub(crate) fn burst() -> Report {
    let mut scene = Scene::new("connect", "burst", &["throughput", "latency_p99"]);
    scene.report.head.workload.metrics.push(MetricInfo::own("refused_percent", "percent", Better::Lower));
    scene.report.head.workload.metrics.push(MetricInfo::own("time_waits_left", "count", Better::Lower));
    scene.report.head.workload.parameters =
        BTreeMap::from([("backlog".into(), "128".into()), ("clients".into(), "1024".into())]);
    let at = point(1024, None);
    let waits: &[(&str, f64)] =
        &[("time_waits_left", 11_800.0), ("refused_percent", 0.0), ("stalled_percent", 3.1)];
    let refused: &[(&str, f64)] =
        &[("time_waits_left", 0.0), ("refused_percent", 41.2), ("stalled_percent", 0.0)];
    scene.arm(Side { latency_us: 21_000.0, measurements: waits, ..tcp() }, at.clone(), "");
    scene.arm(Side { latency_us: 14_000.0, measurements: refused, ..unix() }, at, "");
    scene.measure(12);
    scene.done()
}

pub(crate) fn interrupted() -> Report {
    let mut scene = Scene::new("raw", "ping-pong", &LATENCY[..4]);
    scene.report.head.outcome = Outcome::Interrupted;
    let at = point(1, Some(128));
    scene.arm(tcp(), at.clone(), "");
    scene.arm(unix(), at, "");
    scene.measure(3);
    let message = "stopped by Ctrl-C after 3 of at least 10 blocks";
    scene.report.warnings.push(Warning::new(Code::Interrupted, "", message));
    scene.done()
}

pub(crate) fn hostile() -> Report {
    let mut scene = Scene::new("command", "\u{1b}]0;owned\u{7}title", &["wall_time", "cpu_time"]);
    let at = point(1, None);
    scene.report.head.plan.trial_s = None;
    let names = ["a|b `x` <script>\u{1b}[2J\r\n=cmd()", "日本語の長い名前でとても長い\u{202e}evil"];
    for (name, seconds) in names.into_iter().zip([1.0, 0.8]) {
        scene.arm(Side { name, transport: Transport::Command, latency_us: seconds, ..tcp() }, at.clone(), "");
    }
    scene.report.head.command.push("--arm=\u{1b}[31m`@root`".into());
    scene.measure(8);
    for trial in &mut scene.report.trials {
        trial.seconds = trial.latency_us.take().unwrap().p50.unwrap();
        trial.transport_observed = Some("\u{9b}31mred".into());
    }
    scene.report.warnings.push(Warning::new(Code::Note, "", format!("a\u{1b}[31m{}", "long".repeat(60))));
    scene.done()
}

/// Two arms that are the same.
pub(crate) fn equal() -> Report {
    let mut scene = Scene::new("raw", "ping-pong", &LATENCY[..3]);
    let at = point(1, Some(1_048_576));
    scene.arm(Side { latency_us: 250.0, noise: 0.004, ..tcp() }, at.clone(), "");
    scene.arm(Side { latency_us: 250.4, noise: 0.004, ..unix() }, at, "");
    scene.measure(14);
    for trial in &mut scene.report.trials {
        trial.connection = Some(sockets(trial.arm.starts_with("tcp")));
    }
    scene.done()
}

/// Connections × sizes with two candidates.
pub(crate) fn grid() -> Report {
    let mut scene = Scene::new("rpc", "echo", RATE);
    scene.requests = 2000;
    for connections in [1, 64] {
        for size in [128, 65_536] {
            let at = point(connections, Some(size));
            let tag = format!("c{connections}/{size}B");
            let time = (20.0 + size as f64 / 2000.0) * f64::from(connections).sqrt();
            scene.arm(Side { latency_us: time, ..tcp() }, at.clone(), &tag);
            scene.arm(Side { latency_us: 0.75 * time, ..unix() }, at.clone(), &tag);
            let other =
                Side { name: "abstract", transport: Transport::Abstract, latency_us: 0.74 * time, ..unix() };
            scene.arm(other, at, &tag);
        }
    }
    scene.measure(10);
    scene.done()
}

/// Faster in the middle, slower in the tail.
pub(crate) fn mixed() -> Report {
    let mut scene = Scene::new("redis", "GET", &["latency_p50", "latency_p99", "throughput"]);
    let at = point(1, None);
    scene.arm(Side { latency_us: 30.0, spread: 0.2, ..tcp() }, at.clone(), "");
    scene.arm(Side { latency_us: 24.0, spread: 0.6, ..unix() }, at, "");
    scene.measure(12);
    scene.done()
}

/// The same at two rates, with a burden only the candidate has.
pub(crate) fn tail() -> Report {
    let mut scene = Scene::new("redis", "GET", &["latency_p50", "latency_p99"]);
    scene.report.head.outcome = Outcome::OutOfBudget;
    for rate in [20_000.0, 40_000.0] {
        let at = Point { rate_per_s: Some(rate), ..point(8, None) };
        let tag = format!("r{rate}");
        scene.arm(Side { latency_us: 30.0, spread: 0.2, ..tcp() }, at.clone(), &tag);
        scene.arm(Side { latency_us: 24.0, spread: 0.6, ..unix() }, at, &tag);
    }
    scene.measure(12);
    scene.done()
}

/// Transport × number of backends, at each of these numbers of connections. A backend for each request helps TCP less.
pub(crate) fn factors(connections: &[u32]) -> Report {
    let mut scene = Scene::new("proxy", "GET", &["throughput", "latency_mean"]);
    for connections in connections {
        for (backends, gain) in [("1", 1.0), ("4", 0.6)] {
            let parameters = BTreeMap::from([("backends".to_owned(), backends.to_owned())]);
            let at = Point { parameters, ..point(*connections, None) };
            let tag = format!("b{backends}/c{connections}");
            scene.arm(Side { latency_us: 48.0 * gain, ..tcp() }, at.clone(), &tag);
            scene.arm(Side { latency_us: 42.0 * gain, ..unix() }, at, &tag);
        }
    }
    scene.measure(12);
    scene.done()
}

/// Whether a 99.9th percentile has a row: at 12,000 requests a trial, and not at 4,000.
pub(crate) fn far_tail(requests: usize, spreads: [f64; 2]) -> Report {
    let mut scene = Scene::new("redis", "GET", &["latency_p50", "latency_p99_9"]);
    scene.requests = requests;
    scene.report.head.plan.trial_s = Some(0.5);
    let at = point(1, None);
    scene.arm(Side { latency_us: 0.5e6 / requests as f64, spread: spreads[0], ..tcp() }, at.clone(), "");
    scene.arm(Side { latency_us: 0.5e6 / requests as f64, spread: spreads[1], ..unix() }, at, "");
    scene.measure(12);
    scene.done()
}

/// How both ends of a connection were set: TCP with CUBIC, or a Unix socket.
fn sockets(tcp: bool) -> ConnectionSettings {
    let end = |nodelay| SocketEnd {
        congestion: tcp.then(|| "cubic".into()),
        send_buffer_bytes: Some(if tcp { 2_626_560 } else { 212_992 }),
        receive_buffer_bytes: Some(if tcp { 131_072 } else { 212_992 }),
        nodelay,
    };
    ConnectionSettings { client: Some(end(tcp.then_some(true))), server: Some(end(None)) }
}
