//! The built-in container runtime alone: for another kubelet, or crictl.

use std::sync::Arc;

use anyhow::{Context, Result};
use component::{Clock, Shutdown};
use runtime::network::{self, Cni, Directories, Network};
use runtime::{Runtime, Settings};

use crate::alone;
use crate::archives::{Archives, Importer};
use crate::cli::{self, CriRuntime};
use crate::say::say;

/// Runs the runtime until a signal stops it; containers run on.
pub(crate) async fn run(flags: &CriRuntime) -> Result<()> {
    let shutdown = Shutdown::new();
    let root = std::path::absolute(&flags.root)?;
    let network: Arc<dyn Network> = match flags.network {
        cli::PodNetwork::None => Arc::new(network::None),
        cli::PodNetwork::Cni => Arc::new(Cni::new(Directories {
            conf: flags.cni_conf_dir.clone(),
            bin: flags.cni_bin_dir.clone(),
            cache: root.join("cni-cache"),
        })),
    };
    let settings = Settings {
        socket: std::path::absolute(&flags.listen)?,
        handlers: flags.runtime_handler.clone(),
        cgroup_driver: flags.cgroup_driver.into(),
        registries: flags.registry_config_dir.clone(),
        clock: Clock::system(),
        root: root.clone(),
    };
    let runtime = Runtime::start(settings, network, &shutdown).await;
    let runtime = runtime.context("the container runtime can't start")?;
    if let Some(dir) = &flags.images {
        let importer = Importer::BuiltIn(runtime.images().clone());
        let mut archives = Archives::new(dir, importer).kept_in(root.join("imported.json"));
        archives.import().await;
        shutdown.spawn(archives.follow(shutdown.clone()));
    }
    say(&format!("container runtime: unix://{}", runtime.socket().display()));
    let result = alone::until_signal(std::future::pending(), &shutdown).await;
    say("stopping; containers go on running");
    result
}
