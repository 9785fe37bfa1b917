//! What a report of a measurement says, piece by piece: head, answer, tables, plots, conditions, warnings.

pub(crate) mod answer;
pub(crate) mod conditions;
pub(crate) mod effects;
pub(crate) mod figures;
pub(crate) mod head;
pub(crate) mod ladder;
pub(crate) mod notes;
pub(crate) mod plots;
pub(crate) mod predictions;
#[cfg(feature = "html")]
pub(crate) mod question;
pub(crate) mod view;
pub(crate) mod words;
