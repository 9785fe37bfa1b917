//! Compose beside a `.env`: what a service has in `environment:`, or in an `env_file:` of its own, goes before the file in that
//! container. An application that runs on this machine is not concerned (its container's processes are asked for their
//! environment), so these are notes: many projects have a compose.yaml for their developers alone.

use std::path::Path;

use samehost_edit::{Files, editor};

use super::effective::{Variables, moved_by};
use super::hop::Hop;
use super::stages::{PlannedStage, shown};

/// Notes on variables that move and that Compose sets as well.
pub(super) fn notes(hops: &[Hop], stages: &[PlannedStage]) -> Vec<String> {
    let mut notes = Vec::new();
    let names = editor("compose").map_or(&[][..], |editor| editor.names());
    for hop in hops {
        let moved = moved_by(hop, stages);
        let folder = hop.setting.file.parent().unwrap_or(Path::new("/"));
        let files = hop.config.files();
        for path in names.iter().map(|name| folder.join(name)) {
            let Ok(bytes) = files.read(&path) else { continue };
            let text = String::from_utf8_lossy(&bytes);
            for (line, name) in set_in(&text, &moved) {
                notes.push(format!(
                    "{}:{line} gives a container {name}, which goes before {} there: change it too where the application runs in one",
                    shown(&path),
                    shown(&hop.setting.file)
                ));
            }
            for other in env_files(&text).iter().map(|name| folder.join(name)) {
                if other == hop.setting.file {
                    continue;
                }
                let Ok(bytes) = files.read(&other) else { continue };
                for (line, name) in set_in(&String::from_utf8_lossy(&bytes), &moved) {
                    notes.push(format!(
                        "{}:{line} sets {name} for a container (env_file of {}): change it too where the application runs in one",
                        shown(&other),
                        shown(&path)
                    ));
                }
            }
        }
    }
    notes
}

/// Lines that set a variable to another value than the one that it gets. `${DB_HOST}` is taken from the file itself.
fn set_in(text: &str, moved: &Variables) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let code = line.trim().trim_start_matches("- ").trim_matches(['"', '\'']);
        for sign in ["=", ":"] {
            let Some((name, value)) = code.split_once(sign) else { continue };
            let (name, value) = (name.trim(), value.trim().trim_matches(['"', '\'']));
            if moved.get(name).is_some_and(|new| new != value) && !value.contains('$') && !value.is_empty() {
                found.push((index + 1, name.to_owned()));
                break;
            }
        }
    }
    found
}

/// The files in `env_file:` of any service.
fn env_files(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_list = false;
    for line in text.lines() {
        let code = line.trim();
        if let Some(value) = code.strip_prefix("env_file:") {
            is_list = value.trim().is_empty();
            found.extend(
                Some(value.trim().trim_matches(['[', ']', '"', '\'', ' ']).to_owned())
                    .filter(|one| !one.is_empty()),
            );
            continue;
        }
        let item = code
            .strip_prefix("- ")
            .map(|item| item.trim_start_matches("path:").trim().trim_matches(['"', '\'']));
        match item.filter(|_| is_list) {
            Some(item) => found.push(item.to_owned()),
            None => is_list = false,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_compose_sets_itself_is_found_and_what_it_takes_from_the_file_is_not() {
        let moved =
            Variables::from([("DB_HOST".into(), "/run/pg".into()), ("DB_PORT".into(), "5432".into())]);
        let text =
            "services:\n  app:\n    environment:\n      DB_HOST: 127.0.0.1\n      - \"DB_PORT=5499\"\n";
        assert_eq!(set_in(text, &moved), [(4, "DB_HOST".to_owned()), (5, "DB_PORT".to_owned())]);
        assert!(
            set_in("      DB_HOST: ${DB_HOST}\n      DB_PORT: 5432\n      - DB_HOST\n", &moved).is_empty()
        );
        let files = env_files(
            "    env_file: a.env\n  b:\n    env_file:\n      - ./b.env\n      - path: c.env\n    image: x\n",
        );
        assert_eq!(files, ["a.env", "./b.env", "c.env"]);
    }
}
