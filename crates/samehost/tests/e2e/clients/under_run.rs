//! The same clients in the words for TCP under `samehost run`: each has the Unix socket, by the server's own word and by
//! that of `verify`.

use std::process::Command;

use rustix::process::Signal;
use samehost_testing::wait_for;

use super::rows::Run;
use super::runs::{Case, Workshop};
use super::servers::Place;
use super::{Client, seen, verified};
use crate::support::{Home, send};

/// What is wrong with a client that is told a port; nothing of other cases.
pub(super) fn wrong(home: &Home, shop: &Workshop, case: &Case, place: &Place) -> Option<String> {
    let service = case.row.server;
    let is_told_a_port = case.expected == "tcp" && case.is_verified;
    if !is_told_a_port || Place::takes_datagrams(service) || matches!(case.row.run, Run::Front(_)) {
        return None;
    }
    match transport(home, shop, case, place) {
        Ok(found) if found == "unix" => None,
        Ok(other) => Some(format!("{} under run: {other}", case.what())),
        Err(error) => Some(format!("{} under run: {error}", case.what())),
    }
}

fn transport(home: &Home, shop: &Workshop, case: &Case, place: &Place) -> Result<String, String> {
    place.forget(case.row.server);
    let mut client = Client::start(&mut under_run(home, place, &shop.command(case)?))?;
    client.wait_until_ready()?;
    let found = found(home, case, place, client.0.id()).map_err(|error| error + &client.said());
    // The signal reaches the client, and then what it left behind.
    wait_for("the client's end", || {
        send(client.0.id(), Signal::TERM);
        client.0.try_wait().unwrap()
    });
    found
}

/// What the server says and, where it keeps connections, what `verify` says of the program that `run` started.
fn found(home: &Home, case: &Case, place: &Place, run: u32) -> Result<String, String> {
    let transport = seen(place, case.row.server)?;
    if Place::has_connections(case.row.server) {
        let verified = verified(home, program_of(run).ok_or("the program has ended")?, place)?;
        if verified != transport {
            return Err(format!("the server sees {transport}, verify {verified}"));
        }
    }
    Ok(transport.to_owned())
}

/// The program that a `samehost run` started: its other child goes on answering when that is killed.
fn program_of(run: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{run}/task/{run}/children")).ok()?;
    for pid in children.split_whitespace().filter_map(|pid| pid.parse().ok()) {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        if !String::from_utf8_lossy(&words).contains("stand-in") {
            return Some(pid);
        }
    }
    None
}

fn under_run(home: &Home, place: &Place, client: &Command) -> Command {
    let map = format!("{}={}", place.port, place.socket.display());
    let mut command = home.command(&["run", "--quiet", "--map", &map, "--"]);
    command.arg(client.get_program()).args(client.get_args());
    command.envs(client.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(folder) = client.get_current_dir() {
        command.current_dir(folder);
    }
    command
}
