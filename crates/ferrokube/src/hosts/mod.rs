//! Several nodes on this machine: `ferrokube up --nodes N`.
//!
//! The control plane runs in this process, on the machine itself. Each node has a network, mounts and a host name of its
//! own ([`namespaces`]), a link to a bridge of this machine ([`network`]), a container runtime (the built-in one, or a
//! containerd: [`runtime`]), a cgroup and an equal part of the machine. It is an ordinary `ferrokube agent`
//! ([`member`]), which joins with a token and whose process this one keeps ([`keeper`]). Files keep the namespaces, so
//! containers outlive every process of ours, and [`remove()`] finds all that is left by the namespaces and the cgroups
//! alone.

mod keeper;
pub(crate) mod member;
mod namespaces;
mod network;
mod plan;
mod remove;
mod runtime;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use dns::ResolvConf;
use objects::Cidr;
use tokio::sync::watch;

pub(crate) use self::namespaces::enter;
pub(crate) use self::remove::remove;

use self::keeper::{Cluster, Keeper};
use self::namespaces::Kept;
use self::plan::{Host, Plan};
use crate::control_plane::{ControlPlane, Settings};
use crate::data_dir::{DataDir, IMAGES, KUBELET_ROOT};
use crate::footprint::Footprint;
use crate::neighbours::{self, Claim};
use crate::say::{say, say_ready, took};
use crate::until::until_stopped;
use crate::{cli, cluster_dns, joining, load_balancers, machine, network_policy, node};

/// Runs a control plane and `count` nodes until a signal stops them.
pub(crate) async fn up(
    flags: &cli::Up,
    told: &BTreeMap<String, String>,
    count: u8,
    started: Instant,
) -> Result<()> {
    let server = &flags.server;
    if !reachable(server.bind_address) {
        bail!("the nodes don't reach {}: leave --bind-address out, or choose 0.0.0.0", server.bind_address);
    }
    let settings = Settings::of_server(server, told)?;
    let name = machine::node_name(flags.node.node_name.as_deref())?;
    let containerd = flags.hosts.containerd.as_deref().map(program).transpose()?;
    let dir = DataDir::open(&server.data_dir)?;
    check_dir(&dir, count)?;
    let plan = Plan::new(dir.path(), &dir.id(), &name, count, &flags.hosts.nodes_cidr)?;
    let ranges = server.cluster_cidr.split(',').chain(server.service_cidr.iter().map(String::as_str));
    network::check(&plan, &ranges.filter_map(|range| range.trim().parse().ok()).collect::<Vec<Cidr>>())?;
    let _held = neighbours::claim(&dir.id(), &claim(flags, &plan, &dir))?;
    let kubeconfig = server.write_kubeconfig.clone().unwrap_or_else(|| dir.path().join("admin.kubeconfig"));
    let kubeconfig = std::path::absolute(kubeconfig)?;
    let kubelet_root = kubelet_root(flags);
    dir.write_footprint(&Footprint { kubelet_root, kubeconfig, ..Footprint::default() })?;
    let images = flags.node.images.clone().unwrap_or_else(|| dir.path().join(IMAGES));
    let images = prepare(&plan, flags, &images)?;

    let gateways = plan.gateways();
    let settings = settings.reached_at(&gateways);
    let plane = ControlPlane::start(dir, settings).await?;
    say(&format!("control plane: {}", plane.url()));
    plane.start_components()?;
    let parts = node::parts(flags);
    joining::introduce(&plane, parts);
    network_policy::announce(&plane);
    if parts.balancer {
        load_balancers::announce(&plane);
    }
    if parts.dns {
        cluster_dns::announce(cluster_dns::dns_of(&server.service_cidr)?, &plane);
    }
    say(&format!("kubeconfig: {}", plane.kubeconfig().display()));
    let stop = plane.shutdown().clone();
    plane.shutdown().spawn(network::follow_pods(plan.bridge(), plane.admin(), stop));

    let reached = if server.bind_address.is_unspecified() {
        gateways.first().copied().unwrap_or(server.bind_address)
    } else {
        server.bind_address
    };
    let cluster = Cluster {
        server: format!("https://{}", SocketAddr::new(reached, plane.port())),
        ca: plane.pki().ca.certificate_pem.clone(),
        admin: plane.admin(),
        clock: plane.clock(),
    };
    // A keeper that panics is a loss of this process, as any part is.
    let nodes = plane.shutdown().apart();
    let mut ready = Vec::new();
    for host in &plan.hosts {
        let is_ready = Arc::new(watch::Sender::new(false));
        ready.push(is_ready.subscribe());
        let arguments = arguments(flags, host, count, containerd.as_deref(), &images, &cluster.server, &plan);
        let keeper = Keeper { host: host.clone(), arguments, cluster: cluster.clone(), ready: is_ready };
        nodes.spawn(keeper.keep(nodes.clone()));
    }
    let stop = plane.shutdown().clone();
    plane.shutdown().spawn(async move {
        let all = async {
            for mut one in ready {
                let _ = one.wait_for(|ready| *ready).await;
            }
            say_ready(&format!("ready in {}", took(started)));
        };
        let _ = stop.run(all).await;
    });
    until_stopped(plane, Some(nodes), "stopping; containers go on running").await
}

/// The directory at which each node has its kubelet's own files: manifests of drivers name it.
fn kubelet_root(flags: &cli::Up) -> PathBuf {
    let root = flags.node.root_dir.as_deref().unwrap_or(Path::new(KUBELET_ROOT));
    std::path::absolute(root).unwrap_or_else(|_| root.to_owned())
}

/// Whether nodes in other network namespaces reach a server that listens there.
fn reachable(bind: IpAddr) -> bool {
    !bind.is_loopback()
}

/// Finds a program by its path, or by its name among the directories of `PATH`.
fn program(name: &Path) -> Result<PathBuf> {
    let is_program =
        |path: &PathBuf| fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = if name.components().count() > 1 {
        name.canonicalize().into_iter().collect()
    } else {
        std::env::split_paths(&path).map(|dir| dir.join(name)).collect()
    };
    places.retain(is_program);
    places.into_iter().next().with_context(|| {
        format!(
            "there is no program {}; install containerd, or name its program with --containerd",
            name.display()
        )
    })
}

/// Refuses a cluster that was made with fewer or more things than can be changed.
fn check_dir(dir: &DataDir, count: u8) -> Result<()> {
    let shown = dir.path().display();
    if !dir.footprint()?.runtime_endpoint.is_empty() {
        bail!(
            "the cluster of {shown} has this machine as its node: start it without --nodes, or remove it with `ferrokube down --data-dir {shown}`"
        );
    }
    if dir.path().starts_with("/run") {
        bail!("{shown} is below /run, of which each node has its own; choose another --data-dir");
    }
    let nodes = present(dir);
    if nodes > usize::from(count) {
        bail!(
            "the cluster of {shown} has {nodes} nodes: start it with --nodes {nodes} or more, or remove it with `ferrokube down --data-dir {shown}`"
        );
    }
    Ok(())
}

/// The number of nodes that a cluster was started with.
pub(crate) fn present(dir: &DataDir) -> usize {
    fs::read_dir(plan::directory(dir.path())).into_iter().flatten().flatten().count()
}

/// The things that the cluster needs of the machine.
fn claim(flags: &cli::Up, plan: &Plan, dir: &DataDir) -> Claim {
    let server = &flags.server;
    let mut cluster_cidrs: Vec<String> =
        server.cluster_cidr.split(',').map(|r| r.trim().to_owned()).collect();
    // Nobody else's Pods or Services may have the nodes' addresses, either.
    cluster_cidrs.extend(plan.networks.iter().map(ToString::to_string));
    let runtime = plan::directory(dir.path());
    Claim {
        data_dir: dir.path().to_owned(),
        cluster_cidrs,
        service_cidrs: server.service_cidr.clone(),
        links: plan.bridge(),
        runtime_endpoint: runtime.to_string_lossy().into_owned(),
        cni_conf_dir: runtime,
    }
}

/// Makes the nodes' directories, namespaces and links. Returns the directory of images.
fn prepare(plan: &Plan, flags: &cli::Up, images: &Path) -> Result<PathBuf> {
    let failed = |path: &Path| format!("{} can't be made", path.display());
    fs::create_dir_all(images).with_context(|| failed(images))?;
    let more = flags.hosts.containerd_config.as_ref().map(|path| {
        path.canonicalize().with_context(|| format!("--containerd-config {} cannot be used", path.display()))
    });
    let more = more.transpose()?;
    network::ensure_bridge(plan).context("the nodes' network can't be made; run as root")?;
    let kept = Kept::of(&plan.id);
    let resolv_conf = resolv_conf(&flags.node.resolv_conf);
    for host in &plan.hosts {
        for dir in [&host.dir, &host.dir.join("cni"), &host.dir.join("cni-bin")] {
            fs::create_dir_all(dir).with_context(|| failed(dir))?;
        }
        // Written in place: the node sees this very file.
        fs::write(host.resolv_conf(), &resolv_conf)?;
        if flags.hosts.containerd.is_some() {
            let config = runtime::config(&host.dir, more.as_deref(), runtime::may_lower_oom_scores());
            fs::write(host.dir.join("containerd.toml"), config)?;
        }
        kept.ensure(host)?;
        network::ensure_link(plan, host, &kept)
            .with_context(|| format!("the link of node {} can't be made", host.name))?;
    }
    Ok(images.canonicalize()?)
}

/// The nodes' `resolv.conf`: this machine's, without servers that only this machine reaches.
fn resolv_conf(path: &Path) -> String {
    let servers = ResolvConf::at(path).servers(&[]);
    let servers: Vec<_> = servers.iter().filter(|server| !server.ip().is_loopback()).collect();
    let text = fs::read_to_string(path).unwrap_or_default();
    if servers.is_empty() && text.lines().any(|line| line.trim().starts_with("nameserver")) {
        eprintln!(
            "ferrokube: {} names only servers of this machine's loopback, which the nodes don't reach: name a file with others with --resolv-conf",
            path.display()
        );
    }
    let kept = text.lines().filter(|line| line.starts_with("search") || line.starts_with("options"));
    let servers = servers.iter().map(|server| format!("nameserver {}", server.ip()));
    kept.map(str::to_owned).chain(servers).map(|line| line + "\n").collect()
}

/// The arguments of a node's process.
fn arguments(
    flags: &cli::Up,
    host: &Host,
    count: u8,
    containerd: Option<&Path>,
    images: &Path,
    server: &str,
    plan: &Plan,
) -> Vec<OsString> {
    let mut all: Vec<OsString> = vec!["agent".into()];
    let mut add = |name: &str, value: &dyn AsRef<std::ffi::OsStr>| {
        let mut argument = OsString::from(format!("--{name}="));
        argument.push(value.as_ref());
        all.push(argument);
    };
    let joined = |all: &mut dyn Iterator<Item = String>| all.collect::<Vec<_>>().join(",");
    add("server", &server);
    add("bootstrap-kubeconfig", &host.bootstrap());
    add("data-dir", &host.data());
    add("node-name", &host.name);
    add("node-ip", &joined(&mut host.addresses.iter().map(ToString::to_string)));
    if let Some(containerd) = containerd {
        add("container-runtime-endpoint", &host.socket());
        add("cni-conf-dir", &host.dir.join("cni"));
        add("cni-bin-dir", &host.dir.join("cni-bin"));
        add("containerd", &containerd);
    }
    add("resolv-conf", &host.resolv_conf());
    add("root-dir", &kubelet_root(flags));
    let node = &flags.node;
    for handler in &node.runtime_handler {
        add("runtime-handler", &handler.to_string());
    }
    if !node.non_masquerade_cidr.is_empty() {
        add("non-masquerade-cidr", &joined(&mut node.non_masquerade_cidr.iter().map(ToString::to_string)));
    }
    add("vxlan-id", &node.vxlan_id.to_string());
    add("vxlan-port", &node.vxlan_port.to_string());
    if let Some(port) = node.kubelet_port {
        add("kubelet-port", &port.to_string());
    }
    if let Some(address) = node.kubelet_address {
        add("kubelet-address", &address.to_string());
    }
    add("max-pods", &node.max_pods.to_string());
    if let Some(thresholds) = &node.eviction_hard {
        add("eviction-hard", &thresholds.to_string());
    }
    if let Some(address) = node.cluster_dns {
        add("cluster-dns", &address.to_string());
    }
    if let Some(path) = &node.kube_proxy_config {
        add("kube-proxy-config", &path.canonicalize().unwrap_or_else(|_| path.clone()));
    }
    add("host-namespaces", &Kept::of(&plan.id).prefix(&host.name));
    add("host-dir", &host.dir);
    add("host-nodes", &count.to_string());
    add("images", &images);
    all
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    /// A flag of a node that `up` takes reaches the nodes' processes.
    #[test]
    fn flags_reach_the_nodes() {
        let parse =
            |line: Vec<OsString>| Cli::try_parse_from([OsString::from("ferrokube")].into_iter().chain(line));
        let line = "up --nodes 2 --kubelet-port 10260 --kubelet-address 0.0.0.0 --vxlan-id 7 --vxlan-port 8 \
             --non-masquerade-cidr 10.0.0.0/8,fd00::/8 --cluster-dns 10.96.0.11 --eviction-hard memory.available<1Mi --max-pods 7 \
             --kube-proxy-config /none";
        let Command::Up(flags) = parse(line.split_whitespace().map(Into::into).collect()).unwrap().command
        else {
            panic!("another command")
        };
        let networks = ["10.242.0.0/24".parse().unwrap()];
        let plan = Plan::new(Path::new("/d"), "0a", "n", 2, &networks).unwrap();
        let (containerd, images) = (Path::new("/bin/containerd"), Path::new("/images"));
        let server = "https://10.242.0.1:6443";
        let args = arguments(&flags, &plan.hosts[1], 2, Some(containerd), images, server, &plan);
        let Command::Agent(agent) = parse(args).unwrap().command else { panic!("another command") };
        let node = format!("{:?}", agent.node);
        let mut expected = flags.node.clone();
        expected.node_name = Some("n-2".into());
        expected.node_ip = vec!["10.242.0.3".parse().unwrap()];
        expected.container_runtime_endpoint = Some("/d/nodes/n-2/containerd.sock".into());
        expected.images = Some(images.into());
        expected.cni_conf_dir = Some("/d/nodes/n-2/cni".into());
        expected.cni_bin_dir = Some("/d/nodes/n-2/cni-bin".into());
        expected.resolv_conf = "/d/nodes/n-2/resolv.conf".into();
        expected.root_dir = Some("/var/lib/kubelet".into());
        assert_eq!(node, format!("{expected:?}"));
        let hosted = agent.hosted.unwrap();
        assert_eq!(hosted.host_namespaces, Path::new("/run/ferrokube/nodes-0a/n-2"));
        assert_eq!((hosted.host_nodes, hosted.containerd.as_deref()), (2, Some(containerd)));
        let args = arguments(&flags, &plan.hosts[0], 2, None, images, server, &plan);
        let Command::Agent(agent) = parse(args).unwrap().command else { panic!("another command") };
        assert_eq!(agent.node.container_runtime_endpoint, None);
        assert_eq!(agent.hosted.unwrap().containerd, None);
    }

    #[test]
    fn flags_that_cannot_be_meant() {
        let check = |line: &str, expected: &str| {
            let line = format!("ferrokube up {line}");
            let said = Cli::try_parse_from(line.split(' ')).unwrap_err().to_string();
            assert!(said.contains(expected), "{said}");
        };
        check("--nodes 0", "0 is not in 1..=32");
        check("--nodes 33", "33 is not in 1..=32");
        check("--nodes 2 --node-ip 192.0.2.1", "cannot be used with '--node-ip");
        check("--nodes 2 --container-runtime-endpoint /x", "cannot be used with");
        check("--containerd /x", "--nodes <N>");
    }

    #[test]
    fn name_servers_that_nodes_reach() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("resolv.conf");
        fs::write(
            &file,
            "# mine\nsearch a.test\nnameserver 192.0.2.53\nnameserver 127.0.0.1\noptions edns0\n",
        )
        .unwrap();
        assert_eq!(resolv_conf(&file), "search a.test\noptions edns0\nnameserver 192.0.2.53\n");
    }

    #[test]
    fn programs() {
        assert!(program(Path::new("sh")).unwrap().is_absolute());
        assert!(program(Path::new("/bin/sh")).is_ok());
        let said = program(Path::new("no-such-program")).unwrap_err().to_string();
        assert!(said.contains("install containerd, or name its program with --containerd"), "{said}");
        assert!(!reachable(Ipv4Addr::LOCALHOST.into()) && reachable(Ipv4Addr::UNSPECIFIED.into()));
    }
}
