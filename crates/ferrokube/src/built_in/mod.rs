//! A node's container runtime: the built-in one, in this process, or another program's.

mod network;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use component::{Clock, Shutdown};
use runtime::{Handler, Runtime, Settings};

pub(crate) use self::network::{CniDirs, PodNetwork};
use crate::archives::{Archives, Importer};
use crate::cli;

/// The directories of CNI that runtimes look into.
const CNI_CONF: &str = "/etc/cni/net.d";
const CNI_BIN: &str = "/opt/cni/bin";
/// The settings of registries, where containerd's documentation puts them.
const REGISTRIES: &str = "/etc/containerd/certs.d";

/// The directory of the built-in runtime.
pub(crate) fn root(data_dir: &Path) -> PathBuf {
    data_dir.join("runtime")
}

/// The socket of the built-in runtime.
pub(crate) fn socket(data_dir: &Path) -> PathBuf {
    root(data_dir).join("cri.sock")
}

/// The runtime's socket, as a flag names it or as the built-in one has it.
pub(crate) fn endpoint(flags: &cli::Node, data_dir: &Path) -> String {
    let own = || socket(data_dir).to_string_lossy().into_owned();
    flags.container_runtime_endpoint.clone().unwrap_or_else(own)
}

/// The directories of CNI. `own` says that the Pod network is this program's: then the built-in runtime, which needs no
/// plugin for it, looks only where a flag says.
pub(crate) fn cni_dirs(flags: &cli::Node, data_dir: &Path, own: bool) -> CniDirs {
    let apart = own && flags.container_runtime_endpoint.is_none();
    let usual = |name: &str, place: &str| if apart { root(data_dir).join(name) } else { place.into() };
    CniDirs {
        conf: flags.cni_conf_dir.clone().unwrap_or_else(|| usual("cni-conf", CNI_CONF)),
        bin: flags.cni_bin_dir.clone().unwrap_or_else(|| usual("cni-bin", CNI_BIN)),
    }
}

/// A node's runtime.
pub(crate) struct NodeRuntime {
    /// Its name and version, for people.
    pub(crate) name: String,
    /// The Pod network of the built-in one; none for another program's.
    pub(crate) network: Option<Arc<PodNetwork>>,
    /// The built-in one.
    own: Option<Own>,
}

struct Own {
    /// The runtime ends when this does.
    _runtime: Runtime,
    shutdown: Shutdown,
}

/// Where the built-in runtime finds and keeps things.
pub(crate) struct Places<'a> {
    /// The node's data directory.
    pub(crate) data_dir: &'a Path,
    /// A directory with archives of images; none for no images.
    pub(crate) images: Option<PathBuf>,
    /// The OCI runtimes besides the built-in one.
    pub(crate) handlers: Vec<Handler>,
    /// The maker of cgroups.
    pub(crate) cgroup_driver: cli::CgroupDriver,
}

impl NodeRuntime {
    /// Takes another program's runtime, which has been asked for its name.
    pub(crate) fn of_another(name: String) -> Self {
        Self { name, network: None, own: None }
    }

    /// Starts the built-in runtime. It goes on until [`NodeRuntime::stop`], also when `process` is stopped: the kubelet
    /// ends before it. Containers outlive it.
    pub(crate) async fn start(places: Places<'_>, clock: Clock, process: &Shutdown) -> Result<Self> {
        let shutdown = process.apart();
        let network = PodNetwork::new(root(places.data_dir).join("cni-cache"));
        let network = Arc::new(network);
        let settings = Settings {
            root: root(places.data_dir),
            socket: socket(places.data_dir),
            registries: vec![REGISTRIES.into()],
            handlers: places.handlers,
            cgroup_driver: places.cgroup_driver.into(),
            clock,
        };
        let runtime = Box::pin(Runtime::start(settings, network.clone(), &shutdown)).await;
        let runtime = runtime.context("the built-in container runtime can't start")?;
        if let Some(dir) = places.images {
            let known = root(places.data_dir).join("imported.json");
            let mut archives =
                Archives::new(&dir, Importer::BuiltIn(runtime.images().clone())).kept_in(known);
            // A Pod that comes with the node finds them.
            Box::pin(archives.import()).await;
            shutdown.spawn(archives.follow(shutdown.clone()));
        }
        let name = format!("built-in runtime {}", env!("CARGO_PKG_VERSION"));
        Ok(Self { name, network: Some(network), own: Some(Own { _runtime: runtime, shutdown }) })
    }

    /// Stops the built-in runtime; containers go on.
    pub(crate) async fn stop(self) {
        if let Some(own) = self.own {
            own.shutdown.finish().await;
        }
    }
}

/// Refuses a data directory whose path is too long for the sockets of the runtime. Those of shims have no such limit.
pub(crate) fn check_socket(data_dir: &Path) -> Result<()> {
    /// The most bytes of a socket's path.
    const LONGEST: usize = 107;
    let own = std::path::absolute(root(data_dir))?;
    for socket in [socket(data_dir), own.join(runtime::ARCHIVES)] {
        let socket = std::path::absolute(socket)?;
        if socket.as_os_str().len() > LONGEST {
            bail!("{} is too long for the path of a socket; choose a shorter --data-dir", socket.display());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_that_are_too_long() {
        let check = |length: usize, expected: bool| {
            let dir = format!("/{}", "d".repeat(length - 1));
            assert_eq!(check_socket(Path::new(&dir)).is_ok(), expected, "{length}");
        };
        // `/runtime/images.sock` has 20 bytes.
        check(87, true);
        check(88, false);
    }
}
