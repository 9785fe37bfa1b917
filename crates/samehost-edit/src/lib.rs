//! Editors of configurations. An editor finds the connections that a file names, and changes their endpoints; all other
//! bytes stay. It refuses what it does not understand. Pure: files are read through [`Files`], and nothing is written
//! or started here.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod ask;
mod asked;
mod budget;
mod editor;
mod files;
pub mod formats;
/// Languages that several formats use.
mod languages {
    pub(crate) mod php;
    pub(crate) mod php_ini;
    pub(crate) mod syntax;
    pub(crate) mod url;
    pub(crate) mod yaml;
}
mod leads;
mod lines;
mod proposal;
mod refusal;
mod setting;
mod spelling;

pub use crate::editor::{Arguments, Check, OfService, Program};
pub use crate::files::{Edit, EditError, apply};
pub use asked::{LIBPQ_WORDS, Library, OverSocket, Word, parameter};
pub use budget::{Metered, once_in_a_run, run as within_budget};
pub use editor::Editor;
pub use files::{Files, Overlay, glob};
pub use formats::{EDITORS, by_hand, editor, recognise};
pub use leads::{Lead, LeadForm, databases_in, leads, leads_among};
pub use proposal::{Move, Proposal, ProposalError, propose};
pub use refusal::{OF_UNKNOWN_SERVER, Reason, Refusal};
pub use setting::{Access, Goal, Reading, Role, Setting, Uptake};
