//! What was found, and what follows from it. Where there is little room the fact stands alone.

use std::fmt;

use serde::{Serialize, Serializer};

/// A fact, and what follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// What was found, and where.
    pub fact: String,
    /// What follows; `None` where the fact says it.
    pub follows: Option<String>,
}

impl Found {
    /// A fact with what follows from it.
    #[must_use]
    pub fn with(fact: impl Into<String>, follows: impl Into<String>) -> Self {
        Found { fact: fact.into(), follows: Some(follows.into()) }
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.follows {
            Some(follows) => write!(f, "{}; {follows}", self.fact),
            None => f.write_str(&self.fact),
        }
    }
}

impl From<String> for Found {
    fn from(fact: String) -> Self {
        Found { fact, follows: None }
    }
}

impl From<&str> for Found {
    fn from(fact: &str) -> Self {
        fact.to_owned().into()
    }
}

/// In JSON it is one sentence.
impl Serialize for Found {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
