//! Where the state of this user is: stored results, the history of scans, switches. What root believes later is kept where
//! only root can change it; a HOME kept by sudo belongs to another user.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::Once;

use samehost_system::{NotPrivate, private};

use crate::output;
use crate::wrong_use::WrongUse;

/// Root's state directory, unless XDG_STATE_HOME is set.
const OF_ROOT: &str = "/var/lib/samehost";

/// State directory: `$XDG_STATE_HOME/samehost` or `~/.local/state/samehost`.
pub fn directory() -> Option<PathBuf> {
    named().or_else(|| home().map(|home| below(&home)))
}

/// State directory for something that only this user may change. For root it is `/var/lib/samehost`, or XDG_STATE_HOME if
/// nobody else can change that.
pub fn private_directory(what: &str) -> anyhow::Result<PathBuf> {
    if !rustix::process::geteuid().is_root() {
        let missing =
            || WrongUse(format!("neither XDG_STATE_HOME nor HOME is set: there is no place for {what}"));
        return Ok(directory().ok_or_else(missing)?);
    }
    let Some(named) = named() else { return Ok(OF_ROOT.into()) };
    let place = named.join(what);
    match private(&place) {
        Err(reason @ (NotPrivate::Owner(_) | NotPrivate::Writer(_))) => {
            static SAID: Once = Once::new();
            SAID.call_once(|| {
                let place = place.display();
                output::complain(&format!(
                    "{place} would not be safe: {reason}; {what} are kept in {OF_ROOT}"
                ));
            });
            Ok(OF_ROOT.into())
        }
        _ => Ok(named),
    }
}

/// `$XDG_STATE_HOME/samehost`.
pub fn named() -> Option<PathBuf> {
    let named = env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute())?;
    Some(named.join("samehost"))
}

pub fn home() -> Option<PathBuf> {
    env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from)
}

/// The state directory below a home.
pub fn below(home: &Path) -> PathBuf {
    home.join(".local/state/samehost")
}
