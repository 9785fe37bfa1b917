//! Options of the verbs on stored results: report, compare, history.

use std::path::PathBuf;

use clap::Args;

use super::parse_claim;
use crate::output::OutputOptions;

#[derive(Args, Clone, Debug)]
pub struct ReportOptions {
    /// Stored results: reports (--json) or samples files; the newest samples file by default
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Exit with 1 unless this holds
    #[arg(long, value_name = "CLAIM", value_parser = parse_claim)]
    pub assert: Vec<samehost_analysis::Claim>,
    #[command(flatten)]
    pub output: OutputOptions,
}

#[derive(Args, Clone, Debug)]
pub struct CompareOptions {
    /// The earlier result
    pub old: PathBuf,
    /// The later result
    pub new: PathBuf,
    /// Exit with 1 when any metric of any arm became slower
    #[arg(long)]
    pub fail_on_slower: bool,
    /// Write the changes as JSON to this file (`-`: standard output, and nothing else there)
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
pub struct HistoryOptions {
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
