//! `samehost switch` on real stacks, end to end: nginx, Apache, PHP-FPM, MariaDB, WordPress, uvicorn, Redis, PgBouncer, started
//! privately with configurations of their own that are then switched, and put back.

mod apache;
mod asked;
mod caddy;
mod companions;
mod containers;
mod faults;
mod followers;
mod foreseen;
mod haproxy;
mod in_use;
mod laravel;
mod many_sites;
mod nginx_fpm;
mod own_times;
mod page_times;
mod pgbouncer;
mod redis;
mod refusals;
mod sessions;
mod shared_pool;
mod silence;
mod spoken;
pub(crate) mod stack;
mod uvicorn;
mod uwsgi;
mod wordpress;
