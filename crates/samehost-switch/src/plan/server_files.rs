//! Where a running server has its configuration: as its command line says, else where distributions put it. Pure but for
//! a look at /proc.

use std::path::{Path, PathBuf};

use samehost_model::scan::{Process, Scan, Service};

use super::subject::Subject;

/// Usual places, the first that is there counts.
const USUAL: &[(&str, &[&str])] = &[
    ("mariadb", &["/etc/mysql/my.cnf", "/etc/my.cnf"]),
    ("mysql", &["/etc/mysql/my.cnf", "/etc/my.cnf"]),
    ("postgres", &["/var/lib/pgsql/data/postgresql.conf"]),
    ("redis", &["/etc/redis/redis.conf", "/etc/redis.conf"]),
    ("valkey", &["/etc/valkey/valkey.conf"]),
    ("memcached", &["/etc/memcached.conf", "/etc/sysconfig/memcached"]),
    ("nginx", &["/etc/nginx/nginx.conf", "/usr/local/nginx/conf/nginx.conf"]),
    ("php-fpm", &["/etc/php-fpm.conf"]),
];

/// Files in which a service may have its configuration, the surest first.
pub(crate) fn of(scan: &Scan, service: &Service) -> Vec<PathBuf> {
    let kind = service.kind.unwrap_or_default();
    let process = service.pid.and_then(|pid| scan.process(pid));
    let mut files: Vec<PathBuf> = process.and_then(|process| told(kind, process)).into_iter().collect();
    if let Some((_, usual)) = USUAL.iter().find(|(name, _)| *name == kind) {
        files.extend(usual.iter().map(PathBuf::from));
    }
    files
}

/// The file that a command line names.
fn told(kind: &str, process: &Process) -> Option<PathBuf> {
    // A title that a process gave itself is one word with blanks.
    let words: Vec<&str> =
        process.command_line.iter().flat_map(|word| word.split_ascii_whitespace()).collect();
    let after = |option: &str| {
        let at = words.iter().position(|word| *word == option)?;
        words.get(at + 1).map(PathBuf::from)
    };
    let value = |option: &str| words.iter().find_map(|word| word.strip_prefix(option)).map(PathBuf::from);
    let directory = || std::fs::read_link(format!("/proc/{}/cwd", process.pid)).ok();
    let found = match kind {
        "php-fpm" => {
            let title = words.join(" ");
            let (_, rest) = title.split_once("master process (")?;
            Some(PathBuf::from(rest.trim_end_matches(')')))
        }
        "nginx" => {
            let prefix = after("-p");
            let file = after("-c").unwrap_or_else(|| PathBuf::from("/etc/nginx/nginx.conf"));
            match prefix {
                Some(prefix) if file.is_relative() => Some(prefix.join(file)),
                _ => Some(file),
            }
        }
        "mariadb" | "mysql" => value("--defaults-file=").or_else(|| value("--defaults-extra-file=")),
        "postgres" => value("config_file=")
            .or_else(|| value("--config-file="))
            .or_else(|| after("-D").map(|data| data.join("postgresql.conf"))),
        "redis" | "valkey" => words.get(1).filter(|word| word.ends_with(".conf")).map(PathBuf::from),
        "thin" => after("-C").or_else(|| value("--config=")),
        _ => None,
    }?;
    if found.is_absolute() { Some(found) } else { Some(directory()?.join(found)) }
}

/// The process that runs by a configuration.
pub(crate) fn process_of(scan: &Scan, subject: &Subject) -> Option<u32> {
    let kind = subject.kind()?;
    let services = || scan.services.iter().filter(|service| service.kind == Some(kind));
    let by_file = services().find(|service| of(scan, service).first() == Some(&subject.file));
    by_file.or_else(|| services().next()).and_then(|service| service.pid)
}

/// The directory that a file's program would take relative names from.
#[must_use]
pub(crate) fn folder(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(kind: &str, words: &[&str]) -> Option<PathBuf> {
        let command_line = words.iter().map(|word| (*word).to_owned()).collect();
        told(kind, &Process { command_line, ..Process::default() })
    }

    #[test]
    fn command_lines_name_files() {
        let is = |found: Option<PathBuf>, path: &str| assert_eq!(found, Some(PathBuf::from(path)));
        is(
            file("php-fpm", &["php-fpm: master process (/etc/php/8.2/fpm/php-fpm.conf)"]),
            "/etc/php/8.2/fpm/php-fpm.conf",
        );
        is(file("nginx", &["nginx: master process /usr/sbin/nginx -p /srv/x -c a.conf"]), "/srv/x/a.conf");
        is(file("nginx", &["nginx: master process nginx"]), "/etc/nginx/nginx.conf");
        is(file("mariadb", &["/usr/sbin/mariadbd", "--defaults-file=/x/my.cnf"]), "/x/my.cnf");
        is(file("postgres", &["postgres", "-D", "/var/lib/pg"]), "/var/lib/pg/postgresql.conf");
        assert_eq!(file("redis", &["redis-server 127.0.0.1:6379"]), None);
    }
}
