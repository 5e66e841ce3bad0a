//! How to reach an API server and who one is: kubeconfig files, or parts.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::Status;
use base64::Engine;
use futures::future::BoxFuture;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde::Deserialize;

use crate::certificate::Certificate;

/// Why a client cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file that cannot be read.
    #[error("unable to read {path}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A kubeconfig that is no valid YAML of its kind.
    #[error("{path}: {reason}")]
    Parse {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A context, cluster or user that the kubeconfig does not have.
    #[error("{what} \"{name}\" does not exist")]
    Missing {
        /// `context`, `cluster` or `user`.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// A server that is no `https://host[:port]`.
    #[error("\"{0}\" is not the address of an API server: want https://HOST[:PORT]")]
    Server(String),
    /// A certificate or key that cannot be used.
    #[error("{what}: {reason}")]
    Pem {
        /// Its use.
        what: &'static str,
        /// Why not.
        reason: String,
    },
    /// TLS refuses the certificate, the key or the roots.
    #[error("TLS configuration")]
    Tls(#[from] rustls::Error),
}

/// Gives bearer tokens, and keeps them for as long as they are good.
pub trait TokenSource: Send + Sync + 'static {
    /// A token that is good now.
    fn token(&self) -> BoxFuture<'_, Result<String, Status>>;
}

/// Where the kubelet mounts the credentials of a Pod's account.
pub const ACCOUNT_DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Where a bearer token comes from.
#[derive(Clone)]
pub enum Token {
    /// Fixed.
    Value(String),
    /// A file that is read again as it is renewed.
    File(PathBuf),
    /// Something that renews it.
    Source(Arc<dyn TokenSource>),
}

impl fmt::Debug for Token {
    /// Without the token itself.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(_) => f.write_str("Value"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Source(_) => f.write_str("Source"),
        }
    }
}

/// How to reach an API server and who one is.
#[derive(Debug, Default)]
pub struct Config {
    /// `https://host[:port]`.
    pub server: String,
    /// The authorities that may have signed the server's certificate.
    pub authorities: Vec<CertificateDer<'static>>,
    /// The name to verify the server's certificate for, if not the address's host.
    pub server_name: Option<String>,
    /// Whether any certificate of the server's is taken: only for what is verified otherwise.
    pub any_server: bool,
    /// The client certificate.
    pub identity: Option<Certificate>,
    /// Bearer token.
    pub token: Option<Token>,
    /// The `User-Agent` to send.
    pub user_agent: String,
}

impl Config {
    /// A server and the PEM of the authorities of its certificate.
    pub fn new(server: &str, authorities: &[u8]) -> Result<Self, ConfigError> {
        Ok(Self {
            server: server.to_owned(),
            authorities: certificates("certificate authority", authorities)?,
            user_agent: concat!("ferrokube/", env!("CARGO_PKG_VERSION")).to_owned(),
            ..Self::default()
        })
    }

    /// With a client certificate and its key, as PEM.
    pub fn with_certificate(mut self, chain: &[u8], key: &[u8]) -> Result<Self, ConfigError> {
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|e| ConfigError::Pem { what: "client key", reason: e.to_string() })?;
        self.identity = Some(Certificate::new(certificates("client certificate", chain)?, key)?);
        Ok(self)
    }

    /// With a client certificate that may be exchanged later.
    pub fn with_identity(mut self, certificate: Certificate) -> Self {
        self.identity = Some(certificate);
        self
    }

    /// With a bearer token.
    pub fn with_token(mut self, token: Token) -> Self {
        self.token = Some(token);
        self
    }

    /// The configuration of a context in a kubeconfig file, by default its current one. Files that it names
    /// are looked for beside it.
    pub fn from_kubeconfig(path: &Path, context: Option<&str>) -> Result<Self, ConfigError> {
        let text = read(path)?;
        let text = std::str::from_utf8(&text)
            .map_err(|e| ConfigError::Parse { path: path.to_owned(), reason: e.to_string() })?;
        Self::from_text(text, path, context)
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
        let config = Self::new(&format!("https://{host}:{port}"), &read(&dir.join("ca.crt"))?)?;
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
        let file: Kubeconfig = serde_saphyr::from_str(text).map_err(|e| parse(e.to_string()))?;
        let [NamedCluster { cluster, .. }] = &file.clusters[..] else {
            return Err(parse("it does not have exactly one cluster".to_owned()));
        };
        // It came over the network: it names no files of this machine.
        let roots = material(Path::new(""), "certificate authority", &cluster.authority_data, Path::new(""))?;
        let mut config = Self::new(&cluster.server, &roots.unwrap_or_default())?;
        config.server_name = Some(cluster.tls_server_name.clone()).filter(|n| !n.is_empty());
        Ok(config)
    }

    fn from_text(text: &str, path: &Path, context: Option<&str>) -> Result<Self, ConfigError> {
        let parse = |reason: String| ConfigError::Parse { path: path.to_owned(), reason };
        let file: Kubeconfig = serde_saphyr::from_str(text).map_err(|e| parse(e.to_string()))?;
        let dir = path.parent().unwrap_or(Path::new(""));

        let wanted = context.unwrap_or(&file.current_context);
        let context = &find("context", wanted, &file.contexts, |c| &c.name)?.context;
        let cluster = &find("cluster", &context.cluster, &file.clusters, |c| &c.name)?.cluster;
        let user = &find("user", &context.user, &file.users, |u| &u.name)?.user;

        let roots = material(dir, "certificate authority", &cluster.authority_data, &cluster.authority)?;
        let mut config = Self::new(&cluster.server, &roots.unwrap_or_default())?;
        config.server_name = Some(cluster.tls_server_name.clone()).filter(|n| !n.is_empty());
        let chain = material(dir, "client certificate", &user.certificate_data, &user.certificate)?;
        let key = material(dir, "client key", &user.key_data, &user.key)?;
        if let (Some(chain), Some(key)) = (chain, key) {
            config = config.with_certificate(&chain, &key)?;
        }
        if !user.token.is_empty() {
            config.token = Some(Token::Value(user.token.clone()));
        } else if !user.token_file.as_os_str().is_empty() {
            config.token = Some(Token::File(dir.join(&user.token_file)));
        }
        Ok(config)
    }
}

fn certificates(what: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let bad = |reason: String| ConfigError::Pem { what, reason };
    let found: Vec<_> =
        CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|e| bad(e.to_string()))?;
    if found.is_empty() { Err(bad("no certificate found".into())) } else { Ok(found) }
}

fn read(path: &Path) -> Result<Vec<u8>, ConfigError> {
    std::fs::read(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })
}

/// Bytes that a kubeconfig holds itself as base64, or names as a file.
fn material(dir: &Path, what: &'static str, data: &str, file: &Path) -> Result<Option<Vec<u8>>, ConfigError> {
    if !data.is_empty() {
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(data.trim())
            .map_err(|e| ConfigError::Pem { what, reason: e.to_string() })?;
        return Ok(Some(bytes));
    }
    if file.as_os_str().is_empty() { Ok(None) } else { read(&dir.join(file)).map(Some) }
}

fn find<'a, T>(
    what: &'static str,
    name: &str,
    among: &'a [T],
    name_of: impl Fn(&T) -> &str,
) -> Result<&'a T, ConfigError> {
    among
        .iter()
        .find(|t| name_of(t) == name)
        .ok_or_else(|| ConfigError::Missing { what, name: name.to_owned() })
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Kubeconfig {
    #[serde(default)]
    clusters: Vec<NamedCluster>,
    #[serde(default)]
    users: Vec<NamedUser>,
    #[serde(default)]
    contexts: Vec<NamedContext>,
    #[serde(default)]
    current_context: String,
}

#[derive(Debug, Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Cluster,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Cluster {
    server: String,
    #[serde(rename = "certificate-authority")]
    authority: PathBuf,
    #[serde(rename = "certificate-authority-data")]
    authority_data: String,
    tls_server_name: String,
}

#[derive(Debug, Deserialize)]
struct NamedUser {
    name: String,
    user: User,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct User {
    #[serde(rename = "client-certificate")]
    certificate: PathBuf,
    #[serde(rename = "client-certificate-data")]
    certificate_data: String,
    #[serde(rename = "client-key")]
    key: PathBuf,
    #[serde(rename = "client-key-data")]
    key_data: String,
    token: String,
    #[serde(rename = "tokenFile")]
    token_file: PathBuf,
}

#[derive(Debug, Deserialize)]
struct NamedContext {
    name: String,
    context: Context,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Context {
    cluster: String,
    user: String,
}
