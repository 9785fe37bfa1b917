//! `samehost verify PATH`: every line of a configuration that connects to a server, with its login, and what the application does.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use samehost_login::Credentials;
use samehost_model::scan::{Login, LoginOutcome, Scan, Verification};
use samehost_model::{Endpoint, Secret};
use samehost_scan::{Target, TargetError};
use samehost_switch::{ConfigFileError, Connecting, Setting, Usage};
use samehost_system::interrupt::is_requested;
use samehost_system::threads;

use super::{MOMENT, look};
use crate::cli::VerifyOptions;
use crate::output;
use crate::wrong_use::WrongUse;

/// What asking the servers of a configuration may take, all of them together. Root verifies what tenants write: a file of 20 kB
/// named 500 hosts, and a name server that is silent takes ten seconds for each of them. What is left is said to be not asked.
const ASKING: Duration = Duration::from_secs(20);
const ASKING_CPU: Duration = Duration::from_secs(2);
/// Accounts of a line that are asked: a list of users may have any number.
const ASKED_OF_A_LINE: usize = 32;
/// Servers that are asked at a time.
const ASKED_AT_A_TIME: usize = 8;

/// Why nobody is asked any more, if so.
type WhyNot<'a> = dyn Fn() -> Option<String> + 'a;

/// Verifies every connection in a configuration, or in all sites of a target, with its credentials; and whether all could be read.
pub(super) fn configuration(options: &VerifyOptions) -> anyhow::Result<(Vec<Verification>, bool)> {
    let scan = samehost_scan::collect_seeing(env!("CARGO_PKG_VERSION"))?;
    let (lines, unread) =
        samehost_switch::connecting(&options.target, &scan).map_err(|error| match error {
            // A word that may have been meant for something else.
            ConfigFileError::Unknown(name) => WrongUse(TargetError::Form(name).to_string()),
            error => WrongUse(error.to_string()),
        })?;
    let all = verify_lines(&lines, options)?;
    for error in &unread {
        output::complain(&error.to_string());
    }
    if all.is_empty() {
        let text = format!("{} names no connection to a server", options.target);
        return Err(WrongUse(text).into());
    }
    Ok((all, unread.is_empty()))
}

/// Verifies the connections that a service's own configuration makes: its hops to others, and not those of who calls it.
pub(super) fn own_hops(options: &VerifyOptions, scan: &Scan) -> anyhow::Result<Vec<Verification>> {
    let lines = samehost_switch::connecting_services(&options.target, scan).unwrap_or_else(|error| {
        output::complain(&error.to_string());
        Vec::new()
    });
    let mut all = verify_lines(&lines, options)?;
    for one in &mut all {
        one.target = format!("{} → {}", options.target, one.target);
    }
    Ok(all)
}

/// Asks each server that the lines name, and looks what their programs do: a login of ours proves nothing of it.
fn verify_lines(lines: &[Connecting], options: &VerifyOptions) -> anyhow::Result<Vec<Verification>> {
    let mut all = ask_servers(lines, options)?;
    let usage = Usage::of_lines(lines);
    usage.wait(options.wait.unwrap_or(MOMENT), &is_requested);
    for (found, seen) in all.iter_mut().zip(usage.seen()) {
        found.application = Some(seen.application());
        found.notes.extend(seen.others());
        found.seen_there = seen.new.into_iter().collect();
        found.seen_elsewhere = seen.old.into_iter().collect();
    }
    Ok(all)
}

/// Asks each server that the lines name, with each login that connects by a line: lines that say the same are one question.
fn ask_servers(lines: &[Connecting], options: &VerifyOptions) -> anyhow::Result<Vec<Verification>> {
    let mut questions: Vec<&Connecting> = Vec::new();
    let mut known = HashMap::new();
    let mut question_of = Vec::new();
    for line in lines {
        let setting = &line.setting;
        let password = setting.password.as_ref().map(Secret::reveal);
        let same =
            (setting.protocol, &setting.endpoint, &setting.user, &setting.database, password, &setting.file);
        question_of.push(*known.entry(same).or_insert_with(|| {
            questions.push(line);
            questions.len() - 1
        }));
    }
    let (begun, cpu_begun) = (Instant::now(), cpu_time());
    let next = AtomicUsize::new(0);
    let ask_some = || {
        let mut answers = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(line) = questions.get(number) else { return answers };
            let is_over = || begun.elapsed() > ASKING || cpu_time().saturating_sub(cpu_begun) > ASKING_CPU;
            let answer = ask(line, options, &|| match (is_requested(), is_over()) {
                (true, _) => Some("not asked: interrupted".to_owned()),
                (_, true) => Some(too_long(&line.setting, number)),
                _ => None,
            });
            answers.push((number, answer));
        }
    };
    let mut answers: Vec<_> = threads::all((0..ASKED_AT_A_TIME.min(questions.len())).map(|_| ask_some))
        .into_iter()
        .flatten()
        .collect();
    answers.sort_by_key(|(number, _)| *number);
    let answers = answers.into_iter().map(|(_, answer)| answer).collect::<anyhow::Result<Vec<_>>>()?;
    let named = |(line, question): (&Connecting, usize)| {
        let (accounts, mut answer): (String, Verification) = answers[question].clone();
        answer.target = line.setting.with_place() + &accounts;
        if let (Some(login), Some(user)) = (&answer.login, &line.barred)
            && login.is_good()
        {
            let barred = samehost_login::barred(login, user);
            answer.notes.insert(0, barred.says().to_owned());
            answer.login = Some(barred);
        }
        answer
    };
    Ok(lines.iter().zip(question_of).map(named).collect())
}

/// Asks with each account of a line, unless there is a reason not to, and says of which accounts the answer is. The first one alone was
/// asked, and a pooler's others may be refused over its new transport. Where that decides that one is refused, it is the answer; else the
/// first that is let in. One that is let in nowhere has another database or a wrong password, which is said: a pooler has one list for all
/// its databases and its console.
fn ask(
    line: &Connecting,
    options: &VerifyOptions,
    why_not: &WhyNot<'_>,
) -> anyhow::Result<(String, Verification)> {
    let mut answers = Vec::new();
    for setting in line.setting.by_account().take(ASKED_OF_A_LINE) {
        let found = ask_at(&setting.endpoint, &setting, options, why_not)?;
        let is_refused = found.login.as_ref().map(Login::outcome) == Some(LoginOutcome::Refused);
        let mut is_shut_out = false;
        for other in line.elsewhere.iter().filter(|_| is_refused && !setting.others.is_empty()) {
            is_shut_out |= is_good(&ask_at(other, &setting, options, why_not)?);
        }
        answers.push((setting.user.unwrap_or_default(), found, is_shut_out));
    }
    let decides = answers.iter().position(|(_, _, is_shut_out)| *is_shut_out);
    let decides = decides.or_else(|| answers.iter().position(|(_, found, _)| is_good(found)));
    let (user, mut decided, is_decided) = answers.remove(decides.unwrap_or_default());
    if answers.is_empty() {
        return Ok((String::new(), decided));
    }
    let outcome = decided.login.as_ref().map(Login::outcome);
    let mut users = user;
    for (user, found, is_shut_out) in &answers {
        let Some(login) = &found.login else { continue };
        if (Some(login.outcome()), *is_shut_out) == (outcome, is_decided) {
            users = format!("{users}, {user}");
        } else {
            decided.notes.push(format!("{user}: {}: {}", login.outcome(), login.says()));
        }
    }
    let more = line.setting.by_account().skip(answers.len() + 1).count();
    if more > 0 {
        decided.notes.push(format!("{more} more of its accounts are not asked"));
    }
    Ok((format!(" as {users}"), decided))
}

fn is_good(found: &Verification) -> bool {
    found.login.as_ref().is_some_and(Login::is_good)
}

fn ask_at(
    endpoint: &Endpoint,
    setting: &Setting,
    options: &VerifyOptions,
    why_not: &WhyNot<'_>,
) -> anyhow::Result<Verification> {
    let target =
        Target::Address { protocol: setting.protocol, endpoint: endpoint.clone(), notes: Vec::new() };
    let credentials = Credentials {
        user: setting.user.clone(),
        password: setting.password.clone(),
        database: setting.database.clone(),
    };
    let owner = setting.file.metadata().ok().map(|found| found.uid());
    let asked = match why_not() {
        None => look(&target, &setting.with_place(), &credentials, owner, options),
        Some(_) => Err(anyhow!("not asked")),
    };
    match why_not() {
        // Who stopped it knows why.
        Some(why) if asked.is_err() => Ok(not_asked(setting, why)),
        _ => asked,
    }
}

/// A line whose server nobody asked, and why.
fn not_asked(setting: &Setting, why: String) -> Verification {
    let mut found = Verification::of(setting.with_place());
    found.endpoint = Some(setting.endpoint.to_string());
    found.notes.push(why.clone());
    found.login = Some(samehost_login::not_tried(why));
    found
}

/// So many others took all the time.
fn too_long(setting: &Setting, before: usize) -> String {
    format!(
        "not asked: the {before} servers before it took the {} s that all may take, or {} s of CPU; ask it alone: samehost verify {}",
        ASKING.as_secs(),
        ASKING_CPU.as_secs(),
        setting.endpoint
    )
}

/// What this process had of the CPUs.
fn cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}
