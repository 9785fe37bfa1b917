//! Which sites nginx passes to servers of FastCGI, and what it gives them: the server blocks with everything that they include.
//!
//! It was read from the text of each file by its words until 30 November: a `location` on one line and a `fastcgi_pass` in an
//! included file were not seen, and a variable of one site was taken for every other's.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use samehost_model::Endpoint;

use super::tree::Tree;
use crate::budget;
use crate::files::Files;

/// A server block that passes requests to servers of FastCGI.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passing {
    /// The directories of its files, and of the scripts that it names, as they are written.
    pub roots: Vec<PathBuf>,
    pub to: Vec<Endpoint>,
    /// Variables of the request, which PHP has in `$_SERVER`.
    pub given: Vec<Given>,
}

/// A `fastcgi_param`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Given {
    pub file: PathBuf,
    pub line: u32,
    pub name: String,
    pub value: String,
}

/// The server blocks of a configuration that pass requests on; empty if it is not understood.
#[must_use]
pub fn passing(file: &Path, files: &dyn Files) -> Vec<Passing> {
    budget::within(file, files, |files| Ok(blocks(&Tree::read(file, files)?))).unwrap_or_default()
}

fn blocks(tree: &Tree) -> Vec<Passing> {
    let mut found: BTreeMap<usize, Passing> = BTreeMap::new();
    for node in 0..tree.nodes.len() {
        let Some(server) = server_of(tree, node) else { continue };
        let value = String::from_utf8_lossy(tree.nodes[node].first()).into_owned();
        let block = found.entry(server).or_default();
        match tree.nodes[node].name() {
            b"root" | b"alias" => block.roots.extend(absolute(&value)),
            b"fastcgi_param" if value == "SCRIPT_FILENAME" => {
                block.roots.extend(script(tree, node).and_then(|path| Some(path.parent()?.to_owned())));
            }
            b"fastcgi_pass" => {
                block.to.extend(endpoints(tree, &value));
                block.given.extend(given(tree, node));
            }
            _ => {}
        }
    }
    found.retain(|_, block| !block.to.is_empty());
    for (server, block) in &mut found {
        if block.roots.is_empty() {
            block.roots = inherited_root(tree, *server).into_iter().collect();
        }
        block.given.sort();
        block.given.dedup();
    }
    found.into_values().collect()
}

fn server_of(tree: &Tree, node: usize) -> Option<usize> {
    tree.around(node).find(|block| tree.nodes[*block].name() == b"server")
}

fn inherited_root(tree: &Tree, server: usize) -> Option<PathBuf> {
    let root = tree.levels(server).find_map(|level| tree.named(level, b"root").last())?;
    absolute(&String::from_utf8_lossy(tree.nodes[*root].first()))
}

fn absolute(value: &str) -> Option<PathBuf> {
    (value.starts_with('/') && !value.contains('$')).then(|| value.into())
}

fn script(tree: &Tree, node: usize) -> Option<PathBuf> {
    absolute(&String::from_utf8_lossy(&tree.nodes[node].arguments().get(1)?.value))
}

/// The parameters that hold for a pass: those of the innermost level that has any.
fn given(tree: &Tree, pass: usize) -> Vec<Given> {
    let levels = tree.levels(pass).map(|level| tree.named(level, b"fastcgi_param"));
    let Some(its) = levels.into_iter().find(|its| !its.is_empty()) else { return Vec::new() };
    let mut found = Vec::new();
    for node in its {
        let [name, value, ..] = tree.nodes[*node].arguments() else { continue };
        found.push(Given {
            file: tree.source(*node).path.clone(),
            line: tree.nodes[*node].line(),
            name: String::from_utf8_lossy(&name.value).into_owned(),
            value: String::from_utf8_lossy(&value.value).into_owned(),
        });
    }
    found
}

/// The endpoints of an address, or of the upstream of that name.
fn endpoints(tree: &Tree, value: &str) -> Vec<Endpoint> {
    let is_named = |node: &usize| {
        let node = &tree.nodes[*node];
        node.name() == b"upstream" && node.is_block && node.first().eq_ignore_ascii_case(value.as_bytes())
    };
    if let Some(upstream) = (0..tree.nodes.len()).find(is_named) {
        let servers = tree.named(Some(upstream), b"server").iter();
        return servers.filter_map(|node| endpoint(tree.nodes[*node].first())).collect();
    }
    endpoint(value.as_bytes()).into_iter().collect()
}

fn endpoint(value: &[u8]) -> Option<Endpoint> {
    Some(super::parse(value).ok()?.endpoint(super::pass::UPSTREAM_PORT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{Overlay, TestDisk};

    #[test]
    fn a_site_is_passed_to_the_address_of_its_own_block_and_has_its_own_variables() {
        let main = "http {
 root /srv/all;
 upstream php { server unix:/run/b.sock; server 127.0.0.1:9002 backup; }
 server { root /srv/a; location / { fastcgi_pass unix:/run/a.sock; fastcgi_param REDIS_URL redis://a; } }
 server { fastcgi_param OTHER 1;
  location / { fastcgi_pass PHP; fastcgi_param SCRIPT_FILENAME /srv/ab/index.php; include shop; } }
 server { fastcgi_param WHO c; include pass; }
 server { root /srv/$host; location / { proxy_pass http://127.0.0.1:3000; } }
}";
        let texts = BTreeMap::from([
            ("/nothing/nginx.conf".into(), main.into()),
            ("/nothing/shop".into(), b"fastcgi_param DB_HOST 127.0.0.1;".to_vec()),
            ("/nothing/pass".into(), b"location ~ .php$ {\n fastcgi_pass 127.0.0.1:9000; }".to_vec()),
        ]);
        let found = passing(Path::new("/nothing/nginx.conf"), &Overlay::new(&TestDisk, texts));
        let shown: Vec<String> = found
            .iter()
            .map(|block| {
                let to: Vec<String> = block.to.iter().map(Endpoint::to_string).collect();
                let given: Vec<String> = block
                    .given
                    .iter()
                    .map(|one| format!("{}:{} {}={}", one.file.display(), one.line, one.name, one.value))
                    .collect();
                format!("{:?} {} {}", block.roots, to.join(" "), given.join(" "))
            })
            .collect();
        assert_eq!(
            shown,
            [
                r#"["/srv/a"] unix:/run/a.sock /nothing/nginx.conf:4 REDIS_URL=redis://a"#,
                r#"["/srv/ab"] unix:/run/b.sock tcp:127.0.0.1:9002 /nothing/nginx.conf:6 SCRIPT_FILENAME=/srv/ab/index.php /nothing/shop:1 DB_HOST=127.0.0.1"#,
                r#"["/srv/all"] tcp:127.0.0.1:9000 /nothing/nginx.conf:7 WHO=c"#,
            ]
        );
    }
}
