//! Which pool of PHP-FPM serves a site: the one to which a web server passes requests for files below the site's
//! directory. Several sites have workers of one account, and each worker could read the other's files; only the web
//! server's configuration tells whose connections are whose.

use std::path::Path;

use samehost_edit::Role;
use samehost_model::Endpoint;
use samehost_model::scan::Scan;
use samehost_scan::services_at;
use samehost_services::Kind;

use super::effective::{fpm_config, texts_of};
use super::place::same_port;
use super::server_files;

/// A pool that serves a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pool {
    /// Its master.
    pub(super) master: u32,
    /// Its name.
    pub(super) name: String,
}

/// The pools that serve files below a directory; none where no web server of this machine says so.
pub(super) fn pools_of(scan: &Scan, directory: &Path) -> Vec<Pool> {
    let mut found: Vec<Pool> = Vec::new();
    for endpoint in passes_for(scan, directory) {
        for at in services_at(scan, &endpoint) {
            let service = scan.services.get(at).filter(|service| service.kind == Some(Kind::PhpFpm));
            let Some(master) = service.and_then(|service| service.pid) else { continue };
            let Some(config) = fpm_config(scan, master) else { continue };
            let Ok(reading) = config.editor.read(&config.file, &config.files()) else { continue };
            for setting in reading.settings.iter().filter(|setting| setting.role == Role::Listens) {
                let Some(name) = setting.name.strip_prefix("listen of pool ") else { continue };
                let pool = Pool { master, name: name.to_owned() };
                if same_port(&setting.endpoint, &endpoint) && !found.contains(&pool) {
                    found.push(pool);
                }
            }
        }
    }
    found
}

/// Where nginx passes requests of the server blocks that name a directory.
fn passes_for(scan: &Scan, directory: &Path) -> Vec<Endpoint> {
    let mut found = Vec::new();
    let nginx = scan.services.iter().filter(|service| service.kind == Some(Kind::Nginx));
    for service in nginx {
        let texts: Vec<String> =
            texts_of(&server_files::of(scan, service)).into_iter().map(|(_, text)| text).collect();
        for text in &texts {
            for block in blocks(text, "server") {
                if !names(block, directory) {
                    continue;
                }
                for value in values(block, "fastcgi_pass") {
                    found.extend(endpoints(value, &texts));
                }
            }
        }
    }
    found
}

/// Whether a block names a directory or something below it.
fn names(block: &str, directory: &Path) -> bool {
    let directory = directory.display().to_string();
    block.match_indices(&directory).any(|(at, found)| {
        let rest = &block[at + found.len()..];
        rest.is_empty() || rest.starts_with(['/', ';', '"', '\'', ' '])
    })
}

/// The texts between the braces of blocks of this name.
fn blocks<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices(name) {
        let is_word = text[..at]
            .chars()
            .next_back()
            .is_none_or(|before| before.is_whitespace() || "{};".contains(before));
        let rest = &text[at + name.len()..];
        let Some(open) = rest.find(['{', ';']).filter(|open| is_word && rest[*open..].starts_with('{'))
        else {
            continue;
        };
        let mut depth = 0_usize;
        for (length, letter) in rest[open..].char_indices() {
            match letter {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                found.push(&rest[open + 1..open + length]);
                break;
            }
        }
    }
    found
}

/// The first values of a directive in a block.
fn values<'a>(block: &'a str, directive: &str) -> Vec<&'a str> {
    let mut found = Vec::new();
    for line in block.lines() {
        let mut words = line.trim_start_matches(['{', ' ', '\t']).split_ascii_whitespace();
        while let Some(word) = words.next() {
            if word == directive {
                found.extend(words.next().map(|value| value.trim_end_matches(';')));
            }
        }
    }
    found
}

/// The endpoints of an address, or of the upstream of that name.
fn endpoints(value: &str, texts: &[String]) -> Vec<Endpoint> {
    if let Some(endpoint) = endpoint(value) {
        return vec![endpoint];
    }
    let mut found = Vec::new();
    for text in texts {
        for (at, _) in text.match_indices("upstream") {
            let rest = &text[at + "upstream".len()..];
            let Some((name, body)) = rest.split_once('{') else { continue };
            if name.trim() == value {
                let body = body.split_once('}').map_or(body, |(body, _)| body);
                found.extend(values(body, "server").into_iter().filter_map(endpoint));
            }
        }
    }
    found
}

fn endpoint(value: &str) -> Option<Endpoint> {
    match value.strip_prefix("unix:") {
        Some(path) => Some(Endpoint::Unix(path.trim_end_matches(':').into())),
        None => {
            let (host, port) = value.rsplit_once(':')?;
            Some(Endpoint::Tcp { host: host.to_owned(), port: port.parse().ok()? })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "http {\n upstream php { server unix:/run/b.sock; }\n server {\n  root /srv/a;\n  location / { fastcgi_pass unix:/run/a.sock; }\n }\n server {\n  listen 80;\n  location / { fastcgi_pass php; fastcgi_param SCRIPT_FILENAME /srv/ab/index.php; }\n }\n}\n";

    #[test]
    fn a_site_is_passed_to_the_address_of_its_own_server_block() {
        let texts = [TEXT.to_owned()];
        let passes = |directory: &str| -> Vec<String> {
            let blocks =
                blocks(TEXT, "server").into_iter().filter(|block| names(block, Path::new(directory)));
            let values = blocks.flat_map(|block| values(block, "fastcgi_pass"));
            values.flat_map(|value| endpoints(value, &texts)).map(|endpoint| endpoint.to_string()).collect()
        };
        assert_eq!(passes("/srv/a"), ["unix:/run/a.sock"]);
        assert_eq!(passes("/srv/ab"), ["unix:/run/b.sock"]);
        assert!(passes("/srv/abc").is_empty() && passes("/srv").len() == 2);
    }
}
