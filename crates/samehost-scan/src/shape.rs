//! The shape of a pair's traffic: what a measurement must be like to cost what the pair costs. How many requests are
//! under way at once, how large they are, how the service takes its connections, and what CPU time its work takes. Pure.

use samehost_model::scan::{Advice, Scan};
use samehost_services::Threading;

/// A message smaller or larger than these is measured as one of these.
const SIZES: std::ops::RangeInclusive<f64> = 16.0..=16_384.0;
/// More connections at once are measured as so many.
const MOST_CONNECTIONS: u32 = 64;
/// Fewer round trips a second show no shape.
const FEWEST: f64 = 50.0;
/// One request under way at a time keeps one CPU busy at most, be it at the client's or at the server's end.
const ONE_AT_A_TIME: f64 = 1.1;
/// CPU time of a client beyond this, in microseconds a request, is its own affair between two requests, such as making a
/// page: none is under way meanwhile.
const CLIENTS_PART_US: f64 = 20.0;

/// What a measurement must be like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Connections with a request under way.
    pub connections: u32,
    /// Bytes of a message in one direction.
    pub size_bytes: u64,
    /// How the service takes its connections: the value of `raw --server`.
    pub server: &'static str,
    /// CPU time of the service, microseconds a request.
    pub server_cpu_us_per_request: f64,
}

/// The shape of a pair that was observed; none where it was too quiet, or its CPU time could not be seen.
#[must_use]
pub fn shape(scan: &Scan, advice: &Advice) -> Option<Shape> {
    let traffic = advice.traffic?;
    let per_s = traffic.all_round_trips_per_s();
    if per_s < FEWEST {
        return None;
    }
    let server_cpu_us_per_request = traffic.server_cpu_us_per_request?;
    // Clients that came and went cannot be looked at.
    let client_us = traffic.client_cpu_us_per_request.unwrap_or(0.0).min(CLIENTS_PART_US);
    let cpus = per_s * (client_us + server_cpu_us_per_request) * 1e-6;
    let kind = scan.services.get(advice.service).and_then(|service| service.kind);
    let bytes_per_s = traffic.bytes_per_s + traffic.short.map_or(0.0, |short| short.bytes_per_s);
    let size = bytes_per_s / per_s / 2.0;
    let connections = traffic.busy_connections.max(advice.connections);
    Some(Shape {
        connections: if cpus < ONE_AT_A_TIME { 1 } else { connections.clamp(1, MOST_CONNECTIONS) },
        size_bytes: size.clamp(*SIZES.start(), *SIZES.end()).round() as u64,
        server: match kind.map(|kind| kind.descriptor().threading).unwrap_or_default() {
            Threading::Connection => "threads",
            Threading::Rounds => "rounds",
            Threading::Event => "epoll",
        },
        server_cpu_us_per_request,
    })
}

#[cfg(test)]
mod tests {
    use samehost_model::scan::{Possible, Traffic};

    use super::*;

    #[test]
    fn a_pair_that_keeps_less_than_a_cpu_busy_has_one_request_under_way() {
        let of = |round_trips_per_s: f64, server: Option<f64>| {
            let traffic = Traffic {
                bytes_per_s: round_trips_per_s * 400.0,
                round_trips_per_s,
                busy_connections: 8,
                client_cpu_us_per_request: Some(10.0),
                server_cpu_us_per_request: server,
                ..Traffic::default()
            };
            let advice = Advice {
                service: 0,
                client: String::new(),
                client_pids: vec![],
                now: String::new(),
                members: vec![],
                connections: 8,
                socket: None,
                possible: Possible::Now,
                obstacles: vec![],
                traffic: Some(traffic),
                saving: None,
            };
            shape(&Scan::default(), &advice)
        };
        let busy = of(50_000.0, Some(30.0)).unwrap();
        assert_eq!((busy.connections, busy.size_bytes, busy.server), (8, 200, "epoll"));
        assert_eq!(of(10_000.0, Some(30.0)).unwrap().connections, 1);
        assert!(of(10.0, Some(30.0)).is_none(), "too quiet");
        assert!(of(50_000.0, None).is_none(), "nothing known of the CPU time");
    }
}
