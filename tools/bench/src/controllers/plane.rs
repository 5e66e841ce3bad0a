//! Whole control planes.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::process;
use crate::server::Server;
use crate::target::{Op, Target};

/// The connections over which load comes.
const CONNECTIONS: u32 = 8;
/// The time in which a control plane must be at work.
const LIMIT: Duration = Duration::from_mins(1);

/// Upstream's programs.
pub(super) struct Reference<'a> {
    pub(super) apiserver: &'a Path,
    pub(super) etcd: &'a Path,
    pub(super) manager: &'a Path,
    pub(super) scheduler: Option<&'a Path>,
}

/// A control plane that is at work.
pub(super) struct Plane {
    server: Server,
    pub(super) target: Arc<Target>,
    /// The process of the controllers, if they have one of their own.
    manager: Option<u32>,
}

impl Plane {
    /// Starts FerroKube's, in one process; with `apart`, the controllers in one of their own, without a scheduler.
    pub(super) async fn ours(bin: &Path, dir: &Path, apart: Option<&str>) -> Result<Self> {
        let Some(controllers) = apart else {
            return Self::of(Server::control_plane(bin, dir).await?, None).await;
        };
        let mut server = Server::ferrokube(bin, dir).await?;
        let args = [
            "kube-controller-manager".to_owned(),
            format!("--controllers={controllers}"),
            "--secure-port=0".to_owned(),
            "--leader-elect=false".to_owned(),
            format!("--kubeconfig={}", dir.join("admin.kubeconfig").display()),
        ];
        let manager = server.beside("kube-controller-manager", dir, bin, &args)?;
        Self::of(server, Some(manager)).await
    }

    /// Starts upstream's, with the keys that an API server of FerroKube's makes first.
    pub(super) async fn upstream(r: &Reference<'_>, bin: &Path, dir: &Path) -> Result<Self> {
        drop(Server::ferrokube(bin, dir).await?);
        let mut server = Server::upstream(r.apiserver, r.etcd, dir).await?;
        server.write_kubeconfig(&dir.join("reference.kubeconfig"))?;
        let kubeconfig = format!("--kubeconfig={}", dir.join("reference.kubeconfig").display());
        // Its own limit of 20 requests a second would be all that is measured.
        let own = |more: &[&str]| {
            let all =
                ["--leader-elect=false", "--secure-port=0", "--kube-api-qps=10000", "--kube-api-burst=10000"];
            let all = all.iter().chain(more).map(|a| (*a).to_owned());
            all.chain([kubeconfig.clone()]).collect::<Vec<_>>()
        };
        let manager = server.beside("kube-controller-manager", dir, r.manager, &own(&["--controllers=*"]))?;
        if let Some(scheduler) = r.scheduler {
            server.beside("kube-scheduler", dir, scheduler, &own(&[]))?;
        }
        Self::of(server, Some(manager)).await
    }

    async fn of(server: Server, manager: Option<u32>) -> Result<Self> {
        let target = Arc::new(Target::connect(server.config()?, CONNECTIONS).await?);
        let plane = Self { server, target, manager };
        Ok(plane)
    }

    /// Waits until the controllers are at work: a namespace has its account.
    pub(super) async fn at_work(&self) -> Result<()> {
        let begun = Instant::now();
        while let Err(error) =
            self.target.call(Op::get("/api/v1/namespaces/default/serviceaccounts/default")).await
        {
            ensure!(begun.elapsed() < LIMIT, error);
            tokio::time::sleep(Duration::from_millis(20)).await; // the pace of asking
        }
        Ok(())
    }

    /// The CPU time of all its processes so far, in seconds.
    pub(super) fn cpu(&self) -> Result<f64> {
        process::cpu(&self.server.pids())
    }

    /// The CPU time of the controllers' own process so far, in seconds.
    pub(super) fn controllers_cpu(&self) -> Result<f64> {
        self.manager.map_or_else(|| self.cpu(), |pid| process::cpu(&[pid]))
    }

    /// A connection for a watch of its own.
    pub(super) async fn connect(&self, connections: u32) -> Result<Target> {
        Target::connect(self.server.config()?, connections).await
    }
}
