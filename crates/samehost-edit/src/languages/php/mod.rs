//! PHP for the editors of PHP files: determines which constants and variables a file sets, without running it. What
//! cannot be known here (an environment variable, a function's result) is a value that says where and why. Reads only.

mod calls;
mod expressions;
mod literal;
mod opaque;
mod run;
mod source;
mod statements;
mod strings;
mod uses;
mod value;

pub(crate) use literal::{content, encode};
pub(crate) use run::{Outcome, Setup, execute};
pub(crate) use source::{Source, children};
pub(crate) use uses::{constant_used, once, variable_used};
pub(crate) use value::{Constant, Entry, Item, Place, Quoting, Trouble, Value, Valued};
