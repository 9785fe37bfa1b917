//! An existing site: finds the endpoint of its database on each transport from its own settings and its
//! database. Writes nothing to the site; its password stays inside PHP.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use samehost_model::redact::without_quotes;
use samehost_model::{Endpoint, Transport};
use samehost_system::accounts;

use super::pages;
use super::site::{Database, PREPEND, Site};
use super::web::check_name;
use crate::error::BenchError;
use crate::private_servers::{Account, PrivateDirectory, installed};

/// PHP script that queries the site.
const INSPECT: &str = include_str!("php/inspect.php");

/// Answers of the script, by name.
type Said = BTreeMap<String, String>;

/// The site in a directory. `host` is the name that it is requested by; empty for that of its home address.
///
/// # Errors
/// When there is no WordPress, its settings cannot be parsed, or its database cannot be reached over a
/// transport.
pub(super) fn given(directory: &Path, host: &str, transports: &[Transport]) -> Result<Site, BenchError> {
    let wrong =
        |path: &Path, reason: &str| Err(BenchError::Path { path: path.to_owned(), reason: reason.into() });
    let root = directory
        .canonicalize()
        .map_err(|error| BenchError::Path { path: directory.to_owned(), reason: error.to_string() })?;
    check_name(&root)?;
    if !root.join("wp-load.php").is_file() || !root.join("wp-includes/version.php").is_file() {
        return wrong(&root, "no WordPress is here (no wp-load.php); give the directory that has it");
    }
    let beside = root.join("wp-config.php");
    let above = root.parent().map(|parent| parent.join("wp-config.php"));
    let Some(settings) = std::iter::once(beside).chain(above).find(|path| path.is_file()) else {
        return wrong(&root, "it has no wp-config.php, here or in the directory above: it is not installed");
    };
    let (reader, said) = ask(&root, host, &settings)?;
    let databases = databases(&said, transports)?;
    let (https, home_host, home_path) = home(said.get("home").map_or("", String::as_str));
    let host = if host.is_empty() { home_host } else { host.to_owned() };
    pages::check_host(&host)?;
    tracing::warn!(
        site = %root.display(),
        "measuring a site in use: samehost writes nothing to it, but WordPress itself may write to its database when it makes a page (transients, statistics of plugins)"
    );
    Ok(Site {
        root: Some(root),
        host: if host.is_empty() { "localhost".into() } else { host },
        base: home_path,
        https,
        account: reader.account,
        runs_as: reader.told,
        databases,
        version: said.get("version").cloned().unwrap_or_default(),
        scripts: vec![(PREPEND.0.to_owned(), PREPEND.1.to_owned())],
    })
}

/// Runs the script as each user that can read the site, those with the fewest permissions first. Returns the
/// first answer and its user.
fn ask(root: &Path, host: &str, settings: &Path) -> Result<(Reader, Said), BenchError> {
    let mut failure = None;
    for reader in readers(root, settings)? {
        let php = Php::find(reader.account)?;
        match php.check_syntax(settings).and_then(|()| php.inspect(root, host, settings)) {
            Ok(said) => return Ok((reader, said)),
            // A file that it includes may be closed to this user and open to the next.
            Err(error @ BenchError::Path { .. }) => failure = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(failure.unwrap_or_else(|| BenchError::Path {
        path: settings.to_owned(),
        reason: "only root can read the site, and no code of a site is run as root; run this as the user that the site runs as".into(),
    }))
}

/// PHP on the command line, as the site's user.
struct Php {
    program: PathBuf,
    account: Option<Account>,
    // Working directory; removed when dropped.
    directory: PrivateDirectory,
}

impl Php {
    fn find(account: Option<Account>) -> Result<Self, BenchError> {
        let program = installed(&["php"], "php-cli")?;
        let directory = PrivateDirectory::new()?;
        if let Some(account) = account {
            account.give(directory.path())?;
        }
        Ok(Php { program, account, directory })
    }

    fn run(
        &self,
        arguments: &[&str],
        script: &str,
        variables: &[(&str, &str)],
    ) -> Result<Output, BenchError> {
        let mut command = Command::new(&self.program);
        if let Some(account) = self.account {
            account.command(&mut command);
        }
        let mut child = command
            .args(arguments)
            .envs(variables.iter().copied())
            .current_dir(self.directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(BenchError::during("running php"))?;
        if let Some(mut stdin) = child.stdin.take() {
            // If PHP ends early, its output contains the reason.
            let _ = stdin.write_all(script.as_bytes());
        }
        child.wait_with_output().map_err(BenchError::during("running php"))
    }

    fn check_syntax(&self, settings: &Path) -> Result<(), BenchError> {
        let name = settings.display().to_string();
        let output = self.run(&["-d", "display_errors=1", "-d", "log_errors=0", "-l", &name], "", &[])?;
        if output.status.success() {
            return Ok(());
        }
        let output_bytes = [output.stdout, output.stderr].concat();
        let output_bytes = String::from_utf8_lossy(&output_bytes);
        let first =
            output_bytes.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("php -l failed");
        Err(BenchError::Path {
            path: settings.to_owned(),
            reason: format!("PHP cannot read it: {}; mend it, and try `php -l`", without_quotes(first)),
        })
    }

    fn inspect(&self, root: &Path, host: &str, settings: &Path) -> Result<Said, BenchError> {
        let root = root.display().to_string();
        let output = self.run(&[], INSPECT, &[("SAMEHOST_SITE", &root), ("SAMEHOST_HOST", host)])?;
        let text = String::from_utf8_lossy(&output.stdout);
        let answer: Said = text
            .lines()
            .filter_map(|line| line.split_once('\t'))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let wrong = |reason: String| BenchError::Path { path: settings.to_owned(), reason };
        if !answer.contains_key("samehost") {
            return Err(wrong("PHP ended without a word when it ran it".into()));
        }
        match (answer.get("missing"), answer.get("own_error")) {
            (Some(missing), _) if missing == "class wpdb" => {
                Err(wrong("it ends before WordPress is loaded; does it need --host?".into()))
            }
            (Some(missing), _) => Err(wrong(format!("it does not set all of {missing}"))),
            (None, Some(error)) => Err(BenchError::Refused {
                endpoint: answer.get("db_host").cloned().unwrap_or_default(),
                what: "the site itself".into(),
                answer: error.clone(),
                try_next: "start its database, or mend wp-config.php: the site does not work as it is".into(),
            }),
            (None, None) => Ok(answer),
        }
    }
}

/// Endpoint of the database on each transport that is wanted.
fn databases(said: &Said, transports: &[Transport]) -> Result<BTreeMap<Transport, Database>, BenchError> {
    let get = |name: &str| said.get(name).map_or("", String::as_str);
    let mut databases = BTreeMap::new();
    for transport in transports {
        let name = transport.name();
        let place = get(name);
        let endpoint = match transport {
            Transport::Unix if place.starts_with('/') => Endpoint::Unix(PathBuf::from(place)),
            Transport::Unix => return Err(unreachable(said, "its Unix socket", "it has none")),
            _ if get("skip_networking") == "1" || place.ends_with(":0") => {
                return Err(unreachable(said, "TCP", "it does not listen there (skip-networking)"));
            }
            _ => format!("tcp:{place}").parse()?,
        };
        let error = get(&format!("{name}_error"));
        if !error.is_empty() {
            return Err(unreachable(said, &endpoint.to_string(), error));
        }
        databases.insert(*transport, Database::at(endpoint));
    }
    Ok(databases)
}

fn unreachable(said: &Said, place: &str, answer: &str) -> BenchError {
    let user = said.get("user").map_or("", String::as_str);
    // A server with authentication plugins answers an unknown account with a method chosen at random.
    let is_denied =
        ["denied", "not allowed", "authentication method"].iter().any(|word| answer.contains(word));
    let try_next = if is_denied {
        format!(
            "accounts of MySQL have a host: `{user}`@`localhost` is for the Unix socket and `{user}`@`127.0.0.1` for TCP where names are not resolved; make the missing one with the same password and rights, or measure one transport with --transports"
        )
    } else {
        "measure one transport with --transports, or make the other one work for the site's own account"
            .into()
    };
    BenchError::Refused {
        endpoint: place.to_owned(),
        what: format!("the site's account `{user}`"),
        answer: answer.to_owned(),
        try_next,
    }
}

/// Splits a home address: whether it is https, host, and path without the last slash.
fn home(address: &str) -> (bool, String, String) {
    let (scheme, rest) = address.split_once("://").unwrap_or(("http", address));
    let (host, path) = match rest.find('/') {
        Some(at) => (&rest[..at], rest[at..].trim_end_matches('/')),
        None => (rest, ""),
    };
    (scheme.eq_ignore_ascii_case("https"), host.to_owned(), path.to_owned())
}

// Chooses the user that runs the PHP code of an existing site: the account with the fewest permissions that
// can read it. The site's owner may be a person with many permissions, and anyone who can write one file of
// the site would get them.

/// Groups of web servers: sites of root are often readable for them only.
const WEB_GROUPS: &[&str] = &["www-data", "apache", "nginx", "http", "www"];
/// Most files examined; a site has some ten thousand.
const MOST_FILES: usize = 200_000;

/// A user who can read a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reader {
    /// `None` for our own user.
    pub(super) account: Option<Account>,
    /// Note about the account for the report.
    pub(super) told: String,
}

/// Users who may be able to read a site, those with the fewest permissions first. For root: an account of its
/// own, the same with the group that may read the site's settings, and the site's owner. Never root, and
/// never a web server's user.
///
/// # Errors
/// When no account can be made.
pub(super) fn readers(root: &Path, settings: &Path) -> Result<Vec<Reader>, BenchError> {
    let Some(made) = Account::made()? else {
        return Ok(vec![Reader { account: None, told: String::new() }]);
    };
    let site = NeededFiles::of(root, settings);
    let owner = fs::metadata(root).ok().map(|metadata| (metadata.uid(), metadata.gid()));
    let group = fs::metadata(settings).ok().map(|metadata| metadata.gid()).filter(|gid| *gid != 0);
    let web = WEB_GROUPS
        .iter()
        .find_map(|name| accounts::group(name))
        .filter(|_| owner.is_some_and(|(uid, _)| uid == 0));
    let mut readers = vec![Reader { account: Some(made), told: String::new() }];
    let mut groups: Vec<u32> = group.into_iter().chain(web).collect();
    groups.dedup();
    readers.extend(groups.into_iter().map(|gid| Reader {
        account: Some(Account { gid, ..made }),
        told: format!(", read with the group {gid}, for not everybody may read it"),
    }));
    readers.retain(|reader| reader.account.is_some_and(|account| site.is_open_to(account)));
    if let Some((uid, gid)) = owner.filter(|(uid, _)| *uid != 0) {
        let name = accounts::user_name(uid).unwrap_or_else(|| uid.to_string());
        let run_as = format!(", run as its owner {name}, for nobody else may read it");
        readers.push(Reader { account: Some(Account::of(uid, gid)), told: run_as });
    }
    Ok(readers)
}

/// What has to be readable: the directories above the site, its own directories, and its scripts.
struct NeededFiles {
    directories: Vec<fs::Metadata>,
    scripts: Vec<fs::Metadata>,
}

impl NeededFiles {
    fn of(root: &Path, settings: &Path) -> Self {
        let above = root.ancestors().skip(1).chain(settings.parent());
        let mut directories: Vec<_> = above.filter_map(|path| path.metadata().ok()).collect();
        let mut scripts: Vec<_> = settings.metadata().into_iter().collect();
        let mut waiting: Vec<PathBuf> = vec![root.to_owned()];
        while let Some(folder) = waiting.pop() {
            directories.extend(folder.metadata());
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                let path = entry.path();
                match entry.file_type() {
                    // The target of a symbolic link is checked, but a linked directory is not searched.
                    Ok(kind) if kind.is_dir() => waiting.push(path),
                    _ if path.extension().is_some_and(|name| name == "php") => {
                        scripts.extend(path.metadata());
                    }
                    _ => {}
                }
            }
            if directories.len() + scripts.len() > MOST_FILES {
                break;
            }
        }
        NeededFiles { directories, scripts }
    }

    fn is_open_to(&self, account: Account) -> bool {
        self.directories.iter().all(|metadata| account.may(metadata, 1))
            && self.scripts.iter().all(|metadata| account.may(metadata, 4))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    #[test]
    fn home_addresses() {
        assert_eq!(home("https://blog.example/"), (true, "blog.example".into(), String::new()));
        assert_eq!(home("http://h:8080/a/b/"), (false, "h:8080".into(), "/a/b".into()));
        assert_eq!(home(""), (false, String::new(), String::new()));
    }

    #[test]
    fn an_account_that_is_for_one_host_only_is_named() {
        let answer: Said = [
            ("user", "u"),
            ("tcp", "127.0.0.1:3306"),
            ("unix", "/run/m.sock"),
            ("tcp_error", "Access denied for user 'u'@'127.0.0.1' (using password: YES)"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        let error = databases(&answer, &[Transport::Tcp, Transport::Unix]).unwrap_err().to_string();
        assert!(error.contains("`u`@`127.0.0.1`") && error.contains("tcp:127.0.0.1:3306"), "{error}");
        let found = databases(&answer, &[Transport::Unix]).unwrap();
        assert_eq!(found[&Transport::Unix].host, "localhost:/run/m.sock");
        let silent = Said::from([("unix".to_owned(), String::new())]);
        assert!(databases(&silent, &[Transport::Unix]).is_err());
    }

    fn advice(root: &Path) -> Vec<String> {
        readers(root, &root.join("wp-config.php")).unwrap().into_iter().map(|reader| reader.told).collect()
    }

    #[test]
    fn who_may_least_comes_first_and_root_never_as_root() {
        fn mode(path: &Path, mode: u32) {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        assert!(rustix::process::geteuid().is_root(), "needs root: run the tests as root");
        let root = tempfile::tempdir().unwrap();
        mode(root.path(), 0o755);
        let settings = root.path().join("wp-config.php");
        fs::write(&settings, "").unwrap();
        fs::write(root.path().join("index.php"), "").unwrap();
        mode(&settings, 0o644);
        mode(&root.path().join("index.php"), 0o644);
        assert_eq!(advice(root.path())[0], "");

        mode(&settings, 0o640);
        chown(&settings, None, Some(3)).unwrap();
        let with_group = readers(root.path(), &settings).unwrap();
        let first = with_group[0].account.unwrap();
        assert!(first.gid == 3 && first.uid > 60_000, "{with_group:?}");
        assert!(with_group.iter().all(|reader| reader.account.unwrap().uid > 60_000), "{with_group:?}");

        chown(&settings, Some(0), Some(0)).unwrap();
        mode(&settings, 0o600);
        assert!(advice(root.path()).is_empty(), "root alone may read it");
        chown(root.path(), Some(1), Some(1)).unwrap();
        chown(&settings, Some(1), Some(1)).unwrap();
        let alone = readers(root.path(), &settings).unwrap();
        assert_eq!(alone.len(), 1);
        assert!(alone[0].account.unwrap().uid == 1 && alone[0].told.contains("its owner"), "{alone:?}");
    }
}
