//! `samehost switch` on real stacks, end to end: nginx, PHP-FPM, MariaDB, WordPress, Thin, Redis, started privately with
//! configurations of their own that are then switched, and put back.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../databases/wordpress.rs"]
mod installer;
#[path = "../databases/mariadb.rs"]
mod mariadb;
mod stack;

mod faults;
mod laravel;
mod nginx_fpm;
mod redis;
mod refusals;
mod thin;
mod wordpress;
