//! Changes configurations: which connections a file names, and the file with other endpoints in it, byte-exact outside
//! of what is changed. The only crate that writes to users' files; what it does not understand it refuses.

pub mod editors;
pub mod transaction;

mod carry_out;
mod check;
mod drift;
mod edit;
mod files;
mod foretold;
mod glob;
mod goal;
mod plan;
mod preflight;
mod program;
mod proposal;
mod redacted;
mod refusal;
mod reload;
mod setting;
mod told;

pub use carry_out::{Around, Confirm, Page, carry_out, left};
pub use check::{Check, Program};
pub use drift::{Held, drift};
pub use edit::{Edit, EditError, apply};
pub use editors::{EDITORS, Editor, editor, recognise};
pub use files::{Disk, Files, Overlay, Reads};
pub use foretold::foretold;
pub use goal::{Access, Goal};
pub use plan::{
    Direction, FinishError, Plan, SubjectError, Wish, clients, configurations, finishing, plan, refused_since,
};
pub use proposal::{Move, Proposal, ProposalError, propose};
pub use refusal::Refusal;
pub use reload::{ReloadWords, reload};
pub use setting::{Reading, Role, Setting, Uptake};
