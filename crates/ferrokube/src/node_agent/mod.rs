//! A kubelet in a process of its own.

mod file;
mod lock;
mod managers;
mod manifest;
mod settings;
mod standalone;
mod validation;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use api::{FeatureGates, Gate};
use client::{Client, Clients, Remote};
use component::{Clock, Shutdown};
use kubelet::config::{ContainerPolicy, CredentialProviders};
use kubelet::node::machine::IdFiles;
use kubelet::server::Offer;
use kubelet::{Kubelet, node, server};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::sync::oneshot;

use self::settings::Settings;
use crate::agent::{self, Files, Joined, Serving, Way};
use crate::failure::Failure;
use crate::say::{tell_ready, warn};
use crate::{alone, cli, machine};

/// Upstream's port of the kubelet.
const PORT: u16 = 10250;

/// Runs a kubelet until a signal stops it; its containers run on.
pub(crate) async fn run(flags: &cli::Kubelet, of_flags: &[String]) -> Result<()> {
    let (mut settings, warnings) =
        file::read(flags.config.as_deref(), flags.config_dir.as_deref(), &flags.fields.0)?;
    settings.logging = std::mem::take(&mut settings.logging).with(&flags.logging);
    let gates = validation::gates(&settings)?;
    validation::validate(&settings, gates, settings::is_unified())?;
    component::logging::apply(&settings.logging.config());
    let (offer, of_tls) = settings.offer()?;
    let of_gates = settings.without_effect();
    for warning in of_flags.iter().chain(&warnings).chain(&of_gates).chain(&of_tls) {
        warn(warning);
    }
    let mut lock = match lock::Lock::of(flags.lock_file.as_deref(), flags.exit_on_lock_contention)? {
        Some(waiting) => tokio::select! {
            lock = waiting.get() => Some(lock?),
            signal = alone::a_signal() => return signal,
        },
        None => None,
    };
    settings.prepare()?;
    let (mut config, serving) = config(flags, &settings, gates, &offer)?;
    let shutdown = Shutdown::new();
    let lost = Failure::default();
    let clients = match (&flags.kubeconfig, &flags.bootstrap_kubeconfig) {
        (None, None) => standalone::clients(),
        (None, Some(_)) => bail!("--bootstrap-kubeconfig needs --kubeconfig: the kubelet writes it"),
        (Some(kubeconfig), None) => alone::clients(kubeconfig, "kubelet", false)?,
        (Some(kubeconfig), Some(path)) => {
            let starting = join(flags, (kubeconfig, path), &config.node_name, &lost, &shutdown);
            let (clients, kept) = tokio::select! {
                joined = starting => joined?,
                signal = alone::a_signal() => return signal,
            };
            config.certificates.client = kept;
            clients
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
    // As upstream's does, without waiting for an API server.
    tell_ready();
    let working = async {
        tokio::select! {
            why = lost.wait() => Err(why),
            () = lock::contended(lock.as_mut()) => Ok(()),
            ended = failure => match ended {
                Ok(Err(e)) => Err(anyhow::Error::from(e).context("the kubelet cannot run")),
                _ => Ok(()),
            },
        }
    };
    alone::until_signal(working, &shutdown).await
}

/// Gets the node's certificate with the credentials of a file, unless the kubeconfig leads to one that is good, and keeps
/// it good from then on; answers its place, too.
async fn join(
    flags: &cli::Kubelet,
    (kubeconfig, bootstrap): (&Path, &Path),
    node: &str,
    lost: &Failure,
    shutdown: &Shutdown,
) -> Result<(Clients, Option<client::Certificate>)> {
    let pki = &flags.cert_dir;
    // Somebody else's credentials are left as they are.
    let present = std::fs::read_to_string(kubeconfig).unwrap_or_default();
    if !present.is_empty() && !present.contains(&*pki.to_string_lossy()) {
        return Ok((alone::clients(kubeconfig, "kubelet", false)?, None));
    }
    std::fs::create_dir_all(pki).with_context(|| format!("cannot make --cert-dir {}", pki.display()))?;
    let files = Files { pki, kubeconfig };
    let Joined { config, own } = agent::join(&Way::by(bootstrap), &files, node, Clock::system()).await?;
    let remote = Remote::new(config).context("the API server cannot be asked")?;
    let client = Client::new(Arc::new(remote), "kubelet");
    let place = own.as_ref().map(agent::Own::place);
    if let Some(own) = own {
        own.keep(client.clone(), lost.clone(), shutdown);
    }
    Ok((Clients::new(move |_| client.clone()), place))
}

/// The settings of the kubelet: a flag counts more than the file. With it the serving certificate that the cluster is
/// asked for, if it is.
fn config(
    flags: &cli::Kubelet,
    file: &Settings,
    gates: FeatureGates,
    offer: &Offer,
) -> Result<(kubelet::Config, Option<Serving>)> {
    let name = machine::node_name(flags.hostname_override.as_deref())?;
    let (eviction, image_gc) = (file.eviction()?, file.image_gc()?);
    let (volume_stats_period, verification) = (file.volume_stats_period(), file.verification()?);
    let container_log_monitor_interval = file.log_interval()?;
    let (change_detection, sync_frequency) = file.changes()?;
    let statics = file.statics(|| Arc::new(manifest::Rules::new(gates)))?;
    let port = file.port(PORT);
    let listening = file.address.unwrap_or(machine::anywhere());
    let node_ips = machine::node_ips(&flags.node_ip)?;
    let (tls, serving) = tls(flags, (file, offer), &name, &node_ips)?;
    let upstream = kubelet::Config::new(name);
    let container_log_max_size = file.log_size(upstream.container_log_max_size)?;
    let certificates =
        kubelet::config::Certificates { client: None, server: serving.as_ref().map(Serving::place) };
    let config = kubelet::Config {
        node_ips,
        root_dir: flags.root_dir.clone(),
        local_volumes: None,
        volume_plugin_dir: Some(file.volume_plugin_dir.clone())
            .filter(|dir| !dir.as_os_str().is_empty())
            .unwrap_or(upstream.volume_plugin_dir),
        pod_logs_dir: file.pod_logs_dir.clone().unwrap_or(upstream.pod_logs_dir),
        container_logs_dir: upstream.container_logs_dir,
        logs_owner: None,
        former_pod_logs_dir: None,
        container_runtime_endpoint: file
            .container_runtime_endpoint
            .clone()
            .unwrap_or(upstream.container_runtime_endpoint),
        cluster_dns: file.cluster_dns.clone(),
        cluster_domain: file.cluster_domain.clone().unwrap_or(upstream.cluster_domain),
        resolv_conf: file.resolv_conf.clone().unwrap_or(upstream.resolv_conf),
        cgroup_root: file.cgroup_root.clone().filter(|root| !root.is_empty()).unwrap_or(upstream.cgroup_root),
        pod_cgroups: file.cgroups_per_qos.unwrap_or(true),
        kubelet_cgroups: file.kubelet_cgroups.clone(),
        system_cgroups: file.system_cgroups.clone(),
        pod_cidr: file.pod_cidr.clone(),
        ids_per_pod: file.ids_per_pod(upstream.ids_per_pod),
        logging: file.logging.config(),
        max_pods: file.pods(upstream.max_pods, cores()),
        enforcement: file.enforcement(gates)?,
        image_service_endpoint: Some(file.image_service_endpoint.clone()).filter(|e| !e.is_empty()),
        runtime_request_timeout: file.runtime_timeout()?,
        restart_backoff: file.restart_backoff(gates),
        seccomp_default: file.seccomp_default,
        pull_rate: file.pull_rate(),
        event_rate: file.event_rate(),
        streaming_idle: file.streaming_idle()?,
        hidden_metrics_for: file.show_hidden_metrics_for_version.clone(),
        trust: file.trust()?,
        callers: file.callers()?,
        change_detection,
        sync_frequency,
        read_only: file.read_only(listening),
        allowed_sysctls: file.sysctls()?,
        debugging_handlers: file.enable_debugging_handlers.unwrap_or(true),
        system_log_handler: file.enable_system_log_handler.unwrap_or(true),
        system_log_query: file.enable_system_log_query,
        debug_flags_handler: file.enable_debug_flags_handler.unwrap_or(true),
        healthz: file.healthz(),
        max_parallel_image_pulls: file.image_pulls(),
        image_verification: verification,
        docker_config: docker_config(&flags.root_dir),
        credential_providers: credential_providers(flags, gates)?,
        container_log_max_size,
        container_log_max_files: counted(file.container_log_max_files, upstream.container_log_max_files),
        container_log_max_workers: counted(
            file.container_log_max_workers,
            upstream.container_log_max_workers,
        )
        .max(1),
        container_log_monitor_interval,
        container_gc: ContainerPolicy {
            min_age: flags.minimum_container_ttl_duration,
            max_per_pod_container: flags.maximum_dead_containers_per_container,
            max_containers: flags.maximum_dead_containers,
        },
        image_gc,
        volume_stats_period,
        statics,
        standalone: flags.kubeconfig.is_none(),
        eviction,
        shutdown_grace_periods: file.shutdown(gates),
        managers: file.managers(gates)?,
        gates,
        trust_bundles: gates.enabled(Gate::ClusterTrustBundleProjection),
        pod_certificates: gates.enabled(Gate::PodCertificateRequest),
        node: node_options(flags, file, port)?,
        certificates,
        server: file.enable_server.unwrap_or(true).then(|| server::Options {
            address: SocketAddr::new(listening, port),
            tls: Arc::new(tls),
            flags: given(),
        }),
        node_name: upstream.node_name,
    };
    Ok((config, serving))
}

/// How the Node is registered and reported, with the port of the server.
fn node_options(flags: &cli::Kubelet, file: &Settings, port: u16) -> Result<node::Options> {
    Ok(node::Options {
        port,
        labels: labels(&flags.node_labels)?,
        external_cloud: external_cloud(&flags.cloud_provider)?,
        own_addresses: !flags.node_ip.is_empty(),
        ids: IdFiles { machine: flags.machine_id_file.clone(), boot: flags.boot_id_file.clone() },
        kept_for_evictions: !flags.experimental_allocatable_ignore_eviction,
        ..file.node()?
    })
}

/// The files in which upstream looks for the node's own credentials.
fn docker_config(root_dir: &Path) -> Vec<PathBuf> {
    let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("/"), PathBuf::from);
    let (here, root) = (Path::new("."), Path::new("/"));
    let newer = [root_dir, here, &home.join(".docker"), &root.join(".docker")];
    let older = [root_dir, here, &home, root];
    let newer = newer.map(|dir| dir.join("config.json"));
    newer.into_iter().chain(older.map(|dir| dir.join(".dockercfg"))).collect()
}

/// The programs that are asked for the credentials of images, if any are.
fn credential_providers(flags: &cli::Kubelet, gates: FeatureGates) -> Result<Option<CredentialProviders>> {
    let config = flags.image_credential_provider_config.as_deref();
    let programs = flags.image_credential_provider_bin_dir.as_deref();
    if config.is_none() && programs.is_none() {
        return Ok(None);
    }
    let tokens = gates.enabled(Gate::KubeletServiceAccountTokenForCredentialProviders);
    let (config, programs) = (config.unwrap_or(Path::new("")), programs.unwrap_or(Path::new("")));
    let read = CredentialProviders::read(config, programs, tokens);
    read.map(Some)
        .context("--image-credential-provider-config and --image-credential-provider-bin-dir cannot be used")
}

/// A number that was checked, or the usual one.
fn counted<T: TryFrom<i32>>(given: Option<i32>, usual: T) -> T {
    given.and_then(|number| T::try_from(number).ok()).unwrap_or(usual)
}

/// The number of processors of the machine.
fn cores() -> u32 {
    u32::try_from(node::machine::Machine::read(&IdFiles::default()).milli_cpus / 1000).unwrap_or(u32::MAX)
}

/// Whether a cloud provider outside the kubelet initializes the Node.
fn external_cloud(provider: &str) -> Result<bool> {
    match provider {
        "" => Ok(false),
        "external" => Ok(true),
        other => bail!(
            "unknown cloud provider {other:?}: there are none in the kubelet; leave it out, or use external"
        ),
    }
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
    (file, offer): (&Settings, &Offer),
    name: &str,
    ips: &[IpAddr],
) -> Result<(rustls::ServerConfig, Option<Serving>)> {
    let chosen = |path: &Path| Some(path.to_owned()).filter(|path| !path.as_os_str().is_empty());
    let roots = alone::authorities_of_clients(chosen(&file.client_ca_file).as_deref())?;
    if file.server_tls_bootstrap {
        let serving = Serving::new(name, ips, &flags.cert_dir, Clock::system());
        return Ok((serving.tls(&roots, offer).context("cannot serve TLS")?, Some(serving)));
    }
    let certificate = chosen(&file.tls_cert_file);
    let key = chosen(&file.tls_private_key_file);
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
    Ok((server::tls(chain, key, roots, offer).context("cannot serve TLS")?, None))
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
