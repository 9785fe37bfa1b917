//! Numbers in the sentences of warnings.

/// A ratio's distance from 1 as a signed percentage: `+3.4 %`; from twice on as a factor: `×12`.
pub(crate) fn change(ratio: f64) -> String {
    if ratio >= 1.995 {
        return format!("×{ratio:.*}", usize::from(ratio < 9.95));
    }
    let percent = 100.0 * (ratio - 1.0);
    format!("{percent:+.*} %", decimals(percent))
}

/// A part of one as a percentage: `3.4 %`.
pub(crate) fn percent(part: f64) -> String {
    let percent = 100.0 * part;
    format!("{percent:.*} %", decimals(percent))
}

fn decimals(percent: f64) -> usize {
    match percent.abs() {
        p if p < 0.095 => 2,
        p if p < 9.95 => 1,
        _ => 0,
    }
}

/// A whole number with commas: `50,000`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A length of time, roughly: `40 s`, `3 min`, `2.5 h`.
pub(crate) fn time(seconds: f64) -> String {
    if seconds < 100.0 {
        format!("{:.0} s", seconds.max(1.0))
    } else if seconds < 6000.0 {
        format!("{:.0} min", seconds / 60.0)
    } else {
        format!("{:.1} h", seconds / 3600.0)
    }
}

/// Words that differ only in their numbers are the same reason; the first is shown, with how often it came.
/// At most three reasons, the most frequent first.
pub(crate) fn reasons<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let mut found: Vec<(String, &str, u64)> = Vec::new();
    for text in texts {
        let shape = shape(text);
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

/// A text with every number replaced by `#`.
pub(crate) fn shape(text: &str) -> String {
    let mut shape = String::with_capacity(text.len());
    for c in text.chars() {
        let c = if c.is_ascii_digit() || (c == '.' && shape.ends_with('#')) { '#' } else { c };
        if c != '#' || !shape.ends_with('#') {
            shape.push(c);
        }
    }
    shape
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_words() {
        assert_eq!(change(1.0341), "+3.4 %");
        assert_eq!(change(0.5), "-50 %");
        assert_eq!([change(2.0), change(12.14)], ["×2.0", "×12"]);
        assert_eq!(percent(0.0009), "0.09 %");
        assert_eq!(percent(0.4), "40 %");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(999), "999");
        assert_eq!(time(40.2), "40 s");
        assert_eq!(time(240.0), "4 min");
        assert_eq!(time(9000.0), "2.5 h");
        assert_eq!(shape("pid 12 used 3.5 %"), "pid # used # %");
        assert_eq!(reasons(["steal 3.5 %", "throttled", "steal 12 %"]), "steal 3.5 % (2×); throttled (1×)");
    }
}
