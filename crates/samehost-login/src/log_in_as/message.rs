//! What the two processes of a login as somebody else tell each other: one JSON object each way. The request holds the
//! password, and so goes over standard input only.

use std::time::Duration;

use samehost_model::{Endpoint, Protocol, Secret};
use serde::{Deserialize, Serialize};

use super::As;
use crate::{Credentials, LoginError, LoginErrorKind, Refused, View};

/// Protocols that can be asked for, by their names in JSON.
const PROTOCOLS: &[Protocol] = &[
    Protocol::Mysql,
    Protocol::Postgres,
    Protocol::Redis,
    Protocol::Memcached,
    Protocol::Http,
    Protocol::Grpc,
    Protocol::FastCgi,
    Protocol::Uwsgi,
    Protocol::Plain,
];

fn protocol_named(name: &str) -> Option<Protocol> {
    PROTOCOLS.iter().copied().find(|protocol| protocol.name() == name)
}

/// Whom to be, where to log in, and as whom there.
#[derive(Clone, Serialize, Deserialize)]
pub struct Request {
    pid: Option<u32>,
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    protocol: String,
    endpoint: String,
    user: Option<String>,
    password: Option<String>,
    database: Option<String>,
    /// Seconds that connecting, and then each answer, may take.
    patience_s: Option<f64>,
}

impl Request {
    pub(super) fn new(
        who: &As,
        protocol: Protocol,
        endpoint: &Endpoint,
        credentials: &Credentials,
        patience: Duration,
    ) -> Self {
        Request {
            pid: who.pid,
            uid: who.uid,
            gid: who.gid,
            groups: who.groups.clone(),
            protocol: protocol.name().to_owned(),
            endpoint: endpoint.to_string(),
            user: credentials.user.clone(),
            password: credentials.password.as_ref().map(|password| password.reveal().to_owned()),
            database: credentials.database.clone(),
            patience_s: Some(patience.as_secs_f64()),
        }
    }

    pub(super) fn to_json(&self) -> Vec<u8> {
        // Numbers and texts: nothing in it can fail.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads one.
    ///
    /// # Errors
    /// What is wrong with the text, without any part of it.
    pub fn from_json(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| {
            format!("no request for a login: line {}, column {}", error.line(), error.column())
        })
    }

    pub(super) fn who(&self) -> As {
        As { pid: self.pid, uid: self.uid, gid: self.gid, groups: self.groups.clone() }
    }

    pub(super) fn what(&self) -> Result<(Protocol, Endpoint), LoginError> {
        let protocol = protocol_named(&self.protocol).ok_or_else(|| {
            LoginError::Unsayable(format!("`{}` is no protocol", self.protocol.escape_debug()))
        })?;
        let endpoint = self.endpoint.parse().map_err(|error| LoginError::Unsayable(format!("{error}")))?;
        Ok((protocol, endpoint))
    }

    pub(super) fn credentials(&self) -> Credentials {
        Credentials {
            user: self.user.clone(),
            password: self.password.clone().map(Secret::new),
            database: self.database.clone(),
        }
    }

    pub(super) fn patience(&self) -> Duration {
        let seconds = self.patience_s.unwrap_or(5.0);
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_secs(5))
    }
}

/// What came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Answer {
    ok: bool,
    #[serde(flatten)]
    told: Told,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Told {
    View {
        version: String,
        says: String,
        transport: Option<String>,
        family: String,
        inode: u64,
        tls: Option<String>,
    },
    Error {
        kind: LoginErrorKind,
        code: Option<String>,
        message: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<RefusedParts>,
    },
}

/// A refusal in its parts, so that it is one at the other end too.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct RefusedParts {
    protocol: String,
    endpoint: String,
    what: String,
    answer: String,
    try_next: String,
    may_need_tls: bool,
}

impl Answer {
    pub(super) fn from_json(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    /// As one line of JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(super) fn from_result(result: Result<View, LoginError>) -> Self {
        match result {
            Ok(view) => Answer {
                ok: true,
                told: Told::View {
                    version: view.version,
                    says: view.says,
                    transport: view.transport.map(str::to_owned),
                    family: view.family,
                    inode: view.inode,
                    tls: view.tls,
                },
            },
            Err(error) => Answer {
                ok: false,
                told: Told::Error {
                    kind: error.kind(),
                    code: error.code().map(str::to_owned),
                    message: error.to_string(),
                    refused: match error {
                        LoginError::Refused(refused) => Some(RefusedParts {
                            protocol: refused.protocol.name().to_owned(),
                            endpoint: refused.endpoint,
                            what: refused.what,
                            answer: refused.answer,
                            try_next: refused.try_next,
                            may_need_tls: refused.may_need_tls,
                        }),
                        _ => None,
                    },
                },
            },
        }
    }

    pub(super) fn into_result(self) -> Result<View, LoginError> {
        match self.told {
            Told::View { version, says, transport, family, inode, tls } => Ok(View {
                version,
                says,
                transport: ["unix", "tcp"].into_iter().find(|known| transport.as_deref() == Some(known)),
                family,
                inode,
                tls,
            }),
            Told::Error { code, refused: Some(parts), .. } => Err(LoginError::from(Box::new(Refused {
                protocol: protocol_named(&parts.protocol).unwrap_or(Protocol::Plain),
                endpoint: parts.endpoint,
                what: parts.what,
                code,
                answer: parts.answer,
                try_next: parts.try_next,
                may_need_tls: parts.may_need_tls,
            }))),
            Told::Error { kind, code, message, refused: None } => {
                Err(LoginError::Elsewhere { kind, code, message })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back(result: Result<View, LoginError>) -> Result<View, LoginError> {
        Answer::from_json(Answer::from_result(result).to_json().as_bytes()).unwrap().into_result()
    }

    #[test]
    fn what_is_told_arrives() {
        let view = View {
            version: "8".into(),
            says: "x".into(),
            transport: Some("unix"),
            family: "AF_UNIX".into(),
            inode: 7,
            tls: None,
        };
        assert_eq!(there_and_back(Ok(view.clone())).unwrap(), view);
        let refused = Refused {
            protocol: Protocol::Mysql,
            endpoint: "unix:/s".into(),
            what: "the login of `u`".into(),
            code: Some("1698".into()),
            answer: "1698 Access denied".into(),
            try_next: "this".into(),
            may_need_tls: false,
        };
        let Err(LoginError::Refused(back)) = there_and_back(Err(Box::new(refused.clone()).into())) else {
            panic!("another error")
        };
        assert_eq!(*back, refused);
        let error = there_and_back(Err(LoginError::TimedOut {
            endpoint: "unix:/s".into(),
            after: Duration::from_secs(1),
        }))
        .unwrap_err();
        assert_eq!(error.kind(), LoginErrorKind::Timeout);
        assert!(error.to_string().contains("unix:/s"), "{error}");
    }

    #[test]
    fn a_request_is_read_and_its_secrets_not_told() {
        let text = r#"{ "pid": null, "uid": 33, "gid": 33, "groups": [33], "protocol": "mysql", "endpoint": "unix:/s", "user": "a", "password": "hunter2", "database": null }"#;
        let request = Request::from_json(text).unwrap();
        assert_eq!((request.who().uid, request.patience()), (33, Duration::from_secs(5)));
        assert_eq!(request.credentials().password.unwrap().reveal(), "hunter2");
        let error = Request::from_json(&text.replace("33,", "\"hunter2\",")).err().unwrap();
        assert!(!error.contains("hunter2"), "{error}");
    }
}
