//! Each workload of `samehost bench`, and the checkup, with its real server, in tiny measurements.

mod application_sockets;
mod checkup;
mod congestion;
mod containers;
mod fastcgi;
mod fronts;
mod http;
mod memcached;
mod mysql;
mod php_fpm;
mod pm2;
mod pooler;
mod postgres;
mod proxy;
mod redis;
mod rpc;
mod supervised;
pub(crate) mod support;
mod wordpress;

pub(crate) use support::{Server, path_to_newest};
