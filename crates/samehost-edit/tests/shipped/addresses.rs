//! What the one reader of addresses finds in files: a line each, for the evidence `shipped`. The paths come from standard input.

use std::io::{BufRead, Write, stdin, stdout};

use samehost_edit::leads_among;
use samehost_model::Endpoint;

fn main() -> std::io::Result<()> {
    let mut out = stdout().lock();
    for path in stdin().lock().lines() {
        let path = path?;
        let bytes = std::fs::read(&path)?;
        let (found, _) = leads_among(&String::from_utf8_lossy(&bytes), &path, &|_| true);
        for lead in found {
            let over_tcp = lead.endpoints.iter().filter(|one| matches!(one, Endpoint::Tcp { .. }));
            let places: Vec<String> = over_tcp.map(ToString::to_string).collect();
            if !places.is_empty() {
                writeln!(out, "{path}\t{}\t{:?}\t{}\t{}", lead.line, lead.form, places.join("|"), lead.name)?;
            }
        }
    }
    Ok(())
}
