//! Verdicts, bars and comparisons of reports, on reports made by hand.

mod analysing;
mod comparing;
mod doubting;
mod independent;
mod made;
mod predicting;
