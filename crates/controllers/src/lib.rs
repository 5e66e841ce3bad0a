//! The controllers: each makes the cluster what its objects say.
//!
//! A controller is one module in two parts: decisions that are pure functions of what the caches
//! show, and a thin part that carries them out under the controller's own identity, so that RBAC
//! bounds it. Names, events, conditions and messages are upstream's (`pkg/controller`). Depends on
//! `api`, `component` and `client`; it must never know how the server stores or admits anything.

mod clusterroles;
mod common;
mod deployment;
mod discovery;
mod disruption;
mod endpoints;
#[cfg(test)]
mod fake;
mod gc;
mod namespace;
mod nodes;
mod protection;
mod replicas;
mod root_ca;
mod service_cidrs;
mod serviceaccounts;

use std::time::Duration;

pub use nodes::ipam::CidrError;
pub use nodes::lifecycle::{EvictionRates, NodeMonitor};

use client::{Client, Factory};
use component::{Clock, Shutdown};

/// What the controllers are told at start. Defaults are upstream's.
#[derive(Debug, Clone)]
pub struct Config {
    /// The clock.
    pub clock: Clock,
    /// PEM of the authorities by which Pods verify the API server.
    pub root_ca: String,
    /// How long a namespace's deletion waits for API servers that have not seen it yet: zero where
    /// there is one API server, [`SEVERAL_SERVERS`] otherwise.
    pub namespace_delay: Duration,
    /// The Pod network, one block or one of each family separated by a comma; "" leaves the nodes' blocks
    /// to somebody else.
    pub cluster_cidr: String,
    /// The ranges of the Services' addresses, which nodes do not get.
    pub service_cidrs: Vec<String>,
    /// The prefix of a node's block of IPv4 addresses.
    pub node_prefix_v4: u32,
    /// The prefix of a node's block of IPv6 addresses.
    pub node_prefix_v6: u32,
    /// How nodes are watched.
    pub node_monitor: NodeMonitor,
    /// How many ended Pods are kept; 0 for all.
    pub terminated_pods: usize,
}

impl Config {
    /// With upstream's figures.
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
        }
    }
}

/// Upstream's wait for API servers that have not yet seen the end of a namespace, and let objects in.
pub const SEVERAL_SERVERS: Duration = Duration::from_secs(5);

/// The user that the controllers' caches are read as.
pub const SHARED_USER: &str = "system:kube-controller-manager";

/// Starts every controller; their tasks run until `shutdown`. `clients` gives a client for a user's name:
/// [`SHARED_USER`] for the caches, `system:serviceaccount:kube-system:NAME` for each controller.
///
/// # Errors
/// Where the configuration cannot be used.
pub fn run(config: &Config, clients: &dyn Fn(&str) -> Client, shutdown: &Shutdown) -> Result<(), CidrError> {
    let ranges = nodes::ipam::Ranges::parse(
        &config.cluster_cidr,
        config.node_prefix_v4,
        config.node_prefix_v6,
        &config.service_cidrs,
    )?;
    let own = |name: &str| clients(&format!("system:serviceaccount:kube-system:{name}"));
    let factory = Factory::new(clients(SHARED_USER));
    serviceaccounts::start(own("service-account-controller"), &factory.view(), shutdown);
    root_ca::start(own("root-ca-cert-publisher"), config.root_ca.clone(), &factory.view(), shutdown);
    namespace::start(
        own("namespace-controller"),
        config.clock,
        config.namespace_delay,
        10,
        &factory.view(),
        shutdown,
    );
    let clock = config.clock;
    replicas::start_replicasets(own("replicaset-controller"), clock, 5, &factory.view(), shutdown);
    replicas::start_replication_controllers(
        own("replication-controller"),
        clock,
        5,
        &factory.view(),
        shutdown,
    );
    deployment::start(own("deployment-controller"), clock, 5, &factory.view(), shutdown);
    gc::start(own("generic-garbage-collector"), clock, 20, shutdown);
    endpoints::start_endpoints(own("endpoint-controller"), clock, 5, &factory.view(), shutdown);
    endpoints::start_slices(own("endpointslice-controller"), clock, 5, &factory.view(), shutdown);
    endpoints::start_mirror(own("endpointslicemirroring-controller"), clock, 5, &factory.view(), shutdown);
    disruption::start(own("disruption-controller"), clock, 5, &factory.view(), shutdown);
    protection::start_claims(own("pvc-protection-controller"), &factory.view(), shutdown);
    protection::start_volumes(own("pv-protection-controller"), &factory.view(), shutdown);
    protection::start_classes(own("volumeattributesclass-protection-controller"), &factory.view(), shutdown);
    service_cidrs::start(own("service-cidrs-controller"), clock, &factory.view(), shutdown);
    clusterroles::start(own("clusterrole-aggregation-controller"), &factory.view(), shutdown);
    nodes::ipam::start(own("node-controller"), clock, ranges, &factory.view(), shutdown);
    nodes::lifecycle::start(own("node-controller"), clock, config.node_monitor, &factory.view(), shutdown);
    nodes::eviction::start(own("node-controller"), clock, &factory.view(), shutdown);
    let threshold = config.terminated_pods;
    nodes::podgc::start(own("pod-garbage-collector"), clock, threshold, &factory.view(), shutdown);
    factory.start(shutdown);
    Ok(())
}

/// Starts a controller's workers once the caches that it asked for show a whole state.
fn when_synced(factory: &Factory, shutdown: &Shutdown, work: impl FnOnce(&Shutdown) + Send + 'static) {
    let (factory, stop) = (factory.clone(), shutdown.clone());
    shutdown.spawn(async move {
        if stop.run(factory.synced()).await.is_some() {
            work(&stop);
        }
    });
}
