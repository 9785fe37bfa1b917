//! The checkup: its table in one convention, the words below it, at any width.

use samehost_model::{Host, Report};
use samehost_report::{Around, CheckupPage, Finding, FindingKind, Running, Terminal, checkup_as_html};
use unicode_width::UnicodeWidthStr;

use crate::scenes;

/// Rows of every grade that the scenes have.
pub(crate) fn findings<'a>(one: &'a Report, many: &'a Report) -> Vec<Finding<'a>> {
    let row = |label, report, metric, connections, kind| Finding {
        label,
        report,
        metric,
        connections,
        level: None,
        kind,
    };
    vec![
        row("one request and its reply", one, "latency_mean", None, FindingKind::RoundTrip),
        row("CPU per request, 64 at once", many, "total_cpu_per_op", Some(64), FindingKind::Busy),
        row("mysql: requests, 16 at once", many, "throughput", Some(16), FindingKind::Server),
        row("mysql: requests, 256 at once", many, "throughput", Some(256), FindingKind::Server),
        row("mysql: p99, 1024 at once", many, "latency_p99", Some(1024), FindingKind::Server),
        row("mysql: requests, 1024 at once", many, "throughput", Some(1024), FindingKind::Server),
        row("mysql: not there", many, "latency_p99", Some(2), FindingKind::Server),
    ]
}

pub(crate) const AROUND: Around<'static> = Around {
    is_known: true,
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

#[test]
fn the_page_answers_first_and_needs_no_script() {
    const EVIL: &str = "</li><script>alert(1)</script><img src=x>";
    let (one, many) = (scenes::single_point(), scenes::connections());
    let reports = [("one request and its reply", &one), (EVIL, &many)];
    let (findings, notes) = (findings(&one, &many), [EVIL.to_owned()]);
    let around = Around { worth: &[Running { about: EVIL, line: EVIL }], ..AROUND };
    let page = CheckupPage { findings: &findings, around, notes: &notes, reports: &reports };
    let mut out = Vec::new();
    checkup_as_html(&page, &mut out).unwrap();
    let answered = String::from_utf8(out).unwrap();
    std::fs::write(format!("{}/checkup.html", env!("CARGO_TARGET_TMPDIR")), &answered).unwrap();
    let place = |text: &str| answered.find(text).unwrap_or_else(|| panic!("no {text}"));
    let heading =
        "<h1>Unix socket or TCP on this machine: time of a request 31&nbsp;% less (31–&NoBreak;32&nbsp;%)";
    assert!(place(heading) < place("class=\"rows\""));
    assert!(place("class=\"rows\"") < place("What it means"));
    assert!(place("Most worth doing here") < place("<article"));
    assert!(!answered.contains("<script") && !answered.contains("<img"));
    assert_eq!(answered.matches("<circle").count(), 6, "a row that was not measured has no drawing");
    assert!(answered.len() < 100_000, "{} bytes", answered.len());
}
