//! How to reach an API server and who one is: kubeconfig files, or parts.

use std::path::Path;
use std::sync::Arc;

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::caller::Caller;
use crate::certificate::Certificate;
use crate::exec::Plugin;
use crate::kubeconfig::{Cluster, Kubeconfig, NamedCluster};
pub use crate::material::{ConfigError, Token, TokenSource};
use crate::material::{certificates, material, read};
use crate::proxy::Proxy;

/// Where the kubelet mounts the credentials of a Pod's account.
pub const ACCOUNT_DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// How to reach an API server and who one is.
#[derive(Debug, Default)]
pub struct Config {
    /// `https://host[:port][/path]`.
    pub server: String,
    /// The authorities that may have signed the server's certificate.
    pub authorities: Vec<CertificateDer<'static>>,
    /// Whether the system's authorities may have signed it, too.
    pub system_authorities: bool,
    /// The name to verify the server's certificate for, if not the address's host.
    pub server_name: Option<String>,
    /// Whether any certificate of the server's is taken: only for what is verified otherwise.
    pub any_server: bool,
    /// The proxy to it.
    pub proxy: Option<Proxy>,
    /// Whether the environment's proxy counts where there is no other (`HTTPS_PROXY`, `NO_PROXY`).
    pub environment_proxy: bool,
    /// The credentials.
    pub caller: Caller,
    /// The `User-Agent` to send.
    pub user_agent: String,
}

impl Config {
    /// A server and the PEM of the authorities of its certificate.
    pub fn new(server: &str, authorities: &[u8]) -> Result<Self, ConfigError> {
        Ok(Self {
            server: server.to_owned(),
            authorities: certificates("certificate authority", authorities)?,
            user_agent: agent(),
            ..Self::default()
        })
    }

    /// With a client certificate and its key, as PEM.
    pub fn with_certificate(mut self, chain: &[u8], key: &[u8]) -> Result<Self, ConfigError> {
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|e| ConfigError::Pem { what: "client key", reason: e.to_string() })?;
        let certificate = Certificate::new(certificates("client certificate", chain)?, key)?;
        self.caller = self.caller.with_certificate(certificate);
        Ok(self)
    }

    /// The same server for one who has no credentials yet.
    pub fn without_credentials(&self) -> Self {
        Self {
            server: self.server.clone(),
            authorities: self.authorities.clone(),
            system_authorities: self.system_authorities,
            server_name: self.server_name.clone(),
            any_server: self.any_server,
            proxy: self.proxy.clone(),
            environment_proxy: self.environment_proxy,
            caller: Caller::default(),
            user_agent: self.user_agent.clone(),
        }
    }

    /// With a client certificate that may be exchanged later.
    pub fn with_identity(mut self, certificate: Certificate) -> Self {
        self.caller = self.caller.with_certificate(certificate);
        self
    }

    /// With a bearer token.
    pub fn with_token(mut self, token: Token) -> Self {
        self.caller = self.caller.with_token(token);
        self
    }

    /// The configuration of a context in a kubeconfig file, by default its current one. Files that it names
    /// are looked for beside it.
    pub fn from_kubeconfig(path: &Path, context: Option<&str>) -> Result<Self, ConfigError> {
        let file = Kubeconfig::read(path)?;
        let wanted = context.unwrap_or_default();
        file.confirm_usable(wanted).map_err(ConfigError::Unusable)?;
        let context = file.context(if wanted.is_empty() { &file.current_context } else { wanted });
        let context = context.cloned().unwrap_or_default();
        let cluster = file.cluster(&context.cluster).cloned().unwrap_or_default();
        let user = file.user(&context.user).cloned().unwrap_or_default();

        let authorities = material(&cluster.certificate_authority_data, &cluster.certificate_authority)?;
        let authorities = authorities.unwrap_or_default();
        let mut config = Self::of(&cluster, &authorities)?;
        config.caller = Caller::of(&user, || {
            let told = cluster.for_plugins(&authorities);
            let program = user.exec.as_ref().map(|exec| Plugin::new(exec, Some(told)));
            Ok(program.transpose()?.map(Arc::new))
        })?;
        Ok(config)
    }

    /// The way to a cluster whose authorities these are, PEM.
    fn of(cluster: &Cluster, authorities: &[u8]) -> Result<Self, ConfigError> {
        if cluster.insecure_skip_tls_verify && !authorities.is_empty() {
            let why = "specifying a root certificates file with the insecure flag is not allowed";
            return Err(ConfigError::Unusable(why.to_owned()));
        }
        let mut config = if authorities.is_empty() {
            Self { server: cluster.server.clone(), user_agent: agent(), ..Self::default() }
        } else {
            Self::new(&cluster.server, authorities)?
        };
        config.system_authorities = authorities.is_empty();
        config.server_name = Some(cluster.tls_server_name.clone()).filter(|n| !n.is_empty());
        config.any_server = cluster.insecure_skip_tls_verify;
        let proxy = Some(&cluster.proxy_url).filter(|url| !url.is_empty()).map(|url| Proxy::parse(url));
        config.proxy = proxy.transpose().map_err(ConfigError::Unusable)?;
        config.environment_proxy = true;
        Ok(config)
    }

    /// The configuration of a Pod of the cluster: the address from its environment (`KUBERNETES_SERVICE_HOST` and
    /// `_PORT`), its account's token and the authorities from the directory that the kubelet mounts, [`ACCOUNT_DIR`].
    ///
    /// # Errors
    /// The files are not there or cannot be used.
    pub fn in_cluster(host: &str, port: &str, dir: &Path) -> Result<Self, ConfigError> {
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let token = dir.join("token");
        // Without it nothing would work, and the reason would come late.
        read(&token)?;
        let mut config = Self::new(&format!("https://{host}:{port}"), &read(&dir.join("ca.crt"))?)?;
        config.environment_proxy = true;
        Ok(config.with_token(Token::File(token)))
    }

    /// The same towards another address, as clientcmd overrides a kubeconfig's: the name that the kubeconfig has for the
    /// server's certificate belongs to the other one, and counts no more. An address without a scheme is one of HTTPS.
    pub fn with_server(mut self, address: &str) -> Self {
        let scheme = if address.contains("://") { "" } else { "https://" };
        self.server = format!("{scheme}{address}");
        self.server_name = None;
        self
    }

    /// The server and the authorities of a kubeconfig that has one cluster, and perhaps neither user nor context:
    /// `cluster-info`.
    pub fn of_cluster(text: &str) -> Result<Self, ConfigError> {
        let name = Path::new("the kubeconfig of cluster-info");
        let parse = |reason: String| ConfigError::Parse { path: name.to_owned(), reason };
        let file = Kubeconfig::parse(text.as_bytes(), name)?;
        let [NamedCluster { cluster, .. }] = &file.clusters[..] else {
            return Err(parse("it does not have exactly one cluster".to_owned()));
        };
        // It came over the network: it names no files of this machine, no proxy, and no way around the check of the server.
        let mut config = Self::new(&cluster.server, &cluster.certificate_authority_data)?;
        config.server_name = Some(cluster.tls_server_name.clone()).filter(|n| !n.is_empty());
        Ok(config)
    }
}

fn agent() -> String {
    concat!("ferrokube/", env!("CARGO_PKG_VERSION")).to_owned()
}
