//! TLS: a certificate and its key, for both protocols.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::secret_file::{SecretError, read_secret};

/// The files of TLS.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate, and those that vouch for it, in PEM.
    pub certificate: PathBuf,
    /// Its private key in PEM.
    pub key: PathBuf,
}

/// What accepts connections with TLS: it decides once, at the start, so that a mistake is found before a client is.
#[derive(Clone)]
pub struct Tls(ServerConfig);

impl Tls {
    /// Reads the certificate and the key.
    ///
    /// # Errors
    /// When a file cannot be read, others may read the key, or the two do not belong together.
    pub fn read(files: &TlsFiles) -> Result<Self, SecretError> {
        let chain = certificates(&files.certificate)?;
        let key = private_key(&files.key)?;
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions();
        let failed = |error: tokio_rustls::rustls::Error| {
            let certificate = files.certificate.display();
            SecretError::new(&files.key, format!("it cannot be used with the certificate `{certificate}`: {error}"))
        };
        builder.map_err(failed)?.with_no_client_auth().with_single_cert(chain, key).map(Tls).map_err(failed)
    }

    /// Returns what accepts connections of one protocol, as TLS names it.
    pub fn acceptor(&self, protocol: &str) -> TlsAcceptor {
        let mut config = self.0.clone();
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, SecretError> {
    let bytes = read_secret(path, false)?;
    let chain = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| SecretError::new(path, format!("it is not in PEM: {error}")))?;
    if chain.is_empty() {
        return Err(SecretError::new(path, "it has no certificate in PEM (`BEGIN CERTIFICATE`)"));
    }
    Ok(chain)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, SecretError> {
    let bytes = read_secret(path, true)?;
    PrivateKeyDer::from_pem_slice(&bytes)
        .map_err(|error| SecretError::new(path, format!("it has no private key in PEM (`BEGIN PRIVATE KEY`): {error}")))
}
