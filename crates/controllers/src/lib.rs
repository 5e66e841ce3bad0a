//! The controllers: each brings the cluster to the state that its objects describe.
//!
//! A controller is one module in two parts: decisions that are pure functions of the caches' content, and a thin part
//! that carries them out under the controller's own identity, so that RBAC bounds it. To write one, implement
//! `host::Controller` and add it to the table in `host/table.rs`; the smallest are `clusterroles` and
//! `serviceaccounts`. Names, events, conditions and messages are upstream's (`pkg/controller`). Depends on `api`,
//! `component`, `client` and `objects`; it must never know how the server stores or admits anything.

mod account_tokens;
mod attach_detach;
mod bootstrap;
pub mod certificates;
mod choice;
mod clusterroles;
mod common;
mod config;
mod cron_jobs;
mod daemon_sets;
mod deployment;
mod device_taints;
mod discovery;
mod disruption;
mod endpoints;
mod ephemeral_volumes;
mod expand;
mod flex_drivers;
mod gc;
mod host;
mod jobs;
mod load_balancers;
mod local_path;
mod namespace;
mod nodes;
mod persistent_volumes;
mod pod_autoscalers;
mod pod_groups;
mod policy_status;
mod pool_status;
mod protection;
mod replicas;
mod resource_claims;
mod resource_quotas;
mod root_ca;
mod selinux_warnings;
mod service_cidrs;
mod serviceaccounts;
mod stateful_sets;
mod storage_migration;
mod storage_versions;
mod ttl_after_finished;
#[cfg(test)]
mod upstream;
pub mod views;

use std::time::Duration;

pub use account_tokens::{TokenSigner, TokenSubject};
pub use choice::Choice;
pub use common::pods::informer as pods;
pub use config::{Autoscaling, Config, EndpointSettings, LoadBalancers, NodeMonitor, Workers};
pub use flex_drivers::FlexDrivers;
pub use host::{ChoiceError, Named, known};
pub use load_balancers::pool::Range;
pub use nodes::cidr_set::RangeError;
pub use nodes::ranges::{MaskSizes, node_prefixes};
pub use nodes::zones::EvictionRates;
pub use objects::attachable::Flex as FlexVolume;

use client::Clients;
use component::{Health, Registry, Shutdown};
use host::Controller;
use nodes::ipam::Ipam;
use nodes::ranges::Ranges;

/// Upstream's wait for API servers that have not yet seen the end of a namespace, and let objects in.
pub const SEVERAL_SERVERS: Duration = Duration::from_secs(5);

/// The user as whom the controllers' caches are read.
pub const SHARED_USER: &str = "system:kube-controller-manager";

/// Checks ranges of Pods' and of Services' addresses before anything is started: nodes can get blocks of these sizes.
///
/// # Errors
/// [`run`] would refuse them.
pub fn check_ranges(
    cluster_cidr: &str,
    sizes: MaskSizes,
    service_cidrs: &[String],
) -> Result<(), RangeError> {
    let (v4, v6) = node_prefixes(cluster_cidr, sizes)?;
    Ranges::parse(cluster_cidr, v4, v6, service_cidrs).map(|_| ())
}

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
    let runs = config.controllers.runs(Ipam::NAME, true);
    let ranges = Ranges::parse(
        if runs { &config.cluster_cidr } else { "" },
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
    let own = |account: &str| match account {
        "" => clients.of(SHARED_USER),
        _ => clients.of(&format!("system:serviceaccount:kube-system:{account}")),
    };
    host::start(&config.controllers, &shared, &own);
    Ok(())
}
