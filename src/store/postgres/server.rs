//! Where a server is, and how to connect to it: address, TLS and time limits.

use std::{error::Error as StdError, path::PathBuf, sync::Arc, time::Duration};

use buzz_actors::ports::StoreError;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Error, NoTls, config::SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{error::fault, session::drive};
use crate::{error_chain::chain, store::fault::Fault, text, values::mask_password};

/// A server that answers no connection attempt within this time can't be reached.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);

/// A server.
#[derive(Clone)]
pub(super) struct Server {
    config: tokio_postgres::Config,
    tls: Option<MakeRustlsConnect>,
    /// The URL without its password.
    shown: String,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("url", &self.shown)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// # Errors
    /// When the URL is wrong; the text names it and the reason, and never its password.
    pub(super) fn new(url: &str) -> Result<Self, StoreError> {
        let shown = mask_password(url);
        let wrong = |why: String| Fault::Failed.at(&shown, why);
        let (url, root_file) = take_tls_parameters(url);
        let mut config: tokio_postgres::Config =
            url.parse().map_err(|error: Error| wrong(chain(&error)))?;
        if config.get_application_name().is_none() {
            config.application_name("buzz-relay");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_WITHIN);
        }
        // A peer that is gone without a word is noticed within about half a minute.
        config.keepalives_idle(Duration::from_secs(15));
        config.keepalives_interval(Duration::from_secs(5));
        config.keepalives_retries(3);
        config.tcp_user_timeout(Duration::from_secs(30));
        let tls = match config.get_ssl_mode() {
            SslMode::Require => Some(tls(root_file).map_err(wrong)?),
            // `prefer` can't be told from "not said", and a certificate that no one vouches for
            // (Debian's servers offer one) would make an encryption that protects nothing.
            _ => None,
        };
        Ok(Self { config, tls, shown })
    }

    /// The URL without its password.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    /// Opens a connection; the current runtime drives it.
    pub(super) async fn connect(
        &self,
    ) -> Result<(Client, JoinHandle<Result<(), Error>>), StoreError> {
        // What waiting can mend is told apart from what it can't, such as a wrong password.
        let failed = |error: Error| fault(&error).at(&self.shown, error);
        match self.tls.clone() {
            Some(tls) => {
                let (client, connection) = self.config.connect(tls).await.map_err(failed)?;
                Ok((client, drive(connection)))
            }
            None => {
                let (client, connection) = self.config.connect(NoTls).await.map_err(failed)?;
                Ok((client, drive(connection)))
            }
        }
    }

    pub(super) fn unavailable(
        &self,
        why: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> StoreError {
        Fault::Unreachable.at(&self.shown, why)
    }
}

/// Takes out of the URL what the driver does not know: `sslrootcert`, and `verify-full`, which is
/// what `require` does here.
fn take_tls_parameters(url: &str) -> (String, Option<PathBuf>) {
    let Some((base, query)) = url.split_once('?') else {
        return (url.to_owned(), None);
    };
    let mut root_file = None;
    let mut kept = Vec::new();
    for pair in query.split('&') {
        match pair.split_once('=') {
            Some(("sslrootcert", file)) => root_file = Some(PathBuf::from(file)),
            Some(("sslmode", "verify-full")) => kept.push("sslmode=require"),
            _ => kept.push(pair),
        }
    }
    let query = kept.join("&");
    let separator = if query.is_empty() { "" } else { "?" };
    (format!("{base}{separator}{query}"), root_file)
}

/// Encrypts, and verifies the server's name and certificate.
fn tls(root_file: Option<PathBuf>) -> Result<MakeRustlsConnect, String> {
    let mut roots = RootCertStore::empty();
    match root_file {
        Some(file) => {
            let failed =
                |error: &dyn std::fmt::Display| format!("sslrootcert: {}: {error}", file.display());
            let text = text::read(&file).map_err(|error| failed(&error))?;
            for certificate in CertificateDer::pem_slice_iter(text.as_bytes()) {
                let certificate = certificate.map_err(|error| failed(&error))?;
                roots.add(certificate).map_err(|error| failed(&error))?;
            }
            if roots.is_empty() {
                return Err(failed(&"there is no certificate in it"));
            }
        }
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("sslmode: {error}"))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}
