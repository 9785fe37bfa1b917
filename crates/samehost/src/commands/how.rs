//! `samehost how`: configuration of a service for a Unix socket, and how each client connects to it.

use std::path::Path;

use samehost_model::scan::{ClientWords, HowTo};
use samehost_report::Clients;
use samehost_scan::{ContainersFor, Question, Target, UrlParts};

use crate::cli::HowOptions;
use crate::exit::Ending;
use crate::output;
use crate::wrong_use::WrongUse;

pub fn how(options: &HowOptions) -> anyhow::Result<Ending> {
    let (url, parts) = match &options.url {
        Some(url) => (Some(url.parse::<Target>().map_err(wrong_use)?), UrlParts::of(url)),
        None => (None, UrlParts::default()),
    };
    let question = Question { service: options.service.clone(), client: options.client.clone(), url, parts };
    let scan = samehost_scan::collect(env!("CARGO_PKG_VERSION"))?;
    let questions = samehost_scan::questions(question, &scan);
    let form = form(options);
    let wants_one =
        [("--json", options.json), ("--compose", options.compose), ("--kubernetes", options.kubernetes)];
    if let (Some((option, _)), [first, _, ..]) =
        (wants_one.iter().find(|(_, is_set)| *is_set), &questions[..])
    {
        return Err(one_service(first, option).into());
    }
    for (index, question) in questions.iter().enumerate() {
        if index > 0 {
            output::print(b"\n")?;
        }
        if let Some(form) = form {
            output::print(samehost_scan::containers(question, &scan, form).map_err(wrong_use)?.as_bytes())?;
            continue;
        }
        let answer = samehost_scan::how(question, &scan).map_err(wrong_use)?;
        show(options, question, answer)?;
    }
    Ok(Ending::Done)
}

fn wrong_use(error: impl std::fmt::Display) -> WrongUse {
    WrongUse(error.to_string())
}

fn form(options: &HowOptions) -> Option<ContainersFor> {
    match (options.compose, options.kubernetes) {
        (true, _) => Some(ContainersFor::Compose),
        (false, true) => Some(ContainersFor::Kubernetes),
        (false, false) => None,
    }
}

/// The error of an option that prints one answer, for a client that uses several services.
fn one_service(question: &Question, option: &str) -> WrongUse {
    let client = question.client.as_deref().unwrap_or_default();
    let service = question.service.as_deref().unwrap_or_default();
    WrongUse(format!(
        "`{client}` uses several services; name one: samehost how {service} --client {client} {option}"
    ))
}

fn show(options: &HowOptions, question: &Question, mut answer: HowTo) -> anyhow::Result<()> {
    if options.json {
        return output::print_json(&answer);
    }
    let languages = if question.client.is_some() { Vec::new() } else { languages_here() };
    let has_one = |words: &ClientWords| languages.contains(&words.language);
    let clients = if question.client.is_some() {
        Clients::Whole(&[])
    } else if answer.clients.iter().any(has_one) {
        answer.clients.retain(has_one);
        Clients::Whole(&languages)
    } else if options.url.is_some() {
        Clients::Whole(&[])
    } else {
        Clients::Brief
    };
    output::show(|terminal, out| terminal.render_how(&answer, clients, out))
}

/// Files that say in which language the project of a directory is written.
const PROJECTS: &[(&str, &[&str])] = &[
    ("php", &["composer.json", "wp-config.php", "index.php"]),
    ("python", &["pyproject.toml", "requirements.txt", "setup.py", "manage.py"]),
    ("node", &["package.json"]),
    ("go", &["go.mod"]),
    ("ruby", &["Gemfile"]),
    ("java", &["pom.xml", "build.gradle", "build.gradle.kts"]),
    ("rust", &["Cargo.toml"]),
];

fn languages_here() -> Vec<&'static str> {
    let mut languages = Vec::new();
    for (language, names) in PROJECTS {
        if names.iter().any(|name| Path::new(name).is_file()) {
            languages.push(*language);
        }
    }
    languages
}
