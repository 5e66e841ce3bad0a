//! Services and controllers, as far as they select Pods: whose Pods are to be spread by the cluster's defaults.

use std::collections::HashMap;
use std::sync::Arc;

use api::Status;
use client::{Cached, Change, Identity};
use compact_str::CompactString as Text;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use objects::{Labels, Selector};
use serde::Deserialize;
use serde_json::Value;

use crate::pod::PodView;

/// The kinds that select Pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each is the name of a kind")]
pub enum Kind {
    Service,
    ReplicationController,
    ReplicaSet,
    StatefulSet,
}

/// An object that selects Pods. The rest of it is not kept.
#[derive(Debug)]
pub struct Selecting {
    namespace: Text,
    name: Text,
    uid: Text,
    resource_version: Text,
    selector: Selector,
}

#[derive(Deserialize)]
struct Raw {
    metadata: Names,
    #[serde(default)]
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[derive(Default)]
struct Names {
    namespace: Text,
    name: Text,
    uid: Text,
    resource_version: Text,
}

#[derive(Deserialize, Default)]
struct Spec {
    #[serde(default)]
    selector: Value,
}

/// A selector of labels, or a map, as Services and ReplicationControllers have it.
fn selector(said: Value) -> Selector {
    if let Ok(labels) = serde_json::from_value::<Labels>(said.clone()) {
        return Selector::of_map(Some(&labels));
    }
    serde_json::from_value::<LabelSelector>(said)
        .map_or_else(|_| Selector::nothing(), |s| Selector::or_nothing(&s))
}

impl Cached for Selecting {
    fn decode(json: &[u8]) -> Result<Self, Status> {
        let Raw { metadata, spec } = client::json::parse(json)?;
        let Names { namespace, name, uid, resource_version } = metadata;
        Ok(Self { namespace, name, uid, resource_version, selector: selector(spec.selector) })
    }
    fn identity(&self) -> Identity<'_> {
        Identity {
            namespace: &self.namespace,
            name: &self.name,
            uid: &self.uid,
            resource_version: &self.resource_version,
        }
    }
}

/// The objects of one namespace.
#[derive(Debug, Default)]
struct Namespace {
    /// How often one of them has changed.
    version: u64,
    by_kind: HashMap<Kind, HashMap<Text, Arc<Selecting>>>,
}

/// All that select Pods.
#[derive(Debug, Default)]
pub struct Owners(HashMap<Text, Namespace>);

impl Owners {
    /// Takes in a change.
    pub fn take(&mut self, kind: Kind, change: &Change<Selecting>) {
        if let Change::Updated { old, new } = change
            && old.selector == new.selector
        {
            return;
        }
        let object = change.object();
        let here = self.0.entry(object.namespace.clone()).or_default();
        here.version += 1;
        let all = here.by_kind.entry(kind).or_default();
        match change {
            Change::Deleted(_) => all.remove(&object.name),
            _ => all.insert(object.name.clone(), object.clone()),
        };
    }

    /// How often something changed in a namespace.
    pub fn version(&self, namespace: &str) -> u64 {
        self.0.get(namespace).map_or(0, |n| n.version)
    }

    /// The selectors by which a waiting Pod's like are told (upstream's `DefaultSelector`): those of the Services that
    /// select it and of its controller. All must select a Pod.
    pub fn selectors_of(&self, pod: &PodView) -> Vec<Selector> {
        let Some(here) = self.0.get(pod.namespace()) else { return Vec::new() };
        let services = here.by_kind.get(&Kind::Service).into_iter().flat_map(HashMap::values);
        let selects = |s: &&Arc<Selecting>| s.selector.matches_by(|key| pod.labels.get(key));
        let mut found: Vec<&Arc<Selecting>> = services.filter(selects).collect();
        // In an order of their own, so that the same ones are the same.
        found.sort_by(|a, b| a.name.cmp(&b.name));
        let mut owners = pod.whole().metadata.owner_references.iter().flatten();
        let controller = owners.find(|o| o.controller == Some(true)).and_then(|o| {
            let kind = match (o.api_version.as_str(), o.kind.as_str()) {
                ("v1", "ReplicationController") => Kind::ReplicationController,
                ("apps/v1", "ReplicaSet") => Kind::ReplicaSet,
                ("apps/v1", "StatefulSet") => Kind::StatefulSet,
                _ => return None,
            };
            here.by_kind.get(&kind)?.get(o.name.as_str())
        });
        found.extend(controller);
        found.into_iter().map(|s| s.selector.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pod::PodInfo;

    fn object(name: &str, selector: Value) -> Arc<Selecting> {
        let object = json!({"metadata": {"namespace": "d", "name": name}, "spec": {"selector": selector}});
        Arc::new(Selecting::decode(object.to_string().as_bytes()).unwrap())
    }

    fn pod(owner: Value) -> PodInfo {
        let meta = json!({"namespace": "d", "labels": {"a": "1", "b": "2"}, "ownerReferences": owner});
        PodInfo::new(serde_json::from_value(json!({"metadata": meta, "spec": {"containers": []}})).unwrap())
    }

    /// After upstream's `TestDefaultSelector`.
    #[test]
    fn selectors() {
        let mut owners = Owners::default();
        let owned = |version: &str, kind: &str, name: &str| {
            pod(json!([{"apiVersion": version, "kind": kind, "name": name, "uid": "u", "controller": true}]))
        };
        let count = |owners: &Owners, pod: &PodInfo| owners.selectors_of(pod).len();
        assert_eq!((count(&owners, &pod(json!([]))), owners.version("d")), (0, 0));
        owners.take(Kind::Service, &Change::Added(object("s", json!({"a": "1"}))));
        owners.take(Kind::Service, &Change::Added(object("t", json!({"a": "2"}))));
        owners.take(Kind::Service, &Change::Added(object("none", json!(null))));
        assert_eq!(owners.selectors_of(&pod(json!([]))).len(), 1);
        let replicas = object("r", json!({"matchLabels": {"b": "2"}}));
        owners.take(Kind::ReplicaSet, &Change::Added(replicas.clone()));
        owners.take(Kind::ReplicationController, &Change::Added(object("r", json!({"b": "2"}))));
        assert_eq!(count(&owners, &owned("apps/v1", "ReplicaSet", "r")), 2);
        assert_eq!(count(&owners, &owned("v1", "ReplicationController", "r")), 2);
        assert_eq!(count(&owners, &owned("apps/v1", "StatefulSet", "r")), 1);
        assert_eq!(count(&owners, &owned("batch/v1", "Job", "r")), 1);
        let before = owners.version("d");
        owners.take(Kind::ReplicaSet, &Change::Updated { old: replicas.clone(), new: replicas.clone() });
        assert_eq!(owners.version("d"), before, "it selects the same");
        owners.take(Kind::ReplicaSet, &Change::Deleted(replicas));
        assert!(owners.version("d") > before);
        assert_eq!(count(&owners, &owned("apps/v1", "ReplicaSet", "r")), 1);
    }
}
