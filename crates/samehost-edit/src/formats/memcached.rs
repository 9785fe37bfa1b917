//! memcached.conf of Debian, and /etc/sysconfig/memcached of Red Hat: options of memcached's command line, as Debian's start
//! script and Red Hat's unit read them from the file. With a socket it listens on no port, so a move to the socket is a move
//! away from TCP.

use std::ops::Range;
use std::path::Path;

use samehost_model::{Endpoint, Protocol};
use samehost_services::Kind;

use crate::budget::{self, Metered};
use crate::editor::Editor;
use crate::files::{Edit, Files};
use crate::lines::{
    self, Line, append, insert_below, is_loopback, is_plain, lines, listening_host, socket_path, utf8,
};
use crate::proposal::Editing;
use crate::refusal::{At, Refusal, Result};
use crate::setting::{Goal, Reading, Setting, Uptake};

pub(crate) struct Memcached;

impl Editor for Memcached {
    fn name(&self) -> &'static str {
        "memcached"
    }

    fn about(&self) -> &'static str {
        "memcached.conf and sysconfig/memcached: where the server listens"
    }

    fn recognises(&self, path: &Path, text: &[u8]) -> bool {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !name.starts_with("memcached") {
            return false;
        }
        lines(text).any(|line| {
            let line = text[line.range.clone()].trim_ascii();
            [b"-".as_slice(), b"OPTIONS=", b"PORT="].iter().any(|start| line.starts_with(start))
        })
    }

    fn read_metered(&self, file: &Path, files: &Metered<'_>) -> Result<Reading> {
        let text = lines::read(file, files)?;
        Ok(reading(file, &options(file, &text)?))
    }

    fn edit_metered(
        &self,
        file: &Path,
        files: &Metered<'_>,
        setting: &Setting,
        goal: &Goal,
    ) -> Result<Vec<Edit>> {
        let options = options(file, &lines::read(file, files)?)?;
        Editing::new(file, files, &options, setting, goal)?.edits()
    }

    fn may_contradict_itself(&self) -> bool {
        true
    }

    fn uptake(&self, _file: &Path) -> Uptake {
        Uptake::Restart(Kind::Memcached)
    }
}

/// The values that a server which was started with this file has in its command line; `None` where it is not understood.
#[must_use]
pub fn arguments(file: &Path, files: &dyn Files) -> Option<Vec<String>> {
    let options = budget::within(file, files, |files| options(file, &lines::read(file, files)?)).ok()?;
    Some(options.given.into_iter().map(|given| given.value).collect())
}

fn reading(file: &Path, options: &Options) -> Reading {
    let Some(endpoint) = options.endpoint() else { return Reading::default() };
    let socket = options.last('s');
    let at = socket.or_else(|| options.last('p')).or_else(|| options.last('l'));
    let (written, line) = match at {
        Some(at) => (at.value.clone(), at.line.number),
        None => (endpoint.to_string(), 1),
    };
    let name = if socket.is_some() { "-s" } else { "-l and -p" };
    let backlog = options.last('b').and_then(|given| given.value.parse().ok());
    let setting = Setting::listens(name, Protocol::Memcached, written, endpoint).at(file, line);
    Reading { settings: vec![Setting { backlog, ..setting }], refused: Vec::new() }
}

impl Editing<'_, Options> {
    fn edits(mut self) -> Result<Vec<Edit>> {
        match &self.goal.endpoint {
            same if *same == self.setting.endpoint => {}
            Endpoint::Unix(_) => self.listen_unix()?,
            Endpoint::Tcp { host, port } => self.listen_tcp(host, *port)?,
            other => {
                let reason = format!("memcached cannot listen at {other}");
                return Err(self.refuse(reason, "choose a socket's path: -s /PATH"));
            }
        }
        Ok(self.edits)
    }

    fn listen_unix(&mut self) -> Result<()> {
        let by_hand = "write `-s /run/memcached/memcached.sock` and `-a 0770`";
        let (goal, options) = (self.goal, self.configuration);
        let path = match socket_path(&goal.endpoint) {
            Ok(path) if is_plain(path) => path,
            Ok(_) => {
                return Err(self.refuse("the path has characters that mean something to a shell", by_hand));
            }
            Err(reason) => return Err(self.refuse(reason, by_hand)),
        };
        if options.last('s').is_none()
            && let Some(open) = options.hosts().iter().find(|host| !is_loopback(host))
        {
            let reason =
                format!("it listens at {open}, where other machines may need it, and cannot do both");
            return Err(self.refuse(reason, format!("if only this machine uses it: {by_hand}")));
        }
        self.set('s', path);
        if let Some(access) = &goal.access {
            let mode = access.mode & 0o777;
            let now = options.last('a').and_then(|given| u32::from_str_radix(&given.value, 8).ok());
            if now != Some(mode) {
                self.set('a', &format!("{mode:04o}"));
            }
        }
        if let Some(backlog) = goal.backlog {
            let present = match options.last('b') {
                Some(given) => given.value.parse().ok(),
                None => Some(1024),
            };
            if present != Some(backlog) {
                self.set('b', &backlog.to_string());
            }
        }
        Ok(())
    }

    fn listen_tcp(&mut self, host: &str, port: u16) -> Result<()> {
        let host = listening_host(host);
        let options = self.configuration;
        if port == 0 || !is_loopback(&host) {
            let reason = "only an address that other machines do not reach is written";
            return Err(self.refuse(reason, format!("write `-l {host}` and `-p {port}`")));
        }
        let hosts = options.hosts();
        if !hosts.iter().all(|one| is_loopback(one)) || hosts.first() != Some(&host) {
            if options.given.iter().filter(|given| given.letter == 'l').count() > 1 {
                return Err(self.refuse("-l is given more than once", format!("keep one: `-l {host}`")));
            }
            self.set('l', &host);
        }
        if options.port() != port {
            self.set('p', &port.to_string());
        }
        // All sockets are removed, and with the last one the permissions.
        for given in options.given.iter().filter(|given| matches!(given.letter, 's' | 'a')) {
            self.remove(given);
        }
        Ok(())
    }

    fn remove(&mut self, Given { whole, line, .. }: &Given) {
        let [before, behind] = [line.range.start..whole.start, whole.end..line.range.end]
            .map(|range| self.text.get(range).map(<[u8]>::trim_ascii));
        let is_alone = before.is_some_and(<[u8]>::is_empty)
            && behind.is_some_and(|behind| behind.is_empty() || behind.starts_with(b"#"));
        self.edits.push(if is_alone {
            Edit::new(self.file, whole.start..whole.start, "# ")
        } else {
            let blanks =
                self.text[whole.end..].iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
            Edit::new(self.file, whole.start..whole.end + blanks, "")
        });
    }

    /// Writes an option: in place of the effective one, or as a new one.
    fn set(&mut self, letter: char, value: &str) {
        let options = self.configuration;
        if let Some(given) = options.last(letter) {
            if given.value != value {
                self.edits.push(Edit::new(self.file, given.written.clone(), value));
            }
            return;
        }
        let new = format!("-{letter} {value}");
        let near = ['l', 'p', 's'].into_iter().find_map(|letter| options.last(letter));
        self.edits.push(match (options.inside, near) {
            (Some(at), _) => {
                let before = self.text.get(at.wrapping_sub(1));
                // A second option at the same position follows the first.
                let follows = self.edits.iter().any(|edit| edit.range == (at..at));
                let is_parted = matches!(before, Some(b'"' | b'\'' | b' ')) && !follows;
                Edit::new(self.file, at..at, if is_parted { new } else { format!(" {new}") })
            }
            (None, Some(given)) => insert_below(self.file, &self.text, &given.line, &new),
            (None, None) => append(self.file, &self.text, &new),
        });
    }
}

const VALUED: &str = "asmcpUlufnPtDRbBIYoeN";
const FLAGS: &str = "AvVdhikrMLCSFXWZ";

const LONG: &[(&str, char)] = &[
    ("port", 'p'),
    ("udp-port", 'U'),
    ("unix-socket", 's'),
    ("unix-mask", 'a'),
    ("listen", 'l'),
    ("listen-backlog", 'b'),
];

#[derive(Clone, Debug)]
struct Given {
    letter: char,
    value: String,
    written: Range<usize>,
    whole: Range<usize>,
    line: Line,
}

#[derive(Debug, Default)]
struct Options {
    given: Vec<Given>,
    /// Position inside of `OPTIONS="…"` for another option; `None` in Debian's file.
    inside: Option<usize>,
}

impl Options {
    /// Where the server listens; `None` if it has no port (`-p 0`), or at an unusual address.
    fn endpoint(&self) -> Option<Endpoint> {
        if let Some(socket) = self.last('s') {
            return lines::unix(&socket.value);
        }
        let hosts = self.hosts();
        let host = hosts.iter().find(|host| is_loopback(host)).or_else(|| hosts.first())?;
        if self.port() == 0 { None } else { lines::tcp(host, self.port()) }
    }

    fn last(&self, letter: char) -> Option<&Given> {
        self.given.iter().rfind(|given| given.letter == letter)
    }

    fn port(&self) -> u16 {
        self.last('p').and_then(|given| given.value.parse().ok()).unwrap_or(11211)
    }

    fn hosts(&self) -> Vec<String> {
        let mut hosts = Vec::new();
        for given in self.given.iter().filter(|given| given.letter == 'l') {
            hosts.extend(given.value.split(',').map(listening_host));
        }
        if hosts.is_empty() { vec!["0.0.0.0".into()] } else { hosts }
    }
}

fn options(file: &Path, text: &[u8]) -> Result<Options> {
    let mut reader = Reader { file, text, words: Vec::new(), options: Options::default() };
    let all = lines(text);
    let is_shell = all.clone().any(|line| {
        let line = &text[line.range.clone()];
        [b"OPTIONS=".as_slice(), b"PORT=", b"USER=", b"CACHESIZE="].iter().any(|name| line.starts_with(name))
    });
    for line in all {
        let content = &text[line.range.clone()];
        if is_shell {
            reader.shell(&line)?;
            continue;
        }
        // Debian's script removes comments, also after an option, and ignores -d, -h and its own `logfile`.
        let end = content.iter().position(|byte| *byte == b'#').unwrap_or(content.len());
        let kept = content[..end].trim_ascii();
        if !kept.is_empty() && content.windows(2).any(|pair| pair == b"\\#") {
            let reason = "an escaped # is not understood";
            return Err(Refusal::new(file, line.number, reason, "write the option without it"));
        }
        if !kept.starts_with(b"-") || kept.starts_with(b"-d") || kept.starts_with(b"-h") {
            continue;
        }
        reader.split(&line, line.range.start..line.range.start + end)?;
    }
    reader.parse()?;
    Ok(reader.options)
}

struct Reader<'a> {
    file: &'a Path,
    text: &'a [u8],
    words: Vec<(Range<usize>, Line)>,
    options: Options,
}

const ONE_A_LINE: &str = "write one option a line, such as `-s /run/memcached/memcached.sock`";

impl Reader<'_> {
    fn shell(&mut self, line: &Line) -> Result<()> {
        let text = self.text;
        let content = &text[line.range.clone()];
        let stop = |reason: &str| {
            Err(Refusal::new(self.file, line.number, reason, "write `OPTIONS=\"-s /PATH -a 0770\"`"))
        };
        if content.starts_with(b"#") {
            return Ok(());
        }
        let Some(equals) = content.iter().position(|byte| *byte == b'=') else { return Ok(()) };
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
            let port =
                Given { letter: 'p', value, written: start..end, whole: start..start, line: line.clone() };
            self.options.given.retain(|given| given.letter != 'p');
            self.options.given.push(port);
            return Ok(());
        }
        if self.options.inside.is_some() {
            return stop("OPTIONS is set twice");
        }
        self.options.inside = Some(end);
        if start == line.range.start + equals + 1 {
            return stop("OPTIONS has no quotes, so that another option has no place");
        }
        self.split(line, start..end)
    }

    /// The words of a range, which must mean nothing special to a shell.
    fn split(&mut self, line: &Line, range: Range<usize>) -> Result<()> {
        let mut next = range.start;
        for word in self.text[range].split(u8::is_ascii_whitespace) {
            let start = next;
            next += word.len() + 1;
            if word.is_empty() {
                continue;
            }
            if utf8(word).is_none() || word.iter().any(|byte| b"\\\"'$`*?[]{}|&;<>()~!\0".contains(byte)) {
                let reason = "a word has characters that mean something to a shell";
                return Err(Refusal::new(self.file, line.number, reason, "write the options in plain words"));
            }
            self.words.push((start..start + word.len(), line.clone()));
        }
        Ok(())
    }

    fn parse(&mut self) -> Result<()> {
        let text = self.text;
        let mut at = 0;
        while let Some((range, line)) = self.words.get(at) {
            at += 1;
            let word = utf8(&text[range.clone()]).unwrap_or_default();
            let here = At { file: self.file, line: line.number };
            let (letter, attached) = if let Some(long) = word.strip_prefix("--") {
                let (name, value) = match long.split_once('=') {
                    Some((name, value)) => (name, Some(value)),
                    None => (long, None),
                };
                let letter = LONG.iter().find(|(long, _)| *long == name).map(|(_, letter)| *letter);
                let Some(letter) = letter else {
                    if !name.is_empty() && LONG.iter().any(|(long, _)| long.starts_with(name)) {
                        return Err(here.refusal(format!("`--{name}` is an abbreviation"), ONE_A_LINE));
                    }
                    // For another option; its value, if it has one, is skipped as well.
                    let next = self.words.get(at).map(|(range, _)| &text[range.clone()]);
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
                    let Some((next, _)) = self.words.get(at) else {
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
            self.options.given.push(Given { letter, value, written, whole, line: line.clone() });
        }
        Ok(())
    }
}

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
