//! The gauge of the house: its size, printed at each `cargo xtask tidy`. None of these figures may rise without a change of its
//! number here, in a commit that says why; a change that lowers one lowers its number as well. Files, closures and comments
//! are not counted: what is counted so is joined, renamed and left out until the count is right.
//!
//! Verbs and options are counted where they are defined (crates/samehost/src/cli.rs, in a test).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::process::{cargo_command, text};
use crate::{files, suite};

/// A source file of a crate, without its tests.
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

/// Lines of code, comments and blanks of all crates and of xtask, without tests.
const MAX_PRODUCTION_LINES: usize = 138_571;
/// Crates linked into the program: `cargo tree -p samehost -e normal,build`.
const MAX_CRATES: usize = 169;
/// Words of all Markdown.
const MAX_WORDS: usize = 54_508;
/// How long the suite ran on two CPUs, with its build, where docs/evidence/tests.txt was made.
const MAX_SUITE_S: u64 = 1_931;
/// Most files that import each other in a circle: a reader of one has to read all of them.
const MAX_IN_CIRCLES: usize = 0;

/// Prints the figures, and returns a sentence for each that is too large.
pub(crate) fn read(root: &Path, sources: &[Source]) -> anyhow::Result<Vec<String>> {
    let mut faults = Vec::new();
    let mut show = |what: &str, number: usize, max: usize| {
        println!("{number:>7}  {what} (at most {max})");
        if number > max {
            faults.push(format!(
                "{number} {what}, at most {max}: make it smaller, or say in the commit why not"
            ));
        }
    };
    let lines = sources.iter().map(|source| source.text.lines().count()).sum();
    show("lines of production code", lines, MAX_PRODUCTION_LINES);
    show("crates in the program", count_crates()?, MAX_CRATES);
    show("words of Markdown", count_words(root)?, MAX_WORDS);
    if let Some(seconds) = suite::committed_s() {
        show("seconds of the suite, as committed", seconds as usize, MAX_SUITE_S as usize);
    }
    let circles = circles(sources, &arrows(sources));
    show("files that import each other in a circle", circles.iter().map(Vec::len).sum(), MAX_IN_CIRCLES);
    for circle in circles {
        let names: Vec<String> = circle.iter().map(|path| path.display().to_string()).collect();
        println!("         {}", names.join(" "));
    }
    Ok(faults)
}

fn count_crates() -> anyhow::Result<usize> {
    let words =
        ["tree", "-p", "samehost", "-e", "normal,build", "--prefix", "none", "--format", "{p}", "--locked"];
    let tree = text(&mut cargo_command(&words)).context("counting crates")?;
    let crates: BTreeSet<&str> = tree.lines().map(|line| line.split(" (").next().unwrap_or(line)).collect();
    Ok(crates.len())
}

fn count_words(root: &Path) -> anyhow::Result<usize> {
    let mut count = 0;
    for path in files(root, &["md"])? {
        count += std::fs::read_to_string(&path)?.split_whitespace().count();
    }
    Ok(count)
}

/// Which file imports which, by their places in the list.
fn arrows(sources: &[Source]) -> BTreeSet<(usize, usize)> {
    let places: Vec<_> = sources.iter().map(|source| module(&source.path)).collect();
    let modules: BTreeMap<_, usize> = places.iter().cloned().zip(0..).collect();
    let mut arrows = BTreeSet::new();
    for (index, source) in sources.iter().enumerate() {
        let (package, place) = &places[index];
        for path in imports(&source.text, place) {
            // The longest part of a path that is a module; a name of this file itself is none.
            let found = (0..=path.len())
                .rev()
                .find_map(|length| modules.get(&(package.clone(), path[..length].to_vec())));
            // What a file shares with the files below it is nesting, and not a circle.
            let is_nested = |to: usize| place.starts_with(&places[to].1) || places[to].1.starts_with(place);
            if let Some(to) = found.filter(|to| !is_nested(**to)) {
                arrows.insert((index, *to));
            }
        }
    }
    arrows
}

/// Groups of files of which each imports every other, by way of others or not.
fn circles(sources: &[Source], arrows: &BTreeSet<(usize, usize)>) -> Vec<Vec<PathBuf>> {
    let mut reaches = vec![vec![false; sources.len()]; sources.len()];
    for (from, to) in arrows {
        reaches[*from][*to] = true;
    }
    for between in 0..sources.len() {
        let beyond = reaches[between].clone();
        for row in reaches.iter_mut().filter(|row| row[between]) {
            for (is_reached, is_beyond) in row.iter_mut().zip(&beyond) {
                *is_reached |= is_beyond;
            }
        }
    }
    let mut circles: Vec<Vec<usize>> = Vec::new();
    for index in (0..sources.len()).filter(|index| reaches[*index][*index]) {
        match circles.iter_mut().find(|circle| reaches[index][circle[0]] && reaches[circle[0]][index]) {
            Some(circle) => circle.push(index),
            None => circles.push(vec![index]),
        }
    }
    circles.iter().map(|circle| circle.iter().map(|index| sources[*index].path.clone()).collect()).collect()
}

/// The package of a file and its module: `crates/a/src/b/mod.rs` is `b` of `a`.
fn module(path: &Path) -> (String, Vec<String>) {
    let mut words: Vec<String> = path
        .with_extension("")
        .components()
        .map(|part| part.as_os_str().to_string_lossy().into_owned())
        .collect();
    let source = words.iter().position(|word| word == "src").unwrap_or_default();
    let mut place = words.split_off(source + 1);
    if place.last().is_some_and(|name| ["mod", "lib", "main"].contains(&name.as_str())) {
        place.pop();
    }
    (words.join("/"), place)
}

/// The paths of its own crate that a file imports or names, from the root of the crate on.
fn imports(text: &str, place: &[String]) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    let code =
        text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    for (at, _) in code.match_indices("use ") {
        let is_statement = code[..at].ends_with(['\n', ' ', ')']) || at == 0;
        let Some(end) = code[at..].find(';').filter(|_| is_statement) else { continue };
        expand(&code[at + 4..at + end], &[], &mut paths);
    }
    // What is named in full where it is used is imported as well.
    for start in ["crate::", "super::"] {
        for (at, _) in code.match_indices(start) {
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
            if code[..at].ends_with(is_word) {
                continue;
            }
            let rest = &code[at..];
            let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            expand(rest[..end].trim_end_matches(':'), &[], &mut paths);
        }
    }
    paths.into_iter().filter_map(|path| absolute(&path, place)).collect()
}

/// Writes each path of `a::{b, c::{d, e}}` apart.
fn expand(tree: &str, before: &[String], paths: &mut Vec<Vec<String>>) {
    let tree = tree.trim();
    let (head, group) = tree.split_once('{').unwrap_or((tree, ""));
    let name = head.trim_end_matches("::").split(" as ").next().unwrap_or_default();
    let mut path = before.to_vec();
    path.extend(name.split("::").map(|word| word.trim().to_owned()).filter(|word| !word.is_empty()));
    if !tree.contains('{') {
        paths.push(path);
        return;
    }
    let (mut depth, mut from) = (0_i32, 0);
    let inside = group.trim_end().strip_suffix('}').unwrap_or(group);
    for (at, c) in inside.char_indices().chain([(inside.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth <= 0 => {
                if !inside[from..at].trim().is_empty() {
                    expand(&inside[from..at], &path, paths);
                }
                from = at + 1;
            }
            _ => {}
        }
    }
}

/// A path from the root of the crate; `None` for other crates.
fn absolute(path: &[String], place: &[String]) -> Option<Vec<String>> {
    let (first, rest) = path.split_first()?;
    match first.as_str() {
        "crate" => Some(rest.to_vec()),
        "self" => Some([place, rest].concat()),
        "super" => {
            let parent = place.get(..place.len().checked_sub(1)?)?;
            match rest.first().map(String::as_str) {
                Some("super") => absolute(rest, parent),
                _ => Some([parent, rest].concat()),
            }
        }
        // A child, which needs no word before it.
        _ => Some([place, path].concat()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.into(), text: text.into() }
    }

    #[test]
    fn a_circle_is_found_through_groups_and_parents() {
        let sources = [
            source("crates/a/src/lib.rs", "mod b;\nmod c;\npub use c::{D, e::{F, G}};\n"),
            source("crates/a/src/b.rs", "use crate::{x, c::{\n    D,\n}};\n"),
            source("crates/a/src/c/mod.rs", "use super::b;\n"),
            source("crates/a/src/c/e.rs", "use std::fmt;\n"),
            source("crates/b/src/lib.rs", "use a::b;\n"),
        ];
        let found = circles(&sources, &arrows(&sources));
        assert_eq!(found, [vec![PathBuf::from("crates/a/src/b.rs"), PathBuf::from("crates/a/src/c/mod.rs")]]);
    }
    #[test]
    fn what_is_named_in_full_is_imported() {
        let sources = [
            source("crates/a/src/b.rs", "fn b() {\n    crate::c::d();\n}\n"),
            source("crates/a/src/c.rs", "// crate::e is not read\nfn d() {\n    super::b::b();\n}\n"),
        ];
        assert_eq!(circles(&sources, &arrows(&sources)).concat().len(), 2);
    }
}
