//! One scan beside another, and beside what is expected.

pub(crate) mod changes;
pub(crate) mod expectation;
pub(crate) mod inventory;
