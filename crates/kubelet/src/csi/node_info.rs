//! The things that the API is told of a node's drivers: its CSINode, and labels and an annotation of its Node (upstream:
//! `pkg/volume/csi/nodeinfomanager`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::Status;
use client::{Client, Patch};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::{CSINode, CSINodeDriver, CSINodeSpec, VolumeNodeResources};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use objects::migration::{MIGRATED_PLUGINS, Plugin};
use plugins::csi::NodeGetInfoResponse;
use serde_json::json;

/// The annotation with the drivers' names of the node.
const NODE_IDS: &str = "csi.volume.kubernetes.io/nodeid";
/// How often a write is tried, and the times between; upstream's `updateBackoff`.
const ATTEMPTS: u32 = 4;
const FIRST: Duration = Duration::from_millis(10);

/// Why the API was not told.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TellError {
    /// The driver does not name the node.
    #[error("error adding CSI driver node info: driverNodeID must not be empty")]
    NoNodeId,
    /// The API server refuses.
    #[error(transparent)]
    Refused(#[from] Box<Status>),
    /// A label has another value already.
    #[error(
        "detected topology value collision: driver reported {key:?}:{new:?} but existing label is {key:?}:{old:?}"
    )]
    Collision {
        /// The label.
        key: String,
        /// The value that the driver reports.
        new: String,
        /// The value that the Node has.
        old: String,
    },
    /// An annotation is odd.
    #[error("failed to parse node's {NODE_IDS:?} annotation value ({0:?})")]
    Annotation(String),
    /// The CSINode was another Node's.
    #[error("CSINode {0:?} was owned by different node, deleted it")]
    OtherOwner(String),
}

impl From<Status> for TellError {
    fn from(status: Status) -> Self {
        Self::Refused(Box::new(status))
    }
}

/// The things that a driver says of the node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Told {
    /// Its name of the node.
    pub(crate) node_id: String,
    /// How many of its volumes the node takes; 0 for any number.
    pub(crate) limit: i64,
    /// The node's place.
    pub(crate) topology: BTreeMap<String, String>,
}

impl From<NodeGetInfoResponse> for Told {
    fn from(info: NodeGetInfoResponse) -> Self {
        let topology = info.accessible_topology.map(|t| t.segments.into_iter().collect());
        Self {
            node_id: info.node_id,
            limit: info.max_volumes_per_node,
            topology: topology.unwrap_or_default(),
        }
    }
}

/// Writes what drivers say.
pub(crate) struct NodeInfo {
    client: Client,
    name: String,
    /// One write at a time.
    turn: tokio::sync::Mutex<()>,
}

impl NodeInfo {
    /// Of the node of a name.
    pub(crate) fn new(client: Client, name: &str) -> Self {
        Self { client, name: name.to_owned(), turn: tokio::sync::Mutex::default() }
    }

    /// Makes the CSINode, if there is none of this Node, and says there which plugins are drivers by now.
    pub(crate) async fn initialize(&self) -> Result<(), TellError> {
        self.write(Write::Migrated).await
    }

    /// Tells of a driver.
    pub(crate) async fn install(&self, driver: &str, told: &Told) -> Result<(), TellError> {
        if told.node_id.is_empty() {
            return Err(TellError::NoNodeId);
        }
        self.write(Write::Place { driver, told }).await?;
        self.update(driver, told).await
    }

    /// Tells of a driver's changed limits.
    pub(crate) async fn update(&self, driver: &str, told: &Told) -> Result<(), TellError> {
        self.write(Write::Driver { driver, told }).await
    }

    /// Tells that a driver is gone.
    pub(crate) async fn uninstall(&self, driver: &str) -> Result<(), TellError> {
        self.write(Write::NoDriver { driver }).await?;
        self.write(Write::NoPlace { driver }).await
    }

    /// Tries a write several times, since others may write meanwhile.
    async fn write(&self, what: Write<'_>) -> Result<(), TellError> {
        let _turn = self.turn.lock().await;
        let mut wait = FIRST;
        let mut attempt = 1;
        loop {
            match self.try_write(what).await {
                Err(error) if attempt < ATTEMPTS && !matches!(error, TellError::Collision { .. }) => {
                    tracing::debug!(%error, attempt, "cannot tell of a CSI driver yet");
                }
                result => return result,
            }
            attempt += 1;
            tokio::time::sleep(wait).await;
            wait *= 6;
        }
    }

    async fn try_write(&self, what: Write<'_>) -> Result<(), TellError> {
        let (nodes, all) = (self.client.api::<Node>(""), self.client.api::<CSINode>(""));
        let gone = matches!(what, Write::NoDriver { .. } | Write::NoPlace { .. });
        let node = match nodes.get(&self.name).await {
            Err(error) if gone && error.is_not_found() => return Ok(()),
            node => node?,
        };
        let patch = match what {
            Write::Place { driver, told } => node_with(&node, driver, told)?,
            Write::NoPlace { driver } => node_without(&node, driver)?,
            _ => None,
        };
        if let Some(patch) = patch {
            nodes.patch_status(&self.name, &patch).await?;
        }
        if matches!(what, Write::Place { .. } | Write::NoPlace { .. }) {
            return Ok(());
        }
        let uid = node.metadata.uid.unwrap_or_default();
        let old = match all.get(&self.name).await {
            Err(error) if error.is_not_found() && gone => return Ok(()),
            Err(error) if error.is_not_found() => all.create(&new_csi_node(&self.name, &uid)).await?,
            old => old?,
        };
        if !is_owned(&old, &self.name, &uid) {
            all.delete(&self.name, None).await?;
            return Err(TellError::OtherOwner(self.name.clone()));
        }
        let new = match what {
            Write::Migrated => migrated(&old),
            Write::Driver { driver, told } => with_driver(&old, driver, told),
            Write::NoDriver { driver } => without_driver(&old, driver),
            Write::Place { .. } | Write::NoPlace { .. } => None,
        };
        if let Some(new) = new {
            all.update(&new).await?;
        }
        Ok(())
    }
}

/// A change of the Node or its CSINode.
#[derive(Debug, Clone, Copy)]
enum Write<'a> {
    /// The CSINode says which plugins are drivers by now.
    Migrated,
    /// The CSINode names a driver.
    Driver { driver: &'a str, told: &'a Told },
    /// The CSINode does not name a driver any more.
    NoDriver { driver: &'a str },
    /// The Node has a driver's name of it and its place.
    Place { driver: &'a str, told: &'a Told },
    /// The Node does not have a driver's name of it any more.
    NoPlace { driver: &'a str },
}

fn new_csi_node(name: &str, uid: &str) -> CSINode {
    CSINode {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            annotations: Some(BTreeMap::from([(MIGRATED_PLUGINS.to_owned(), migrated_plugins())])),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".into(),
                kind: "Node".into(),
                name: name.to_owned(),
                uid: uid.to_owned(),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        spec: CSINodeSpec::default(),
    }
}

fn is_owned(node: &CSINode, name: &str, uid: &str) -> bool {
    let mut owners = node.metadata.owner_references.iter().flatten();
    owners.any(|o| o.kind == "Node" && o.name == name && o.uid == uid)
}

/// The CSINode with the annotation; none if it has it.
/// The plugins of old whose volumes are drivers' by now.
fn migrated_plugins() -> String {
    Plugin::ALL.map(Plugin::name).join(",")
}

fn migrated(old: &CSINode) -> Option<CSINode> {
    let plugins = migrated_plugins();
    let has = old.metadata.annotations.iter().flatten().any(|(k, v)| k == MIGRATED_PLUGINS && *v == plugins);
    if has {
        return None;
    }
    let mut new = old.clone();
    let annotations = new.metadata.annotations.get_or_insert_default();
    annotations.insert(MIGRATED_PLUGINS.to_owned(), migrated_plugins());
    Some(new)
}

/// The CSINode with a driver; none if it has it.
fn with_driver(old: &CSINode, driver: &str, told: &Told) -> Option<CSINode> {
    let count = (told.limit > 0).then(|| i32::try_from(told.limit).unwrap_or(i32::MAX));
    let keys: BTreeSet<&String> = told.topology.keys().collect();
    let same = |d: &CSINodeDriver| {
        d.node_id == told.node_id
            && d.topology_keys.iter().flatten().collect::<BTreeSet<_>>() == keys
            && d.allocatable.as_ref().and_then(|a| a.count) == count
    };
    if old.spec.drivers.iter().any(|d| d.name == driver && same(d)) {
        return migrated(old);
    }
    let mut new = migrated(old).unwrap_or_else(|| old.clone());
    new.spec.drivers.retain(|d| d.name != driver);
    new.spec.drivers.push(CSINodeDriver {
        name: driver.to_owned(),
        node_id: told.node_id.clone(),
        topology_keys: Some(keys.into_iter().cloned().collect()).filter(|k: &Vec<String>| !k.is_empty()),
        allocatable: count.map(|count| VolumeNodeResources { count: Some(count) }),
    });
    Some(new)
}

/// The CSINode without a driver; none if it does not have it.
fn without_driver(old: &CSINode, driver: &str) -> Option<CSINode> {
    let mut new = old.clone();
    new.spec.drivers.retain(|d| d.name != driver);
    (new.spec.drivers.len() < old.spec.drivers.len()).then_some(new)
}

fn node_ids(node: &Node) -> Result<BTreeMap<String, String>, TellError> {
    let text = node.metadata.annotations.as_ref().and_then(|a| a.get(NODE_IDS));
    let Some(text) = text.filter(|t| !t.is_empty()) else { return Ok(BTreeMap::new()) };
    serde_json::from_str(text).map_err(|_| TellError::Annotation(text.clone()))
}

/// The change of a Node for a driver: its annotation, and the labels of its place; none if it has both.
fn node_with(node: &Node, driver: &str, told: &Told) -> Result<Option<Patch>, TellError> {
    let mut ids = node_ids(node)?;
    let known = ids.insert(driver.to_owned(), told.node_id.clone()).is_some_and(|id| id == told.node_id);
    let mut labels = BTreeMap::new();
    for (key, new) in &told.topology {
        match node.metadata.labels.as_ref().and_then(|l| l.get(key)) {
            Some(old) if old != new => {
                return Err(TellError::Collision { key: key.clone(), new: new.clone(), old: old.clone() });
            }
            Some(_) => {}
            None => drop(labels.insert(key.clone(), new.clone())),
        }
    }
    if known && labels.is_empty() {
        return Ok(None);
    }
    let annotations = json!({ NODE_IDS: json!(ids).to_string() });
    Ok(Some(Patch::Strategic(json!({ "metadata": { "annotations": annotations, "labels": labels } }))))
}

/// The change of a Node whose driver is gone; none if it does not name it.
fn node_without(node: &Node, driver: &str) -> Result<Option<Patch>, TellError> {
    let mut ids = node_ids(node)?;
    if ids.remove(driver).is_none() {
        return Ok(None);
    }
    let left = (!ids.is_empty()).then(|| json!(ids).to_string());
    Ok(Some(Patch::Strategic(json!({ "metadata": { "annotations": { NODE_IDS: left } } }))))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn told(id: &str, limit: i64, topology: &[(&str, &str)]) -> Told {
        let topology = topology.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Told { node_id: id.into(), limit, topology }
    }

    fn csi_node(drivers: Value) -> CSINode {
        let annotations = json!({MIGRATED_PLUGINS: "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,kubernetes.io/azure-file,kubernetes.io/cinder,kubernetes.io/gce-pd,kubernetes.io/portworx-volume,kubernetes.io/vsphere-volume"});
        serde_json::from_value(json!({"metadata": {"name": "n", "annotations": annotations},
            "spec": {"drivers": drivers}}))
        .unwrap()
    }

    #[test]
    fn drivers_of_a_node() {
        let check = |before: Value, told: &Told, expected: Option<Value>| {
            let after = with_driver(&csi_node(before), "d", told);
            assert_eq!(after.map(|n| json!(n)["spec"]["drivers"].clone()), expected);
        };
        let one = || json!([{"name": "d", "nodeID": "i"}]);
        check(json!([]), &told("i", 0, &[]), Some(one()));
        check(one(), &told("i", 0, &[]), None);
        check(one(), &told("j", 0, &[]), Some(json!([{"name": "d", "nodeID": "j"}])));
        let limited = || json!([{"name": "d", "nodeID": "i", "allocatable": {"count": 10}}]);
        check(one(), &told("i", 10, &[]), Some(limited()));
        check(limited(), &told("i", 10, &[]), None);
        check(limited(), &told("i", 0, &[]), Some(one()));
        check(limited(), &told("i", -1, &[]), Some(one()));
        let most = json!([{"name": "d", "nodeID": "i", "allocatable": {"count": i32::MAX}}]);
        check(one(), &told("i", i64::MAX, &[]), Some(most));
        let placed =
            json!([{"name": "e", "nodeID": "e"}, {"name": "d", "nodeID": "i", "topologyKeys": ["a", "b"]}]);
        let others =
            json!([{"name": "d", "nodeID": "i", "topologyKeys": ["b"]}, {"name": "e", "nodeID": "e"}]);
        check(others, &told("i", 0, &[("b", "1"), ("a", "2")]), Some(placed));
        assert!(without_driver(&csi_node(json!([])), "d").is_none());
        assert!(without_driver(&csi_node(one()), "d").unwrap().spec.drivers.is_empty());
    }

    #[test]
    fn the_node_is_told_of_its_place() {
        let node = |labels: Value, annotation: Value| -> Node {
            let annotations = json!({NODE_IDS: annotation});
            serde_json::from_value(json!({"metadata": {"labels": labels, "annotations": annotations}}))
                .unwrap()
        };
        let check = |node: &Node, told: &Told, expected: Result<Option<Value>, &str>| {
            let got = node_with(node, "d", told);
            let got = got.map(|p| {
                p.map(|p| match p {
                    Patch::Strategic(patch) => patch["metadata"].clone(),
                    _ => Value::Null,
                })
            });
            assert_eq!(got.map_err(|e| e.to_string()), expected.map_err(str::to_owned));
        };
        let ids = json!({NODE_IDS: r#"{"d":"i"}"#});
        check(
            &node(json!({}), json!("")),
            &told("i", 0, &[]),
            Ok(Some(json!({"annotations": ids, "labels": {}}))),
        );
        check(&node(json!({}), json!(r#"{"d":"i"}"#)), &told("i", 0, &[]), Ok(None));
        check(
            &node(json!({"zone": "z"}), json!(r#"{"d":"i"}"#)),
            &told("i", 0, &[("zone", "z"), ("rack", "1")]),
            Ok(Some(json!({"annotations": ids, "labels": {"rack": "1"}}))),
        );
        let collision = "detected topology value collision: driver reported \"zone\":\"y\" but existing label is \"zone\":\"z\"";
        check(&node(json!({"zone": "z"}), json!("")), &told("i", 0, &[("zone", "y")]), Err(collision));
        let odd = "failed to parse node's \"csi.volume.kubernetes.io/nodeid\" annotation value (\"odd\")";
        check(&node(json!({}), json!("odd")), &told("i", 0, &[]), Err(odd));
        assert!(node_without(&node(json!({}), json!(r#"{"e":"i"}"#)), "d").unwrap().is_none());
        assert!(node_without(&node(json!({}), json!(r#"{"d":"i"}"#)), "d").unwrap().is_some());
    }
}
