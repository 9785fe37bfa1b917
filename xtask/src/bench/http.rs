//! Yardstick of the http workload: 64 persistent connections, by wrk and by us, through nginx and directly to
//! the built-in server. The clients have one CPU, and the servers the other.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::{CLIENT_CPU, SERVER_CPU, Tools, field};

/// The requested page. Its reply is small, so that the client's own work is visible.
const PAGE: &str = "/bytes/128";

/// A process, stopped on drop.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // nginx stops its workers only on SIGTERM.
        let pid = self.0.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let _ = self.0.wait();
    }
}

/// The built-in server on a port and a Unix socket.
fn built_in(tools: &Tools) -> anyhow::Result<(Process, String, String)> {
    let socket = tools.directory.path().join("http.sock").display().to_string();
    let mut child = Command::new("taskset")
        .args(["-c", SERVER_CPU])
        .arg(&tools.samehost)
        .args(["serve", "http", "--model", "epoll", "--listen", "tcp:127.0.0.1:0"])
        .args(["--listen", &format!("unix:{socket}")])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("the server's output")?).lines();
    let process = Process(child);
    let first = lines.next().context("the server said nothing")??;
    lines.next().context("the server said one line only")??;
    Ok((process, first.trim_start_matches("listening on tcp:").to_owned(), socket))
}

/// nginx as a proxy for it, with persistent connections on both sides.
fn nginx(tools: &Tools, behind: &str) -> anyhow::Result<(Process, u16)> {
    let port = super::free_port()?;
    let directory = tools.directory.path().display();
    let text = format!(
        "user root;\ndaemon off;\nworker_processes 1;\npid {directory}/pid;\nerror_log stderr crit;\nevents {{ worker_connections 1024; }}\n\
         http {{ access_log off; keepalive_requests 1000000000; proxy_temp_path {directory}/proxy; client_body_temp_path {directory}/body;\n\
         fastcgi_temp_path {directory}/fcgi; uwsgi_temp_path {directory}/uwsgi; scgi_temp_path {directory}/scgi;\n\
         upstream page {{ server unix:{behind}; keepalive 64; keepalive_requests 1000000000; }}\n\
         server {{ listen 127.0.0.1:{port}; location / {{ proxy_http_version 1.1; proxy_set_header Connection \"\"; proxy_pass http://page; }} }} }}\n"
    );
    let file = tools.directory.path().join("nginx.conf");
    std::fs::write(&file, text)?;
    let child = Command::new("taskset")
        .args(["-c", SERVER_CPU, "nginx", "-e", "stderr", "-c"])
        .arg(&file)
        .spawn()
        .context("install the package nginx-light")?;
    let mut process = Process(child);
    let begun = Instant::now();
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        ensure!(begun.elapsed() < Duration::from_secs(10), "nginx does not answer");
        ensure!(process.0.try_wait()?.is_none(), "nginx ended at once");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok((process, port))
}

pub(super) fn http(tools: &Tools) -> anyhow::Result<()> {
    let meter = tools.compile("meter")?;
    let (_server, tcp, socket) = built_in(tools)?;
    let (_nginx, port) = nginx(tools, &socket)?;
    let wrk = |place: &str| {
        format!(
            "taskset -c {CLIENT_CPU} {} 'requests in' wrk -t 1 -c 64 -d 1 http://{place}{PAGE}",
            meter.display()
        )
    };
    let ours = |transport: &str, url: &str| {
        format!(
            "taskset -c {CLIENT_CPU} {} bench http --transports {transport} --{transport} {url} --connections 64 --min-blocks 1 --max-blocks 1 --trial-time 1s --yes=over-limits --quiet --json - 2>/dev/null",
            tools.samehost.display()
        )
    };
    let through = format!("127.0.0.1:{port}");
    let over_tcp = ours("tcp", &format!("http://{through}{PAGE}"));
    let cpu = format!("^cpu_us_per_op ([\\d.]+)|{}", field("tcp", "client_cpu_us_per_op"));
    let user = format!(" user_us_per_op ([\\d.]+)|{}", field("tcp", "client_user_us_per_op"));
    println!("through nginx, TCP: client CPU per request, user and system, µs");
    tools.compare_with("wrk", &wrk(&through), &over_tcp, &cpu, "lower")?;
    println!("user space's part of it, µs");
    tools.compare_with("wrk", &wrk(&through), &over_tcp, &user, "lower")?;
    let socket_url = format!("http+unix://{}{PAGE}", socket.replace('/', "%2F"));
    let rate = |transport| format!(" per_s ([\\d.]+)|{}", field(transport, "throughput_per_s"));
    println!("the built-in server: requests per second, wrk over TCP and samehost over TCP");
    let direct = ours("tcp", &format!("http://{tcp}{PAGE}"));
    tools.compare_with("wrk", &wrk(&tcp), &direct, &rate("tcp"), "higher")?;
    println!("the built-in server: requests per second, wrk over TCP and samehost over the Unix socket");
    tools.compare_with("wrk", &wrk(&tcp), &ours("unix", &socket_url), &rate("unix"), "higher")?;
    Ok(())
}
