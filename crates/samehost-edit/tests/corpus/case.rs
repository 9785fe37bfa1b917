//! One case of the corpus, a text file:
//!
//! ```text
//! # What it is about, in a line or two.
//! file: etc/redis/redis.conf            the file asked about, below {root}
//! move: tcp:127.0.0.1:6379              which connections move: an endpoint, or the name of a setting; several lines allowed
//! move: upstream a, server 2 => unix:/b   one that moves elsewhere than `to`
//! to: unix:/run/redis/redis.sock        where to
//! stays: yes                            a server stays on TCP too (default no)
//! access: owner:group:660               optional (either name may be empty)
//! backlog: 511                          optional
//! === etc/redis/redis.conf [crlf] [bom] [no-newline] [latin1]
//! the text before
//! === after etc/redis/redis.conf
//! the text afterwards (the flags of before hold)
//! === refused etc/redis/redis.conf:3
//! words that the reason or the edit by hand contains, one line each
//! ```
//!
//! `{root}` in any text stands for the directory that the case is unpacked into. A case ends with `after` parts, one
//! `refused` part, or `=== nothing` (nothing to do).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use samehost_edit::{Access, Goal, Refusal, Setting};
use samehost_model::Endpoint;

/// What the editor made of a case.
pub(crate) enum Outcome {
    /// These files, as they would be.
    Edited(BTreeMap<PathBuf, Vec<u8>>),
    /// A refusal.
    Refused(Refusal),
    /// Nothing to move; the settings that it read.
    Nothing(Vec<Setting>),
    /// An editor's mistake.
    Failed(String),
}

/// A case.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) path: PathBuf,
    header: String,
    pub(crate) before: BTreeMap<String, Part>,
    after: BTreeMap<String, String>,
    refused: Option<(String, String)>,
    nothing: bool,
}

#[derive(Debug)]
pub(crate) struct Part {
    text: String,
    flags: Vec<String>,
}

impl Part {
    /// The bytes of a text with these flags.
    fn bytes(&self, text: &str, root: &Path) -> Vec<u8> {
        let has = |flag: &str| self.flags.iter().any(|given| given == flag);
        let mut text = text.replace("{root}", &root.display().to_string());
        if has("no-newline") {
            text.pop();
        }
        if has("crlf") {
            text = text.replace('\n', "\r\n");
        }
        let mut bytes = if has("latin1") {
            text.chars().map(|one| u8::try_from(u32::from(one)).expect("latin1")).collect()
        } else {
            text.into_bytes()
        };
        if has("bom") {
            bytes.splice(0..0, *b"\xef\xbb\xbf");
        }
        bytes
    }

    /// The text that these bytes are written as in a case.
    fn text(&self, bytes: &[u8], root: &Path) -> String {
        let has = |flag: &str| self.flags.iter().any(|given| given == flag);
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").filter(|_| has("bom")).unwrap_or(bytes);
        let mut text = if has("latin1") {
            bytes.iter().map(|byte| char::from(*byte)).collect()
        } else {
            String::from_utf8_lossy(bytes).into_owned()
        };
        if has("crlf") {
            text = text.replace("\r\n", "\n");
        }
        if has("no-newline") {
            text.push('\n');
        }
        text.replace(&root.display().to_string(), "{root}")
    }
}

impl Case {
    /// The cases of an editor, by name.
    pub(crate) fn all(editor: &str) -> Vec<Case> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../samehost-edit/corpus").join(editor);
        let mut paths: Vec<PathBuf> =
            std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "case"));
        paths.sort();
        paths.into_iter().map(Case::read).collect()
    }

    fn read(path: PathBuf) -> Case {
        let text = std::fs::read_to_string(&path).unwrap();
        let mut case = Case {
            path,
            header: String::new(),
            before: BTreeMap::new(),
            after: BTreeMap::new(),
            refused: None,
            nothing: false,
        };
        let mut parts = text.split("\n=== ");
        case.header = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (title, body) = part.split_once('\n').unwrap_or((part, ""));
            // The newline before the next title belongs to this text.
            let body =
                if body.is_empty() || body.ends_with('\n') { body.to_owned() } else { format!("{body}\n") };
            let mut words = title.split_whitespace();
            match words.next().unwrap_or_default() {
                "after" => {
                    case.after.insert(words.next().expect("after FILE").to_owned(), body);
                }
                "refused" => case.refused = Some((words.next().unwrap_or_default().to_owned(), body)),
                "nothing" => case.nothing = true,
                file => {
                    let flags = words.map(|flag| flag.trim_matches(['[', ']']).to_owned()).collect();
                    case.before.insert(file.to_owned(), Part { text: body, flags });
                }
            }
        }
        case
    }

    fn header<'a>(&'a self, key: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        let prefix = format!("{key}:");
        self.header.lines().filter_map(move |line| Some(line.strip_prefix(&prefix)?.trim()))
    }

    /// Unpacks it into a directory of its own.
    pub(crate) fn materialise(&self) -> tempfile::TempDir {
        use std::os::unix::fs::PermissionsExt;
        let root = tempfile::Builder::new().prefix("samehost-corpus-").tempdir().unwrap();
        std::fs::set_permissions(root.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        for (name, part) in &self.before {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, part.bytes(&part.text, root.path())).unwrap();
        }
        root
    }

    /// Whether the editor changes something in it.
    pub(crate) fn is_edited(&self) -> bool {
        !self.after.is_empty()
    }

    /// Whether a refusal is what is wanted.
    #[allow(dead_code, reason = "not every proof asks")]
    pub(crate) fn is_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// The published configuration that it is written after: `OWNER/REPOSITORY@COMMIT:PATH`.
    #[allow(dead_code, reason = "not every proof asks")]
    pub(crate) fn published(&self) -> Option<&str> {
        let named = self.header.lines().filter(|line| line.starts_with('#'));
        named.flat_map(str::split_whitespace).find(|word| {
            let Some((repository, rest)) = word.split_once('@') else { return false };
            let Some((commit, path)) = rest.split_once(':') else { return false };
            let is_commit = commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
            is_commit && repository.split('/').count() == 2 && !path.is_empty()
        })
    }

    /// The file that is asked about.
    pub(crate) fn file(&self, root: &Path) -> PathBuf {
        root.join(self.header("file").next().expect("file:"))
    }

    /// Where a setting moves: none where it stays.
    pub(crate) fn to(&self, root: &Path, setting: &Setting) -> Option<Endpoint> {
        let fill = |text: &str| text.replace("{root}", &root.display().to_string());
        let endpoint = setting.endpoint.to_string();
        let (_, own) = self
            .header("move")
            .map(|line| {
                line.split_once(" => ").map_or((fill(line), None), |(what, to)| (fill(what), Some(fill(to))))
            })
            .find(|(what, _)| *what == endpoint || *what == setting.name)?;
        let to = own.or_else(|| self.header("to").next().map(fill)).expect("to:");
        Some(to.parse().unwrap())
    }

    /// A header line that a proof may want.
    #[allow(dead_code, reason = "not every proof asks")]
    pub(crate) fn word(&self, key: &str) -> Option<&str> {
        self.header(key).next()
    }

    /// All header lines of a key.
    #[allow(dead_code, reason = "not every proof asks")]
    pub(crate) fn words<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.header(key)
    }

    /// The text before of every file.
    #[allow(dead_code, reason = "not every proof asks")]
    pub(crate) fn text(&self) -> String {
        self.before.values().map(|part| part.text.as_str()).collect()
    }

    /// What a setting should become; none where it stays.
    pub(crate) fn goal(&self, root: &Path, setting: &Setting) -> Option<Goal> {
        let endpoint = self.to(root, setting)?;
        let access = self.header("access").next().map(|text| {
            let mut parts = text.split(':').map(str::to_owned);
            let named = |part: Option<String>| part.filter(|name| !name.is_empty());
            let (owner, group) = (named(parts.next()), named(parts.next()));
            let mode = u32::from_str_radix(&parts.next().expect("owner:group:mode"), 8).unwrap();
            Access { owner, group, mode }
        });
        Some(Goal {
            endpoint,
            stays: self.header("stays").next() == Some("yes"),
            access,
            backlog: self.header("backlog").next().map(|backlog| backlog.parse().unwrap()),
        })
    }

    /// Holds what the editor made of it against what is written down.
    pub(crate) fn hold(&self, outcome: &Outcome, root: &Path) -> Result<(), String> {
        if let Outcome::Failed(error) = outcome {
            return Err(error.clone());
        }
        if std::env::var_os("SAMEHOST_BLESS").is_some() {
            self.bless(outcome, root);
            return Ok(());
        }
        match outcome {
            Outcome::Edited(files) => {
                for (path, bytes) in files {
                    let name = path.strip_prefix(root).unwrap_or(path).display().to_string();
                    let found = self.part(&name).text(bytes, root);
                    let Some(wanted) = self.after.get(&name) else {
                        return Err(format!("{name} would be changed to\n{found}"));
                    };
                    if *wanted != found {
                        return Err(format!("{name} would be\n{found}\nwhere this was wanted\n{wanted}"));
                    }
                    if self.part(&name).bytes(wanted, root) != *bytes {
                        return Err(format!("{name}: the bytes differ: {}", bytes.escape_ascii()));
                    }
                }
                let changed = files.len();
                if changed == self.after.len() {
                    Ok(())
                } else {
                    Err(format!("{changed} files would be changed"))
                }
            }
            Outcome::Refused(refusal) => {
                let Some((place, words)) = &self.refused else { return Err(format!("refused: {refusal}")) };
                let said = refusal.to_string().replace(&root.display().to_string(), "{root}");
                let found = refusal.file.strip_prefix(root).unwrap_or(&refusal.file);
                if format!("{}:{}", found.display(), refusal.line) != *place {
                    return Err(format!("refused at another place than {place}: {said}"));
                }
                if refusal.by_hand.is_empty() {
                    return Err(format!("refused without saying what to do by hand: {said}"));
                }
                match words.lines().find(|words| !said.contains(words.trim())) {
                    Some(words) => Err(format!("`{words}` is not in: {said}")),
                    None => Ok(()),
                }
            }
            Outcome::Nothing(settings) => {
                if self.nothing {
                    Ok(())
                } else {
                    Err(format!("nothing would move; it reads {settings:#?}"))
                }
            }
            Outcome::Failed(error) => Err(error.clone()),
        }
    }

    fn part(&self, name: &str) -> Part {
        let part = self.before.get(name);
        Part { text: String::new(), flags: part.map_or(Vec::new(), |part| part.flags.clone()) }
    }

    fn bless(&self, outcome: &Outcome, root: &Path) {
        let text = std::fs::read_to_string(&self.path).unwrap();
        let ends = ["\n=== after ", "\n=== refused", "\n=== nothing"];
        let end = ends.iter().filter_map(|title| text.find(title)).min().unwrap_or(text.len());
        let mut out = text[..end].trim_end_matches('\n').to_owned() + "\n";
        match outcome {
            Outcome::Edited(files) => {
                for (path, bytes) in files {
                    let name = path.strip_prefix(root).unwrap_or(path).display().to_string();
                    out += &format!("=== after {name}\n{}", self.part(&name).text(bytes, root));
                }
            }
            Outcome::Refused(refusal) => {
                let file = refusal.file.strip_prefix(root).unwrap_or(&refusal.file);
                let reason = refusal.reason.replace(&root.display().to_string(), "{root}");
                out += &format!("=== refused {}:{}\n{reason}\n", file.display(), refusal.line);
            }
            Outcome::Nothing(_) => out += "=== nothing\n",
            Outcome::Failed(_) => {}
        }
        std::fs::write(&self.path, out).unwrap();
    }
}
