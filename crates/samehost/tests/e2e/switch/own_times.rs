//! How long an application's requests took before a switch, and since: a Redis that is asked to wait for so long as a file says.

use std::fs;
use std::process::Command;

use serde_json::Value;

use super::stack::{Ended, Stack, in_one_line, is_root, wait_for};
use crate::support::SAMEHOST;

/// Asks on one connection (Redis looks at who waits ten times a second), and has the server wait as long as `waits` says of its transport; where that says nothing it asks once.
const WORKER: &str = "import os, time, redis
url = [line.split('=', 1)[1].strip() for line in open('.env') if line.startswith('REDIS_URL=')][0]
waits = dict(line.split() for line in open('waits'))
db = redis.Redis.from_url(url)
db.ping()
open('asked', 'w').write('.')
seconds = waits.get(url.split(':')[0])
while seconds:
    db.blpop('nothing', float(seconds))
time.sleep(600)
";

/// An application at work on a Redis.
struct AtWork {
    stack: Stack,
    env: String,
    /// The folder that the worker runs from.
    works_in: &'static str,
}

impl AtWork {
    fn start(waits: &str) -> Self {
        AtWork::start_in("app", waits)
    }

    fn start_in(works_in: &'static str, waits: &str) -> Self {
        let mut stack = Stack::new();
        let (port, ..) = stack.redis();
        let settings = format!("DJANGO_SETTINGS_MODULE=a.b\nREDIS_URL=redis://127.0.0.1:{port}/0\n");
        stack.write(&format!("{works_in}/.env"), &settings);
        let env = stack.write("app/.env", &settings);
        stack.write("app/manage.py", "#!/usr/bin/env python3\nimport django\n");
        stack.write(&format!("{works_in}/worker.py"), WORKER);
        stack.write(&format!("{works_in}/waits"), waits);
        for folder in ["app", works_in] {
            samehost_testing::must("chown", &["-R", "www-data", &stack.path(folder).display().to_string()]);
        }
        let mut at_work = AtWork { env: env.display().to_string(), stack, works_in };
        at_work.start_worker();
        at_work
    }

    fn start_worker(&mut self) {
        let folder = self.stack.path(self.works_in);
        let asked = folder.join("asked");
        let _ = fs::remove_file(&asked);
        let folder = folder.display().to_string();
        let user = ["setpriv", "--reuid=www-data", "--regid=www-data", "--clear-groups"];
        self.stack.start("env", &[&["-C", &folder][..], &user, &["/usr/bin/python3", "worker.py"]].concat());
        wait_for("the worker's first request", || asked.exists().then_some(()));
    }

    /// Switches, and starts the worker again.
    fn switch(&mut self, more: &[&str]) -> Ended {
        let ended = self
            .stack
            .samehost(&[&["switch", self.env.as_str(), "--yes", "--confirm-within=0"], more].concat());
        assert_eq!(ended.status, 0, "{}\n{}", ended.both(), self.stack.log());
        self.stack.stop_last();
        self.start_worker();
        ended
    }

    fn check(&self) -> Value {
        let ended = self.stack.samehost(&["switch", "check", "--wait", "5s", "--json"]);
        assert_eq!(ended.status, 0, "{}", ended.both());
        serde_json::from_str(&ended.stdout).unwrap()
    }

    /// What `check` says of the times of the only connection.
    fn times(&self) -> Value {
        let found = self.check();
        assert_eq!(found[0]["standing"], "in_use", "{found}");
        assert_eq!(found[0]["times"].as_array().unwrap().len(), 1, "{found}");
        found[0]["times"][0].clone()
    }

    fn why(&self) -> (String, String) {
        let not = self.times()["not_compared"].clone();
        let text = |name: &str| not[name].as_str().unwrap_or_default().to_owned();
        (text("because"), text("why"))
    }

    /// `samehost switch` by another program, which takes something away from it.
    fn switch_by(&mut self, words: &[&str]) {
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .args([SAMEHOST, "switch", &self.env, "--yes", "--confirm-within=0", "--exact"]);
        let output = command.env("XDG_STATE_HOME", self.stack.path("state")).output().unwrap();
        let ended = Ended::of(&output);
        assert_eq!(ended.status, 0, "{}", ended.both());
        self.stack.stop_last();
        self.start_worker();
    }
}

#[test]
fn slower_and_faster_requests_since_a_switch_are_told_and_an_old_journal_is_read() {
    if !is_root("slower_and_faster_requests_since_a_switch_are_told_and_an_old_journal_is_read") {
        return;
    }
    for (waits, is_slower) in [("redis 0.05\nunix 0.15\n", true), ("redis 0.15\nunix 0.05\n", false)] {
        let mut at_work = AtWork::start(waits);
        let switched = at_work.switch(&["--exact"]);
        let said = in_one_line(&switched);
        assert!(
            said.contains("a request of REDIS_URL took") && said.contains("samehost switch check"),
            "{said}"
        );
        let times = at_work.times();
        let number = |of: &Value, name: &str| of[name].as_f64().unwrap_or_else(|| panic!("{name}: {times}"));
        assert!(
            number(&times["before"], "mean_us") >= 50_000.0 && number(&times["after"], "mean_us") >= 50_000.0
        );
        let ratio = &times["ratio"];
        let (low, high) = (number(ratio, "low"), number(ratio, "high"));
        assert!(low <= number(ratio, "ratio") && number(ratio, "ratio") <= high, "{times}");
        assert!(if is_slower { low > 1.0 } else { high < 1.0 }, "{times}");
        assert!(number(&times, "apart_s") > 0.0);
        let shown = at_work.stack.samehost(&["switch", "check"]);
        let said = in_one_line(&shown);
        let words = if is_slower { "% more time" } else { "% less time" };
        for needed in [words, "95 % confidence", "hours differ", "run --trial"] {
            assert!(said.contains(needed), "{needed}: {said}");
        }
        // A version that kept no times has left none.
        let id = at_work.stack.only_switch();
        for note in at_work.stack.files_with("blocks_us") {
            assert!(note.ends_with(format!("{id}/times")), "{}", note.display());
            fs::remove_file(note).unwrap();
        }
        let found = at_work.check();
        assert!(found[0]["standing"] == "in_use" && found[0]["times"] == serde_json::json!([]), "{found}");
        let forgotten = at_work.stack.samehost(&["switch", "prune", &id, "--yes"]);
        assert_eq!(forgotten.status, 0, "{}", forgotten.both());
    }
}

#[test]
fn requests_that_take_as_long_since_a_switch_show_no_difference() {
    if !is_root("requests_that_take_as_long_since_a_switch_show_no_difference") {
        return;
    }
    // Between two of the server's looks: a wait that ends at a look is found by it, or by the next one, twice as late.
    let mut at_work = AtWork::start("redis 0.05\nunix 0.05\n");
    at_work.switch(&["--exact"]);
    // An interval of 95 % leaves the truth out in one of twenty looks.
    let mut said = String::new();
    for _ in 0..3 {
        said = in_one_line(&at_work.stack.samehost(&["switch", "check"]));
        // The second one says more: that there is none, where the first says that none is shown.
        if said.contains("no difference beyond 2 % is shown") || said.contains("the same within 2 %") {
            return;
        }
    }
    panic!("{said}");
}

#[test]
fn a_switch_of_an_application_that_is_silent_says_so() {
    if !is_root("a_switch_of_an_application_that_is_silent_says_so") {
        return;
    }
    let mut at_work = AtWork::start("");
    at_work.switch(&["--exact"]);
    assert_eq!(at_work.why(), ("before".into(), "no_exchange".into()));
    let mut at_work = AtWork::start("redis 0.01\n");
    at_work.switch(&["--exact"]);
    assert_eq!(at_work.why(), ("after".into(), "no_exchange".into()));
    let said = in_one_line(&at_work.stack.samehost(&["switch", "check"]));
    assert!(said.contains("are not compared with those before: now nothing was exchanged"), "{said}");
}

#[test]
fn connections_of_a_program_that_is_not_known_as_the_application_are_not_compared() {
    if !is_root("connections_of_a_program_that_is_not_known_as_the_application_are_not_compared") {
        return;
    }
    let mut at_work = AtWork::start_in("elsewhere", "redis 0.01\n");
    at_work.switch(&["--exact", "--user", "www-data"]);
    let not = at_work.check()[0]["times"][0]["not_compared"].clone();
    assert_eq!((&not["because"], &not["why"]), (&"before".into(), &"others_only".into()), "{not}");
    let said = in_one_line(&at_work.stack.samehost(&["switch", "check"]));
    assert!(said.contains("not known as this file's application: samehost scan names them"), "{said}");
}

#[test]
fn without_the_rights_or_the_kernels_types_a_switch_is_made_and_nothing_compared() {
    if !is_root("without_the_rights_or_the_kernels_types_a_switch_is_made_and_nothing_compared") {
        return;
    }
    let hidden = "mount -t tmpfs none /sys/kernel/btf && exec \"$@\"";
    let without_types = ["unshare", "--mount", "--propagation", "private", "sh", "-c", hidden, "sh"];
    let without_rights = ["setpriv", "--bounding-set", "-bpf,-perfmon,-sys_admin"];
    for (words, why) in [(&without_types[..], "no_types"), (&without_rights, "no_rights")] {
        let mut at_work = AtWork::start("redis 0.01\nunix 0.01\n");
        at_work.switch_by(words);
        assert_eq!(at_work.why(), ("before".into(), why.into()));
    }
}
