//! Wrong use or bad input.

/// Invalid usage or input: exit status 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WrongUse(pub String);
