//! One recording: perf under a supervisor, so that neither it nor its data outlives us. perf starts and stops
//! on command, and its samples come back as text over stdout.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::folding::Folding;
use super::perf::{FREQUENCY_HZ, Profiler};
use crate::error::BenchError;
use crate::private_servers::{PrivateDirectory, SupervisedProcess, Supervision};

/// Time limit of a command: perf opens an event for each thread and CPU.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest time without a line while perf reads its data and looks up symbols.
const LOOKING_UP: Duration = Duration::from_secs(120);
/// Longest time between two checks for a signal.
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

impl Profiler {
    /// Starts recording these processes and their descendants.
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
}

impl Recording {
    /// Ends the recording and adds up its samples.
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
