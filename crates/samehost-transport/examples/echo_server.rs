//! Listens on an endpoint and sends back what it receives, a thread a connection.
//!
//! `cargo run -p samehost-transport --example echo_server -- unix:/run/user/1000/echo.sock`, then
//! `printf 'hello\n' | nc -N -U /run/user/1000/echo.sock`. A `tcp+tls:` endpoint gets a self-signed certificate.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program, not a library")]

use std::io::{self, Read, Write};
use std::process::ExitCode;

use samehost_transport::{Endpoint, ListenOptions, Stream, TlsServer, listen};

fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> Result<(), Box<dyn std::error::Error>> {
    let endpoint: Endpoint = std::env::args().nth(1).ok_or("usage: echo_server ENDPOINT")?.parse()?;
    let options = ListenOptions { tls: Some(TlsServer::self_signed()?), ..ListenOptions::default() };
    let listener = listen(&endpoint, &options)?;
    println!("listening on {}", listener.endpoint());
    loop {
        let stream = listener.accept()?;
        std::thread::spawn(move || {
            if let Err(error) = echo(stream) {
                eprintln!("connection ended: {error}");
            }
        });
    }
}

fn echo(mut stream: Stream) -> io::Result<()> {
    eprintln!("accepted {}", stream.observed()?);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            count => stream.write_all(&buffer[..count])?,
        }
    }
}
