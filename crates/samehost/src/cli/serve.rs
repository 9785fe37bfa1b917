//! Options of `serve`.

use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use samehost_bench::builtin_servers::{Model, SERVERS, Server, server};
use samehost_model::{Endpoint, Transport};

#[derive(Args, Clone, Debug)]
pub struct ServeOptions {
    /// The server: echo sends back every byte, rpc answers gRPC calls, sink takes rounds of bytes and acknowledges each
    #[arg(value_parser = PossibleValuesParser::new(SERVERS.iter().map(|server| server.name))
        .try_map(|name| server(&name).ok_or("no such server")))]
    pub server: &'static Server,
    /// Where to listen; may be given several times (tcp:127.0.0.1:7000, unix:/run/app.sock, abstract:name, …)
    #[arg(long, value_name = "ENDPOINT", required_unless_present = "inherited")]
    pub listen: Vec<Endpoint>,
    /// A thread for each connection, or one for all by epoll that replies at once (epoll) or after each round (rounds, as
    /// Redis does)
    #[arg(long, default_value = "threads", value_parser = PossibleValuesParser::new(Model::ALL.iter().map(|(name, _)| *name))
        .try_map(|name| name.parse::<Model>()))]
    pub model: Model,
    /// Connections that may wait to be accepted (the kernel allows net.core.somaxconn at most)
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(i32).range(0..), value_name = "N")]
    pub backlog: i32,
    /// Permissions of socket files, in octal
    #[arg(long, default_value = "600", value_parser = parse_mode, value_name = "MODE")]
    pub mode: u32,
    /// Pause after each accept, to play a busy server
    #[arg(long, value_parser = samehost_model::parse_duration, value_name = "TIME")]
    pub accept_delay: Option<Duration>,
    /// CPU time that echo spends on all that it reads, to play a server with work to do
    #[arg(long, value_parser = samehost_model::parse_duration, value_name = "TIME")]
    pub work: Option<Duration>,
    /// Part of that work besides, for messages of `bench raw --longer`
    #[arg(long, hide = true, value_parser = samehost_model::parse_fraction)]
    pub longer: Option<f64>,
    /// The congestion control of TCP connections: cubic, bbr, reno; what the kernel has, `sysctl
    /// net.ipv4.tcp_available_congestion_control` lists
    #[arg(long, value_name = "NAME")]
    pub congestion: Option<String>,
    /// Bytes of each connection's send buffer and receive buffer, as for SO_SNDBUF
    #[arg(long, value_parser = samehost_model::parse_size, value_name = "SIZE")]
    pub socket_buffer: Option<u64>,
    /// Serve the one connection handed over on standard input
    #[arg(long, hide = true)]
    pub inherited: Option<Transport>,
}

fn parse_mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text.trim_start_matches("0o"), 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("not an octal mode; write it as 600 or 660".into()),
    }
}
