//! The controllers: each brings the cluster to the state that its objects describe.
//!
//! A controller is one module in two parts: decisions that are pure functions of the caches' content, and a thin part
//! that carries them out under the controller's own identity, so that RBAC bounds it. To write one, implement
//! [`host::Controller`] and add it to the table in `host/table.rs`; the smallest are `clusterroles` and
//! `serviceaccounts`. Names, events, conditions and messages are upstream's (`pkg/controller`). Depends on `api`,
//! `component`, `client` and `objects`; it must never know how the server stores or admits anything.

mod clusterroles;
mod common;
mod deployment;
mod discovery;
mod disruption;
mod endpoints;
#[cfg(test)]
mod fake;
mod gc;
mod host;
mod namespace;
mod nodes;
mod protection;
mod replicas;
mod root_ca;
mod service_cidrs;
mod serviceaccounts;
pub mod views;

use std::time::Duration;

pub use common::pods::informer as pods;
pub use host::{Choice, ChoiceError, Named, known};
pub use nodes::cidr_set::RangeError;
pub use nodes::lifecycle::{EvictionRates, NodeMonitor};

use client::Clients;
use component::{Clock, Health, Registry, Shutdown};

/// The settings of the controllers. Defaults are upstream's.
#[derive(Debug, Clone)]
pub struct Config {
    /// The clock.
    pub clock: Clock,
    /// PEM of the authorities by which Pods verify the API server.
    pub root_ca: String,
    /// The time for which a namespace's deletion waits for API servers that have not seen it yet: zero where there is
    /// one API server, [`SEVERAL_SERVERS`] otherwise.
    pub namespace_delay: Duration,
    /// The Pod network, one block or one of each family separated by a comma; with "" another component gives the nodes
    /// their blocks.
    pub cluster_cidr: String,
    /// The ranges of the Services' addresses, which nodes do not get.
    pub service_cidrs: Vec<String>,
    /// The prefix of a node's block of IPv4 addresses.
    pub node_prefix_v4: u32,
    /// The prefix of a node's block of IPv6 addresses.
    pub node_prefix_v6: u32,
    /// The times and rates of the nodes' monitor.
    pub node_monitor: NodeMonitor,
    /// The number of ended Pods that are kept; 0 for all.
    pub terminated_pods: usize,
    /// The controllers that run.
    pub controllers: Choice,
}

impl Config {
    /// Makes a configuration with upstream's figures.
    pub fn new(clock: Clock, root_ca: String) -> Self {
        Self {
            clock,
            root_ca,
            namespace_delay: Duration::ZERO,
            cluster_cidr: String::new(),
            service_cidrs: Vec::new(),
            node_prefix_v4: 24,
            node_prefix_v6: 64,
            node_monitor: NodeMonitor::default(),
            terminated_pods: 12_500,
            controllers: Choice::default(),
        }
    }
}

/// Upstream's wait for API servers that have not yet seen the end of a namespace, and let objects in.
pub const SEVERAL_SERVERS: Duration = Duration::from_secs(5);

/// The user as whom the controllers' caches are read.
pub const SHARED_USER: &str = "system:kube-controller-manager";

/// Starts the controllers that `config` chooses; their tasks run until `shutdown`. `clients` gives a client for a
/// user's name: [`SHARED_USER`] for the caches, `system:serviceaccount:kube-system:NAME` for each controller. Their
/// metrics and health checks go into `metrics` and `health`.
///
/// # Errors
/// The configuration cannot be used.
pub fn run(
    config: &Config,
    clients: &Clients,
    metrics: &Registry,
    health: &Health,
    shutdown: &Shutdown,
) -> Result<(), RangeError> {
    let ranges = nodes::ipam::Ranges::parse(
        &config.cluster_cidr,
        config.node_prefix_v4,
        config.node_prefix_v6,
        &config.service_cidrs,
    )?;
    let shared = host::Shared {
        config: config.clone(),
        ranges,
        factory: clients.factory(SHARED_USER),
        metrics: metrics.clone(),
        health: health.clone(),
        shutdown: shutdown.clone(),
    };
    let own = |account: &str| clients.of(&format!("system:serviceaccount:kube-system:{account}"));
    host::start(&config.controllers, &shared, &own);
    Ok(())
}
