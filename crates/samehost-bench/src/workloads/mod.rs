//! The list of workloads: one folder and one line each. To add a workload, start reading at `redis`.

mod command;
mod connect;
mod fastcgi;
mod foreign;
pub(crate) mod http;
pub(crate) mod memcached;
pub(crate) mod mysql;
mod postgres;
mod proxy;
mod raw;
pub(crate) mod redis;
mod requests;
mod rpc;
mod wordpress;

use crate::workload::Workload;

pub use http::{PageLook, Untimed};

/// All workloads, in the order of the help.
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
];

#[must_use]
pub fn workload(name: &str) -> Option<&'static dyn Workload> {
    WORKLOADS.iter().copied().find(|workload| workload.name() == name)
}
