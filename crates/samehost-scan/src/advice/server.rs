//! Blocker `server`: the service does not listen on a Unix socket yet, or does not support one.

use samehost_model::scan::Weight;
use samehost_services::{Descriptor, UnixSocket};

use super::Finding;
use super::pair::{Pair, proposed_socket};

pub(super) fn check(pair: &Pair<'_>) -> Option<Finding> {
    if pair.listener.is_some() {
        return None;
    }
    let known = pair.known?;
    Some(match known.unix() {
        UnixSocket::Never(why) => Finding::new(
            Weight::Blocks,
            format!("{} cannot listen on a Unix socket: {why}", known.label),
            "Keep connections open and reuse them: that saves the most of what TCP costs".to_owned(),
        ),
        UnixSocket::Setting(setting) => Finding::new(
            Weight::Setting,
            format!("{} listens on no Unix socket", known.label),
            remedy(known, &setting.replace("{}", &proposed_socket(known, pair.server()))),
        ),
    })
}

/// What to set, and what becomes of the port.
fn remedy(known: &Descriptor, setting: &str) -> String {
    let port = if known.one_address {
        "It listens on one address: for tools that want the port, run another one beside it"
    } else {
        "Keep the port as well, for tools that want it"
    };
    let set = format!("Set: {setting}");
    [set.as_str(), port]
        .into_iter()
        .chain(known.about_socket.iter().map(String::as_str))
        .collect::<Vec<_>>()
        .join(". ")
}
