//! The workloads there are: one folder and one line each.

mod awaited;
mod command;
mod connect;
mod connecting;
mod expected;
mod fastcgi;
mod foreign;
pub(crate) mod http;
pub(crate) mod memcached;
pub(crate) mod mysql;
pub(crate) mod noop;
mod postgres;
mod proxy;
mod raw;
pub(crate) mod redis;
mod requests;
mod rpc;
mod wordpress;

use crate::workload::Workload;

pub use foreign::with_password;
pub use http::PageLook;

/// Every workload, in the order in which help lists them.
pub static WORKLOADS: &[&dyn Workload] = &[
    &raw::Raw,
    &connect::Connect,
    &fastcgi::FastCgi,
    &http::Http,
    &wordpress::WordPress,
    &mysql::MySql,
    &postgres::Postgres,
    &redis::Redis,
    &memcached::Memcached,
    &proxy::Proxy,
    &rpc::Rpc,
    &command::Command,
    &noop::Noop,
];

/// The workload of this name.
#[must_use]
pub fn workload(name: &str) -> Option<&'static dyn Workload> {
    WORKLOADS.iter().copied().find(|workload| workload.name() == name)
}
