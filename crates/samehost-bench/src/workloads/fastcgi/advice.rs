//! Advice on a burst: whether the backlog was too short, and how long it should be. Pure, except for reading
//! one kernel limit.

use samehost_model::{Code, Endpoint, Warning};

use crate::private_servers::FrontKind;

/// The kernel's limit of a backlog.
pub(super) fn somaxconn() -> Option<u32> {
    std::fs::read_to_string("/proc/sys/net/core/somaxconn").ok()?.trim().parse().ok()
}

/// Advice on a backlog that is shorter than the burst. While no child accepts, each connect but the first
/// needs a place in it; the kernel accepts one more than the backlog.
pub(super) fn advise(connections: u32, backlog: u32, somaxconn: Option<u32>) -> Option<Warning> {
    let effective = somaxconn.map_or(backlog, |most| backlog.min(most));
    if connections <= effective {
        return None;
    }
    let cap = match somaxconn {
        Some(most) if most < connections => format!(
            "; net.core.somaxconn is {most} and caps it: raise that first (`sysctl net.core.somaxconn={connections}`)"
        ),
        _ => String::new(),
    };
    Some(Warning::new(
        Code::Note,
        "",
        format!(
            "a backlog of {effective} is shorter than the burst: listen.backlog = {connections} holds all of it{cap}"
        ),
    ))
}

/// Why a server in front answered that there is none behind it at this endpoint, from its log.
pub(super) fn explain(front: FrontKind, asked: &Endpoint, log: &str) -> Option<Warning> {
    let place = match asked {
        Endpoint::Unix(path) => path.display().to_string(),
        Endpoint::Tcp { host, port } => format!("{host}:{port}"),
        _ => return None,
    };
    let log: Vec<&str> = log.lines().filter(|line| line.contains(&place)).collect();
    let reason = (front.descriptor().failed_connect)(&log.join("\n"))?;
    let title = front.title();
    Some(Warning::new(
        Code::Errors,
        "",
        format!("{title} answered 502 or 503, for its connect() failed ({reason})"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_backlog_is_told_with_the_one_that_is_enough() {
        let message = advise(128, 16, Some(4096)).unwrap().message;
        assert!(message.contains("listen.backlog = 128") && !message.contains("somaxconn"), "{message}");
        assert_eq!(advise(128, 128, Some(4096)), None);
        let capped = advise(500, 511, Some(128)).unwrap().message;
        assert!(capped.contains("a backlog of 128") && capped.contains("net.core.somaxconn=500"), "{capped}");
    }

    #[test]
    fn a_bad_gateway_is_explained_by_the_log_on_its_server() {
        let log = "2026/11/21 07:43:04 [error] 12#12: *57 connect() to unix:/run/x/unix-16.sock failed (11: Resource temporarily unavailable) while connecting to upstream, client: 127.0.0.1";
        let explained = |asked: &str| explain(FrontKind::Nginx, &asked.parse().unwrap(), log);
        let message = explained("unix:/run/x/unix-16.sock").unwrap().message;
        assert!(message.ends_with("failed (11: Resource temporarily unavailable)"), "{message}");
        assert_eq!(explained("tcp:127.0.0.1:9000"), None);
    }
}
