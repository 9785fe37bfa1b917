//! The transaction over users' files, on the real file system, with real kills.

#[cfg(debug_assertions)]
mod faults;
mod scene;
mod story;
