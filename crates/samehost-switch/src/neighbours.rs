//! Whose connection it is that a process of PHP-FPM holds, where its pool serves several sites: two sites in one pool are two
//! applications. While PHP runs a script it works in the script's directory (php_execute_script changes into it), so
//! `/proc/PID/cwd` tells the site as long as the connection is there. Otherwise a site that the web server passes to the same pool
//! explains a connection only by its own line; what neither explains is not guessed (a connection of the neighbour's was told as one
//! of a site that was switched well, and confirmed one that was not).
//!
//! The same holds of a server whose configuration has several files, as that of nginx: one process connects for all of them. Where a
//! line of another file leads to a place as well, a connection there says nothing of this one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use samehost_edit::{Library, Role, Setting};
use samehost_model::Endpoint;

use crate::configuration::{ConfigFile, at_path};
use crate::findings::place;
use crate::place::real;
use crate::plan::client::Application;

/// How many directories above a script's one are searched for a configuration: `public/`, `wp-admin/`.
const ABOVE: usize = 3;

/// A line of another site's configuration that names a place.
#[derive(Clone, Debug)]
struct OtherLine {
    /// The directory with that configuration, or its file.
    target: PathBuf,
    /// File and line.
    place: String,
    endpoint: String,
    is_tcp: bool,
}

impl OtherLine {
    fn of(target: &Path, setting: &Setting) -> Self {
        OtherLine {
            target: target.to_owned(),
            place: place(&setting.file, setting.line),
            endpoint: setting.endpoint.to_string().trim_start_matches("tcp:").to_owned(),
            is_tcp: !matches!(setting.endpoint, Endpoint::Unix(_)),
        }
    }

    /// For people, with what to do where it still goes over TCP.
    fn in_words(&self) -> String {
        let OtherLine { target, place, endpoint, is_tcp } = self;
        if *is_tcp {
            let next = format!("Next: samehost switch {}", target.display());
            return format!(
                "the same processes also connect over TCP: {place} still names {endpoint}. {next}"
            );
        }
        format!("the same processes also connect over a Unix socket: {place} names {endpoint}")
    }
}

/// The lines of servers that are not those of a target, by where they lead: the first in another file than the target's.
#[derive(Debug, Default)]
pub(crate) struct OtherLines {
    targets: BTreeSet<PathBuf>,
    /// Places to which several databases of a pooler lead, which connects for any of them.
    pooled: BTreeSet<String>,
    /// By the main files of the servers.
    known: Mutex<BTreeMap<Vec<PathBuf>, BTreeMap<String, OtherLine>>>,
}

impl OtherLines {
    /// Those beside the lines of a target, which lead there.
    pub(crate) fn beside<'a>(lines: impl Iterator<Item = (&'a Setting, &'a Endpoint)>) -> Arc<Self> {
        let (mut others, mut places) = (OtherLines::default(), BTreeSet::new());
        for (setting, to) in lines {
            others.targets.insert(real(&setting.file));
            if setting.library == Library::PgBouncer
                && let Some(place) = place_of(to)
                && !places.insert(place.clone())
            {
                others.pooled.insert(place);
            }
        }
        Arc::new(others)
    }

    fn at(&self, server: &[PathBuf], to: &Endpoint) -> Option<OtherLine> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = known.entry(server.to_owned()).or_insert_with(|| self.read(server));
        lines.get(&place_of(to)?).cloned()
    }

    fn read(&self, server: &[PathBuf]) -> BTreeMap<String, OtherLine> {
        let mut found = BTreeMap::new();
        let config = ConfigFile::first_of(server);
        let Some(Ok(read)) = config.map(|config| config.read()) else { return found };
        for setting in read.reading.settings {
            if setting.role == Role::Connects
                && !self.targets.contains(&real(&setting.file))
                && let Some(place) = place_of(&setting.endpoint)
            {
                found.entry(place).or_insert_with(|| OtherLine::of(&setting.file, &setting));
            }
        }
        found
    }
}

/// Whose a connection is.
pub(crate) enum Whose {
    Own,
    /// Another site's: what is known of it, in words.
    Others(String),
    /// The processes serve others too, or may, and nothing tells: why.
    Unknown(&'static str),
}

const SHARED: &str = "serves others too: which of them connects is not known";
const NO_POOL: &str = "which pool of PHP-FPM serves this site is not known: neither a web server here nor a line of one pool says so";

/// The site of an application, and what is known of those that share its processes.
pub(crate) struct Neighbours {
    /// The configuration; none where processes run one application alone.
    own: Option<PathBuf>,
    /// Directories of other sites that a web server passes to the same pools.
    beside: Vec<PathBuf>,
    is_unknown: bool,
    /// What was found in directories, by the place that was looked for.
    known: BTreeMap<(PathBuf, String), Found>,
    /// The main files of the server that runs by the configuration, and its other lines.
    server: Vec<PathBuf>,
    others: Arc<OtherLines>,
}

/// What the configurations in a directory, or above it, say of a place.
#[derive(Clone)]
enum Found {
    /// The nearest one is the application's.
    Own,
    /// Another one names the place.
    Line(OtherLine),
    /// The nearest one is that of a site in this directory, and does not name the place, or not any more: PHP goes on with a file as it
    /// was for a while. A site inside another one's directory that had just changed was told as the outer one's connection elsewhere.
    Site(PathBuf),
    Nothing,
}

impl Neighbours {
    pub(crate) fn of(application: &Application, others: Arc<OtherLines>) -> Self {
        let (own, server) = (application.site.clone(), application.server.clone());
        let (beside, known, is_unknown) = (Vec::new(), BTreeMap::new(), application.is_unknown);
        let mut all = Neighbours { own, beside, is_unknown, known, server, others };
        let Some(folder) = all.own.as_deref().and_then(Path::parent) else { return all };
        for site in &application.beside {
            // `public/` below the configuration, or a directory above it, is the application's own, unless it has another one.
            let is_around = folder.starts_with(site) || site.starts_with(folder);
            if !is_around || has_another(site, all.own.as_deref()) {
                all.beside.push(site.clone());
            }
        }
        all
    }

    /// Whose a connection to a place is, given the directory in which its process works while it holds it; `None` where that
    /// is not known.
    pub(crate) fn whose(&mut self, works_in: Option<&Path>, to: &Endpoint) -> Whose {
        let Some(folder) = self.own.as_deref().and_then(Path::parent).map(Path::to_owned) else {
            if place_of(to).is_some_and(|place| self.others.pooled.contains(&place)) {
                return Whose::Unknown(SHARED);
            }
            let other = self.others.at(&self.server, to);
            return other.map_or(Whose::Own, |line| Whose::Others(line.in_words()));
        };
        if let Some(directory) = works_in {
            match self.found(directory, to) {
                Found::Own => return Whose::Own,
                Found::Line(line) => return Whose::Others(line.in_words()),
                Found::Site(site) => return for_the_site(&site, to),
                Found::Nothing => {}
            }
            if let Some(site) = self.beside.iter().find(|site| directory.starts_with(site)) {
                return for_the_site(site, to);
            }
            if directory.starts_with(&folder) {
                return Whose::Own;
            }
        }
        if self.is_unknown {
            return Whose::Unknown(NO_POOL);
        }
        if self.beside.is_empty() {
            return Whose::Own;
        }
        for site in self.beside.clone() {
            if let Found::Line(line) = self.found(&site, to) {
                return Whose::Others(line.in_words());
            }
        }
        Whose::Unknown(SHARED)
    }

    fn found(&mut self, directory: &Path, to: &Endpoint) -> Found {
        let key = (directory.to_owned(), to.to_string());
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let found = find(directory, to, self.own.as_deref());
        self.known.insert(key, found.clone());
        found
    }
}

fn for_the_site(site: &Path, to: &Endpoint) -> Whose {
    Whose::Others(format!("the same processes also connect to {to}, for the site in {}", site.display()))
}

fn has_another(directory: &Path, own: Option<&Path>) -> bool {
    let configs = at_path(directory, None).unwrap_or_default();
    !configs.is_empty() && configs.iter().all(|config| Some(real(&config.file).as_path()) != own)
}

fn find(directory: &Path, to: &Endpoint, own: Option<&Path>) -> Found {
    for above in directory.ancestors().take(ABOVE).filter(|above| above.parent().is_some()) {
        let configs = at_path(above, None).unwrap_or_default();
        if configs.iter().any(|config| Some(real(&config.file).as_path()) == own) {
            return Found::Own;
        }
        let mut is_of_a_site = false;
        for config in configs {
            let Ok(read) = config.read() else { continue };
            for setting in read.reading.settings.iter().filter(|one| one.role == Role::Connects) {
                if place_of(&setting.endpoint) == place_of(to) {
                    return Found::Line(OtherLine::of(above, setting));
                }
                is_of_a_site = true;
            }
        }
        if is_of_a_site {
            return Found::Site(above.to_owned());
        }
    }
    Found::Nothing
}

/// The place on this machine that an endpoint is.
pub(crate) fn place_of(endpoint: &Endpoint) -> Option<String> {
    match endpoint {
        Endpoint::Unix(path) => Some(real(path).display().to_string()),
        Endpoint::Tcp { port, .. } | Endpoint::TcpTls { port, .. } => Some(format!(":{port}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(root: &Path, name: &str, host: &str) -> PathBuf {
        let directory = root.join(name);
        std::fs::create_dir_all(directory.join("wp-admin")).unwrap();
        std::fs::write(directory.join("wp-config.php"), format!("<?php\ndefine( 'DB_HOST', '{host}' );\n"))
            .unwrap();
        real(&directory)
    }

    /// In words: own, another's with its line, another's, unknown.
    fn told(neighbours: &mut Neighbours, works_in: Option<&Path>, to: &str) -> String {
        match neighbours.whose(works_in, &to.parse().unwrap()) {
            Whose::Own => "own".into(),
            Whose::Others(words) => words,
            Whose::Unknown(_) => "unknown".into(),
        }
    }

    #[test]
    fn two_sites_in_one_pool_are_two_applications() {
        let root = tempfile::tempdir().unwrap();
        let [one, two] = [("one", "localhost:/run/m.sock"), ("two", "127.0.0.1:3399")]
            .map(|(name, host)| site(root.path(), name, host));
        let application = Application {
            site: Some(one.join("wp-config.php")),
            beside: vec![two.clone()],
            ..Application::default()
        };
        let mut pool = Neighbours::of(&application, Arc::default());
        let (tcp, unix) = ("tcp:127.0.0.1:3399", "unix:/run/m.sock");
        assert_eq!(told(&mut pool, Some(&one), tcp), "own");
        assert_eq!(told(&mut pool, Some(&one.join("wp-admin")), unix), "own");
        let line = told(&mut pool, Some(&two.join("wp-admin")), tcp);
        let next = format!("still names 127.0.0.1:3399. Next: samehost switch {}", two.display());
        assert!(line.contains("two/wp-config.php:2 ") && line.ends_with(&next), "{line}");
        let others = told(&mut pool, Some(&two), unix);
        assert!(
            others.ends_with(&format!("for the site in {}", two.display())),
            "it vouches for nothing: {others}"
        );
        // Between two requests it works nowhere: the line explains, or nothing does.
        assert_eq!(told(&mut pool, Some(Path::new("/")), tcp), line);
        assert_eq!(told(&mut pool, None, unix), "unknown");
    }

    #[test]
    fn a_site_inside_another_one_that_has_just_changed_is_not_the_outer_one() {
        let root = tempfile::tempdir().unwrap();
        let outer = site(root.path(), "outer", "localhost:/run/m.sock");
        let inner = site(&outer, "blog", "localhost:/run/m.sock");
        let (tcp, unix) = ("tcp:127.0.0.1:3399", "unix:/run/m.sock");
        for (own, other) in [(&outer, &inner), (&inner, &outer)] {
            for beside in [Vec::new(), vec![other.clone()]] {
                let site = Some(own.join("wp-config.php"));
                let application = Application { site, beside, ..Application::default() };
                let mut pool = Neighbours::of(&application, Arc::default());
                // PHP has its file as it was before.
                let told_of = told(&mut pool, Some(&other.join("wp-admin")), tcp);
                assert!(told_of.ends_with(&format!("for the site in {}", other.display())), "{told_of}");
                assert_eq!(told(&mut pool, Some(&own.join("wp-admin")), tcp), "own");
                assert_eq!(told(&mut pool, Some(own), unix), "own");
            }
        }
    }

    #[test]
    fn a_site_that_no_web_server_names_is_known_by_where_its_script_runs_and_its_line() {
        let root = tempfile::tempdir().unwrap();
        let one = site(root.path(), "one", "localhost:/run/m.sock");
        let two = site(root.path(), "two", "127.0.0.1:3399");
        let application = Application { site: Some(one.join("wp-config.php")), ..Application::default() };
        let mut alone = Neighbours::of(&application, Arc::default());
        let tcp = "tcp:127.0.0.1:3399";
        assert!(told(&mut alone, Some(&two), tcp).contains("two/wp-config.php:2"));
        // Its files are elsewhere, as of Debian's WordPress: no other line names the place.
        assert_eq!(told(&mut alone, Some(Path::new("/usr/share")), tcp), "own");
        assert_eq!(told(&mut alone, None, tcp), "own");
    }
}
