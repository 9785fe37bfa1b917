//! What each code of a scan means, in general: `samehost explain CODE`. The texts are in `explanations.txt`. What was found on this
//! machine, and the exact setting of its service, is in the obstacles and findings of a scan; how loopback gets CUBIC is in
//! `slow_congestion`.

use std::sync::LazyLock;

use samehost_model::scan::Explanation;

/// All codes: first what stands in the way of a pair, then what else is worth knowing.
pub static EXPLANATIONS: LazyLock<Vec<Explanation>> =
    LazyLock::new(|| read(include_str!("explanations.txt")));

/// The explanation of a code.
#[must_use]
pub fn explanation(code: &str) -> Option<&'static Explanation> {
    EXPLANATIONS.iter().find(|one| one.code == code)
}

fn read(text: &'static str) -> Vec<Explanation> {
    let mut all = Vec::new();
    for line in text.lines() {
        if let Some(code) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            all.push(Explanation { code, is: "", more: "", matters: "", change: "", undo: "" });
        }
        let (Some((key, words)), Some(one)) = (line.split_once(' '), all.last_mut()) else { continue };
        match key {
            "is" => one.is = words,
            "more" => one.more = words,
            "matters" => one.matters = words,
            "change" => one.change = words,
            "undo" => one.undo = words,
            _ => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_each_text() {
        let text = include_str!("explanations.txt");
        let keys = ["is", "more", "matters", "change", "undo"];
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with(['#', '['])) {
            assert!(keys.contains(&line.split(' ').next().unwrap()), "{line}");
        }
        for one in EXPLANATIONS.iter() {
            for words in [one.is, one.matters, one.change, one.undo] {
                assert!(words.ends_with('.'), "{}: {words}", one.code);
            }
        }
    }
}
