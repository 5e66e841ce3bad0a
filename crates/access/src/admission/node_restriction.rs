//! NodeRestriction: a kubelet changes its own node and the pods on it, and nothing else.

use std::collections::{BTreeSet, HashMap};

use api::view::{Edit, View, same};
use api::{Object, Status, Struct, Text};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde::Deserialize;

use super::certificates::subject_of;
use super::plugin::{Env, Plugin};
use super::reinvocation::Reinvocation;
use super::token_audience::{self, Pod};
use super::{AdmissionRequest, Operation};
use crate::auth::Access;
use crate::auth::node::node_name;
use crate::reader::{ResourceName, read};

const PODS: ResourceName = ("", "pods");
const MIRROR: &str = "kubernetes.io/config.mirror";
const LEASES: &str = "kube-node-lease";
/// Labels that a kubelet sets on its node.
const KUBELET_LABELS: [&str; 11] = [
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

#[derive(Default)]
pub(super) struct NodeRestriction;

impl Plugin for NodeRestriction {
    fn mutate(&self, env: &Env, request: &AdmissionRequest<'_>, object: &mut Struct) -> Result<(), Status> {
        if request.operation == Operation::Connect { Ok(()) } else { Self::check(env, request, Some(object)) }
    }

    fn mutate_waiting<'a>(
        &'a self,
        env: &'a Env,
        request: &'a AdmissionRequest<'a>,
        object: &'a mut Struct,
        _: &'a mut Reinvocation,
    ) -> Option<BoxFuture<'a, Result<(), Status>>> {
        if request.operation != Operation::Create || !request.is_with("", "serviceaccounts", "token") {
            return None;
        }
        let node = node_name(request.user)?;
        Some(Case { env, request, node, object: Some(object) }.token().boxed())
    }

    fn validate(
        &self,
        env: &Env,
        request: &AdmissionRequest<'_>,
        object: Option<&Struct>,
    ) -> Result<(), Status> {
        // Other requests were checked before other plugins could change their objects.
        if request.operation == Operation::Delete { Self::check(env, request, object) } else { Ok(()) }
    }
}

/// A node's request, with everything that the rules look at.
struct Case<'a> {
    env: &'a Env,
    request: &'a AdmissionRequest<'a>,
    node: &'a str,
    object: Option<&'a Struct>,
}

impl NodeRestriction {
    fn check(env: &Env, request: &AdmissionRequest<'_>, object: Option<&Struct>) -> Result<(), Status> {
        let Some(node) = node_name(request.user) else { return Ok(()) };
        let case = Case { env, request, node, object };
        if node.is_empty() {
            return case.refuse(format!("could not determine node from user {:?}", request.user.name));
        }
        match (request.info.group.as_str(), request.resource) {
            ("", "pods") => match request.subresource {
                "" => case.pod(),
                "status" => case.pod_status(),
                "eviction" => case.eviction(),
                other => case.refuse(format!(
                    "unexpected pod subresource {other:?}, only 'status' and 'eviction' are allowed"
                )),
            },
            ("", "nodes") => case.own_node(),
            ("", "persistentvolumeclaims") if request.subresource == "status" => case.claim_status(),
            ("", "persistentvolumeclaims") => case.refuse("may only update PVC status"),
            ("certificates.k8s.io", "podcertificaterequests") => case.pod_certificate(),
            ("coordination.k8s.io", "leases") => case.lease(),
            ("storage.k8s.io", "csinodes") => case.same_name("CSINode"),
            ("resource.k8s.io", "resourceslices") => case.slice(),
            ("certificates.k8s.io", "certificatesigningrequests") => case.certificate(),
            _ => Ok(()),
        }
    }
}

/// The parts of a pod with which a request for its certificate is compared.
#[derive(Deserialize, Default)]
#[serde(default)]
struct RequestedPod {
    metadata: Annotated,
    spec: PlacedSpec,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Annotated {
    annotations: HashMap<Text, Text>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct PlacedSpec {
    node_name: Text,
    service_account_name: Text,
}

impl Case<'_> {
    fn refuse(&self, why: impl std::fmt::Display) -> Result<(), Status> {
        Err(self.request.forbidden(self.object, why))
    }
    fn unexpected(&self) -> Result<(), Status> {
        self.refuse(format!("unexpected operation {:?}", self.request.operation.name()))
    }
    fn view(&self) -> View<'_> {
        self.object.map_or_else(|| View::empty(self.env.schema), |o| self.env.view(o))
    }
    fn old(&self) -> View<'_> {
        self.request.old.map_or_else(|| View::empty(self.env.schema), |o| self.env.view(o))
    }

    fn pod(&self) -> Result<(), Status> {
        let node = self.node;
        match self.request.operation {
            Operation::Create => self.mirror_pod(),
            Operation::Delete => {
                if self.old().st("spec").str("nodeName") == node {
                    Ok(())
                } else {
                    self.refuse(format!(
                        "node {node:?} can only delete pods with spec.nodeName set to itself"
                    ))
                }
            }
            other => self.refuse(format!(
                "unexpected operation {:?}, node {node:?} can only create and delete mirror pods",
                other.name()
            )),
        }
    }

    fn mirror_pod(&self) -> Result<(), Status> {
        let node = self.node;
        let pod = self.view();
        let meta = pod.st("metadata");
        if meta.map("annotations").is_none_or(|a| a.get(MIRROR).is_none()) {
            return self.refuse(format!(
                "pod does not have {MIRROR:?} annotation, node {node:?} can only create mirror pods"
            ));
        }
        if pod.st("spec").str("nodeName") != node {
            return self
                .refuse(format!("node {node:?} can only create pods with spec.nodeName set to itself"));
        }
        let mut owners = meta.items("ownerReferences");
        let (owner, more) = (owners.next(), owners.next());
        if more.is_some() {
            return self.refuse(format!(
                "node {node:?} can only create pods with a single owner reference set to itself"
            ));
        }
        let own =
            owner.filter(|o| o.str("apiVersion") == "v1" && o.str("kind") == "Node" && o.str("name") == node);
        let Some(owner) = own else {
            return self
                .refuse(format!("node {node:?} can only create pods with an owner reference set to itself"));
        };
        if !owner.bool("controller") {
            return self.refuse(format!(
                "node {node:?} can only create pods with a controller owner reference set to itself"
            ));
        }
        if owner.bool("blockOwnerDeletion") {
            return self
                .refuse(format!("node {node:?} must not set blockOwnerDeletion on an owner reference"));
        }
        let Some(stored) = self.env.reader.get(("", "nodes"), "", node) else {
            return Err(Status::not_found("", "nodes", node));
        };
        let (given, uid) = (owner.str("uid"), &stored.data.uid);
        if given != uid {
            return self.refuse(format!("node {node} UID mismatch: expected {given} got {uid}"));
        }
        match super::references::any(&pod.st("spec")) {
            Some(what) => self.refuse(format!("node {node:?} can not create pods that reference {what}")),
            None => Ok(()),
        }
    }

    fn pod_status(&self) -> Result<(), Status> {
        let node = self.node;
        if self.request.operation != Operation::Update {
            return self.unexpected();
        }
        let (old, new) = (self.old(), self.view());
        if old.st("spec").str("nodeName") != node {
            return self.refuse(format!(
                "node {node:?} can only update pod status for pods with spec.nodeName set to itself"
            ));
        }
        if !same(old.st("metadata").get("labels"), new.st("metadata").get("labels")) {
            return self.refuse(format!("node {node:?} cannot update labels through pod status"));
        }
        let (before, after) = (old.st("status"), new.st("status"));
        if !same(before.get("resourceClaimStatuses"), after.get("resourceClaimStatuses")) {
            return self.refuse(format!("node {node:?} cannot update resource claim statues"));
        }
        if !same(before.get("extendedResourceClaimStatus"), after.get("extendedResourceClaimStatus")) {
            return self.refuse(format!("node {node:?} cannot update extended resource claim status"));
        }
        Ok(())
    }

    fn stored_pod(&self, name: &str) -> Result<(std::sync::Arc<Object>, Pod), Status> {
        let pod = self.env.reader.get(PODS, self.request.namespace, name);
        let pod = pod.ok_or_else(|| Status::not_found("", "pods", name))?;
        let read = read(&pod).unwrap_or_default();
        Ok((pod, read))
    }

    fn eviction(&self) -> Result<(), Status> {
        if self.request.operation != Operation::Create {
            return self.unexpected();
        }
        let given = self.view().st("metadata").str("name");
        let name = if self.request.name.is_empty() { given } else { self.request.name };
        if name.is_empty() {
            return self.refuse("could not determine pod from request data");
        }
        if self.stored_pod(name)?.1.spec.node_name != self.node {
            return self
                .refuse(format!("node {} can only evict pods with spec.nodeName set to itself", self.node));
        }
        Ok(())
    }

    fn own_node(&self) -> Result<(), Status> {
        let node = self.node;
        let (new, old) = (self.view(), self.old());
        let named =
            if self.request.name.is_empty() { new.st("metadata").str("name") } else { self.request.name };
        if named != node {
            return self.refuse(format!("node {node:?} is not allowed to modify node {named:?}"));
        }
        let labels = |of: &View<'_>| -> Vec<(String, String)> {
            of.st("metadata").texts("labels").map(|(k, v)| (k.into(), v.into())).collect()
        };
        match self.request.operation {
            Operation::Create => {
                if new.st("spec").has("configSource") {
                    return self.refuse(format!(
                        "node {node:?} is not allowed to create pods with a non-nil configSource"
                    ));
                }
                let forbidden = forbidden_labels(&labels(&new), &[]);
                if !forbidden.is_empty() {
                    return self.refuse(format!(
                        "node {node:?} is not allowed to set the following labels: {}",
                        forbidden.join(", ")
                    ));
                }
            }
            Operation::Update => {
                let (spec, before) = (new.st("spec"), old.st("spec"));
                if spec.has("configSource") && !same(spec.get("configSource"), before.get("configSource")) {
                    return self.refuse(format!(
                        "node {node:?} is not allowed to update configSource to a new non-nil configSource"
                    ));
                }
                if !same(spec.get("taints"), before.get("taints")) {
                    return self.refuse(format!("node {node:?} is not allowed to modify taints"));
                }
                let owners = |of: &View<'_>| of.st("metadata").get("ownerReferences").cloned();
                if !same(owners(&new).as_ref(), owners(&old).as_ref()) {
                    return self.refuse(format!("node {node:?} is not allowed to modify ownerReferences"));
                }
                let forbidden = forbidden_labels(&labels(&new), &labels(&old));
                if !forbidden.is_empty() {
                    return self.refuse(format!("is not allowed to modify labels: {}", forbidden.join(", ")));
                }
            }
            Operation::Delete | Operation::Connect => {}
        }
        Ok(())
    }

    fn claim_status(&self) -> Result<(), Status> {
        let (Some(new), Some(old)) = (self.object, self.request.old) else { return self.unexpected() };
        let bare = |claim: &Struct| {
            let mut copy = claim.clone();
            let mut edit = Edit::new(self.env.schema, &mut copy);
            if let Some(mut status) = edit.at("status") {
                for field in ["capacity", "conditions", "allocatedResources", "allocatedResourceStatuses"] {
                    status.remove(field);
                }
            }
            if let Some(mut meta) = edit.at("metadata") {
                meta.remove("resourceVersion");
                meta.remove("managedFields");
            }
            copy
        };
        if bare(new) == bare(old) {
            return Ok(());
        }
        self.refuse(format!(
            "node {:?} is not allowed to update fields other than status.quantity and status.conditions",
            self.node
        ))
    }

    async fn token(self) -> Result<(), Status> {
        let spec = self.view().st("spec");
        let reference = spec.st("boundObjectRef");
        let (name, uid) = (reference.str("name"), reference.str("uid"));
        if reference.str("apiVersion") != "v1" || reference.str("kind") != "Pod" || name.is_empty() {
            return self.refuse("node requested token not bound to a pod");
        }
        if uid.is_empty() {
            return self.refuse("node requested token with a pod binding without a uid");
        }
        let (object, pod) = self.stored_pod(name)?;
        if object.data.uid != uid {
            return self.refuse(format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
            ));
        }
        if pod.spec.node_name != self.node {
            return self.refuse("node requested token bound to a pod scheduled on a different node");
        }
        let mut audiences = spec.strs("audiences");
        let audience = audiences.next().unwrap_or_default();
        if audiences.next().is_some() {
            return self.refuse("node may only request 0 or 1 audiences");
        }
        if token_audience::pod_needs(&*self.env.reader, &object, &pod, audience) {
            return Ok(());
        }
        let access = Access {
            is_resource: true,
            verb: "request-serviceaccounts-token-audience",
            resource: audience,
            namespace: self.request.namespace,
            name: self.request.name,
            ..Access::default()
        };
        if self.env.authorizer.allows(self.request.user, &access).await {
            return Ok(());
        }
        self.refuse(format!(
            "audience {audience:?} not found in pod spec volume, {} is not authorized to request tokens for this audience",
            self.request.user.name
        ))
    }

    fn lease(&self) -> Result<(), Status> {
        if self.request.namespace != LEASES {
            return self.refuse(format!("can only access leases in the {LEASES:?} system namespace"));
        }
        self.same_name("node lease")
    }

    fn same_name(&self, what: &str) -> Result<(), Status> {
        let name = if self.request.operation == Operation::Create {
            self.view().st("metadata").str("name")
        } else {
            self.request.name
        };
        if name == self.node {
            return Ok(());
        }
        self.refuse(format!("can only access {what} with the same name as the requesting node"))
    }

    fn slice(&self) -> Result<(), Status> {
        let (slice, verb) = match self.request.operation {
            Operation::Create => (self.view(), "create"),
            Operation::Delete => (self.old(), "delete"),
            Operation::Update | Operation::Connect => return Ok(()),
        };
        if slice.st("spec").str("nodeName") == self.node {
            return Ok(());
        }
        self.refuse(format!("can only {verb} ResourceSlice with the same NodeName as the requesting node"))
    }

    /// Checks a request for a certificate of a pod that runs on the node, and of its service account. An object that
    /// the server may not have seen yet does not refuse the request for good.
    fn pod_certificate(&self) -> Result<(), Status> {
        if self.request.operation != Operation::Create {
            return self.refuse(format!("unexpected operation {}", self.request.operation.name()));
        }
        if !self.request.subresource.is_empty() {
            return self.refuse(format!("unexpected subresource {}", self.request.subresource));
        }
        let request = self.view();
        let spec = request.st("spec");
        let (node, namespace) = (spec.str("nodeName"), self.request.namespace);
        if node != self.node {
            return self.refuse(format!(
                "PodCertificateRequest.Spec.NodeName={node:?}, which is not the requesting node {:?}",
                self.node
            ));
        }
        let reader = &self.env.reader;
        let missing = |what: &str, plural: &str, shown: &str, name: &str| {
            Status::internal(format!(
                "while retrieving {what} {shown:?} named in the PodCertificateRequest: {plural} {name:?} not found"
            ))
        };
        let (pod_name, account) = (spec.str("podName"), spec.str("serviceAccountName"));
        let pod_shown = format!("{namespace}/{pod_name}");
        let Some(real_node) = reader.get(("", "nodes"), "", node) else {
            return Err(missing("node", "nodes", node, node));
        };
        if real_node.data.uid != spec.str("nodeUID") {
            return Err(Status::internal(format!(
                "PodCertificateRequest for pod {pod_shown:?} names node UID {:?}, inconsistent with the running node ({:?})",
                spec.str("nodeUID"),
                real_node.data.uid
            )));
        }
        let Some(pod) = reader.get(("", "pods"), namespace, pod_name) else {
            return Err(missing("pod", "pods", &pod_shown, pod_name));
        };
        if pod.data.uid != spec.str("podUID") {
            return Err(Status::internal(format!(
                "PodCertificateRequest for pod {pod_shown:?} contains pod UID ({:?}) which differs from running pod {:?}",
                spec.str("podUID"),
                pod.data.uid
            )));
        }
        let place: RequestedPod = read(&pod).unwrap_or_default();
        if place.spec.node_name != node {
            return self.refuse(format!(
                "pod {pod_shown:?} is not running on node {node:?} named in the PodCertificateRequest"
            ));
        }
        if place.metadata.annotations.contains_key(MIRROR) {
            return self.refuse(format!("pod {pod_shown:?} is a mirror pod"));
        }
        if place.spec.service_account_name != account {
            return self.refuse(format!(
                "PodCertificateRequest for pod {pod_shown:?} contains serviceAccountName ({account:?}) that differs from running pod ({:?})",
                place.spec.service_account_name
            ));
        }
        let account_shown = format!("{namespace}/{account}");
        let Some(real_account) = reader.get(("", "serviceaccounts"), namespace, account) else {
            return Err(missing("service account", "serviceaccounts", &account_shown, account));
        };
        if real_account.data.uid != spec.str("serviceAccountUID") {
            return Err(Status::internal(format!(
                "PodCertificateRequest for pod {pod_shown:?} names service account UID {:?}, which differs from the running service account ({:?})",
                spec.str("serviceAccountUID"),
                real_account.data.uid
            )));
        }
        Ok(())
    }

    fn certificate(&self) -> Result<(), Status> {
        const SIGNERS: [&str; 2] =
            ["kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"];
        let csr = self.view();
        if self.request.operation != Operation::Create || !SIGNERS.contains(&csr.st("spec").str("signerName"))
        {
            return Ok(());
        }
        match subject_of(&csr) {
            Err(error) => self.refuse(format!("unable to parse csr: {error}")),
            Ok(subject) if subject.common_name == format!("system:node:{}", self.node) => Ok(()),
            Ok(_) => self.refuse(format!("can only create a node CSR with CN=system:node:{}", self.node)),
        }
    }
}

/// The labels that differ and that a kubelet may not set, in order.
fn forbidden_labels(new: &[(String, String)], old: &[(String, String)]) -> Vec<String> {
    let differs = |a: &[(String, String)], b: &[(String, String)]| {
        let b: BTreeSet<&(String, String)> = b.iter().collect();
        a.iter().filter(|label| !b.contains(label)).map(|label| label.0.clone()).collect::<BTreeSet<_>>()
    };
    let mut modified = differs(new, old);
    modified.extend(differs(old, new));
    modified.into_iter().filter(|label| is_forbidden_label(label)).collect()
}

fn is_forbidden_label(label: &str) -> bool {
    let namespace = label.split_once('/').map_or("", |(namespace, _)| namespace);
    let within = |suffix: &str| {
        namespace == suffix || namespace.strip_suffix(suffix).is_some_and(|rest| rest.ends_with('.'))
    };
    if within("node-restriction.kubernetes.io") {
        return true;
    }
    let of_kubernetes = within("kubernetes.io") || within("k8s.io");
    let of_kubelet =
        KUBELET_LABELS.contains(&label) || within("kubelet.kubernetes.io") || within("node.kubernetes.io");
    of_kubernetes && !of_kubelet
}
