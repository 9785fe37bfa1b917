//! The registries, walked: names unique, help present, completions and manual pages complete, and a dead endpoint
//! gives an error that names it.

use std::collections::BTreeSet;
use std::path::Path;

use samehost_bench::builtin_servers::SERVERS;
use samehost_bench::workloads::WORKLOADS;
use samehost_model::Transport;
use samehost_testing::must;

use crate::support::Home;

#[test]
fn every_workload_has_help_an_example_and_unique_names() {
    let home = Home::new();
    let mut names = BTreeSet::new();
    for workload in WORKLOADS {
        assert!(names.insert(workload.name()), "{} stands twice", workload.name());
        assert!(!workload.description().about.is_empty());
        assert!(
            workload.description().example.starts_with(workload.name()),
            "{}",
            workload.description().example
        );
        let help = home.run(&["bench", workload.name(), "--help"]).stdout;
        assert!(help.contains(workload.description().about), "{help}");
        assert!(help.contains(workload.description().example), "{help}");
        let mut parameters = BTreeSet::new();
        for parameter in workload.parameters() {
            assert!(parameters.insert(parameter.name));
            assert!(help.contains(&format!("--{}", parameter.name)), "{help}");
        }
    }
    let overview = home.run(&["bench", "--help"]).stdout;
    assert!(names.iter().all(|name| overview.contains(*name)), "{overview}");
}

#[test]
fn completions_and_manual_pages_know_every_verb() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = home.run(&["completions", shell]).stdout;
        assert!(script.contains("samehost") && script.contains("reproduce"), "{shell}");
    }
    let script = home.path("samehost.bash");
    std::fs::write(&script, home.run(&["completions", "bash"]).stdout).unwrap();
    let offered = offered_by_bash(&script, &["samehost", ""]);
    let listed = home.run(&["--help"]).stdout;
    for unlisted in ["serve", "man"] {
        assert!(offered.iter().any(|verb| verb == unlisted), "{offered:?}");
        assert!(!listed.contains(&format!("  {unlisted} ")), "{listed}");
        assert_eq!(home.run(&[unlisted, "--help"]).status, 0);
    }
    assert!(!offered.iter().any(|verb| verb == "supervise"), "{offered:?}");
    let pages = home.path("man");
    assert_eq!(home.run(&["man", pages.to_str().unwrap()]).status, 0);
    let page = std::fs::read_to_string(pages.join("samehost-bench-raw.1")).unwrap();
    assert!(page.contains("placement"), "{page}");
    let page = std::fs::read_to_string(pages.join("samehost.1")).unwrap();
    assert!(pages.join("samehost-serve.1").exists() && page.contains("samehost\\-serve"), "{page}");
}

/// What bash offers for the last word of a command line.
fn offered_by_bash(script: &Path, line: &[&str]) -> Vec<String> {
    let ask = format!(
        "source {}; COMP_WORDS=({}); COMP_CWORD={}; _samehost samehost \"$1\" \"$2\"; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        script.display(),
        line.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" "),
        line.len() - 1
    );
    let [.., before, last] = line else { panic!("a command line has two words") };
    let said = must("bash", &["-c", &ask, "bash", last, before]);
    said.lines().map(str::to_owned).collect()
}

/// What zsh makes of a command line when the tab key is pressed at its end: it runs on a terminal of its own, where `samehost` is a
/// function that prints its words.
const PRESSED_IN_ZSH: &str = r#"
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1=; unsetopt beep; autoload -Uz compinit; compinit -D -u; source $1; samehost() { print -r -- \"<<\$*>>\" }"
zpty -w -n shell "$2"$'\t\n'
zpty -r shell found $'*<<[a-z]*>>*'
print -r -- ${${found##*<<}%%>>*}
zpty -d shell
"#;

fn completed_by_zsh(script: &Path, line: &str) -> String {
    let script = script.to_str().unwrap();
    // Where nothing comes of it, nothing is printed, and the read of the terminal has no end.
    let words = ["20", "zsh", "-f", "-c", PRESSED_IN_ZSH, "zsh", script, line];
    must("timeout", &words).trim().to_owned()
}

#[test]
fn completions_know_services_clients_and_placements_with_programs() {
    let home = Home::new();
    let script = home.path("samehost.bash");
    std::fs::write(&script, home.run(&["completions", "bash"]).stdout).unwrap();
    for (line, word) in [
        (&["samehost", "how", "mar"][..], "mariadb"),
        (&["samehost", "how", "type"], "typeorm"),
        (&["samehost", "switch", "mar"], "mariadb"),
        (&["samehost", "verify", "mar"], "mariadb"),
        (&["samehost", "scan", "post"], "postgres"),
        (&["samehost", "how", "mysql", "--client", "hik"], "hikaricp"),
        (&["samehost", "bench", "redis", "--placement", "same"], "same-core"),
    ] {
        let offered = offered_by_bash(&script, line);
        assert!(offered.iter().any(|one| one == word), "{line:?}: {offered:?}");
    }
    for shell in ["zsh", "fish"] {
        let script = home.run(&["completions", shell]).stdout;
        for word in ["mariadb", "typeorm", "same-core"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
        let file = home.path(shell);
        std::fs::write(&file, script).unwrap();
        must(shell, &["-n", file.to_str().unwrap()]);
    }
    let fish = format!("source {}; complete -C 'samehost how typeo'", home.path("fish").display());
    assert_eq!(must("fish", &["-c", &fish]).trim(), "typeorm");
    for (line, whole) in [
        ("samehost how typeo", "how typeorm"),
        ("samehost verify mariad", "verify mariadb"),
        ("samehost how mysql --client hik", "how mysql --client hikaricp"),
        ("samehost bench redis --placement same", "bench redis --placement same-core"),
    ] {
        assert_eq!(completed_by_zsh(&home.path("zsh"), line), whole);
    }
    // What is offered is not all that is allowed.
    assert_eq!(home.run(&["how", "postgresql", "--client", "Prisma PostgreSQL"]).status, 0);
}

#[test]
fn a_dead_endpoint_is_named() {
    let home = Home::new();
    let dead = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let tcp = format!("tcp:{dead}");
    let unix = format!("unix:{}", home.path("dead.sock").display());
    for workload in WORKLOADS {
        let defaults = samehost_bench::workload::defaults(*workload);
        if !workload.configure(&defaults).unwrap().axes().foreign_servers {
            continue;
        }
        for (transport, endpoint) in [(Transport::Tcp, &tcp), (Transport::Unix, &unix)] {
            let option = format!("--{transport}");
            let ended =
                home.run(&["bench", workload.name(), "--transports", transport.name(), &option, endpoint]);
            assert_eq!(ended.status, 3, "{}: {}", workload.name(), ended.stderr);
            let address = endpoint.split_once(':').unwrap().1;
            assert!(ended.stderr.contains(address), "{}: {}", workload.name(), ended.stderr);
        }
    }
    home.assert_nothing_left();
}

#[test]
fn every_server_is_listed() {
    let home = Home::new();
    let help = home.run(&["serve", "--help"]).stdout;
    for server in SERVERS {
        assert!(help.contains(server.name) && !server.about.is_empty(), "{help}");
    }
}
