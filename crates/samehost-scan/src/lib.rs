//! Finds services, clients and every connection between them on this machine, from the kernel's socket listing
//! (sock_diag) and /proc, with advice on each pair that talks over TCP. Does not parse other tools' output.
//! Connects to a service only to verify it or, on request, to probe it. Changes nothing and prints nothing.

mod advice;
mod booking;
mod catch;
mod changes;
mod collect;
mod congestion;
mod datagrams;
mod ended;
mod expectation;
mod explain;
mod filter;
mod findings;
mod greet;
mod held_back;
mod how;
mod inventory;
mod join;
mod observe;
mod predict;
mod published;
mod recognise;
mod service;
mod talk;
mod target;
mod trust;
mod unheld;
mod unreachable;
mod verify;

pub use advice::{
    BLOCKERS, Blocker, DecidedBy, Identity, UnsafeSocket, Unserved, address_lost, advise, decided_by,
    identity, obstacles, rule_of_socket, service_at, services_at, socket_of,
};
pub use changes::{changes, is_same_hop};
pub use collect::ScanError;
pub use collect::collect;
pub use datagrams::dropped;
pub use expectation::{Expectation, ExpectationError, Held};
pub use explain::{EXPLANATIONS, explanation};
pub use filter::Filter;
pub use findings::findings;
pub use greet::greet;
pub use held_back::{HeldBack, Sender, held_back};
pub use how::{ContainersFor, HowError, Question, UrlParts, containers, how, questions, services};
pub use inventory::{InventoryError, inventory, read_inventory};
pub use observe::{Observer, observe};
pub use predict::{Costs, Measured, predict, predict_one};
pub use predict::{Shape, shape};
pub use samehost_system::diag::Counters;
pub use talk::talkers;
pub use target::endpoints_of;
pub use target::{Target, TargetError};
pub use trust::{Trusted, accounts_of, described, plausible, users};
pub use trust::{expected, expected_of, holders_of};
pub use unreachable::{Unreachable, unreachable};
pub use verify::{VerifyError, expect, verify};

pub(crate) use samehost_system::{diag, namespaces, proc, proc::process};
