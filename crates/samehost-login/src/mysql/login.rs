//! MySQL handshake and authentication as a state machine without I/O. Password scrambles come from
//! mysql_common: mysql_native_password, caching_sha2_password (cached, in full over a safe channel, in full
//! with the server's RSA key over plain TCP), sha256_password, and MariaDB's ed25519. `unix_socket` needs no
//! credentials: the server asks the kernel.

use mysql_common::auth::plugins::{AuthProc, ChallengeResponsePlugin, Context};
use mysql_common::constants::CapabilityFlags;
use mysql_common::io::ParseBuf;
use mysql_common::packets::{AuthPlugin, AuthSwitchRequest, HandshakePacket, HandshakeResponse, SslRequest};
use mysql_common::proto::MySerialize;

use super::packet::{SqlError, frame};

/// Largest packet that we declare to accept: the largest that one frame can hold.
const MAX_PACKET: u32 = 0xff_ff_ff;
/// Longest public key accepted, in PEM: a key of 16,384 bits has some 3,000 bytes, and computing with longer
/// ones takes long.
const LONGEST_KEY: usize = 4096;
/// utf8mb4_general_ci, which MySQL and MariaDB of all ages know.
const COLLATION: u8 = 45;

/// Protection of the channel against eavesdropping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// A Unix socket: readable by the server only.
    Socket,
    /// TCP that will switch to TLS.
    Tls,
    /// Plain TCP.
    Plain,
}

/// Next step of a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send these bytes and read the next packet.
    Send(Vec<u8>),
    /// Send these bytes, switch the connection to TLS, and call [`Login::secured`].
    StartTls(Vec<u8>),
    /// Read the next packet.
    Wait,
    /// The login succeeded.
    Done,
}

/// Why a login failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The server refused.
    Server(SqlError),
    /// We cannot or should not go on.
    Us(String),
    /// The bytes are not what a server sends.
    Malformed(&'static str),
}

/// What the server's greeting contains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Greeting {
    /// The server's version as sent; old MariaDB puts `5.5.5-` before its own.
    pub version: String,
    /// The server's id for this connection.
    pub connection_id: u32,
}

/// State of one login.
pub struct Login<'a> {
    user: &'a str,
    password: &'a str,
    database: Option<&'a str>,
    channel: Channel,
    nonce: Vec<u8>,
    plugin: AuthPlugin<'static>,
    proof: Option<AuthProc>,
    server: CapabilityFlags,
    /// Empty before the greeting.
    pub greeting: Greeting,
}

struct Around<'a> {
    password: &'a [u8],
    channel: Channel,
    nonce: &'a [u8],
}

impl Context for Around<'_> {
    fn pass(&self) -> &[u8] {
        self.password
    }

    fn is_ipc_transport(&self) -> bool {
        self.channel == Channel::Socket
    }

    fn is_tls_transport(&self) -> bool {
        self.channel == Channel::Tls
    }

    fn scramble(&self) -> &[u8] {
        self.nonce
    }

    fn server_key_pem(&self) -> Option<&[u8]> {
        None
    }
}

impl<'a> Login<'a> {
    /// State before the first packet.
    #[must_use]
    pub fn new(user: &'a str, password: &'a str, database: Option<&'a str>, channel: Channel) -> Self {
        Login {
            user,
            password,
            database,
            channel,
            nonce: Vec::new(),
            plugin: AuthPlugin::MysqlNativePassword,
            proof: None,
            server: CapabilityFlags::empty(),
            greeting: Greeting::default(),
        }
    }

    /// Handles the server's first packet.
    ///
    /// # Errors
    /// When it is a refusal or not MySQL's, or the server lacks TLS that was asked for.
    pub fn greeted(&mut self, payload: &[u8]) -> Result<Step, Denied> {
        if let Some(error) = SqlError::read(payload) {
            return Err(Denied::Server(error));
        }
        if payload.first() != Some(&10) {
            return Err(Denied::Malformed("its greeting is not that of MySQL's protocol 10"));
        }
        // After the version's NUL: id 4, scramble 8, filler 1, flags 2, collation 1, status 2, flags 2, then
        // the length of the scramble, which is at most 255 with its sign bit clear.
        let at = payload.iter().position(|byte| *byte == 0).map_or(usize::MAX, |end| end + 21);
        if payload.get(at).is_none_or(|length| *length > 127) {
            return Err(Denied::Malformed("its greeting is cut short"));
        }
        let greeting: HandshakePacket<'_> =
            ParseBuf(payload).parse(()).map_err(|_| Denied::Malformed("its greeting is broken"))?;
        self.greeting = Greeting {
            version: String::from_utf8_lossy(greeting.server_version_ref()).into_owned(),
            connection_id: greeting.connection_id(),
        };
        self.server = greeting.capabilities();
        self.nonce = greeting.nonce();
        self.plugin = greeting.auth_plugin().unwrap_or(AuthPlugin::MysqlNativePassword).into_owned();
        if self.channel != Channel::Tls {
            return Ok(Step::Send(self.response(1)?));
        }
        if !self.has_tls() {
            return Err(Denied::Us(
                "it has no TLS; set ssl_cert and ssl_key in [mysqld], or leave the transport tcp+tls out"
                    .into(),
            ));
        }
        let mut request = Vec::new();
        SslRequest::new(self.capabilities(), MAX_PACKET, COLLATION).serialize(&mut request);
        let mut out = Vec::new();
        frame(1, &request, &mut out);
        Ok(Step::StartTls(out))
    }

    /// Whether the server supports TLS; known after the greeting.
    #[must_use]
    pub fn has_tls(&self) -> bool {
        self.server.contains(CapabilityFlags::CLIENT_SSL)
    }

    /// The first bytes to send once TLS is in use.
    ///
    /// # Errors
    /// When no proof of the password can be computed.
    pub fn secured(&mut self) -> Result<Vec<u8>, Denied> {
        self.response(2)
    }

    /// Handles a packet after our response; `sequence` is that packet's.
    ///
    /// # Errors
    /// When the server refuses, asks for what we do not support, or sends something else.
    pub fn answered(&mut self, sequence: u8, payload: &[u8]) -> Result<Step, Denied> {
        match payload {
            [0x00, ..] => Ok(Step::Done),
            [0xff, ..] => {
                Err(SqlError::read(payload)
                    .map_or(Denied::Malformed("a broken error packet"), Denied::Server))
            }
            [0xfe] => Err(Denied::Us(
                "the account has a password of before MySQL 4.1 (mysql_old_password); set it anew".into(),
            )),
            [0xfe, ..] => {
                let switch: AuthSwitchRequest<'_> = ParseBuf(payload)
                    .parse(())
                    .map_err(|_| Denied::Malformed("a broken switch of plugin"))?;
                self.plugin = switch.auth_plugin().into_owned();
                self.nonce = switch.plugin_data().to_vec();
                self.proof = None;
                let challenge = self.nonce.clone();
                self.prove(sequence, &challenge)
            }
            [0x01, challenge @ ..] => {
                let challenge = challenge.to_vec();
                self.prove(sequence, &challenge)
            }
            _ => Err(Denied::Malformed("neither yes nor no after the login")),
        }
    }

    fn capabilities(&self) -> CapabilityFlags {
        let mut wanted = CapabilityFlags::CLIENT_PROTOCOL_41
            | CapabilityFlags::CLIENT_LONG_PASSWORD
            | CapabilityFlags::CLIENT_TRANSACTIONS
            | CapabilityFlags::CLIENT_SECURE_CONNECTION
            | CapabilityFlags::CLIENT_PLUGIN_AUTH
            | CapabilityFlags::CLIENT_PLUGIN_AUTH_LENENC_CLIENT_DATA;
        if self.database.is_some() {
            wanted |= CapabilityFlags::CLIENT_CONNECT_WITH_DB;
        }
        let mut both = wanted & (self.server | CapabilityFlags::CLIENT_LONG_PASSWORD);
        both.set(CapabilityFlags::CLIENT_SSL, self.channel == Channel::Tls);
        both
    }

    fn response(&mut self, sequence: u8) -> Result<Vec<u8>, Denied> {
        // A clear-text password is sent only if the account asks for it, not because a greeting does. An
        // unknown plugin in the greeting may not be the account's.
        if AuthProc::init(&self.plugin).is_err() || self.plugin == AuthPlugin::MysqlClearPassword {
            self.plugin = AuthPlugin::MysqlNativePassword;
        }
        let nonce = self.nonce.clone();
        let proof = self.run(&nonce)?.unwrap_or_default();
        let response = HandshakeResponse::new(
            Some(proof),
            (5, 7, 0),
            Some(self.user.as_bytes()),
            self.database.map(str::as_bytes),
            Some(self.plugin.borrow()),
            self.capabilities(),
            None,
            MAX_PACKET,
        );
        let (mut payload, mut out) = (Vec::new(), Vec::new());
        response.serialize(&mut payload);
        frame(sequence, &payload, &mut out);
        Ok(out)
    }

    fn prove(&mut self, sequence: u8, challenge: &[u8]) -> Result<Step, Denied> {
        if self.plugin == AuthPlugin::MysqlClearPassword && self.channel == Channel::Plain {
            return Err(Denied::Us(
                "the account needs the password in clear text, which plain TCP does not protect; use tcp+tls or the Unix socket".into(),
            ));
        }
        Ok(match self.run(challenge)? {
            Some(packet) => {
                let mut out = Vec::new();
                frame(sequence.wrapping_add(1), &packet, &mut out);
                Step::Send(out)
            }
            None => Step::Wait,
        })
    }

    fn run(&mut self, challenge: &[u8]) -> Result<Option<Vec<u8>>, Denied> {
        let key_comes = challenge.len() > 32;
        if key_comes
            && (challenge.len() > LONGEST_KEY || !challenge.starts_with(b"-----BEGIN PUBLIC KEY-----"))
        {
            return Err(Denied::Malformed("neither a challenge nor a public key"));
        }
        if self.proof.is_none() {
            let proof = AuthProc::init(&self.plugin).map_err(|_| {
                Denied::Us(format!(
                    "the account is authenticated by `{}`, which is not supported here; use another account",
                    String::from_utf8_lossy(self.plugin.as_bytes()).escape_debug()
                ))
            })?;
            self.proof = Some(proof);
        }
        let around = Around { password: self.password.as_bytes(), channel: self.channel, nonce: &self.nonce };
        let Some(proof) = &mut self.proof else { return Ok(None) };
        let response = proof.run(around, challenge).map_err(|error| {
            let plugin = String::from_utf8_lossy(self.plugin.as_bytes()).into_owned();
            Denied::Us(format!("the authentication by {plugin} failed: {error}"))
        })?;
        Ok(response.data().map(<[u8]>::to_vec))
    }
}
