//! What a login shows to be in the way of a switch, and what helps: it was refused, it finds no password, or its account
//! has fewer rights.

use std::path::Path;

use samehost_login::postgres::PasswordPlace;
use samehost_login::{LoginError, LoginErrorKind, View, missing_rights};
use samehost_model::switch::SwitchObstacle;
use samehost_model::{Endpoint, ObstacleCode, Protocol};

use crate::findings::{bar, place, shown};
use crate::plan::client::identity::ClientIdentity;
use crate::plan::hop::Hop;
use crate::plan::login::{Failed, OwnLogin, Present, Seen};

/// Obstacle for a failed login, with the command that helps. It depends on what the same login gets over the present
/// transport: where that is refused too, nothing about the account on the new one is wrong.
pub(crate) fn refused(hop: &Hop, failed: &Failed) -> SwitchObstacle {
    let Failed { client, user, over, error, present } = failed;
    let mut hop = hop.clone();
    hop.setting.user.clone_from(user);
    let hop = &hop;
    if error.kind() == LoginErrorKind::Refused
        && matches!(present, Present::LetIn | Present::LetInByTls)
        && let Some(lost) = lost_password(hop, client)
    {
        return lost;
    }
    let remedy = match (error.kind(), present) {
        _ if matches!(error.code(), Some("1040" | "1203" | "1226" | "53300")) => {
            "The server, or the account, has no connection left: try again when fewer are open, or raise its limit".to_owned()
        }
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
        // What it says is of this process, or of who runs it.
        (LoginErrorKind::Become, _) => String::new(),
        _ if error.is_of_this_process() => String::new(),
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

fn lacks_account(hop: &Hop) -> bool {
    hop.setting.protocol == Protocol::Postgres && hop.setting.user.is_none()
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

/// The obstacle where a client finds its password over the present transport alone.
fn lost_password(hop: &Hop, client: &ClientIdentity) -> Option<SwitchObstacle> {
    let now = OwnLogin::of(hop, client, &hop.setting.endpoint);
    let then = OwnLogin::of(hop, client, &hop.to);
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

/// Privileges that an account has over the present transport but not over the new one. Such a login succeeds, and the
/// application fails later.
pub(crate) fn fewer_rights(hop: &Hop, views: &[Seen], program: &Path) -> Option<SwitchObstacle> {
    let (view, present) = both_rights(hop, views, program)?;
    let missing = missing_rights(&present, &view.rights);
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

/// The first login that shows rights, with those of the same login over the present transport. An account that cannot log in now,
/// or not from here, has nothing to lose.
fn both_rights<'a>(hop: &Hop, views: &'a [Seen], program: &Path) -> Option<(&'a View, Vec<String>)> {
    for Seen { client, view, present } in views.iter().filter(|seen| !seen.view.rights.is_empty()) {
        if let Some(present) = present {
            return Some((view, present.rights.clone()));
        }
        if let Ok(present) = OwnLogin::of(hop, client, &hop.setting.endpoint).attempt(program) {
            return Some((view, present.rights));
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
