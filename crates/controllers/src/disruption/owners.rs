//! The number of Pods that the controller of a Pod wants.

use std::collections::HashMap;
use std::sync::Arc;

use api::Status;
use api::go::quote;
use client::{Client, Factory, Informer};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::core::v1::ReplicationController;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::common::controller_of;
use crate::discovery::find_scaled;
use crate::views::PodView;

/// A controller and the number of Pods that it wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wants {
    pub(super) uid: String,
    pub(super) pods: i32,
}

/// The number of Pods that all controllers of some Pods want.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Scales {
    pub(super) expected: i64,
    /// Whether some Pods have no controller.
    pub(super) unmanaged: bool,
}

/// The cached controllers, and a client to ask for others.
pub(super) struct Owners {
    client: Client,
    controllers: Informer<ReplicationController>,
    sets: Informer<ReplicaSet>,
    deployments: Informer<Deployment>,
    stateful: Informer<StatefulSet>,
}

/// Makes an error with a text of its own.
pub(super) fn failure(why: impl Into<String>) -> Status {
    Status::failure(500, "", why)
}

fn group_version(reference: &OwnerReference) -> Result<(&str, &str), Status> {
    let text = reference.api_version.as_str();
    match text.matches('/').count() {
        0 => Ok(("", text)),
        1 => Ok(text.split_once('/').unwrap_or_default()),
        _ => Err(failure(format!("unexpected GroupVersion string: {text}"))),
    }
}

impl Owners {
    pub(super) fn new(client: Client, factory: &Factory) -> Self {
        Self {
            client,
            controllers: factory.informer(),
            sets: factory.informer(),
            deployments: factory.informer(),
            stateful: factory.informer(),
        }
    }

    /// Adds up the Pods that the controllers of Pods want; each controller counts once.
    pub(super) async fn scales(&self, pods: &[Arc<PodView>]) -> Result<Scales, Status> {
        let mut known: HashMap<String, i32> = HashMap::new();
        let mut scales = Scales::default();
        for pod in pods {
            let Some(reference) = pod.controller() else {
                scales.unmanaged = true;
                continue;
            };
            if known.contains_key(&reference.uid) {
                continue;
            }
            let Some(wants) = self.wants(reference, pod.namespace()).await? else {
                return Err(failure(format!("found no controllers for pod {}", quote(pod.name()))));
            };
            known.insert(wants.uid, wants.pods);
        }
        scales.expected = known.into_values().map(i64::from).sum();
        Ok(scales)
    }

    /// Finds the controller that a reference names, if it has the reference's uid.
    pub(super) async fn wants(
        &self,
        reference: &OwnerReference,
        namespace: &str,
    ) -> Result<Option<Wants>, Status> {
        let (group, version) = group_version(reference)?;
        let cached = match (group, reference.kind.as_str()) {
            ("", "ReplicationController") => self
                .controllers
                .get(namespace, &reference.name)
                .map(|c| (c.metadata.uid.clone(), c.spec.as_ref().and_then(|s| s.replicas))),
            ("apps" | "extensions", "ReplicaSet") => match self.deployment(reference, namespace) {
                Some(d) => Some((d.metadata.uid.clone(), d.spec.as_ref().and_then(|s| s.replicas))),
                None => self.lone_set(reference, namespace),
            },
            ("apps", "StatefulSet") => self
                .stateful
                .get(namespace, &reference.name)
                .filter(|s| s.metadata.uid.as_ref() == Some(&reference.uid))
                .map(|s| (s.metadata.uid.clone(), s.spec.as_ref().and_then(|s| s.replicas))),
            _ => None,
        };
        let cached = cached.and_then(|(uid, pods)| Some(Wants { uid: uid?, pods: pods.unwrap_or(1) }));
        let right = |w: &Wants| w.uid == reference.uid || reference.kind == "ReplicaSet";
        match cached.filter(right) {
            Some(wants) => Ok(Some(wants)),
            None => self.scale(group, version, reference, namespace).await,
        }
    }

    /// Finds the Deployment behind a ReplicaSet.
    fn deployment(&self, reference: &OwnerReference, namespace: &str) -> Option<Arc<Deployment>> {
        let set = self.set(reference, namespace)?;
        let owner = controller_of(&set.metadata)?;
        let group = group_version(owner).ok()?.0;
        if owner.kind != "Deployment" || !matches!(group, "apps" | "extensions") {
            return None;
        }
        let deployment = self.deployments.get(namespace, &owner.name)?;
        (deployment.metadata.uid.as_ref() == Some(&owner.uid)).then_some(deployment)
    }

    fn set(&self, reference: &OwnerReference, namespace: &str) -> Option<Arc<ReplicaSet>> {
        let set = self.sets.get(namespace, &reference.name)?;
        (set.metadata.uid.as_ref() == Some(&reference.uid)).then_some(set)
    }

    /// Finds a ReplicaSet that no Deployment controls.
    fn lone_set(&self, reference: &OwnerReference, namespace: &str) -> Option<(Option<String>, Option<i32>)> {
        let set = self.set(reference, namespace)?;
        let lone = controller_of(&set.metadata).is_none_or(|owner| owner.kind != "Deployment");
        lone.then(|| (set.metadata.uid.clone(), set.spec.as_ref().and_then(|s| s.replicas)))
    }

    /// Reads the scale of any other controller.
    async fn scale(
        &self,
        group: &str,
        version: &str,
        reference: &OwnerReference,
        namespace: &str,
    ) -> Result<Option<Wants>, Status> {
        let Some(found) = find_scaled(&self.client, group, version, &reference.kind).await? else {
            let version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
            let kind = quote(&reference.kind);
            return Err(failure(format!("no matches for kind {kind} in version {}", quote(&version))));
        };
        let resource = found.resource;
        if !found.has_scale {
            let dot = if resource.group.is_empty() { "" } else { "." };
            let name = format!("{}{dot}{}", resource.plural, resource.group);
            return Err(failure(format!("{name} does not implement the scale subresource")));
        }
        let api = self.client.resource::<Scale>(resource, namespace);
        let scale: Scale = match api.get_subresource(&reference.name, "scale").await {
            Err(e) if e.is_not_found() => return Ok(None),
            other => other?,
        };
        let uid = scale.metadata.uid.unwrap_or_default();
        let pods = scale.spec.and_then(|s| s.replicas).unwrap_or(0);
        Ok((uid == reference.uid).then_some(Wants { uid, pods }))
    }
}
