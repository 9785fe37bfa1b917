//! Recognises services: first by program or command line, then by the name of a socket file, and by port only
//! when the process is not visible.

use std::path::Path;

use samehost_model::scan::{Process, RecognisedBy};
use samehost_services::Kind;

/// Interpreters; their service is recognised from the command line.
const INTERPRETERS: &[&str] =
    &["python", "ruby", "perl", "node", "php", "java", "beam.smp", "bash", "sh", "dash"];

fn base_name(path: &str) -> &str {
    Path::new(path).file_name().and_then(std::ffi::OsStr::to_str).unwrap_or(path)
}

fn by_process(process: &Process) -> Option<Kind> {
    let program = process.executable.as_deref().map(|path| base_name(path.trim_end_matches(" (deleted)")));
    for name in program.into_iter().chain([process.name.as_str()]) {
        if let Some(kind) = Kind::of_program(name) {
            return Some(kind);
        }
    }
    let is_interpreted = program.is_none_or(|name| INTERPRETERS.iter().any(|one| name.starts_with(one)));
    if is_interpreted && let Some(kind) = by_command_line(process) {
        return Some(kind);
    }
    match program {
        Some("java") => main_class(&process.command_line).and_then(Kind::of_class),
        Some("beam.smp") if process.command_line.iter().any(|word| word.contains("rabbit")) => {
            Some(Kind::Rabbitmq)
        }
        _ => None,
    }
}

/// Recognises a service by its process, else by the names of its socket files, else, when its process is not
/// visible, by its ports.
pub(crate) fn recognise(
    process: Option<&Process>,
    sockets: &[&Path],
    ports: &[u16],
) -> Option<(Kind, RecognisedBy)> {
    if let Some(kind) = process.and_then(by_process) {
        return Some((kind, RecognisedBy::Process));
    }
    if let Some(kind) = by_socket(sockets) {
        return Some((kind, RecognisedBy::Socket));
    }
    if process.is_some() {
        return None;
    }
    Some((by_port(ports)?, RecognisedBy::Port))
}

/// The service whose program is among the first words of the command line.
fn by_command_line(process: &Process) -> Option<Kind> {
    for word in process.command_line.iter().take(4) {
        // A process title is one word with blanks: `puma 6.4 (tcp://…)`, `gunicorn: master`.
        for name in [base_name(word), word.split([' ', ':']).next().unwrap_or(word)] {
            if let Some(kind) = Kind::of_program(name) {
                return Some(kind);
            }
        }
    }
    None
}

/// The service whose usual socket has the name of one of these.
fn by_socket(sockets: &[&Path]) -> Option<Kind> {
    Kind::all().find(|kind| {
        let name = kind.descriptor().socket_name();
        !name.is_empty() && sockets.iter().any(|path| path.file_name().is_some_and(|found| found == name))
    })
}

/// The service that usually listens on one of these ports.
fn by_port(ports: &[u16]) -> Option<Kind> {
    Kind::all().find(|kind| kind.descriptor().ports.iter().any(|port| ports.contains(port)))
}

/// Options of the launcher whose value is the next word.
const WITH_VALUE: &[&str] = &[
    "-cp", "-classpath", "--class-path", "-p", "--module-path", "--upgrade-module-path", "--add-modules",
    "--add-exports", "--add-opens", "--add-reads", "--limit-modules", "--patch-module", "--describe-module",
    "--source",
];

/// The main class of a Java command line, as the launcher reads it: what stands behind it are the program's own arguments, and a
/// class that is named there, or in an option, says nothing. Of a module (`-m MODULE/CLASS`) its class. `None` where a file is
/// run (`-jar`).
fn main_class(words: &[String]) -> Option<&str> {
    let mut words = words.iter().skip(1).map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "-m" | "--module" => return words.next()?.split_once('/').map(|(_, class)| class),
            "-jar" => return None,
            word if WITH_VALUE.contains(&word) => {
                words.next();
            }
            word if word.starts_with("--module=") => {
                return word.split_once('/').map(|(_, class)| class);
            }
            // An option, or a file of options.
            word if word.starts_with(['-', '@']) => {}
            class => return Some(class),
        }
    }
    None
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

#[cfg(test)]
mod java_tests {
    use super::*;

    fn of(line: &str) -> Option<String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        main_class(&words).map(str::to_owned)
    }

    #[test]
    fn the_first_word_that_is_no_option_is_the_class() {
        // As tomcat10.service, Kafka's and Elasticsearch's scripts start them.
        let tomcat = "java -Djava.util.logging.config.file=/etc/l -classpath /a.jar:/b.jar -Dcatalina.base=/var/lib/tomcat10 org.apache.catalina.startup.Bootstrap start";
        assert_eq!(of(tomcat).as_deref(), Some("org.apache.catalina.startup.Bootstrap"));
        let kafka = "java -Xmx1G -server -cp /opt/kafka/libs/a.jar kafka.Kafka /etc/server.properties";
        assert_eq!(of(kafka).as_deref(), Some("kafka.Kafka"));
        let search = "java -Xms1g --module-path /lib --add-modules=jdk.net -m org.elasticsearch.server/org.elasticsearch.bootstrap.Elasticsearch";
        assert_eq!(of(search).as_deref(), Some("org.elasticsearch.bootstrap.Elasticsearch"));
    }

    #[test]
    fn a_class_elsewhere_says_nothing() {
        assert_eq!(of("java -jar app.jar kafka.Kafka"), None);
        assert_eq!(of("java -cp kafka.Kafka Mine kafka.Kafka").as_deref(), Some("Mine"));
        assert_eq!(of("java -Dname=kafka.Kafka"), None);
        assert_eq!(of("java"), None);
    }
}
