//! The command line: verbs and options. `bench` has a subcommand for each workload of the registry, with the
//! common options that it takes and the parameters that it adds. The parser adds a tip to a word that it does not know; one
//! that is far from what was typed leads astray (`--list` is not `--client`), so it is taken away.

mod gone;
#[cfg(feature = "switch")]
mod old_words;
#[cfg(feature = "switch")]
mod switch;
mod verbs;

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, StyledStr};
use clap::error::{ContextKind, ContextValue};
use clap::{ArgMatches, Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use samehost_bench::parameter_values;
use samehost_bench::parameters::{Parameter, ParameterKind, Parameters};
use samehost_bench::workload::Workload;
use samehost_bench::workloads::WORKLOADS;
use samehost_model::{Placement, RateSpec, Transport};

use crate::output::OutputOptions;
use crate::{exit, wrong_use};
use gone::text;

#[cfg(feature = "switch")]
pub use switch::{
    ApplyOptions, CheckOptions, ConfirmOptions, Consent, FinishOptions, ListOptions, MoveOptions,
    PruneSwitchesOptions, RecoverOptions, StoredVerb, SwitchOptions, UndoOptions, WatchSwitchOptions,
};
pub use verbs::{
    BecomeServerOptions, CompareOptions, HowOptions, Internal, PruneOptions, ReportListOptions,
    ReportOptions, ReportVerb, ReproduceOptions, RunOptions, ScanOptions, ServeOptions, SuperviseOptions,
    TopOptions, VerifyOptions,
};

#[cfg(not(feature = "switch"))]
pub use crate::wrong_use::AnyWords as SwitchOptions;

/// Finds programs that talk over TCP on localhost, measures what a Unix socket would save, switches them and checks the
/// result.
///
/// Without a verb: a checkup of this machine in under a minute.
#[derive(Parser, Debug)]
#[command(name = "samehost", version, args_conflicts_with_subcommands = true, max_term_width = 100)]
#[command(after_help = exit::in_help(exit::STATUSES))]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Option<Verb>,
    #[command(flatten)]
    pub checkup: CheckupOptions,
}

#[derive(Subcommand, Debug)]
pub enum Verb {
    /// What TCP on localhost costs on this machine, and what that means (the default)
    Checkup(CheckupOptions),
    /// What talks to what on this machine, and what could use a Unix socket
    Scan(ScanOptions),
    /// What talks to what, again and again: traffic, how long requests take, and what a Unix socket would save
    Top(TopOptions),
    /// Which transport is really in use, with proof from the kernel and the server
    Verify(VerifyOptions),
    /// How to set a service up for a Unix socket, and the connection in each client's own words
    How(HowOptions),
    /// What a code, or the error of a driver or a server, means here: when it matters, what to set, how to undo it
    Explain {
        /// The code (backlog, bbr, tls, …), or the text of an error; - reads it from standard input [default: a list of codes]
        #[arg(value_name = "CODE", allow_hyphen_values = true)]
        text: Vec<String>,
    },
    /// Move a configuration from TCP to a Unix socket, or back: shown, tried, proved, or put back
    #[command(hide = !cfg!(feature = "switch"))]
    Switch(SwitchOptions),
    /// Start a program that knows host and port only, and connect it over Unix sockets
    Run(RunOptions),
    /// Measure a workload over two or more transports, with an interval on the ratio
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Bench(Box<Bench>),
    /// The published experiments on this machine: what was claimed, what it says here, and whether that holds
    Reproduce(ReproduceOptions),
    /// Render a stored result again; list, compare or remove stored results
    Report(ReportOptions),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Run one of the built-in servers
    #[command(hide = true)]
    Serve(ServeOptions),
    /// Write the manual pages into a directory
    #[command(hide = true)]
    Man {
        /// The directory
        directory: PathBuf,
    },
    #[command(flatten)]
    Internal(Internal),
}

/// What happens to a verb at SIGINT and SIGTERM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtSignal {
    /// It ends at once, or a moment later where it cleans up.
    Ends,
    /// It handles them itself: a measurement stops cleanly, and must start with a single thread; servers and internal verbs
    /// have an end of their own.
    HandlesItself,
}

impl Verb {
    pub fn at_signal(&self) -> AtSignal {
        match self {
            Verb::Checkup(_) | Verb::Bench(_) | Verb::Reproduce(_) | Verb::Run(_) | Verb::Serve(_) => {
                AtSignal::HandlesItself
            }
            Verb::Internal(internal) => internal.at_signal(),
            Verb::Scan(_)
            | Verb::Explain { .. }
            | Verb::Top(_)
            | Verb::Verify(_)
            | Verb::How(_)
            | Verb::Switch(_)
            | Verb::Report(_)
            | Verb::Completions { .. }
            | Verb::Man { .. } => AtSignal::Ends,
        }
    }
}

#[derive(Args, Clone, Debug, Default)]
pub struct CheckupOptions {
    /// Time to measure, 20s to 10m
    #[arg(long, value_parser = samehost_model::parse_duration, value_name = "TIME")]
    pub budget: Option<Duration>,
    /// Seed of the order of trials
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Write all reports of the checkup as JSON to this file (`-`: standard output, and nothing else there)
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write all reports of the checkup as one HTML page, which opens offline, to this file
    #[arg(long, value_name = "FILE", value_parser = wrong_use::page_path(), hide = !cfg!(feature = "html"))]
    pub html: Option<PathBuf>,
    /// Show no progress
    #[arg(long, short)]
    pub quiet: bool,
}

/// `bench WORKLOAD`: the workload and its options.
#[derive(Clone)]
pub struct Bench {
    pub workload: &'static dyn Workload,
    pub options: BenchOptions,
    pub parameters: Parameters,
}

impl std::fmt::Debug for Bench {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "bench {} {:?} {:?}", self.workload.name(), self.options, self.parameters)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum UnixOrTcp {
    Unix,
    Tcp,
}

impl UnixOrTcp {
    pub fn name(self) -> &'static str {
        match self {
            UnixOrTcp::Unix => "unix",
            UnixOrTcp::Tcp => "tcp",
        }
    }
}

#[derive(Args, Clone, Debug, Default)]
pub struct BenchOptions {
    /// Transports to compare, the baseline first
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub transports: Vec<Transport>,
    /// Connections open at the same time: 1,64 or a doubling range 1..1024
    #[arg(long, short, value_name = "LIST")]
    pub connections: Option<String>,
    /// Bytes of a message: 128,64k or a doubling range 64..32m
    #[arg(long, value_name = "LIST")]
    pub size: Option<String>,
    /// Open loop: requests due per second (50k), or a part of the baseline's capacity (40%,80%)
    #[arg(long, value_name = "LIST")]
    pub rate: Option<String>,
    /// Open loop at 10, 20, … 110 % of the baseline's capacity: shows where each transport's latency takes off
    #[arg(long, conflicts_with = "rate")]
    pub ladder: bool,
    /// Where client and server run: free, same-core, cross-core [default: one connection to a server of ours: cross-core, a
    /// CPU for each end; else free]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub placement: Vec<Placement>,
    /// Keep idle CPUs from sleeping, for all arms alike, or let them: no [default: yes, where that is possible and
    /// --placement free does not ask for what the scheduler does]
    #[arg(long, value_name = "YES", num_args = 0..=1, require_equals = true, default_missing_value = "yes", value_parser = ["yes", "no"])]
    pub awake: Option<String>,
    /// TCP's congestion controls, at both ends of every connection: cubic, bbr, reno [default: what this machine has]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub congestion: Vec<String>,
    /// Bytes of the socket buffers at both ends, as for SO_SNDBUF: 64k,1m or a doubling range [default: what the kernel
    /// gives]
    #[arg(long, value_name = "LIST")]
    pub socket_buffer: Option<String>,
    /// Client threads that share the connections
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub threads: u32,
    /// A server that already runs, by its URL; two of one server, over TCP and over a Unix socket, are compared
    #[arg(value_name = "URL")]
    pub positional: Vec<String>,
    /// A server that already runs, reached over TCP
    #[arg(long, value_name = "ADDRESS")]
    pub tcp: Option<String>,
    /// A server that already runs, reached over a Unix socket
    #[arg(long, value_name = "ADDRESS")]
    pub unix: Option<String>,
    /// Ask on the terminal for the password of the URLs that have none
    #[arg(long)]
    pub ask_password: bool,
    /// Write to a server that already runs without asking; with =over-limits also where that takes more than a quarter of
    /// what it has left
    #[arg(long, value_name = "WHAT", num_args = 0..=1, require_equals = true, default_missing_value = "shown", value_parser = ["shown", "over-limits"])]
    pub yes: Option<String>,
    /// A command to measure, at least twice: NAME='COMMAND' (the first is the baseline)
    #[arg(long, value_name = "NAME=COMMAND", value_parser = parse_arm)]
    pub arm: Vec<(String, String)>,
    /// Total time for the measurement; a round that has begun is finished
    #[arg(long, short = 'd', visible_alias = "duration", value_parser = samehost_model::parse_duration, value_name = "TIME", help_heading = "How much to measure")]
    pub budget: Option<Duration>,
    /// Differences smaller than this do not matter in practice [default: 2%]
    #[arg(long, value_parser = samehost_model::parse_fraction, value_name = "PART", help_heading = "How much to measure")]
    pub margin: Option<f64>,
    /// Fewest blocks; in each block every arm runs once [default: 10, more for many points]. Of our own tests and chores
    #[arg(long, hide = true, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub min_blocks: Option<u32>,
    /// Most blocks [default: 40]. Of our own tests and chores
    #[arg(long, hide = true, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub max_blocks: Option<u32>,
    /// Length of a trial [default: what fits the budget, 100ms to 1s]
    #[arg(long, value_parser = samehost_model::parse_duration, value_name = "TIME", help_heading = "How much to measure")]
    pub trial_time: Option<Duration>,
    /// Stop each point as soon as its first metric is decided; its time goes to the others
    #[arg(long, help_heading = "How much to measure")]
    pub until_decided: bool,
    /// Do not run the baseline against itself
    #[arg(long, help_heading = "How much to measure")]
    pub no_control: bool,
    /// Seed of the order of trials and of open-loop schedules [default: random, and printed]
    #[arg(long, value_name = "N", help_heading = "How much to measure")]
    pub seed: Option<u64>,
    /// Exit with 1 if the 95 % interval contradicts this, with 5 if it does not decide it: 'unix/tcp throughput >= 1.05' or
    /// 'unix/tcp latency_p50 is faster'; one level: 'unix/tcp/c64 …'
    #[arg(long, value_name = "CLAIM", help_heading = "Output")]
    pub assert: Vec<samehost_analysis::Claim>,
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Number of steps of a ladder, each a tenth of the baseline's capacity.
/// The steps are the baseline's for every transport: the same rates are what makes them comparable. The
/// last one is beyond the capacity that was measured, which is not an upper bound, to show where the
/// latency takes off (docs/method.md §9).
const LADDER_TENTHS: u32 = 11;

fn parse_arm(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, command)) if !name.is_empty() && !command.trim().is_empty() => {
            Ok((name.to_owned(), command.to_owned()))
        }
        _ => Err("write NAME='COMMAND', such as tcp='redis-benchmark -q'".into()),
    }
}

impl BenchOptions {
    /// The requested rates.
    pub fn rates(&self) -> Result<Vec<RateSpec>, samehost_model::QuantityError> {
        if self.ladder {
            return Ok((1..=LADDER_TENTHS)
                .map(|tenth| RateSpec::OfCapacity(f64::from(tenth) / 10.0))
                .collect());
        }
        self.rate.as_deref().map_or(Ok(Vec::new()), samehost_model::parse_rate_list)
    }
}

impl Args for Bench {
    fn augment_args(command: Command) -> Command {
        <Self as Subcommand>::augment_subcommands(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl Subcommand for Bench {
    /// Each workload with some fifty options, which only `bench` and its help need: every other verb starts without.
    fn augment_subcommands(command: Command) -> Command {
        command.defer(|command| {
            WORKLOADS
                .iter()
                .fold(command, |command, workload| command.subcommand(workload_command(*workload)))
        })
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        samehost_bench::workloads::workload(name).is_some()
    }
}

impl FromArgMatches for Bench {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let missing = || clap::Error::new(clap::error::ErrorKind::MissingSubcommand);
        let (name, matches) = matches.subcommand().ok_or_else(missing)?;
        let workload = samehost_bench::workloads::workload(name).ok_or_else(missing)?;
        let parameters = workload.parameters().iter().map(|parameter| {
            // Several values are lines of one text.
            let given: Vec<String> =
                matches.get_many::<String>(parameter.name).into_iter().flatten().cloned().collect();
            (parameter.name.to_owned(), given.join("\n"))
        });
        Ok(Bench {
            workload,
            options: BenchOptions::from_arg_matches(matches)?,
            parameters: parameters.collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// What the help of a workload says of the transport for a client that knows host and port only.
const WAYS_PAST_TCP: &str =
    "Transport past TCP: tcp+run (asked for as TCP, connected over the Unix socket by `samehost run`).\n\n";

/// Subcommand of a workload. Options that it does not support are hidden, and rejected with a reason if given.
fn workload_command(workload: &'static dyn Workload) -> Command {
    let defaults = samehost_bench::workload::defaults(workload);
    let configured = workload.configure(&defaults).expect("the defaults of a workload are valid");
    let axes = configured.axes();
    let ways = if axes.transports.contains(&Transport::TcpRun) { WAYS_PAST_TCP } else { "" };
    let mut command = BenchOptions::augment_args(Command::new(workload.name()))
        .about(workload.description().about)
        .after_help(format!("{ways}Example: samehost bench {}", workload.description().example));
    let of_transports = ["transports", "threads", "placement", "awake", "congestion"];
    let hidden: [(bool, &[&str]); 9] = [
        (axes.connections.is_none(), &["connections"]),
        (axes.sizes.is_none(), &["size"]),
        (!axes.rates, &["rate", "ladder"]),
        (axes.commands, &of_transports),
        (!axes.foreign_servers && !axes.commands, &["positional"]),
        (!axes.foreign_servers, &["tcp", "unix", "ask_password", "yes"]),
        (!axes.commands, &["arm"]),
        (!workload.owns_both_ends(), &["socket_buffer"]),
        (!axes.timed, &["trial_time"]),
    ];
    for (hide, ids) in hidden {
        for id in ids {
            command = command.mut_arg(id, |argument| argument.hide(hide));
        }
    }
    if axes.commands {
        command = command.mut_arg("positional", |argument| {
            argument
                .value_name("COMMAND")
                .help("A command to measure, at least twice; the first is the baseline")
        });
        command = command
            .mut_arg("arm", |argument| argument.help("A command with a name for the report: NAME='COMMAND'"));
    }
    let own = workload.parameters().iter().map(parameter_argument);
    command.next_help_heading("Workload").args(own)
}

fn parameter_argument(parameter: &'static Parameter) -> clap::Arg {
    let argument = clap::Arg::new(parameter.name).long(parameter.name).help(parameter.help);
    let argument = match parameter.kind {
        ParameterKind::Choice(words) => argument.value_parser(PossibleValuesParser::new(words)),
        ParameterKind::Count => {
            argument.value_name("N").value_parser(|text: &str| match text.parse::<u32>() {
                Ok(count) if (1..=1_000_000).contains(&count) => Ok(text.to_owned()),
                _ => Err("a whole number from 1 to 1000000 is needed".to_owned()),
            })
        }
        ParameterKind::Counts | ParameterKind::Choices(_) => {
            argument.value_name("LIST").value_parser(move |text: &str| {
                parameter_values(parameter.kind, text).transpose().map(|_| text.to_owned())
            })
        }
        ParameterKind::Duration => argument
            .value_name("TIME")
            .value_parser(|text: &str| samehost_model::parse_duration(text).map(|_| text.to_owned())),
        ParameterKind::Text => argument.value_name("TEXT"),
        ParameterKind::Texts => argument.value_name("TEXT").action(clap::ArgAction::Append),
    };
    if parameter.default.is_empty() { argument } else { argument.default_value(parameter.default) }
}

/// Verbs that the first list of help leaves out: few need them, and everybody reads that list. Who knows one finds it in the manual
/// page and by completion.
const UNLISTED: [&str; 2] = ["serve", "man"];

/// The command line as manual pages and completions have it.
pub fn with_unlisted_verbs() -> Command {
    let shown = |command: Command, name| command.mut_subcommand(name, |verb| verb.hide(false));
    UNLISTED.into_iter().fold(Cli::command(), shown)
}

/// Letters that may differ for each that stands for a typing error.
const LETTERS_TO_AN_ERROR: usize = 4;

/// Verbs that people type, and what does that here.
const ELSEWHERE: [(&str, &str); 7] = [
    ("undo", "samehost switch undo"),
    ("rollback", "samehost switch undo"),
    ("confirm", "samehost switch confirm"),
    ("recover", "samehost switch recover"),
    ("finish", "samehost switch finish"),
    ("check", "samehost switch check"),
    ("list", "samehost switch list, samehost report list"),
];

/// Reads the command line.
///
/// # Errors
/// Those of clap: wrong use, and help.
pub fn parse(words: Vec<std::ffi::OsString>) -> Result<Cli, clap::Error> {
    #[cfg(feature = "switch")]
    let words = {
        let (words, instead) = old_words::in_new_words(words);
        if let Some(instead) = instead {
            crate::output::complain(&format!("`switch` has subcommands now, and this is: {instead}"));
        }
        words
    };
    let words = gone::with_new_words(words);
    let verb = words.get(1).map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    Cli::try_parse_from(words).map_err(|error| understood(error, &verb))
}

/// What the parser did not understand, for whoever typed it: what to use for something that went, and else no tip that is far from
/// what was typed.
fn understood(error: clap::Error, verb: &str) -> clap::Error {
    gone::instead(&error, verb).unwrap_or_else(|| only_near(error))
}

/// The same error without a tip that is far from what was typed.
fn only_near(mut error: clap::Error) -> clap::Error {
    for (typed, tip) in [
        (ContextKind::InvalidArg, ContextKind::SuggestedArg),
        (ContextKind::InvalidSubcommand, ContextKind::SuggestedSubcommand),
    ] {
        let (Some(word), Some(suggested)) = (text(&error, typed), text(&error, tip)) else { continue };
        if !is_near(&word, &suggested) {
            error.remove(tip);
            // The usage line was made from the tip: `samehost bench raw --rate <LIST> …`.
            error.remove(ContextKind::Usage);
        }
    }
    let verb = text(&error, ContextKind::InvalidSubcommand);
    if let Some((_, instead)) = ELSEWHERE.iter().find(|(word, _)| verb.as_deref() == Some(*word)) {
        let line = StyledStr::from(format!("to do that: {instead}"));
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![line]));
    }
    error
}

/// Whether a typing error, or a beginning, leads from one word to the other.
fn is_near(typed: &str, suggested: &str) -> bool {
    let bare = |word: &str| {
        let word = word.trim_start_matches('-');
        word.split(['=', ' ']).next().unwrap_or_default().to_owned()
    };
    let (typed, suggested) = (bare(typed), bare(suggested));
    let errors = strsim::damerau_levenshtein(&typed, &suggested);
    let is_beginning = typed.len() >= 3 && suggested.starts_with(&typed);
    is_beginning || errors <= (typed.chars().count() / LETTERS_TO_AN_ERROR).max(1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Verbs that help lists, and distinct long options of all verbs: each is paid for by everybody who reads on. One more needs
    /// a commit that says why it is worth that.
    const MAX_VERBS: usize = 12;
    const MAX_OPTIONS: usize = 101;

    fn collect<'a>(command: &'a Command, options: &mut BTreeSet<&'a str>) {
        for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
            options.extend(argument.get_long());
        }
        for verb in command.get_subcommands() {
            collect(verb, options);
        }
    }

    #[test]
    fn verbs_and_options_do_not_grow() {
        let mut command = Cli::command();
        // Workloads are deferred.
        command.build();
        let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help");
        let verbs = verbs.count();
        let mut options = BTreeSet::new();
        collect(&command, &mut options);
        assert!(verbs <= MAX_VERBS, "{verbs} verbs");
        assert!(options.len() <= MAX_OPTIONS, "{} options: {options:?}", options.len());
    }

    #[test]
    fn typing_errors_are_near_and_other_words_are_not() {
        for (typed, near) in [
            ("--conections", "--connections"),
            ("--obsreve", "--observe"),
            ("swich", "switch"),
            ("--conn", "--connections"),
        ] {
            assert!(is_near(typed, near), "{typed}");
        }
        for (typed, far) in
            [("--list", "--client"), ("--port", "--prometheus"), ("--duration=9s", "--rate"), ("undo", "run")]
        {
            assert!(!is_near(typed, far), "{typed}");
        }
    }
}
