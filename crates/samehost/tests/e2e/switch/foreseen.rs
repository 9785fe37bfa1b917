//! What a dry run says beforehand, held against the real run of the same command: the same status, the same obstacles with
//! their options, the same files. Every switch that the tests of a stack make is asked for it.

use std::collections::BTreeSet;

use serde_json::Value;

use super::stack::{Ended, Stack, in_one_line};

/// Subcommands that plan nothing.
const OTHERS: &[&str] = &["undo", "list", "check", "confirm", "recover", "prune"];
/// What depends on who is connected in the moment of the look, or in its seconds.
const OF_THE_MOMENT: &[&str] = &["still-used", "tls"];

/// What a dry run said.
pub(crate) struct Foreseen {
    ended: Ended,
    codes: BTreeSet<String>,
    files: BTreeSet<String>,
}

impl Foreseen {
    /// The dry run of a command that makes a switch without a person; `None` of every other command.
    pub(crate) fn of(stack: &Stack, arguments: &[&str]) -> Option<Self> {
        let makes = arguments.first() == Some(&"switch") && arguments.contains(&"--yes");
        let verb = arguments.get(1)?;
        if !makes || OTHERS.contains(verb) || arguments.contains(&"--dry-run") {
            return None;
        }
        let more: &[&str] =
            if arguments.contains(&"--json") { &["--dry-run"] } else { &["--dry-run", "--json"] };
        let ended = Ended::of(&stack.command(&[arguments, more].concat()).output().unwrap());
        // A wrong use has no report, and the real run says the same.
        let report: Value = serde_json::from_str(&ended.stdout).ok()?;
        Some(Foreseen { codes: codes_of(&report), files: files_of(&report), ended })
    }

    /// The real run met what was foreseen. One that was put back met one obstacle more, after the files were written; what the
    /// application does after the change nobody foresees.
    pub(crate) fn assert_holds(&self, stack: &Stack, arguments: &[&str], ended: &Ended) {
        let both = format!("{arguments:?}\nforeseen:\n{}\nreal:\n{}", self.ended.both(), ended.both());
        let is_put_back = ended.status == 4;
        let report: Option<Value> = serde_json::from_str(&ended.stdout).ok();
        let goes_on = match &report {
            Some(report) => is_seen_at_the_old_address(report),
            None => in_one_line(ended).contains("still connects at the old address"),
        };
        let status = if is_put_back || goes_on { 0 } else { ended.status };
        assert_eq!(self.ended.status, status, "the status of {both}");
        let codes = match &report {
            Some(report) => codes_of(report),
            None => codes_in(&ended.stdout),
        };
        if is_put_back {
            assert!(self.codes.is_subset(&codes), "the obstacles of {both}");
            return;
        }
        assert_eq!(self.codes, codes, "the obstacles of {both}");
        if status == 0 && !self.files.is_empty() {
            assert_eq!(self.files, written(stack), "the files of {both}");
        }
    }
}

fn is_seen_at_the_old_address(report: &Value) -> bool {
    let hops = report["hops"].as_array().into_iter().flatten();
    report["outcome"] == "committed"
        && hops.into_iter().any(|hop| hop["seen_old"].as_array().is_some_and(|old| !old.is_empty()))
}

fn codes_of(report: &Value) -> BTreeSet<String> {
    let all = report["obstacles"].as_array().into_iter().flatten();
    let codes =
        all.filter_map(|obstacle| obstacle["code"].as_str()).filter(|code| !OF_THE_MOMENT.contains(code));
    codes.map(str::to_owned).collect()
}

fn files_of(report: &Value) -> BTreeSet<String> {
    let steps = report["steps"].as_array().into_iter().flatten();
    let files = steps.flat_map(|step| step["files"].as_array().into_iter().flatten());
    files.filter_map(|file| file["path"].as_str()).map(str::to_owned).collect()
}

/// The codes in a report for people: below the headings of what is in the way, and of the warnings.
fn codes_in(text: &str) -> BTreeSet<String> {
    let mut codes = BTreeSet::new();
    let mut is_inside = false;
    for line in text.lines() {
        if !line.starts_with(' ') {
            is_inside = ["In the way", "Warnings"].contains(&line.trim());
        }
        let Some((code, _)) = line.trim().strip_prefix("• ").and_then(|rest| rest.split_once(": ")) else {
            continue;
        };
        if is_inside && !OF_THE_MOMENT.contains(&code) {
            codes.insert(code.to_owned());
        }
    }
    codes
}

/// The files of the newest switch.
fn written(stack: &Stack) -> BTreeSet<String> {
    let listed = Ended::of(&stack.command(&["switch", "list", "--json"]).output().unwrap());
    let entries: Value = serde_json::from_str(&listed.stdout).unwrap();
    let newest =
        entries.as_array().unwrap().iter().max_by_key(|entry| entry["id"].as_str().unwrap().to_owned());
    let files = newest.unwrap()["files"].as_array().unwrap();
    files.iter().map(|file| file.as_str().unwrap_or_default().to_owned()).collect()
}
