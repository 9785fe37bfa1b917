//! Measures text in columns and wraps it. Control characters were removed before, by `samehost_model::printable`.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// Cuts the text to at most `columns`, with an ellipsis.
pub(crate) fn truncate(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut short = String::new();
    let mut used = 0;
    for c in text.chars() {
        let wide = c.width().unwrap_or(0);
        if used + wide + 1 > columns {
            break;
        }
        used += wide;
        short.push(c);
    }
    if columns > 0 {
        short.push('…');
    }
    short
}

/// Whether a word, such as a unit, must stay on the line of the number or name before it.
fn clings(word: &str, before: &str) -> bool {
    const UNITS: [&str; 20] = [
        "%", "ns", "µs", "ms", "s", "/s", "k/s", "M/s", "G/s", "B/s", "kB/s", "MB/s", "GB/s", "TB/s", "B",
        "KiB", "MiB", "GiB", "CPUs", "h",
    ];
    let bare = word.trim_end_matches([',', '.', ';', ':', ')', '?']);
    let number = before.ends_with(|c: char| c.is_ascii_digit());
    (number && UNITS.contains(&bare))
        || matches!(bare, "÷" | "=" | "·" | "×")
        || matches!(before, "÷" | "=" | "×")
}

/// Wraps text into lines of at most `columns`. A number stays with its unit, and a word longer than a line is cut.
#[must_use]
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(8);
    let mut pieces: Vec<String> = Vec::new();
    let mut before = "";
    for word in text.split_whitespace() {
        match pieces.last_mut() {
            Some(piece) if clings(word, before) && width(piece) + 1 + width(word) <= columns => {
                piece.push(' ');
                piece.push_str(word);
            }
            _ => pieces.push(word.to_owned()),
        }
        before = word;
    }
    let mut lines: Vec<String> = Vec::new();
    for piece in pieces {
        match lines.last_mut() {
            Some(line) if width(line) + 1 + width(&piece) <= columns => {
                line.push(' ');
                line.push_str(&piece);
            }
            _ => lines.extend(cut(&piece, columns)),
        }
    }
    lines
}

/// Cuts a word into parts of at most `columns`.
fn cut(word: &str, columns: usize) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut used = 0;
    for c in word.chars() {
        let wide = c.width().unwrap_or(0);
        if used + wide > columns {
            parts.push(String::new());
            used = 0;
        }
        used += wide;
        if let Some(part) = parts.last_mut() {
            part.push(c);
        }
    }
    parts
}

/// Formats as `1 service`, `2 services`.
pub(crate) fn count(number: usize, one: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_of_measurement_take_one_column() {
        for sign in ["µ", "÷", "–", "±", "●", "├", "○", "·", "×"] {
            assert_eq!(width(sign), 1, "{sign}");
        }
        assert_eq!(width("日本"), 4);
    }

    #[test]
    fn cuts_and_wraps() {
        assert_eq!(truncate("abcdef", 4), "abc…");
        assert_eq!(truncate("日本語", 4), "日…");
        assert_eq!(truncate("abc", 3), "abc");
        assert_eq!(wrap("it takes 12.3 µs, then", 13), ["it takes", "12.3 µs, then"]);
        assert_eq!(wrap("ratio unix ÷ tcp is", 12), ["ratio", "unix ÷ tcp", "is"]);
        assert_eq!(wrap("abcdefghijkl", 8), ["abcdefgh", "ijkl"]);
        assert!(wrap("", 10).is_empty());
    }
}
