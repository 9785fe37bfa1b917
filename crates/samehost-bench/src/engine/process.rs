//! One run of a command as an operation: wall time, CPU time, and numbers from its output if asked for.

use samehost_system::{nowhere, threads};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use nix::sys::resource::{Usage, UsageWho, getrusage};
use regex_lite::Regex;
use rustix::process::{Pid, Signal, kill_process_group};
use samehost_model::Redactor;

use super::{Nanos, now};
use crate::error::BenchError;

#[derive(Clone, Debug)]
pub struct ProcessJob {
    pub arm: String,
    pub script: String,
    /// Metrics whose number a pattern finds in the output: the first group that takes part in the match, or the whole match.
    pub values: Vec<(String, Regex)>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ProcessTally {
    /// From starting the shell to its end.
    pub elapsed: Nanos,
    /// CPU seconds of the command and of all its descendants that were waited for, in user space and in the kernel.
    pub user_s: f64,
    pub system_s: f64,
    pub values: Vec<(String, f64)>,
}

/// Runs the command once.
///
/// # Errors
/// When it cannot be started, fails, or does not print a number, and after a signal.
pub fn drive(job: &ProcessJob, interrupted: &AtomicBool) -> Result<ProcessTally, BenchError> {
    let failed = |reason: String| BenchError::Command { arm: job.arm.clone(), reason };
    let script = || Redactor::default().command(&job.script);
    let before = children();
    let begun = now();
    let child = start(&job.script).map_err(|error| failed(format!("could not start /bin/sh: {error}")))?;
    let (ended, output) = wait_for(child, interrupted)?;
    let output = output.map_err(|error| failed(format!("could not be waited for: {error}")))?;
    let after = children();
    if !output.status.success() {
        return Err(failed(format!("`{}` ended with {}{}", script(), output.status, words(&output))));
    }
    let mut values = Vec::new();
    for (metric, pattern) in &job.values {
        let Some(found) = number(pattern, &output) else {
            let (script, words) = (script(), words(&output));
            return Err(failed(format!("no number matches `{pattern}` in the output of `{script}`{words}")));
        };
        values.push((metric.clone(), found));
    }
    let seconds = |read: fn(&Usage) -> nix::sys::time::TimeVal| match (&before, &after) {
        (Some(before), Some(after)) => to_seconds(read(after)) - to_seconds(read(before)),
        _ => 0.0,
    };
    Ok(ProcessTally {
        elapsed: ended - begun,
        user_s: seconds(Usage::user_time),
        system_s: seconds(Usage::system_time),
        values,
    })
}

/// Starts a script in a process group of its own: Ctrl-C then reaches us first, and we end the whole group.
fn start(script: &str) -> io::Result<Child> {
    Command::new("/bin/sh")
        .process_group(0)
        .args(["-c", script])
        .stdin(nowhere())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}

/// Waits for the end and returns its time and the output; a signal to us ends the whole group.
fn wait_for(child: Child, interrupted: &AtomicBool) -> Result<(Nanos, io::Result<Output>), BenchError> {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let (sender, receiver) = mpsc::channel();
    let end = || group.map(|group| kill_process_group(group, Signal::TERM));
    let waiting = threads::start(move || {
        let output = child.wait_with_output();
        let _ = sender.send((now(), output));
    });
    if let Err(error) = waiting {
        let _ = end();
        return Err(BenchError::io("waiting for a command", io::Error::from(error)));
    }
    loop {
        match receiver.recv_timeout(Duration::from_millis(50)) {
            Ok(ended) => return Ok(ended),
            Err(_) if interrupted.load(Ordering::Relaxed) => {
                let _ = end();
                return Err(BenchError::Interrupted);
            }
            Err(_) => {}
        }
    }
}

fn children() -> Option<Usage> {
    getrusage(UsageWho::RUSAGE_CHILDREN).ok()
}

fn to_seconds(time: nix::sys::time::TimeVal) -> f64 {
    time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6
}

/// The number that the pattern finds in stdout and stderr, in its first group that takes part in the match, or else in
/// the whole match. Thousands separators (`1,234.5`) are allowed.
fn number(pattern: &Regex, output: &Output) -> Option<f64> {
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push('\n');
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    let found = pattern.captures(&text)?;
    let found = found.iter().skip(1).flatten().next().or_else(|| found.get(0))?;
    let number: f64 = found.as_str().trim().replace(',', "").parse().ok()?;
    number.is_finite().then_some(number)
}

/// Last eight lines of what the command printed, for an error message.
fn words(output: &Output) -> String {
    let printed = [&output.stdout[..], &output.stderr].concat();
    let text = String::from_utf8_lossy(&printed);
    let tail: Vec<&str> = text.trim().lines().rev().take(8).collect();
    if tail.is_empty() {
        return "; it printed nothing".into();
    }
    let lines: Vec<&str> = tail.into_iter().rev().collect();
    format!("; its last words:\n{}", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(script: &str, pattern: Option<&str>) -> ProcessJob {
        ProcessJob {
            arm: "a".into(),
            script: script.into(),
            values: pattern.map(|text| ("rate".to_owned(), Regex::new(text).unwrap())).into_iter().collect(),
        }
    }

    #[test]
    fn a_number_is_taken_from_the_output() {
        fn run(script: &str, pattern: Option<&str>) -> Result<ProcessTally, BenchError> {
            drive(&job(script, pattern), &AtomicBool::new(false))
        }
        let tally = run("echo 'rate: 12,345.5 per s'", Some(r"rate: ([\d.,]+)")).unwrap();
        assert_eq!(tally.values, [("rate".to_owned(), 12_345.5)]);
        assert!(tally.elapsed > 0);
        let error = run("echo nothing here", Some(r"(\d+)")).unwrap_err().to_string();
        assert!(error.contains("nothing here"), "{error}");
        let error = run("echo oh no >&2; exit 3", None).unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.contains("oh no"), "{error}");
        assert!(run("true", None).is_ok());
    }

    #[test]
    fn a_signal_ends_the_command() {
        let result = drive(&job("sleep 100", None), &AtomicBool::new(true));
        assert!(matches!(result, Err(BenchError::Interrupted)));
    }
}
