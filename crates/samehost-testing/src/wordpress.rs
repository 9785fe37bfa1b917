//! WordPress' own installer, for tests that have a site of their own.
#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test may panic")]

use std::path::Path;
use std::process::Command;

/// Installs the WordPress below `root`, whose settings are written, as the site of `host` (a port may follow).
pub fn install(root: &Path, host: &str) {
    let installer = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/wordpress.php");
    let output = Command::new("php")
        .args(["-d", "display_errors=0"])
        .arg(installer)
        .arg(root)
        .arg(host)
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("installed"), "{output:?}");
}
