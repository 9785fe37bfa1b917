//! `samehost verify`: the transport in use, with proof.

#[cfg(feature = "switch")]
mod configuration;

use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::Duration;

use anyhow::anyhow;
use samehost_login::{Credentials, Expected};
use samehost_model::Redactor;
use samehost_model::scan::{LoginOutcome, Verdict, Verification};
use samehost_scan::{Target, TargetError, Trusted};
use samehost_services::Kind;
use samehost_system::{interrupt, lookup};

#[cfg(feature = "switch")]
use self::configuration::{configuration, own_hops};
use crate::cli::{UnixOrTcp, VerifyOptions};
use crate::exit::{Ending, in_full};
use crate::output;
use crate::request::ask_password;
use crate::wrong_use::WrongUse;

pub fn verify(options: &VerifyOptions) -> anyhow::Result<Ending> {
    check_options(options)?;
    let (mut found, is_all) = match is_configuration(&options.target) {
        true => configuration(options)?,
        false => (target_or_service(options)?, true),
    };
    for one in &mut found {
        one.judge(options.expect.map(UnixOrTcp::name));
    }
    if options.json {
        // A single result is an object. A configuration may name several connections, which become an array.
        match found.as_slice() {
            [one] => output::print_json(one)?,
            all => output::print_json(&all)?,
        }
    } else {
        output::show(|terminal, out| terminal.render_verifications(&found, out))?;
    }
    // What was seen until a signal came is shown, and judges nobody.
    Ok(match ending(&found) {
        _ if interrupt::is_requested() => Ending::Interrupted,
        Ending::Done if !is_all => Ending::Undecided,
        ending => ending,
    })
}

/// A contradiction outweighs what is undecided. That is no success where a transport was expected, for a login of ours is none of
/// the application's, nor where no login could be tried.
fn ending(found: &[Verification]) -> Ending {
    if found.iter().any(|one| one.verdict() == Verdict::Contradicted) {
        return Ending::Finding;
    }
    let is_open = |one: &Verification| one.expected.is_some() || !one.was_tried();
    if found.iter().any(|one| one.verdict() == Verdict::Undecided && is_open(one)) {
        return Ending::Undecided;
    }
    Ending::Done
}

/// Refuses options that would do nothing with this target.
fn check_options(options: &VerifyOptions) -> Result<(), WrongUse> {
    let is_configuration = is_configuration(&options.target);
    let is_process = !is_configuration && options.target.bytes().all(|byte| byte.is_ascii_digit());
    let is_watched = is_configuration || (is_service(&options.target) && options.expect.is_some());
    let useless = [
        (
            options.wait.is_some() && !is_watched,
            "--wait watches the application of a configuration, or the clients of a service with --expect",
        ),
        (
            options.ask_password && (is_configuration || is_process),
            "--ask-password is for a URL or an endpoint",
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

/// Whether the target is the name of a service, whose clients are asked for.
fn is_service(target: &str) -> bool {
    matches!(target.parse::<Target>(), Err(TargetError::Form(_))) && Kind::called(target).is_some()
}

/// Whether the target is a file or directory to read, or the name of an application (`wordpress`), whose sites are; the path of a
/// socket is an endpoint.
fn is_configuration(target: &str) -> bool {
    match Path::new(target).metadata() {
        Ok(found) => !found.file_type().is_socket(),
        Err(_) => {
            let is_word = target.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_'));
            is_word && matches!(target.parse::<Target>(), Err(TargetError::Form(_))) && !is_service(target)
        }
    }
}

/// Verifies a process, an endpoint or a URL, or every endpoint of a service that is named.
fn target_or_service(options: &VerifyOptions) -> anyhow::Result<Vec<Verification>> {
    let text = &options.target;
    let target = if Path::new(text).exists() { format!("unix:{text}") } else { text.clone() };
    match target.parse::<Target>() {
        Ok(target) => Ok(vec![verify_target(&target, text, options)?]),
        Err(error @ TargetError::Form(_)) => {
            if let (true, Err(missing)) = (text.contains('/'), Path::new(text).metadata()) {
                return Err(WrongUse(format!("{text}: {missing}")).into());
            }
            service(options, &error)
        }
        Err(error) => Err(WrongUse(error.to_string()).into()),
    }
}

/// What the running services of a name are, as clients by their own configurations, and as servers: at each endpoint, or where a
/// transport is expected for all who are connected. Which hop a result is about stands in it.
fn service(options: &VerifyOptions, error: &TargetError) -> anyhow::Result<Vec<Verification>> {
    let name = &options.target;
    let not_here =
        || anyhow!(WrongUse(format!("no {name} runs here that can be seen; samehost scan lists services")));
    let scan = samehost_scan::collect_seeing(env!("CARGO_PKG_VERSION"))?;
    let Some((protocol, endpoints)) = samehost_scan::endpoints_of(&scan, name) else {
        return Err(WrongUse(error.to_string()).into());
    };
    let mut found = own_hops(options, &scan)?;
    if options.expect.is_some() {
        let period = options.wait.unwrap_or(MOMENT);
        let clients = samehost_scan::clients_of(name, period, env!("CARGO_PKG_VERSION"))?;
        let mut clients = clients.ok_or_else(not_here)?;
        match found.first_mut().filter(|_| clients.transport.is_none()) {
            // What it connects to is judged, and nobody is connected to it.
            Some(first) => first.notes.append(&mut clients.notes),
            None => found.push(clients),
        }
        return Ok(found);
    }
    if endpoints.is_empty() && found.is_empty() {
        return Err(not_here());
    }
    let mut failed = Vec::new();
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
    if let Some(login) = found.login.take() {
        // Who names an endpoint asks for no login: a server that wants one has answered. A URL is a login.
        let is_given = name.contains("://") || credentials.user.is_some() || credentials.password.is_some();
        found.login = Some(if is_given { login } else { login.without_one_given() });
    }
    match &found.login {
        // How the place follows from what was given is said all the more where nobody is there.
        Some(login) if login.outcome() == LoginOutcome::Unreachable => {
            let notes = found.notes.iter().map(String::as_str);
            Err(anyhow!([login.says()].into_iter().chain(notes).collect::<Vec<_>>().join("\n  ")))
        }
        _ => Ok(found),
    }
}

/// How long an application, or a service's clients, are watched where nothing else is asked for.
const MOMENT: Duration = Duration::from_millis(500);

#[cfg(not(feature = "switch"))]
fn own_hops(_: &VerifyOptions, _: &samehost_model::scan::Scan) -> anyhow::Result<Vec<Verification>> {
    Ok(Vec::new())
}

#[cfg(not(feature = "switch"))]
fn configuration(_: &VerifyOptions) -> anyhow::Result<(Vec<Verification>, bool)> {
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
    if let Some(login) = &mut found.login {
        login.redact(|says| redactor.message(says));
    }
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
