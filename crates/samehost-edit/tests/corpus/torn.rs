//! Torn files of the corpus, held against the real program: whatever an editor still changes in them, the program must
//! read as asked. Where it refuses, nothing is promised.

use std::collections::BTreeSet;
use std::path::Path;

use crate::disk::Disk;
use proptest::prelude::*;
use samehost_edit::{Goal, Move, editor, propose};
use samehost_model::Endpoint;

use crate::Ask;
use crate::case::Case;
use crate::tear::{drawn, tear, tears};

/// Holds an editor against its program on torn files. A fact `NAME means ENDPOINT` says where a setting of this name
/// leads; files for which the program shows no such fact say nothing.
pub(crate) fn hold(name: &str, cases: u32, ask: Ask) {
    let all = Case::all(name);
    let all: Vec<&Case> = all.iter().filter(|case| case.is_edited()).collect();
    let strategy = (any::<prop::sample::Index>(), any::<prop::sample::Index>(), tears());
    let config = drawn(cases);
    proptest!(config, |((which, part, tears) in strategy)| {
        let case = which.get(&all);
        let root = case.materialise();
        let names: Vec<&String> = case.before.keys().collect();
        let torn = root.path().join(part.get(&names));
        let text = tear(std::fs::read(&torn).unwrap(), &tears);
        std::fs::write(&torn, &text).unwrap();
        if let Err(wrong) = one(name, &case.file(root.path()), root.path(), ask) {
            panic!("{}, {}: {wrong}\n{}", case.path.display(), torn.display(), text.escape_ascii());
        }
    });
}

fn one(name: &str, file: &Path, root: &Path, ask: Ask) -> Result<(), String> {
    let editor = editor(name).ok_or("no such editor")?;
    let Ok(reading) = editor.read(file, &Disk::default()) else { return Ok(()) };
    let before = ask(file, root);
    for setting in &reading.settings {
        let start = format!("{} means ", setting.name);
        let Some(said) = before.iter().find_map(|fact| fact.strip_prefix(&start)) else { continue };
        if said != setting.endpoint.to_string() {
            return Err(format!("the editor reads {setting:?}, and the program {said}"));
        }
        let to: Endpoint = "unix:/run/samehost/.s.PGSQL.5432".parse().map_err(|_| "endpoint")?;
        let moves = [Move { setting: setting.clone(), goal: Goal::client(to.clone()) }];
        let Ok(proposals) = propose(editor, file, &Disk::default(), &moves) else { continue };
        for proposal in &proposals {
            if let Some(directory) = proposal.file.parent() {
                std::fs::create_dir_all(directory).map_err(|error| error.to_string())?;
            }
            std::fs::write(&proposal.file, &proposal.after).map_err(|error| error.to_string())?;
        }
        let after = ask(file, root);
        for proposal in proposals {
            match proposal.before {
                Some(before) => std::fs::write(&proposal.file, before),
                None => std::fs::remove_file(&proposal.file),
            }
            .map_err(|error| error.to_string())?;
        }
        let moved =
            |fact: &String| if fact.starts_with(&start) { format!("{start}{to}") } else { fact.clone() };
        let wanted: BTreeSet<String> = before.iter().map(moved).collect();
        if after != wanted {
            return Err(format!("the program says\n{after:#?}\nwhere this was wanted\n{wanted:#?}"));
        }
    }
    Ok(())
}
