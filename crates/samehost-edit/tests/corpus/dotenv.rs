//! .env files, proved by the libraries that read them: phpdotenv with Laravel's connectors, Symfony's with Doctrine's,
//! Ruby's with ActiveRecord, redis-rb and libpq, python-dotenv and django-environ with Django, redis-py and kombu, and
//! Node's own with pg-connection-string. MySQL's URL in Node is held against Node's URL parser only: Prisma's engine is
//! not asked.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::case::Case;

#[test]
fn dotenv() {
    crate::run("dotenv", 60, ask, crate::facts::moved);
}

fn ask(file: &Path, root: &Path) -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/dotenv");
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
    let text = String::from_utf8_lossy(&std::fs::read(file).unwrap()).into_owned();
    let there = |path: &str| root.join(path).exists();
    let php = |mode: &str| {
        let mut command = Command::new("php");
        command.arg(folder.join("ask.php")).arg(mode).arg(file).arg(root);
        command
    };
    let command = if there("artisan") || text.contains("APP_KEY") {
        php("laravel")
    } else if read("composer.json").contains("symfony/") || text.contains("APP_SECRET") {
        php("symfony")
    } else if read("composer.json").contains("roots/") || text.contains("WP_HOME") {
        php("bedrock")
    } else if there("manage.py") || text.contains("DJANGO_") || text.contains("CELERY_") {
        let mut command = Command::new("/usr/bin/python3");
        command.arg(folder.join("ask.py")).arg(file);
        command
    } else if there("package.json") && !there("Gemfile") {
        node(&folder, file, &text)
    } else {
        let mut command = Command::new("ruby");
        command.arg(folder.join("ask.rb")).arg(file);
        command
    };
    crate::facts::of(command)
}

/// Node reads the file itself; what it should print are the names in it.
fn node(folder: &Path, file: &Path, text: &str) -> Command {
    let names: Vec<&str> = text
        .lines()
        .filter_map(|line| Some(line.trim_start().trim_start_matches("export ").split_once('=')?.0.trim()))
        .filter(|name| !name.starts_with('#'))
        .collect();
    let mut command = Command::new("node");
    command.arg(format!("--env-file={}", file.display())).arg(folder.join("ask.mjs")).arg(names.join(","));
    if text.contains("postgres") {
        command.arg(pg_connection_string().join("index.js"));
    }
    command
}

/// The module that `pg` reads its URLs with, from npm, kept below the build's directory.
fn pg_connection_string() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("npm");
    let module = folder.join("node_modules/pg-connection-string");
    if !module.join("index.js").exists() {
        std::fs::create_dir_all(&folder).unwrap();
        let output = Command::new("npm")
            .args(["install", "--no-save", "--silent", "--prefix"])
            .arg(&folder)
            .arg("pg-connection-string@2.9.1")
            .output()
            .expect("npm (package npm)");
        assert!(output.status.success(), "npm: {}", String::from_utf8_lossy(&output.stderr));
    }
    module
}

#[test]
fn a_fact_moves_by_its_endpoint_or_its_name() {
    // The mapping that the proofs rest on, held once without any program.
    let case =
        Case::all("dotenv").into_iter().find(|case| case.path.ends_with("laravel-mysql.case")).unwrap();
    let moved = crate::facts::moved("DB_HOST endpoint=tcp:127.0.0.1:3306", &case);
    assert_eq!(moved, "DB_HOST endpoint=unix:/run/mysqld/mysqld.sock");
    assert_eq!(crate::facts::moved("APP_NAME=Laravel", &case), "APP_NAME=Laravel");
}
