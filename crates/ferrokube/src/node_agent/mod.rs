//! A kubelet in a process of its own.

mod file;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use api::quantity::Quantity;
use client::{Client, Clients, Remote};
use component::{Clock, Shutdown};
use k8s_openapi::api::core::v1::Taint;
use kubelet::config::Verification;
use kubelet::{Kubelet, node, server};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::sync::oneshot;

use self::file::Settings;
use crate::agent::{self, Files, Joined, Serving, Way};
use crate::failure::Failure;
use crate::{alone, cli, machine};

/// Upstream's port of the kubelet.
const PORT: u16 = 10250;

/// Runs a kubelet until a signal stops it; its containers run on.
pub(crate) async fn run(flags: &cli::Kubelet) -> Result<()> {
    let settings = match &flags.config {
        Some(path) => {
            let (settings, warnings) = file::read(path).context("--config cannot be used")?;
            for warning in warnings {
                eprintln!("ferrokube: {warning}");
            }
            settings
        }
        None => Settings::default(),
    };
    let (config, serving) = config(flags, settings)?;
    let shutdown = Shutdown::new();
    let lost = Failure::default();
    let clients = match &flags.bootstrap_kubeconfig {
        None => alone::clients(&flags.kubeconfig, "kubelet", false)?,
        Some(path) => {
            let starting = join(flags, path, &config.node_name, &lost, &shutdown);
            tokio::select! {
                joined = starting => joined?,
                signal = alone::a_signal() => return signal,
            }
        }
    };
    if let Some(serving) = serving {
        let dir = &flags.cert_dir;
        std::fs::create_dir_all(dir).with_context(|| format!("cannot make --cert-dir {}", dir.display()))?;
        serving.keep(clients.of(&format!("system:node:{}", config.node_name)), &shutdown)?;
    }
    let (failed, failure) = oneshot::channel();
    let running = shutdown.child();
    shutdown.spawn(async move {
        let stopped = Kubelet::run(config, &clients, Clock::system(), running).await;
        // Nobody waits for it any more once a signal came.
        let _ = failed.send(stopped);
    });
    let working = async {
        tokio::select! {
            why = lost.wait() => Err(why),
            ended = failure => match ended {
                Ok(Err(e)) => Err(anyhow::Error::from(e).context("the kubelet cannot run")),
                _ => Ok(()),
            },
        }
    };
    alone::until_signal(working, &shutdown).await
}

/// Gets the node's certificate with the credentials of a file, unless the kubeconfig leads to one that is good, and keeps
/// it good from then on.
async fn join(
    flags: &cli::Kubelet,
    bootstrap: &Path,
    node: &str,
    lost: &Failure,
    shutdown: &Shutdown,
) -> Result<Clients> {
    let pki = &flags.cert_dir;
    // Somebody else's credentials are left as they are.
    let present = std::fs::read_to_string(&flags.kubeconfig).unwrap_or_default();
    if !present.is_empty() && !present.contains(&*pki.to_string_lossy()) {
        return alone::clients(&flags.kubeconfig, "kubelet", false);
    }
    std::fs::create_dir_all(pki).with_context(|| format!("cannot make --cert-dir {}", pki.display()))?;
    let files = Files { pki, kubeconfig: &flags.kubeconfig };
    let Joined { config, own } = agent::join(&Way::by(bootstrap), &files, node, Clock::system()).await?;
    let remote = Remote::new(config).context("the API server cannot be asked")?;
    let client = Client::new(Arc::new(remote), "kubelet");
    if let Some(own) = own {
        own.keep(client.clone(), lost.clone(), shutdown);
    }
    Ok(Clients::new(move |_| client.clone()))
}

/// The settings of the kubelet: a flag counts more than the file. With it the serving certificate that the cluster is
/// asked for, if it is.
fn config(flags: &cli::Kubelet, file: Settings) -> Result<(kubelet::Config, Option<Serving>)> {
    let name = machine::node_name(flags.hostname_override.as_deref())?;
    let eviction_hard = match &flags.eviction_hard {
        Some(thresholds) => thresholds.clone(),
        None if file.eviction_hard.is_empty() => node::Thresholds::default(),
        None => {
            let all: Vec<_> =
                file.eviction_hard.iter().map(|(signal, least)| format!("{signal}<{least}")).collect();
            all.join(",").parse().context("invalid evictionHard")?
        }
    };
    let mut taints = file.register_with_taints.clone();
    for text in &flags.register_with_taints {
        taints.push(taint(text).with_context(|| format!("invalid --register-with-taints {text:?}"))?);
    }
    let port = flags.port.or(file.port).unwrap_or(PORT);
    let listening = flags.address.or(file.address).unwrap_or(machine::anywhere());
    let node_ips = machine::node_ips(&flags.node_ip)?;
    let (tls, serving) = tls(flags, &file, &name, &node_ips)?;
    let upstream = kubelet::Config::new(name);
    let log_size = flags.container_log_max_size.as_ref().or(file.container_log_max_size.as_ref());
    let chosen = |all: &[IpAddr], other: Vec<IpAddr>| if all.is_empty() { other } else { all.to_vec() };
    let config = kubelet::Config {
        node_ips,
        root_dir: flags.root_dir.clone(),
        local_volumes: None,
        pod_logs_dir: file.pod_logs_dir.unwrap_or(upstream.pod_logs_dir),
        container_runtime_endpoint: flags
            .container_runtime_endpoint
            .clone()
            .or(file.container_runtime_endpoint)
            .unwrap_or(upstream.container_runtime_endpoint),
        cluster_dns: chosen(&flags.cluster_dns, file.cluster_dns),
        cluster_domain: flags
            .cluster_domain
            .clone()
            .or(file.cluster_domain)
            .unwrap_or(upstream.cluster_domain),
        resolv_conf: flags.resolv_conf.clone().or(file.resolv_conf).unwrap_or(upstream.resolv_conf),
        cgroup_root: flags
            .cgroup_root
            .clone()
            .or(file.cgroup_root)
            .filter(|root| !root.is_empty())
            .unwrap_or(upstream.cgroup_root),
        max_pods: flags.max_pods.or(file.max_pods).unwrap_or(upstream.max_pods),
        max_parallel_image_pulls: file.max_parallel_image_pulls.unwrap_or(upstream.max_parallel_image_pulls),
        image_verification: verification(
            file.image_pull_credentials_verification_policy.as_deref(),
            file.preloaded_images_verification_allowlist,
        )?,
        container_log_max_size: match log_size {
            Some(text) => bytes(text).with_context(|| format!("invalid containerLogMaxSize {text:?}"))?,
            None => upstream.container_log_max_size,
        },
        container_log_max_files: flags
            .container_log_max_files
            .or(file.container_log_max_files)
            .unwrap_or(upstream.container_log_max_files),
        node: node::Options {
            port,
            labels: labels(&flags.node_labels)?,
            taints,
            eviction_hard,
            ..node::Options::default()
        },
        server: Some(server::Options {
            address: SocketAddr::new(listening, port),
            tls: Arc::new(tls),
            flags: given(),
        }),
        node_name: upstream.node_name,
    };
    Ok((config, serving))
}

/// The flags of the command line, for `/flagz`.
fn given() -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut arguments = std::env::args().skip(1).peekable();
    while let Some(argument) = arguments.next() {
        let Some(flag) = argument.strip_prefix("--") else { continue };
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => (flag, arguments.next_if(|next| !next.starts_with("--")).unwrap_or_default()),
        };
        all.insert(name.to_owned(), value);
    }
    all
}

/// The certificates of the server: one that the cluster is asked for, those that were given, or one signed by itself, as
/// upstream's kubelet has it.
fn tls(
    flags: &cli::Kubelet,
    file: &Settings,
    name: &str,
    ips: &[IpAddr],
) -> Result<(rustls::ServerConfig, Option<Serving>)> {
    let chosen = |flag: &Option<PathBuf>, file: &Path| {
        flag.clone().or_else(|| Some(file.to_owned())).filter(|path| !path.as_os_str().is_empty())
    };
    let roots =
        alone::authorities_of_clients(chosen(&flags.client_ca_file, &file.client_ca_file).as_deref())?;
    if flags.rotate_server_certificates.unwrap_or(file.server_tls_bootstrap) {
        let serving = Serving::new(name, ips, &flags.cert_dir, Clock::system());
        return Ok((serving.tls(&roots).context("cannot serve TLS")?, Some(serving)));
    }
    let certificate = chosen(&flags.tls_cert_file, &file.tls_cert_file);
    let key = chosen(&flags.tls_private_key_file, &file.tls_private_key_file);
    let (chain, key) = match (certificate, key) {
        (Some(certificate), Some(key)) => {
            let unusable = |path: &Path| format!("cannot use {}", path.display());
            let chain = CertificateDer::pem_file_iter(&certificate).and_then(Iterator::collect);
            let private = PrivateKeyDer::from_pem_file(&key).with_context(|| unusable(&key))?;
            (chain.with_context(|| unusable(&certificate))?, private)
        }
        (None, None) => {
            let names = [name.to_owned()].into_iter().chain(ips.iter().map(ToString::to_string));
            serving::tls::self_signed(names.collect()).context("cannot make a serving certificate")?
        }
        _ => bail!("a serving certificate needs both --tls-cert-file and --tls-private-key-file"),
    };
    Ok((server::tls(chain, key, roots).context("cannot serve TLS")?, None))
}

fn labels(pairs: &[String]) -> Result<BTreeMap<String, String>> {
    let label = |pair: &String| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let wrong = api::names::qualified_name(key);
        if !wrong.is_empty() {
            bail!("invalid --node-labels {pair:?}: {}", wrong.join("; "));
        }
        Ok((key.to_owned(), value.to_owned()))
    };
    pairs.iter().map(label).collect()
}

/// A taint as upstream writes it: `key=value:effect` or `key:effect`.
fn taint(text: &str) -> Result<Taint> {
    let (pair, effect) = text.rsplit_once(':').context("it has no effect, as in key=value:NoSchedule")?;
    if !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
        bail!("{effect:?} is no effect of a taint");
    }
    let (key, value) =
        pair.split_once('=').map_or((pair, None), |(key, value)| (key, Some(value.to_owned())));
    Ok(Taint { key: key.to_owned(), value, effect: effect.to_owned(), ..Taint::default() })
}

fn bytes(quantity: &str) -> Result<u64> {
    Ok(u64::try_from(Quantity::parse(quantity)?.value())?)
}

fn verification(policy: Option<&str>, allowed: Vec<String>) -> Result<Verification> {
    let policy = match policy {
        None | Some("" | "NeverVerifyPreloadedImages") => Verification::NeverVerifyPreloadedImages,
        Some("NeverVerify") => Verification::NeverVerify,
        Some("AlwaysVerify") => Verification::AlwaysVerify,
        Some("NeverVerifyAllowlistedImages") => {
            return Ok(Verification::NeverVerifyAllowlistedImages(allowed));
        }
        Some(other) => bail!("{other:?} is no imagePullCredentialsVerificationPolicy"),
    };
    if !allowed.is_empty() {
        bail!(
            "preloadedImagesVerificationAllowlist is for imagePullCredentialsVerificationPolicy=NeverVerifyAllowlistedImages"
        );
    }
    Ok(policy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taints_as_upstream_writes_them() {
        let check = |text: &str, expected: Option<(&str, Option<&str>, &str)>| {
            let got = taint(text).ok();
            let got = got.as_ref().map(|t| (t.key.as_str(), t.value.as_deref(), t.effect.as_str()));
            assert_eq!(got, expected, "{text}");
        };
        check("a=b:NoSchedule", Some(("a", Some("b"), "NoSchedule")));
        check("a:NoExecute", Some(("a", None, "NoExecute")));
        check("a=b", None);
        check("a=b:Never", None);
    }

    #[test]
    fn images_are_verified_as_the_file_says() {
        let check = |policy: Option<&str>, allowed: &[&str], expected: Option<Verification>| {
            let allowed = allowed.iter().map(|a| (*a).to_owned()).collect();
            assert_eq!(verification(policy, allowed).ok(), expected, "{policy:?}");
        };
        check(None, &[], Some(Verification::NeverVerifyPreloadedImages));
        check(Some("AlwaysVerify"), &[], Some(Verification::AlwaysVerify));
        let listed = Verification::NeverVerifyAllowlistedImages(vec!["a/*".to_owned()]);
        check(Some("NeverVerifyAllowlistedImages"), &["a/*"], Some(listed));
        check(Some("AlwaysVerify"), &["a"], None);
        check(Some("Sometimes"), &[], None);
    }
}
