//! What the tests of several crates share. No part of the program depends on it.

mod bend;
mod command;
mod destinations;
mod files;
pub mod mariadb;
mod noise;
pub mod postgres;
mod report;
pub mod wordpress;

pub use bend::{bent, random};
pub use command::{Ended, TINY, UNTIMED, free_port, must, on_a_terminal, redis_server, samehost, wait_for};
pub use destinations::{DESTINATIONS, NO_DESTINATIONS, assert_leads_everywhere};
pub use files::{copy_program, files};
pub use noise::{Noise, slow_down};
pub use report::{idle_or_failing, metered};
