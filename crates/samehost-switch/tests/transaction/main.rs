//! The transaction over users' files, on the real file system, with real kills.

#[cfg(debug_assertions)]
mod faults;
mod kept;
mod others;
mod properties;
mod refused;
mod scene;
mod story;
