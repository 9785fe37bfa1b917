//! TLS certificates and sessions. A certificate is the server's own, or one that a client accepts, in memory only: writes
//! no keys and reads no system store. A session on a socket, for client or server, blocking or not, makes no decisions
//! about certificates, and never waits silently: bytes that do not fit into the socket are buffered and reported.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use rustix::io::retry_on_intr;
use rustix::net::SendFlags;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::{
    CertificateError, ClientConfig, Connection, DigitallySignedStruct, Error, ProtocolVersion, ServerConfig,
    SignatureScheme,
};

/// Two maximum-size records. rustls itself reads 4 KiB at a time; four reads per record would not be
/// comparable with other TLS servers and clients.
const READ_AHEAD: usize = 32 * 1024;

pub(crate) struct TlsSession {
    connection: Connection,
    fd: OwnedFd,
    /// Encrypted bytes read ahead; those in `start..end` were not yet passed to the connection.
    ahead: Box<[u8]>,
    start: usize,
    end: usize,
    /// Number of decrypted bytes not yet read.
    decrypted: usize,
    /// Whether the peer ended its side and the reader has not seen it yet.
    unread_end: bool,
    socket_ended: bool,
    closing: Closing,
    /// When a read gives up, however many reads of the socket it takes.
    deadline: Option<Instant>,
}

/// How far our own close_notify is. Without it the peer could not tell an end from a truncation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Closing {
    Open,
    /// Requested during the handshake; sent after the written data.
    Asked,
    Sent,
}

impl TlsSession {
    pub(crate) fn new(connection: Connection, fd: OwnedFd) -> Self {
        TlsSession {
            connection,
            fd,
            ahead: vec![0; READ_AHEAD].into_boxed_slice(),
            start: 0,
            end: 0,
            decrypted: 0,
            unread_end: false,
            socket_ended: false,
            closing: Closing::Open,
            deadline: None,
        }
    }

    pub(crate) fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }

    pub(crate) fn has_buffered(&self) -> bool {
        self.decrypted > 0 || self.start < self.end || self.unread_end
    }

    pub(crate) fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    pub(crate) fn cipher(&self) -> Option<String> {
        let version = match self.connection.protocol_version()? {
            ProtocolVersion::TLSv1_3 => "TLSv1.3".to_owned(),
            ProtocolVersion::TLSv1_2 => "TLSv1.2".to_owned(),
            other => format!("{other:?}"),
        };
        Some(format!("{version} {:?}", self.connection.negotiated_cipher_suite()?.suite()))
    }

    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            match self.connection.reader().read(buffer) {
                Ok(0) => {
                    self.unread_end = false;
                    return Ok(0);
                }
                Ok(count) => {
                    self.decrypted = self.decrypted.saturating_sub(count);
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.advance()?,
                Err(error) => return Err(error),
            }
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        if self.closing != Closing::Open {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the write side was shut down"));
        }
        // A blocking socket completes its handshake here. A nonblocking one may have to wait for the peer:
        // the bytes are then buffered, up to rustls' limit of 64 KiB, and sent after the handshake.
        unless_blocked(self.handshake())?;
        // Buffered bytes must be sent first; otherwise the buffer would grow unnoticed by the caller.
        self.flush()?;
        let accepted = self.connection.writer().write(bytes)?;
        if accepted == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        // Accepted bytes stay accepted: those that do not fit into the socket are buffered, as `wants_write`
        // reports. Returning WouldBlock would make the caller send them twice.
        unless_blocked(self.flush())?;
        Ok(accepted)
    }

    /// Sends encrypted bytes that were not sent yet.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(&mut Socket(&self.fd))?;
        }
        Ok(())
    }

    pub(crate) fn shutdown_write(&mut self) -> io::Result<()> {
        if self.closing == Closing::Open {
            self.closing = Closing::Asked;
        }
        self.handshake()?;
        self.close_when_asked();
        self.flush()
    }

    /// Performs the handshake as far as the socket allows.
    pub(crate) fn handshake(&mut self) -> io::Result<()> {
        while self.connection.is_handshaking() {
            self.handshake_once()?;
        }
        Ok(())
    }

    /// One step of the handshake: sends pending data, then reads once.
    pub(crate) fn handshake_once(&mut self) -> io::Result<()> {
        self.flush()?;
        if !self.connection.is_handshaking() {
            return Ok(());
        }
        if self.socket_ended {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the peer closed the connection during the TLS handshake",
            ));
        }
        self.advance()?;
        unless_blocked(self.flush())
    }

    /// Processes more encrypted bytes: those read ahead, else one read of the socket.
    fn advance(&mut self) -> io::Result<()> {
        // Replies of the handshake must be sent before waiting for the answer. If they cannot be, reading
        // continues: the peer may be waiting for us to read, and a broken connection is also detected there.
        let _ = self.flush();
        if self.start == self.end {
            self.end = 0;
            self.start = 0;
            // A peer that sends a record byte by byte would keep within any limit for one read of the socket.
            if self.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.end = retry_on_intr(|| rustix::io::read(&self.fd, &mut *self.ahead))?;
            self.socket_ended = self.end == 0;
        }
        let taken = self.connection.read_tls(&mut &self.ahead[self.start..self.end])?;
        self.start += taken;
        match self.connection.process_new_packets() {
            Ok(state) => {
                self.decrypted = state.plaintext_bytes_to_read();
                self.unread_end = state.peer_has_closed();
            }
            Err(error) => {
                // Sends the alert that informs the peer of the reason.
                let _ = self.flush();
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
        }
        if self.unread_end {
            // Data after close_notify are ignored.
            self.start = self.end;
        }
        if !self.connection.is_handshaking() {
            self.close_when_asked();
            let _ = self.flush();
        }
        Ok(())
    }

    fn close_when_asked(&mut self) {
        if self.closing == Closing::Asked {
            self.connection.send_close_notify();
            self.closing = Closing::Sent;
        }
    }
}

impl AsFd for TlsSession {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for TlsSession {
    /// Sends close_notify if this does not block, so that the peer sees an end and not a truncation.
    fn drop(&mut self) {
        if self.connection.is_handshaking() {
            return;
        }
        if self.closing != Closing::Sent {
            self.connection.send_close_notify();
        }
        while self.connection.wants_write() {
            if self.connection.write_tls(&mut WithoutWaiting(&self.fd)).is_err() {
                break;
            }
        }
    }
}

fn unless_blocked(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        other => other,
    }
}

/// The socket as a writer for rustls.
struct Socket<'a>(&'a OwnedFd);

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(retry_on_intr(|| rustix::io::write(self.0, bytes))?)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(retry_on_intr(|| rustix::io::writev(self.0, slices))?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The socket as a nonblocking writer, even if it is blocking.
struct WithoutWaiting<'a>(&'a OwnedFd);

impl Write for WithoutWaiting<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        Ok(retry_on_intr(|| rustix::net::send(self.0, bytes, flags))?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The ring provider, passed explicitly, because a library must neither depend on nor install a process-wide
/// default.
fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    PROVIDER.get_or_init(|| Arc::new(rustls::crypto::ring::default_provider())).clone()
}

/// Which server certificates a client accepts.
///
/// Except with [`config`](Self::config), sessions are never resumed: every connection has a full handshake,
/// so that the first connection of a measurement costs as much as the others.
#[derive(Clone)]
pub struct TlsTrust {
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) loopback_only: bool,
}

impl TlsTrust {
    /// Accepts exactly this certificate (DER), whatever names it contains: for a server started by this program.
    #[must_use]
    pub fn pinned(certificate: &[u8]) -> TlsTrust {
        let pinned = CertificateDer::from(certificate.to_vec());
        TlsTrust { config: client_config(Some(pinned)), loopback_only: false }
    }

    /// Accepts, resumes and offers what this rustls configuration does.
    #[must_use]
    pub fn config(config: Arc<ClientConfig>) -> TlsTrust {
        TlsTrust { config, loopback_only: false }
    }

    /// Accepts any certificate, but only if the peer's address is loopback (127.0.0.0/8, ::1), so that measuring
    /// a local server does not require its CA. Does not protect against another local program that took the port.
    #[must_use]
    pub fn any_on_loopback() -> TlsTrust {
        static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
        TlsTrust { config: CONFIG.get_or_init(|| client_config(None)).clone(), loopback_only: true }
    }
}

impl Default for TlsTrust {
    fn default() -> Self {
        TlsTrust::any_on_loopback()
    }
}

impl fmt::Debug for TlsTrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsTrust").field("loopback_only", &self.loopback_only).finish_non_exhaustive()
    }
}

fn client_config(pinned: Option<CertificateDer<'static>>) -> Arc<ClientConfig> {
    let provider = provider();
    let verifier = Verifier { pinned, provider: provider.clone() };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring supports TLS 1.2 and 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    Arc::new(config)
}

/// Compares the certificate with the pinned one, if any, and checks that the server has its key.
#[derive(Debug)]
struct Verifier {
    pinned: Option<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match &self.pinned {
            Some(pinned) if pinned != certificate => {
                Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
            }
            _ => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// A server's certificate and key.
#[derive(Clone)]
pub struct TlsServer {
    pub(crate) config: Arc<ServerConfig>,
    certificate: CertificateDer<'static>,
}

/// Why a certificate could not be created.
#[derive(Debug, thiserror::Error)]
pub enum CertificateMakingError {
    /// The key or the certificate could not be generated.
    #[error("cannot make a self-signed certificate: {0}; see whether getrandom(2) works here")]
    Generate(#[from] rcgen::Error),
    /// rustls rejects the certificate or the key.
    #[error("cannot use the self-signed certificate: {0}; this is a defect of samehost, please report it")]
    Refused(#[from] Error),
}

/// A new certificate with its key, for a server that reads them from files.
#[derive(Clone)]
pub struct MadeCertificate {
    /// The certificate in PEM.
    pub certificate_pem: String,
    /// Its private key in PEM (PKCS #8). Write it where only the server can read it.
    pub key_pem: String,
    /// The certificate in DER, for [`TlsTrust::pinned`].
    pub certificate_der: Vec<u8>,
}

impl MadeCertificate {
    /// Creates a self-signed certificate for localhost, 127.0.0.1 and ::1, with a new ECDSA P-256 key.
    ///
    /// # Errors
    /// [`CertificateMakingError`].
    pub fn self_signed() -> Result<MadeCertificate, CertificateMakingError> {
        let made = rcgen::generate_simple_self_signed(own_names())?;
        Ok(MadeCertificate {
            certificate_pem: made.cert.pem(),
            key_pem: made.signing_key.serialize_pem(),
            certificate_der: made.cert.der().to_vec(),
        })
    }
}

impl fmt::Debug for MadeCertificate {
    /// Never shows the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MadeCertificate").finish_non_exhaustive()
    }
}

fn own_names() -> [String; 3] {
    ["localhost", "127.0.0.1", "::1"].map(str::to_owned)
}

impl TlsServer {
    /// Creates a certificate for localhost, 127.0.0.1 and ::1 with a new ECDSA P-256 key, kept only in memory.
    ///
    /// # Errors
    /// [`CertificateMakingError`].
    pub fn self_signed() -> Result<TlsServer, CertificateMakingError> {
        let made = rcgen::generate_simple_self_signed(own_names())?;
        let certificate = made.cert.der().clone();
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key.into())?;
        // No tickets and no cache: clients do not resume, and unused tickets would be bytes that only TLS sends.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(TlsServer { config: Arc::new(config), certificate })
    }

    /// The certificate, for [`TlsTrust::pinned`].
    #[must_use]
    pub fn certificate_der(&self) -> &[u8] {
        &self.certificate
    }
}

impl fmt::Debug for TlsServer {
    /// Never shows the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsServer").finish_non_exhaustive()
    }
}
