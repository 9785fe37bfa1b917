//! Configurations in which a running client may have the address that it connects to: the file on its command line,
//! files in its working directory, and, for PHP, the sites that a web server here serves.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use samehost_edit::EDITORS;
use samehost_edit::Files;
use samehost_model::scan::{Process, Scan};
use samehost_services::Kind;

use super::config_file::{ConfigFile, at_path};
use super::server_files;
use crate::disk::{Disk, Reads};

/// Number of directories above the working directory that are searched as well: `public/`, `web/`.
const ABOVE: usize = 2;
/// Usual directories of sites, beside those that nginx names.
const SITES: &[&str] = &["/var/www", "/srv/www", "/srv", "/usr/share/nginx"];

/// Configurations, or directories of applications, of these processes.
#[must_use]
pub fn configurations(scan: &Scan, pids: &[u32]) -> Vec<PathBuf> {
    let mut found = BTreeSet::new();
    for process in pids.iter().filter_map(|pid| scan.process(*pid)) {
        let own = of_service(scan, process);
        found.extend(own.as_deref().and_then(php_ini));
        found.extend(own);
        let directory = std::fs::read_link(format!("/proc/{}/cwd", process.pid)).unwrap_or_default();
        let directories: Vec<&Path> =
            directory.ancestors().take(ABOVE + 1).filter(|path| path.components().count() > 1).collect();
        found.extend(directories.into_iter().find(|path| has_any(path)).map(Path::to_owned));
        if process.name.starts_with("php") || process.name.starts_with("apache") {
            found.extend(roots(scan).into_iter().filter(|path| has_any(path)));
        }
    }
    // Paths that cannot be read as a configuration are left out.
    found.retain(|path| at_path(path, None).is_ok());
    found.into_iter().collect()
}

/// The configuration of a service that is itself a client: nginx.
fn of_service(scan: &Scan, process: &Process) -> Option<PathBuf> {
    let family = [process.pid, process.parent];
    let service =
        scan.services.iter().find(|service| service.pid.is_some_and(|pid| family.contains(&pid)))?;
    server_files::of(scan, service).into_iter().find(|path| path.exists())
}

/// The php.ini beside the file of a PHP-FPM, if it names a server of sessions.
fn php_ini(file: &Path) -> Option<PathBuf> {
    let path = server_files::folder(file).join("php.ini");
    let config = ConfigFile::at(&path, None).ok()?.filter(|_| file.ends_with("php-fpm.conf"))?;
    config.read().ok().filter(|found| !found.reading.settings.is_empty())?;
    Some(path)
}

fn has_any(directory: &Path) -> bool {
    EDITORS.iter().flat_map(|editor| editor.names()).any(|name| directory.join(name).is_file())
}

/// Directories that are served here: those in `root` lines of nginx, their parents (`public/`), and usual places.
fn roots(scan: &Scan) -> Vec<PathBuf> {
    let disk = Disk::default();
    let entries = |directory: &Path| disk.list(directory).unwrap_or_default();
    let mut roots: Vec<PathBuf> = SITES.iter().flat_map(|site| entries(Path::new(site))).collect();
    let nginx = scan.services.iter().filter(|service| service.kind == Some(Kind::Nginx));
    for file in nginx.flat_map(|service| server_files::of(scan, service)) {
        let folder = server_files::folder(&file);
        let included =
            ["conf.d", "sites-enabled", "http.d"].iter().flat_map(|name| entries(&folder.join(name)));
        for path in included.chain([file.clone()]) {
            let text = Disk::of(&path, Reads::Application, None).read(&path).unwrap_or_default();
            for line in String::from_utf8_lossy(&text).lines() {
                let Some(root) = line.trim().strip_prefix("root ") else { continue };
                let root = PathBuf::from(root.trim().trim_end_matches(';').trim_matches(['"', '\'']));
                roots.extend(root.parent().map(Path::to_owned));
                roots.push(root);
            }
        }
    }
    roots.sort();
    roots.dedup();
    roots
}
