//! A private rsyslog with a UDP port and a Unix datagram socket, which counts what comes by either: it writes a byte for
//! each message into the file of its input, and a question of ours whole into another one. Nothing of it is logged
//! anywhere else.
//!
//! Its own queue is kept short. With its usual 100,000 messages it would take a whole trial into memory and work it off
//! later, and seem faster than it is. A full queue makes its inputs wait, and then the kernel's queue fills.

use std::net::UdpSocket;
use std::path::Path;

use samehost_model::Endpoint;
use samehost_services::Kind;

use super::installed_service;
use super::{Account, PrivateDirectory, PrivateServer, Supervision};
use crate::error::BenchError;

/// File in its directory with a byte for each message by UDP.
pub(crate) const BY_UDP: &str = "udp";
/// File in its directory with a byte for each message by its Unix socket.
pub(crate) const BY_UNIX: &str = "unixgram";
/// File in its directory with the questions, a line each.
pub(crate) const ASKED: &str = "asked";
/// A message with this word is a question.
pub(crate) const QUESTION: &str = "samehost-asks";

/// Starts a private rsyslog. `answers` checks whether it answers.
///
/// # Errors
/// When it is not installed, or does not answer in time.
pub(crate) fn start(
    program: &Path,
    answers: impl Fn(&PrivateServer) -> Result<(), BenchError>,
) -> Result<PrivateServer, BenchError> {
    let rsyslogd = installed_service(Kind::Rsyslog)?;
    let directory = PrivateDirectory::new()?;
    let free = UdpSocket::bind(("127.0.0.1", 0)).and_then(|socket| socket.local_addr());
    let port = free.map_err(|error| BenchError::io("finding a free UDP port of 127.0.0.1", error))?.port();
    let (socket, file) = (directory.path().join("log.sock"), directory.path().join("rsyslog.conf"));
    directory.write("rsyslog.conf", &configuration(directory.path(), &socket, port))?;
    let process_id = directory.path().join("rsyslog.pid");
    let words = [&rsyslogd, Path::new("-n"), Path::new("-f"), &file, Path::new("-i"), &process_id];
    let command = words.iter().map(|word| word.display().to_string()).collect();
    let supervision = Supervision::new(program, "rsyslogd", Account::made()?, command).ended_at_once();
    let endpoints = [Endpoint::Udp { host: "127.0.0.1".into(), port }, Endpoint::Unixgram(socket)];
    PrivateServer::start(&supervision, directory, endpoints)?.ready(&answers)
}

fn configuration(directory: &Path, socket: &Path, port: u16) -> String {
    let (directory, socket) = (directory.display(), socket.display());
    format!(
        r#"global(workDirectory="{directory}" maxMessageSize="64k")
main_queue(queue.type="FixedArray" queue.size="2000" queue.timeoutEnqueue="60000")
module(load="imudp")
module(load="imuxsock" SysSock.Use="off")
input(type="imudp" address="127.0.0.1" port="{port}")
input(type="imuxsock" Socket="{socket}" RateLimit.Interval="0")
template(name="byte" type="string" string=".")
template(name="line" type="string" string="%rawmsg%\n")
if $rawmsg contains "{QUESTION}" then {{
    action(type="omfile" file="{directory}/{ASKED}" template="line")
    stop
}}
if $inputname == "imudp" then action(type="omfile" file="{directory}/{BY_UDP}" template="byte")
else action(type="omfile" file="{directory}/{BY_UNIX}" template="byte")
"#
    )
}
