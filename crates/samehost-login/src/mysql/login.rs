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

/// What a password goes over; a plugin may send it in clear over the first two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// A Unix socket: readable by the server only.
    Socket,
    Tls,
    Plain,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send these bytes and read the next packet.
    Send(Vec<u8>),
    /// Send these bytes, switch the connection to TLS, and call [`Login::secured`].
    StartTls(Vec<u8>),
    Wait,
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    Server(SqlError),
    /// We cannot or should not go on.
    Us(String),
    Malformed(&'static str),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Greeting {
    /// As sent; old MariaDB puts `5.5.5-` before its own.
    pub version: String,
    /// The server's number of this connection (CONNECTION_ID()).
    pub connection_id: u32,
}

/// State of one login. The caller sends and receives: it passes the first packet to [`Login::greeted`] and all others to
/// [`Login::answered`], and does what the returned [`Step`] says.
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
        let scramble_length = match payload.iter().position(|byte| *byte == 0) {
            Some(end) => payload.get(end + 21),
            None => None,
        };
        if !matches!(scramble_length, Some(0..=127)) {
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
            [0xff, ..] => match SqlError::read(payload) {
                Some(error) => Err(Denied::Server(error)),
                None => Err(Denied::Malformed("a broken error packet")),
            },
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

    /// Flags that we ask for and the server has; CLIENT_SSL decides by the channel.
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

    /// The HandshakeResponse, as the packet with this sequence number.
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

    /// The plugin's answer to a challenge; `None` if it waits for the server's next packet. What is longer than any nonce
    /// must be a public key: the plugin would compute with whatever came.
    fn run(&mut self, challenge: &[u8]) -> Result<Option<Vec<u8>>, Denied> {
        let is_key = challenge.len() <= LONGEST_KEY && challenge.starts_with(b"-----BEGIN PUBLIC KEY-----");
        if challenge.len() > 32 && !is_key {
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

/// Logins against a scripted server: published test vectors, every path of each plugin, and hostile bytes.
#[cfg(test)]
mod tests {
    use mysql_common::auth::plugins::caching_sha2_password::scramble_sha256;
    use num_bigint::BigUint;
    use proptest::prelude::*;
    use sha1::{Digest, Sha1};

    use super::*;
    use crate::mysql::packet::{HEAD, first_frame};

    /// Challenge of most scripts.
    const NONCE: &[u8; 20] = b"abcdefghijklmnopqrst";
    /// A key made for this test only (openssl genrsa 2048).
    const PUBLIC_KEY: &str = "-----BEGIN PUBLIC KEY-----\n\
        MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAhNu7X/zmIx7QaRMIdlEF\n\
        H8YHYmQMWminP+PSls8IUYyW9n3tm8xqHCjM5eorgNTmz6AZMM0tuwxHfrCOsOOo\n\
        3QXHU1dHio293yg8NgmExGN/tCsR9tXKSxDbgiyOCfIAGIcgzz0ULcA1Yro297s8\n\
        NsUq7lpEIbsJxUFI9gnIb6Gu5OjQbHQaJJXS/43CqCkcKMumurpWRjTizK0nLY6B\n\
        RfREKPEY1Q0AG78WuD6ld9Htvk6Pp9zEZmxE4p+F8dTNIgSMXNH8raB3sOoRwUWv\n\
        uY/VHugxYtJi0NAjZ6Uc/cCKZyvO96trDJhBJAMVqd0Zo9g05MvKBnQC3UkywfBy\n\
        RwIDAQAB\n\
        -----END PUBLIC KEY-----\n";
    const MODULUS: &str = "84dbbb5ffce6231ed06913087651051fc60762640c5a68a73fe3d296cf08518c96f67ded9bcc6a1c28cce5ea2b80d4e6\
        cfa01930cd2dbb0c477eb08eb0e3a8dd05c75357478a8dbddf283c360984c4637fb42b11f6d5ca4b10db822c8e09f200\
        188720cf3d142dc03562ba36f7bb3c36c52aee5a4421bb09c54148f609c86fa1aee4e8d06c741a2495d2ff8dc2a8291c\
        28cba6baba564634e2ccad272d8e8145f44428f118d50d001bbf16b83ea577d1edbe4e8fa7dcc4666c44e29f85f1d4cd\
        22048c5cd1fcada077b0ea11c145afb98fd51ee83162d262d0d02367a51cfdc08a672bcef7ab6b0c9841240315a9dd19\
        a3d834e4cbca067402dd4932c1f07247";
    const PRIVATE_EXPONENT: &str = "2a87fd2ff951e324562b8d0044802357cc99489226b23a9670098abce4821139248abc3d7886b3e157de602bdac95f5e\
        9450f83f7b2f8c959dbd9cdfd118d052112b822e8aa47c43b050bd15bf6e554054fd645c57dc90e9fef78670a4f7e214\
        cdc554678372164355d3c931179544ed73a90eacaeeaed696f503aff289a95c18299457b4ec34360215c3ba0bfef1bc6\
        f9be22b3842d70f8f3af92ae1787abb38ec65b4ca3ae24dbf884ce0518a17067c55b087e458fc8b6f6be45f7cf75b085\
        eed5de56554b0caba21e20e26310f0531bc3ba1f2582b6c2627e0aaa9d7772d362491b7217f2d1a67edca5978d984742\
        07704d23f4d3b97163c121e1c8816a41";

    /// A greeting of protocol 10 from a server with plugins and TLS, naming this plugin.
    fn greeting(plugin: &str) -> Vec<u8> {
        let mut payload = b"\x0a8.0.36\0\x07\0\0\0".to_vec();
        payload.extend_from_slice(&NONCE[..8]);
        // Filler; lower flags with SSL and SECURE_CONNECTION; collation; status; upper flags with PLUGIN_AUTH.
        payload.extend_from_slice(&[0, 0xff, 0xff, 45, 2, 0, 0xff, 0xff, 21]);
        payload.extend_from_slice(&[0; 10]);
        payload.extend_from_slice(&NONCE[8..]);
        payload.push(0);
        payload.extend_from_slice(plugin.as_bytes());
        payload.push(0);
        payload
    }

    fn login(password: &str, channel: Channel) -> Login<'_> {
        Login::new("bob", password, None, channel)
    }

    /// Sequence number and payload of the single frame that is sent.
    fn sent(step: &Step) -> (u8, Vec<u8>) {
        let Step::Send(bytes) = step else { panic!("{step:?} sends nothing") };
        let frame = first_frame(bytes).unwrap().unwrap();
        assert_eq!(frame.length, bytes.len());
        (frame.sequence, frame.payload.to_vec())
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn the_cached_proof_is_that_of_other_implementations() {
        // go-sql-driver/mysql, auth_test.go, TestScrambleSHA256Pass.
        let scramble = [10, 47, 74, 111, 75, 73, 34, 48, 88, 76, 114, 74, 37, 13, 3, 80, 82, 2, 23, 21];
        for (password, proof) in [
            ("secret", "f490e76f66d9d86665ce54d98c78d0acfe2fb0b08b423da807144873d30b312c"),
            ("secret2", "abc3934a012cf342e876071c8ee202de51785b430258a7a0138bc79c4d800bc6"),
        ] {
            assert_eq!(hex(&scramble_sha256(&scramble, password.as_bytes()).unwrap()), proof);
        }
    }

    #[test]
    fn caching_sha2_when_the_server_remembers() {
        for channel in [Channel::Socket, Channel::Plain] {
            let mut login = login("secret", channel);
            let (sequence, response) = sent(&login.greeted(&greeting("caching_sha2_password")).unwrap());
            assert_eq!(sequence, 1);
            let proof = scramble_sha256(NONCE, b"secret").unwrap();
            assert!(
                response.windows(33).any(|part| part[0] == 32 && part[1..] == proof),
                "the proof is sent at once"
            );
            assert!(response.ends_with(b"caching_sha2_password\0"));
            assert_eq!(login.greeting.version, "8.0.36");
            assert_eq!(login.answered(2, &[1, 3]), Ok(Step::Wait), "fast authentication");
            assert_eq!(login.answered(3, &[0, 0, 0, 2, 0, 0, 0]), Ok(Step::Done));
        }
    }

    #[test]
    fn caching_sha2_in_full_over_a_socket_sends_the_password() {
        let mut login = login("secret", Channel::Socket);
        login.greeted(&greeting("caching_sha2_password")).unwrap();
        let step = login.answered(2, &[1, 4]).unwrap();
        assert_eq!(sent(&step), (3, b"secret\0".to_vec()));
        assert_eq!(login.answered(4, &[0, 0, 0, 2, 0, 0, 0]), Ok(Step::Done));
    }

    #[test]
    fn caching_sha2_in_full_over_tls_sends_the_password_after_the_handshake() {
        let mut login = login("secret", Channel::Tls);
        let Ok(Step::StartTls(request)) = login.greeted(&greeting("caching_sha2_password")) else {
            panic!("TLS comes first")
        };
        let frame = first_frame(&request).unwrap().unwrap();
        assert_eq!((frame.sequence, frame.payload.len()), (1, 32));
        assert!(u32::from_le_bytes(frame.payload[..4].try_into().unwrap()) & 0x800 != 0, "CLIENT_SSL");
        let response = login.secured().unwrap();
        assert_eq!(first_frame(&response).unwrap().unwrap().sequence, 2);
        let step = login.answered(3, &[1, 4]).unwrap();
        assert_eq!(sent(&step), (4, b"secret\0".to_vec()));
    }

    #[test]
    fn caching_sha2_in_full_over_plain_tcp_encrypts_with_the_servers_key() {
        let mut login = login("secret", Channel::Plain);
        login.greeted(&greeting("caching_sha2_password")).unwrap();
        let step = login.answered(2, &[1, 4]).unwrap();
        assert_eq!(sent(&step), (3, vec![2]), "asks for the key");
        let step = login.answered(4, &[&[1], PUBLIC_KEY.as_bytes()].concat()).unwrap();
        let (sequence, encrypted) = sent(&step);
        assert_eq!((sequence, encrypted.len()), (5, 256));
        let mut plain = decrypt(&encrypted);
        for (byte, nonce) in plain.iter_mut().zip(NONCE.iter().cycle()) {
            *byte ^= nonce;
        }
        assert_eq!(plain, b"secret\0");
    }

    /// RSAES-OAEP with SHA-1 (RFC 8017, section 7.1.2), without its checks.
    fn decrypt(encrypted: &[u8]) -> Vec<u8> {
        fn number(text: &str) -> BigUint {
            BigUint::parse_bytes(text.as_bytes(), 16).unwrap()
        }
        let message = BigUint::from_bytes_be(encrypted).modpow(&number(PRIVATE_EXPONENT), &number(MODULUS));
        let bytes = message.to_bytes_be();
        let (seed, block) = bytes.split_at(20);
        let seed = xor(seed, &mask(block, 20));
        let block = xor(block, &mask(&seed, block.len()));
        let end = block[20..].iter().position(|byte| *byte == 1).unwrap() + 21;
        block[end..].to_vec()
    }

    fn mask(seed: &[u8], length: usize) -> Vec<u8> {
        (0_u32..)
            .flat_map(|n| Sha1::digest([seed, &n.to_be_bytes()].concat()).to_vec())
            .take(length)
            .collect()
    }

    fn xor(a: &[u8], b: &[u8]) -> Vec<u8> {
        a.iter().zip(b).map(|(a, b)| a ^ b).collect()
    }

    #[test]
    fn an_account_may_want_another_plugin_than_the_greeting() {
        let mut login = login("secret", Channel::Plain);
        login.greeted(&greeting("caching_sha2_password")).unwrap();
        let switch = [b"\xfemysql_native_password\0".as_slice(), NONCE, b"\0"].concat();
        let (sequence, proof) = sent(&login.answered(2, &switch).unwrap());
        // SHA1(password) XOR SHA1(nonce + SHA1(SHA1(password))), secure password authentication.
        let once = Sha1::digest(b"secret");
        let expected = xor(&once, &Sha1::digest([NONCE.as_slice(), &Sha1::digest(once)].concat()));
        assert_eq!((sequence, proof), (3, expected));
    }

    #[test]
    fn an_empty_password_is_proved_by_nothing() {
        let mut login = login("", Channel::Plain);
        let (_, response) = sent(&login.greeted(&greeting("caching_sha2_password")).unwrap());
        assert!(response.ends_with(b"bob\0\0caching_sha2_password\0"));
        assert_eq!(login.answered(2, &[0, 0, 0, 2, 0, 0, 0]), Ok(Step::Done));
    }

    #[test]
    fn a_password_in_clear_is_not_sent_over_plain_tcp() {
        let switch = b"\xfemysql_clear_password\0";
        let mut plain = login("hunter2", Channel::Plain);
        plain.greeted(&greeting("mysql_clear_password")).unwrap();
        let Err(Denied::Us(reason)) = plain.answered(2, switch) else { panic!("sent") };
        assert!(!reason.contains("hunter2"));
        let mut socket = login("hunter2", Channel::Socket);
        let (_, response) = sent(&socket.greeted(&greeting("mysql_clear_password")).unwrap());
        assert!(!response.windows(7).any(|part| part == b"hunter2"), "not because a greeting says so");
        assert_eq!(sent(&socket.answered(2, switch).unwrap()).1, b"hunter2\0");
    }

    #[test]
    fn refusals_are_handed_on() {
        fn code_of(step: Result<Step, Denied>) -> u16 {
            match step {
                Err(Denied::Server(error)) => error.code,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(code_of(login("x", Channel::Plain).greeted(b"\xff\x10\x04Too many connections")), 1040);
        let mut login = login("x", Channel::Plain);
        login.greeted(&greeting("mysql_native_password")).unwrap();
        assert_eq!(code_of(login.answered(2, b"\xff\x15\x04#28000Access denied")), 1045);
        let Err(Denied::Us(reason)) = login.answered(2, b"\xfedialog\0Password: ") else { panic!("went on") };
        assert!(reason.contains("`dialog`"), "{reason}");
        let mut bare = greeting("mysql_native_password");
        let flags = bare.iter().position(|byte| *byte == 0xff).unwrap();
        bare[flags + 1] &= !0x08;
        assert!(matches!(self::login("x", Channel::Tls).greeted(&bare), Err(Denied::Us(_))), "no TLS there");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            greeting_bytes in proptest::collection::vec(any::<u8>(), 0..90),
            answers in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 0..4),
            own in any::<bool>(),
        ) {
            let mut login = login("secret", Channel::Plain);
            let first = if own { greeting("caching_sha2_password") } else { greeting_bytes };
            if login.greeted(&first).is_ok() {
                for (number, answer) in answers.iter().enumerate() {
                    let _ = login.answered(number as u8, answer);
                }
            }
            let _ = self::login("x", Channel::Socket).greeted(&[&first[..], &[0; HEAD]].concat());
        }
    }
}
