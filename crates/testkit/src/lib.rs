//! Clusters, hosts and images for tests.
//!
//! A [`Host`] is a machine for one test: PID, mount, network and UTS namespaces with a private `/run`, so that
//! everything in it dies with the test, also when the test itself is killed. [`Hosts`] are several that reach each other,
//! on one link or behind a router. A [`Cluster`] is FerroKube
//! on such a host, with its built-in container runtime or a containerd of its own, driven through the real kubectl. A [`Server`] is an API server without a node, asked
//! through curl and kubectl. A [`Webhook`] is one that a test makes, or an aggregated API server. An
//! [`Authority`] issues certificates. [`Etcd`] is a real etcd of one member or several. A [`Registry`] has images
//! that tests make, and faults on request. A [`csi::Driver`] is a driver of volumes and a
//! [`dra::Driver`] one of devices, with faults on request, too, and so is a [`device_plugin::Plugin`].
//! A [`Logind`] announces that its machine goes down.
//!
//! The built binary is spawned, not linked, so a test does not relink everything.
//!
//! Tests need root and the tools that `cargo xtask setup` installs.

mod authority;
mod cluster;
pub mod csi;
pub mod device_plugin;
pub mod dra;
mod etcd;
mod host;
mod hosts;
mod http;
mod logind;
mod network;
mod plugin;
mod ports;
pub mod registry;
mod seeds;
mod server;
mod webhook;

pub use authority::Authority;
pub use cluster::{Cluster, Options, Signal};
pub use etcd::Etcd;
pub use host::Host;
pub use hosts::Hosts;
pub use http::{Answer, Pending, Request, Stream};
pub use logind::Logind;
pub use network::Network;
pub use ports::free_port;
pub use registry::Registry;
pub use seeds::{Numbers, Property, try_seeds};
pub use server::Server;
pub use supplies::{Image, PAUSE, containerd_config, eventually, within};
pub use webhook::{Question, Reply, Webhook, own_address};

use std::path::{Path, PathBuf};

/// The checkout in which the tests run.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// A tool that `cargo xtask setup` installed (`kubectl`, `containerd`, …); `FERROKUBE_TOOLS` names another directory of
/// tools.
pub fn tool(name: &str) -> PathBuf {
    std::env::var_os("FERROKUBE_TOOLS").map_or_else(|| root().join(".tools/bin"), PathBuf::from).join(name)
}

/// The directory in which `cargo xtask setup` installed client libraries of other languages: `python` is a directory
/// for Python's search path, `node_modules` is one of Node.js; `FERROKUBE_CLIENTS` names another place.
pub fn clients() -> PathBuf {
    std::env::var_os("FERROKUBE_CLIENTS").map_or_else(|| root().join(".tools/clients"), PathBuf::from)
}

/// The built `ferrokube` binary: `FERROKUBE_BIN`, or the one beside the running test.
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("FERROKUBE_BIN") {
        return path.into();
    }
    let test = std::env::current_exe().unwrap_or_default();
    test.ancestors().nth(2).unwrap_or(&test).join("ferrokube")
}
