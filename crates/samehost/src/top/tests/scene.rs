//! Sample scans: PHP connected to Redis and MariaDB over TCP, and a log over a Unix socket.

use samehost_model::ObstacleCode;
use samehost_model::scan::{
    Address, Advice, Connection, ExchangeMode, ExchangeParts, ExchangeTimes, Exchanges, Obstacle,
    PairExchanges, Possible, Process, Scan, Service, Socket, SocketKind, SocketState, Traffic, Unmeasured,
    Weight,
};
use samehost_scan::{Costs, Measured};
use samehost_services::Kind;

/// Costs of a request: about twice as high over TCP.
pub fn costs() -> Costs {
    let cpu = Measured { tcp: 10.0, ratio_low: 0.5, ratio_high: 0.6 };
    Costs::of(&[cpu], &[cpu]).unwrap()
}

/// A machine without connections.
pub fn nothing() -> Scan {
    Scan { as_root: true, ..Scan::default() }
}

fn service(name: &str, kind: Kind, pid: u32) -> Service {
    Service {
        kind: Some(kind),
        recognised_by: None,
        name: name.to_owned(),
        pid: Some(pid),
        processes: 1,
        network_namespace: 1,
        listeners: Vec::new(),
        connections: 1,
    }
}

fn advice(service: usize, now: &str, connections: u32, bytes_per_s: f64) -> Advice {
    Advice {
        service,
        client: "php-fpm8.2".to_owned(),
        client_pids: vec![100],
        now: now.to_owned(),
        members: Vec::new(),
        connections,
        unseen: 0,
        socket: Some("unix:/run/redis/redis-server.sock".to_owned()),
        possible: Possible::AfterSetting,
        obstacles: vec![Obstacle {
            code: ObstacleCode::Permissions,
            weight: Weight::Setting,
            found: "user www-data may not write to the socket /run/redis/redis-server.sock (mode 0770, redis:redis)".into(),
            remedy: "Add the user to the group and restart the client: usermod -aG redis www-data".to_owned(),
        }],
        traffic: Some(Traffic {
            seconds: 1.0,
            bytes_per_s,
            segments_per_s: bytes_per_s / 20.0,
            round_trips_per_s: bytes_per_s / 40.0,
            busy_connections: connections,
            ..Traffic::default()
        }),
        saving: None,
    }
}

fn socket(inode: u64, local: Address, pid: u32) -> Socket {
    Socket {
        local,
        uid: Some(0),
        pids: vec![pid],
        ..Socket::new(SocketKind::UnixStream, SocketState::Established, inode, 1)
    }
}

/// The same machine, with the times of its requests.
pub fn timed(mode: Option<ExchangeMode>) -> Scan {
    let mut scan = busy();
    let pair = |service, kind, address: &str, rate: f64| PairExchanges {
        service,
        client: "php-fpm8.2".to_owned(),
        kind,
        address: address.to_owned(),
        connections: 4,
        exchanges_per_s: rate,
        bytes_out_per_s: 36.0 * rate,
        bytes_back_per_s: 9.0 * rate,
        first: Some(ExchangeTimes {
            count: 1000,
            mean_us: 117.0,
            p50_us: 44.7,
            p99_us: Some(2490.0),
            ..ExchangeTimes::default()
        }),
        parts: (mode != Some(ExchangeMode::Arrivals)).then_some(ExchangeParts {
            count: 1000,
            way_there_us: 4.8,
            waiting_us: 84.1,
            work_us: 2.14,
            way_back_us: 4.9,
            client_us: 20.9,
        }),
        ..PairExchanges::default()
    };
    let quiet = PairExchanges {
        exchanges_per_s: 0.0,
        first: None,
        parts: None,
        ..pair(1, SocketKind::Tcp, "tcp:127.0.0.1:3306", 0.0)
    };
    let is_measured = mode.is_some();
    scan.exchanges = Some(Exchanges {
        mode,
        unmeasured: (!is_measured).then_some(Unmeasured::NoRights),
        pairs: if is_measured {
            vec![
                pair(0, SocketKind::Tcp, "tcp:127.0.0.1:6379", 7370.0),
                quiet,
                pair(2, SocketKind::UnixStream, "/run/systemd/journal/stdout", 12.0),
            ]
        } else {
            Vec::new()
        },
        ..Exchanges::default()
    });
    scan
}

/// A busy machine.
pub fn busy() -> Scan {
    let process = |pid, name: &str| Process { pid, name: name.to_owned(), ..Process::default() };
    Scan {
        as_root: true,
        sockets: vec![
            socket(1, Address::Unnamed, 100),
            socket(2, Address::from_sun_path(b"/run/systemd/journal/stdout"), 1),
        ],
        processes: vec![process(1, "systemd"), process(100, "php-fpm8.2")],
        services: vec![
            service("Redis", Kind::Redis, 7),
            service("MariaDB", Kind::Mariadb, 8),
            service("systemd", Kind::Systemd, 1),
        ],
        connections: vec![Connection {
            kind: SocketKind::UnixStream,
            client: 0,
            server: 1,
            service: Some(2),
        }],
        advice: vec![
            advice(0, "tcp:127.0.0.1:6379", 4, 3_120_000.0),
            advice(1, "tcp:127.0.0.1:3306", 12, 40_000.0),
        ],
        ..Scan::default()
    }
}
