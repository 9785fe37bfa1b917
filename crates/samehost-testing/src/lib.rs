//! What the tests of several crates share. No part of the program depends on it.

mod command;
mod input;
pub mod mariadb;
pub mod postgres;

pub use command::{
    Ended, Noise, TINY, UNTIMED, copy_program, files, free_port, idle_or_failing, install_wordpress, metered,
    must, on_a_terminal, redis_server, samehost, slow_down, wait_for,
};
pub use input::{DESTINATIONS, NO_DESTINATIONS, assert_leads_everywhere, bent, random};
