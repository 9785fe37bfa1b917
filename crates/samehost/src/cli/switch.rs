//! Options of `switch` and of its subcommands.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};

use super::UnixOrTcp;
use crate::exit;
use samehost_model::ObstacleCode;

/// `samehost switch`: without a subcommand it moves, with one it looks after the switches that were made.
///
/// One struct of 30 options for all of them was there before, with a table of what does nothing beside what: `--dry-run` was in no row of
/// it, and `--confirm ID --dry-run` confirmed. What a subcommand does not use is not in its struct, so that it is not parsed.
#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(disable_help_subcommand = true, after_help = exit::in_help(exit::STATUSES_OF_SWITCH))]
pub struct SwitchOptions {
    #[command(subcommand)]
    pub stored: Option<StoredVerb>,
    #[command(flatten)]
    pub moving: MoveOptions,
}

/// What is done with switches that were made.
#[derive(Subcommand, Clone, Debug)]
pub enum StoredVerb {
    /// Put a switch back, the newest or the one of this name: shows what that changes, and asks
    Undo(UndoOptions),
    /// List the switches that were made, and where their backups are
    List(ListOptions),
    /// Whether every switch in force still holds: exit status 1 where a file names the old place again, or the application
    /// connects at the old place
    Check(CheckOptions),
    /// Keep a switch that would take itself back: the newest, or the one of this name
    Confirm(ConfirmOptions),
    /// End switches that were cut off, put them back or finish those that were proved: shows what that changes, and asks
    Recover(RecoverOptions),
    /// Do what a switch left for later, since somebody still used the old address
    Finish(FinishOptions),
    /// Forget switches that were undone or rolled back, or one that has ended: its backup goes, and it cannot be undone any more
    Prune(PruneSwitchesOptions),
}

/// How an act is agreed to, and how it is told.
#[derive(Args, Clone, Copy, Debug)]
pub struct Consent {
    /// Show what would be done, and what is in the way; touch nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do it without asking
    #[arg(long, short)]
    pub yes: bool,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

/// How stages are carried out: those of a switch that is made, and those that one left.
#[derive(Args, Clone, Debug)]
pub struct ApplyOptions {
    #[command(flatten)]
    pub consent: Consent,
    /// How a service takes a change that neither systemd nor a signal can tell it: COMMAND, SERVICE=COMMAND, or SERVICE:PORT=COMMAND for one of several
    #[arg(long, value_name = "COMMAND")]
    pub reload: Vec<String>,
    /// A page that must be served after the change as before, and is timed: http://127.0.0.1/
    #[arg(long, value_name = "URL")]
    pub page: Option<String>,
    /// Undo it after this time unless it is confirmed (samehost switch confirm) or the --page stayed as it was; 0: never [default: 30m where nobody can be asked, else 0]
    #[arg(long, value_parser = parse_confirm, value_name = "TIME")]
    pub confirm_within: Option<Duration>,
    /// Pass what only a person may pass: with --yes a file that a program writes again (managed), that other machines may
    /// read (shared-files), or that you did not name (other-files); with and without it a program that asks for TLS, which
    /// a Unix socket may not give (encryption), or a directory that nobody is seen to make at boot (boot)
    #[arg(long, value_parser = acceptable(), value_name = "CODE")]
    pub accept: Vec<ObstacleCode>,
    /// How long to look who else uses an address before it goes, or, with --all, to watch the traffic [default: 5s, with --all 10s]
    #[arg(long, value_parser = samehost_model::parse_duration, value_name = "TIME")]
    pub observe: Option<Duration>,
}

#[derive(Args, Clone, Debug)]
pub struct MoveOptions {
    /// A directory of an application (/var/www/site), configuration files of both sides, or a service that runs (nginx); what is
    /// called as a subcommand is: ./undo
    #[arg(value_name = "PATH|SERVICE", required_unless_present = "all", value_parser = target)]
    pub targets: Vec<String>,
    /// The transport to move to
    #[arg(long, value_enum, value_name = "TRANSPORT", default_value = "unix")]
    pub to: UnixOrTcp,
    /// The socket to use, where the server has none yet or another than usual; of several servers, the first one's
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// With --to tcp: the address to use, where the server has none: 127.0.0.1:9000
    #[arg(long, value_name = "HOST:PORT")]
    pub address: Option<String>,
    /// Move this setting alone, by its name in the listing: DB_HOST; may be given several times
    #[arg(long, value_name = "SETTING")]
    pub only: Vec<String>,
    /// Have the server stop listening on TCP
    #[arg(long)]
    pub close_tcp: bool,
    /// Leave TCP open for now where it would go in the last step; samehost switch finish closes it
    #[arg(long, conflicts_with = "close_tcp")]
    pub keep_tcp: bool,
    /// The user that the application runs as, where no process of it can be seen
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// The user that the server runs as, where that is neither root, the owner of the configuration, nor the account that
    /// its package made: nobody else's process is taken for it
    #[arg(long, value_name = "USER")]
    pub server_user: Option<String>,
    /// Everything that a scan finds worth it, one transaction each
    #[arg(long, conflicts_with = "targets")]
    pub all: bool,
    /// Stamp system calls where the kernel does not tell otherwise when a request begins, for three seconds before the switch
    /// and at each samehost switch check: how long requests take is compared then. Each system call of the machine costs a little meanwhile
    #[arg(long)]
    pub exact: bool,
    #[command(flatten)]
    pub apply: ApplyOptions,
}

#[derive(Args, Clone, Debug)]
pub struct UndoOptions {
    /// The switch [default: the newest in force]
    #[arg(value_name = "ID")]
    pub id: Option<String>,
    #[command(flatten)]
    pub consent: Consent,
}

#[derive(Args, Clone, Debug)]
pub struct ListOptions {
    /// Touch nothing: put back no switch that was not confirmed in time
    #[arg(long)]
    pub dry_run: bool,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Clone, Debug)]
pub struct CheckOptions {
    /// Touch nothing: put back no switch that was not confirmed in time
    #[arg(long)]
    pub dry_run: bool,
    /// How long to wait for the applications to connect [default: 500ms]
    #[arg(long, value_parser = samehost_model::parse_duration, value_name = "TIME")]
    pub wait: Option<Duration>,
    /// How long to look how long requests take [default: 3s]
    #[arg(long, value_parser = samehost_model::parse_duration, value_name = "TIME")]
    pub observe: Option<Duration>,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Clone, Debug)]
pub struct ConfirmOptions {
    /// The switch [default: the newest that waits for it]
    #[arg(value_name = "ID")]
    pub id: Option<String>,
    /// Show which it would keep; touch nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Clone, Debug)]
pub struct RecoverOptions {
    #[command(flatten)]
    pub consent: Consent,
}

#[derive(Args, Clone, Debug)]
pub struct FinishOptions {
    /// The switch [default: the newest that left an address open]
    #[arg(value_name = "ID")]
    pub id: Option<String>,
    #[command(flatten)]
    pub apply: ApplyOptions,
}

#[derive(Args, Clone, Debug)]
pub struct PruneSwitchesOptions {
    /// Only this one, which may be in force: it stays so [default: those that were undone or rolled back]
    #[arg(value_name = "ID")]
    pub id: Option<String>,
    /// Also those in force that are as old as this: 90d
    #[arg(long, value_parser = days, value_name = "DAYS", conflicts_with = "id")]
    pub older_than: Option<u32>,
    #[command(flatten)]
    pub consent: Consent,
}

/// Reads what is to be moved. An option before a subcommand makes clap read its name as a path.
fn target(text: &str) -> Result<String, String> {
    if StoredVerb::has_subcommand(text) {
        return Err(format!(
            "options follow the subcommand: samehost switch {text} …; a file of that name is ./{text}"
        ));
    }
    Ok(text.to_owned())
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
