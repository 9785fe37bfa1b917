//! Programs that read their file when they start: none is called in use before it was started again, nor where a variable
//! goes before the file; each is called in use within five seconds of its first request.

use std::fs;
use std::path::PathBuf;

use samehost_testing::postgres::{self, Cluster};
use serde_json::Value;

use super::stack::{Ended, Stack, is_root, wait_for};
use crate::clients::node;

/// A program, its files, and how it is started.
struct Program {
    name: &'static str,
    /// Variable of its `.env` that leads to the server, with `%PORT%` in its value.
    variable: (&'static str, String),
    /// The file by which its language is known.
    known_by: (&'static str, &'static str),
    script: (&'static str, &'static str),
    interpreter: &'static str,
}

/// Reads `.env` as the libraries of each language do: what the environment has goes before the file.
const PYTHON: &str = "import os, time\nfor line in open('.env'):\n    name, _, value = line.strip().partition('=')\n    os.environ.setdefault(name, value.strip('\"'))\n";

const PSYCOPG: &str = "import psycopg2\nwhile True:\n    db = psycopg2.connect(os.environ['DATABASE_URL'])\n    db.cursor().execute('select 1')\n    time.sleep(0.05)\n    db.close()\n    open('asked', 'a').write('.')\n    time.sleep(0.1)\n";

const REDIS_PY: &str = "import redis\nwhile True:\n    db = redis.Redis.from_url(os.environ['REDIS_URL'])\n    db.ping()\n    time.sleep(0.05)\n    db.close()\n    open('asked', 'a').write('.')\n    time.sleep(0.1)\n";

const NODE_PG: &str = "const fs = require('fs');\nfor (const line of fs.readFileSync('.env', 'utf8').split('\\n')) {\n  const at = line.indexOf('=');\n  if (at > 0 && !(line.slice(0, at) in process.env)) process.env[line.slice(0, at)] = line.slice(at + 1).replace(/\"/g, '');\n}\nconst { Client } = require('pg');\nconst ask = async () => {\n  const db = new Client({ connectionString: process.env.DATABASE_URL });\n  await db.connect();\n  await db.query('select 1');\n  await new Promise((done) => setTimeout(done, 50));\n  await db.end();\n  fs.appendFileSync('asked', '.');\n  setTimeout(ask, 100);\n};\nask();\n";

const RUBY_PG: &str = "require 'pg'\nFile.readlines('.env', chomp: true).each { |line| name, value = line.split('=', 2); ENV[name] ||= value.delete('\"') if value }\nloop do\n  db = PG.connect(ENV['DATABASE_URL'])\n  db.exec('select 1')\n  sleep 0.05\n  db.close\n  File.write('asked', '.', mode: 'a')\n  sleep 0.1\nend\n";

/// The server of a program.
enum Server {
    Postgres(Cluster),
    Redis(u16),
}

impl Server {
    fn port(&self) -> u16 {
        match self {
            Server::Postgres(server) => server.port,
            Server::Redis(port) => *port,
        }
    }
}

/// A program at work, beside its server.
struct AtWork {
    stack: Stack,
    program: Program,
    _server: Server,
    over_tcp: String,
}

impl AtWork {
    fn new(stack: Stack, program: Program, server: Server) -> Self {
        let over_tcp = program.variable.1.replace("%PORT%", &server.port().to_string());
        stack.write(
            "app/.env",
            &format!("DJANGO_SETTINGS_MODULE=ledger.settings\n{}={over_tcp}\n", program.variable.0),
        );
        stack.write(&format!("app/{}", program.known_by.0), program.known_by.1);
        stack.write(&format!("app/{}", program.script.0), program.script.1);
        samehost_testing::must("chown", &["-R", "www-data", &stack.path("app").display().to_string()]);
        let mut at_work = AtWork { stack, program, _server: server, over_tcp };
        at_work.start(&[]);
        at_work
    }

    /// Starts the program, with these variables, and waits for its first request.
    fn start(&mut self, variables: &[&str]) {
        let _ = fs::remove_file(self.asked());
        let folder = self.stack.path("app").display().to_string();
        let modules = node().map(|folder| format!("NODE_PATH={}", folder.join("node_modules").display()));
        let modules = modules.unwrap_or_default();
        let mut words = vec!["-C", folder.as_str(), modules.as_str()];
        words.retain(|word| !word.is_empty());
        words.extend(variables);
        words.extend(["setpriv", "--reuid=www-data", "--regid=www-data", "--clear-groups"]);
        words.extend([self.program.interpreter, self.program.script.0]);
        self.stack.start("env", &words);
        let asked = self.asked();
        let name = self.program.name;
        if std::panic::catch_unwind(|| wait_for(name, || asked.exists().then_some(()))).is_err() {
            panic!("{name}: {}", self.stack.log());
        }
    }

    fn start_again(&mut self, variables: &[&str]) {
        self.stack.stop_last();
        self.start(variables);
    }

    fn asked(&self) -> PathBuf {
        self.stack.path("app/asked")
    }

    fn samehost(&self, words: &[&str]) -> (Ended, Value) {
        let ended = self.stack.samehost(&[words, &["--json"]].concat());
        let found = serde_json::from_str(&ended.stdout)
            .unwrap_or_else(|error| panic!("{}: {error}: {}", self.program.name, ended.both()));
        (ended, found)
    }

    /// `verify` with a wait: its exit status and how far it proves the file.
    fn verified(&self) -> (i32, String) {
        let env = self.stack.path("app/.env").display().to_string();
        let (ended, found) = self.samehost(&["verify", &env, "--expect", "unix", "--wait", "5s"]);
        (ended.status, found["standing"].as_str().unwrap_or_default().to_owned())
    }

    /// `switch check`: its exit status and how far it finds the switch in force.
    fn checked(&self) -> (i32, String) {
        let (ended, found) = self.samehost(&["switch", "check", "--wait", "5s"]);
        (ended.status, found[0]["standing"].as_str().unwrap_or_default().to_owned())
    }

    /// The file is moved; the program is not started again, then is, then has a variable that goes before the file.
    fn is_told_as_it_is(&mut self) {
        let name = self.program.name;
        let env = self.stack.path("app/.env").display().to_string();
        let (ended, report) = self.samehost(&["switch", &env, "--yes", "--confirm-within=0"]);
        assert_eq!(ended.status, 0, "{name}: {}", ended.both());
        assert_eq!(report["standing"], "tried", "{name}, which was not started again: {}", ended.both());
        assert_eq!(self.verified(), (1, "tried".into()), "{name}, which was not started again");
        assert_eq!(self.checked(), (1, "written".into()), "{name}, which was not started again");

        self.start_again(&[]);
        assert_eq!(self.verified(), (0, "in_use".into()), "{name}: {}", self.stack.log());
        assert_eq!(self.checked(), (0, "in_use".into()), "{name}");

        let before_the_file = format!("{}={}", self.program.variable.0, self.over_tcp);
        self.start_again(&[&before_the_file]);
        assert_eq!(self.verified().0, 1, "{name} with a variable that goes before its file");
        assert_eq!(self.checked(), (1, "written".into()), "{name} with a variable that goes before its file");
    }
}

#[test]
fn another_program_of_the_same_user_on_the_same_socket_is_not_the_application() {
    if !is_root("another_program_of_the_same_user_on_the_same_socket_is_not_the_application") {
        return;
    }
    let mut at_work = of_postgres(psycopg());
    let env = at_work.stack.path("app/.env").display().to_string();
    let ended = at_work.stack.samehost(&["switch", &env, "--yes", "--confirm-within=0"]);
    assert_eq!(ended.status, 0, "{}", ended.both());
    at_work.stack.stop_last();
    // It may read the file, and connects where the file leads.
    let other = at_work.stack.path("other");
    fs::create_dir(&other).unwrap();
    for name in [".env", "worker.py"] {
        fs::copy(at_work.stack.path("app").join(name), other.join(name)).unwrap();
    }
    samehost_testing::must("chown", &["-R", "www-data", &other.display().to_string()]);
    let words = ["setpriv", "--reuid=www-data", "--regid=www-data", "--clear-groups", "/usr/bin/python3"];
    let folder = other.display().to_string();
    at_work.stack.start("env", &[&["-C", &folder][..], &words, &["worker.py"]].concat());
    wait_for("the other program", || other.join("asked").exists().then_some(()));
    assert_eq!(at_work.verified().1, "tried");
    assert_eq!(at_work.checked(), (0, "written".into()));
}

fn postgres_url() -> String {
    format!("postgresql://by_scram:{}@127.0.0.1:%PORT%/shop", postgres::SECRET)
}

fn psycopg() -> Program {
    let script = format!("{PYTHON}{PSYCOPG}");
    Program {
        name: "psycopg2",
        variable: ("DATABASE_URL", postgres_url()),
        known_by: ("manage.py", "#!/usr/bin/env python3\nimport django\n"),
        script: ("worker.py", script.leak()),
        interpreter: "/usr/bin/python3",
    }
}

fn of_postgres(program: Program) -> AtWork {
    AtWork::new(Stack::new(), program, Server::Postgres(Cluster::start(20)))
}

#[test]
fn a_python_program_on_postgresql_is_told_as_it_is() {
    if !is_root("a_python_program_on_postgresql_is_told_as_it_is") {
        return;
    }
    of_postgres(psycopg()).is_told_as_it_is();
}

#[test]
fn a_node_program_on_postgresql_is_told_as_it_is() {
    if !is_root("a_node_program_on_postgresql_is_told_as_it_is") {
        return;
    }
    node().unwrap_or_else(|missing| panic!("{missing}"));
    of_postgres(Program {
        name: "node-postgres",
        variable: ("DATABASE_URL", postgres_url()),
        known_by: ("package.json", "{\"dependencies\": {\"dotenv\": \"^16\", \"pg\": \"^8\"}}\n"),
        script: ("server.js", NODE_PG),
        interpreter: "node",
    })
    .is_told_as_it_is();
}

#[test]
fn a_ruby_program_on_postgresql_is_told_as_it_is() {
    if !is_root("a_ruby_program_on_postgresql_is_told_as_it_is") {
        return;
    }
    of_postgres(Program {
        name: "ruby-pg",
        variable: ("DATABASE_URL", postgres_url()),
        known_by: ("Gemfile", "gem 'rails'\ngem 'pg'\n"),
        script: ("worker.rb", RUBY_PG),
        interpreter: "ruby",
    })
    .is_told_as_it_is();
}

#[test]
fn a_python_program_on_redis_is_told_as_it_is() {
    if !is_root("a_python_program_on_redis_is_told_as_it_is") {
        return;
    }
    let mut stack = Stack::new();
    let (port, ..) = stack.redis();
    let script = format!("{PYTHON}{REDIS_PY}");
    let program = Program {
        name: "redis-py",
        variable: ("REDIS_URL", "redis://127.0.0.1:%PORT%/0".into()),
        known_by: ("manage.py", "#!/usr/bin/env python3\nimport django\n"),
        script: ("worker.py", script.leak()),
        interpreter: "/usr/bin/python3",
    };
    AtWork::new(stack, program, Server::Redis(port)).is_told_as_it_is();
}
