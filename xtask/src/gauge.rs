//! The gauge of the house: figures of the sources that are printed at each `cargo xtask tidy`, and that may not grow. Each has a
//! reason and a number; a change that lowers one lowers its number here as well.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A source file of a crate, without its tests.
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

struct Rule {
    what: &'static str,
    most: usize,
    reason: &'static str,
    counts: fn(&str) -> bool,
}

const RULES: &[Rule] = &[
    Rule {
        what: "closures bound to a name",
        most: 143,
        reason: "a chain that needs names for its parts is read twice: write a loop with early `continue`, or a function",
        counts: |line| bound_closure(line).is_some(),
    },
    Rule {
        what: "closures called of, at, one, has, own",
        most: 0,
        reason: "such a name says nothing where it is called: take a verb or a noun of the field",
        counts: |line| {
            bound_closure(line).is_some_and(|name| ["of", "at", "one", "has", "own"].contains(&name))
        },
    },
    Rule {
        what: "dialect names (said, told, held, wish, spelled)",
        most: 0,
        reason: "the glossary has the words: reported, message, verified, request, written",
        counts: is_dialect_name,
    },
    Rule {
        what: "sentences \"X is no Y\"",
        most: 0,
        reason: "\"is not a\" and \"has no\" are how everybody else says it",
        counts: is_no_noun,
    },
    Rule {
        what: "sentences taken apart",
        most: 0,
        reason: "a better wording would break the program: have the parts as data (samehost-model/src/reason.rs)",
        counts: |line| {
            let code = line.trim_start();
            let is_taken_apart = ["split(\"; \")", "split_once(\"; \")", "warnings.first()", "warnings[0]"];
            !code.starts_with("//") && is_taken_apart.iter().any(|pattern| code.contains(pattern))
        },
    },
];

fn bound_closure(line: &str) -> Option<&str> {
    let (name, value) = line.trim_start().strip_prefix("let ")?.split_once(" = ")?;
    let value = value.strip_prefix("move ").unwrap_or(value);
    let is_name = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_' || byte.is_ascii_digit());
    (is_name && value.starts_with('|')).then_some(name)
}

const DIALECT: [&str; 5] = ["said", "told", "held", "wish", "spelled"];

fn is_dialect_name(line: &str) -> bool {
    let code = line.trim_start();
    if code.starts_with("//") {
        return false;
    }
    for word in ["let mut ", "let ", "fn "] {
        if let Some((_, after)) = code.split_once(word) {
            let name =
                after.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default();
            if DIALECT.contains(&name) {
                return true;
            }
        }
    }
    DIALECT.iter().any(|name| is_declared(code, name))
}

/// Whether a line declares a parameter or a field of this name.
fn is_declared(code: &str, name: &str) -> bool {
    for (at, _) in code.match_indices(&format!("{name}: ")) {
        let before = &code[..at];
        if before.is_empty() || ["(", ", ", "pub ", ") ", "mut "].iter().any(|end| before.ends_with(end)) {
            return true;
        }
    }
    false
}

/// Whether a comment or a message says that something is no something; "there is no" and "no longer" are plain English.
fn is_no_noun(line: &str) -> bool {
    const IDIOMS: [&str; 10] =
        ["longer", "way", "such", "room", "more", "need", "doubt", "other", "less", "difference"];
    let is_prose = line.trim_start().starts_with("//") || line.contains('"');
    let mut rest = line;
    while let Some((at, verb)) =
        [" is no ", " are no "].iter().filter_map(|verb| Some((rest.find(verb)?, verb))).min()
    {
        let is_there = rest[..at].to_ascii_lowercase().ends_with("there");
        rest = &rest[at + verb.len()..];
        let word = rest.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
        if is_prose && !is_there && !word.is_empty() && !IDIOMS.contains(&word) {
            return true;
        }
    }
    false
}

/// Most files that import each other in a circle: a reader of one has to read all of them.
const MOST_IN_CIRCLES: usize = 0;
/// Most arrows against the order of the rooms inside the crates: who reads from the bottom up has to look ahead there.
const MOST_BACK_ARROWS: usize = 2;
/// Most source files: each is a door that a reader opens, and one request crosses fourteen.
const MOST_FILES: usize = 572;

pub(crate) fn read(sources: &[Source]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut show = |what: &str, number: usize, most: usize, reason: &str| {
        println!("{number:>7}  {what} (at most {most})");
        if number > most {
            faults.push(format!("{number} {what}, at most {most}: {reason}"));
        }
    };
    let lines: usize = sources.iter().map(|source| source.text.lines().count()).sum();
    println!("{lines:>7}  lines of production code");
    show("files", sources.len(), MOST_FILES, "what is always read together stands together");
    for rule in RULES {
        let number =
            sources.iter().flat_map(|source| source.text.lines()).filter(|line| (rule.counts)(line)).count();
        show(rule.what, number, rule.most, rule.reason);
    }
    let arrows = arrows(sources);
    let circles = circles(sources, &arrows);
    let number = circles.iter().map(Vec::len).sum();
    show(
        "files that import each other in a circle",
        number,
        MOST_IN_CIRCLES,
        "import a name from the file that defines it",
    );
    for circle in circles {
        let names: Vec<String> = circle.iter().map(|path| path.display().to_string()).collect();
        println!("         {}", names.join(" "));
    }
    let back = back_arrows(sources, &arrows);
    show(
        "arrows back inside crates",
        back.len(),
        MOST_BACK_ARROWS,
        "move what both rooms need below both, or to the one that defines it",
    );
    for arrow in back {
        println!("         {arrow}");
    }
    faults
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

/// Which room of a folder imports which; a room is a file or a folder in it.
type Rooms = BTreeSet<(String, String)>;

/// Arrows between the rooms of a folder that lead back where most lead forth, each as `package: folder/room → room`.
fn back_arrows(sources: &[Source], arrows: &BTreeSet<(usize, usize)>) -> Vec<String> {
    let mut folders: BTreeMap<(String, Vec<String>), Rooms> = BTreeMap::new();
    for (from, to) in arrows {
        let ((package, from), (_, to)) = (module(&sources[*from].path), module(&sources[*to].path));
        let shared = from.iter().zip(&to).take_while(|(one, other)| one == other).count();
        let folder = folders.entry((package, from[..shared].to_vec())).or_default();
        folder.insert((from[shared].clone(), to[shared].clone()));
    }
    let mut back = Vec::new();
    for ((package, folder), rooms) in folders {
        let order = order(&rooms);
        let place = |room: &String| order.iter().position(|one| *one == room);
        for (from, to) in rooms.iter().filter(|(from, to)| place(from) > place(to)) {
            back.push(format!(
                "{package}: {} → {to}",
                [folder.as_slice(), std::slice::from_ref(from)].concat().join("/")
            ));
        }
    }
    back
}

/// An order of rooms with few arrows back, who imports before what is imported. To find the best takes too long; this is the
/// way of Eades, Lin and Smyth (1993): who imports nothing that is left goes to the end, what nobody imports to the front,
/// and where there is neither, the room with the most arrows out of it, less those into it.
fn order(arrows: &Rooms) -> Vec<&String> {
    let mut left: BTreeSet<&String> = arrows.iter().flat_map(|(from, to)| [from, to]).collect();
    let (mut front, mut end) = (Vec::new(), Vec::new());
    while !left.is_empty() {
        let are_left = |(from, to): &&(String, String)| left.contains(from) && left.contains(to);
        let mut chosen: Option<(isize, &String)> = None;
        for room in &left {
            let out = arrows.iter().filter(are_left).filter(|(from, _)| from == *room).count();
            let into = arrows.iter().filter(are_left).filter(|(_, to)| to == *room).count();
            let gain = match (out, into) {
                (0, _) => isize::MIN,
                (_, 0) => isize::MAX,
                _ => out as isize - into as isize,
            };
            let is_better =
                chosen.is_none_or(|(most, _)| gain == isize::MIN || (most != isize::MIN && gain > most));
            if is_better {
                chosen = Some((gain, room));
            }
        }
        let Some((gain, room)) = chosen else { break };
        left.remove(room);
        if gain == isize::MIN { end.push(room) } else { front.push(room) }
    }
    front.extend(end.into_iter().rev());
    front
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

/// The paths that a file imports from its own crate, from the root of the crate on.
fn imports(text: &str, place: &[String]) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    let code =
        text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    for (at, _) in code.match_indices("use ") {
        let is_statement = code[..at].ends_with(['\n', ' ', ')']) || at == 0;
        let Some(end) = code[at..].find(';').filter(|_| is_statement) else { continue };
        expand(&code[at + 4..at + end], &[], &mut paths);
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
    fn lines_are_counted_for_what_they_are() {
        assert_eq!(bound_closure("    let of = |x| x;"), Some("of"));
        assert_eq!(bound_closure("let is_one = move || true;"), Some("is_one"));
        assert_eq!(bound_closure("let (a, b) = |x| x;"), None);
        assert_eq!(bound_closure("let a = b | c;"), None);
        assert!(is_dialect_name("    let mut told = Vec::new();") && is_dialect_name("pub fn said(&self) {"));
        assert!(is_dialect_name("    pub(crate) held: Locks,") && is_dialect_name("fn last(said: &str) {"));
        assert!(!is_dialect_name("    let separator = \"; the servers said: \";"));
        assert!(!is_dialect_name("let untold = 1;") && !is_dialect_name("// let told = 1;"));
        assert!(
            is_no_noun("/// What is no plain value is none.")
                && is_no_noun("format!(\"{} is no directory\")")
        );
        assert!(!is_no_noun("// There is no longer a file, and is no way back."));
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
    fn an_arrow_back_is_the_one_against_most() {
        let sources = [
            source("crates/a/src/top.rs", "use crate::middle::x;\nuse crate::bottom::y;\n"),
            source("crates/a/src/middle/mod.rs", "mod one;\nmod two;\n"),
            source("crates/a/src/middle/one.rs", "use super::two::z;\nuse crate::bottom::y;\n"),
            source("crates/a/src/middle/two.rs", ""),
            source("crates/a/src/bottom.rs", "use crate::top::t;\n"),
        ];
        assert_eq!(back_arrows(&sources, &arrows(&sources)), ["crates/a/src: bottom → top"]);
    }
}
