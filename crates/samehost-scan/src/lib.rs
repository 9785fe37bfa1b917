//! Finds services, clients and every connection between them on this machine, from the kernel's socket listing
//! (sock_diag) and /proc, with advice on each pair that talks over TCP. Does not parse other tools' output.
//! Connects to a service only to verify it or, on request, to probe it. Changes nothing and prints nothing.

mod advice;
mod filter;
mod greet;
mod history;
mod how;
mod listing;
mod target;
mod traffic;
mod verify;

pub use advice::findings::findings;
pub use advice::{
    BLOCKERS, Blocker, DecidedBy, EXPLANATIONS, UnsafeSocket, Unserved, address_lost, advise, decided_by,
    explanation, obstacles, rule_of_socket, service_at, services_at, socket_of,
};
pub use filter::Filter;
pub use greet::greet;

pub use history::expectation::{Expectation, ExpectationError, Held};
pub use history::inventory::{InventoryError, inventory, read_inventory};
pub use history::{changes, is_same_hop};
pub use how::{ContainersFor, HowError, Question, UrlParts, containers, how, questions, services};
pub use listing::collect::{ScanError, Unreachable, collect, unreachable};
pub use listing::datagrams::dropped;
pub use listing::trust::{
    Trusted, accounts_of, described, expected, expected_of, holders_of, plausible, users,
};
pub use samehost_system::diag::Counters;
pub use target::{Target, TargetError, endpoints_of};
pub use traffic::catch::talkers;
pub use traffic::exchanges::{Timed, are_too_many_lost, no_time, parts};
pub use traffic::held_back::{HeldBack, Sender, held_back};
pub use traffic::observe::{Observer, observe};
pub use traffic::own_times::{OwnLook, OwnPair, Stamps, look_at_own_times, p99_us};
pub use traffic::predict::{Costs, Measured, Shape, predict, predict_one, shape};
pub use verify::{VerifyError, expect, verify};

pub(crate) use samehost_system::{diag, namespaces, proc, proc::process};
