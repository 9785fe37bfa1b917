//! What a verb besides `bench` prints: a file for each.

pub(crate) mod checkup;
pub(crate) mod exchanges;
pub(crate) mod explanation;
pub(crate) mod history;
pub(crate) mod how;
pub(crate) mod reproduction;
pub(crate) mod savings;
pub(crate) mod scan;
pub(crate) mod switch;
pub(crate) mod top;
pub(crate) mod unexpected;
pub(crate) mod verification;
