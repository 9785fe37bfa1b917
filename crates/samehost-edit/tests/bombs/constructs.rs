//! The bombs: the same constructs in each format, made of its words, as long as is asked for.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::dialects::Dialect;

/// The files of a bomb by their paths below a root; the first one is asked about.
pub type Made = (PathBuf, BTreeMap<PathBuf, Vec<u8>>);

/// What a file is made of, and how it is called in a message.
pub struct Construct {
    pub name: &'static str,
    make: fn(&Dialect, usize) -> Vec<u8>,
    /// Files beside it that are included.
    beside: fn(&Dialect, &Path, usize) -> BTreeMap<PathBuf, Vec<u8>>,
}

const fn alone(name: &'static str, make: fn(&Dialect, usize) -> Vec<u8>) -> Construct {
    Construct { name, make, beside: |_, _, _| BTreeMap::new() }
}

/// Each is about `length` bytes long.
pub const CONSTRUCTS: &[Construct] = &[
    alone("text that doubles", |dialect, _| {
        let (first, next, _) = dialect.variables;
        within(dialect, &(first.to_owned() + &repeated(next, 40)))
    }),
    alone("text that doubles itself", |dialect, _| {
        let (first, _, itself) = dialect.variables;
        within(dialect, &(first.to_owned() + &itself.repeat(40)))
    }),
    alone("text that doubles itself for the whole file", |dialect, length| {
        let (first, _, itself) = dialect.variables;
        within(dialect, &(first.to_owned() + &filled(itself, dialect, length)))
    }),
    alone("brackets [", |dialect, length| raw(dialect, "[", length)),
    alone("brackets {", |dialect, length| raw(dialect, "{", length)),
    alone("brackets (", |dialect, length| raw(dialect, "(", length)),
    alone("brackets <", |dialect, length| raw(dialect, "<", length)),
    alone("closed brackets", |dialect, length| {
        within(dialect, &format!("{}{}\n", "[".repeat(length / 2), "]".repeat(length / 2)))
    }),
    alone("a value in brackets", |dialect, length| {
        let bare = dialect.value.0.trim_end_matches(['"', '\'']);
        let end = dialect.value.1.trim_start_matches(['"', '\'']);
        within(dialect, &format!("{bare}{}1{}{end}", "(".repeat(length / 2), ")".repeat(length / 2)))
    }),
    alone("brackets ${", |dialect, length| raw(dialect, "${", length)),
    alone("tags of PHP", |dialect, length| raw(dialect, "<?php ", length)),
    alone("one line many times", |dialect, length| {
        let line = "REDIS_URL=redis://127.0.0.1:6380/1\n";
        within(dialect, &line.repeat(length / line.len()))
    }),
    alone("quotes", |dialect, length| raw(dialect, "\"", length)),
    alone("minus and not", |dialect, length| raw(dialect, "!-", length)),
    alone("open blocks", |dialect, length| within(dialect, &filled(dialect.block.0, dialect, length))),
    alone("nested blocks", |dialect, length| {
        let (open, close) = dialect.block;
        let count = length / (open.len() + close.len()).max(1);
        within(dialect, &(repeated(open, count) + &close.repeat(count)))
    }),
    alone("many blocks", |dialect, length| {
        let (open, close) = dialect.block;
        within(dialect, &filled(&format!("{open}{close}"), dialect, length))
    }),
    Construct {
        name: "an include of itself",
        make: |dialect, _| including(dialect, &[dialect.file], 1),
        beside: |_, _, _| BTreeMap::new(),
    },
    Construct {
        name: "an include of itself for the whole file",
        make: |dialect, length| including(dialect, &[dialect.file], length / 40),
        beside: |_, _, _| BTreeMap::new(),
    },
    Construct {
        name: "a chain of includes",
        make: |dialect, _| including(dialect, &["part/1"], 1),
        beside: chain,
    },
    Construct {
        name: "a glob over many files",
        make: |dialect, _| including(dialect, &["part/*"], 1),
        beside: many,
    },
    Construct {
        name: "globs over many files",
        make: |dialect, length| including(dialect, &["*/*", "part/*", "p*/[0-9]*"], length / 60),
        beside: many,
    },
    alone("variables that refer to each other", |dialect, length| {
        let (first, next, _) = dialect.variables;
        let next = next.replacen("${V{j}}${V{j}}", "${V{j}}", 1).replacen("$v{j} . $v{j}", "$v{j}", 1);
        within(dialect, &(first.to_owned() + &filled(&next, dialect, length)))
    }),
    alone("one long value", |dialect, length| value(dialect, &"x".repeat(length))),
    alone("one long line of words", |dialect, length| value(dialect, &"a:1,b=2 /c ".repeat(length / 11))),
    alone("one long line of settings", |dialect, length| {
        within(dialect, &(filled(dialect.setting, dialect, length).replace('\n', " ") + "\n"))
    }),
    alone("many empty lines", |dialect, length| within(dialect, &"\n".repeat(length))),
    alone("many comments", |dialect, length| within(dialect, &"# 127.0.0.1:1\n".repeat(length / 14))),
    alone("many settings", |dialect, length| within(dialect, &filled(dialect.setting, dialect, length))),
    alone("the same setting", |dialect, length| {
        let one = dialect.setting.replace("{i}", "1").replace("{port}", "8000");
        within(dialect, &one.repeat(length / one.len()))
    }),
    alone("long names", |dialect, length| {
        within(dialect, &dialect.setting.replace("{i}", &"n".repeat(length / 8)).replace("{port}", "1"))
    }),
    alone("a quote that stays open", |dialect, length| value(dialect, &"\"'`".repeat(length / 3))),
    alone("a text that stays open", |dialect, length| {
        let mut text = dialect.head.to_owned() + dialect.opens;
        text += &filled(dialect.setting, dialect, length);
        text.into_bytes()
    }),
    alone("lines that continue", |dialect, length| within(dialect, &"\\\n".repeat(length / 2))),
    alone("comments that stay open", |dialect, length| within(dialect, &"/*".repeat(length / 2))),
    alone("NULs", |dialect, length| value(dialect, &"\0".repeat(length))),
    alone("no UTF-8", |dialect, length| {
        let mut text = dialect.head.as_bytes().to_vec();
        text.extend(dialect.value.0.bytes());
        text.extend(std::iter::repeat_n(0xff, length));
        text.extend(dialect.value.1.bytes().chain(dialect.tail.bytes()));
        text
    }),
    alone("CRLF", |dialect, length| {
        let text = within(dialect, &filled(dialect.setting, dialect, length));
        String::from_utf8_lossy(&text).replace('\n', "\r\n").into_bytes()
    }),
    alone("tabs and returns", |dialect, length| within(dialect, &"\t\r".repeat(length / 2))),
    alone("a chain of parts", |dialect, length| parts(dialect, dialect.chain, length)),
    alone("many addresses", |dialect, length| parts(dialect, dialect.list, length)),
    alone("a huge number", |dialect, length| {
        within(dialect, &dialect.setting.replace("{port}", &"9".repeat(length)).replace("{i}", "1"))
    }),
    alone("backslashes", |dialect, length| value(dialect, &"\\".repeat(length))),
    alone("dollars", |dialect, length| value(dialect, &"$a$$%i".repeat(length / 6))),
    alone("markup", |dialect, length| within(dialect, &"<?php ?><%= %>".repeat(length / 14))),
];

impl Construct {
    /// Its files below a root.
    pub fn made(&self, dialect: &Dialect, root: &Path, length: usize) -> Made {
        let file = root.join(dialect.file);
        let folder = root.display().to_string();
        let mut files = (self.beside)(dialect, root, length);
        let text = (self.make)(dialect, length);
        let text = String::from_utf8(text).map_or_else(std::string::FromUtf8Error::into_bytes, |text| {
            text.replace("{root}", &folder).into_bytes()
        });
        files.insert(file.clone(), text);
        (file, files)
    }
}

fn repeated(each: &str, times: usize) -> String {
    let mut text = String::new();
    for number in 1..=times {
        let port = (number % 65_000 + 1).to_string();
        let each = each.replace("{i}", &number.to_string()).replace("{j}", &(number - 1).to_string());
        text += &each.replace("{port}", &port);
    }
    text
}

/// As often as there is room; of settings where a format has no such thing.
fn filled(each: &str, dialect: &Dialect, length: usize) -> String {
    let each = if each.is_empty() { dialect.setting } else { each };
    let one = each.replace("{i}", "12345").replace("{j}", "12344").replace("{port}", "12345");
    repeated(each, length / one.len())
}

fn within(dialect: &Dialect, text: &str) -> Vec<u8> {
    format!("{}{text}{}", dialect.head, dialect.tail).into_bytes()
}

fn value(dialect: &Dialect, text: &str) -> Vec<u8> {
    within(dialect, &format!("{}{text}{}", dialect.value.0, dialect.value.1))
}

/// One kind of bracket, at the beginning of a statement and where a value stands.
fn raw(dialect: &Dialect, bracket: &str, length: usize) -> Vec<u8> {
    let many = bracket.repeat(length / 2 / bracket.len());
    let bare = dialect.value.0.trim_end_matches(['"', '\'']);
    within(dialect, &format!("{bare}{many}\n{many}\n"))
}

fn parts(dialect: &Dialect, (start, each, end): (&str, &str, &str), length: usize) -> Vec<u8> {
    within(dialect, &(start.to_owned() + &filled(each, dialect, length) + end))
}

fn including(dialect: &Dialect, names: &[&str], times: usize) -> Vec<u8> {
    let include = if dialect.include.is_empty() { dialect.setting } else { dialect.include };
    let mut text = String::new();
    for name in names {
        text += &include.replace("{path}", &format!("{{root}}/{name}"));
    }
    within(dialect, &repeated(&text, times.max(1)))
}

/// Each file includes the next one.
fn chain(dialect: &Dialect, root: &Path, length: usize) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for number in 1..=length / 200 {
        let next = root.join(format!("part/{}", number + 1)).display().to_string();
        let text = dialect.include.replace("{path}", &next).replace("{i}", &number.to_string());
        let php = if dialect.head == "<?php\n" { "<?php\n" } else { "" };
        files.insert(root.join(format!("part/{number}")), format!("{php}{text}").into_bytes());
    }
    files
}

fn many(dialect: &Dialect, root: &Path, length: usize) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for number in 1..=length / 200 {
        let php = if dialect.head == "<?php\n" { "<?php\n" } else { "" };
        let text =
            php.to_owned() + &dialect.setting.replace("{i}", &number.to_string()).replace("{port}", "1");
        files.insert(root.join(format!("part/{number}")), text.into_bytes());
    }
    files
}
