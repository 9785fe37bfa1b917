//! What the tests of several crates share. No part of the program depends on it.

mod bend;
mod command;
mod destinations;
pub mod mariadb;
pub mod postgres;
mod report;
pub mod wordpress;

pub use bend::{bent, random};
pub use command::{
    Ended, TINY, UNTIMED, copy_program, files, free_port, must, on_a_terminal, redis_server, samehost,
    wait_for,
};
pub use destinations::{DESTINATIONS, NO_DESTINATIONS, assert_leads_everywhere};
pub use report::{Noise, idle_or_failing, metered, slow_down};
