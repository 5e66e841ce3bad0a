//! This machine's node: kubelet, pod network, Service proxy and DNS, beside the control plane.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use api::Gate;
use client::{Client, Informer, Selection};
use k8s_openapi::api::core::v1::Node;
use kubelet::{Kubelet, Runtime};
use network::Place;

use crate::built_in::{self, NodeRuntime, Places};
use crate::cli::{Network, Node as Flags, Up};
use crate::cluster_dns;
use crate::data_dir::{DATA_DIR, DataDir, IMAGES, KUBELET_ROOT};
use crate::footprint::{self, Footprint};
use crate::kube_proxy;
use crate::load_balancers;
use crate::machine;
use crate::neighbours::Claim;
use crate::network_policy;
use crate::say::warn;
use crate::seat::{NodeParts, Seat};

/// Upstream's port of the kubelet.
const KUBELET_PORT: u16 = 10250;

/// The path of the runtime's socket.
fn socket(endpoint: &str) -> &Path {
    Path::new(endpoint.strip_prefix("unix://").unwrap_or(endpoint))
}

/// Asks another program's runtime for its name, before anything is started; none if the runtime is the built-in one.
pub(crate) async fn check_runtime(flags: &Flags) -> Result<Option<String>> {
    let Some(endpoint) = &flags.container_runtime_endpoint else { return Ok(None) };
    if !socket(endpoint).exists() {
        bail!(
            "no container runtime at {endpoint}; start containerd, or leave --container-runtime-endpoint out: this program is a container runtime itself"
        );
    }
    let runtime = Runtime::connect(endpoint)
        .await
        .with_context(|| format!("the container runtime at {endpoint} does not answer"))?;
    let version = runtime.version();
    Ok(Some(format!("{} {}", version.runtime_name, version.runtime_version)))
}

/// The runtime of a node: another program's, if it told its name, or the built-in one, which is started.
pub(crate) async fn start_runtime(
    flags: &Flags,
    other: Option<String>,
    dir: &DataDir,
    process: &component::Shutdown,
) -> Result<NodeRuntime> {
    if let Some(name) = other {
        return Ok(NodeRuntime::of_another(name));
    }
    built_in::check_socket(dir.path())?;
    let places = Places {
        data_dir: dir.path(),
        images: Some(flags.images.clone().unwrap_or_else(|| dir.path().join(IMAGES))),
        handlers: flags.runtime_handler.clone(),
        cgroup_driver: flags.cgroup_driver,
    };
    NodeRuntime::start(places, component::Clock::system(), process).await
}

/// Refuses a port for the kubelet that was asked for and is taken, before anything is started.
pub(crate) fn check_port(flags: &Flags, bind: IpAddr) -> Result<()> {
    let Some(port) = flags.kubelet_port else { return Ok(()) };
    match TcpListener::bind((listening(flags, bind), port)) {
        Err(e) if e.kind() == std::io::ErrorKind::AddrInUse => {
            bail!("port {port} is in use by another program; stop it, or choose another with --kubelet-port")
        }
        // Other faults show where the kubelet listens.
        _ => Ok(()),
    }
}

/// The things that this cluster needs of the machine.
pub(crate) fn claim(
    flags: &Flags,
    dir: &DataDir,
    cluster_cidr: &str,
    service_cidrs: &[String],
    own_network: bool,
) -> Claim {
    let cni = built_in::cni_dirs(flags, dir.path(), own_network);
    let endpoint = built_in::endpoint(flags, dir.path());
    Claim {
        data_dir: dir.path().to_owned(),
        cluster_cidrs: cluster_cidr.split(',').map(|range| range.trim().to_owned()).collect(),
        service_cidrs: service_cidrs.to_vec(),
        links: place(&cni.conf, &cni.bin, dir.path()).links(),
        runtime_endpoint: socket(&endpoint).to_string_lossy().into_owned(),
        cni_conf_dir: cni.conf,
    }
}

/// The cgroup of a node's Pods.
pub(crate) fn cgroup_root(id: &str) -> String {
    format!("/ferrokube-{id}")
}

/// The parts of the nodes of `up`.
pub(crate) fn parts(flags: &Up) -> NodeParts {
    NodeParts {
        network: flags.network == Network::Own,
        proxy: !flags.disable_kube_proxy,
        dns: !flags.server.disable_dns && flags.node.cluster_dns.is_none(),
        policy: flags.network == Network::Own && !flags.disable_network_policy,
        balancer: load_balancers::are_announced(&flags.server),
    }
}

/// Starts the kubelet; returns the port on which it serves.
pub(crate) fn start_kubelet(flags: &Flags, seat: &Seat<'_>) -> Result<u16> {
    let cgroup_root = cgroup_root(&seat.dir.id());
    let kubelet_root = seat.dir.kubelet_root(flags.root_dir.as_deref())?;
    if flags.root_dir.is_none() && seat.dir.path() == Path::new(DATA_DIR) && !kubelet_root.exists() {
        warn(&format!(
            "{KUBELET_ROOT} is another kubelet's or not empty, so this one's files are in {}: manifests of drivers that name {KUBELET_ROOT} do not work here",
            kubelet_root.display()
        ));
    }
    // `down` may run in another directory, and so may the next process.
    let whole = std::path::absolute(seat.dir.path())?;
    let endpoint = built_in::endpoint(flags, &whole);
    let cni = built_in::cni_dirs(flags, &whole, seat.parts.network);
    seat.dir.write_footprint(&Footprint {
        runtime_endpoint: endpoint.clone(),
        built_in: flags.container_runtime_endpoint.is_none(),
        cgroup_driver: flags.cgroup_driver,
        cni_conf_dir: cni.conf,
        cni_bin_dir: cni.bin,
        kubelet_root: kubelet_root.clone(),
        cgroup_root: cgroup_root.clone(),
        kubeconfig: std::path::absolute(&seat.kubeconfig)?,
        node_name: seat.name.clone(),
        cluster_cidr: seat.cluster_cidr.clone(),
        dns: if seat.parts.dns { dns_addresses(seat)? } else { Vec::new() },
    })?;
    let cluster_dns = match seat.cluster_dns {
        Some(ip) => ip,
        None => cluster_dns::address_in(seat.service_cidrs.first().map_or("", String::as_str))?,
    };
    let address = listening(flags, seat.bind);
    let port = match flags.kubelet_port {
        Some(port) => port,
        None => free_port(address, KUBELET_PORT).context("no port is free for the kubelet")?,
    };
    if flags.eviction_hard.is_none() {
        warn_if_full(&whole);
    }
    let gates = seat.features.gates();
    let config = kubelet::Config {
        max_pods: flags.max_pods,
        eviction: eviction(flags)?,
        image_gc: image_gc(),
        node_ips: seat.addresses.clone(),
        cluster_dns: vec![cluster_dns],
        resolv_conf: flags.resolv_conf.clone(),
        // Volumes name their directory, which must be the same wherever the next process is started.
        local_volumes: Some(whole.join("volumes")),
        node: kubelet::node::Options {
            port,
            nodes_of_machine: seat.nodes_of_machine,
            ..kubelet::node::Options::default()
        },
        // DIFFERENCE: upstream's kubelet looks also at home, where a user of this command has credentials of their own.
        docker_config: vec![kubelet_root.join("config.json")],
        // The log is that of all parts of the process.
        debug_flags_handler: false,
        gates,
        trust_bundles: gates.enabled(Gate::ClusterTrustBundleProjection),
        pod_certificates: gates.enabled(Gate::PodCertificateRequest),
        certificates: seat.certificates.clone(),
        server: Some(kubelet::server::Options {
            address: SocketAddr::new(address, port),
            tls: Arc::new(seat.tls.clone()),
            flags: BTreeMap::new(),
        }),
        former_pod_logs_dir: former_logs(&whole),
        ..settings(&seat.name, &kubelet_root, &endpoint, &cgroup_root)
    };
    let clients = (seat.clients)("kubelet");
    let (clock, shutdown, failure) = (seat.clock, seat.shutdown.clone(), seat.failure.clone());
    seat.shutdown.spawn(async move {
        if let Err(e) = Kubelet::run(config, &clients, clock, shutdown).await {
            failure.report(format!("the kubelet can't run: {:#}", anyhow::Error::from(e)));
        }
    });
    Ok(port)
}

/// The part of a disk that is to be free for Pods to come to a node and to stay.
///
/// DIFFERENCE: upstream's kubelet wants 10 % of its own disk and 15 % of the images' disk, and removes unused images
/// beyond 85 %. A node of this command shares its disk with all else on a machine, and many a laptop's is fuller.
const FREE_DISK_PERCENT: u64 = 5;
/// When unused images are removed, for the same reason.
const IMAGE_GC: (u8, u8) = (95, 90);

/// How Pods are evicted.
fn eviction(flags: &Flags) -> Result<kubelet::config::Eviction> {
    let mut eviction = kubelet::config::Eviction::default();
    if let Some(hard) = &flags.eviction_hard {
        eviction.stated.hard = hard.clone();
    } else {
        let disks = ["nodefs.available", "imagefs.available"];
        let disks = disks.map(|signal| (signal.to_owned(), format!("{FREE_DISK_PERCENT}%")));
        eviction.stated.hard.0.extend(disks);
    }
    eviction.thresholds = eviction.stated.thresholds(true).context("invalid --eviction-hard")?;
    Ok(eviction)
}

/// Tells if a disk is so full that no Pod will come to the node, which is hard to guess from a Pod that waits.
fn warn_if_full(dir: &Path) {
    if let Ok(disk) = rustix::fs::statvfs(dir)
        && is_full(disk.f_bavail, disk.f_blocks)
    {
        tracing::warn!(
            "less than {FREE_DISK_PERCENT} % of the disk of {} is free, so that no Pod will come to this node: make room, or name other thresholds by --eviction-hard",
            dir.display()
        );
    }
}

/// Whether less than the least part of a disk is free.
fn is_full(free: u64, all: u64) -> bool {
    free.saturating_mul(100) < all.saturating_mul(FREE_DISK_PERCENT)
}

fn image_gc() -> kubelet::config::ImagePolicy {
    let (high_percent, low_percent) = IMAGE_GC;
    kubelet::config::ImagePolicy { high_percent, low_percent, ..Default::default() }
}

/// Starts the node's other parts.
pub(crate) fn start_parts(flags: &Flags, seat: &Seat<'_>) -> Result<()> {
    let services = if seat.parts.proxy {
        Some(kube_proxy::of_node(flags, listening(flags, seat.bind), seat)?)
    } else {
        None
    };
    if seat.parts.dns {
        let settings = cluster_dns::Settings {
            addresses: dns_addresses(seat)?,
            blocks: seat
                .service_cidrs
                .iter()
                .map(String::as_str)
                .chain(seat.pod_ranges())
                .filter_map(|range| range.parse().ok())
                .collect(),
            resolv_conf: flags.resolv_conf.clone(),
        };
        cluster_dns::start(settings, seat);
    }
    if seat.parts.network {
        let own = (seat.clients)("kubelet").of(&format!("system:node:{}", seat.name));
        let nodes = (seat.clients)("network").of(kube_proxy::USER);
        let guard = if seat.parts.policy {
            let registry = services.as_ref().map(|services| services.registry.clone());
            let registry = registry.unwrap_or_else(|| {
                let own = component::Registry::default();
                network_policy::serve_metrics(own.clone(), seat);
                own
            });
            Some(network_policy::start(registry, seat))
        } else {
            network_policy::clear(seat.dir);
            None
        };
        start_network(flags, network::Clients { nodes, own }, guard, seat);
    } else if let Some(network) = &seat.pod_network {
        network.by_plugins(built_in::cni_dirs(flags, seat.dir.path(), false));
    }
    if let Some(config) = services {
        kube_proxy::start(config, seat);
    }
    if seat.parts.balancer {
        load_balancers::start(seat);
    }
    Ok(())
}

/// Starts the pod network.
fn start_network(
    flags: &Flags,
    clients: network::Clients,
    guard: Option<Arc<dyn network::Guard>>,
    seat: &Seat<'_>,
) {
    let cni = built_in::cni_dirs(flags, seat.dir.path(), true);
    let place = place(&cni.conf, &cni.bin, seat.dir.path());
    let tunnel = network::Tunnel { id: flags.vxlan_id, port: flags.vxlan_port };
    let options = network::Options {
        node: seat.name.clone(),
        cluster: seat.pod_ranges().filter_map(|range| range.parse().ok()).collect(),
        inside: flags.non_masquerade_cidr.clone(),
        tunnel,
        plugin: seat.pod_network.is_none(),
    };
    let (clock, stop, failure) = (seat.clock, seat.shutdown.clone(), seat.failure.clone());
    let pod_network = seat.pod_network.clone();
    seat.shutdown.spawn(async move {
        let agent = match network::Agent::start(place.clone(), guard, &stop).await {
            Ok(agent) => agent,
            Err(e) => return failure.report(format!("the pod network can't run: {e}")),
        };
        if let Some(pod_network) = pod_network {
            pod_network.by_agent(agent.clone(), cni);
        }
        network::run(agent, clients, options, place, clock, stop).await;
    });
}

/// The places of a cluster's pod network.
pub(crate) fn place(conf_dir: &Path, bin_dir: &Path, data_dir: &Path) -> Place {
    Place::new(conf_dir, bin_dir, data_dir, footprint::DIR)
}

/// The addresses of the cluster's DNS.
fn dns_addresses(seat: &Seat<'_>) -> Result<Vec<IpAddr>> {
    cluster_dns::dns_of(&seat.service_cidrs)
}

/// This port if nobody listens on it, otherwise any free one: clusters run side by side, and the Node tells its
/// kubelet's port.
fn free_port(address: IpAddr, wanted: u16) -> std::io::Result<u16> {
    let listener = TcpListener::bind((address, wanted)).or_else(|_| TcpListener::bind((address, 0)))?;
    Ok(listener.local_addr()?.port())
}

/// The node's addresses, the primary one first.
pub(crate) fn addresses(flags: &Flags, bind: IpAddr) -> Result<Vec<IpAddr>> {
    match (&flags.node_ip[..], listening(flags, bind)) {
        // Nobody reaches the kubelet by another address than the one on which it listens.
        ([], only) if !only.is_unspecified() => Ok(vec![only]),
        (asked, _) => machine::node_ips(asked),
    }
}

/// The address on which the kubelet listens, by default the one on which the API server does.
fn listening(flags: &Flags, bind: IpAddr) -> IpAddr {
    flags.kubelet_address.unwrap_or(if bind.is_unspecified() { machine::anywhere() } else { bind })
}

/// The directory in which nodes of earlier versions had their Pods' logs, if this one has any there. The links beside it
/// were of use to nobody.
fn former_logs(data_dir: &Path) -> Option<PathBuf> {
    let logs = data_dir.join("pod-logs");
    let _ = std::fs::remove_dir_all(data_dir.join("container-logs"));
    // It goes once it is empty.
    let _ = std::fs::remove_dir(&logs);
    logs.is_dir().then_some(logs)
}

/// The settings by which a kubelet finds its own things again. Its logs are where collectors of logs look, beside those of
/// other nodes of the machine.
pub(crate) fn settings(
    name: &str,
    kubelet_root: &Path,
    endpoint: &str,
    cgroup_root: &str,
) -> kubelet::Config {
    kubelet::Config {
        root_dir: kubelet_root.to_owned(),
        logs_owner: Some(cgroup_root.trim_matches('/').to_owned()).filter(|owner| !owner.is_empty()),
        container_runtime_endpoint: endpoint.to_owned(),
        cgroup_root: cgroup_root.to_owned(),
        ..kubelet::Config::new(name)
    }
}

/// Resolves when the node is Ready.
pub(crate) async fn ready(client: &Client, name: &str, shutdown: &component::Shutdown) {
    let selection = Selection { field_selector: format!("metadata.name={name}"), ..Selection::default() };
    let nodes: Informer<Node> = Informer::new(client, selection);
    let (tell, mut is_ready) = tokio::sync::watch::channel(false);
    nodes.handle(move |change| {
        let conditions = change.object().status.as_ref().and_then(|s| s.conditions.as_ref());
        let ready = conditions.is_some_and(|c| c.iter().any(|c| c.type_ == "Ready" && c.status == "True"));
        tell.send_if_modified(|was| ready && !std::mem::replace(was, true));
    });
    let watching = shutdown.child();
    nodes.start(&watching);
    let _ = is_ready.wait_for(|r| *r).await;
    watching.finish().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn former_logs_are_known_until_they_are_gone() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(former_logs(dir.path()), None);
        let (logs, links) = (dir.path().join("pod-logs"), dir.path().join("container-logs"));
        std::fs::create_dir_all(logs.join("ns_p_uid")).unwrap();
        std::fs::create_dir(&links).unwrap();
        std::os::unix::fs::symlink(&logs, links.join("link")).unwrap();
        assert_eq!(former_logs(dir.path()), Some(logs.clone()));
        assert!(!links.exists() && logs.join("ns_p_uid").exists());
        std::fs::remove_dir(logs.join("ns_p_uid")).unwrap();
        assert_eq!(former_logs(dir.path()), None);
        assert!(!logs.exists());
    }

    #[test]
    fn full_disks() {
        let check = |free, all, full| assert_eq!(is_full(free, all), full, "{free} of {all}");
        check(49, 1000, true);
        check(50, 1000, false);
        check(0, 0, false);
        check(u64::MAX, u64::MAX, false);
    }
}
