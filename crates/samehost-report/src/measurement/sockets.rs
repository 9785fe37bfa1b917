//! Settings of the sockets in a measurement: congestion control and buffers, as read from its connections.

use samehost_model::printable::clean;
use samehost_model::{Arm, Report, Transport};

use crate::measurement::view::View;

/// Sysctl with the default congestion control of new connections.
const DEFAULT: &str = "net.ipv4.tcp_congestion_control";

/// TCP's congestion controls for the head: `TCP with bbr`. Marked as not known if they were not read.
pub(crate) fn congestion(view: &View<'_>) -> Option<String> {
    let report = view.report;
    let arms: Vec<&Arm> = report.head.arms.iter().filter(|arm| is_tcp(arm.transport)).collect();
    let commands = report.head.arms.iter().any(|arm| arm.transport == Transport::Command);
    let mut names: Vec<String> = Vec::new();
    for name in arms.iter().flat_map(|arm| read(report, &arm.id)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if !names.is_empty() {
        return Some(format!("TCP with {}", names.join(", ")));
    }
    // The head already names a requested congestion control, which is set by routes.
    let default = report.head.host.sysctls.get(DEFAULT)?;
    if report.head.workload.parameters.contains_key("congestion")
        || arms.iter().any(|arm| arm.point.parameters.contains_key("congestion"))
    {
        return None;
    }
    (commands || !arms.is_empty()).then(|| {
        format!("TCP with {} (system default; not checked on the client's own sockets)", clean(default))
    })
}

fn is_tcp(transport: Transport) -> bool {
    matches!(transport, Transport::Tcp | Transport::Tcp6 | Transport::TcpTls)
}

/// Congestion controls of an arm's connections; `cubic and bbr` if the ends differ.
fn read(report: &Report, arm: &str) -> Vec<String> {
    let evidence = report.analysis.evidence.iter().filter(|evidence| evidence.arm == arm);
    let mut names: Vec<String> = Vec::new();
    for connection in evidence.filter_map(|evidence| evidence.connection.as_ref()) {
        let both = connection.congestion().iter().map(|name| clean(name)).collect::<Vec<_>>().join(" and ");
        if !both.is_empty() && !names.contains(&both) {
            names.push(both);
        }
    }
    names
}

/// Congestion control of an arm as a cell; empty if there is none or it was not read.
pub(crate) fn of_arm(report: &Report, arm: &str) -> String {
    read(report, arm).join(";")
}

/// Socket settings of each arm, once for all points with the same settings.
pub(crate) fn settings(view: &View<'_>) -> Vec<String> {
    let mut found: Vec<(String, String)> = Vec::new();
    for evidence in &view.report.analysis.evidence {
        let Some(connection) = &evidence.connection else { continue };
        let both = (view.name(&evidence.arm), clean(&connection.to_string()));
        if !found.contains(&both) {
            found.push(both);
        }
    }
    let mut lines: Vec<(String, Vec<String>)> = Vec::new();
    for (name, text) in found {
        match lines.iter_mut().find(|(known, _)| *known == name) {
            Some((_, texts)) => texts.push(text),
            None => lines.push((name, vec![text])),
        }
    }
    lines
        .into_iter()
        .map(|(name, texts)| match texts.as_slice() {
            // TCP's initial buffers depend on the segment size, so further variants add no information.
            [first, second, .., _] => format!("{name}: {first}; or {second}; and others alike"),
            all => format!("{name}: {}", all.join("; or ")),
        })
        .collect()
}
