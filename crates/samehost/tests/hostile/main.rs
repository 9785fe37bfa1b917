//! Hostile neighbours: what another user of the machine, a tenant or a container can do to root who runs samehost, tried
//! for real, and what comes of it. Every case is an attack by a real process of a real unprivileged user; those that this
//! kernel cannot show are held against recorded texts and say so in their names.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod answers;
mod benches;
mod bombs;
mod causes;
mod checks;
mod claims;
mod doors;
mod dry_runs;
mod ends;
mod half_back;
mod history;
mod host;
mod identity;
mod journal;
mod left_behind;
mod login;
mod names;
mod neighbours;
mod no_room;
mod opening;
mod own_processes;
mod reading;
mod reloads;
mod resets;
mod rights;
mod run;
mod secrets;
mod serving;
mod stays;
mod stored_ends;
mod support;
mod threads;
mod told;
mod unreaped;
mod vouching;
mod way_back;
