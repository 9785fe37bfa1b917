//! Options of scan, top, verify and how.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use jiff::SignedDuration;
use samehost_bench::builtin_servers::{Model, SERVERS, Server, server};
use samehost_bench::private_servers::Account;
use samehost_model::{Endpoint, Mode, Transport};
use samehost_run::{Map, Share};

#[cfg(feature = "switch")]
use super::WatchSwitchOptions;
use super::{AtSignal, UnixOrTcp};
use crate::exit;
use crate::output::OutputOptions;
use crate::wrong_use::page_path;

#[derive(Args, Clone, Debug)]
pub struct ScanOptions {
    /// Only services and programs of these names, or services at these ports, with their notes in full: mariadb, php, 3306
    #[arg(value_name = "NAME|PORT", conflicts_with_all = ["prometheus", "every"])]
    pub names: Vec<String>,
    /// Print everything found as JSON
    #[arg(long)]
    pub json: bool,
    /// Measure the traffic of TCP connections for this long, and predict what a switch would save, by the prices of the last
    /// checkup; as root, also how long requests take over TCP and Unix sockets
    #[arg(long, value_parser = samehost_model::parse_duration, value_name = "TIME")]
    pub observe: Option<Duration>,
    /// With --observe: know when each request begins, also where that takes a stamp at every system call of the machine
    #[arg(long, requires = "observe")]
    pub exact: bool,
    /// Exit with 1 when a client is over another transport than this file says (lines such as `mariadb unix except
    /// mysqldump`), and list such clients only
    #[arg(long, value_name = "FILE", conflicts_with = "names")]
    pub expect: Option<PathBuf>,
    /// Write metrics for Prometheus to this file, in place of the listing (`-`: standard output)
    #[arg(long, value_name = "FILE")]
    pub prometheus: Option<PathBuf>,
    /// Scan again this long after the start of each scan, until it is told to end; a scan that fails ends nothing
    #[arg(long, value_parser = samehost_model::parse_duration, value_name = "TIME")]
    pub every: Option<Duration>,
    /// There is no progress to show; for those who write it all the same
    #[arg(long, short, hide = true)]
    pub quiet: bool,
}

#[derive(Args, Clone, Debug)]
pub struct TopOptions {
    /// Time from one table to the next
    #[arg(long, value_parser = samehost_model::parse_duration, value_name = "TIME", default_value = "3s")]
    pub every: Duration,
    /// Know when each request begins, also where that takes a stamp at every system call of the machine
    #[arg(long)]
    pub exact: bool,
}

#[derive(Args, Clone, Debug)]
pub struct VerifyOptions {
    /// A process number, an endpoint (unix:/path, 127.0.0.1:3306), a URL (mysql://user@localhost/db, redis://…), a service
    /// that runs (mariadb), or the path of a configuration (wp-config.php, .env, nginx.conf, a site's directory)
    pub target: String,
    /// Exit with 1 if another transport is in use, with 5 if nobody was seen to use any; of a service: all its clients
    #[arg(long, value_enum, value_name = "TRANSPORT")]
    pub expect: Option<UnixOrTcp>,
    /// Of a configuration: how long to wait for the application to connect; of a service: for its clients [default: 500ms]
    #[arg(long, value_parser = samehost_model::parse_duration, value_name = "TIME")]
    pub wait: Option<Duration>,
    /// The user that the server runs as, where that is neither root, the owner of the configuration, nor the account that
    /// its package made: nobody else is told a password
    #[arg(long, value_name = "USER")]
    pub server_user: Option<String>,
    /// Ask on the terminal for the password to log in with
    #[arg(long)]
    pub ask_password: bool,
    /// Print what was found as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Clone, Debug)]
pub struct HowOptions {
    /// The service (mysql, mariadb, postgres, redis, memcached, php-fpm, nginx, …), or a client (prisma, typeorm, celery, …)
    #[arg(value_name = "SERVICE|CLIENT", required_unless_present = "url")]
    pub service: Option<String>,
    /// Only clients of this language (php, python, node, go, ruby, java, rust, csharp, c, tools) or of this name
    #[arg(long, value_name = "LANGUAGE")]
    pub client: Option<String>,
    /// Translate this URL
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// Print a Compose file: the service and its client in two containers that share the socket
    #[arg(long, conflicts_with_all = ["kubernetes", "json"])]
    pub compose: bool,
    /// Print a pod of Kubernetes with both
    #[arg(long, conflicts_with = "json")]
    pub kubernetes: bool,
    /// Print the answer as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ReportOptions {
    #[command(subcommand)]
    pub verb: Option<ReportVerb>,
    /// Stored results: reports (--json) or samples files; the newest samples file by default
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Exit with 1 if the 95 % interval contradicts this, with 5 if it does not decide it
    #[arg(long, value_name = "CLAIM")]
    pub assert: Vec<samehost_analysis::Claim>,
    #[command(flatten)]
    pub output: OutputOptions,
}

#[derive(Subcommand, Clone, Debug)]
pub enum ReportVerb {
    /// List stored results, each with what changed since the run before it of the same command
    List(ReportListOptions),
    /// Compare two stored results: what changed from OLD to NEW
    Compare(CompareOptions),
    /// Remove old stored results: measurements, parts of reproductions, scans of earlier versions; never switches
    Prune(PruneOptions),
}

#[derive(Args, Clone, Debug)]
pub struct CompareOptions {
    /// The earlier result
    pub old: PathBuf,
    /// The later result
    pub new: Option<PathBuf>,
    /// Exit with 1 when any metric of any arm became slower
    #[arg(long)]
    pub fail_on_slower: bool,
    /// Write the changes as JSON to this file (`-`: standard output, and nothing else there)
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
pub struct ReportListOptions {
    /// Stored results: reports (--json) or samples files; all stored samples files by default
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Exit with 1 when any metric of any arm became slower from one run to the next
    #[arg(long)]
    pub fail_on_slower: bool,
    /// Write the list as JSON to this file (`-`: standard output, and nothing else there)
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = "Without --keep and --older-than it removes what is over the limits: the oldest.")]
pub struct PruneOptions {
    /// Keep the newest so many of each kind
    #[arg(long, value_name = "N")]
    pub keep: Option<usize>,
    /// Remove what is older than this: 30d, 12h; with --keep, of the others
    #[arg(long, value_parser = parse_age, value_name = "TIME")]
    pub older_than: Option<SignedDuration>,
    /// Show what would be removed; remove nothing
    #[arg(long)]
    pub dry_run: bool,
}

const DAY_S: f64 = 86_400.0;
/// Longest age that is taken: a hundred years.
const MOST_DAYS: f64 = 36_500.0;

/// An age with its unit: `90m`, `2d`, `1w`.
fn parse_age(text: &str) -> Result<SignedDuration, String> {
    let wrong = || "write a length of time: 30d, 2w or 12h".to_owned();
    for (suffix, days) in [('d', 1.0), ('w', 7.0)] {
        let Some(number) = text.strip_suffix(suffix) else { continue };
        // No sign and no exponent, which f64 would take.
        if !number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            return Err(wrong());
        }
        let days = number.parse::<f64>().map_err(|_| wrong())? * days;
        if days <= 0.0 || days > MOST_DAYS {
            return Err(wrong());
        }
        return Ok(SignedDuration::from_secs_f64(days * DAY_S));
    }
    // A number without a unit could be anything.
    if !text.ends_with(|c: char| c.is_ascii_alphabetic()) {
        return Err(wrong());
    }
    let length = samehost_model::parse_duration(text).map_err(|_| wrong())?;
    SignedDuration::try_from(length).map_err(|_| wrong())
}

#[derive(Args, Clone, Debug)]
pub struct ReproduceOptions {
    /// Experiments: W P1 P2 P3 P4 D G1 G2 G3 N B [default: all]
    #[arg(value_name = "ID")]
    pub ids: Vec<String>,
    /// All of them in under six minutes, with wider intervals
    #[arg(long)]
    pub quick: bool,
    /// The private server of the experiments on MySQL: P1 to P4 and D [default: what is installed, MariaDB first]
    #[arg(long, value_name = "NAME", value_parser = ["any", "mariadb", "mysql"])]
    pub server: Option<String>,
    /// Time for the chosen experiments in all [default: what they are planned to take]
    #[arg(long, value_parser = samehost_model::parse_duration, value_name = "TIME")]
    pub budget: Option<Duration>,
    /// Seed of the order of trials
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Write everything as JSON to this file (`-`: standard output, and nothing else there)
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub json: Option<PathBuf>,
    /// Write the table and every experiment's charts as one HTML page, which opens offline, to this file
    #[arg(long, value_name = "FILE", value_parser = page_path(), hide = !cfg!(feature = "html"), help_heading = "Output")]
    pub html: Option<PathBuf>,
    /// Write the table as Markdown to this file
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub markdown: Option<PathBuf>,
    /// Print no table and no progress
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,
}

impl ReproduceOptions {
    pub fn mode(&self) -> Mode {
        if self.quick { Mode::Quick } else { Mode::Full }
    }
}

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

#[derive(Args, Clone, Debug)]
pub struct ServeOptions {
    /// The server: echo sends back every byte, sink takes rounds of bytes and acknowledges each
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

// Verbs that samehost starts itself with: hidden, and without any promise to stay.

#[derive(Subcommand, Debug)]
pub enum Internal {
    #[command(hide = true)]
    Supervise(SuperviseOptions),
    #[command(hide = true)]
    BecomeServer(BecomeServerOptions),
    #[command(hide = true)]
    TryOwnNetwork,
    #[command(hide = true)]
    LogInAs,
    #[command(hide = true)]
    SendsAtOnce {
        /// Process and inode of each socket
        sockets: Vec<u64>,
    },
    #[command(hide = true)]
    StandIn,
    #[command(hide = true)]
    HandOver { endpoint: Endpoint },
    #[cfg(feature = "switch")]
    #[command(hide = true)]
    WatchSwitch(WatchSwitchOptions),
}

impl Internal {
    pub(super) fn at_signal(&self) -> AtSignal {
        match self {
            Internal::Supervise(_)
            | Internal::BecomeServer(_)
            | Internal::TryOwnNetwork
            | Internal::StandIn
            | Internal::LogInAs => AtSignal::HandlesItself,
            Internal::SendsAtOnce { .. } | Internal::HandOver { .. } => AtSignal::Ends,
            #[cfg(feature = "switch")]
            Internal::WatchSwitch(_) => AtSignal::Ends,
        }
    }
}

#[derive(Args, Clone, Debug)]
pub struct SuperviseOptions {
    #[arg(long, hide = true)]
    pub account: Option<Account>,
    #[arg(long, hide = true)]
    pub at_once: bool,
    pub directory: PathBuf,
    #[arg(last = true, required = true)]
    pub command: Vec<String>,
}

#[derive(Args, Clone, Debug)]
pub struct BecomeServerOptions {
    #[arg(long, hide = true)]
    pub account: Option<Account>,
    pub parent: u32,
    #[arg(last = true, required = true)]
    pub command: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::parse_age;

    #[test]
    fn an_age_has_a_unit() {
        fn hours(text: &str) -> Option<f64> {
            parse_age(text).ok().map(|length| length.as_secs_f64() / 3600.0)
        }
        assert_eq!(
            (hours("2d"), hours("90m"), hours("1w"), hours("1.5h")),
            (Some(48.0), Some(1.5), Some(168.0), Some(1.5))
        );
        for wrong in ["2", "d", "-2d", "0d", "2 days", "1e3d", "", "tomorrow"] {
            assert_eq!(hours(wrong), None, "{wrong}");
        }
    }
}
