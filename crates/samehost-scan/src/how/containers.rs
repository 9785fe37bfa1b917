//! A service and its client in two containers that share the socket's directory: the file to paste, for Compose and for
//! Kubernetes. Values are quoted, as YAML and JSON both read them.

use std::fmt::Write;

use samehost_model::scan::Scan;
use samehost_services::{Client, Container, Kind, Protocol, UnixSocket};

use super::blanks::{UrlParts, Words};
use super::{HowError, Place, Question, clients_that_speak, kind_of, never, speaks};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainersFor {
    Compose,
    Kubernetes,
}

#[derive(Default)]
struct Side {
    name: String,
    image: String,
    /// What to do in its program, where no variable says it: a line each.
    remarks: Vec<String>,
    variables: Vec<(String, String)>,
    arguments: Vec<String>,
    health: Vec<String>,
}

struct Shared {
    label: &'static str,
    /// None where the server is outside: a socket of this machine.
    server: Option<Side>,
    client: Side,
    folder: String,
    code: Option<&'static str>,
}

/// The file, with the words of the client that is asked for.
///
/// # Errors
/// When the service or the client is not known or has no socket, or nothing is known of the service in a container.
pub fn containers(question: &Question, scan: &Scan, form: ContainersFor) -> Result<String, HowError> {
    let kind = kind_of(question, scan)?;
    if let UnixSocket::Never(why) = kind.descriptor().unix() {
        return Err(never(kind, why));
    }
    let Some(known) = &kind.descriptor().container else {
        let all: Vec<&str> =
            Kind::all().filter(|kind| kind.descriptor().container.is_some()).map(Kind::name).collect();
        return Err(HowError::NoImage(kind.label(), all.join(", ")));
    };
    let mut place = Place::of(question.address(), scan, kind);
    let is_outside = place.from == "given";
    if is_outside && form == ContainersFor::Kubernetes {
        return Err(HowError::Outside);
    }
    if !is_outside {
        place.path.clone_from(&known.socket);
        // A server that runs here may have another port, which is in the name of PostgreSQL's file.
        place.port = kind.descriptor().ports.first().copied().unwrap_or(place.port);
    }
    let folder = place.fill("{folder}");
    let shared = Shared {
        label: kind.label(),
        client: client(question, kind, known, &place)?,
        server: if is_outside { None } else { Some(server(kind, known, &place)) },
        folder,
        code: known.code.as_deref(),
    };
    Ok(match form {
        ContainersFor::Compose => compose(&shared),
        ContainersFor::Kubernetes => kubernetes(&shared),
    })
}

fn server(kind: Kind, known: &'static Container, place: &Place) -> Side {
    let variables = known.environment.iter().map(|(name, value)| (name.clone(), value.clone()));
    Side {
        name: kind.name().to_owned(),
        image: known.image.clone(),
        variables: variables.collect(),
        arguments: known.arguments.iter().map(|word| place.fill(word)).collect(),
        health: known.health.iter().map(|word| place.fill(word)).collect(),
        ..Side::default()
    }
}

/// The application with its client's variables; what is code stands in a remark.
fn client(
    question: &Question,
    kind: Kind,
    known: &'static Container,
    place: &Place,
) -> Result<Side, HowError> {
    if let Some(client) = &known.client {
        return Ok(Side {
            name: client.name.clone(),
            image: client.image.clone(),
            arguments: client.arguments.iter().map(|word| place.fill(word)).collect(),
            ..Side::default()
        });
    }
    // The account that the image makes, where no URL names another.
    let parts = match &question.url {
        Some(_) => question.parts.clone(),
        None => UrlParts::of("mysql://app:password@localhost/app"),
    };
    // That of Redis makes none, and asks for no password.
    let parts = if kind.protocol() == Some(Protocol::Redis) { parts.without_login() } else { parts };
    let fill = |words: &str| place.fill(&parts.fill(words, Words::Socket));
    let mut side = Side { name: "app".to_owned(), image: "your-application".to_owned(), ..Side::default() };
    let Some(wanted) = &question.client else {
        side.remarks.push("Each client has its own words for this: add --client NAME.".to_owned());
        // A variable that loses the number of a database leads to other data.
        if let Some(url) = known.url.as_ref().filter(|url| parts.are_kept_by(url)) {
            side.variables = variables(&fill(url)).unwrap_or_default();
        }
        return Ok(side);
    };
    let (language, client) = named(wanted, kind)?;
    let Some(socket) = &client.socket else {
        return Err(HowError::CannotBySelf(client.name.clone(), client.note.clone()));
    };
    let words = fill(client.variables.as_ref().filter(|text| parts.are_kept_by(text)).unwrap_or(socket));
    if !client.note.is_empty() {
        side.remarks.push(format!("{}, {language}: {}.", client.name, client.note));
    }
    match variables(&words) {
        Some(found) => side.variables = found,
        None => {
            side.remarks.push(format!("In the application ({}, {language}):", client.name));
            side.remarks.extend(words.lines().map(|line| format!("  {line}")));
        }
    }
    Ok(side)
}

/// The client of this very name, or else the first one that is called so: `pg` is a part of `psycopg`.
fn named(wanted: &str, kind: Kind) -> Result<(&'static str, &'static Client), HowError> {
    let all = match speaks(kind) {
        Some(protocol) => clients_that_speak(protocol),
        None => Vec::new(),
    };
    let same = all.iter().find(|(_, client)| client.name.eq_ignore_ascii_case(wanted));
    if let Some(found) = same.or(all.iter().find(|(_, client)| client.is_called(wanted))) {
        return Ok((found.0.name, found.1));
    }
    let names: Vec<&str> = all.iter().map(|(_, client)| client.name.as_str()).collect();
    Err(HowError::Client(wanted.to_owned(), kind.label(), names.join(", ")))
}

/// The variables of a text that has nothing else, `NAME=VALUE` in each line.
fn variables(words: &str) -> Option<Vec<(String, String)>> {
    let mut variables = Vec::new();
    for line in words.lines() {
        let (name, value) = line.split_once('=')?;
        if name.is_empty() || !name.bytes().all(is_of_name) {
            return None;
        }
        variables.push((name.to_owned(), value.trim_matches('"').to_owned()));
    }
    Some(variables)
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_'
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn list(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    format!("[{}]", words.join(", "))
}

/// What any other container that mounts the directory may do, in both files.
const WHO: &str =
    "Containers have numbers of their own for their users (uid, gid), so the directory lets each of them in.
Who mounts it may connect: give it to no other container.";

fn compose(shared: &Shared) -> String {
    let Shared { label, server, client, folder, code } = shared;
    let mut file = match server {
        Some(_) => format!(
            "# {label} and its client in two containers, over a Unix socket. Change images and passwords.\n"
        ),
        None => format!(
            "# A client in a container, and {label} on this machine, over its Unix socket. The directory is mounted, not the\n\
             # socket: a server that starts again makes a new one.\n"
        ),
    };
    file.push_str("services:\n");
    let source = if server.is_some() { "sockets" } else { folder };
    for side in server.iter().chain([client]) {
        compose_side(&mut file, side, &format!("{source}:{folder}"), *code);
        if let (Some(server), true) = (server, side.health.is_empty()) {
            let _ =
                writeln!(file, "    depends_on:\n      {}:\n        condition: service_healthy", server.name);
        }
    }
    if server.is_some() {
        file.push_str("volumes:\n  sockets:\n");
        remarks(&mut file, "    ", WHO.lines());
        file.push_str("    driver_opts: {type: tmpfs, device: tmpfs, o: \"mode=1777\"}\n");
    }
    file
}

fn compose_side(file: &mut String, side: &Side, volume: &str, code: Option<&str>) {
    let _ = writeln!(file, "  {}:\n    image: {}", side.name, side.image);
    if !side.arguments.is_empty() {
        let _ = writeln!(file, "    command: {}", escaped(&list(&side.arguments)));
    }
    remarks(file, "    ", side.remarks.iter().map(String::as_str));
    if !side.variables.is_empty() {
        file.push_str("    environment:\n");
    }
    for (name, value) in &side.variables {
        let _ = writeln!(file, "      {name}: {}", escaped(&quoted(value)));
    }
    let _ = writeln!(file, "    volumes:\n      - {}", quoted(volume));
    if let Some(code) = code {
        let _ = writeln!(file, "      - {}", quoted(&format!("./:{code}:ro")));
    }
    if !side.health.is_empty() {
        let test = [vec!["CMD".to_owned()], side.health.clone()].concat();
        let _ = writeln!(
            file,
            "    healthcheck:\n      test: {}\n      interval: 2s\n      retries: 60",
            escaped(&list(&test))
        );
    }
}

/// Compose puts variables of its own in for a single `$`.
fn escaped(text: &str) -> String {
    text.replace('$', "$$")
}

fn kubernetes(shared: &Shared) -> String {
    let Shared { label, server, client, folder, code } = shared;
    let mut file = format!(
        "# {label} and its client in two containers of a pod, over a Unix socket. Change images and passwords. Both start at\n\
         # once: a client that does not try again ends, and is started again.\n\
         apiVersion: v1\nkind: Pod\nmetadata:\n  name: {}\nspec:\n  volumes:\n    - name: sockets\n",
        client.name
    );
    remarks(&mut file, "      ", WHO.lines());
    file.push_str("      emptyDir: {medium: Memory, sizeLimit: 1Mi}\n");
    if code.is_some() {
        file.push_str("    - name: code\n      persistentVolumeClaim: {claimName: your-code}\n");
    }
    file.push_str("  containers:\n");
    for side in server.iter().chain([client]) {
        kubernetes_side(&mut file, side, folder, *code);
    }
    file
}

fn kubernetes_side(file: &mut String, side: &Side, folder: &str, code: Option<&str>) {
    let _ = writeln!(file, "    - name: {}\n      image: {}", side.name, side.image);
    if !side.arguments.is_empty() {
        let _ = writeln!(file, "      args: {}", list(&side.arguments));
    }
    remarks(file, "      ", side.remarks.iter().map(String::as_str));
    if !side.variables.is_empty() {
        file.push_str("      env:\n");
    }
    for (name, value) in &side.variables {
        let _ = writeln!(file, "        - {{name: {name}, value: {}}}", quoted(value));
    }
    if !side.health.is_empty() {
        let test = list(&side.health);
        let _ = writeln!(
            file,
            "      startupProbe:\n        exec: {{command: {test}}}\n        periodSeconds: 2\n        failureThreshold: 60"
        );
    }
    let _ = writeln!(file, "      volumeMounts:\n        - {{name: sockets, mountPath: {}}}", quoted(folder));
    if let Some(code) = code {
        let _ = writeln!(file, "        - {{name: code, mountPath: {}, readOnly: true}}", quoted(code));
    }
}

fn remarks<'a>(file: &mut String, indent: &str, lines: impl Iterator<Item = &'a str>) {
    for line in lines {
        let _ = writeln!(file, "{indent}# {line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::how;

    fn ask(service: &str, client: Option<&str>, form: ContainersFor) -> Result<String, HowError> {
        let question = Question {
            service: Some(service.to_owned()),
            client: client.map(str::to_owned),
            ..Question::default()
        };
        containers(&question, &Scan::default(), form)
    }

    #[test]
    fn every_blank_is_filled_for_every_client() {
        let known = Kind::all().filter(|kind| kind.descriptor().container.is_some());
        for kind in known {
            let question = Question { service: Some(kind.name().to_owned()), ..Question::default() };
            let clients = how(&question, &Scan::default()).unwrap().clients;
            let names = clients.iter().filter(|words| words.socket.is_some()).map(|words| Some(words.client));
            for client in names.chain([None]) {
                for form in [ContainersFor::Compose, ContainersFor::Kubernetes] {
                    let file = ask(kind.name(), client, form).unwrap();
                    for blank in ["{path}", "{folder}", "{port}", "{db", "{login", "{user", "options:}"] {
                        assert!(!file.contains(blank), "{blank} {client:?}: {file}");
                    }
                    let folder =
                        kind.descriptor().container.as_ref().unwrap().socket.rsplit_once('/').unwrap().0;
                    assert!(file.matches(folder).count() >= 2, "{file}");
                }
            }
        }
    }

    #[test]
    fn a_variable_is_set_and_code_is_a_remark() {
        let prisma = ask("postgres", Some("prisma"), ContainersFor::Compose).unwrap();
        let line =
            "      DATABASE_URL: \"postgresql://app:password@localhost:5432/app?host=/var/run/postgresql\"\n";
        assert!(prisma.contains(line), "{prisma}");
        let spring = ask("postgres", Some("spring"), ContainersFor::Compose).unwrap();
        assert!(spring.contains("AFUNIXSocketFactory$$FactoryArg"), "{spring}");
        let pg = ask("postgres", Some("pg"), ContainersFor::Kubernetes).unwrap();
        assert!(pg.contains("#   new Client({ host: '/var/run/postgresql', port: 5432, user: 'app'"), "{pg}");
        let outside = Question {
            url: Some("unix:/srv/sockets/mysqld.sock".parse().unwrap()),
            service: Some("mysql".to_owned()),
            ..Question::default()
        };
        let file = containers(&outside, &Scan::default(), ContainersFor::Compose).unwrap();
        assert!(file.contains("- \"/srv/sockets:/srv/sockets\"") && !file.contains("\n  mysql:"), "{file}");
        let refused = containers(&outside, &Scan::default(), ContainersFor::Kubernetes);
        assert_eq!(refused, Err(HowError::Outside));
        assert!(matches!(ask("gunicorn", None, ContainersFor::Compose), Err(HowError::NoImage(..))));
    }
}
