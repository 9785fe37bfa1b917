//! Languages that several formats are written in.

pub(crate) mod erb;
pub(crate) mod php;
pub(crate) mod url;
pub(crate) mod yaml;
