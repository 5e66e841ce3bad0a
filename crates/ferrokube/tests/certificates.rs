//! Certificates of a cluster's authority, and kubeconfigs with them.

use std::path::PathBuf;

use anyhow::{Context, Result};
use rcgen::{CertificateParams, DistinguishedName, DnType, Issuer, KeyPair, SanType};
use serde_json::{Value, json};
use testkit::Cluster;

/// Writes a certificate of the cluster's authority and its key: `FILE.crt` and `FILE.key` of the host's directory.
pub(crate) fn issue(
    cluster: &Cluster,
    file: &str,
    names: &[(DnType, &str)],
    sans: Vec<SanType>,
) -> Result<(PathBuf, PathBuf)> {
    let pki = cluster.data_dir().join("pki");
    let read = |name: &str| std::fs::read_to_string(pki.join(name)).with_context(|| name.to_owned());
    let issuer = Issuer::from_ca_cert_pem(&read("ca.crt")?, KeyPair::from_pem(&read("ca.key")?)?)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    for (kind, name) in names {
        params.distinguished_name.push(kind.clone(), *name);
    }
    params.subject_alt_names = sans;
    let key = KeyPair::generate()?;
    let (crt, own) =
        (cluster.host().path(&format!("{file}.crt")), cluster.host().path(&format!("{file}.key")));
    std::fs::write(&crt, params.signed_by(&key, &issuer)?.pem())?;
    std::fs::write(&own, key.serialize_pem())?;
    Ok((crt, own))
}

/// The administrator's kubeconfig as JSON.
pub(crate) fn admin(cluster: &Cluster) -> Result<Value> {
    Ok(serde_json::from_str(&cluster.kubectl(&["config", "view", "--raw", "-o", "json"])?)?)
}

/// Writes a kubeconfig with a certificate of its own: `FILE.kubeconfig` of the host's directory.
pub(crate) fn kubeconfig(cluster: &Cluster, file: &str, names: &[(DnType, &str)]) -> Result<PathBuf> {
    let (crt, key) = issue(cluster, file, names, Vec::new())?;
    let mut kubeconfig = admin(cluster)?;
    kubeconfig["users"][0]["user"] = json!({"client-certificate": crt, "client-key": key});
    let path = cluster.host().path(&format!("{file}.kubeconfig"));
    std::fs::write(&path, kubeconfig.to_string())?;
    Ok(path)
}
