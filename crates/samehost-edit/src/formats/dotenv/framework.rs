//! The framework that reads a .env file: from the files beside it, else from its variables.

use std::path::Path;

use super::lines::Lines;
use crate::files::Files;

/// What reads a .env file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framework {
    Laravel,
    Symfony,
    Rails,
    Django,
    /// WordPress in the directories of Bedrock.
    Bedrock,
    Node,
    /// None that is known, or several.
    Unknown,
}

impl Framework {
    pub(super) fn name(self) -> &'static str {
        match self {
            Framework::Laravel => "Laravel",
            Framework::Symfony => "Symfony",
            Framework::Rails => "Rails",
            Framework::Django => "Django",
            Framework::Bedrock => "Bedrock",
            Framework::Node => "Node",
            Framework::Unknown => "an unknown program",
        }
    }

    /// The framework in this directory.
    pub(super) fn of(directory: &Path, files: &dyn Files, lines: &Lines) -> Framework {
        let beside = beside(directory, files);
        let found = if beside.is_empty() { inside(lines) } else { beside };
        match found.as_slice() {
            [one] => *one,
            // Every framework builds its assets with Node.
            [one, Framework::Node] => *one,
            _ => Framework::Unknown,
        }
    }
}

/// Text of a file; `None` if it is missing.
pub(super) fn text(directory: &Path, name: &str, files: &dyn Files) -> Option<String> {
    Some(String::from_utf8_lossy(&files.read(&directory.join(name)).ok()?).into_owned())
}

/// Whether the project requires a package, in any file where its language lists packages.
pub(super) fn wants(directory: &Path, files: &dyn Files, package: &str) -> bool {
    const LISTS: &[&str] = &[
        "composer.json",
        "package.json",
        "Gemfile",
        "requirements.txt",
        "requirements/base.txt",
        "requirements/production.txt",
        "pyproject.toml",
        "Pipfile",
    ];
    let quoted = format!("\"{package}\"");
    LISTS.iter().filter_map(|list| Some((list, text(directory, list, files)?))).any(|(list, text)| {
        if list.ends_with(".json") { text.contains(&quoted) } else { text.to_lowercase().contains(package) }
    })
}

fn beside(directory: &Path, files: &dyn Files) -> Vec<Framework> {
    let [artisan, composer, symfony, gems, manage, package] =
        ["artisan", "composer.json", "symfony.lock", "Gemfile", "manage.py", "package.json"]
            .map(|name| text(directory, name, files));
    let composer = composer.unwrap_or_default();
    let mut found = Vec::new();
    if artisan.is_some() || composer.contains("\"laravel/framework\"") {
        found.push(Framework::Laravel);
    }
    if composer.contains("\"symfony/framework-bundle\"") || symfony.is_some() {
        found.push(Framework::Symfony);
    }
    if composer.contains("\"roots/wordpress\"") || composer.contains("\"roots/bedrock") {
        found.push(Framework::Bedrock);
    }
    if gems.unwrap_or_default().lines().any(|line| {
        let line = line.trim_start();
        line.starts_with("gem 'rails'") || line.starts_with("gem \"rails\"")
    }) {
        found.push(Framework::Rails);
    }
    if manage.is_some_and(|text| text.contains("DJANGO_SETTINGS_MODULE")) {
        found.push(Framework::Django);
    }
    if package.is_some() {
        found.push(Framework::Node);
    }
    found
}

fn inside(lines: &Lines) -> Vec<Framework> {
    let mut found = Vec::new();
    if lines.has("APP_KEY") && lines.has("DB_CONNECTION") {
        found.push(Framework::Laravel);
    }
    if lines.has("APP_SECRET") && lines.has("APP_ENV") && !lines.has("APP_KEY") {
        found.push(Framework::Symfony);
    }
    if lines.has("RAILS_ENV") || lines.has("RAILS_MASTER_KEY") {
        found.push(Framework::Rails);
    }
    if lines.has("DJANGO_SETTINGS_MODULE") || lines.has("DJANGO_SECRET_KEY") {
        found.push(Framework::Django);
    }
    if lines.has("WP_ENV") && lines.has("WP_HOME") {
        found.push(Framework::Bedrock);
    }
    found
}
