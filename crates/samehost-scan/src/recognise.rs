//! Recognises services: first by program or command line, then by the name of a socket file, and by port only
//! when the process is not visible.

use std::path::Path;

use samehost_model::scan::{Process, RecognisedBy};
use samehost_services::Kind;

use crate::java::main_class;

/// Interpreters; their service is recognised from the command line.
const INTERPRETERS: &[&str] =
    &["python", "ruby", "perl", "node", "php", "java", "beam.smp", "bash", "sh", "dash"];

fn base_name(path: &str) -> &str {
    Path::new(path).file_name().and_then(std::ffi::OsStr::to_str).unwrap_or(path)
}

fn by_process(process: &Process) -> Option<Kind> {
    let program = process.executable.as_deref().map(|path| base_name(path.trim_end_matches(" (deleted)")));
    let interpreted = program.is_none_or(|name| INTERPRETERS.iter().any(|one| name.starts_with(one)));
    let words = || {
        let words = process.command_line.iter().take(4);
        // A process title is one word with blanks: `puma 6.4 (tcp://…)`, `gunicorn: master`.
        words.flat_map(|word| [base_name(word), word.split([' ', ':']).next().unwrap_or(word)])
    };
    program
        .and_then(Kind::of_program)
        .or_else(|| Kind::of_program(&process.name))
        .or_else(|| if interpreted { words().find_map(Kind::of_program) } else { None })
        .or_else(|| {
            let is_java = program == Some("java");
            if is_java { main_class(&process.command_line).and_then(Kind::of_class) } else { None }
        })
        .or_else(|| {
            let is_erlang = program == Some("beam.smp");
            let rabbit = process.command_line.iter().any(|word| word.contains("rabbit"));
            if is_erlang && rabbit { Some(Kind::Rabbitmq) } else { None }
        })
}

/// Recognises a service by its process, else by the names of its socket files, else, when its process is not
/// visible, by its ports.
pub(crate) fn recognise(
    process: Option<&Process>,
    sockets: &[&Path],
    ports: &[u16],
) -> Option<(Kind, RecognisedBy)> {
    let by_socket = || {
        let is_its = |path: &&Path, name: &str| {
            path.file_name().is_some_and(|found| !name.is_empty() && found == name)
        };
        Kind::all().find(|kind| sockets.iter().any(|path| is_its(path, kind.descriptor().socket_name())))
    };
    let by_port = || Kind::all().find(|kind| kind.descriptor().ports.iter().any(|port| ports.contains(port)));
    process
        .and_then(by_process)
        .map(|kind| (kind, RecognisedBy::Process))
        .or_else(|| by_socket().map(|kind| (kind, RecognisedBy::Socket)))
        .or_else(|| if process.is_none() { by_port().map(|kind| (kind, RecognisedBy::Port)) } else { None })
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
        recognise(Some(&process), &[], &[3306]).map(|(kind, _)| kind.name())
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
        let tomcat = ["java", "-cp", "/t.jar", "org.apache.catalina.startup.Bootstrap", "start"];
        let java = "/usr/lib/jvm/java-17-openjdk-amd64/bin/java";
        assert_eq!(kind(java, "java", &tomcat), Some("tomcat"));
        assert_eq!(kind(java, "java", &["java", "-cp", "/k.jar", "kafka.Kafka"]), Some("kafka"));
        assert_eq!(kind("/usr/bin/vi", "vi", &tomcat), None, "the executable says what it is");
        assert_eq!(kind("", "redis-server", &[]), Some("redis"));
        assert_eq!(kind("/usr/bin/vi", "vi", &["vi", "nginx"]), None, "a file name is no proof");
        assert_eq!(kind("/usr/bin/redis-server-wrapper", "x", &[]), None);
    }

    #[test]
    fn sockets_and_ports_are_the_last_resort() {
        let found = recognise(None, &[Path::new("/run/mysqld/mysqld.sock")], &[]).unwrap();
        assert_eq!(found, (Kind::Mariadb, RecognisedBy::Socket));
        assert_eq!(recognise(None, &[], &[6379]).unwrap(), (Kind::Redis, RecognisedBy::Port));
        assert!(recognise(Some(&Process::default()), &[], &[6379]).is_none());
    }
}
