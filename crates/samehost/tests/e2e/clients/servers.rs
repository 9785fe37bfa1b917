//! The servers that the clients meet, each on a Unix socket and on a port, and what each says of who is connected.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use samehost_testing::{free_port, must};

use crate::scan::Held;
use crate::stacks::Group;
use crate::support::{Home, wait_for};
use crate::workloads::support::newest;

/// Servers that end with the test.
pub(crate) struct Servers {
    home: Home,
    held: Vec<Held>,
    /// Those with workers that would outlive them.
    groups: Vec<Group>,
    /// The command that runs another in the servers' network namespace; empty for the own one.
    enter: String,
    /// Whether MySQL 9, PostgreSQL 18 and Valkey 9 stand for MariaDB, the distribution's PostgreSQL and Redis.
    are_newest: bool,
}

/// Where a service is: socket for the words, and port.
pub(crate) struct Place {
    pub(crate) socket: PathBuf,
    pub(crate) port: u16,
}

/// A gRPC server of Python, which writes down who asked.
const GRPC: &str = "
import concurrent.futures, grpc, sys
socket, port, log = sys.argv[1:]
def answer(request, context):
    with open(log, 'a') as file:
        file.write(context.peer() + '\\n')
    return b''
handler = grpc.unary_unary_rpc_method_handler(answer)
server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler('echo.Echo', {'Say': handler})])
server.add_insecure_port('unix:' + socket)
server.add_insecure_port('127.0.0.1:' + port)
server.start()
server.wait_for_termination()
";

/// Takes metrics as DogStatsD does, which no package has, and writes down what they came over.
const DOGSTATSD: &str = "
import os, select, socket, sys
path, port, log = sys.argv[1:]
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(('127.0.0.1', int(port)))
unix = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
unix.bind(path)
while True:
    for ready in select.select([udp, unix], [], [])[0]:
        ready.recv(8192)
        with open(log, 'a') as file:
            file.write('unix\\n' if ready is unix else 'udp\\n')
";

impl Servers {
    pub(crate) fn new() -> Self {
        Servers::entered(String::new())
    }

    /// Servers of the cache of newer ones.
    pub(crate) fn newest() -> Self {
        Servers { are_newest: true, ..Servers::new() }
    }

    /// Servers in the network namespace of a process.
    pub(crate) fn inside(pid: u32) -> Self {
        Servers::entered(format!("nsenter -t {pid} -n "))
    }

    fn entered(enter: String) -> Self {
        let home = Home::new();
        // PostgreSQL refuses to run as root: its user must pass through.
        fs::set_permissions(home.path(""), fs::Permissions::from_mode(0o711)).unwrap();
        Servers { home, held: Vec::new(), groups: Vec::new(), enter, are_newest: false }
    }

    pub(crate) fn start(&mut self, service: &str) -> Place {
        let port = free_port();
        let folder = self.home.path(service);
        fs::create_dir(&folder).unwrap();
        let (socket, command) = match service {
            "mysql" if self.are_newest => mysql_9(&folder, port),
            "mysql" => mysql(&folder, port),
            "postgres" if self.are_newest => {
                let program = newest("usr/lib/postgresql/18/bin/postgres");
                postgres(&folder, port, text(program.parent().unwrap()))
            }
            "postgres" => postgres(&folder, port, "$(ls -d /usr/lib/postgresql/*/bin | tail -1)"),
            "redis" if self.are_newest => redis(&folder, port, text(&newest("usr/bin/valkey-server"))),
            "redis" => redis(&folder, port, "redis-server"),
            "nginx" => nginx(&folder, port),
            "php-fpm" => php_fpm(&folder, port),
            "grpc" => grpc(&folder, port),
            "dogstatsd" => dogstatsd(&folder, port),
            "rsyslog" => rsyslog(&folder, port),
            "statsd" => statsd(&folder, port),
            _ => {
                let socket = folder.join("memcached.sock");
                self.held.push(Held::start("memcached", &["-u", "root", "-s", text(&socket)]));
                (socket, format!("exec memcached -u root -l 127.0.0.1 -p {port}"))
            }
        };
        let command = command.replacen("exec ", &format!("exec {}", self.enter), 1);
        if ["php-fpm", "statsd"].contains(&service) {
            self.groups.push(Group::start("sh", &["-c", &command]));
        } else {
            self.held.push(Held::start("sh", &["-c", &command]));
        }
        if Place::takes_datagrams(service) {
            let taken = || must("ss", &["-Hlun", &format!("sport = :{port}")]);
            wait_for(service, || (socket.exists() && !taken().is_empty()).then_some(()));
            return Place { socket, port };
        }
        wait_for(service, || UnixStream::connect(&socket).ok());
        let probe = format!("{}nc -z 127.0.0.1 {port}", self.enter);
        wait_for(service, || {
            Command::new("sh").args(["-c", &probe]).status().unwrap().success().then_some(())
        });
        let place = Place { socket, port };
        if service == "postgres" {
            // A user whose name is no word of any client.
            place.ask_postgres_for("CREATE ROLE fern LOGIN");
        }
        place
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn mysql(folder: &Path, port: u16) -> (PathBuf, String) {
    let (socket, data) = (folder.join("mysqld.sock"), folder.join("data"));
    let made = format!("--datadir={}", data.display());
    let words =
        ["--no-defaults", "--user=root", "--auth-root-authentication-method=normal", "--skip-test-db", &made];
    must("mariadb-install-db", &words);
    let server = format!(
        "exec mysqld --no-defaults --user=root {made} --socket={} --bind-address=127.0.0.1 --port={port} --general-log=1 --general-log-file={}/log",
        socket.display(),
        folder.display()
    );
    (socket, server)
}

fn mysql_9(folder: &Path, port: u16) -> (PathBuf, String) {
    let (socket, program) = (folder.join("mysqld.sock"), newest("usr/sbin/mysqld"));
    let base = program.ancestors().nth(2).unwrap().display();
    let words = format!(
        "{} --no-defaults --basedir={base} --user=root --datadir={}",
        program.display(),
        folder.join("data").display()
    );
    must("sh", &["-c", &format!("{words} --initialize-insecure")]);
    let server = format!(
        "exec {words} --mysqlx=OFF --secure-file-priv=NULL --skip-log-bin --socket={} --bind-address=127.0.0.1 --port={port}",
        socket.display()
    );
    (socket, server)
}

/// `bin` is the folder of the programs, as the shell has it.
fn postgres(folder: &Path, port: u16, bin: &str) -> (PathBuf, String) {
    let data = folder.join("data").display().to_string();
    must("chown", &["postgres", text(folder)]);
    must("sh", &["-c", &format!("setpriv --reuid postgres --clear-groups {bin}/initdb -A trust -D {data}")]);
    let server = format!(
        "exec setpriv --reuid postgres --clear-groups {bin}/postgres -D {data} -c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories={}",
        folder.display()
    );
    (folder.join(format!(".s.PGSQL.{port}")), server)
}

fn redis(folder: &Path, port: u16, program: &str) -> (PathBuf, String) {
    let socket = folder.join("redis.sock");
    let (folder, at) = (folder.display(), socket.display());
    let user = "--user app on '>password' '~*' '&*' '+@all'";
    let server = format!("exec {program} --port {port} --save '' --dir {folder} --unixsocket {at} {user}");
    (socket, server)
}

/// nginx writes the address down that it was asked at.
fn nginx(folder: &Path, port: u16) -> (PathBuf, String) {
    let socket = folder.join("nginx.sock");
    let at = folder.display();
    let settings = format!(
        "daemon off; master_process off; pid {at}/pid; error_log {at}/error; events {{}}\n\
         http {{ log_format asked '$server_addr'; access_log {at}/log asked; client_body_temp_path {at};\n\
         fastcgi_temp_path {at}; proxy_temp_path {at}; uwsgi_temp_path {at}; scgi_temp_path {at};\n\
         server {{ listen 127.0.0.1:{port}; listen unix:{}; location / {{ return 200 'ok'; }} }} }}\n",
        socket.display()
    );
    fs::write(folder.join("nginx.conf"), settings).unwrap();
    (socket, format!("exec nginx -c {at}/nginx.conf -e {at}/error"))
}

/// PHP-FPM has a pool for each address, and writes down which one answered.
fn php_fpm(folder: &Path, port: u16) -> (PathBuf, String) {
    let socket = folder.join("fpm.sock");
    let at = folder.display();
    let pool = |name: &str, listen: &str| {
        format!(
            "[{name}]\nuser = root\ngroup = root\nlisten = {listen}\nlisten.mode = 0666\npm = static\n\
             pm.max_children = 1\naccess.log = {at}/log\naccess.format = \"%n\"\n"
        )
    };
    let (unix, tcp) = (pool("unix", text(&socket)), pool("tcp", &format!("127.0.0.1:{port}")));
    let settings = format!("[global]\nerror_log = {at}/error\ndaemonize = no\n{unix}{tcp}");
    fs::write(folder.join("fpm.conf"), settings).unwrap();
    fs::write(folder.join("index.php"), "<?php echo 'ok';").unwrap();
    let program = samehost_testing::php_fpm();
    (socket, format!("exec {} -F -R -y {at}/fpm.conf", program.display()))
}

fn grpc(folder: &Path, port: u16) -> (PathBuf, String) {
    let (socket, program) = (folder.join("grpc.sock"), folder.join("server.py"));
    fs::write(&program, GRPC).unwrap();
    let (at, log) = (socket.display(), folder.join("log"));
    let server = format!("exec /usr/bin/python3 {} {at} {port} {}", program.display(), log.display());
    (socket, server)
}

fn dogstatsd(folder: &Path, port: u16) -> (PathBuf, String) {
    let (socket, program) = (folder.join("dsd.socket"), folder.join("server.py"));
    fs::write(&program, DOGSTATSD).unwrap();
    let (at, log) = (socket.display(), folder.join("log"));
    let server = format!("exec /usr/bin/python3 {} {at} {port} {}", program.display(), log.display());
    (socket, server)
}

/// statsd itself, once for datagrams and once for a stream socket, which are the two that it has. It writes messages down.
fn statsd(folder: &Path, port: u16) -> (PathBuf, String) {
    let socket = folder.join("statsd.sock");
    let package = super::node().unwrap_or_else(|missing| panic!("{missing}")).join("node_modules/statsd");
    let settings = |name: &str, place: String| {
        let server = package.join(format!("servers/{name}")).display().to_string();
        let backend = package.join("backends/console").display().to_string();
        let text = format!(
            "{{ servers: [{{ server: '{server}', {place} }}], backends: ['{backend}'], mgmt_address: '127.0.0.1', mgmt_port: {}, dumpMessages: true, flushInterval: 3600000 }}",
            free_port()
        );
        fs::write(folder.join(name), text).unwrap();
    };
    settings("udp", format!("address: '127.0.0.1', port: {port}"));
    settings("tcp", format!("socket: '{}'", socket.display()));
    let (at, program) = (folder.display(), package.join("stats.js").display().to_string());
    let one = |name: &str, way: &str| {
        format!("node {program} {at}/{name} | sed -un 's/.*requests:1|c.*/{way}/p' >> {at}/log")
    };
    (socket, format!("{} & {} & wait", one("udp", "udp"), one("tcp", "unix")))
}

/// rsyslog writes down which of its inputs a message came by.
fn rsyslog(folder: &Path, port: u16) -> (PathBuf, String) {
    let socket = folder.join("rsyslog.sock");
    let at = folder.display();
    let settings = format!(
        "module(load=\"imuxsock\" SysSock.Use=\"off\")\nmodule(load=\"imudp\")\n\
         template(name=\"way\" type=\"string\" string=\"%inputname%\\n\")\n\
         ruleset(name=\"all\") {{ action(type=\"omfile\" file=\"{at}/log\" template=\"way\") }}\n\
         input(type=\"imuxsock\" Socket=\"{}\" ruleset=\"all\")\n\
         input(type=\"imudp\" address=\"127.0.0.1\" port=\"{port}\" ruleset=\"all\")\n",
        socket.display()
    );
    fs::write(folder.join("rsyslog.conf"), settings).unwrap();
    (socket, format!("exec rsyslogd -n -f {at}/rsyslog.conf -i {at}/pid"))
}

impl Place {
    /// What the server wrote down of the requests that it had.
    fn log(&self) -> PathBuf {
        self.socket.with_file_name("log")
    }

    /// Whether the service takes datagrams at its port, and nobody can ask it.
    pub(super) fn takes_datagrams(service: &str) -> bool {
        ["dogstatsd", "rsyslog", "statsd"].contains(&service)
    }

    /// Whether the server says who is connected now; else it writes down who asked.
    pub(super) fn has_connections(service: &str) -> bool {
        ["mysql", "postgres", "redis", "memcached"].contains(&service)
    }

    /// The transports of the clients that are connected, or have asked since [`Place::forget`], in the server's own words.
    pub(super) fn seen(&self, service: &str) -> BTreeSet<&'static str> {
        let socket = text(&self.socket);
        let said = match service {
            "mysql" => self.ask_mysql("IF(HOST LIKE '%:%', HOST, 'unix')"),
            "postgres" => self.ask_postgres("coalesce(host(client_addr), 'unix')"),
            "redis" => {
                // Valkey 9 writes `[/path:0]:0`.
                let address = |line: &str| line.split(" addr=").nth(1).unwrap_or_default().replace('[', "");
                self.redis().lines().map(|line| address(line).replace(socket, "unix") + "\n").collect()
            }
            "memcached" => self.memcached(),
            _ => fs::read_to_string(self.log()).unwrap_or_default(),
        };
        let is_unix = |line: &str| line.starts_with("unix") || line == "imuxsock";
        said.lines().map(|line| if is_unix(line) { "unix" } else { "tcp" }).collect()
    }

    /// User, database and options, as the server has them of the clients that are connected.
    pub(super) fn said(&self, service: &str) -> Vec<String> {
        let said = match service {
            "mysql" => {
                let asked = fs::read_to_string(self.log()).unwrap_or_default();
                let options = super::named(service)[2].iter().filter(|option| asked.contains(**option));
                options.fold(self.ask_mysql("CONCAT(USER, ' ', IFNULL(DB, ''))"), |said, option| {
                    said + "\n" + option
                })
            }
            "redis" => self.redis().replace(['=', '\n'], " "),
            "postgres" => self.ask_postgres("usename || ' ' || datname || ' ' || application_name"),
            _ => return Vec::new(),
        };
        let words: BTreeSet<String> = said.split_whitespace().map(str::to_owned).collect();
        words.into_iter().collect()
    }

    /// The clients of Redis that have the user and the number that their words name: others open connections before they ask for them.
    fn redis(&self) -> String {
        let clients = must("redis-cli", &["-s", text(&self.socket), "client", "list"]);
        let is_in_it =
            |line: &&str| line.contains(&format!(" db={} ", super::NUMBER)) && line.contains(" user=app ");
        let others = clients.lines().filter(|line| !line.contains("cmd=client")).filter(is_in_it);
        others.map(|line| format!("{line}\n")).collect()
    }

    fn ask_mysql(&self, what: &str) -> String {
        // Who asked the last time may not be gone yet on a busy machine: it is known by its database here, by its name below.
        let question = format!(
            "SELECT {what} FROM information_schema.PROCESSLIST WHERE NOT DB <=> 'information_schema' AND COMMAND <> 'Daemon'"
        );
        let words =
            ["--no-defaults", "-uroot", "-Dinformation_schema", "-BN", "-S", text(&self.socket), "-e"];
        must("mariadb", &[&words[..], &[&question]].concat())
    }

    fn ask_postgres(&self, what: &str) -> String {
        self.ask_postgres_for(&format!(
            "SELECT {what} FROM pg_stat_activity WHERE backend_type = 'client backend' AND application_name <> 'who_asks'"
        ))
    }

    fn ask_postgres_for(&self, question: &str) -> String {
        let (folder, port) = (text(self.socket.parent().unwrap()), self.port.to_string());
        let words =
            ["-XAtq", "-U", "postgres", "-h", folder, "-p", &port, "-d", "application_name=who_asks", "-c"];
        must("psql", &[&words[..], &[question]].concat())
    }

    /// A line for each client of either memcached, without the one that asks.
    fn memcached(&self) -> String {
        let others = |stream: &mut dyn ReadWrite, name: &str| {
            stream.write_all(b"stats conns\r\nquit\r\n").unwrap();
            let mut said = String::new();
            stream.read_to_string(&mut said).unwrap();
            let states = said.lines().filter(|line| line.contains(":state "));
            let clients = states.filter(|line| !line.ends_with("conn_listening")).count();
            format!("{name}\n").repeat(clients.saturating_sub(1))
        };
        others(&mut UnixStream::connect(&self.socket).unwrap(), "unix")
            + &others(&mut TcpStream::connect(("127.0.0.1", self.port)).unwrap(), "tcp")
    }

    /// Forgets who asked, and waits until nobody is connected.
    pub(super) fn forget(&self, service: &str) {
        if Place::has_connections(service) {
            wait_for("the last client to be gone", || self.seen(service).is_empty().then_some(()));
        }
        if self.log().exists() {
            fs::OpenOptions::new().write(true).truncate(true).open(self.log()).unwrap();
        }
    }
}

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}
