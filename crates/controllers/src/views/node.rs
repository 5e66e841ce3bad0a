//! A Node as the controllers read it.

use api::Status;
use client::{Cached, Factory, FromJson, Identity, Informer, Selection, resource_of};
use k8s_openapi::api::core::v1::{AttachedVolume, Node, NodeAddress, NodeCondition, NodeSpec, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

/// The part of a Node that any of the controllers reads: not its images and most
/// resources, which are most of it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct NodeView {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// Its spec.
    pub spec: Option<NodeSpec>,
    /// Its conditions.
    pub status: Option<NodeConditions>,
}

/// The part of a Node's status that any of the controllers reads.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeConditions {
    /// Its conditions.
    pub conditions: Option<Vec<NodeCondition>>,
    /// Its addresses.
    pub addresses: Option<Vec<NodeAddress>>,
    /// The part of its resources that Pods may have.
    pub allocatable: Option<Cpu>,
    /// The volumes that its kubelet uses.
    pub volumes_in_use: Option<Vec<String>>,
    /// The volumes that are attached to it.
    pub volumes_attached: Option<Vec<AttachedVolume>>,
}

/// The CPUs among a node's resources.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Cpu {
    /// The CPUs.
    pub cpu: Option<Quantity>,
}

client::from_json!(NodeView);

impl NodeView {
    /// Its taints.
    pub fn taints(&self) -> &[Taint] {
        self.spec.as_ref().and_then(|s| s.taints.as_deref()).unwrap_or_default()
    }
}

impl Cached for NodeView {
    fn decode(json: &[u8]) -> Result<Self, Status> {
        let mut node = Self::from_json(json)?;
        node.metadata.managed_fields = None;
        Ok(node)
    }
    fn identity(&self) -> Identity<'_> {
        Identity::of(&self.metadata)
    }
}

/// The informer of all Nodes.
pub fn nodes(factory: &Factory) -> Informer<NodeView> {
    factory.select(resource_of::<Node>(), Selection::default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields() {
        let node = json!({
            "metadata": {"name": "n", "uid": "u", "resourceVersion": "7", "managedFields": [{"manager": "m"}]},
            "spec": {"taints": [{"key": "k", "effect": "NoExecute"}], "podCIDRs": ["10.0.0.0/24"]},
            "status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": null}],
                "images": 7, "volumesInUse": ["v"], "volumesAttached": [{"name": "v", "devicePath": ""}]},
        });
        let node = NodeView::decode(node.to_string().as_bytes()).unwrap();
        assert_eq!((node.name(), node.uid(), node.resource_version()), ("n", "u", "7"));
        assert_eq!((node.taints().len(), node.metadata.managed_fields), (1, None));
        let status = node.status.unwrap();
        assert_eq!(status.conditions.unwrap()[0].status, "True");
        assert_eq!(status.volumes_in_use.unwrap(), ["v"]);
        assert_eq!(status.volumes_attached.unwrap()[0].name, "v");
        assert!(NodeView::decode(br#"{"metadata":{"name":"n"}}"#).unwrap().taints().is_empty());
        assert!(NodeView::decode(b"[7]").is_err());
    }
}
