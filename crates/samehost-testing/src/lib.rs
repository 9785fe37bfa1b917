//! What the tests of several crates share. No part of the program depends on it.

mod command;
mod input;
pub mod mariadb;
pub mod postgres;

use std::path::{Path, PathBuf};

pub use command::{
    Ended, Noise, TINY, UNTIMED, copy_program, files, free_port, idle_or_failing, install_wordpress, metered,
    must, on_a_terminal, redis_server, samehost, slow_down, wait_for,
};
pub use input::{DESTINATIONS, NO_DESTINATIONS, assert_leads_everywhere, bent, random};

/// The newest PHP-FPM that is installed.
///
/// # Panics
/// Where none is.
#[must_use]
pub fn php_fpm() -> PathBuf {
    let found = std::fs::read_dir("/usr/sbin").into_iter().flatten().flatten();
    found
        .filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"php-fpm"))
        .map(|entry| entry.path())
        .max()
        .expect("PHP-FPM must be installed: cargo xtask test")
}

/// Where a checkup stores its prices, in the state directory.
const PRICES: &str = "samehost/prices.json";

/// Stores what a checkup with this kernel would have found out of a request and of a connection.
///
/// # Panics
/// Where the directory cannot be written.
pub fn store_prices(state: &Path, kernel: &str) {
    let price =
        serde_json::json!({ "cpu_us": { "low": 2.0, "high": 6.0 }, "us": { "low": 3.0, "high": 5.0 } });
    let prices = serde_json::json!({
        "schema": "samehost.prices/1", "at": "2026-11-28 14:03 UTC", "kernel": kernel, "request": price, "connection": price,
    });
    let path = state.join(PRICES);
    std::fs::create_dir_all(path.parent().expect("a directory")).expect("the state directory");
    std::fs::write(path, prices.to_string()).expect("the prices");
}

/// Release of the kernel that runs.
#[must_use]
pub fn kernel() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}
