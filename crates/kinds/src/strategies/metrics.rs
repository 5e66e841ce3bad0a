//! The rules of resource metrics, which are not stored.

use super::generic::{CLUSTER, NAMESPACED};
use super::rules::Rules;
use crate::columns;

const GROUP: &str = "metrics.k8s.io";

pub(super) const NODES: Rules =
    Rules { group: GROUP, resource: "nodes", columns: columns::metrics::NODE, ..CLUSTER };

pub(super) const PODS: Rules =
    Rules { group: GROUP, resource: "pods", columns: columns::metrics::POD, ..NAMESPACED };
