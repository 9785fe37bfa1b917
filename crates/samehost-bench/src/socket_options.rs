//! Congestion control and socket buffers as axes of a measurement. They are set on each socket if both ends
//! are ours, else by routes in a network namespace of our own; never by a setting of the machine.

use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use samehost_model::{Code, ConnectionSettings, Point, Report, Warning, parse_size};
use samehost_system::diag::both_ends;
use samehost_system::routes::available_congestion;
use samehost_transport::{Stream, Tuning, TuningError};

use crate::error::BenchError;
use crate::network::Network;
use crate::parameters::distinct;
use crate::parameters::{Parameters, Swept};
use crate::request::Request;
use crate::served::StartOptions;
use crate::workload::{Capabilities, Workload};

pub(crate) const INSTEAD: &str = "leave --congestion out";

pub const CONGESTION: &str = "congestion";
pub const SOCKET_BUFFER: &str = "socket-buffer";

/// How often, and at what interval, the server's end is checked until it is set.
const LOOKS: u32 = 1000;
const BETWEEN: Duration = Duration::from_millis(1);

/// Whether the congestion control that is asked for is set by the routes of a private network namespace; where both ends are
/// ours it is set on each socket. Over loopback CUBIC and BBR move large transfers at different speeds, so
/// a figure without the congestion control is half a figure; both ends are read in every trial and
/// reported. Changing a setting of the host was rejected, because a measurement never does
/// (docs/congestion.md).
pub(crate) fn needs_routes(workload: &dyn Workload, request: &Request) -> bool {
    if request.congestion.is_empty() {
        return false;
    }
    let each = workload.owns_both_ends() && !request.congestion_by_routes;
    !each || request.congestion.iter().any(|name| try_on_a_socket(name).is_err())
}

/// The error that a namespace is denied, worded for what it was needed for.
pub(crate) fn denied(network: Network, error: BenchError) -> BenchError {
    match error {
        BenchError::NoOwnNetwork { reason, .. } if network == Network::OwnRoutes => {
            BenchError::NotPermitted {
                what: "choosing the congestion control of a private server",
                reason: format!("it takes the routes of a network of its own, and {reason}"),
                try_next: "leave --congestion out to measure what this machine has by default",
            }
        }
        BenchError::NoOwnNetwork { reason, .. } if network == Network::OwnContainers => {
            BenchError::NotPermitted {
                what: "starting a private container",
                reason: format!("podman's interfaces and rules take a network of its own, and {reason}"),
                try_next: "measure a container that already runs with --tcp and --unix",
            }
        }
        other => other,
    }
}

/// Refuses what cannot be set, before anything is started. The error contains what to change.
pub(crate) fn check(
    workload: &dyn Workload,
    axes: &Capabilities,
    request: &Request,
) -> Result<(), BenchError> {
    let name = workload.name();
    if !request.socket_buffers.is_empty() && !workload.owns_both_ends() {
        return BenchError::refuse(format!(
            "`bench {name}` takes no --socket-buffer: its server sets its buffers itself; `bench raw` has both ends in hand"
        ));
    }
    let asked = !request.congestion.is_empty() || !request.socket_buffers.is_empty();
    if asked && !request.servers.is_empty() {
        return BenchError::refuse(
            "--congestion and --socket-buffer are for servers that samehost starts: the other end of one that already runs is not ours to set",
        );
    }
    if axes.commands && request.congestion.len() > 1 {
        return BenchError::refuse("`bench command` takes one --congestion: its arms are its commands");
    }
    let available = available_congestion();
    match request.congestion.iter().find(|name| !available.contains(name)) {
        Some(name) => {
            let available = available.join(" ");
            Err(BenchError::Tuning(TuningError::NoCongestion(name.clone(), available)))
        }
        None => Ok(()),
    }
}

fn try_on_a_socket(name: &str) -> Result<(), TuningError> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(|errno| TuningError::Other(errno.into()))?;
    Tuning { congestion: Some(name.to_owned()), buffer_bytes: None }.apply(&socket)
}

/// Adds the values asked for to the parameters, and to the axes if there are several.
pub(crate) fn add(request: &Request, parameters: &mut Parameters, swept: &mut Vec<Swept>) {
    let buffers = request.socket_buffers.iter().map(|bytes| size(*bytes)).collect();
    for (name, values) in [(CONGESTION, request.congestion.clone()), (SOCKET_BUFFER, buffers)] {
        let values = distinct(values);
        if values.is_empty() {
            continue;
        }
        parameters.insert(name.to_owned(), values.join(","));
        if values.len() > 1 {
            swept.push(Swept { name: name.to_owned(), values });
        }
    }
}

/// Formats a size as `--socket-buffer` takes it: `64k`, `1m`, or bytes.
fn size(bytes: u64) -> String {
    match bytes {
        _ if bytes.is_multiple_of(1 << 20) => format!("{}m", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{}k", bytes >> 10),
        _ => bytes.to_string(),
    }
}

/// Congestion control asked for at a point: that of its axis, else the only one that was given.
pub(crate) fn congestion<'a>(point: &'a Point, given: &'a [String]) -> Option<&'a str> {
    match point.parameters.get(CONGESTION) {
        Some(own) => Some(own),
        None => given.first().map(String::as_str),
    }
}

/// Socket options of a point if both ends are ours. What routes set is left out.
pub(crate) fn tuning(point: &Point, start: &StartOptions) -> Tuning {
    let own = point.parameters.get(SOCKET_BUFFER).and_then(|text| parse_size(text).ok());
    let congestion = if start.routed { None } else { congestion(point, &start.congestion) };
    Tuning {
        congestion: congestion.map(str::to_owned),
        buffer_bytes: own.or_else(|| start.socket_buffers.first().copied()),
    }
}

/// Waits until the server has set its end of a connection: an accepted Unix socket has the default buffers at first.
///
/// The client's end has got the same options, so both are set where both sizes are alike. One size is not enough: the
/// send buffer is set first, and the default is larger than what is asked for in some arms (212,992 bytes of 2 · 16 KiB).
pub(crate) fn wait_for_server(stream: &Stream, tuning: &Tuning) {
    if tuning.buffer_bytes.is_none() {
        return;
    }
    for _ in 0..LOOKS {
        if let Some(ConnectionSettings { client: Some(client), server: Some(server) }) = both_ends(stream)
            && (client.send_buffer_bytes, client.receive_buffer_bytes)
                == (server.send_buffer_bytes, server.receive_buffer_bytes)
        {
            return;
        }
        std::thread::sleep(BETWEEN);
    }
}

pub(crate) fn tunings(start: &StartOptions) -> Vec<Tuning> {
    let mut all = Vec::new();
    for congestion in values(&start.congestion) {
        let congestion = if start.routed { None } else { congestion };
        for buffer_bytes in values(&start.socket_buffers) {
            all.push(Tuning { congestion: congestion.clone(), buffer_bytes });
        }
    }
    distinct(all)
}

pub(crate) const USUAL: &str = "cubic";

/// Warns that TCP ran with another congestion control than on most machines although none was asked for.
pub(crate) fn unusual(report: &Report) -> Option<Warning> {
    if report.head.workload.parameters.contains_key(CONGESTION)
        || report.head.arms.iter().any(|arm| arm.point.parameters.contains_key(CONGESTION))
    {
        return None;
    }
    let mut names: Vec<&str> = Vec::new();
    for trial in &report.trials {
        if let Some(connection) = &trial.connection {
            names.extend(connection.congestion());
        }
    }
    names.sort_unstable();
    names.dedup();
    names.retain(|name| *name != USUAL);
    if names.is_empty() {
        return None;
    }
    let names = names.join(", ");
    let message = format!(
        "TCP ran with {names}, the default here; most machines have {USUAL}, with which large transfers over TCP may be several times faster and small ones are the same: --congestion {USUAL} measures that"
    );
    Some(Warning::new(Code::Congestion, "", message))
}

/// Values of an axis; a single `None` if it was not asked for.
fn values<T: Clone>(given: &[T]) -> Vec<Option<T>> {
    if given.is_empty() { vec![None] } else { given.iter().cloned().map(Some).collect() }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use samehost_login::ServerAddress;
    use samehost_model::Transport;

    use super::*;
    use crate::workloads::workload;

    fn request(congestion: &[&str]) -> Request {
        let mut request = Request::new("samehost".into(), Vec::new(), Arc::default());
        request.congestion = congestion.iter().map(|name| (*name).to_owned()).collect();
        request
    }

    fn refusal(name: &str, request: &Request) -> String {
        let workload = workload(name).unwrap();
        let axes = workload.configure(&crate::workload::defaults(workload)).unwrap().axes();
        check(workload, &axes, request).map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn what_cannot_be_set_is_refused_with_what_to_do() {
        assert_eq!(refusal("redis", &request(&["reno", "cubic"])), "");
        let unknown = refusal("raw", &request(&["nonesuch"]));
        assert!(unknown.contains("`nonesuch`") && unknown.contains("modprobe tcp_nonesuch"), "{unknown}");
        let mut running = request(&["reno"]);
        running.servers.insert(Transport::Tcp, ServerAddress::open("tcp:127.0.0.1:1".parse().unwrap()));
        assert!(refusal("redis", &running).contains("already runs"));
        let buffers = Request { socket_buffers: vec![65536], ..request(&[]) };
        assert!(refusal("redis", &buffers).contains("--socket-buffer"));
        assert_eq!(refusal("raw", &buffers), "");
    }

    #[test]
    fn several_values_are_an_axis_and_one_is_not() {
        let mut parameters = Parameters::new();
        let mut swept = Vec::new();
        let mut asked = request(&["cubic", "bbr", "cubic"]);
        asked.socket_buffers = vec![65536];
        add(&asked, &mut parameters, &mut swept);
        assert_eq!(
            (parameters[CONGESTION].as_str(), parameters[SOCKET_BUFFER].as_str()),
            ("cubic,bbr", "64k")
        );
        assert_eq!(swept.len(), 1);
        let point = Point { parameters: [(CONGESTION.into(), "bbr".into())].into(), ..Point::default() };
        assert_eq!(congestion(&point, &asked.congestion), Some("bbr"));
        assert_eq!(congestion(&Point::default(), &asked.congestion), Some("cubic"));
    }

    /// Only congestion controls that every user may set are set on the sockets.
    #[test]
    fn raw_is_set_socket_by_socket_and_a_server_by_routes() {
        let asked = request(&["reno"]);
        assert!(!needs_routes(workload("raw").unwrap(), &asked));
        assert!(needs_routes(
            workload("raw").unwrap(),
            &Request { congestion_by_routes: true, ..asked.clone() }
        ));
        assert!(needs_routes(workload("redis").unwrap(), &asked));
        assert!(!needs_routes(workload("redis").unwrap(), &request(&[])));
    }

    /// Congestion control of client and server of a connection made in the network namespace.
    fn in_own(own: &crate::network::OwnNetwork, address: &str) -> Vec<String> {
        fn name(stream: &Stream) -> String {
            rustix::net::sockopt::tcp_congestion(stream).unwrap()
        }
        own.inside(|| {
            let listener =
                samehost_transport::listen(&address.parse().unwrap(), &Default::default()).unwrap();
            let client = samehost_transport::connect(listener.endpoint(), &Default::default()).unwrap();
            let server = listener.accept().unwrap();
            let both = both_ends(&client).unwrap();
            assert_eq!(both.server.unwrap().congestion, Some(name(&server)));
            vec![name(&client), name(&server)]
        })
        .unwrap()
    }

    #[test]
    fn routes_of_our_own_set_each_available_one_at_both_ends_and_none_outside_as_root() {
        fn default_control() -> String {
            fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap()
        }
        assert!(rustix::process::geteuid().is_root(), "needs root: run the tests as root");
        let before = default_control();
        let own = crate::network::OwnNetwork::new(INSTEAD).unwrap();
        let available = available_congestion();
        assert!(available.len() > 1, "needs two congestion controls, and this kernel has {available:?}");
        for name in &available {
            own.set_congestion(name).unwrap();
            for address in ["tcp:127.0.0.1:0", "tcp:127.0.0.2:0", "tcp:[::1]:0"] {
                assert_eq!(in_own(&own, address), [name.clone(), name.clone()], "{address}");
            }
        }
        assert!(own.set_congestion("nonesuch").is_err());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let outside = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(rustix::net::sockopt::tcp_congestion(&outside).unwrap(), before.trim());
        assert_eq!(default_control(), before);
    }
}
