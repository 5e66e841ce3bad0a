//! The arguments of plugins, with upstream's names and defaults.

use k8s_openapi::api::core::v1::{NodeAffinity, TopologySpreadConstraint};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// The arguments of a plugin.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "each has the name of its type")]
pub enum PluginArgs {
    DefaultPreemption(DefaultPreemptionArgs),
    InterPodAffinity(InterPodAffinityArgs),
    NodeAffinity(NodeAffinityArgs),
    NodeResourcesFit(NodeResourcesFitArgs),
    NodeResourcesBalancedAllocation(NodeResourcesBalancedAllocationArgs),
    PodTopologySpread(PodTopologySpreadArgs),
    VolumeBinding(VolumeBindingArgs),
    DynamicResources(DynamicResourcesArgs),
    /// Those of a plugin that takes no arguments, or of a third party.
    Other(Value),
}

impl Default for PluginArgs {
    fn default() -> Self {
        Self::Other(Value::Null)
    }
}

impl PluginArgs {
    /// The arguments of a plugin where the configuration has none for it.
    pub fn of(plugin: &str) -> Self {
        Self::parse(plugin, Value::Null).unwrap_or_default()
    }

    /// Reads the arguments of a plugin.
    ///
    /// # Errors
    /// If they are of another type.
    pub fn parse(plugin: &str, value: Value) -> Result<Self, serde_json::Error> {
        let value = if value.is_null() { Value::Object(serde_json::Map::new()) } else { value };
        Ok(match plugin {
            "DefaultPreemption" => Self::DefaultPreemption(serde_json::from_value(value)?),
            "InterPodAffinity" => Self::InterPodAffinity(serde_json::from_value(value)?),
            "NodeAffinity" => Self::NodeAffinity(serde_json::from_value(value)?),
            "NodeResourcesFit" => {
                let mut args: NodeResourcesFitArgs = serde_json::from_value(value)?;
                default_weights(&mut args.scoring_strategy.resources);
                Self::NodeResourcesFit(args)
            }
            "NodeResourcesBalancedAllocation" => {
                let mut args: NodeResourcesBalancedAllocationArgs = serde_json::from_value(value)?;
                default_weights(&mut args.resources);
                Self::NodeResourcesBalancedAllocation(args)
            }
            "PodTopologySpread" => Self::PodTopologySpread(serde_json::from_value(value)?),
            "VolumeBinding" => Self::VolumeBinding(serde_json::from_value(value)?),
            "DynamicResources" => Self::DynamicResources(serde_json::from_value(value)?),
            _ => Self::Other(value),
        })
    }
}

impl Serialize for PluginArgs {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::DefaultPreemption(args) => args.serialize(to),
            Self::InterPodAffinity(args) => args.serialize(to),
            Self::NodeAffinity(args) => args.serialize(to),
            Self::NodeResourcesFit(args) => args.serialize(to),
            Self::NodeResourcesBalancedAllocation(args) => args.serialize(to),
            Self::PodTopologySpread(args) => args.serialize(to),
            Self::VolumeBinding(args) => args.serialize(to),
            Self::DynamicResources(args) => args.serialize(to),
            Self::Other(value) => value.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for PluginArgs {
    /// Leaves them as they are: the plugin's name, which stands beside them, says of what type they are.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Value::deserialize(from).map(Self::Other)
    }
}

/// `DefaultPreemptionArgs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the fields are upstream's")]
pub struct DefaultPreemptionArgs {
    pub min_candidate_nodes_percentage: i32,
    pub min_candidate_nodes_absolute: i32,
}

impl Default for DefaultPreemptionArgs {
    fn default() -> Self {
        Self { min_candidate_nodes_percentage: 10, min_candidate_nodes_absolute: 100 }
    }
}

/// `InterPodAffinityArgs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the fields are upstream's")]
pub struct InterPodAffinityArgs {
    pub hard_pod_affinity_weight: i32,
    pub ignore_preferred_terms_of_existing_pods: bool,
}

impl Default for InterPodAffinityArgs {
    fn default() -> Self {
        Self { hard_pod_affinity_weight: 1, ignore_preferred_terms_of_existing_pods: false }
    }
}

/// `NodeAffinityArgs`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the fields are upstream's")]
pub struct NodeAffinityArgs {
    pub added_affinity: Option<NodeAffinity>,
}

/// `NodeResourcesFitArgs`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the fields are upstream's")]
pub struct NodeResourcesFitArgs {
    pub ignored_resources: Vec<String>,
    pub ignored_resource_groups: Vec<String>,
    pub scoring_strategy: ScoringStrategy,
}

/// `ScoringStrategy`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the fields are upstream's")]
pub struct ScoringStrategy {
    #[serde(rename = "type")]
    pub type_: String,
    pub resources: Vec<ResourceSpec>,
    pub requested_to_capacity_ratio: Option<RequestedToCapacityRatio>,
}

impl Default for ScoringStrategy {
    fn default() -> Self {
        Self { type_: "LeastAllocated".into(), resources: both(), requested_to_capacity_ratio: None }
    }
}

/// `RequestedToCapacityRatioParam`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the fields are upstream's")]
pub struct RequestedToCapacityRatio {
    pub shape: Vec<ShapePoint>,
}

/// `UtilizationShapePoint`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the fields are upstream's")]
pub struct ShapePoint {
    pub utilization: i32,
    pub score: i32,
}

/// `ResourceSpec`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the fields are upstream's")]
pub struct ResourceSpec {
    pub name: String,
    pub weight: i64,
}

/// `NodeResourcesBalancedAllocationArgs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the fields are upstream's")]
pub struct NodeResourcesBalancedAllocationArgs {
    pub resources: Vec<ResourceSpec>,
}

impl Default for NodeResourcesBalancedAllocationArgs {
    fn default() -> Self {
        Self { resources: both() }
    }
}

/// `PodTopologySpreadArgs`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the fields are upstream's")]
pub struct PodTopologySpreadArgs {
    pub default_constraints: Vec<TopologySpreadConstraint>,
    pub defaulting_type: String,
}

impl Default for PodTopologySpreadArgs {
    fn default() -> Self {
        Self { default_constraints: Vec::new(), defaulting_type: "System".into() }
    }
}

/// `VolumeBindingArgs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the fields are upstream's")]
pub struct VolumeBindingArgs {
    pub bind_timeout_seconds: i64,
    pub shape: Option<Vec<ShapePoint>>,
}

impl Default for VolumeBindingArgs {
    fn default() -> Self {
        Self { bind_timeout_seconds: 600, shape: None }
    }
}

/// `DynamicResourcesArgs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the fields are upstream's")]
pub struct DynamicResourcesArgs {
    pub filter_timeout: String,
    pub binding_timeout: String,
}

impl Default for DynamicResourcesArgs {
    fn default() -> Self {
        Self { filter_timeout: "10s".into(), binding_timeout: "10m0s".into() }
    }
}

/// The resources that are scored by default.
fn both() -> Vec<ResourceSpec> {
    ["cpu", "memory"].map(|name| ResourceSpec { name: name.into(), weight: 1 }).to_vec()
}

/// No resources are those by default, and a resource without a weight counts once.
fn default_weights(resources: &mut Vec<ResourceSpec>) {
    if resources.is_empty() {
        *resources = both();
    }
    for resource in resources.iter_mut().filter(|r| r.weight == 0) {
        resource.weight = 1;
    }
}
