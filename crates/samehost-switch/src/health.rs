//! Detects whether a switch still holds, and sums up what became of all switches: their states, whether their files still
//! hold, and whether clients are over TCP again. A configuration management, a package or a person may have put TCP back,
//! which is an outage if the port was closed. Looks at files and at a scan, and changes nothing.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use samehost_edit::{Overlay, Reading, Setting, recognise};
use samehost_model::Endpoint;
use samehost_model::scan::{ApplicationSeen, Scan};
use samehost_model::switch::{LeftTcp, SwitchHealth};
use samehost_scan::services_at;
use samehost_services::Kind;
use samehost_system::open;
use samehost_transaction::{Standing, State, Store, TransactionError, Version, listed, standing};

use crate::configuration::ConfigFile;
use crate::findings::{place, shown};
use crate::usage::followed;

/// What became of the switches of these stores, by a scan with its advice.
///
/// # Errors
/// When the journals cannot be read.
pub fn health(stores: &[Store], scan: &Scan) -> Result<SwitchHealth, TransactionError> {
    let mut states = State::ALL.map(|state| (state, 0));
    let mut health = SwitchHealth::default();
    let mut seen: Vec<usize> = Vec::new();
    for store in stores {
        for entry in listed(store)? {
            for (state, number) in &mut states {
                *number += u32::from(*state == entry.state);
            }
        }
        // One without files was overtaken by a later one.
        for switch in standing(store)?.iter().filter(|switch| !switch.files.is_empty()) {
            health.drifted += u32::from(checked_files(switch).any(|file| !file.holds));
            let (old, new) = moves(&switch.summary);
            for (from, to) in old.iter().zip(&new) {
                if let Endpoint::Tcp { .. } = from {
                    left_tcp(scan, [from, to], &mut seen, &mut health.left_tcp);
                }
            }
        }
    }
    // What is open now; a scan does not wait for more.
    for seen in followed(stores, scan, Duration::ZERO, &|| true)?.values() {
        health.in_use += u32::from(seen.application() == ApplicationSeen::InUse);
        health.not_followed += u32::from(seen.is_left_behind());
    }
    health.states = states.map(|(state, number)| (state.to_string().replace(' ', "_"), number)).to_vec();
    Ok(health)
}

/// Adds the services at the old and the new place of a switch that are not there yet, with their clients over TCP.
fn left_tcp(scan: &Scan, places: [&Endpoint; 2], seen: &mut Vec<usize>, all: &mut Vec<LeftTcp>) {
    for at in places.into_iter().flat_map(|place| services_at(scan, place)) {
        let Some(service) = scan.services.get(at) else { continue };
        if seen.contains(&at) {
            continue;
        }
        seen.push(at);
        let clients = scan.advice.iter().filter(|advice| advice.service == at).count() as u32;
        all.push(LeftTcp { service: service.kind.map(Kind::name), clients });
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedFile {
    pub id: String,
    pub file: PathBuf,
    /// Whether the change still holds.
    pub holds: bool,
    pub found: String,
}

/// Compares every file of every switch in force with what the switch left.
///
/// # Errors
/// When the journals cannot be read.
pub fn drift(store: &Store) -> Result<Vec<CheckedFile>, TransactionError> {
    Ok(standing(store)?.iter().flat_map(checked_files).collect())
}

fn checked_files(switch: &Standing) -> impl Iterator<Item = CheckedFile> {
    switch.files.iter().map(|file| {
        let path = file.path();
        let (holds, found) = match (file.version(), open::read(path, open::LONGEST)) {
            (Version::Switched, _) => (true, "as the switch left it".to_owned()),
            (Version::Before | Version::TextBefore(_), _) => {
                let id = &switch.id;
                (false, format!("was put back by hand; to end the switch: samehost switch undo {id}"))
            }
            (Version::Other(_), Ok(text)) => changed(switch, path, &text),
            (_, Err(error)) if error.kind() == ErrorKind::NotFound => (false, "is not there any more".into()),
            (_, Err(error)) => (false, format!("cannot be read: {error}")),
        };
        CheckedFile { id: switch.id.clone(), file: path.to_owned(), holds, found }
    })
}

/// Whether a file that was edited since still holds, and what was found. It holds while it names the new place: other edits
/// do not matter. The reading is by the file's own editor, so that a comment with the old address is not drift.
fn changed(switch: &Standing, file: &Path, text: &[u8]) -> (bool, String) {
    let (old, new) = moves(&switch.summary);
    let Some(editor) = recognise(file, text) else {
        return (false, "was changed since, and no editor recognises it".into());
    };
    // Whoever changed it may have it include files that only root can read.
    let disk = ConfigFile { file: file.to_owned(), editor, reader: None }.files();
    let files = Overlay::new(&disk, [(file.to_owned(), text.to_vec())].into());
    let reading = match editor.read(file, &files) {
        Ok(reading) => reading,
        Err(refusal) => {
            return (false, format!("was changed since, and is not understood: {}", refusal.reason));
        }
    };
    match (naming(&reading, &new), naming(&reading, &old)) {
        (Some(setting), _) => {
            (true, format!("was changed since; {} still names {}", setting.name, setting.endpoint))
        }
        (None, Some(setting)) => (
            false,
            format!(
                "{} names {} again ({})",
                setting.name,
                setting.endpoint,
                place(&setting.file, setting.line)
            ),
        ),
        (None, None) => (
            false,
            format!("{} was changed since, and names neither the old place nor the new one", shown(file)),
        ),
    }
}

fn naming(reading: &Reading, wanted: &[Endpoint]) -> Option<Setting> {
    reading.settings.iter().find(|setting| wanted.contains(&setting.endpoint)).cloned()
}

/// The places of a summary, `NAME FROM → TO, …`: those moved from, and those moved to.
pub(crate) fn moves(summary: &str) -> (Vec<Endpoint>, Vec<Endpoint>) {
    let words: Vec<&str> = summary.split_whitespace().map(|word| word.trim_end_matches(',')).collect();
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for around in words.windows(3).filter(|around| around[1] == "→") {
        before.extend(around[0].parse::<Endpoint>().ok());
        after.extend(around[2].parse::<Endpoint>().ok());
    }
    (before, after)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(summary: &str) -> Standing {
        Standing { id: String::new(), summary: summary.into(), files: Vec::new() }
    }

    #[test]
    fn summaries_name_both_places() {
        let (old, new) = moves(
            "fastcgi_pass, /a/nginx.conf:17 tcp:127.0.0.1:9000 → unix:/run/a.sock, DB_HOST tcp:127.0.0.1:3306 → unix:/b",
        );
        assert_eq!(old.len(), 2);
        assert_eq!(new, ["unix:/run/a.sock".parse().unwrap(), "unix:/b".parse().unwrap()]);
    }

    #[test]
    fn an_edit_elsewhere_is_no_drift_and_the_old_place_is() {
        fn check(text: &str) -> (bool, String) {
            let switch = standing("REDIS_URL tcp:127.0.0.1:6379 → unix:/run/redis/redis.sock");
            changed(&switch, Path::new("/x/redis.conf"), text.as_bytes())
        }
        assert!(check("# edited\nport 0\nunixsocket /run/redis/redis.sock\n").0);
        let (holds, found) = check("bind 127.0.0.1\nport 6379\n");
        assert!(!holds && found.contains("again"), "{found}");
        assert!(!check("port 6380\n").0);
    }
    #[test]
    fn what_an_application_includes_is_read_as_its_owner_as_root() {
        use std::os::unix::fs::{PermissionsExt, chown};
        assert!(rustix::process::geteuid().is_root(), "this test gives a file away: run it as root");
        let directory = tempfile::Builder::new().tempdir_in("/var").unwrap();
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let (file, secret) = (directory.path().join("wp-config.php"), directory.path().join("secret.php"));
        std::fs::write(&secret, "<?php\ndefine( 'DB_HOST', '127.0.0.1:3306' );\n").unwrap();
        let text = format!("<?php\nrequire '{}';\n", secret.display());
        std::fs::write(&file, &text).unwrap();
        chown(&file, Some(54_321), None).unwrap();
        let switch = standing("DB_HOST tcp:127.0.0.1:3306 → unix:/run/mysqld/mysqld.sock");
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(changed(&switch, &file, text.as_bytes()).1.contains("names tcp:127.0.0.1:3306 again"));
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
        let (holds, found) = changed(&switch, &file, text.as_bytes());
        assert!(!holds && !found.contains("again") && !found.contains("3306"), "{found}");
    }
}
