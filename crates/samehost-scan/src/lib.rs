//! Finds services, clients and every connection between them on this machine, from the kernel's socket listing
//! (sock_diag) and /proc, with advice on each pair that talks over TCP. Does not parse other tools' output.
//! Connects to a service only to verify it. Changes nothing and prints nothing.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod advice;
mod clients;
mod expectation;
mod explain;
mod filter;
mod how;
mod inventory;
mod listing;
mod started_with;
mod target;
mod traffic;
mod verify;

pub use advice::findings::findings;
pub use advice::{
    BLOCKERS, Blocker, DecidedBy, UnsafeSocket, Unserved, address_lost, advise, decided_by, obstacles,
    proposed_for, rule_of_socket, service_at, services_at, socket_of, without_socket,
};
pub use clients::clients_of;
pub use expectation::{Expectation, ExpectationError, Held};
pub use explain::{EXPLANATIONS, at_place, explained};
pub use filter::Filter;

pub use how::{ContainersFor, HowError, Question, UrlParts, containers, how, questions, services};
pub use inventory::inventory;
pub use listing::collect::{ScanError, Unreachable, collect, collect_seeing, saw_processes, unreachable};
pub use listing::datagrams::dropped;
pub use listing::trust::{
    Trusted, accounts_of, described, expected, expected_of, holders_of, plausible, users,
};
pub use samehost_system::diag::Counters;
pub use started_with::{reader_of, started_with};
pub use target::{Target, TargetError, endpoint_of, endpoints_of, services_called};
pub use traffic::catch::talkers;
pub use traffic::exchanges::{Timed, are_too_many_lost, no_time, parts, refusal_of_bpf};
pub use traffic::held_back::{HeldBack, Sender, held_back};
pub use traffic::observe::{Observer, observe};
pub use traffic::own_times::{OwnLook, OwnPair, Stamps, look_at_own_times, p99_us};
pub use traffic::predict::{Measured, PriceFor, predict, price};
pub use verify::{VerifyError, verify};

pub(crate) use samehost_system::{diag, namespaces, proc, proc::process};
