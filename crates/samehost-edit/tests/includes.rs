//! Files that include others many times over are refused, by each editor that follows includes, before they are read
//! without an end.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};

use samehost_edit::{Files, editor};

/// How often each file includes the next.
const TIMES: usize = 40;

/// Directories `/0`, `/1`, … with a file each, which includes the one of the next directory many times.
struct Layers {
    name: &'static str,
    head: &'static str,
    include: &'static str,
    reads: Cell<usize>,
}

impl Files for Layers {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let layer =
            path.parent().and_then(Path::file_name).and_then(|layer| layer.to_str()?.parse::<u8>().ok());
        let Some(layer) = layer.filter(|layer| *layer < 4 && path.ends_with(self.name)) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        self.reads.set(self.reads.get() + 1);
        let next = format!("/{}/{}", layer + 1, self.name);
        let include = if layer == 3 { String::new() } else { self.include.replace("NEXT", &next) };
        Ok(format!("{}\n{}", self.head, include.repeat(TIMES)).into_bytes())
    }

    fn list(&self, _: &Path) -> io::Result<Vec<PathBuf>> {
        Err(io::ErrorKind::NotFound.into())
    }
}

#[test]
fn many_includes_are_refused_with_the_file() {
    for (name, file, head, include) in [
        ("my-cnf", "my.cnf", "[mysqld]", "!include NEXT\n"),
        ("postgresql", "postgresql.conf", "port = 5432", "include 'NEXT'\n"),
        ("redis", "redis.conf", "port 6379", "include NEXT\n"),
        ("php-fpm", "php-fpm.conf", "[global]", "include=NEXT\n"),
        ("nginx", "nginx.conf", "events {}", "include NEXT;\n"),
    ] {
        let layers = Layers { name: file, head, include, reads: Cell::new(0) };
        let refusal = editor(name).unwrap().read(&Path::new("/0").join(file), &layers).unwrap_err();
        assert!(refusal.file.ends_with(file), "{name}: {refusal}");
        assert!(refusal.reason.contains("include each other"), "{name}: {refusal}");
        assert!(layers.reads.get() < 10_000, "{name}: {}", layers.reads.get());
    }
}
