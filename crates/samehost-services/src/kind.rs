//! A kind of service, and how one is found by what is known of it: a name, a program, a port, a scheme, an answer.

use std::fmt;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::Protocol;
use crate::descriptor::{self, Descriptor, is_among};

include!(concat!(env!("OUT_DIR"), "/kinds.rs"));

/// One for each kind, in the order of the variants.
static DESCRIPTORS: LazyLock<Vec<Descriptor>> =
    LazyLock::new(|| descriptor::read(TEXTS).unwrap_or_else(|error| panic!("{error}")));

/// Every kind, by its place; one without a place of its own stands behind the kind that it is like.
static BY_PLACE: LazyLock<Vec<Kind>> = LazyLock::new(|| {
    let place = |kind: Kind| kind.descriptor().place;
    let mut kinds = KINDS.to_vec();
    kinds.sort_by_key(|kind| match place(*kind) {
        Some(own) => (Some(own), false, *kind),
        None => (place(kind.family()), true, *kind),
    });
    kinds
});

impl Kind {
    /// Every kind, by its place: where several fit, the first counts.
    pub fn all() -> impl Iterator<Item = Kind> + Clone {
        BY_PLACE.iter().copied()
    }

    #[must_use]
    pub fn descriptor(self) -> &'static Descriptor {
        &DESCRIPTORS[self as usize]
    }

    /// Its name in JSON and on the command line: that of its file.
    #[must_use]
    pub fn name(self) -> &'static str {
        TEXTS[self as usize].0
    }

    /// Its name for people.
    #[must_use]
    pub fn label(self) -> &'static str {
        &self.descriptor().label
    }

    #[must_use]
    pub fn protocol(self) -> Option<Protocol> {
        self.descriptor().protocol
    }

    /// The kind that it behaves like; itself where it is like no other.
    #[must_use]
    pub fn family(self) -> Kind {
        self.descriptor().like.unwrap_or(self)
    }

    /// The kinds that behave like it, itself among them, by their place.
    pub fn relatives(self) -> impl Iterator<Item = Kind> + Clone {
        Kind::all().filter(move |kind| kind.family() == self.family())
    }

    /// `MariaDB or MySQL`.
    #[must_use]
    pub fn relatives_in_words(self) -> String {
        let labels: Vec<&str> = self.relatives().map(Kind::label).collect();
        match labels.split_last() {
            Some((last, [])) => (*last).to_owned(),
            Some((last, first)) => format!("{} or {last}", first.join(", ")),
            None => String::new(),
        }
    }

    /// The programs of its relatives.
    #[must_use]
    pub fn programs_of_relatives(self) -> Vec<&'static str> {
        self.relatives().flat_map(|kind| &kind.descriptor().programs).map(String::as_str).collect()
    }

    #[must_use]
    pub fn named(name: &str) -> Option<Kind> {
        TEXTS.binary_search_by_key(&name, |(name, _)| name).ok().map(|at| KINDS[at])
    }

    /// The kind that people call so: by its own name, or by that of a unit, a program or a package of it.
    #[must_use]
    pub fn called(name: &str) -> Option<Kind> {
        if let Some(kind) = Kind::named(name) {
            return Some(kind);
        }
        for kind in Kind::all() {
            let known = kind.descriptor();
            if is_among(name, &known.units)
                || is_among(name, &known.aliases)
                || is_among(name, &known.programs)
                || known.package.as_deref() == Some(name)
                || known.unit_prefix.as_deref() == Some(name)
            {
                return Some(kind);
            }
        }
        Kind::of_program(name)
    }

    /// The kind that a program is of. A version may follow the program's name (`php-fpm8.2`), and what a title has
    /// behind it: a dot, a colon or a blank. The first kind by place counts.
    #[must_use]
    pub fn of_program(name: &str) -> Option<Kind> {
        for kind in Kind::all() {
            for program in &kind.descriptor().programs {
                let Some(rest) = name.strip_prefix(program.as_str()) else { continue };
                if rest.is_empty()
                    || rest.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '.' | ':' | ' '))
                {
                    return Some(kind);
                }
            }
        }
        None
    }

    /// Whether a program is a client that comes with a service: whoever runs it is a person, or a job of its own.
    #[must_use]
    pub fn has_tool(name: &str) -> bool {
        Kind::all()
            .map(Kind::descriptor)
            .any(|known| is_among(name, &known.tools) || is_among(name, &known.others.tools))
    }

    /// The kind that a Java program with this main class is of.
    #[must_use]
    pub fn of_class(name: &str) -> Option<Kind> {
        Kind::all().find(|kind| is_among(name, &kind.descriptor().classes))
    }

    /// The first kind that speaks a protocol and behaves like no other; else whose clients do (MongoDB, which nobody here asks).
    #[must_use]
    pub fn of_protocol(protocol: Protocol) -> Option<Kind> {
        let of_clients = |kind: &Kind| kind.descriptor().clients_speak == Some(protocol);
        Kind::of(protocol).find(|kind| kind.family() == *kind).or_else(|| Kind::all().find(of_clients))
    }

    pub fn of(protocol: Protocol) -> impl Iterator<Item = Kind> + Clone {
        Kind::all().filter(move |kind| kind.protocol() == Some(protocol))
    }

    /// The kind of a server by its answer to a question of its protocol; `None` where no kind knows a word of it. Who is
    /// like another says so beside what the other one says, so a kind that is like another comes before that other.
    #[must_use]
    pub fn that_says(protocol: Protocol, answer: &[u8]) -> Option<Kind> {
        let mut found = None;
        for kind in Kind::of(protocol) {
            let word = kind.descriptor().says.as_deref().unwrap_or_default().as_bytes();
            if word.is_empty() || !answer.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word)) {
                continue;
            }
            if kind.family() != kind {
                return Some(kind);
            }
            found = found.or(Some(kind));
        }
        found
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::UnixSocket;

    #[test]
    fn every_descriptor_is_sound() {
        let (mut programs, mut labels, mut places) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let (mut says, mut schemes) = (BTreeSet::new(), BTreeSet::new());
        for kind in Kind::all() {
            let known = kind.descriptor();
            assert!(labels.insert(&known.label) && !known.label.is_empty(), "{kind}: label");
            assert!(known.place.is_none_or(|place| places.insert(place)), "{kind}: place");
            assert!(known.place.is_some() || known.like.is_some(), "{kind}: place");
            assert!(known.says.iter().all(|word| says.insert(word)), "{kind}: says");
            assert_eq!(kind.family().family(), kind.family(), "{kind}: like");
            // What has no program is never found: `how` is asked for it by name.
            let mut names = known.programs.iter().chain(&known.classes).peekable();
            assert!(names.peek().is_some() || known.ports.is_empty(), "{kind}: ports");
            assert!(names.all(|one| programs.insert(one)), "{kind}: programs");
            match known.unix() {
                UnixSocket::Setting(setting) => {
                    assert!(setting.contains("{}") && !known.socket.is_empty(), "{kind}: socket");
                }
                UnixSocket::Never(why) => assert!(!why.is_empty(), "{kind}"),
            }
            let files = known.main_files.iter().chain(known.edited_files()).chain([&known.socket]);
            let files = files.chain(&known.default_sockets).filter(|path| !path.is_empty());
            assert!(files.clone().all(|path| path.starts_with('/')), "{kind}: paths");
            for named in &known.file_named_by {
                let ways =
                    [&named.begins, &named.after, &named.first, &named.last, &named.title, &named.usual];
                assert_eq!(ways.into_iter().flatten().count(), 1, "{kind}: file_named_by");
            }
            if kind.family() == kind {
                let all = known.schemes.tcp.iter().chain(&known.schemes.tls).chain(&known.schemes.socket);
                assert!(all.clone().all(|scheme| schemes.insert(scheme)), "{kind}: schemes");
            }
        }
    }

    #[test]
    fn php_fpms_file_is_in_its_title_and_before_that_in_its_arguments() {
        for words in [
            &["php-fpm:", "master", "process", "(/srv/fpm.conf)"][..],
            &["/usr/sbin/php-fpm8.2", "--daemonize", "--fpm-config", "/srv/fpm.conf"],
            &["php-fpm", "--fpm-config=/srv/fpm.conf"],
            &["php-fpm", "-F", "-y", "/srv/fpm.conf"],
        ] {
            let found = Kind::PhpFpm.descriptor().file_named_by.iter().find_map(|way| way.find(words));
            assert_eq!(found.as_deref(), Some(std::path::Path::new("/srv/fpm.conf")), "{words:?}");
        }
    }

    #[test]
    fn the_file_of_each_of_several_instances_is_in_its_command_line() {
        for (kind, line, file, is_beside) in [
            (Kind::Nginx, "nginx: master process nginx -c /srv/a.conf", "/srv/a.conf", false),
            (Kind::Nginx, "nginx: master process nginx -c/srv/a.conf", "/srv/a.conf", false),
            (Kind::Haproxy, "haproxy -D -f /srv/a.cfg -p /run/a.pid", "/srv/a.cfg", false),
            (Kind::Mariadb, "mariadbd --defaults-file=/srv/a.cnf --port=3307", "/srv/a.cnf", false),
            (Kind::Mariadb, "mariadbd --defaults-extra-file=/srv/a.cnf", "/srv/a.cnf", true),
            (Kind::Mariadb, "mariadbd --no-defaults --port=3307", "", false),
            (Kind::Postgres, "postgres -D /srv/a", "/srv/a/postgresql.conf", false),
            // Relative to where it was started; it works in that folder since.
            (Kind::Postgres, "postgres -D a", "postgresql.conf", false),
            (Kind::Postgres, "postgres", "postgresql.conf", false),
            (Kind::Postgres, "postgres -D /srv/a -c config_file=/etc/a.conf", "/etc/a.conf", false),
            (Kind::Apache, "apache2 -k start -f/srv/a.conf", "/srv/a.conf", false),
        ] {
            let (found, way) = kind.descriptor().file_named(&[line.to_owned()]).unwrap();
            assert_eq!((found.as_path(), way.beside), (std::path::Path::new(file), is_beside), "{line}");
        }
        for (kind, line) in [(Kind::Mariadb, "mariadbd"), (Kind::Memcached, "memcached -p 1")] {
            assert!(kind.descriptor().file_named(&[line.to_owned()]).is_none(), "{line}");
        }
    }

    #[test]
    fn kinds_are_found() {
        assert!(KINDS.iter().all(|kind| Kind::named(kind.name()) == Some(*kind)));
        assert!(KINDS.iter().all(|kind| serde_json::to_value(kind).unwrap() == kind.name()));
        assert_eq!(Kind::named("nothing"), None);
        assert_eq!(Kind::of_program("php-fpm8.2"), Some(Kind::PhpFpm));
        assert_eq!(Kind::of_program("redis-server-wrapper"), None);
        assert_eq!(Kind::of_protocol(Protocol::Mysql), Some(Kind::Mysql));
        assert_eq!(Kind::of_protocol(Protocol::Http), Some(Kind::Nginx));
        assert_eq!(Kind::of_protocol(Protocol::Plain), None);
        let relatives: Vec<Kind> = Kind::Mysql.relatives().take(2).collect();
        assert_eq!(relatives, [Kind::Mariadb, Kind::Mysql]);
        assert_eq!(Kind::that_says(Protocol::Mysql, b"5.5.5-10.11.14-MariaDB"), Some(Kind::Mariadb));
        assert_eq!(Kind::that_says(Protocol::Mysql, b"8.0.36"), None);
        assert_eq!(Kind::that_says(Protocol::Redis, b"redis_version:7"), Some(Kind::Redis));
        let both = b"redis_version:7.2.4\r\nvalkey_version:8.0.1\r\n";
        assert_eq!(Kind::that_says(Protocol::Redis, both).map(Kind::label), Some("Valkey"));
        let words = Kind::Redis.relatives_in_words();
        assert!(words.starts_with("Redis") && words.contains(" or "), "{words}");
    }
}
