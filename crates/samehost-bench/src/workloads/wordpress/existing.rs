//! An existing site: finds the endpoint of its database on each transport from its own settings and its database.
//! Writes nothing to the site; its password stays inside PHP.
//!
//! The site's code is run as the account with the fewest permissions that can read it. Root would give its rights, and
//! the site's owner those of a person, to anybody who can write one file of the site.

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

const INSPECT: &str = include_str!("php/inspect.php");

#[derive(Clone, Debug, Default)]
struct Answers(BTreeMap<String, String>);

impl Answers {
    /// Parses lines of a name and a value with a tab between them; others are passed over.
    fn parse(text: &str) -> Self {
        let mut answers = Answers::default();
        for line in text.lines() {
            if let Some((name, value)) = line.split_once('\t') {
                answers.0.insert(name.to_owned(), value.to_owned());
            }
        }
        answers
    }

    fn find(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The answer, empty where the script did not get that far.
    fn get(&self, name: &str) -> &str {
        self.find(name).unwrap_or_default()
    }
}

/// The site in a directory. `host` is the name that it is requested by; empty for that of its home address.
///
/// # Errors
/// When there is no WordPress, its settings cannot be parsed, or its database cannot be reached over a
/// transport.
pub(super) fn given(directory: &Path, host: &str, transports: &[Transport]) -> Result<Site, BenchError> {
    let root = directory.canonicalize().map_err(|error| wrong(directory, error.to_string()))?;
    check_name(&root)?;
    if !root.join("wp-load.php").is_file() || !root.join("wp-includes/version.php").is_file() {
        return Err(wrong(&root, "no WordPress is here (no wp-load.php); give the directory that has it"));
    }
    // WordPress itself looks in these two places.
    let mut settings = root.join("wp-config.php");
    if !settings.is_file()
        && let Some(parent) = root.parent()
    {
        settings = parent.join("wp-config.php");
    }
    if !settings.is_file() {
        let reason = "it has no wp-config.php, here or in the directory above: it is not installed";
        return Err(wrong(&root, reason));
    }
    let (reader, answers) = ask(&root, host, &settings)?;
    let databases = databases(&answers, transports)?;
    let (https, home_host, home_path) = home(answers.get("home"));
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
        runs_as: reader.remark,
        databases,
        version: answers.get("version").to_owned(),
        scripts: vec![(PREPEND.0.to_owned(), PREPEND.1.to_owned())],
    })
}

fn wrong(path: &Path, reason: impl Into<String>) -> BenchError {
    BenchError::Path { path: path.to_owned(), reason: reason.into() }
}

/// Runs the script as each user that can read the site, those with the fewest permissions first. Returns the first
/// answers and their user; the next user is tried only where the site seems to be closed to this one.
fn ask(root: &Path, host: &str, settings: &Path) -> Result<(Reader, Answers), BenchError> {
    let mut failure = wrong(
        settings,
        "only root can read the site, and no code of a site is run as root; run this as the user that the site runs as",
    );
    for reader in readers(root, settings)? {
        let php = Php::find(reader.account)?;
        match php.check_syntax(settings).and_then(|()| php.inspect(root, host, settings)) {
            Ok(answers) => return Ok((reader, answers)),
            // A file that it includes may be closed to this user and open to the next.
            Err(error @ BenchError::Path { .. }) => failure = error,
            Err(error) => return Err(error),
        }
    }
    Err(failure)
}

/// PHP on the command line, as an account that reads a site.
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

    /// Refuses settings that PHP cannot parse, with its own words: run at once, they would end it without any.
    fn check_syntax(&self, settings: &Path) -> Result<(), BenchError> {
        let name = settings.display().to_string();
        let output = self.run(&["-d", "display_errors=1", "-d", "log_errors=0", "-l", &name], "", &[])?;
        if output.status.success() {
            return Ok(());
        }
        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8_lossy(&printed);
        let first = printed.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("php -l failed");
        let first = without_quotes(first);
        Err(wrong(settings, format!("PHP cannot read it: {first}; mend it, and try `php -l`")))
    }

    fn inspect(&self, root: &Path, host: &str, settings: &Path) -> Result<Answers, BenchError> {
        let root = root.display().to_string();
        let output = self.run(&[], INSPECT, &[("SAMEHOST_SITE", &root), ("SAMEHOST_HOST", host)])?;
        let answers = Answers::parse(&String::from_utf8_lossy(&output.stdout));
        if answers.find("samehost").is_none() {
            return Err(wrong(settings, "PHP ended without a word when it ran it"));
        }
        match (answers.find("missing"), answers.find("own_error")) {
            (Some("class wpdb"), _) => {
                Err(wrong(settings, "it ends before WordPress is loaded; does it need --host?"))
            }
            (Some(missing), _) => Err(wrong(settings, format!("it does not set all of {missing}"))),
            (None, Some(error)) => Err(BenchError::Refused {
                endpoint: answers.get("db_host").to_owned(),
                what: "the site itself".into(),
                answer: error.to_owned(),
                try_next: "start its database, or mend wp-config.php: the site does not work as it is".into(),
            }),
            (None, None) => Ok(answers),
        }
    }
}

/// Endpoint of the database on each transport that is wanted.
///
/// # Errors
/// When the database does not listen there, or the site's own account could not log in there.
fn databases(
    answers: &Answers,
    transports: &[Transport],
) -> Result<BTreeMap<Transport, Database>, BenchError> {
    let mut databases = BTreeMap::new();
    for transport in transports {
        let name = transport.name();
        let place = answers.get(name);
        let endpoint = match transport {
            Transport::Unix if place.starts_with('/') => Endpoint::Unix(PathBuf::from(place)),
            Transport::Unix => return Err(unreachable(answers, "its Unix socket", "it has none")),
            _ if answers.get("skip_networking") == "1" || place.ends_with(":0") => {
                return Err(unreachable(answers, "TCP", "it does not listen there (skip-networking)"));
            }
            _ => format!("tcp:{place}").parse()?,
        };
        let error = answers.get(&format!("{name}_error"));
        if !error.is_empty() {
            return Err(unreachable(answers, &endpoint.to_string(), error));
        }
        databases.insert(*transport, Database::at(endpoint));
    }
    Ok(databases)
}

fn unreachable(answers: &Answers, place: &str, answer: &str) -> BenchError {
    let user = answers.get("user");
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
    BenchError::refused(place, format!("the site's account `{user}`"), answer, try_next)
}

/// Splits a home address: whether it is https, its host with the port, and its path without the last slash.
fn home(address: &str) -> (bool, String, String) {
    let (scheme, rest) = address.split_once("://").unwrap_or(("http", address));
    let (host, path) = match rest.find('/') {
        Some(at) => (&rest[..at], rest[at..].trim_end_matches('/')),
        None => (rest, ""),
    };
    (scheme.eq_ignore_ascii_case("https"), host.to_owned(), path.to_owned())
}

/// Groups of web servers: sites of root are often readable for them only.
const WEB_GROUPS: &[&str] = &["www-data", "apache", "nginx", "http", "www"];
/// Most files whose permissions are looked at; a site has some ten thousand.
const MAX_FILES: usize = 200_000;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Reader {
    /// `None` for our own user.
    account: Option<Account>,
    /// Remark about the account for the report; empty if nobody else has it.
    remark: String,
}

/// Users who may be able to read a site, those with the fewest permissions first. For root: an account of its own, the
/// same with the group that may read the site's settings, and the site's owner. Never root, and never a web server's
/// user, whose files the site's code would get (docs/decisions/0063). A user who is not root runs it as himself.
///
/// # Errors
/// When no account can be made.
fn readers(root: &Path, settings: &Path) -> Result<Vec<Reader>, BenchError> {
    let Some(made) = Account::made()? else {
        return Ok(vec![Reader { account: None, remark: String::new() }]);
    };
    let owner = fs::metadata(root).ok();
    let is_of_root = owner.as_ref().map(MetadataExt::uid) == Some(0);
    let mut groups = Vec::new();
    if let Ok(metadata) = fs::metadata(settings)
        && metadata.gid() != 0
    {
        groups.push(metadata.gid());
    }
    if is_of_root && let Some(web) = WEB_GROUPS.iter().find_map(|name| accounts::group(name)) {
        groups.push(web);
    }
    groups.dedup();
    let mut readers = vec![Reader { account: Some(made), remark: String::new() }];
    for gid in groups {
        let remark = format!(", read with the group {gid}, for not everybody may read it");
        readers.push(Reader { account: Some(Account { gid, ..made }), remark });
    }
    let site = NeededFiles::search(root, settings);
    readers.retain(|reader| reader.account.is_none_or(|account| site.is_open_to(account)));
    if let Some(owner) = owner
        && owner.uid() != 0
    {
        let name = accounts::user_name(owner.uid()).unwrap_or_else(|| owner.uid().to_string());
        let remark = format!(", run as its owner {name}, for nobody else may read it");
        readers.push(Reader { account: Some(Account::with_uid(owner.uid(), owner.gid())), remark });
    }
    Ok(readers)
}

/// The files of a site that PHP must be able to read: scripts, and all directories on the way to them. Only their modes
/// are looked at.
struct NeededFiles {
    directories: Vec<fs::Metadata>,
    scripts: Vec<fs::Metadata>,
}

impl NeededFiles {
    fn search(root: &Path, settings: &Path) -> Self {
        let above = root.ancestors().skip(1).chain(settings.parent());
        let mut directories: Vec<_> = above.flat_map(Path::metadata).collect();
        let mut scripts: Vec<_> = settings.metadata().into_iter().collect();
        let mut waiting: Vec<PathBuf> = vec![root.to_owned()];
        while let Some(folder) = waiting.pop() {
            directories.extend(folder.metadata());
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                let path = entry.path();
                // The target of a symbolic link is checked, but a linked directory is not searched.
                let is_directory = matches!(entry.file_type(), Ok(kind) if kind.is_dir());
                if is_directory {
                    waiting.push(path);
                } else if path.extension() == Some("php".as_ref()) {
                    scripts.extend(path.metadata());
                }
            }
            if directories.len() + scripts.len() > MAX_FILES {
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
        let answer = Answers::parse(
            "user\tu\ntcp\t127.0.0.1:3306\nunix\t/run/m.sock\n\
             tcp_error\tAccess denied for user 'u'@'127.0.0.1' (using password: YES)\n",
        );
        let error = databases(&answer, &[Transport::Tcp, Transport::Unix]).unwrap_err().to_string();
        assert!(error.contains("`u`@`127.0.0.1`") && error.contains("tcp:127.0.0.1:3306"), "{error}");
        let found = databases(&answer, &[Transport::Unix]).unwrap();
        assert_eq!(found[&Transport::Unix].host, "localhost:/run/m.sock");
        let silent = Answers::parse("unix\t\n");
        assert!(databases(&silent, &[Transport::Unix]).is_err());
    }

    fn advice(root: &Path) -> Vec<String> {
        readers(root, &root.join("wp-config.php")).unwrap().into_iter().map(|reader| reader.remark).collect()
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
        assert!(alone[0].account.unwrap().uid == 1 && alone[0].remark.contains("its owner"), "{alone:?}");
    }
}
