//! What `verify` and `how` say: the transport in use with proofs (`samehost.verify/1`), and how a service and its clients are
//! configured for a Unix socket (`samehost.how/1`). The values that prove are in `proved`.

use serde::Serialize;

use crate::connection::ConnectionSettings;
use crate::scan::proved::{ApplicationSeen, Login, LoginOutcome, Standing, Verdict};

/// Name and version of the JSON format.
pub const VERIFY_SCHEMA: &str = "samehost.verify/1";

/// One piece of evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Proof {
    /// Who says so: `kernel`, `socket pair`, `peer`, `server`.
    pub by: &'static str,
    /// What it says.
    pub says: String,
    /// The transport that follows from it: `unix` or `tcp`.
    pub transport: Option<&'static str>,
}

/// A connection that a process holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HeldConnection {
    /// `unix` or `tcp`.
    pub transport: &'static str,
    /// `client` when the process connected, `server` when it accepted.
    pub role: &'static str,
    /// Where the service end is: `127.0.0.1:3306`, `/run/mysqld/mysqld.sock`.
    pub service_address: String,
    /// The service's name.
    pub service: Option<String>,
    /// The process at the other end.
    pub other: Option<String>,
    /// How many connections are like this.
    pub count: u32,
}

/// The connections of a service's clients, by what each process holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClientCount {
    /// Processes that are connected over Unix sockets alone.
    pub unix: u32,
    /// Over TCP alone.
    pub tcp: u32,
    /// Over both.
    pub both: u32,
}

/// What was found of a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Verification {
    /// Always [`VERIFY_SCHEMA`].
    pub schema: &'static str,
    /// The target as given, without its password.
    pub target: String,
    /// The endpoint that it means.
    pub endpoint: Option<String>,
    /// The transport in use: `unix`, `tcp`, `mixed`, or none when nothing is connected.
    pub transport: Option<&'static str>,
    /// How both ends of the connection that proves it were set: congestion control and buffers.
    pub settings: Option<ConnectionSettings>,
    /// What proves it, for an endpoint or URL.
    pub proofs: Vec<Proof>,
    /// The connections, for a process.
    pub connections: Vec<HeldConnection>,
    /// Connections of the process to other hosts.
    pub remote: u32,
    /// What else a reader should know, such as what `localhost` means.
    pub notes: Vec<String>,
    /// The transport that was expected.
    pub expected: Option<String>,
    /// Whether it is the one in use; none when nothing was expected, or nobody was seen to use any.
    pub as_expected: Option<bool>,
    /// What became of a login of ours; none of a process or of a service's clients, where nobody logs in.
    pub login: Option<Login>,
    /// What the processes of the application were seen to do, of a line in a configuration.
    pub application: Option<ApplicationSeen>,
    /// Who is connected to a service, where its name was asked for with an expectation.
    pub clients: Option<ClientCount>,
    /// Of a line in a configuration: `written` where no login of ours was accepted, `tried` where one was, `in_use`
    /// where a process of the application was seen to hold or open a connection there as well, and none elsewhere.
    pub standing: Option<Standing>,
    /// Processes of the application that are connected there.
    pub seen_there: Vec<String>,
    /// Processes of the application that are connected to the same service elsewhere.
    pub seen_elsewhere: Vec<String>,
    /// What all of that proves.
    verdict: Verdict,
}

impl Verification {
    /// Of a target of which nothing is known yet.
    #[must_use]
    pub fn of(target: String) -> Self {
        Verification {
            schema: VERIFY_SCHEMA,
            target,
            endpoint: None,
            transport: None,
            settings: None,
            proofs: Vec::new(),
            connections: Vec::new(),
            remote: 0,
            notes: Vec::new(),
            expected: None,
            as_expected: None,
            login: None,
            application: None,
            clients: None,
            standing: None,
            seen_there: Vec::new(),
            seen_elsewhere: Vec::new(),
            verdict: Verdict::Undecided,
        }
    }
}

impl Verification {
    /// Judges what was found, against the expected transport if one was named. It is called once more where more was found.
    pub fn judge(&mut self, expected: Option<&str>) {
        self.expected = expected.map(str::to_owned);
        if let (Some(login), Some(seen)) = (&self.login, self.application) {
            self.standing = Some(Standing::of(login, seen));
        }
        self.verdict = self.proved(expected);
        self.as_expected = match (expected, self.verdict) {
            (None, _) | (_, Verdict::Undecided) => None,
            (Some(_), verdict) => Some(verdict == Verdict::Holds),
        };
    }

    /// What everything that was found proves, as it was judged last.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// The transport that its endpoint names, also where nothing answers there.
    #[must_use]
    pub fn named_transport(&self) -> Option<&'static str> {
        let by_name = match self.endpoint.as_deref() {
            Some(endpoint) if endpoint.starts_with("tcp") => Some("tcp"),
            Some(endpoint) if endpoint.starts_with("unix") || endpoint.starts_with("abstract") => {
                Some("unix")
            }
            _ => None,
        };
        self.transport.or(by_name)
    }

    /// Whether a login was tried where one should have been: one that could not be tried contradicts nothing and proves nothing.
    #[must_use]
    pub fn was_tried(&self) -> bool {
        !matches!(&self.login, Some(login) if login.outcome() == LoginOutcome::NotTried)
    }

    fn proved(&self, expected: Option<&str>) -> Verdict {
        let login_failed = self.was_tried() && matches!(&self.login, Some(login) if !login.is_good());
        let is_elsewhere =
            matches!(self.application, Some(ApplicationSeen::Elsewhere | ApplicationSeen::AlsoElsewhere));
        if login_failed || is_elsewhere {
            return Verdict::Contradicted;
        }
        if let (Some(expected), Some(used)) = (expected, self.named_transport()) {
            let mut all = self.proofs.iter().filter_map(|proof| proof.transport);
            if used != expected || !all.all(|transport| transport == expected) {
                return Verdict::Contradicted;
            }
        }
        let is_seen = match self.application {
            Some(seen) => seen == ApplicationSeen::InUse,
            None => self.was_tried() && self.transport.is_some(),
        };
        if is_seen { Verdict::Holds } else { Verdict::Undecided }
    }
}

/// Name and version of the JSON format.
pub const HOW_SCHEMA: &str = "samehost.how/1";

/// One client in its own words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClientWords {
    /// The language: `php`, `python`, …
    pub language: &'static str,
    /// The client: `mysqli`, `psycopg`, …
    pub client: &'static str,
    /// What `localhost` means to it: `socket`, `tcp`, or `none` where it takes no host.
    pub localhost: &'static str,
    /// How it is told to use the socket; none where it cannot.
    pub socket: Option<String>,
    /// How it is told to use TCP, or UDP where its service takes datagrams.
    pub tcp: String,
    /// What else to know.
    pub note: &'static str,
    /// Whether a test of samehost held this row against a real server.
    pub tested: bool,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HowTo {
    /// Always [`HOW_SCHEMA`].
    pub schema: &'static str,
    /// The service, as the registry calls it.
    pub service: String,
    /// Its name for people.
    pub label: String,
    /// The path of its socket.
    pub path: String,
    /// Where that path is from: `found here`, `given`, `localhost`, `elsewhere` (another machine), `unsafe` (its own is taken) or `usual`.
    pub path_from: &'static str,
    /// Where other services of the kind listen that run here, where the question names none of them.
    pub others: Vec<String>,
    /// What to set on the server's side, one step each; empty when it listens there already.
    pub server: Vec<String>,
    /// What the clients use in place of the socket: `tcp` or `udp`.
    #[serde(skip)]
    pub beside: &'static str,
    /// The clients.
    pub clients: Vec<ClientWords>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(outcome: LoginOutcome, seen: ApplicationSeen, expected: Option<&str>) -> Verification {
        let mut found = Verification::of("wp-config.php".into());
        found.endpoint = Some("unix:/run/a.sock".into());
        found.transport = Some("unix");
        found.login = Some(Login::as_answered(outcome, String::new()));
        found.application = Some(seen);
        found.judge(expected);
        found
    }

    #[test]
    fn a_login_that_was_not_accepted_is_no_success_whoever_is_connected() {
        use LoginOutcome::{Closed, OtherProtocol, Refused, Silent, Unproven, Unreachable};
        for outcome in [Refused, Unproven, Silent, Closed, OtherProtocol, Unreachable] {
            for seen in [ApplicationSeen::InUse, ApplicationSeen::NotSeen] {
                for expected in [None, Some("unix")] {
                    let found = line(outcome, seen, expected);
                    assert_eq!(found.verdict(), Verdict::Contradicted, "{outcome:?} {seen:?}");
                    assert_eq!(found.standing, Some(Standing::Written), "{outcome:?}");
                }
            }
        }
    }

    #[test]
    fn a_login_that_could_not_be_tried_contradicts_nothing_and_proves_nothing() {
        let found = line(LoginOutcome::NotTried, ApplicationSeen::NotSeen, None);
        assert_eq!((found.verdict(), found.standing), (Verdict::Undecided, Some(Standing::Written)));
        let found = line(LoginOutcome::NotTried, ApplicationSeen::InUse, Some("unix"));
        assert_eq!((found.verdict(), found.standing), (Verdict::Holds, Some(Standing::Written)));
        let mut found = line(LoginOutcome::NotTried, ApplicationSeen::NotSeen, None);
        found.application = None;
        found.judge(Some("unix"));
        assert_eq!(found.verdict(), Verdict::Undecided);
    }

    #[test]
    fn tried_is_not_in_use() {
        use ApplicationSeen::{AlsoElsewhere, Elsewhere, InUse, NotSeen, Unclear};
        for (seen, verdict, standing) in [
            (InUse, Verdict::Holds, Standing::InUse),
            (NotSeen, Verdict::Undecided, Standing::Tried),
            (Unclear, Verdict::Undecided, Standing::Tried),
            (Elsewhere, Verdict::Contradicted, Standing::Tried),
            (AlsoElsewhere, Verdict::Contradicted, Standing::Tried),
        ] {
            let found = line(LoginOutcome::LoggedIn, seen, Some("unix"));
            assert_eq!((found.verdict(), found.standing), (verdict, Some(standing)), "{seen:?}");
            let other = line(LoginOutcome::LoggedIn, seen, Some("tcp"));
            assert_eq!(
                (other.verdict(), other.as_expected),
                (Verdict::Contradicted, Some(false)),
                "{seen:?}"
            );
        }
        assert_eq!(line(LoginOutcome::LoggedIn, NotSeen, Some("unix")).as_expected, None);
        assert_eq!(line(LoginOutcome::LoggedIn, InUse, Some("unix")).as_expected, Some(true));
    }

    #[test]
    fn what_has_no_application_is_judged_by_its_transport() {
        let mut process = Verification::of("4711".into());
        process.judge(Some("unix"));
        assert_eq!(process.verdict(), Verdict::Undecided, "nothing is connected");
        for (transport, verdict) in
            [("unix", Verdict::Holds), ("tcp", Verdict::Contradicted), ("mixed", Verdict::Contradicted)]
        {
            process.transport = Some(transport);
            process.judge(Some("unix"));
            assert_eq!(process.verdict(), verdict, "{transport}");
        }
    }
}
