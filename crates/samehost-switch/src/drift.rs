//! Detects whether a switch still holds. A configuration management, a package or a person may have put TCP back, which
//! is an outage if the port was closed. Looks at files, and changes nothing.

use std::path::{Path, PathBuf};

use samehost_edit::{Overlay, Reading, Setting, recognise};
use samehost_model::Endpoint;

use crate::configuration::config_file::ConfigFile;
use crate::findings::{place, shown};
use samehost_transaction::{Standing, Stands, Store, TransactionError, standing};

/// How a file of a switch is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedFile {
    /// The switch.
    pub id: String,
    /// The file.
    pub file: PathBuf,
    /// Whether the change still holds.
    pub holds: bool,
    /// What was found.
    pub found: String,
}

/// Compares every file of every switch in force with what the switch left.
///
/// # Errors
/// When the journals cannot be read.
pub fn drift(store: &Store) -> Result<Vec<CheckedFile>, TransactionError> {
    Ok(standing(store)?.iter().flat_map(checked_files).collect())
}

/// Compares the files of a switch in force.
pub(crate) fn checked_files(switch: &Standing) -> impl Iterator<Item = CheckedFile> {
    switch.files.iter().map(|(file, stands)| {
        let (holds, found) = match stands {
            Stands::AsLeft => (true, "as the switch left it".to_owned()),
            Stands::Otherwise(found) => (false, found.clone()),
            Stands::Changed(text) => changed(switch, file, text),
        };
        CheckedFile { id: switch.id.clone(), file: file.clone(), holds, found }
    })
}

/// A file that was edited since holds if it still names the new place, or if it named neither place before.
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

/// A setting that names one of these endpoints.
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
        let switch = standing("REDIS_URL tcp:127.0.0.1:6379 → unix:/run/redis/redis.sock");
        let check = |text: &str| changed(&switch, Path::new("/x/redis.conf"), text.as_bytes());
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
        let mode = |mode| std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(mode)).unwrap();
        mode(0o644);
        assert!(changed(&switch, &file, text.as_bytes()).1.contains("names tcp:127.0.0.1:3306 again"));
        mode(0o600);
        let (holds, found) = changed(&switch, &file, text.as_bytes());
        assert!(!holds && !found.contains("again") && !found.contains("3306"), "{found}");
    }
}
