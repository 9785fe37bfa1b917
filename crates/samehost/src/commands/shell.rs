//! Completions and manual pages, generated from the command line's own definition.

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use clap::builder::PossibleValuesParser;
use clap::{Arg, Command};
use clap_complete::Shell;
use samehost_model::{Placement, Transport};

use crate::cli::with_unlisted_verbs;
use crate::exit::Ending;
use crate::{manual, output};

/// Words that the shell offers for an argument. Another word stays allowed: only the scripts know these.
struct Offered {
    verb: &'static str,
    argument: &'static str,
    /// Whether it takes a path as well.
    or_path: bool,
    words: Vec<&'static str>,
}

impl Offered {
    fn all() -> Vec<Offered> {
        let services = samehost_scan::services();
        let (mut languages, mut clients) = (Vec::new(), Vec::new());
        for language in samehost_services::languages() {
            languages.push(language.name);
            let words = language.clients.iter().filter_map(samehost_services::Client::word);
            // clap keeps words that live as long as the program, which ends with the script.
            clients.extend(words.map(|word| &*word.leak()));
        }
        clients.sort();
        clients.dedup();
        let offered = |verb, argument, words| Offered {
            verb,
            argument,
            or_path: argument.starts_with("target"),
            words,
        };
        vec![
            offered("how", "service", [services.clone(), clients.clone()].concat()),
            offered("how", "client", [languages, clients].concat()),
            offered("scan", "names", services.clone()),
            offered("verify", "target", services.clone()),
            offered("switch", "targets", services),
            offered("bench", "placement", Placement::ALL.map(Placement::name).to_vec()),
            offered("bench", "transports", Transport::ALL.map(Transport::name).to_vec()),
        ]
    }

    fn add_to(&self, argument: Arg) -> Arg {
        if argument.get_id() == self.argument {
            argument.value_parser(PossibleValuesParser::new(self.words.clone()))
        } else {
            argument
        }
    }

    fn add_below(&self, command: &mut Command) {
        *command = std::mem::take(command).mut_args(|argument| self.add_to(argument));
        command.get_subcommands_mut().for_each(|below| self.add_below(below));
    }
}

pub fn completions(shell: Shell) -> anyhow::Result<Ending> {
    let whole = with_unlisted_verbs();
    // The scripts offer hidden verbs too, those that samehost starts itself with.
    let verbs = whole.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned();
    let mut command = Command::new("samehost").version(env!("CARGO_PKG_VERSION")).subcommands(verbs);
    command = command.args(whole.get_arguments().cloned());
    command.build();
    let offered = Offered::all();
    for one in &offered {
        let verbs = command.get_subcommands_mut();
        verbs.filter(|verb| verb.get_name() == one.verb).for_each(|verb| one.add_below(verb));
    }
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "samehost", &mut script);
    let script = String::from_utf8(script).context("a script of completions")?;
    let script = match shell {
        Shell::Fish => for_fish(script, &offered),
        Shell::Zsh => for_zsh(script, &offered),
        _ => script,
    };
    output::Stdout.write_all(script.as_bytes()).context("standard output")?;
    Ok(Ending::Done)
}

/// clap's script for fish offers nothing for what is not an option.
fn for_fish(mut script: String, offered: &[Offered]) -> String {
    for one in offered.iter().filter(|one| ["how", "scan", "verify", "switch"].contains(&one.verb)) {
        if one.argument == "client" {
            continue;
        }
        let (verb, words) = (one.verb, one.words.join(" "));
        script.push_str(&format!(
            "complete -c samehost -n \"__fish_samehost_using_subcommand {verb}\" -a \"{words}\"\n"
        ));
    }
    script
}

/// clap's script for zsh offers words or paths, not both.
fn for_zsh(script: String, offered: &[Offered]) -> String {
    let Some(one) = offered.iter().find(|one| one.or_path) else { return script };
    let words = one.words.join(" ");
    let both = format!("{{_alternative \"services:service:({words})\" \"files:file:_files\"}}");
    let lines = script.lines().map(|line| {
        let takes_path = line.contains(":target -- ") || line.contains(":targets -- ");
        if takes_path { line.replace(&format!("({words})"), &both) } else { line.to_owned() }
    });
    lines.map(|line| line + "\n").collect()
}

pub fn man(directory: &Path) -> anyhow::Result<Ending> {
    std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    for page in manual::pages()? {
        let path = directory.join(&page.file);
        std::fs::write(&path, &page.text).with_context(|| path.display().to_string())?;
    }
    Ok(Ending::Done)
}
