//! Options of run.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use samehost_run::{Map, Share};

use crate::exit;
use crate::left_out::page_path;

#[derive(Args, Clone, Debug)]
#[command(after_help = exit::in_help(exit::STATUSES_OF_RUN))]
pub struct RunOptions {
    /// A port of this machine and the Unix socket in its place: 3306=/run/mysqld/mysqld.sock, or 127.0.0.1:3306=…
    #[arg(long, value_name = "PORT=PATH")]
    pub map: Vec<Map>,
    /// A port that PROGRAM listens at and the Unix socket in its place: 8080=/run/site.sock; implies --preload
    #[arg(long, value_name = "PORT=PATH")]
    pub listen: Vec<Map>,
    /// By a preloaded library in place of seccomp: for dynamic programs, and where seccomp is forbidden
    #[arg(long)]
    pub preload: bool,
    /// Map what scan finds: databases, caches and poolers that listen at a port of the loopback and at a Unix socket (the
    /// default where nothing is mapped)
    #[arg(long)]
    pub auto: bool,
    /// Print the maps, and what the servers see differently; start nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Add a line for each connection to a mapped port to this file
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Try it on the program's own traffic: this part of its new connections goes over the Unix sockets, the others over TCP, by a
    /// coin; what their requests take is compared at the end
    #[arg(long, value_name = "PERCENT", num_args = 0..=1, default_missing_value = "50%")]
    pub trial: Option<Share>,
    /// End the trial after this time, and write its report; the program goes on over TCP
    #[arg(long = "for", value_name = "TIME", value_parser = samehost_model::parse_duration, requires = "trial")]
    pub trial_time: Option<Duration>,
    /// End the trial when the exchange time is decided, by a test that may be looked at all the time; the program goes on over TCP
    #[arg(long, requires = "trial")]
    pub until_decided: bool,
    /// Try a service in its own unit: print the drop-in that starts it under the trial, and the commands that install it and take it
    /// away. Needs --for and --map, and no PROGRAM
    #[arg(long, value_name = "UNIT", requires_all = ["trial", "trial_time", "map"], conflicts_with_all = ["command", "json", "html", "log", "auto", "dry_run"])]
    pub unit: Option<String>,
    /// Install what --unit prints, below /run/systemd/system: the unit is restarted now, and again when the trial is over
    #[arg(long, requires = "unit")]
    pub install: bool,
    /// The root of the file system whose units are read and written; systemctl is not called for another than /
    #[arg(long, hide = true, value_name = "DIRECTORY", default_value = "/", requires = "unit")]
    pub systemd_root: PathBuf,
    /// Seed of the coin, to throw it the same way again
    #[arg(long, value_name = "NUMBER", requires = "trial")]
    pub seed: Option<u64>,
    /// Stamp system calls where the kernel allows nothing better; each one of the machine costs a little then
    #[arg(long, requires = "trial")]
    pub exact: bool,
    /// Write the trial's report as JSON to this file
    #[arg(long, value_name = "FILE", requires = "trial")]
    pub json: Option<PathBuf>,
    /// Write the trial's report as one HTML page to this file
    #[arg(long, value_name = "FILE", requires = "trial", value_parser = page_path(), hide = !cfg!(feature = "html"))]
    pub html: Option<PathBuf>,
    /// Say nothing of what the servers see differently, and print no summary at the end
    #[arg(long, short)]
    pub quiet: bool,
    /// The program and its arguments; options of samehost stand before it
    #[arg(trailing_var_arg = true, required_unless_present_any = ["dry_run", "unit"], value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}
