//! Manual pages say what the program can do.

use clap::Parser;

use super::*;

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
            assert!(!page.starts_with("samehost") || all.iter().any(|known| known == page), "{name}: {page}");
            assert!(section.ends_with(')'));
        }
        fn known(all: &[Entry], wanted: &str) -> bool {
            all.iter().any(|entry| entry.name == wanted)
        }
        assert!(extra.variables.iter().all(|name| known(&EXTRAS.variable, name)), "{name}");
        assert!(extra.files.iter().all(|name| known(&EXTRAS.file, name)), "{name}");
    }
}
