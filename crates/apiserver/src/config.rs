//! How a server is set up.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use api::resources::ResourceInfo;
use component::{Clock, FeatureGates};

use crate::served::RuntimeConfig;

/// What can be chosen; defaults are upstream's.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where ClusterIPs come from, the first being the default family (`--service-cluster-ip-range`).
    pub service_cidrs: Vec<String>,
    /// Where node ports come from (`--service-node-port-range`).
    pub node_ports: RangeInclusive<u16>,
    /// The address of this server in the `kubernetes` Endpoints (`--advertise-address`).
    pub advertise_address: Option<IpAddr>,
    /// The port of this server in the `kubernetes` Endpoints.
    pub port: u16,
    /// Reading requests at once (`--max-requests-inflight`).
    pub max_in_flight: usize,
    /// Writing requests at once (`--max-mutating-requests-inflight`).
    pub max_mutating_in_flight: usize,
    /// A watch without `timeoutSeconds` ends after this to twice this (`--min-request-timeout`).
    pub min_request_timeout: Duration,
    /// How long Events are kept (`--event-ttl`).
    pub event_ttl: Duration,
    /// How often watchers who asked for bookmarks get one.
    pub bookmark_interval: Duration,
    /// Bytes for encoded forms that are kept.
    pub form_budget: usize,
    /// Which features are on (`--feature-gates`).
    pub gates: FeatureGates,
    /// Which APIs are on (`--runtime-config`).
    pub runtime_config: RuntimeConfig,
    /// Whether long work is done by threads of its own. Without them, as on a paused clock, a request does it itself.
    pub threads: bool,
    /// The wall clock.
    pub clock: Clock,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            service_cidrs: vec!["10.96.0.0/12".into()],
            node_ports: 30000..=32767,
            advertise_address: None,
            port: 6443,
            max_in_flight: 400,
            max_mutating_in_flight: 200,
            min_request_timeout: Duration::from_mins(30),
            event_ttl: Duration::from_hours(1),
            bookmark_interval: Duration::from_mins(1),
            form_budget: 16 << 20,
            gates: FeatureGates::default(),
            runtime_config: RuntimeConfig::default(),
            threads: true,
            clock: Clock::system(),
        }
    }
}

/// The largest body of a request, in bytes.
pub const MAX_BODY: usize = 3 * 1024 * 1024;

impl Config {
    /// The built-in resources that are served, in discovery's order.
    pub fn resources(&self) -> Vec<ResourceInfo> {
        self.runtime_config.resources(&self.gates)
    }
}
