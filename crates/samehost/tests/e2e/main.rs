//! End to end, over the built binary: real sockets, real servers, real signals.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod advice;
mod attribution;
mod bad_input;
mod bench;
mod clients;
mod command;
mod containers;
mod crowd;
mod current;
mod docs;
mod endings;
mod exchanges;
mod findings;
mod honesty;
mod html;
mod log_in_as;
mod metrics;
mod names;
mod prune;
mod registry;
mod reproduce;
mod run;
mod scan;
mod schemas;
mod serve;
mod shares;
mod slices;
mod stacks;
mod stored;
mod support;
mod switch;
mod top;
mod unseen;
mod verify;
mod workloads;
