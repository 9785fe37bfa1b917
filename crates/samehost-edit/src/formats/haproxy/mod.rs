//! haproxy.cfg: where the servers of `backend` and `listen` are, read as HAProxy reads it (src/cfgparse.c, src/server.c
//! and `str2sa_range` in src/tools.c of 2.6). Where HAProxy itself listens (`bind`) is not changed.
//!
//! Three things are not what one expects, and the real program decided them: HAProxy connects to a socket inside its
//! `chroot`; a server that is a socket has its health check there too, whatever `port` says, unless `addr` is given as
//! well; and `source`, dynamic cookies and rules of checks with a port are silently without effect over a socket.

mod config;
mod server;

use std::path::{Path, PathBuf};

use samehost_services::Kind;

use self::config::{Config, Line, words};
use self::server::{Server, Shared};
use crate::budget::Metered;
use crate::editor::{Arguments, Check, Editor, OfService, Program, is_all, written_lines};
use crate::files::{Edit, glob};
use crate::lines::{self, is_plain, lines};
use crate::refusal::{Reason, Refusal, Result};
use crate::setting::{Goal, Reading, Setting, Uptake};

#[derive(Debug)]
pub(crate) struct Haproxy;

impl Editor for Haproxy {
    fn name(&self) -> &'static str {
        "haproxy"
    }

    fn about(&self) -> &'static str {
        "the servers of HAProxy's backends"
    }

    fn recognises(&self, path: &Path, text: &[u8]) -> bool {
        let is_named = path.file_name().is_some_and(|name| name.to_string_lossy().contains("haproxy"));
        let is_configuration =
            path.extension().is_some_and(|extension| extension == "cfg" || is_named && extension == "conf");
        let text = String::from_utf8_lossy(text);
        is_configuration && text.lines().any(|line| begins_section(line, is_named))
    }

    fn read_metered(&self, file: &Path, files: &Metered<'_>) -> Result<Reading> {
        let config = Config::read(file, files)?;
        let chroot = Chroot::of(&config, files);
        Ok(servers(&config, &chroot, |_: &Line| true).map(|server| server?.setting()).collect())
    }

    fn edit_metered(
        &self,
        file: &Path,
        files: &Metered<'_>,
        setting: &Setting,
        goal: &Goal,
    ) -> Result<Vec<Edit>> {
        let config = &*files.once(file, || Config::read(file, files))?;
        let chroot = Chroot::of(config, files);
        let found = servers(config, &chroot, |line: &Line| line.number == setting.line).flatten();
        let found = found.filter_map(|server| Some((server.setting().ok()?, server)));
        let (now, server) = setting.find(found, |(setting, _)| setting)?;
        if now.endpoint == goal.endpoint {
            return Ok(Vec::new());
        }
        server.write(&now.endpoint, &goal.endpoint)
    }

    fn check_metered(&self, file: &Path, files: &Metered<'_>) -> Option<Check> {
        let mut check = Check::new(&HAPROXY, vec!["-c".into()], vec![file.to_owned()]);
        match Config::read(file, files) {
            Ok(config) => {
                for line in config.sections.iter().flat_map(|section| &section.lines) {
                    if line.word(0).starts_with("lua-") {
                        check.executes = Some("Lua");
                    }
                    if !line.word(0).starts_with("lua-load") {
                        continue;
                    }
                    let path = PathBuf::from(line.word(1));
                    if path.is_absolute() {
                        check.reads.push(path);
                    } else if check.unknown.is_none() {
                        check.unknown = Some(format!("{} is a relative path", path.display()));
                    }
                }
            }
            Err(refusal) => check.unknown = Some(refusal.reason),
        }
        Some(check)
    }

    fn uptake(&self, _file: &Path) -> Uptake {
        Uptake::Reload(Kind::Haproxy)
    }
}

/// Whether a line begins a section of HAProxy; `global` and `defaults` are words of other programs too, and count in a
/// file that is called after HAProxy.
fn begins_section(line: &str, is_named: bool) -> bool {
    let mut words = line.split_ascii_whitespace();
    match words.next().unwrap_or_default() {
        "backend" | "listen" | "frontend" => words.next().is_some_and(|name| name != "="),
        "global" | "defaults" => is_named,
        _ => false,
    }
}

/// The servers of every proxy that stand in such lines, and what else leads somewhere and cannot be changed.
fn servers<'a>(
    config: &'a Config,
    chroot: &'a Chroot,
    is_asked: impl Fn(&Line) -> bool + Copy + 'a,
) -> impl Iterator<Item = Result<Server<'a>>> {
    let proxies = config.sections.iter().enumerate().filter(|(_, section)| section.is_proxy());
    proxies.flat_map(move |(index, section)| {
        let shared = Shared::of(config, index);
        let asked = section.lines.iter().filter(move |line| is_asked(line));
        asked.filter_map(move |line| match line.word(0) {
            _ if line.is_server() => Some(Server::of(config, chroot, index, &shared, line)),
            "server-template" | "dispatch" => Some(Err(unchangeable(config, line))),
            _ => None,
        })
    })
}

fn unchangeable(config: &Config, line: &Line) -> Refusal {
    let (why, by_hand) = match line.word(0) {
        "dispatch" => ("`dispatch` takes no socket", "server NAME unix@/path/of.sock, and no `dispatch`"),
        _ => ("`server-template` stands for several servers", "a line `server` for each of them"),
    };
    config.refusal(line, why, by_hand)
}

/// HAProxy's own check, with the arguments of the service: it reads several files as one.
static HAPROXY: Program = Program {
    usual: "haproxy",
    is_called: Program::has_one_name,
    could_not_look,
    service: Some(OfService { shown: "haproxy -c", file_option: "-f", reads_folder: true, arguments }),
};

fn could_not_look(output: &str) -> bool {
    const FOLLOW: [&str; 2] = ["rror(s) found in configuration file", "atal errors found in configuration"];
    let alerts = written_lines(output)
        .filter(|line| line.contains("[ALERT]"))
        .filter(|line| !FOLLOW.iter().any(|words| line.contains(words)));
    is_all(alerts, |line| line.contains("ermission denied"))
}

/// `-f` may be there several times, and `--` has only files behind it. After a reload there are `-sf` with old
/// processes and `-x` as well.
fn arguments(words: &[String]) -> Result<Arguments, Reason> {
    let mut found = Arguments::default();
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--" => found.files.extend(words.by_ref().map(PathBuf::from)),
            "-f" => found.files.extend(words.next().map(PathBuf::from)),
            "-C" => found.folder = words.next().map(PathBuf::from),
            "-L" | "-n" | "-N" | "-m" => {
                found.options.push(word.clone());
                found.options.extend(words.next().cloned());
            }
            "-p" | "-x" | "-S" => {
                words.next();
            }
            "-sf" | "-st" => while words.next_if(|word| word.parse::<u32>().is_ok()).is_some() {},
            _ => {}
        }
    }
    Ok(found)
}

// Where HAProxy looks for the socket of a server: it connects inside its `chroot`, and the path in the configuration
// begins there. (`bind` opens its sockets before, and its paths are those of the machine.)

/// The longest path of a socket that HAProxy takes (`UNIX_MAX_PATH`).
const LONGEST_PATH: usize = 97;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Chroot {
    None,
    Directory(String),
    /// It cannot be told, and why.
    Unclear(String),
}

impl Chroot {
    fn of(config: &Config, files: &Metered<'_>) -> Self {
        let globals: Vec<_> =
            config.sections.iter().filter(|section| section.keyword() == "global").collect();
        let lines = globals.iter().flat_map(|section| &section.lines);
        let found: Vec<&Line> = lines.filter(|line| line.word(0) == "chroot").collect();
        match found.as_slice() {
            [] if globals.is_empty() => match elsewhere(config, files) {
                Some(other) => {
                    Chroot::Unclear(format!("it may be read together with {other}, which has `chroot`"))
                }
                None => Chroot::None,
            },
            [] => Chroot::None,
            [line] => {
                let place = format!("`chroot` (line {})", line.number);
                let path = line.word(1).trim_end_matches('/');
                let has_variable = line.words.get(1).is_none_or(|word| word.has_variable);
                if line.is_conditional {
                    Chroot::Unclear(format!("{place} holds only under a condition"))
                } else if has_variable
                    || !line.word(1).starts_with('/')
                    || !is_plain(path)
                    || path.contains("//")
                {
                    Chroot::Unclear(format!("{place} is unusual"))
                } else if path.is_empty() {
                    Chroot::None
                } else {
                    Chroot::Directory(path.to_owned())
                }
            }
            _ => Chroot::Unclear("`chroot` is there several times".to_owned()),
        }
    }

    /// The path on this machine of what the configuration calls so.
    fn outside(&self, path: &str) -> Result<String, Reason> {
        match self {
            Chroot::None if path.starts_with('/') => Ok(path.to_owned()),
            Chroot::None => Err("the path of its socket does not begin with a slash".into()),
            // HAProxy's directory is the new root.
            Chroot::Directory(root) => Ok(format!("{root}/{}", path.strip_prefix('/').unwrap_or(path))),
            Chroot::Unclear(why) => Err(why.clone().into()),
        }
    }

    /// What the configuration has to call a path on this machine.
    fn inside<'a>(&self, path: &'a str) -> Result<&'a str, Reason> {
        let found = match self {
            Chroot::None => path,
            Chroot::Directory(root) => {
                let below = path.strip_prefix(root.as_str()).filter(|rest| rest.starts_with('/'));
                below.ok_or_else(|| {
                    format!("HAProxy connects inside its chroot {root}, and {path} is outside of it")
                })?
            }
            Chroot::Unclear(why) => return Err(why.clone().into()),
        };
        if found.len() > LONGEST_PATH {
            let why = format!("HAProxy takes no path of a socket that is longer than {LONGEST_PATH} bytes");
            return Err(why.into());
        }
        Ok(found)
    }

    fn by_hand(&self, path: &str) -> String {
        match self {
            Chroot::Directory(root) => {
                let name = path.rsplit('/').next().unwrap_or_default();
                format!(
                    "let the server listen at {root}/run/{name}, and write unix@/run/{name} in the line of the server; or remove `chroot`"
                )
            }
            _ => format!("unix@{path} in the line of the server"),
        }
    }
}

/// A file that HAProxy may read together with this one, and that has a `chroot`.
fn elsewhere(config: &Config, files: &Metered<'_>) -> Option<String> {
    let folder = config.file.parent()?;
    // A directory of parts belongs to what is above it.
    let is_of_parts = folder.file_name().is_some_and(|name| name.to_string_lossy().ends_with(".d"));
    let mut patterns = vec![folder.join("*.cfg"), folder.join("conf.d/*.cfg")];
    if is_of_parts && let Some(above) = folder.parent() {
        patterns.push(above.join("*.cfg"));
    }
    for pattern in patterns {
        for path in glob(files, pattern.as_os_str().as_encoded_bytes()).unwrap_or_default() {
            if path != config.file && has_chroot(&path, files) {
                return Some(path.display().to_string());
            }
        }
    }
    None
}

fn has_chroot(path: &Path, files: &Metered<'_>) -> bool {
    let text = lines::read(path, files).unwrap_or_default();
    lines(&text).any(|line| {
        let words = words(&text[line.range], 0).unwrap_or_default();
        words.first().is_some_and(|word| word.value == "chroot")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::editor::tests::assert_reads;

    #[test]
    fn the_check_has_what_decides_how_the_files_are_read() {
        assert_reads(
            arguments,
            "-Ws -f /a.cfg -f conf.d -p /run/p -S /run/m,x -L me",
            "-L me",
            "/a.cfg conf.d",
            "",
        );
        assert_reads(
            arguments,
            "-sf 12 13 -x sockpair@4 -Ws -C /etc/haproxy -- a.cfg b.cfg",
            "",
            "a.cfg b.cfg",
            "/etc/haproxy",
        );
    }
}
