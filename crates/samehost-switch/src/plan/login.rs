//! A login at one end of a hop as the application: with the configuration's own credentials or those that its library
//! finds, as the application's user and with its view of the file system. The present transport is tried as well, to tell
//! a wrong password from a wrong account.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use samehost_edit::parameter;
use samehost_login::postgres::{FoundPassword, OwnFiles, PasswordPlace};
use samehost_login::{As, Credentials, Encrypted, LoginError, LoginErrorKind, View, log_in_as, proved};
use samehost_model::scan::Login;
use samehost_model::{Endpoint, Protocol, Secret};
use samehost_system::identity::is_shared_with;
use samehost_system::{User, threads};

use super::client::identity::ClientIdentity;
use super::hop::Hop;

const PATIENCE: Duration = Duration::from_secs(5);

/// Most moves that are asked at a time: more gains little, and a server has few connections to give.
const AT_A_TIME: usize = 4;

/// Asks the same of each of these moves, several at a time, and returns the answers in their order. The logins of fifty sites, one
/// after the other, were half of their plan's time beside other work. Moves that share a password are asked one after the other:
/// a wrong one is sent only once.
pub(crate) fn ask_each<T: Send>(hops: &[&Hop], ask: impl Fn(&Hop) -> T + Sync) -> Vec<T> {
    let groups = by_password(hops.iter().map(|hop| passwords(hop)));
    let (next, answers) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let work = || {
        while let Some(moves) = groups.get(next.fetch_add(1, Ordering::Relaxed)) {
            for at in moves {
                let answer = ask(hops[*at]);
                answers.lock().unwrap_or_else(PoisonError::into_inner).insert(*at, answer);
            }
        }
    };
    threads::all(std::iter::repeat_n(work, AT_A_TIME.min(groups.len())));
    answers.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect()
}

/// Who shares a password with whom, by their places.
fn by_password(all: impl Iterator<Item = Vec<Secret>>) -> Vec<Vec<usize>> {
    let mut groups: Vec<(Vec<Secret>, Vec<usize>)> = Vec::new();
    for (at, own) in all.enumerate() {
        let mut joined = (own, vec![at]);
        groups.retain_mut(|(known, others)| {
            let is_shared = known.iter().any(|one| joined.0.iter().any(|own| own.reveal() == one.reveal()));
            if is_shared {
                joined.0.append(known);
                joined.1.append(others);
            }
            !is_shared
        });
        joined.1.sort_unstable();
        groups.push(joined);
    }
    groups.into_iter().map(|(_, places)| places).collect()
}

/// How a client logs in at an endpoint of a hop.
pub(crate) struct OwnLogin<'a> {
    hop: &'a Hop,
    client: &'a ClientIdentity,
    endpoint: &'a Endpoint,
    pub(crate) credentials: Credentials,
    /// Where its password was found, where the configuration has none.
    pub(crate) found: Option<PasswordPlace>,
}

impl<'a> OwnLogin<'a> {
    /// The login of a client of a hop over an endpoint, completed as its library completes it: from its environment, its
    /// service file and its password file, which is read by the host that the application will have. So a line for
    /// `127.0.0.1` is a password over TCP and none over the socket, and `*` is one over both.
    ///
    /// Asking over both transports with one password was wrong both ways: with a line for the address alone the switch was
    /// called good and the application had no password, and with `*` a sound switch was refused. The files are read with
    /// the permissions of the application's user; where its process has mounts of its own, as it sees them, and only its
    /// own.
    pub(crate) fn of(hop: &'a Hop, client: &'a ClientIdentity, endpoint: &'a Endpoint) -> Self {
        let (credentials, found) = credentials(hop, client, endpoint);
        OwnLogin { hop, client, endpoint, credentials, found }
    }

    /// One login in a process of its own that has become the client. A reload ends workers at any moment: where the process
    /// whose view it takes ended meanwhile, that says nothing of the login, and it is tried with the next one.
    pub(crate) fn attempt(&self, program: &Path) -> Result<View, LoginError> {
        let OwnLogin { hop, client, .. } = self;
        let identity = &client.identity;
        let mut pid = client.present();
        loop {
            let who = As { pid, uid: identity.uid, gid: identity.gid, groups: identity.groups.clone() };
            let endpoint = seen_by(self.endpoint, pid);
            let (protocol, expected) = (hop.setting.protocol, &hop.server.expected);
            let result = log_in_as(program, &who, protocol, &endpoint, &self.credentials, expected, PATIENCE);
            let present = client.present();
            if !matches!(result, Err(LoginError::Become { .. })) || present == pid {
                return result;
            }
            pid = present;
        }
    }
}

fn credentials(
    hop: &Hop,
    client: &ClientIdentity,
    endpoint: &Endpoint,
) -> (Credentials, Option<PasswordPlace>) {
    let setting = &hop.setting;
    let own = Credentials {
        user: setting.user.clone(),
        password: setting.password.clone(),
        database: setting.database.clone(),
    };
    if setting.protocol != Protocol::Postgres || !hop.client.around.library.reads_password_file() {
        return (given_for_this(hop, own), None);
    }
    if setting.user.is_none() && std::env::var_os("PGUSER").is_some() {
        return (given_for_this(hop, own), None);
    }
    let files = own_files(hop, client);
    let mut credentials = own;
    // The service's words come after the configuration's, and before those of the environment.
    for (name, value) in service(hop, &files) {
        match name.as_str() {
            "user" if credentials.user.is_none() => credentials.user = Some(value),
            "dbname" if credentials.database.is_none() => credentials.database = Some(value),
            "password" if credentials.password.is_none() => credentials.password = Some(Secret::new(value)),
            _ => {}
        }
    }
    if credentials.user.is_none() {
        credentials.user = files.variable("PGUSER").map(str::to_owned);
    }
    if credentials.user.is_none() {
        credentials.user = User::of(client.identity.uid).name;
    }
    if credentials.database.is_none() {
        credentials.database = files.variable("PGDATABASE").map(str::to_owned);
    }
    if credentials.database.is_none() {
        credentials.database.clone_from(&credentials.user);
    }
    if credentials.password.is_some() {
        return (credentials, None);
    }
    let Some(FoundPassword { password, place }) = credentials.postgres_password(&files, endpoint, None)
    else {
        return (credentials, None);
    };
    credentials.password = Some(password);
    (credentials, Some(place))
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
        if parameter(&word.name) == "passfile" {
            variables.insert("PGPASSFILE".to_owned(), word.value.clone());
        }
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
    let named = hop.setting.words.iter().find(|word| parameter(&word.name) == "service");
    let name = match named {
        Some(word) => Some(word.value.as_str()),
        None => files.variable("PGSERVICE"),
    };
    name.and_then(|name| files.service(name)).unwrap_or_default()
}

/// What the service of a move says; nothing where it has none.
pub(crate) fn service_of(hop: &Hop) -> Vec<(String, String)> {
    let Some(client) = hop.client.identities.first() else { return Vec::new() };
    if hop.setting.protocol != Protocol::Postgres {
        return Vec::new();
    }
    service(hop, &own_files(hop, client))
}

/// Logins that succeeded, one for each user who connects.
pub(crate) struct LoggedIn {
    pub(crate) shown: String,
    /// What the first of them proves: all went as far, by one protocol.
    pub(crate) login: Option<Login>,
    pub(crate) views: Vec<Seen>,
}

/// What a login of a client showed.
pub(crate) struct Seen {
    pub(crate) client: ClientIdentity,
    pub(crate) view: View,
    /// The same over the present transport, where it was tried before and let in.
    pub(crate) present: Option<View>,
}

#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) client: ClientIdentity,
    /// The account.
    pub(crate) user: Option<String>,
    pub(crate) over: Endpoint,
    pub(crate) error: LoginError,
    /// What the same login gets over the present transport.
    pub(crate) present: Present,
}

/// Result of a login over the present transport, after the other one failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Present {
    LetIn,
    /// It was let in with TLS, and not without.
    LetInByTls,
    /// It was tried, and refused.
    Refused,
    /// It was not tried, or there was no answer.
    Unknown,
}

impl Present {
    fn of(result: &Result<View, LoginError>) -> Self {
        match result {
            Ok(view) if view.tls.is_some() => Present::LetInByTls,
            Ok(_) => Present::LetIn,
            Err(LoginError::Spent { .. }) => Present::Unknown,
            Err(error) if error.kind() == LoginErrorKind::Refused => Present::Refused,
            Err(_) => Present::Unknown,
        }
    }
}

impl Failed {
    fn was_let_in(&self) -> bool {
        matches!(self.present, Present::LetIn | Present::LetInByTls)
    }
}

/// Logs in over the new endpoint with each account that connects. Whom the server lets in over neither transport has
/// another database.
///
/// # Errors
/// Who could not log in, and why.
pub(crate) fn try_hop(hop: &Hop, program: &Path) -> Result<LoggedIn, Box<Failed>> {
    let mut all = try_account(hop, program);
    for setting in hop.setting.by_account().skip(1) {
        let other = Hop { setting, ..hop.clone() };
        all = match (all, try_account(&other, program)) {
            (Err(failed), _) | (_, Err(failed)) if failed.was_let_in() => return Err(failed),
            (Ok(mut all), Ok(found)) => {
                all.shown = format!("{}; {}", all.shown, found.shown);
                Ok(all)
            }
            (Err(_), found @ Ok(_)) | (found, Err(_)) => found,
        };
    }
    all
}

/// Logs in over the new endpoint as each user who will connect. Returns what the server and the kernel report.
///
/// Servers count failed logins, so the present transport comes first where there is a password: a wrong one is sent only
/// once, and a right one resets the count. Without a password nothing is counted; the present transport is then tried only
/// after a refusal, to tell the causes apart.
///
/// # Errors
/// Who could not log in, and why.
fn try_account(hop: &Hop, program: &Path) -> Result<LoggedIn, Box<Failed>> {
    let (mut shown, mut views, mut login) = (Vec::new(), Vec::new(), None);
    let from = &hop.setting.endpoint;
    for client in everyone(hop) {
        let now = OwnLogin::of(hop, &client, from);
        let (mut present, mut seen_now) = (None, None);
        if now.credentials.password.is_some() {
            let result = now.attempt(program);
            let at_present = Present::of(&result);
            seen_now = match result {
                Err(error) if is_about_the_password(&error) => {
                    return Err(Box::new(Failed {
                        client,
                        user: hop.setting.user.clone(),
                        over: from.clone(),
                        error,
                        present: at_present,
                    }));
                }
                other => other.ok(),
            };
            present = Some(at_present);
        }
        let then = OwnLogin::of(hop, &client, &hop.to);
        let result = then.attempt(program);
        let proof = proved(&result);
        let view = match result {
            Ok(view) => view,
            Err(error) => {
                let present = match present {
                    Some(present) => present,
                    None if error.kind() == LoginErrorKind::Refused => Present::of(&now.attempt(program)),
                    None => Present::Unknown,
                };
                return Err(Box::new(Failed {
                    client,
                    user: hop.setting.user.clone(),
                    over: hop.to.clone(),
                    error,
                    present,
                }));
            }
        };
        let says = if view.says.is_empty() { view.family.clone() } else { view.says.clone() };
        let found = then.found.map(found_in).unwrap_or_default();
        shown.push(format!("as {}: {says}{found}", client.name));
        views.push(Seen { client, view, present: seen_now });
        login.get_or_insert(proof);
    }
    Ok(LoggedIn { shown: shown.join("; "), login, views })
}

/// Logs in over the present transport, for a move whose server does not listen at the new endpoint yet: what those connections are
/// encrypted with.
///
/// # Errors
/// Whose password the server refuses: after its restart it would refuse it as well.
pub(crate) fn try_present(hop: &Hop, program: &Path) -> Result<Vec<Encrypted>, Box<Failed>> {
    let over = &hop.setting.endpoint;
    // Of several accounts one may have another database.
    let is_of_one = hop.setting.by_account().count() == 1;
    let mut encrypted = Vec::new();
    for client in everyone(hop) {
        match OwnLogin::of(hop, &client, over).attempt(program) {
            Ok(view) => encrypted.extend(view.encrypted),
            Err(error) if is_of_one && is_about_the_password(&error) || error.is_of_this_process() => {
                let (user, present) = (hop.setting.user.clone(), Present::Refused);
                return Err(Box::new(Failed { client, user, over: over.clone(), error, present }));
            }
            Err(_) => {}
        }
    }
    Ok(encrypted)
}

/// The passwords that clients find by themselves, which no message may repeat.
pub(crate) fn passwords(hop: &Hop) -> Vec<Secret> {
    let mut found = Vec::new();
    for client in everyone(hop) {
        for endpoint in [&hop.setting.endpoint, &hop.to] {
            found.extend(OwnLogin::of(hop, &client, endpoint).credentials.password);
        }
    }
    found.extend(hop.setting.others.iter().map(|(_, password)| password.clone()));
    found
}

fn found_in(place: PasswordPlace) -> String {
    match place {
        PasswordPlace::Variable => ", with the password in PGPASSWORD".to_owned(),
        PasswordPlace::Line { file, number, .. } => {
            format!(", with the password in {}:{number}", file.display())
        }
    }
}

/// Whether the password itself was refused, so that another transport would refuse it too.
fn is_about_the_password(error: &LoginError) -> bool {
    match error {
        LoginError::Refused(refused) => refused.by_password,
        LoginError::Spent { .. } => true,
        _ => false,
    }
}

pub(crate) fn everyone(hop: &Hop) -> Vec<ClientIdentity> {
    if hop.client.identities.is_empty() {
        vec![ClientIdentity::ourselves()]
    } else {
        hop.client.identities.clone()
    }
}

/// An endpoint as a process calls it: to one in a chroot, a path below its root directory begins there.
fn seen_by(endpoint: &Endpoint, pid: Option<u32>) -> Endpoint {
    let root = pid.and_then(|pid| std::fs::read_link(format!("/proc/{pid}/root")).ok());
    if let (Endpoint::Unix(path), Some(root)) = (endpoint, root)
        && let Ok(inside) = path.strip_prefix(root)
    {
        return Endpoint::Unix(Path::new("/").join(inside));
    }
    endpoint.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_shares_a_password_is_asked_one_after_the_other() {
        let of = |all: &[&[&str]]| {
            let secrets = |words: &&[&str]| words.iter().map(|word| Secret::new(*word)).collect();
            by_password(all.iter().map(secrets))
        };
        assert_eq!(of(&[&["a"], &["b"], &[], &[]]), [[0], [1], [2], [3]]);
        assert_eq!(of(&[&["a"], &["b"], &["a"], &["c", "b"]]), [[0, 2], [1, 3]]);
        assert_eq!(of(&[&["a"], &["b"], &["a", "b"]]), [[0, 1, 2]]);
    }
}
