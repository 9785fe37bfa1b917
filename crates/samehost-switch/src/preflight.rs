//! The last look before anything is touched: a login over the new transport with the configuration's own credentials, as
//! the application's user and with its view of the file system; and one over the present transport, to tell a wrong
//! password from a wrong account.

use std::path::Path;
use std::time::Duration;

use samehost_login::{As, Credentials, LoginError, LoginErrorKind, View, log_in_as, missing_rights};
use samehost_model::switch::SwitchObstacle;
use samehost_model::{Endpoint, Protocol};

use crate::plan::{Applicant, DECIDED_BY_LOGIN, Hop, Plan};
use crate::told::place;

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

impl Plan {
    /// Logs in as the application, for every hop whose new endpoint is there already. `program` is this program.
    pub fn try_logins(&mut self, program: &Path) {
        let mut hops = std::mem::take(&mut self.hops);
        let mut all_in = true;
        for hop in &mut hops {
            if hop.server.is_some() {
                // The server listens there only when the first stage is done; it is tried then.
                continue;
            }
            match try_hop(hop, program) {
                Ok((login, views)) => {
                    hop.login = Some(login);
                    self.obstacles.extend(fewer_rights(hop, &views, program));
                }
                Err(failed) => {
                    let (applicant, error) = *failed;
                    all_in = false;
                    let mut obstacle = obstacle(hop, &applicant, &error, program);
                    // What scan saw in the way explains it, and says what to do.
                    let why =
                        self.obstacles.iter_mut().filter(|why| DECIDED_BY_LOGIN.contains(&why.code.as_str()));
                    for why in why.filter(|_| error.kind() != LoginErrorKind::Refused) {
                        why.bars = true;
                        obstacle.remedy.clone_from(&why.remedy);
                    }
                    self.obstacles.push(obstacle);
                }
            }
        }
        self.hops = hops;
        if all_in {
            self.obstacles
                .retain(|obstacle| obstacle.bars || !DECIDED_BY_LOGIN.contains(&obstacle.code.as_str()));
        }
    }
}

/// What logins showed, in words, and each by itself.
pub(crate) type Tried = (String, Vec<(Applicant, View)>);

/// Logs in over the new endpoint as each user who will connect; what the server and the kernel say of it.
///
/// # Errors
/// Who could not log in, and why.
pub(crate) fn try_hop(hop: &Hop, program: &Path) -> Result<Tried, Box<(Applicant, LoginError)>> {
    let (mut told, mut views) = (Vec::new(), Vec::new());
    for applicant in everyone(hop) {
        // Servers count refusals. The present transport comes first: a password that is wrong is sent once, and one that
        // is right resets the count.
        if hop.setting.password.is_some()
            && let Err(LoginError::Refused(refused)) =
                attempt(hop, &hop.setting.endpoint, &applicant, program)
            && refused.by_password
        {
            return Err(Box::new((applicant, refused.into())));
        }
        let view = attempt(hop, &hop.to, &applicant, program)
            .map_err(|error| Box::new((applicant.clone(), error)))?;
        let says = if view.says.is_empty() { view.family.clone() } else { view.says.clone() };
        told.push(format!("as {}: {says}", applicant.name));
        views.push((applicant, view));
    }
    Ok((told.join("; "), views))
}

fn everyone(hop: &Hop) -> Vec<Applicant> {
    if hop.applicants.is_empty() { vec![Applicant::ourselves()] } else { hop.applicants.clone() }
}

fn attempt(
    hop: &Hop,
    endpoint: &Endpoint,
    applicant: &Applicant,
    program: &Path,
) -> Result<View, LoginError> {
    let credentials = Credentials {
        user: hop.setting.user.clone(),
        password: hop.setting.password.clone(),
        database: hop.setting.database.clone(),
    };
    let identity = &applicant.identity;
    let who = As {
        pid: applicant.present(),
        uid: identity.uid,
        gid: identity.gid,
        groups: identity.groups.clone(),
    };
    log_in_as(program, &who, hop.setting.protocol, endpoint, &credentials, &hop.expected, PATIENCE)
}

/// What an account may do over the present transport and not over the new one: it is let in, and fails later.
pub(crate) fn fewer_rights(hop: &Hop, views: &[(Applicant, View)], program: &Path) -> Option<SwitchObstacle> {
    // One that is not let in at present, or not from where it is, has nothing to lose.
    let (view, present) =
        views.iter().filter(|(_, view)| !view.rights.is_empty()).find_map(|(applicant, view)| {
            Some((view, attempt(hop, &hop.setting.endpoint, applicant, program).ok()?))
        })?;
    let missing = missing_rights(&present.rights, &view.rights);
    if missing.is_empty() {
        return None;
    }
    let user = hop.setting.user.as_deref().unwrap_or("USER");
    let host = if hop.to.path().is_some() { "localhost" } else { "127.0.0.1" };
    let remedy = match hop.setting.protocol {
        Protocol::Mysql => {
            let statements: Vec<String> = missing.iter().map(|line| statement(line, user, host)).collect();
            format!("As the database's administrator: {}", statements.join("; "))
        }
        _ => "Have the server take it for the same account over both".to_owned(),
    };
    Some(SwitchObstacle {
        code: "rights".into(),
        bars: true,
        found: format!(
            "{} ({}): over {} the account is let in, and lacks {}",
            hop.setting.name,
            place(&hop.setting.file, hop.setting.line),
            hop.to,
            missing.join("; ")
        ),
        remedy,
    })
}

/// The statement that gives an account what it lacks.
fn statement(grant: &str, user: &str, host: &str) -> String {
    let account = format!("'{user}'@'{host}'");
    match grant.strip_suffix(" WITH GRANT OPTION") {
        Some(what) => format!("{what} TO {account} WITH GRANT OPTION"),
        None if grant.starts_with("SET ") => format!("{grant} FOR {account}"),
        None => format!("{grant} TO {account}"),
    }
}

/// Why a login failed, and the one command that helps.
pub(crate) fn obstacle(
    hop: &Hop,
    applicant: &Applicant,
    error: &LoginError,
    program: &Path,
) -> SwitchObstacle {
    let over_present = attempt(hop, &hop.setting.endpoint, applicant, program).is_ok();
    let remedy = match error.kind() {
        LoginErrorKind::Refused if over_present => account(hop),
        LoginErrorKind::Refused => {
            "The login fails over the present transport as well: put the credentials right first".to_owned()
        }
        _ => "See that the service runs and what bars the way: samehost scan".to_owned(),
    };
    SwitchObstacle {
        code: "login".into(),
        bars: true,
        found: format!(
            "{} ({}) over {} as {}: {error}",
            hop.setting.name,
            place(&hop.setting.file, hop.setting.line),
            hop.to,
            applicant.name
        ),
        remedy,
    }
}

/// The account is there for TCP and not for the socket.
fn account(hop: &Hop) -> String {
    let user = hop.setting.user.as_deref().unwrap_or("USER");
    let database = hop.setting.database.as_deref().unwrap_or("DATABASE");
    match hop.setting.protocol {
        Protocol::Mysql => format!(
            "Over the socket the account is '{user}'@'localhost'. As the database's administrator: mariadb -e \"CREATE USER '{user}'@'localhost' IDENTIFIED BY 'PASSWORD'; GRANT ALL PRIVILEGES ON \\`{database}\\`.* TO '{user}'@'localhost'\""
        ),
        Protocol::Postgres => format!(
            "Over the socket the `local` lines of pg_hba.conf decide. Add above them, then reload: local {database} {user} scram-sha-256"
        ),
        _ => "Give the account the same rights over the socket".to_owned(),
    }
}
