//! What the descriptors of application servers say of the sockets that these make, each sentence held against the real
//! program.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::Signal;
use samehost_services::Kind;
use samehost_testing::{free_port, wait_for};
use tempfile::TempDir;

use super::support::Server;
use crate::names::tomcat;
use crate::scan::is_root;
use crate::support::{Home, SAMEHOST, assert_verified, not_tested, send};

/// Serves an empty page to WSGI and to ASGI.
const PYTHON: &str = "
def wsgi(environ, start_response):
    start_response('200 OK', [])
    return []

async def asgi(scope, receive, send):
    await send({'type': 'http.response.start', 'status': 200, 'headers': []})
    await send({'type': 'http.response.body'})
";
const RUBY: &str = "run ->(environ) { [200, {}, []] }";
/// Listens where its first argument says, in two workers of a cluster if that begins with `cluster`. `/end` ends the
/// process, and SIGTERM closes the server where the second argument is `close`.
const NODE: &str = "
const cluster = require('node:cluster');
const [place, more] = process.argv.slice(2);
if (more === 'cluster' && cluster.isPrimary) {
  cluster.fork();
  cluster.fork();
} else {
  const server = require('node:http').createServer((request, response) => {
    if (request.url === '/end') process.exit(0);
    response.end();
  });
  server.listen(JSON.parse(place));
  if (more === 'close') process.on('SIGTERM', () => server.close());
}
";

/// A folder with the applications and the path of a socket.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("sh").tempdir().unwrap();
        for (name, text) in [("page.py", PYTHON), ("config.ru", RUBY), ("page.js", NODE)] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        Place(folder)
    }

    fn file(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn socket(&self) -> PathBuf {
        self.0.path().join("app.sock")
    }

    fn mode(&self) -> u32 {
        self.socket().metadata().unwrap().permissions().mode() & 0o777
    }

    /// The file's identity: another one at the same path differs.
    fn identity(&self) -> Option<(u64, i64, i64)> {
        let found = self.socket().metadata().ok()?;
        Some((found.ino(), found.mtime(), found.mtime_nsec()))
    }

    fn command(&self, umask: &str, words: &[&str]) -> Command {
        let mut command = Command::new("sh");
        command
            .args(["-c", "umask $0; exec \"$@\"", umask])
            .args(words)
            .current_dir(self.0.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    /// Starts a server that answers at the socket.
    fn start(&self, umask: &str, words: &[&str]) -> Server {
        let server = Server(self.command(umask, words).spawn().unwrap());
        wait_for(words[0], || answers(&self.socket(), "/"));
        server
    }

    /// Checks that the socket is verified as one of a process with this name.
    fn assert_verified(&self, program: &str) {
        assert_verified(&format!("unix:{}", self.socket().display()), "unix", program);
    }

    /// Starts a server that takes the socket over from another one, and ends it.
    fn take_over(&self, words: &[&str]) {
        let before = self.identity();
        let second = Server(self.command("022", words).spawn().unwrap());
        wait_for("the second one's socket", || (self.identity()? != before?).then_some(()));
        wait_for("the second one", || answers(&self.socket(), "/"));
        end(second);
    }

    /// What a server says that does not start.
    fn refused(&self, words: &[&str]) -> String {
        let Output { status, stdout, stderr } =
            self.command("022", words).stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
        assert!(!status.success());
        [stdout, stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat()
    }
}

/// A reply from the server at a socket; `None` if nobody answers.
pub(super) fn answers(socket: &Path, target: &str) -> Option<()> {
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(Some(std::time::Duration::from_secs(5))).ok()?;
    write!(stream, "GET {target} HTTP/1.0\r\nHost: x\r\n\r\n").ok()?;
    let mut reply = [0; 9];
    stream.read_exact(&mut reply).ok()?;
    reply.starts_with(b"HTTP/1.").then_some(())
}

/// Ends a server by SIGTERM.
fn end(mut server: Server) {
    send(server.0.id(), Signal::TERM);
    server.0.wait().unwrap();
}

/// Ends a server by SIGKILL.
fn kill(mut server: Server) {
    server.0.kill().unwrap();
    server.0.wait().unwrap();
}

fn is_running(server: &mut Server) -> bool {
    server.0.try_wait().unwrap().is_none()
}

/// Checks that the descriptor has as many sentences as are tested, with these words.
fn assert_said(kind: Kind, words: &[&str]) {
    let sentences = &kind.descriptor().about_socket;
    assert_eq!(sentences.len(), words.len(), "{kind}");
    for (sentence, words) in sentences.iter().zip(words) {
        assert!(sentence.contains(words), "{words}: {sentence}");
    }
}

#[test]
fn every_kind_with_sentences_is_tested() {
    // What was read, and is run by no test, has a source.
    let is_read = |kind: &Kind| !kind.descriptor().source.is_empty();
    let run = Kind::all().filter(|kind| !is_read(kind));
    let with: Vec<Kind> = run.clone().filter(|kind| !kind.descriptor().about_socket.is_empty()).collect();
    // No test starts the agent of DogStatsD, nor mongod, which Debian has no package of; uWSGI's are in `switch::uwsgi`.
    let tested = [Kind::Uwsgi, Kind::Gunicorn, Kind::Uvicorn, Kind::Puma, Kind::Node, Kind::Tomcat];
    assert_eq!(with, [&tested[..], &[Kind::Mongodb, Kind::Dogstatsd]].concat());
    let one: Vec<Kind> = run.filter(|kind| kind.descriptor().one_address).collect();
    // vLLM by its documentation alone: with --uds it ignores the host and the port.
    assert_eq!(one, [Kind::PhpFpm, Kind::Uvicorn, Kind::Thin, Kind::Vllm]);
}

#[test]
fn uvicorn_opens_its_socket_to_everybody_and_takes_it_over() {
    assert_said(Kind::Uvicorn, &["mode 0666", "takes the socket over", "`Address already in use`"]);
    let place = Place::new();
    let socket = place.socket().display().to_string();
    let port = free_port().to_string();
    let words = ["uvicorn", "--lifespan", "off", "page:asgi", "--uds", &socket];
    let with_port = [&words[..], &["--host", "127.0.0.1", "--port", &port]].concat();
    let mut first = place.start("077", &with_port);
    assert_eq!(place.mode(), 0o666);
    place.assert_verified("uvicorn");
    let by_port = std::net::TcpStream::connect(("127.0.0.1", port.parse().unwrap()));
    assert!(by_port.is_err(), "it listens on one address");
    place.take_over(&words);
    assert!(!place.socket().exists() && is_running(&mut first));
    kill(first);
    kill(place.start("022", &words));
    assert!(place.socket().exists());
    let said = place.refused(&[&words[..], &["--workers", "2"]].concat());
    assert!(said.contains("Address already in use"), "{said}");
}

#[test]
fn gunicorn_opens_its_socket_to_everybody_and_takes_it_over() {
    assert_said(Kind::Gunicorn, &["mode 0777", "takes the socket over"]);
    let place = Place::new();
    let bind = format!("unix:{}", place.socket().display());
    let words = ["gunicorn", "page:wsgi", "--bind", &bind];
    let mut first = place.start("077", &words);
    assert_eq!(place.mode(), 0o777);
    place.assert_verified("gunicorn");
    place.take_over(&words);
    assert!(!place.socket().exists() && is_running(&mut first));
    end(first);
    let narrow = place.start("022", &[&words[..], &["--umask", "007"]].concat());
    assert_eq!(place.mode(), 0o770);
    end(narrow);
}

#[test]
fn puma_opens_its_socket_to_everybody_and_refuses_one_in_use() {
    assert_said(Kind::Puma, &["mode 0777", "does not start where somebody does"]);
    let place = Place::new();
    let (bind, rackup) = (format!("unix://{}", place.socket().display()), place.file("config.ru"));
    let words = ["puma", "-q", "-e", "production", "-b", &bind, &rackup];
    let first = place.start("077", &words);
    assert_eq!(place.mode(), 0o777);
    place.assert_verified("puma");
    let said = place.refused(&words);
    assert!(said.contains("already a server bound to"), "{said}");
    assert!(answers(&place.socket(), "/").is_some());
    kill(first);
    assert!(place.socket().exists());
    let narrow = format!("{bind}?umask=0117");
    let second = place.start("022", &["puma", "-q", "-e", "production", "-b", &narrow, &rackup]);
    assert_eq!(place.mode(), 0o660);
    kill(second);
}

#[test]
fn node_keeps_to_the_umask_and_leaves_its_file_behind() {
    // The last two are about pm2: see the tests of it.
    let words = ["writableAll: true", "EADDRINUSE", "workers of a cluster", "pm2 without -i", "with pm2 -i"];
    assert_said(Kind::Node, &words);
    let place = Place::new();
    let socket = place.socket().display().to_string();
    let (plain, page) = (format!("\"{socket}\""), place.file("page.js"));
    let start =
        |umask: &str, place_word: &str, more: &str| place.start(umask, &["node", &page, place_word, more]);
    let open = format!("{{\"path\":\"{socket}\",\"writableAll\":true}}");
    for (umask, listen, mode) in [("022", &plain, 0o755), ("007", &plain, 0o770), ("022", &open, 0o777)] {
        let server = start(umask, listen, "");
        assert_eq!(place.mode(), mode, "{umask} {listen}");
        end(server);
        assert!(place.socket().exists(), "a signal leaves it behind");
        let said = place.refused(&["node", &page, listen]);
        assert!(said.contains("EADDRINUSE"), "{said}");
        fs::remove_file(place.socket()).unwrap();
    }
    let mut server = start("022", &plain, "");
    place.assert_verified("node");
    answers(&place.socket(), "/end");
    server.0.wait().unwrap();
    assert!(place.socket().exists(), "so does process.exit()");
    fs::remove_file(place.socket()).unwrap();
    end(start("022", &plain, "close"));
    assert!(!place.socket().exists(), "server.close() removes it");
    let cluster = start("022", &plain, "cluster");
    place.assert_verified("node");
    answers(&place.socket(), "/end");
    for _ in 0..20 {
        // Whoever was waiting at the worker that ended is lost; the others are served.
        wait_for("the other worker", || answers(&place.socket(), "/"));
    }
    end(cluster);
}

#[test]
fn tomcat_makes_its_socket_as_the_umask_says_and_removes_it() {
    assert_said(Kind::Tomcat, &["the umask leaves", "removes the file when it ends by SIGTERM"]);
    let place = Place::new();
    let path = place.socket().display().to_string();
    let connector =
        format!("protocol=\"org.apache.coyote.http11.Http11NioProtocol\" unixDomainSocketPath=\"{path}\"");
    let words = tomcat(place.0.path(), &connector);
    let narrow = place.start("077", &words.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(place.mode(), 0o700);
    place.assert_verified("java");
    end(narrow);
    assert!(!place.socket().exists());
}

#[test]
fn how_has_the_sentences() {
    let home = Home::new();
    for kind in ["node", "uvicorn", "gunicorn", "puma", "tomcat"] {
        // Another test's may listen already; at this path nobody does.
        let answer = home.run(&["how", kind, "--url", "unix:/run/nowhere/app.sock", "--json"]);
        let answer: serde_json::Value = serde_json::from_str(&answer.stdout).unwrap();
        let steps: Vec<&str> =
            answer["server"].as_array().unwrap().iter().map(|step| step.as_str().unwrap()).collect();
        let known = Kind::named(kind).unwrap().descriptor();
        assert!(known.about_socket.iter().all(|sentence| steps.contains(&sentence.as_str())), "{steps:?}");
        assert_eq!(steps.iter().any(|step| step.contains("listens on one address")), kind == "uvicorn");
    }
}

#[test]
fn switch_notes_the_sentences() {
    if !is_root() {
        not_tested("without root: switch and units, which are shown to it in a mount namespace");
        return;
    }
    let (home, place) = (Home::new(), Place::new());
    let (web, app) = (free_port(), free_port());
    let bind = format!("127.0.0.1:{app}");
    let unit = format!("[Service]\nUser=root\nExecStart=/usr/bin/gunicorn --bind {bind} page:wsgi\n");
    fs::create_dir(place.file("units")).unwrap();
    fs::write(place.file("units/app.service"), unit).unwrap();
    fs::set_permissions(place.0.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let server = format!("listen 127.0.0.1:{web}; location / {{ proxy_pass http://{bind}; }}");
    let nginx = format!(
        "daemon off;\nmaster_process off;\npid {};\nerror_log stderr;\nevents {{}}\nhttp {{\n  access_log off;\n  server {{ {server} }}\n}}\n",
        place.file("nginx.pid")
    );
    fs::write(place.file("nginx.conf"), nginx).unwrap();
    let (folder, config) = (place.file(""), place.file("nginx.conf"));
    let started = |words: &[&str], port: u16| {
        let server = Server(place.command("022", words).spawn().unwrap());
        wait_for(words[0], || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
        server
    };
    let gunicorn = started(&["gunicorn", "page:wsgi", "--bind", &bind], app);
    let nginx = started(&["nginx", "-p", &folder, "-c", &config, "-e", "stderr"], web);
    let shown = "mount --bind \"$1\" /etc/systemd/system && shift && exec \"$@\"";
    let run = tempfile::tempdir_in("/run").unwrap();
    fs::set_permissions(run.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let socket = run.path().join("app.sock").display().to_string();
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", shown, "sh", &place.file("units"), SAMEHOST, "switch", &config])
        .args(["/etc/systemd/system/app.service", "--socket", &socket, "--dry-run", "--json"])
        .env("XDG_STATE_HOME", home.path("state"))
        .output()
        .unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let notes = answer["notes"].as_array().unwrap();
    for sentence in &Kind::Gunicorn.descriptor().about_socket {
        assert!(notes.iter().any(|note| note == sentence), "{sentence}: {answer:#}");
    }
    [nginx, gunicorn].into_iter().for_each(end);
}
