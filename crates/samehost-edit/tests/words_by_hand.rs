//! What is to be done by hand about a value that an editor refuses, in the words of the server that it is of, and of no other.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::io;
use std::path::{Path, PathBuf};

use samehost_edit::{Files, editor};

struct One {
    name: &'static str,
    text: &'static str,
}

impl Files for One {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        if path.ends_with(self.name) { Ok(self.text.into()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    fn list(&self, _: &Path) -> io::Result<Vec<PathBuf>> {
        Err(io::ErrorKind::NotFound.into())
    }
}

/// The words by hand for the only refusal of a file.
fn by_hand(editor_name: &str, name: &'static str, text: &'static str) -> String {
    let path = Path::new("/srv").join(name);
    match editor(editor_name).unwrap().read(&path, &One { name, text }) {
        Ok(reading) => {
            assert_eq!(reading.refused.len(), 1, "{text}: {:?}", reading.refused);
            reading.refused[0].by_hand.clone()
        }
        Err(refusal) => refusal.by_hand,
    }
}

#[test]
fn of_a_known_server_the_other_ones_path_is_not_said() {
    let django = "DATABASES = {'default': {'ENGINE': 'django.db.backends.WHICH', 'HOST': where()}}";
    let nextcloud = "<?php\n$CONFIG = array('dbtype' => 'WHICH', 'dbhost' => where());\n";
    let joomla = "<?php\nclass JConfig {\n  public $dbtype = 'WHICH';\n  public $host = WHERE;\n}\n";
    for (name, file, text, mysql, postgres) in [
        ("django", "settings.py", django, "mysql", "postgresql"),
        ("php-application", "config/config.php", nextcloud, "mysql", "pgsql"),
        ("php-application", "configuration.php", joomla, "mysqli", "pgsql"),
    ] {
        let of = |engine: &str| by_hand(name, file, text.replace("WHICH", engine).leak());
        let (mysql, postgres) = (of(mysql), of(postgres));
        assert!(mysql.contains("/run/mysqld/mysqld.sock") && !mysql.contains("postgresql"), "{mysql}");
        assert!(postgres.contains("/run/postgresql") && !postgres.contains("mysqld"), "{postgres}");
    }
}

#[test]
fn a_query_that_is_there_goes_on() {
    let words = by_hand("dotenv", ".env", "DATABASE_URL=postgres://u@127.0.0.1:5432/a?sslmode=disable\n");
    assert!(words.contains("&host=/run/postgresql") && !words.contains('?'), "{words}");
    let words = by_hand("dotenv", ".env", "DATABASE_URL=mysql://u@127.0.0.1:3306/a?charset=utf8mb4\n");
    assert!(words.contains("&unix_socket=") && words.contains("&socket=") && !words.contains('?'), "{words}");
    let words = by_hand("dotenv", ".env", "DATABASE_URL=postgres://u@127.0.0.1:5432/a\n");
    assert!(words.contains("?host=/run/postgresql"), "{words}");
}
