//! Manual pages: what the command line's definition says of each verb, and the sections that readers of manuals
//! look for. Writes no files.

use std::collections::BTreeMap;
use std::io;
use std::sync::LazyLock;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use samehost_bench::workloads::workload;
use serde::Deserialize;

use crate::cli::with_unlisted_verbs;
use crate::exit;

/// A page of section 1.
pub struct Page {
    /// Such as `samehost-scan.1`.
    pub file: String,
    /// In roff.
    pub text: Vec<u8>,
}

/// A page for the program, and one for each verb and workload that is not hidden.
pub fn pages() -> io::Result<Vec<Page>> {
    let mut command = with_unlisted_verbs().disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    add(&command, None, &mut pages)?;
    Ok(pages)
}

fn add(command: &Command, above: Option<&str>, pages: &mut Vec<Page>) -> io::Result<()> {
    let page = name(command);
    for below in verbs(command) {
        add(below, Some(page), pages)?;
    }
    pages.push(Page { file: format!("{page}.1"), text: text(command, above)? });
    Ok(())
}

fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

fn verbs(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|verb| !verb.is_hide_set())
}

fn text(command: &Command, above: Option<&str>) -> io::Result<Vec<u8>> {
    let source = concat!("samehost ", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).source(source).manual("samehost");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    synopsis(command).to_writer(&mut text)?;
    man.render_description_section(&mut text)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut text)?;
    }
    if verbs(command).next().is_some() {
        man.render_subcommands_section(&mut text)?;
    }
    let page = name(command);
    let extra = extra(page);
    let mut roff = Roff::new();
    let statuses = match page {
        page if page.starts_with("samehost-switch") => exit::STATUSES_OF_SWITCH,
        "samehost-run" => exit::STATUSES_OF_RUN,
        _ => exit::STATUSES,
    };
    let statuses = statuses.iter().map(|(status, meaning)| (status.to_string(), (*meaning).to_owned()));
    section(&mut roff, "EXIT STATUS", statuses);
    section(&mut roff, "ENVIRONMENT", named(&EXTRAS.variable, &extra.variables));
    section(&mut roff, "FILES", named(&EXTRAS.file, &extra.files));
    section(&mut roff, "EXAMPLES", examples(page, extra).into_iter());
    see_also(&mut roff, command, above, extra);
    roff.to_writer(&mut text)?;
    Ok(text)
}

/// How a command is called, as its help says it. The options have a section of their own, with their values.
fn synopsis(command: &Command) -> Roff {
    let usage = command.clone().render_usage().to_string();
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    for (at, line) in usage.trim_start_matches("Usage:").lines().enumerate() {
        if at > 0 {
            roff.control("br", []);
        }
        roff.text([roman(line.trim())]);
    }
    roff
}

/// The entries that a page has, by their names, and those of every page.
fn named(all: &[Entry], wanted: &[String]) -> impl Iterator<Item = (String, String)> {
    let of_page = all.iter().filter(|entry| wanted.contains(&entry.name) || entry.is_everywhere);
    of_page.map(|entry| (entry.name.clone(), entry.text.clone()))
}

/// Examples of a page: command and explanation. A workload has its own.
fn examples(page: &str, extra: &Extra) -> Vec<(String, String)> {
    if let Some(name) = page.strip_prefix("samehost-bench-")
        && let Some(workload) = workload(name)
    {
        let known = workload.description();
        return vec![(format!("samehost bench {}", known.example), known.about.to_owned())];
    }
    extra.examples.clone()
}

/// A list of terms with their explanations; nothing if it is empty.
fn section(roff: &mut Roff, title: &str, entries: impl Iterator<Item = (String, String)>) {
    let mut entries = entries.peekable();
    if entries.peek().is_some() {
        roff.control("SH", [title]);
    }
    for (term, text) in entries {
        roff.control("TP", []);
        roff.text([bold(term)]);
        roff.text([roman(text)]);
    }
}

/// The page above, those below, and related ones.
fn see_also(roff: &mut Roff, command: &Command, above: Option<&str>, extra: &Extra) {
    let mut pages: Vec<String> = above.map(page_name).into_iter().collect();
    pages.extend(verbs(command).map(|verb| page_name(name(verb))));
    pages.extend(extra.see.iter().cloned());
    roff.control("SH", ["SEE ALSO"]);
    let mut line = Vec::new();
    for (at, page) in pages.iter().enumerate() {
        let (name, section) = page.split_once('(').unwrap_or((page, ""));
        line.extend([bold(name), roman(format!("({section}"))]);
        if at + 1 < pages.len() {
            line.push(roman(", "));
        }
    }
    roff.text(line);
}

fn page_name(page: &str) -> String {
    format!("{page}(1)")
}

/// A variable of the environment, or a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    text: String,
    #[serde(default)]
    is_everywhere: bool,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Extra {
    /// Names in [`Extras::variable`].
    variables: Vec<String>,
    /// Names in [`Extras::file`].
    files: Vec<String>,
    /// Command and explanation.
    examples: Vec<(String, String)>,
    /// Other pages, with their sections.
    see: Vec<String>,
}

/// What manual pages say beyond the command line's definition: the contents of `extras.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Extras {
    variable: Vec<Entry>,
    file: Vec<Entry>,
    page: BTreeMap<String, Extra>,
}

static EXTRAS: LazyLock<Extras> =
    LazyLock::new(|| match basic_toml::from_str(include_str!("manual/extras.toml")) {
        Ok(extras) => extras,
        Err(error) => panic!("extras.toml: {error}"),
    });

fn extra(page: &str) -> &'static Extra {
    static NOTHING: LazyLock<Extra> = LazyLock::new(Extra::default);
    let name = match page.strip_prefix("samehost-") {
        None => "program",
        Some(verb) if verb.starts_with("bench-") => "workload",
        Some(verb) => verb,
    };
    EXTRAS.page.get(name).unwrap_or(&NOTHING)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;

    fn page(name: &str) -> String {
        let page = pages().unwrap().into_iter().find(|page| page.file == format!("{name}.1")).unwrap();
        String::from_utf8(page.text).unwrap()
    }

    fn all_pages() -> Vec<String> {
        let names = pages().unwrap().into_iter().map(|page| page.file.trim_end_matches(".1").to_owned());
        names.collect()
    }

    #[test]
    fn every_page_has_the_sections_that_readers_look_for() {
        for name in all_pages() {
            let text = page(&name);
            let sections = ["NAME", "SYNOPSIS", "DESCRIPTION", "\"EXIT STATUS\"", "ENVIRONMENT", "EXAMPLES"];
            for section in sections.into_iter().chain(["\"SEE ALSO\""]) {
                assert!(text.contains(&format!(".SH {section}\n")), "{name} has no {section}:\n{text}");
            }
        }
        assert!(page("samehost-switch").contains("it was begun and put back"));
        assert!(page("samehost-switch").contains("/var/lib/samehost"));
    }

    #[test]
    fn every_example_is_understood() {
        for name in all_pages() {
            for (line, _) in examples(&name, extra(&name)) {
                let line = line.trim_start_matches("sudo ").split(" >").next().unwrap();
                // The only quotes are those of whole words.
                let words: Vec<String> = line
                    .split('\'')
                    .enumerate()
                    .flat_map(|(at, part)| match at % 2 {
                        0 => part.split_whitespace().map(str::to_owned).collect(),
                        _ => vec![part.to_owned()],
                    })
                    .collect();
                let mut joined: Vec<String> = Vec::new();
                for word in words {
                    match joined.last_mut() {
                        Some(last) if last.ends_with('=') => last.push_str(&word),
                        _ => joined.push(word),
                    }
                }
                let verb = joined.get(1).cloned().unwrap_or_default();
                assert!(
                    format!("{name}-").starts_with(&format!("samehost-{verb}")) || name == "samehost",
                    "{name}: {line}"
                );
                if let Err(error) = Cli::try_parse_from(&joined) {
                    panic!("{name}: {line}: {error}");
                }
            }
        }
    }

    #[test]
    fn related_pages_and_entries_exist() {
        let all = all_pages();
        for name in &all {
            let extra = extra(name);
            for page in &extra.see {
                let (page, section) = page.split_once('(').unwrap();
                assert!(
                    !page.starts_with("samehost") || all.iter().any(|known| known == page),
                    "{name}: {page}"
                );
                assert!(section.ends_with(')'));
            }
            fn known(all: &[Entry], wanted: &str) -> bool {
                all.iter().any(|entry| entry.name == wanted)
            }
            assert!(extra.variables.iter().all(|name| known(&EXTRAS.variable, name)), "{name}");
            assert!(extra.files.iter().all(|name| known(&EXTRAS.file, name)), "{name}");
        }
    }
}
