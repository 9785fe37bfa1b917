//! What a verification proves. A headline and an exit status are computed from these values alone: what the server did with a login of
//! ours, and what the application's own processes were seen to hold.
//!
//! `verify` said "a login works", status 0, for a wrong password, a server that never answered and a stranger's fake: the sentence was
//! taken from what was seen of the application, beside a login whose result was only a text. A text proves nothing here any more.

use std::fmt;

use serde::Serialize;

/// What became of a login of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LoginOutcome {
    /// The server accepted it.
    LoggedIn,
    /// A connection was opened; the protocol has no login.
    Connected,
    /// The server answered that it wants a login, and none was given.
    Needed,
    /// The server refused it.
    Refused,
    /// Who answers is not proved to be the server; no password was sent.
    Unproven,
    /// Nothing answered in time.
    Silent,
    /// The connection ended before an answer.
    Closed,
    /// What answers does not speak the protocol.
    OtherProtocol,
    /// No connection was made.
    Unreachable,
    /// It was accepted, and a process of the application may not connect there.
    Barred,
    /// It could not be tried from here.
    NotTried,
}

impl fmt::Display for LoginOutcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            LoginOutcome::LoggedIn => "a login works",
            LoginOutcome::Connected => "a connection opens",
            LoginOutcome::Needed => "the server wants a login, and none was given",
            LoginOutcome::Refused => "the server refuses the login",
            LoginOutcome::Unproven => "who answers is not proved to be the server: no password was sent",
            LoginOutcome::Silent => "no answer to the login came in time",
            LoginOutcome::Closed => "the connection is closed before a login is answered",
            LoginOutcome::OtherProtocol => "what answers does not speak its protocol",
            LoginOutcome::Unreachable => "nobody is reached there",
            LoginOutcome::Barred => "the application may not connect there",
            LoginOutcome::NotTried => "a login could not be tried",
        })
    }
}

/// A login of ours, with the words of whoever decided it. Only `samehost-login` makes one, from what the server did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Login {
    outcome: LoginOutcome,
    says: String,
}

impl Login {
    /// For `samehost-login` alone; a test holds that (tests/claims.rs).
    #[must_use]
    pub fn as_answered(outcome: LoginOutcome, says: String) -> Self {
        Login { outcome, says }
    }

    /// What became of it.
    #[must_use]
    pub fn outcome(&self) -> LoginOutcome {
        self.outcome
    }

    /// In the words of the server, or of the error.
    #[must_use]
    pub fn says(&self) -> &str {
        &self.says
    }

    /// Puts other words in place of these, without secrets.
    pub fn redact(&mut self, redacted: impl FnOnce(&str) -> String) {
        self.says = redacted(&self.says);
    }

    /// The same where no login was given: a server that wants one has only said so.
    #[must_use]
    pub fn without_one_given(mut self) -> Self {
        if self.outcome == LoginOutcome::Refused {
            self.outcome = LoginOutcome::Needed;
        }
        self
    }

    /// Whether it reached the server and went as far as was asked: what else follows from it is proved.
    #[must_use]
    pub fn is_good(&self) -> bool {
        matches!(self.outcome, LoginOutcome::LoggedIn | LoginOutcome::Connected | LoginOutcome::Needed)
    }
}

/// What the processes of an application were seen to do with a line of its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ApplicationSeen {
    /// One of them is connected there, and none elsewhere.
    InUse,
    /// Some are connected there, some elsewhere.
    AlsoElsewhere,
    /// They are connected elsewhere.
    Elsewhere,
    /// Processes that run several applications are connected, and whose connection it is is not known.
    Unclear,
    /// None was connected.
    NotSeen,
}

/// How far a change is proved. Each one needs those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// The file says so.
    Written,
    /// We logged in, as the application; where the protocol has no login, we connected.
    Tried,
    /// The kernel showed a connection that a process of the application opened after the change over the new transport,
    /// and none that it opened over the old one.
    InUse,
}

impl Standing {
    /// How far a login that was made and an application that was looked at prove a change.
    #[must_use]
    pub fn of(login: &Login, seen: ApplicationSeen) -> Standing {
        match (login.is_good(), seen) {
            (false, _) => Standing::Written,
            (true, ApplicationSeen::InUse) => Standing::InUse,
            (true, _) => Standing::Tried,
        }
    }

    /// As in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Standing::Written => "written",
            Standing::Tried => "tried",
            Standing::InUse => "in_use",
        }
    }
}

/// What a verification proves of its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// What was seen is what the target says, and what was expected.
    Holds,
    /// What was seen contradicts the target or what was expected, or its login failed.
    Contradicted,
    /// Nobody was seen to use it: a login of ours is none of the application's.
    Undecided,
}
