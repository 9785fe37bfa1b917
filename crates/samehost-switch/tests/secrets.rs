//! No password stands in what is told: each one of the corpus is replaced by one drawn at random, of several alphabets and
//! escaped as several languages would, and each case gets one more where its format has a place for it. Then neither it
//! nor any escaped form of it may stand in a refusal, a plan or a diff, for the terminal or as JSON, in an error, or in
//! what a transaction leaves, its backups apart, which only their owner may read.

#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "../../samehost-edit/tests/corpus/case.rs"]
#[allow(dead_code, reason = "the corpus needs more of it")]
mod case;
#[path = "../../samehost-edit/tests/corpus/tear.rs"]
#[allow(dead_code, reason = "the corpus needs more of it")]
mod tear;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use samehost_edit::{EDITORS, Editor, Move, Reading, propose};
use samehost_model::redact::secrets_in;
use samehost_model::scan::{
    Address, NetworkNamespace, ReadBy, Scan, Service, Socket, SocketKind, SocketState,
};
use samehost_model::switch::SwitchOutcome;
use samehost_model::{Endpoint, Protocol};
use samehost_report::Terminal;
use samehost_switch::{Direction, Disk, Environment, SwitchRequest, apply, connecting, plan};
use samehost_transaction::Store;

use case::Case;
use tear::drawn;

/// Alphabets that passwords are drawn from; long enough to stand nowhere by chance.
const ALPHABETS: &[&str] = &[
    "[a-zA-Z0-9]{14,20}",
    "[a-z]{3}[@:/%'\"$\\\\<&; a-zA-Z0-9]{10,16}[A-Z][0-9]",
    "[a-zäöüßéł日本語😀]{8,12}[0-9]ö[a-z]{3}",
];

/// How a password is written in a file.
type Written = fn(&str) -> String;
const WRITTEN: &[Written] = &[
    str::to_owned,
    |text| text.bytes().map(percent).collect(),
    |text| text.replace('\\', "\\\\").replace('\'', "\\'").replace('"', "\\\"").replace('$', "\\$"),
    |text| text.replace('\'', "''").replace('$', "$$").replace('%', "%%"),
];

fn percent(byte: u8) -> String {
    if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") }
}

/// A password where a case has one.
struct Drawn {
    plain: String,
    written: String,
}

impl Drawn {
    /// What may stand nowhere.
    fn forms(&self) -> BTreeSet<String> {
        let mut forms = BTreeSet::new();
        for text in [&self.plain, &self.written] {
            let json = serde_json::to_string(text).unwrap();
            let html =
                text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;").replace('\'', "&#39;");
            forms.extend(WRITTEN.iter().map(|written| written(text)));
            forms.extend([json.trim_matches('"').to_owned(), html, samehost_model::printable::clean(text)]);
        }
        forms
    }
}

/// What was told of one case with one password.
#[derive(Default)]
struct Told {
    words: Vec<(&'static str, String)>,
    planned: bool,
}

#[test]
fn no_password_of_the_corpus_is_told_as_root() {
    let mut runner = TestRunner::new(drawn(1));
    let (mut cases, mut with_password, mut planned, mut hidden, mut begun) = (0, 0, 0, 0, 0);
    let mut wrong = Vec::new();
    for editor in EDITORS {
        for case in Case::all(editor.name()) {
            cases += 1;
            let known = passwords(*editor, &case);
            with_password += usize::from(!known.is_empty());
            let mut is_seen = false;
            for (alphabet, written) in variants(cases) {
                let plain = alphabet.new_tree(&mut runner).unwrap().current();
                let drawn = Drawn { written: written(&plain), plain };
                let root = case.materialise();
                if !put_in(*editor, &case, root.path(), &known, &drawn.written) && is_seen {
                    // There is no place for a password in it, and once is enough.
                    continue;
                }
                is_seen = true;
                let mut told = told(*editor, &case, root.path());
                planned += usize::from(told.planned);
                // What a transaction leaves is looked at for some: each writes and syncs for a while.
                if told.planned && planned % 40 == 1 {
                    begun += 1;
                    left_by_a_transaction(&case, root.path(), &drawn, &mut told);
                }
                hidden += told.words.iter().filter(|(_, words)| words.contains("***")).count();
                for (what, words) in &told.words {
                    let shown = drawn.forms().into_iter().find(|form| words.contains(form.as_str()));
                    wrong.extend(
                        shown.map(|form| format!("{}: {what} has {form}:\n{words}", case.path.display())),
                    );
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} tell a password; the first:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(5)].join("\n\n")
    );
    assert!(cases >= 1000 && with_password >= 60, "{cases} cases, {with_password} with a password");
    // Nobody but root may change what the plans here would.
    let least = if rustix::process::geteuid().is_root() { (700, 150, 15) } else { (0, 50, 0) };
    assert!(
        planned >= least.0 && hidden >= least.1 && begun >= least.2,
        "{planned} planned, {hidden} hidden, {begun} begun"
    );
}

/// What is drawn for the case of this number: plain, full of signs in two ways of writing them that take turns, and of
/// other scripts.
fn variants(number: usize) -> impl Iterator<Item = (BoxedStrategy<String>, &'static Written)> {
    let way = |at: usize| &WRITTEN[at % WRITTEN.len()];
    let each = [(0, way(0)), (1, way(number)), (1, way(number + 1)), (2, way(0))];
    each.into_iter()
        .map(|(at, written)| (proptest::string::string_regex(ALPHABETS[at]).unwrap().boxed(), written))
}

/// The passwords that a case has: those of its connections, and what stands where secrets stand.
fn passwords(editor: &dyn Editor, case: &Case) -> BTreeSet<String> {
    let root = case.materialise();
    let reading = editor.read(&case.file(root.path()), &Disk::default()).unwrap_or_default();
    let mut found: BTreeSet<String> = reading
        .settings
        .iter()
        .filter_map(|setting| Some(setting.password.as_ref()?.reveal().to_owned()))
        .collect();
    found.extend(secrets_in(&case.text()).iter().map(|secret| secret.reveal().to_owned()));
    found
}

/// Replaces the passwords in the files of a case, and adds one where the format has a place for it; whether it
/// is in one now.
fn put_in(editor: &dyn Editor, case: &Case, root: &Path, known: &BTreeSet<String>, written: &str) -> bool {
    let mut is_changed = false;
    for name in case.before.keys() {
        let path = root.join(name);
        let bytes = std::fs::read(&path).unwrap();
        let Ok(mut text) = String::from_utf8(bytes) else { continue };
        for password in known {
            if password.len() > 3 {
                text = text.replace(password.as_str(), written);
            }
            // A short one is one only where passwords stand.
            for (open, close) in
                [(":", "@"), ("'", "'"), ("\"", "\""), ("=", "\n"), (": ", "\n"), (" ", "\n")]
            {
                text = text.replace(&format!("{open}{password}{close}"), &format!("{open}{written}{close}"));
            }
        }
        if path == case.file(root) {
            match editor.name() {
                "wp-config" | "drupal" => {
                    text = text.replacen("<?php", &format!("<?php\ndefine('AUTH_KEY', '{written}');"), 1);
                }
                "dotenv" => text += &format!("MAIL_PASSWORD='{written}'\n"),
                "redis" => text += &format!("masterauth \"{written}\"\n"),
                "my-cnf" => text += &format!("[mysqldump]\npassword = \"{written}\"\n"),
                "php-fpm" => text += &format!("env[API_TOKEN] = \"{written}\"\n"),
                "systemd" => text += &format!("\n[Service]\nEnvironment=\"A=b\" \"TOKEN={written}\"\n"),
                "nginx" => text = format!("# api_key = {written}\n{text}"),
                "postgresql" => text += &format!("primary_conninfo = 'host=h password={written}'\n"),
                _ => {}
            }
        }
        is_changed |= text.contains(written);
        std::fs::write(path, text).unwrap();
    }
    is_changed
}

/// Everything that is told of a case without touching anything.
fn told(editor: &dyn Editor, case: &Case, root: &Path) -> Told {
    let mut told = Told::default();
    let file = case.file(root);
    let reading = match editor.read(&file, &Disk::default()) {
        Ok(reading) => reading,
        Err(refusal) => {
            told.words.push(("the refusal", refusal.to_string()));
            Reading::default()
        }
    };
    for refusal in &reading.refused {
        told.words.push(("a refusal of one connection", refusal.to_string()));
    }
    for setting in &reading.settings {
        let said = format!("{} {} {}", setting.name, setting.written, setting.endpoint);
        told.words.push(("a setting", said));
        if let Some(goal) = case.goal(root, setting) {
            let moves = [Move { setting: setting.clone(), goal }];
            if let Err(error) = propose(editor, &file, &Disk::default(), &moves) {
                told.words.push(("why an edit is not made", error.to_string()));
            }
        }
    }
    let scan = machine(&reading, root);
    if let Err(error) = connecting(&file.display().to_string(), &scan) {
        told.words.push(("why nothing is verified", error.to_string()));
    }
    for to in [Direction::Unix, Direction::Tcp] {
        let request = request(&file, to, root);
        match plan(&request, &scan) {
            Ok(plan) => {
                let report = plan.report(&request);
                told.planned |= report.outcome == SwitchOutcome::Planned && to == Direction::Unix;
                told.words.push(("the plan as JSON", serde_json::to_string_pretty(&report).unwrap()));
                let mut bytes = Vec::new();
                Terminal { width: 100_000, color: false }.render_switch(&report, &mut bytes).unwrap();
                told.words.push(("the plan", String::from_utf8(bytes).unwrap()));
            }
            Err(error) => told.words.push(("why there is no plan", error.to_string())),
        }
    }
    told
}

/// A switch that cannot be proved, since nobody answers at the sockets: everything is put back, and what it said and left
/// has no password, but for backups that only their owner may read.
fn left_by_a_transaction(case: &Case, root: &Path, drawn: &Drawn, told: &mut Told) {
    let state = tempfile::tempdir().unwrap();
    let file = case.file(root);
    let reading = EDITORS
        .iter()
        .find_map(|editor| {
            editor.read(&file, &Disk::default()).ok().filter(|reading| !reading.settings.is_empty())
        })
        .unwrap_or_default();
    let (scan, request) = (machine(&reading, root), request(&file, Direction::Unix, root));
    let store = Store::open(state.path()).unwrap();
    let progress = std::cell::RefCell::new(String::new());
    let environment = Environment {
        program: Path::new("/bin/false"),
        store: &store,
        command: "samehost switch".into(),
        page: None,
        confirm_within: None,
        note: &Vec::new,
        is_interrupted: &|| false,
        progress: &|what| progress.borrow_mut().push_str(what),
        scan: &|| None,
        stamps: None,
    };
    match apply(plan(&request, &scan).unwrap(), &request, &environment) {
        Ok(report) => told.words.push(("what was done", serde_json::to_string(&report).unwrap())),
        Err(error) => told.words.push(("why it was not done", error.to_string())),
    }
    told.words.push(("progress", progress.into_inner()));
    for entry in store.list().unwrap() {
        told.words.push(("the list", format!("{entry:?}")));
    }
    for path in files_below(state.path()) {
        let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
        if path.iter().any(|part| part == "backup") {
            let mode = std::fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0, "{} may be read by others: {}", path.display(), drawn.written);
        } else {
            told.words.push(("a file of the state directory", text));
        }
    }
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

fn request(file: &Path, to: Direction, root: &Path) -> SwitchRequest {
    let socket = Some(root.join("s.sock"));
    SwitchRequest { socket, ..SwitchRequest::new(vec![file.display().to_string()], to) }
}

/// A machine on which something listens wherever the configuration leads, on a port and on a socket.
fn machine(reading: &Reading, root: &Path) -> Scan {
    let mut scan = Scan {
        network_namespaces: vec![NetworkNamespace {
            inode: 1,
            own: true,
            foreign: false,
            name: None,
            pid: None,
            read_by: ReadBy::SockDiag,
            refused: None,
            somaxconn: None,
        }],
        ..Scan::default()
    };
    for setting in &reading.settings {
        let port = match &setting.endpoint {
            Endpoint::Tcp { port, .. } => *port,
            _ => 6379,
        };
        let path = match (&setting.endpoint, setting.protocol) {
            (Endpoint::Unix(path), _) => path.clone(),
            (_, Protocol::Postgres) => root.join(format!(".s.PGSQL.{port}")),
            _ => root.join("s.sock"),
        };
        let at = scan.sockets.len();
        let tcp = Address::Inet(SocketAddr::from(([127, 0, 0, 1], port)));
        scan.sockets.push(listener(SocketKind::Tcp, tcp, at as u64));
        scan.sockets.push(listener(SocketKind::UnixStream, Address::Path(path), at as u64 + 1));
        scan.services.push(Service {
            kind: None,
            recognised_by: None,
            name: "server".into(),
            pid: None,
            processes: 1,
            network_namespace: 1,
            listeners: vec![at, at + 1],
            connections: 0,
        });
    }
    scan
}

fn listener(kind: SocketKind, local: Address, inode: u64) -> Socket {
    Socket { local, uid: Some(0), ..Socket::new(kind, SocketState::Listen, inode + 100, 1) }
}
