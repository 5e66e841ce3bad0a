//! The node agent: runs the Pods that are bound to its Node in a container runtime, and reports them.
//!
//! Depends on `api`, `component`, `client`, `cri` and `streaming`. It speaks to the container runtime
//! over CRI only, and must never know which runtime answers. Containers outlive it: a restart adopts
//! what it finds by labels.

pub mod config;
pub mod pods;
pub mod runtime;

pub use config::Config;
pub use runtime::Runtime;

use std::sync::Arc;

use client::Client;
use component::{Clock, Shutdown};

/// Everything the kubelet's parts share.
pub struct Kubelet {
    /// Settings.
    pub config: Config,
    /// Requests with the node's identity.
    pub client: Client,
    /// The time of day.
    pub clock: Clock,
    /// The container runtime.
    pub runtime: Runtime,
    /// The Pods of this node.
    pub pods: Arc<pods::PodManager>,
}

/// Why a kubelet cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The container runtime cannot be used.
    #[error(transparent)]
    Runtime(#[from] runtime::RuntimeError),
    /// A directory cannot be made.
    #[error("cannot make the directory {path}")]
    Directory {
        /// Which.
        path: std::path::PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

impl Kubelet {
    /// Runs a kubelet until `shutdown`, which leaves the containers running.
    pub async fn run(
        config: Config,
        client: Client,
        clock: Clock,
        shutdown: Shutdown,
    ) -> Result<(), StartError> {
        for path in [config.root_dir.join("pods"), config.pod_logs_dir.clone()] {
            tokio::fs::create_dir_all(&path)
                .await
                .map_err(|source| StartError::Directory { path: path.clone(), source })?;
        }
        let runtime = Runtime::connect(&config.container_runtime_endpoint).await?;
        let _kubelet = Arc::new(Self { config, client, clock, runtime, pods: Arc::default() });
        shutdown.wait().await;
        Ok(())
    }
}
