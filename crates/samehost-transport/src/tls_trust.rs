//! TLS certificates: the server's own, and which ones a client accepts. In memory only: writes no keys and
//! reads no system store.

use std::fmt;
use std::sync::{Arc, OnceLock};

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme};

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
