//! Hostile neighbours: what another user of the machine, a tenant or a container can do to root who runs samehost, tried
//! for real, and what comes of it. Every case is an attack by a real process of a real unprivileged user; those that this
//! kernel cannot show are held against recorded texts and say so in their names.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod answers;
mod benches;
mod checks;
mod ends;
mod history;
mod host;
mod identity;
mod journal;
mod login;
mod neighbours;
mod opening;
mod plugin;
mod reading;
mod rights;
mod run;
mod secrets;
mod serving;
mod support;
