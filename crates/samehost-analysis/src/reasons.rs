//! Merges the reasons of several trials into one sentence.

use samehost_model::human::{count, without_numbers};

/// Merges texts that differ only in numbers; shows the first of each with its count. At most three reasons,
/// the most frequent first.
pub(crate) fn reasons<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let mut found: Vec<(String, &str, u64)> = Vec::new();
    for text in texts {
        let shape = without_numbers(text);
        match found.iter_mut().find(|(known, ..)| *known == shape) {
            Some((.., times)) => *times += 1,
            None => found.push((shape, text, 1)),
        }
    }
    found.sort_by_key(|(.., times)| std::cmp::Reverse(*times));
    let shown: Vec<String> =
        found.iter().take(3).map(|(_, text, times)| format!("{text} ({}×)", count(*times))).collect();
    let rest = if found.len() > 3 { format!("; and {} more", found.len() - 3) } else { String::new() };
    shown.join("; ") + &rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_reasons_are_counted() {
        assert_eq!(reasons(["steal 3.5 %", "throttled", "steal 12 %"]), "steal 3.5 % (2×); throttled (1×)");
    }
}
