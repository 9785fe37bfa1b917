//! The checkup: its table in one convention, the words below it, at any width.

use samehost_model::{Host, Report};
use samehost_report::{Around, Finding, FindingKind, Running, Terminal};
use unicode_width::UnicodeWidthStr;

use crate::scenes;

/// Rows of every grade that the scenes have.
pub(crate) fn findings<'a>(one: &'a Report, many: &'a Report) -> Vec<Finding<'a>> {
    let row = |label, report, metric, connections, kind| Finding { label, report, metric, connections, kind };
    vec![
        row("one request and its reply", one, "latency_mean", None, FindingKind::RoundTrip),
        row("  without CPU pinning", one, "latency_mean", None, FindingKind::Scheduler),
        row("CPU per request, 64 at once", many, "total_cpu_per_op", Some(64), FindingKind::Busy),
        row("mysql: requests, 16 at once", many, "throughput", Some(16), FindingKind::Server),
        row("mysql: requests, 256 at once", many, "throughput", Some(256), FindingKind::Server),
        row("mysql: p99, 1024 at once", many, "latency_p99", Some(1024), FindingKind::Server),
        row("mysql: requests, 1024 at once", many, "throughput", Some(1024), FindingKind::Server),
        row("mysql: not there", many, "latency_p99", Some(2), FindingKind::Server),
    ]
}

pub(crate) const AROUND: Around<'static> = Around {
    here: "Here now: 1 program talks to a service over TCP (4 connections), 2 known services.",
    running: &[Running {
        about: "redis-server (process 7) listens on tcp:127.0.0.1:6379.",
        line: "samehost bench redis --tcp tcp:127.0.0.1:6379",
    }],
    worth: &[Running {
        about: "php → MariaDB would save 7.5 to 14 min of CPU time a day.",
        line: "samehost switch /srv/site --dry-run",
    }],
};

fn render(width: usize) -> String {
    let (one, many) = (scenes::single_point(), scenes::connections());
    let findings = findings(&one, &many);
    let terminal = Terminal { width, color: false };
    let mut out = Vec::new();
    let host = Host { cpu_model: "CPU".into(), kernel: "6.1".into(), cpus: 2, ..Host::default() };
    terminal.begin_checkup(&host, &mut out).unwrap();
    for finding in &findings {
        terminal.checkup_row(finding, &mut out).unwrap();
    }
    terminal.end_checkup(&findings, &AROUND, &["A note.".into()], &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn snapshots() {
    for width in [80, 140] {
        insta::assert_snapshot!(format!("checkup-{width}"), render(width));
    }
}

#[test]
fn a_row_has_no_sign_and_no_factor_and_fits() {
    let text = render(80);
    let rows = text.lines().skip_while(|line| !line.contains("TCP ")).take_while(|line| !line.is_empty());
    for row in rows.skip(1) {
        assert!(row.width() <= 80, "{row}");
        assert!(!row.contains("times") && !row.contains('×') && !row.contains('+'), "{row}");
    }
}
