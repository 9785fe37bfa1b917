//! Options of `switch`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::UnixOrTcp;
use crate::exit;
use samehost_model::ObstacleCode;

/// In place of the name of a switch: the newest one that it can be done with.
pub const NEWEST: &str = "newest";

#[derive(Args, Clone, Debug)]
#[command(after_help = exit::in_help(exit::STATUSES_OF_SWITCH))]
pub struct SwitchOptions {
    /// A directory of an application (/var/www/site), configuration files of both sides, or a service that runs (nginx)
    #[arg(value_name = "PATH|SERVICE", required_unless_present_any = ["undo", "list", "recover", "all", "finish", "confirm", "forget", "prune", "check"])]
    pub targets: Vec<String>,
    /// The transport to move to
    #[arg(long, value_enum, value_name = "TRANSPORT", default_value = "unix")]
    pub to: UnixOrTcp,
    /// Show what would be done, and what is in the way; touch nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do it without asking
    #[arg(long, short)]
    pub yes: bool,
    /// The socket to use, where the server has none yet or another than usual; of several servers, the first one's
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// With --to tcp: the address to use, where the server has none: 127.0.0.1:9000
    #[arg(long, value_name = "HOST:PORT")]
    pub address: Option<String>,
    /// Have the server stop listening on TCP
    #[arg(long)]
    pub close_tcp: bool,
    /// Leave TCP open for now where it would go in the last step; --finish closes it
    #[arg(long, conflicts_with = "close_tcp")]
    pub keep_tcp: bool,
    /// The user that the application runs as, where no process of it can be seen
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// The user that the server runs as, where that is neither root, the owner of the configuration, nor the account that
    /// its package made: nobody else's process is taken for it
    #[arg(long, value_name = "USER")]
    pub server_user: Option<String>,
    /// How a service takes a change that neither systemd nor a signal can tell it: COMMAND, or SERVICE=COMMAND
    #[arg(long, value_name = "COMMAND")]
    pub reload: Vec<String>,
    /// A page that must be served after the change as before: http://127.0.0.1/
    #[arg(long, value_name = "URL")]
    pub page: Option<String>,
    /// Undo the switch after this time unless it is confirmed (--confirm) or the --page stayed as it was; 0: never [default: 30m where nobody can be asked, else 0]
    #[arg(long, value_parser = parse_confirm, value_name = "TIME")]
    pub confirm_within: Option<Duration>,
    /// The same as --confirm-within 0
    #[arg(long, conflicts_with = "confirm_within")]
    pub no_confirm: bool,
    /// Keep a switch that would take itself back: the newest, or the one of this name
    #[arg(long, value_name = "ID", num_args = 0..=1, default_missing_value = NEWEST, group = "stored", conflicts_with_all = ["targets", "all"])]
    pub confirm: Option<String>,
    /// Do what a switch left for later, since somebody still used the old address, by its name
    #[arg(long, value_name = "ID", group = "stored", conflicts_with_all = ["targets", "all"])]
    pub finish: Option<String>,
    /// Pass what only a person may pass: with --yes a file that a program writes again (managed), that other machines may
    /// read (shared-files), or that you did not name (other-files); with and without it a program that asks for TLS, which
    /// a Unix socket may not give (encryption)
    #[arg(long, value_parser = acceptable(), value_name = "CODE")]
    pub accept: Vec<ObstacleCode>,
    /// Everything that a scan finds worth it, one transaction each
    #[arg(long, conflicts_with = "targets")]
    pub all: bool,
    /// How long to look who else uses an address before it goes, or, with --all, to watch the traffic, or, with --check, how long
    /// requests take [default: 5s, with --all 10s, with --check 3s]
    #[arg(long, value_parser = samehost_model::parse_duration, value_name = "TIME")]
    pub observe: Option<Duration>,
    /// Stamp system calls where the kernel does not tell otherwise when a request begins, for three seconds before the switch
    /// and at each --check: how long requests take is compared then. Each system call of the machine costs a little meanwhile
    #[arg(long)]
    pub exact: bool,
    /// Put a switch back, the newest or the one of this name: shows what that changes, and asks
    #[arg(long, value_name = "ID", num_args = 0..=1, default_missing_value = NEWEST, group = "stored", conflicts_with_all = ["targets", "all"])]
    pub undo: Option<String>,
    /// List the switches that were made, and where their backups are
    #[arg(long, group = "stored", conflicts_with_all = ["targets", "all"])]
    pub list: bool,
    /// End switches that were cut off, put them back or finish those that were proved: shows what that changes, and asks
    #[arg(long, group = "stored", conflicts_with_all = ["targets", "all"])]
    pub recover: bool,
    /// Whether every switch in force still holds: exit status 1 where a file names the old place again, or the
    /// application connects at the old place only
    #[arg(long, group = "stored", conflicts_with_all = ["targets", "all"])]
    pub check: bool,
    /// With --check: how long to wait for the applications to connect [default: 500ms]
    #[arg(long, value_parser = samehost_model::parse_duration, value_name = "TIME", requires = "check")]
    pub wait: Option<Duration>,
    /// Forget a switch that has ended: its backup goes, and it cannot be undone any more
    #[arg(long, value_name = "ID", group = "stored", conflicts_with_all = ["targets", "all"])]
    pub forget: Option<String>,
    /// Forget the switches that were undone or rolled back
    #[arg(long, group = "stored", conflicts_with_all = ["targets", "all"])]
    pub prune: bool,
    /// With --prune: also those in force that are as old as this: 90d
    #[arg(long, value_parser = days, value_name = "DAYS", requires = "prune")]
    pub older_than: Option<u32>,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

/// Reads a number of days, such as `90d`.
fn days(text: &str) -> Result<u32, String> {
    let number = text.trim().strip_suffix('d').and_then(|number| number.parse().ok());
    number.ok_or_else(|| format!("`{text}` is not a number of days; write it as 90d"))
}

/// The codes that a person may pass.
fn acceptable() -> impl TypedValueParser<Value = ObstacleCode> {
    let names = ObstacleCode::ACCEPTABLE.map(ObstacleCode::name);
    PossibleValuesParser::new(names).try_map(|name| ObstacleCode::named(&name).ok_or("no such code"))
}

/// Reads a duration, or `0`.
fn parse_confirm(text: &str) -> Result<Duration, String> {
    if text == "0" {
        Ok(Duration::ZERO)
    } else {
        samehost_model::parse_duration(text).map_err(|error| error.to_string())
    }
}

/// Options of the hidden verb that watches over a switch.
#[derive(Args, Clone, Debug)]
pub struct WatchSwitchOptions {
    /// The switch
    pub id: String,
    /// How often it looks
    #[arg(long, value_parser = samehost_model::parse_duration, default_value = "5s")]
    pub every: Duration,
    /// The process that starts this one anew when it is killed
    #[arg(long)]
    pub of: Option<u32>,
}
