//! Sends each line of its input to an endpoint and prints the reply, then whatever else comes.
//!
//! `printf 'hello\n' | cargo run -p samehost-transport --example client -- unix:/run/user/1000/echo.sock`, against the
//! `echo_server` example or `nc -l -U /run/user/1000/echo.sock`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program, not a library")]

use std::io::{self, BufRead, Read, Write};
use std::process::ExitCode;
use std::time::Duration;

use samehost_transport::{ConnectOptions, Endpoint, connect};

fn main() -> ExitCode {
    match talk() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn talk() -> Result<(), Box<dyn std::error::Error>> {
    let endpoint: Endpoint = std::env::args().nth(1).ok_or("usage: client ENDPOINT")?.parse()?;
    let options = ConnectOptions { timeout: Some(Duration::from_secs(5)), ..ConnectOptions::default() };
    let mut stream = connect(&endpoint, &options)?;
    eprintln!(
        "connected: {}{}",
        stream.observed()?,
        stream.cipher().map(|c| format!(", {c}")).unwrap_or_default()
    );
    let mut buffer = vec![0; 64 * 1024];
    for line in io::stdin().lock().lines() {
        stream.write_all(format!("{}\n", line?).as_bytes())?;
        let count = stream.read(&mut buffer)?;
        io::stdout().write_all(&buffer[..count])?;
    }
    stream.shutdown_write()?;
    io::copy(&mut stream, &mut io::stdout())?;
    Ok(())
}
