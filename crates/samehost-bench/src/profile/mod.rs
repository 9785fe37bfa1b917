//! CPU profiles: separate trials under `perf record`, after everything that is measured. Whether perf is
//! installed and permitted is checked before anything is measured.

mod folding;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::error::BenchError;
use crate::private_servers::{PrivateDirectory, SupervisedProcess, Supervision, installed_or};

pub(crate) use folding::Folding;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallGraph {
    /// By frame pointers: cheap; programs built without them have short stacks.
    #[default]
    FramePointers,
    /// By debug information and a copy of each stack: complete and costly.
    Dwarf,
}

impl CallGraph {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            CallGraph::FramePointers => "fp",
            CallGraph::Dwarf => "dwarf",
        }
    }
}

impl FromStr for CallGraph {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        for graph in [CallGraph::FramePointers, CallGraph::Dwarf] {
            if graph.name() == name {
                return Ok(graph);
            }
        }
        Err(format!("callers are found by `fp` or `dwarf`, not by `{name}`"))
    }
}

// perf is tried before anything is measured: that it is installed, permitted and works, and what it can count. A recording
// runs under a supervisor, so that neither it nor its data outlives us; it starts and stops on command, and its samples
// come back as text over stdout.

/// Samples per second of CPU time; not a multiple of what ticks at 1000 or 100 Hz.
pub(crate) const FREQUENCY_HZ: u32 = 997;
/// Above this, the kernel denies unprivileged users to profile the kernel (perf_event_open(2)).
const MOST_PARANOID: i32 = 1;
/// Bits of CAP_SYS_ADMIN and CAP_PERFMON (linux/capability.h).
const PRIVILEGES: u64 = 1 << 21 | 1 << 38;
const ALLOW: &str = "run `sudo sysctl kernel.perf_event_paranoid=1` (and `sudo sysctl kernel.kptr_restrict=0` for the names of the kernel's functions), or leave --profile out";

#[derive(Debug)]
pub(crate) struct Profiler {
    /// Path of this program, which supervises perf.
    program: PathBuf,
    perf: PathBuf,
    pub(crate) event: &'static str,
    pub(crate) graph: CallGraph,
    pub(crate) kernel_symbols: bool,
}

impl Profiler {
    /// Finds perf and tries it.
    ///
    /// # Errors
    /// When it is not installed, not permitted, or does not work.
    pub(crate) fn new(program: &Path, graph: CallGraph) -> Result<Self, BenchError> {
        let instead = "linux-tools-generic on Ubuntu, or leave --profile out";
        let perf = installed_or(&["perf"], "linux-perf", instead)?;
        permit(&read("/proc/sys/kernel/perf_event_paranoid"), &read("/proc/self/status"))?;
        let event = if counts_cycles(&perf) { "cycles" } else { "cpu-clock" };
        let kernel_symbols = File::open("/proc/kallsyms").is_ok_and(|file| {
            let first = std::io::BufRead::lines(std::io::BufReader::new(file)).take(64);
            first.map_while(Result::ok).any(|line| has_address(&line))
        });
        let profiler = Profiler { program: program.to_owned(), perf, event, graph, kernel_symbols };
        profiler.try_it()?;
        Ok(profiler)
    }

    pub(crate) fn begin(&self, pids: &[u32], interrupted: &AtomicBool) -> Result<Recording, BenchError> {
        let directory = PrivateDirectory::new()?;
        let order = fifo(&directory.path().join("order"))?;
        let answer = fifo(&directory.path().join("answer"))?;
        let pids = pids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let arguments = [
            "/bin/sh",
            "-c",
            SCRIPT,
            "samehost-profile",
            &directory.path().to_string_lossy(),
            &self.perf.to_string_lossy(),
            self.event,
            &FREQUENCY_HZ.to_string(),
            self.graph.name(),
            &pids,
            END,
        ];
        let command = arguments.map(str::to_owned).to_vec();
        let supervision = Supervision::new(&self.program, "perf", None, command);
        let perf = SupervisedProcess::start(&supervision, directory)?;
        let mut recording = Recording { perf, order, answer };
        recording.tell("enable", interrupted)?;
        Ok(recording)
    }

    pub(crate) fn program_name(&self) -> String {
        self.program.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// perf without the user's settings and without symbols from the network.
    fn command(perf: &Path) -> Command {
        let mut command = Command::new(perf);
        command.env("PERF_CONFIG", "/dev/null").env_remove("DEBUGINFOD_URLS").stdin(Stdio::null());
        command
    }

    fn try_it(&self) -> Result<(), BenchError> {
        let directory = PrivateDirectory::new()?;
        let data = directory.path().join("perf.data");
        let output = Self::command(&self.perf)
            .args(["record", "-q", "-B", "-N", "-e", self.event, "-F", &FREQUENCY_HZ.to_string()])
            .args(["--call-graph", self.graph.name(), "-o"])
            .arg(&data)
            .args(["--", "true"])
            .output()
            .map_err(|error| BenchError::io(format!("running {}", self.perf.display()), error))?;
        if output.status.success() {
            return Ok(());
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        let reason = stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        Err(BenchError::NotPermitted { what: "perf record", reason, try_next: ALLOW })
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Whether a line of /proc/kallsyms has an address; with kernel.kptr_restrict all are zero.
fn has_address(line: &str) -> bool {
    line.split(' ').next().is_some_and(|address| address.bytes().any(|digit| digit != b'0'))
}

fn permit(paranoid: &str, status: &str) -> Result<(), BenchError> {
    let mut effective = 0;
    for line in status.lines() {
        if let Some(bits) = line.strip_prefix("CapEff:") {
            effective = u64::from_str_radix(bits.trim(), 16).unwrap_or(0);
        }
    }
    // A kernel without this setting has no perf events; perf then reports that.
    let Ok(paranoid) = paranoid.trim().parse::<i32>() else { return Ok(()) };
    if paranoid <= MOST_PARANOID || effective & PRIVILEGES != 0 {
        return Ok(());
    }
    Err(BenchError::NotPermitted {
        what: "sampling where CPU time goes",
        reason: format!("kernel.perf_event_paranoid is {paranoid}"),
        try_next: ALLOW,
    })
}

/// Whether there are hardware counters: many virtual machines have none.
fn counts_cycles(perf: &Path) -> bool {
    let output = Profiler::command(perf).args(["stat", "-x", ",", "-e", "cycles", "--", "true"]).output();
    output.is_ok_and(|output| counted(&String::from_utf8_lossy(&output.stderr)))
}

fn counted(stderr: &str) -> bool {
    for line in stderr.lines() {
        if line.contains("cycles") && line.starts_with(|c: char| c.is_ascii_digit()) {
            return true;
        }
    }
    false
}

/// Time limit of a command: perf opens an event for each thread and CPU.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest time without a line while perf reads its data and looks up symbols.
const LOOKING_UP: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Last line of a recording. It cannot be a sample: frames are indented, and other lines start with a pid.
const END: &str = "samehost: that is all";
/// Records only between `enable` and `stop`. Without build ids, which would be copied into the user's home.
const SCRIPT: &str = r#"cd "$1" && export PERF_CONFIG=/dev/null && unset DEBUGINFOD_URLS &&
"$2" record -q -B -N -e "$3" -F "$4" --call-graph "$5" -D -1 --control fifo:order,answer -o perf.data -p "$6" >&2 &&
"$2" script -i perf.data -F pid,tid,event,ip,sym,dso --no-inline --show-task-events 2>/dev/null &&
echo "$7""#;

/// A running recording. Dropping it ends it and leaves nothing behind.
#[derive(Debug)]
pub(crate) struct Recording {
    perf: SupervisedProcess,
    order: File,
    answer: File,
}

impl Recording {
    pub(crate) fn end(mut self, folding: &mut Folding, interrupted: &AtomicBool) -> Result<(), BenchError> {
        self.tell("stop", interrupted)?;
        loop {
            let line = self.perf.line(LOOKING_UP)?;
            if line == END {
                folding.end();
                return Ok(());
            }
            if interrupted.load(Ordering::Relaxed) {
                return Err(BenchError::Interrupted);
            }
            folding.line(&line);
        }
    }

    /// Sends a command and waits until perf has acknowledged it.
    fn tell(&mut self, order: &str, interrupted: &AtomicBool) -> Result<(), BenchError> {
        writeln!(self.order, "{order}").map_err(|error| BenchError::io("ordering perf", error))?;
        let since = Instant::now();
        loop {
            let glance = Timespec { tv_sec: 0, tv_nsec: POLL_INTERVAL.subsec_nanos().into() };
            let mut answer = [PollFd::new(&self.answer, PollFlags::IN)];
            // After a signal, poll is called again by the loop.
            if matches!(poll(&mut answer, Some(&glance)), Ok(ready) if ready > 0) {
                let mut word = [0; 64];
                self.answer.read(&mut word).map_err(|error| BenchError::io("hearing perf", error))?;
                return Ok(());
            }
            if interrupted.load(Ordering::Relaxed) {
                return Err(BenchError::Interrupted);
            }
            if self.perf.has_ended() {
                return Err(self.perf.failure(format!("it ended before `{order}`")));
            }
            if since.elapsed() > ANSWER_TIMEOUT {
                return Err(self
                    .perf
                    .failure(format!("no answer to `{order}` for {} s", ANSWER_TIMEOUT.as_secs())));
            }
        }
    }
}

/// A named pipe, opened for reading and writing, so that it neither blocks nor breaks.
fn fifo(path: &Path) -> Result<File, BenchError> {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
        .map_err(Into::into)
        .and_then(|()| File::options().read(true).write(true).open(path))
        .map_err(|error| BenchError::io(format!("making {}", path.display()), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_which_setting_forbids_it() {
        let nobody = "Name:\tx\nCapEff:\t0000000000000000\n";
        let refusal = permit("2\n", nobody).unwrap_err().to_string();
        assert!(refusal.contains("kernel.perf_event_paranoid is 2"), "{refusal}");
        assert!(refusal.contains("sudo sysctl kernel.perf_event_paranoid=1"), "{refusal}");
        assert!(refusal.contains("kernel.kptr_restrict=0"), "{refusal}");
        assert!(permit("4", nobody).is_err());
        for allowed in ["1", "0", "-1", ""] {
            assert!(permit(allowed, nobody).is_ok(), "{allowed}");
        }
        assert!(permit("4", "CapEff:\t000001ffffffffff").is_ok(), "root");
        assert!(permit("4", "CapEff:\t0000004000000000").is_ok(), "CAP_PERFMON");
        assert!(permit("4", "CapEff:\t0000000000000400").is_err(), "another capability");
    }

    #[test]
    fn hardware_counters_count() {
        assert!(counted("812345,,cycles,504000,100.00,,\n"));
        assert!(!counted("<not supported>,,cycles,0,100.00,,\n"));
        assert!(!counted(""));
    }

    #[test]
    fn hidden_addresses_are_zeros() {
        assert!(has_address("ffffffff81000000 T _text"));
        assert!(!has_address("0000000000000000 T _text"));
    }
}
