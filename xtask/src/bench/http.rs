//! Yardstick of the http workload: 64 persistent connections, by wrk and by us, through nginx and directly to
//! the built-in server. The clients have one CPU, and the servers the other.

use std::path::Path;

use anyhow::Context;
use samehost_testing::free_port;

use super::{CLIENT_CPU, Figure, SERVER_CPU, Tools, pinned};
use crate::process::{Process, serve};

/// The requested page. Its reply is small, so that the client's own work is visible.
const PAGE: &str = "/bytes/128";

/// nginx as a proxy for the built-in server, with persistent connections on both sides; with its port.
fn nginx(tools: &Tools, behind: &Path) -> anyhow::Result<(Process, u16)> {
    let port = free_port();
    let (directory, behind) = (tools.directory.path().display(), behind.display());
    let text = format!(
        "user root;\ndaemon off;\nworker_processes 1;\npid {directory}/pid;\nerror_log stderr crit;\nevents {{ worker_connections 1024; }}\n\
         http {{ access_log off; keepalive_requests 1000000000; proxy_temp_path {directory}/proxy; client_body_temp_path {directory}/body;\n\
         fastcgi_temp_path {directory}/fcgi; uwsgi_temp_path {directory}/uwsgi; scgi_temp_path {directory}/scgi;\n\
         upstream page {{ server unix:{behind}; keepalive 64; keepalive_requests 1000000000; }}\n\
         server {{ listen 127.0.0.1:{port}; location / {{ proxy_http_version 1.1; proxy_set_header Connection \"\"; proxy_pass http://page; }} }} }}\n"
    );
    let file = tools.directory.path().join("nginx.conf");
    std::fs::write(&file, text)?;
    let mut command = pinned(Path::new("nginx"), SERVER_CPU);
    let process = Process::start(command.args(["-e", "stderr", "-c"]).arg(&file));
    // nginx stops its workers only on SIGTERM.
    let mut process = process.context("install the package nginx-light")?.stopped_by("TERM");
    process.wait_for_answer("nginx", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok())?;
    Ok((process, port))
}

pub(super) fn http(tools: &Tools) -> anyhow::Result<()> {
    let meter = tools.compile("meter")?;
    let socket = tools.directory.path().join("http.sock");
    let (_server, tcp) = serve(pinned(&tools.samehost, SERVER_CPU), "http", "epoll", &socket)?;
    let (_nginx, port) = nginx(tools, &socket)?;
    let wrk = |place: &str| {
        format!(
            "taskset -c {CLIENT_CPU} {} 'requests in' wrk -t 1 -c 64 -d 1 http://{place}{PAGE}",
            meter.display()
        )
    };
    let ours = |transport: &str, url: &str| {
        let trial = tools.trial("http", transport, url, 64, "--trial-time 1s --yes=over-limits 2>/dev/null");
        format!("taskset -c {CLIENT_CPU} {trial}")
    };
    let through = format!("127.0.0.1:{port}");
    let over_tcp = ours("tcp", &format!("http://{through}{PAGE}"));
    println!("through nginx, TCP: client CPU per request, user and system, µs");
    tools.compare("wrk", &wrk(&through), &over_tcp, &Figure::client_cpu("tcp"))?;
    println!("user space's part of it, µs");
    tools.compare("wrk", &wrk(&through), &over_tcp, &Figure::client_user("tcp"))?;
    println!("the built-in server: requests per second, wrk over TCP and samehost over TCP");
    let direct = ours("tcp", &format!("http://{tcp}{PAGE}"));
    tools.compare("wrk", &wrk(&tcp), &direct, &Figure::throughput("tcp"))?;
    println!("the built-in server: requests per second, wrk over TCP and samehost over the Unix socket");
    let socket_url = format!("http+unix://{}{PAGE}", socket.display().to_string().replace('/', "%2F"));
    tools.compare("wrk", &wrk(&tcp), &ours("unix", &socket_url), &Figure::throughput("unix"))
}
