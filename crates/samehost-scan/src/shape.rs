//! Shape of a pair's traffic, so that a measurement of the same shape costs the same: concurrent requests,
//! message size, the service's way of handling connections, and its CPU time. Pure.

use samehost_model::scan::{Advice, Scan};
use samehost_services::{Kind, Threading};

/// Message sizes are clamped to this range, in bytes.
const SIZES: std::ops::RangeInclusive<f64> = 16.0..=16_384.0;
/// Connections are clamped to this.
const MOST_CONNECTIONS: u32 = 64;
/// Minimum round trips a second from which a shape can be inferred.
const FEWEST: f64 = 50.0;
/// With one request in flight at a time, client and server together use at most one CPU; 10 % tolerance.
const ONE_AT_A_TIME: f64 = 1.1;
/// Client CPU in microseconds per request. Anything above this is application work between requests, such as
/// rendering a page; it does not keep a request in flight.
const CLIENTS_PART_US: f64 = 20.0;

/// Parameters for a measurement that imitates a pair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Connections with a request in flight.
    pub connections: u32,
    /// Bytes of a message in one direction.
    pub size_bytes: u64,
    /// How the service handles connections: the value of `raw --server`.
    pub server: &'static str,
    /// CPU time of the service, microseconds a request.
    pub server_cpu_us_per_request: f64,
    /// What the service is, where that is known.
    pub kind: Option<Kind>,
}

/// Shape of an observed pair; `None` when it had too little traffic or its CPU time is not visible.
#[must_use]
pub fn shape(scan: &Scan, advice: &Advice) -> Option<Shape> {
    let traffic = advice.traffic?;
    let per_s = traffic.all_round_trips_per_s();
    if per_s < FEWEST {
        return None;
    }
    let server_cpu_us_per_request = traffic.server_cpu_us_per_request?;
    // The CPU time of short-lived clients cannot be read.
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
        kind,
    })
}

#[cfg(test)]
mod tests {
    use samehost_model::scan::{Possible, Traffic};

    use super::*;

    #[test]
    fn a_pair_that_keeps_less_than_a_cpu_busy_has_one_request_under_way() {
        let shape_of = |round_trips_per_s: f64, server: Option<f64>| {
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
                unseen: 0,
                socket: None,
                possible: Possible::Now,
                obstacles: vec![],
                traffic: Some(traffic),
                saving: None,
            };
            shape(&Scan::default(), &advice)
        };
        let busy = shape_of(50_000.0, Some(30.0)).unwrap();
        assert_eq!((busy.connections, busy.size_bytes, busy.server), (8, 200, "epoll"));
        assert_eq!(shape_of(10_000.0, Some(30.0)).unwrap().connections, 1);
        assert!(shape_of(10.0, Some(30.0)).is_none(), "too quiet");
        assert!(shape_of(50_000.0, None).is_none(), "nothing known of the CPU time");
    }
}
