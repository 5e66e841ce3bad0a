//! The authorities of the signers of certificates, by upstream's flags, and the signer of tokens in Secrets.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use access::auth::{SigningKey, token};
use anyhow::{Context, Result, bail};
use controllers::certificates::{Authority, Signers};
use controllers::{TokenSigner, TokenSubject};
use jiff::SignedDuration;

use crate::cli::Signing;

/// A file of a certificate and that of its key.
type Pair<'a> = (&'a Option<PathBuf>, &'a Option<PathBuf>);

/// The key of the tokens of service accounts.
struct AccountKey(SigningKey);

impl fmt::Debug for AccountKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.public().id)
    }
}

impl TokenSigner for AccountKey {
    fn sign(&self, of: TokenSubject<'_>) -> Result<String, String> {
        token::legacy(&self.0, of.namespace, of.account, of.uid, of.secret).map_err(|e| e.to_string())
    }
}

/// The signer of tokens in Secrets, by its key.
pub(crate) fn token_signer(key_pem: &str) -> Result<Arc<dyn TokenSigner>> {
    let key = SigningKey::from_pem(key_pem).context("a key of service account tokens cannot be used")?;
    Ok(Arc::new(AccountKey(key)))
}

/// The signers of the control plane.
pub(crate) fn signers(f: &Signing) -> Result<Signers> {
    let duration = SignedDuration::try_from(f.cluster_signing_duration).unwrap_or(SignedDuration::MAX);
    let general = (&f.cluster_signing_cert_file, &f.cluster_signing_key_file);
    let serving = (&f.cluster_signing_kubelet_serving_cert_file, &f.cluster_signing_kubelet_serving_key_file);
    let kubelet = (&f.cluster_signing_kubelet_client_cert_file, &f.cluster_signing_kubelet_client_key_file);
    let client = (
        &f.cluster_signing_kube_apiserver_client_cert_file,
        &f.cluster_signing_kube_apiserver_client_key_file,
    );
    let legacy = (&f.cluster_signing_legacy_unknown_cert_file, &f.cluster_signing_legacy_unknown_key_file);
    let single = |(a, b): Pair<'_>| a.is_some() || b.is_some();
    if single(general) {
        if [serving, kubelet, client, legacy].into_iter().any(single) {
            bail!("cannot specify default and per controller certs at the same time");
        }
        return Ok(match authority(general)? {
            Some(one) => Signers { duration, ..Signers::all(&one) },
            None => Signers { duration, ..Signers::default() },
        });
    }
    Ok(Signers {
        kubelet_serving: authority(serving)?,
        kubelet_client: authority(kubelet)?,
        api_client: authority(client)?,
        legacy_unknown: authority(legacy)?,
        duration,
    })
}

fn authority((certificate, key): Pair<'_>) -> Result<Option<Authority>> {
    let (certificate, key) = match (certificate, key) {
        (None, None) => return Ok(None),
        (Some(certificate), Some(key)) => (certificate, key),
        _ => bail!("an authority that signs needs both the file of its certificate and that of its key"),
    };
    let read = |path: &Path| std::fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let authority = Authority::parse(&read(certificate)?, &read(key)?);
    authority.with_context(|| format!("{} cannot sign", certificate.display())).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_authorities() {
        let dir = tempfile::tempdir().unwrap();
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let ca = access::pki::Authority::generate("kubernetes", now).unwrap();
        let (crt, key) = (dir.path().join("ca.crt"), dir.path().join("ca.key"));
        std::fs::write(&crt, &ca.certificate_pem).unwrap();
        std::fs::write(&key, &ca.key_pem).unwrap();
        let both = Signing {
            cluster_signing_cert_file: Some(crt.clone()),
            cluster_signing_key_file: Some(key.clone()),
            ..Signing::default()
        };
        let found = signers(&both).unwrap();
        assert!(found.kubelet_client.is_some() && found.legacy_unknown.is_some());
        let one = Signing {
            cluster_signing_kubelet_client_cert_file: Some(crt.clone()),
            cluster_signing_kubelet_client_key_file: Some(key.clone()),
            ..Signing::default()
        };
        let found = signers(&one).unwrap();
        assert!(found.kubelet_client.is_some() && found.kubelet_serving.is_none());
        assert!(signers(&Signing::default()).unwrap().api_client.is_none());
        let check = |flags: Signing, expected: &str| {
            let error = format!("{:#}", signers(&flags).unwrap_err());
            assert!(error.contains(expected), "{error}");
        };
        check(Signing { cluster_signing_key_file: None, ..both.clone() }, "needs both");
        check(
            Signing { cluster_signing_kubelet_client_key_file: Some(key.clone()), ..both.clone() },
            "at the same time",
        );
        check(Signing { cluster_signing_key_file: Some(crt), ..both.clone() }, "cannot sign");
        check(Signing { cluster_signing_cert_file: Some(dir.path().join("none")), ..both }, "cannot read");
    }
}
