//! Every example in README and docs is run: `$ samehost …` lines of `console` blocks, file by file, in order, in one
//! directory. Measurements are shortened; what the documentation shows must have the shape of what comes.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::support::{Ended, Home, QUICK};

struct Example {
    command: String,
    shown: Vec<String>,
}

fn examples(text: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        if line.starts_with("```") {
            inside = !inside && line == "```console";
        } else if inside {
            match line.strip_prefix("$ ") {
                Some(command) => examples.push(Example { command: command.into(), shown: Vec::new() }),
                None => examples.last_mut().expect("output follows a command").shown.push(line.into()),
            }
        }
    }
    examples
}

/// The words of a command line, single quotes respected.
fn words(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for character in command.chars() {
        match character {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            other => words.last_mut().unwrap().push(other),
        }
    }
    words
}

/// A line without what differs from machine to machine.
fn shape(line: &str) -> String {
    line.chars().filter(|c| !c.is_ascii_digit() && !" .,".contains(*c)).collect()
}

fn shortened(arguments: &[String]) -> Vec<String> {
    let mut arguments = arguments.to_vec();
    let is_bench = arguments.first().is_some_and(|verb| verb == "bench");
    if arguments.is_empty() {
        arguments.extend(["--budget".into(), "20s".into()]);
    } else if arguments[0] == "--budget" {
        arguments[1] = "20s".into();
    } else if arguments[0] == "reproduce" {
        arguments.extend(["--budget".into(), "2s".into()]);
    } else if is_bench {
        while let Some(at) =
            arguments.iter().position(|word| QUICK.contains(&word.as_str()) && word.starts_with("--"))
        {
            arguments.drain(at..=at + 1);
        }
        let whole = ["command", "burst", "dump", "copy"];
        let takes_time = !arguments.iter().any(|word| whole.contains(&word.as_str()));
        let quick: Vec<&str> = if takes_time {
            QUICK.to_vec()
        } else {
            vec!["--min-blocks", "2", "--max-blocks", "2", "--no-control"]
        };
        arguments.extend(quick.into_iter().map(str::to_owned));
    }
    arguments
}

fn run(home: &Home, folder: &Path, example: &Example) -> Ended {
    let words = words(&example.command);
    assert_eq!(words[0], "samehost", "{}", example.command);
    let arguments = shortened(&words[1..]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut command = home.command(&arguments);
    command.current_dir(folder).env("COLUMNS", "100");
    if arguments.first() != Some(&"serve") {
        return Ended::of(&command.output().unwrap());
    }
    // A server runs until it is stopped: its first lines are what the example shows.
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let stdout: Vec<String> = example.shown.iter().map(|_| lines.next().unwrap().unwrap()).collect();
    crate::support::send(child.id(), rustix::process::Signal::TERM);
    let status = child.wait().unwrap().code().unwrap_or(-1);
    Ended { status, stdout: stdout.join("\n"), stderr: String::new() }
}

fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut documents = vec![root.join("README.md")];
    for entry in fs::read_dir(root.join("docs")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "md") {
            documents.push(path);
        }
    }
    documents
}

#[test]
fn every_example_runs_and_looks_as_shown() {
    let mut count = 0;
    for document in documents() {
        let home = Home::new();
        let folder = home.path("work");
        fs::create_dir(&folder).unwrap();
        for example in examples(&fs::read_to_string(&document).unwrap()) {
            let ended = run(&home, &folder, &example);
            let place = format!("{}: {}", document.display(), example.command);
            assert_eq!(ended.status, 0, "{place}\n{}", ended.stderr);
            if let Some(first) = example.shown.first() {
                let found = ended.stdout.lines().next().unwrap_or_default();
                assert_eq!(shape(first), shape(found), "{place}");
            }
            count += 1;
        }
        home.assert_nothing_left();
    }
    assert!(count >= 10, "only {count} examples were found");
}

/// The ids that GitHub gives the headings of a document: lower case, blanks become hyphens, a second one of the same words gets a number.
fn headings(text: &str) -> Vec<String> {
    let mut ids: Vec<String> = Vec::new();
    let prose = text.split("\n```").step_by(2);
    for line in prose.flat_map(str::lines).filter(|line| line.starts_with('#')) {
        let title = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        let id: String = title.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect();
        let of_same_words = |known: &&String| {
            **known == id || known.strip_prefix(&id).is_some_and(|rest| rest[1..].parse::<u32>().is_ok())
        };
        match ids.iter().filter(of_same_words).count() {
            0 => ids.push(id),
            count => ids.push(format!("{id}-{count}")),
        }
    }
    ids
}

#[test]
fn links_between_documents_lead_to_files_and_headings() {
    assert_eq!(headings("# A `b`\n\n## One\n```sh\n# no\n```\n## One\n"), ["a-b", "one", "one-1"]);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut all = documents();
    all.extend(["CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"].map(|name| root.join(name)));
    all.extend(fs::read_dir(root.join("docs/decisions")).unwrap().map(|entry| entry.unwrap().path()));
    let mut count = 0;
    for document in all {
        let text = fs::read_to_string(&document).unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if target.starts_with("http") {
                continue;
            }
            let (file, id) = target.split_once('#').unwrap_or((target, ""));
            let path = match file {
                "" => document.clone(),
                file => document.parent().unwrap().join(file),
            };
            assert!(path.exists(), "{}: {target}", document.display());
            if !id.is_empty() {
                let known = headings(&fs::read_to_string(&path).unwrap());
                assert!(known.iter().any(|known| known == id), "{}: {target}: {known:?}", document.display());
                count += 1;
            }
        }
    }
    assert!(count >= 10, "only {count} links to headings were found");
}

/// The cells of the first table of docs/programs.md, with the program and the column of each.
fn cells(text: &str) -> Vec<(String, String)> {
    let lines =
        text.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let mut rows = lines.map(|line| {
        let cells = line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned());
        cells.collect::<Vec<_>>()
    });
    let columns = rows.next().expect("a table");
    assert_eq!(columns, ["program", "bench", "scan", "verify", "how", "switch"]);
    rows.next();
    let mut found = Vec::new();
    for row in rows {
        assert_eq!(row.len(), columns.len(), "{row:?}");
        let place = |column: &String| format!("{}, {column}", row[0]);
        found.extend(columns.iter().map(place).zip(row.iter().cloned()).skip(1));
    }
    found
}

/// Every cell names tests and corpora that are there, or says why it has none.
#[test]
fn every_cell_of_the_table_of_programs_has_a_test_or_a_reason() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let tests = samehost_testing::files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e"));
    let tests: String = tests.values().map(|text| String::from_utf8_lossy(text).into_owned()).collect();
    let cells = cells(&fs::read_to_string(root.join("docs/programs.md")).unwrap());
    let mut with_tests = 0;
    for (place, cell) in &cells {
        let names: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
        for name in &names {
            let is_test = tests.contains(&format!("#[test]\nfn {name}()"));
            let is_corpus = root.join("crates/samehost-edit/corpus").join(name).is_dir();
            assert!(is_test || is_corpus, "{place}: {name}");
        }
        let reason = cell.strip_prefix("– because ").map(|words| words.split_whitespace().count());
        assert!(
            reason.map_or(!names.is_empty(), |words| words >= 3),
            "{place}: neither a test nor a reason: {cell}"
        );
        with_tests += usize::from(reason.is_none());
    }
    assert!(cells.len() > 150 && with_tests > 100, "{} cells, {with_tests} with tests", cells.len());
}
