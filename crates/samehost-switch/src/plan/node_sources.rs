//! Where a program of Node asks for TLS in its sources, as it stands there without a condition: `ssl: {` or `ssl: true` in a
//! file that names a client of PostgreSQL. It is asked only where no connection of the program is open, which would show it;
//! what stands behind a condition or a variable is not judged.

use std::path::{Path, PathBuf};

use samehost_edit::Files;

/// How many files are read at most, and how deep below the project.
const MOST_FILES: usize = 300;
const DEEPEST: u32 = 4;
/// Directories whose files the project did not write.
const FOREIGN: &[&str] = &["node_modules", ".git", ".next", "coverage", "test", "tests", "public"];
const CLIENTS: &[&str] =
    &["pg", "pg-pool", "postgres", "typeorm", "sequelize", "knex", "drizzle-orm/node-postgres"];

/// The first line that asks for TLS; `None` where none does, or the sources are not to be read.
pub(super) fn line_with_tls(project: &Path, files: &dyn Files) -> Option<(PathBuf, u32)> {
    let mut folders = vec![(project.to_owned(), 0)];
    let mut left = MOST_FILES;
    while let Some((folder, depth)) = folders.pop() {
        for path in files.list(&folder).unwrap_or_default() {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let is_source = [".js", ".mjs", ".cjs", ".ts", ".mts"].iter().any(|end| name.ends_with(end));
            if !is_source && depth < DEEPEST && !name.contains('.') && !FOREIGN.contains(&name.as_str()) {
                folders.push((path, depth + 1));
                continue;
            }
            if !is_source || left == 0 {
                continue;
            }
            left -= 1;
            let Ok(text) = files.read(&path) else { continue };
            if let Some(line) = line_of(&String::from_utf8_lossy(&text)) {
                return Some((path, line));
            }
        }
    }
    None
}

/// The line of a text that asks for TLS without a condition.
fn line_of(text: &str) -> Option<u32> {
    let names = |client: &&&str| {
        ['\'', '"', '`'].iter().any(|quote| text.contains(&format!("{quote}{client}{quote}")))
    };
    CLIENTS.iter().find(names)?;
    (1..).zip(text.lines()).find(|(_, line)| asks(line)).map(|(number, _)| number)
}

fn asks(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or(line);
    code.match_indices("ssl").any(|(at, _)| {
        let is_whole =
            !code[..at].ends_with(|before: char| before.is_ascii_alphanumeric() || "_.$".contains(before));
        let Some(value) = code[at + 3..].trim_start().strip_prefix(':') else { return false };
        let value = value.trim_start();
        let is_true = value.strip_prefix("true").is_some_and(|rest| !rest.starts_with(char::is_alphanumeric));
        is_whole && (value.starts_with('{') || is_true)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stands_there_without_a_condition_is_taken() {
        let with = |code: &str| line_of(&format!("import pg from 'pg';\n{code}\n"));
        for code in
            ["new pg.Pool({ url, ssl: { rejectUnauthorized: false } });", "  ssl: true,", "{ssl:{ca}}"]
        {
            assert_eq!(with(code), Some(2), "{code}");
        }
        for code in [
            "  ssl: process.env.PGSSL === 'true',",
            "  ssl: isProduction ? { ca } : false,",
            "  ssl: false,",
            "  // ssl: true",
            "  nossl: true,",
            "  tls.ssl: {",
        ] {
            assert_eq!(with(code), None, "{code}");
        }
        assert_eq!(line_of("import https from 'https';\n ssl: true\n"), None);
    }
}
