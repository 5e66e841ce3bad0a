//! Removes everything that a cluster made on this machine.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result, bail};
use component::{Clock, Shutdown};

use crate::built_in::{CniDirs, NodeRuntime, Places};
use crate::cli::Down;
use crate::cluster_dns;
use crate::data_dir::{DataDir, is_owned};
use crate::footprint::{self, Footprint, Lost};
use crate::hosts;
use crate::kube_proxy;
use crate::neighbours;
use crate::network_policy;
use crate::node::{place, settings};

/// The parts of a data directory that containers may keep busy while somebody removes it by hand.
const PLACES: [&str; 4] = ["kubelet", "network", "nodes", "runtime"];

/// Runs `ferrokube down`.
pub(crate) async fn run(flags: &Down) -> Result<()> {
    let path = &flags.data_dir;
    if let Some(lost) = Lost::find(path)? {
        return remove_lost(lost).await;
    }
    if !path.exists() {
        println!("nothing to remove: {} does not exist", path.display());
        return Ok(());
    }
    let dir = DataDir::open(path)?;
    let footprint = dir.footprint()?;
    if !footprint.runtime_endpoint.is_empty() {
        remove_node(dir.path(), &footprint).await?;
        remove_network(dir.path(), &dir.id(), &footprint).await?;
    }
    remove_rest(dir.path(), &dir.id(), &footprint).await
}

/// Removes a cluster whose data directory was removed by hand, as far as its footprint tells: its containers are killed,
/// since nobody knows them any more.
async fn remove_lost(lost: Lost) -> Result<()> {
    let Lost { path, id, footprint } = lost;
    if neighbours::runs(&id) {
        bail!("FerroKube still runs on {}, although its files were removed; stop it first", path.display());
    }
    if !footprint.runtime_endpoint.is_empty() {
        if footprint.built_in {
            footprint.marks().end().await?;
            let root = footprint.kubelet_root(&path);
            let config =
                settings(&footprint.node_name, &root, &footprint.runtime_endpoint, &footprint.cgroup_root);
            let removed = kubelet::teardown::remove_logs(&config).await;
            removed.context("the Pods' logs could not all be removed")?;
            if root.starts_with(&path) || is_owned(&root, &path) {
                let removed = kubelet::teardown::remove_dir(root).await;
                removed.context("the kubelet's files could not all be removed")?;
            }
            for driver in [cri::runtime::CgroupDriver::Cgroupfs, cri::runtime::CgroupDriver::Systemd] {
                kubelet::teardown::remove_root_cgroup(&footprint.cgroup_root, driver).await;
            }
        } else {
            remove_node(&path, &footprint).await?;
        }
        remove_network(&path, &id, &footprint).await?;
    }
    remove_hosts(&path, &id, &footprint).await?;
    // Somebody may have put other files in the cluster's place since.
    for name in PLACES {
        let removed = kubelet::teardown::remove_dir(path.join(name)).await;
        removed.with_context(|| format!("{} could not be removed", path.join(name).display()))?;
    }
    footprint::forget(&id)?;
    match std::fs::remove_dir(&path) {
        Err(e) if e.kind() == ErrorKind::DirectoryNotEmpty => {
            println!("removed the rest of the cluster; {} has files that are not its own", path.display());
        }
        Err(e) if e.kind() != ErrorKind::NotFound => {
            return Err(e).with_context(|| format!("{} could not be removed", path.display()));
        }
        _ => println!("removed {}", path.display()),
    }
    Ok(())
}

/// Removes the Pods of this machine's node, with what the kubelet made for them.
async fn remove_node(data_dir: &Path, footprint: &Footprint) -> Result<()> {
    let root = footprint.kubelet_root(data_dir);
    let (name, endpoint) = (&footprint.node_name, &footprint.runtime_endpoint);
    let config = settings(name, &root, endpoint, &footprint.cgroup_root);
    let place = place(&footprint.cni_conf_dir, &footprint.cni_bin_dir, data_dir);
    let shutdown = Shutdown::new();
    // The runtime takes each Pod out of the network before it removes it.
    let agent =
        network::Agent::start(place, None, &shutdown).await.context("the pod network's agent can't run")?;
    let runtime = if footprint.built_in {
        let places =
            Places { data_dir, images: None, handlers: Vec::new(), cgroup_driver: footprint.cgroup_driver };
        let runtime = Box::pin(NodeRuntime::start(places, Clock::system(), &shutdown)).await?;
        if let Some(network) = &runtime.network {
            let (conf, bin) = (footprint.cni_conf_dir.clone(), footprint.cni_bin_dir.clone());
            network.by_agent(agent, CniDirs { conf, bin });
        }
        Some(runtime)
    } else {
        None
    };
    kubelet::teardown::tear_down(&config).await.context("the containers could not all be removed")?;
    if let Some(runtime) = runtime {
        runtime.stop().await;
    }
    shutdown.stop();
    shutdown.finish().await;
    Ok(())
}

/// Removes what this machine's node had for its Pods' connections.
async fn remove_network(data_dir: &Path, id: &str, footprint: &Footprint) -> Result<()> {
    let place = place(&footprint.cni_conf_dir, &footprint.cni_bin_dir, data_dir);
    network::teardown::teardown(&place).await.context("the pod network could not be removed")?;
    proxy::remove(kube_proxy::table(id)).context("the rules of Services could not be removed")?;
    policy::remove(network_policy::table(id))
        .context("the rules of network policies could not be removed")?;
    cluster_dns::take_addresses(&footprint.dns)
        .context("the address of the cluster's DNS could not be removed")
}

/// Removes the nodes of `up --nodes`, and the cluster's files outside its data directory.
async fn remove_hosts(data_dir: &Path, id: &str, footprint: &Footprint) -> Result<()> {
    hosts::remove(data_dir, id, footprint).await?;
    if footprint.kubeconfig.exists() && !footprint.kubeconfig.starts_with(data_dir) {
        std::fs::remove_file(&footprint.kubeconfig)?;
    }
    neighbours::forget(id)
}

/// Removes what is left of a cluster, with its data directory.
async fn remove_rest(data_dir: &Path, id: &str, footprint: &Footprint) -> Result<()> {
    remove_hosts(data_dir, id, footprint).await?;
    let removed = kubelet::teardown::remove_dir(data_dir.to_owned()).await;
    removed.with_context(|| format!("{} could not be removed", data_dir.display()))?;
    footprint::forget(id)?;
    println!("removed {}", data_dir.display());
    Ok(())
}
