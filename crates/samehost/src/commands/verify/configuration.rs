//! `samehost verify PATH`: every line of a configuration that connects to a server, with its login, and what the application does.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use samehost_login::Credentials;
use samehost_model::Secret;
use samehost_model::scan::Verification;
use samehost_scan::Target;
use samehost_switch::{Setting, Usage};
use samehost_system::threads;

use super::{MOMENT, look};
use crate::cli::VerifyOptions;
use crate::wrong_use::WrongUse;

/// What asking the servers of a configuration may take, all of them together. Root verifies what tenants write: a file of 20 kB
/// named 500 hosts, and a name server that is silent takes ten seconds for each of them. What is left is said to be not asked.
const ASKING: Duration = Duration::from_secs(20);
const ASKING_CPU: Duration = Duration::from_secs(2);
/// Servers that are asked at a time.
const ASKED_AT_A_TIME: usize = 8;

/// Verifies every connection in a configuration, with its credentials.
pub(super) fn configuration(options: &VerifyOptions) -> anyhow::Result<Vec<Verification>> {
    let settings = samehost_switch::clients(&options.target).map_err(|error| WrongUse(error.to_string()))?;
    let mut all = ask_servers(&settings, options)?;
    see_the_application(options, &mut all)?;
    if all.is_empty() {
        let text = format!("{} names no connection to a server", options.target);
        return Err(WrongUse(text).into());
    }
    Ok(all)
}

/// Asks each server that the lines name, with the line's login: lines that say the same are one question.
fn ask_servers(settings: &[Setting], options: &VerifyOptions) -> anyhow::Result<Vec<Verification>> {
    let mut questions: Vec<&Setting> = Vec::new();
    let mut known = HashMap::new();
    let mut question_of = Vec::new();
    for setting in settings {
        let password = setting.password.as_ref().map(Secret::reveal);
        let same =
            (setting.protocol, &setting.endpoint, &setting.user, &setting.database, password, &setting.file);
        question_of.push(*known.entry(same).or_insert_with(|| {
            questions.push(setting);
            questions.len() - 1
        }));
    }
    let (begun, cpu_begun) = (Instant::now(), cpu_time());
    let next = AtomicUsize::new(0);
    let ask_some = || {
        let mut answers = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(setting) = questions.get(number) else { return answers };
            let is_over = begun.elapsed() > ASKING || cpu_time().saturating_sub(cpu_begun) > ASKING_CPU;
            let answer = if is_over { Ok(not_asked(setting, number)) } else { ask(setting, options) };
            answers.push((number, answer));
        }
    };
    let mut answers: Vec<_> = threads::all((0..ASKED_AT_A_TIME.min(questions.len())).map(|_| ask_some))
        .into_iter()
        .flatten()
        .collect();
    answers.sort_by_key(|(number, _)| *number);
    let answers = answers.into_iter().map(|(_, answer)| answer).collect::<anyhow::Result<Vec<_>>>()?;
    let named = |(setting, question): (&Setting, usize)| {
        let mut answer: Verification = answers[question].clone();
        answer.target = name_of(setting);
        answer
    };
    Ok(settings.iter().zip(question_of).map(named).collect())
}

/// `DB_HOST (/var/www/wp-config.php:12)`
fn name_of(setting: &Setting) -> String {
    format!("{} ({}:{})", setting.name, setting.file.display(), setting.line)
}

fn ask(setting: &Setting, options: &VerifyOptions) -> anyhow::Result<Verification> {
    let target =
        Target::Address { protocol: setting.protocol, endpoint: setting.endpoint.clone(), notes: Vec::new() };
    let credentials = Credentials {
        user: setting.user.clone(),
        password: setting.password.clone(),
        database: setting.database.clone(),
    };
    let owner = setting.file.metadata().ok().map(|found| found.uid());
    look(&target, &name_of(setting), &credentials, owner, options)
}

/// A line whose server nobody asked any more, as so many others took all the time.
fn not_asked(setting: &Setting, before: usize) -> Verification {
    let mut found = Verification::of(name_of(setting));
    found.endpoint = Some(setting.endpoint.to_string());
    let why = format!(
        "not asked: the {before} servers before it took the {} s that all may take, or {} s of CPU; ask it alone: samehost verify {}",
        ASKING.as_secs(),
        ASKING_CPU.as_secs(),
        setting.endpoint
    );
    found.notes.push(why.clone());
    found.login = Some(samehost_login::not_tried(why));
    found
}

/// What this process had of the CPUs.
fn cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

/// Adds what the application itself was seen to do: a login of ours proves nothing of it.
fn see_the_application(options: &VerifyOptions, all: &mut [Verification]) -> anyhow::Result<()> {
    let scan = samehost_scan::collect_seeing(env!("CARGO_PKG_VERSION"))?;
    let usage =
        Usage::of_configuration(&options.target, &scan).map_err(|error| WrongUse(error.to_string()))?;
    usage.wait(options.wait.unwrap_or(MOMENT), &samehost_system::interrupt::is_requested);
    for (found, seen) in all.iter_mut().zip(usage.seen()) {
        found.application = Some(seen.application());
        found.notes.extend(seen.others());
        found.seen_there = seen.new.into_iter().collect();
        found.seen_elsewhere = seen.old.into_iter().collect();
    }
    Ok(())
}
