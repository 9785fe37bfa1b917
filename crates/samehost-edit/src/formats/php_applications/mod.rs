//! PHP applications whose configuration is a PHP file: Nextcloud and ownCloud, Magento, Joomla, Moodle, phpMyAdmin. Each
//! has a file of its own here, which says where its connections are written and what its drivers make of the words.

mod connection;
mod joomla;
mod magento;
mod moodle;
mod nextcloud;
mod phpmyadmin;

use std::path::Path;

use samehost_model::Secret;

use self::connection::Connection;
use crate::asked::Library;
use crate::check::Check;
use crate::edit::Edit;
use crate::editor::Editor;
use crate::files::Files;
use crate::languages::php::{self, Outcome, Setup, Value, add, change, remove};
use crate::refusal::{At, Refusal, Result};
use crate::setting::{Goal, Reading, Setting, Uptake};

/// The editor.
pub struct PhpApplications;

/// An application.
struct Application {
    /// How its file's path ends.
    file: &'static str,
    /// Text that its file has, and that no other application's has.
    mark: &'static str,
    setup: fn() -> Setup<'static>,
    connections: fn(&Path, &dyn Files, &Outcome) -> Vec<Result<Connection>>,
}

const APPLICATIONS: &[Application] =
    &[nextcloud::NEXTCLOUD, magento::MAGENTO, joomla::JOOMLA, moodle::MOODLE, phpmyadmin::PHPMYADMIN];

impl Editor for PhpApplications {
    fn name(&self) -> &'static str {
        "php-application"
    }

    fn about(&self) -> &'static str {
        "Nextcloud, ownCloud, Magento, Joomla, Moodle, phpMyAdmin: database and Redis in config.php and its like"
    }

    fn names(&self) -> &'static [&'static str] {
        &["config/config.php", "app/etc/env.php", "configuration.php", "config.php", "config.inc.php"]
    }

    fn recognises(&self, path: &Path, text: &[u8]) -> bool {
        application(path, text).is_some()
    }

    fn read(&self, file: &Path, files: &dyn Files) -> Result<Reading> {
        let (_, found) = connections(file, files)?;
        Ok(found.into_iter().map(|found| found.map(|connection| setting(&connection))).collect())
    }

    fn edit(&self, file: &Path, files: &dyn Files, setting: &Setting, goal: &Goal) -> Result<Vec<Edit>> {
        let (outcome, found) = connections(file, files)?;
        let mut found = found.into_iter().flatten();
        let Some(connection) = found.find(|connection| connection.name == setting.name) else {
            return Ok(Vec::new());
        };
        if connection.endpoint == goal.endpoint {
            return Ok(Vec::new());
        }
        let wanted = (connection.spell)(&connection, &goal.endpoint);
        let edits = wanted.and_then(|wanted| write(&connection, &outcome, &wanted));
        edits.map_err(|reason| connection.refusal(reason))
    }

    fn check(&self, file: &Path, _: &dyn Files) -> Option<Check> {
        Check::php(file)
    }

    fn uptake(&self, _file: &Path) -> Uptake {
        Uptake::AtOnce
    }
}

fn application(path: &Path, text: &[u8]) -> Option<&'static Application> {
    APPLICATIONS.iter().find(|known| {
        path.ends_with(known.file) && text.windows(known.mark.len()).any(|part| part == known.mark.as_bytes())
    })
}

fn connections(file: &Path, files: &dyn Files) -> Result<(Outcome, Vec<Result<Connection>>)> {
    let real = files.real(file);
    let by_hand = "look at the file, and switch again";
    let here = At { file: &real, line: 0 };
    let text = files.read(&real).map_err(|error| here.refusal(error.to_string(), by_hand))?;
    let application = application(&real, &text)
        .ok_or_else(|| here.refusal("this is not the configuration of a known application", by_hand))?;
    let outcome = php::execute(&real, files, (application.setup)()).map_err(|trouble| {
        Refusal::new(&trouble.file, trouble.line, trouble.reason, "look at the file, and switch again")
    })?;
    let found = (application.connections)(&real, files, &outcome);
    Ok((outcome, found))
}

fn setting(connection: &Connection) -> Setting {
    let place = connection.place();
    Setting {
        library: Library::of_php(connection.protocol),
        user: connection.login.user.clone(),
        password: connection.login.password.clone().map(Secret::new),
        database: connection.login.database.clone(),
        ..Setting::connects(
            connection.name.clone(),
            connection.protocol,
            connection.written.clone(),
            connection.endpoint.clone(),
        )
        .at(&place.file, place.line)
    }
}

/// The edits that give the words of a connection other values; `None` removes one.
fn write(
    connection: &Connection,
    outcome: &Outcome,
    wanted: &[(&'static str, Option<String>)],
) -> Result<Vec<Edit>, String> {
    let mut edits = Vec::new();
    for (key, value) in wanted {
        match (connection.item(key), value) {
            (Some(item), Some(value)) if item.value.value.text().as_deref() == Some(value.as_bytes()) => {}
            (Some(item), Some(value)) => edits.push(change(item, value)?),
            (Some(item), None) if item.value.value != Value::Null => edits.push(remove(item, outcome)?),
            (None, Some(value)) => {
                let anchor = connection.anchor(key).ok_or_else(|| {
                    format!("`{key}` is not there, and nothing stands where it could be added")
                })?;
                edits.push(add(anchor, outcome, key, value)?);
            }
            (_, None) => {}
        }
    }
    Ok(edits)
}
