//! The kinds of the core group, but for Pods.

mod config_map;
pub(crate) mod endpoints;
mod event;
mod limit_range;
mod namespace;
mod node;
pub(crate) mod persistent_volume;
pub(crate) mod persistent_volume_claim;
mod pod_template;
mod replication_controller;
mod resource_quota;
mod secret;
mod service;
mod service_account;

pub(super) use config_map::{CONFIG_MAP, decoded_len};
pub(super) use endpoints::ENDPOINTS;
pub(super) use event::{CORE_EVENT, NEW_EVENT};
pub(super) use limit_range::LIMIT_RANGE;
pub(super) use namespace::NAMESPACE;
pub(super) use node::NODE;
pub(super) use persistent_volume::PERSISTENT_VOLUME;
pub(super) use persistent_volume_claim::CLAIM as PERSISTENT_VOLUME_CLAIM;
pub(super) use pod_template::POD_TEMPLATE;
pub(super) use replication_controller::REPLICATION_CONTROLLER;
pub(super) use resource_quota::RESOURCE_QUOTA;
pub(super) use secret::SECRET;
pub(super) use service::SERVICE;
pub use service::service_addresses;
pub(super) use service_account::SERVICE_ACCOUNT;

use super::generic::CLUSTER;
use super::rules::{Going, Rules};
use crate::columns;

/// The rules of ComponentStatuses, which are not stored.
pub(super) const COMPONENT_STATUS: Rules = Rules {
    resource: "componentstatuses",
    columns: columns::core::COMPONENT_STATUS,
    going: &[Going { version: "v1", since: 19, removed: "", instead: "" }],
    ..CLUSTER
};

/// The rules of the one object with the node ports in use, which no client can ask for.
pub(super) const NODE_PORTS: Rules = Rules {
    resource: "servicenodeportallocations",
    internal_kind: Some("RangeAllocation"),
    path: Some("ranges"),
    ..CLUSTER
};
