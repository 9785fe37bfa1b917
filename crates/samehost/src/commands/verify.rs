//! `samehost verify`: the transport in use, with proof.

use std::os::unix::fs::FileTypeExt;
#[cfg(feature = "switch")]
use std::os::unix::fs::MetadataExt;
use std::path::Path;
#[cfg(feature = "switch")]
use std::time::Duration;

use anyhow::anyhow;
use samehost_login::{Credentials, Expected};
use samehost_model::Redactor;
use samehost_model::scan::Verification;
use samehost_scan::{Target, TargetError, Trusted};
use samehost_system::lookup;

use crate::cli::VerifyOptions;
use crate::exit::{Ending, in_full};
use crate::output;
use crate::request::ask_password;
use crate::wrong_use::WrongUse;

pub fn verify(options: &VerifyOptions) -> anyhow::Result<Ending> {
    check_options(options)?;
    let mut found = match is_configuration(&options.target) {
        true => configuration(options)?,
        false => target_or_service(options)?,
    };
    if let Some(expected) = options.expect {
        for one in &mut found {
            samehost_scan::expect(one, expected.name());
        }
    }
    if options.json {
        // A single result is an object. A configuration may name several connections, which become an array.
        match found.as_slice() {
            [one] => output::print_json(one)?,
            all => output::print_json(&all)?,
        }
    } else {
        output::show(|terminal, out| {
            for (index, one) in found.iter().enumerate() {
                if index > 0 {
                    writeln!(out)?;
                }
                terminal.render_verification(one, out)?;
            }
            Ok(())
        })?;
    }
    let fails = found.iter().any(|one| one.as_expected == Some(false));
    Ok(if fails { Ending::Finding } else { Ending::Done })
}

/// Refuses options that would do nothing with this target.
fn check_options(options: &VerifyOptions) -> Result<(), WrongUse> {
    let is_configuration = is_configuration(&options.target);
    let is_process = !is_configuration && options.target.bytes().all(|byte| byte.is_ascii_digit());
    let useless = [
        (options.wait.is_some() && !is_configuration, "--wait watches the application of a configuration"),
        (
            options.ask_password && is_configuration,
            "--ask-password is for a URL or an endpoint: a configuration has its own",
        ),
        (
            options.ask_password && is_process,
            "--ask-password is for a URL or an endpoint: nobody logs in to look at a process",
        ),
        (
            options.server_user.is_some() && is_process,
            "--server-user is for what logs in: nobody does to look at a process",
        ),
    ];
    for (is_useless, why) in useless {
        if is_useless {
            return Err(WrongUse(format!("{why}; with {} it does nothing", options.target)));
        }
    }
    Ok(())
}

/// Whether the target is a file or directory to read; the path of a socket is an endpoint.
fn is_configuration(target: &str) -> bool {
    Path::new(target).metadata().is_ok_and(|found| !found.file_type().is_socket())
}

/// Verifies a process, an endpoint or a URL, or every endpoint of a service that is named.
fn target_or_service(options: &VerifyOptions) -> anyhow::Result<Vec<Verification>> {
    let text = &options.target;
    let target = if Path::new(text).exists() { format!("unix:{text}") } else { text.clone() };
    match target.parse::<Target>() {
        Ok(target) => Ok(vec![verify_target(&target, text, options)?]),
        Err(error @ TargetError::Form(_)) => service(options, &error),
        Err(error) => Err(WrongUse(error.to_string()).into()),
    }
}

fn service(options: &VerifyOptions, error: &TargetError) -> anyhow::Result<Vec<Verification>> {
    let scan = samehost_scan::collect(env!("CARGO_PKG_VERSION"))?;
    let name = &options.target;
    let Some((protocol, endpoints)) = samehost_scan::endpoints_of(&scan, name) else {
        return Err(WrongUse(error.to_string()).into());
    };
    if endpoints.is_empty() {
        return Err(
            WrongUse(format!("no {name} runs here that can be seen; samehost scan lists services")).into()
        );
    }
    if options.expect.is_some() && endpoints.len() > 1 {
        let text = format!("--expect is about one endpoint, and {name} has {}: name one", endpoints.len());
        return Err(WrongUse(text).into());
    }
    let (mut found, mut failed) = (Vec::new(), Vec::new());
    for endpoint in endpoints {
        let text = endpoint.to_string();
        match verify_target(&Target::Address { protocol, endpoint, notes: Vec::new() }, &text, options) {
            Ok(one) => found.push(one),
            Err(error) => failed.push(error),
        }
    }
    // One that asks for a password hides none of the others.
    if found.is_empty() {
        return Err(failed.swap_remove(0));
    }
    for error in failed {
        output::complain(&in_full(&error));
    }
    Ok(found)
}

fn verify_target(target: &Target, name: &str, options: &VerifyOptions) -> anyhow::Result<Verification> {
    let (credentials, note) = credentials(target, options)?;
    let mut found = look(target, name, &credentials, None, options)?;
    found.notes.extend(note);
    Ok(found)
}

/// Verifies every connection in a configuration, with its credentials.
#[cfg(feature = "switch")]
fn configuration(options: &VerifyOptions) -> anyhow::Result<Vec<Verification>> {
    let settings = samehost_switch::clients(&options.target).map_err(|error| WrongUse(error.to_string()))?;
    let mut all = Vec::new();
    for setting in settings {
        let target = Target::Address {
            protocol: setting.protocol,
            endpoint: setting.endpoint.clone(),
            notes: Vec::new(),
        };
        let credentials =
            Credentials { user: setting.user, password: setting.password, database: setting.database };
        let name = format!("{} ({}:{})", setting.name, setting.file.display(), setting.line);
        let owner = setting.file.metadata().ok().map(|found| found.uid());
        all.push(look(&target, &name, &credentials, owner, options)?);
    }
    see_the_application(options, &mut all)?;
    if all.is_empty() {
        let text = format!("{} names no connection to a server", options.target);
        return Err(WrongUse(text).into());
    }
    Ok(all)
}

/// How long the application is watched where nothing else is asked for.
#[cfg(feature = "switch")]
const MOMENT: Duration = Duration::from_millis(500);

/// Adds what the application itself was seen to do: a login of ours proves nothing of it.
#[cfg(feature = "switch")]
fn see_the_application(options: &VerifyOptions, all: &mut [Verification]) -> anyhow::Result<()> {
    let scan = samehost_scan::collect(env!("CARGO_PKG_VERSION"))?;
    let usage = samehost_switch::Usage::of_configuration(&options.target, &scan)
        .map_err(|error| WrongUse(error.to_string()))?;
    usage.wait(options.wait.unwrap_or(MOMENT), &samehost_system::interrupt::is_requested);
    for (found, seen) in all.iter_mut().zip(usage.seen()) {
        found.standing = Some(seen.standing());
        found.seen_there = seen.new.into_iter().collect();
        found.seen_elsewhere = seen.old.into_iter().collect();
    }
    Ok(())
}

#[cfg(not(feature = "switch"))]
fn configuration(_: &VerifyOptions) -> anyhow::Result<Vec<Verification>> {
    let instead = "Name the endpoint: samehost verify tcp:127.0.0.1:3306";
    Err(crate::wrong_use::left_out("`samehost verify` of a configuration", "switch", instead).into())
}

/// Verifies one target; `owner` is the owner of the configuration that names it.
fn look(
    target: &Target,
    name: &str,
    credentials: &Credentials,
    owner: Option<u32>,
    options: &VerifyOptions,
) -> anyhow::Result<Verification> {
    let mut trusted = owner.into_iter().fold(Trusted::default(), Trusted::or);
    if let Some(name) = &options.server_user {
        let account = lookup::account(name).ok_or_else(|| WrongUse(format!("there is no user {name}")))?;
        trusted = trusted.or(account.uid);
    }
    let expected = match target {
        Target::Address { protocol, .. } => samehost_scan::expected(*protocol, &trusted),
        Target::Process(_) => Expected::default(),
    };
    // Servers may quote any text, including the password that they received.
    let redactor = Redactor::new(&credentials.password);
    let mut found = samehost_scan::verify(target, name, credentials, &expected, env!("CARGO_PKG_VERSION"))
        .map_err(|error| anyhow!(redactor.message(&error.to_string())))?;
    for word in found.proofs.iter_mut().map(|proof| &mut proof.says).chain(&mut found.notes) {
        *word = redactor.message(word);
    }
    Ok(found)
}

/// Credentials for the login. The kernel's proofs need none, so an unusable file is only a note.
fn credentials(target: &Target, options: &VerifyOptions) -> anyhow::Result<(Credentials, Option<String>)> {
    let Target::Address { protocol, endpoint, .. } = target else { return Ok(Default::default()) };
    let (mut credentials, note) = match Credentials::of(*protocol, &options.target, endpoint) {
        Ok(credentials) => (credentials, None),
        Err(error) => (Credentials::default(), Some(error.to_string())),
    };
    if options.ask_password {
        credentials.password = Some(ask_password()?);
    }
    Ok((credentials, note))
}
