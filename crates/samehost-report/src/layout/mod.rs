//! Lines, tables and an axis in character columns, whatever they are about.

pub(crate) mod grid;
pub(crate) mod text;
