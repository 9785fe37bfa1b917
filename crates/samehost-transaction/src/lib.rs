//! A transaction over users' files: checked, backed up and journalled before the first of them is touched; each written
//! whole or not at all; put back exactly. It knows no formats and runs no programs: the caller reloads, by callback.
//!
//! A switch is in one of three states, and its journal, of which each record is on the disk before what it announces is
//! done, says in which. While it is *in progress*, its files may be of either side. Every version that it may need, new
//! and old, was written beside its file before the first was touched, so that forward and back are renames, which need
//! neither room nor permissions. When all was found to serve, it is *verified*, which is the only record that turns a
//! crash from "put back" into "complete". Then it is *finalized*: committed, or awaiting a confirmation without which it
//! is taken back, or rolled back, or undone. The backups in the store stay until they are forgotten.
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
//! A file that is none of the switch's versions is somebody else's work: it is left as it is, and named.

mod active;
mod begin;
mod confirm;
mod directory;
mod entry;
mod error;
mod examine;
#[doc(hidden)]
pub mod fault;
mod foresee;
mod forget;
mod intent;
mod journal;
mod lock;
mod locked_directories;
mod metadata;
mod plan;
mod prepared_name;
mod put_back;
mod reading;
mod record;
mod recover;
mod resolve;
mod standing;
mod state;
mod store;
mod system;
mod undo;
mod version;
mod writer;

pub use active::Transaction;
pub use confirm::confirm;
pub use entry::Entry;
pub use error::{Holder, TransactionError};
pub use foresee::{Foreseen, Outlook, Prospect, foresee_recovery, foresee_undo};
pub use forget::forget;
pub use intent::{FileChange, Intent, Reload, Stage};
pub use put_back::{Failed, RolledBack, Skipped};
pub use recover::{Ending, Recovered, recover};
pub use resolve::resolve;
pub use standing::{Standing, Stands, standing};
pub use state::State;
pub use store::Store;
pub use undo::{take_back, undo};
