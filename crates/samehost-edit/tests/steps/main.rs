//! screening
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may")]
mod shapes;
use samehost_edit::{EDITORS, Files, Goal, Move, editor, propose, recognise};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

struct Memory(BTreeMap<PathBuf, Vec<u8>>);
impl Files for Memory {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.0.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        Ok(self.0.keys().filter(|path| path.parent() == Some(directory)).cloned().collect())
    }
}
fn cpu() -> f64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}
#[test]
fn screen() {
    let sizes: Vec<usize> =
        std::env::var("SIZES").unwrap_or("250,1000".into()).split(',').map(|s| s.parse().unwrap()).collect();
    let only = std::env::var("ONLY").unwrap_or_default();
    for e in EDITORS {
        assert!(shapes::SHAPES.iter().any(|s| s.editor == e.name()), "{}", e.name());
    }
    for (index, shape) in shapes::SHAPES.iter().enumerate() {
        if !only.is_empty() && !shape.editor.contains(&only) {
            continue;
        }
        let ed = editor(shape.editor).unwrap();
        let mut out = Vec::new();
        for size in &sizes {
            let text = shape.text(*size);
            let path = shape.path();
            let files = Memory([(path.clone(), text.clone())].into());
            let t0 = cpu();
            let found = recognise(&path, &text).map(|e| e.name());
            let t1 = cpu();
            let reading = ed.read(&path, &files);
            let t2 = cpu();
            let (mut n, mut r, mut why) = (0, 0, String::new());
            let mut one = "";
            match &reading {
                Ok(reading) => {
                    n = reading.settings.len();
                    r = reading.refused.len();
                    if let Some(f) = reading.refused.first() {
                        why = f.reason.clone();
                    }
                    let to = "unix:/run/samehost/.s.PGSQL.5432".parse().unwrap();
                    if let Some(s) = reading.settings.last() {
                        let goal = Goal { endpoint: to, stays: false, access: None, backlog: None };
                        one = match propose(ed, &path, &files, &[Move { setting: s.clone(), goal }]) {
                            Ok(_) => "ok",
                            Err(e) => {
                                why = e.to_string();
                                "err"
                            }
                        };
                    }
                }
                Err(e) => why = format!("ERR {}", e.reason),
            }
            let t3 = cpu();
            ed.check(&path, &files);
            let t4 = cpu();
            out.push((t1 - t0, t2 - t1, t3 - t2, t4 - t3));
            if size == sizes.last().unwrap() {
                let a = out[0];
                let b = (t1 - t0, t2 - t1, t3 - t2, t4 - t3);
                let f = *size as f64 / sizes[0] as f64;
                println!(
                    "{index:3} {:14} {:40.40} rec {:6.1}ms ×{:.1} read {:7.1}ms ×{:.1} propose {:7.1}ms ×{:.1} check ×{:.1} {found:?} n={n} r={r} {one} {:.60}",
                    shape.editor,
                    shape.text(1).iter().map(|b| *b as char).collect::<String>().replace('\n', "⏎"),
                    b.0 * 1e3,
                    b.0 / a.0 / f,
                    b.1 * 1e3,
                    b.1 / a.1 / f,
                    b.2 * 1e3,
                    b.2 / a.2 / f,
                    b.3 / a.3 / f,
                    why
                );
            }
        }
    }
}
