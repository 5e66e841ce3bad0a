//! The way into the cluster: the credentials of an earlier start, a token, or a file that somebody prepared.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Error, Result, anyhow, bail};
use api::{Status, pem};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::bootstrap::Token;
use client::{Client, Config, Remote};
use component::{Clock, Shutdown};
use jiff::Timestamp;
use serde_json::json;

use super::discovery::{Pins, discover};
use super::kept::{Kept, Server};
use super::request::Wanted;
use super::sentences::unreachable;
use super::store::Store;
use crate::failure::Failure;
use crate::{cli, private};

/// The file with the node's credentials, in the data directory.
pub(super) const KUBECONFIG: &str = "kubelet.kubeconfig";

/// The name of the files of the node's client certificate, that of upstream's kubelet.
pub(super) const CLIENT: &str = "kubelet-client";

/// The way that the flags name.
#[derive(Debug)]
pub(crate) struct Way {
    server: Option<String>,
    token: Option<Token>,
    pins: Pins,
    bootstrap: Option<PathBuf>,
    kubeconfig: Option<PathBuf>,
}

/// The node in its cluster.
pub(crate) struct Joined {
    /// The API server, with the node's identity.
    pub(crate) config: Config,
    /// The node's client certificate; none if others keep it.
    pub(crate) own: Option<Own>,
}

/// The node's client certificate with the time of its exchange.
pub(crate) struct Own(Kept, Timestamp);

impl Own {
    /// The place of the certificate.
    pub(crate) fn place(&self) -> client::Certificate {
        self.0.place.clone()
    }

    /// Keeps it good in the background; `client` has it. `failure` tells if it expires all the same.
    pub(crate) fn keep(self, client: Client, failure: Failure, shutdown: &Shutdown) {
        let Self(kept, next) = self;
        let stop = shutdown.clone();
        shutdown.spawn(async move { kept.keep(Some(next), client, Some(failure), stop).await });
    }
}

/// The files of a node's credentials.
pub(crate) struct Files<'a> {
    /// The directory of certificates.
    pub(crate) pki: &'a Path,
    /// The kubeconfig that leads to them.
    pub(crate) kubeconfig: &'a Path,
}

impl Way {
    /// Reads the flags. Nothing is asked yet.
    pub(super) fn of(flags: &cli::Agent) -> Result<Self> {
        let token = flags.token.as_ref().map(|text| text.parse::<Token>()).transpose();
        let server = flags.server.as_ref().map(|server| server.trim_end_matches('/').to_owned());
        if let Some(server) = server.as_ref().filter(|server| !server.starts_with("https://")) {
            bail!("--server {server:?} is not the address of an API server: want https://HOST[:PORT]");
        }
        let way = Self {
            server,
            token: token.map_err(|e| anyhow!("--token: {e}"))?,
            pins: Pins::parse(&flags.ca_hash)?,
            bootstrap: flags.bootstrap_kubeconfig.clone(),
            kubeconfig: flags.kubeconfig.clone(),
        };
        if way.token.is_some() && way.server.is_none() {
            bail!("--token needs --server, the address of the API server");
        }
        if way.token.is_some() && way.pins.is_empty() {
            eprintln!(
                "ferrokube: without --ca-hash, whoever knows the token can pass for the cluster's API server; `ferrokube token create` prints it"
            );
        }
        Ok(way)
    }
}

impl Way {
    /// The way of a kubelet alone: a kubeconfig with credentials to join with.
    pub(crate) fn by(bootstrap: &Path) -> Self {
        let bootstrap = Some(bootstrap.to_owned());
        Self { server: None, token: None, pins: Pins::default(), bootstrap, kubeconfig: None }
    }
}

/// Joins the cluster, or comes back to it.
pub(crate) async fn join(way: &Way, files: &Files<'_>, node: &str, clock: Clock) -> Result<Joined> {
    if let Some(path) = &way.kubeconfig {
        let config = Config::from_kubeconfig(path, None);
        let mut config = config.with_context(|| format!("--kubeconfig {} cannot be used", path.display()))?;
        config.server = way.server.clone().unwrap_or(config.server);
        return Ok(Joined { config, own: None });
    }
    let store = Store::new(files.pki, CLIENT);
    let kept = Kept::new(Wanted::node_client(node), store, clock);
    let saved = files.kubeconfig;
    if saved.exists()
        && let Some(next) = kept.load()?
    {
        let config = Config::from_kubeconfig(saved, None);
        let mut config = config.with_context(|| format!("{} cannot be used", saved.display()))?;
        way.pins.check(&config).with_context(|| {
            format!("{} belongs to another cluster; choose another --data-dir", saved.display())
        })?;
        config.server = way.server.clone().unwrap_or(config.server);
        let kept = kept.tried_at(Server::of(&config));
        let config = config.with_identity(kept.place.clone());
        return Ok(Joined { config, own: Some(Own(kept, next)) });
    }
    let (bootstrap, known) = bootstrap(way).await?;
    let server = known.server.clone();
    let client = Client::new(Arc::new(Remote::new(bootstrap)?), "ferrokube");
    let kept = kept.tried_at(Server::of(&known));
    let next = kept.renew(&client).await.map_err(|error| refused(&server, error))?;
    write(saved, &known, &kept.store.current())?;
    let config = known.with_identity(kept.place.clone());
    Ok(Joined { config, own: Some(Own(kept, next)) })
}

/// The server with the credentials to join with, and without any.
async fn bootstrap(way: &Way) -> Result<(Config, Config)> {
    if let Some(path) = &way.bootstrap {
        let config = Config::from_kubeconfig(path, None);
        let mut config =
            config.with_context(|| format!("--bootstrap-kubeconfig {} cannot be used", path.display()))?;
        way.pins.check(&config)?;
        config.server = way.server.clone().unwrap_or(config.server);
        let known = config.without_credentials();
        return Ok((config, known));
    }
    let (Some(token), Some(server)) = (&way.token, &way.server) else {
        bail!(
            "this machine has no certificate of a node that is still good, and nothing to join with: run the command that `ferrokube token create` prints on the control plane"
        );
    };
    let known = discover(server, token, &way.pins).await?;
    let config = known.without_credentials().with_token(client::Token::Value(token.text()));
    Ok((config, known))
}

/// One sentence for a refusal of the credentials to join with.
fn refused(server: &str, error: Error) -> Error {
    match error.downcast_ref::<Status>() {
        Some(status) if status.code == 401 => anyhow!(
            "{server} refuses the token: it is unknown there, has expired, or was deleted; `ferrokube token create` on the control plane makes another one"
        ),
        Some(status) if status.code == 403 => anyhow!(
            "the credentials may not ask for a node's certificate: {}; a token for nodes has the group {}",
            status.message,
            client::bootstrap::NODE_GROUP
        ),
        Some(status) if status.code == 503 => unreachable(server, status),
        _ => error.context("the node did not get its certificate"),
    }
}

/// Writes the kubeconfig of the node, whose certificate is in a file of its own.
pub(super) fn write(path: &Path, config: &Config, certificate: &Path) -> Result<()> {
    let pem: String = config.authorities.iter().map(|der| pem::encode_certificate(der)).collect();
    let mut cluster = json!({"server": config.server});
    if !pem.is_empty() {
        cluster["certificate-authority-data"] = STANDARD.encode(pem).into();
    }
    if config.any_server {
        cluster["insecure-skip-tls-verify"] = true.into();
    }
    if let Some(proxy) = &config.proxy {
        cluster["proxy-url"] = proxy.url().into();
    }
    if let Some(name) = &config.server_name {
        cluster["tls-server-name"] = name.as_str().into();
    }
    let all = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "default-context",
        "clusters": [{"name": "default-cluster", "cluster": cluster}],
        "users": [{"name": "default-auth", "user": {"client-certificate": certificate, "client-key": certificate}}],
        "contexts": [{"name": "default-context", "context": {"cluster": "default-cluster", "user": "default-auth"}}],
    });
    let part = path.with_extension("part");
    let failed = || format!("cannot write {}", path.display());
    // The rest of an earlier attempt is of no use.
    let _ = fs::remove_file(&part);
    let mut file = private::create(&part).with_context(failed)?;
    file.write_all(format!("{all:#}\n").as_bytes()).with_context(failed)?;
    file.sync_all().with_context(failed)?;
    fs::rename(&part, path).with_context(failed)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn way(arguments: &str) -> Result<Way> {
        let line = format!("ferrokube agent {arguments}");
        let Command::Agent(flags) = Cli::try_parse_from(line.split(' ').filter(|a| !a.is_empty()))?.command
        else {
            bail!("another command")
        };
        Way::of(&flags)
    }

    #[test]
    fn flags_are_refused_in_one_sentence() {
        let check = |arguments: &str, expected: &str| {
            let error = way(arguments).unwrap_err().to_string();
            assert!(error.contains(expected), "{arguments}: {error}");
        };
        let token = "--token abcdef.0123456789abcdef";
        way(&format!("--server https://192.0.2.1:6443/ {token}")).unwrap();
        way("").unwrap();
        check("--server https://a --token abcdef", "--token: the bootstrap token was not of the form");
        check(&format!("--server http://a {token}"), "is not the address of an API server");
        check(token, "--token needs --server");
        check(&format!("--server https://a {token} --ca-hash sha1:00"), "unknown hash format");
    }

    #[tokio::test]
    async fn without_credentials_there_is_one_sentence() {
        let dir = tempfile::tempdir().unwrap();
        let kubeconfig = dir.path().join(KUBECONFIG);
        let files = Files { pki: dir.path(), kubeconfig: &kubeconfig };
        let joined = join(&way("").unwrap(), &files, "n", Clock::system()).await;
        let error = joined.err().unwrap().to_string();
        assert!(error.contains("nothing to join with: run the command"), "{error}");
    }

    #[test]
    fn refusals() {
        let check = |code: u16, expected: &str| {
            let error = anyhow!(Status::failure(code, "", "why")).context("no certificate can be asked for");
            let told = refused("https://a", error).to_string();
            assert!(told.contains(expected), "{told}");
        };
        check(401, "refuses the token: it is unknown there, has expired, or was deleted");
        check(403, "a token for nodes has the group system:bootstrappers:kubeadm:default-node-token");
        check(503, "https://a is not reached: why");
        check(500, "the node did not get its certificate");
    }
}
