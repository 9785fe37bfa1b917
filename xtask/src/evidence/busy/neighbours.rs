//! Programs beside a measurement: loops that compute for a part of each 37 ms, and a site that serves pages. They end
//! with what holds them.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::bench::Blog;

/// Length of a neighbour's cycle: no multiple of a slice, a round or the kernel's tick.
const CYCLE: Duration = Duration::from_millis(37);

/// Computes for a part of each cycle until it is killed; with bursts only in the first seconds of each.
pub(crate) fn compute(duty: f64, bursts: Option<(f64, f64)>) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        let rests =
            bursts.is_some_and(|(works, rests)| begun.elapsed().as_secs_f64() % (works + rests) >= works);
        let until = Instant::now() + CYCLE.mul_f64(if rests { 0.0 } else { duty });
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        if rests || duty < 1.0 {
            std::thread::sleep(CYCLE.mul_f64(if rests { 1.0 } else { 1.0 - duty }));
        }
    }
}

/// Neighbours that the scheduler places.
pub(super) struct Neighbours(Vec<Child>);

impl Neighbours {
    pub(super) fn start(duties: &[f64], bursts: Option<(f64, f64)>) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("finding this program")?;
        let mut running = Neighbours(Vec::new());
        for duty in duties {
            let mut command = Command::new(&program);
            command.args(["neighbour", &duty.to_string()]).stdin(Stdio::null()).stdout(Stdio::null());
            if let Some((works, rests)) = bursts {
                command.args(["--works", &works.to_string(), "--rests", &rests.to_string()]);
            }
            running.0.push(command.spawn().context("starting a neighbour")?);
        }
        Ok(running)
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// nginx, PHP-FPM and MariaDB with a WordPress, and a client that asks for so many pages a second.
pub(super) struct Site {
    reader: Child,
    blog: Blog,
}

impl Site {
    pub(super) fn start(pages_per_s: f64) -> anyhow::Result<Self> {
        let blog = Blog::start()?;
        let program = std::env::current_exe().context("finding this program")?;
        let reader = Command::new(program)
            .args(["reader", &blog.address(), &pages_per_s.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("starting a reader of pages")?;
        Ok(Site { reader, blog })
    }
}

impl Site {
    /// URLs of its database, over TCP and over its socket.
    pub(super) fn database(&self) -> [String; 2] {
        self.blog.databases()
    }
}

/// A client of a Redis.
pub(super) struct Asker(Child);

impl Asker {
    pub(super) fn start(address: &str, per_s: f64) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("finding this program")?;
        let mut command = Command::new(program);
        command.args(["asker", address, &per_s.to_string()]).stdin(Stdio::null()).stdout(Stdio::null());
        Ok(Asker(command.spawn().context("starting a client of Redis")?))
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends so many GETs a second over one connection, one after the other in groups of 10 ms, until it is killed.
pub(crate) fn ask(address: &str, per_s: f64) -> anyhow::Result<()> {
    use std::io::{Read, Write};
    const GROUP: Duration = Duration::from_millis(10);
    let mut stream = std::net::TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let begun = Instant::now();
    let mut groups = 0_u32;
    let mut reply = [0; 64];
    loop {
        for _ in 0..(per_s * GROUP.as_secs_f64()) as u32 {
            stream.write_all(b"GET nothing\r\n")?;
            anyhow::ensure!(stream.read(&mut reply)? > 0, "Redis closed the connection");
        }
        groups += 1;
        std::thread::sleep((GROUP * groups).saturating_sub(begun.elapsed()));
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.reader.kill();
        let _ = self.reader.wait();
    }
}

/// Asks for the first page of a site so many times a second, until it is killed. A page that comes late delays no other.
pub(crate) fn read_pages(address: &str, per_s: f64) -> anyhow::Result<()> {
    let begun = Instant::now();
    let mut page = 0_u32;
    loop {
        let due = Duration::from_secs_f64(f64::from(page) / per_s);
        std::thread::sleep(due.saturating_sub(begun.elapsed()));
        let address = address.to_owned();
        std::thread::spawn(move || read_page(&address));
        page += 1;
    }
}

/// Reads a page to its end; one that fails is one page less.
fn read_page(address: &str) -> std::io::Result<u64> {
    use std::io::Write;
    let mut stream = std::net::TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(stream, "GET / HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    std::io::copy(&mut stream, &mut std::io::sink())
}
