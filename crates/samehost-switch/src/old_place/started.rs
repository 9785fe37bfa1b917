//! The programs that cron and units start by name, where these are texts: a script, what that starts in its turn, and the
//! configurations that they are given. The script of a crontab was not opened, and the port closed that it asks every five minutes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use samehost_edit::{Files, once_in_a_run};
use samehost_system::User;

use crate::configuration::leads::has_settings;
use crate::configuration::server_files::{continued, folder};
use crate::configuration::units;
use crate::disk::{Disk, Reads};
use crate::place::real;

/// Where cron is told what to start; what users have it do is read by root's cron, and nobody else makes a name there.
pub(super) const CRON: &[&str] = &[
    "/var/spool/cron", "/var/spool/cron/crontabs", "/etc/cron.d", "/etc/cron.hourly", "/etc/cron.daily",
    "/etc/cron.weekly", "/etc/cron.monthly",
];
/// What packages bring has no address of this machine's applications; `/etc` is searched as a whole, and logs say what was.
const PASSED_OVER: &[&str] = &["/usr", "/etc", "/proc", "/sys", "/dev", "/var/log"];
/// Longest text that is searched, in bytes.
pub(super) const LONGEST: u64 = 1 << 20;
/// How many files are read, how many words of each are looked at, and how often one leads to the next.
const MOST: usize = 300;
const MOST_WORDS: usize = 5000;
const DEEPEST: usize = 3;

/// The texts that are started, read once in a run, and whether there are too many. Units of these names are those of servers that
/// leave.
pub(super) fn started(servers: &BTreeSet<String>) -> Rc<(Vec<(PathBuf, String)>, bool)> {
    once_in_a_run(&format!("what is started beside {servers:?}"), || {
        let disk = Disk::default();
        let mut waiting = VecDeque::new();
        let listed = CRON.iter().flat_map(|folder| disk.list(Path::new(folder)).unwrap_or_default());
        for path in listed.chain(["/etc/crontab".into()]) {
            let user = User::named(&path.file_name().unwrap_or_default().to_string_lossy());
            waiting
                .extend(read(&path, &disk).map(|text| (text, user.map_or("/".into(), |user| user.home), 0)));
        }
        for unit in units::written().iter().filter(|unit| !servers.contains(&unit.name)) {
            let folder = unit.works_in().unwrap_or("/".into());
            waiting.extend(unit.files.iter().map(|(_, text)| (text.clone(), folder.clone(), 0)));
        }
        let (mut found, mut is_cut) = (BTreeMap::new(), false);
        while let Some((text, from, depth)) = waiting.pop_front() {
            for path in named_in(&text, &from, &mut is_cut) {
                if found.len() >= MOST || found.contains_key(&path) {
                    is_cut |= found.len() >= MOST;
                    continue;
                }
                let disk = Disk::of(&path, Reads::Application, None);
                let Some(text) = read(&path, &disk) else { continue };
                if depth < DEEPEST {
                    waiting.push_back((text.clone(), folder(&path).to_owned(), depth + 1));
                }
                found.insert(path, text);
            }
        }
        (found.into_iter().collect(), is_cut)
    })
}

/// A text of bounded length, with the lines that go on as their program has them.
pub(super) fn read(path: &Path, files: &dyn Files) -> Option<String> {
    let bytes = files.read(path).ok().filter(|bytes| bytes.len() as u64 <= LONGEST && !bytes.contains(&0))?;
    Some(continued(&String::from_utf8_lossy(&bytes)))
}

/// Whether a path is a file that is not too long to be searched; a dump of a database is not read first.
fn is_short(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() <= LONGEST)
}

/// The files that a text names, by their real paths, seen from a directory. What is written to is not read.
fn named_in(text: &str, home: &Path, is_cut: &mut bool) -> Vec<PathBuf> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let is_between = |letter: char| letter.is_whitespace() || ";&|()\"'`=,{}".contains(letter);
    let words = lines.flat_map(|line| line.split(is_between)).filter(|word| !word.is_empty());
    let (mut found, mut before, mut from) = (Vec::new(), "", home.to_owned());
    for (at, word) in words.enumerate() {
        let of_home = ["~/", "$HOME/"].iter().find_map(|start| Some(home.join(word.strip_prefix(start)?)));
        let path = of_home.unwrap_or_else(|| from.join(word.trim_start_matches(['-', '+', '!', '@', ':'])));
        if before == "cd" {
            from = path;
        } else if at < MOST_WORDS && !word.contains('>') && !before.ends_with('>') && is_short(&path) {
            found.push(real(&path));
        }
        *is_cut |= at >= MOST_WORDS;
        before = word;
    }
    let is_wanted = |path: &Path| PASSED_OVER.iter().all(|folder| !path.starts_with(folder));
    found.retain(|path| has_settings(path) && (is_wanted(path) || path.starts_with("/usr/local")));
    found
}
