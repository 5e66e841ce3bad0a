//! Removes everything that a cluster made on this machine.

use anyhow::{Context, Result};
use component::{Clock, Shutdown};

use crate::built_in::{CniDirs, NodeRuntime, Places};
use crate::cli::Down;
use crate::cluster_dns;
use crate::data_dir::DataDir;
use crate::hosts;
use crate::kube_proxy;
use crate::neighbours;
use crate::network_policy;
use crate::node::{place, settings};

/// Runs `ferrokube down`.
pub(crate) async fn run(flags: &Down) -> Result<()> {
    let path = &flags.data_dir;
    if !path.exists() {
        println!("nothing to remove: {} does not exist", path.display());
        return Ok(());
    }
    let dir = DataDir::open(path)?;
    let footprint = dir.footprint()?;
    if !footprint.runtime_endpoint.is_empty() {
        let root = if footprint.kubelet_root.as_os_str().is_empty() {
            dir.path().join("kubelet")
        } else {
            footprint.kubelet_root.clone()
        };
        let (name, endpoint) = (&footprint.node_name, &footprint.runtime_endpoint);
        let config = settings(name, (dir.path(), &root), endpoint, &footprint.cgroup_root);
        let place = place(&footprint.cni_conf_dir, &footprint.cni_bin_dir, dir.path());
        let shutdown = Shutdown::new();
        // The runtime takes each Pod out of the network before it removes it.
        let agent = network::Agent::start(place.clone(), None, &shutdown)
            .await
            .context("the pod network's agent can't run")?;
        let runtime = if footprint.built_in {
            let places = Places {
                data_dir: dir.path(),
                images: None,
                handlers: Vec::new(),
                cgroup_driver: footprint.cgroup_driver,
            };
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
        network::teardown::teardown(&place).await.context("the pod network could not be removed")?;
        proxy::remove(kube_proxy::table(&dir)).context("the rules of Services could not be removed")?;
        policy::remove(network_policy::table(&dir))
            .context("the rules of network policies could not be removed")?;
        cluster_dns::take_addresses(&footprint.dns)
            .context("the address of the cluster's DNS could not be removed")?;
    }
    hosts::remove(&dir).await?;
    if footprint.kubeconfig.exists() && !footprint.kubeconfig.starts_with(dir.path()) {
        std::fs::remove_file(&footprint.kubeconfig)?;
    }
    neighbours::forget(&dir)?;
    let shown = dir.path().to_owned();
    std::fs::remove_dir_all(dir.path())
        .with_context(|| format!("{} could not be removed", shown.display()))?;
    println!("removed {}", shown.display());
    Ok(())
}
