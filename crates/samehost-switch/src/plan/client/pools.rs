//! Pools of PHP-FPM: which of them serves a site, and whose workers they will start. Only reads.
//!
//! A pool serves a site where a web server passes requests for files below the site's directory to it. Several sites have
//! workers of one account, and each worker could read the other's files; only the web server's configuration tells whose
//! connections are whose. Where no web server says so, a pool's own lines may: it works in the directory, or PHP may open
//! files there, or it runs as the site's owner, and it is the only such one. Where Apache has PHP loaded, no pool serves
//! the sites of its own.
//!
//! A pool without a worker at this moment (`pm = ondemand`) runs PHP as the user of its configuration. The master itself
//! belongs to root and runs no PHP.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use samehost_edit::formats::apache::directives::{Directive, directives};
use samehost_edit::formats::nginx::passing::{self as nginx, Given, Passing};
use samehost_edit::formats::php_fpm::{RunsAs, runs_as};
use samehost_edit::{Role, once_in_a_run};
use samehost_model::scan::{Process, Scan, Service};
use samehost_model::{Endpoint, Protocol};
use samehost_scan::services_at;
use samehost_services::Kind;
use samehost_system::{Account, User, accounts, identity, lookup, peer, proc};

use super::{Variables, environment};
use crate::configuration::ConfigFile;
use crate::configuration::server_files;
use crate::disk::{Disk, Reads};
use crate::place::{real, same_port};

pub(crate) fn fpm_config(scan: &Scan, master: u32) -> Option<ConfigFile> {
    let mut services = scan.services.iter();
    let service =
        services.find(|service| service.kind == Some(Kind::PhpFpm) && service.pid == Some(master))?;
    ConfigFile::first_of(&server_files::of(scan, service))
}

/// A pool that serves a site.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pool {
    pub(crate) master: u32,
    pub(crate) name: String,
}

/// Directories above a file's own that a site is looked for in: `sites/default/settings.php`, `app/etc/env.php`.
const MAX_ABOVE: usize = 3;

/// The pools that serve an application by one of its files; none where neither a web server of this machine nor the pools
/// say so.
pub(crate) fn pools_around(scan: &Scan, file: &Path) -> Vec<Pool> {
    let sites = passing(scan);
    let mut found = first_around(file, |directory, is_its_own| {
        let its = sites.iter().filter(|site| is_site_at(&site.roots, directory, is_its_own));
        its.flat_map(|site| &site.to).flat_map(|endpoint| pools_at(scan, endpoint).to_vec()).collect()
    });
    if found.is_empty() {
        found = pools_of_their_own(scan, file);
    }
    found.sort();
    found.dedup();
    found
}

/// Whether Apache serves an application by itself, with PHP loaded, by one of its files.
pub(crate) fn is_in_apache(scan: &Scan, file: &Path) -> bool {
    let (mut roots, passing) = (sites_of_apache(scan), passing(scan));
    roots.retain(|root| passing.iter().all(|site| !site.roots.contains(root)));
    is_around(file, &roots)
}

/// The variables that web servers give the requests of an application, by one of its files, before it reads that: of the server
/// blocks that serve it, or whose directory is not known; of its virtual hosts, of all, and of its `.htaccess`.
pub(crate) fn given_to(scan: &Scan, file: &Path) -> Vec<Given> {
    let mut found = Vec::new();
    for site in passing(scan).iter().filter(|site| site.roots.is_empty() || is_around(file, &site.roots)) {
        found.extend(site.given.iter().cloned());
    }
    let disk = Disk::of(file, Reads::Application, None);
    for service in scan.services.iter().filter(|service| service.kind == Some(Kind::Apache)) {
        let mut all = directives_of(scan, service).to_vec();
        let beside = beside(file);
        all.extend(beside.iter().flat_map(|path| directives(path, &disk, started_with(scan, service))));
        found.extend(given_by(&all, file, &|| service.pid.map(environment).unwrap_or_default()));
    }
    found.sort();
    found.dedup();
    found
}

/// The directives of an Apache that are in force.
fn directives_of(scan: &Scan, service: &Service) -> Rc<Vec<Directive>> {
    once_in_a_run(&format!("directives of Apache {:?}", service.pid), || {
        let config = ConfigFile::first_of(&server_files::of(scan, service));
        let all = |config: ConfigFile| directives(&config.file, &config.files(), started_with(scan, service));
        config.map(all).unwrap_or_default()
    })
}

/// The names that an Apache was started with: `-D NAME`, `-DNAME`.
fn started_with(scan: &Scan, service: &Service) -> BTreeSet<String> {
    let words = scan.main_process(service).map_or(&[][..], |process| &process.command_line);
    let named = |(at, word): (usize, &String)| match word.strip_prefix("-D")? {
        "" => words.get(at + 1).cloned(),
        name => Some(name.to_owned()),
    };
    words.iter().enumerate().filter_map(named).collect()
}

/// What Apache's directives give to an application: of its virtual hosts and of none, and in no other's directory. What mod_env sets
/// or takes back in a whole host is none of a wider place any more; in a part of it both count.
fn given_by(all: &[Directive], file: &Path, environment: &dyn Fn() -> Variables) -> Vec<Given> {
    let project = server_files::project(file);
    let mut hosts: Vec<Option<[usize; 3]>> = all.iter().map(host_of).filter(Option::is_some).collect();
    hosts.dedup();
    hosts.retain(|host| is_around(file, &roots_of(all, *host)));
    let mut found = Vec::new();
    for host in if hosts.is_empty() { vec![None] } else { hosts } {
        let mut holding: Vec<&Directive> = all.iter().filter(|one| holds_for(one, host, &project)).collect();
        holding.sort_by_key(|one| (one.file.ends_with(".htaccess"), host_of(one).is_some()));
        let mut in_force: Vec<(bool, Given)> = Vec::new();
        for one in holding {
            let is_whole = one.around.iter().all(|(name, ..)| WHOLE.contains(&name.as_str()));
            let is_its = is_whole && ["setenv", "passenv", "unsetenv"].contains(&one.name.as_str());
            let names = &one.words[..one.words.len().min(if one.name == "setenv" { 1 } else { usize::MAX })];
            in_force.retain(|(is_other, other)| !(is_its && *is_other && names.contains(&other.name)));
            for (name, value) in variables_of_apache(one, environment) {
                in_force.push((is_its, Given { file: one.file.clone(), line: one.line, name, value }));
            }
        }
        found.extend(in_force.into_iter().map(|(_, given)| given));
    }
    found
}

/// Sections of Apache that are a whole host, or none.
const WHOLE: &[&str] = &["virtualhost", "ifdefine"];

/// Whether a directive of Apache holds for a project of a virtual host: it is in that or in none, and in no other's directory.
fn holds_for(one: &Directive, host: Option<[usize; 3]>, project: &Path) -> bool {
    one.around.iter().all(|(name, of, id)| match name.as_str() {
        "virtualhost" => Some(*id) == host,
        "directory" => {
            let path = real(Path::new(of));
            project.starts_with(&path) || path.starts_with(project)
        }
        _ => true,
    })
}

/// The variables that a directive of Apache gives to requests, given the environment that it was started with.
fn variables_of_apache(one: &Directive, environment: &dyn Fn() -> Variables) -> Vec<(String, String)> {
    let words: Vec<&str> = one.words.iter().map(String::as_str).collect();
    let pair = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    // `SetEnvIf Host .* A=1 B=2`: a pattern may have a sign as well, and no name of a variable before it.
    let is_name =
        |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    match (&*one.name, &words[..]) {
        ("setenv", [name, value, ..]) | ("proxyfcgisetenvif", [_, .., name, value]) => {
            vec![pair((name, value))]
        }
        ("setenvif" | "setenvifnocase" | "setenvifexpr" | "browsermatch" | "browsermatchnocase", all) => {
            let given = all.iter().filter_map(|word| word.split_once('='));
            given.filter(|(name, _)| is_name(name)).map(pair).collect()
        }
        ("rewriterule", [.., flags]) => {
            let flags = flags.trim_matches(['[', ']']).split(',');
            let set = flags.filter_map(|flag| flag.strip_prefix("E=").or_else(|| flag.strip_prefix("env=")));
            set.filter_map(|one| one.split_once(':')).map(pair).collect()
        }
        ("passenv", names) => {
            let own = environment();
            names.iter().filter_map(|name| Some(pair((name, own.get(*name)?)))).collect()
        }
        _ => Vec::new(),
    }
}

/// The `.htaccess` of an application, in its directory and in the part of it that is served.
fn beside(file: &Path) -> Vec<PathBuf> {
    let project = server_files::project(file);
    let served = SERVED.iter().map(|name| project.join(name));
    let places = [project.clone()].into_iter().chain(served).map(|folder| folder.join(".htaccess"));
    places.filter(|path| path.is_file()).collect()
}

fn is_around(file: &Path, roots: &[PathBuf]) -> bool {
    let found = first_around(file, |directory, is_its_own| {
        is_site_at(roots, directory, is_its_own).then_some(()).into_iter().collect()
    });
    !found.is_empty()
}

/// What is found of the directories around a file, the nearest one of which something is.
fn first_around<T>(file: &Path, find: impl Fn(&Path, bool) -> Vec<T>) -> Vec<T> {
    let (own, project) = (real(server_files::folder(file)), server_files::project(file));
    let around = own.ancestors().take(MAX_ABOVE + 1);
    let mut all = around.map(|directory| find(directory, directory == own || directory == project));
    all.find(|found| !found.is_empty()).unwrap_or_default()
}

/// The pool that is for a file's directory by its own lines, where one alone is.
fn pools_of_their_own(scan: &Scan, file: &Path) -> Vec<Pool> {
    let folder = real(server_files::folder(file));
    let owner = file.metadata().map_or(0, |found| found.uid());
    let (mut leading, mut owners) = (Vec::new(), Vec::new());
    for (pool, lines) in all_pools(scan) {
        let mut there = lines.works_in.iter().map(|path| real(path));
        if there.any(|path| folder.starts_with(&path) || path.starts_with(&folder)) {
            leading.push(pool);
        } else if owner != 0 && account(&lines).is_some_and(|account| account.uid == owner) {
            owners.push(pool);
        }
    }
    let found = if leading.is_empty() { owners } else { leading };
    if found.len() == 1 { found } else { Vec::new() }
}

/// Every pool of root's masters that run here. Anyone may start one with lines that lead to a site of another's.
pub(crate) fn all_pools(scan: &Scan) -> Vec<(Pool, RunsAs)> {
    let mut all = Vec::new();
    let masters = scan.services.iter().filter(|service| service.kind == Some(Kind::PhpFpm));
    let masters: BTreeSet<u32> = masters.filter_map(|service| service.pid).collect();
    for master in masters.into_iter().filter(|pid| is_roots(scan, *pid)) {
        let Some(config) = fpm_config(scan, master) else { continue };
        for pool in runs_as(&config.file, &config.files()) {
            all.push((Pool { master, name: pool.pool.clone() }, pool));
        }
    }
    all
}

/// What applications call the part of them that is served.
const SERVED: &[&str] = &["docroot", "htdocs", "httpdocs", "pub", "public", "public_html", "web", "webroot"];

/// Whether a site with these roots is in a directory: what is below it counts where the directory is the application's own, and what
/// is called so (`public/`) where it is above it. Everything below a directory above did count: of two sites in `/var/www`, one had
/// the other's pool where Apache serves it.
fn is_site_at(roots: &[PathBuf], directory: &Path, is_its_own: bool) -> bool {
    roots.iter().any(|root| match root.strip_prefix(directory) {
        Ok(below) => {
            is_its_own || below == Path::new("") || SERVED.iter().any(|name| below == Path::new(name))
        }
        Err(_) => false,
    })
}

impl Pool {
    /// Its workers now, by the title that PHP-FPM gives them.
    pub(crate) fn workers(&self) -> Vec<u32> {
        let title = format!("php-fpm: pool {}", self.name);
        let mut workers = peer::children(self.master);
        workers.retain(|pid| {
            let command_line = proc::command_line(*pid);
            String::from_utf8_lossy(&command_line).trim_end_matches(['\0', ' ']) == title
        });
        workers
    }
}

pub(crate) fn is_roots(scan: &Scan, pid: u32) -> bool {
    scan.process(pid).is_some_and(|process| process.uid == 0)
}

/// The directories of sites that web servers of this machine pass to these pools.
pub(crate) fn sites_of(scan: &Scan, pools: &[Pool]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for Passing { roots, to, .. } in passing(scan).iter() {
        let is_new = roots.iter().any(|root| !found.contains(root));
        let to_them = |endpoint| pools_at(scan, endpoint).iter().any(|pool| pools.contains(pool));
        if is_new && to.iter().any(to_them) {
            found.extend(roots.iter().cloned());
        }
    }
    found.sort();
    found.dedup();
    found
}

/// The directories of sites that Apache serves, whose workers run PHP of any of them.
pub(crate) fn sites_of_apache(scan: &Scan) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for service in scan.services.iter().filter(|service| service.kind == Some(Kind::Apache)) {
        found.extend(directives_of(scan, service).iter().filter_map(root_of));
    }
    found.sort();
    found.dedup();
    found
}

/// The directory that a directive serves.
fn root_of(one: &Directive) -> Option<PathBuf> {
    Some(real(Path::new(one.words.first().filter(|_| one.name == "documentroot")?)))
}

fn host_of(one: &Directive) -> Option<[usize; 3]> {
    one.around.iter().find_map(|(name, _, id)| (name == "virtualhost").then_some(*id))
}

/// The directories that a virtual host serves, or those that are outside of all.
fn roots_of(all: &[Directive], host: Option<[usize; 3]>) -> Vec<PathBuf> {
    all.iter().filter(|one| host_of(one) == host).filter_map(root_of).collect()
}

/// The pools that listen at an endpoint.
fn pools_at(scan: &Scan, endpoint: &Endpoint) -> Rc<Vec<Pool>> {
    once_in_a_run(&format!("pools at {endpoint}"), || pools_there(scan, endpoint))
}

fn pools_there(scan: &Scan, endpoint: &Endpoint) -> Vec<Pool> {
    let mut found = Vec::new();
    for at in services_at(scan, endpoint) {
        let Some(service) = scan.services.get(at) else { continue };
        let (Some(Kind::PhpFpm), Some(master)) = (service.kind, service.pid) else { continue };
        let Some(config) = fpm_config(scan, master) else { continue };
        let Ok(reading) = config.editor.read(&config.file, &config.files()) else { continue };
        for setting in reading.settings.iter().filter(|setting| setting.role == Role::Listens) {
            let Some(name) = setting.name.strip_prefix("listen of pool ") else { continue };
            if same_port(&setting.endpoint, endpoint) {
                found.push(Pool { master, name: name.to_owned() });
            }
        }
    }
    found
}

fn passing(scan: &Scan) -> Rc<Vec<Passing>> {
    once_in_a_run("sites that are passed on", || blocks_and_hosts(scan))
}

/// The server blocks of nginx, and the virtual hosts of Apache, that pass requests to pools.
fn blocks_and_hosts(scan: &Scan) -> Vec<Passing> {
    let mut found = Vec::new();
    let nginx = scan.services.iter().filter(|service| service.kind == Some(Kind::Nginx));
    for service in nginx {
        let Some(config) = ConfigFile::first_of(&server_files::of(scan, service)) else { continue };
        for mut block in nginx::passing(&config.file, &config.files()) {
            for root in &mut block.roots {
                *root = real(root);
            }
            found.push(block);
        }
    }
    let apache = scan.services.iter().filter(|service| service.kind == Some(Kind::Apache));
    for service in apache {
        let config = ConfigFile::first_of(&server_files::of(scan, service));
        let Some(Ok(read)) = config.map(|config| config.read()) else { continue };
        let all = directives_of(scan, service);
        for setting in read.reading.settings {
            if setting.role != Role::Connects || setting.protocol != Protocol::FastCgi {
                continue;
            }
            for one in all.iter().filter(|one| one.line == setting.line && one.file == setting.file) {
                let roots = match host_of(one) {
                    Some(host) => roots_of(&all, Some(host)),
                    None => all.iter().filter_map(root_of).collect(),
                };
                found.push(Passing { roots, to: vec![setting.endpoint.clone()], given: Vec::new() });
            }
        }
    }
    found
}

pub(crate) struct Worker {
    pub(crate) pool: String,
    pub(crate) account: Account,
    /// For people: `www-data, pool www, which has no process now`.
    pub(crate) name: String,
}

/// Workers that a master will start for pools without any; with notes on pools that remain unknown.
pub(crate) fn workers(scan: &Scan, master: &Process, notes: &mut Vec<String>) -> Vec<Worker> {
    let Some(config) = fpm_config(scan, master.pid) else { return Vec::new() };
    let mut running: Vec<(u32, u32)> = Vec::new();
    for process in &scan.processes {
        if process.parent == master.pid
            && let Some(worker) = identity::Identity::of(process.pid)
        {
            running.push((worker.uid, worker.gid));
        }
    }
    let mut found = Vec::new();
    for pool in runs_as(&config.file, &config.files()) {
        let Some(account) = account(&pool) else { continue };
        if running.contains(&(account.uid, account.gid)) {
            continue;
        }
        let RunsAs { pool, user, has_own_root, .. } = pool;
        if has_own_root {
            let note = format!(
                "pool {pool} of PHP-FPM {} has a root directory of its own and no process now, so that nobody can look as it; send it a request, and switch again",
                master.pid
            );
            notes.push(note);
            continue;
        }
        let name = format!("{user}, pool {pool}, which has no process now");
        found.push(Worker { pool, account, name });
    }
    found
}

/// The account of a pool's workers, as PHP-FPM creates it: a user by name or number, with that user's other groups.
fn account(pool: &RunsAs) -> Option<Account> {
    let mut account = match pool.user.parse() {
        Ok(uid) => User::of(uid).account,
        Err(_) => lookup::account(&pool.user)?,
    };
    if let Some(group) = &pool.group {
        let gid = match group.parse() {
            Ok(gid) => gid,
            Err(_) => accounts::group(group)?,
        };
        let own = std::mem::replace(&mut account.gid, gid);
        // The list contains the user's own group, which the pool's group replaces.
        if let Some(at) = account.groups.iter().rposition(|one| *one == own) {
            account.groups.remove(at);
        }
    }
    Some(account)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_at_its_root_or_where_that_part_of_it_is_served() {
        let is_at =
            |directory: &str, is_its_own| is_site_at(&["/srv/a".into()], Path::new(directory), is_its_own);
        assert!(is_at("/srv/a", true) && is_at("/srv/a", false) && is_at("/srv", true));
        assert!(!is_at("/srv/ab", true) && !is_at("/srv/a/b", true));
        // What is in a directory of everybody is no part of each other.
        assert!(!is_at("/srv", false));
        for (root, is_there) in [("/srv/shop/public", true), ("/srv/shop/other", false)] {
            assert_eq!(is_site_at(&[root.into()], Path::new("/srv/shop"), false), is_there, "{root}");
        }
    }

    fn directives_in(text: &str) -> Vec<Directive> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("apache2.conf");
        std::fs::write(&file, text).unwrap();
        directives(&file, &Disk::default(), BTreeSet::new())
    }

    #[test]
    fn a_line_of_apache_is_of_the_host_around_it() {
        let text = "DocumentRoot /all\n<VirtualHost *:80>\nDocumentRoot \"/srv/a\"\nSetHandler x\n</VirtualHost>\nSetHandler y\n<VirtualHost *:81>\nSetHandler z\nDocumentRoot /srv/b\n</VirtualHost>\n";
        let all = directives_in(text);
        let roots = |line| {
            let one = all.iter().find(|one| one.line == line).unwrap();
            host_of(one).map(|host| roots_of(&all, Some(host)))
        };
        assert_eq!(roots(4), Some(vec!["/srv/a".into()]));
        assert_eq!((roots(8), roots(1), roots(6)), (Some(vec!["/srv/b".into()]), None, None));
    }

    #[test]
    fn each_way_in_which_apache_gives_a_variable_is_seen() {
        let own = || Variables::from([("REDIS_URL".to_owned(), "r".to_owned())]);
        let given = |line: &str| {
            let all = directives_in(line);
            all.iter().flat_map(|one| variables_of_apache(one, &own)).collect::<Vec<_>>()
        };
        for line in [
            "  SetEnv REDIS_URL r",
            "setenv \"REDIS_URL\" 'r'",
            "SetEnvIf Host .* REDIS_URL=r",
            "SetEnvIfNoCase Request_URI ^/a=b$ X=1 REDIS_URL=r",
            "SetEnvIfExpr \"true\" REDIS_URL=r",
            "ProxyFCGISetEnvIf \"true\" REDIS_URL r",
            "RewriteRule .* - [L,E=REDIS_URL:r]",
            "PassEnv HOME REDIS_URL",
        ] {
            let given = given(line);
            assert!(given.contains(&("REDIS_URL".to_owned(), "r".to_owned())), "{line}: {given:?}");
        }
        for line in
            ["# SetEnv REDIS_URL r", "UnsetEnv REDIS_URL", "RewriteRule ^(.*)$ /x [L]", "PassEnv OTHER"]
        {
            assert_eq!(given(line), [], "{line}");
        }
    }

    #[test]
    fn only_what_is_in_force_for_the_own_host_is_given() {
        let folder = tempfile::tempdir().unwrap();
        let (own, other) = (folder.path().join("a"), folder.path().join("b"));
        std::fs::create_dir(&own).unwrap();
        std::fs::create_dir(&other).unwrap();
        let (a, b) = (own.display(), other.display());
        let host = |more: &str| format!("<VirtualHost *:1>\nDocumentRoot {a}\n{more}\n</VirtualHost>\n");
        let elsewhere = |more: &str| format!("<VirtualHost *:2>\nDocumentRoot {b}\n{more}\n</VirtualHost>\n");
        for (text, expected) in [
            (format!("SetEnv A 1\n{}", host("")), "1"),
            (format!("SetEnv A 1\n{}", host("UnsetEnv A")), ""),
            (format!("{}SetEnv A 1\n", host("UnsetEnv A")), ""),
            (host("SetEnv A 1\nUnsetEnv A"), ""),
            (host("UnsetEnv A\nSetEnv A 1"), "1"),
            (format!("SetEnv A 1\n{}", host("SetEnv A 2")), "2"),
            (format!("SetEnv A 1\n{}{}", host(""), elsewhere("UnsetEnv A")), "1"),
            (format!("{}{}", host(""), elsewhere("SetEnv A 1")), ""),
            (format!("<Directory {b}>\nSetEnv A 1\n</Directory>\n{}", host("")), ""),
            (host(&format!("<Directory \"{a}\">\nSetEnv A 1\n</Directory>")), "1"),
            // Where it is taken back for a part of the requests, the others have it.
            (host(&format!("SetEnv A 1\n<Directory {a}>\nUnsetEnv A\n</Directory>")), "1"),
            (host(&format!("<Directory {a}>\nSetEnv A 1\n</Directory>\nUnsetEnv A")), "1"),
            (host("SetEnv A 1\n<Location /x>\nUnsetEnv A\n</Location>"), "1"),
            (host(&format!("SetEnv A 1\n<Directory {a}/x>\nUnsetEnv A\n</Directory>")), "1"),
            (host("<Location /x>\nSetEnv A 1\n</Location>"), "1"),
            // What is not of mod_env is not taken back by it.
            (host("SetEnvIf Host .* A=1\nUnsetEnv A"), "1"),
        ] {
            let all = directives_in(&text);
            let given = given_by(&all, &own.join(".env"), &Variables::new);
            let values: Vec<&str> = given.iter().map(|given| given.value.as_str()).collect();
            assert_eq!(values.join(" "), expected, "{text}");
        }
    }

    #[test]
    fn a_pools_account_is_by_name_or_number() {
        fn account_of(user: &str, group: Option<&str>) -> Option<Account> {
            let group = group.map(str::to_owned);
            let (pool, works_in) = ("www".into(), Vec::new());
            account(&RunsAs { pool, user: user.into(), group, has_own_root: false, works_in })
        }
        let nobody = lookup::account("nobody").unwrap();
        assert_eq!(account_of("nobody", None), Some(nobody.clone()));
        assert_eq!(account_of("nobody", Some("root")).unwrap().gid, 0);
        let numbers = account_of("54321", Some("54322")).unwrap();
        assert_eq!((numbers.uid, numbers.gid, numbers.groups), (54_321, 54_322, Vec::new()));
        assert_eq!(
            (account_of("no-such-user-here", None), account_of("nobody", Some("no-such-group"))),
            (None, None)
        );
    }
}
