//! The cluster's public key infrastructure: made on first start, reused and renewed after it.
//!
//! Files lie in `DIR/pki` under kubeadm's names where it has one. Every file is 0600 and every
//! directory 0700. A certificate authority is never replaced: one that cannot be read is an error.

mod bundle;
mod error;
mod files;
mod issue;
mod kubeconfig;
mod named;
mod pin;
mod tls;

use std::net::IpAddr;
use std::path::Path;

use jiff::Timestamp;

pub use bundle::bundle;
pub use error::PkiError;
pub use issue::{Authority, Credential, Profile, Usage};
pub use kubeconfig::{kubeconfig, write_kubeconfig};
pub use named::{ByName, Named};
pub use pin::public_key_hash;
pub use tls::server_tls;

/// The content of the certificates.
#[derive(Debug, Clone)]
pub struct PkiConfig {
    /// This machine's host name, a name of the API server.
    pub hostname: String,
    /// Addresses of the API server besides loopback.
    pub addresses: Vec<IpAddr>,
    /// More DNS names of the API server.
    pub names: Vec<String>,
    /// The first address of the Service range, which the `kubernetes` Service gets.
    pub service_address: Option<IpAddr>,
    /// DNS domain of the cluster, e.g. `cluster.local`.
    pub cluster_domain: String,
    /// The current time: certificates that expire soon after it are renewed.
    pub now: Timestamp,
}

/// The keys and certificates of one cluster.
pub struct Pki {
    /// The authority of client and serving certificates.
    pub ca: Authority,
    /// The authority of the certificate with which the API server calls aggregated servers.
    pub front_proxy_ca: Authority,
    /// The certificate with which the API server serves.
    pub apiserver: Credential,
    /// The certificate with which the API server calls kubelets.
    pub apiserver_kubelet_client: Credential,
    /// The certificate with which the API server calls aggregated servers.
    pub front_proxy_client: Credential,
    /// The client certificate of `kubernetes-admin` in `system:masters`.
    pub admin: Credential,
    /// The client certificate of `system:kube-controller-manager`.
    pub controller_manager: Credential,
    /// The client certificate of `system:kube-scheduler`.
    pub scheduler: Credential,
    /// The private key that signs service account tokens: PKCS#8 in PEM.
    pub service_account_key_pem: String,
}

impl Pki {
    /// Reads the content of `dir/pki`, and makes the files that are missing, name other names than wanted, or expire
    /// soon.
    pub fn ensure(dir: &Path, config: &PkiConfig) -> Result<Self, PkiError> {
        let pki = dir.join("pki");
        files::ensure_dir(dir)?;
        files::ensure_dir(&pki)?;
        let now = config.now;
        let ca = Authority::ensure(&pki, "ca", "kubernetes", now)?;
        let front_proxy_ca = Authority::ensure(&pki, "front-proxy-ca", "front-proxy-ca", now)?;
        let client = |stem: &str, user: &str, group: Option<&str>| {
            ca.ensure_leaf(&pki, stem, &Profile::client(user, group), now)
        };
        Ok(Self {
            apiserver: ca.ensure_leaf(&pki, "apiserver", &apiserver_profile(config), now)?,
            apiserver_kubelet_client: client(
                "apiserver-kubelet-client",
                "kube-apiserver-kubelet-client",
                // The bootstrap policy binds the rights to the user's name.
                None,
            )?,
            front_proxy_client: front_proxy_ca.ensure_leaf(
                &pki,
                "front-proxy-client",
                &Profile::client("front-proxy-client", None),
                now,
            )?,
            admin: client("admin", "kubernetes-admin", Some("system:masters"))?,
            controller_manager: client("controller-manager", "system:kube-controller-manager", None)?,
            scheduler: client("scheduler", "system:kube-scheduler", None)?,
            service_account_key_pem: issue::ensure_key(&pki.join("sa.key"))?,
            ca,
            front_proxy_ca,
        })
    }
}

fn apiserver_profile(config: &PkiConfig) -> Profile {
    let mut names: Vec<String> = vec![
        "localhost".into(),
        "kubernetes".into(),
        "kubernetes.default".into(),
        "kubernetes.default.svc".into(),
        format!("kubernetes.default.svc.{}", config.cluster_domain),
    ];
    names.push(config.hostname.clone());
    names.extend(config.names.iter().cloned());
    let mut addresses = config.addresses.clone();
    addresses.extend(config.service_address);
    Profile::serving("kube-apiserver", None, names, addresses)
}

#[cfg(test)]
mod tests;
