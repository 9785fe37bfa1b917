//! The transaction over users' files, on the real file system, with real kills.

mod faults;
mod scene;
mod story;
