//! Variables in a text: what it sets itself is filled in, and what programs ask of their environment, in the words of each
//! language, is written as shells write it (`${NAME:-default}`), so that nothing else has to know those words.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashMap;

/// How often what is filled in may have variables itself, and how long a line may get by it.
const ROUNDS: usize = 16;
const LONGEST: usize = 8192;
/// How many variables of a text are known.
const MOST: usize = 2000;
/// What asks for a variable by its name, up to the quote before the name. The longest first.
const ASKING: &[&str] = &[
    "os.environ.get(", "environ.get(", "System.getenv(", "process.env[", "os.environ[", "os.getenv(",
    "os.Getenv(", "ENV.fetch(", "getenv(", "getEnv(", "$_SERVER[", "$_ENV[", "env.str(", "env.int(",
    "env.get(", "env.url(", "config(", "ENV[", "env(", "env::var(", "getOrDefault(",
    "GetEnvironmentVariable(",
];
/// The same where the name stands without quotes, up to the sign behind it.
const DOTTED: &[&str] = &["process.env.", "import.meta.env.", "Bun.env.", "$ENV{"];
/// What makes a number or a text of what is asked.
const MADE: &[&str] =
    &["Number(", "parseInt(", "Integer(", "int(", "str(", "String(", "valueOf(", "Atoi(", "(int) ", "(int)"];
/// What asks whether there is one, before the question itself.
const WHETHER: &[&str] = &["exists ", "defined "];
/// How far behind the question of a choice its second answer is, in letters: `process.env.A ? Number(process.env.A) : 6379`.
const LONGEST_CHOICE: usize = 120;
/// What is between a variable and what stands in for it.
const ELSE: &[&str] =
    &["||=", "||", "??", "?:", "//", "or ", "{", ".unwrap_or_else(|_|", ".unwrap_or(", ".orElse("];

/// Bytes that are filled in for each of a text, and of the shortest one: values that double each other took 5 s of 200 kB.
const FILLED_PER_BYTE: usize = 8;
const MIN_FILLED_BYTES: usize = 64 << 10;

/// What a text sets.
pub(super) struct Known {
    by_name: HashMap<String, String>,
    /// How many bytes may still be filled in.
    bytes_left: Cell<usize>,
}

impl Known {
    pub(super) fn of(text: &str) -> Self {
        let mut by_name = HashMap::new();
        let bytes_left = Cell::new(MIN_FILLED_BYTES + FILLED_PER_BYTE * text.len());
        if !text.contains('$') {
            return Known { by_name, bytes_left };
        }
        for line in text.lines().filter(|line| line.len() < LONGEST) {
            let line = line.trim();
            let Some((before, value)) = line.split_once('=').filter(|_| !line.starts_with(['#', ';', '/']))
            else {
                continue;
            };
            let name = before.trim_end().rsplit([' ', '\t', '$']).next().unwrap_or_default();
            let value = as_shells_write(value.trim().trim_end_matches([';', ',']));
            // What a call returns is none of its arguments: `$hosts = &query($host)`.
            let value = match quoted(&value) {
                Some((inner, "")) => inner,
                _ if value.ends_with(')') && !value.contains("$(") => continue,
                _ => &value,
            };
            let is_plain = !name.is_empty() && name.bytes().all(is_of_variable) && !value.is_empty();
            if is_plain && by_name.len() < MOST {
                by_name.insert(name.to_owned(), value.to_owned());
            }
        }
        Known { by_name, bytes_left }
    }

    /// A line with what this text sets.
    pub(super) fn filled<'a>(&self, line: &'a str) -> Cow<'a, str> {
        let mut line = Cow::Borrowed(line);
        for _ in 0..ROUNDS {
            if self.by_name.is_empty() || !line.contains('$') {
                break;
            }
            let Some(filled) = self.once(&line) else { break };
            let Some(left) = self.bytes_left.get().checked_sub(filled.len()) else { break };
            self.bytes_left.set(left);
            line = Cow::Owned(filled);
        }
        line
    }

    /// `None` where nothing is filled in, or the line would get too long.
    fn once(&self, line: &str) -> Option<String> {
        let mut filled = String::new();
        let (mut rest, mut is_changed) = (line, false);
        while let Some(at) = rest.find('$') {
            filled.push_str(&rest[..at]);
            rest = &rest[at..];
            let inner = rest[1..].strip_prefix('{');
            let begins = if inner.is_some() { 2 } else { 1 };
            let name = &rest[begins..];
            let name = &name[..name.bytes().take_while(|byte| is_of_variable(*byte)).count()];
            let end = match inner {
                Some(_) => closing(rest).map_or(rest.len(), |at| at + 1),
                None => begins + name.len(),
            };
            // A line that assigns the variable itself is what is known of it; an element of it (`$db['host']`, `$db->host`) is another value.
            let is_assigned = rest[end..].trim_start().starts_with('=') && !rest.starts_with("${");
            let is_other = is_assigned || rest[end..].starts_with('[') || rest[end..].starts_with("->");
            match self.by_name.get(name).filter(|value| !is_other && !value.contains(&rest[..end])) {
                Some(value) => {
                    filled.push_str(value);
                    is_changed = true;
                    rest = &rest[end..];
                }
                // Its default may have variables.
                None => {
                    filled.push_str(&rest[..begins + name.len()]);
                    rest = &rest[begins + name.len()..];
                }
            }
            if filled.len() > LONGEST {
                return None;
            }
        }
        filled.push_str(rest);
        (is_changed && filled.len() <= LONGEST).then_some(filled)
    }
}

fn is_of_variable(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Where the brace that a text begins with (`${`) is closed.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, letter) in text.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth <= 1 => return Some(at),
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// A value with the defaults in place of their variables, and the names of those.
pub(super) fn with_defaults(text: &str) -> (String, Vec<String>) {
    let (mut text, mut names, mut from) = (text.to_owned(), Vec::new(), 0);
    for _ in 0..ROUNDS {
        let Some(start) = text[from..].find("${").map(|at| from + at) else { break };
        let Some(end) = closing(&text[start..]).map(|at| start + at) else { break };
        let inner = &text[start + 2..end];
        let length = inner.bytes().take_while(|byte| is_of_variable(*byte) || b".".contains(byte)).count();
        let (name, behind) = inner.split_at(length);
        // `${HOST:127.0.0.1}` is Spring's and Caddy's.
        let default = [":-", "-", ":=", ":"].iter().find_map(|sign| behind.strip_prefix(sign));
        let Some(default) = default.filter(|default| !default.starts_with(['?', '+'])) else {
            from = start + 2;
            continue;
        };
        names.push(name.to_owned());
        let default = default.to_owned();
        text.replace_range(start..=end, &default);
    }
    (text, names)
}

/// `env('DB_HOST', '127.0.0.1')`, `ENV.fetch("A") { "b" }`, `process.env.A || 'b'` and their like as `"${A:-b}"`.
pub(super) fn as_shells_write(line: &str) -> Cow<'_, str> {
    if !["env", "ENV", "Env", "config(", "getOrDefault("].iter().any(|word| line.contains(word)) {
        return Cow::Borrowed(line);
    }
    let mut written = String::new();
    let (mut rest, mut is_changed) = (line, false);
    while let Some(letter) = rest.chars().next() {
        let is_begun = written.ends_with(|one: char| one.is_ascii_alphanumeric() || matches!(one, '_' | '.'));
        match asked(rest).filter(|_| !is_begun) {
            Some(Asked { name, default, length }) => {
                let default = default.map(|default| format!(":-{default}")).unwrap_or_default();
                let made = MADE.iter().find(|made| written.ends_with(**made));
                written.truncate(written.len() - made.map_or(0, |made| made.len()));
                written += &format!("\"${{{name}{default}}}\"");
                rest = &rest[length..];
                if made.is_some_and(|made| made.ends_with('('))
                    && let Some((_, behind)) = rest.split_once(')')
                {
                    rest = behind;
                }
                is_changed = true;
            }
            None => {
                written.push(letter);
                rest = &rest[letter.len_utf8()..];
            }
        }
    }
    if is_changed { Cow::Owned(written) } else { Cow::Borrowed(line) }
}

struct Asked<'a> {
    name: &'a str,
    default: Option<String>,
    length: usize,
}

/// A question for a variable at the start of a text.
fn asked(text: &str) -> Option<Asked<'_>> {
    let asking = WHETHER.iter().find_map(|word| text.strip_prefix(word)).unwrap_or(text);
    let (name, mut default, mut rest) = match DOTTED.iter().find_map(|dotted| asking.strip_prefix(dotted)) {
        Some(rest) => {
            let length = rest.bytes().take_while(|byte| is_of_variable(*byte)).count();
            let (name, behind) = quoted(rest).unwrap_or_else(|| rest.split_at(length));
            (name, None, behind.strip_prefix('}').unwrap_or(behind))
        }
        None => {
            let rest = ASKING.iter().find_map(|one| asking.strip_prefix(one))?;
            let (name, rest) = quoted(rest.trim_start())?;
            let mut rest = rest.trim_start();
            let mut default = None;
            if let Some(behind) = rest.strip_prefix(',') {
                let behind = behind.trim_start();
                let behind = behind.strip_prefix("default=").unwrap_or(behind);
                let (value, behind) = literal(behind)?;
                (default, rest) = (Some(value), behind.trim_start());
            }
            (name, default, rest.strip_prefix([')', ']'])?)
        }
    };
    if name.is_empty() || !name.bytes().all(is_of_variable) {
        return None;
    }
    let behind = rest.trim_start();
    let other = ELSE.iter().find_map(|word| behind.strip_prefix(word)).or_else(|| second_choice(behind));
    if default.is_none()
        && let Some((value, behind)) = other.and_then(|other| literal(other.trim_start()))
    {
        (default, rest) = (Some(value), behind);
    }
    Some(Asked { name, default, length: text.len() - rest.len() })
}

/// What is behind the colon of a choice whose question a text goes on after: `? split(/ /, $ENV{a}) : (8080)`.
fn second_choice(text: &str) -> Option<&str> {
    let text = text.strip_prefix('?')?;
    let end = text.char_indices().nth(LONGEST_CHOICE).map_or(text.len(), |(at, _)| at);
    text[..end].find(" : ").map(|at| &text[at + 3..])
}

/// What is in quotes at the start of a text, and what is behind.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|one| matches!(one, '"' | '\'' | '`'))?;
    text[1..].split_once(quote)
}

/// A text in quotes, a number, or a question for another variable; also in brackets.
fn literal(text: &str) -> Option<(String, &str)> {
    if let Some(inner) = text.strip_prefix('(').filter(|inner| !inner.starts_with('(')) {
        let (value, rest) = literal(inner)?;
        return Some((value, rest.strip_prefix(')')?));
    }
    if let Some((value, rest)) = quoted(text) {
        return Some((value.to_owned(), rest));
    }
    if let Some(Asked { name, default, length }) = asked(text) {
        let default = default.map(|default| format!(":-{default}")).unwrap_or_default();
        return Some((format!("${{{name}{default}}}"), &text[length..]));
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    (digits > 0).then(|| (text[..digits].to_owned(), &text[digits..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_of_every_language_are_written_as_shells_write_them() {
        for (line, written) in [
            ("'host' => env('A', '127.0.0.1'),", "'host' => \"${A:-127.0.0.1}\","),
            ("url: <%= ENV.fetch(\"A\") { \"redis://x\" } %>", "url: <%= \"${A:-redis://x}\" } %>"),
            ("u = os.environ.get('A', 'b')", "u = \"${A:-b}\""),
            ("u = ENV['A'] || 'b'", "u = \"${A:-b}\""),
            ("url: process.env.A ?? process.env.B ?? 'c'", "url: \"${A:-${B:-c}}\""),
            ("getenv('A') ?: 'b'", "\"${A:-b}\""),
            ("port: process.env.PORT,", "port: \"${PORT}\","),
            (
                "$p = exists $ENV{'A'} ? $ENV{'A'} : exists $ENV{B} ? $ENV{B} : 8080;",
                "$p = \"${A:-${B:-8080}}\";",
            ),
            ("@p = exists $ENV{A} ? split(/ /, $ENV{A}) : (8080);", "@p = \"${A:-8080}\";"),
            ("$p = $ENV{A} || 80;", "$p = \"${A:-80}\";"),
            ("port: process.env.A ? Number(process.env.A) : 6379,", "port: \"${A:-6379}\","),
            ("environment('A', 'b')", "environment('A', 'b')"),
        ] {
            assert_eq!(as_shells_write(line), written, "{line}");
        }
    }

    #[test]
    fn a_variable_of_the_text_is_filled_in_and_a_default_stands_for_an_unknown_one() {
        let known = Known::of("RH=127.0.0.1\nRP=\"6395\"\nU=redis://${RH}:$RP\nS=${S}x\n");
        assert_eq!(known.filled("D=${U}/3"), "D=redis://127.0.0.1:6395/3");
        assert_eq!(known.filled("D=${X:-$RH}"), "D=${X:-127.0.0.1}");
        assert_eq!(known.filled("D=${S}"), "D=${S}", "it grows for nobody");
        assert_eq!(known.filled("if ($RH->content)"), "if ($RH->content)", "a part of it is another value");
        let (text, names) = with_defaults("${A:-${B:-127.0.0.1}}:1");
        assert_eq!((text.as_str(), names), ("127.0.0.1:1", vec!["A".to_owned(), "B".to_owned()]));
    }
}
