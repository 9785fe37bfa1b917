//! The registry of services that are recognised: one line each. By program or words of the command line first, then by
//! the name of a socket file; by the port alone only where no process can be seen.

use std::path::Path;

use samehost_model::scan::{Process, RecognisedBy};

/// Whether a service can listen on a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnixSocket {
    /// It can, with this setting; `{}` stands for the path.
    Setting(&'static str),
    /// It cannot, for this reason.
    Never(&'static str),
}

/// A service that is recognised.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Its name in JSON and on the command line.
    pub kind: &'static str,
    /// Its name for people.
    pub label: &'static str,
    /// Names of its program; a version may follow (`php-fpm8.2`).
    pub programs: &'static [&'static str],
    /// The file name of its socket.
    pub socket: &'static str,
    /// Its usual ports.
    pub ports: &'static [u16],
    /// A usual path of its socket; the one to propose.
    pub path: &'static str,
    /// Whether it can listen on a Unix socket.
    pub unix: UnixSocket,
    /// The accounts that packages make for it and for nothing else. A web server's account, which runs what sites bring
    /// along, is nobody's.
    pub accounts: &'static [&'static str],
}

use UnixSocket::{Never, Setting};

const fn known(
    kind: &'static str,
    label: &'static str,
    programs: &'static [&'static str],
    ports: &'static [u16],
    path: &'static str,
    unix: UnixSocket,
) -> Known {
    let mut start = path.len();
    while start > 0 && path.as_bytes()[start - 1] != b'/' {
        start -= 1;
    }
    let (_, socket) = path.split_at(start);
    Known { kind, label, programs, socket, ports, path, unix, accounts: accounts(kind) }
}

/// Every service that is recognised. The first line that fits counts.
#[rustfmt::skip]
pub const KNOWN: &[Known] = &[
    known("mariadb", "MariaDB", &["mariadbd"], &[3306], "/run/mysqld/mysqld.sock", Setting("socket = {} below [mysqld]")),
    known("mysql", "MySQL", &["mysqld"], &[3306, 33060], "/run/mysqld/mysqld.sock", Setting("socket = {} below [mysqld]")),
    known("postgres", "PostgreSQL", &["postgres", "postmaster"], &[5432, 5433], "/run/postgresql/.s.PGSQL.5432", Setting("unix_socket_directories in postgresql.conf, the folder of {}")),
    known("pgbouncer", "PgBouncer", &["pgbouncer"], &[6432], "/run/postgresql/.s.PGSQL.6432", Setting("unix_socket_dir in pgbouncer.ini, the folder of {}")),
    known("redis", "Redis", &["redis-server"], &[6379], "/run/redis/redis-server.sock", Setting("unixsocket {} and unixsocketperm 770 in redis.conf")),
    known("valkey", "Valkey", &["valkey-server"], &[6379], "/run/valkey/valkey-server.sock", Setting("unixsocket {} and unixsocketperm 770 in valkey.conf")),
    known("memcached", "memcached", &["memcached"], &[11211], "/run/memcached/memcached.sock", Setting("-s {} -a 770, a second instance, for it then listens on no port")),
    known("nginx", "nginx", &["nginx"], &[80, 443, 8080], "/run/nginx/nginx.sock", Setting("listen unix:{}; in the server block")),
    known("apache", "Apache", &["apache2", "httpd"], &[80, 443], "", Never("Apache listens on ports only")),
    known("haproxy", "HAProxy", &["haproxy"], &[], "/run/haproxy/haproxy.sock", Setting("bind unix@{} mode 660 in the frontend")),
    known("php-fpm", "PHP-FPM", &["php-fpm"], &[9000], "/run/php/php-fpm.sock", Setting("listen = {} in the pool's file, with listen.owner, listen.group and listen.backlog")),
    known("uwsgi", "uWSGI", &["uwsgi", "uwsgi-core"], &[], "/run/uwsgi/uwsgi.sock", Setting("socket = {} and chmod-socket = 660")),
    known("gunicorn", "gunicorn", &["gunicorn"], &[8000], "/run/gunicorn/gunicorn.sock", Setting("--bind unix:{}")),
    known("uvicorn", "Uvicorn", &["uvicorn"], &[8000], "/run/uvicorn/uvicorn.sock", Setting("--uds {}")),
    known("puma", "Puma", &["puma", "pumactl"], &[9292, 3000], "/run/puma/puma.sock", Setting("bind 'unix://{}' in puma.rb")),
    known("unicorn", "Unicorn", &["unicorn"], &[], "/run/unicorn/unicorn.sock", Setting("listen '{}' in unicorn.rb")),
    known("thin", "Thin", &["thin"], &[], "/run/thin/thin.sock", Setting("--socket {}")),
    known("caddy", "Caddy", &["caddy"], &[2019], "/run/caddy/caddy.sock", Setting("bind unix/{} in the site block")),
    known("envoy", "Envoy", &["envoy"], &[9901], "/run/envoy/envoy.sock", Setting("address: pipe: path: {} in the listener")),
    known("traefik", "Traefik", &["traefik"], &[], "", Never("Traefik listens on ports only")),
    known("mongodb", "MongoDB", &["mongod", "mongos"], &[27017], "/tmp/mongodb-27017.sock", Setting("net.unixDomainSocket.pathPrefix, the folder of {}")),
    known("docker", "Docker", &["dockerd"], &[2375], "/run/docker.sock", Setting("-H unix://{}")),
    known("docker-proxy", "Docker's port proxy", &["docker-proxy"], &[], "", Never("it forwards a published port into a container: mount the service's socket folder instead")),
    known("containerd", "containerd", &["containerd"], &[], "/run/containerd/containerd.sock", Setting("address = \"{}\" below [grpc]")),
    known("podman", "Podman", &["podman"], &[], "/run/podman/podman.sock", Setting("podman system service unix://{}")),
    known("rabbitmq", "RabbitMQ", &["rabbitmq-server", "rabbitmq"], &[5672, 15672, 25672], "", Never("RabbitMQ's AMQP listener knows ports only")),
    known("epmd", "Erlang's port mapper", &["epmd"], &[4369], "", Never("it listens on its port only")),
    known("kafka", "Kafka", &["kafka"], &[9092], "", Never("Kafka listens on ports only")),
    known("elasticsearch", "Elasticsearch", &["elasticsearch", "opensearch"], &[9200, 9300], "", Never("it listens on ports only")),
    known("clickhouse", "ClickHouse", &["clickhouse-server", "clickhouse"], &[8123, 9000], "", Never("ClickHouse listens on ports only")),
    known("etcd", "etcd", &["etcd"], &[2379, 2380], "", Setting("--listen-client-urls unix://{}")),
    known("varnish", "Varnish", &["varnishd", "cache-main"], &[6081, 6082], "/run/varnish/varnish.sock", Setting("-a {},PROXY,mode=660")),
    known("samehost", "samehost serve", &["samehost"], &[], "/run/samehost/echo.sock", Setting("--listen unix:{}")),
    known("systemd", "systemd", &["systemd", "systemd-journal", "systemd-journald"], &[], "", Never("it has its own sockets")),
    known("sshd", "sshd", &["sshd"], &[22], "", Never("sshd serves other hosts")),
];

/// The accounts of those services that packages make one for.
const fn accounts(kind: &str) -> &'static [&'static str] {
    match kind.as_bytes() {
        b"mariadb" | b"mysql" => &["mysql"],
        b"postgres" => &["postgres"],
        b"pgbouncer" => &["pgbouncer", "postgres"],
        b"redis" => &["redis"],
        b"valkey" => &["valkey", "redis"],
        b"memcached" => &["memcache", "memcached"],
        b"nginx" => &["nginx"],
        b"haproxy" => &["haproxy"],
        b"caddy" => &["caddy"],
        b"varnish" => &["varnish", "vcache"],
        b"mongodb" => &["mongodb", "mongod"],
        b"rabbitmq" | b"epmd" => &["rabbitmq"],
        b"elasticsearch" => &["elasticsearch", "opensearch"],
        b"clickhouse" => &["clickhouse"],
        b"etcd" => &["etcd"],
        _ => &[],
    }
}

/// The entry of a name.
#[must_use]
pub fn known_service(kind: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.kind == kind)
}

impl Known {
    /// Whether a program's name is one of this service, a version behind it allowed.
    fn is_program(&self, name: &str) -> bool {
        self.programs.iter().any(|program| {
            name.strip_prefix(program).is_some_and(|rest| {
                rest.is_empty()
                    || rest.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '.' | ':' | ' '))
            })
        })
    }
}

/// Programs that run others: what they are is in their command line.
const INTERPRETERS: &[&str] =
    &["python", "ruby", "perl", "node", "php", "java", "beam.smp", "bash", "sh", "dash"];

fn base_name(path: &str) -> &str {
    Path::new(path).file_name().and_then(std::ffi::OsStr::to_str).unwrap_or(path)
}

/// Recognises a process by its program, its name or its command line.
fn by_process(process: &Process) -> Option<&'static Known> {
    let program = process.executable.as_deref().map(|path| base_name(path.trim_end_matches(" (deleted)")));
    let find = |name: &str| KNOWN.iter().find(|known| known.is_program(name));
    let interpreted = program.is_none_or(|name| INTERPRETERS.iter().any(|one| name.starts_with(one)));
    let words = || {
        let words = process.command_line.iter().take(4);
        // The title that a process gave itself is one word with blanks: `puma 6.4 (tcp://…)`, `gunicorn: master`.
        words.flat_map(|word| [base_name(word), word.split([' ', ':']).next().unwrap_or(word)])
    };
    program
        .and_then(find)
        .or_else(|| find(&process.name))
        .or_else(|| if interpreted { words().find_map(find) } else { None })
        .or_else(|| {
            let is_erlang = program == Some("beam.smp");
            let rabbit = process.command_line.iter().any(|word| word.contains("rabbit"));
            if is_erlang && rabbit { known_service("rabbitmq") } else { None }
        })
}

/// Recognises a service by its process, else by the file names of its sockets, else, where its process cannot be
/// seen, by its ports.
pub(crate) fn recognise(
    process: Option<&Process>,
    sockets: &[&Path],
    ports: &[u16],
) -> Option<(&'static Known, RecognisedBy)> {
    let by_socket = || {
        let names = || sockets.iter().filter_map(|path| path.file_name());
        KNOWN.iter().find(|known| !known.socket.is_empty() && names().any(|name| name == known.socket))
    };
    let by_port = || KNOWN.iter().find(|known| known.ports.iter().any(|port| ports.contains(port)));
    match process {
        Some(process) => by_process(process).map(|known| (known, RecognisedBy::Process)),
        None => None,
    }
    .or_else(|| by_socket().map(|known| (known, RecognisedBy::Socket)))
    .or_else(|| if process.is_none() { by_port().map(|known| (known, RecognisedBy::Port)) } else { None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(executable: &str, name: &str, words: &[&str]) -> Option<&'static str> {
        let process = Process {
            executable: Some(executable.to_owned()).filter(|path| !path.is_empty()),
            name: name.to_owned(),
            command_line: words.iter().map(|word| (*word).to_owned()).collect(),
            ..Process::default()
        };
        recognise(Some(&process), &[], &[3306]).map(|(known, _)| known.kind)
    }

    #[test]
    fn real_processes_are_recognised() {
        assert_eq!(kind("/usr/sbin/mariadbd", "mariadbd", &[]), Some("mariadb"));
        assert_eq!(kind("/usr/sbin/mysqld (deleted)", "mysqld", &[]), Some("mysql"));
        assert_eq!(kind("/usr/sbin/php-fpm8.2", "php-fpm8.2", &[]), Some("php-fpm"));
        assert_eq!(
            kind("/usr/bin/python3.11", "gunicorn", &["/usr/bin/python3", "/usr/bin/gunicorn", "app"]),
            Some("gunicorn")
        );
        assert_eq!(
            kind("/usr/bin/ruby3.1", "ruby", &["puma 6.4.2 (tcp://0.0.0.0:3000) [app]"]),
            Some("puma")
        );
        assert_eq!(
            kind("/usr/lib/erlang/bin/beam.smp", "beam.smp", &["beam.smp", "-s", "rabbit"]),
            Some("rabbitmq")
        );
        assert_eq!(kind("", "redis-server", &[]), Some("redis"));
        assert_eq!(kind("/usr/bin/vi", "vi", &["vi", "nginx"]), None, "a file name is no proof");
        assert_eq!(kind("/usr/bin/redis-server-wrapper", "x", &[]), None);
    }

    #[test]
    fn sockets_and_ports_are_the_last_resort() {
        let (known, by) = recognise(None, &[Path::new("/run/mysqld/mysqld.sock")], &[]).unwrap();
        assert_eq!((known.kind, by), ("mariadb", RecognisedBy::Socket));
        let (known, by) = recognise(None, &[], &[6379]).unwrap();
        assert_eq!((known.kind, by), ("redis", RecognisedBy::Port));
        assert!(recognise(Some(&Process::default()), &[], &[6379]).is_none());
    }

    #[test]
    fn names_are_unique_and_settings_name_a_path() {
        for (index, known) in KNOWN.iter().enumerate() {
            assert!(KNOWN[..index].iter().all(|other| other.kind != known.kind), "{}", known.kind);
            if let Setting(setting) = known.unix {
                assert!(setting.contains("{}"), "{}", known.kind);
            }
        }
    }
}
