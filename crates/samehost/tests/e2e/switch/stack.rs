//! Servers with configurations in a directory of the test's own; gone with the test.

use samehost_testing::php_fpm;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::foreseen::Foreseen;
pub(crate) use samehost_testing::{Ended, free_port, must, wait_for};

/// Everything of a file that a switch has to leave, or to bring back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) bytes: Vec<u8>,
    pub(crate) mode: u32,
    pub(crate) owner: (u32, u32),
    pub(crate) attributes: BTreeMap<String, Vec<u8>>,
    pub(crate) modified: (i64, i64),
}

/// A server that is nobody's child. It ends when dropped.
pub(crate) struct Daemon {
    pid_file: PathBuf,
}

impl Daemon {
    /// Its process, which its pid file names.
    pub(crate) fn pid(&self) -> Option<u32> {
        fs::read_to_string(&self.pid_file).ok()?.trim().parse().ok()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let pid = self.pid().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid {
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

/// A directory with servers. Root makes it below /srv: other users may pass, and a disk keeps extended attributes.
pub(crate) struct Stack {
    directory: tempfile::TempDir,
    servers: Vec<Child>,
}

impl Drop for Stack {
    fn drop(&mut self) {
        for server in self.servers.iter_mut().rev() {
            let _ = kill_process(Pid::from_child(server), Signal::TERM);
            let _ = server.wait();
        }
    }
}

impl Stack {
    pub(crate) fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("samehost-switch-").tempdir_in("/srv").unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(directory.path().join("state")).unwrap();
        Stack { directory, servers: Vec::new() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// A directory that www-data may write to, for sockets.
    pub(crate) fn shared(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// `samehost` with a state directory of this stack.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        samehost_testing::samehost(env!("CARGO_BIN_EXE_samehost"), &self.path("state"), arguments)
    }

    /// Runs it; a switch that is made is foreseen by a dry run first, and does what that said.
    pub(crate) fn samehost(&self, arguments: &[&str]) -> Ended {
        let foreseen = Foreseen::of(self, arguments);
        let ended = Ended::of(&self.command(arguments).output().unwrap());
        if let Some(foreseen) = foreseen {
            foreseen.assert_holds(self, arguments, &ended);
        }
        ended
    }

    /// Starts a server in the foreground.
    pub(crate) fn start(&mut self, program: &str, arguments: &[&str]) -> u32 {
        let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
        let log = fs::File::options().create(true).append(true).open(self.path("log")).unwrap();
        let server = Command::new(program)
            .args(arguments)
            .env("PATH", path)
            // As a unit would start it; cargo's own path of libraries is none of a service.
            .env_remove("LD_LIBRARY_PATH")
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("{program}: {error}; cargo xtask test installs it"));
        self.servers.push(server);
        self.servers.last().unwrap().id()
    }

    /// Ends the server that was started last.
    pub(crate) fn stop_last(&mut self) {
        let mut server = self.servers.pop().unwrap();
        let _ = kill_process(Pid::from_child(&server), Signal::TERM);
        let _ = server.wait();
    }

    /// What the servers wrote.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Starts nginx with these lines inside `http`; its configuration is `nginx/nginx.conf`.
    pub(crate) fn nginx(&mut self, http: &str) -> PathBuf {
        let folder = self.path("nginx");
        fs::create_dir_all(&folder).unwrap();
        let at = folder.display();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("    {name}_temp_path {at}/{name};\n"))
            .concat();
        let file = self.write(
            "nginx/nginx.conf",
            &format!(
                "user www-data;\nworker_processes 1;\ndaemon off;\npid {at}/pid;\nerror_log stderr;\nevents {{ worker_connections 64; }}\nhttp {{\n    access_log off;\n{temporary}{http}\n}}\n"
            ),
        );
        let name = file.display().to_string();
        self.start("nginx", &["-p", &at.to_string(), "-c", &name, "-e", "stderr"]);
        file
    }

    /// Starts PHP-FPM with one pool that listens at `listen`; its configuration is `php/php-fpm.conf`, the pool's
    /// `php/pool.d/www.conf`. It reads `php/php.ini` if that is there.
    pub(crate) fn fpm(&mut self, listen: &str) -> PathBuf {
        self.fpm_with(listen, &[])
    }

    /// The same as a daemon, as an init script starts it: it has another process number after each reload.
    pub(crate) fn fpm_daemon(&mut self, listen: &str) -> (PathBuf, Daemon) {
        let (pool, main) = self.fpm_files(listen);
        let pid_file = self.path("php/fpm.pid");
        let sound = fs::read_to_string(&main).unwrap();
        let log = self.path("log").display().to_string();
        let text =
            sound.replace("daemonize = no\n", &format!("daemonize = yes\npid = {}\n", pid_file.display()));
        fs::write(&main, text.replace("/proc/self/fd/2", &log)).unwrap();
        let name = main.display().to_string();
        let status =
            Command::new(php_fpm()).args(["--daemonize", "--fpm-config", &name]).current_dir("/").status();
        assert!(status.unwrap().success(), "{}", self.log());
        (pool, Daemon { pid_file })
    }

    /// The files of a PHP-FPM with one pool: the pool's and the main one.
    pub(crate) fn fpm_files(&self, listen: &str) -> (PathBuf, PathBuf) {
        let pool = self.write(
            "php/pool.d/www.conf",
            &format!(
                "; the pool of this site\n[www]\nuser = www-data\ngroup = www-data\nlisten = {listen}\nlisten.allowed_clients = 127.0.0.1\npm = static\npm.max_children = 2\nping.path = /ping\n"
            ),
        );
        let main = self.write(
            "php/php-fpm.conf",
            &format!(
                "[global]\ndaemonize = no\nprocess_control_timeout = 10s\nerror_log = /proc/self/fd/2\nsystemd_interval = 0\ninclude = {}/*.conf\n",
                pool.parent().unwrap().display()
            ),
        );
        (pool, main)
    }

    /// The same, its master started with these variables: `DB_HOST=127.0.0.1`.
    pub(crate) fn fpm_with(&mut self, listen: &str, variables: &[&str]) -> PathBuf {
        let (pool, main) = self.fpm_files(listen);
        self.start_fpm(&main, variables);
        pool
    }

    pub(crate) fn start_fpm(&mut self, main: &Path, variables: &[&str]) {
        let name = main.display().to_string();
        let ini = main.with_file_name("php.ini").display().to_string();
        let program = php_fpm().display().to_string();
        let options = [program.as_str(), "--nodaemonize", "--fpm-config", &name, "-c", &ini];
        let options = if Path::new(&ini).exists() { &options[..] } else { &options[..4] };
        self.start("env", &[variables, options].concat());
    }

    /// Adds a line to a file that its program does not take, and that the editor leaves alone; a switch then ends with
    /// what the program says of it, and with the files as they were.
    pub(crate) fn assert_checked(&self, switch: &[&str], file: &Path, line: &str, says: &[&str]) {
        let sound = fs::read_to_string(file).unwrap();
        fs::write(file, format!("{sound}{line}\n")).unwrap();
        let before = Stack::facts(&[file]);
        let ended = self.samehost(switch);
        assert_eq!(ended.status, 4, "{}", ended.both());
        for words in ["is not switched: ", "All files were restored"].iter().chain(says) {
            assert!(in_one_line(&ended).contains(words), "{}", ended.both());
        }
        assert_eq!(Stack::facts(&[file])[file].bytes, before[file].bytes);
        fs::write(file, sound).unwrap();
        let forgotten = self.samehost(&["switch", "prune", &self.only_switch(), "--yes"]);
        assert_eq!(forgotten.status, 0, "{}", forgotten.both());
    }

    /// Starts a Redis with a port and a socket, whose configuration is `redis/redis.conf`; gives the three.
    pub(crate) fn redis(&mut self) -> (u16, PathBuf, PathBuf) {
        let port = free_port();
        let socket = self.shared("run").join("r.sock");
        let text = format!(
            "bind 127.0.0.1\nport {port}\nunixsocket {}\nunixsocketperm 777\nsave \"\"\n",
            socket.display()
        );
        let conf = self.write("redis/redis.conf", &text);
        self.start("redis-server", &[&conf.display().to_string()]);
        wait_for("Redis", || std::os::unix::net::UnixStream::connect(&socket).ok());
        (port, socket, conf)
    }

    /// The same command a second time finds nothing to do, and touches nothing.
    pub(crate) fn assert_nothing_to_do(&self, switch: &[&str], files: &[&Path]) {
        let before = Stack::facts(files);
        let again = self.samehost(switch);
        assert_eq!(again.status, 0, "{}", again.both());
        assert!(in_one_line(&again).contains("nothing to do"), "{}", again.both());
        assert_eq!(Stack::facts(files), before);
    }

    /// Runs samehost while somebody makes requests.
    pub(crate) fn while_requested(&self, request: impl Fn() + Sync, words: &[&str]) -> Ended {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    request();
                }
            });
            let ended = self.samehost(words);
            is_over.store(true, Ordering::Relaxed);
            ended
        })
    }

    /// The only switch is in use at the first requests, however long they take beside other programs.
    pub(crate) fn assert_followed(&self, request: impl Fn() + Sync) {
        let checked = self.while_requested(request, &["switch", "check", "--wait", "30s", "--json"]);
        assert_eq!(checked.status, 0, "{}\n{}", checked.both(), self.log());
        let found: serde_json::Value = serde_json::from_str(&checked.stdout).unwrap();
        let all = found.as_array().unwrap();
        assert!(!all.is_empty() && all.iter().all(|one| one["standing"] == "in_use"), "{}", checked.both());
    }

    /// A switch whose program is told to take its file by a command that does nothing is not called in use; it is put back, or
    /// can be.
    pub(crate) fn assert_not_followed(&self, switch: &[&str], kind: &str, files: &[&Path]) {
        let before = Stack::facts(files);
        let nothing = format!("{kind}=true");
        let ended = self.samehost(&[switch, &["--reload", &nothing, "--json"]].concat());
        let report: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_ne!(report["standing"], "in_use", "{}", ended.both());
        let id = self.only_switch();
        // In force and seen at the old address is 1.
        if [0, 1].contains(&ended.status) {
            let undone = self.samehost(&["switch", "undo", &id, "--yes"]);
            assert_eq!(undone.status, 0, "{}", undone.both());
        } else {
            assert_eq!(ended.status, 4, "{}", ended.both());
        }
        for (file, was) in &before {
            assert_eq!(Stack::facts(&[file])[file].bytes, was.bytes, "{}", file.display());
        }
        let forgotten = self.samehost(&["switch", "prune", &id, "--yes"]);
        assert_eq!(forgotten.status, 0, "{}", forgotten.both());
    }

    /// Everything of these files.
    pub(crate) fn facts(paths: &[&Path]) -> BTreeMap<PathBuf, Facts> {
        paths.iter().map(|path| (path.to_path_buf(), facts(path))).collect()
    }

    /// Every file below a directory of this stack whose text has these words.
    pub(crate) fn files_with(&self, words: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut folders = vec![self.path("state")];
        while let Some(folder) = folders.pop() {
            for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if path.is_dir() {
                    folders.push(path);
                } else if String::from_utf8_lossy(&fs::read(&path).unwrap()).contains(words) {
                    found.push(path);
                }
            }
        }
        found
    }

    /// The name of the only switch so far.
    pub(crate) fn only_switch(&self) -> String {
        let ended = self.samehost(&["switch", "list", "--json"]);
        let entries: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!(entries.as_array().unwrap().len(), 1, "{entries}");
        entries[0]["id"].as_str().unwrap().to_owned()
    }
}

/// What it wrote, wherever the lines end.
pub(crate) fn in_one_line(ended: &Ended) -> String {
    ended.both().split_whitespace().collect::<Vec<_>>().join(" ")
}

fn facts(path: &Path) -> Facts {
    let metadata = fs::symlink_metadata(path).unwrap();
    let mut names = vec![0u8; 4096];
    let length = rustix::fs::llistxattr(path, &mut names).unwrap();
    let attributes = names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(|name| {
        let name = String::from_utf8(name.to_vec()).unwrap();
        let mut value = vec![0u8; 4096];
        let length = rustix::fs::lgetxattr(path, name.as_str(), &mut value).unwrap();
        value.truncate(length);
        (name, value)
    });
    Facts {
        attributes: attributes.collect(),
        bytes: fs::read(path).unwrap(),
        mode: metadata.mode(),
        owner: (metadata.uid(), metadata.gid()),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
    }
}

/// Whether servers of several users can be started here; else it is said on the real standard error, which a passing
/// test's output is not.
pub(crate) fn is_root(test: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        let _ = writeln!(
            std::io::stderr(),
            "NOT TESTED {test}: it starts servers of several users; run it as root"
        );
    }
    is_root
}

/// Status and body of a page; none where nobody answers.
pub(crate) fn page(port: u16, target: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
    write!(stream, "GET {target} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n").ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let text = String::from_utf8_lossy(&answer).into_owned();
    let status = text.split(' ').nth(1)?.parse().ok()?;
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body).to_owned();
    Some((status, body))
}
