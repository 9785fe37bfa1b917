//! Converts the command line of `bench` into a request.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, bail};
use samehost_bench::workload::{Workload, Written, defaults};
use samehost_bench::{BenchError, KeepAwake, Request, Servers, StopOptions};
use samehost_model::{
    Endpoint, QuantityError, Redactor, Secret, Stopping, Transport, parse_count_list, parse_size_list,
};
use samehost_scan::{Target, TargetError};

use crate::cli::{Bench, BenchOptions};
use crate::wrong_use::WrongUse;

pub fn request(bench: &Bench, interrupted: Arc<AtomicBool>) -> anyhow::Result<Request> {
    let options = &bench.options;
    let name = bench.workload.name();
    // Of the defaults: what is given may be lists of levels, which are taken apart later.
    let axes = bench.workload.configure(&defaults(bench.workload))?.axes();
    let (urls, commands) = match axes.commands {
        true => (&[][..], commands(options)),
        false => (&options.positional[..], options.arm.clone()),
    };
    if let Some(url) = urls.first()
        && !axes.foreign_servers
    {
        let example = bench.workload.description().example;
        let text = format!("bench {name} takes no URL, so not `{url}`. An example: samehost bench {example}");
        return Err(WrongUse(text).into());
    }
    if !axes.foreign_servers && (options.tcp.is_some() || options.unix.is_some()) {
        return Err(samehost_bench::no_servers(bench.workload).into());
    }
    let servers = servers(bench.workload, options, urls)?;
    // A single URL is measured alone.
    let transports = match (options.transports.is_empty() && !urls.is_empty(), servers.len()) {
        (true, 1) => servers.keys().copied().collect(),
        _ => options.transports.clone(),
    };
    let program = std::env::current_exe().context("finding this program")?;
    Ok(Request {
        transports,
        connections: given(options.connections.as_deref(), parse_count_list)?,
        rates: options.rates().map_err(BenchError::from)?,
        sizes: given(options.size.as_deref(), parse_size_list)?,
        placements: options.placement.clone(),
        awake: match options.awake.as_deref() {
            None => KeepAwake::Usual,
            Some("no") => KeepAwake::No,
            Some(_) => KeepAwake::Yes,
        },
        congestion: options.congestion.clone(),
        socket_buffers: given(options.socket_buffer.as_deref(), parse_size_list)?,
        threads: options.threads,
        stop: stop_options(options),
        seed: options.seed.unwrap_or_else(fresh_seed),
        servers,
        parameters: bench.parameters.clone(),
        commands,
        ..Request::new(program, Redactor::default().words(std::env::args()), interrupted)
    })
}

/// A list that was given; empty where none was.
fn given<T>(
    text: Option<&str>,
    parse: fn(&str) -> Result<Vec<T>, QuantityError>,
) -> Result<Vec<T>, BenchError> {
    Ok(text.map_or(Ok(Vec::new()), parse)?)
}

/// A random seed, short enough to type.
pub fn fresh_seed() -> u64 {
    // RandomState seeds its hashers from the kernel's random numbers.
    RandomState::new().build_hasher().finish() >> 40
}

/// Commands with their names. A command without one has that of its program where that tells them apart, else a letter.
fn commands(options: &BenchOptions) -> Vec<(String, String)> {
    let mut names: Vec<String> = options.positional.iter().map(|script| program(script)).collect();
    let are_distinct = names.iter().collect::<BTreeSet<_>>().len() == names.len();
    if !are_distinct || !names.iter().all(|name| is_word(name)) {
        names = (0..names.len()).map(letter).collect();
    }
    let named = names.into_iter().zip(options.positional.iter().cloned());
    named.chain(options.arm.iter().cloned()).collect()
}

fn program(command: &str) -> String {
    let first = command.split_whitespace().next().unwrap_or_default();
    first.rsplit('/').next().unwrap_or_default().to_owned()
}

/// Whether a name can stand for an arm.
fn is_word(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// `a` to `z`, then `a2`.
fn letter(place: usize) -> String {
    let letter = char::from(b'a' + (place % 26) as u8);
    if place < 26 { letter.to_string() } else { format!("{letter}{}", place / 26 + 1) }
}

/// The servers that already run, and that were given by their URLs.
fn servers(workload: &dyn Workload, options: &BenchOptions, urls: &[String]) -> anyhow::Result<Servers> {
    let mut texts: BTreeMap<Transport, &str> = BTreeMap::new();
    for (transport, text) in [(Transport::Tcp, &options.tcp), (Transport::Unix, &options.unix)] {
        if let Some(text) = text {
            texts.insert(transport, text);
        }
    }
    for url in urls {
        let target: Target = url.parse().map_err(|error: TargetError| WrongUse(error.to_string()))?;
        let transport = match target {
            Target::Address { endpoint: Endpoint::Unix(_), .. } => Transport::Unix,
            Target::Address { .. } => Transport::Tcp,
            Target::Process(_) => return Err(WrongUse(format!("`{url}` is not a URL")).into()),
        };
        if texts.insert(transport, url).is_some() {
            bail!(WrongUse(format!("two servers are given for {transport}; one of each can be compared")));
        }
    }
    let mut password = None;
    if options.ask_password {
        if texts.is_empty() {
            return Err(WrongUse("--ask-password is for a server given with --tcp or --unix".into()).into());
        }
        password = Some(ask_password()?);
    }
    let mut servers = Servers::new();
    for (transport, text) in texts {
        let written = Written { transport, text, password: password.as_ref() };
        servers.insert(transport, workload.address(&written)?);
    }
    Ok(servers)
}

/// Asks on the terminal for a server's password.
pub fn ask_password() -> anyhow::Result<Secret> {
    let asked = rpassword::prompt_password("Password: ");
    asked
        .map(Secret::new)
        .context("asking for a password needs a terminal; the environment or an option file gives one too")
}

fn stop_options(options: &BenchOptions) -> StopOptions {
    StopOptions {
        budget: options.budget,
        margin: options.margin,
        min_blocks: options.min_blocks,
        max_blocks: options.max_blocks,
        trial_time: options.trial_time,
        no_control: options.no_control,
        stopping: if options.until_decided { Stopping::Decision } else { Stopping::Precision },
        ..StopOptions::default()
    }
}
