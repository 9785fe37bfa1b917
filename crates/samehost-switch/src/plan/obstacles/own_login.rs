//! The login of an application over one transport, completed as its library completes it: from its environment, its service
//! file and its password file, which is read by the host that the application will have. So a line for `127.0.0.1` is a
//! password over TCP and none over the socket, and `*` is one over both.
//!
//! Asking over both transports with one password was wrong both ways: with a line for the address alone the switch was called
//! good and the application had no password, and with `*` a sound switch was refused. The files are read with the
//! permissions of the application's user; where its process has mounts of its own, as it sees them, and only its own.

use std::collections::BTreeMap;

use samehost_login::Credentials;
use samehost_login::postgres::{FoundPassword, OwnFiles, PasswordPlace};
use samehost_model::switch::SwitchObstacle;
use samehost_model::{Endpoint, ObstacleCode, Protocol};
use samehost_system::User;
use samehost_system::identity::is_shared_with;

use crate::findings::{bar, place, shown};
use crate::plan::client::identity::ClientIdentity;
use crate::plan::hop::Hop;

/// A login, and where its password was found where the configuration has none.
pub(crate) struct OwnLogin {
    pub(crate) credentials: Credentials,
    pub(crate) found: Option<PasswordPlace>,
}

/// The login of a client of a move over an endpoint.
pub(crate) fn own_login(hop: &Hop, client: &ClientIdentity, endpoint: &Endpoint) -> OwnLogin {
    let setting = &hop.setting;
    let own = Credentials {
        user: setting.user.clone(),
        password: setting.password.clone(),
        database: setting.database.clone(),
    };
    if setting.protocol != Protocol::Postgres || !hop.client.around.library.reads_password_file() {
        return OwnLogin { credentials: given_for_this(hop, own), found: None };
    }
    if setting.user.is_none() && std::env::var_os("PGUSER").is_some() {
        return OwnLogin { credentials: given_for_this(hop, own), found: None };
    }
    let files = own_files(hop, client);
    let service = service(hop, &files);
    let of_service = |key: &str| service.iter().find(|(name, _)| name == key).map(|(_, value)| value.clone());
    let variable = |name: &str| files.variable(name).map(str::to_owned);
    let name = || User::of(client.identity.uid).name;
    let user = own.user.or_else(|| of_service("user")).or_else(|| variable("PGUSER")).or_else(name);
    let database = own.database.or_else(|| of_service("dbname")).or_else(|| variable("PGDATABASE"));
    let database = database.or_else(|| user.clone());
    let password = own.password.or_else(|| of_service("password").map(samehost_model::Secret::new));
    let mut credentials = Credentials { user, password, database };
    if credentials.password.is_some() {
        return OwnLogin { credentials, found: None };
    }
    let Some(FoundPassword { password, place }) = credentials.postgres_password(&files, endpoint, None)
    else {
        return OwnLogin { credentials, found: None };
    };
    credentials.password = Some(password);
    OwnLogin { credentials, found: Some(place) }
}

/// The login that was given for this, where a configuration names no account of PostgreSQL (PgBouncer's clients have their
/// own): libpq's variables of this process.
fn given_for_this(hop: &Hop, own: Credentials) -> Credentials {
    let is_lacking = hop.setting.protocol == Protocol::Postgres && hop.setting.user.is_none();
    if !is_lacking || std::env::var_os("PGUSER").is_none() {
        return own;
    }
    match Credentials::of(Protocol::Postgres, "", &hop.setting.endpoint) {
        Ok(given) => Credentials { database: own.database.or(given.database), ..given },
        Err(_) => own,
    }
}

/// The files of a client's user, as its process sees them.
fn own_files(hop: &Hop, client: &ClientIdentity) -> OwnFiles {
    let is_alone = hop.client.identities.len() <= 1;
    let mut variables = BTreeMap::new();
    for given in &hop.client.around.given {
        // Homes differ by user.
        if given.name != "HOME" || is_alone {
            variables.insert(given.name.clone(), given.value.reveal().to_owned());
        }
    }
    for word in &hop.setting.words {
        let variable = match samehost_edit::parameter(&word.name) {
            "passfile" => "PGPASSFILE",
            _ => continue,
        };
        variables.insert(variable.to_owned(), word.value.clone());
    }
    let user = User::of(client.identity.uid);
    let files = OwnFiles::of_user(&user, variables);
    match client.present() {
        Some(pid) if !(is_shared_with(pid, "root") && is_shared_with(pid, "ns/mnt")) => {
            files.seen_by(pid, &user)
        }
        _ => files,
    }
}

/// What the service says that a move's configuration or its environment names.
fn service(hop: &Hop, files: &OwnFiles) -> Vec<(String, String)> {
    let mut words = hop.setting.words.iter().filter(|word| samehost_edit::parameter(&word.name) == "service");
    let name = words.next().map(|word| word.value.as_str()).or_else(|| files.variable("PGSERVICE"));
    name.and_then(|name| files.service(name)).unwrap_or_default()
}

/// What the service of a move says; nothing where it has none.
pub(super) fn service_of(hop: &Hop) -> Vec<(String, String)> {
    let Some(client) = hop.client.identities.first() else { return Vec::new() };
    if hop.setting.protocol != Protocol::Postgres {
        return Vec::new();
    }
    service(hop, &own_files(hop, client))
}

/// The obstacle where a client finds its password over the present transport alone.
pub(crate) fn lost_password(hop: &Hop, client: &ClientIdentity) -> Option<SwitchObstacle> {
    let now = own_login(hop, client, &hop.setting.endpoint);
    let then = own_login(hop, client, &hop.to);
    let PasswordPlace::Line { file, number, host } = now.found? else { return None };
    if then.credentials.password.is_some() {
        return None;
    }
    let directory = hop.to.path()?.parent()?.display().to_string();
    let port = hop.to.path()?.file_name()?.to_str()?.strip_prefix(".s.PGSQL.")?.to_owned();
    let user = then.credentials.user.unwrap_or_default();
    let database = then.credentials.database.unwrap_or_default();
    let file = shown(&file);
    Some(bar(
        ObstacleCode::PasswordFile,
        format!(
            "{} ({}): the password is in {file}:{number}, for the host {host}. Over the socket the host is its directory, {directory}, for which {file} has no line. The application would print: {}",
            hop.setting.name,
            place(&hop.setting.file, hop.setting.line),
            hop.client.around.library.without_password()
        ),
        format!(
            "Add a line to {file}, with the password of line {number}: {directory}:{port}:{database}:{user}:PASSWORD; then switch again"
        ),
    ))
}
