//! Transactions over users' files. A transaction is checked, backed up and journalled before it touches the first file.
//! Each file is written whole or not at all, and can be put back exactly. The crate knows no formats and runs no
//! programs; the caller reloads, by callback.
//!
//! A switch is in one of three states. Its journal says which: each record is on the disk before the action that it
//! announces. While a switch is *in progress*, its files may have either version. Every version that may be needed, new
//! and old, was written beside its file before the first file was touched, so that going forward and back only renames,
//! which needs neither space nor permissions. After everything was found to serve, the switch is *verified*. Only this
//! record turns a crash from "put back" into "complete". Then the switch is *finalized*: committed, awaiting a
//! confirmation without which it is put back, rolled back, or undone. The backups in the store stay until the switch is
//! forgotten.
//!
//! ```text
//! in progress                                                │ finalized
//!                                                            │
//!   begin      write          reloading       verified       │ commit
//! ───────► Begun ─────► Writing n ─────► Reloading n ─────► Verified ──┬──► Committed ─────────────┐
//!            │            │   ▲              │   │           │   │     │                           │
//!            │            │   └── next stage ┘   │           │   │     └──► Awaiting ──► Confirmed ┤
//!            │            │                      │           │   │              │  confirm         │
//!            └────────────┴──────────┬───────────┴───────────┼───┘    take_back │                  │ undo
//!                      roll_back     ▼                       │                  ▼                  │
//!                              RollingBack ──► RolledBack    │ Undone ◄────── Undoing ◄────────────┘
//! ```
//!
//! What a kill does, by the last whole record of the journal, and what `recover` does then:
//!
//! - none, or a torn first line: backups at most; no file was touched. The switch is forgotten.
//! - `Begun`: prepared versions lie beside the files. They are removed.
//! - `Writing n`: each file of stages up to `n` has its version before or after, never a part of one. All are put back, the
//!   last stage first.
//! - `Reloading n`: as before, and programs may run with the new files: the reloads of these stages are done again after
//!   their files are back.
//! - `Verified`: every file is in place. The prepared versions are removed, and the switch is committed, or awaits its
//!   confirmation.
//! - `RollingBack`, `Undoing`: some files are back. The rest follow; those that are back are recognised by their hash.
//! - `Committed`, `Confirmed`, `Awaiting`, `RolledBack`, `Undone`: it had ended. Nothing is done.
//!
//! A file that is not a version of the switch is somebody else's work. It is left as it is, and reported.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod error;
mod foresee;
mod intent;
mod journal;
mod limit;
mod lock;
mod metadata;
mod paths;
mod put_back;
mod replace;
mod room;
mod settled;
mod state;
mod store;
mod system;
mod transaction;
mod undo;
mod version;
mod writer;

pub use error::{Holder, TransactionError};
pub use foresee::{Foreseen, Outlook, Prospect, foresee_recovery, foresee_undo};
pub use intent::{FileChange, Intent, Reload, ReloadError, Reloader, Stage};
pub use limit::files_may_be;
pub use paths::resolve;
pub use put_back::{Ending, NotPutBack, Recovered, RolledBack, recover};
pub use settled::{Settled, SettledFile, Standing, Version, listed, settled, standing};
pub use state::State;
pub use store::{Entry, Store, WayBack};
#[doc(hidden)]
pub use system::fault;
pub use transaction::{Transaction, may_begin};
pub use undo::{confirm, forget, may_be_confirmed, may_be_forgotten, take_back, undo};
