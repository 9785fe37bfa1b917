//! Logins as the application: with the configuration's own credentials, as the application's user and with its view of the
//! file system. They are tried over the new transport three times: before anything is touched, where the server listens
//! there already; after the first stage, where its configuration had to change; and at the end, as the proof. The present
//! transport is tried as well, to tell a wrong password from a wrong account.

use std::path::Path;
use std::time::Duration;

use samehost_login::postgres::PasswordPlace;
use samehost_login::{
    As, Credentials, Encrypted, LoginError, LoginErrorKind, View, log_in_as, missing_rights,
};
use samehost_model::switch::SwitchObstacle;
use samehost_model::{Endpoint, ObstacleCode, Protocol, Secret};
use samehost_scan::{DecidedBy, decided_by};

use crate::findings::{bar, place};
use crate::plan::Plan;
use crate::plan::client::identity::ClientIdentity;
use crate::plan::hop::Hop;
use crate::plan::obstacles::encryption::{OwnLogin, in_code, lost_password, own_login};
use crate::plan::occupant::{listener, stranger};
use crate::plan::stages::PlannedStage;
use crate::request::Environment;

const PATIENCE: Duration = Duration::from_secs(5);

impl Plan {
    /// Logs in as the application for every move whose new endpoint exists. Returns the plan with the results: what each
    /// login showed, and what is in the way. Where all are let in, what the scan feared of them is no longer an obstacle: a
    /// login decides (docs/decisions/0068). `program` is this program, which is started again as the application's user.
    #[must_use]
    pub fn try_logins(mut self, program: &Path) -> Self {
        let mut all_in = true;
        self.secrets.extend(self.hops.iter().flat_map(passwords));
        // A server whose configuration has to change listens there only after the first stage; it is tried then.
        for hop in self.hops.iter_mut().filter(|hop| hop.server_line.is_none()) {
            match try_hop(hop, program) {
                Ok(LoggedIn { shown, views }) => {
                    hop.login = Some(shown);
                    let mut encrypted: Vec<Encrypted> = Vec::new();
                    for (_, view) in &views {
                        encrypted.extend(view.encrypted.iter().cloned());
                    }
                    self.findings.add(in_code(hop, &encrypted));
                    self.findings.add(fewer_rights(hop, &views, program));
                }
                Err(failed) => {
                    all_in = false;
                    let mut obstacle = obstacle(hop, &failed);
                    if failed.error.kind() != LoginErrorKind::Refused {
                        // A blocker of the scan explains the failure, and has the remedy.
                        for why in self.findings.obstacles.iter_mut().filter(|why| is_for_the_login(why)) {
                            why.bars = true;
                            obstacle.remedy.clone_from(&why.remedy);
                        }
                    }
                    self.findings.add([obstacle]);
                }
            }
        }
        // Of those the present connections are looked at all the same.
        for hop in self.hops.iter().filter(|hop| hop.server_line.is_some() && hop.to.path().is_some()) {
            let mut encrypted: Vec<Encrypted> = Vec::new();
            for client in everyone(hop) {
                if let Ok(view) = attempt_at_present(hop, &client, program) {
                    encrypted.extend(view.encrypted);
                }
            }
            self.findings.add(in_code(hop, &encrypted));
        }
        if all_in {
            self.findings.obstacles.retain(|obstacle| obstacle.bars || !is_for_the_login(obstacle));
        }
        self
    }
}

/// Fails where somebody else has what the servers are to take in this stage. The plan asked already; it is asked again
/// right before the write, because minutes may have passed since, at a question that a person answered.
pub(crate) fn still_free(
    stage: &PlannedStage,
    hops: &[Hop],
    environment: &Environment<'_>,
) -> Result<(), SwitchObstacle> {
    if stage.takes.is_empty() {
        return Ok(());
    }
    let Some(scan) = (environment.scan)() else { return Ok(()) };
    for hop in hops.iter().filter(|hop| hop.server_line.is_some() && stage.takes.contains(&hop.to)) {
        if let Some(occupant) = listener(&scan, &hop.server, &hop.to) {
            return Err(bar(
                ObstacleCode::SocketPath,
                format!("{} is not free any more: {occupant}", hop.to),
                "Name a place that nobody uses: --socket /run/NAME/NAME.sock, or --address 127.0.0.1:PORT",
            ));
        }
    }
    Ok(())
}

/// Fails unless the server that is meant listens at the new place of each move, and nobody else.
fn meant_servers<'a>(
    hops: impl Iterator<Item = &'a Hop>,
    environment: &Environment<'_>,
) -> Result<(), SwitchObstacle> {
    let Some(scan) = (environment.scan)() else { return Ok(()) };
    for hop in hops {
        let Some(occupant) = stranger(&scan, &hop.server, &hop.to) else { continue };
        let meant = hop.server.name.as_deref().unwrap_or("the server of this configuration");
        return Err(bar(
            ObstacleCode::ServerIdentity,
            format!("{}: {occupant}, and not {meant}", hop.to),
            "Stop the one that does not belong there, or name another place: --socket /run/NAME/NAME.sock",
        ));
    }
    Ok(())
}

/// Logs in as the application at servers that did not listen at their new endpoint before, once they do. No client has
/// moved yet. The other servers were asked before the switch.
pub(crate) fn try_new_servers(hops: &[Hop], environment: &Environment<'_>) -> Result<(), SwitchObstacle> {
    meant_servers(hops.iter().filter(|hop| hop.server_line.is_some()), environment)?;
    for hop in hops.iter().filter(|hop| hop.server_line.is_some()) {
        let found = try_hop(hop, environment.program).map_err(|failed| obstacle(hop, &failed))?;
        if let Some(fewer) = fewer_rights(hop, &found.views, environment.program) {
            return Err(fewer);
        }
    }
    Ok(())
}

/// A login over the new endpoint of a move that succeeded, after everything was written.
pub(crate) struct Proof {
    pub(crate) login: String,
    /// The same with the name of the connection and where it goes.
    pub(crate) sentence: String,
}

/// Logs in as the application over all new endpoints, after everything was written. Before a password is sent, it is asked
/// again who listens there.
pub(crate) fn prove(hops: &[Hop], environment: &Environment<'_>) -> Result<Vec<Proof>, SwitchObstacle> {
    meant_servers(hops.iter(), environment)?;
    let mut proofs = Vec::new();
    for hop in hops {
        let LoggedIn { shown, .. } =
            try_hop(hop, environment.program).map_err(|failed| obstacle(hop, &failed))?;
        let verb = if hop.setting.protocol == Protocol::Plain { "connects" } else { "logs in" };
        let sentence = format!("{} {verb} over {} {shown}", hop.setting.name, hop.to);
        proofs.push(Proof { login: shown, sentence });
    }
    Ok(proofs)
}

/// Whether a login decides about it, and not the scan.
fn is_for_the_login(obstacle: &SwitchObstacle) -> bool {
    decided_by(obstacle.code) == DecidedBy::Login
}

/// Logins that succeeded, one for each user who connects.
pub(crate) struct LoggedIn {
    shown: String,
    views: Vec<(ClientIdentity, View)>,
}

#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) client: ClientIdentity,
    pub(crate) over: Endpoint,
    pub(crate) error: LoginError,
    /// What the same login gets over the present transport.
    present: Present,
}

/// Result of a login over the present transport, after the other one failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Present {
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

/// Logs in over the new endpoint as each user who will connect. Returns what the server and the kernel report.
///
/// Servers count failed logins, so the present transport comes first where there is a password: a wrong one is sent only
/// once, and a right one resets the count. Without a password nothing is counted; the present transport is then tried only
/// after a refusal, to tell the causes apart.
///
/// # Errors
/// Who could not log in, and why.
pub(crate) fn try_hop(hop: &Hop, program: &Path) -> Result<LoggedIn, Box<Failed>> {
    let (mut shown, mut views) = (Vec::new(), Vec::new());
    let from = &hop.setting.endpoint;
    for client in everyone(hop) {
        let now = own_login(hop, &client, from).credentials;
        let mut present = None;
        if now.password.is_some() {
            let result = attempt(hop, from, &client, &now, program);
            let at_present = Present::of(&result);
            if let Err(error) = result
                && is_about_the_password(&error)
            {
                return Err(Box::new(Failed { client, over: from.clone(), error, present: at_present }));
            }
            present = Some(at_present);
        }
        let OwnLogin { credentials, found } = own_login(hop, &client, &hop.to);
        let view = match attempt(hop, &hop.to, &client, &credentials, program) {
            Ok(view) => view,
            Err(error) => {
                let present = match present {
                    Some(present) => present,
                    None if error.kind() == LoginErrorKind::Refused => {
                        Present::of(&attempt(hop, from, &client, &now, program))
                    }
                    None => Present::Unknown,
                };
                return Err(Box::new(Failed { client, over: hop.to.clone(), error, present }));
            }
        };
        let says = if view.says.is_empty() { view.family.clone() } else { view.says.clone() };
        let found = found.map(found_in).unwrap_or_default();
        shown.push(format!("as {}: {says}{found}", client.name));
        views.push((client, view));
    }
    Ok(LoggedIn { shown: shown.join("; "), views })
}

/// The passwords that clients find by themselves, which no message may repeat.
fn passwords(hop: &Hop) -> Vec<Secret> {
    let mut found = Vec::new();
    for client in everyone(hop) {
        for endpoint in [&hop.setting.endpoint, &hop.to] {
            found.extend(own_login(hop, &client, endpoint).credentials.password);
        }
    }
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

fn everyone(hop: &Hop) -> Vec<ClientIdentity> {
    if hop.client.identities.is_empty() {
        vec![ClientIdentity::ourselves()]
    } else {
        hop.client.identities.clone()
    }
}

fn lacks_account(hop: &Hop) -> bool {
    hop.setting.protocol == Protocol::Postgres && hop.setting.user.is_none()
}

fn attempt_at_present(hop: &Hop, client: &ClientIdentity, program: &Path) -> Result<View, LoginError> {
    let from = &hop.setting.endpoint;
    attempt(hop, from, client, &own_login(hop, client, from).credentials, program)
}

/// One login in a process of its own that has become the client. A reload ends workers at any moment: where the process
/// whose view it takes ended meanwhile, that says nothing of the login, and it is tried with the next one.
fn attempt(
    hop: &Hop,
    endpoint: &Endpoint,
    client: &ClientIdentity,
    credentials: &Credentials,
    program: &Path,
) -> Result<View, LoginError> {
    let identity = &client.identity;
    let mut pid = client.present();
    loop {
        let who = As { pid, uid: identity.uid, gid: identity.gid, groups: identity.groups.clone() };
        let endpoint = seen_by(endpoint, pid);
        let (protocol, expected) = (hop.setting.protocol, &hop.server.expected);
        let result = log_in_as(program, &who, protocol, &endpoint, credentials, expected, PATIENCE);
        let present = client.present();
        if !matches!(result, Err(LoginError::Become { .. })) || present == pid {
            return result;
        }
        pid = present;
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

/// Privileges that an account has over the present transport but not over the new one. Such a login succeeds, and the
/// application fails later.
fn fewer_rights(hop: &Hop, views: &[(ClientIdentity, View)], program: &Path) -> Option<SwitchObstacle> {
    let (view, present) = both_views(hop, views, program)?;
    let missing = missing_rights(&present.rights, &view.rights);
    if missing.is_empty() {
        return None;
    }
    let user = hop.setting.user.as_deref().unwrap_or("USER");
    let usual = if hop.to.path().is_some() { "localhost" } else { "127.0.0.1" };
    let host = account_host(&view.says).unwrap_or(usual);
    let remedy = match hop.setting.protocol {
        Protocol::Mysql => {
            let statements: Vec<String> = missing.iter().map(|line| statement(line, user, host)).collect();
            format!("As the database's administrator: {}", statements.join("; "))
        }
        _ => "Have the server take it for the same account over both".to_owned(),
    };
    Some(SwitchObstacle {
        code: ObstacleCode::Rights,
        bars: true,
        found: format!(
            "{} ({}): the login over {} works, but the account lacks {}",
            hop.setting.name,
            place(&hop.setting.file, hop.setting.line),
            hop.to,
            missing.join("; ")
        ),
        remedy,
    })
}

/// The first login that shows rights, with the same login over the present transport. An account that cannot log in now, or
/// not from here, has nothing to lose.
fn both_views<'a>(
    hop: &Hop,
    views: &'a [(ClientIdentity, View)],
    program: &Path,
) -> Option<(&'a View, View)> {
    for (client, view) in views {
        if view.rights.is_empty() {
            continue;
        }
        if let Ok(present) = attempt_at_present(hop, client, program) {
            return Some((view, present));
        }
    }
    None
}

/// The host of the account as which MySQL took a client: `account app@localhost`.
fn account_host(says: &str) -> Option<&str> {
    let (_, account) = says.split_once("account ")?;
    let (_, host) = account.split(',').next()?.rsplit_once('@')?;
    let host = host.trim_matches('\'');
    if host.is_empty() || host.contains(' ') { None } else { Some(host) }
}

fn statement(grant: &str, user: &str, host: &str) -> String {
    let account = format!("'{user}'@'{host}'");
    match grant.strip_suffix(" WITH GRANT OPTION") {
        Some(what) => format!("{what} TO {account} WITH GRANT OPTION"),
        None if grant.starts_with("SET ") => format!("{grant} FOR {account}"),
        None => format!("{grant} TO {account}"),
    }
}

/// Obstacle for a failed login, with the command that helps. It depends on what the same login gets over the present
/// transport: where that is refused too, nothing about the account on the new one is wrong.
fn obstacle(hop: &Hop, failed: &Failed) -> SwitchObstacle {
    let Failed { client, over, error, present } = failed;
    if error.kind() == LoginErrorKind::Refused
        && matches!(present, Present::LetIn | Present::LetInByTls)
        && let Some(lost) = lost_password(hop, client)
    {
        return lost;
    }
    let remedy = match (error.kind(), present) {
        (LoginErrorKind::Refused, Present::LetInByTls) if hop.setting.protocol == Protocol::Mysql => {
            account_with_tls(hop, error)
        }
        (LoginErrorKind::Refused, Present::LetIn | Present::LetInByTls) => account(hop, error),
        (LoginErrorKind::Refused, _) if matches!(error, LoginError::Spent { .. }) => String::new(),
        (LoginErrorKind::Refused, Present::Refused) if *over == hop.setting.endpoint => {
            "The login fails over the present transport already: put the credentials right first".to_owned()
        }
        (LoginErrorKind::Refused, Present::Refused) if lacks_account(hop) => {
            "The configuration names no account: give one that may log in, in PGUSER and PGPASSWORD"
                .to_owned()
        }
        (LoginErrorKind::Refused, Present::Refused) => {
            "The login fails over the present transport as well: put the credentials right first".to_owned()
        }
        (LoginErrorKind::Refused, Present::Unknown) => {
            "Put the credentials right first: samehost verify shows whether they are".to_owned()
        }
        _ => "See that the service runs and what bars the way: samehost scan".to_owned(),
    };
    SwitchObstacle {
        code: ObstacleCode::Login,
        bars: true,
        found: format!(
            "{} ({}) over {over} as {}: {error}",
            hop.setting.name,
            place(&hop.setting.file, hop.setting.line),
            client.name
        ),
        remedy,
    }
}

/// The account has to use TLS (REQUIRE SSL). MySQL says the same of one that is not there; and a client that uses TLS over
/// TCP by itself uses none over a socket.
fn account_with_tls(hop: &Hop, error: &LoginError) -> String {
    let user = hop.setting.user.as_deref().unwrap_or("USER");
    format!(
        "Over TCP the account has to use TLS, and over a socket clients use none. As the database's administrator: mariadb -e \"SHOW CREATE USER '{user}'@'localhost'\"; where it says REQUIRE SSL: ALTER USER '{user}'@'localhost' REQUIRE NONE. {}",
        account(hop, error)
    )
}

/// What lets an account in that exists for the present transport, and not for the new one. The server says as whom it took
/// the client: over TCP that is an address where it resolves no names (`skip-name-resolve`), and else a name.
fn account(hop: &Hop, error: &LoginError) -> String {
    let user = hop.setting.user.as_deref().unwrap_or("USER");
    let database = hop.setting.database.as_deref().unwrap_or("DATABASE");
    let over = if hop.to.path().is_some() { "the socket" } else { "TCP" };
    match hop.setting.protocol {
        Protocol::Mysql => {
            let host = seen_from(hop, error);
            let account = format!("'{user}'@'{host}'");
            let is_unknown_host = code_of(error) == Some("1130");
            if over == "TCP" && host == "localhost" && !is_unknown_host {
                // The account is there: it lets a process of that name in over the socket, and nobody by a password.
                return format!(
                    "Over TCP the account is {account} as well, and takes no password. As the database's administrator: mariadb -e \"ALTER USER {account} IDENTIFIED VIA unix_socket OR mysql_native_password USING PASSWORD('PASSWORD')\""
                );
            }
            format!(
                "Over {over} the account is {account}. As the database's administrator: mariadb -e \"CREATE USER {account} IDENTIFIED BY 'PASSWORD'; GRANT ALL PRIVILEGES ON \\`{database}\\`.* TO {account}\""
            )
        }
        Protocol::Postgres if over == "TCP" => format!(
            "Over TCP the `host` lines of pg_hba.conf decide. Add above them, then reload: host {database} {user} {} scram-sha-256",
            address_of(&hop.to)
        ),
        Protocol::Postgres => format!(
            "Over the socket the `local` lines of pg_hba.conf decide. Add above them, then reload: local {database} {user} scram-sha-256"
        ),
        _ => format!("Grant the account the same privileges for {over}"),
    }
}

/// The addresses of a line of pg_hba.conf that lets this machine in.
fn address_of(to: &Endpoint) -> &'static str {
    match to {
        Endpoint::Tcp { host, .. } if host.contains(':') => "::1/128",
        _ => "127.0.0.1/32",
    }
}

fn code_of(error: &LoginError) -> Option<&str> {
    match error {
        LoginError::Refused(refused) => refused.code.as_deref(),
        _ => None,
    }
}

/// The host as which MySQL takes the client, in its own words: `Host '127.0.0.1' is not allowed`, `'app'@'localhost'`.
fn seen_from(hop: &Hop, error: &LoginError) -> String {
    let usual = if hop.to.path().is_some() { "localhost" } else { "127.0.0.1" };
    let LoginError::Refused(refused) = error else { return usual.to_owned() };
    for before in ["Host '", "'@'"] {
        let Some((_, rest)) = refused.answer.split_once(before) else { continue };
        let Some((host, _)) = rest.split_once('\'') else { continue };
        let is_host = !host.is_empty()
            && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".:-_%".contains(&byte));
        if is_host {
            return host.to_owned();
        }
    }
    usual.to_owned()
}
