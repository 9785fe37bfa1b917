//! Verdicts, bars and comparisons of reports, on reports made by hand.

mod analysing;
mod comparing;
mod independent;
mod issues;
mod made;
mod predicting;
mod stored;
