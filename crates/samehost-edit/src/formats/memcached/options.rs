//! The options of memcached's command line, as Debian's start script and Red Hat's unit read them from a file, with
//! those for listening. Changes nothing.

use std::ops::Range;
use std::path::Path;

use crate::lines::{Line, lines, listening_host, utf8};
use crate::refusal::{At, Refusal, Result};

/// Options with a value, and options without.
const VALUED: &str = "asmcpUlufnPtDRbBIYoeN";
const FLAGS: &str = "AvVdhikrMLCSFXWZ";
/// Long names of the options that matter here.
const LONG: &[(&str, char)] = &[
    ("port", 'p'),
    ("udp-port", 'U'),
    ("unix-socket", 's'),
    ("unix-mask", 'a'),
    ("listen", 'l'),
    ("listen-backlog", 'b'),
];

/// An option.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub(super) letter: char,
    pub(super) value: String,
    /// Where its value stands.
    pub(super) written: Range<usize>,
    /// The whole option, from the dash on.
    pub(super) whole: Range<usize>,
    pub(super) line: Line,
}

/// The options of a file, in their order.
#[derive(Debug, Default)]
pub(super) struct Options {
    pub(super) given: Vec<Given>,
    /// Position inside of `OPTIONS="…"` for another option; `None` in Debian's file.
    pub(super) inside: Option<(usize, Line)>,
}

impl Options {
    pub(super) fn last(&self, letter: char) -> Option<&Given> {
        self.given.iter().rfind(|given| given.letter == letter)
    }

    pub(super) fn port(&self) -> u16 {
        self.last('p').and_then(|given| given.value.parse().ok()).unwrap_or(11211)
    }

    pub(super) fn hosts(&self) -> Vec<String> {
        let hosts: Vec<String> = self
            .given
            .iter()
            .filter(|given| given.letter == 'l')
            .flat_map(|given| given.value.split(',').map(listening_host).collect::<Vec<_>>())
            .collect();
        if hosts.is_empty() { vec!["0.0.0.0".into()] } else { hosts }
    }
}

/// Ranges of the options' words: one per line in Debian's file, the value of OPTIONS in Red Hat's.
pub(super) fn options(file: &Path, text: &[u8]) -> Result<Options> {
    let mut options = Options::default();
    let mut words: Vec<(Range<usize>, Line)> = Vec::new();
    let all = lines(text);
    let is_shell = all.iter().any(|line| {
        let line = &text[line.range.clone()];
        [b"OPTIONS=".as_slice(), b"PORT=", b"USER=", b"CACHESIZE="].iter().any(|name| line.starts_with(name))
    });
    for line in all {
        let here = At { file, line: line.number };
        let content = &text[line.range.clone()];
        if is_shell {
            shell(file, text, &line, &mut options, &mut words)?;
            continue;
        }
        // Debian's script removes comments, also after an option, and ignores -d, -h and its own `logfile`.
        let end = content.iter().position(|byte| *byte == b'#').unwrap_or(content.len());
        let kept = &content[..end];
        if end > 0 && !kept.trim_ascii().is_empty() && content.windows(2).any(|pair| pair == b"\\#") {
            return Err(here.refusal("an escaped # is not understood", "write the option without it"));
        }
        let kept = kept.trim_ascii();
        if !kept.starts_with(b"-") || kept.starts_with(b"-d") || kept.starts_with(b"-h") {
            continue;
        }
        split(file, text, &line, line.range.start..line.range.start + end, &mut words)?;
    }
    parse(file, text, &words, &mut options)?;
    Ok(options)
}

/// One line of a file of shell variables.
fn shell(
    file: &Path,
    text: &[u8],
    line: &Line,
    options: &mut Options,
    words: &mut Vec<(Range<usize>, Line)>,
) -> Result<()> {
    let content = &text[line.range.clone()];
    let stop =
        |reason: &str| Err(Refusal::new(file, line.number, reason, "write `OPTIONS=\"-s /PATH -a 0770\"`"));
    let Some(equals) = content.iter().position(|byte| *byte == b'=').filter(|_| !content.starts_with(b"#"))
    else {
        return Ok(());
    };
    let name = &content[..equals];
    if !matches!(name, b"OPTIONS" | b"PORT") {
        return Ok(());
    }
    let (mut start, mut end) = (line.range.start + equals + 1, line.range.end);
    end -= text[start..end].len() - text[start..end].trim_ascii_end().len();
    let value = &text[start..end];
    if let [quote @ (b'"' | b'\''), inner @ .., last] = value {
        if last != quote || inner.contains(quote) {
            return stop("the quotes of this value are not understood");
        }
        (start, end) = (start + 1, end - 1);
    } else if value.iter().any(u8::is_ascii_whitespace) || value.contains(&b'"') {
        return stop("this value needs quotes");
    }
    if name == b"PORT" {
        let value = String::from_utf8_lossy(&text[start..end]).into_owned();
        let port = Given { letter: 'p', value, written: start..end, whole: start..start, line: line.clone() };
        options.given.retain(|given| given.letter != 'p');
        options.given.push(port);
        return Ok(());
    }
    if options.inside.is_some() {
        return stop("OPTIONS is set twice");
    }
    options.inside = Some((end, line.clone()));
    if start == line.range.start + equals + 1 {
        return stop("OPTIONS has no quotes, so that another option has no place");
    }
    split(file, text, line, start..end, words)
}

/// The words of a range, which must mean nothing special to a shell.
fn split(
    file: &Path,
    text: &[u8],
    line: &Line,
    range: Range<usize>,
    words: &mut Vec<(Range<usize>, Line)>,
) -> Result<()> {
    let mut at = range.start;
    while at < range.end {
        if text[at].is_ascii_whitespace() {
            at += 1;
            continue;
        }
        let start = at;
        while at < range.end && !text[at].is_ascii_whitespace() {
            at += 1;
        }
        let word = &text[start..at];
        if utf8(word).is_none() || word.iter().any(|byte| b"\\\"'$`*?[]{}|&;<>()~!\0".contains(byte)) {
            let reason = "a word has characters that mean something to a shell";
            return Err(Refusal::new(file, line.number, reason, "write the options in plain words"));
        }
        words.push((start..at, line.clone()));
    }
    Ok(())
}

/// What to write where a word is not understood.
const ONE_A_LINE: &str = "write one option a line, such as `-s /run/memcached/memcached.sock`";

/// The options that the words are.
fn parse(file: &Path, text: &[u8], words: &[(Range<usize>, Line)], options: &mut Options) -> Result<()> {
    let mut at = 0;
    while let Some((range, line)) = words.get(at) {
        at += 1;
        let word = utf8(&text[range.clone()]).unwrap_or_default();
        let here = At { file, line: line.number };
        let (letter, attached) = if let Some(long) = word.strip_prefix("--") {
            let (name, value) =
                long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
            let letter = LONG.iter().find(|(long, _)| *long == name).map(|(_, letter)| *letter);
            let Some(letter) = letter else {
                if !name.is_empty() && LONG.iter().any(|(long, _)| long.starts_with(name)) {
                    return Err(here.refusal(format!("`--{name}` is an abbreviation"), ONE_A_LINE));
                }
                // For another option; its value, if it has one, is skipped as well.
                let next = words.get(at).map(|(range, _)| &text[range.clone()]);
                at += usize::from(value.is_none() && next.is_some_and(|next| !next.starts_with(b"-")));
                continue;
            };
            (letter, value.map(|value| range.end - value.len()..range.end))
        } else if let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            let first = letters.chars().next().unwrap_or_default();
            if letters.chars().all(|one| FLAGS.contains(one)) {
                continue;
            }
            if !VALUED.contains(first) {
                return Err(here.refusal(format!("`{word}` is not understood"), ONE_A_LINE));
            }
            (first, Some(range.start + 2..range.end).filter(|value| !value.is_empty()))
        } else {
            return Err(here.refusal(format!("`{word}` is not an option"), ONE_A_LINE));
        };
        let (written, whole) = match attached {
            Some(written) => (written, range.clone()),
            None => {
                let Some((next, _)) = words.get(at) else {
                    return Err(here.refusal(format!("`{word}` has no value"), ONE_A_LINE));
                };
                at += 1;
                (next.clone(), range.start..next.end)
            }
        };
        let value = String::from_utf8_lossy(&text[written.clone()]).into_owned();
        if !is_value_of(letter, &value) {
            return Err(here.refusal(format!("the value of -{letter} is not understood"), ONE_A_LINE));
        }
        options.given.push(Given { letter, value, written, whole, line: line.clone() });
    }
    Ok(())
}

/// Whether an option can have this value.
fn is_value_of(letter: char, value: &str) -> bool {
    match letter {
        'p' => value.parse::<u16>().is_ok(),
        'b' => value.parse::<u32>().is_ok(),
        'a' => u32::from_str_radix(value, 8).is_ok(),
        's' => value.starts_with('/'),
        'l' => value
            .split(',')
            .all(|host| host.parse::<std::net::IpAddr>().is_ok() || !host.contains([':', ' '])),
        _ => true,
    }
}
