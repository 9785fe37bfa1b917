//! Verbs that samehost starts itself with: hidden, and without any promise to stay.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use samehost_bench::private_servers::Account;
use samehost_model::Endpoint;

use super::AtSignal;
#[cfg(feature = "switch")]
use super::WatchSwitchOptions;

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
    SendsAtOnce(SendsAtOnceOptions),
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
            | Internal::LogInAs => AtSignal::HandlesItself,
            Internal::SendsAtOnce(_) | Internal::HandOver { .. } => AtSignal::Ends,
            #[cfg(feature = "switch")]
            Internal::WatchSwitch(_) => AtSignal::Ends,
        }
    }
}

#[derive(Args, Clone, Debug)]
pub struct SendsAtOnceOptions {
    /// Process and inode of each socket
    pub sockets: Vec<u64>,
}

#[derive(Args, Clone, Debug)]
pub struct SuperviseOptions {
    #[arg(long)]
    pub account: Option<Account>,
    #[arg(long)]
    pub at_once: bool,
    pub directory: PathBuf,
    #[arg(last = true, required = true)]
    pub command: Vec<String>,
}

#[derive(Args, Clone, Debug)]
pub struct BecomeServerOptions {
    #[arg(long)]
    pub account: Option<Account>,
    pub parent: u32,
    #[arg(last = true, required = true)]
    pub command: Vec<String>,
}
