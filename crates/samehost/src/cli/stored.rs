//! Options of the verbs on stored results: report, compare, history, prune.

use std::path::PathBuf;

use clap::Args;
use jiff::SignedDuration;

use super::parse_claim;
use crate::left_out::page_path;
use crate::output::OutputOptions;
use crate::since;

#[derive(Args, Clone, Debug)]
pub struct ReportOptions {
    /// Stored results: reports (--json) or samples files; the newest samples file by default
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Exit with 1 if the 95 % interval contradicts this, with 5 if it does not decide it
    #[arg(long, value_name = "CLAIM", value_parser = parse_claim)]
    pub assert: Vec<samehost_analysis::Claim>,
    #[command(flatten)]
    pub output: OutputOptions,
}

#[derive(Args, Clone, Debug)]
pub struct CompareOptions {
    /// The earlier result; alone, a folder with reports of many hosts, or `-`: one in each line
    pub old: PathBuf,
    /// The later result
    pub new: Option<PathBuf>,
    /// Exit with 1 when any metric of any arm became slower, or a host is slower than those like it
    #[arg(long)]
    pub fail_on_slower: bool,
    /// Write the changes as JSON to this file (`-`: standard output, and nothing else there)
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the comparison of many hosts as one HTML page with charts, which opens offline, to this file
    #[arg(long, value_name = "FILE", value_parser = page_path(), hide = !cfg!(feature = "html"))]
    pub html: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
pub struct HistoryOptions {
    /// Stored results: reports (--json) or samples files; all stored samples files by default. Alone, a folder with reports
    /// of many hosts, or `-`: one in each line
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// The scans that scan --save kept, each with what changed since the one before
    #[arg(long, conflicts_with_all = ["files", "fail_on_slower"])]
    pub scans: bool,
    /// Exit with 1 when any metric of any arm became slower from one run to the next, or a host's newest run is slower than
    /// its earlier ones
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

fn parse_age(text: &str) -> Result<SignedDuration, String> {
    since::length(text).ok_or_else(|| "write a length of time: 30d, 2w or 12h".into())
}
