//! One folder or file for each format.

pub(crate) mod apache;
pub(crate) mod caddy;
pub(crate) mod compose;
pub(crate) mod database_yml;
pub(crate) mod django;
pub(crate) mod dotenv;
pub(crate) mod drupal;
pub(crate) mod haproxy;
mod image;
pub(crate) mod kubernetes;
pub(crate) mod memcached;
pub(crate) mod my_cnf;
pub(crate) mod nginx;
pub(crate) mod pg_hba;
pub(crate) mod pgbouncer;
pub(crate) mod php_applications;
pub mod php_fpm;
pub mod php_ini;
pub(crate) mod postgresql;
pub(crate) mod quadlet;
pub(crate) mod redis;
pub mod systemd;
pub(crate) mod thin_yml;
pub(crate) mod wp_config;
