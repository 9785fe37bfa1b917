//! Options of `reproduce`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::left_out::page_path;

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
    /// Measure again what an earlier call that did not come to its end has measured
    #[arg(long)]
    pub fresh: bool,
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
