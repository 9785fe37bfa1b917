//! The transaction over users' files, on the real file system, with real kills.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

#[cfg(debug_assertions)]
mod faults;
mod journals;
mod kept;
mod others;
mod properties;
mod refused;
mod scene;
mod story;
