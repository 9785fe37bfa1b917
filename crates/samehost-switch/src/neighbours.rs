//! Whose connection it is that a process of PHP-FPM holds, where its pool serves several sites: two sites in one pool are two
//! applications. While PHP runs a script it works in the script's directory (php_execute_script changes into it), so
//! `/proc/PID/cwd` tells the site as long as the connection is there. Otherwise a site that the web server passes to the same pool
//! explains a connection only by its own line; what neither explains is not guessed (a connection of the neighbour's was told as one
//! of a site that was switched well, and confirmed one that was not).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use samehost_edit::{Role, Setting};
use samehost_model::Endpoint;

use crate::configuration::at_path;
use crate::findings::place;
use crate::place::real;
use crate::plan::client::Application;

/// How many directories above a script's one are searched for a configuration: `public/`, `wp-admin/`.
const ABOVE: usize = 3;

/// A line of another site's configuration that names a place.
#[derive(Clone, Debug)]
struct OtherLine {
    /// The directory with that configuration.
    directory: PathBuf,
    /// File and line.
    place: String,
    endpoint: String,
    is_tcp: bool,
}

impl OtherLine {
    fn of(directory: &Path, setting: &Setting) -> Self {
        OtherLine {
            directory: directory.to_owned(),
            place: place(&setting.file, setting.line),
            endpoint: setting.endpoint.to_string().trim_start_matches("tcp:").to_owned(),
            is_tcp: !matches!(setting.endpoint, Endpoint::Unix(_)),
        }
    }

    /// For people, with what to do where it still goes over TCP.
    fn in_words(&self) -> String {
        let OtherLine { directory, place, endpoint, is_tcp } = self;
        if *is_tcp {
            let next = format!("Next: samehost switch {}", directory.display());
            return format!(
                "the same processes also connect over TCP: {place} still names {endpoint}. {next}"
            );
        }
        format!("the same processes also connect over a Unix socket: {place} names {endpoint}")
    }
}

/// Whose a connection is.
pub(crate) enum Whose {
    Own,
    /// Another site's: what is known of it, in words.
    Others(String),
    /// The processes serve others too, and nothing tells.
    Unknown,
}

/// The site of an application, and what is known of those that share its processes.
pub(crate) struct Neighbours {
    /// The configuration; none where processes run one application alone.
    own: Option<PathBuf>,
    /// Directories of other sites that a web server passes to the same pools.
    beside: Vec<PathBuf>,
    /// What was found in directories, by the place that was looked for.
    known: BTreeMap<(PathBuf, String), Found>,
}

/// What the configurations in a directory, or above it, say of a place.
#[derive(Clone)]
enum Found {
    /// The nearest one is the application's.
    Own,
    /// Another one names the place.
    Line(OtherLine),
    Nothing,
}

impl Neighbours {
    pub(crate) fn of(application: &Application) -> Self {
        let mut all =
            Neighbours { own: application.site.clone(), beside: Vec::new(), known: BTreeMap::new() };
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
            return Whose::Own;
        };
        if let Some(directory) = works_in {
            match self.found(directory, to) {
                Found::Own => return Whose::Own,
                Found::Line(line) => return Whose::Others(line.in_words()),
                Found::Nothing => {}
            }
            if let Some(site) = self.beside.iter().find(|site| directory.starts_with(site)) {
                let site = site.display();
                return Whose::Others(format!(
                    "the same processes also connect to {to}, for the site in {site}"
                ));
            }
            if directory.starts_with(&folder) {
                return Whose::Own;
            }
        }
        if self.beside.is_empty() {
            return Whose::Own;
        }
        for site in self.beside.clone() {
            if let Found::Line(line) = self.found(&site, to) {
                return Whose::Others(line.in_words());
            }
        }
        Whose::Unknown
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
        for config in configs {
            let Ok(read) = config.read() else { continue };
            for setting in read.reading.settings {
                if setting.role == Role::Connects && is_there(&setting.endpoint, to) {
                    return Found::Line(OtherLine::of(above, &setting));
                }
            }
        }
    }
    Found::Nothing
}

/// Whether two endpoints are one place on this machine.
fn is_there(one: &Endpoint, other: &Endpoint) -> bool {
    match (one, other) {
        (Endpoint::Unix(one), Endpoint::Unix(other)) => real(one) == real(other),
        (
            Endpoint::Tcp { port, .. } | Endpoint::TcpTls { port, .. },
            Endpoint::Tcp { port: other, .. } | Endpoint::TcpTls { port: other, .. },
        ) => port == other,
        _ => false,
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
            Whose::Unknown => "unknown".into(),
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
        let mut pool = Neighbours::of(&application);
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
    fn a_site_that_no_web_server_names_is_known_by_where_its_script_runs_and_its_line() {
        let root = tempfile::tempdir().unwrap();
        let one = site(root.path(), "one", "localhost:/run/m.sock");
        let two = site(root.path(), "two", "127.0.0.1:3399");
        let application = Application { site: Some(one.join("wp-config.php")), ..Application::default() };
        let mut alone = Neighbours::of(&application);
        let tcp = "tcp:127.0.0.1:3399";
        assert!(told(&mut alone, Some(&two), tcp).contains("two/wp-config.php:2"));
        // Its files are elsewhere, as of Debian's WordPress: no other line names the place.
        assert_eq!(told(&mut alone, Some(Path::new("/usr/share")), tcp), "own");
        assert_eq!(told(&mut alone, None, tcp), "own");
    }
}
