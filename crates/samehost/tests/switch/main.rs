//! `samehost switch` on real stacks, end to end: nginx, PHP-FPM, MariaDB, WordPress, Thin, Redis, started privately with
//! configurations of their own that are then switched, and put back.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../databases/mariadb.rs"]
mod mariadb;
mod stack;

mod nginx_fpm;
mod refusals;
mod wordpress;
