//! The settings of the controllers.

use std::sync::Arc;
use std::time::Duration;

use api::FeatureGates;
use component::Clock;

use crate::account_tokens::TokenSigner;
use crate::certificates::Signers;
use crate::choice::Choice;
use crate::flex_drivers::FlexDrivers;
use crate::load_balancers::pool::Range;
use crate::nodes::ranges::{NODE_PREFIX_V4, NODE_PREFIX_V6};
use crate::nodes::zones::EvictionRates;

/// The settings of the controllers. Defaults are upstream's.
#[derive(Debug, Clone)]
pub struct Config {
    /// The clock.
    pub clock: Clock,
    /// PEM of the authorities by which Pods verify the API server.
    pub root_ca: String,
    /// The time for which a namespace's deletion waits for API servers that have not seen it yet: zero where there is
    /// one API server, [`crate::SEVERAL_SERVERS`] otherwise.
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
    /// The settings of the controller of Endpoints.
    pub endpoints: EndpointSettings,
    /// The settings of the controller of EndpointSlices.
    pub slices: EndpointSettings,
    /// The settings of the controller that makes EndpointSlices of Endpoints.
    pub mirroring: EndpointSettings,
    /// The settings of load balancers; with `None`, somebody else looks after them.
    pub load_balancers: Option<LoadBalancers>,
    /// Whether volumes are made for claims that find none.
    pub dynamic_provisioning: bool,
    /// Whether a node that is not Ready loses, after six minutes, the volumes that nobody wants there and that it says it
    /// uses.
    pub force_detach: bool,
    /// The drivers of FlexVolumes that attach volumes to nodes; with `None`, nobody attaches theirs.
    pub flex_drivers: Option<Arc<dyn FlexDrivers>>,
    /// Whether volumes are made in directories of nodes, whose agents must know of it.
    pub local_path: bool,
    /// The authorities that sign what the API is asked for.
    pub signers: Signers,
    /// The signer of tokens in Secrets; with `None`, nobody fills them.
    pub token_signer: Option<Arc<dyn TokenSigner>>,
    /// The time without use after which a token that an older controller made becomes invalid, and goes.
    pub legacy_token_clean_up_period: Duration,
    /// Whether the certificates of nodes are approved that upstream leaves to an administrator.
    pub node_certificates: bool,
    /// The numbers of keys that controllers look at at a time.
    pub workers: Workers,
    /// The time after which all quotas are counted again; zero for never.
    pub resource_quota_sync_period: Duration,
    /// The settings of autoscalers.
    pub autoscaling: Autoscaling,
    /// The controllers that run.
    pub controllers: Choice,
    /// Whether objects are removed whose owners are gone.
    pub garbage_collector: bool,
    /// The time before each controller begins, and as long again at most, by chance; zero for none.
    pub start_interval: Duration,
    /// The features that are on.
    pub gates: FeatureGates,
}

/// The numbers of keys that controllers look at at a time; upstream's by default.
#[derive(Debug, Clone, Copy)]
pub struct Workers {
    /// Of StatefulSets.
    pub stateful_sets: usize,
    /// Of DaemonSets.
    pub daemon_sets: usize,
    /// Of Jobs.
    pub jobs: usize,
    /// Of CronJobs.
    pub cron_jobs: usize,
    /// Of Pods whose ephemeral volumes get claims.
    pub ephemeral_volumes: usize,
    /// Of ResourceQuotas.
    pub resource_quotas: usize,
    /// Of Jobs that are removed some time after their end.
    pub ttl_after_finished: usize,
    /// Of HorizontalPodAutoscalers.
    pub pod_autoscalers: usize,
    /// Of ServiceAccounts' tokens in Secrets.
    pub account_tokens: usize,
    /// Of Deployments.
    pub deployments: usize,
    /// Of ReplicaSets.
    pub replica_sets: usize,
    /// Of ReplicationControllers.
    pub replication_controllers: usize,
    /// Of namespaces that are being removed.
    pub namespaces: usize,
    /// Of objects that may be garbage, and as many of objects whose dependents are orphaned.
    pub garbage: usize,
    /// Of ResourceClaims, and Pods that need some.
    pub resource_claims: usize,
    /// Of Pods that devices' taints evict, and rules about them.
    pub device_taints: usize,
    /// Of ValidatingAdmissionPolicies whose expressions are checked.
    pub policies: usize,
}

impl Default for Workers {
    fn default() -> Self {
        Self {
            stateful_sets: 5,
            daemon_sets: 2,
            jobs: 5,
            cron_jobs: 5,
            ephemeral_volumes: 5,
            resource_quotas: 5,
            ttl_after_finished: 5,
            pod_autoscalers: 5,
            account_tokens: 5,
            deployments: 5,
            replica_sets: 5,
            replication_controllers: 5,
            namespaces: 10,
            garbage: 20,
            resource_claims: 50,
            device_taints: 8,
            policies: 5,
        }
    }
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
            node_prefix_v4: NODE_PREFIX_V4,
            node_prefix_v6: NODE_PREFIX_V6,
            node_monitor: NodeMonitor::default(),
            terminated_pods: 12_500,
            endpoints: EndpointSettings { limit: 1000, ..EndpointSettings::default() },
            slices: EndpointSettings::default(),
            mirroring: EndpointSettings { limit: 1000, ..EndpointSettings::default() },
            load_balancers: None,
            dynamic_provisioning: true,
            force_detach: true,
            flex_drivers: None,
            local_path: false,
            signers: Signers::default(),
            token_signer: None,
            legacy_token_clean_up_period: Duration::from_hours(365 * 24),
            node_certificates: false,
            workers: Workers::default(),
            resource_quota_sync_period: Duration::from_mins(5),
            autoscaling: Autoscaling::default(),
            controllers: Choice::default(),
            garbage_collector: true,
            start_interval: Duration::ZERO,
            gates: FeatureGates::default(),
        }
    }
}

/// The settings of a controller of endpoints; upstream's for EndpointSlices by default.
#[derive(Debug, Clone)]
pub struct EndpointSettings {
    /// The greatest number of endpoints of an EndpointSlice, or of a subset that is mirrored. That of Endpoints is
    /// fixed.
    pub limit: usize,
    /// The number of Services that are looked at at a time.
    pub workers: usize,
    /// The time for which a look waits for further changes.
    pub batch: Duration,
}

impl Default for EndpointSettings {
    fn default() -> Self {
        Self { limit: 100, workers: 5, batch: Duration::ZERO }
    }
}

/// The settings of autoscalers; upstream's by default.
#[derive(Debug, Clone, Copy)]
pub struct Autoscaling {
    /// The time between two looks at an autoscaler.
    pub sync_period: Duration,
    /// How far back a size that goes down looks at what was recommended, unless the autoscaler says it.
    pub downscale_stabilization: Duration,
    /// How far the ratio of a metric to its target may be from one, unless the autoscaler says it.
    pub tolerance: f64,
    /// The time after a Pod's start in which its use of the processor may be left out.
    pub cpu_initialization_period: Duration,
    /// The time after a Pod's start in which changes of readiness count as the first.
    pub initial_readiness_delay: Duration,
}

impl Default for Autoscaling {
    fn default() -> Self {
        Self {
            sync_period: Duration::from_secs(15),
            downscale_stabilization: Duration::from_mins(5),
            tolerance: 0.1,
            cpu_initialization_period: Duration::from_mins(5),
            initial_readiness_delay: Duration::from_secs(30),
        }
    }
}

/// The settings of load balancers.
#[derive(Debug, Clone, Default)]
pub struct LoadBalancers {
    /// The addresses; with none, Services get those of the nodes.
    pub pool: Vec<Range>,
    /// The ports of the nodes that the cluster itself needs: no Service gets them there.
    pub reserved: Vec<u16>,
}

/// The times and rates of the nodes' monitor; upstream's by default.
#[derive(Debug, Clone, Copy)]
pub struct NodeMonitor {
    /// Time between two looks at all nodes.
    pub period: Duration,
    /// The time for which a node may be silent.
    pub grace: Duration,
    /// The time for which a node may be silent before it has posted a status at all.
    pub startup_grace: Duration,
    /// The rates of eviction.
    pub rates: EvictionRates,
}

impl Default for NodeMonitor {
    fn default() -> Self {
        Self {
            period: Duration::from_secs(5),
            grace: Duration::from_secs(50),
            startup_grace: Duration::from_mins(1),
            rates: EvictionRates::default(),
        }
    }
}
